//! The sampler's series: files of the kernel's, read again and again into memory that is there.
//!
//! A reading is a line `@ TIME LENGTH`, that many bytes, and a newline. Of a file of values (`name
//! value` a line) the first reading is the file, and each later one its values alone.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use guest::Result;

use crate::{plan, system};

/// More than any file has that is read so.
const TEXT_MAX: usize = 128 * 1024;

/// Text that grows in room which is there from the start.
pub(crate) struct Kept {
    room: &'static mut [u8],
    length: usize,
}

impl Kept {
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let room = system::own_bytes(bytes)?;
        Ok(Self { room, length: 0 })
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Adds what `fill` writes, all of it or nothing; false: there was no room.
    pub(crate) fn add(&mut self, fill: impl FnOnce(&mut &mut [u8]) -> std::io::Result<()>) -> bool {
        let mut left = &mut self.room[self.length..];
        let before = left.len();
        if fill(&mut left).is_err() {
            return false;
        }
        self.length += before - left.len();
        true
    }
}

/// A file that is read again and again.
pub(crate) struct Series {
    pub(crate) name: String,
    path: String,
    file: File,
    values: bool,
    every: u64,
    readings: u64,
    pub(crate) kept: Kept,
}

/// Room for one reading, and for its values.
pub(crate) struct Scratch {
    text: &'static mut [u8],
    values: Kept,
}

impl Scratch {
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            text: system::own_bytes(TEXT_MAX)?,
            values: Kept::new(TEXT_MAX)?,
        })
    }
}

impl Series {
    /// # Errors
    /// The file is not there, or there is no memory for what is kept.
    pub(crate) fn open(series: &plan::Series) -> Result<Self> {
        let path = series.path.clone();
        Ok(Self {
            name: series.name.clone(),
            file: File::open(&path).map_err(|error| format!("{path}: {error}"))?,
            path,
            values: series.values,
            every: series.every,
            readings: 0,
            kept: Kept::new(series.kib * 1024)?,
        })
    }

    /// Reads it, if it is its turn.
    ///
    /// # Errors
    /// It cannot be read, or what is kept of it is full.
    pub(crate) fn sample(&mut self, number: u64, time: u64, scratch: &mut Scratch) -> Result<()> {
        if !number.is_multiple_of(self.every) {
            return Ok(());
        }
        let length = self.read(scratch.text)?;
        let mut text = &scratch.text[..length];
        if self.values && self.readings > 0 {
            scratch.values.length = 0;
            if !scratch.values.add(|to| values(text, to)) {
                return Err(format!("{}: longer than {TEXT_MAX} bytes", self.path));
            }
            text = scratch.values.text();
        }
        self.readings += 1;
        let added = self.kept.add(|to| {
            writeln!(to, "@ {time} {}", text.len())?;
            to.write_all(text)?;
            to.write_all(b"\n")
        });
        if added {
            Ok(())
        } else {
            let (path, kib) = (&self.path, self.kept.room.len() / 1024);
            Err(format!("{path}: {kib} KiB do not hold a run's readings"))
        }
    }

    fn read(&self, room: &mut [u8]) -> Result<usize> {
        let mut end = 0;
        loop {
            let read = self.file.read_at(&mut room[end..], end as u64);
            match read.map_err(|error| format!("{}: {error}", self.path))? {
                0 if end == room.len() => {
                    return Err(format!("{}: longer than {TEXT_MAX} bytes", self.path));
                }
                0 => return Ok(end),
                bytes => end += bytes,
            }
        }
    }
}

/// The second word of each line.
fn values(text: &[u8], to: &mut &mut [u8]) -> std::io::Result<()> {
    for line in text.split(|byte| *byte == b'\n') {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        if let Some(value) = words.nth(1) {
            to.write_all(value)?;
            to.write_all(b" ")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_values_each_time() {
        let path = std::env::temp_dir().join(format!("guest-load-series-{}", std::process::id()));
        std::fs::write(&path, "nr_free_pages 12\nnr_dirty   3\n").unwrap();
        let mut series = Series::open(&plan::Series {
            name: "vmstat".into(),
            path: path.to_str().unwrap().into(),
            values: true,
            every: 2,
            kib: 1,
        })
        .unwrap();
        let mut scratch = Scratch::new().unwrap();
        for number in 0..4 {
            series.sample(number, 100 + number, &mut scratch).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        let wanted = "@ 100 30\nnr_free_pages 12\nnr_dirty   3\n\n@ 102 5\n12 3 \n";
        assert_eq!(String::from_utf8_lossy(series.kept.text()), wanted);
        let full = (4..200).find_map(|number| series.sample(number, number, &mut scratch).err());
        assert!(full.unwrap().contains("1 KiB"));
    }
}
