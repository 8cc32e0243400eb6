//! Lines of a trace in the text form that ftrace, `trace-cmd report` and `perf script` have in
//! common.
//!
//! ```text
//!   dd-4711    [001] .....  9087.123456: balance_dirty_pages: bdi 7:0: limit=16384 ... pause=8 ...
//!   dd-4711 [001]  9087.123456: balance_dirty_pages:  bdi 7:0: limit=16384 ...        trace-cmd
//!   dd 4711 [001]  9087.123456: writeback:balance_dirty_pages: bdi 7:0: limit=16384 ...   perf
//!   dd 4711  9087.123456: writeback:balance_dirty_pages: bdi 7:0: limit=16384 ...   perf record -p
//!   dd-4711    .....  9087.123456: balance_dirty_pages: bdi 7:0: limit=16384 ...    a CPU column that was cut out
//!   task   cpu      time        event                     fields
//! ```
//!
//! A line has a CPU in square brackets, then a time with a point and a colon behind it, then the
//! event. `perf script` leaves the CPU out where a process was recorded and not the machine
//! (without `-a`), and always writes the event's system; of ftrace's lines without their CPUs the
//! letters of the state (`d..1.`) are left. Everything before them is the task: its
//! name may hold spaces, dashes and brackets, so it is read from the right. Lines that have no such
//! form are headers, or other text, and are passed over.
//!
//! Source: mechanisms 5.7. One parser serves all of them.

/// One event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// Number of the line, from one.
    pub(super) number: usize,
    /// The line.
    pub(super) text: &'a str,
    /// The task's id.
    pub(super) pid: u32,
    /// Its name.
    pub(super) comm: &'a str,
    /// On which CPU, if it says so.
    pub(super) cpu: Option<u32>,
    /// Seconds of the trace's clock.
    pub(super) at: f64,
    /// The event's name, without its system.
    pub(super) event: &'a str,
    /// The text behind it.
    pub(super) rest: &'a str,
}

/// The kind of a line of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind<'a> {
    /// An event.
    Event(Line<'a>),
    /// The tracer lost this many events here; zero: it does not say how many.
    Lost(u64),
    /// CPUs of the machine, from a header.
    Cpus(u32),
    /// Something else.
    Other,
}

/// Reads one line.
pub(super) fn read(number: usize, text: &str) -> Kind<'_> {
    if let Some(lost) = lost(text) {
        return Kind::Lost(lost);
    }
    if let Some(cpus) = cpus(text) {
        return Kind::Cpus(cpus);
    }
    event(number, text).map_or(Kind::Other, Kind::Event)
}

/// "CPU:1 [LOST 12 EVENTS]" of ftrace, "[12 EVENTS DROPPED]" of trace-cmd, "PERF_RECORD_LOST" of
/// perf.
fn lost(text: &str) -> Option<u64> {
    let is_lost = text.contains("[LOST ") && text.contains("EVENTS]")
        || text.contains("EVENTS DROPPED]")
        || text.contains("PERF_RECORD_LOST");
    if !is_lost {
        return None;
    }
    let words = text.split(|c: char| c.is_whitespace() || c == '[' || c == ']');
    // The CPU is "CPU:1": no word of digits alone.
    let counted = words.rev().find_map(|word| word.parse().ok());
    Some(counted.unwrap_or(0))
}

/// "#P:2" of ftrace, "cpus=2" of trace-cmd.
fn cpus(text: &str) -> Option<u32> {
    let number = if text.starts_with('#') {
        text.split("#P:").nth(1)?
    } else {
        text.trim().strip_prefix("cpus=")?
    };
    number.trim().parse().ok()
}

fn event(number: usize, text: &str) -> Option<Line<'_>> {
    let ways = [has_cpu, has_system, has_state];
    let (time_at, time_end, at) = ways.into_iter().find_map(|way| time(text, way))?;
    let head = &text[..time_at];
    let (task, cpu) = match task_and_cpu(head) {
        Some((task, cpu)) => (task, Some(cpu)),
        None => (before_state(head).unwrap_or(head.trim()), None),
    };
    let (comm, pid) = pid(task)?;
    let rest = text[time_end..].trim_start();
    let (event, rest) = name(rest)?;
    Some(Line {
        number,
        text,
        pid,
        comm,
        cpu,
        at,
        event,
        rest,
    })
}

/// A CPU stands before the time.
fn has_cpu(head: &str, _: &str) -> bool {
    task_and_cpu(head).is_some()
}

/// A task stands before the time, and the event behind it has its system.
fn has_system(head: &str, rest: &str) -> bool {
    let mut names = rest.trim_start().splitn(3, ':');
    let is_name = |name: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(letter)
    };
    pid(head.trim()).is_some()
        && names.next().is_some_and(is_name)
        && names.next().is_some_and(is_name)
}

/// A task of ftrace's and the letters of its state stand before the time.
fn has_state(head: &str, _: &str) -> bool {
    before_state(head).and_then(pid).is_some()
}

/// The text before the letters of a state: interrupts off, to be rescheduled, in an interrupt,
/// depths.
///
/// # Source
/// Linux 6.12 kernel/trace/trace_output.c, trace_print_lat_fmt(): five letters, four and six in
/// others.
fn before_state(head: &str) -> Option<&str> {
    let (task, state) = head.trim().rsplit_once(char::is_whitespace)?;
    let is_state = (4..=6).contains(&state.len())
        && state.starts_with(['.', 'd', 'D', 'b', 'X'])
        && state
            .chars()
            .all(|c| ".dDbXnNpPlLBhHsSzZ#".contains(c) || c.is_ascii_hexdigit());
    is_state.then_some(task.trim())
}

/// The first word of digits, a point, digits and a colon that stands `between` two such texts:
/// beginning, end, value.
fn time(text: &str, between: fn(&str, &str) -> bool) -> Option<(usize, usize, f64)> {
    let mut from = 0;
    for word in text[from..].split_whitespace() {
        let at = from + text[from..].find(word)?;
        from = at + word.len();
        let Some(digits) = word.strip_suffix(':') else {
            continue;
        };
        let is_time = digits.contains('.')
            && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
            && digits.starts_with(|c: char| c.is_ascii_digit())
            && between(&text[..at], &text[from..]);
        if let Some(value) = digits.parse().ok().filter(|_| is_time) {
            return Some((at, from, value));
        }
    }
    None
}

/// The last "[digits]" of the head is the CPU; what stands before it is the task.
fn task_and_cpu(head: &str) -> Option<(&str, u32)> {
    let mut end = head.len();
    while let Some(open) = head[..end].rfind('[') {
        let inside = head[open + 1..].split(']').next().unwrap_or("");
        if let Ok(cpu) = inside.trim().parse() {
            return Some((head[..open].trim(), cpu));
        }
        end = open;
    }
    None
}

/// "dd-4711", "dd-4711 ( 4711)", "dd 4711" or "dd 4711/4711": name and id.
fn pid(task: &str) -> Option<(&str, u32)> {
    let task = match task.rfind('(') {
        Some(open) if task.ends_with(')') => task[..open].trim_end(),
        _ => task,
    };
    if let Some((comm, id)) = task.rsplit_once(char::is_whitespace) {
        let last = id.rsplit('/').next().unwrap_or(id);
        if let Ok(pid) = last.parse() {
            return Some((comm.trim(), pid));
        }
    }
    let (comm, id) = task.rsplit_once('-')?;
    Some((comm, id.parse().ok()?))
}

/// "balance_dirty_pages: ...", "writeback:balance_dirty_pages: ...", "sys_write(fd: ...",
/// "sys_write -> ...".
fn name(rest: &str) -> Option<(&str, &str)> {
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let (first, after) = rest.split_at(end);
    if first.is_empty() {
        return None;
    }
    let Some(after_colon) = after.strip_prefix(':') else {
        return Some((first, after));
    };
    // With a system before it.
    let is_name = after_colon.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_name && let Some((name, after)) = after_colon.split_once(':') {
        return Some((name, after));
    }
    Some((first, after_colon))
}

impl<'a> Line<'a> {
    /// The value behind `key=`.
    pub(super) fn field(&self, key: &str) -> Option<&'a str> {
        self.rest
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// "7:0" of "bdi 7:0: limit=...".
    pub(super) fn bdi(&self) -> &'a str {
        let mut words = self.rest.split_whitespace();
        match words.next() {
            Some("bdi") => words.next().unwrap_or("").trim_end_matches(':'),
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line<'_> {
        match read(1, text) {
            Kind::Event(line) => line,
            other => panic!("{other:?} of {text}"),
        }
    }

    #[test]
    fn the_three_forms_say_the_same() {
        let fields = "bdi 7:0: limit=16384 pause=-4 think=0";
        for text in [
            format!("      dd-4711    [001] .....  9087.123456: balance_dirty_pages: {fields}"),
            format!(
                "      dd-4711    (   4711) [001] d..2.  9087.123456: balance_dirty_pages: {fields}"
            ),
            format!("      dd-4711 [001]  9087.123456: balance_dirty_pages:  {fields}"),
            format!("      dd  4711 [001]  9087.123456: writeback:balance_dirty_pages: {fields}"),
            format!("dd 4711/4711 [001]  9087.123456:   writeback:balance_dirty_pages: {fields}"),
        ] {
            let line = line(&text);
            let seen = (line.comm, line.pid, line.cpu, line.at, line.event);
            assert_eq!(
                seen,
                ("dd", 4711, Some(1), 9_087.123_456, "balance_dirty_pages"),
                "{text}"
            );
            assert_eq!(
                (line.bdi(), line.field("pause")),
                ("7:0", Some("-4")),
                "{text}"
            );
        }
    }

    #[test]
    fn names_of_tasks_may_hold_anything() {
        let text = "  kworker/u8:2-fl [x] 7.5: a-77  [000] .....    12.000001: global_dirty_state: dirty=1";
        let seen = line(text);
        assert_eq!(
            (seen.pid, seen.at, seen.event),
            (77, 12.000_001, "global_dirty_state")
        );
        let text = "Web Content  901 [003]    12.5: writeback:global_dirty_state: dirty=1";
        assert_eq!((line(text).comm, line(text).pid), ("Web Content", 901));
    }

    #[test]
    fn perf_of_one_process_leaves_the_cpu_out() {
        let fields = "writeback:balance_dirty_pages: bdi 7:0: limit=16384";
        for (text, comm) in [
            (format!("dd  4711  9087.123456: {fields}"), "dd"),
            (
                format!("Web [x] 1.5: c 4711/4712 9087.123456:   {fields}"),
                "Web [x] 1.5: c",
            ),
        ] {
            let line = line(&text);
            let seen = (line.comm, line.cpu, line.at, line.event);
            assert_eq!(seen, (comm, None, 9_087.123_456, "balance_dirty_pages"));
        }
        assert_eq!(
            read(1, "dd 4711 9087.1: balance_dirty_pages: bdi"),
            Kind::Other
        );
        assert_eq!(read(1, "at 12 o'clock 9087.1: this:that: one"), Kind::Other);
    }

    #[test]
    fn columns_that_may_be_missing_are_in_every_mixture() {
        let fields = "bdi 7:0: limit=16384 pause=-4";
        let (mut read_so, mut unread) = (0, 0);
        for comm in [
            "dd",
            "kworker/u8:2-fl",
            "Web Content",
            "a [x] 1.5: b",
            "guest-writer",
        ] {
            for task in [
                format!("{comm}-4711"),
                format!("{comm}-4711    (   4711)"),
                format!("{comm}  4711"),
                format!("{comm} 4711/4712"),
            ] {
                for cpu in ["", " [003] "] {
                    for state in [
                        "", "....", ".....", "d..1.", "dNh2.", "d.s.3.", "D..a.", "bNs1",
                    ] {
                        for system in ["", "writeback:"] {
                            let text = format!(
                                " {task} {cpu} {state}  12.5: {system}balance_dirty_pages: {fields}"
                            );
                            let perf = !system.is_empty() && state.is_empty();
                            if cpu.is_empty() && !perf && state.is_empty() {
                                // A number with a point is no sign of a trace.
                                assert_eq!(read(1, &text), Kind::Other, "{text}");
                                unread += 1;
                                continue;
                            }
                            let line = line(&text);
                            let pid = if task.contains("4712") { 4712 } else { 4711 };
                            let seen = (line.comm, line.pid, line.at, line.event);
                            assert_eq!(seen, (comm, pid, 12.5, "balance_dirty_pages"), "{text}");
                            assert_eq!(line.cpu, (!cpu.is_empty()).then_some(3), "{text}");
                            assert_eq!(line.field("pause"), Some("-4"), "{text}");
                            read_so += 1;
                        }
                    }
                }
            }
        }
        assert_eq!((read_so, unread), (620, 20));
    }

    #[test]
    fn headers_and_losses() {
        let header = "# entries-in-buffer/entries-written: 3/3   #P:2";
        assert_eq!(read(1, header), Kind::Cpus(2));
        assert_eq!(read(1, "cpus=4"), Kind::Cpus(4));
        assert_eq!(read(1, "CPU:1 [LOST 1234 EVENTS]"), Kind::Lost(1234));
        assert_eq!(read(1, "CPU:0 [77 EVENTS DROPPED]"), Kind::Lost(77));
        assert_eq!(
            read(
                1,
                "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION"
            ),
            Kind::Other
        );
        assert_eq!(read(1, ""), Kind::Other);
        assert_eq!(read(1, "[[[: ]]] 1.: : -"), Kind::Other);
    }

    #[test]
    fn system_calls_of_both_tools() {
        let enter = line("dd-1 [000] .....  1.5: sys_write(fd: 1, buf: 7f00, count: 100000)");
        assert_eq!(
            (enter.event, enter.rest),
            ("sys_write", "(fd: 1, buf: 7f00, count: 100000)")
        );
        let exit = line("dd-1 [000] .....  1.5: sys_write -> 0x100000");
        assert_eq!((exit.event, exit.rest.trim()), ("sys_write", "-> 0x100000"));
        let exit = line("dd 1 [000]  1.5: syscalls:sys_exit_write: 0x100000");
        assert_eq!(
            (exit.event, exit.rest.trim()),
            ("sys_exit_write", "0x100000")
        );
    }
}
