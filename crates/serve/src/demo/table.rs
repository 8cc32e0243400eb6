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
         Two clients share it over a Unix socket, through a cache of {} MiB:\n  \
         heavy  would write 4 KiB to a random place {HEAVY_RATE} times a second, {} times what the disk can do\n  \
         light  writes 4 KiB {LIGHT_RATE} times a second\n\
         A write is answered when it is in memory; only a flush, one at the end, waits for the disk.\n\
         Not paced, a write is held up only when the cache is full. Paced, the cache holds each reply to the heavy\n\
         client for as long as the disk needs for its share, and at most {} MiB wait for the disk.\n",
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
    let rows: [(&str, OfHalf); 2] = [
        ("at the end not on the disk", |half| show_size(half.waiting)),
        ("a flush then took", |half| shown(half.flush)),
    ];
    for (name, figure) in rows {
        let _ = write!(text, "\n{name:<28}");
        for half in halves {
            let _ = write!(text, "{:^28}", figure(half));
        }
    }
    let _ = write!(
        text,
        "\nWrites into memory, from second {} on, as the clients measured it; of a write that was due while the one before it was held,\n\
         from when it was due. Every block on the disks was read back afterwards and is what was written last.\n",
        halves.first().map_or(0, |half| half.from.as_secs())
    );
    text
}

/// Writes a second that were answered after the beginning was over.
fn rate(half: &Half, met: &Met) -> f64 {
    let answered = met.calls.iter().filter(|call| {
        let end = call.from + call.took;
        !call.is_flush && end >= half.from && end <= half.lasting
    });
    answered.count() as f64 / (half.lasting - half.from).as_secs_f64()
}

/// What it means, in words that follow from the figures.
pub(super) fn conclusion(halves: &[Half], plot: &Path) -> String {
    let longest = |met: &Met, half: &Half| met.writes(half.from).max().unwrap_or_default();
    let mut text = String::new();
    if let [before, after] = halves {
        for (name, one, two) in [
            ("light", &before.light, &after.light),
            ("heavy", &before.heavy, &after.heavy),
        ] {
            let (one, two) = (longest(one, before), longest(two, after));
            let _ = writeln!(
                text,
                "The {name} client's longest write: {} not paced, {} paced{}.",
                shown(one),
                shown(two),
                times(one, two)
            );
        }
        let (one, two) = (rate(before, &before.heavy), rate(after, &after.heavy));
        let _ = writeln!(
            text,
            "The heavy client got {one:.0} writes a second not paced and {two:.0} paced; the disk does {DISK_RATE}."
        );
        let _ = writeln!(
            text,
            "A flush at the end, for {} and {} that waited for the disk: {} not paced, {} paced{}.",
            show_size(before.waiting),
            show_size(after.waiting),
            shown(before.flush),
            shown(after.flush),
            times(before.flush, after.flush)
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
        Half {
            title,
            heavy: met(10, took_ms),
            light: met(50, took_ms),
            from: Duration::ZERO,
            lasting: Duration::from_secs(1),
            waiting: took_ms << 20,
            flush: Duration::from_millis(100 * took_ms),
        }
    }

    #[test]
    fn the_tables_say_what_was_met() {
        let halves = [half("not paced", 30), half("paced", 3)];
        let text = tables(&halves);
        let longest = text
            .lines()
            .find(|line| line.contains("the longest"))
            .unwrap();
        let words: Vec<&str> = longest.split_whitespace().skip(2).collect();
        assert_eq!(words, ["30", "ms", "30", "ms", "3.0", "ms", "3.0", "ms"]);
        let said = conclusion(&halves, Path::new("x.svg"));
        assert!(
            said.contains("30 ms not paced, 3.0 ms paced, 10 times shorter"),
            "{said}"
        );
        assert!(
            text.contains("not on the disk") && text.contains("30 MiB"),
            "{text}"
        );
        let flush = "30 MiB and 3 MiB that waited for the disk: 3.00 s not paced, 300 ms paced, 10 times shorter";
        assert!(said.contains(flush), "{said}");
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
