//! All that a run of `reproduce` came to, as its renderings take it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::board::{Claim, Part, Verdict};
use super::grade::Grade;

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

/// The number of claims of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// By grade.
    grades: [usize; Grade::ALL.len()],
    missed: usize,
    /// Not judged, not run or not built.
    others: usize,
}

impl Sum {
    pub(super) fn of<'a>(claims: impl Iterator<Item = &'a Claim>) -> Self {
        let mut sum = Self::default();
        for claim in claims {
            match (claim.grade, claim.verdict) {
                (Some(grade), _) => sum.grades[grade as usize] += 1,
                (None, Verdict::Missed) => sum.missed += 1,
                (None, _) => sum.others += 1,
            }
        }
        sum
    }

    pub(super) const fn graded(&self, grade: Grade) -> usize {
        self.grades[grade as usize]
    }

    /// Within a factor of two, and not without the mechanism.
    pub(super) const fn reproduced(&self) -> usize {
        self.graded(Grade::A) + self.graded(Grade::B)
    }

    /// The claims that can fail: all but those of grade D.
    pub(super) const fn counted(&self) -> usize {
        self.reproduced() + self.graded(Grade::C) + self.missed + self.others
    }

    /// The sentence that `reproduce` ends with, and that README.md and the page of the papers have.
    pub(super) fn said(&self) -> String {
        let others = match self.others {
            0 => String::new(),
            others => format!(", not judged {others}"),
        };
        format!(
            "{} of {} claims are reproduced: {} within 25 % of the published figure (A), {} within a factor of two (B). Only the \
             direction is right in {} (C); missed are {}{others}. In no count: {} that hold without the mechanism, or by a constant chosen \
             for them (D)",
            self.reproduced(),
            self.counted(),
            self.graded(Grade::A),
            self.graded(Grade::B),
            self.graded(Grade::C),
            self.missed,
            self.graded(Grade::D)
        )
    }
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

    pub(super) fn sum(&self) -> Sum {
        Sum::of(self.claims())
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
