//! Keys of paper p4's machine: huge pages, and file systems of a row by device.

use std::collections::BTreeMap;

use toml::Spanned;

use super::ColumnEntry;
use crate::keys::words;

words! {
    /// The tasks whose faults move pages for a huge page (`transparent_hugepage/defrag`).
    DefragKind:
        Always = "always", "Those of all programs.";
        Madvise = "madvise", "Those of programs that asked for huge pages, of which there are none here.";
}

/// File systems of a row, by device.
pub type FileSystems = BTreeMap<Spanned<String>, Spanned<String>>;

impl ColumnEntry {
    /// The patches of a column as one name.
    #[must_use]
    pub fn patches_joined(&self) -> String {
        let names = self.patches.iter();
        let names: Vec<&str> = names.map(|name| name.get_ref().as_str()).collect();
        names.join(",")
    }
}
