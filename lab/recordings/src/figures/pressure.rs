//! Figures of memory pressure, shape by shape: a crowd in memory that does not hold it (paper p0);
//! a file larger than a node (p2); small files, whose inodes and entries push their pages out of
//! memory (p3); huge pages beside a slow stick (p4).

use policy::reclaim::Reason;

use super::super::setting::Setting;
use super::{Band, Figure, MIB, Of, PAGES_PER_MIB, RECLAIMER};
use crate::scale::Scale;
use experiment::keys::value;
use experiment::outcome::{Iteration, Job, Outcome};
use experiment::stats::count;

/// The figures of a shape, and the settings that have their subject.
pub(super) type Shape = (fn(&Setting) -> bool, &'static [Figure]);

/// All shapes.
pub(super) const SHAPES: [Shape; 4] = [
    (|_| true, CROWD),
    (|setting| !setting.scenario.machine.node.is_empty(), NODES),
    (
        |setting| setting.scenario.machine.object_cache.is_some(),
        SMALL,
    ),
    (
        |setting| value(&setting.scenario.machine.thp) == Some(true),
        HUGE,
    ),
];

const SCANNED: Band = Band::Part(0.15);
const SHORT: Band = Band::Part(0.25);
const LONG: Band = Band::Factor(1.5);
const CPU: Band = Band::Part(0.2);
/// Of the level itself: a part of the memory would let a lab pass that has nothing of it. A seed
/// moves the levels of `r1-4` by 1 to 6 %.
const LEVEL: Band = Band::Part(0.1);
/// The time of a worker for a part of its work, or its work in a second.
const TIME: Band = Band::Part(0.15);
/// Of two kinds of memory.
const PART: Band = Band::Part(0.15);
/// Events that come in bursts: throttlings, fragmentation, huge pages.
const COUNT: Band = Band::Factor(2.0);

const fn figure(
    name: &'static str,
    (unit, digits): (&'static str, usize),
    band: Option<Band>,
    guesses: &'static [Scale],
    of: Of,
) -> Figure {
    Figure {
        name,
        unit,
        digits,
        band,
        guesses: if band.is_some() { guesses } else { &[] },
        has: |_| true,
        is_judged: |_| true,
        of,
    }
}

const SECONDS: &[Scale] = &[Scale::Seconds];
const MEMORY: &[Scale] = &[Scale::Memory];
const ONE: &[Scale] = &[Scale::One];
const MS: (&str, usize) = ("ms", 1);
const LEVELS: (&str, usize) = ("MiB", 1);

/// A counter.
macro_rules! counter {
    ($name:literal, $band:expr) => {
        figure($name, ("", 0), $band, SECONDS, Of::Counter(&[$name]))
    };
}

const fn level(name: &'static str, of: &'static [&'static str]) -> Figure {
    figure(name, LEVELS, Some(LEVEL), MEMORY, Of::Levels(of))
}

const fn node(name: &'static str, node: usize, of: &'static str, band: Band) -> Figure {
    figure(name, LEVELS, Some(band), MEMORY, Of::Node(node, of))
}

const fn latency(name: &'static str, part: f64, band: Band) -> Figure {
    figure(name, MS, Some(band), ONE, Of::Latency(part))
}

const fn call(name: &'static str, kind: &'static str, part: f64, band: Band) -> Figure {
    figure(name, MS, Some(band), ONE, Of::Call(kind, part))
}

const fn cpu(name: &'static str, of: &'static str) -> Figure {
    figure(name, ("s", 2), Some(CPU), SECONDS, Of::Cpu(of))
}

const fn throttled(name: &'static str, reason: Reason) -> Figure {
    figure(name, ("", 0), Some(COUNT), SECONDS, Of::Throttled(reason))
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    of: &'static str,
    band: Band,
) -> Figure {
    figure(name, (unit, digits), Some(band), ONE, Of::Metric(of))
}

const fn own(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    band: Band,
    of: fn(&Setting, &Outcome) -> Option<f64>,
) -> Figure {
    figure(name, (unit, digits), Some(band), ONE, Of::Own(of))
}

const fn jobs(
    name: &'static str,
    unit: &'static str,
    kind: &'static str,
    of: fn(&Job) -> f64,
) -> Figure {
    figure(name, (unit, 0), None, ONE, Of::Jobs(kind, of))
}

#[rustfmt::skip]
const CROWD: &[Figure] = &[
    counter!("pgscan_direct", Some(SCANNED)),
    counter!("pgscan_kswapd", Some(SCANNED)),
    counter!("pgsteal_direct", Some(SCANNED)),
    counter!("pgsteal_kswapd", Some(SCANNED)),
    counter!("pswpin", Some(SCANNED)),
    counter!("pswpout", Some(SCANNED)),
    latency("latency: p50", 0.5, SHORT),
    latency("latency: p90", 0.9, SHORT),
    latency("latency: p99", 0.99, LONG),
    latency("latency: longest", 1.0, LONG),
    cpu("cpu: kswapd", RECLAIMER),
    cpu("cpu: latency worker", "mapper"),
    cpu("cpu: hogs", "hog"),
    cpu("cpu: writers", "rand_write"),
    cpu("cpu: readers", "rand_read"),
    throttled("throttled: ISOLATED", Reason::Isolated),
    throttled("throttled: WRITEBACK", Reason::Writeback),
    throttled("throttled: NOPROGRESS", Reason::NoProgress),
    throttled("throttled: CONGESTED", Reason::Congested),
    level("free", &["nr_free_pages"]),
    level("anonymous", &["nr_inactive_anon", "nr_active_anon"]),
    level("files, active", &["nr_active_file"]),
    level("files, inactive", &["nr_inactive_file"]),
    level("dirty", &["nr_dirty"]),
    level("writeback", &["nr_writeback"]),
    counter!("allocstall_normal", None),
    counter!("pageoutrun", None),
    counter!("pgscan_direct_throttle", None),
    counter!("pgscan_anon", None),
    counter!("pgscan_file", None),
    counter!("pgsteal_anon", None),
    counter!("pgsteal_file", None),
    counter!("pgmajfault", None),
    counter!("workingset_refault_anon", None),
    counter!("workingset_refault_file", None),
    counter!("nr_vmscan_write", None),
    counter!("nr_vmscan_immediate_reclaim", None),
    counter!("pgrotated", None),
    counter!("pgdeactivate", None),
    counter!("nr_dirtied", None),
    jobs("rounds", "", "mapper", |job: &Job| count(job.samples.len())),
    jobs("hogs touched", "MiB", "hog", |job| job.touched / PAGES_PER_MIB),
    jobs("written", "MiB", "rand_write", |job| job.bytes / MIB),
    jobs("read", "MiB", "rand_read", |job| job.bytes / MIB),
];

#[rustfmt::skip]
const NODES: &[Figure] = &[
    counter!("numa_hit", Some(SCANNED)),
    counter!("numa_foreign", Some(SCANNED)),
    counter!("zone_reclaim_success", Some(SCANNED)),
    counter!("zone_reclaim_failed", Some(SCANNED)),
    own("pass 1", "s", 1, TIME, |_, outcome| pass(outcome, 0)),
    own("pass 2", "s", 1, TIME, |_, outcome| pass(outcome, 1)),
    own("pass 3", "s", 1, TIME, |_, outcome| pass(outcome, 2)),
    call("call: p50", "passes", 0.5, SHORT),
    call("call: p90", "passes", 0.9, SHORT),
    call("call: p99", "passes", 0.99, LONG),
    call("call: longest", "passes", 1.0, LONG),
    cpu("cpu: sequential worker", "passes"),
    call("store: p50", "mapped_writer", 0.5, SHORT),
    call("store: p90", "mapped_writer", 0.9, SHORT),
    call("store: p99", "mapped_writer", 0.99, LONG),
    call("store: longest", "mapped_writer", 1.0, LONG),
    cpu("cpu: mapped writer", "mapped_writer"),
    node("node 0: free", 0, "nr_free_pages", LEVEL),
    node("node 0: files", 0, "nr_file_pages", LEVEL),
    node("node 0: dirty", 0, "nr_dirty", LEVEL),
    node("node 1: free", 1, "nr_free_pages", LEVEL),
    node("node 1: files", 1, "nr_file_pages", LEVEL),
    node("node 1: dirty", 1, "nr_dirty", LEVEL),
    jobs("moved by sequential workers", "MiB", "passes", |job: &Job| job.bytes / MIB),
    jobs("moved by mapped writers", "MiB", "mapped_writer", |job: &Job| job.bytes / MIB),
];

#[rustfmt::skip]
const SMALL: &[Figure] = &[
    metric("files before memory is full", "1/s", 0, "files_before", TIME),
    metric("files of the last third", "1/s", 0, "files_last", TIME),
    metric("full after", "s", 1, "full_s", TIME),
    metric("slab share when full", "", 3, "slab_share_full", PART),
    metric("slab share of the last third", "", 3, "slab_share", PART),
    level("slab, reclaimable", &["nr_slab_reclaimable"]),
    level("slab, unreclaimable", &["nr_slab_unreclaimable"]),
    counter!("slabs_scanned", Some(SCANNED)),
    own("inode steals", "", 0, SCANNED, |_, outcome| inode_steals(outcome)),
    counter!("extfrag_events", Some(COUNT)),
    own("pages freed an event", "", 2, COUNT, steals_per_event),
    cpu("cpu: file maker", "make_small"),
    metric("dirty of the pages of files", "", 3, "dirty_of_cache", PART),
    own("runs of kswapd", "", 0, COUNT, |_, outcome| makes_small(outcome).then(|| counted(outcome, "pageoutrun"))),
];

#[rustfmt::skip]
const HUGE: &[Figure] = &[
    own("round 1", "s", 1, TIME, |_, outcome| took(outcome, 0)),
    own("round 2", "s", 1, TIME, |_, outcome| took(outcome, 1)),
    own("round 3", "s", 1, TIME, |_, outcome| took(outcome, 2)),
    own("round 1: huge pages", "", 0, COUNT, |_, outcome| huge(outcome, 0)),
    own("round 2: huge pages", "", 0, COUNT, |_, outcome| huge(outcome, 1)),
    own("round 3: huge pages", "", 0, COUNT, |_, outcome| huge(outcome, 2)),
    counter!("thp_fault_alloc", Some(COUNT)),
    counter!("thp_fault_fallback", Some(SCANNED)),
    counter!("compact_stall", Some(LONG)),
    counter!("compact_fail", Some(LONG)),
    counter!("compact_success", Some(COUNT)),
    counter!("pgmigrate_success", Some(LONG)),
    counter!("pgmigrate_fail", Some(COUNT)),
    counter!("compact_migrate_scanned", Some(COUNT)),
    counter!("compact_free_scanned", Some(COUNT)),
    counter!("compact_daemon_wake", Some(COUNT)),
    cpu("cpu: allocator", "alloc"),
];

/// The time of the pass of that number, seconds.
fn pass(outcome: &Outcome, number: usize) -> Option<f64> {
    let mut all = outcome.jobs.iter().filter(|job| job.kind == "passes");
    // Of a job that has an end; another goes on for as long as the recording.
    let of = all.find(|job| job.samples.len() > number)?;
    Some(of.samples[number].1 / 1e3)
}

fn counted(outcome: &Outcome, name: &str) -> f64 {
    let found = outcome.counters.iter().find(|(known, _)| *known == name);
    found.map_or(0.0, |(_, value)| *value)
}

/// Pages of files that went with their inodes, by anybody.
fn inode_steals(outcome: &Outcome) -> Option<f64> {
    let steals = counted(outcome, "pginodesteal") + counted(outcome, "kswapd_inodesteal");
    makes_small(outcome).then_some(steals)
}

fn makes_small(outcome: &Outcome) -> bool {
    outcome.jobs.iter().any(|job| job.makes_small)
}

/// Pages that anybody freed for each event of external fragmentation.
fn steals_per_event(_: &Setting, outcome: &Outcome) -> Option<f64> {
    let events = counted(outcome, "extfrag_events");
    let steals = counted(outcome, "pgsteal_kswapd") + counted(outcome, "pgsteal_direct");
    let all = steals + inode_steals(outcome)?;
    (events > 0.0).then(|| all / events)
}

fn iterations(outcome: &Outcome) -> impl Iterator<Item = &Iteration> {
    outcome.jobs.iter().flat_map(|job: &Job| &job.iterations)
}

fn took(outcome: &Outcome, number: usize) -> Option<f64> {
    iterations(outcome).nth(number).map(|round| round.took_s)
}

/// Huge pages of the round of that number.
fn huge(outcome: &Outcome, number: usize) -> Option<f64> {
    iterations(outcome).nth(number).map(|round| round.huge)
}
