//! The constants that were chosen by a published figure, and the claims about those figures:
//! `calibrated.toml`. Such a claim says nothing about the mechanism and is graded D.
//!
//! In the source each of them is marked `CALIBRATED on CLAIM, CLAIM`. A test holds the marks
//! against the list.

use std::sync::LazyLock;

use serde::Deserialize;

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibrated {
    #[serde(rename = "constant")]
    constants: Vec<Constant>,
}

/// One constant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Constant {
    name: String,
    /// The file that has its mark.
    #[cfg_attr(not(test), expect(dead_code, reason = "for people and the test"))]
    file: String,
    /// `EXPERIMENT CLAIM` each.
    rows: Vec<String>,
}

static LIST: LazyLock<Calibrated> =
    LazyLock::new(|| toml::from_str(include_str!("calibrated.toml")).expect("a test reads it"));

/// The constant that was chosen by that claim's figure.
pub(super) fn of(experiment: &str, claim: &str) -> Option<&'static str> {
    let is_of = |row: &String| row.split_once(' ') == Some((experiment, claim));
    let found = LIST.constants.iter().find(|one| one.rows.iter().any(is_of));
    found.map(|one| one.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use experiment::experiments::{self, EXPERIMENTS};
    use experiment::scenario::Scenario;

    use super::*;

    const MARK: &str = "CALIBRATED on ";

    fn files(folder: &Path, all: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                files(&path, all);
            } else if path
                .extension()
                .is_some_and(|end| end == "rs" || end == "toml")
            {
                all.push(path);
            }
        }
    }

    /// The claims that a mark names: words with a digit or a hyphen, up to the end of the sentence.
    fn claims(text: &str) -> BTreeSet<String> {
        let end = text.find(['.', ';', ':', '"']).unwrap_or(text.len());
        let words = text[..end].split(|c: char| c.is_whitespace() || c == ',');
        let ids = words.filter(|word| word.contains('-'));
        ids.map(str::to_owned).collect()
    }

    #[test]
    fn every_mark_in_the_source_is_in_the_list_with_its_claims_and_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut all = Vec::new();
        for folder in ["cache", "lab", "experiments"] {
            files(&root.join(folder), &mut all);
        }
        let mut marked = Vec::new();
        for path in all {
            let name = path
                .strip_prefix(&root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if name.starts_with("lab/reproduce/src/calibrated") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.replace("\n    /// ", " ").replace("\n/// ", " ");
            let text = text.replace("\n//!     ", " ").replace("\n# ", " ");
            for mark in text.split("CALIBRATED").skip(1) {
                let after = mark.strip_prefix(&MARK["CALIBRATED".len()..]);
                let after = after.unwrap_or_else(|| panic!("{name}: CALIBRATED on which claims?"));
                marked.push((name.clone(), claims(after)));
            }
        }
        let listed = LIST.constants.iter().map(|one| {
            let ids = one
                .rows
                .iter()
                .map(|row| row.split_once(' ').unwrap().1.to_owned());
            (one.file.clone(), ids.collect::<BTreeSet<String>>())
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort();
        marked.sort();
        assert_eq!(marked, listed, "marks in the source; calibrated.toml");
    }

    #[test]
    fn every_row_of_the_list_is_a_band_of_its_experiment() {
        for row in LIST.constants.iter().flat_map(|one| &one.rows) {
            let (name, id) = row.split_once(' ').unwrap();
            assert!(EXPERIMENTS.iter().any(|(known, _)| *known == name), "{row}");
            let source = experiments::by_name(name).unwrap();
            let (scenario, _) = Scenario::load(source, &[]).unwrap();
            assert!(
                scenario.expects.iter().any(|one| one.id.get_ref() == id),
                "{row}"
            );
        }
    }
}
