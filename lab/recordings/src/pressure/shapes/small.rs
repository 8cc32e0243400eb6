//! `r3`: small files made for ever, whose inodes and entries push their pages out of memory (paper
//! p3).

use std::path::Path;

use super::super::super::fault::Fault;
use super::super::super::rows::{self, column};
use super::super::figures::{
    COUNT, CPU, Figure, PART, SCANNED, TIME, counter, cpu, level, metric, own,
};
use super::super::recording::Tables;
use super::super::setting::{ObjectCache, Setting};
use super::super::worker::{Argument, Work};
use super::Shape;
use experiment::outcome::{Job, Outcome};
use experiment::stats::{count, whole};

const KIB: f64 = 1024.0;

pub(super) const SHAPE: Shape = Shape {
    works: &[MAKE],
    has: |setting| !setting.object_caches.is_empty(),
    figures: FIGURES,
    read: events,
};

/// Makes files, writes and closes them.
const MAKE: Work = Work {
    name: "fsmark",
    task: "make_small",
    called: "file maker",
    arguments: &[
        Argument::Path,
        Argument::Number("bytes"),
        Argument::Number("folder"),
        Argument::Number("batch"),
        Argument::Number("most"),
    ],
    refuse: |worker| {
        let bytes = worker.number("bytes");
        let fits = bytes > 0.0 && bytes % 4096.0 == 0.0 && worker.number("batch") >= 1.0;
        (!fits).then(|| "the lab's files are whole pages, made in batches of 1 and more".into())
    },
    reads: Work::NEVER,
    keys: |worker| {
        let (kib, batch) = (worker.number("bytes") / KIB, worker.number("batch"));
        let loops = (worker.number("most") / batch).ceil();
        format!("file_kib = {kib}\nfiles_per_loop = {batch}\nloops = {loops}\n")
    },
    job: |worker, calls, work, job| {
        job.bytes = work * worker.number("bytes");
        job.makes_small = true;
        job.files_a_round = worker.number("batch");
        job.passes = count(calls.len());
        job.samples = calls.iter().map(|call| (call.ended_s, call.ms)).collect();
    },
};

/// Objects that a file of ext4 has in memory, by their names in `slabinfo`: what each is to its
/// file, and whether its slabs can be freed.
///
/// An entry and an inode each. Beside them a buffer head, which here goes with the inode and in the
/// kernel with the page.
const OF_EXT4: [(&str, &str, bool); 3] = [
    ("dentry", "entry", true),
    ("ext4_inode_cache", "inode", true),
    ("buffer_head", "beside", true),
];

/// The other objects of a file, in caches that `slabinfo` does not list by name or that others
/// share: sizes measured in `r3-calm`, where each file leaves 155 bytes of slabs that cannot be
/// freed, and 97 that can beside those above. Their kinds are not known (the extent's status has
/// 40).
const BESIDE: [(f64, bool); 2] = [(155.0, false), (97.0, true)];

/// The object caches of the first sample of `slabinfo.csv`; none: there is no such table.
pub(in super::super) fn caches(folder: &Path) -> Result<Vec<ObjectCache>, Fault> {
    let Some(path) = rows::find(folder, "slabinfo.csv") else {
        return Ok(Vec::new());
    };
    let wanted = [
        column("t", "seconds"),
        column("objsize", "bytes"),
        column("pagesperslab", "pages"),
    ];
    let (table, names) = rows::read_labelled(&path, &wanted, "cache")?;
    let mut caches = Vec::new();
    for (name, role, reclaimable) in OF_EXT4 {
        let at = names
            .iter()
            .position(|known| known == name)
            .ok_or_else(|| {
                let title = format!("has no cache `{name}`");
                Fault::of(&path, title, "the objects of a file are read from it")
            })?;
        caches.push(ObjectCache {
            role,
            bytes: table.rows[at][1],
            order: table.rows[at][2].log2(),
            reclaimable,
        });
    }
    caches.extend(BESIDE.map(|(bytes, reclaimable)| ObjectCache {
        role: "beside",
        bytes,
        order: 0.0,
        reclaimable,
    }));
    Ok(caches)
}

/// Events that the kernel counts in no counter.
fn events(tables: &Tables<'_>, outcome: &mut Outcome) -> Result<(), Fault> {
    if let Some(events) = tables.events.get("mm_page_alloc_extfrag") {
        outcome.counters.push(("extfrag_events", whole(*events)));
    }
    Ok(())
}

fn counted(outcome: &Outcome, name: &str) -> f64 {
    let found = outcome.counters.iter().find(|(known, _)| *known == name);
    found.map_or(0.0, |(_, value)| *value)
}

/// Pages of files that went with their inodes, by anybody.
fn inode_steals(outcome: &Outcome) -> Option<f64> {
    let steals = counted(outcome, "pginodesteal") + counted(outcome, "kswapd_inodesteal");
    outcome
        .jobs
        .iter()
        .any(|job| job.makes_small)
        .then_some(steals)
}

/// Pages that anybody freed for each event of external fragmentation.
fn steals_per_event(_: &Setting, outcome: &Outcome) -> Option<f64> {
    let events = counted(outcome, "extfrag_events");
    let steals = counted(outcome, "pgsteal_kswapd") + counted(outcome, "pgsteal_direct");
    let all = steals + inode_steals(outcome)?;
    (events > 0.0).then(|| all / events)
}

const FIGURES: &[Figure] = &[
    metric(
        "files before memory is full",
        "1/s",
        0,
        "files_before",
        TIME,
    ),
    metric("files of the last third", "1/s", 0, "files_last", TIME),
    metric("full after", "s", 1, "full_s", TIME),
    metric("slab share when full", "", 3, "slab_share_full", PART),
    metric("slab share of the last third", "", 3, "slab_share", PART),
    level("slab, reclaimable", &["nr_slab_reclaimable"]),
    level("slab, unreclaimable", &["nr_slab_unreclaimable"]),
    counter!("slabs_scanned", Some(SCANNED)),
    own("inode steals", "", 0, SCANNED, |_, outcome| {
        inode_steals(outcome)
    }),
    counter!("extfrag_events", Some(COUNT)),
    own("pages freed an event", "", 2, COUNT, steals_per_event),
    cpu("cpu: file maker", MAKE.task, CPU),
    metric("dirty of the pages of files", "", 3, "dirty_of_cache", PART),
    own("runs of kswapd", "", 0, COUNT, |_, outcome| {
        let runs = counted(outcome, "pageoutrun");
        outcome
            .jobs
            .iter()
            .any(|job: &Job| job.makes_small)
            .then_some(runs)
    }),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::worker::{Call, Worker};
    use super::*;

    #[test]
    fn a_file_maker_has_rounds_of_its_batches() {
        let folder = json!("/mnt/0");
        let fields = [
            json!("c0"),
            json!("fsmark"),
            json!(0),
            folder,
            json!(4096),
            json!(10000),
            json!(500),
            json!(1100),
        ];
        let worker = Worker::read(&fields, 1).unwrap();
        assert_eq!(worker.disk, Some(0));
        let keys = (MAKE.keys)(&worker);
        assert_eq!(keys, "file_kib = 4\nfiles_per_loop = 500\nloops = 3\n");
        let call = Call {
            ended_s: 0.25,
            ms: 250.0,
            n: 500.0,
            extra: 500.0,
        };
        let mut job = Job::default();
        (MAKE.job)(&worker, &[call], 500.0, &mut job);
        assert_eq!((job.bytes, job.files_a_round), (500.0 * 4096.0, 500.0));
        let odd = [
            json!("c0"),
            json!("fsmark"),
            json!(0),
            json!("/mnt/0"),
            json!(100),
            json!(1),
            json!(1),
            json!(1),
        ];
        let (title, _) = Worker::read(&odd, 1).unwrap_err();
        assert!(title.contains("whole pages"), "{title}");
    }
}
