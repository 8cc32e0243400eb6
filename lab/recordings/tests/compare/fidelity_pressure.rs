//! Does the lab's `linux-6.12` do under memory pressure what the real kernel did? Over the
//! recordings that are checked in.
//!
//! Every figure that has a band is within it, or stands in `known.csv` with its error and its
//! cause. The bands are not widened for a miss: a known one fails this test when it gets much
//! worse, and when it is within its band, so that the list stays true. docs/study/fidelity.md has
//! the tables.
//!
//! ```text
//! cargo test -p tidegate-recordings --test compare fidelity_pressure:: -- --nocapture
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::common::{self, Compared, error};
use recordings::kind::PRESSURE;
use recordings::several::{self, Beside};
use recordings::{figures, guess};

/// Fewer recordings would show little.
const RECORDINGS_MIN: usize = 5;
/// A known miss that is further off than it was by this factor has got worse.
const WORSE: f64 = 1.5;
/// Recordings of one task with memory to spare, which the costs of the guest were measured in: no
/// constant is held against them.
const CALM: &str = "-calm";

/// recording, figure, error in per cent, cause.
const KNOWN: &str = include_str!("known.csv");

/// A miss that is known.
struct Known {
    recording: String,
    figure: String,
    error: f64,
    cause: String,
}

fn known() -> Vec<Known> {
    let line = |line: Result<csv::StringRecord, csv::Error>| {
        let line = line.expect("recording,figure,error_percent,cause");
        let percent: f64 = line[2].parse().expect("a number of per cent");
        Known {
            recording: line[0].to_owned(),
            figure: line[1].to_owned(),
            error: percent / 100.0,
            cause: line[3].to_owned(),
        }
    };
    csv::Reader::from_reader(KNOWN.as_bytes())
        .records()
        .map(line)
        .collect()
}

/// The error, alike for too much and too little.
fn distance(error: f64) -> f64 {
    (1.0 + error).max(1e-3).ln().abs()
}

fn compared() -> Vec<Compared> {
    common::compared(&PRESSURE, |_| true, |_| {})
}

/// Every figure within its band, but for those that are known; and none of these without need.
fn out_of_band(all: &[Compared], text: &mut String) -> Vec<String> {
    let known = known();
    let mut misses = Vec::new();
    let mut needed = BTreeSet::new();
    for side in all {
        let verdicts = side.verdicts();
        let held = verdicts.iter().filter(|verdict| verdict.holds()).count();
        let _ = writeln!(
            text,
            "{}: {held} of {} bands hold",
            side.name(),
            verdicts.len()
        );
        for verdict in verdicts.iter().filter(|verdict| !verdict.holds()) {
            let (name, figure) = (side.name(), &verdict.id);
            let of = known
                .iter()
                .find(|known| known.recording == name && known.figure == *figure);
            let Some(of) = of else {
                misses.push(format!("{name}: {}", verdict.line()));
                continue;
            };
            needed.insert((&of.recording, &of.figure));
            let _ = writeln!(text, "  known: {}: {}", verdict.line(), of.cause);
            if distance(error(verdict)) > WORSE * distance(of.error) {
                misses.push(format!(
                    "{name}: {}; it was {:+.1} %: much worse",
                    verdict.line(),
                    of.error * 100.0
                ));
            }
        }
    }
    for of in &known {
        if !needed.contains(&(&of.recording, &of.figure)) {
            misses.push(format!(
                "{}: {} is within its band: no exception any more",
                of.recording, of.figure
            ));
        }
    }
    misses
}

/// The mean error of each figure beside that of the best constant: printed, and better on the
/// whole.
fn beside_a_guess(all: &[Compared], text: &mut String) -> Vec<String> {
    let (mut better, mut figures) = (0, 0);
    let sides = all.iter().filter(|side| !side.name().contains(CALM));
    let sides: Vec<Beside<'_>> = sides.map(Compared::beside).collect();
    for (index, figure) in figures::of_kind(&PRESSURE).iter().enumerate() {
        let Some(judged) = guess::judge(figure, &several::points(&sides, index)) else {
            continue;
        };
        let (own, constant) = (judged.errors.lab, judged.errors.constant);
        figures += 1;
        better += usize::from(own < constant);
        let _ = writeln!(
            text,
            "{:24} mean error {:6.1} %; best constant: {:6.1} %",
            figure.name,
            own * 100.0,
            constant * 100.0
        );
    }
    let _ = writeln!(
        text,
        "better than the best constant in {better} of {figures}"
    );
    if better < BETTER_LEAST {
        vec![format!("better than a constant in {better} figures only")]
    } else {
        Vec::new()
    }
}

/// Figures in which the lab is nearer than the best constant, which is fitted to these recordings.
const BETTER_LEAST: usize = 12;

#[test]
fn the_lab_does_under_pressure_what_the_kernel_did() {
    let all = compared();
    let mut text = String::new();
    let mut misses = out_of_band(&all, &mut text);
    misses.extend(beside_a_guess(&all, &mut text));
    common::conclude(all.len(), RECORDINGS_MIN, &text, &misses);
}
