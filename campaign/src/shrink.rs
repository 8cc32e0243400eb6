//! Makes a failing plan small: delta debugging over plain data.
//!
//! A pass offers plans that are simpler than the present one, the boldest first: without a task,
//! without half of the steps, with a smaller file. A plan that fails in the same way
//! (`Failure::kind`) takes its place, and the pass goes on from there. Passes are repeated until a
//! whole round finds nothing, or the budget is spent.
//!
//! Invariants
//!   1. The answer fails as the plan that came in did: it was run.
//!   2. Every accepted step makes the plan smaller, so it ends; no chance is involved, so the same
//!      plan shrinks to the same.
//!   3. A plan that is offered passes `Plan::check`.
//!
//! Source: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002
//! (ddmin), with passes made for our data, as Hypothesis and QuickCheck have them.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::op::Op;
use crate::plan::{DevicePlan, FailedAs, FlushPlan, Limit, Phase, Plan, SwapPlan};
use crate::run::run;
use crate::scene::Setup;

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The small plan, with how it fails.
    pub plan: Plan,
    /// Its failure.
    pub failure: Failure,
    /// Runs that it took.
    pub runs: u32,
}

/// A pass: simpler plans than the one given, in the order in which to try them.
type Pass = fn(&Plan) -> Vec<Plan>;

const PASSES: [Pass; 13] = [
    fewer_tasks,
    no_extras,
    less_memory,
    fewer_devices,
    fewer_files,
    fewer_steps,
    simpler_devices,
    fewer_phases,
    fewer_faults,
    simpler_machine,
    smaller_files,
    smaller_numbers,
    shorter_times,
];

struct Search<'a> {
    setup: &'a Setup,
    kind: String,
    best: Plan,
    failure: Failure,
    runs: u32,
    end: Instant,
}

/// Shrinks a plan that fails, for at most so long.
///
/// # Errors
/// The plan does not fail: then there is nothing to shrink, or its failure does not come again.
pub fn shrink(plan: &Plan, setup: &Setup, budget: Duration) -> Result<Shrunk, String> {
    let Err(failure) = run(plan, setup) else {
        return Err("the plan does not fail when it is run again".into());
    };
    let mut search = Search {
        setup,
        kind: failure.kind.clone(),
        best: plan.clone(),
        failure,
        runs: 1,
        end: Instant::now() + budget,
    };
    loop {
        let mut found = false;
        for pass in PASSES {
            while search.improve(pass) {
                found = true;
            }
        }
        if !found || search.is_over() {
            break;
        }
    }
    let mut plan = search.best;
    plan.failed = Some(FailedAs {
        kind: search.failure.kind.clone(),
        message: search.failure.first_line().into(),
    });
    Ok(Shrunk {
        plan,
        failure: search.failure,
        runs: search.runs,
    })
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Takes the first simpler plan of the pass that still fails.
    fn improve(&mut self, pass: Pass) -> bool {
        for candidate in pass(&self.best) {
            if self.is_over() {
                return false;
            }
            if candidate == self.best || candidate.check().is_err() {
                continue;
            }
            self.runs += 1;
            if let Err(failure) = run(&candidate, self.setup)
                && failure.kind == self.kind
            {
                self.best = candidate;
                self.failure = failure;
                return true;
            }
        }
        false
    }
}

/// The plan after a change.
fn with(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut plan = plan.clone();
    change(&mut plan);
    plan
}

/// Ranges to leave out of `len` things: all, halves, quarters, and so on to single ones, the last
/// first: late steps are most often of no consequence.
fn chunks(len: usize) -> Vec<core::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let mut size = len;
    while size > 0 {
        let mut end = len;
        while end > 0 {
            let start = end.saturating_sub(size);
            ranges.push(start..end);
            end = start;
        }
        size /= 2;
    }
    ranges
}

fn fewer_tasks(plan: &Plan) -> Vec<Plan> {
    let ranges = chunks(plan.tasks.len()).into_iter();
    ranges
        .map(|range| with(plan, |plan| drop(plan.tasks.drain(range))))
        .collect()
}

/// Without a second life, a loss of power, contradictions, maps.
fn no_extras(plan: &Plan) -> Vec<Plan> {
    let mut plans = vec![
        with(plan, |plan| plan.after_power_loss = None),
        with(plan, |plan| {
            plan.after_power_loss = plan.after_power_loss.as_ref().map(|_| Vec::new())
        }),
        with(plan, |plan| plan.crash_at_us = None),
        with(plan, |plan| plan.refused.clear()),
        with(plan, |plan| {
            let of_map = ["load", "store", "let-go", "unmap"];
            let is_of_map = |op: &Op| of_map.contains(&op.name());
            let lists = plan.tasks.iter_mut().map(|task| &mut task.ops);
            lists.for_each(|ops| ops.retain(|op| !is_of_map(op)));
        }),
    ];
    if let Some(ops) = &plan.after_power_loss {
        plans.extend(chunks(ops.len()).into_iter().map(|range| {
            with(plan, |plan| {
                plan.after_power_loss
                    .iter_mut()
                    .for_each(|ops| drop(ops.drain(range.clone())));
            })
        }));
    }
    plans
}

/// Without a region, with smaller ones, without a swap file or with a smaller one.
fn less_memory(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    if plan.objects.is_some() {
        plans.push(with(plan, |plan| plan.objects = None));
    }
    for gone in (0..plan.regions.len()).rev() {
        plans.push(with(plan, |plan| {
            plan.regions.remove(gone);
            for op in plan.tasks.iter_mut().map(|task| &mut task.ops) {
                op.retain(|op| op.region() != Some(gone));
                for region in op.iter_mut().filter_map(Op::region_mut) {
                    *region -= usize::from(*region > gone);
                }
            }
        }));
        let pages = plan.regions[gone].pages;
        for smaller in [pages / 8, pages / 2, pages.saturating_sub(1)] {
            if (1..pages).contains(&smaller) {
                plans.push(with(plan, |plan| plan.regions[gone].pages = smaller));
            }
        }
    }
    if let Some(swap) = plan.swap {
        plans.push(with(plan, |plan| plan.swap = None));
        if swap.pages > 1 {
            plans.push(with(plan, |plan| {
                plan.swap = Some(SwapPlan {
                    pages: swap.pages / 2,
                    ..swap
                });
            }));
        }
    }
    plans
}

/// Without a device: its files move to another, or go with it.
fn fewer_devices(plan: &Plan) -> Vec<Plan> {
    if plan.devices.len() < 2 {
        return Vec::new();
    }
    let mut plans = Vec::new();
    for gone in (0..plan.devices.len()).rev() {
        let mut moved = plan.clone();
        moved.devices.remove(gone);
        for file in &mut moved.files {
            file.device -= usize::from(file.device > gone);
            file.device = file.device.min(moved.devices.len() - 1);
        }
        if let Some(swap) = &mut moved.swap {
            swap.device -= usize::from(swap.device > gone);
            swap.device = swap.device.min(moved.devices.len() - 1);
        }
        let mut without = plan.clone();
        for file in (0..plan.files.len()).rev() {
            if plan.files[file].device == gone {
                without = without_file(&without, file);
            }
        }
        without.devices.remove(gone);
        without.swap = moved.swap;
        for file in &mut without.files {
            file.device -= usize::from(file.device > gone);
        }
        plans.extend([without, moved]);
    }
    plans
}

/// Without a file: its steps go, or move to another.
fn fewer_files(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for gone in (0..plan.files.len()).rev() {
        plans.push(without_file(plan, gone));
        if plan.files.len() > 1 {
            let other = usize::from(gone == 0);
            let moved = with(plan, |plan| {
                // Room for the steps of both.
                let pages = plan.files[gone].pages_max;
                plan.files[other].pages_max = plan.files[other].pages_max.max(pages);
                let lists = plan.tasks.iter_mut().map(|task| &mut task.ops);
                for ops in lists.chain(plan.after_power_loss.iter_mut()) {
                    for file in ops.iter_mut().filter_map(Op::file_mut) {
                        *file = if *file == gone { other } else { *file };
                    }
                }
            });
            plans.push(without_file(&moved, gone));
        }
    }
    plans
}

fn without_file(plan: &Plan, gone: usize) -> Plan {
    with(plan, |plan| {
        plan.files.remove(gone);
        let lists = plan.tasks.iter_mut().map(|task| &mut task.ops);
        for ops in lists.chain(plan.after_power_loss.iter_mut()) {
            ops.retain(|op| op.file() != Some(gone));
            for op in ops {
                if let Some(file) = op.file_mut() {
                    *file -= usize::from(*file > gone);
                }
            }
        }
    })
}

fn fewer_steps(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (task, own) in plan.tasks.iter().enumerate() {
        for range in chunks(own.ops.len()) {
            plans.push(with(plan, |plan| drop(plan.tasks[task].ops.drain(range))));
        }
    }
    plans
}

fn each_device(plan: &Plan, changes: &[fn(&mut DevicePlan)]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for device in 0..plan.devices.len() {
        for change in changes {
            plans.push(with(plan, |plan| change(&mut plan.devices[device])));
        }
    }
    plans
}

fn simpler_devices(plan: &Plan) -> Vec<Plan> {
    each_device(
        plan,
        &[
            |device| device.phases.clear(),
            |device| device.volatile = None,
            |device| {
                device.slow = None;
                device
                    .phases
                    .iter_mut()
                    .for_each(|phase| phase.rate_kib = None);
            },
            |device| {
                device.model = "null".into();
                device.params.clear();
            },
            |device| device.params.clear(),
            |device| device.stable_writes = false,
            |device| device.write_cache = false,
            |device| device.strict = false,
            |device| (device.min_ratio, device.max_ratio) = (0, 10_000),
            |device| device.assumed_fast = false,
            |device| device.grow_ahead_kib = None,
            |device| device.log_lag_us = None,
        ],
    )
}

fn fewer_phases(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (device, own) in plan.devices.iter().enumerate() {
        for range in chunks(own.phases.len()) {
            plans.push(with(plan, |plan| {
                drop(plan.devices[device].phases.drain(range));
            }));
        }
    }
    plans
}

fn each_phase(plan: &Plan, changes: &[fn(&mut Phase)]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (device, own) in plan.devices.iter().enumerate() {
        for phase in 0..own.phases.len() {
            for change in changes {
                plans.push(with(plan, |plan| {
                    change(&mut plan.devices[device].phases[phase]);
                }));
            }
        }
    }
    plans
}

fn fewer_faults(plan: &Plan) -> Vec<Plan> {
    each_phase(
        plan,
        &[
            |phase| phase.hung = false,
            |phase| phase.rate_kib = None,
            |phase| phase.space_kib = None,
            |phase| phase.read_fails = 0,
            |phase| phase.write_fails = 0,
            |phase| phase.write_torn = 0,
            |phase| phase.flush_fails = 0,
            |phase| phase.length_fails = 0,
            |phase| phase.no_space = 0,
            |phase| (phase.hangs, phase.hang_us) = (0, 0),
            |phase| phase.fails_after_us = 0,
            |phase| phase.lingers_us = 0,
            |phase| phase.reopen = false,
        ],
    )
}

fn simpler_machine(plan: &Plan) -> Vec<Plan> {
    let changes: [fn(&mut Plan); 13] = [
        |plan| plan.cache.reclaim = "tidegate".into(),
        |plan| plan.cache.swappiness = 60,
        |plan| plan.machine.costs_ns.clear(),
        |plan| plan.machine.hz = 0,
        |plan| plan.machine.cpus = 1,
        |plan| plan.cache.frames = 256,
        |plan| plan.cache.readahead_pages = 0,
        |plan| plan.cache.populate_at_start = true,
        |plan| plan.cache.law_hz = 1000,
        |plan| plan.cache.law = "rate-based".into(),
        |plan| (plan.cache.dirty, plan.cache.background) = (Limit::Percent(20), Limit::Percent(10)),
        |plan| plan.cache.flush = FlushPlan::of(&policy::writeback::FlushTunables::tidegate()),
        |plan| plan.seed = 0,
    ];
    let mut plans: Vec<_> = changes.iter().map(|change| with(plan, change)).collect();
    for work in plan.machine.costs_ns.keys() {
        plans.push(with(plan, |plan| {
            let _ = plan.machine.costs_ns.remove(work);
        }));
    }
    plans
}

fn smaller_files(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (number, file) in plan.files.iter().enumerate() {
        plans.push(with(plan, |plan| plan.files[number].prefill_pages = 0));
        for pages in [1, file.pages_max / 8, file.pages_max / 2] {
            if (1..file.pages_max).contains(&pages) {
                plans.push(with(plan, |plan| {
                    let file = &mut plan.files[number];
                    file.pages_max = pages;
                    file.prefill_pages = file.prefill_pages.min(pages);
                }));
            }
        }
    }
    plans
}

/// Steps that move less, or nothing far away.
fn smaller_numbers(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (task, own) in plan.tasks.iter().enumerate() {
        for (at, op) in own.ops.iter().enumerate() {
            for op in smaller(*op) {
                plans.push(with(plan, |plan| plan.tasks[task].ops[at] = op));
            }
        }
    }
    plans
}

fn smaller(op: Op) -> Vec<Op> {
    let mut smaller = Vec::new();
    let count = op.clone().numbers_mut().len();
    for which in 0..count {
        let old = *op.clone().numbers_mut()[which];
        for new in [0, 1, 8, old / 2, old.saturating_sub(1)] {
            if new < old {
                let mut other = op;
                *other.numbers_mut()[which] = new;
                smaller.push(other);
            }
        }
    }
    smaller
}

fn shorter_times(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for task in 0..plan.tasks.len() {
        plans.push(with(plan, |plan| plan.tasks[task].start_us = 0));
        plans.push(with(plan, |plan| plan.tasks[task].served = false));
    }
    plans.extend(each_phase(
        plan,
        &[
            |phase| phase.for_us = phase.for_us.min(1000),
            |phase| phase.for_us /= 8,
            |phase| phase.hang_us /= 8,
            |phase| phase.lingers_us /= 8,
        ],
    ));
    if let Some(us) = plan.crash_at_us {
        plans.push(with(plan, |plan| plan.crash_at_us = Some(us / 2)));
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_all_halves_and_so_on() {
        assert_eq!(chunks(0), []);
        assert_eq!(chunks(3), [0..3, 2..3, 1..2, 0..1]);
        assert_eq!(chunks(4)[..3], [0..4, 2..4, 0..2]);
    }

    /// Else a search goes round until its time is up.
    #[test]
    fn a_search_that_takes_any_offer_ends() {
        for seed in 0..6 {
            let mut plan = Plan::draw(seed);
            for task in &mut plan.tasks {
                task.ops.truncate(2);
            }
            // The small passes first: what the large ones take away could not go round any more.
            for step in 0.. {
                assert!(step < 4_000, "seed {seed} goes round:\n{}", plan.to_toml());
                let offers = PASSES.iter().rev().map(|pass| {
                    let mut offers = pass(&plan);
                    offers.retain(|offer| *offer != plan && offer.check().is_ok());
                    offers
                });
                let Some(mut offers) = offers.into_iter().find(|offers| !offers.is_empty()) else {
                    break;
                };
                plan = offers.swap_remove(step % offers.len());
            }
        }
    }

    #[test]
    fn every_offer_is_a_plan_and_another_one() {
        for seed in 0..40 {
            let plan = Plan::draw(seed);
            for pass in PASSES {
                for offer in pass(&plan) {
                    if let Err(error) = offer.check() {
                        // The last device or file cannot go, nor the phase in which a device works.
                        assert!(
                            error.contains("at least one")
                                || error.contains("no device")
                                || error.contains("never works"),
                            "{error}"
                        );
                    }
                }
            }
        }
    }
}
