//! The service's side of systemd and its like: sockets that they pass, and news of its state.
//!
//! Sockets begin at descriptor 3; `LISTEN_PID` says whose they are, `LISTEN_FDS` how many,
//! `LISTEN_FDNAMES` what they are called. News are lines in a datagram to `NOTIFY_SOCKET`; a name
//! that begins with `@` is an abstract one.
//!
//! Source: sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3).

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::log::debug;

/// More sockets than that are a mistake.
const SOCKETS_MAX: u32 = 256;

/// A socket that was passed, and what it is called.
#[derive(Debug)]
pub(crate) struct Passed {
    /// The listening socket.
    pub(crate) socket: OwnedFd,
    /// Its name in the socket's unit; empty where there is none.
    pub(crate) name: String,
}

/// True if sockets were passed to this process.
pub(crate) fn has_sockets() -> bool {
    passed(&variable) > 0
}

/// The sockets that were passed; a second call has none.
pub(crate) fn sockets() -> Vec<Passed> {
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(str::to_owned);
    let sockets = os::passed_descriptors(passed(&variable)).into_iter();
    sockets
        .map(|socket| Passed {
            socket,
            name: names.next().unwrap_or_default(),
        })
        .collect()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Number of sockets that `LISTEN_FDS` names, if they are for us.
fn passed(variable: &dyn Fn(&str) -> Option<String>) -> u32 {
    let number = |name| variable(name)?.parse::<u32>().ok();
    let is_ours = number("LISTEN_PID") == Some(std::process::id());
    number("LISTEN_FDS")
        .filter(|count| is_ours && *count <= SOCKETS_MAX)
        .unwrap_or(0)
}

/// The receiver of news; nobody if nobody asked for them.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As the surroundings of the process say.
    pub(crate) fn of_process() -> Self {
        Self::new(&variable)
    }

    fn new(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let socket = variable("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&name),
            };
            let socket = UnixDatagram::unbound().and_then(|socket| {
                // News are told or lost; the server does not wait for its supervisor.
                socket.set_nonblocking(true)?;
                Ok((socket, address?))
            });
            socket
                .inspect_err(|error| debug!(cause = %error, "NOTIFY_SOCKET cannot be used"))
                .ok()
        });
        let for_us =
            variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let period = variable("WATCHDOG_USEC").and_then(|period| period.parse::<u64>().ok());
        let watchdog = period
            .filter(|period| for_us && *period > 0 && socket.is_some())
            .map(|period| Duration::from_micros(period / 2));
        Self { socket, watchdog }
    }

    /// Interval at which a sign of life is wanted: half the time after which we are taken for dead.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// It has not come to serve yet, and goes on: it takes at most `more` from now on, or says so
    /// again.
    pub(crate) fn starting(&self, status: &str, more: Duration) {
        let micros = more.as_micros();
        self.send(&format!("EXTEND_TIMEOUT_USEC={micros}\nSTATUS={status}"));
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// It reads its configuration again; `ready` ends that.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// It ends, and takes at most `more` from now on.
    pub(crate) fn stopping(&self, status: &str, more: Duration) {
        let micros = more.as_micros();
        self.send(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\nSTATUS={status}"
        ));
    }

    /// It lives.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, news: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(news.as_bytes(), address)
        {
            debug!(cause = %error, "the supervisor was not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(all: &'a [(&'a str, String)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let found = all.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone())
        }
    }

    #[test]
    fn sockets_of_another_process_are_not_ours() {
        let own = std::process::id();
        for (pid, count, answer) in [
            (own.to_string(), "2", 2),
            ((own + 1).to_string(), "2", 0),
            (own.to_string(), "-1", 0),
            (own.to_string(), "100000", 0),
            (String::new(), "2", 0),
        ] {
            let all = [("LISTEN_PID", pid), ("LISTEN_FDS", count.to_owned())];
            assert_eq!(passed(&with(&all)), answer, "{all:?}");
        }
        assert_eq!(passed(&|_| None), 0);
    }

    #[test]
    fn news_arrive_at_a_path_and_at_an_abstract_name() {
        let own = std::process::id();
        let path = std::env::temp_dir().join(format!("tidegate-notify-{own}"));
        let name = format!("tidegate-notify-{own}");
        let _ = std::fs::remove_file(&path);
        let bound = [
            (
                path.display().to_string(),
                UnixDatagram::bind(&path).unwrap(),
            ),
            (
                format!("@{name}"),
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
            ),
        ];
        for (address, socket) in bound {
            let all = [
                ("NOTIFY_SOCKET", address),
                ("WATCHDOG_USEC", "3000000".to_owned()),
            ];
            let notify = Notify::new(&with(&all));
            assert_eq!(notify.watchdog(), Some(Duration::from_millis(1500)));
            notify.starting("opening", Duration::from_secs(60));
            notify.ready("2 volumes");
            notify.reloading();
            notify.stopping("sync", Duration::from_secs(1));
            let mut news = [0; 256];
            let mut next = || {
                let len = socket.recv(&mut news).unwrap();
                String::from_utf8(news[..len].to_vec()).unwrap()
            };
            assert_eq!(next(), "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=opening");
            assert_eq!(next(), "READY=1\nSTATUS=2 volumes");
            let reloading = next();
            let since = reloading
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .unwrap();
            assert!(since.parse::<u64>().unwrap() > 0);
            assert_eq!(
                next(),
                "STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000\nSTATUS=sync"
            );
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn without_a_supervisor_nobody_is_told() {
        let all = [("WATCHDOG_USEC", "3000000".to_owned())];
        let notify = Notify::new(&with(&all));
        assert_eq!(notify.watchdog(), None);
        notify.ready("nobody hears this");
        let gone = [("NOTIFY_SOCKET", "/nonexistent/notify".to_owned())];
        Notify::new(&with(&gone)).ready("nor this");
    }
}
