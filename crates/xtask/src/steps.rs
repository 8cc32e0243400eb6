//! Steps: commands that are run one after the other, each with its time and an end.
//!
//! A step passes, fails or is skipped; a skipped one says why. All steps are run whatever comes of
//! those before them, and the summary names every one.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::Result;

/// How often a running command is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// How a step ended.
pub(crate) enum End {
    Passed,
    Failed(String),
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

/// What has been run so far.
pub(crate) struct Steps {
    title: &'static str,
    began: Instant,
    done: Vec<(String, End, Duration)>,
}

impl Steps {
    pub(crate) fn new(title: &'static str) -> Self {
        Self {
            title,
            began: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs a step and notes how it ended.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> End) {
        println!("\n==> {name}");
        let began = Instant::now();
        let end = step();
        let took = began.elapsed();
        match &end {
            End::Passed => println!("<== {name}: passed in {}", seconds(took)),
            End::Failed(problem) => println!("<== {name}: FAILED in {}: {problem}", seconds(took)),
            End::Skipped(why) => println!("<== {name}: SKIPPED: {why}"),
        }
        self.done.push((name.to_owned(), end, took));
    }

    /// Prints the summary; the error counts the steps that failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n==> summary of {}", self.title);
        let (mut passed, mut failed, mut skipped) = (0_u32, 0_u32, 0_u32);
        for (name, end, took) in &self.done {
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
            println!("{word:<8} {:>8}  {name}{why}", seconds(*took));
        }
        let total = seconds(self.began.elapsed());
        let title = self.title;
        println!("{title}: {passed} passed, {failed} failed, {skipped} skipped, in {total}");
        if failed > 0 {
            return Err(format!("{failed} of {} steps failed", self.done.len()));
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The command as one would type it, its environment included.
pub(crate) fn typed(command: &Command) -> String {
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

/// Runs a command to its end, or ends it and all its children after `limit`.
///
/// # Errors
/// It could not be started, it failed, or it took too long.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    eprintln!("    {}", typed(command));
    command.process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let status = wait(&mut child, limit)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{status}: {}", typed(command)))
    }
}

/// Runs a command and answers what it wrote to its standard output.
///
/// # Errors
/// It could not be started, it failed, or it wrote something that is not text.
pub(crate) fn output(command: &mut Command) -> Result<String> {
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

fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if began.elapsed() >= limit => break,
            Ok(None) => std::thread::sleep(POLL),
            Err(error) => return Err(format!("waiting for a command: {error}")),
        }
    }
    eprint!("{}", at_work(child.id()));
    // Its children go with it: a test that hangs is a grandchild of ours.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
    Err(format!("not done after {}, ended", seconds(limit)))
}

/// The processes of a group with the names of their threads and where these sleep, a line each: a test's thread has the
/// name of the test.
/// Empty where the system does not say.
fn at_work(group: u32) -> String {
    let mut said = String::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let text = |file: &str| std::fs::read_to_string(process.path().join(file)).ok();
        // pid (name) state parent group ...
        let stat = text("stat").unwrap_or_default();
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        if after_name.split(' ').nth(2) != Some(&group.to_string()) {
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

/// Whether a program is there and says so when asked for its version.
pub(crate) fn is_there(program: &str, arguments: &[&str]) -> bool {
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
