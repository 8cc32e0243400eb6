//! A kind of task as far as its scenario is concerned: the keys of its table, its traits, and the
//! mistakes that only this kind can tell.
//!
//! Nobody matches over kinds to know one: it is asked for its `Traits`, or for its keys by name
//! (`TaskEntry::key`). They have defaults, so that a new kind says only what is special.
//!
//! Invariants
//!   1. A kind's keys are the lines of its `keys!`: their names, needs and meanings stand there and
//!      nowhere else.
//!   2. `Traits` depend on keys alone: the same in the lab and live, at any scale.

use core::ops::Range;

use toml::Spanned;

use crate::mistake::Mistake;

/// A kind of task, with the values of its keys.
pub(crate) trait Kind {
    /// Its traits.
    fn traits(&self) -> Traits;

    /// The mistakes in its keys. Their ranges, and what its traits ask for, are checked for all
    /// kinds alike.
    fn check(&self, _around: &Around) -> Vec<Mistake> {
        Vec::new()
    }
}

/// A kind as the rest of the program sees it.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Its files.
    pub files: Files,
    /// It maps its file: the pages of it that it has in its table.
    pub maps: bool,
    /// Its anonymous memory.
    pub memory: Memory,
    /// When it ends.
    pub ends: Ends,
    /// Keys of which one, and one only, says its size.
    pub size: &'static [&'static str],
    /// Its way to write files.
    pub writes: Writes,
    /// It only reads.
    pub reads: bool,
    /// It writes as fast as it may, and says what it dirties call by call: writers of this kind are
    /// held against each other.
    pub heavy: bool,
}

impl Traits {
    /// No files, no memory; done when it is done.
    pub const NONE: Self = Self {
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
    pub fn fills_memory(&self) -> bool {
        self.files == Files::Made || self.maps
    }
}

/// The files of a task. All but `None` have a `device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
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
    /// The number that a task has when it begins, where its entry says `own`.
    pub const fn count(self, own: u32) -> u32 {
        match self {
            Self::Written | Self::Found => own,
            // The directory, and the table of its inodes.
            Self::SmallMade => 2,
            Self::None | Self::Made | Self::SmallSeen => 0,
        }
    }

    /// They are small files.
    pub const fn are_small(self) -> bool {
        matches!(self, Self::SmallMade | Self::SmallSeen)
    }
}

/// The anonymous memory of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
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
pub enum Ends {
    /// When it has done its amount: it has no `run_s`.
    Itself,
    /// With its amount, or with `run_s` if that is given and comes first.
    Early,
    /// With `run_s`, which it needs: it has no amount to do.
    Timed,
}

/// The way in which a task writes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// It does not.
    Nothing,
    /// Front to back, each page once, but for the edges of its calls.
    Once,
    /// It may come to a page again.
    Over,
}

/// The surroundings of a task, for checks of one kind's keys.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    /// The place of the task's id.
    pub(crate) id: Range<usize>,
    /// The number of tasks of the entry.
    pub(crate) count: f64,
    /// The run's scale.
    pub(crate) scale: f64,
    /// The machine's memory, MiB.
    pub(crate) memory_mib: Spanned<f64>,
    /// The machine has a swap file.
    pub(crate) has_swap: bool,
}
