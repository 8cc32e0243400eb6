//! All that a run of `reproduce` came to, as its renderings take it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::board::{Claim, Part};

/// The scoreboard with all that stands around it.
#[derive(Debug, Deserialize, Serialize)]
pub struct Board {
    pub(super) version: Cow<'static, str>,
    /// Experiments that were to be run and have no result.
    pub missing: Vec<String>,
    /// The command to go on with where something is missing.
    pub(super) go_on: Option<String>,
    pub(super) papers: Vec<PaperBoard>,
}

/// The claims of one paper.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PaperBoard {
    pub(super) id: String,
    pub(super) subject: String,
    pub(super) name: String,
    pub(super) who: String,
    pub(super) idea: String,
    pub(super) parts: Vec<Part>,
    pub(super) not_built: Vec<Claim>,
    /// Claims of experiments that were not come to.
    pub(super) not_run: Vec<Claim>,
}

impl PaperBoard {
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        let built = self.parts.iter().flat_map(Part::published);
        built.chain(&self.not_run).chain(&self.not_built)
    }
}

impl Board {
    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data is JSON")
    }

    /// The published claims, paper by paper.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.papers.iter().flat_map(PaperBoard::claims)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.papers.iter().flat_map(|paper| &paper.parts)
    }

    /// Bands, published or our own, that should hold and do not.
    pub(super) fn failing(&self) -> impl Iterator<Item = &Claim> {
        let all = self.parts().flat_map(|part| &part.claims);
        all.filter(|claim| claim.fails())
    }

    pub(super) fn failed_runs(&self) -> usize {
        self.parts().map(|part| part.failed_runs).sum()
    }
}
