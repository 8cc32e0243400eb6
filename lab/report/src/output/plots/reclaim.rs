//! Plots of memory under pressure: what it is composed of, what was scanned and by which tasks,
//! sleepers by cause, and how long throttling lasted.
//!
//! Source: experiments D3, numbers 1, 4, 5, 6 and 7.

use std::collections::BTreeMap;

use env::Cause;
use policy::reclaim::Reason;

use super::{Ink, MIB_PER_PAGE, Points, line, over_length, over_time, unit};
use crate::output::svg::{Figure, Key, Mark, PALETTE, Panel, Scales};
use experiment::outcome::{Outcome, ThrottleCount};
use experiment::stats::{count, whole};

/// Points of a stacked area.
const AREA_MOST: usize = 400;
/// Colours of the parts of memory and of reasons.
const COLOURS: [&str; 12] = [
    "#0072b2", "#56b4e9", "#009e73", "#8fd3b6", "#d55e00", "#e69f00", "#f0e442", "#cc79a7",
    "#7a5195", "#999999", "#4d4d4d", "#000000",
];
const FREE: &str = "#eeeeee";

/// Adds what a row's runs have to show.
pub(super) fn add(case: &str, runs: &[&Outcome], figures: &mut Vec<(String, Figure)>) {
    let mut add = |name: &str, figure: Option<Figure>| {
        figures.extend(figure.map(|figure| (format!("{name}-{case}"), figure)));
    };
    add("composition", composition(case, runs));
    add("asleep", asleep(case, runs));
    add("scans", scans(case, runs));
    add("throttle-delays", throttle_delays(case, runs));
    add("throttle-cdf", throttle_cdf(case, runs));
    add("latency", latency(case, runs));
}

/// The parts of memory over time, stacked, in MiB. Slabs are drawn where there are any.
fn composition(case: &str, runs: &[&Outcome]) -> Option<Figure> {
    const PARTS: [&str; 10] = [
        "anonymous, active",
        "anonymous, inactive",
        "file, active",
        "file, inactive (clean)",
        "dirty",
        "under writeback",
        "isolated",
        "slabs, reclaimable",
        "slabs, unreclaimable",
        "free",
    ];
    let colours = COLOURS[..PARTS.len() - 1].iter().copied();
    let colours: Vec<&str> = colours.chain([FREE]).collect();
    let runs = runs.iter().copied();
    let runs: Vec<&Outcome> = runs.filter(|run| parts_of_memory(run).is_some()).collect();
    let has_slabs = runs.iter().any(|run| slabs_of(run).is_some());
    let limit = ("#000000", Key::Dashed);
    let parts = PARTS.iter().zip(&colours);
    let parts = parts.filter(|(part, _)| has_slabs || !part.starts_with("slabs"));
    let legend = parts.map(|(part, colour)| (*part, (*colour, Key::Box)));
    let legend: Vec<(&str, Ink)> = legend.chain([("memory limit", limit)]).collect();
    let labels = (
        format!("{case}: what memory holds"),
        unit(&runs, "MiB", "MiB (scaled)"),
    );
    let marks = |run: &Outcome| {
        let layers = parts_of_memory(run).unwrap_or_default();
        let mut marks = stack(&layers, &colours);
        if let Some((begin, end)) = layers[0].first().zip(layers[0].last()) {
            let most = run.memory_limit / 1_048_576.0;
            marks.push(line(vec![(begin.0, most), (end.0, most)], limit));
        }
        marks
    };
    (!runs.is_empty()).then(|| over_time(&runs, labels, &legend, marks))
}

/// The parts in MiB over time, in the order of `composition`'s legend. Dirty pages and those under
/// writeback are on the lists of file pages for the most part: what they are more than those lists
/// is anonymous pages on their way to the swap file.
fn parts_of_memory(run: &Outcome) -> Option<Vec<Vec<(f64, f64)>>> {
    let of = |name: &str| run.vmstat.of(name);
    let (active_anon, inactive_anon) = (of("nr_active_anon")?, of("nr_inactive_anon")?);
    let (active_file, inactive_file) = (of("nr_active_file")?, of("nr_inactive_file")?);
    let (dirty, writeback) = (of("nr_dirty")?, of("nr_writeback")?);
    let (isolated_anon, isolated_file) = (of("nr_isolated_anon")?, of("nr_isolated_file")?);
    let free = of("nr_free_pages")?;
    let slabs = slabs_of(run);
    let every = free.len().div_ceil(AREA_MOST).max(1);
    let mut layers = vec![Vec::new(); 10];
    for at in (0..free.len()).step_by(every) {
        let time = free[at].0;
        let (dirty, writeback) = (dirty[at].1, writeback[at].1);
        // The inactive list first, then the active one, then anonymous memory.
        let mut unclean = dirty + writeback;
        let mut take = |from: f64| {
            let taken = unclean.min(from);
            unclean -= taken;
            from - taken
        };
        let inactive_file = take(inactive_file[at].1);
        let active_file = take(active_file[at].1);
        let inactive_anon = take(inactive_anon[at].1);
        let parts = [
            active_anon[at].1,
            inactive_anon,
            active_file,
            inactive_file,
            dirty,
            writeback,
            isolated_anon[at].1 + isolated_file[at].1,
            slabs.as_ref().map_or(0.0, |(own, _)| own[at].1),
            slabs.as_ref().map_or(0.0, |(_, other)| other[at].1),
            free[at].1,
        ];
        for (layer, part) in layers.iter_mut().zip(parts) {
            layer.push((time, part * MIB_PER_PAGE));
        }
    }
    Some(layers)
}

/// Pages of slabs, reclaimable and not, if there are any.
fn slabs_of(run: &Outcome) -> Option<(Points, Points)> {
    let own = run.vmstat.of("nr_slab_reclaimable")?;
    let other = run.vmstat.of("nr_slab_unreclaimable")?;
    let any = own.iter().chain(&other).any(|(_, pages)| *pages > 0.0);
    any.then_some((own, other))
}

/// Layers one above the other; all have the same times.
fn stack(layers: &[Vec<(f64, f64)>], colours: &[&'static str]) -> Vec<Mark> {
    let mut below = vec![0.0; layers.first().map_or(0, Vec::len)];
    let area = |(layer, colour): (&Vec<(f64, f64)>, &&'static str)| {
        let points = layer.iter().zip(&mut below).map(|((x, value), below)| {
            let low = *below;
            *below += value.max(0.0);
            (*x, low, *below)
        });
        Mark::Area {
            points: points.collect(),
            colour,
        }
    };
    layers.iter().zip(colours).map(area).collect()
}

/// Every cause that is drawn, in the order of the stack, with a colour that it has in every row and
/// that no other has.
const STACKED: [(Cause, &str); 22] = [
    (Cause::DirtyPause, "#0072b2"),
    (Cause::DeviceStalled, "#56b4e9"),
    (Cause::WritebackFlight, "#009e73"),
    (Cause::SwapIo, "#8fd3b6"),
    (Cause::ReclaimNoProgress, "#d55e00"),
    (Cause::ReclaimWriteback, "#e69f00"),
    (Cause::RequestSlot, "#f0e442"),
    (Cause::Memory, "#cc79a7"),
    (Cause::ReadIo, "#7a5195"),
    (Cause::DeviceMetadata, "#999999"),
    (Cause::ReclaimIsolated, "#4d4d4d"),
    (Cause::CongestionWait, "#000000"),
    (Cause::ReclaimCongested, "#8c510a"),
    (Cause::Journal, "#b2182b"),
    (Cause::WritebackIo, "#253494"),
    (Cause::DeviceFlush, "#f4a582"),
    (Cause::RetryBackoff, "#b8e186"),
    (Cause::PageBusy, "#00441b"),
    (Cause::PageRetry, "#cab2d6"),
    (Cause::LogDurable, "#ff7f9e"),
    (Cause::MapFault, "#01665e"),
    (Cause::MapStore, "#5ab4ac"),
];
/// The colour of what is not a cause: none is drawn with it.
const UNKNOWN: &str = "#d9d9d9";

/// Where in `STACKED` a cause is, by its name.
fn place(cause: &str) -> usize {
    let known = STACKED
        .iter()
        .position(|(known, _)| format!("{known:?}") == cause);
    known.unwrap_or(STACKED.len())
}

fn colour_of(cause: &str) -> &'static str {
    STACKED
        .get(place(cause))
        .map_or(UNKNOWN, |(_, colour)| colour)
}

/// Number of sleeping tasks, by cause.
fn asleep(case: &str, runs: &[&Outcome]) -> Option<Figure> {
    let mut causes: Vec<&str> = Vec::new();
    for (cause, _) in runs.iter().flat_map(|run| &run.slots.asleep) {
        if !causes.contains(&cause.as_str()) {
            causes.push(cause);
        }
    }
    causes.sort_by_key(|cause| (place(cause), *cause));
    let colours: Vec<&'static str> = causes.iter().map(|cause| colour_of(cause)).collect();
    let marks = |run: &Outcome| {
        let slots = &run.slots;
        let length = slots.asleep.iter().map(|(_, means)| means.len()).max();
        let length = length.unwrap_or(0);
        let every = length.div_ceil(AREA_MOST).max(1);
        let layer = |cause: &&str| {
            let own = slots.asleep.iter().find(|(other, _)| other == cause);
            let means = own.map_or(&[][..], |(_, means)| means);
            let point = |slot: usize| {
                let part = &means[slot.min(means.len())..(slot + every).min(means.len())];
                let time = slots.slot_s * (count(slot) + count(every) / 2.0);
                (time, part.iter().sum::<f64>() / count(part.len().max(1)))
            };
            (0..length).step_by(every).map(point).collect()
        };
        let layers: Vec<Points> = causes.iter().map(layer).collect();
        stack(&layers, &colours)
    };
    let keys = colours.iter().map(|colour| (*colour, Key::Box));
    let legend: Vec<(&str, Ink)> = causes.iter().copied().zip(keys).collect();
    let title = format!("{case}: tasks asleep, by cause (idle and thinking ones apart)");
    (!causes.is_empty()).then(|| over_time(runs, (title, "tasks"), &legend, marks))
}

/// Pages looked at a second by callers and in the background, and pages freed.
fn scans(case: &str, runs: &[&Outcome]) -> Option<Figure> {
    let scanned = |run: &&Outcome| {
        let slots = &run.slots;
        let mut all = slots.scanned_direct.iter().chain(&slots.scanned_background);
        all.any(|rate| *rate > 0.0)
    };
    if !runs.iter().any(scanned) {
        return None;
    }
    let ink = |at: usize, key| (PALETTE[at], key);
    let inks = [
        ink(0, Key::Solid),
        ink(1, Key::Solid),
        ink(5, Key::Dashed),
        ink(4, Key::Dashed),
    ];
    let names = [
        "scanned, direct",
        "scanned, background (kswapd)",
        "freed, direct",
        "freed, background (kswapd)",
    ];
    let legend: Vec<(&str, Ink)> = names.into_iter().zip(inks).collect();
    let y_label = unit(runs, "pages/s (none: 1)", "pages/s at full scale (none: 1)");
    let title = format!("{case}: pages scanned and freed by reclaim");
    let mut figure = over_time(runs, (title, y_label), &legend, |run| {
        let slots = &run.slots;
        let lined = |rates: &[f64], ink| {
            let point = |(slot, rate): (usize, &f64)| {
                let rate = if *rate > 0.0 { rate / run.scale } else { 1.0 };
                (slots.slot_s * (count(slot) + 0.5), rate)
            };
            line(rates.iter().enumerate().map(point).collect(), ink)
        };
        vec![
            lined(&slots.freed_direct, inks[2]),
            lined(&slots.freed_background, inks[3]),
            lined(&slots.scanned_direct, inks[0]),
            lined(&slots.scanned_background, inks[1]),
        ]
    });
    figure.scales.log_y = true;
    Some(figure)
}

/// Throttlings by task and reason: one histogram each.
type Group = (bool, Reason);

fn groups(run: &Outcome) -> BTreeMap<Group, Vec<&ThrottleCount>> {
    let mut groups: BTreeMap<Group, Vec<&ThrottleCount>> = BTreeMap::new();
    for kind in &run.throttles {
        groups
            .entry((kind.background, kind.reason))
            .or_default()
            .push(kind);
    }
    groups
}

fn group_name((background, reason): Group) -> String {
    let name = reason.name().trim_start_matches("VMSCAN_THROTTLE_");
    let by = if background { "kswapd" } else { "direct" };
    format!("{by} {name}")
}

/// Number of throttlings by their length: one panel a reason and column, the timeout marked.
fn throttle_delays(case: &str, runs: &[&Outcome]) -> Option<Figure> {
    let mut panels = Vec::new();
    for run in runs {
        for (group, kinds) in groups(run) {
            let mut bars: BTreeMap<u64, f64> = BTreeMap::new();
            let mut timeouts: Vec<f64> = Vec::new();
            for kind in &kinds {
                // In thousandths of a millisecond: a key that can be ordered.
                *bars.entry(thousandths(kind.delayed_ms)).or_default() += whole(kind.count);
                if !timeouts.contains(&kind.timeout_ms) {
                    timeouts.push(kind.timeout_ms);
                }
            }
            let bars = bars.into_iter();
            let rule = |x| Mark::Rule {
                x,
                colour: PALETTE[1],
            };
            let mut marks: Vec<Mark> = timeouts.into_iter().map(rule).collect();
            marks.push(Mark::Stems {
                points: bars.map(|(at, n)| (whole(at) / 1e3, n)).collect(),
                colour: PALETTE[0],
            });
            panels.push(Panel {
                title: format!("{}: {}", run.policy, group_name(group)),
                marks,
            });
        }
    }
    (!panels.is_empty()).then(|| Figure {
        title: format!("{case}: how long throttling of reclaim lasted"),
        x_label: "delay (ms)".into(),
        y_label: "throttlings",
        legend: vec![
            ("throttlings of this length".into(), PALETTE[0], Key::Solid),
            ("timeout".into(), PALETTE[1], Key::Dashed),
        ],
        panels,
        scales: Scales {
            log_y: true,
            own_x: true,
            ..Scales::default()
        },
    })
}

/// Which part of the throttlings is no longer than so much: a line a reason.
fn throttle_cdf(case: &str, runs: &[&Outcome]) -> Option<Figure> {
    let mut known: Vec<Group> = runs
        .iter()
        .flat_map(|run| groups(run).into_keys())
        .collect();
    known.sort_unstable();
    known.dedup();
    let colour = |group: &Group| {
        let at = known.iter().position(|other| other == group);
        COLOURS[at.unwrap_or(0) % COLOURS.len()]
    };
    let ink = |group: &Group| {
        let key = if group.0 { Key::Dashed } else { Key::Solid };
        (colour(group), key)
    };
    let runs = runs.iter().copied();
    let runs: Vec<&Outcome> = runs.filter(|run| !run.throttles.is_empty()).collect();
    let names: Vec<String> = known.iter().copied().map(group_name).collect();
    let names = names.iter().map(String::as_str);
    let legend: Vec<(&str, Ink)> = names.zip(known.iter().map(ink)).collect();
    let title = format!("{case}: delays of throttling, cumulative");
    let marks = |run: &Outcome| {
        let lined = |(group, kinds): (Group, Vec<&ThrottleCount>)| {
            let kinds = kinds
                .iter()
                .map(|kind| (kind.delayed_ms, whole(kind.count)));
            let mut kinds: Points = kinds.collect();
            kinds.sort_by(|left, right| left.0.total_cmp(&right.0));
            let total: f64 = kinds.iter().map(|(_, n)| n).sum();
            let (mut points, mut below) = (vec![(0.0, 0.0)], 0.0);
            for (delay, n) in kinds {
                points.push((delay, below / total));
                below += n;
                points.push((delay, below / total));
            }
            line(points, ink(&group))
        };
        groups(run).into_iter().map(lined).collect()
    };
    (!runs.is_empty()).then(|| {
        let figure = over_time(&runs, (title, "part of the throttlings"), &legend, marks);
        let x_label = "delay (ms)".into();
        Figure { x_label, ..figure }
    })
}

/// Which part of the samples of a measuring job is longer than so much: a line a column.
fn latency(case: &str, runs: &[&Outcome]) -> Option<Figure> {
    let samples = |run: &Outcome| {
        let jobs = run.jobs.iter().filter(|job| job.measures());
        let mut samples: Vec<f64> = jobs
            .flat_map(|job| &job.samples)
            .map(|(_, ms)| *ms)
            .collect();
        samples.sort_by(f64::total_cmp);
        samples
    };
    if !runs.iter().any(|run| samples(run).len() > 1) {
        return None;
    }
    let title = format!("{case}: samples of latency that last at least so long");
    let labels = [
        "latency (ms)",
        "part of the samples",
        "of all measuring jobs",
    ];
    let mut figure = over_length(runs, title, labels, |run| {
        let samples = samples(run);
        let total = samples.len();
        let left = samples.into_iter().enumerate();
        left.map(|(at, ms)| (ms, count(total - at) / count(total)))
            .collect()
    });
    (figure.scales.log_x, figure.scales.log_y) = (true, true);
    Some(figure)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a delay of at most hours, not negative"
)]
fn thousandths(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

/// All colours that are drawn here, but for that of free memory and of what has none of its own.
#[cfg(test)]
pub(in crate::output) fn colours() -> impl Iterator<Item = &'static str> {
    COLOURS
        .into_iter()
        .chain(STACKED.iter().map(|(_, colour)| *colour))
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::outcome::{Job, Slots, ThrottleEnd, VmSeries};

    fn run() -> Outcome {
        let names = vec![
            "nr_free_pages",
            "nr_inactive_anon",
            "nr_active_anon",
            "nr_inactive_file",
            "nr_active_file",
            "nr_isolated_anon",
            "nr_isolated_file",
            "nr_dirty",
            "nr_writeback",
        ];
        let row = vec![256.0, 512.0, 256.0, 512.0, 256.0, 0.0, 0.0, 256.0, 512.0];
        let kind = |delayed_ms, count| ThrottleCount {
            background: false,
            reason: Reason::NoProgress,
            timeout_ms: 500.0,
            delayed_ms,
            ended: ThrottleEnd::Event,
            count,
        };
        Outcome {
            case: "12".into(),
            policy: "tidegate".into(),
            scale: 0.5,
            memory_limit: 8.0 * 1_048_576.0,
            vmstat: VmSeries {
                names,
                rows: vec![(0.0, row.clone()), (1.0, row)],
            },
            throttles: vec![kind(0.0, 3), kind(104.0, 1)],
            slots: Slots {
                slot_s: 0.5,
                asleep: vec![("Memory".into(), vec![1.5, 0.5])],
                scanned_direct: vec![100.0, 0.0],
                ..Slots::default()
            },
            jobs: vec![Job {
                samples: vec![(1.0, 30.0), (2.0, 60.0)],
                ..Job::default()
            }],
            ..Outcome::default()
        }
    }

    #[test]
    fn the_parts_of_memory_add_up_to_it() {
        let layers = parts_of_memory(&run()).unwrap();
        let at = |part: usize| layers[part][0].1;
        // 768 pages are dirty or under writeback: 512 of the inactive list of files, 256 of the
        // active one.
        assert_eq!((at(2), at(3)), (0.0, 0.0));
        assert_eq!((at(4), at(5), at(9)), (1.0, 2.0, 1.0));
        let total: f64 = (0..10).map(at).sum();
        assert_eq!(total, 7.0);
    }

    #[test]
    fn a_run_under_pressure_gets_all_figures_and_one_without_none() {
        let run = run();
        let mut figures = Vec::new();
        add("12", &[&run], &mut figures);
        let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "composition-12",
                "asleep-12",
                "scans-12",
                "throttle-delays-12",
                "throttle-cdf-12",
                "latency-12"
            ]
        );
        for (_, figure) in &figures {
            let svg = figure.render();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        figures.clear();
        add("12", &[&Outcome::default()], &mut figures);
        assert!(figures.is_empty());
    }

    #[test]
    fn axes_of_a_run_as_large_as_it_is_say_nothing_of_a_scale() {
        let labels = |scale| {
            let run = Outcome { scale, ..run() };
            let figures = [composition("12", &[&run]), scans("12", &[&run])];
            figures.map(|figure| figure.unwrap().y_label)
        };
        assert_eq!(
            labels(0.5),
            ["MiB (scaled)", "pages/s at full scale (none: 1)"]
        );
        assert_eq!(labels(1.0), ["MiB", "pages/s (none: 1)"]);
    }

    /// The causes one after the other. A new one is refused here by the compiler: it wants a line,
    /// and one of `STACKED`.
    fn cause_after(cause: Cause) -> Option<Cause> {
        Some(match cause {
            Cause::Idle => Cause::Think,
            Cause::Think => Cause::Join,
            Cause::Join => Cause::DirtyPause,
            Cause::DirtyPause => Cause::DeviceStalled,
            Cause::DeviceStalled => Cause::PageBusy,
            Cause::PageBusy => Cause::ReadIo,
            Cause::ReadIo => Cause::WritebackIo,
            Cause::WritebackIo => Cause::WritebackFlight,
            Cause::WritebackFlight => Cause::DeviceFlush,
            Cause::DeviceFlush => Cause::DeviceMetadata,
            Cause::DeviceMetadata => Cause::Memory,
            Cause::Memory => Cause::ReclaimWriteback,
            Cause::ReclaimWriteback => Cause::ReclaimIsolated,
            Cause::ReclaimIsolated => Cause::ReclaimNoProgress,
            Cause::ReclaimNoProgress => Cause::ReclaimCongested,
            Cause::ReclaimCongested => Cause::CongestionWait,
            Cause::CongestionWait => Cause::SwapIo,
            Cause::SwapIo => Cause::RequestSlot,
            Cause::RequestSlot => Cause::RetryBackoff,
            Cause::RetryBackoff => Cause::Journal,
            Cause::Journal => Cause::PageRetry,
            Cause::PageRetry => Cause::LogDurable,
            Cause::LogDurable => Cause::MapFault,
            Cause::MapFault => Cause::MapStore,
            Cause::MapStore => return None,
        })
    }

    #[test]
    fn no_two_causes_that_are_drawn_have_the_same_colour() {
        let all = core::iter::successors(Some(Cause::Idle), |cause| cause_after(*cause));
        let drawn: Vec<Cause> = all
            .filter(|cause| !experiment::watch::is_idle(*cause))
            .collect();
        let mut colours: Vec<&str> = drawn
            .iter()
            .map(|cause| colour_of(&format!("{cause:?}")))
            .collect();
        assert!(!colours.contains(&UNKNOWN));
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), drawn.len());
    }

    #[test]
    fn delays_have_a_panel_for_each_reason_with_its_timeout() {
        let figure = throttle_delays("12", &[&run()]).unwrap();
        assert_eq!(figure.panels[0].title, "tidegate: direct NOPROGRESS");
        let marks = &figure.panels[0].marks;
        assert!(matches!(marks[0], Mark::Rule { x, .. } if x == 500.0));
        let Mark::Stems { points, .. } = &marks[1] else {
            panic!("{marks:?}");
        };
        assert_eq!(points, &[(0.0, 3.0), (104.0, 1.0)]);
    }
}
