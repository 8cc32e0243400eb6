//! The words that a server was started with, and how they and the file's become one draft.

use std::io;

use super::check;
use super::default;
use super::draft::Draft;
use super::file;
use super::mistake::ConfigError;
use super::source;
use super::{Asked, Config};

impl Asked {
    /// Reads all of it.
    ///
    /// # Errors
    /// All mistakes with their places; the file cannot be read.
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.config_in(&default::Surroundings::of_process())
    }

    pub(super) fn config_in(
        &self,
        surroundings: &default::Surroundings,
    ) -> Result<Config, ConfigError> {
        let mut draft = Draft::default();
        if let Some(path) = &self.file {
            let read = std::fs::read(path).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|error| {
                    let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                    io::Error::other(format!("line {line} is not UTF-8: save it as that"))
                })
            });
            let text = read.map_err(|error| ConfigError::File {
                path: path.clone(),
                error,
            })?;
            file::read(&mut draft, path.display().to_string(), text);
        }
        let (of_file, of_listen) = (draft.volumes.len(), draft.listen.len());
        for (key, value) in &self.values {
            draft.take_value(key, value);
        }
        for value in &self.listen {
            let word = draft.argument("--listen", value);
            draft.listen.push(word);
        }
        // Addresses of the command line go first.
        draft.listen.rotate_left(of_listen);
        for value in &self.volumes {
            source::read(&mut draft, value);
        }
        draft.volumes.rotate_left(of_file);
        check::check(draft, self, surroundings)
    }
}
