//! Runs a plan: writers, sampler and changes at once, then the stream.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use guest::stream::Stream;
use guest::{Result, read, read_text};

use crate::plan::{Change, Plan, Writer};
use crate::sample::sample;

/// The samples before the writers start.
const LEAD: Duration = Duration::from_secs(1);
/// Most writes of one writer: what a device of 1 GiB/s takes in ten minutes, in writes of 1 MiB.
const WRITES_MAX: usize = 600 * 1024;
/// The mark that ties the trace's clock to ours.
const MARK: &str = "tidegate zero";

/// One `write()`.
#[derive(Clone, Copy)]
struct Written {
    began_ns: u64,
    took_ns: u64,
    bytes: u64,
}

/// A writer's work. Its file stays open: the last to close a device waits for all its writeback.
struct Done {
    written: Vec<Written>,
    _file: File,
}

/// Runs the plan in the file `path`.
///
/// # Errors
/// The plan is not one, a file is not there, or a write fails.
pub(crate) fn run(path: &str) -> Result<()> {
    let plan = Arc::new(Plan::parse(&read_text(path)?)?);

    let base = Instant::now();
    let end = LEAD + plan.length;
    plan.common.switch_trace(true)?;
    let mark_ns = mark(&plan, base)?;
    let sampler = start("sampler", {
        let plan = Arc::clone(&plan);
        move || sample(&plan, base, end)
    })?;
    let changer = start("changer", {
        let plan = Arc::clone(&plan);
        move || change(&plan.changes, base)
    })?;
    let writers = plan.writers.iter().enumerate().map(|(number, writer)| {
        let writer = writer.clone();
        start(&format!("w{number}"), move || write(&writer, base, end))
    });
    let writers = writers.collect::<Result<Vec<_>>>()?;

    let done = writers.into_iter().map(join).collect::<Result<Vec<_>>>()?;
    plan.common.switch_trace(false)?;
    join(changer)?;
    let samples = join(sampler)?;
    println!("virtual {} done", base.elapsed().as_secs());

    // Opened only now: the host answers this in its own time, and what is measured must not know
    // it.
    let mut stream = Stream::open(&plan.common.out)?;
    stream.send("mark", mark_ns.to_string().as_bytes())?;
    stream.send("writes", table(&done).as_bytes())?;
    stream.send("vmstat", samples.vmstat()?.as_bytes())?;
    stream.send("device", samples.devices()?.as_bytes())?;
    let trace = [("trace", "trace"), ("lost", "per_cpu/cpu0/stats")]
        .map(|(name, file)| (name.to_owned(), format!("{}/{file}", plan.common.tracing)));
    for (name, path) in trace.iter().chain(&plan.common.attached) {
        stream.send(name, &read(path)?)?;
    }
    stream.finish()
}

fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<JoinHandle<Result<T>>> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| format!("thread {name}: {error}"))
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    let name = thread.thread().name().unwrap_or("thread").to_owned();
    thread
        .join()
        .map_err(|_| format!("{name} panicked"))?
        .map_err(|problem| format!("{name}: {problem}"))
}

/// Puts the mark into the trace, and answers when that was, in nanoseconds from `base`.
fn mark(plan: &Plan, base: Instant) -> Result<u128> {
    let path = format!("{}/trace_marker", plan.common.tracing);
    let mut file = File::options()
        .write(true)
        .open(&path)
        .map_err(|error| format!("{path}: {error}"))?;
    let before = base.elapsed().as_nanos();
    file.write_all(MARK.as_bytes())
        .map_err(|error| format!("{path}: {error}"))?;
    let after = base.elapsed().as_nanos();
    Ok(before.midpoint(after))
}

fn sleep_until(base: Instant, at: Duration) {
    thread::sleep(at.saturating_sub(base.elapsed()));
}

/// Writes until `end`, and answers each `write()`.
fn write(writer: &Writer, base: Instant, end: Duration) -> Result<Done> {
    let said = |error| format!("{}: {error}", writer.path);
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&writer.path)
        .map_err(said)?;
    file.seek(SeekFrom::Start(writer.offset)).map_err(said)?;
    // Both touched here, so that no write pays for a fault.
    let data = vec![0x5a_u8; writer.bytes];
    let nothing = Written {
        began_ns: 1,
        took_ns: 1,
        bytes: 1,
    };
    let mut written = vec![nothing; expected(writer, end)];
    written.clear();

    sleep_until(base, LEAD + writer.start);
    loop {
        let began = base.elapsed();
        if began >= end || written.len() == WRITES_MAX {
            break;
        }
        let bytes = file.write(&data).map_err(said)?;
        let took = base.elapsed().saturating_sub(began);
        if bytes == 0 {
            return Err(format!("{}: takes no more", writer.path));
        }
        written.push(Written {
            began_ns: nanos(began),
            took_ns: nanos(took),
            bytes: bytes as u64,
        });
        if !writer.sleep.is_zero() {
            thread::sleep(writer.sleep);
        }
    }
    Ok(Done {
        written,
        _file: file,
    })
}

/// Room for the writes of a writer: what it can do between its sleeps, or at 256 MiB/s.
fn expected(writer: &Writer, end: Duration) -> usize {
    let per_write = if writer.sleep.is_zero() {
        Duration::from_nanos(writer.bytes as u64 * 4)
    } else {
        writer.sleep
    };
    let count = end.as_nanos() / per_write.as_nanos().max(1) + 1;
    usize::try_from(count).map_or(WRITES_MAX, |count| count.min(WRITES_MAX))
}

fn change(changes: &[Change], base: Instant) -> Result<()> {
    for change in changes {
        sleep_until(base, LEAD + change.at);
        let typed = change.command.join(" ");
        let status = Command::new(&change.command[0])
            .args(&change.command[1..])
            .status()
            .map_err(|error| format!("{typed}: {error}"))?;
        if !status.success() {
            return Err(format!("{typed}: {status}"));
        }
    }
    Ok(())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn table(done: &[Done]) -> String {
    let mut table = "writer,began_ns,took_ns,bytes\n".to_owned();
    for (writer, done) in done.iter().enumerate() {
        for one in &done.written {
            let Written {
                began_ns,
                took_ns,
                bytes,
            } = one;
            let _ = writeln!(table, "{writer},{began_ns},{took_ns},{bytes}");
        }
    }
    table
}
