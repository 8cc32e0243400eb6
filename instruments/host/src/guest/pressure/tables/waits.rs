//! Where the time of a task goes, from the trace of each switch of the processor.
//!
//! A task has the processor, waits for it, or sleeps for a cause, which the functions that it
//! stands in tell. The time of direct reclaims is kept apart.
//!
//! Source: Linux 6.12 include/trace/events/sched.h, vmscan.h (the events' text); the functions that
//! `CAUSES` names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Crew, Trace, ms, round, t};
use crate::Result;
use crate::guest::record::{self, Line};

/// Events that are too many for the table of them.
pub(super) const EVENTS: [&str; 2] = ["sched_switch", "sched_waking"];

/// Causes of a sleep, by a function that the task stands in; the first that is found counts.
const CAUSES: [(&str, &str); 12] = [
    ("rq_qos_wait", "room among writes"),
    ("blk_mq_get_tag", "request"),
    ("mempool_alloc_noprof", "bio of the pool"),
    ("reclaim_throttle", THROTTLED),
    ("throttle_direct_reclaim", "reserve of memory"),
    ("do_swap_page", "page swapped in"),
    ("folio_wait_writeback", "page under writeback"),
    ("balance_dirty_pages", "dirty limit"),
    ("filemap_read", "page read"),
    ("do_nanosleep", "rest"),
    ("kswapd", NOTHING),
    ("worker_thread", NOTHING),
];
const NOTHING: &str = "nothing to do";
/// Until the event behind the sleep says why.
const THROTTLED: &str = "throttled";
/// Functions that every sleep ends in.
const MACHINERY: [&str; 9] = [
    "schedule",
    "__schedule",
    "io_schedule",
    "io_schedule_timeout",
    "schedule_timeout",
    "schedule_preempt_disabled",
    "preempt_schedule_common",
    "__traceiter_sched_switch",
    "trace_event_raw_event_sched_switch",
];
const CPU: &str = "processor";
const READY: &str = "waiting for it";
/// Calls between these quantiles, in per mille, stand for the 90th per cent.
const LATE: [usize; 2] = [850, 950];

/// A while of a task that did one thing.
struct Span {
    from: u64,
    to: u64,
    what: String,
    reclaims: bool,
}

impl Span {
    fn key(&self) -> String {
        let inside = if self.reclaims { "reclaim: " } else { "" };
        format!("{inside}{}", self.what)
    }
}

/// A task so far.
struct Task {
    name: String,
    since: u64,
    what: String,
    reclaims: bool,
    spans: Vec<Span>,
}

impl Task {
    fn becomes(&mut self, at: u64, what: &str) {
        let (from, reclaims) = (self.since, self.reclaims);
        let what = std::mem::replace(&mut self.what, what.to_owned());
        self.since = at;
        if from < at && !what.is_empty() {
            self.spans.push(Span {
                from,
                to: at,
                what,
                reclaims,
            });
        }
    }

    fn reclaims(&mut self, at: u64, reclaims: bool) {
        self.becomes(at, &self.what.clone());
        self.reclaims = reclaims;
    }

    fn rows(&self) -> impl Iterator<Item = (u64, &str, &Span)> {
        self.spans
            .iter()
            .map(move |span| (span.from, self.name.as_str(), span))
    }

    fn sleeps(&self) -> bool {
        ![CPU, READY, ""].contains(&self.what.as_str())
    }
}

/// All tasks, by their number.
pub(super) struct Waits(BTreeMap<String, Task>);

impl Waits {
    /// # Errors
    /// An event has another form.
    pub(super) fn parse(trace: &Trace<'_>, end: u64) -> Result<Self> {
        let mut waits = Self(BTreeMap::new());
        for (at, line) in trace
            .lines
            .iter()
            .enumerate()
            .take_while(|(_, line)| line.time_ns <= end)
        {
            let stack = trace.stacks.get(&at).map_or(&[][..], Vec::as_slice);
            waits.take(line, stack)?;
        }
        for task in waits.0.values_mut() {
            task.becomes(end, "");
        }
        Ok(waits)
    }

    fn task(&mut self, pid: &str, name: &str) -> &mut Task {
        let task = self.0.entry(pid.to_owned()).or_insert_with(|| Task {
            name: String::new(),
            since: 0,
            what: String::new(),
            reclaims: false,
            spans: Vec::new(),
        });
        name.clone_into(&mut task.name);
        task
    }

    fn take(&mut self, line: &Line<'_>, stack: &[&str]) -> Result<()> {
        let (now, field) = (line.time_ns, |key: &str| line.field(key));
        match line.event {
            "sched_switch" => {
                let asleep = !field("prev_state")?.starts_with('R');
                let what = if asleep { cause(stack) } else { READY };
                self.task(field("prev_pid")?, field("prev_comm")?)
                    .becomes(now, what);
                self.task(field("next_pid")?, field("next_comm")?)
                    .becomes(now, CPU);
            }
            "sched_waking" => {
                let task = self.task(field("pid")?, field("comm")?);
                if task.sleeps() {
                    task.becomes(now, READY);
                }
            }
            "mm_vmscan_direct_reclaim_begin" => {
                self.task(line.pid, line.command).reclaims(now, true);
            }
            "mm_vmscan_direct_reclaim_end" => {
                self.task(line.pid, line.command).reclaims(now, false);
            }
            "mm_vmscan_throttled" => {
                let reason = field("reason")?;
                let reason = reason.strip_prefix("VMSCAN_THROTTLE_").unwrap_or(reason);
                let spans = &mut self.task(line.pid, line.command).spans;
                let slept = spans.iter_mut().rev().take(3);
                if let Some(span) = slept.into_iter().find(|span| span.what == THROTTLED) {
                    span.what = format!("{THROTTLED} {reason}");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Seconds of each task, from `zero` to the end.
    pub(super) fn whole(&self, zero: u64) -> Value {
        let mut all: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
        for task in self.0.values() {
            let sums = all.entry(&task.name).or_default();
            add(sums, &task.spans, zero, u64::MAX);
        }
        let rows = all.into_iter().map(|(name, sums)| {
            let row = sums
                .into_iter()
                .map(|(what, ns)| (what, json!(round(ms(ns) / 1e3, 1000.0))));
            (name, row.collect::<BTreeMap<_, _>>())
        });
        json!(rows.collect::<BTreeMap<_, _>>())
    }

    /// Each task's spans, moment by moment.
    pub(super) fn table(&self, zero: u64) -> String {
        let mut rows: Vec<_> = self.0.values().flat_map(Task::rows).collect();
        rows.sort_unstable_by_key(|(from, ..)| *from);
        let mut table = "t,task,what,ms\n".to_owned();
        for (from, name, span) in rows {
            let (t, ms) = (
                t(from, zero),
                record::seconds((span.to - from) * 1000, 0, 3),
            );
            let _ = writeln!(table, "{t},{name},{},{ms}", span.key());
        }
        table
    }

    /// Milliseconds of a worker's call, in the mean of all and of the late ones.
    pub(super) fn of_calls(&self, crew: &Crew<'_>) -> Value {
        let mut means = BTreeMap::new();
        for member in &crew.members {
            let name = &member.worker.name;
            let Some(task) = self.0.values().find(|task| task.name == *name) else {
                continue;
            };
            let mut calls = Vec::new();
            let mut from = 0;
            for [began, took, ..] in member.calls.iter().copied() {
                // Calls of a worker follow one another.
                from += task.spans[from..].partition_point(|span| span.to <= began);
                let mut sums = BTreeMap::new();
                add(&mut sums, &task.spans[from..], began, began + took);
                calls.push((took, sums));
            }
            calls.sort_by_key(|(took, _)| *took);
            let [low, high] = LATE.map(|at| calls.len() * at / 1000);
            let late = mean(&calls[low..high]);
            means.insert(name, json!({"all": mean(&calls), "p85_to_p95": late}));
        }
        json!(means)
    }
}

/// Adds what the spans, in order, have between two moments.
fn add(sums: &mut BTreeMap<String, u64>, spans: &[Span], from: u64, to: u64) {
    for span in spans.iter().take_while(|span| span.from < to) {
        let part = span.to.min(to).saturating_sub(span.from.max(from));
        if part > 0 {
            *sums.entry(span.key()).or_default() += part;
        }
    }
}

/// Milliseconds a call, by what they went to.
fn mean(calls: &[(u64, BTreeMap<String, u64>)]) -> BTreeMap<&str, f64> {
    let keys: BTreeSet<&str> = calls
        .iter()
        .flat_map(|(_, sums)| sums.keys())
        .map(String::as_str)
        .collect();
    let of = |key: &str| -> u64 { calls.iter().filter_map(|(_, sums)| sums.get(key)).sum() };
    keys.into_iter()
        .map(|key| (key, round(ms(of(key) / calls.len() as u64), 1000.0)))
        .collect()
}

/// The cause of the sleep of a task that stands there.
fn cause<'a>(stack: &[&'a str]) -> &'a str {
    let known = CAUSES.iter().find(|(function, _)| stack.contains(function));
    let place = stack.iter().find(|function| !MACHINERY.contains(function));
    known.map_or_else(|| place.copied().unwrap_or("asleep"), |(_, cause)| cause)
}
