//! The papers, and those of their claims that nothing here has a band for yet: `papers.toml`.

use serde::Deserialize;

use super::board::{Claim, Marks, Verdict};
use experiment::experiments::{self, EXPERIMENTS};
use experiment::scenario::Scenario;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Papers {
    /// In order.
    #[serde(rename = "paper")]
    pub papers: Vec<Paper>,
    #[serde(rename = "claim", default)]
    claims: Vec<NotBuilt>,
}

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// `p0` and so on.
    pub id: String,
    /// Its subject, in a few words.
    pub(crate) subject: String,
    /// Its name.
    pub name: String,
    /// Its author, where and when.
    pub who: String,
    pub(crate) idea: String,
}

/// A claim without an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotBuilt {
    paper: String,
    id: String,
    claim: String,
    published: String,
    band: String,
    #[serde(default)]
    why: Option<String>,
}

impl Papers {
    /// Those that the program knows.
    ///
    /// # Panics
    /// Never: a test reads the file.
    #[must_use]
    pub fn read() -> Self {
        toml::from_str(include_str!("papers.toml")).expect("a test reads it")
    }

    /// Their ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.papers.iter().map(|paper| paper.id.as_str())
    }

    /// The claims of a paper that no experiment has.
    pub(super) fn not_built(&self, paper: &str) -> Vec<Claim> {
        let built = built();
        let own = self.claims.iter().filter(|claim| claim.paper == paper);
        own.filter(|claim| !built.iter().any(|id| is_of(id, &claim.id)))
            .map(|claim| Claim {
                paper: claim.paper.clone(),
                experiment: None,
                id: claim.id.clone(),
                claim: claim.claim.clone(),
                published: Some(claim.published.clone()),
                ours: None,
                ratio: None,
                band: claim.band.clone(),
                verdict: Verdict::NotBuilt,
                grade: None,
                knock_out: None,
                calibrated: None,
                own: false,
                known: true,
                why: claim.why.clone(),
                seeds: None,
                marks: Marks::default(),
            })
            .collect()
    }
}

/// The ids of all bands of all experiments.
fn built() -> Vec<String> {
    let sources = EXPERIMENTS
        .iter()
        .filter_map(|(name, _)| experiments::by_name(name));
    let loaded = sources.filter_map(|source| Scenario::load(source, &[]).ok());
    let ids = loaded.flat_map(|(scenario, _)| {
        let expects = scenario.expects.into_iter();
        expects.map(|expect| expect.id.into_inner())
    });
    ids.collect()
}

/// True if a band is of that row: `A7-26-vfat` is of `A7-26`.
fn is_of(id: &str, row: &str) -> bool {
    id.strip_prefix(row)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_is_of_a_paper_and_every_paper_of_an_experiment_is_there() {
        let papers = Papers::read();
        let ids: Vec<&str> = papers.ids().collect();
        assert_eq!(ids, ["p0", "p1", "p2", "p3", "p4"]);
        for claim in &papers.claims {
            assert!(ids.contains(&claim.paper.as_str()), "{}", claim.id);
        }
        for (name, _) in EXPERIMENTS {
            let source = experiments::by_name(name).unwrap();
            let (scenario, _) = Scenario::load(source, &[]).unwrap();
            let paper = scenario.paper_id();
            assert!(paper.is_none_or(|paper| ids.contains(&paper)), "{name}");
        }
    }

    #[test]
    fn a_row_is_built_by_its_own_bands_alone() {
        assert!(is_of("A7-26", "A7-26") && is_of("A7-26-vfat", "A7-26"));
        assert!(!is_of("A7-26", "A7-2") && !is_of("A7-2", "A7-26"));
    }
}
