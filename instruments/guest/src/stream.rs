//! The stream to the host: `FILE name length`, the bytes, and so on; at the end `END`.

use std::fs::File;
use std::io::Write as _;

use crate::Result;

/// The destination of the files.
pub struct Stream {
    out: File,
    path: String,
}

impl Stream {
    /// Opens it.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(path: &str) -> Result<Self> {
        let out = File::options()
            .write(true)
            .open(path)
            .map_err(|error| format!("{path}: {error}"))?;
        let path = path.to_owned();
        Ok(Self { out, path })
    }

    /// Sends a file.
    ///
    /// # Errors
    /// The host does not take it.
    pub fn send(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.put(format!("FILE {name} {}\n", content.len()).as_bytes())?;
        self.put(content)
    }

    /// Says that this was all.
    ///
    /// # Errors
    /// The host does not take it.
    pub fn finish(mut self) -> Result<()> {
        self.put(b"END\n")
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out
            .write_all(bytes)
            .map_err(|error| format!("{}: {error}", self.path))
    }
}
