//! Lines on the standard error: each once.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// Different lines at most: a program that maps thousands of files does not fill a log.
const LINES: usize = 32;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Says something, once in a process.
pub(crate) fn say(words: &str) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() >= LINES || said.iter().any(|other| other == words) {
        return;
    }
    said.push(words.to_owned());
    drop(said);
    let mut line = String::new();
    let _ = writeln!(line, "tidegate-preload: {words}");
    // Past the functions that are replaced here.
    let _ = rustix::io::write(std::io::stderr(), line.as_bytes());
}
