//! From what `guest-load` handed out to the folder of a recording.
//!
//! ```text
//! scenario.toml, facts.json   what was run, on what    samples.csv   every call of a worker
//! vmstat.csv, nodeN.csv       counters, 10 a second    work.csv      what each has done by then
//! events.csv                  tracepoints, one a line  hist.*.txt    sums inside the kernel
//! buddyinfo.csv, slabinfo.csv once a second            summary.json  figures of the whole run
//! ```
//!
//! Invariants
//!   1. `t` is in seconds from the start of the workers (zero), in every table.
//!   2. Nothing is left out silently: a trace that lost entries, a call without room, a line of an
//!      unknown form, a worker that failed is an error. A worker that the kernel ended is in the
//!      summary.

mod waits;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::scenario::Told;
use super::scenarios::{Scenario, Worker};
use crate::Result;
use crate::guest::record::{self, Line, Recording, Stream};

/// Gauges of `/proc/vmstat` begin like this; the few counters that do too are listed.
const GAUGE: &str = "nr_";
const COUNTERS: [&str; 5] = [
    "nr_written",
    "nr_dirtied",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_throttled_written",
];
/// The object caches that are kept.
const CACHES: [&str; 12] = [
    "ext4_inode_cache",
    "dentry",
    "buffer_head",
    "ext4_extent_status",
    "radix_tree_node",
    "jbd2_journal_head",
    "inode_cache",
    "kmalloc-64",
    "kmalloc-rcl-64",
    "kmalloc-96",
    "vm_area_struct",
    "ext4_io_end",
];
/// Of a zone, what is kept.
const ZONE: [&str; 8] = [
    "pages free",
    "boost",
    "min",
    "low",
    "high",
    "spanned",
    "present",
    "managed",
];
/// Orders of free blocks, 0 to 10.
const ORDERS: usize = 11;
/// Units of a thread's CPU time, a second.
const TICKS: f64 = 100.0;
const KILLED: u64 = 9;

/// The figures that a test takes from a recording.
pub(in crate::guest) struct Measures {
    pub(in crate::guest) scanned: u64,
    pub(in crate::guest) swapped_out: u64,
    /// Calls of all workers.
    pub(in crate::guest) calls: usize,
}

/// Makes the tables.
///
/// # Errors
/// Something is missing, torn, or not as the scenario says.
pub(super) fn make(scenario: &Scenario, hz: u32, stream: &Stream) -> Result<(Recording, Measures)> {
    record::all_kept(stream.file("lost")?)?;
    let times = Keys::parse(stream.file("times")?)?;
    let (zero, end) = (times.number("zero")?, times.number("end")?);
    let mut files = BTreeMap::new();
    let mut summary = Map::new();
    summary.insert("name".into(), json!(scenario.name));

    let deltas = sampled(stream, zero, &mut files, &mut summary)?;

    let crew = Crew::parse(scenario, stream, end)?;
    files.insert("samples.csv".into(), crew.table(zero));
    files.insert("work.csv".into(), work(scenario, stream, zero)?);
    summary.insert("workers".into(), crew.summary(zero)?);
    summary.insert("kthread_cpu_s".into(), threads(stream)?);

    let trace: String = stream
        .names()
        .filter(|name| name.starts_with("trace."))
        .map(|name| stream.file(name))
        .collect::<Result<_>>()?;
    let trace = Trace::parse(&trace)?;
    files.insert("events.csv".into(), trace.table(zero));
    if scenario.waits_mib > 0 {
        let waits = waits::Waits::parse(&trace, end)?;
        files.insert("waits.csv".into(), waits.table(zero));
        summary.insert("waits_ms".into(), waits.of_calls(&crew));
        summary.insert("waits_s".into(), waits.whole(zero));
    }
    summary.insert("trace".into(), trace.counts());
    summary.insert("throttled".into(), trace.throttled()?);
    summary.insert("direct_reclaim_ms".into(), trace.stalls());

    for name in stream.names() {
        if name.starts_with("hist.") || name.starts_with("zoneinfo") {
            files.insert(format!("{name}.txt"), stream.file(name)?.to_owned());
        }
    }
    let facts = facts(stream, &times)?;
    let told = Told {
        scenario,
        hz,
        facts: &facts,
        tables: &files,
    };
    let text = told.text()?;
    files.insert("scenario.toml".into(), text);
    let delta = |name: &str| deltas.get(name).copied().unwrap_or(0);
    let measures = Measures {
        scanned: delta("pgscan_direct") + delta("pgscan_kswapd"),
        swapped_out: delta("pswpout"),
        calls: crew.members.iter().map(|member| member.calls.len()).sum(),
    };
    let line = format!(
        "scanned {} direct + {} kswapd, reclaimed {} + {}, swapped {} out, {} in; {}",
        delta("pgscan_direct"),
        delta("pgscan_kswapd"),
        delta("pgsteal_direct"),
        delta("pgsteal_kswapd"),
        delta("pswpout"),
        delta("pswpin"),
        crew.line(),
    );
    for (name, value) in [
        ("facts.json", &facts),
        ("summary.json", &Value::Object(summary)),
    ] {
        files.insert(name.to_owned(), format!("{value:#}\n"));
    }
    Ok((Recording::of(files, line), measures))
}

/// The tables of what was sampled, and what they come to; answers how much the counters of the
/// whole machine grew.
fn sampled(
    stream: &Stream,
    zero: u64,
    files: &mut BTreeMap<String, String>,
    summary: &mut Map<String, Value>,
) -> Result<BTreeMap<String, u64>> {
    let mut counted = BTreeMap::new();
    for name in stream
        .names()
        .filter_map(|name| name.strip_prefix("series."))
    {
        let readings = readings(stream.file(&format!("series.{name}"))?)?;
        let table = match name {
            "buddyinfo" => buddies(&readings, zero)?,
            "slabinfo" => slabs(&readings, zero)?,
            _ => {
                let counters = Counters::parse(&readings)?;
                let deltas = counters.deltas();
                summary.insert(format!("{name}_delta"), json!(deltas));
                summary.insert(format!("{name}_last"), json!(counters.last()));
                counted.insert(name.to_owned(), deltas);
                counters.table(zero)
            }
        };
        files.insert(format!("{name}.csv"), table);
    }
    counted
        .remove("vmstat")
        .ok_or_else(|| "the guest kept no vmstat".to_owned())
}

/// Seconds from zero, as every table has them.
fn t(nanos: u64, zero: u64) -> String {
    record::seconds(nanos, zero, 6)
}

#[expect(clippy::cast_precision_loss, reason = "a run is shorter than 2^53 ns")]
fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Lines of `key=value`.
struct Keys<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Keys<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let pair = |line: &'a str| {
            line.split_once('=')
                .ok_or_else(|| format!("a line that is none: '{line}'"))
        };
        text.lines().map(pair).collect::<Result<_>>().map(Self)
    }

    fn number(&self, key: &str) -> Result<u64> {
        let found = self.0.get(key).and_then(|value| value.parse().ok());
        found.ok_or_else(|| format!("the guest says no number for '{key}'"))
    }
}

/// A reading of a file at one time.
struct Reading<'a> {
    nanos: u64,
    text: &'a str,
}

/// Takes a series apart: `@ TIME LENGTH`, that many bytes, a newline.
fn readings(mut text: &str) -> Result<Vec<Reading<'_>>> {
    let torn = || "a series that is torn".to_owned();
    let mut readings = Vec::new();
    while !text.is_empty() {
        let (head, rest) = text.split_once('\n').ok_or_else(torn)?;
        let mut words = head.strip_prefix("@ ").ok_or_else(torn)?.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let nanos = number().ok_or_else(torn)?;
        let length = number().and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or_else(torn)?;
        let (body, rest) = rest.split_at_checked(length).ok_or_else(torn)?;
        text = rest.strip_prefix('\n').ok_or_else(torn)?;
        readings.push(Reading { nanos, text: body });
    }
    Ok(readings)
}

/// A series of `name value`, of which the first reading has the names.
struct Counters<'a> {
    names: Vec<&'a str>,
    rows: Vec<(u64, Vec<u64>)>,
}

impl<'a> Counters<'a> {
    fn parse(readings: &[Reading<'a>]) -> Result<Self> {
        let mut names = Vec::new();
        let mut rows = Vec::new();
        for (at, reading) in readings.iter().enumerate() {
            let mut words = reading.text.split_ascii_whitespace();
            let mut values = Vec::new();
            while let Some(word) = words.next() {
                let value = if at == 0 {
                    names.push(word);
                    words.next().unwrap_or_default()
                } else {
                    word
                };
                let value = value
                    .parse()
                    .map_err(|_| format!("a counter that is no number: '{word}' '{value}'"))?;
                values.push(value);
            }
            if values.len() != names.len() {
                let (got, wanted) = (values.len(), names.len());
                return Err(format!("{got} counters in a reading, not {wanted}"));
            }
            rows.push((reading.nanos, values));
        }
        if rows.is_empty() {
            return Err("a series without a reading".to_owned());
        }
        Ok(Self { names, rows })
    }

    fn table(&self, zero: u64) -> String {
        let mut table = format!("t,{}\n", self.names.join(","));
        for (nanos, values) in &self.rows {
            table.push_str(&t(*nanos, zero));
            for value in values {
                let _ = write!(table, ",{value}");
            }
            table.push('\n');
        }
        table
    }

    /// The growth of each counter from the first reading to the last, if there was one.
    fn deltas(&self) -> BTreeMap<String, u64> {
        let (first, last) = (&self.rows[0].1, &self.rows[self.rows.len() - 1].1);
        let both = self.names.iter().zip(first.iter().zip(last));
        both.filter(|(name, _)| !name.starts_with(GAUGE) || COUNTERS.contains(name))
            .filter(|(_, (first, last))| last > first)
            .map(|(name, (first, last))| ((*name).to_owned(), last - first))
            .collect()
    }

    /// The end of each gauge.
    fn last(&self) -> BTreeMap<&'a str, u64> {
        let last = &self.rows[self.rows.len() - 1].1;
        let all = self.names.iter().copied().zip(last.iter().copied());
        all.filter(|(name, _)| name.starts_with(GAUGE)).collect()
    }
}

/// Free blocks by order, of each zone.
fn buddies(readings: &[Reading<'_>], zero: u64) -> Result<String> {
    let mut table = "t,node,zone".to_owned();
    for order in 0..ORDERS {
        let _ = write!(table, ",order{order}");
    }
    table.push('\n');
    for reading in readings {
        for line in reading.text.lines() {
            // Node 0, zone    DMA32   1   2 ...
            let words: Vec<_> = line
                .split([' ', ','])
                .filter(|word| !word.is_empty())
                .collect();
            let [_, node, _, zone, orders @ ..] = &words[..] else {
                return Err(format!("a line of buddyinfo that is none: '{line}'"));
            };
            let (t, orders) = (t(reading.nanos, zero), orders.join(","));
            let _ = writeln!(table, "{t},{node},{zone},{orders}");
        }
    }
    Ok(table)
}

/// Object caches: name, active and all objects, size, objects and pages a slab, active and all
/// slabs.
fn slabs(readings: &[Reading<'_>], zero: u64) -> Result<String> {
    let mut table =
        "t,cache,active_objs,num_objs,objsize,objperslab,pagesperslab,active_slabs,num_slabs\n"
            .to_owned();
    for reading in readings {
        for line in reading.text.lines() {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            if !words.first().is_some_and(|name| CACHES.contains(name)) {
                continue;
            }
            let [name, active, all, size, objects, pages, ..] = words[..] else {
                return Err(format!("a line of slabinfo that is none: '{line}'"));
            };
            let slabs = line.split_once("slabdata").map(|(_, rest)| {
                let mut rest = rest.split_ascii_whitespace();
                (rest.next().unwrap_or("0"), rest.next().unwrap_or("0"))
            });
            let (active_slabs, all_slabs) =
                slabs.ok_or_else(|| format!("a line of slabinfo without slabs: '{line}'"))?;
            let t = t(reading.nanos, zero);
            let _ = writeln!(
                table,
                "{t},{name},{active},{all},{size},{objects},{pages},{active_slabs},{all_slabs}"
            );
        }
    }
    Ok(table)
}

/// A call of a worker: start, length (ns), count, another number.
type Call = [u64; 4];

/// The fate of a worker.
struct Member<'a> {
    worker: Worker,
    state: Keys<'a>,
    calls: Vec<Call>,
    /// Start and length of a call still under way at the end.
    open: Option<(u64, u64)>,
}

struct Crew<'a> {
    members: Vec<Member<'a>>,
}

impl<'a> Crew<'a> {
    fn parse(scenario: &Scenario, stream: &'a Stream, end: u64) -> Result<Self> {
        let mut members = Vec::new();
        for worker in scenario.workers() {
            let name = &worker.name;
            let state = Keys::parse(stream.file(&format!("worker.{name}"))?)?;
            let lost = state.number("lost")?;
            if lost > 0 {
                return Err(format!(
                    "{lost} calls of worker {name} had no room; run for fewer seconds"
                ));
            }
            let status = state.number("status")?;
            if status >> 8 != 0 {
                return Err(format!("worker {name} failed (status {status:#x})"));
            }
            let calls = stream.file(&format!("samples.{name}"))?;
            let call = |line: &str| -> Result<Call> {
                let numbers: Vec<u64> = line
                    .split(',')
                    .map_while(|number| number.parse().ok())
                    .collect();
                numbers
                    .try_into()
                    .map_err(|_| format!("a call that is none: '{line}'"))
            };
            let calls = calls.lines().map(call).collect::<Result<Vec<_>>>()?;
            let begun = state.number("begun")?;
            let open = (begun > 0).then(|| (begun, end.saturating_sub(begun)));
            members.push(Member {
                worker,
                state,
                calls,
                open,
            });
        }
        Ok(Self { members })
    }

    fn table(&self, zero: u64) -> String {
        let mut rows = Vec::new();
        for member in &self.members {
            let done = member.calls.iter().map(|call| (*call, 1));
            let open = member.open.map(|(began, took)| ([began, took, 0, 0], 0));
            for (call, finished) in done.chain(open) {
                rows.push((call[0], &member.worker, call, finished));
            }
        }
        rows.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
        let mut table = "t,worker,kind,ms,n,extra,finished\n".to_owned();
        for (_, worker, [began, took, count, extra], finished) in rows {
            let (t, took) = (t(began, zero), record::seconds(took * 1000, 0, 6));
            let Worker { name, kind, .. } = worker;
            let _ = writeln!(table, "{t},{name},{kind},{took},{count},{extra},{finished}");
        }
        table
    }

    fn summary(&self, zero: u64) -> Result<Value> {
        let mut all = Map::new();
        for member in &self.members {
            all.insert(member.worker.name.clone(), member.summary(zero)?);
        }
        Ok(Value::Object(all))
    }

    /// The longest calls, in words.
    fn line(&self) -> String {
        let words = self.members.iter().map(|member| {
            let lengths = member.lengths();
            let at = |per_cent: usize| figures::quantile(&lengths, 10 * per_cent).map_or(0.0, ms);
            let (name, count, longest) = (&member.worker.name, lengths.len(), lengths.last());
            let longest = ms(longest.copied().unwrap_or(0));
            format!(
                "{name} {count} calls, p50 {:.1}, p99 {:.1}, longest {longest:.0} ms",
                at(50),
                at(99)
            )
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

impl Member<'_> {
    /// Lengths of its calls in ns, the shortest first; of a round of `alloc` the whole.
    fn lengths(&self) -> Vec<u64> {
        let step = if self.is_alloc() { 3 } else { 1 };
        let mut lengths: Vec<_> = self
            .calls
            .iter()
            .step_by(step)
            .map(|call| call[1])
            .collect();
        lengths.sort_unstable();
        lengths
    }

    fn is_alloc(&self) -> bool {
        self.worker.kind == "alloc"
    }

    fn summary(&self, zero: u64) -> Result<Value> {
        let lengths = self.lengths();
        let at = |per_cent: usize| json!(figures::quantile(&lengths, 10 * per_cent).map(ms));
        let number = |key: &str| self.state.number(key);
        let milli = |key: &str| number(key).map(|micros| ms(micros * 1000));
        let mut summary = json!({
            "kind": self.worker.kind,
            "work": number("work")?,
            "calls": lengths.len(),
            "unfinished_ms": self.open.map_or(0.0, |(_, took)| ms(took)),
            "ms_mean": mean(&lengths).map(|mean| round(ms(mean), 1000.0)),
            "ms_p50": at(50),
            "ms_p90": at(90),
            "ms_p99": at(99),
            "ms_max": lengths.last().copied().map(ms),
            "user_ms": milli("user_us")?,
            "system_ms": milli("system_us")?,
            "lost": number("lost")?,
            "done": number("done")?,
            "status": number("status")?,
            "ended_early": number("early")?,
            "killed_by_kernel": number("early")? == 1 && number("status")? == KILLED,
        });
        for key in ["minflt", "majflt", "nvcsw", "nivcsw", "maxrss_kib"] {
            summary[key] = json!(number(key)?);
        }
        if self.is_alloc() {
            let rounds = self.calls.chunks_exact(3).map(|round| {
                let [whole, cpu, huge] = [round[0], round[1], round[2]];
                json!({
                    "t": t(whole[0], zero),
                    "elapsed_ms": ms(whole[1]),
                    "status": whole[3],
                    "user_ms": ms(cpu[1]),
                    "system_ms": ms(cpu[3]),
                    "thp_fault_alloc": huge[2],
                    "thp_fault_fallback": huge[3],
                })
            });
            summary["rounds"] = rounds.collect();
        }
        Ok(summary)
    }
}

fn mean(lengths: &[u64]) -> Option<u64> {
    lengths
        .iter()
        .sum::<u64>()
        .checked_div(lengths.len() as u64)
}

fn round(value: f64, unit: f64) -> f64 {
    (value * unit).round() / unit
}

/// The work of each worker, at each sample.
fn work(scenario: &Scenario, stream: &Stream, zero: u64) -> Result<String> {
    let names: Vec<_> = scenario.workers().into_iter().map(|one| one.name).collect();
    let mut table = format!("t,{}\n", names.join(","));
    for line in stream.file("work")?.lines() {
        let torn = || format!("a row of work that is none: '{line}'");
        let (nanos, rest) = line.split_once(',').ok_or_else(torn)?;
        let nanos = nanos.parse().map_err(|_| torn())?;
        let _ = writeln!(table, "{},{rest}", t(nanos, zero));
    }
    Ok(table)
}

/// CPU seconds of the kernel's threads by name, if there were any.
fn threads(stream: &Stream) -> Result<Value> {
    let mut ticks: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for (when, file) in ["threads.before", "threads.after"].into_iter().enumerate() {
        for line in stream.file(file)?.lines() {
            let torn = || format!("a thread that is none: '{line}'");
            let mut words = line.rsplitn(3, ',');
            let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
            let spent = number().zip(number()).ok_or_else(torn)?;
            let (_, name) = words
                .next()
                .and_then(|rest| rest.split_once(','))
                .ok_or_else(torn)?;
            let name = name.split('/').next().unwrap_or(name);
            ticks.entry(name.to_owned()).or_default()[when] += spent.0 + spent.1;
        }
    }
    // A thread that has ended since takes its time with it: less is none.
    let spent = ticks.into_iter().filter_map(|(name, [before, after])| {
        let spent = after.checked_sub(before).filter(|spent| *spent > 0)?;
        Some((name, json!(f64::from(spent) / TICKS)))
    });
    Ok(Value::Object(spent.collect()))
}

/// The lines of the trace.
struct Trace<'a> {
    lines: Vec<Line<'a>>,
    /// Functions, the innermost first, by the line that they belong to.
    stacks: BTreeMap<usize, Vec<&'a str>>,
}

impl<'a> Trace<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let (mut lines, mut stacks) = (Vec::new(), BTreeMap::<usize, Vec<_>>::new());
        for line in text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
        {
            if let Some(function) = line.strip_prefix(" => ") {
                let at = lines.len().checked_sub(1).ok_or("a stack of no event")?;
                stacks.entry(at).or_default().push(function);
            } else if !line.ends_with(": <stack trace>") {
                lines.push(Line::parse(line)?);
            }
        }
        Ok(Self { lines, stacks })
    }

    fn table(&self, zero: u64) -> String {
        let mut table = "t,task,pid,event,fields\n".to_owned();
        let apart = |line: &&Line<'_>| !waits::EVENTS.contains(&line.event);
        for line in self.lines.iter().filter(apart) {
            let t = t(line.time_ns, zero);
            let (task, fields) = (quoted(line.command), quoted(line.text));
            let _ = writeln!(table, "{t},{task},{},{},{fields}", line.pid, line.event);
        }
        table
    }

    fn counts(&self) -> Value {
        let mut events: BTreeMap<&str, u64> = BTreeMap::new();
        for line in &self.lines {
            *events.entry(line.event).or_default() += 1;
        }
        // Anything else than none of these was an error.
        json!({"events": events, "unknown_lines": 0, "overrun": 0, "commit_overrun": 0, "dropped": 0})
    }

    /// Waits of reclaimers, by who and why.
    fn throttled(&self) -> Result<Value> {
        let mut waits: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for line in self
            .lines
            .iter()
            .filter(|line| line.event == "mm_vmscan_throttled")
        {
            let torn = || format!("an event of another form: '{}: {}'", line.event, line.text);
            let number = |key: &str| line.field(key)?.parse::<u64>().map_err(|_| torn());
            let reason = line.field("reason")?;
            let reason = reason.strip_prefix("VMSCAN_THROTTLE_").unwrap_or(reason);
            let who = if line.command.starts_with("kswapd") {
                "kswapd"
            } else {
                "direct"
            };
            waits
                .entry(format!("{who} {reason}"))
                .or_default()
                .push((number("usec_timeout")?, number("usect_delayed")?));
        }
        let summary = waits.into_iter().map(|(key, waits)| {
            let delays: Vec<_> = waits.iter().map(|(_, delayed)| delayed * 1000).collect();
            let sum = ms(delays.iter().sum());
            let count = |which: &dyn Fn(u64, u64) -> bool| {
                waits
                    .iter()
                    .filter(|(most, was)| which(*most, *was))
                    .count()
            };
            let value = json!({
                "n": waits.len(),
                "timeout_ms": ms(waits.iter().map(|(most, _)| most * 1000).max().unwrap_or(0)),
                "zero": count(&|_, was| was == 0),
                "full": count(&|most, was| was >= most),
                "sum_ms": sum,
                "mean_ms": mean(&delays).map(|mean| round(ms(mean), 100.0)),
            });
            (key, value)
        });
        Ok(Value::Object(summary.collect()))
    }

    /// Direct reclaims, by task.
    fn stalls(&self) -> Value {
        let mut begun = BTreeMap::new();
        let mut stalls: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for line in &self.lines {
            match line.event {
                "mm_vmscan_direct_reclaim_begin" => {
                    begun.insert(line.pid, line.time_ns);
                }
                "mm_vmscan_direct_reclaim_end" => {
                    // An event that began before the trace did has no begin.
                    if let Some(began) = begun.remove(line.pid) {
                        let lengths = stalls.entry(line.command).or_default();
                        lengths.push(line.time_ns - began);
                    }
                }
                _ => {}
            }
        }
        let summary = stalls.into_iter().map(|(task, mut lengths)| {
            lengths.sort_unstable();
            let at = |per_cent: usize| figures::quantile(&lengths, 10 * per_cent).map(ms);
            let value = json!({
                "n": lengths.len(),
                "sum": round(ms(lengths.iter().sum()), 10.0),
                "p50": at(50),
                "p99": at(99),
                "max": lengths.last().copied().map(ms),
            });
            (task.to_owned(), value)
        });
        Value::Object(summary.collect())
    }
}

/// A field of a table, in quotes where it needs them.
fn quoted(field: &str) -> String {
    if field.contains([',', '"']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// `facts.json`: what the guest says of itself.
fn facts(stream: &Stream, times: &Keys<'_>) -> Result<Value> {
    let mut facts: BTreeMap<String, Value> = BTreeMap::new();
    for line in stream.file("facts")?.lines() {
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| format!("a fact that is none: '{line}'"))?;
        let value = match facts.get(key).and_then(Value::as_str) {
            Some(before) => format!("{before}; {value}"),
            None => value.to_owned(),
        };
        facts.insert(key.to_owned(), json!(value));
    }
    for line in stream.file("meminfo")?.lines() {
        let torn = || format!("a line of meminfo that is none: '{line}'");
        let (key, value) = line.split_once(':').ok_or_else(torn)?;
        let value = value.split_ascii_whitespace().next().ok_or_else(torn)?;
        let value: u64 = value.parse().map_err(|_| torn())?;
        facts.insert(format!("meminfo_kib.{key}"), json!(value));
    }
    facts.insert("zones_pages".into(), zones(stream.file("zoneinfo")?));
    let late = ms(times.number("late")?);
    facts.insert("sampler_latest_ms".into(), json!(late));
    if !facts.contains_key("kernel") {
        return Err("the guest does not say what kernel it is".to_owned());
    }
    Ok(json!(facts))
}

/// Watermarks and sizes, by zone.
fn zones(text: &str) -> Value {
    let mut zones = Map::new();
    let mut zone = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let name = rest.replace(", zone", ".");
            let name: String = name.split_ascii_whitespace().collect();
            let name = format!("node{name}");
            zones.insert(name.clone(), json!({}));
            zone = Some(name);
            continue;
        }
        let Some((key, value)) = line.trim().rsplit_once(' ') else {
            continue;
        };
        let (key, value) = (key.trim(), value.parse::<u64>());
        if let (Some(zone), Ok(value)) = (&zone, value)
            && ZONE.contains(&key)
        {
            zones[zone][key] = json!(value);
        }
    }
    Value::Object(zones)
}

#[cfg(test)]
mod tests;
