//! What the demonstration says: who takes part, what each client met, and what that means.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::load::{Lengths, Met};
use super::{DIRTY, DISK_LATENCY, DISK_RATE, HEAVY_RATE, Half, LIGHT_RATE, MEMORY};
use crate::config::show_size;

/// Who takes part.
pub(super) fn introduction(folder: &Path) -> String {
    format!(
        "The disk: a file in {}, slowed down to {} ms for each request, one at a time, so {DISK_RATE} requests a second.\n\
         Three clients share it over a Unix socket, through a cache of {} MiB:\n  \
         heavy    would write 4 KiB to a random place {HEAVY_RATE} times a second, {} times what the disk can do\n  \
         light    writes 4 KiB {LIGHT_RATE} times a second\n  \
         commits  writes 4 KiB and flushes, once a second: what a database does\n\
         A write is answered when it is in memory; a commit when all that was in memory by then is on the disk.\n\
         Not paced, as write-back caches are today, a write is held up only when the memory is full. Paced, each reply to\n\
         the heavy client is held for as long as the disk needs for it, so that at most {} MiB wait for the disk.\n",
        folder.display(),
        DISK_LATENCY.as_millis(),
        MEMORY >> 20,
        HEAVY_RATE / DISK_RATE,
        DIRTY >> 20,
    )
}

/// Both halves beside each other.
pub(super) fn tables(halves: &[Half]) -> String {
    let mut text = format!("\n{:<28}", "");
    for half in halves {
        let _ = write!(text, "{:^28}", half.title);
    }
    let _ = write!(text, "\n{:<28}", "how long a write took");
    for _ in halves {
        let _ = write!(text, "{:>14}{:>14}", "heavy", "light");
    }
    type Figure = fn(&Lengths) -> Option<Duration>;
    let rows: [(&str, Figure); 4] = [
        ("  half of them at most", |lengths| lengths.percentile(500)),
        ("  90 of 100 at most", |lengths| lengths.percentile(900)),
        ("  99 of 100 at most", |lengths| lengths.percentile(990)),
        ("  the longest", Lengths::max),
    ];
    for (name, figure) in rows {
        let _ = write!(text, "\n{name:<28}");
        for half in halves {
            for met in [&half.heavy, &half.light] {
                let length = figure(&met.writes(half.from));
                let _ = write!(text, "{:>14}", length.map_or("-".into(), shown));
            }
        }
    }
    let _ = write!(text, "\n{:<28}", "writes a second");
    for half in halves {
        for met in [&half.heavy, &half.light] {
            let _ = write!(text, "{:>14.1}", rate(half, met));
        }
    }
    type OfHalf = fn(&Half) -> String;
    let rows: [(&str, OfHalf); 5] = [
        ("a commit took", |half| {
            length(half, |all| all.percentile(500))
        }),
        ("  the longest", |half| length(half, Lengths::max)),
        ("  commits that were done", |half| {
            half.commits.flushes(half.from).count().to_string()
        }),
        ("the disk took, KiB a second", |half| {
            format!("{:.0}", disk_rate(half) * 4.0)
        }),
        ("at the end not on the disk", |half| show_size(half.waiting)),
    ];
    for (name, figure) in rows {
        let _ = write!(text, "\n{name:<28}");
        for half in halves {
            let _ = write!(text, "{:^28}", figure(half));
        }
    }
    let _ = write!(
        text,
        "\nFrom second {} on, as the clients measured it; a write that was due while the one before it was held counts from when\n\
         it was due. Every block on the disks was read back afterwards and is what was written last.\n",
        halves.first().map_or(0, |half| half.from.as_secs())
    );
    text
}

/// A length among those of the commits: from when the flush was sent.
fn length(half: &Half, of: impl Fn(&Lengths) -> Option<Duration>) -> String {
    of(&half.commits.flushes(half.from)).map_or("-".into(), shown)
}

/// Blocks a second that the disk took, over the whole half.
fn disk_rate(half: &Half) -> f64 {
    let blocks = half.taken / super::load::BLOCK as u64;
    blocks as f64 / half.lasting.as_secs_f64()
}

/// Writes a second that were answered after the beginning was over.
fn rate(half: &Half, met: &Met) -> f64 {
    let answered = met.calls.iter().filter(|call| {
        let end = call.from + call.took;
        !call.is_flush && end >= half.from && end <= half.lasting
    });
    answered.count() as f64 / (half.lasting - half.from).as_secs_f64()
}

/// What it means, in words that follow from the figures: first what pacing is for, then what it costs.
pub(super) fn conclusion(halves: &[Half], plot: &Path) -> String {
    let mut text = String::new();
    if let [before, after] = halves {
        type Longest = fn(&Half) -> Duration;
        let rows: [(&str, Longest); 2] = [
            ("The longest commit", |half| {
                half.commits.flushes(half.from).max().unwrap_or_default()
            }),
            ("The light client's longest write", |half| {
                half.light.writes(half.from).max().unwrap_or_default()
            }),
        ];
        for (name, of) in rows {
            let (one, two) = (of(before), of(after));
            let _ = writeln!(
                text,
                "{name}: {} not paced, {} paced{}.",
                shown(one),
                shown(two),
                times(one, two)
            );
        }
        let commits = |half: &Half| half.commits.flushes(half.from).count();
        let _ = writeln!(
            text,
            "Commits done in {} s: {} and {}.",
            (before.lasting - before.from).as_secs(),
            commits(before),
            commits(after)
        );
        let _ = writeln!(
            text,
            "What it costs: the heavy client got {:.0} writes a second not paced and {:.0} paced. The disk took {:.0} and {:.0} \
             of them,\n{DISK_RATE} requests that may be of several blocks; the rest lay in memory, or was written over there.",
            rate(before, &before.heavy),
            rate(after, &after.heavy),
            disk_rate(before),
            disk_rate(after)
        );
    }
    let _ = writeln!(text, "Plot of every write: {}", plot.display());
    let _ = write!(
        text,
        "Next: `tidegate serve` serves a volume; docs/serve-a-file.md shows how to use one."
    );
    text
}

fn times(one: Duration, two: Duration) -> String {
    let ratio = one.as_secs_f64() / two.as_secs_f64().max(1e-9);
    match ratio {
        ratio if ratio >= 1.5 => format!(", {ratio:.0} times shorter"),
        ratio if ratio <= 0.67 => format!(", {:.1} times longer", 1.0 / ratio),
        _ => ", about the same".into(),
    }
}

/// A length with a unit that fits it.
fn shown(length: Duration) -> String {
    let millis = length.as_secs_f64() * 1e3;
    match millis {
        millis if millis >= 10_000.0 => format!("{:.1} s", millis / 1e3),
        millis if millis >= 1000.0 => format!("{:.2} s", millis / 1e3),
        millis if millis >= 10.0 => format!("{millis:.0} ms"),
        millis if millis >= 1.0 => format!("{millis:.1} ms"),
        _ => format!("{millis:.2} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::load::Call;

    fn met(every_ms: u64, took_ms: u64) -> Met {
        let call = |at: u64| Call {
            from: Duration::from_millis(at * every_ms),
            took: Duration::from_millis(took_ms),
            is_flush: false,
        };
        Met {
            calls: (0..1000 / every_ms).map(call).collect(),
            versions: Vec::new(),
        }
    }

    fn half(title: &'static str, took_ms: u64) -> Half {
        let mut commits = met(500, 100 * took_ms);
        for call in &mut commits.calls {
            call.is_flush = true;
        }
        Half {
            title,
            heavy: met(10, took_ms),
            light: met(50, took_ms),
            commits,
            from: Duration::ZERO,
            lasting: Duration::from_secs(1),
            waiting: took_ms << 20,
            taken: 400 * super::super::load::BLOCK as u64,
        }
    }

    #[test]
    fn the_tables_say_what_was_met() {
        let halves = [half("not paced", 30), half("paced", 3)];
        let text = tables(&halves);
        let mut longest = text.lines().filter(|line| line.contains("the longest"));
        let mut words = || {
            let line = longest.next().unwrap();
            line.split_whitespace().skip(2).collect::<Vec<_>>()
        };
        assert_eq!(words(), ["30", "ms", "30", "ms", "3.0", "ms", "3.0", "ms"]);
        assert_eq!(words(), ["3.00", "s", "300", "ms"]);
        assert!(
            text.contains("not on the disk") && text.contains("30 MiB"),
            "{text}"
        );
        let said = conclusion(&halves, Path::new("x.svg"));
        for line in [
            "The longest commit: 3.00 s not paced, 300 ms paced, 10 times shorter.",
            "The light client's longest write: 30 ms not paced, 3.0 ms paced, 10 times shorter.",
            "Commits done in 1 s: 2 and 2.",
            "The disk took 400 and 400 of them,",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
    }

    #[test]
    fn a_result_that_is_no_better_is_called_that() {
        let halves = [half("not paced", 3), half("paced", 30)];
        assert!(conclusion(&halves, Path::new("x")).contains("10.0 times longer"));
        let halves = [half("not paced", 3), half("paced", 3)];
        assert!(conclusion(&halves, Path::new("x")).contains("about the same"));
    }

    #[test]
    fn lengths_have_units_that_fit() {
        let of = |micros| shown(Duration::from_micros(micros));
        assert_eq!(of(53), "0.05 ms");
        assert_eq!(of(5300), "5.3 ms");
        assert_eq!(of(53_000), "53 ms");
        assert_eq!(of(5_300_000), "5.30 s");
    }
}
