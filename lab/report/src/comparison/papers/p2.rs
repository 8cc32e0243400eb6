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
//! was published. Rows of ours follow, of which the paper has none.
//!
//! Source: experiments A3, 0.8; paper p2; MMT@a5562484.

use super::{List, ROWS, Report, digits, line};
use crate::table::{head, heads};
use experiment::metrics;
use experiment::stats::Better;

/// Width of a value, of a change behind it, and of a name.
const VALUE: usize = 14;
const CHANGE: usize = 11;
const NAME: usize = 40;
const _: () = assert!(VALUE + CHANGE < NAME, "names are not cut before values are");

impl Report<'_> {
    pub(super) fn p2(&self) -> String {
        self.rows.iter().map(|row| self.p2_row(row)).collect()
    }

    fn p2_row(&self, case: &str) -> String {
        let published = self.published_columns(|entry| entry.row.get_ref() == case);
        let theirs = published.iter().map(|policy| head(policy).1);
        let all: Vec<_> = self
            .columns
            .iter()
            .map(|policy| head(policy))
            .chain(theirs.map(|second| ("published".to_owned(), second)))
            .collect();
        let mut text = self.title(case);
        for list in &ROWS.p2 {
            let lines = self.p2_lines(list, case, &published);
            if !lines.is_empty() {
                let width = VALUE + if list.changes { CHANGE } else { 1 };
                text += &format!("{}\n{}{lines}", list.title, heads(NAME, width, &all));
            }
        }
        text + "\n"
    }

    /// With changes, a row of which there is neither a value of ours nor a published one is left
    /// out.
    fn p2_lines(
        &self,
        list: &List<(String, String, usize)>,
        case: &str,
        published: &[&String],
    ) -> String {
        let row = |(name, metric, places): &(String, String, usize)| {
            let metric = metrics::by_name(metric).expect("a metric of ours");
            let written = |value: Option<f64>| match value.filter(|_| metric.unit == "%") {
                Some(percent) => format!("{:.0}%", percent.floor()),
                None => digits(value, *places),
            };
            let own = self.means(metric.name, case);
            let theirs = self.published(metric.name, case, published);
            if list.changes && own.iter().chain(&theirs).all(Option::is_none) {
                return String::new();
            }
            let cells = [own, theirs].into_iter().flat_map(|values| {
                let base = values.first().copied().flatten();
                values.into_iter().map(move |value| {
                    let change = base.zip(value).filter(|_| list.changes);
                    let change = change.map(|(base, new)| percent(base, new, metric.better));
                    (value, change)
                })
            });
            let cells = cells.flat_map(|(value, change)| {
                let change = change.map_or_else(String::new, |change| format!("({change:5.2}%)"));
                let (own, behind) = if list.changes {
                    (VALUE, CHANGE)
                } else {
                    (VALUE + 1, 0)
                };
                [(written(value), own), (change, behind)]
            });
            line(name, NAME, cells)
        };
        list.rows.iter().map(row).collect()
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
