//! Workers that make small files.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};

use guest::Result;

use super::Argument::{Number, Word};
use super::{Done, Kind, Log, Work};

/// Longer than any path here.
const PATH_MAX: usize = 256;

/// Makes a file, writes it, closes it; `PER_FOLDER` in a folder, until there are `MAX` or the disk
/// is full. A call is a batch; its other number is how many there are.
pub(super) const FSMARK: Kind = Kind {
    name: "fsmark",
    arguments: &[
        Word("FOLDER"),
        Number("BYTES"),
        Number("PER_FOLDER"),
        Number("BATCH"),
        Number("MAX"),
    ],
    prepare: |given| {
        let [per_folder, batch] = ["PER_FOLDER", "BATCH"].map(|name| given.number(name));
        if per_folder == 0 || batch == 0 {
            return Err("PER_FOLDER and BATCH are at least 1".to_owned());
        }
        Ok(Box::new(SmallFiles {
            folder: given.word("FOLDER").to_owned(),
            content: vec![0x44; given.number("BYTES")],
            per_folder,
            batch,
            max: given.number("MAX"),
            path: String::with_capacity(PATH_MAX),
        }))
    },
};

struct SmallFiles {
    folder: String,
    content: Vec<u8>,
    per_folder: usize,
    batch: usize,
    max: usize,
    /// Room for a path: none is allocated while files are made.
    path: String,
}

impl Work for SmallFiles {
    fn run(&mut self, log: &Log) -> Result<Done> {
        let mut began = 0;
        for number in 0..self.max {
            if number % self.batch == 0 {
                began = log.begin();
            }
            match self.make(number) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(Done::Full),
                Err(error) => return Err(format!("{}: {error}", self.path)),
            }
            log.did(1);
            if number % self.batch == self.batch - 1 {
                log.end(began, self.batch as u64, number as u64 + 1);
            }
        }
        Ok(Done::All)
    }
}

impl SmallFiles {
    fn make(&mut self, number: usize) -> std::io::Result<()> {
        self.path.clear();
        let _ = write!(self.path, "{}/{}", self.folder, number / self.per_folder);
        if number.is_multiple_of(self.per_folder) {
            fs::create_dir(&self.path)?;
        }
        let _ = write!(self.path, "/{number:08x}");
        let mut file = File::create_new(&self.path)?;
        file.write_all(&self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;

    #[test]
    fn files_are_made_in_their_folders() {
        let place = std::env::temp_dir().join(format!("guest-load-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        let words = [place.to_str().unwrap(), "100", "3", "2", "7"];
        let given = Arguments::parse(FSMARK.arguments, &words).unwrap();
        let log = Log::new(8).unwrap();
        let done = (FSMARK.prepare)(&given).unwrap().run(&log).unwrap();
        assert_eq!(done, Done::All);
        assert_eq!(fs::metadata(place.join("2/00000006")).unwrap().len(), 100);
        assert_eq!(fs::read_dir(place.join("1")).unwrap().count(), 3);
        assert_eq!(log.work(), 7);
        let made: Vec<_> = log.calls().map(|call| call[3]).collect();
        assert_eq!(made, [2, 4, 6]);
        fs::remove_dir_all(&place).unwrap();
    }
}
