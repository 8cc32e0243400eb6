//! Runs a plan: starts the workers, samples, ends them, hands out what was seen.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use guest::stream::Stream;
use guest::{Result, read, read_text};

use crate::MIB;
use crate::plan::{Plan, Worker};
use crate::series::{Kept, Scratch, Series};
use crate::system::{self, Ended, Locked, Process};
use crate::work::Log;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// The samples before the workers start.
const LEAD: u64 = SECOND;
/// Most bytes of a row of the workers' table, for each of its columns.
const COLUMN_MAX: usize = 21;
/// Part of the trace that is read at once.
const TRACE_PART: usize = MIB;
/// Threads of the kernel whose CPU time is kept.
const THREADS: [&str; 5] = ["kswapd", "kcompactd", "khugepaged", "jbd2", "kworker"];

/// Runs the plan in the file `path`, and turns the machine off.
///
/// # Errors
/// The plan is not one, a file is not there, or something that is kept has no room.
pub(crate) fn run(path: &str) -> Result<()> {
    let plan = Plan::parse(&read_text(path)?)?;
    println!("guest-load: {} workers", plan.workers.len());
    let mut crew = Crew::new(&plan.workers)?;
    let mut sampler = Sampler::new(&plan)?;
    system::lock_memory(Locked::Always)?;

    let before = threads()?;
    // On a whole second, so that what came before does not move the grid.
    let base = (system::now() / SECOND + 1) * SECOND;
    let zero = base + LEAD;
    crew.start(zero)?;
    system::go_first()?;
    system::sleep_until(base - MS);
    plan.common.switch_trace(true)?;
    sampler.sample(&plan, base, &mut crew)?;
    plan.common.switch_trace(false)?;
    let after = threads()?;
    crew.end()?;

    // Opened only now: the host answers this in its own time, and what is measured must not know
    // it.
    let mut stream = Stream::open(&plan.common.out)?;
    let late = sampler.late;
    // A call that is still under way is so until the last sample, not until somebody looked.
    let end = zero + plan.seconds * SECOND;
    let times = format!("base={base}\nzero={zero}\nend={end}\nlate={late}\n");
    stream.send("times", times.as_bytes())?;
    for series in &sampler.series {
        stream.send(&format!("series.{}", series.name), series.kept.text())?;
    }
    stream.send("work", sampler.work.text())?;
    for member in &crew.0 {
        member.hand_out(&mut stream)?;
    }
    stream.send("threads.before", before.as_bytes())?;
    stream.send("threads.after", after.as_bytes())?;
    for (name, path) in &plan.common.attached {
        stream.send(name, &read(path)?)?;
    }
    hand_out_trace(&plan, &mut stream)?;
    stream.finish()?;
    println!("virtual end");
    // The console's last byte leaves before the machine does.
    system::sleep(50 * MS);
    system::power_off()
}

/// Writes every block of a disk once, so that it owns all its memory and takes none later.
///
/// # Errors
/// The disk is not there, or smaller.
pub(crate) fn prefill(path: &str, mib: &str) -> Result<()> {
    let said = |error| format!("{path}: {error}");
    let mib: u64 = mib.parse().map_err(|_| format!("'{mib}' is no number"))?;
    let file = File::options()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .map_err(said)?;
    let block = system::own_bytes(MIB)?;
    for number in 0..mib {
        file.write_all_at(block, number * MIB as u64)
            .map_err(said)?;
    }
    Ok(())
}

/// The workers, and what became of each.
struct Crew<'a>(Vec<Member<'a>>);

struct Member<'a> {
    worker: &'a Worker,
    log: Log,
    process: Option<Process>,
    /// It ended before it was ended.
    early: bool,
    ended: Option<Ended>,
}

impl<'a> Crew<'a> {
    fn new(workers: &'a [Worker]) -> Result<Self> {
        let member = |worker: &'a Worker| {
            Ok(Member {
                worker,
                log: Log::new(worker.calls_max)?,
                process: None,
                early: false,
                ended: None,
            })
        };
        workers.iter().map(member).collect::<Result<_>>().map(Self)
    }

    fn start(&mut self, zero: u64) -> Result<()> {
        for member in &mut self.0 {
            let (worker, log) = (member.worker, member.log);
            let body = || match work(worker, &log, zero) {
                Ok(never) => match never {},
                Err(problem) => {
                    println!("worker {}: {problem}", worker.name);
                    1
                }
            };
            member.process = Some(Process::start(body)?);
        }
        Ok(())
    }

    /// Notes who ended on their own: they failed, or the kernel ended them.
    fn look(&mut self) {
        while let Some((process, ended)) = system::ended_child() {
            for member in &mut self.0 {
                if member.process == Some(process) {
                    member.early = true;
                    member.ended = Some(ended);
                    let (name, status) = (&member.worker.name, ended.status);
                    println!("worker {name} ended early with status {status}");
                }
            }
        }
    }

    /// Ends those that still run.
    fn end(&mut self) -> Result<()> {
        let running = |member: &&mut Member<'_>| member.ended.is_none();
        for member in self.0.iter_mut().filter(running) {
            member.process.iter().for_each(|process| process.kill());
        }
        for member in self.0.iter_mut().filter(running) {
            if let Some(process) = member.process {
                member.ended = Some(process.wait()?);
            }
        }
        Ok(())
    }
}

/// The work of a worker's process.
fn work(worker: &Worker, log: &Log, zero: u64) -> Result<std::convert::Infallible> {
    system::name(&worker.name)?;
    let mut ready = (worker.kind.prepare)(&worker.arguments)?;
    system::lock_memory(Locked::Now)?;
    system::sleep_until(zero + worker.start_ms * MS);
    let done = ready.run(log)?;
    log.finish(done);
    // A file that it holds stays open: the last to close a disk waits for all its writeback.
    system::pause()
}

impl Member<'_> {
    fn hand_out(&self, stream: &mut Stream) -> Result<()> {
        let name = &self.worker.name;
        let mut calls = String::new();
        for [began, took, count, extra] in self.log.calls() {
            let _ = writeln!(calls, "{began},{took},{count},{extra}");
        }
        stream.send(&format!("samples.{name}"), calls.as_bytes())?;
        let [work, begun, lost, done] = self.log.state();
        let ended = self.ended.ok_or_else(|| format!("{name} did not end"))?;
        let Ended {
            status,
            user_us,
            system_us,
            minor_faults,
            major_faults,
            yielded,
            preempted,
            resident_kib_max,
        } = ended;
        let early = u8::from(self.early);
        let state = format!(
            "work={work}\nbegun={begun}\nlost={lost}\ndone={done}\nstatus={status}\nearly={early}\nuser_us={user_us}\n\
             system_us={system_us}\nminflt={minor_faults}\nmajflt={major_faults}\nnvcsw={yielded}\nnivcsw={preempted}\n\
             maxrss_kib={resident_kib_max}\n"
        );
        stream.send(&format!("worker.{name}"), state.as_bytes())
    }
}

/// All series, and what each worker has done.
struct Sampler {
    series: Vec<Series>,
    scratch: Scratch,
    work: Kept,
    /// The latest that a sample was, in ns.
    late: u64,
}

impl Sampler {
    fn new(plan: &Plan) -> Result<Self> {
        let series = plan.series.iter().map(Series::open);
        let rows = usize::try_from(samples(plan)).map_err(|_| "too many samples".to_owned())? + 1;
        Ok(Self {
            series: series.collect::<Result<_>>()?,
            scratch: Scratch::new()?,
            work: Kept::new(rows * (plan.workers.len() + 1) * COLUMN_MAX)?,
            late: 0,
        })
    }

    /// Samples from `base` to the end of the run.
    fn sample(&mut self, plan: &Plan, base: u64, crew: &mut Crew<'_>) -> Result<()> {
        let period = plan.sample_ms * MS;
        let mut second = 0;
        for number in 0..=samples(plan) {
            let at = base + number * period;
            system::sleep_until(at);
            let time = system::now();
            self.late = self.late.max(time - at);
            for series in &mut self.series {
                series.sample(number, time, &mut self.scratch)?;
            }
            let added = self.work.add(|row| {
                write!(row, "{time}")?;
                for member in &crew.0 {
                    write!(row, ",{}", member.log.work())?;
                }
                row.write_all(b"\n")
            });
            if !added {
                return Err("no room for what the workers have done".to_owned());
            }
            if number * period / SECOND >= second {
                println!("virtual {second}");
                second += 1;
            }
            crew.look();
        }
        Ok(())
    }
}

/// Number of the last sample.
fn samples(plan: &Plan) -> u64 {
    (plan.seconds * SECOND + LEAD) / (plan.sample_ms * MS)
}

/// In parts, so that it needs no memory of its size.
fn hand_out_trace(plan: &Plan, stream: &mut Stream) -> Result<()> {
    let path = format!("{}/trace", plan.common.tracing);
    let said = |error| format!("{path}: {error}");
    let mut file = File::open(&path).map_err(said)?;
    let mut part = Vec::with_capacity(TRACE_PART);
    for number in 0.. {
        part.clear();
        let limit = TRACE_PART as u64;
        (&mut file)
            .take(limit)
            .read_to_end(&mut part)
            .map_err(said)?;
        if part.is_empty() {
            break;
        }
        stream.send(&format!("trace.{number:04}"), &part)?;
    }
    Ok(())
}

/// CPU time of the kernel's threads that matter: `pid,name,user,system`, in ticks of 10 ms.
fn threads() -> Result<String> {
    let folder = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let mut pids: Vec<u32> = folder
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let mut rows = String::new();
    for pid in pids {
        // A process that has ended by now does not matter.
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let (name, user, system) =
            thread(&text).ok_or_else(|| format!("/proc/{pid}/stat: '{text}'"))?;
        if THREADS.iter().any(|thread| name.starts_with(thread)) {
            let _ = writeln!(rows, "{pid},{name},{user},{system}");
        }
    }
    Ok(rows)
}

/// Name, user and system time of a line of `/proc/PID/stat`.
fn thread(line: &str) -> Option<(&str, u64, u64)> {
    let (_, rest) = line.split_once('(')?;
    // A name may hold brackets and blanks.
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user = fields.next()?.parse().ok()?;
    Some((name, user, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_time_is_found_behind_any_name() {
        let line = "7 (kworker/u4:1-a) b) I 2 0 0 0 -1 69238880 0 0 0 0 3 41 0 0 20 0 1";
        assert_eq!(thread(line), Some(("kworker/u4:1-a) b", 3, 41)));
        assert_eq!(thread("7 (kswapd0) S 2 0"), None);
        assert!(threads().is_ok());
    }
}
