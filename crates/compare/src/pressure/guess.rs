//! The best constant guess of each figure: what somebody would say who knows sizes and times, but
//! no law.
//!
//! | figure | guess |
//! |---|---|
//! | counters, CPU times, throttlings | a fixed number per second of the recording |
//! | latency | a fixed length |
//! | levels | a fixed share of the memory |
//!
//! The constant is the one with the least mean error over the recordings at hand, so it is fitted
//! to them: the lab, which is not, has to be twice as good.

use super::super::guess;
use super::figures::{Band, Figure};
use super::setting::Setting;

/// What a constant is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing.
    One,
    /// The length of the recording.
    Seconds,
    /// The memory that there is.
    Memory,
}

impl Scale {
    fn of(self, setting: &Setting) -> f64 {
        match self {
            Self::One => 1.0,
            Self::Seconds => setting.seconds,
            Self::Memory => setting.usable_mib,
        }
    }
}

/// Mean of |error| of the lab and of the best constant over recordings: of levels as a part of the
/// memory, of others as a part of what was recorded. `points`: setting, recorded, lab. `None`:
/// nothing was recorded of it.
#[must_use]
pub fn errors(figure: &Figure, points: &[(&Setting, f64, f64)]) -> Option<(f64, f64)> {
    let unit = |setting: &Setting, recorded: f64| match figure.band {
        Some(Band::OfMemory(_)) => setting.usable_mib,
        _ => recorded,
    };
    let points: Vec<_> = points
        .iter()
        .filter(|(_, recorded, _)| *recorded > 0.0)
        .collect();
    let own = points
        .iter()
        .map(|(setting, recorded, lab)| ((lab - recorded) / unit(setting, *recorded)).abs());
    let own = guess::mean(own)?;
    let scaled: Vec<_> = points
        .iter()
        .map(|(setting, recorded, _)| guess::Point {
            scale: figure.scale.of(setting),
            value: *recorded,
            unit: unit(setting, *recorded),
        })
        .collect();
    let (_, error) = guess::best_share(&scaled)?;
    Some((own, error))
}
