//! `r1`: writers, readers, hogs and a latency worker in memory that does not hold them (paper p0).

use policy::reclaim::Reason;

use super::super::figures::{
    CPU, Figure, LONG, RECLAIMER, SCANNED, SHORT, counter, cpu, jobs, latency, level, throttled,
};
use super::super::worker::{Argument, Call, Work, Worker};
use super::{NOTHING, Shape};
use experiment::outcome::Job;
use experiment::stats::count;

const PAGES_PER_MIB: f64 = 256.0;
const MIB: f64 = 1_048_576.0;

pub(super) const SHAPE: Shape = Shape {
    works: &[WRITE, READ, HOG, MAP],
    has: |_| true,
    figures: FIGURES,
    read: NOTHING,
};

const BLOCKS: &[Argument] = &[
    Argument::Path,
    Argument::Number("offset"),
    Argument::Number("file"),
    Argument::Number("block"),
    Argument::Number("sleep"),
    Argument::Number("seed"),
];

/// Overwrites blocks of a file at random, each once before one comes again.
const WRITE: Work = Work {
    name: "randwrite",
    task: "rand_write",
    called: "writer",
    arguments: BLOCKS,
    refuse: sleeps,
    reads: Work::NEVER,
    keys: blocks,
    job: |_, _, work, job| {
        job.bytes = work;
        job.is_heavy = true;
    },
};

/// Reads blocks of a file at random.
const READ: Work = Work {
    name: "randread",
    task: "rand_read",
    called: "reader",
    reads: |_| true,
    job: |_, _, work, job| {
        job.bytes = work;
        job.is_reader = true;
    },
    ..WRITE
};

/// Writes to each page of its memory, over and over.
const HOG: Work = Work {
    name: "hog",
    task: "hog",
    called: "hog",
    arguments: &[Argument::Number("memory")],
    refuse: Work::ALL,
    reads: Work::NEVER,
    keys: |worker| format!("region_mib = {}\n", worker.number("memory")),
    job: |_, _, work, job| {
        job.touched = work;
        job.is_hog = true;
    },
};

/// Rests, maps memory, writes to each page of it, unmaps it.
const MAP: Work = Work {
    name: "mapper",
    task: "mapper",
    called: "latency worker",
    arguments: &[Argument::Number("memory"), Argument::Number("rest")],
    keys: |worker| {
        let (memory, rest) = (worker.number("memory"), worker.number("rest"));
        format!("region_mib = {memory}\nevery_ms = {rest}\n")
    },
    job: |worker, calls, work, job| {
        job.touched = work;
        job.is_mapper = true;
        job.samples = rounds(worker, calls);
    },
    ..HOG
};

fn sleeps(worker: &Worker) -> Option<String> {
    (worker.number("sleep") > 0.0).then(|| "it sleeps, and the lab's do not".into())
}

fn blocks(worker: &Worker) -> String {
    let (file, block) = (worker.number("file"), worker.number("block"));
    format!("files = 1\nfile_mib = {file}\nblock_kib = {block}\n")
}

/// The lab's sample: from the end of one round to the end of the next, less the rest. So what is
/// late about the rest counts on both sides.
fn rounds(worker: &Worker, calls: &[Call]) -> Vec<(f64, f64)> {
    let (mut before, rest_ms) = (worker.start_s, worker.number("rest"));
    let round = |call: &Call| {
        let took = ((call.ended_s - before) * 1e3 - rest_ms).max(0.0);
        before = call.ended_s;
        (call.ended_s, took)
    };
    calls.iter().map(round).collect()
}

const FIGURES: &[Figure] = &[
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
    cpu("cpu: kswapd", RECLAIMER, CPU),
    cpu("cpu: latency worker", "mapper", CPU),
    cpu("cpu: hogs", "hog", CPU),
    cpu("cpu: writers", "rand_write", CPU),
    cpu("cpu: readers", "rand_read", CPU),
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
    jobs("hogs touched", "MiB", "hog", |job| {
        job.touched / PAGES_PER_MIB
    }),
    jobs("written", "MiB", "rand_write", |job| job.bytes / MIB),
    jobs("read", "MiB", "rand_read", |job| job.bytes / MIB),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_round_is_from_end_to_end_less_the_rest() {
        // Begins at 5 s, rests 5 ms, works 20 ms; then again, 3 ms late.
        let fields = [
            json!("m0"),
            json!("mapper"),
            json!(5000),
            json!(8),
            json!(5),
        ];
        let worker = Worker::read(&fields, 0).unwrap();
        let calls = [5.025, 5.053].map(|ended_s| Call {
            ended_s,
            ms: 20.0,
            n: 2048.0,
            extra: 0.0,
        });
        let rounds = rounds(&worker, &calls);
        let took: Vec<f64> = rounds.iter().map(|(_, took)| took.round()).collect();
        assert_eq!(took, [20.0, 23.0]);
    }
}
