//! The request to `reproduce`.

use std::path::PathBuf;

/// The claims to be reproduced, and how.
#[derive(Debug, Default)]
pub struct Asked {
    /// Papers or experiments; all of them without any.
    pub papers: Vec<String>,
    /// Repetitions of each run, instead of each experiment's own here.
    pub replicas: Option<u32>,
    /// Also what experiments leave out here for its time.
    pub whole: bool,
    /// Part of the full size of all experiments, instead of each one's own.
    pub scale: Option<f64>,
    /// Folder for the results, instead of a new one; what an earlier run left there is used.
    pub out: Option<PathBuf>,
    /// The format of the scoreboard.
    pub format: Format,
    /// Of the program.
    pub version: &'static str,
}

/// The format of the scoreboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For pages: tables and the causes of what is missed.
    Markdown,
}
