//! Servers that the bench starts: ours and others', each on a Unix socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Result, steps};

/// Time that a server may take to listen.
const APPEARS_MAX: Duration = Duration::from_secs(15);

/// A server that runs until it is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) socket: PathBuf,
    /// The address of our metrics.
    web: Option<SocketAddr>,
}

impl Server {
    /// Starts a server that listens on this socket when it is ready.
    ///
    /// # Errors
    /// It ends at once, or does not listen.
    pub(super) fn start(mut command: Command, socket: &Path) -> Result<Self> {
        eprintln!("    {}", steps::typed(&command));
        let _ = std::fs::remove_file(socket);
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let mut server = Self {
            child,
            socket: socket.to_owned(),
            web: None,
        };
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{name} ended with {status}"));
            }
            if began.elapsed() > APPEARS_MAX {
                return Err(format!("{name} does not listen"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Ours, with a memory limit and what else stands on its command line.
    ///
    /// # Errors
    /// As `start`.
    pub(super) fn ours(
        program: &Path,
        socket: &Path,
        memory: &str,
        words: &[&str],
    ) -> Result<Self> {
        // A port that is free now: nobody else asks for one in between.
        let web = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let web = web.map_err(|error| format!("no port: {error}"))?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--memory", memory, "--web"])
            .arg(web.to_string())
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .args(words);
        let mut server = Self::start(command, socket)?;
        server.web = Some(web);
        Ok(server)
    }

    /// Replies to writes that ours has held back so far; none: it is not ours, or does not say.
    pub(super) fn held(&self) -> Option<u64> {
        let mut stream = TcpStream::connect(self.web?).ok()?;
        stream.set_read_timeout(Some(APPEARS_MAX)).ok()?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        held_in(&text)
    }

    /// The address of the export of this name for clients.
    pub(super) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// CPU time so far, user and system, in seconds.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        ticks(&text)
            .map(|ticks| ticks as f64 / 100.0)
            .ok_or_else(|| format!("{path}: not as expected"))
    }
}

/// The count of replies held, of all volumes, in the metrics of ours.
fn held_in(metrics: &str) -> Option<u64> {
    let counts: Vec<u64> = (metrics.lines())
        .filter(|line| line.starts_with("tidegate_volume_pause_duration_seconds_count{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// User and system time of a line of `/proc/PID/stat`, in ticks of 10 ms.
fn ticks(stat: &str) -> Option<u64> {
    // The name may have spaces and brackets in it: fields count from the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody wants the data: a server that was asked to end would first write 64 MiB to a slow
        // device.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_held_are_summed_over_volumes() {
        let text = "tidegate_volume_pause_duration_seconds_count{volume=\"a\"} 3\n\
                    tidegate_volume_pause_duration_seconds_sum{volume=\"a\"} 0.5\n\
                    tidegate_volume_pause_duration_seconds_count{volume=\"b\"} 4\n";
        assert_eq!(held_in(text), Some(7));
        assert_eq!(held_in("HTTP/1.1 404 Not Found"), None);
    }

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let line = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 4 0 100 1 2";
        assert_eq!(ticks(line), Some(42));
        assert_eq!(ticks("nonsense"), None);
    }
}
