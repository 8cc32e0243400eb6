//! The grade of a claim that holds: the nearness of our figure to the published one.
//!
//! ```text
//!   A  within 25 %, or within the deviation that the paper prints     counted as reproduced
//!   B  within a factor of two                                         counted as reproduced
//!   C  in its band, but further, or nothing was published: a direction
//!   D  does not depend on the mechanism (`Claim::hollow`)             in no count
//! ```
//!
//! A figure of several rows is as near as its furthest row.

use serde::{Deserialize, Serialize};

/// Within this part of the published figure a value is graded A.
pub(super) const NEAR: f64 = 0.25;
/// Within this factor it is graded B.
pub(super) const FACTOR: f64 = 2.0;

/// The grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Grade {
    /// As published.
    A,
    /// Within a factor of two.
    B,
    /// The direction alone.
    C,
    /// Holds without the mechanism, or by a constant that was chosen for it.
    D,
}

impl Grade {
    /// All, the best first.
    pub(super) const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// Its letter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
        }
    }
}

/// The figures of a claim.
pub(super) struct Figures<'a> {
    /// One, both ends of a range, or one a row.
    pub(super) published: &'a [f64],
    /// One a row.
    pub(super) ours: &'a [f64],
    /// Of the published figure.
    pub(super) deviation: Option<f64>,
}

impl Figures<'_> {
    fn ends(&self) -> Option<(f64, f64)> {
        let all = || self.published.iter().copied();
        all().reduce(f64::min).zip(all().reduce(f64::max))
    }

    /// Our furthest figure over the nearest published one. One within a published range; none where
    /// the two have no ratio.
    pub(super) fn ratio(&self) -> Option<f64> {
        let (low, high) = self.ends()?;
        let of = |ours: f64| {
            let nearest = ours.clamp(low, high);
            let ratio = if ours == nearest { 1.0 } else { ours / nearest };
            (ratio.is_finite() && ratio > 0.0).then_some(ratio)
        };
        let ratios: Option<Vec<f64>> = self.ours.iter().map(|ours| of(*ours)).collect();
        let further = |one: f64, other: f64| {
            let is_further = one.ln().abs() >= other.ln().abs();
            if is_further { one } else { other }
        };
        ratios?.into_iter().reduce(further)
    }
}

/// The grade of a claim that holds and does not hold without its mechanism.
pub(super) fn of(figures: &Figures<'_>) -> Grade {
    let is_within = |by: f64| {
        let is_near = |ours: &f64| figures.published.iter().all(|one| (ours - one).abs() <= by);
        figures.ours.iter().all(is_near)
    };
    match figures.ratio() {
        _ if figures.published.is_empty() => Grade::C,
        _ if figures.deviation.is_some_and(is_within) => Grade::A,
        Some(ratio) if (ratio - 1.0).abs() <= NEAR => Grade::A,
        Some(ratio) if (1.0 / FACTOR..=FACTOR).contains(&ratio) => Grade::B,
        _ => Grade::C,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures<'a>(published: &'a [f64], ours: &'a [f64]) -> Figures<'a> {
        Figures {
            published,
            ours,
            deviation: None,
        }
    }

    #[test]
    fn a_grade_is_the_nearness_of_the_furthest_row() {
        for (published, ours, grade) in [
            (&[8.0][..], &[9.9][..], Grade::A),
            (&[8.0], &[12.0], Grade::B),
            (&[8.0], &[4.0], Grade::B),
            (&[8.0], &[77.0], Grade::C),
            (&[0.9, 0.94], &[0.93], Grade::A),
            (&[-15.8, -4.4], &[-10.0, -0.2], Grade::C),
            (&[0.0], &[0.0], Grade::A),
            (&[0.0], &[0.1], Grade::C),
            (&[], &[1.0], Grade::C),
        ] {
            let of = of(&figures(published, ours));
            assert_eq!(of, grade, "{published:?} {ours:?}");
        }
    }

    #[test]
    fn the_papers_own_deviation_is_near() {
        let far = figures(&[40.0], &[28.0]);
        assert_eq!(of(&far), Grade::B);
        let deviation = Some(14.0);
        assert_eq!(of(&Figures { deviation, ..far }), Grade::A);
    }

    #[test]
    fn a_ratio_is_of_two_numbers_of_one_sign() {
        assert_eq!(figures(&[3.0], &[3.0, 4.5]).ratio(), Some(1.5));
        for (ours, published) in [(1.0, 0.0), (1.0, -1.0)] {
            assert_eq!(figures(&[published], &[ours]).ratio(), None);
        }
        assert_eq!(figures(&[1.0], &[]).ratio(), None);
    }
}
