//! A recording from where it lies: a folder of tables, or the text of a trace.

use std::path::Path;

use super::fault::Fault;
use super::recording::Recording;
use super::what_if::Change;
use super::{folder, trace};

impl Recording {
    /// Reads a folder of tables, or a file with a trace.
    ///
    /// # Errors
    /// The mistake or the missing part, with file and line.
    pub fn load(path: &Path) -> Result<Self, Fault> {
        Self::load_with(path, &[], &[])
    }

    /// The same; `given` states parameters, `fill` those that a trace does not tell.
    ///
    /// # Errors
    /// The mistake or the missing part, with file and line.
    pub fn load_with(path: &Path, given: &[Change], fill: &[Change]) -> Result<Self, Fault> {
        if path.is_dir() {
            return folder::load(path, given);
        }
        trace::load(path, given, fill)
    }
}
