//! Which plots a set of runs gets: pauses over time and their distribution, dirty levels with their
//! limits, the law's rate, rates of writers, resident memory; `reclaim`: memory under pressure;
//! `small`: small files. One figure a row of the table, one panel a column; the first repetition.
//!
//! Source: experiments D3, numbers 2, 3, 5 and 14.

mod reclaim;
mod small;

#[cfg(test)]
pub(super) use reclaim::colours;

use super::svg::{Figure, Key, Mark, PALETTE, Panel, column_colours};
use experiment::outcome::{Job, Level, Outcome};
use experiment::stats::count;

const MIB_PER_PAGE: f64 = 4096.0 / 1_048_576.0;
/// Writers whose rates are drawn one by one.
const WRITERS_MOST: usize = 7;
const TIME: &str = "time (s)";

/// The published value of a metric in a row and a column.
pub(super) type Published<'a> = &'a dyn Fn(&str, &str, &str) -> Option<f64>;

/// Plots whose height is a metric: what was published of it is a line there.
const PUBLISHED: [(&str, &str); 2] = [("pauses", "pause_max_ms"), ("slab-share", "slab_share")];

/// Draws what was published into the panels of the columns that it is of.
fn draw_published(case: &str, figures: &mut [(String, Figure)], published: Published<'_>) {
    for (plot, metric) in PUBLISHED {
        let name = format!("{plot}-{case}");
        for (_, figure) in figures.iter_mut().filter(|(own, _)| *own == name) {
            let mut any = false;
            for panel in &mut figure.panels {
                if let Some(y) = published(metric, case, &panel.title) {
                    let colour = PALETTE[3];
                    panel.marks.push(Mark::Level { y, colour });
                    any = true;
                }
            }
            if any {
                let key = ("published".to_owned(), PALETTE[3], Key::Dashed);
                figure.legend.push(key);
            }
        }
    }
}

/// (file name, figure), in the order of the report.
pub(super) fn figures(outcomes: &[Outcome], published: Published<'_>) -> Vec<(String, Figure)> {
    let mut cases: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !cases.contains(&outcome.case.as_str()) {
            cases.push(&outcome.case);
        }
    }
    let mut figures = Vec::new();
    for case in cases {
        let of_case = outcomes.iter().filter(|outcome| outcome.case == case);
        let first = of_case.clone().map(|run| run.replica).min();
        let runs: Vec<&Outcome> = of_case.filter(|run| Some(run.replica) == first).collect();
        let any = |has: fn(&Outcome) -> bool| runs.iter().any(|run| has(run));
        let mut add = |name: &str, figure| figures.push((format!("{name}-{case}"), figure));
        if any(|run| run.pauses.iter().any(|pause| pause.slept_ms > 0.0)) {
            add("pauses", pauses(case, &runs));
            add("pause-lengths", lengths(case, &runs));
        }
        add("levels", levels(case, &runs));
        if any(|run| run.pauses.iter().any(|pause| pause.dirty_ratelimit > 0.0)) {
            add("ratelimit", ratelimits(case, &runs));
        }
        if writers(&runs).len() > 1 {
            add("rates", rates(case, &runs));
        }
        if any(|run| run.levels.iter().any(|level| level.resident > 0.0)) {
            add("memory", memory(case, &runs));
        }
        reclaim::add(case, &runs, &mut figures);
        small::add(case, &runs, &mut figures);
        draw_published(case, &mut figures, published);
    }
    for (_, figure) in &mut figures {
        // A row that is a number alone says nothing at the head of a plot.
        if figure
            .title
            .starts_with(|first: char| first.is_ascii_digit())
        {
            figure.title.insert_str(0, "row ");
        }
    }
    figures
}

/// The unit of an axis: of runs at full size, live ones too, there is nothing to be said about a
/// scale.
fn unit(runs: &[&Outcome], whole: &'static str, shrunk: &'static str) -> &'static str {
    let is_whole = runs.iter().all(|run| run.scale == 1.0);
    if is_whole { whole } else { shrunk }
}

/// (x, y)
type Points = Vec<(f64, f64)>;

/// A colour, and its line in the legend.
type Ink = (&'static str, Key);

fn line(points: Points, (colour, key): Ink) -> Mark {
    let dashed = key == Key::Dashed;
    Mark::Line {
        points,
        colour,
        dashed,
    }
}

/// The marks of each run over time: one panel a column.
fn over_time(
    runs: &[&Outcome],
    (title, y_label): (String, &'static str),
    legend: &[(&str, Ink)],
    marks: impl Fn(&Outcome) -> Vec<Mark>,
) -> Figure {
    let key = |(name, (colour, key)): &(&str, Ink)| ((*name).to_owned(), *colour, *key);
    let panel = |run: &&Outcome| {
        let (title, marks) = (run.policy.clone(), marks(run));
        Panel { title, marks }
    };
    Figure {
        title,
        x_label: TIME.into(),
        y_label,
        legend: legend.iter().map(key).collect(),
        panels: runs.iter().map(panel).collect(),
        ..Figure::default()
    }
}

/// A line a column, all in one panel.
fn over_length(
    runs: &[&Outcome],
    title: String,
    [x_label, y_label, panel]: [&'static str; 3],
    points: impl Fn(&Outcome) -> Points,
) -> Figure {
    let inks = || runs.iter().zip(column_colours());
    let title_of = |(run, (colour, key)): (&&Outcome, Ink)| (run.policy.clone(), colour, key);
    let marks = inks().map(|(run, ink)| line(points(run), ink)).collect();
    Figure {
        title,
        x_label: x_label.into(),
        y_label,
        legend: inks().map(title_of).collect(),
        panels: vec![Panel {
            title: panel.into(),
            marks,
        }],
        ..Figure::default()
    }
}

fn pauses(case: &str, runs: &[&Outcome]) -> Figure {
    let title = format!("{case}: pauses of writers in balance_dirty_pages");
    let (slept, zero) = ((PALETTE[0], Key::Dot), (PALETTE[1], Key::Dot));
    let legend = [("slept", slept), ("zero in the trace", zero)];
    let mut figure = over_time(runs, (title, "pause (ms)"), &legend, |run| {
        let points = run.pauses.iter().map(|pause| (pause.at_s, pause.slept_ms));
        let (slept, zero): (Points, Points) = points.partition(|(_, slept)| *slept > 0.0);
        [(zero, PALETTE[1]), (slept, PALETTE[0])]
            .map(|(points, colour)| Mark::Dots { points, colour })
            .into()
    });
    figure.scales.log_y = is_wide(runs);
    figure
}

/// Longest pause / shortest, from which on lengths are drawn by orders of magnitude.
const WIDE: f64 = 20.0;

/// True if pauses of some column are so much longer than of another that a linear axis would have
/// these on its floor.
fn is_wide(runs: &[&Outcome]) -> bool {
    let all = runs.iter().flat_map(|run| &run.pauses);
    let slept = all.map(|pause| pause.slept_ms).filter(|slept| *slept > 0.0);
    let (low, high) = slept.fold((f64::INFINITY, 0.0_f64), |(low, high), slept| {
        (low.min(slept), high.max(slept))
    });
    high > WIDE * low
}

/// Which part of the pauses is no longer than so much: one line a column.
fn lengths(case: &str, runs: &[&Outcome]) -> Figure {
    let title = format!("{case}: lengths of pauses");
    let labels = [
        "pause (ms)",
        "part of the pauses",
        "pauses longer than zero",
    ];
    let mut figure = over_length(runs, title, labels, |run| {
        let slept = run.pauses.iter().map(|pause| pause.slept_ms);
        let mut lengths: Vec<f64> = slept.filter(|slept| *slept > 0.0).collect();
        lengths.sort_by(f64::total_cmp);
        let mut points = vec![(0.0, 0.0)];
        let mut below = 0.0;
        for (index, length) in lengths.iter().enumerate() {
            if lengths.get(index + 1) != Some(length) {
                points.push((*length, below));
                below = count(index + 1) / count(lengths.len());
                points.push((*length, below));
            }
        }
        points
    });
    figure.scales.log_x = is_wide(runs);
    figure
}

/// The base rate of a device's writers as its pauses print it. At a run's beginning it is far from
/// what it comes to: what is above three times its median is drawn there.
fn ratelimits(case: &str, runs: &[&Outcome]) -> Figure {
    let rates = |run: &Outcome| -> Points {
        let known = run
            .pauses
            .iter()
            .filter(|pause| pause.dirty_ratelimit > 0.0);
        let points = known.map(|pause| (pause.at_s, pause.dirty_ratelimit * MIB_PER_PAGE));
        points.collect()
    };
    let all = runs.iter().flat_map(|run| rates(run));
    let mut all: Vec<f64> = all.map(|(_, rate)| rate).collect();
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2);
    let cut = median.map_or(f64::MAX, |median| median * 3.0);
    let title =
        format!("{case}: base rate of the law (dirty_ratelimit; higher values cut at {cut:.0})");
    let ink = (PALETTE[0], Key::Solid);
    let legend = [("dirty_ratelimit, one writer's", ink)];
    let y_label = unit(runs, "MiB/s", "MiB/s (scaled)");
    over_time(runs, (title, y_label), &legend, |run| {
        let points = rates(run).into_iter().map(|(at, rate)| (at, rate.min(cut)));
        vec![line(points.collect(), ink)]
    })
}

/// A line over time of each of some values of the levels.
type Value<'a> = (&'a str, Ink, fn(&Outcome, &Level) -> f64);

fn of_levels(runs: &[&Outcome], labels: (String, &'static str), values: &[Value<'_>]) -> Figure {
    let legend: Vec<(&str, Ink)> = values.iter().map(|(name, ink, _)| (*name, *ink)).collect();
    over_time(runs, labels, &legend, |run| {
        let points = |of: fn(&Outcome, &Level) -> f64| {
            let levels = run.levels.iter();
            levels.map(|level| (level.at_s, of(run, level))).collect()
        };
        let values = values.iter();
        values.map(|(_, ink, of)| line(points(*of), *ink)).collect()
    })
}

fn levels(case: &str, runs: &[&Outcome]) -> Figure {
    let title = format!("{case}: dirty pages and their limits");
    let labels = (title, unit(runs, "MiB", "MiB (scaled)"));
    let (dashed, solid) = (Key::Dashed, Key::Solid);
    let values: [Value<'_>; 4] = [
        ("dirty limit", (PALETTE[1], dashed), |_, level| {
            level.limit * MIB_PER_PAGE
        }),
        ("background limit", (PALETTE[4], dashed), |_, level| {
            level.background * MIB_PER_PAGE
        }),
        ("dirty + writeback", (PALETTE[0], solid), |_, level| {
            (level.dirty + level.writeback) * MIB_PER_PAGE
        }),
        ("writeback", (PALETTE[2], solid), |_, level| {
            level.writeback * MIB_PER_PAGE
        }),
    ];
    of_levels(runs, labels, &values)
}

/// The places of the jobs that wrote to files under any column: a hog has none, and a reader only
/// reads.
fn writers(runs: &[&Outcome]) -> Vec<usize> {
    let jobs = runs.first().map_or(0, |run| run.jobs.len());
    let writes = |job: &Job| !job.is_reader && job.bytes > 0.0;
    (0..jobs)
        .filter(|at| runs.iter().any(|run| run.jobs.get(*at).is_some_and(writes)))
        .collect()
}

fn rates(case: &str, runs: &[&Outcome]) -> Figure {
    let mut writers = writers(runs);
    let part = if writers.len() > WRITERS_MOST {
        format!(" (first {WRITERS_MOST} of {})", writers.len())
    } else {
        String::new()
    };
    writers.truncate(WRITERS_MOST);
    let inks = || PALETTE.map(|colour| (colour, Key::Solid)).into_iter();
    let first = runs.first().map_or(&[][..], |run| &run.jobs);
    let names = writers.iter().map(|at| &*first[*at].name);
    let legend: Vec<(&str, Ink)> = names.zip(inks()).collect();
    let title = format!("{case}: what each writer writes into the cache{part}");
    let y_label = unit(runs, "MB/s", "MB/s at full scale");
    over_time(runs, (title, y_label), &legend, |run| {
        let jobs = writers.iter().filter_map(|at| run.jobs.get(*at));
        let rate = |(second, bytes): (u32, &f64)| (f64::from(second), bytes / 1e6 / run.scale);
        let points = |job: &Job| (1_u32..).zip(&job.per_second).map(rate).collect();
        jobs.zip(inks())
            .map(|(job, ink)| line(points(job), ink))
            .collect()
    })
}

fn memory(case: &str, runs: &[&Outcome]) -> Figure {
    const MIB: f64 = 1_048_576.0;
    let labels = (format!("{case}: resident memory of the process"), "MiB");
    let (dashed, solid) = (Key::Dashed, Key::Solid);
    let values: [Value<'_>; 3] = [
        ("limit", (PALETTE[1], dashed), |run, _| {
            run.memory_limit / MIB
        }),
        ("limit + 5 %", (PALETTE[4], dashed), |run, _| {
            run.memory_limit * 1.05 / MIB
        }),
        (
            "resident (pinned included)",
            (PALETTE[0], solid),
            |_, level| level.resident / MIB,
        ),
    ];
    of_levels(runs, labels, &values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::outcome::Pause;

    #[test]
    fn lengths_of_pauses_are_drawn_of_all_columns() {
        let columns: Vec<Outcome> = (0..9)
            .map(|number| Outcome {
                policy: number.to_string(),
                pauses: vec![Pause {
                    slept_ms: 10.0,
                    ..Pause::default()
                }],
                ..Outcome::default()
            })
            .collect();
        let figure = lengths("row", &columns.iter().collect::<Vec<_>>());
        assert_eq!((figure.legend.len(), figure.panels[0].marks.len()), (9, 9));
    }

    #[test]
    fn rates_are_drawn_of_those_who_write_files() {
        let job = |name: &str, bytes: f64, is_reader: bool| Job {
            name: name.into(),
            bytes,
            is_reader,
            ..Job::default()
        };
        let run = |second: f64| Outcome {
            jobs: vec![
                job("hog", 0.0, false),
                job("first", 1e6, false),
                job("reader", 1e6, true),
                job("second", second, false),
            ],
            ..Outcome::default()
        };
        let (one, other) = (run(0.0), run(1e6));
        assert_eq!(writers(&[&one]), [1]);
        let figure = rates("row", &[&one, &other]);
        let names: Vec<&str> = figure.legend.iter().map(|(name, ..)| &**name).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(!figure.title.contains("(first"), "{}", figure.title);
        assert!(figure.panels.iter().all(|panel| panel.marks.len() == 2));
    }
}
