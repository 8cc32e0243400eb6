//! Runs: every row and column of a scenario, as often as asked, side by side on all cores.
//!
//! Each run has a world of its own and a seed that follows from the master seed, its row and its
//! repetition, not from its column: the columns of a repetition meet the same chance. So results do
//! not depend on how many run side by side, nor on which columns were chosen.

mod assemble;
mod cell;
mod digest;
mod disk;
mod jobs;
mod journal;
mod lab;
mod live;
mod made;
mod real;
mod rig;
mod runs;
mod schedule;
mod session;
mod small;
mod tape;
#[cfg(test)]
mod tests;
mod wrap;

pub use cell::{Cell, Column, SwapSpec};
pub use disk::DeviceSpec;
pub use jobs::JobSpec;
pub use live::Live;
pub use made::LiveFiles;
pub use session::RunError;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use workload::Stop;

use crate::outcome::Outcome;
use schedule::Schedule;

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Order {
    /// The cell.
    pub cell: Cell,
    /// Number of the repetition.
    pub replica: u32,
    /// Its seed.
    pub seed: u64,
    /// A trace is made of it.
    pub trace: bool,
}

/// The world of runs.
#[derive(Clone, Debug)]
pub enum World {
    /// In virtual time.
    Lab,
    /// On threads and files.
    Live(Live),
}

/// Told what happens while runs are made.
pub trait Watcher: Sync {
    /// A run begins.
    fn began(&self, _order: &Order) {}
    /// A run has ended.
    fn ended(&self, _order: &Order, _result: &Result<Outcome, RunError>) {}
}

/// Says nothing of runs.
impl Watcher for () {}

/// All runs of the cells: repetitions outermost, so that columns are interleaved.
#[must_use]
pub fn orders(cells: &[Cell], replicas: u32, master: u64) -> Vec<Order> {
    (0..replicas)
        .flat_map(|replica| {
            cells.iter().map(move |cell| Order {
                cell: cell.clone(),
                replica,
                seed: seed(master, &cell.case, replica),
                trace: false,
            })
        })
        .collect()
}

/// The result of each run of a list; `None`: it has not ended.
pub type Results = Mutex<Vec<Option<Result<Outcome, RunError>>>>;

/// Makes all runs, as many at a time as there are cores in the lab and one at a time live; answers
/// in the order of `orders`. A run that was not begun when `stop` was raised, or when a live run
/// was refused, is `None`.
pub fn run_all(
    orders: &[Order],
    world: &World,
    stop: &Stop,
    watcher: &impl Watcher,
) -> Vec<Option<Result<Outcome, RunError>>> {
    let results = no_results(orders);
    run_into(orders, world, stop, watcher, &results);
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Results of runs that have not begun.
#[must_use]
pub fn no_results(orders: &[Order]) -> Results {
    Mutex::new(orders.iter().map(|_| None).collect())
}

/// The same, with results that another thread may look at, or take, before all runs have ended.
pub fn run_into(
    orders: &[Order],
    world: &World,
    stop: &Stop,
    watcher: &impl Watcher,
    results: &Results,
) {
    let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
    let workers = match world {
        World::Lab => cores.min(orders.len()),
        World::Live(_) => 1,
    };
    let cells = orders.iter().take_while(|order| order.replica == 0).count();
    let schedule = Mutex::new(Schedule::new(orders.len(), cells));
    let schedule = || schedule.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !stop.is_raised() {
                    let Some(at) = schedule().next() else { return };
                    let order = &orders[at];
                    watcher.began(order);
                    let began = Instant::now();
                    let result = run_one(order, world, stop);
                    if workers > 1 {
                        schedule().ended(at, began.elapsed().as_secs_f64());
                    }
                    watcher.ended(order, &result);
                    // The machine or the limit is too small: nobody wants to be told once a
                    // repetition.
                    let is_refused = matches!(
                        (&result, world),
                        (Err(RunError::Impossible(_)), World::Live(_))
                    );
                    results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                    if is_refused {
                        return;
                    }
                }
            });
        }
    });
}

/// One run in its world; a panic in it is its failure.
pub fn run_one(order: &Order, world: &World, stop: &Stop) -> Result<Outcome, RunError> {
    let began = Instant::now();
    let made = catch_unwind(AssertUnwindSafe(|| match world {
        World::Lab => lab::run(&order.cell, order.seed, order.trace, stop),
        World::Live(live) => live.run(&order.cell, order.trace, stop),
    }));
    let mut outcome = made.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(RunError::Panicked(
            text.unwrap_or("without a message").to_owned(),
        ))
    })?;
    if order.replica > 0 {
        outcome.forget_details();
    }
    outcome.replica = order.replica;
    outcome.seed = order.seed;
    outcome.wall_s = began.elapsed().as_secs_f64();
    outcome.interrupted = stop.is_raised();
    // Here, where all cores are at work, and not when the tables are made.
    let _ = outcome.values();
    Ok(outcome)
}

/// Seed of a run: the master seed, the row's name and the repetition, mixed (splitmix64's
/// finisher).
fn seed(master: u64, case: &str, replica: u32) -> u64 {
    let words = case.bytes().map(u64::from).chain([u64::from(replica)]);
    words.fold(master, |seed, word| {
        let mut mixed = seed.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}
