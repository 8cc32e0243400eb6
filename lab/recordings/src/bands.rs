//! The bands within which the lab's 6.12 has to be of a recording.
//!
//! Source: ours: goals set before the first recording was made.

use super::measure::{Measures, by_name};
use super::setting::Setting;

/// Figure and band: the lab's value may be off by this part of the recorded one.
const BANDS: [(&str, f64); 4] = [
    ("throughput", 0.1),
    ("level", 0.1),
    ("pauses: count", 0.25),
    ("pauses: median", 0.25),
];
/// With a file system: the longest write within this factor.
const LONGEST: f64 = 2.0;

/// The verdict on one figure and its band.
pub struct Verdict {
    /// Which figure.
    pub name: &'static str,
    /// The lab's error, as a part of the recorded value.
    pub error: f64,
    /// The error it may have, in words.
    pub band: String,
    /// From which to which part of the recorded value that is.
    pub ratios: (f64, f64),
    /// The error is no larger.
    pub holds: bool,
}

impl Verdict {
    /// One line about it.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            name,
            error,
            band,
            holds,
            ..
        } = self;
        let holds = if *holds { "within" } else { "out of" };
        format!("{name} {:+.1} % is {holds} {band}", error * 100.0)
    }
}

/// Judges the lab's run of a recording; figures that the recording does not have are left out.
#[must_use]
pub fn judge(setting: &Setting, recorded: &Measures, lab: &Measures) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (name, band) in BANDS {
        let of = |measures: &Measures| by_name(name).and_then(|quantity| (quantity.of)(measures));
        let Some(value) = of(recorded) else { continue };
        let lab = of(lab).unwrap_or(0.0);
        // Neither paused: the same.
        let error = if value == lab { 0.0 } else { lab / value - 1.0 };
        verdicts.push(Verdict {
            name,
            error,
            band: format!("{:.0} %", band * 100.0),
            ratios: (1.0 - band, 1.0 + band),
            holds: error.abs() <= band,
        });
    }
    if setting.fs.is_some()
        && let (Some(recorded), Some(lab)) = (recorded.writes, lab.writes)
    {
        let ratio = lab.max / recorded.max;
        verdicts.push(Verdict {
            name: "write: max",
            error: ratio - 1.0,
            band: format!("a factor of {LONGEST}"),
            ratios: (1.0 / LONGEST, LONGEST),
            holds: (1.0 / LONGEST..=LONGEST).contains(&ratio),
        });
    }
    verdicts
}

/// The number of bands that hold, and those that do not.
pub(super) fn summary(verdicts: &[Verdict], column: &str) -> String {
    let missed: Vec<String> = verdicts
        .iter()
        .filter(|verdict| !verdict.holds)
        .map(|verdict| format!("{} ({})", verdict.name, verdict.band))
        .collect();
    if missed.is_empty() {
        format!("{column}: all {} bands hold\n", verdicts.len())
    } else {
        format!(
            "{column}: {} of {} bands hold; out of band: {}\n",
            verdicts.len() - missed.len(),
            verdicts.len(),
            missed.join(", ")
        )
    }
}
