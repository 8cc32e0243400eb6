//! The parts of a scenario that `tidegate reproduce` runs: the `[reproduce]` table, and the bands
//! that are claims.
//!
//! Without the table it runs the rows and columns that the published claims name, and our own
//! column, at the scenario's own scale. The table makes that smaller where it would take too long,
//! and names the picture that shows the claim.

use toml::Spanned;

use super::{ExpectEntry, METRIC, Scenario};
use crate::keys::{May, keys, range};

keys! {
    /// `[reproduce]`.
    ReproduceSection:
        scale: May<f64>, "The scale, if not the scenario's own.";
        replicas: May<u32>, "Repetitions, each with a seed of its own; without it, one.", range(1.0, 100.0, "");
        rows: Vec<Spanned<String>> = Vec::new(), "These rows alone.";
        columns: Vec<Spanned<String>> = Vec::new(), "These columns alone.";
        leaves: Vec<Spanned<String>> = Vec::new(), "Claims whose runs take too long, by id: `--whole` makes them.";
        set: Vec<String> = Vec::new(), "Other values of the scenario, as of `--set`: a shorter run.";
        seconds: May<f64>, "CPU time that one repetition took when it was measured last, on one core: for the estimate of what is left.", range(0.0, 1e5, " s");
        figure: May<String>, "The plot that shows the claim, by the name of its file.";
        sides: Vec<Spanned<String>> = Vec::new(), "The columns before and after the paper's change; without them the first column, and the column that most claims hold against it.";
        trade_offs: Vec<Spanned<String>> = Vec::new(), "Metrics in which our own column is held against both sides of the paper; without them, the printed ones.", METRIC;
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
    use crate::document::{Scenario, Source};
    use crate::experiments;

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
            ("rows = [\"ext5\"]", "unknown row `ext5`"),
            ("columns = [\"p9\"]", "unknown column `p9`"),
            ("trade_offs = [\"reall\"]", "unknown metric `reall`"),
            ("scale = 0.3", "not one over a whole number"),
            ("sides = [\"p9\", \"tidegate\"]", "unknown column `p9`"),
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
