//! Handles: numbers that C holds, and what they stand for.
//!
//! ```text
//!   63        32 31  28 27  24 23            0
//!   | generation | fork | kind |    slot     |      a number fits if all four do
//! ```
//!
//! A slot is used again with another generation, so a number that was closed fits never again; and
//! generations of another copy of this library in the process begin elsewhere. A
//! call with a handle costs no write that other threads see: the thread notes the slot in a record
//! of its own, and looks at the generation then. A close does it the other way round: it changes
//! the generation, has every thread pass a barrier (membarrier(2)), and waits until no record notes
//! the slot.
//!
//! Invariants
//!   1. An odd generation: the slot has a value, which nobody changes. The thread that makes it
//!      even owns the value once no record notes the slot.
//!   2. A record is written by the thread that has claimed it, and cells are cleared in the order
//!      opposite to that in which they were noted.
//!   3. Slots and records are never freed: a number, however old, leads to a slot.
//!   4. In a child of a fork no number of the parent fits, and no record notes anything.
//!
//! Where the system has no membarrier(2), a fence stands in each call instead.

use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence,
};
use std::time::Duration;

use super::{CType, Result, forked};
use crate::failure::{Failure, TG_BUSY, TG_CLOSED, TG_FULL, TG_KIND, TG_NULL};

/// Slots of the first part of a table; each next part has twice as many.
const FIRST: usize = 64;
const PARTS: usize = 16;
/// Calls inside one another on one thread, by callbacks.
const DEPTH: usize = 4;

/// Forks between the process that loaded the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Threads pass a barrier when they are told to; else each call has a fence.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);
/// Held while slots come and go.
static CHANGING: AtomicBool = AtomicBool::new(false);
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// The slots that one thread is in.
struct Record {
    cells: [AtomicUsize; DEPTH],
    /// Its thread's alone.
    depth: AtomicUsize,
    claimed: AtomicBool,
    next: *const Record,
}

// SAFETY: `next` is set before it is shared, and records are never freed; the rest is atomic.
unsafe impl Sync for Record {}

thread_local! {
    static MINE: Cell<Option<&'static Record>> = const { Cell::new(None) };
    static LEAVE: Leave = const { Leave };
}

/// Gives the record of a thread back when the thread ends.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(record) = MINE.take() {
            record.claimed.store(false, Ordering::Release);
        }
    }
}

impl Record {
    fn all() -> impl Iterator<Item = &'static Record> {
        let mut at: *const Record = RECORDS.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a record, and these are never freed.
            let record: Option<&'static Record> = unsafe { at.as_ref() };
            at = record?.next;
            record
        })
    }

    /// One that no thread has.
    fn claim() -> &'static Record {
        let free = Self::all().find(|record| {
            let claimed = &record.claimed;
            claimed
                .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        free.unwrap_or_else(|| {
            let record = Box::leak(Box::new(Record {
                cells: [const { AtomicUsize::new(0) }; DEPTH],
                depth: AtomicUsize::new(0),
                claimed: AtomicBool::new(true),
                next: ptr::null(),
            }));
            let mut head = RECORDS.load(Ordering::Acquire);
            loop {
                record.next = head;
                let set =
                    RECORDS.compare_exchange(head, record, Ordering::AcqRel, Ordering::Acquire);
                match set {
                    Ok(_) => return record,
                    Err(other) => head = other,
                }
            }
        })
    }

    /// Of a thread that has none yet; and whether it is for this call alone, as the thread is at
    /// its end.
    #[cold]
    fn claim_for_thread() -> (&'static Record, bool) {
        let stays = LEAVE.try_with(|_| ()).is_ok();
        let record = Self::claim();
        if stays {
            MINE.set(Some(record));
        }
        (record, !stays)
    }
}

/// A slot noted by this thread.
struct Noted {
    record: &'static Record,
    depth: usize,
    for_this_call: bool,
}

impl Noted {
    #[inline]
    fn new(slot: usize) -> Result<Self> {
        let (record, for_this_call) = match MINE.get() {
            Some(record) => (record, false),
            None => Record::claim_for_thread(),
        };
        let depth = record.depth.load(Ordering::Relaxed);
        let Some(cell) = record.cells.get(depth) else {
            return Err(Failure::new(
                TG_BUSY,
                "callbacks call the library too deeply",
            ));
        };
        cell.store(slot, Ordering::Relaxed);
        record.depth.store(depth + 1, Ordering::Relaxed);
        if ASYMMETRIC.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        Ok(Self {
            record,
            depth,
            for_this_call,
        })
    }
}

impl Drop for Noted {
    #[inline]
    fn drop(&mut self) {
        self.record.cells[self.depth].store(0, Ordering::Release);
        self.record.depth.store(self.depth, Ordering::Relaxed);
        if self.for_this_call {
            self.record.claimed.store(false, Ordering::Release);
        }
    }
}

/// A handle as it is in C: a struct with a number, of a type for each kind.
#[repr(transparent)]
pub(crate) struct Handle<T> {
    id: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    #[inline]
    fn generation(self) -> u32 {
        (self.id >> 32) as u32
    }

    #[inline]
    fn slot(self) -> u32 {
        (self.id & 0xff_ffff) as u32
    }

    /// Its kind, and the fork of the process that it is of.
    #[inline]
    fn kind_and_fork(self) -> u32 {
        ((self.id >> 24) & 0xff) as u32
    }
}

impl<T: Kind> Handle<T> {
    /// Kind and fork of the numbers that this process gives out.
    #[inline]
    fn of_here() -> u32 {
        T::NUMBER | (FORKS.load(Ordering::Relaxed) & 0xf) << 4
    }

    fn new(generation: u32, slot: u32) -> Self {
        let id = u64::from(generation) << 32 | u64::from(Self::of_here() << 24 | slot);
        let kind = PhantomData;
        Self { id, kind }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Default for Handle<T> {
    fn default() -> Self {
        Self {
            id: 0,
            kind: PhantomData,
        }
    }
}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// A kind of object that a handle may stand for.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// Its number, from 1 on.
    const NUMBER: u32;
    /// In words.
    const NAME: &'static str = KINDS[Self::NUMBER as usize];
    fn table() -> &'static Table<Self>;
}

/// In words, by number; with `tg_` before it, the type in C.
const KINDS: [&str; 9] = [
    "", "cache", "file", "writer", "region", "queue", "governor", "member", "map",
];

impl<T: Kind> CType for Handle<T> {
    fn name() -> String {
        format!("tg_{}", T::NAME)
    }
}

/// All that handles of one kind stand for.
pub(crate) struct Table<T> {
    parts: [OnceLock<Box<[Slot<T>]>>; PARTS],
    /// Under `CHANGING`.
    free: UnsafeCell<Free>,
}

struct Free {
    slots: Vec<u32>,
    /// Slots from here on were never used.
    fresh: u32,
}

struct Slot<T> {
    generation: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: a value is shared while its generation is odd, and is one thread's otherwise (invariant
// 1); the free list is used under `CHANGING`.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// The generation that slots of this copy of the library begin with: by where the copy lies. Even,
/// and far from those of others.
fn first_generation() -> u32 {
    let at = ptr::from_ref(&FORKS).addr() as u64;
    let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
    (mixed & 0x3fff_fffe) as u32
}

/// The part of a table that a slot lies in, and its place there.
#[inline]
fn place_of(slot: u32) -> (usize, usize) {
    let at = slot as usize + FIRST;
    let part = (at.ilog2() - FIRST.ilog2()) as usize;
    (part, at - (FIRST << part))
}

impl<T: Kind> Table<T> {
    pub(crate) const fn new() -> Self {
        Self {
            parts: [const { OnceLock::new() }; PARTS],
            free: UnsafeCell::new(Free {
                slots: Vec::new(),
                fresh: 0,
            }),
        }
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot<T>> {
        let (part, at) = place_of(number);
        self.parts.get(part)?.get()?.get(at)
    }

    /// The slot that a number leads to, if it is of this kind and process.
    #[inline]
    fn slot_of(&self, handle: Handle<T>) -> Result<&Slot<T>> {
        if handle.kind_and_fork() == Handle::<T>::of_here()
            && let Some(slot) = self.slot(handle.slot())
        {
            return Ok(slot);
        }
        Err(Self::mistaken(handle))
    }

    #[cold]
    fn mistaken(handle: Handle<T>) -> Failure {
        let (kind, name) = (handle.kind_and_fork() & 0xf, T::NAME);
        match KINDS.get(kind as usize) {
            _ if handle.id == 0 => Failure::new(
                TG_NULL,
                format!("the handle of the {name} is null: nothing was opened with it"),
            ),
            Some(other) if kind != T::NUMBER && !other.is_empty() => Failure::new(
                TG_KIND,
                format!("a handle of a {other} stands where one of a {name} is wanted"),
            ),
            Some(_) if kind == T::NUMBER && handle.kind_and_fork() != Handle::<T>::of_here() => {
                forked()
            }
            _ => Failure::new(
                TG_KIND,
                format!("this is no handle of a {name}, nor of anything else"),
            ),
        }
    }

    fn closed() -> Failure {
        Failure::new(
            TG_CLOSED,
            format!(
                "the {} is closed, or its handle was never given out",
                T::NAME
            ),
        )
    }

    /// Gives a value a number.
    pub(crate) fn insert(&self, value: T) -> Result<Handle<T>> {
        prepare();
        let number = {
            let _changing = Changing::begin();
            // SAFETY: under `CHANGING`.
            let free = unsafe { &mut *self.free.get() };
            let number = free.slots.pop().unwrap_or_else(|| {
                free.fresh += 1;
                free.fresh - 1
            });
            let (part, _) = place_of(number);
            let Some(slots) = self.parts.get(part) else {
                free.fresh -= 1;
                return Err(Failure::new(
                    TG_FULL,
                    format!("too many handles of a {}; close some", T::NAME),
                ));
            };
            slots.get_or_init(|| {
                let slot = || Slot {
                    generation: AtomicU32::new(first_generation()),
                    value: UnsafeCell::new(None),
                };
                (0..FIRST << part).map(|_| slot()).collect()
            });
            number
        };
        let slot = self.slot(number).expect("its part was just made");
        // SAFETY: the generation is even and the slot was on no list: it is this thread's
        // (invariant 1).
        unsafe { *slot.value.get() = Some(value) };
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::Release);
        Ok(Handle::new(generation, number))
    }

    /// Does something with what a handle stands for; it stays until this has returned.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        handle: Handle<T>,
        what: impl FnOnce(&T) -> Result<R>,
    ) -> Result<R> {
        let slot = self.slot_of(handle)?;
        let noted = Noted::new(ptr::from_ref(slot).addr())?;
        let generation = slot.generation.load(Ordering::Acquire);
        if generation != handle.generation() || generation.is_multiple_of(2) {
            return Err(Self::closed());
        }
        // SAFETY: the slot is noted, and the generation was odd after that: a thread that makes it
        // even does not touch the value until the note is gone.
        let value = unsafe { (*slot.value.get()).as_ref() };
        let answer = what(value.expect("an odd generation has a value"));
        drop(noted);
        answer
    }

    /// Takes what a handle stands for away from it, when the calls under way with it have
    /// returned.
    pub(crate) fn take(&'static self, handle: Handle<T>) -> Result<Taken<T>> {
        let slot = self.slot_of(handle)?;
        let address = ptr::from_ref(slot).addr();
        if let Some(record) = MINE.get()
            && record
                .cells
                .iter()
                .any(|cell| cell.load(Ordering::Relaxed) == address)
        {
            let words = format!("the {} cannot be closed inside a call of its own", T::NAME);
            return Err(Failure::new(TG_BUSY, words));
        }
        let generation = handle.generation();
        let ended = slot.generation.compare_exchange(
            generation,
            generation.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if generation.is_multiple_of(2) || ended.is_err() {
            return Err(Self::closed());
        }
        wait_until_left(address);
        // SAFETY: this thread has made the generation even, and no record notes the slot
        // (invariant 1).
        let value = unsafe { (*slot.value.get()).take() };
        let value = Some(value.expect("an odd generation had a value"));
        Ok(Taken {
            table: self,
            handle,
            value,
        })
    }

    /// The handles whose values are like this.
    pub(crate) fn find(&self, mut like: impl FnMut(&T) -> bool) -> Vec<Handle<T>> {
        let made = {
            let _changing = Changing::begin();
            // SAFETY: under `CHANGING`.
            unsafe { (*self.free.get()).fresh }
        };
        let handle = |number: u32| {
            let generation = self.slot(number)?.generation.load(Ordering::Acquire);
            Some(Handle::new(generation, number))
        };
        let handles = (0..made).filter_map(handle);
        handles
            .filter(|handle| self.with(*handle, |value| Ok(like(value))).unwrap_or(false))
            .collect()
    }
}

/// An object that was taken away from its handle. Dropped, it is gone, and its slot is free.
pub(crate) struct Taken<T: Kind> {
    table: &'static Table<T>,
    handle: Handle<T>,
    value: Option<T>,
}

impl<T: Kind> Taken<T> {
    /// It.
    pub(crate) fn value(&self) -> &T {
        self.value
            .as_ref()
            .expect("it is there until it is taken out")
    }

    /// It, to be ended; its slot is free, or `put_back_as` is called, when that has been done.
    pub(crate) fn take_out(&mut self) -> T {
        self.value
            .take()
            .expect("it is there until it is taken out")
    }

    /// Its handle stands for it again.
    pub(crate) fn put_back(mut self) {
        let value = self.take_out();
        self.put_back_as(value);
    }

    /// Its handle stands for what became of it again.
    pub(crate) fn put_back_as(mut self, value: T) {
        self.value = None;
        let slot = self.table.slot_of(self.handle).expect("its slot is there");
        // SAFETY: this thread has made the generation even and the slot is on no list.
        unsafe { *slot.value.get() = Some(value) };
        slot.generation
            .store(self.handle.generation(), Ordering::Release);
        std::mem::forget(self);
    }
}

impl<T: Kind> Drop for Taken<T> {
    fn drop(&mut self) {
        // Its drop may call back.
        drop(self.value.take());
        // A slot whose generations are used up stays empty.
        if self.handle.generation() < u32::MAX - 2 {
            let _changing = Changing::begin();
            // SAFETY: under `CHANGING`.
            unsafe { (*self.table.free.get()).slots.push(self.handle.slot()) };
        }
    }
}

/// `CHANGING`, held. Not a `Mutex`: a fork has to leave it free in the child.
struct Changing;

impl Changing {
    fn begin() -> Self {
        while CHANGING.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.store(false, Ordering::Release);
    }
}

/// Waits until every call that is under way with a slot has returned.
fn wait_until_left(slot: usize) {
    barrier();
    for record in Record::all() {
        for cell in &record.cells {
            let mut tries = 0_u32;
            while cell.load(Ordering::Acquire) == slot {
                tries += 1;
                match tries {
                    0..100 => spin_loop(),
                    100..200 => std::thread::yield_now(),
                    _ => std::thread::sleep(Duration::from_micros(200)),
                }
            }
        }
    }
}

/// linux/membarrier.h.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier(2) takes numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Every note that was made before is seen after it, or the generation that was changed before it
/// is seen by its maker.
fn barrier() {
    fence(Ordering::SeqCst);
    if ASYMMETRIC.load(Ordering::Relaxed) && !membarrier(PRIVATE_EXPEDITED) {
        // A fork has lost the registration.
        assert!(
            membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED),
            "membarrier(2) worked before"
        );
    }
}

/// Once in a process: how threads pass barriers, and what a fork does.
fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        ASYMMETRIC.store(membarrier(REGISTER_PRIVATE_EXPEDITED), Ordering::Relaxed);
        // SAFETY: functions that live as long as the process (the library is never unloaded), and
        // that do no more than what is allowed between a fork and an exec: atomics.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    });
}

extern "C" fn before_fork() {
    std::mem::forget(Changing::begin());
}

extern "C" fn after_fork() {
    drop(Changing);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let mine = MINE.get().map(ptr::from_ref);
    for record in Record::all() {
        if mine != Some(ptr::from_ref(record)) {
            for cell in &record.cells {
                cell.store(0, Ordering::Relaxed);
            }
            record.depth.store(0, Ordering::Relaxed);
            record.claimed.store(false, Ordering::Relaxed);
        }
    }
    drop(Changing);
}
