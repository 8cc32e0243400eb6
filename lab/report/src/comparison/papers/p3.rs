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
//! Compositions are of the first repetition. A change is of the second column against the first,
//! positive when better.
//!
//! Source: experiments A4; paper p3; MAIL 36924287114.

use serde::Deserialize;

use super::{ROWS, Report, digits, line};
use experiment::metrics::runs::mean;
use experiment::metrics::small;
use experiment::outcome::Outcome;
use experiment::stats::{Better, Samples};

/// The columns that the published values are of.
const VANILLA: &str = "linux-5.0";
const PATCHED: &str = "linux-5.0+p3";

const NAME: usize = 24;
const VALUE: usize = 14;
const KIB_PER_PAGE: f64 = 4.0;

/// Rows of each table with what was published.
#[derive(Deserialize)]
pub(super) struct Rows {
    files: Vec<(f64, f64, f64)>,
    test: Vec<(String, String, f64, f64)>,
    composition: Vec<(String, String, f64, f64, f64)>,
    share: [f64; 3],
    ops: Vec<(String, String, f64, f64)>,
}

/// Of the rates of a column.
type Sum = fn(&[f64]) -> Option<f64>;

impl Report<'_> {
    pub(super) fn p3(&self) -> String {
        let rows = self.rows.iter();
        let row = |case| {
            self.title(case) + &self.files(case) + &self.compositions(case) + &self.ops(case)
        };
        rows.map(|case| row(case.as_str())).collect()
    }

    /// The names of our columns, and of others.
    fn p3_head(&self, title: &str, others: &[&str]) -> String {
        let names = self
            .columns
            .iter()
            .map(String::as_str)
            .chain(others.iter().copied());
        cells_of(title, names.map(str::to_owned))
    }

    /// Files a second of the round of a column that ends with `files` files.
    fn at(&self, case: &str, policy: &str, files: f64) -> Option<f64> {
        let rates = self.runs(case, policy).filter_map(|run| {
            let rounds = small::rounds(run);
            let makers = run.jobs.iter().find(|job| job.makes_small)?;
            let each = makers.files_a_round / run.scale;
            let mut made = 0.0;
            rounds.iter().find_map(|(_, rate)| {
                made += each;
                ((made - files).abs() < each / 2.0).then_some(*rate)
            })
        });
        mean(&rates.collect::<Vec<_>>())
    }

    fn files(&self, case: &str) -> String {
        let rows = &ROWS.p3;
        let mut text = self.p3_head("Files/s at", &["pub. vanilla", "pub. patched"]);
        let mut add = |name: &str, own: Vec<Option<f64>>, before: f64, after: f64| {
            let change = 100.0 * (after - before) / before;
            let cells = own.into_iter().chain([Some(before), Some(after)]);
            let cells = cells.map(|value| (digits(value, 1), VALUE));
            text += &line(name, NAME, cells.chain([(format!(" ({change:5.1}%)"), 0)]));
        };
        let own = |files: f64| {
            let columns = self.columns.iter();
            columns.map(|policy| self.at(case, policy, files)).collect()
        };
        for (files, before, after) in &rows.files {
            add(&format!("{files:.0}"), own(*files), *before, *after);
        }
        let sums: [(&str, Sum); 4] = [
            ("mean of these", mean),
            ("last five", |all| mean(&all[all.len().saturating_sub(5)..])),
            ("worst", |all| all.iter().copied().reduce(f64::min)),
            ("deviation", deviation),
        ];
        let before: Vec<f64> = rows.files.iter().map(|row| row.1).collect();
        let after: Vec<f64> = rows.files.iter().map(|row| row.2).collect();
        for (name, sum) in sums {
            let column = |policy: &String| {
                let rates = rows.files.iter();
                let rates = rates.filter_map(|(files, ..)| self.at(case, policy, *files));
                sum(&rates.collect::<Vec<_>>())
            };
            let published = |all: &[f64]| sum(all).unwrap_or(0.0);
            let own = self.columns.iter().map(column).collect();
            add(name, own, published(&before), published(&after));
        }
        for (name, metric, before, after) in &rows.test {
            add(name, self.means(metric, case), *before, *after);
        }
        text + "\n"
    }

    /// The composition of memory, of each column.
    fn compositions(&self, case: &str) -> String {
        let composition = |policy: &String| {
            let run = self
                .runs(case, policy)
                .find(|run| !run.vmstat.rows.is_empty())?;
            let times = times(run)?;
            let published = policy == VANILLA;
            let add = |name: &str, own: [String; 3], theirs: [String; 3]| {
                let theirs = theirs.into_iter().filter(|_| published);
                cells_of(name, own.into_iter().chain(theirs))
            };
            let mut text = add(
                &format!("{policy} (kB)"),
                ["first full", "half gone", "near the end"].map(str::to_owned),
                ["pub. full", "pub. half", "pub. end"].map(str::to_owned),
            );
            for (name, item, full, half, end) in &ROWS.p3.composition {
                let own = times.map(|time| {
                    let pages = run.vmstat.of(item).and_then(|item| small::at(&item, time?));
                    digits(pages.map(|pages| pages * KIB_PER_PAGE / run.scale), 0)
                });
                let theirs = [full, half, end].map(|value| digits(Some(*value), 0));
                text += &add(name, own, theirs);
            }
            let share = small::slabs(run).zip(small::file_lists(run));
            let share = share.map(|(slabs, lists)| small::share(&slabs, &lists));
            let own = times.map(|time| {
                let value = share.as_ref().and_then(|share| small::at(share, time?));
                digits(value, 3)
            });
            let theirs = ROWS.p3.share.map(|value| digits(Some(value), 3));
            Some(text + &add("slab / (slab + file)", own, theirs) + "\n")
        };
        self.columns.iter().filter_map(composition).collect()
    }

    fn ops(&self, case: &str) -> String {
        let others = ["p3 / 5.0", "pub. vanilla", "pub. fixed", "pub. ratio"];
        let mut text = self.p3_head("Ops", &others);
        for (name, metric, before, after) in &ROWS.p3.ops {
            let [one, other] = [VANILLA, PATCHED].map(|policy| self.mean(metric, case, policy));
            let ratio = one.zip(other).filter(|(one, _)| *one > 0.0);
            let theirs = [
                digits(ratio.map(|(one, other)| other / one), 2),
                digits(Some(*before), 0),
                digits(Some(*after), 0),
                digits(Some(after / before), 2),
            ];
            let own = self
                .means(metric, case)
                .into_iter()
                .map(|value| digits(value, 0));
            text += &cells_of(name, own.chain(theirs));
        }
        text + "\n"
    }
}

fn cells_of(name: &str, cells: impl Iterator<Item = String>) -> String {
    line(name, NAME, cells.map(|cell| (cell, VALUE)))
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

/// Of the sample.
fn deviation(values: &[f64]) -> Option<f64> {
    let deviation = Samples::new(values.iter().copied(), Better::Lower).stddev();
    (!deviation.is_nan()).then_some(deviation)
}
