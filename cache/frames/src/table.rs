//! The frame table: one state word and one owner per frame.
//!
//! It decides which task may read, write, write back or free a frame, and nothing else: what is in
//! the index, on a list or under I/O is `mm`'s book-keeping.
//!
//! ```text
//!           claim            adopt         release, show
//!   FREE ----------> BUSY ----------> BUSY -------------> CACHED <--------------------.
//!    ^                |              CACHED   try_busy  | |    ^                      |
//!    |                |    disown      |  ^-------------' |    | end_writeback        | end_writeback(failed):
//!    |<---------------'<---------------'                  |    |                      | DIRTY again
//!    |                                       DIRTY --> WRITEBACK ---------------------'
//!    |   take_orphan                        (try_begin_writeback)
//!    '----------------- ORPHAN <--- try_orphan (replaced while pinned or under writeback)
//! ```
//!
//! Vocabulary: a *pin* is the right to read a frame's content, shared; *busy* is the right to
//! change content and owner, exclusive; an *orphan* is a frame that was replaced in the index while
//! somebody still used it, and that its last user frees; the *generation* counts how often a frame
//! was claimed.
//!
//! Invariants
//!   1. `BUSY` and a pin exclude each other. Pins rise only from a word with `CACHED | UPTODATE`
//!      and without `BUSY`; `BUSY` is set only on a word without pins.
//!   2. The owner changes only between `claim`, or in `claim_for`, and the `release` or `show`
//!      after it, so never under a pin and never within one generation as a reader can see it.
//!   3. `FREE` stands alone: no pins, no other flag.
//!   4. `ORPHAN` implies neither `CACHED` nor `BUSY` nor `DIRTY`; its pins only fall. So among the
//!      last `unpin` and `end_writeback` exactly one sees "no user left".
//!   5. Once a frame is adopted its word is only stepped (read-modify-write), until it is free. So
//!      each release heads a release sequence that every later step continues: an acquire sees
//!      *all* earlier releases, of pins too, and not only the last one. Where nobody else has
//!      anything to release it is stored to, each store a release behind an acquire: from `claim`
//!      to `adopt`, when not even a stale hint (`update`) changes it; and by the holder of the busy
//!      bit, in `show` and when the frame ends. Beside that one, outside writeback, only hints are
//!      stepped, and one may be lost there.
//!
//! Why the word holds a generation: a reader compares the owner *before* its compare-and-swap, and
//! the step succeeds only in the same generation. Pinning first and comparing afterwards would be
//! one field less, but a reader with a stale lookup would then hold a pin on a stranger's frame for
//! a moment: reclaim would be refused for nothing, and, worse, that stray pin could be the last one
//! of an orphan, whose frame `try_pin` has no way to hand on.
//!
//! Concurrency: everything takes `&self`. A loop goes round again only if another thread stepped
//! the same word meanwhile.
//!
//! Source: the idea of one state word per frame is that of vmcache (Leis et al., SIGMOD 2023,
//! `PageState`) and of Postgres' buffer headers (src/backend/storage/buffer/README); the meaning of
//! dirty, writeback, referenced, active and reclaim is Linux' (v6.12 include/linux/page-flags.h).

use crate::FrameId;
use crate::sync::{AtomicU64, Ordering};
use crate::zeroed;

mod flags;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use flags::Flags;

/// Page `index` of file `file`: what a frame in the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Number of the file in the cache.
    pub file: u32,
    /// Page number in the file (16 TiB per file).
    pub index: u32,
}

/// Most pins a frame can have at once. Half of what the field holds: a count that went below zero
/// shows as one far above the cap, and not as a plausible number of readers.
pub const PINS_MAX: u32 = 1 << 15;

/// A frame whose content may be read through this: it is not reused and not written meanwhile.
/// Given back with `FrameTable::unpin`. Not `Clone`.
#[derive(Debug)]
#[must_use]
pub struct Pin {
    pub(crate) frame: FrameId,
}

/// The exclusive right to a frame's content: no pins, nobody else busy. Held across I/O.
/// Given back with `FrameTable::release`, `FrameTable::show` or `FrameTable::disown`. Not `Clone`.
#[derive(Debug)]
#[must_use]
pub struct Busy {
    pub(crate) frame: FrameId,
}

/// One life of a frame, from a claim to the next; wraps after 2^32 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(u32);

/// Why a pin or the busy bit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody holds the busy bit: wait for it.
    Busy,
    /// Pinned (asking for the busy bit).
    Pinned,
    /// The frame does not hold that page any more: look it up again.
    Gone,
    /// Not up to date (asking for a pin): a failed or never finished read.
    NotUptodate,
    /// The pin count is at its cap.
    TooManyPins,
    /// Dirty or under writeback (asking for a clean frame).
    NotClean,
}

/// One state word and owner per frame; <= 64 bytes a frame with everything else of this crate.
pub struct FrameTable {
    frames: Box<[Frame]>,
}

/// Word and owner side by side: a hit touches one cache line of the table.
pub(crate) struct Frame {
    /// Drawn at [`Flags`], with `FREE` the other way round: a frame that nobody has claimed yet is
    /// a zero.
    word: AtomicU64,
    /// A packed [`Owner`], meaningful while `CACHED` or `ORPHAN`.
    owner: AtomicU64,
}

const GENERATION_ONE: u64 = 1 << 32;

const _: () = {
    assert!(PINS_MAX < Flags::PINS, "the cap fits, with room above it");
    assert!(
        Flags::CHANGEABLE.pins() == 0,
        "a caller never changes the count"
    );
    assert!(
        cfg!(any(loom, shuttle)) || size_of::<Frame>() == 16,
        "four frames share a cache line"
    );
};

impl Pin {
    /// Which frame.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }
}

impl Busy {
    /// Which frame.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }
}

impl Owner {
    #[inline]
    fn packed(self) -> u64 {
        u64::from(self.file) << 32 | u64::from(self.index)
    }

    fn unpacked(packed: u64) -> Self {
        Self {
            file: high_half(packed),
            index: low_half(packed),
        }
    }
}

impl FrameTable {
    /// A table of `frames` frames, all `FREE`.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self {
            frames: zeroed::table(frames as usize),
        }
    }

    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("the table was made from a u32")
    }

    /// True if the table has no frames at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// State word now (a hint unless something pins it down).
    #[inline]
    #[must_use]
    pub fn flags(&self, frame: FrameId) -> Flags {
        // Acquire: the task that sees busy or writeback gone here may rely on what their holders
        // did.
        flags_of(self.frame(frame).word.load(Ordering::Acquire))
    }

    /// Owner as last set (a hint unless pinned or busy).
    #[inline]
    #[must_use]
    pub fn owner(&self, frame: FrameId) -> Owner {
        Owner::unpacked(self.frame(frame).owner.load(Ordering::Relaxed))
    }

    /// True if somebody holds the busy bit of `owner`'s page in this frame.
    ///
    /// A frame that was freed and is busy again, but holds nobody's page yet, still bears its last
    /// owner's name: its busy bit no longer matters for that page.
    #[must_use]
    pub fn is_busy_with(&self, frame: FrameId, owner: Owner) -> bool {
        let entry = self.frame(frame);
        // Acquire: the task that sees `CACHED` of a later life sees its owner, too (`adopt`).
        let flags = flags_of(entry.word.load(Ordering::Acquire));
        flags.has(Flags::BUSY | Flags::CACHED) && entry.holds(owner)
    }

    /// Pins the frame for reading if it still holds `owner`: a compare and one CAS.
    ///
    /// `frame` must come from a lookup in the index (which acquires what `adopt` released).
    /// A refused call leaves no trace: not even for a moment is a frame of another owner pinned.
    ///
    /// # Errors
    /// `Busy`, `Gone`, `NotUptodate`, `TooManyPins`.
    #[inline]
    pub fn try_pin(&self, frame: FrameId, owner: Owner) -> Result<Pin, Refusal> {
        self.try_pin_and_look(frame, owner).map(|(pin, _)| pin)
    }

    /// The same, with the flags as the step left them: a second look would wait for it.
    ///
    /// # Errors
    /// As `try_pin`.
    #[inline]
    pub fn try_pin_and_look(&self, frame: FrameId, owner: Owner) -> Result<(Pin, Flags), Refusal> {
        let entry = self.frame(frame);
        let word = entry.word.load(Ordering::Acquire);
        if flags_of(word).is_pinnable()
            && entry.holds(owner)
            && entry.try_step(word, word + 1, Ordering::Acquire)
        {
            return Ok((Pin { frame }, flags_of(word + 1)));
        }
        self.try_pin_contended(frame, owner)
    }

    /// The refused or overtaken half of `try_pin`.
    #[cold]
    fn try_pin_contended(&self, frame: FrameId, owner: Owner) -> Result<(Pin, Flags), Refusal> {
        let entry = self.frame(frame);
        loop {
            let word = entry.word.load(Ordering::Acquire);
            let flags = flags_of(word);
            if !flags.has(Flags::CACHED) || !entry.holds(owner) {
                return Err(Refusal::Gone);
            }
            if flags.has(Flags::BUSY) {
                return Err(Refusal::Busy);
            }
            if !flags.has(Flags::UPTODATE) {
                return Err(Refusal::NotUptodate);
            }
            if flags.pins() >= PINS_MAX {
                return Err(Refusal::TooManyPins);
            }
            if entry.try_step(word, word + 1, Ordering::Acquire) {
                return Ok((Pin { frame }, flags_of(word + 1)));
            }
        }
    }

    /// Gives a pin back. True: it was the last one of an orphan not under writeback, and the caller
    /// must free the frame (`FrameTable::take_orphan`).
    #[inline]
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "the right to read ends here")]
    pub fn unpin(&self, pin: Pin) -> bool {
        // Release: the reads made under the pin end before anybody writes (acquires BUSY) or frees.
        let before = flags_of(self.frame(pin.frame).word.fetch_sub(1, Ordering::Release));
        debug_assert!(
            before.pins() > 0,
            "a pin of another table (a check of 1 ns on a 10 ns path)"
        );
        Flags(before.0.wrapping_sub(1)).is_unused_orphan()
    }

    /// Claims a frame fresh from the free lists; it is busy, not cached, not up to date.
    ///
    /// # Panics
    /// If the frame is not `FREE`: it was handed out twice.
    #[inline]
    pub fn claim(&self, frame: FrameId) -> Busy {
        // Acquire: the accesses of the last owner's users have ended.
        self.frame(frame).alone(|word| {
            let before = flags_of(word);
            assert!(
                before.has(Flags::FREE),
                "frame {} is claimed but not free: {before:x?}",
                frame.0
            );
            with_flags(word.wrapping_add(GENERATION_ONE), Flags::BUSY)
        });
        Busy { frame }
    }

    /// Claims a frame and makes it hold `owner`, setting flags: `claim` and `adopt_as` in one step.
    ///
    /// # Panics
    /// As these.
    #[inline]
    pub fn claim_for(&self, frame: FrameId, owner: Owner, set: Flags) -> Busy {
        assert_changeable(set, Flags::NONE);
        let entry = self.frame(frame);
        // Acquire: as in `claim`.
        entry.alone(|word| {
            let before = flags_of(word);
            assert!(
                before.has(Flags::FREE),
                "frame {} is claimed but not free: {before:x?}",
                frame.0
            );
            // Release, below: as in `adopt_as`. A task that reads it beside an older word finds
            // that word gone (`holds`).
            entry.owner.store(owner.packed(), Ordering::Relaxed);
            let flags = Flags::BUSY | Flags::CACHED | set;
            with_flags(word.wrapping_add(GENERATION_ONE), flags)
        });
        Busy { frame }
    }

    /// Makes the claimed frame hold `owner` (sets `CACHED`); before it is put into the index.
    ///
    /// # Panics
    /// If the frame has an owner already.
    #[inline]
    pub fn adopt(&self, busy: &Busy, owner: Owner) {
        self.adopt_as(busy, owner, Flags::NONE);
    }

    /// The same, setting flags in the same step.
    ///
    /// # Panics
    /// As `adopt`; for a flag that is not the caller's.
    #[inline]
    pub fn adopt_as(&self, busy: &Busy, owner: Owner, set: Flags) {
        assert_changeable(set, Flags::NONE);
        let entry = self.frame(busy.frame);
        entry.alone(|word| {
            let flags = flags_of(word);
            assert!(
                flags.has(Flags::BUSY),
                "adopt needs the busy bit: {flags:x?}"
            );
            assert!(
                !flags.has(Flags::CACHED),
                "a frame changes its owner only through the free lists: {flags:x?}"
            );
            // Release, below: the task that sees CACHED of this generation sees the owner.
            entry.owner.store(owner.packed(), Ordering::Relaxed);
            with_flags(word, flags.changed(Flags::CACHED | set, Flags::NONE))
        });
    }

    /// Takes the busy bit of a page that is still `owner`'s, whether dirty or clean, up to date or
    /// not.
    ///
    /// # Errors
    /// `Busy`, `Pinned`, `Gone`.
    #[inline]
    pub fn try_busy(&self, frame: FrameId, owner: Owner) -> Result<Busy, Refusal> {
        let entry = self.frame(frame);
        loop {
            let word = entry.word.load(Ordering::Acquire);
            let flags = flags_of(word);
            if !flags.has(Flags::CACHED) || !entry.holds(owner) {
                return Err(Refusal::Gone);
            }
            busy_refusal(flags)?;
            // Acquire: content and owner are the holder's now, so every earlier release and unpin
            // has ended.
            if entry.try_step(word, word | u64::from(Flags::BUSY.0), Ordering::Acquire) {
                return Ok(Busy { frame });
            }
        }
    }

    /// Takes the busy bit of a cached frame only if it is unpinned, clean and not under writeback
    /// (reclaim, truncate).
    ///
    /// # Errors
    /// `Busy`, `Pinned`, `Gone` (not cached), `NotClean`.
    pub fn try_busy_clean(&self, frame: FrameId) -> Result<Busy, Refusal> {
        let entry = self.frame(frame);
        loop {
            let word = entry.word.load(Ordering::Acquire);
            let flags = flags_of(word);
            if !flags.has(Flags::CACHED) {
                return Err(Refusal::Gone);
            }
            busy_refusal(flags)?;
            if flags.any(Flags::DIRTY | Flags::WRITEBACK) {
                return Err(Refusal::NotClean);
            }
            if entry.try_step(word, word | u64::from(Flags::BUSY.0), Ordering::Acquire) {
                return Ok(Busy { frame });
            }
        }
    }

    /// State word now and the generation it is of: enough to know later whether the frame still
    /// holds the page that it holds now. Says something about a page only while the frame is
    /// cached.
    #[inline]
    #[must_use]
    pub fn look(&self, frame: FrameId) -> (Flags, Generation) {
        let word = self.frame(frame).word.load(Ordering::Acquire);
        (flags_of(word), Generation(high_half(word)))
    }

    /// Takes the busy bit of the page that the frame held in `generation`, if it is unpinned and
    /// has none of the flags `unless`.
    ///
    /// # Errors
    /// `Gone` (another generation, or not cached any more), `Busy`, `Pinned`, `NotClean` (one of
    /// `unless`).
    #[inline]
    pub fn try_busy_of(
        &self,
        frame: FrameId,
        generation: Generation,
        unless: Flags,
    ) -> Result<Busy, Refusal> {
        let entry = self.frame(frame);
        loop {
            let word = entry.word.load(Ordering::Acquire);
            let flags = flags_of(word);
            if high_half(word) != generation.0 || !flags.has(Flags::CACHED) {
                return Err(Refusal::Gone);
            }
            busy_refusal(flags)?;
            if flags.any(unless) {
                return Err(Refusal::NotClean);
            }
            // Acquire: as in `try_busy`. The generation is part of the word, so it still stands.
            if entry.try_step(word, word | u64::from(Flags::BUSY.0), Ordering::Acquire) {
                return Ok(Busy { frame });
            }
        }
    }

    /// Sets and clears flags of the page that the frame held in `generation`; answers the flags
    /// before, `None` if it holds it no more.
    ///
    /// # Panics
    /// For a flag that is not the caller's.
    #[inline]
    pub fn update_of(
        &self,
        frame: FrameId,
        generation: Generation,
        set: Flags,
        clear: Flags,
    ) -> Option<Flags> {
        assert_changeable(set, clear);
        let entry = self.frame(frame);
        loop {
            let word = entry.word.load(Ordering::Acquire);
            let flags = flags_of(word);
            if high_half(word) != generation.0 || !flags.has(Flags::CACHED) {
                return None;
            }
            let after = flags.changed(set, clear);
            if after == flags || entry.try_step(word, with_flags(word, after), Ordering::AcqRel) {
                return Some(flags);
            }
        }
    }

    /// Gives the busy bit back, setting and clearing flags in the same step. Answers the flags
    /// before.
    ///
    /// # Panics
    /// If the frame was never adopted (nobody could find it again), or for a flag that is not the
    /// caller's.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the right to write ends here"
    )]
    #[inline]
    pub fn release(&self, busy: Busy, set: Flags, clear: Flags) -> Flags {
        assert_changeable(set, clear);
        // Release: content and owner are complete before a reader can pin (acquire).
        let clear = clear | Flags::BUSY;
        self.frame(busy.frame).always(Ordering::Release, |before| {
            assert!(
                before.has(Flags::BUSY | Flags::CACHED),
                "release of what is not a busy page: {before:x?}"
            );
            before.changed(set, clear)
        })
    }

    /// Gives the busy bit of a new page back, setting flags in the same step. No reclaim knows the
    /// page yet: a hint that it is used or active may be lost.
    ///
    /// # Panics
    /// As `release`, and if the page is under writeback.
    #[inline]
    pub fn show(&self, busy: Busy, set: Flags) {
        assert_changeable(set, Flags::NONE);
        // Release, below: as in `release`.
        self.frame(busy.frame).let_go(busy, |before| {
            assert!(
                before.has(Flags::CACHED) && !before.any(Flags::WRITEBACK),
                "what is not a new page is shown: {before:x?}"
            );
            before.changed(set, Flags::BUSY)
        });
    }

    /// The frame leaves the index for good: it is `FREE` and may go to the free lists.
    ///
    /// # Panics
    /// If dirty or under writeback: dirty data is never dropped by accident.
    #[inline]
    pub fn disown(&self, busy: Busy) -> FrameId {
        self.end(busy, Flags::DIRTY | Flags::WRITEBACK)
    }

    /// The same where the content is given up on purpose, dirty or not: its owner does not want it
    /// any more.
    ///
    /// # Panics
    /// If under writeback: the device reads it.
    #[inline]
    pub fn discard(&self, busy: Busy) -> FrameId {
        self.end(busy, Flags::WRITEBACK)
    }

    /// The claimed frame holds a copy that its maker alone reads: an orphan from the beginning,
    /// with one pin. Its last `unpin` frees it.
    ///
    /// # Panics
    /// If it was adopted: somebody could have found it.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the right to write ends here"
    )]
    pub fn keep_for_pin(&self, busy: Busy) -> Pin {
        let frame = busy.frame;
        // Nobody else steps the word before it is adopted (invariant 5), and an orphan is stepped
        // by its users alone.
        self.frame(frame).alone(|word| {
            let before = flags_of(word);
            assert!(
                before.has(Flags::BUSY) && !before.has(Flags::CACHED),
                "a copy for one reader in a frame that was adopted: {before:x?}"
            );
            with_flags(word, Flags::ORPHAN | Flags::UPTODATE) + 1
        });
        Pin { frame }
    }

    #[inline]
    fn end(&self, busy: Busy, never: Flags) -> FrameId {
        let frame = busy.frame;
        // Release, below: the content is given up before the next claim (acquire).
        self.frame(frame).let_go(busy, |before| {
            assert!(
                !before.any(never),
                "a frame would be dropped that is dirty or being written: {before:x?}"
            );
            Flags::FREE
        });
        frame
    }

    /// Sets and clears flags (never `BUSY`, `CACHED`, `FREE`, `ORPHAN`, `WRITEBACK`, pins) in one
    /// step; answers the flags before.
    ///
    /// Without a pin or the busy bit the frame may be another page's by now: only hints
    /// (`REFERENCED`, `ACTIVE`, `MARK`, `RECLAIM`, `WORKINGSET`) may be changed so. A frame that no
    /// index holds is left alone. Nothing is stepped, and so nothing ordered, if the flags stand
    /// already.
    ///
    /// # Panics
    /// For a flag that is not the caller's.
    #[inline]
    pub fn update(&self, frame: FrameId, set: Flags, clear: Flags) -> Flags {
        assert_changeable(set, clear);
        let change = |before: Flags| {
            let after = before.changed(set, clear);
            (after != before && before.has(Flags::CACHED)).then_some(after)
        };
        // AcqRel: a flag such as DIRTY or FAILED may stand for something the caller did or will
        // look at.
        match self.frame(frame).try_change(Ordering::AcqRel, change) {
            Ok(before) | Err(before) => before,
        }
    }

    /// Dirty and not busy and not under writeback -> not dirty, under writeback; in one step.
    /// False: refused.
    #[must_use]
    #[inline]
    pub fn try_begin_writeback(&self, frame: FrameId) -> bool {
        let change = |before: Flags| {
            let ready = before.has(Flags::DIRTY | Flags::CACHED)
                && !before.any(Flags::BUSY | Flags::WRITEBACK);
            ready.then_some(before.changed(Flags::WRITEBACK, Flags::DIRTY))
        };
        // Acquire: the device must read what the writer that set DIRTY wrote before its release.
        self.frame(frame)
            .try_change(Ordering::Acquire, change)
            .is_ok()
    }

    /// The page, of which the caller has the busy bit, goes out: dirty -> not dirty, under
    /// writeback, with `set` in the same step. The caller keeps the busy bit.
    ///
    /// # Panics
    /// If the page is not dirty, or under writeback already.
    pub fn begin_writeback(&self, busy: &Busy, set: Flags) {
        assert_changeable(set, Flags::NONE);
        // Release: the content is complete before the device reads it.
        self.frame(busy.frame).always(Ordering::Release, |before| {
            assert!(
                before.has(Flags::BUSY | Flags::CACHED | Flags::DIRTY),
                "only a dirty page goes out: {before:x?}"
            );
            assert!(
                !before.has(Flags::WRITEBACK),
                "a page has one write in flight: {before:x?}"
            );
            before.changed(set | Flags::WRITEBACK, Flags::DIRTY)
        });
    }

    /// The page left its index while it was written, and the caller has its busy bit: the end of
    /// the write frees the frame.
    ///
    /// # Errors
    /// The busy bit, if no writeback is under way (any more).
    pub fn try_orphan_busy(&self, busy: Busy) -> Result<(), Busy> {
        let change = |before: Flags| {
            let gone = Flags::CACHED | Flags::DIRTY | Flags::BUSY;
            before
                .has(Flags::WRITEBACK)
                .then_some(before.changed(Flags::ORPHAN, gone))
        };
        // AcqRel: as in `try_orphan`.
        match self.frame(busy.frame).try_change(Ordering::AcqRel, change) {
            Ok(_) => Ok(()),
            Err(_) => Err(busy),
        }
    }

    /// Ends writeback (and clears `RECLAIM`; `FAILED` too, unless `failed`). `failed`: sets
    /// `FAILED | DIRTY` (not for an orphan, whose content has been replaced). Answers the flags
    /// *before*. If they hold `ORPHAN` and no pins, the caller must free the frame (`take_orphan`).
    ///
    /// # Panics
    /// If no writeback was under way.
    pub fn end_writeback(&self, frame: FrameId, failed: bool) -> Flags {
        // Release: the device is done with the content before somebody writes or frees it.
        self.frame(frame).always(Ordering::Release, |before| {
            assert!(
                before.has(Flags::WRITEBACK),
                "writeback of frame {} ended twice: {before:x?}",
                frame.0
            );
            let set = if failed && !before.has(Flags::ORPHAN) {
                Flags::FAILED | Flags::DIRTY
            } else {
                Flags::NONE
            };
            before.changed(set, Flags::WRITEBACK | Flags::RECLAIM | Flags::FAILED)
        })
    }

    /// Replaced in the index while pinned or under writeback (under the index lock): clears
    /// `CACHED` and `DIRTY`, sets `ORPHAN`. False if the frame turned out neither pinned nor under
    /// writeback, or is busy: then nothing was changed.
    ///
    /// # Panics
    /// If the frame is not cached.
    #[must_use]
    pub fn try_orphan(&self, frame: FrameId) -> bool {
        let change = |before: Flags| {
            assert!(
                before.has(Flags::CACHED),
                "orphaned without standing in an index: {before:x?}"
            );
            let used = before.pins() > 0 || before.any(Flags::WRITEBACK);
            let orphan = before.changed(Flags::ORPHAN, Flags::CACHED | Flags::DIRTY);
            (used && !before.has(Flags::BUSY)).then_some(orphan)
        };
        // Release: the replacement stands in the index before the last user frees this frame.
        // Acquire: the caller goes on as if it had been the one to take DIRTY off.
        self.frame(frame)
            .try_change(Ordering::AcqRel, change)
            .is_ok()
    }

    /// Claims an orphan without users for the free lists: `FREE` afterwards. Exactly one caller
    /// gets true.
    #[must_use]
    pub fn take_orphan(&self, frame: FrameId) -> bool {
        let change = |before: Flags| before.is_unused_orphan().then_some(Flags::FREE);
        // Acquire: all unpins and the write have ended. Release: for the next claim.
        self.frame(frame)
            .try_change(Ordering::AcqRel, change)
            .is_ok()
    }

    /// Bytes of metadata of this table.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.len()) * size_of::<Frame>() as u64
    }

    #[inline]
    fn frame(&self, frame: FrameId) -> &Frame {
        &self.frames[frame.0 as usize]
    }
}

impl Frame {
    /// Zeroes: free, in no generation yet.
    pub(crate) fn unclaimed() -> Self {
        Self {
            word: AtomicU64::new(0),
            owner: AtomicU64::new(0),
        }
    }

    /// True if the frame is `owner`'s. Read between an acquire load of the word and a step from
    /// that very word, the answer holds for the step:
    ///
    /// - not older than the word: the owner was stored before the release that the load acquired;
    /// - not younger: between two owners the frame is `FREE`. If that came before our step, ours
    ///   fails: the generation never comes again. If it comes after ours, it comes after our unpin
    ///   too (release, acquired by the busy bit), so this read happens before the new store and
    ///   cannot see it.
    #[inline]
    fn holds(&self, owner: Owner) -> bool {
        self.owner.load(Ordering::Relaxed) == owner.packed()
    }

    /// One attempt. The success ordering matters although the word was loaded with acquire: between
    /// the two a holder of the busy bit may have come and gone and left the same word behind.
    #[inline]
    fn try_step(&self, from: u64, to: u64, order: Ordering) -> bool {
        self.word
            .compare_exchange(from, to, order, Ordering::Relaxed)
            .is_ok()
    }

    /// Steps the word as `change` says, or not at all if it says `None`. Answers the flags before.
    #[inline]
    fn try_change(
        &self,
        order: Ordering,
        change: impl Fn(Flags) -> Option<Flags>,
    ) -> Result<Flags, Flags> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let before = flags_of(word);
            let Some(after) = change(before) else {
                return Err(before);
            };
            match self.word.compare_exchange_weak(
                word,
                with_flags(word, after),
                order,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(before),
                Err(now) => word = now,
            }
        }
    }

    /// Steps the word to what `change` makes of it. Answers the flags before.
    #[inline]
    fn always(&self, order: Ordering, change: impl Fn(Flags) -> Flags) -> Flags {
        match self.try_change(order, |before| Some(change(before))) {
            Ok(before) | Err(before) => before,
        }
    }

    /// Ends a hold outside writeback (invariant 5): a load and a store.
    #[inline]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the right to change the word ends here"
    )]
    fn let_go(&self, busy: Busy, change: impl FnOnce(Flags) -> Flags) {
        // Acquire: the end of a write that was under way when the busy bit was taken.
        let word = self.word.load(Ordering::Acquire);
        let before = flags_of(word);
        assert!(
            before.has(Flags::BUSY),
            "frame {} is not busy: {before:x?}",
            busy.frame.0
        );
        let after = with_flags(word, change(before));
        if cfg!(loom) {
            // Its order of changes does not know that nothing comes between a step's look and its
            // store.
            let stood = self.word.swap(after, Ordering::Release);
            assert!(
                low_half(stood ^ word) & !Flags::HINTS.0 == 0,
                "more than a hint is lost: {:x?}",
                flags_of(stood)
            );
        } else {
            self.word.store(after, Ordering::Release);
        }
    }

    /// Steps the word where nobody else does (invariant 5): a load and a store.
    #[inline]
    fn alone(&self, change: impl FnOnce(u64) -> u64) {
        let before = self.word.load(Ordering::Acquire);
        let after = change(before);
        if cfg!(loom) {
            assert_eq!(self.word.swap(after, Ordering::AcqRel), before, "alone");
        } else {
            self.word.store(after, Ordering::Release);
        }
    }
}

/// The reason for which a cached frame's busy bit is refused.
#[inline]
fn busy_refusal(flags: Flags) -> Result<(), Refusal> {
    if flags.has(Flags::BUSY) {
        return Err(Refusal::Busy);
    }
    if flags.pins() > 0 {
        return Err(Refusal::Pinned);
    }
    Ok(())
}

#[inline]
fn assert_changeable(set: Flags, clear: Flags) {
    let foreign = (set.0 | clear.0) & !Flags::CHANGEABLE.0;
    assert!(
        foreign == 0,
        "flags {foreign:#x} change only in a transition of their own"
    );
}

#[inline]
fn flags_of(word: u64) -> Flags {
    Flags(low_half(word) ^ Flags::FREE.0)
}

#[inline]
fn with_flags(word: u64, flags: Flags) -> u64 {
    u64::from(high_half(word)) << 32 | u64::from(flags.0 ^ Flags::FREE.0)
}

#[inline]
fn low_half(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

#[inline]
fn high_half(word: u64) -> u32 {
    (word >> 32) as u32
}
