//! The tables of paper p3, published columns behind ours: files a second at the counts it prints,
//! what memory is composed of at three times, and what the merged fix did to the counters of
//! mmtests.
//!
//! ```text
//! Files/s at                linux-5.0 linux-5.0+p3   vanilla  patched
//!              4320000        51800.0     51790.2    51349.6  51341.9 (  -0.0%)
//! Composition (MiB)   full     half      end   published full ...
//! ```
//!
//! Values are means over the repetitions; compositions are of the first. A change is of the second
//! column against the first, positive when better. Published are those of the columns `linux-5.0`
//! (vanilla) and `linux-5.0+p3` (patched); of the merged fix, another machine and a longer run, so
//! its counts are no measure for ours: their ratios are.
//!
//! Source: experiments A4; paper p3; MAIL 36924287114.

use std::fmt::Write as _;

use experiment::metrics::{self, small};
use experiment::outcome::Outcome;

/// (files made by then, vanilla, patched): files a second of the round that ends there.
const FILES: [(f64, f64, f64); 13] = [
    (4_320_000.0, 51_349.6, 51_341.9),
    (4_480_000.0, 48_492.9, 51_157.5),
    (4_640_000.0, 48_473.8, 52_041.5),
    (4_800_000.0, 46_846.6, 52_124.2),
    (4_960_000.0, 47_086.6, 56_266.6),
    (5_120_000.0, 46_288.8, 52_892.2),
    (5_280_000.0, 46_003.2, 51_879.5),
    (5_440_000.0, 46_033.4, 52_178.7),
    (5_600_000.0, 45_035.1, 53_863.0),
    (5_760_000.0, 43_757.6, 52_538.7),
    (5_920_000.0, 40_739.4, 53_144.5),
    (6_080_000.0, 37_309.4, 53_647.7),
    (6_240_000.0, 42_003.3, 52_434.7),
];

/// (row, published of vanilla in kB: memory first full, a few seconds later, from 6.08 million
/// files on)
const COMPOSITION: [(&str, &[&str], [f64; 3]); 7] = [
    (
        "MemFree",
        &["nr_free_pages"],
        [432_676.0, 1_880_588.0, 574_900.0],
    ),
    (
        "Active(file)",
        &["nr_active_file"],
        [89_820.0, 89_948.0, 89_856.0],
    ),
    (
        "Inactive(file)",
        &["nr_inactive_file"],
        [7_330_892.0, 3_021_796.0, 483_120.0],
    ),
    (
        "Dirty",
        &["nr_dirty"],
        [1_603_576.0, 1_097_072.0, 372_436.0],
    ),
    ("Writeback", &["nr_writeback"], [2_908.0, 2_600.0, 324.0]),
    (
        "SReclaimable",
        &["nr_slab_reclaimable"],
        [3_727_612.0, 5_060_104.0, 6_506_496.0],
    ),
    (
        "SUnreclaim",
        &["nr_slab_unreclaimable"],
        [2_851_772.0, 3_840_808.0, 5_392_460.0],
    ),
];
/// Slabs / (slabs + lists of file pages) at these times.
const SHARE: [f64; 3] = [0.470, 0.741, 0.954];
/// The column that these are of, and the one with the patch.
const VANILLA: &str = "linux-5.0";
const PATCHED: &str = "linux-5.0+p3";

/// (row, metric, before the merged fix, with it)
const OPS: [(&str, &str, f64, f64); 8] = [
    ("Kswapd pages scanned", "pgscan_kswapd", 45.38e6, 33.45e6),
    ("Kswapd pages reclaimed", "pgsteal_kswapd", 30.87e6, 25.24e6),
    ("Kswapd efficiency %", "kswapd_efficiency", 68.0, 75.5),
    ("Kswapd velocity", "kswapd_velocity", 5_586.0, 4_002.0),
    ("Direct pages scanned", "pgscan_direct", 99e3, 328e3),
    ("Page reclaim immediate", "immediate", 1.18e6, 0.43e6),
    ("Slabs scanned", "slabs_scanned", 62.4e6, 73.6e6),
    ("Kswapd inode steals", "kswapd_inode_steals", 0.57e6, 5.18e6),
];

const NAME: usize = 24;
const VALUE: usize = 14;
const KIB_PER_PAGE: f64 = 4.0;

/// Of the rates of a column.
type Sum = fn(&[f64]) -> Option<f64>;

/// Everything that the tables are made from.
pub(super) struct Small<'a> {
    pub(super) outcomes: &'a [Outcome],
    pub(super) rows: &'a [String],
    pub(super) columns: &'a [String],
}

impl Small<'_> {
    /// Whether small files are made.
    pub(super) fn applies(&self) -> bool {
        let jobs = self.outcomes.iter().flat_map(|outcome| &outcome.jobs);
        jobs.into_iter().any(|job| job.makes_small)
    }

    /// All tables as text.
    pub(super) fn render(&self) -> String {
        let row = |case: &String| {
            let mut text = String::new();
            if self.rows.len() > 1 {
                let _ = writeln!(text, "{case}");
            }
            text + &self.files(case) + &self.compositions(case) + &self.ops(case)
        };
        self.rows.iter().map(row).collect()
    }

    fn of<'b>(&'b self, case: &'b str, policy: &'b str) -> impl Iterator<Item = &'b Outcome> {
        let runs = self.outcomes.iter();
        runs.filter(move |run| run.case == case && run.policy == policy)
    }

    /// Files a second of the round of a column that ends with so many files.
    fn at(&self, case: &str, policy: &str, files: f64) -> Option<f64> {
        let rates = self.of(case, policy).filter_map(|run| {
            let rounds = small::rounds(run);
            let makers = run.jobs.iter().find(|job| job.makes_small)?;
            let each = makers.files_a_round / run.scale;
            let mut made = 0.0;
            rounds.iter().find_map(|(_, rate)| {
                made += each;
                ((made - files).abs() < each / 2.0).then_some(*rate)
            })
        });
        mean(rates)
    }

    fn files(&self, case: &str) -> String {
        let mut text = format!("{:<NAME$}", "Files/s at");
        for policy in self.columns {
            let _ = write!(text, "{policy:>VALUE$}");
        }
        let _ = writeln!(text, "{:>VALUE$}{:>VALUE$}", "pub. vanilla", "pub. patched");
        let mut line = |name: &str, own: Vec<Option<f64>>, published: [f64; 2]| {
            let _ = write!(text, "{name:<NAME$}");
            for value in own {
                let _ = write!(text, "{:>VALUE$}", written(value));
            }
            let [before, after] = published;
            let change = 100.0 * (after - before) / before;
            let _ = writeln!(text, "{before:>VALUE$.1}{after:>VALUE$.1} ({change:5.1}%)");
        };
        let own = |files: f64| {
            self.columns
                .iter()
                .map(|p| self.at(case, p, files))
                .collect()
        };
        for (files, before, after) in FILES {
            line(&format!("{files:.0}"), own(files), [before, after]);
        }
        let sums: [(&str, Sum); 4] = [
            ("mean of these", |all| mean(all.iter().copied())),
            ("last five", |all| mean(all.iter().rev().take(5).copied())),
            ("worst", |all| all.iter().copied().reduce(f64::min)),
            ("deviation", deviation),
        ];
        for (name, sum) in sums {
            let column = |policy: &String| {
                let rates = FILES
                    .iter()
                    .filter_map(|(files, ..)| self.at(case, policy, *files));
                let rates: Vec<f64> = rates.collect();
                sum(&rates)
            };
            let before: Vec<f64> = FILES.iter().map(|row| row.1).collect();
            let after: Vec<f64> = FILES.iter().map(|row| row.2).collect();
            let published = [&before, &after].map(|all| sum(all).unwrap_or(0.0));
            line(name, self.columns.iter().map(column).collect(), published);
        }
        for (name, metric, published) in [
            ("run average", "files_mean", [51_724.6, 57_634.2]),
            ("real (s)", "elapsed", [208.093, 191.543]),
            ("user (s)", "user", [57.852, 57.506]),
            ("sys (s)", "system-tasks", [868.193, 860.913]),
        ] {
            let own = self
                .columns
                .iter()
                .map(|policy| self.value(case, policy, metric));
            line(name, own.collect(), published);
        }
        text.push('\n');
        text
    }

    /// What memory is composed of, of each column.
    fn compositions(&self, case: &str) -> String {
        let mut text = String::new();
        for policy in self.columns {
            let Some(run) = self
                .of(case, policy)
                .find(|run| !run.vmstat.rows.is_empty())
            else {
                continue;
            };
            let Some(times) = times(run) else { continue };
            let _ = write!(text, "{:<NAME$}", format!("{policy} (kB)"));
            for head in ["first full", "half gone", "near the end"] {
                let _ = write!(text, "{head:>VALUE$}");
            }
            let published = policy == VANILLA;
            if published {
                let _ = write!(
                    text,
                    "{:>VALUE$}{:>VALUE$}{:>VALUE$}",
                    "pub. full", "pub. half", "pub. end"
                );
            }
            text.push('\n');
            for (name, items, theirs) in COMPOSITION {
                let _ = write!(text, "{name:<NAME$}");
                for time in times {
                    let pages = items
                        .iter()
                        .map(|item| small::at(&run.vmstat.of(item)?, time?));
                    let pages: Option<f64> = pages.sum();
                    let kib = pages.map(|pages| pages * KIB_PER_PAGE / run.scale);
                    let _ = write!(text, "{:>VALUE$}", whole(kib));
                }
                if published {
                    theirs.iter().for_each(|value| {
                        let _ = write!(text, "{value:>VALUE$.0}");
                    });
                }
                text.push('\n');
            }
            let _ = write!(text, "{:<NAME$}", "slab / (slab + file)");
            let share = small::slabs(run).zip(small::file_lists(run));
            let share = share.map(|(slabs, lists)| small::share(&slabs, &lists));
            for time in times {
                let value = share
                    .as_ref()
                    .zip(time)
                    .and_then(|(share, time)| small::at(share, time));
                let value = value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
                let _ = write!(text, "{value:>VALUE$}");
            }
            if published {
                SHARE.iter().for_each(|value| {
                    let _ = write!(text, "{value:>VALUE$.3}");
                });
            }
            text.push_str("\n\n");
        }
        text
    }

    fn ops(&self, case: &str) -> String {
        let mut text = format!("{:<NAME$}", "Ops");
        for policy in self.columns {
            let _ = write!(text, "{policy:>VALUE$}");
        }
        let _ = writeln!(
            text,
            "{:>VALUE$}{:>VALUE$}{:>VALUE$}{:>VALUE$}",
            "p3 / 5.0", "pub. vanilla", "pub. fixed", "pub. ratio"
        );
        for (name, metric, before, after) in OPS {
            let _ = write!(text, "{name:<NAME$}");
            for policy in self.columns {
                let _ = write!(text, "{:>VALUE$}", whole(self.value(case, policy, metric)));
            }
            let [one, other] = [VANILLA, PATCHED].map(|policy| self.value(case, policy, metric));
            let ratio = one.zip(other).filter(|(one, _)| *one > 0.0);
            let ratio =
                ratio.map_or_else(|| "-".into(), |(one, other)| format!("{:.2}", other / one));
            let theirs = after / before;
            let _ = writeln!(
                text,
                "{ratio:>VALUE$}{before:>VALUE$.0}{after:>VALUE$.0}{theirs:>VALUE$.2}"
            );
        }
        text.push('\n');
        text
    }

    /// Mean over the repetitions.
    fn value(&self, case: &str, policy: &str, metric: &str) -> Option<f64> {
        let metric = metrics::by_name(metric).expect("a metric of ours");
        mean(self.of(case, policy).filter_map(|run| metric.value(run)))
    }
}

/// When memory is first full, when half of the page cache has gone since then, and the end.
fn times(run: &Outcome) -> Option<[Option<f64>; 3]> {
    let (_, end) = small::last_third(run)?;
    let full = small::full_at(run);
    let half = small::fallen_to(run, 0.5)
        .map(|(_, at)| at)
        .filter(|at| *at < end);
    Some([full, half, Some(end)])
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

/// Of the sample.
fn deviation(values: &[f64]) -> Option<f64> {
    let centre = mean(values.iter().copied())?;
    let squares = values.iter().map(|value| (value - centre).powi(2));
    let count = experiment::stats::count(values.len());
    (count > 1.0).then(|| (squares.sum::<f64>() / (count - 1.0)).sqrt())
}

fn written(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}

fn whole(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::outcome::{Job, VmSeries};

    /// At half size: two rounds of 80 000 files, the second one in four seconds; file pages are
    /// half gone at 6 s.
    fn run(policy: &str) -> Outcome {
        let names = COMPOSITION
            .iter()
            .flat_map(|(_, items, _)| items.iter().copied());
        let names: Vec<_> = names
            .chain([
                "pgsteal_kswapd",
                "pgsteal_direct",
                "slab_freed",
                "pginodesteal",
                "kswapd_inodesteal",
            ])
            .collect();
        let row = |at: f64, file: f64, slab: f64, freed: f64| {
            let values = [
                100.0, 0.0, file, 1.0, 0.0, slab, slab, freed, 0.0, 0.0, 0.0, 0.0,
            ];
            (at, values.to_vec())
        };
        Outcome {
            case: "row".into(),
            policy: policy.into(),
            scale: 0.5,
            cpu_scale: 1.0,
            virtual_s: 8.0,
            jobs: vec![Job {
                makes_small: true,
                files_a_round: 80_000.0,
                moved_s: 8.0,
                samples: (1..=27).map(|round| (f64::from(round), 2_000.0)).collect(),
                ..Job::default()
            }],
            vmstat: VmSeries {
                names,
                rows: vec![
                    row(2.0, 50.0, 10.0, 0.0),
                    row(4.0, 100.0, 25.0, 5.0),
                    row(6.0, 50.0, 50.0, 9.0),
                    row(8.0, 10.0, 95.0, 9.0),
                ],
            },
            counters: vec![("kswapd_inodesteal", 3.0), ("pginodesteal", 0.0)],
            ..Outcome::default()
        }
    }

    fn tables() -> String {
        let outcomes = [run(VANILLA), run(PATCHED)];
        let tables = Small {
            outcomes: &outcomes,
            rows: &["row".to_owned()],
            columns: &[VANILLA.to_owned(), PATCHED.to_owned()],
        };
        assert!(tables.applies());
        tables.render()
    }

    #[track_caller]
    fn words(text: &str, name: &str) -> String {
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no `{name}` in {text}"));
        line[name.len()..]
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn published_rates_and_what_the_page_says_of_them_come_out() {
        let text = tables();
        assert_eq!(
            words(&text, "4320000"),
            "80000.0 80000.0 51349.6 51341.9 ( -0.0%)"
        );
        // Not reached in 27 rounds.
        assert_eq!(words(&text, "4480000"), "- - 48492.9 51157.5 ( 5.5%)");
        assert_eq!(
            words(&text, "mean of these"),
            "80000.0 80000.0 45340.0 52731.6 ( 16.3%)"
        );
        assert_eq!(
            words(&text, "last five"),
            "80000.0 80000.0 41769.0 53125.7 ( 27.2%)"
        );
        assert!(
            words(&text, "worst").ends_with("37309.4 51157.5 ( 37.1%)"),
            "{text}"
        );
        assert!(
            words(&text, "deviation").starts_with("- - 3678.8 1329.9"),
            "{text}"
        );
    }

    #[test]
    fn composition_is_at_full_size_at_its_three_times() {
        let text = tables();
        assert_eq!(
            words(&text, "Inactive(file)"),
            "800 400 80 7330892 3021796 483120"
        );
        assert_eq!(
            words(&text, "slab / (slab + file)"),
            "0.333 0.667 0.950 0.470 0.741 0.954"
        );
        assert_eq!(
            words(&text, "linux-5.0+p3 (kB)"),
            "first full half gone near the end"
        );
    }

    #[test]
    fn the_merged_fix_is_shown_by_its_ratios() {
        let text = tables();
        assert!(
            words(&text, "Kswapd inode steals").ends_with("1.00 570000 5180000 9.09"),
            "{text}"
        );
    }
}
