//! The load of a task: its numbers at a scale and its work.
//!
//! ```text
//!   [[task]] -> TaskEntry { id, device, .., kind: Task }     scenario: keys, traits, checks
//!                                            |
//!             Facts    its numbers at a scale (Sizes)
//!             work     its run, over any Env, with the files it is given (Given)
//! ```
//!
//! `Facts` depend on keys and `Sizes`: the same in the lab and live.

mod given;
mod sizes;

pub(crate) use given::Given;
pub(crate) use sizes::Sizes;

use policy::units::{Bytes, Pages};
use workload::Work;

/// The load of a kind of task.
pub(crate) trait Load {
    /// Its numbers at a scale.
    fn facts(&self, _at: &Sizes) -> Facts {
        Facts::default()
    }

    /// The work of a task.
    fn work(&self, at: &Sizes, given: Given) -> Work;
}

/// Numbers of a task at its scale.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Bytes of one call; nothing for what makes no calls on files.
    pub(crate) block: Bytes,
    /// Bytes that each of its files will have at most; what it reads from (`from`) has as many.
    pub(crate) file_bytes: Bytes,
    /// The files that it makes while it runs: how many, and their bytes together.
    pub(crate) makes: Option<(u64, Bytes)>,
    /// Files that it makes in a round with the others of its entry.
    pub(crate) files_a_round: u64,
    /// Those have inodes in memory.
    pub(crate) has_inodes: bool,
    /// Bytes that its schedule asks for: it writes a little now and then, and is measured by that.
    pub(crate) due: Option<Bytes>,
    /// Memory that it keeps.
    pub(crate) kept: Pages,
}

impl Facts {
    /// Of a task whose calls move `block`, and whose files have `file_bytes` each.
    pub(crate) fn of_files(block: Bytes, file_bytes: Bytes) -> Self {
        Self {
            block,
            file_bytes,
            ..Self::default()
        }
    }
}
