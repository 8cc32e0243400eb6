//! The bars of the pacing step: what ours must reach, and whether it did.
//!
//! A bar that cannot be judged is missed, except where nothing happened that it is about: of a
//! client that was never held there is no longest pause.

use serde_json::Value;

/// When a bar is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    Flushes,
    NoFlushes,
    Both,
}

/// The bound of a figure.
#[derive(Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

struct Bar {
    name: &'static str,
    with: With,
    wanted: Wanted,
    /// The figure; the error says that there was nothing to measure.
    figure: fn(&Value, f64) -> Result<f64, Nothing>,
}

/// Why there is no figure.
enum Nothing {
    /// The event that it is about did not happen.
    Happened,
    /// It is not in the answer of the load.
    Said,
}

const BARS: [Bar; 6] = [
    Bar {
        name: "heavy, of R",
        with: With::NoFlushes,
        wanted: Wanted::AtLeast(1.35),
        figure: |met, raw| Ok(said(&met["heavy_per_s"])? / raw),
    },
    Bar {
        name: "heavy, of R",
        with: With::Flushes,
        wanted: Wanted::AtLeast(1.0),
        figure: |met, raw| {
            // Of whole rounds: a part of one says nothing.
            match met["flushes"]["count"].as_u64() {
                Some(2..) => Ok(said(&met["heavy_per_s"])? / raw),
                _ => Err(Nothing::Said),
            }
        },
    },
    Bar {
        name: "longest pause, ms",
        with: With::Both,
        wanted: Wanted::AtMost(50.0),
        figure: |met, _| of_pauses(met, |pauses| said(&pauses["max"])),
    },
    Bar {
        name: "pauses p99 / p50",
        with: With::Both,
        wanted: Wanted::AtMost(3.0),
        figure: |met, _| {
            // Where the server held nobody, what took long was waiting for a CPU.
            if met["held"].as_u64() == Some(0) {
                return Err(Nothing::Happened);
            }
            of_pauses(met, |pauses| {
                Ok(said(&pauses["p99"])? / said(&pauses["p50"])?)
            })
        },
    },
    Bar {
        name: "light p99, no flush under way, ms",
        with: With::Both,
        wanted: Wanted::AtMost(5.0),
        figure: |met, _| said(&met["light_apart"]["p99"]),
    },
    Bar {
        name: "light p99, flush under way, ms",
        with: With::Flushes,
        wanted: Wanted::AtMost(20.0),
        figure: |met, _| said(&met["light_during_flush"]["p99"]),
    },
];

fn said(value: &Value) -> Result<f64, Nothing> {
    value.as_f64().ok_or(Nothing::Said)
}

fn of_pauses(
    met: &Value,
    figure: impl FnOnce(&Value) -> Result<f64, Nothing>,
) -> Result<f64, Nothing> {
    let pauses = &met["pauses"];
    match pauses["count"].as_u64() {
        Some(0) => Err(Nothing::Happened),
        _ => figure(pauses),
    }
}

/// The verdict on a bar.
pub(super) struct Judged {
    /// A line that says so.
    pub(super) line: String,
    pub(super) is_met: bool,
}

/// Judges a run of ours, with flushes or without, on a device that does `raw` requests a second.
pub(super) fn judge(met: &Value, flushes: bool, raw: f64) -> Vec<Judged> {
    let is_asked = |bar: &&Bar| match bar.with {
        With::Both => true,
        With::Flushes => flushes,
        With::NoFlushes => !flushes,
    };
    let with = if flushes { ", flushes" } else { "" };
    BARS.iter()
        .filter(is_asked)
        .map(|bar| {
            let (figure, is_met) = match (bar.figure)(met, raw) {
                Ok(figure) => {
                    let is_met = match bar.wanted {
                        Wanted::AtLeast(least) => figure >= least,
                        Wanted::AtMost(most) => figure <= most,
                    };
                    (format!("{figure:.2}"), is_met)
                }
                Err(Nothing::Happened) => ("none".to_owned(), true),
                Err(Nothing::Said) => ("not measured".to_owned(), false),
            };
            let wanted = match bar.wanted {
                Wanted::AtLeast(least) => format!(">= {least}"),
                Wanted::AtMost(most) => format!("<= {most}"),
            };
            let verdict = if is_met { "met" } else { "MISSED" };
            Judged {
                line: format!("{}{with}: {figure}, wanted {wanted}: {verdict}", bar.name),
                is_met,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdicts(met: &Value, flushes: bool) -> Vec<(String, bool)> {
        let judged = judge(met, flushes, 100.0);
        judged
            .into_iter()
            .map(|bar| (bar.line, bar.is_met))
            .collect()
    }

    #[test]
    fn each_bar_is_met_up_to_what_is_wanted_and_missed_beyond() {
        let good = json!({
            "heavy_per_s": 135.0,
            "held": 9,
            "pauses": {"count": 100, "p50": 10.0, "p99": 30.0, "max": 50.0},
            "light_apart": {"p99": 5.0},
            "light_during_flush": {"p99": 20.0},
            "flushes": {"count": 2},
        });
        assert!(verdicts(&good, false).iter().all(|(_, is_met)| *is_met));
        assert!(verdicts(&good, true).iter().all(|(_, is_met)| *is_met));
        let bad = json!({
            "heavy_per_s": 99.0,
            "held": 9,
            "pauses": {"count": 100, "p50": 10.0, "p99": 31.0, "max": 51.0},
            "light_apart": {"p99": 5.1},
            "light_during_flush": {"p99": 20.1},
            "flushes": {"count": 2},
        });
        assert!(verdicts(&bad, false).iter().all(|(_, is_met)| !is_met));
        assert!(verdicts(&bad, true).iter().all(|(_, is_met)| !is_met));
        assert_eq!(verdicts(&bad, false).len(), 4);
        assert_eq!(
            verdicts(&bad, true)[0].0,
            "heavy, of R, flushes: 0.99, wanted >= 1: MISSED"
        );
    }

    #[test]
    fn who_was_never_held_made_no_pause_and_what_was_not_measured_is_missed() {
        let met = json!({
            "heavy_per_s": 101.0,
            "held": 0,
            "pauses": {"count": 2, "p50": 6.0, "p99": 40.0, "max": 40.0},
            "light_apart": {"p99": null},
            "light_during_flush": {"p99": 1.0},
            "flushes": {"count": 1},
        });
        let all: Vec<bool> = verdicts(&met, true)
            .into_iter()
            .map(|(_, is_met)| is_met)
            .collect();
        assert_eq!(all, [false, true, true, false, true]);
    }
}
