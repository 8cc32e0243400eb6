//! The common part of `cargo xtask` and `cargo instruments`: steps with a limit and an end, the
//! workspace as cargo sees it, tables that `tidegate` writes, the words of a command line.
#![forbid(unsafe_code)]

pub mod csv;
pub mod steps;
pub mod workspace;

use std::path::Path;

/// A result, or the error in words for the person who ran the command.
pub type Result<T> = std::result::Result<T, String>;

/// The text of an error at a file.
pub fn at<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// The words of a command line, taken one by one.
pub struct Arguments {
    words: std::collections::VecDeque<String>,
}

impl Arguments {
    /// These, from the first on.
    pub fn new(words: Vec<String>) -> Self {
        Self {
            words: words.into(),
        }
    }

    /// The next, if one is left.
    pub fn next_word(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// The value that must follow an option.
    ///
    /// # Errors
    /// None does.
    pub fn value_of(&mut self, option: &str) -> Result<String> {
        self.next_word()
            .ok_or_else(|| format!("{option} needs a value"))
    }

    /// The number that must follow an option.
    ///
    /// # Errors
    /// None does, or something else.
    pub fn number_of<T: std::str::FromStr>(&mut self, option: &str) -> Result<T> {
        let word = self.value_of(option)?;
        word.parse()
            .map_err(|_| format!("{option}: '{word}' is not a number that fits"))
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// A word is.
    pub fn finish(mut self) -> Result<()> {
        match self.next_word() {
            Some(word) => Err(format!("unexpected '{word}'")),
            None => Ok(()),
        }
    }
}
