//! A recording from where it lies: a folder of tables, or the text of a trace.

use std::path::Path;

use super::change::{self, Change};
use super::fault::Fault;
use super::kind::Kind;
use super::recording::Recording;
use super::setting::Setting;
use super::{folder, pressure, trace};

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
        let kind = Kind::of(path);
        if !path.is_dir() {
            return trace::load(path, given, fill);
        }
        let mut setting = Setting::of_folder(kind, path)?;
        let mut notes = Vec::new();
        change::turn(&mut setting, "--given", &given.iter().collect::<Vec<_>>()).map_err(
            |problem| Fault::of(path, problem, "state what is so, with the keys of --set"),
        )?;
        for change in given {
            notes.push(format!("given on the command line: {change}"));
        }
        let outcome = if kind.has_marks {
            pressure::read(path, &setting, &mut notes)?
        } else {
            folder::read(path, &mut setting, &mut notes)?
        };
        Ok(Self::new(setting, outcome, notes))
    }
}
