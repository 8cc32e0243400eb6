//! The work that a task reports: counted live, charged as CPU time in the lab.

/// Kinds of work. The unit is one page unless said otherwise. Costs live in one table of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Work {
    /// The program's own computing, in nanoseconds (user time, not system time).
    User,
    /// One entry into the cache from outside (a system call in the kernel).
    Call,
    /// A page looked up and found.
    Lookup,
    /// A page's bytes copied between a caller and the cache.
    Copy,
    /// A page zeroed.
    Zero,
    /// A frame allocated, for itself or as the first of those from one hold of the free lists.
    Alloc,
    /// A page put into the index and the lists.
    Insert,
    /// A page made dirty: file-system preparation, tags, accounting.
    Dirty,
    /// One pass through `balance_dirty_pages` that took a snapshot and decided.
    Balance,
    /// A file looked at by writeback (list handling, its lock), whether or not it wrote anything.
    VisitFile,
    /// A page prepared for writeback: found, tagged, mapped to the device.
    WritePage,
    /// One request handed to a device.
    Submit,
    /// A page whose I/O ended (in completion).
    EndPage,
    /// A page looked at by reclaim.
    Scan,
    /// A page taken out of the cache and freed.
    Free,
    /// One sleep and wake-up of a task (two context switches).
    Switch,
    /// A page of anonymous memory touched that is there (user time).
    Touch,
    /// A fault on a page of anonymous memory: entry, tables, accounting; its frame, zeroing and I/O
    /// apart.
    Fault,
    /// A page taken off an active list and put elsewhere (`pgrefill`).
    Deactivate,
    /// A page unmapped by reclaim, or given back by its owner, then with its frame's way back.
    Unmap,
    /// Another task, on a CPU, that was shrinking the same node during a batch of reclaim (unit:
    /// one such task): they meet at the lock of its lists.
    ContendLru,
    /// A fresh page that came with another's fault: its place in the tables and the accounts, and
    /// no entry.
    Around,
    /// A frame allocated together with another, in one hold of the free lists. Reported before the
    /// `Alloc` that it came with.
    Drawn,
    /// A page given back by its owner along with another, its frame's way back in it, and no entry.
    Returned,
    /// A page touched on another node than the task's, beside its `Touch` (user time).
    Remote,
    /// A page copied to or from a frame on another node than the task's, beside its `Copy`.
    RemoteCopy,
    /// An object taken from a cache of objects; the frames of a fresh slab apart.
    SlabTake,
    /// An object given back to its cache.
    SlabGive,
    /// An object looked at by a shrinker.
    Prune,
    /// A file made in a directory: entry, inode, their transaction; its objects and its data apart.
    Create,
    /// A file's changes formatted for the log.
    Log,
    /// A page moved to another frame: what that takes beside its `Copy` and its `Insert`.
    MovePage,
    /// A frame that compaction looked at, whether its page could be moved.
    MigrateScan,
    /// A frame that compaction looked at, whether a page could be moved there.
    FreeScan,
    /// A page of anonymous memory sent to the swap file: its slot, its tables, its place in a
    /// request.
    SwapOut,
    /// A page read from the swap file: its place in the tables and the lists, and in a request.
    SwapIn,
}

impl Work {
    /// Number of kinds.
    pub const COUNT: usize = 36;
    /// All kinds, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::User,
        Self::Call,
        Self::Lookup,
        Self::Copy,
        Self::Zero,
        Self::Alloc,
        Self::Insert,
        Self::Dirty,
        Self::Balance,
        Self::VisitFile,
        Self::WritePage,
        Self::Submit,
        Self::EndPage,
        Self::Scan,
        Self::Free,
        Self::Switch,
        Self::Touch,
        Self::Fault,
        Self::Deactivate,
        Self::Unmap,
        Self::ContendLru,
        Self::Around,
        Self::Drawn,
        Self::Returned,
        Self::Remote,
        Self::RemoteCopy,
        Self::SlabTake,
        Self::SlabGive,
        Self::Prune,
        Self::Create,
        Self::Log,
        Self::MovePage,
        Self::MigrateScan,
        Self::FreeScan,
        Self::SwapOut,
        Self::SwapIn,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Call => "call",
            Self::Lookup => "lookup",
            Self::Copy => "copy",
            Self::Zero => "zero",
            Self::Alloc => "alloc",
            Self::Insert => "insert",
            Self::Dirty => "dirty",
            Self::Balance => "balance",
            Self::VisitFile => "visit_file",
            Self::WritePage => "write_page",
            Self::Submit => "submit",
            Self::EndPage => "end_page",
            Self::Scan => "scan",
            Self::Free => "free",
            Self::Switch => "switch",
            Self::Touch => "touch",
            Self::Fault => "fault",
            Self::Deactivate => "deactivate",
            Self::Unmap => "unmap",
            Self::ContendLru => "contend_lru",
            Self::Around => "around",
            Self::Drawn => "drawn",
            Self::Returned => "returned",
            Self::Remote => "remote",
            Self::RemoteCopy => "remote_copy",
            Self::SlabTake => "slab_take",
            Self::SlabGive => "slab_give",
            Self::Prune => "prune",
            Self::Create => "create",
            Self::Log => "log",
            Self::MovePage => "move-page",
            Self::MigrateScan => "migrate-scan",
            Self::FreeScan => "free-scan",
            Self::SwapOut => "swap-out",
            Self::SwapIn => "swap-in",
        }
    }
}
