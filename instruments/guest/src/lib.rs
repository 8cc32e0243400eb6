//! The programs that run inside the guests of `cargo instruments guest`, and here what they share:
//! their plan's lines, the switch of the trace, the stream to the host.
//!
//! | program | |
//! |---|---|
//! | `guest-writer` | the writers of a scenario of dirty throttling, and their clerk |
//! | `guest-load` | process 1 of a guest whose memory is short: workers, sampler, clerk |
#![forbid(unsafe_code)]

use std::fs;
use std::str::FromStr;

pub mod stream;

/// A result, or the error in words for the console.
pub type Result<T> = std::result::Result<T, String>;

/// The items that every plan has.
#[derive(Debug, Default)]
pub struct Common {
    /// The destination of the stream.
    pub out: String,
    /// The folder of tracefs.
    pub tracing: String,
    /// Files that go into the stream as they are at the end: name and path.
    pub attached: Vec<(String, String)>,
}

impl Common {
    /// Reads a plan, one item a line: those of here, and the others by `take`.
    ///
    /// # Errors
    /// A line is not of a known form; the message has its number and what is wrong in it.
    pub fn parse(text: &str, mut take: impl FnMut(&[&str]) -> Result<()>) -> Result<Self> {
        let mut common = Self::default();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [] => {}
                ["out", path] => path.clone_into(&mut common.out),
                ["tracing", path] => path.clone_into(&mut common.tracing),
                ["attach", name, path] => {
                    common.attached.push((name.to_owned(), path.to_owned()));
                }
                _ => take(&words).map_err(|problem| {
                    format!("line {} of the plan, '{line}': {problem}", at + 1)
                })?,
            }
        }
        Ok(common)
    }

    /// Turns the trace on or off.
    ///
    /// # Errors
    /// It is not there.
    pub fn switch_trace(&self, on: bool) -> Result<()> {
        let path = format!("{}/tracing_on", self.tracing);
        fs::write(&path, if on { "1" } else { "0" }).map_err(|error| format!("{path}: {error}"))
    }
}

/// A number of a plan.
///
/// # Errors
/// The word is none that fits.
pub fn number<T: FromStr>(word: &str) -> Result<T> {
    word.parse()
        .map_err(|_| format!("'{word}' is not a number that fits"))
}

/// All of a file.
///
/// # Errors
/// It cannot be read; the message has its path.
pub fn read(path: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{path}: {error}"))
}

/// A file of text.
///
/// # Errors
/// As of `read`.
pub fn read_text(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
