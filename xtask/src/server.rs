//! A server that a step starts, until its socket is there, and ends by a signal.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::Result;
use crate::steps;

/// Longest time for a start.
const START_MAX: Duration = Duration::from_secs(2 * 60);
/// Longest time for sending a signal.
const SIGNAL_MAX: Duration = Duration::from_secs(60);

/// A server under way. Dropped, it is killed.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts a server; answers when its socket is there.
    pub(crate) fn start(command: &mut Command, socket: &Path) -> Result<Self> {
        let child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", steps::typed(command)))?;
        let mut server = Self { child };
        let began = Instant::now();
        while !socket.exists() {
            let ended = server.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || began.elapsed() > START_MAX {
                return Err(format!("it does not serve: {}", steps::typed(command)));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Ends it by a signal: `TERM`, `KILL`.
    pub(crate) fn end(mut self, signal: &str) -> Result<ExitStatus> {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}"))
            .arg(self.child.id().to_string());
        steps::run(&mut kill, SIGNAL_MAX)?;
        self.child.wait().map_err(|error| error.to_string())
    }

    /// Ends it as a system does: everything is durable at its end.
    pub(crate) fn end_well(self) -> Result<()> {
        let ended = self.end("TERM")?;
        if ended.success() {
            return Ok(());
        }
        Err(format!("the server ended with {ended}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
