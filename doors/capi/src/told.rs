//! The questions about a failure: those of a thread about its last one, and the names of codes.

use std::ffi::c_char;

use crate::border::In;
use crate::failure::{CODES, last};

border! {
    /// The words of this thread's last failure.
    fn tg_error() -> In<c_char> {
        Ok(last(|last| In::of_text(last.words.as_deref().unwrap_or(c""))).unwrap_or(In::of_text(c"")))
    }

    /// The system's number of it, or 0.
    fn tg_errno() -> i32 {
        Ok(last(|last| last.errno).unwrap_or(0))
    }

    /// Of a write that failed: bytes that were taken in before.
    fn tg_taken() -> u64 {
        Ok(last(|last| last.taken).unwrap_or(0))
    }

    /// A code in a word.
    fn tg_code_name(code: i32) -> In<c_char> {
        let (_, name) = CODES.iter().find(|(value, _)| *value == code).unwrap_or(&(0, c"unknown"));
        Ok(In::of_text(name))
    }
}
