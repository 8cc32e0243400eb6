//! Which writes go to memory that several threads use: a test's view of how the cache scales
//! (feature `count`).
//!
//! A write to a cache line that another core has used since costs a trip to that core, however few
//! cores there are; two threads on two cores find out where. While a measurement runs
//! ([`measure`]), each load and each write of an atomic notes its line, its thread and the place in
//! the code; a mutex counts as two writes, one to take it and one to give it back. A line is
//! *shared* if two threads use it at least once in 64 operations, and each write to it counts then,
//! whether or not the line was away at that moment: the number does not depend on how the threads
//! happened to run.
//!
//! Not seen: reference counts of `Arc`, and plain data behind a lock, for which the lock stands.

use core::panic::Location;
use core::sync::atomic::{self as plain, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{LockResult, MutexGuard, PoisonError, TryLockResult};

/// Bytes of a cache line.
const LINE: usize = 64;
/// A thread that uses a line more rarely than once in this many operations leaves it to the others.
const RARELY: u64 = 64;

static IS_ON: plain::AtomicBool = plain::AtomicBool::new(false);
static THREADS: plain::AtomicU32 = plain::AtomicU32::new(0);
static LINES: std::sync::Mutex<Option<HashMap<usize, Line>>> = std::sync::Mutex::new(None);
/// Of one measurement at a time.
static MEASURING: std::sync::Mutex<()> = std::sync::Mutex::new(());

thread_local! {
    static NUMBER: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

type Place = (&'static str, u32);

/// The uses and writes of one line.
#[derive(Default)]
struct Line {
    /// Uses by each thread.
    uses: HashMap<u32, u64>,
    writes: HashMap<Place, u64>,
}

/// Writes to shared lines while some operations ran.
#[derive(Debug)]
pub struct Writes {
    /// The operations of all threads.
    pub operations: u64,
    /// By place in the code, most first: `path:line`, and how many.
    pub places: Vec<(String, u64)>,
}

impl Writes {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.places.iter().map(|(_, writes)| writes).sum()
    }

    /// Thousandths of a write that an operation makes.
    #[must_use]
    pub fn permille(&self) -> u64 {
        (self.all() * 1000).div_ceil(self.operations.max(1))
    }
}

/// Has `work` run `operations` in all, on threads that are ready; answers what they wrote to shared
/// lines.
pub fn measure(operations: u64, work: impl FnOnce()) -> Writes {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    *lines() = Some(HashMap::new());
    IS_ON.store(true, Ordering::SeqCst);
    work();
    IS_ON.store(false, Ordering::SeqCst);
    let lines = lines().take().unwrap_or_default();
    let least = operations.div_ceil(RARELY);
    let mut places: BTreeMap<Place, u64> = BTreeMap::new();
    for line in lines.into_values() {
        // Of its own operations, of which it has about an equal part.
        let threads = line.uses.len() as u64;
        let often = |uses: &&u64| **uses * threads >= least;
        if line.uses.values().filter(often).count() > 1 {
            for (place, writes) in line.writes {
                *places.entry(place).or_default() += writes;
            }
        }
    }
    let name = |((file, line), writes): (Place, u64)| {
        let short = file.rfind("cache/").map_or(file, |at| &file[at..]);
        (format!("{short}:{line}"), writes)
    };
    let mut places: Vec<_> = places.into_iter().map(name).collect();
    places.sort_by_key(|(_, writes)| core::cmp::Reverse(*writes));
    Writes { operations, places }
}

fn lines() -> MutexGuard<'static, Option<HashMap<usize, Line>>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
#[track_caller]
fn note<T>(at: &T, writes: u64) {
    if IS_ON.load(Ordering::Relaxed) {
        note_at(core::ptr::from_ref(at).addr(), writes, Location::caller());
    }
}

fn note_at(address: usize, writes: u64, caller: &'static Location<'static>) {
    // A thread that ends is nobody's any more.
    let Ok(thread) = NUMBER.try_with(|number| *number) else {
        return;
    };
    if let Some(lines) = &mut *lines() {
        let line = lines.entry(address / LINE).or_default();
        *line.uses.entry(thread).or_default() += 1;
        if writes > 0 {
            *line
                .writes
                .entry((caller.file(), caller.line()))
                .or_default() += writes;
        }
    }
}

/// A mutex that is counted.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// One that holds `data`.
    pub const fn new(data: T) -> Self {
        Self(std::sync::Mutex::new(data))
    }

    /// See `std`.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        note(self, 2);
        self.0.lock()
    }

    /// See `std`.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        note(self, 2);
        self.0.try_lock()
    }

    /// See `std`.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    /// See `std`.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

macro_rules! counted {
    ($($name:ident($value:ty))*) => { $(
        /// An atomic that is counted: each step as `core` has it.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(plain::$name);

        #[allow(missing_docs, reason = "each step is that of `core`")]
        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(plain::$name::new(value))
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                note(self, 0);
                self.0.load(order)
            }

            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                note(self, 1);
                self.0.store(value, order);
            }

            counted!(@exchanges $value: compare_exchange compare_exchange_weak);
            counted!(@updates $value: fetch_update try_update);
            counted!(@steps $value: swap fetch_and fetch_or);
        }
    )* };
    (@steps $value:ty: $($step:ident)*) => { $(
        #[inline]
        #[track_caller]
        pub fn $step(&self, value: $value, order: Ordering) -> $value {
            note(self, 1);
            self.0.$step(value, order)
        }
    )* };
    (@exchanges $value:ty: $($step:ident)*) => { $(
        #[inline]
        #[track_caller]
        pub fn $step(
            &self,
            from: $value,
            to: $value,
            done: Ordering,
            refused: Ordering,
        ) -> Result<$value, $value> {
            note(self, 1);
            self.0.$step(from, to, done, refused)
        }
    )* };
    (@updates $value:ty: $($step:ident)*) => { $(
        #[inline]
        #[track_caller]
        pub fn $step(
            &self,
            done: Ordering,
            refused: Ordering,
            change: impl FnMut($value) -> Option<$value>,
        ) -> Result<$value, $value> {
            note(self, 1);
            self.0.$step(done, refused, change)
        }
    )* };
    (@numbers $($name:ident($value:ty))*) => { $(
        #[allow(missing_docs, reason = "each step is that of `core`")]
        impl $name {
            counted!(@steps $value: fetch_add fetch_sub fetch_max fetch_min);
        }
    )* };
}

counted!(AtomicBool(bool) AtomicI64(i64) AtomicU8(u8) AtomicU32(u32) AtomicU64(u64) AtomicUsize(usize));
counted!(@numbers AtomicI64(i64) AtomicU8(u8) AtomicU32(u32) AtomicU64(u64) AtomicUsize(usize));

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[repr(align(64))]
    struct Alone(AtomicU64);

    #[test]
    fn writes_to_a_line_of_two_threads_count_and_others_do_not() {
        let (ours, own) = (
            Alone(AtomicU64::new(0)),
            [0, 1].map(|_| Alone(AtomicU64::new(0))),
        );
        let (begin, end) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            for own in &own {
                let (ours, begin, end) = (&ours, &begin, &end);
                scope.spawn(move || {
                    begin.wait();
                    for turn in 0..1000 {
                        own.0.fetch_add(1, Ordering::Relaxed);
                        if turn % 10 == 0 {
                            ours.0.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    end.wait();
                });
            }
            let writes = measure(2000, || {
                begin.wait();
                end.wait();
            });
            assert_eq!((writes.all(), writes.permille()), (200, 100));
            assert_eq!(writes.places.len(), 1, "{writes:?}");
        });
    }
}
