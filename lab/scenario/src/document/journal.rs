//! A device's journal as a scenario writes it: `journal = true`, or a table of what is not ext4's.

use toml::de::DeValue;

use crate::keys::{Key, May, Raw, Reader, Takes, Value, keys, range, words};

/// `journal` of a device.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    /// On as ext4 has it, or off.
    Switch(bool),
    /// On, with other numbers.
    Table(JournalTable),
}

keys! {
    /// The numbers of a journal that differ from those of ext4.
    JournalTable:
        commit_ms: May<f64>, "Longest life of a transaction (ext4: `commit=`, in seconds there).", range(1.0, 3_600_000.0, " ms");
        size_mib: May<f64>, "Size of the log, before scaling.", range(0.25, 64.0, " MiB");
        data: May<JournalData>, "The way in which data are kept before the metadata that speak of them.";
        bio_mib: May<f64>, "The largest bio: small where memory is in pieces.", range(1.0 / 256.0, 8.0, " MiB");
}

words! {
    /// `data` of a journal.
    JournalData:
        Unwritten = "unwritten", "Extents are unwritten until their data are there (ext4 since 5.6).";
        Ordered = "ordered", "A commit waits for its data (before that).";
        Writeback = "writeback", "No order.";
}

impl Value for JournalEntry {
    const TAKES: Takes = Takes::SwitchOrTable(JournalTable::KEYS);

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        match raw.get_ref() {
            DeValue::Boolean(on) => Some(Self::Switch(*on)),
            DeValue::Table(_) => JournalTable::read(raw, key, reader).map(Self::Table),
            other => {
                let belongs = "`true`, `false` or a table like { commit_ms = 5000 }";
                reader.wrong(other, raw.span(), key, belongs)
            }
        }
    }
}

impl JournalEntry {
    /// Its numbers, if it is on.
    #[must_use]
    pub fn table(&self) -> Option<JournalTable> {
        match self {
            Self::Switch(false) => None,
            Self::Switch(true) => JournalTable::absent(),
            Self::Table(table) => Some(table.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::document::{Scenario, Source};

    fn shown(journal: &str) -> String {
        let text = format!(
            r#"schema = "tidegate-exp/1"
name = "mine"
machine = {{ cpus = 2, memory_mib = 256, dirty_mib = 64, background_mib = 32 }}
column = [{{ name = "tidegate" }}]
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
