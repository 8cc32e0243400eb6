//! Steps: commands that are run one after the other, each with its time and an end.
//!
//! A step passes, fails or is skipped; a skipped one says why. All steps are run whatever comes of
//! those before them, and the summary names every one.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Result;

/// The interval at which a running command is looked at.
pub const POLL: Duration = Duration::from_millis(50);

/// The exit status of a command that was skipped, as other tools have it.
pub const SKIPPED: u8 = 77;

/// The user wants no more of it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt ends the command that runs, with all its children, and no other begins.
///
/// # Errors
/// The system does not let signals be caught.
pub fn stop_at_interrupt() -> Result<()> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .map_err(|error| format!("interrupts cannot be caught: {error}"))
}

/// True if there was an interrupt.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The end of a step.
pub enum End {
    /// All of it.
    Passed,
    /// And how.
    Failed(String),
    /// And why.
    Skipped(String),
}

impl From<Result<()>> for End {
    fn from(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(problem) => Self::Failed(problem),
        }
    }
}

/// The steps run so far.
pub struct Steps {
    title: &'static str,
    began: Instant,
    done: Vec<Done>,
}

/// A step that was run.
struct Done {
    name: String,
    end: End,
    took: Duration,
    /// Time of all CPUs that its commands took.
    cpu: Duration,
}

impl Steps {
    /// None yet, of the command so named.
    pub fn new(title: &'static str) -> Self {
        Self {
            title,
            began: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs a step and notes how it ended.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> End) {
        if is_interrupted() {
            return;
        }
        println!("\n==> {name}");
        let (began, before) = (Instant::now(), of_children());
        let end = step();
        let took = began.elapsed();
        let cpu = of_children().saturating_sub(before);
        match &end {
            End::Passed => println!(
                "<== {name}: passed in {}, {} of CPU",
                seconds(took),
                seconds(cpu)
            ),
            End::Failed(problem) => println!("<== {name}: FAILED in {}: {problem}", seconds(took)),
            End::Skipped(why) => println!("<== {name}: SKIPPED: {why}"),
        }
        self.done.push(Done {
            name: name.to_owned(),
            end,
            took,
            cpu,
        });
    }

    /// Prints the summary; the error counts the steps that failed.
    ///
    /// # Errors
    /// A step failed, or an interrupt left some out.
    pub fn finish(self) -> Result<()> {
        println!("\n==> summary of {}", self.title);
        let (mut passed, mut failed, mut skipped) = (0_u32, 0_u32, 0_u32);
        for Done {
            name,
            end,
            took,
            cpu,
        } in &self.done
        {
            let (counter, word, why) = match end {
                End::Passed => (&mut passed, "passed", ""),
                End::Failed(why) => (&mut failed, "FAILED", why.as_str()),
                End::Skipped(why) => (&mut skipped, "SKIPPED", why.as_str()),
            };
            *counter += 1;
            let why = why
                .lines()
                .next()
                .map(|line| format!(": {line}"))
                .unwrap_or_default();
            let (took, cpu) = (seconds(*took), seconds(*cpu));
            println!("{word:<8} {took:>8} {cpu:>8} CPU  {name}{why}");
        }
        let total = seconds(self.began.elapsed());
        let cpu = seconds(self.done.iter().map(|step| step.cpu).sum());
        let title = self.title;
        println!(
            "{title}: {passed} steps passed, {failed} failed, {skipped} skipped, in {total}, {cpu} of CPU"
        );
        if is_interrupted() {
            return Err("interrupted: not all steps were run".into());
        }
        if failed > 0 {
            return Err(format!("{failed} of {} steps failed", self.done.len()));
        }
        Ok(())
    }
}

/// A time as it is printed here.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Time of the CPUs that children of this process took, of those that have ended.
fn of_children() -> Duration {
    ticks("self", 13..15).unwrap_or_default()
}

/// The sum of fields of /proc/PROCESS/stat, counted from the state of the process.
fn ticks(process: &str, fields: std::ops::Range<usize>) -> Option<Duration> {
    let words = stat(process)?;
    let ticks: u64 = words
        .get(fields)?
        .iter()
        .flat_map(|word| word.parse::<u64>())
        .sum();
    // Linux counts hundredths of a second for user space, whatever its own tick is.
    Some(Duration::from_millis(10 * ticks))
}

/// The fields of /proc/PROCESS/stat from the state on: state, parent, group ...
fn stat(process: &str) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // A name may have spaces and brackets.
    let after_name = stat.rsplit(") ").next()?;
    Some(after_name.split(' ').map(str::to_owned).collect())
}

/// The command as one would type it, its environment included.
pub fn typed(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(key, value)| {
        Some(format!(
            "{}={:?}",
            key.to_string_lossy(),
            value?.to_string_lossy()
        ))
    });
    let words = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned());
    set.chain(words).collect::<Vec<_>>().join(" ")
}

/// A command under way, in a group of processes of its own.
pub struct Job {
    child: Child,
    began: Instant,
    limit: Duration,
    cpu: Duration,
}

impl Job {
    /// Starts a command that may take so long.
    ///
    /// # Errors
    /// It could not be started.
    pub fn begin(command: &mut Command, limit: Duration) -> Result<Self> {
        command.process_group(0);
        let child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
        Ok(Self {
            child,
            began: Instant::now(),
            limit,
            cpu: Duration::ZERO,
        })
    }

    /// Its exit status, once it has ended. After its limit, or an interrupt, it is ended with all
    /// its children: an error.
    pub fn look(&mut self) -> Option<Result<ExitStatus>> {
        // A process that is gone keeps the time of the last look.
        if let Some(cpu) = ticks(&self.child.id().to_string(), 11..15) {
            self.cpu = cpu;
        }
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) if is_interrupted() => {
                self.end();
                Err("interrupted".into())
            }
            Ok(None) if self.began.elapsed() >= self.limit => {
                eprint!("{}", at_work(self.child.id()));
                self.end();
                Err(format!("not done after {}, ended", seconds(self.limit)))
            }
            Ok(None) => return None,
            Err(error) => Err(format!("waiting for a command: {error}")),
        };
        Some(ended)
    }

    /// Waits for its end; answers its exit status.
    ///
    /// # Errors
    /// It took too long, or there was an interrupt.
    pub fn wait(mut self) -> Result<ExitStatus> {
        loop {
            match self.look() {
                Some(ended) => return ended,
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// Its children go with it: a test that hangs is a grandchild of ours.
    fn end(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }

    /// Time since its start.
    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Time of the CPUs that it and its children took that have ended, as last looked at.
    pub fn cpu(&self) -> Duration {
        self.cpu
    }
}

/// Runs a command to its end, or ends it and all its children after `limit`.
///
/// # Errors
/// It could not be started, it failed, or it took too long.
pub fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let status = status(command, limit)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{status}: {}", typed(command)))
    }
}

/// Runs a command likewise and answers its exit status.
///
/// # Errors
/// It could not be started, or it took too long.
pub fn status(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    eprintln!("    {}", typed(command));
    let ended = Job::begin(command, limit)?.wait();
    ended.map_err(|how| format!("{how}: {}", typed(command)))
}

/// Runs a command and answers what it wrote to its standard output.
///
/// # Errors
/// It could not be started, it failed, or it wrote something that is not text.
pub fn output(command: &mut Command) -> Result<String> {
    eprintln!("    {}", typed(command));
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{}: {}\n{said}", output.status, typed(command)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{}: {error}", typed(command)))
}

/// The processes of a group with the names of their threads and where these sleep, a line each: a
/// test's thread has the name of the test.
/// Empty where the system does not say.
fn at_work(group: u32) -> String {
    let mut said = String::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let text = |file: &str| std::fs::read_to_string(process.path().join(file)).ok();
        let fields = stat(&process.file_name().to_string_lossy()).unwrap_or_default();
        if fields.get(2) != Some(&group.to_string()) {
            continue;
        }
        let typed = text("cmdline").unwrap_or_default().replace('\0', " ");
        let threads = std::fs::read_dir(process.path().join("task"));
        let names = threads.into_iter().flatten().flatten();
        let names = names.filter_map(|thread| {
            let text = |file: &str| std::fs::read_to_string(thread.path().join(file)).ok();
            let (name, sleeps_in) = (text("comm")?, text("wchan").unwrap_or_default());
            Some(format!("{} in {sleeps_in}", name.trim_end()))
        });
        let names = names.collect::<Vec<_>>().join(", ");
        let _ = writeln!(said, "    at work: {typed}({names})");
    }
    said
}

/// True if a program is there and says so when asked for its version.
pub fn is_there(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ended_is_named_with_its_threads() {
        let mut command = Command::new("sleep");
        let mut child = command.arg("71").process_group(0).spawn().unwrap();
        // It may not have got so far as to sleep.
        let began = Instant::now();
        let is_named = |said: &String| said.starts_with("    at work: sleep 71 (sleep in ");
        let mut said = at_work(child.id());
        while !is_named(&said) && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(POLL);
            said = at_work(child.id());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_named(&said), "{said}");
    }

    #[test]
    fn a_failure_is_counted_and_the_rest_still_runs() {
        let mut steps = Steps::new("a test");
        steps.run("fails", || End::Failed("on purpose".into()));
        let mut ran = false;
        steps.run("passes", || {
            ran = true;
            End::Passed
        });
        assert_eq!(steps.finish(), Err("1 of 2 steps failed".into()));
        assert!(ran);
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let began = Instant::now();
        let result = run(&mut command, Duration::from_millis(100));
        assert!(result.is_err_and(|problem| problem.contains("not done")));
        assert!(began.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        assert!(run(&mut Command::new("false"), Duration::from_secs(300)).is_err());
        assert!(run(&mut Command::new("true"), Duration::from_secs(300)).is_ok());
    }
}
