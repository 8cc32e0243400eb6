//! libCacheSim's `oracleGeneral`: records of 24 bytes, little-endian: time in seconds (4), object
//! (8), its size (4), when it is accessed next (8). An object is a page, whatever its size.
//!
//! Source: libCacheSim, doc/quickstart_traceAnalyzer.md and `oracleGeneral` in its README.

use super::{Fault, Sink};

pub(super) fn read(bytes: &[u8], sink: &mut Sink) -> Result<(), Fault> {
    let (records, rest) = bytes.as_chunks::<24>();
    for record in records {
        let object = record[4..12].try_into().expect("8 bytes");
        sink.access(u64::from_le_bytes(object), false)?;
    }
    if rest.is_empty() {
        return Ok(());
    }
    let at = format!("byte {}", records.len() * 24);
    let wrong = format!("{} bytes at the end, not the 24 of a record", rest.len());
    Err(Fault::At(at, wrong))
}
