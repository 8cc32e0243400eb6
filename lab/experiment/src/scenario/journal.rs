//! A device's journal as a scenario writes it: `journal = true`, or a table of what is not ext4's.

use core::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use toml::Spanned;

/// `journal` of a device.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    /// On as ext4 has it, or off.
    Switch(bool),
    /// On, with other numbers.
    Table(JournalTable),
}

/// The differences of a journal from ext4's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalTable {
    /// Longest life of a transaction (ext4: `commit=`, in seconds there).
    #[serde(default)]
    pub commit_ms: Option<Spanned<f64>>,
    /// Size of the log, before scaling.
    #[serde(default)]
    pub size_mib: Option<Spanned<f64>>,
    /// The way in which data are kept before the metadata that speak of them.
    #[serde(default)]
    pub data: Option<Spanned<JournalData>>,
    /// The largest bio: small where memory is in pieces.
    #[serde(default)]
    pub bio_mib: Option<Spanned<f64>>,
}

/// `data` of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalData {
    /// Extents are unwritten until their data are there (ext4 since 5.6).
    Unwritten,
    /// A commit waits for its data (before that).
    Ordered,
    /// No order.
    Writeback,
}

impl<'de> Deserialize<'de> for JournalEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = JournalEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table like { commit_ms = 5000 }")
            }

            fn visit_bool<E>(self, on: bool) -> Result<Self::Value, E> {
                Ok(JournalEntry::Switch(on))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                JournalTable::deserialize(MapAccessDeserializer::new(map)).map(JournalEntry::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JournalEntry {
    /// Its numbers, if it is on.
    #[must_use]
    pub fn table(&self) -> Option<JournalTable> {
        match self {
            Self::Switch(false) => None,
            Self::Switch(true) => Some(JournalTable::default()),
            Self::Table(table) => Some(table.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Scenario, Source};

    fn shown(journal: &str) -> String {
        let text = format!(
            r#"schema = "tidegate-exp/1"
name = "mine"
machine = {{ cpus = 2, memory_mib = 256, dirty_mib = 64, background_mib = 32 }}
policy = [{{ name = "tidegate" }}]
[[device]]
id = "disk"
model = "sata2010"
{journal}
[[task]]
id = "dd"
kind = "dd"
device = "disk"
file_mib = 512
"#
        );
        let origin = "my.toml".into();
        match Scenario::load(Source { origin, text }, &[]) {
            Ok(_) => "no mistake".into(),
            Err(error) => format!("{error}"),
        }
    }

    #[test]
    fn it_is_a_switch_or_a_table() {
        for journal in [
            "fs = \"ext4\"\njournal = true",
            "journal = false",
            "fs = \"ext4\"\njournal = { commit_ms = 1000, size_mib = 4, data = \"ordered\", bio_mib = 1 }",
        ] {
            assert_eq!(shown(journal), "no mistake", "{journal}");
        }
    }

    #[test]
    fn what_it_cannot_be_is_shown_with_what_it_can() {
        for (journal, says) in [
            ("journal = true", "add `fs = \"ext4\"` to the device"),
            (
                "fs = \"xfs\"\njournal = true",
                "this one has none in the lab",
            ),
            (
                "fs = \"ext4\"\njournal = 5",
                "a table like { commit_ms = 5000 }",
            ),
            ("fs = \"ext4\"\njournal = { commit_s = 5 }", "commit_ms"),
            (
                "fs = \"ext4\"\njournal = { data = \"journal\" }",
                "allowed: unwritten, ordered, writeback",
            ),
            (
                "fs = \"ext4\"\njournal = { commit_ms = 0 }",
                "1 to 3600000 ms",
            ),
            (
                "fs = \"ext4\"\njournal = { size_mib = 100 }",
                "0.25 to 64 MiB",
            ),
        ] {
            let shown = shown(journal);
            assert!(shown.contains(says), "{journal}: {shown}");
            assert!(shown.contains("my.toml:"), "{journal}: {shown}");
        }
    }
}
