//! `r2`: a file larger than a node, on a machine of two, written and read, or mapped and stored to
//! (paper p2).

use super::super::super::fault::Fault;
use super::super::super::rows::{self, Wanted, column};
use super::super::figures::{
    CPU, Figure, LEVEL, LONG, SCANNED, SHORT, TIME, call, counter, cpu, jobs, node, own,
};
use super::super::recording::Tables;
use super::super::worker::{Argument, Call, Work, Worker};
use super::Shape;
use experiment::outcome::{Job, Outcome, VmSeries};

const MIB: f64 = 1_048_576.0;
const PAGES: &str = "pages";

pub(super) const SHAPE: Shape = Shape {
    works: &[GO, STORE],
    has: |setting| !setting.nodes.is_empty(),
    figures: FIGURES,
    read: levels,
};

/// Goes through a file from front to end: a pass that writes or reads for each letter of `passes`.
const GO: Work = Work {
    name: "seq",
    task: "passes",
    called: "sequential worker",
    arguments: &[
        Argument::Path,
        Argument::Number("offset"),
        Argument::Number("file"),
        Argument::Number("block"),
        Argument::Word("passes"),
        Argument::Number("repeat"),
    ],
    refuse: |worker| {
        let passes = worker.word("passes");
        let known = passes.chars().all(|letter| matches!(letter, 'r' | 'w'));
        (!known || passes.is_empty()).then(|| format!("`{passes}` is no plan of passes (w and r)"))
    },
    reads: |worker| worker.word("passes").starts_with('r'),
    keys: |worker| {
        let (file, block) = (worker.number("file"), worker.number("block"));
        let (passes, repeat) = (worker.word("passes"), worker.number("repeat"));
        let loops = if repeat > 0.0 {
            format!("loops = {repeat}\n")
        } else {
            String::new()
        };
        format!("file_mib = {file}\nblock_kib = {block}\npasses = \"{passes}\"\n{loops}")
    },
    job: |worker, calls, work, job| {
        job.bytes = work;
        job.samples = passes(worker, calls);
    },
};

/// Maps a file and stores to each page once.
const STORE: Work = Work {
    name: "mapwrite",
    task: "mapped_writer",
    called: "mapped writer",
    arguments: &[Argument::Path, Argument::Number("file")],
    refuse: Work::ALL,
    reads: |_| true,
    keys: |worker| {
        let file = worker.number("file");
        format!("file_mib = {file}\nblock_kib = {CALL_KIB}\nfound = true\n")
    },
    job: |_, _, work, job| job.bytes = work,
};
/// A call of a mapped writer.
const CALL_KIB: u32 = 1024;

/// (when it ended, its length in ms) of each pass: from the beginning of its first call to the end
/// of its last.
fn passes(worker: &Worker, calls: &[Call]) -> Vec<(f64, f64)> {
    let bytes = worker.number("file") * MIB;
    let mut all = Vec::new();
    let (mut done, mut began) = (0.0, None);
    for call in calls {
        let from = *began.get_or_insert(call.ended_s - call.ms / 1e3);
        done += call.n;
        if done >= bytes {
            all.push((call.ended_s, (call.ended_s - from) * 1e3));
            (done, began) = (0.0, None);
        }
    }
    all
}

/// The columns read from a node's table: free pages, those of files, anonymous and dirty ones.
const LEVELS: [Wanted; 8] = [
    column("t", "seconds"),
    column("nr_free_pages", PAGES),
    column("nr_inactive_file", PAGES),
    column("nr_active_file", PAGES),
    column("nr_inactive_anon", PAGES),
    column("nr_active_anon", PAGES),
    column("nr_dirty", PAGES),
    column("nr_writeback", PAGES),
];

/// Levels of each node, as the lab has them.
fn levels(tables: &Tables<'_>, outcome: &mut Outcome) -> Result<(), Fault> {
    for path in tables.nodes {
        let table = rows::read(path, &LEVELS, None)?;
        let rows = table.rows.iter().filter(|row| row[0] >= 0.0);
        let rows = rows.map(|row| {
            (
                row[0],
                vec![row[1], row[2] + row[3], row[4] + row[5], row[6]],
            )
        });
        outcome.nodes.push(VmSeries {
            names: vec![
                "nr_free_pages",
                "nr_file_pages",
                "nr_anon_pages",
                "nr_dirty",
            ],
            rows: rows.collect(),
        });
    }
    Ok(())
}

/// The time of the pass of that number, seconds.
fn pass(outcome: &Outcome, number: usize) -> Option<f64> {
    let mut all = outcome.jobs.iter().filter(|job| job.kind == GO.task);
    // Of a job that has an end; another goes on for as long as the recording.
    let of = all.find(|job| job.samples.len() > number)?;
    Some(of.samples[number].1 / 1e3)
}

const FIGURES: &[Figure] = &[
    counter!("numa_hit", Some(SCANNED)),
    counter!("numa_foreign", Some(SCANNED)),
    counter!("zone_reclaim_success", Some(SCANNED)),
    counter!("zone_reclaim_failed", Some(SCANNED)),
    own("pass 1", "s", 1, TIME, |_, outcome| pass(outcome, 0)),
    own("pass 2", "s", 1, TIME, |_, outcome| pass(outcome, 1)),
    own("pass 3", "s", 1, TIME, |_, outcome| pass(outcome, 2)),
    call("call: p50", GO.task, 0.5, SHORT),
    call("call: p90", GO.task, 0.9, SHORT),
    call("call: p99", GO.task, 0.99, LONG),
    call("call: longest", GO.task, 1.0, LONG),
    cpu("cpu: sequential worker", GO.task, CPU),
    call("store: p50", STORE.task, 0.5, SHORT),
    call("store: p90", STORE.task, 0.9, SHORT),
    call("store: p99", STORE.task, 0.99, LONG),
    call("store: longest", STORE.task, 1.0, LONG),
    cpu("cpu: mapped writer", STORE.task, CPU),
    node("node 0: free", 0, "nr_free_pages", LEVEL),
    node("node 0: files", 0, "nr_file_pages", LEVEL),
    node("node 0: dirty", 0, "nr_dirty", LEVEL),
    node("node 1: free", 1, "nr_free_pages", LEVEL),
    node("node 1: files", 1, "nr_file_pages", LEVEL),
    node("node 1: dirty", 1, "nr_dirty", LEVEL),
    jobs(
        "moved by sequential workers",
        "MiB",
        GO.task,
        |job: &Job| job.bytes / MIB,
    ),
    jobs("moved by mapped writers", "MiB", STORE.task, |job: &Job| {
        job.bytes / MIB
    }),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pass_is_from_its_first_call_to_its_last() {
        let path = json!("/dev/nullb0");
        let fields = [
            json!("f0"),
            json!("seq"),
            json!(0),
            path,
            json!(0),
            json!(2),
            json!(1024),
            json!("wr"),
            json!(1),
        ];
        let worker = Worker::read(&fields, 1).unwrap();
        let call = |ended_s: f64, ms: f64| Call {
            ended_s,
            ms,
            n: MIB,
            extra: 0.0,
        };
        // Two calls a pass, half a second between the passes.
        let calls = [
            call(1.0, 1000.0),
            call(3.0, 2000.0),
            call(4.0, 500.0),
            call(4.5, 500.0),
        ];
        assert_eq!(passes(&worker, &calls), [(3.0, 3000.0), (4.5, 1000.0)]);
        assert!((GO.keys)(&worker).contains("passes = \"wr\"\nloops = 1\n"));
    }
}
