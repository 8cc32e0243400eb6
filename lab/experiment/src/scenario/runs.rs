//! Keys of paper p4's machine: huge pages, and file systems of a row by device.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::PolicyEntry;

/// The tasks whose faults move pages for a huge page (`transparent_hugepage/defrag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefragKind {
    /// Those of all programs.
    Always,
    /// Those of programs that asked for huge pages, of which there are none here.
    Madvise,
}

/// File systems of a row, by device.
pub type FileSystems = BTreeMap<Spanned<String>, Spanned<String>>;

impl PolicyEntry {
    /// The patches of a column as one name.
    pub(crate) fn patches_joined(&self) -> String {
        let names = self.patches.iter();
        let names: Vec<&str> = names.map(|name| name.get_ref().as_str()).collect();
        names.join(",")
    }
}
