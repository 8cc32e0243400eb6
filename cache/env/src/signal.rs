//! The ends of waits: the task that wakes says what has happened.
//!
//! A wake hands its signal over with the place in the queue that it takes (`WaitQueue::wake`), so a
//! wait that ended names the wake that ended it, not the last one of the queue. A wait that no wake
//! ended says so too: `Seen`, `AtDeadline`.

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Signal {
    /// No wake was needed: what was waited for came while the task took its place, before it slept.
    Seen,
    /// No wake came: the awaited thing was found to be there when the deadline passed. Of a
    /// condition that only events change, this is a wake-up that was lost.
    AtDeadline,
    /// A page was read in, or its read failed.
    PageRead,
    /// Somebody has finished with pages that were busy: filled, written in place, or freed.
    PageUnlocked,
    /// Pages were written to their device, or their write failed.
    PageWritten,
    /// A device has taken a write out of its queue that has not ended yet.
    WriteTaken,
    /// Reads of a device ended: there is room for another.
    ReadRoom,
    /// A request slot was given back.
    SlotFreed,
    /// A device has answered an operation: flush, set length, allocate, discard.
    Answered,
    /// The swap file hangs: a task that waits for it is to go on without.
    SwapHangs,
    /// Pages were freed, by whomever.
    Freed,
    /// Memory came into or went out of use: the limit was changed, a chunk was given or taken.
    MemoryMoved,
    /// The background reclaimer has ended a pass, or found that it frees nothing.
    Balanced,
    /// A turn for memory was given (Tidegate's law).
    TurnGiven,
    /// Enough pages were written for a task that was throttled for writeback.
    WrittenEnough,
    /// Isolated pages were put back.
    PutBack,
    /// A reclaimer made progress.
    Progress,
    /// Memory is short: the background reclaimer is asked for.
    ReclaimAsked,
    /// The flusher is asked for: over the background limit, or by reclaim.
    FlusherAsked,
    /// A device has dirty files again.
    FileDirtied,
    /// A sync, or the discard of a range, has ended: the flusher may have the file again.
    SyncEnded,
    /// The gate of a file: a truncation has ended, the last writer is out, or the task that was
    /// turned away is in.
    GateOpened,
    /// The file system's journal got on.
    JournalMoved,
    /// A task has ended.
    TaskEnded,
    /// The cache shuts down, or a device of it is given up.
    Shutdown,
    /// An event of a program's own that it waits for and wakes.
    Other,
    /// A log that pages wait for is durable further, or has ended.
    LogDurable,
}

impl Signal {
    /// Number of signals.
    pub const COUNT: usize = 27;

    /// All, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Seen,
        Self::AtDeadline,
        Self::PageRead,
        Self::PageUnlocked,
        Self::PageWritten,
        Self::WriteTaken,
        Self::ReadRoom,
        Self::SlotFreed,
        Self::Answered,
        Self::SwapHangs,
        Self::Freed,
        Self::MemoryMoved,
        Self::Balanced,
        Self::TurnGiven,
        Self::WrittenEnough,
        Self::PutBack,
        Self::Progress,
        Self::ReclaimAsked,
        Self::FlusherAsked,
        Self::FileDirtied,
        Self::SyncEnded,
        Self::GateOpened,
        Self::JournalMoved,
        Self::TaskEnded,
        Self::Shutdown,
        Self::Other,
        Self::LogDurable,
    ];

    /// Its name in tables, traces and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seen => "seen at once",
            Self::AtDeadline => "found at the deadline",
            Self::PageRead => "page read",
            Self::PageUnlocked => "page unlocked",
            Self::PageWritten => "page written",
            Self::WriteTaken => "write taken",
            Self::ReadRoom => "room for reads",
            Self::SlotFreed => "request slot freed",
            Self::Answered => "device answered",
            Self::SwapHangs => "swap file hangs",
            Self::Freed => "pages freed",
            Self::MemoryMoved => "memory moved",
            Self::Balanced => "background pass ended",
            Self::TurnGiven => "turn given",
            Self::WrittenEnough => "enough written",
            Self::PutBack => "isolated pages put back",
            Self::Progress => "reclaim progressed",
            Self::ReclaimAsked => "reclaim asked for",
            Self::FlusherAsked => "flusher asked for",
            Self::FileDirtied => "file dirtied",
            Self::SyncEnded => "sync ended",
            Self::GateOpened => "gate opened",
            Self::JournalMoved => "journal moved",
            Self::TaskEnded => "task ended",
            Self::Shutdown => "shutdown",
            Self::Other => "other",
            Self::LogDurable => "log durable",
        }
    }
}

const _: () = {
    let mut at = 0;
    while at < Signal::COUNT {
        assert!(
            Signal::ALL[at] as usize == at,
            "ALL is in order, and complete"
        );
        at += 1;
    }
    assert!(Signal::LogDurable as usize + 1 == Signal::COUNT);
};
