//! Plots of small files: files a second against their count, what the device is sent, slabs against
//! the page cache, and boosts.
//!
//! Source: experiments D3, numbers 8, 10 and 12.

use super::{MIB_PER_PAGE, TIME};
use crate::output::svg::{Figure, Key, Mark, PALETTE, Panel, Scales};
use experiment::metrics::small;
use experiment::outcome::Outcome;

type Points = Vec<(f64, f64)>;

/// Adds what a row's runs have to show, if they make small files.
pub(super) fn add(case: &str, runs: &[&Outcome], figures: &mut Vec<(String, Figure)>) {
    if !runs
        .iter()
        .any(|run| run.jobs.iter().any(|job| job.makes_small))
    {
        return;
    }
    let runs: Vec<&Outcome> = runs.to_vec();
    let mut add = |name: &str, figure| figures.push((format!("{name}-{case}"), figure));
    let files = one(&runs, files);
    add(
        "files",
        figure(
            case,
            "files made a second, by their count",
            "million files",
            "files/s",
            ("", ""),
            files,
        ),
    );
    let share = two(
        &runs,
        slab_share,
        |run| per_second(run, "slabs_scanned"),
        1e-6,
    );
    add(
        "slab-share",
        figure(
            case,
            "slabs / (slabs + lists of file pages)",
            TIME,
            "part; millions a second",
            ("slabs / both", "objects scanned, millions a second"),
            share,
        ),
    );
    let device = two(
        &runs,
        |run| Some(writes(run)?.0),
        |run| Some(writes(run)?.1),
        1.0,
    );
    let mut device = figure(
        case,
        "writes of the device",
        TIME,
        "writes/s at full scale; KiB",
        ("writes a second", "mean write (KiB)"),
        device,
    );
    device.scales = Scales {
        log_y: true,
        ..Scales::default()
    };
    add("device-writes", device);
    let boost = |run: &Outcome| {
        let boost = run.vmstat.of("nr_watermark_boost")?;
        let mib = |(at, pages): (f64, f64)| (at, pages * MIB_PER_PAGE / run.scale);
        Some(boost.into_iter().map(mib).collect())
    };
    let boosts = two(&runs, boost, |run| per_second(run, "extfrag_events"), 1.0);
    add(
        "boost",
        figure(
            case,
            "boosts, and events of external fragmentation",
            TIME,
            "MiB; events/s at full scale",
            ("boost of all zones (MiB)", "events a second"),
            boosts,
        ),
    );
}

fn figure(
    case: &str,
    title: &str,
    x_label: &'static str,
    y_label: &'static str,
    (first, second): (&str, &str),
    panels: Vec<Panel>,
) -> Figure {
    let legend = [(first, PALETTE[0]), (second, PALETTE[1])];
    let legend = legend.into_iter().filter(|(name, _)| !name.is_empty());
    Figure {
        title: format!("{case}: {title}"),
        x_label: x_label.into(),
        y_label,
        legend: legend
            .map(|(name, colour)| (name.to_owned(), colour, Key::Solid))
            .collect(),
        panels,
        ..Figure::default()
    }
}

fn line(points: Points, colour: &'static str) -> Mark {
    Mark::Line {
        points,
        colour,
        dashed: false,
    }
}

fn one(runs: &[&Outcome], of: impl Fn(&Outcome) -> Points) -> Vec<Panel> {
    let panel = |run: &&Outcome| Panel {
        title: run.policy.clone(),
        marks: vec![line(of(run), PALETTE[0])],
    };
    runs.iter().map(panel).collect()
}

/// Two lines a column, the second times `factor`.
fn two(
    runs: &[&Outcome],
    first: impl Fn(&Outcome) -> Option<Points>,
    second: impl Fn(&Outcome) -> Option<Points>,
    factor: f64,
) -> Vec<Panel> {
    let panel = |run: &&Outcome| {
        let own = first(run).unwrap_or_default();
        let other = second(run).unwrap_or_default().into_iter();
        let other = other.map(|(at, value)| (at, value * factor)).collect();
        Panel {
            title: run.policy.clone(),
            marks: vec![line(own, PALETTE[0]), line(other, PALETTE[1])],
        }
    };
    runs.iter().map(panel).collect()
}

/// (millions of files made, files a second)
fn files(run: &Outcome) -> Points {
    let each = run
        .jobs
        .iter()
        .map(|job| job.files_a_round)
        .fold(0.0, f64::max)
        / run.scale;
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
            sizes.push((
                pair[1].at_s,
                (pair[1].written - pair[0].written) / writes / 1024.0,
            ));
        }
    }
    Some((rates, sizes))
}

/// The growth of a counter a second, at full size.
fn per_second(run: &Outcome, name: &str) -> Option<Points> {
    let series = run.vmstat.of(name)?;
    let steps = series.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let rate = |pair: &[(f64, f64)]| {
        let (time, grown) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        (pair[1].0, grown / time / run.scale)
    };
    Some(steps.map(rate).collect())
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
        assert_eq!(per_second(&run, "extfrag_events"), Some(vec![(2.0, 6.0)]));
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
