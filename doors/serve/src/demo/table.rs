//! The words of the demonstration: its parts, the measurements of each client, and their meaning.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::load::{Lengths, Met};
use super::{DIRTY, DISK_LATENCY, DISK_RATE, HEAVY_RATE, LIGHT_RATE, MEMORY, Part};
use crate::config::show_size;

/// The parts that are played.
pub(super) fn introduction(folder: &Path) -> String {
    format!(
        "The disk: a file in {}, slowed down to {} ms for each request, one at a time, so {DISK_RATE} requests a second.\n\
         Three clients share it over a Unix socket, through a cache of {} MiB:\n  \
         heavy    would write 4 KiB to a random place {HEAVY_RATE} times a second, {} times what the disk can do\n  \
         light    writes 4 KiB {LIGHT_RATE} times a second\n  \
         commits  writes 4 KiB and flushes, once a second: what a database does\n\
         A write is answered when it is in memory; a commit when all that was in memory by then is on the disk.\n\
         Not paced, as write-back caches are today, a write is held up only when the memory is full. Paced, each reply to\n\
         the heavy client is held for as long as the disk needs for it, so that at most {} MiB wait for the disk. nbdkit's\n\
         cache, where it is installed, has no limit: it keeps the whole volume.\n",
        folder.display(),
        DISK_LATENCY.as_millis(),
        MEMORY >> 20,
        HEAVY_RATE / DISK_RATE,
        DIRTY >> 20,
    )
}

/// All parts beside each other.
pub(super) fn tables(parts: &[Part]) -> String {
    let mut text = format!("\n{:<28}", "");
    for part in parts {
        let _ = write!(text, "{:^28}", part.title);
    }
    let _ = write!(text, "\n{:<28}", "how long a write took");
    for _ in parts {
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
        for part in parts {
            for met in [&part.heavy, &part.light] {
                let length = figure(&met.writes(part.from));
                let _ = write!(text, "{:>14}", length.map_or("-".into(), shown));
            }
        }
    }
    let _ = write!(text, "\n{:<28}", "writes a second");
    for part in parts {
        for met in [&part.heavy, &part.light] {
            let _ = write!(text, "{:>14.1}", rate(part, met));
        }
    }
    type OfHalf = fn(&Part) -> String;
    let rows: [(&str, OfHalf); 5] = [
        ("a commit took", |part| {
            length(part, |all| all.percentile(500))
        }),
        ("  the longest", |part| length(part, Lengths::max)),
        ("  commits that were done", |part| {
            part.commits.flushes(part.from).count().to_string()
        }),
        ("the disk took, KiB a second", |part| {
            disk_rate(part).map_or("-".into(), |rate| format!("{:.0}", rate * 4.0))
        }),
        ("at the end not on the disk", |part| {
            part.waiting.map_or("-".into(), show_size)
        }),
    ];
    for (name, figure) in rows {
        let _ = write!(text, "\n{name:<28}");
        for part in parts {
            let _ = write!(text, "{:^28}", figure(part));
        }
    }
    let _ = write!(
        text,
        "\nFrom second {} on, as the clients measured it; a write that was due while the one before it was held counts from when\n\
         it was due. Every block on our disks was read back afterwards and is what was written last.\n",
        parts.first().map_or(0, |part| part.from.as_secs())
    );
    text
}

/// A length among those of the commits: from when the flush was sent.
fn length(part: &Part, of: impl Fn(&Lengths) -> Option<Duration>) -> String {
    of(&part.commits.flushes(part.from)).map_or("-".into(), shown)
}

/// Blocks a second that the disk took, over the whole part.
fn disk_rate(part: &Part) -> Option<f64> {
    let blocks = part.taken? / super::load::BLOCK as u64;
    Some(blocks as f64 / part.lasting.as_secs_f64())
}

/// Writes a second that were answered after the beginning had passed.
fn rate(part: &Part, met: &Met) -> f64 {
    let answered = met.calls.iter().filter(|call| {
        let end = call.from + call.took;
        !call.is_flush && end >= part.from && end <= part.lasting
    });
    answered.count() as f64 / (part.lasting - part.from).as_secs_f64()
}

/// A sleeper that wakes up so late is on a machine without a CPU for it.
const BUSY: Duration = Duration::from_millis(10);

/// The meaning, in words that follow from the figures: first the use of pacing, then its cost.
pub(super) fn conclusion(parts: &[Part], plot: &Path) -> String {
    let mut text = String::new();
    if let [others @ .., paced] = parts {
        type Longest = fn(&Part) -> Duration;
        let rows: [(&str, Longest); 2] = [
            ("The longest commit", |part| {
                part.commits.flushes(part.from).max().unwrap_or_default()
            }),
            ("The light client's longest write", |part| {
                part.light.writes(part.from).max().unwrap_or_default()
            }),
        ];
        for (name, of) in rows {
            let two = of(paced);
            let _ = write!(text, "{name}: {} {}", shown(two), paced.title);
            for other in others {
                let one = of(other);
                let _ = write!(text, "; {} {}{}", shown(one), other.title, times(one, two));
            }
            let _ = writeln!(text, ".");
        }
        let in_all = |of: &dyn Fn(&Part) -> String| {
            let all: Vec<String> = parts.iter().map(of).collect();
            all.join(", ")
        };
        let _ = writeln!(
            text,
            "In the order of the columns: commits done in {} s: {}.",
            (paced.lasting - paced.from).as_secs(),
            in_all(&|part| part.commits.flushes(part.from).count().to_string()),
        );
        let _ = writeln!(
            text,
            "What it costs: the heavy client got {} writes a second. The disk took {} of them,\n{DISK_RATE} requests that may \
             be of several blocks; the rest lay in memory, or was written over there.",
            in_all(&|part| format!("{:.0}", rate(part, &part.heavy))),
            in_all(&|part| disk_rate(part).map_or("-".into(), |rate| format!("{rate:.0}"))),
        );
    }
    let late = parts.iter().map(|part| part.late).max().unwrap_or_default();
    if late > BUSY {
        let _ = writeln!(
            text,
            "This machine is too busy for these figures: a thread that only sleeps woke up {} late. Times below\n{} may be \
             those of other programs; run it again when the machine has less to do.",
            shown(late),
            shown(late * 2),
        );
    }
    let _ = writeln!(text, "Plot of every write: {}", plot.display());
    let _ = write!(
        text,
        "Next: `tidegate serve` serves a volume; docs/serve/serve-a-file.md shows how to use one."
    );
    text
}

fn times(one: Duration, two: Duration) -> String {
    let ratio = one.as_secs_f64() / two.as_secs_f64().max(1e-9);
    match ratio {
        ratio if ratio >= 1.5 => format!(" ({ratio:.0} times as long)"),
        ratio if ratio <= 0.67 => format!(" ({:.1} times shorter)", 1.0 / ratio),
        _ => " (about the same)".into(),
    }
}

/// A length with a unit that fits it.
pub(super) fn shown(length: Duration) -> String {
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

    fn part(title: &'static str, took_ms: u64) -> Part {
        let mut commits = met(500, 100 * took_ms);
        for call in &mut commits.calls {
            call.is_flush = true;
        }
        Part {
            late: Duration::ZERO,
            title,
            heavy: met(10, took_ms),
            light: met(50, took_ms),
            commits,
            from: Duration::ZERO,
            lasting: Duration::from_secs(1),
            waiting: Some(took_ms << 20),
            taken: Some(400 * super::super::load::BLOCK as u64),
        }
    }

    #[test]
    fn the_tables_say_what_was_met() {
        let parts = [part("not paced", 30), part("paced", 3)];
        let text = tables(&parts);
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
        let said = conclusion(&parts, Path::new("x.svg"));
        for line in [
            "The longest commit: 300 ms paced; 3.00 s not paced (10 times as long).",
            "The light client's longest write: 3.0 ms paced; 30 ms not paced (10 times as long).",
            "commits done in 1 s: 2, 2.",
            "The disk took 400, 400 of them,",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
    }

    #[test]
    fn a_result_that_is_no_better_is_called_that() {
        let mut parts = [part("not paced", 3), part("paced", 30)];
        assert!(conclusion(&parts, Path::new("x")).contains("(10.0 times shorter)"));
        assert!(!conclusion(&parts, Path::new("x")).contains("too busy"));
        parts[0].late = Duration::from_millis(44);
        assert!(conclusion(&parts, Path::new("x")).contains("woke up 44 ms late"));
        let parts = [part("not paced", 3), part("paced", 3)];
        assert!(conclusion(&parts, Path::new("x")).contains("about the same"));
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
