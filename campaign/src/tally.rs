//! The account of a campaign: sums and maxima by name, and the table of them.

use core::fmt::Write as _;
use std::collections::BTreeMap;

use policy::units::Nanos;

/// Sums and maxima. A name is `group/what`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    sums: BTreeMap<String, u64>,
    /// In nanoseconds.
    longest: BTreeMap<String, u64>,
    /// Per mille of what was allowed.
    most: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds to a sum.
    pub fn add(&mut self, group: &str, what: &str, by: u64) {
        if by > 0 {
            *self.sums.entry(format!("{group}/{what}")).or_default() += by;
        }
    }

    /// Keeps the longest time.
    pub fn time(&mut self, group: &str, what: &str, time: Nanos) {
        let slot = self.longest.entry(format!("{group}/{what}")).or_default();
        *slot = (*slot).max(time.0);
    }

    /// Keeps the largest share of what was allowed, in thousandths.
    pub fn share(&mut self, group: &str, what: &str, permille: u64) {
        let slot = self.most.entry(format!("{group}/{what}")).or_default();
        *slot = (*slot).max(permille);
    }

    /// Takes in another run's.
    pub fn merge(&mut self, other: &Self) {
        for (name, value) in &other.sums {
            *self.sums.entry(name.clone()).or_default() += value;
        }
        for (mine, theirs) in [
            (&mut self.longest, &other.longest),
            (&mut self.most, &other.most),
        ] {
            for (name, value) in theirs {
                let slot = mine.entry(name.clone()).or_default();
                *slot = (*slot).max(*value);
            }
        }
    }

    /// A sum.
    #[must_use]
    pub fn sum(&self, group: &str, what: &str) -> u64 {
        let name = format!("{group}/{what}");
        self.sums.get(&name).copied().unwrap_or(0)
    }

    /// All sums of a group together.
    #[must_use]
    pub fn sum_of(&self, group: &str) -> u64 {
        let of_group = |name: &str| name.split_once('/').is_some_and(|(own, _)| own == group);
        let sums = self.sums.iter().filter(|(name, _)| of_group(name));
        sums.map(|(_, value)| value).sum()
    }

    /// The table: a line per name, groups apart.
    #[must_use]
    pub fn table(&self) -> String {
        let sums = self
            .sums
            .iter()
            .map(|(name, value)| (name, grouped(*value)));
        let longest = self
            .longest
            .iter()
            .map(|(name, value)| (name, seconds(*value)));
        let percent = |value: u64| format!("{}.{} %", value / 10, value % 10);
        let most = self
            .most
            .iter()
            .map(|(name, value)| (name, percent(*value)));
        let mut lines: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
        for (name, text) in sums.chain(longest).chain(most) {
            let (group, what) = name.split_once('/').unwrap_or(("", name));
            lines.entry(group).or_default().push((what, text));
        }
        let mut table = String::new();
        for (group, rows) in lines {
            let _ = writeln!(table, "{group}");
            for (what, text) in rows {
                let _ = writeln!(table, "  {what:<44} {text:>18}");
            }
        }
        table
    }
}

/// 1234567 as 1,234,567.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn seconds(nanos: u64) -> String {
    if nanos >= 10_000_000_000 {
        format!("{} s", grouped(nanos / 1_000_000_000))
    } else {
        format!(
            "{}.{:03} ms",
            grouped(nanos / 1_000_000),
            nanos / 1000 % 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_add_up_and_print() {
        let mut tally = Tally::default();
        tally.add("fault", "torn", 1200);
        tally.add("fault", "hung", 0);
        tally.time("longest pause", "rate-based", Nanos::millis(200));
        tally.share("of what is allowed", "write", 421);
        let mut all = Tally::default();
        all.merge(&tally);
        all.merge(&tally);
        assert_eq!(all.sum("fault", "torn"), 2400);
        assert_eq!(all.sum_of("fault"), 2400);
        let table = all.table();
        for line in ["2,400", "200.000 ms", "42.1 %", "longest pause\n"] {
            assert!(table.contains(line), "{line} in\n{table}");
        }
        assert!(!table.contains("hung"));
    }
}
