//! What a kind of task is: the keys that its table has in a scenario, what the rest of the program
//! asks of it, and what it runs.
//!
//! ```text
//!   [[task]] -> TaskEntry { id, device, .., kind: Task }     kinds: one file each, one list
//!                                            |
//!             Traits   plain data: files, memory, when it ends, what it writes
//!             Facts    its numbers at a scale (Sizes)
//!             check    what only this kind can tell is wrong
//!             work     what it runs, over any Env, with what it is given (Given)
//! ```
//!
//! Nobody else matches over kinds: what is to be known of one is asked of its `Traits` and `Facts`,
//! or of its keys by name (`TaskEntry::key`). Both have defaults, so that a new kind says only what
//! is special.
//!
//! Invariants
//!   1. A kind's keys are the fields of its type (`keys!`): which there are, which are needed, and
//!      what they mean stands there and nowhere else.
//!   2. `Traits` depend on keys alone, `Facts` on keys and `Sizes`: the same in the lab and live.

mod given;
mod sizes;
pub(crate) mod units;

pub(crate) use given::Given;
pub(crate) use sizes::Sizes;

use core::ops::Range;

use policy::units::{Bytes, Pages};
use toml::Spanned;
use workload::Work;

use crate::mistake::Mistake;

/// A kind of task, with the values of its keys.
pub(crate) trait Kind {
    /// Its traits before it has a size.
    fn traits(&self) -> Traits;

    /// Its numbers at a scale.
    fn facts(&self, _at: &Sizes) -> Facts {
        Facts::default()
    }

    /// What is wrong with its keys. Their ranges, and what its traits ask for, are checked for all
    /// kinds alike.
    fn check(&self, _around: &Around) -> Vec<Mistake> {
        Vec::new()
    }

    /// What a task of it runs.
    fn work(&self, at: &Sizes, given: Given) -> Work
    where
        Self: Sized;
}

/// What a kind is to the rest of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// Its files.
    pub(crate) files: Files,
    /// It maps its file: the pages of it that it has in its table.
    pub(crate) maps: bool,
    /// Its anonymous memory.
    pub(crate) memory: Memory,
    /// When it ends.
    pub(crate) ends: Ends,
    /// Keys of which one, and one only, says its size.
    pub(crate) size: &'static [&'static str],
    /// How it writes files.
    pub(crate) writes: Writes,
    /// It only reads.
    pub(crate) reads: bool,
    /// It writes as fast as it may, and says what it dirties call by call: writers of this kind are
    /// held against each other.
    pub(crate) heavy: bool,
}

impl Traits {
    /// No files, no memory; done when it is done.
    pub(crate) const NONE: Self = Self {
        files: Files::None,
        maps: false,
        memory: Memory::None,
        ends: Ends::Itself,
        size: &[],
        writes: Writes::Nothing,
        reads: false,
        heavy: false,
    };

    /// Its files push each other out of memory.
    pub(crate) fn fills_memory(&self) -> bool {
        self.files == Files::Made || self.maps
    }
}

/// The files of a task. All but `None` have a `device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// It has none.
    None,
    /// They are empty when it begins: one, or as many as its key `files` says.
    Written,
    /// The same, with their content.
    Found,
    /// It makes them while it runs; no other task has one of them.
    Made,
    /// It makes small files, whose inodes take memory, in a directory of its own.
    SmallMade,
    /// It looks at such files.
    SmallSeen,
}

impl Files {
    /// How many a task has when it begins, where its entry says `own`.
    pub(crate) const fn count(self, own: u32) -> u32 {
        match self {
            Self::Written | Self::Found => own,
            // The directory, and the table of its inodes.
            Self::SmallMade => 2,
            Self::None | Self::Made | Self::SmallSeen => 0,
        }
    }

    /// They are small files.
    pub(crate) const fn are_small(self) -> bool {
        matches!(self, Self::SmallMade | Self::SmallSeen)
    }
}

/// The anonymous memory of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// It has none.
    None,
    /// It has some.
    Some,
    /// It keeps all that it writes to, and goes on for ever: a hog. Such tasks have to fit memory
    /// and swap together.
    Kept,
    /// It maps it, writes to it and unmaps it: what it has at a time has to fit too.
    Mapped,
    /// A little, on a schedule, however large the machine is: not scaled.
    Scheduled,
}

/// When a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// When it has done its amount: it has no `run_s`.
    Itself,
    /// With its amount, or with `run_s` if that is given and comes first.
    Early,
    /// With `run_s`, which it needs: it has no amount to do.
    Timed,
}

/// How a task writes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// It does not.
    Nothing,
    /// Front to back, each page once, but for the edges of its calls.
    Once,
    /// It may come to a page again.
    Over,
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

/// What a check of one kind's keys may need of what is around its task.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    /// Where the task's id stands.
    pub(crate) id: Range<usize>,
    /// How many tasks there are of the entry.
    pub(crate) count: f64,
    /// The run's scale.
    pub(crate) scale: f64,
    /// The machine's memory, MiB.
    pub(crate) memory_mib: Spanned<f64>,
    /// The machine has a swap file.
    pub(crate) has_swap: bool,
}
