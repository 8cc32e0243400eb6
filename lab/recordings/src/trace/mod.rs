//! A recording from the text of a trace: what happened is in it, under what mostly too, and the
//! rest has to be said.
//!
//! | needed | taken from |
//! |---|---|
//! | pauses | `balance_dirty_pages` |
//! | limits | `global_dirty_state` (thresh, bg_thresh); else `limit` and `setpoint`: freerun = 2 setpoint - limit is half of both limits |
//! | level | `global_dirty_state`; else `dirty` of `balance_dirty_pages` (dirty and writeback together) |
//! | rates | `awrite_bw` of `bdi_dirty_ratelimit`; else `written` of `global_dirty_state`, with one device |
//! | writers | the tasks that `balance_dirty_pages` names; light is who writes a tenth of the heaviest |
//! | throughput, calls | `sys_enter_write`, `sys_exit_write`; else `dirtied` |
//! | HZ | the grid that pauses and periods are on |
//!
//! An inference is a note; a setting that cannot be inferred is asked for (`--given`).
//!
//! Source: mechanisms 5.7 (fields and units), 5.6 (set point, freerun).

mod infer;
mod lines;

use std::collections::BTreeMap;
use std::path::Path;

use self::lines::{Kind, Line};
use super::change::Change;
use super::fault::{Fault, Place};
use super::recording::Recording;
use super::rows;

/// Events that are read.
const BALANCE: &str = "balance_dirty_pages";
const RATELIMIT: &str = "bdi_dirty_ratelimit";
const STATE: &str = "global_dirty_state";

/// A line of `balance_dirty_pages`: pages, KiB/s, ms.
#[derive(Clone, Debug, Default)]
struct Balance {
    at: f64,
    pid: u32,
    bdi: String,
    limit: f64,
    setpoint: f64,
    dirty: f64,
    wb_dirty: f64,
    dirty_ratelimit: f64,
    task_ratelimit: f64,
    dirtied: f64,
    paused: f64,
    pause: f64,
    period: f64,
}

/// A line of `bdi_dirty_ratelimit`: KiB/s.
#[derive(Clone, Debug)]
struct Rate {
    bdi: String,
    awrite_bw: f64,
}

/// A line of `global_dirty_state`: pages.
#[derive(Clone, Copy, Debug)]
struct State {
    at: f64,
    dirty: f64,
    writeback: f64,
    background: f64,
    thresh: f64,
    dirtied: f64,
    written: f64,
}

/// One `write()`.
#[derive(Clone, Copy, Debug)]
struct Call {
    pid: u32,
    at: f64,
    took: f64,
    bytes: f64,
}

/// Everything of a trace that matters here, in its order.
#[derive(Debug, Default)]
struct Events {
    balances: Vec<Balance>,
    rates: Vec<Rate>,
    states: Vec<State>,
    calls: Vec<Call>,
    /// First and last moment of each task in any of these events.
    seen: BTreeMap<u32, (f64, f64)>,
    comms: BTreeMap<u32, String>,
    cpus: u32,
    notes: Vec<String>,
}

/// Reads a trace. `given` states parameters, `fill` those that it does not tell.
///
/// # Errors
/// The mistake, or what it does not tell.
pub(super) fn load(path: &Path, given: &[Change], fill: &[Change]) -> Result<Recording, Fault> {
    let text = rows::text(path)?;
    let events = Reader::new(path, &text).read()?;
    infer::recording(path, &events, given, fill)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    events: Events,
    /// Calls that have begun: when, and how many bytes.
    open: BTreeMap<u32, (f64, f64)>,
    torn: Vec<String>,
    lost: (u64, u64),
    /// Calls of which the begin or the end is missing, or overlaps with the next one's.
    halves: usize,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, text: &'a str) -> Self {
        Self {
            path,
            text,
            events: Events::default(),
            open: BTreeMap::new(),
            torn: Vec::new(),
            lost: (0, 0),
            halves: 0,
        }
    }

    fn read(mut self) -> Result<Events, Fault> {
        if self.text.trim().is_empty() {
            return Err(Fault::of(self.path, "is empty", FORMS));
        }
        let last = self.text.lines().count();
        let whole_end = self.text.ends_with('\n');
        let mut any = false;
        for (number, text) in (1..).zip(self.text.lines()) {
            if number == last && !whole_end && any {
                // Nobody can tell if a number at its end is complete.
                self.torn.push(number.to_string());
                continue;
            }
            match lines::read(number, text) {
                Kind::Event(line) => {
                    let at_an_end = !any || number == last;
                    any = true;
                    match self.take(&line) {
                        Err(_) if at_an_end => self.torn.push(number.to_string()),
                        taken => taken?,
                    }
                }
                Kind::Lost(events) => self.lost = (self.lost.0 + 1, self.lost.1 + events),
                Kind::Cpus(cpus) => self.events.cpus = self.events.cpus.max(cpus),
                Kind::Other if is_cut(text) && (!any || number == last) => {
                    self.torn.push(number.to_string());
                }
                Kind::Other if is_cut(text) => {
                    return Err(Fault::of(self.path, "a line that is cut off", FORMS)
                        .at(Place::whole(number, text)));
                }
                Kind::Other => {}
            }
        }
        if !any {
            let first = self.text.lines().next().unwrap_or("");
            let fault = Fault::of(self.path, "holds no line of a trace", FORMS);
            return Err(fault.at(Place::whole(1, first)));
        }
        self.say();
        Ok(self.events)
    }

    /// Says what the reader did not like.
    fn say(&mut self) {
        let (times, lost) = self.lost;
        if times > 0 {
            self.events.notes.push(format!(
                "the tracer lost events {times} times ({lost} and more): counts and sums are too low; \
                 record with a larger buffer"
            ));
        }
        let halves = self.halves;
        if halves > 0 {
            self.events.notes.push(format!(
                "{halves} write() calls are left out, as the next one of their task begins before they end: rates and \
                 lengths of calls are of the others"
            ));
        }
        if !self.torn.is_empty() {
            self.events.notes.push(format!(
                "cut-off lines left out: {} (line {})",
                self.torn.len(),
                self.torn.join(", ")
            ));
        }
    }

    fn take(&mut self, line: &Line<'a>) -> Result<(), Fault> {
        let cpus = line.cpu.map_or(0, |cpu| cpu.saturating_add(1));
        self.events.cpus = self.events.cpus.max(cpus);
        match line.event {
            BALANCE => self.balance(line)?,
            RATELIMIT => {
                let awrite_bw = self.number(line, "awrite_bw", "")?;
                self.events.rates.push(Rate {
                    bdi: line.bdi().to_owned(),
                    awrite_bw,
                });
            }
            STATE => {
                let state = State {
                    at: line.at,
                    dirty: self.number(line, "dirty", "nr_dirty")?,
                    writeback: self.number(line, "writeback", "nr_writeback")?,
                    background: self.number(line, "bg_thresh", "background_thresh")?,
                    thresh: self.number(line, "thresh", "dirty_thresh")?,
                    dirtied: self.number(line, "dirtied", "nr_dirtied")?,
                    written: self.number(line, "written", "nr_written")?,
                };
                self.in_order(line, self.events.states.last().map(|state| state.at))?;
                self.events.states.push(state);
            }
            "sys_enter_write" | "sys_write" | "sys_exit_write" => self.call(line),
            _ => return Ok(()),
        }
        let seen = self.events.seen.entry(line.pid);
        seen.or_insert((line.at, line.at)).1 = line.at;
        Ok(())
    }

    fn balance(&mut self, line: &Line<'a>) -> Result<(), Fault> {
        let balance = Balance {
            at: line.at,
            pid: line.pid,
            bdi: line.bdi().to_owned(),
            limit: self.number(line, "limit", "")?,
            setpoint: self.number(line, "setpoint", "")?,
            dirty: self.number(line, "dirty", "")?,
            wb_dirty: self.number(line, "wb_dirty", "bdi_dirty")?,
            dirty_ratelimit: self.number(line, "dirty_ratelimit", "")?,
            task_ratelimit: self.number(line, "task_ratelimit", "")?,
            dirtied: self.number(line, "dirtied", "")?,
            paused: self.number(line, "paused", "")?,
            pause: self.number(line, "pause", "")?,
            // 3.2 has none.
            period: self.number(line, "period", "").unwrap_or(0.0),
        };
        let before = self.events.seen.get(&line.pid).map(|(_, last)| *last);
        self.in_order(line, before)?;
        let comm = self.events.comms.entry(line.pid);
        comm.or_insert_with(|| line.comm.to_owned());
        self.events.balances.push(balance);
        Ok(())
    }

    /// A `write()` begins or ends; a call that began before the trace is left out.
    fn call(&mut self, line: &Line<'a>) {
        let rest = line.rest.trim();
        let is_end = line.event == "sys_exit_write" || rest.starts_with("->");
        if is_end {
            let bytes = rest.trim_start_matches("->").trim();
            if let (Some((at, _)), Some(bytes)) = (self.open.remove(&line.pid), whole(bytes))
                && bytes > 0.0
            {
                self.events.calls.push(Call {
                    pid: line.pid,
                    at,
                    took: (line.at - at).max(0.0),
                    bytes,
                });
            }
            return;
        }
        let count = rest.split("count:").nth(1).unwrap_or("");
        let count = count.trim().trim_end_matches(')');
        // ftrace prints it in hexadecimal without a prefix.
        let bytes = whole(count)
            .filter(|_| count.starts_with("0x"))
            .or_else(|| u32::from_str_radix(count, 16).ok().map(f64::from));
        let open = self.open.insert(line.pid, (line.at, bytes.unwrap_or(0.0)));
        self.halves += usize::from(open.is_some());
    }

    fn number(&self, line: &Line<'a>, key: &str, or: &str) -> Result<f64, Fault> {
        let field = line
            .field(key)
            .or_else(|| line.field(or).filter(|_| !or.is_empty()));
        let Some(field) = field else {
            return Err(Fault::of(
                self.path,
                format!("{} without `{key}=`", line.event),
                format!("a line of {} has {}", line.event, fields(line.event)),
            )
            .at(Place::whole(line.number, line.text)));
        };
        field
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite())
            .ok_or_else(|| {
                let start = field.as_ptr() as usize - line.text.as_ptr() as usize;
                Fault::of(
                    self.path,
                    format!("`{key}` is not a number: `{field}`"),
                    format!(
                        "`{key}` takes a number; a line of {} has {}",
                        line.event,
                        fields(line.event)
                    ),
                )
                .at(Place::new(
                    line.number,
                    line.text,
                    start..start + field.len(),
                ))
            })
    }

    fn in_order(&self, line: &Line<'a>, before: Option<f64>) -> Result<(), Fault> {
        match before {
            Some(before) if line.at < before => Err(Fault::of(
                self.path,
                format!("time goes backwards: {} after {before}", line.at),
                "lines must be in the order of time (`perf script` and `trace-cmd report` sort them)",
            )
            .at(Place::whole(line.number, line.text))),
            _ => Ok(()),
        }
    }
}

/// The forms that are read.
const FORMS: &str = "give the text of /sys/kernel/tracing/trace, of `perf script` or of `trace-cmd \
                     report` with writeback:balance_dirty_pages, writeback:bdi_dirty_ratelimit and \
                     writeback:global_dirty_state (and, if you like, syscalls:sys_enter_write and \
                     sys_exit_write), or a folder of tables";

fn fields(event: &str) -> &'static str {
    match event {
        BALANCE => {
            "limit, setpoint, dirty, wb_dirty (or bdi_dirty), dirty_ratelimit, task_ratelimit, dirtied, \
             paused, pause (pages, KiB/s, ms)"
        }
        RATELIMIT => "awrite_bw (KiB/s)",
        _ => "dirty, writeback, bg_thresh, thresh, dirtied, written (pages)",
    }
}

/// A line that names one of our events but is none.
fn is_cut(text: &str) -> bool {
    let parts = [
        BALANCE,
        RATELIMIT,
        STATE,
        "task_ratelimit=",
        "awrite_bw=",
        "bg_thresh=",
    ];
    !text.starts_with('#') && parts.iter().any(|part| text.contains(part))
}

/// A number with or without 0x.
fn whole(text: &str) -> Option<f64> {
    let word = text
        .split(|c: char| c == ',' || c == ')' || c.is_whitespace())
        .next()?;
    let number = match word.strip_prefix("0x") {
        // Failures are the top of the range.
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse::<u32>().ok(),
    };
    number
        .filter(|number| *number <= i32::MAX.unsigned_abs())
        .map(f64::from)
}
