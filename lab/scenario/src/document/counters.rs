//! The counters of a paper's table as claims: a row of the table is one claim about a change.
//!
//! The figure after the change is to come out with it, and not before it. Nothing of such a claim
//! is typed:
//!
//! ```text
//!   published   before b ............ after a
//!   band                  sqrt(a b) [====a========] 2 a       (b < a; the other way round if b > a)
//!   knock-out   the column before the change
//! ```
//!
//! The band is that of grade B, cut where the other published figure is as near. A row makes no
//! claim whose two figures are within a quarter of each other, or whose second is zero; nor one of
//! which other rows or claims are about the same quantity: rates, shares and sums of other rows are
//! left out, and what `but` names.

use toml::Spanned;

use super::{CompareKind, CountersEntry, ExpectEntry, KnockOutEntry, Scenario};
use crate::keys::absent;

/// Grade B is within this factor.
const FACTOR: f64 = 2.0;
/// Two figures as near as this are one.
const ALIKE: f64 = 1.25;
/// Rows that follow from other rows of the same tables, and deviations.
const DERIVED: &[&str] = &[
    "alloc_elapsed_sd",
    "alloc_system_sd",
    "alloc_user_s",
    "anon_and_file_writes",
    "compact_failures",
    "direct_efficiency",
    "direct_percent",
    "direct_velocity",
    "kswapd_efficiency",
    "kswapd_percent",
    "kswapd_velocity",
    "reclaim_writes",
    "thp_fault_fallback",
];

/// The claims of all tables.
pub(super) fn claims(scenario: &Scenario) -> Vec<ExpectEntry> {
    let all = scenario.counters.iter();
    all.flat_map(|entry| of(scenario, entry)).collect()
}

fn of(scenario: &Scenario, entry: &CountersEntry) -> Vec<ExpectEntry> {
    let name = |name: &Spanned<String>| name.get_ref().clone();
    let (row, column, before) = (name(&entry.row), name(&entry.column), name(&entry.before));
    let is_left_out = |metric: &String| {
        DERIVED.contains(&metric.as_str()) || entry.but.iter().any(|but| but.get_ref() == metric)
    };
    let published = scenario.published.iter().filter(|one| {
        let is_here = (one.row.get_ref(), one.column.get_ref()) == (&row, &column);
        is_here && !is_left_out(one.metric.get_ref())
    });
    let claim = |metric: &Spanned<String>, after: f64| {
        let was = scenario.published_value(metric.get_ref(), &row, &before)?;
        let (min, max) = band(was, after)?;
        let metric_name = metric.get_ref();
        let missed = entry.missed.iter().any(|one| one.get_ref() == metric_name);
        Some(ExpectEntry {
            id: Spanned::new(entry.column.span(), format!("{metric_name}-{row}-{column}")),
            source: format!("the paper's table of {row}"),
            claim: Some(absent(format!(
                "`{metric_name}` goes from {was} to {after}."
            ))),
            published: None,
            deviation: None,
            knock_out: Some(KnockOutEntry {
                row: None,
                column: Some(entry.before.clone()),
                vs: None,
                vs_row: None,
            }),
            replicas_least: None,
            metric: metric.clone(),
            rows: vec![entry.row.clone()],
            column: entry.column.clone(),
            of: None,
            vs: None,
            vs_row: None,
            op: absent(CompareKind::Value),
            min: Some(absent(min)),
            max: Some(absent(max)),
            held_in: None,
            missed: missed.then(|| entry.why.clone()).flatten(),
        })
    };
    published
        .filter_map(|one| claim(&one.metric, one.value))
        .collect()
}

/// The band of a figure that was `before`, if the two can be told apart.
fn band(before: f64, after: f64) -> Option<(f64, f64)> {
    let is_alike = after <= before * ALIKE && before <= after * ALIKE;
    if after <= 0.0 || before < 0.0 || is_alike {
        return None;
    }
    let between = (before * after).sqrt();
    let (low, high) = (after / FACTOR, after * FACTOR);
    Some(if before < after {
        (low.max(between), high)
    } else {
        (low, high.min(between))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    #[test]
    fn a_band_is_a_factor_of_two_that_ends_between_the_two_figures() {
        assert_eq!(band(1.0, 100.0), Some((50.0, 200.0)));
        assert_eq!(band(64.0, 100.0), Some((80.0, 200.0)));
        assert_eq!(band(225.0, 100.0), Some((50.0, 150.0)));
        assert_eq!(band(0.0, 100.0), Some((50.0, 200.0)));
        for (before, after) in [(100.0, 0.0), (100.0, 120.0), (120.0, 100.0)] {
            assert_eq!(band(before, after), None, "{before} {after}");
        }
    }

    #[test]
    fn no_two_claims_are_about_one_quantity() {
        for (name, _) in experiments::EXPERIMENTS {
            let source = experiments::by_name(name).unwrap();
            let (scenario, _) = Scenario::load(source, &[]).unwrap();
            let all = claims(&scenario);
            for claim in &all {
                let is_same = |other: &&ExpectEntry| {
                    let of = |one: &ExpectEntry| {
                        let rows: Vec<String> =
                            one.rows.iter().map(|row| row.get_ref().clone()).collect();
                        (
                            one.metric.get_ref().clone(),
                            one.column.get_ref().clone(),
                            rows,
                        )
                    };
                    let whole = of(claim).2 == of(other).2 || other.rows.is_empty();
                    let published = other.is_published();
                    published && whole && of(claim).0 == of(other).0 && of(claim).1 == of(other).1
                };
                let others = scenario.expects.iter().filter(is_same).count();
                assert_eq!(others, 1, "{name} {}", claim.id.get_ref());
            }
        }
    }
}
