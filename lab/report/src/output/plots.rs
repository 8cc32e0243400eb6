//! Which plots a set of runs gets: pauses over time and their distribution, dirty levels with their
//! limits, the law's rate, rates of writers, resident memory; `reclaim`: memory under pressure;
//! `small`: small files. One figure a row of the table, one panel a column; the first repetition.
//!
//! Source: experiments D3, numbers 2, 3, 5 and 14.

mod reclaim;
mod small;

#[cfg(test)]
pub(super) use reclaim::colours;

use super::svg::{Figure, Key, Mark, PALETTE, Panel, Scales, column_colours};
use experiment::outcome::{Job, Level, Outcome};

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
        let first = outcomes
            .iter()
            .filter(|outcome| outcome.case == case)
            .map(|o| o.replica)
            .min();
        let runs: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| outcome.case == case && Some(outcome.replica) == first)
            .collect();
        if runs
            .iter()
            .any(|run| run.pauses.iter().any(|pause| pause.slept_ms > 0.0))
        {
            figures.push((format!("pauses-{case}"), pauses(case, &runs)));
            figures.push((format!("pause-lengths-{case}"), lengths(case, &runs)));
        }
        figures.push((format!("levels-{case}"), levels(case, &runs)));
        if runs
            .iter()
            .any(|run| run.pauses.iter().any(|pause| pause.dirty_ratelimit > 0.0))
        {
            figures.push((format!("ratelimit-{case}"), ratelimits(case, &runs)));
        }
        if writers(&runs).len() > 1 {
            figures.push((format!("rates-{case}"), rates(case, &runs)));
        }
        if runs
            .iter()
            .any(|run| run.levels.iter().any(|level| level.resident > 0.0))
        {
            figures.push((format!("memory-{case}"), memory(case, &runs)));
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

fn pauses(case: &str, runs: &[&Outcome]) -> Figure {
    let panel = |run: &&Outcome| {
        let mut zero = Vec::new();
        let mut slept = Vec::new();
        for pause in &run.pauses {
            let list = if pause.slept_ms > 0.0 {
                &mut slept
            } else {
                &mut zero
            };
            list.push((pause.at_s, pause.slept_ms));
        }
        let marks = vec![
            Mark::Dots {
                points: zero,
                colour: PALETTE[1],
            },
            Mark::Dots {
                points: slept,
                colour: PALETTE[0],
            },
        ];
        Panel {
            title: run.policy.clone(),
            marks,
        }
    };
    Figure {
        title: format!("{case}: pauses of writers in balance_dirty_pages"),
        x_label: TIME.into(),
        y_label: "pause (ms)",
        legend: vec![
            ("slept".into(), PALETTE[0], Key::Dot),
            ("zero in the trace".into(), PALETTE[1], Key::Dot),
        ],
        panels: runs.iter().map(panel).collect(),
        scales: Scales {
            log_y: is_wide(runs),
            ..Scales::default()
        },
    }
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
    let line = |(run, (colour, key)): (&&Outcome, (&'static str, Key))| {
        let slept = run.pauses.iter().map(|pause| pause.slept_ms);
        let mut lengths: Vec<f64> = slept.filter(|slept| *slept > 0.0).collect();
        lengths.sort_by(f64::total_cmp);
        let mut points = vec![(0.0, 0.0)];
        let (mut passed, mut below) = (0.0, 0.0);
        let total = lengths.len();
        for (index, length) in lengths.iter().enumerate() {
            passed += 1.0;
            if lengths.get(index + 1) != Some(length) {
                points.push((*length, below));
                below = share(passed, total);
                points.push((*length, below));
            }
        }
        Mark::Line {
            points,
            colour,
            dashed: key == Key::Dashed,
        }
    };
    let marks = runs.iter().zip(column_colours()).map(line).collect();
    Figure {
        title: format!("{case}: lengths of pauses"),
        x_label: "pause (ms)".into(),
        y_label: "part of the pauses",
        legend: runs
            .iter()
            .zip(column_colours())
            .map(|(run, (colour, key))| (run.policy.clone(), colour, key))
            .collect(),
        panels: vec![Panel {
            title: "pauses longer than zero".into(),
            marks,
        }],
        scales: Scales {
            log_x: is_wide(runs),
            ..Scales::default()
        },
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of pauses")]
fn share(passed: f64, total: usize) -> f64 {
    passed / total as f64
}

/// The base rate of a device's writers as its pauses print it. At a run's beginning it is far from
/// what it comes to: what is above three times its median is drawn there.
fn ratelimits(case: &str, runs: &[&Outcome]) -> Figure {
    let rates = |run: &Outcome| {
        let known = run
            .pauses
            .iter()
            .filter(|pause| pause.dirty_ratelimit > 0.0);
        let points = known.map(|pause| (pause.at_s, pause.dirty_ratelimit * MIB_PER_PAGE));
        points.collect::<Vec<_>>()
    };
    let mut all: Vec<f64> = runs
        .iter()
        .flat_map(|run| rates(run))
        .map(|(_, rate)| rate)
        .collect();
    all.sort_by(f64::total_cmp);
    let cut = all
        .get(all.len() / 2)
        .map_or(f64::MAX, |median| median * 3.0);
    let panel = |run: &&Outcome| {
        let points = rates(run).into_iter().map(|(at, rate)| (at, rate.min(cut)));
        Panel {
            title: run.policy.clone(),
            marks: vec![Mark::Line {
                points: points.collect(),
                colour: PALETTE[0],
                dashed: false,
            }],
        }
    };
    Figure {
        title: format!(
            "{case}: base rate of the law (dirty_ratelimit; higher values cut at {cut:.0})"
        ),
        x_label: TIME.into(),
        y_label: unit(runs, "MiB/s", "MiB/s (scaled)"),
        legend: vec![(
            "dirty_ratelimit, one writer's".into(),
            PALETTE[0],
            Key::Solid,
        )],
        panels: runs.iter().map(panel).collect(),
        ..Figure::default()
    }
}

fn levels(case: &str, runs: &[&Outcome]) -> Figure {
    let panel = |run: &&Outcome| {
        let line = |of: fn(&Level) -> f64, colour, dashed| Mark::Line {
            points: run
                .levels
                .iter()
                .map(|l| (l.at_s, of(l) * MIB_PER_PAGE))
                .collect(),
            colour,
            dashed,
        };
        let marks = vec![
            line(|level| level.limit, PALETTE[1], true),
            line(|level| level.background, PALETTE[4], true),
            line(|level| level.dirty + level.writeback, PALETTE[0], false),
            line(|level| level.writeback, PALETTE[2], false),
        ];
        Panel {
            title: run.policy.clone(),
            marks,
        }
    };
    Figure {
        title: format!("{case}: dirty pages and their limits"),
        x_label: TIME.into(),
        y_label: unit(runs, "MiB", "MiB (scaled)"),
        legend: vec![
            ("dirty limit".into(), PALETTE[1], Key::Dashed),
            ("background limit".into(), PALETTE[4], Key::Dashed),
            ("dirty + writeback".into(), PALETTE[0], Key::Solid),
            ("writeback".into(), PALETTE[2], Key::Solid),
        ],
        panels: runs.iter().map(panel).collect(),
        ..Figure::default()
    }
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
    let names: Vec<String> = runs
        .first()
        .map(|run| {
            let writers = writers.iter().map(|at| run.jobs[*at].name.clone());
            writers.collect()
        })
        .unwrap_or_default();
    let panel = |run: &&Outcome| {
        let marks = writers
            .iter()
            .filter_map(|at| run.jobs.get(*at))
            .zip(PALETTE)
            .map(|(job, colour)| Mark::Line {
                points: (1_u32..)
                    .zip(&job.per_second)
                    .map(|(second, bytes)| (f64::from(second), bytes / 1e6 / run.scale))
                    .collect(),
                colour,
                dashed: false,
            })
            .collect();
        Panel {
            title: run.policy.clone(),
            marks,
        }
    };
    Figure {
        title: format!("{case}: what each writer writes into the cache{part}"),
        x_label: TIME.into(),
        y_label: unit(runs, "MB/s", "MB/s at full scale"),
        legend: names
            .into_iter()
            .zip(PALETTE)
            .map(|(n, colour)| (n, colour, Key::Solid))
            .collect(),
        panels: runs.iter().map(panel).collect(),
        ..Figure::default()
    }
}

fn memory(case: &str, runs: &[&Outcome]) -> Figure {
    let panel = |run: &&Outcome| {
        let mib = |value: f64| value / 1_048_576.0;
        let flat = |value: f64| {
            run.levels
                .iter()
                .map(|level| (level.at_s, mib(value)))
                .collect()
        };
        let marks = vec![
            Mark::Line {
                points: flat(run.memory_limit * 1.05),
                colour: PALETTE[4],
                dashed: true,
            },
            Mark::Line {
                points: flat(run.memory_limit),
                colour: PALETTE[1],
                dashed: true,
            },
            Mark::Line {
                points: run
                    .levels
                    .iter()
                    .map(|l| (l.at_s, mib(l.resident)))
                    .collect(),
                colour: PALETTE[0],
                dashed: false,
            },
        ];
        Panel {
            title: run.policy.clone(),
            marks,
        }
    };
    Figure {
        title: format!("{case}: resident memory of the process"),
        x_label: TIME.into(),
        y_label: "MiB",
        legend: vec![
            ("limit".into(), PALETTE[1], Key::Dashed),
            ("limit + 5 %".into(), PALETTE[4], Key::Dashed),
            ("resident (pinned included)".into(), PALETTE[0], Key::Solid),
        ],
        panels: runs.iter().map(panel).collect(),
        ..Figure::default()
    }
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
