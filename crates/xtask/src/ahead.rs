//! Builds that later steps need, done while earlier ones run.
//!
//! Tests wait more than they compute: while all of them ran, a machine of two cores had most of one idle. What is built for
//! other profiles, into folders of their own, is built in that time at the lowest priority. A step then finds its
//! program there, or waits for the rest of the build as cargo does for any other. A build that fails says nothing here: the step
//! builds again, and says what is wrong.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Builds under way; they end with it.
pub(crate) struct Ahead {
    state: Arc<Mutex<State>>,
    builder: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// No further one is begun.
    over: bool,
    running: Option<Child>,
}

impl Ahead {
    /// Begins the builds, one after the other. Where there is no `nice` there are none.
    pub(crate) fn begin(builds: Vec<Command>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let theirs = Arc::clone(&state);
        let builder = std::thread::spawn(move || {
            for build in &builds {
                if !run(&theirs, build) {
                    return;
                }
            }
        });
        Self {
            state,
            builder: Some(builder),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.over = true;
            if let Some(child) = state.running.as_mut() {
                // One that has ended in this moment cannot be ended.
                let _ = child.kill();
            }
        }
        if let Some(builder) = self.builder.take() {
            let _ = builder.join();
        }
    }
}

/// Runs a build to its end; whether another may follow.
fn run(state: &Mutex<State>, build: &Command) -> bool {
    let mut command = at_lowest_priority(build);
    {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.over {
            return false;
        }
        let Ok(child) = command.spawn() else {
            return false;
        };
        state.running = Some(child);
    }
    loop {
        std::thread::sleep(crate::steps::POLL);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match state.running.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => false,
            Some(Ok(Some(_)) | Err(_)) | None => true,
        };
        if ended {
            state.running = None;
            return !state.over;
        }
    }
}

/// The same command, under `nice`, which says nothing.
fn at_lowest_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(key, value),
            None => nice.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A folder of a test's own.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = format!("tidegate-ahead-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn sh(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn builds_run_one_after_the_other_with_their_environment() {
        let folder = Folder::new("order");
        let mut first = sh("sleep 0.1; echo $WHAT >> said");
        first.env("WHAT", "first").current_dir(&folder.0);
        let mut second = sh("echo second >> said");
        second.current_dir(&folder.0);
        let ahead = Ahead::begin(vec![first, second]);
        let said = folder.0.join("said");
        let began = Instant::now();
        while std::fs::read_to_string(&said).unwrap_or_default() != "first\nsecond\n" {
            assert!(began.elapsed() < Duration::from_secs(20), "not both");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(ahead);
    }

    #[test]
    fn what_runs_ends_with_it_and_nothing_follows() {
        let folder = Folder::new("end");
        let mut next = sh("echo > said");
        next.current_dir(&folder.0);
        let began = Instant::now();
        let mut long = Command::new("sleep");
        long.arg("600");
        let ahead = Ahead::begin(vec![long, next]);
        std::thread::sleep(Duration::from_millis(100));
        drop(ahead);
        assert!(began.elapsed() < Duration::from_secs(60));
        assert!(!folder.0.join("said").exists());
    }
}
