//! Prints the table of docs/ablations.md: every band, as shipped and with one thing changed.
//!
//! ```text
//! cargo run --release -p tidegate-cli --example ablations              all: a few minutes
//! cargo run --release -p tidegate-cli --example ablations -- HZ        those with HZ in their name
//! ```
//!
//! A band that measures its mechanism fails when the mechanism is taken away, and stays when something
//! changes that it is not about.

use std::process::ExitCode;

use cli::expect::Verdict;
use cli::outcome::Outcome;
use cli::run::Cell;
use cli::terminal;
use cli::trial::{Trial, TrialError, with_hz, with_law, with_rate};
use policy::dirty::Law;
use policy::writeback::Flight;

const BEFORE: &str = "linux-2.6.36";
const FOREGROUND: Law = Law::ForegroundWriteback;
const FIXED: Law = Law::SoftRegion { measured: false };
const MEASURED: Law = Law::SoftRegion { measured: true };

/// An experiment and the columns and rows that its bands need.
const EXPERIMENTS: [(&str, &[&str], &[&str]); 4] = [
    (
        "dd",
        &[BEFORE, "p1", "p1-measured"],
        &["ext2", "ext3", "ext4", "xfs", "btrfs"],
    ),
    ("cp-pauses", &[BEFORE, "p1-measured"], &["cp"]),
    (
        "dd-many",
        &[BEFORE, "p1", "p1-measured"],
        &["1", "2", "100"],
    ),
    ("two-writers", &[BEFORE, "p1", "p1-measured"], &[]),
];

/// One thing changed.
struct Ablation {
    name: &'static str,
    change: fn(&mut Cell),
    swapped: bool,
}

const ABLATIONS: [Ablation; 15] = [
    ablation("as shipped", |_| {}),
    Ablation {
        name: "columns swapped",
        change: |_| {},
        swapped: true,
    },
    ablation("before: law of p1, fixed", |cell| before(cell, FIXED)),
    ablation("before: law of p1, measured", |cell| before(cell, MEASURED)),
    ablation("after: law of 2.6.36", |cell| after(cell, FOREGROUND)),
    ablation("after: law of p1, fixed", |cell| after(cell, FIXED)),
    ablation("after: law of p1, measured", |cell| after(cell, MEASURED)),
    ablation("after: law of 6.12", |cell| after(cell, Law::RateBased)),
    ablation("disk at half the rate", |cell| with_rate(cell, 0.5)),
    ablation("disk at twice the rate", |cell| with_rate(cell, 2.0)),
    ablation("HZ 100 in all columns", |cell| with_hz(cell, 100)),
    ablation("HZ 1000 in all columns", |cell| with_hz(cell, 1000)),
    ablation("before: disk at half the rate", |cell| {
        if cell.policy == BEFORE {
            with_rate(cell, 0.5);
        }
    }),
    ablation("disk without buffer", without_buffer),
    ablation(
        "disk without buffer; after: one request in flight",
        |cell| {
            without_buffer(cell);
            if cell.policy != BEFORE {
                cell.flush.flight = Flight::Requests(1);
            }
        },
    ),
];

const fn ablation(name: &'static str, change: fn(&mut Cell)) -> Ablation {
    Ablation {
        name,
        change,
        swapped: false,
    }
}

/// A disk that takes nothing in ahead, and loses a turn when nothing is queued behind what it writes.
fn without_buffer(cell: &mut Cell) {
    for name in ["write_buffer_us", "stream_gap_us"] {
        cell.devices[0].params.push((name.to_owned(), 0));
    }
}

fn before(cell: &mut Cell, law: Law) {
    if cell.policy == BEFORE {
        with_law(cell, law);
    }
}

fn after(cell: &mut Cell, law: Law) {
    if cell.policy != BEFORE {
        with_law(cell, law);
    }
}

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    for (experiment, columns, rows) in EXPERIMENTS {
        match table(experiment, columns, rows, &part) {
            Ok(text) => terminal::print(&text),
            Err(error) => {
                terminal::complain(&format!("ablations: {experiment}: {error}"));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The table of one experiment in Markdown: a line for each ablation with `part` in its name.
fn table(
    experiment: &str,
    columns: &[&str],
    rows: &[&str],
    part: &str,
) -> Result<String, TrialError> {
    let mut trial = Trial::load(experiment, columns, &[])?;
    if !rows.is_empty() {
        trial = trial.rows(rows);
    }
    let mut text = String::new();
    for Ablation {
        name,
        change,
        swapped,
    } in ABLATIONS
        .iter()
        .filter(|ablation| ablation.name.contains(part))
    {
        terminal::complain(&format!("{experiment}: {name}"));
        let mut outcomes: Vec<Outcome> = trial.run(change)?;
        if *swapped {
            outcomes = exchanged(&outcomes, columns);
        }
        let verdicts = trial.judge(&outcomes);
        let bands = bands(&verdicts);
        if text.is_empty() {
            text = heads(experiment, &bands);
        }
        let cells: Vec<String> = bands.iter().map(|worst| shown(worst)).collect();
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    text.push('\n');
    Ok(text)
}

/// Every after column with the runs of the before column, and that one with the last of theirs.
fn exchanged(outcomes: &[Outcome], columns: &[&str]) -> Vec<Outcome> {
    let last = columns.last().copied().unwrap_or(BEFORE);
    let mut all = renamed(outcomes, last, BEFORE);
    for column in columns.iter().filter(|column| **column != BEFORE) {
        all.extend(renamed(outcomes, BEFORE, column));
    }
    all
}

fn renamed(outcomes: &[Outcome], policy: &str, name: &str) -> Vec<Outcome> {
    let of = outcomes.iter().filter(|outcome| outcome.policy == policy);
    let renamed = of.cloned().map(|outcome| Outcome {
        policy: name.to_owned(),
        ..outcome
    });
    renamed.collect()
}

/// One verdict a band: of several rows the one that is furthest out.
fn bands(verdicts: &[Verdict]) -> Vec<&Verdict> {
    let mut bands: Vec<&Verdict> = Vec::new();
    for verdict in verdicts {
        match bands.iter_mut().find(|other| other.id == verdict.id) {
            None => bands.push(verdict),
            Some(worst) if size(verdict) > size(worst) => *worst = verdict,
            Some(_) => {}
        }
    }
    bands
}

fn size(verdict: &Verdict) -> f64 {
    verdict.value.map_or(f64::INFINITY, f64::abs)
}

fn heads(experiment: &str, bands: &[&Verdict]) -> String {
    let names: Vec<String> = bands
        .iter()
        .map(|band| format!("{} ({})", band.id, limits(band)))
        .collect();
    format!(
        "| {experiment} | {} |\n|---|{}\n",
        names.join(" | "),
        "--:|".repeat(bands.len())
    )
}

fn limits(band: &Verdict) -> String {
    match (band.min, band.max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!(">= {min}"),
        (None, Some(max)) => format!("<= {max}"),
        (None, None) => String::new(),
    }
}

fn shown(verdict: &Verdict) -> String {
    let value = match verdict.value {
        None => "none".to_owned(),
        Some(value) if value.abs() >= 10.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    };
    if verdict.holds() {
        value
    } else {
        format!("**{value}**")
    }
}
