//! A table as Parquet, compressed with zstd.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::columns::{Data, TidyTable};

/// Writes the table.
pub(super) fn write(table: &TidyTable, path: &Path) -> Result<(), ParquetError> {
    let columns = table
        .columns
        .iter()
        .map(|column| (column.name, array(&column.data)));
    let batch = RecordBatch::try_from_iter(columns)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

fn array(data: &Data) -> ArrayRef {
    match data {
        Data::Text(values) => Arc::new(StringArray::from_iter_values(values)),
        Data::Real(values) => {
            let present = values
                .iter()
                .map(|value| (!value.is_nan()).then_some(*value));
            Arc::new(present.collect::<Float64Array>())
        }
        Data::Whole(values) => Arc::new(Int64Array::from(values.clone())),
        Data::Flag(values) => Arc::new(BooleanArray::from(values.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Column;
    use arrow_array::Array as _;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    #[test]
    fn what_is_written_is_read_back() {
        let table = TidyTable::new(
            "t",
            vec![
                Column {
                    name: "run",
                    data: Data::Text(vec!["a".into(), "b".into()]),
                },
                Column {
                    name: "value",
                    data: Data::Real(vec![1.5, f64::NAN]),
                },
            ],
        );
        let path = std::env::temp_dir().join(format!("tidegate-{}.parquet", std::process::id()));
        write(&table, &path).unwrap();
        let file = File::open(&path).unwrap();
        let mut batches = ParquetRecordBatchReaderBuilder::try_new(file)
            .unwrap()
            .build()
            .unwrap();
        let batch = batches.next().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (2, 2));
        assert!(batch.column(1).is_null(1));
        assert!(batch.column(1).is_valid(0));
    }
}
