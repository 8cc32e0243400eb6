//! Traces read back as their reader will read them: packets, tracks, nested slices, times.

use std::collections::BTreeMap;

use env::{Cause, Signal, TaskId, Wakeup};
use policy::reclaim::Reason;
use policy::units::{Instant, Nanos, Pages};

use experiment::Stop;

use super::proto::{Field, fields};
use super::*;
use experiment::experiments;
use experiment::run::{self, Cell, Column, World};
use experiment::scenario::{Override, Scenario};
use experiment::watch::{Item, What};

/// A trace as a reader has it.
#[derive(Debug, Default)]
struct Read {
    /// Names of tracks and of their parents, by number.
    tracks: BTreeMap<u64, (String, u64)>,
    /// (track, name, begin, end, depth), in the order of their ends.
    slices: Vec<(u64, String, u64, u64, usize)>,
    instants: Vec<(u64, String, u64)>,
    counts: BTreeMap<u64, Vec<(u64, f64)>>,
    args: BTreeMap<String, Vec<(u64, u64)>>,
}

fn number(message: &[u8], field: u32) -> Option<u64> {
    fields(message)
        .into_iter()
        .find_map(|(of, value)| match value {
            Field::Number(value) if of == field => Some(value),
            _ => None,
        })
}

fn bytes(message: &[u8], field: u32) -> Option<&[u8]> {
    fields(message)
        .into_iter()
        .find_map(|(of, value)| match value {
            Field::Bytes(value) if of == field => Some(value),
            _ => None,
        })
}

fn text(message: &[u8], field: u32) -> Option<String> {
    bytes(message, field).map(|text| String::from_utf8(text.to_vec()).unwrap())
}

/// Reads a trace, and complains of whatever its reader would complain of.
fn read(trace: &[u8]) -> Read {
    let mut read = Read::default();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let mut last = 0;
    for (field, packet) in fields(trace) {
        let Field::Bytes(packet) = packet else {
            panic!("a trace is made of packets");
        };
        assert_eq!(field, 1);
        assert_eq!(number(packet, 10), Some(1), "one sequence");
        if let Some(interned) = bytes(packet, 12) {
            assert_eq!(number(packet, 13), Some(1), "the state begins here");
            for (field, name) in fields(interned) {
                let Field::Bytes(name) = name else { panic!() };
                if field == 2 {
                    names.insert(number(name, 1).unwrap(), text(name, 2).unwrap());
                }
            }
        }
        if let Some(track) = bytes(packet, 60) {
            let uuid = number(track, 1).unwrap();
            let own = bytes(track, 3).and_then(|process| text(process, 6));
            let own = own.or_else(|| bytes(track, 4).and_then(|thread| text(thread, 5)));
            let name = own.or_else(|| text(track, 2)).unwrap();
            let parent = number(track, 5).unwrap_or(0);
            assert!(parent == 0 || read.tracks.contains_key(&parent));
            assert!(read.tracks.insert(uuid, (name, parent)).is_none());
        }
        let Some(event) = bytes(packet, 11) else {
            continue;
        };
        let at = number(packet, 8).unwrap();
        assert!(at >= last, "time goes on");
        last = at;
        let track = number(event, 11).unwrap();
        assert!(
            read.tracks.contains_key(&track),
            "track {track} is described"
        );
        let name = || {
            let interned = number(event, 10).map(|iid| names[&iid].clone());
            interned.or_else(|| text(event, 23)).unwrap()
        };
        let open = open.entry(track).or_default();
        match number(event, 9).unwrap() {
            1 => open.push((name(), at)),
            2 => {
                let (name, begin) = open.pop().expect("an end has a beginning");
                assert!(begin < at);
                read.slices.push((track, name, begin, at, open.len()));
            }
            3 => read.instants.push((track, name(), at)),
            4 => {
                let Some((_, Field::Real(value))) =
                    fields(event).into_iter().find(|(field, _)| *field == 44)
                else {
                    panic!("a counter has a value");
                };
                read.counts.entry(track).or_default().push((at, value));
            }
            other => panic!("type {other}"),
        }
        if matches!(number(event, 9), Some(1)) {
            let count = fields(event)
                .iter()
                .filter(|(field, _)| *field == 4)
                .count();
            read.args
                .entry(name())
                .or_default()
                .push((at, count as u64));
        }
    }
    assert!(open.values().all(Vec::is_empty), "all slices end");
    read
}

impl Read {
    fn track(&self, name: &str) -> u64 {
        let mut found = self.tracks.iter().filter(|(_, (of, _))| of == name);
        let (uuid, _) = found.next().unwrap_or_else(|| panic!("no track {name}"));
        *uuid
    }

    fn on(&self, track: u64) -> Vec<(&str, u64, u64, usize)> {
        let own = self.slices.iter().filter(|slice| slice.0 == track);
        let mut own: Vec<_> = own
            .map(|(_, name, begin, end, depth)| (name.as_str(), *begin, *end, *depth))
            .collect();
        own.sort_by_key(|slice| (slice.1, slice.3));
        own
    }
}

const MS: u64 = 1_000_000;

fn item(ms: u64, task: u32, what: What) -> Item {
    Item {
        at: Instant((1000 + ms) * MS),
        task: TaskId(task),
        what,
    }
}

fn timeline(items: Vec<Item>, ends: u64) -> Timeline {
    Timeline {
        begins: Instant(1000 * MS),
        ends: Instant((1000 + ends) * MS),
        items,
        tasks: [(4, "hog-0".to_owned()), (2, "kswapd".to_owned())].into(),
        devices: [(0, "disk0".to_owned())].into(),
        ..Timeline::default()
    }
}

fn completed(took: u64) -> What {
    What::Completed {
        device: 0,
        op: "write",
        pages: Pages(256),
        took: Nanos::millis(took),
        failed: false,
    }
}

/// A hog reclaims and is throttled in it; kswapd balances in two passes; two requests overlap.
fn example() -> Timeline {
    let throttled = What::Throttled {
        reason: Reason::NoProgress,
        timeout: Nanos::millis(500),
        delayed: Nanos::millis(104),
        wakeup: Some(Wakeup::Ready(Signal::Progress)),
    };
    let reclaimed = |background| What::Reclaimed {
        background,
        scanned: Pages(64),
        freed: Pages(3),
    };
    let wait = Cause::ReclaimNoProgress;
    timeline(
        vec![
            item(5, 2, What::Waits(Cause::Idle)),
            item(10, 4, What::Reclaims),
            item(20, 4, What::Waits(wait)),
            item(
                30,
                2,
                What::Waited(
                    Cause::Idle,
                    Nanos::millis(25),
                    Wakeup::Ready(Signal::ReclaimAsked),
                ),
            ),
            item(30, 2, What::Background(true)),
            item(32, 2, What::Submitted(0)),
            item(34, 2, What::Submitted(0)),
            item(50, 2, reclaimed(true)),
            item(60, u32::MAX, completed(28)),
            item(70, u32::MAX, completed(36)),
            item(90, 2, reclaimed(true)),
            item(95, 2, What::Background(false)),
            item(95, 2, What::Waits(Cause::Idle)),
            item(
                124,
                4,
                What::Waited(wait, Nanos::millis(104), Wakeup::Ready(Signal::Progress)),
            ),
            // A wake-up costs time: the event stands a little after its wait.
            item(125, 4, throttled),
            item(130, 4, reclaimed(false)),
            item(150, 4, What::Sampled(Pages(8), Nanos::millis(145))),
            item(160, 4, What::Ended),
        ],
        200,
    )
}

#[test]
fn a_task_runs_or_waits_by_name_and_reclaims_below() {
    let trace = encode(&example(), &Vec::new(), "row / column");
    let read = read(&trace);
    let hog = read.track("hog-0");
    assert_eq!(
        read.on(hog),
        [
            ("runs", 0, 20 * MS, 0),
            ("VMSCAN_THROTTLE_NOPROGRESS", 20 * MS, 124 * MS, 0),
            ("runs", 124 * MS, 160 * MS, 0),
        ]
    );
    // Which event ended it, the timeout and the delay.
    assert_eq!(read.args["VMSCAN_THROTTLE_NOPROGRESS"], [(20 * MS, 3)]);
    let below = |name: &str| {
        let mut own = read
            .tracks
            .iter()
            .filter(|(_, (of, parent))| of == name && *parent == hog);
        *own.next().unwrap().0
    };
    assert_eq!(
        read.on(below("reclaim")),
        [("direct reclaim", 10 * MS, 130 * MS, 0)]
    );
    assert_eq!(
        read.on(below("passes of the job")),
        [("pass of the job", 5 * MS, 150 * MS, 0)]
    );
}

#[test]
fn passes_of_the_background_stand_in_its_balancing_and_open_waits_end_with_the_trace() {
    let read = read(&encode(&example(), &Vec::new(), "row / column"));
    let kswapd = read.track("kswapd");
    let (reclaim, _) = read
        .tracks
        .iter()
        .find(|(_, (_, parent))| *parent == kswapd)
        .unwrap();
    assert_eq!(
        read.on(*reclaim),
        [
            ("balancing", 30 * MS, 95 * MS, 0),
            ("pass", 30 * MS, 50 * MS, 1),
            ("pass", 50 * MS, 90 * MS, 1),
        ]
    );
    let own = read.on(kswapd);
    assert_eq!(own.last(), Some(&("Idle", 95 * MS, 200 * MS, 0)));
    assert_eq!(
        own.iter().map(|slice| slice.2 - slice.1).sum::<u64>(),
        200 * MS
    );
}

#[test]
fn requests_that_overlap_have_lanes_of_their_own_and_are_counted() {
    let read = read(&encode(&example(), &Vec::new(), "row / column"));
    let first = read.on(read.track("disk0: requests, lane 1"));
    let second = read.on(read.track("disk0: requests, lane 2"));
    assert_eq!(first, [("write", 32 * MS, 60 * MS, 0)]);
    assert_eq!(second, [("write", 34 * MS, 70 * MS, 0)]);
    let flying = &read.counts[&read.track("disk0: requests in flight")];
    assert_eq!(
        flying,
        &[
            (32 * MS, 1.0),
            (34 * MS, 2.0),
            (60 * MS, 1.0),
            (70 * MS, 0.0)
        ]
    );
}

#[test]
fn counters_have_their_kernel_names_and_stop_with_the_timeline() {
    let mut outcome = Outcome {
        timeline: Some(example()),
        ..Outcome::default()
    };
    outcome.vmstat.names = vec!["nr_free_pages", "nr_vmscan_write"];
    outcome.vmstat.rows = vec![
        (0.0, vec![100.0, 0.0]),
        (0.1, vec![60.0, 7.0]),
        (9.0, vec![50.0, 9.0]),
    ];
    let read = read(&trace(&outcome).unwrap());
    let free = &read.counts[&read.track("nr_free_pages")];
    assert_eq!(free, &[(0, 100.0), (100 * MS, 60.0)]);
}

#[test]
fn a_throttling_without_sleep_is_an_instant_and_a_full_trace_says_so() {
    let not_slept = What::Throttled {
        reason: Reason::WaitIffCongested,
        timeout: Nanos::millis(100),
        delayed: Nanos::ZERO,
        wakeup: None,
    };
    let mut timeline = timeline(vec![item(3, 4, not_slept), item(4, 4, not_slept)], 4);
    timeline.is_full = true;
    let read = read(&encode(&timeline, &Vec::new(), "row / column"));
    let named: Vec<_> = read
        .instants
        .iter()
        .map(|(_, name, at)| (name.as_str(), *at))
        .collect();
    assert_eq!(
        named[..2],
        [
            ("wait_iff_congested", 3 * MS),
            ("wait_iff_congested", 4 * MS)
        ]
    );
    assert!(
        named[2]
            .0
            .contains("the trace ends here: it holds 2 events")
    );
}

#[test]
fn slices_that_would_cross_are_cut_to_nest() {
    // A fault of 30 ms ends in mid pass of a later one: only a broken clock does that.
    let items = vec![
        item(40, 4, What::Faulted(Nanos::millis(30))),
        item(45, 4, What::Faulted(Nanos::millis(10))),
    ];
    let read = read(&encode(&timeline(items, 50), &Vec::new(), "x"));
    let faults = read.on(read.track("major faults"));
    assert_eq!(
        faults,
        [
            ("major fault", 10 * MS, 40 * MS, 0),
            ("major fault", 35 * MS, 40 * MS, 1)
        ]
    );
}

/// A cell of a built-in experiment, run in the lab with a trace.
fn traced(experiment: &str, row: &str, column: &str, sets: &[&str]) -> Outcome {
    let overrides = sets.iter().map(|set| Override::parse(set).unwrap());
    let source = experiments::by_name(experiment).unwrap();
    let (scenario, _) = Scenario::load(source, &overrides.collect::<Vec<_>>()).unwrap();
    let rows = scenario.rows();
    let row = rows.iter().find(|of| of.name.get_ref() == row).unwrap();
    let mut columns = scenario.columns.iter().map(Column::of);
    let column = columns.find(|of| of.name == column).unwrap();
    let mut orders = run::orders(&[Cell::resolve(&scenario, row, &column)], 1, 1);
    orders[0].trace = true;
    let results = run::run_all(&orders, &World::Lab, &Stop::default(), &());
    results.into_iter().flatten().next().unwrap().unwrap()
}

/// Every job's slices follow each other without a gap from its first to its last, and add up by
/// cause to the lab's own account of it.
fn holds_the_account(outcome: &Outcome, read: &Read) {
    for job in &outcome.jobs {
        let own = read.on(read.track(&job.name));
        assert!(
            own.windows(2).all(|pair| pair[0].2 == pair[1].1),
            "{}: gaps",
            job.name
        );
        let account = outcome
            .tasks
            .iter()
            .find(|task| task.name == job.name)
            .unwrap();
        let mut waits: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, begin, end, depth) in &own {
            assert_eq!(*depth, 0);
            *waits.entry(name).or_default() += end - begin;
        }
        for (cause, asleep_s) in &account.waits {
            // Throttlings stand under the reason's name.
            let known = waits.get(cause.as_str()).copied().unwrap_or(0);
            let throttled = cause.starts_with("Reclaim") || cause == "CongestionWait";
            let drawn = known as f64 / 1e9;
            // A wake-up on a busy CPU waits for its turn there, which the account calls ready. A
            // device that answers as it is asked (space ahead: 297 times in this run) is drawn as
            // an instant; the account has some nanoseconds for each.
            assert!(
                throttled || drawn >= asleep_s - 1e-5,
                "{}: {cause} {drawn} {asleep_s}",
                job.name
            );
        }
    }
}

#[test]
fn the_trace_of_a_run_holds_the_account_of_its_tasks() {
    let outcome = traced("two-devices", "both", "tidegate", &[]);
    let read = read(&trace(&outcome).unwrap());
    holds_the_account(&outcome, &read);
    assert!(!outcome.timeline.as_ref().unwrap().is_full);
    for device in &outcome.devices {
        let flying = &read.counts[&read.track(&format!("{}: requests in flight", device.id))];
        assert!(flying.iter().any(|(_, requests)| *requests > 1.0));
    }
}

#[test]
fn every_throttling_of_a_run_is_in_its_trace() {
    let sets = [
        "run.scale=0.015625",
        "task.writer.run_s=14",
        "task.hog.start_s=4",
        "task.hog.run_s=10",
        "task.mmap.start_s=4",
        "task.mmap.run_s=10",
        "task.held.run_s=14",
    ];
    let outcome = traced("stutterp", "12", "linux-5.16-rc1", &sets);
    let read = read(&trace(&outcome).unwrap());
    holds_the_account(&outcome, &read);
    let is_throttle = |name: &str| name.starts_with("VMSCAN_THROTTLE_");
    let slept = read
        .slices
        .iter()
        .filter(|slice| is_throttle(&slice.1))
        .count();
    let not = read
        .instants
        .iter()
        .filter(|instant| is_throttle(&instant.1))
        .count();
    assert!(slept > 0, "the load presses");
    assert_eq!(slept + not, outcome.throttled.len());
    let counted: u64 = outcome.throttles.iter().map(|kind| kind.count).sum();
    assert_eq!(counted, outcome.throttled.len() as u64);
    let reclaims = read
        .slices
        .iter()
        .filter(|slice| slice.1 == "direct reclaim")
        .count();
    assert!(reclaims > 0);
    assert!(outcome.pressure.memory_some_s >= outcome.pressure.memory_full_s);
    assert!(outcome.pressure.memory_some_s > 0.0 && outcome.pressure.over_s > 13.0);
}
