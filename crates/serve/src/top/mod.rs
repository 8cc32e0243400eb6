//! `tidegate top`: a running server in the terminal.
//!
//! ```text
//!   server's /events ──reader (thread)──> latest snapshot ──> Model ──> view (terminal), plain (pipe, --once)
//! ```
//! A server that is gone stays on the screen as it was last, with the reason, and is asked again
//! every second.
//!
//! Names that the server sends are shown without their control characters: they cannot draw.

mod client;
mod keys;
mod model;
mod plain;
mod text;
mod view;

use std::io::{self, IsTerminal, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ratatui::DefaultTerminal;

pub use client::ClientError;
use keys::{Key, Keys, Waited};
use model::{Model, News};

/// Where a server shows itself unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9321";

/// Between two looks for a key.
const TICK: Duration = Duration::from_millis(100);
/// Between two tries to reach a server that is gone.
const RETRY: Duration = Duration::from_secs(1);

/// What is to be shown, and how.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// `HOST:PORT` of the server's HTTP side; `http://` before it and a path after it are allowed.
    pub address: String,
    /// One snapshot as plain text, then the end; also done where the output is no terminal.
    pub once: bool,
}

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopError {
    /// The given words stand for no address.
    #[error(
        "`{0}` is no address: nobody knows the host, or the port is none; write HOST:PORT, as in {DEFAULT_ADDRESS}"
    )]
    Address(String),
    /// The server does not answer.
    #[error(
        "no answer from {address}: {}; does `tidegate serve` run, and with `--web {address}`?",
        crate::refusal::words(error)
    )]
    Server {
        /// The address that was asked.
        address: String,
        /// What went wrong.
        error: ClientError,
    },
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

impl TopError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Address(_) => 2,
            _ => 1,
        }
    }
}

/// Shows a server until the user has seen enough, the terminal is gone, or `is_over` is set: a
/// signal that ended the program where it is would leave the terminal without its echo and cursor.
///
/// # Errors
/// The address is none. With `once`: no answer. The terminal cannot be used.
pub fn run(options: &TopOptions, is_over: &Arc<AtomicBool>) -> Result<(), TopError> {
    let address = client::host_and_port(&options.address);
    if !client::is_address(&address) {
        return Err(TopError::Address(options.address.clone()));
    }
    if options.once || !io::stdout().is_terminal() {
        let snapshot = client::snapshot(&address).map_err(|error| TopError::Server {
            address: address.clone(),
            error,
        })?;
        let text = plain::show(&address, &snapshot);
        return match io::stdout().lock().write_all(text.as_bytes()) {
            // `tidegate top | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        };
    }
    let (send, news) = sync_channel(4);
    let stop = Arc::clone(is_over);
    let of = address.clone();
    // Not joined: it may wait for a server that does not answer, and holds nothing.
    std::thread::spawn(move || follow(&of, &send, &stop));
    let mut keys = Keys::open()?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(
        &mut terminal,
        &mut keys,
        Model::new(address),
        &news,
        is_over,
    );
    is_over.store(true, Ordering::Relaxed);
    let restored = ratatui::try_restore();
    let is_gone = matches!(shown, Ok(Ended::TerminalGone)) || restored.is_err();
    if is_gone {
        // Dropped, it would show the cursor, and complain to the same terminal that it cannot: a
        // panic within a panic.
        core::mem::forget(terminal);
        return Ok(());
    }
    shown?;
    Ok(())
}

/// Why it is shown no longer.
enum Ended {
    Enough,
    TerminalGone,
}

/// Sends what the server tells, and tries again when it is gone.
fn follow(address: &str, send: &SyncSender<News>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let ended = client::Events::open(address).and_then(|mut events| {
            loop {
                let snapshot = events.next()?;
                if send.send(News::Snapshot(Box::new(snapshot))).is_err() {
                    return Ok(());
                }
            }
        });
        let Err(error) = ended else { return };
        if send.send(News::Gone(error.to_string())).is_err() {
            return;
        }
        std::thread::sleep(RETRY);
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    keys: &mut Keys,
    mut model: Model,
    news: &Receiver<News>,
    is_over: &AtomicBool,
) -> io::Result<Ended> {
    while !is_over.load(Ordering::Relaxed) {
        while let Ok(news) = news.try_recv() {
            model.hear(news);
        }
        // A resize needs nothing: the next frame has the new size.
        terminal.draw(|frame| view::draw(frame, &model))?;
        match keys.wait(TICK)? {
            Waited::Gone => return Ok(Ended::TerminalGone),
            Waited::Pressed(Key::Quit) => break,
            Waited::Pressed(Key::Down) => model.scroll(1),
            Waited::Pressed(Key::Up) => model.scroll(-1),
            Waited::Pressed(Key::Other) | Waited::Nothing => {}
        }
    }
    Ok(Ended::Enough)
}

#[cfg(test)]
mod tests;
