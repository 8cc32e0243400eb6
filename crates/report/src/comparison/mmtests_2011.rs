//! The tables of paper p2 in mmtests' form of 2011, published columns behind ours.
//!
//! ```text
//!                     linux-3.0    linux-3.0    published    published
//!                                   zlcfirst      vanilla     zlcfirst
//! dd source files   527 ( 0.00%) 296 (78.04%) ...
//! MMTests Statistics: duration
//! Total Elapsed Time (seconds)        624.56       375.02
//! MMTests Statistics: vmstat
//! Kswapd efficiency                     100%          89%
//! Direct velocity                  27991.453   184832.737
//! ```
//!
//! A change in per cent is 100 x (new - base) / *new*, positive when better: so did the tool of
//! that year, which makes +35 % a +26 and -44 % a +78. Seconds of a phase are whole, efficiencies
//! are whole, velocities have three digits. A row that we do not have is printed as `-` beside what
//! was published. Values are means over the repetitions, each of which is one test. Rows of ours
//! follow, of which the paper has none.
//!
//! Source: experiments A3, 0.8; paper p2; MMT@a5562484.

use std::fmt::Write as _;

use crate::table::head;
use experiment::metrics;
use experiment::outcome::Outcome;
use experiment::scenario::Scenario;
use experiment::stats::{Better, Samples};

/// Width of a value, of a change behind it, and of a name.
const VALUE: usize = 14;
const CHANGE: usize = 11;
const NAME: usize = 40;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// So many digits behind the point.
    Digits(usize),
    /// Whole per cent, rounded down.
    Percent,
}

use Form::{Digits, Percent};

/// (name of the row, metric, form)
type Row = (&'static str, &'static str, Form);

/// Rows with their change.
const BLOCKS: [(&str, &[Row]); 2] = [
    (
        "FS-Mark",
        &[
            ("Files/s  min", "files_min", Digits(2)),
            ("Files/s  mean", "files_mean", Digits(2)),
            ("Files/s  stddev", "files_stddev", Digits(2)),
            ("Files/s  max", "files_max", Digits(2)),
            ("Overhead min", "overhead_min", Digits(2)),
            ("Overhead mean", "overhead_mean", Digits(2)),
            ("Overhead stddev", "overhead_stddev", Digits(2)),
            ("Overhead max", "overhead_max", Digits(2)),
        ],
    ),
    (
        "LARGE DD",
        &[
            ("download tar", "download_s", Digits(0)),
            ("dd source files", "copy_s", Digits(0)),
            ("delete source", "delete_s", Digits(0)),
        ],
    ),
];
const DURATION: [Row; 2] = [
    (
        "User/Sys Time Running Test (seconds)",
        "cpu_tasks",
        Digits(2),
    ),
    ("Total Elapsed Time (seconds)", "elapsed", Digits(2)),
];
const VMSTAT: [Row; 17] = [
    ("Page Ins", "page_ins", Digits(0)),
    ("Page Outs", "page_outs", Digits(0)),
    ("Swap Ins", "swap_reads", Digits(0)),
    ("Swap Outs", "anon_writes", Digits(0)),
    ("Direct pages scanned", "pgscan_direct", Digits(0)),
    ("Kswapd pages scanned", "pgscan_kswapd", Digits(0)),
    ("Kswapd pages reclaimed", "pgsteal_kswapd", Digits(0)),
    ("Direct pages reclaimed", "pgsteal_direct", Digits(0)),
    ("Kswapd efficiency", "kswapd_efficiency", Percent),
    ("Kswapd velocity", "kswapd_velocity", Digits(3)),
    ("Direct efficiency", "direct_efficiency", Percent),
    ("Direct velocity", "direct_velocity", Digits(3)),
    ("Percentage direct scans", "direct_percent", Percent),
    ("Page writes by reclaim", "reclaim_writes", Digits(0)),
    ("Slabs scanned", "slabs_scanned", Digits(0)),
    ("Direct inode steals", "direct_inode_steals", Digits(0)),
    ("Kswapd inode steals", "kswapd_inode_steals", Digits(0)),
];
const OURS: [Row; 16] = [
    (
        "Zone reclaims that failed",
        "zone_reclaim_failed",
        Digits(0),
    ),
    (
        "Zone reclaims that succeeded",
        "zone_reclaim_success",
        Digits(0),
    ),
    ("NUMA hits", "numa_hit", Digits(0)),
    ("NUMA misses", "numa_miss", Digits(0)),
    ("NUMA foreign", "numa_foreign", Digits(0)),
    ("NUMA local", "numa_local", Digits(0)),
    ("NUMA other", "numa_other", Digits(0)),
    ("Zones skipped by the cache", "zlc_skipped", Digits(0)),
    ("Of these, hidden from view", "zlc_hidden", Digits(0)),
    ("Cached at end / memory", "cached_share", Digits(3)),
    ("Pages scanned / freed", "scanned_per_freed", Digits(2)),
    ("System time of all tasks (seconds)", "system", Digits(2)),
    ("Device busy", "busy_share", Digits(3)),
    ("Mean write (KiB)", "write_kib", Digits(1)),
    ("Mean read (KiB)", "read_kib", Digits(1)),
    ("Seeks", "seeks", Digits(0)),
];
const _: () = assert!(VALUE + CHANGE < NAME, "names are not cut before values are");

/// Everything that the tables are made from.
pub(super) struct Mmtests2011<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) outcomes: &'a [Outcome],
    pub(super) rows: &'a [String],
    pub(super) columns: &'a [String],
}

impl Mmtests2011<'_> {
    /// Whether there is a job of that paper.
    pub(super) fn applies(&self) -> bool {
        let jobs = self.outcomes.iter().flat_map(|outcome| &outcome.jobs);
        jobs.into_iter().any(|job| job.fills_memory)
    }

    /// All tables as text.
    pub(super) fn render(&self) -> String {
        self.rows.iter().map(|row| self.row(row)).collect()
    }

    fn row(&self, case: &str) -> String {
        let mut text = String::new();
        if self.rows.len() > 1 {
            let _ = writeln!(text, "{case}");
        }
        let published = self.published_columns(case);
        for (title, rows) in BLOCKS {
            let lines: String = rows
                .iter()
                .filter_map(|row| self.changes(case, row, &published))
                .collect();
            if !lines.is_empty() {
                let _ = writeln!(text, "{title}");
                text.push_str(&self.heads(&published, VALUE + CHANGE));
                text.push_str(&lines);
            }
        }
        for (title, rows) in [
            ("MMTests Statistics: duration", &DURATION[..]),
            ("MMTests Statistics: vmstat", &VMSTAT[..]),
            ("Beside the paper", &OURS[..]),
        ] {
            let _ = writeln!(text, "{title}");
            text.push_str(&self.heads(&published, VALUE + 1));
            for row in rows {
                text.push_str(&self.plain(case, row, &published));
            }
        }
        text.push('\n');
        text
    }

    /// The two lines over the columns.
    fn heads(&self, published: &[&String], width: usize) -> String {
        let own = self.columns.iter().map(|policy| head(policy));
        let theirs = published
            .iter()
            .map(|policy| ("published".to_owned(), head(policy).1));
        let all: Vec<_> = own.chain(theirs).collect();
        let mut text = String::new();
        for second in [false, true] {
            let mut line = " ".repeat(NAME);
            for parts in &all {
                let part = if second { &parts.1 } else { &parts.0 };
                let _ = write!(line, "{part:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// A row with its changes; nothing where there is neither a value of ours nor a published one.
    fn changes(&self, case: &str, row: &Row, published: &[&String]) -> Option<String> {
        let (name, metric, form) = *row;
        let own: Vec<_> = self
            .columns
            .iter()
            .map(|p| self.value(case, metric, p))
            .collect();
        let theirs = published
            .iter()
            .map(|p| self.scenario.published_value(metric, case, p));
        let theirs: Vec<_> = theirs.collect();
        if own.iter().chain(&theirs).all(Option::is_none) {
            return None;
        }
        let better = metrics::by_name(metric).expect("a metric of ours").better;
        let mut line = format!("{name:<NAME$}");
        for values in [own, theirs] {
            let base = values.first().copied().flatten();
            for value in values {
                let change = base
                    .zip(value)
                    .map(|(base, new)| percent(base, new, better));
                let change = change.map_or(String::new(), |change| format!("({change:5.2}%)"));
                let _ = write!(line, "{:>VALUE$}{change:>CHANGE$}", written(value, form));
            }
        }
        Some(format!("{}\n", line.trim_end()))
    }

    fn plain(&self, case: &str, row: &Row, published: &[&String]) -> String {
        let (name, metric, form) = *row;
        let own = self.columns.iter().map(|p| self.value(case, metric, p));
        let theirs = published
            .iter()
            .map(|p| self.scenario.published_value(metric, case, p));
        let mut line = format!("{name:<NAME$}");
        for value in own.chain(theirs) {
            let _ = write!(line, " {:>VALUE$}", written(value, form));
        }
        format!("{line}\n")
    }

    /// Mean over the repetitions.
    fn value(&self, case: &str, metric: &str, policy: &str) -> Option<f64> {
        let metric = metrics::by_name(metric).expect("a metric of ours");
        let runs = self.outcomes.iter();
        let runs = runs.filter(|run| run.case == case && run.policy == policy);
        let values = Samples::new(runs.filter_map(|run| metric.value(run)), metric.better);
        (!values.is_empty()).then(|| values.amean())
    }

    fn published_columns(&self, case: &str) -> Vec<&String> {
        let has = |column: &&String| {
            let mut entries = self.scenario.published.iter();
            entries.any(|entry| entry.policy.get_ref() == *column && entry.case.get_ref() == case)
        };
        self.columns.iter().filter(has).collect()
    }
}

/// The change as the tool of 2011 has it: of the new value, positive when better.
fn percent(base: f64, new: f64, better: Better) -> f64 {
    // Nothing is not printed as minus nothing.
    if (new - base).abs() <= f64::EPSILON * base.abs() || new == 0.0 {
        return 0.0;
    }
    let change = 100.0 * (new - base) / new;
    match better {
        Better::Lower => -change,
        Better::Higher => change,
    }
}

fn written(value: Option<f64>, form: Form) -> String {
    match (value, form) {
        (None, _) => "-".to_owned(),
        (Some(value), Digits(digits)) => format!("{value:.digits$}"),
        (Some(value), Percent) => format!("{:.0}%", value.floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::experiments;
    use experiment::outcome::Job;

    const COLUMNS: [&str; 3] = ["linux-3.0", "linux-3.0+zlcfirst", "linux-3.0+zlc"];

    /// The tables of an experiment with a run of `jobs` in its first column alone.
    fn tables(name: &str, jobs: Vec<Job>) -> String {
        let (scenario, _) = Scenario::load(experiments::by_name(name).unwrap(), &[]).unwrap();
        let run = Outcome {
            case: name.into(),
            policy: COLUMNS[0].into(),
            scale: 0.5,
            cpu_scale: 1.0,
            virtual_s: 100.0,
            jobs,
            counters: vec![
                ("pgscan_direct", 3_000.0),
                ("pgsteal_direct", 1_999.0),
                ("pgscan_kswapd", 0.0),
                ("pgsteal_kswapd", 0.0),
                ("pgpgin", 10.0),
            ],
            ..Outcome::default()
        };
        let tables = Mmtests2011 {
            scenario: &scenario,
            outcomes: &[run],
            rows: &[name.to_owned()],
            columns: &COLUMNS.map(str::to_owned),
        };
        assert!(tables.applies());
        tables.render()
    }

    /// The words of the row of that name, without it.
    #[track_caller]
    fn words(text: &str, name: &str) -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no `{name}` in {text}"));
        let rest = line[name.len()..].split_whitespace();
        rest.map(str::to_owned).collect()
    }

    #[test]
    fn the_published_columns_are_as_the_paper_prints_them() {
        let large = Job {
            fills_memory: true,
            parts: vec![("download", 58.6), ("copy", 300.4), ("delete", 0.2)],
            ..Job::default()
        };
        let text = tables("zone-dd", vec![large]);
        let row = |name| words(&text, name).join(" ");
        // Ours of one column, then theirs of three.
        assert_eq!(
            row("dd source files"),
            "300 ( 0.00%) - - 527 ( 0.00%) 296 (78.04%) 320 (64.69%)"
        );
        assert_eq!(
            row("download tar"),
            "59 ( 0.00%) - - 59 ( 0.00%) 59 ( 0.00%) 55 ( 7.27%)"
        );
        assert_eq!(
            row("delete source"),
            "0 ( 0.00%) - - 36 ( 0.00%) 19 (89.47%) 20 (80.00%)"
        );
        assert_eq!(
            row("Total Elapsed Time (seconds)"),
            "100.00 - - 624.56 375.02 398.06"
        );
        assert_eq!(
            row("Direct pages scanned"),
            "6000 - - 17482342 69315973 82864918"
        );
        // Whole per cent, rounded down, and a hundred of nothing.
        assert_eq!(row("Direct efficiency"), "66% - - 33% 3% 3%");
        assert_eq!(row("Kswapd efficiency"), "100% - - 100% 89% 90%");
        assert_eq!(
            row("Direct velocity"),
            "60.000 - - 27991.453 184832.737 208171.929"
        );
        assert_eq!(row("Page Ins"), "20 - - 3594216 439368 407032");
        // A figure that we do not have stands as a dash beside the published one.
        assert_eq!(row("Slabs scanned"), "- - - 17280 29952 35328");
        assert_eq!(row("Pages scanned / freed"), "1.50 - - - - -");
        assert!(!text.contains("FS-Mark"), "{text}");
    }

    #[test]
    fn files_a_second_with_the_changes_of_the_paper() {
        let mark = Job {
            fills_memory: true,
            files_a_round: 100.0,
            samples: vec![(1.0, 1_000.0), (3.0, 2_000.0)],
            ..Job::default()
        };
        let text = tables("zone-fsmark", vec![mark]);
        let row = |name| words(&text, name).join(" ");
        assert_eq!(
            row("Files/s  mean"),
            "150.00 ( 0.00%) - - 100.11 ( 0.00%) 135.17 (25.94%) 146.93 (31.87%)"
        );
        assert_eq!(
            row("Files/s  min"),
            "100.00 ( 0.00%) - - 54.90 ( 0.00%) 49.80 (-10.24%) 49.10 (-11.81%)"
        );
        assert_eq!(
            row("Files/s  stddev"),
            "50.00 ( 0.00%) - - 57.51 ( 0.00%) 138.97 (58.62%) 158.69 (63.76%)"
        );
        assert_eq!(
            row("Overhead mean"),
            "- - - 1485356.51 ( 0.00%) 1035797.83 (43.40%) 1594680.26 (-6.86%)"
        );
        assert!(!text.contains("LARGE DD"), "{text}");
        let heads: Vec<_> = text.lines().skip(1).take(2).collect();
        assert!(heads[0].ends_with("published") && heads[1].ends_with("3.0+zlc"));
    }
}
