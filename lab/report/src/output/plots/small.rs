//! Plots of small files: files a second against their count, what the device is sent, slabs against
//! the page cache, and boosts.
//!
//! Source: experiments D3, numbers 8, 10 and 12.

use super::{Ink, MIB_PER_PAGE, Points, line, over_time};
use crate::output::svg::{Figure, Key, PALETTE};
use experiment::metrics::small;
use experiment::outcome::Outcome;

/// Adds what a row's runs have to show, if they make small files.
pub(super) fn add(case: &str, runs: &[&Outcome], figures: &mut Vec<(String, Figure)>) {
    let makes_small = |run: &&Outcome| run.jobs.iter().any(|job| job.makes_small);
    if !runs.iter().any(makes_small) {
        return;
    }
    let mut add = |name: &str, title: &str, y_label, legend: &[&str], points: Lines<'_>| {
        let inks = PALETTE.map(|colour| (colour, Key::Solid));
        let legend: Vec<(&str, Ink)> = legend.iter().copied().zip(inks).collect();
        let title = format!("{case}: {title}");
        let mut figure = over_time(runs, (title, y_label), &legend, |run| {
            let lines = points(run).into_iter().zip(inks);
            lines.map(|(points, ink)| line(points, ink)).collect()
        });
        match name {
            "files" => figure.x_label = "million files".into(),
            "device-writes" => figure.scales.log_y = true,
            _ => {}
        }
        figures.push((format!("{name}-{case}"), figure));
    };
    add(
        "files",
        "files made a second, by their count",
        "files/s",
        &[],
        &|run| vec![files(run)],
    );
    let legend = ["slabs / both", "objects scanned, millions a second"];
    let (title, y_label) = (
        "slabs / (slabs + lists of file pages)",
        "part; millions a second",
    );
    add("slab-share", title, y_label, &legend, &|run| {
        let scanned = per_second(run, "slabs_scanned").into_iter();
        let scanned = scanned.map(|(at, value)| (at, value * 1e-6)).collect();
        vec![slab_share(run).unwrap_or_default(), scanned]
    });
    let legend = ["writes a second", "mean write (KiB)"];
    let y_label = "writes/s at full scale; KiB";
    add(
        "device-writes",
        "writes of the device",
        y_label,
        &legend,
        &|run| {
            let (rates, sizes) = writes(run).unwrap_or_default();
            vec![rates, sizes]
        },
    );
    let legend = ["boost of all zones (MiB)", "events a second"];
    let title = "boosts, and events of external fragmentation";
    add(
        "boost",
        title,
        "MiB; events/s at full scale",
        &legend,
        &|run| {
            let boost = run.vmstat.of("nr_watermark_boost").unwrap_or_default();
            let mib = |(at, pages): (f64, f64)| (at, pages * MIB_PER_PAGE / run.scale);
            let boost = boost.into_iter().map(mib).collect();
            vec![boost, per_second(run, "extfrag_events")]
        },
    );
}

/// The lines of a panel.
type Lines<'a> = &'a dyn Fn(&Outcome) -> Vec<Points>;

/// (millions of files made, files a second)
fn files(run: &Outcome) -> Points {
    let each = run.jobs.iter().map(|job| job.files_a_round);
    let each = each.fold(0.0, f64::max) / run.scale;
    let mut made = 0.0;
    let rounds = small::rounds(run).into_iter();
    let point = |(_, rate)| {
        made += each / 1e6;
        (made, rate)
    };
    rounds.map(point).collect()
}

fn slab_share(run: &Outcome) -> Option<Points> {
    Some(small::share(&small::slabs(run)?, &small::file_lists(run)?))
}

/// (writes a second at full size, mean KiB), over time
fn writes(run: &Outcome) -> Option<(Points, Points)> {
    let levels = &run.devices.first()?.levels;
    let (mut rates, mut sizes) = (Vec::new(), Vec::new());
    for pair in levels.windows(2) {
        let time = pair[1].at_s - pair[0].at_s;
        let writes = pair[1].writes - pair[0].writes;
        if time > 0.0 && writes > 0.0 {
            rates.push((pair[1].at_s, writes / time / run.scale));
            let written = pair[1].written - pair[0].written;
            sizes.push((pair[1].at_s, written / writes / 1024.0));
        }
    }
    Some((rates, sizes))
}

/// The growth of a counter a second, at full size.
fn per_second(run: &Outcome, name: &str) -> Points {
    let series = run.vmstat.of(name).unwrap_or_default();
    let steps = series.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let rate = |pair: &[(f64, f64)]| {
        let (time, grown) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        (pair[1].0, grown / time / run.scale)
    };
    steps.map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::outcome::{DeviceLevel, DeviceOutcome, Job, VmSeries};

    fn run() -> Outcome {
        let level = |at_s, writes, written| DeviceLevel {
            at_s,
            writes,
            written,
            ..DeviceLevel::default()
        };
        Outcome {
            policy: "linux-5.0".into(),
            scale: 0.5,
            jobs: vec![Job {
                makes_small: true,
                files_a_round: 50_000.0,
                samples: vec![(1.0, 1_000.0), (3.0, 2_000.0)],
                ..Job::default()
            }],
            devices: vec![DeviceOutcome {
                levels: vec![
                    level(0.0, 0.0, 0.0),
                    level(2.0, 10.0, 20_480.0),
                    level(3.0, 10.0, 20_480.0),
                ],
                ..DeviceOutcome::default()
            }],
            vmstat: VmSeries {
                names: vec!["extfrag_events"],
                rows: vec![(0.0, vec![0.0]), (2.0, vec![6.0])],
            },
            ..Outcome::default()
        }
    }

    #[test]
    fn files_are_by_their_count_and_writes_by_time_at_full_size() {
        let run = run();
        assert_eq!(files(&run), [(0.1, 100_000.0), (0.2, 50_000.0)]);
        let (rates, sizes) = writes(&run).unwrap();
        assert_eq!((rates, sizes), (vec![(2.0, 10.0)], vec![(2.0, 2.0)]));
        assert_eq!(per_second(&run, "extfrag_events"), [(2.0, 6.0)]);
    }

    #[test]
    fn there_are_four_of_them_where_small_files_are_made() {
        let run = run();
        let mut figures = Vec::new();
        add("row", &[&run], &mut figures);
        let names: Vec<_> = figures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "files-row",
                "slab-share-row",
                "device-writes-row",
                "boost-row"
            ]
        );
        figures.clear();
        add("row", &[&Outcome::default()], &mut figures);
        assert!(figures.is_empty());
    }
}
