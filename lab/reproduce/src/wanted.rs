//! The columns that a paper compares, and the runs that this takes.

use std::collections::BTreeSet;

use experiment::expect;
use experiment::pool;
use experiment::scenario::{ExpectEntry, Scenario};
use toml::Spanned;

/// The name of our own column.
pub(super) const OURS: &str = "tidegate";

/// The column of today's Linux, which a cache is chosen against.
pub(super) const TODAY: &str = "linux-6.12";

/// The columns before and after the paper's change: those that `[reproduce]` names; else the first
/// that a claim names, and the column that most claims hold against it.
pub(super) fn sides(scenario: &Scenario) -> Option<(&str, &str)> {
    if let [before, after] = &scenario.reproduce.sides[..] {
        return Some((before.get_ref(), after.get_ref()));
    }
    let is_named = |name: &str| {
        scenario.claims().any(|expect| {
            let vs = expect.vs.as_ref().is_some_and(|vs| vs.get_ref() == name);
            vs || expect.column.get_ref() == name
        })
    };
    let mut names = scenario
        .columns
        .iter()
        .map(|policy| policy.name.get_ref().as_str());
    let before = names.find(|name| is_named(name))?;
    let treated = || {
        let claims = scenario.claims();
        claims.filter(|expect| ![before, OURS].contains(&expect.column.get_ref().as_str()))
    };
    let times = |name: &str| {
        let own = || treated().filter(|expect| expect.column.get_ref() == name);
        let vs =
            |expect: &&ExpectEntry| expect.vs.as_ref().is_some_and(|vs| vs.get_ref() == before);
        (own().filter(vs).count(), own().count())
    };
    let names: Vec<&str> = treated()
        .map(|expect| expect.column.get_ref().as_str())
        .collect();
    // Of equals the first.
    let after = names.iter().rev().max_by_key(|name| times(name))?;
    Some((before, *after))
}

/// The pairs of a row and a column that are run: what a published claim compares, and our own
/// column, with that of today's Linux, wherever both sides of the paper are. `[reproduce]` may
/// leave out whole rows and columns.
#[derive(Debug, Default)]
pub(super) struct Wanted(BTreeSet<(String, String)>);

impl Wanted {
    pub(super) fn has(&self, case: &str, policy: &str) -> bool {
        self.0.contains(&(case.to_owned(), policy.to_owned()))
    }

    /// `whole`: `[reproduce]` leaves out nothing.
    pub(super) fn of(scenario: &Scenario, whole: bool) -> Self {
        let section = &scenario.reproduce;
        let is_one_of = |all: &[Spanned<String>], name: &str| {
            whole || all.is_empty() || all.iter().any(|one| one.get_ref() == name)
        };
        let rows = scenario.rows();
        let summed: Vec<&str> = rows
            .iter()
            .filter(|row| !row.apart)
            .map(|row| row.name.get_ref().as_str())
            .collect();
        let mut wanted = Self::default();
        let mut add = |case: &str, policy: &str| {
            if is_one_of(&section.rows, case) && is_one_of(&section.columns, policy) {
                wanted.0.insert((case.to_owned(), policy.to_owned()));
            }
        };
        let held_here = |expect: &&ExpectEntry| expect.held_in.is_none();
        let is_left = |expect: &&ExpectEntry| {
            let id = expect.id.get_ref();
            !whole && section.leaves.iter().any(|left| left.get_ref() == id)
        };
        let claims = scenario.claims().filter(held_here);
        let claims: Vec<&ExpectEntry> = claims.filter(|expect| !is_left(expect)).collect();
        let knocked_out = claims.iter().filter_map(|expect| expect.knocked_out());
        let knocked_out: Vec<ExpectEntry> = knocked_out.collect();
        for expect in claims.into_iter().chain(&knocked_out) {
            let named = expect.rows.iter().map(|case| case.get_ref().as_str());
            let mut cases: Vec<&str> = named.collect();
            if cases.is_empty() {
                cases.clone_from(&summed);
            }
            for (case, policy) in cases.iter().flat_map(|case| expect::cells(expect, case)) {
                let of_case = if case == pool::ALL {
                    &summed[..]
                } else {
                    &[case]
                };
                of_case.iter().for_each(|case| add(case, policy));
            }
        }
        let is_there =
            |name: &str| (scenario.columns.iter()).any(|column| column.name.get_ref() == name);
        if !is_there(OURS) || !is_one_of(&section.columns, OURS) {
            return wanted;
        }
        let Some((before, after)) = sides(scenario) else {
            return wanted;
        };
        for row in &rows {
            let case = row.name.get_ref();
            if wanted.has(case, before) && wanted.has(case, after) {
                let beside = [OURS, TODAY].into_iter().filter(|name| is_there(name));
                wanted
                    .0
                    .extend(beside.map(|name| (case.clone(), name.to_owned())));
            }
        }
        wanted
    }
}
