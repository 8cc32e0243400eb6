//! The parts of a scenario that `tidegate reproduce` runs: the `[reproduce]` table, and the bands
//! that are claims.
//!
//! Without the table it runs the rows and columns that the published claims name, and our own
//! column, at the scenario's own scale. The table makes that smaller where it would take too long,
//! and names the picture that shows the claim.

use serde::Deserialize;
use toml::Spanned;

use super::{ExpectEntry, Scenario};

/// `[reproduce]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReproduceSection {
    /// The scale, if not the scenario's own.
    pub scale: Option<Spanned<f64>>,
    /// These rows alone.
    pub cases: Vec<Spanned<String>>,
    /// These columns alone.
    pub policies: Vec<Spanned<String>>,
    /// Other values of the scenario, as of `--set`: a shorter run.
    pub set: Vec<String>,
    /// CPU time that one repetition took when it was measured last, on one core: for the estimate
    /// of what is left.
    pub seconds: Option<Spanned<f64>>,
    /// The plot that shows the claim, by the name of its file.
    pub figure: Option<Spanned<String>>,
    /// The columns before and after the paper's change; without them the first column, and the
    /// column that most claims hold against it.
    pub sides: Vec<Spanned<String>>,
    /// Metrics in which our own column is held against both sides of the paper; without them, the
    /// printed ones.
    pub trade_offs: Vec<Spanned<String>>,
}

impl ExpectEntry {
    /// It is of a published claim, and not one of our own bands.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.claim.is_some()
            || self.source.starts_with("experiments A")
            || self.source.starts_with("paper ")
    }
}

impl Scenario {
    /// Short name of the paper that it repeats: the first word of `paper`.
    #[must_use]
    pub fn paper_id(&self) -> Option<&str> {
        let paper = self.paper.as_deref()?;
        let end = paper.find(|c: char| !c.is_ascii_alphanumeric());
        Some(&paper[..end.unwrap_or(paper.len())])
    }

    /// Its bands that are of published claims.
    pub fn claims(&self) -> impl Iterator<Item = &ExpectEntry> {
        self.expects.iter().filter(|expect| expect.is_published())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiments;
    use crate::scenario::{Scenario, Source};

    #[test]
    fn a_paper_is_known_by_its_first_word() {
        for (name, paper) in [
            ("dd", Some("p1")),
            ("dd-many", Some("p1")),
            ("stutterp", Some("p0")),
            ("burst", None),
        ] {
            let (scenario, _) = Scenario::load(experiments::by_name(name).unwrap(), &[]).unwrap();
            assert_eq!(scenario.paper_id(), paper, "{name}");
        }
    }

    #[test]
    fn what_the_table_names_has_to_be_there() {
        // An experiment that has no such table of its own.
        let burst = experiments::by_name("burst").unwrap().text;
        for (line, says) in [
            ("cases = [\"ext5\"]", "unknown case `ext5`"),
            ("policies = [\"p9\"]", "unknown policy `p9`"),
            ("trade_offs = [\"reall\"]", "unknown metric `reall`"),
            ("scale = 0.3", "not one over a whole number"),
            ("sides = [\"p9\", \"tidegate\"]", "unknown policy `p9`"),
            ("sides = [\"tidegate\"]", "`sides` takes two columns"),
            ("seconds = -1", "`seconds` is out of range: -1"),
            ("minutes = 1", "unknown key `minutes`"),
        ] {
            let source = Source {
                origin: "mine.toml".into(),
                text: format!("{burst}\n[reproduce]\n{line}\n"),
            };
            let error = Scenario::load(source, &[]).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
