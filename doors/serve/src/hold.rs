//! Clients that wait while a volume is held: synced, and changed by nobody, so that a copy of its
//! backing is of one moment.
//!
//! ```text
//!   tidegate hold ──line──> control socket ──> gate shut ──requests that change it have ended──> synced ──> "held"
//!                                                 '──its end, the time is over, or the server ends──> gate open
//! ```
//! Reads go on. A request that changes the volume is left in its connection, and what comes behind
//! it there.
//!
//! Invariants
//!   1. While a volume is held, nothing writes to its backing: all was synced, and nothing changes.
//!   2. A hold ends: with whom asked for it, with its time, or with the server.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::export::Export;
use crate::hub::Hub;
use crate::listen::Listener;
use crate::log::{info, warn};

/// The control socket of a server that was installed from the package.
pub const DEFAULT_SOCKET: &str = "/run/tidegate/control.sock";
/// Longest line of a program that asks, in bytes: a name, and a few words.
const LINE_MAX: u64 = 8 << 10;
/// Ends of a hold, in the words of its last line: its command has ended, its time is over.
const RELEASED: &str = "it was released";
const LATE: &str = "its time is over";
/// Time that requests under way may take to end before a volume is held.
const REST_MAX: Duration = Duration::from_secs(30);
/// Interval at which this is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A volume that is held, until this is dropped.
struct Held {
    hub: Arc<Hub>,
    export: Arc<Export>,
}

impl Held {
    /// Holds a volume, and makes it durable.
    async fn new(hub: &Arc<Hub>, name: &str) -> Result<Self, String> {
        let Some(export) = hub.find(name) else {
            let all: Vec<String> = hub
                .exports()
                .iter()
                .map(|it| it.name().to_owned())
                .collect();
            return Err(format!(
                "there is no volume `{name}`; there are: {}",
                all.join(", ")
            ));
        };
        if !export.gate.shut() {
            return Err(format!("volume `{name}` is held already"));
        }
        let hub = Arc::clone(hub);
        let held = Self { hub, export };
        let until = Instant::now() + REST_MAX;
        loop {
            let left = held.export.gate.changing();
            if left == 0 {
                break;
            }
            if Instant::now() >= until {
                return Err(format!(
                    "{left} requests that change volume `{name}` have not ended for {} s: its backing, or a client, does not \
                     take what it is sent",
                    REST_MAX.as_secs()
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (told, synced) = oneshot::channel();
        let export = Arc::clone(&held.export);
        held.export.opened.pool.sync(Box::new(move || {
            let synced = export.sync().map_err(|cause| export.in_words(&cause));
            let _ = told.send(synced);
        }));
        let given_up = |_| Err("its sync was given up".to_owned());
        synced.await.unwrap_or_else(given_up)?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.export.gate.open();
        self.hub.wake_all();
    }
}

/// Answers at the control socket until the server drains.
pub(crate) async fn serve(mut listener: Listener, hub: Arc<Hub>) {
    while let Some(stream) = listener.next_local(&hub).await {
        tokio::spawn(answer(stream, Arc::clone(&hub)));
    }
}

/// Answers one program that asks: `hold SECONDS NAME`.
async fn answer(stream: UnixStream, hub: Arc<Hub>) {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut read = tokio::io::BufReader::new(read.take(LINE_MAX));
    if read.read_line(&mut line).await.is_err() {
        return;
    }
    let said = match asked(&line) {
        Some((most, name)) => hold(&hub, name, most, (&mut read, &mut write)).await,
        None => Err("ask for `hold SECONDS NAME`".to_owned()),
    };
    let last = match said {
        Ok(why) => format!("over {why}\n"),
        Err(why) => format!("error {why}\n"),
    };
    let _ = write.write_all(last.as_bytes()).await;
}

fn asked(line: &str) -> Option<(Duration, &str)> {
    let rest = line.strip_suffix('\n')?.strip_prefix("hold ")?;
    let (millis, name) = rest.split_once(' ')?;
    Some((Duration::from_millis(millis.parse().ok()?), name))
}

/// Holds a volume until something ends that; answers what.
async fn hold<R, W>(
    hub: &Arc<Hub>,
    name: &str,
    most: Duration,
    (read, write): (&mut R, &mut W),
) -> Result<&'static str, String>
where
    R: AsyncReadExt + Unpin,
    W: AsyncWriteExt + Unpin,
{
    let _held = tokio::select! {
        held = Held::new(hub, name) => held?,
        // The program that asked went, or the server ends.
        _ = read.read_u8() => return Ok("nobody waits for it"),
        () = hub.drains() => return Ok("the server ends"),
    };
    let volume = name.escape_debug().to_string();
    info!(
        volume,
        seconds = most.as_secs_f64(),
        "held: it is synced, and clients that change it wait"
    );
    if write.write_all(b"held\n").await.is_err() {
        return Ok("nobody waits for it");
    }
    let began = Instant::now();
    let over = tokio::select! {
        _ = read.read_u8() => RELEASED,
        () = tokio::time::sleep(most) => LATE,
        () = hub.drains() => "the server ends",
    };
    let seconds = began.elapsed().as_secs_f64();
    match over {
        LATE => warn!(volume, seconds, "released: {over}"),
        _ => info!(volume, seconds, "released: {over}"),
    }
    Ok(over)
}

/// Why a volume could not be held, or not for as long as it had to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// Nobody answers there.
    #[error(
        "no server at {}: {}; does `tidegate serve` run, and with `--control unix:{}`?",
        socket.display(), crate::refusal::words(cause), socket.display()
    )]
    NoServer {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The server refused.
    #[error("{0}")]
    Refused(String),
    /// It ended before the command did.
    #[error(
        "the hold ended before the command did ({0}): the copy is not of one moment; give it longer with --time"
    )]
    Over(String),
    /// The command cannot be started.
    #[error("cannot start `{command}`: {}", crate::refusal::words(cause))]
    Command {
        /// Which.
        command: String,
        /// Why not.
        cause: std::io::Error,
    },
}

/// Holds a volume of a server while a command runs, or, without one, until the time is over.
/// Answers the status of the command.
///
/// # Errors
/// `HoldError`; the command may have run then.
pub fn run(
    socket: &PathBuf,
    volume: &str,
    most: Duration,
    command: &[OsString],
    is_held: impl FnOnce(),
) -> Result<Option<ExitStatus>, HoldError> {
    let lost = |cause| HoldError::NoServer {
        socket: socket.clone(),
        cause,
    };
    let mut stream = BlockingStream::connect(socket).map_err(lost)?;
    let line = format!("hold {} {volume}\n", most.as_millis());
    stream.write_all(line.as_bytes()).map_err(lost)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(lost)?).lines();
    let mut next = || {
        lines
            .next()
            .and_then(Result::ok)
            .unwrap_or_else(|| "over the server is gone".to_owned())
    };
    let first = next();
    if first != "held" {
        return Err(HoldError::Refused(
            first
                .split_once(' ')
                .map_or(first.clone(), |(_, why)| why.to_owned()),
        ));
    }
    let Some((program, arguments)) = command.split_first() else {
        is_held();
        next();
        return Ok(None);
    };
    let status = Command::new(program).args(arguments).status();
    // The end of the stream releases it. The server's line says if something else did before.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let last = next();
    let status = status.map_err(|cause| HoldError::Command {
        command: program.to_string_lossy().into_owned(),
        cause,
    })?;
    match last.strip_prefix("over ") {
        Some(RELEASED) => Ok(Some(status)),
        why => Err(HoldError::Over(why.unwrap_or(&last).to_owned())),
    }
}
