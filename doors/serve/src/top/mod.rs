//! `tidegate top`: a running server in the terminal.
//!
//! ```text
//!   server: snapshot ──page──> /top ──client──> pipe, `--once`, a terminal that cannot draw: as it is
//!                                          ──> terminal: in place of the last one, every 2 s
//! ```
//! A server that is gone stays on the screen as it was last, with the reason, and is asked again.
//!
//! Invariants: the terminal is in no mode of its own at any time, so a signal may end the program
//! anywhere. Text that the server sends is shown without its control characters: it cannot draw.

mod client;
mod page;
mod text;

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use rustix::termios::tcgetwinsize;

pub use client::ClientError;
pub(crate) use page::page;

/// The address at which a server shows itself unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9321";

/// Between two readings.
const EVERY: Duration = Duration::from_secs(2);

/// The server to show, and the form.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// `HOST:PORT` of the server's HTTP side; `http://` before it and a path after it are allowed.
    pub address: String,
    /// One reading, then the end; also done where the output is no terminal that can draw.
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
        /// The error.
        error: ClientError,
    },
    /// The output cannot be written to.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
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

/// Shows a server until a signal ends the program or the terminal is gone; with `once`, or where
/// the output is no terminal that can draw, one reading.
///
/// # Errors
/// The address is none. For one reading: no answer, or an output that takes none.
pub fn run(options: &TopOptions) -> Result<(), TopError> {
    let address = client::host_and_port(&options.address);
    if !client::is_address(&address) {
        return Err(TopError::Address(options.address.clone()));
    }
    let mut output = io::stdout();
    let can_draw = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    if !options.once && can_draw && output.is_terminal() {
        let mut last = String::new();
        // An error is that of a terminal that is gone.
        while show(&mut output, &current(&address, &mut last)).is_ok() {
            std::thread::sleep(EVERY);
        }
        return Ok(());
    }
    let page = client::page(&address);
    let text = page.map_err(|error| TopError::Server { address, error })?;
    match output.write_all(text.as_bytes()) {
        // `tidegate top | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The server as it is now; where it does not answer, the reason and the last reading.
fn current(address: &str, last: &mut String) -> String {
    match client::page(address) {
        Ok(page) => page.clone_into(last),
        Err(error) => {
            let why = text::name(&error.to_string(), 120);
            let was = if last.is_empty() {
                ""
            } else {
                "as it was last; "
            };
            return format!("no answer from {address}: {why}; {was}trying again\n\n{last}");
        }
    }
    last.clone()
}

/// Puts a text in place of the last one.
fn show(terminal: &mut io::Stdout, text: &str) -> io::Result<()> {
    let size = tcgetwinsize(&*terminal)?;
    terminal.write_all(frame(text, size.ws_row.into(), size.ws_col.into()).as_bytes())?;
    terminal.flush()
}

/// The sequence that draws a text from the first line on, no line wider and no more of them than
/// fit (a size of zero is one that nobody knows). The cursor is left below it.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let known = |size: usize| if size == 0 { usize::MAX } else { size };
    let (room, columns) = (known(rows).saturating_sub(2), known(columns));
    let mut frame = "\x1b[H".to_owned();
    let mut line = |line: &str| {
        frame.extend(line.chars().take(columns));
        frame.push_str("\x1b[K\r\n");
    };
    text.lines().take(room).for_each(&mut line);
    let hidden = text.lines().count().saturating_sub(room);
    if hidden > 0 {
        line(&format!("({hidden} more lines: --once prints all)"));
    }
    frame + "\x1b[J"
}

#[cfg(test)]
mod tests;
