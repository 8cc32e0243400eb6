//! A total under a limit that many threads change at the same time, each in a place of its own.
//!
//! One counter that every thread steps costs each of them a trip to the other's cache. Here a
//! thread has a *seat*, which it alone writes to, with a load and a store: what it took less what
//! it gave. A seat may take as much as it was *granted*; the sum of all grants keeps to the limit.
//! A thread asks for a grant some steps ahead, and only a thread that finds the limit used up looks
//! at the other seats.
//!
//! ```text
//!   take   taken + n <= granted?  yes: taken += n          no lock, no step that others see
//!             | no
//!             v
//!          sum of grants + n + AHEAD <= limit?  yes: it is granted
//!             | no
//!             v
//!          settle: each seat is granted what it has taken, and not more; then once more, for n alone
//!   give   taken -= n             below zero where another thread took it
//! ```
//!
//! Invariants
//!   1. The sum of the grants is `all`, once the steps under way have ended, and is not raised
//!      above the limit.
//!   2. One thread alone is refused exactly when the total would pass the limit, whatever other
//!      seats had before.
//!   3. Beside others, the total is above the limit by at most what each other thread takes in one
//!      call: that of a thread which looked at its grant just before it was settled. The next to
//!      settle puts it on the books. (And by `AHEAD` if a limit is lowered while a thread is asking
//!      under the old one.)
//!
//! Concurrency: `taken` is written by the seat's thread alone, but for the last seat, which all
//! threads share that came when the others were taken. A thread that ends leaves its seat to the
//! next, with what it has taken.
//!
//! Source: the batches ahead and the exact look near the limit are those of Linux' `percpu_counter`
//! (v6.12 lib/percpu_counter.c). Deviations: by thread and not by CPU, as there is no way to stay
//! on one; a seat's allowance is taken back by the task that needs it, so that nothing is refused
//! early.

use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Threads that have a place of their own in a spread total; others share these.
pub const PLACES: usize = 16;

/// Threads that have a seat to themselves; the last seat is everybody else's.
const SEATS: u8 = 64;
/// Steps granted ahead.
const AHEAD: i64 = 32;

/// A total under a limit.
pub struct Ledger {
    seats: Box<[Seat; SEATS as usize]>,
    /// The sum of what is granted.
    all: Alone<AtomicI64>,
    /// More may be granted than the limit allows, as it was lowered: what is given back is not to
    /// be taken again.
    over: AtomicBool,
}

/// An entry of one thread at a time, or of all that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatId(u8);

#[derive(Default)]
#[repr(align(128))]
struct Seat {
    taken: AtomicI64,
    granted: AtomicI64,
}

/// Apart from its neighbours (adjacent cache lines are fetched in pairs).
#[derive(Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// A count that only grows and that few read: each thread steps it in its seat, with a load and a
/// store.
pub struct Tally(Box<[Alone<AtomicU64>; SEATS as usize]>);

impl Default for Tally {
    fn default() -> Self {
        Self(Box::new(core::array::from_fn(|_| Alone::default())))
    }
}

impl Tally {
    /// Adds `amount`.
    #[inline]
    pub fn add(&self, seat: SeatId, amount: u64) {
        let count = &self.0[usize::from(seat.0 % SEATS)].0;
        if seat.is_shared() {
            count.fetch_add(amount, Ordering::Relaxed);
        } else {
            count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }
    }

    /// The count: exact while no other thread adds.
    #[must_use]
    pub fn total(&self) -> u64 {
        let seats = self.0.iter().map(|seat| seat.0.load(Ordering::Relaxed));
        seats.sum()
    }
}

impl SeatId {
    /// For threads without one.
    pub const SHARED: Self = Self(SEATS - 1);

    /// A seat by its number, which the caller sees to be one thread's at a time.
    ///
    /// # Panics
    /// If there is no such seat, or it is the shared one.
    #[must_use]
    pub fn of(number: u8) -> Self {
        assert!(number < Self::SHARED.0, "seat {number} of {SEATS}");
        Self(number)
    }

    /// Its place in a total that is spread.
    #[inline]
    #[must_use]
    pub fn place(self) -> usize {
        usize::from(self.0) % PLACES
    }

    /// Its number, for what else a thread has to itself.
    #[inline]
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    #[inline]
    fn is_shared(self) -> bool {
        self == Self::SHARED
    }
}

impl Ledger {
    /// Nothing is taken.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seats: Box::new(core::array::from_fn(|_| Seat::default())),
            all: Alone::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Takes `amount`, unless the total would then be above the limit. `limit` is asked for only
    /// where what the thread was granted does not do.
    #[inline]
    #[must_use]
    pub fn try_take(&self, seat: SeatId, amount: u32, limit: impl Fn() -> u32) -> bool {
        self.take_granted(seat, amount) || self.take_more(seat, amount, limit)
    }

    /// Gives back what this or another thread took.
    #[inline]
    pub fn give(&self, seat: SeatId, amount: u32) {
        let taken = &self.seat(seat).taken;
        if seat.is_shared() {
            taken.fetch_sub(amount.into(), Ordering::Relaxed);
        } else {
            let before = taken.load(Ordering::Relaxed);
            taken.store(before - i64::from(amount), Ordering::Relaxed);
        }
        if self.over.load(Ordering::Relaxed) {
            self.settle_seat(self.seat(seat));
        }
    }

    /// The total: exact while no other thread takes or gives.
    #[must_use]
    pub fn total(&self) -> u64 {
        // Nothing is taken without a grant. Most have never seen a pin.
        if self.all.0.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let taken = |seat: &Seat| seat.taken.load(Ordering::Relaxed);
        // Below zero while what was given is seen before it was taken.
        u64::try_from(self.seats.iter().map(taken).sum::<i64>()).unwrap_or(0)
    }

    /// The limit is lower than it was: takes back what was granted and is not taken. A task that
    /// takes more asks again.
    pub fn lower(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.settle();
    }

    fn settle(&self) {
        self.seats.iter().for_each(|seat| self.settle_seat(seat));
    }

    #[cold]
    fn settle_seat(&self, seat: &Seat) {
        let granted = seat.granted.load(Ordering::Relaxed);
        let taken = seat.taken.load(Ordering::Relaxed);
        // Else its thread asked for more, or another settles it: both have seen to it.
        let settled = granted != taken
            && seat
                .granted
                .compare_exchange(granted, taken, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if settled {
            self.all.0.fetch_add(taken - granted, Ordering::Relaxed);
        }
    }

    #[inline]
    fn take_granted(&self, at: SeatId, amount: u32) -> bool {
        let seat = self.seat(at);
        let mut before = seat.taken.load(Ordering::Relaxed);
        loop {
            let after = before + i64::from(amount);
            if after > seat.granted.load(Ordering::Relaxed) {
                return false;
            }
            if !at.is_shared() {
                seat.taken.store(after, Ordering::Relaxed);
                return true;
            }
            match seat.taken.compare_exchange_weak(
                before,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
    }

    /// Goes round again where a grant was taken back before it was used: somebody else needed it.
    #[cold]
    fn take_more(&self, at: SeatId, amount: u32, limit: impl Fn() -> u32) -> bool {
        let seat = self.seat(at);
        let mut settled = false;
        loop {
            let taken = seat.taken.load(Ordering::Relaxed) + i64::from(amount);
            let short = taken - seat.granted.load(Ordering::Relaxed);
            let limit = i64::from(limit());
            let got = [short.saturating_add(AHEAD), short]
                .into_iter()
                .find(|wanted| *wanted <= 0 || self.try_grant(*wanted, limit));
            match got {
                Some(more) if more > 0 => {
                    // All that is granted is within the limit.
                    self.over.store(false, Ordering::Relaxed);
                    seat.granted.fetch_add(more, Ordering::Relaxed);
                }
                Some(_) => {}
                None if settled => return false,
                None => {
                    self.settle();
                    settled = true;
                    continue;
                }
            }
            if self.take_granted(at, amount) {
                return true;
            }
        }
    }

    fn try_grant(&self, amount: i64, limit: i64) -> bool {
        let all = &self.all.0;
        let mut before = all.load(Ordering::Relaxed);
        while before + amount <= limit {
            match all.compare_exchange_weak(
                before,
                before + amount,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
        false
    }

    #[inline]
    fn seat(&self, seat: SeatId) -> &Seat {
        &self.seats[usize::from(seat.0 % SEATS)]
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

/// The seats of the process: a thread has the same one in every ledger.
#[cfg(not(any(loom, shuttle)))]
mod seats {
    use core::cell::Cell;
    use std::sync::{Mutex, PoisonError};

    use super::SeatId;

    thread_local! {
        /// Without a destructor, so that a look costs a load.
        static SEAT: Cell<Option<SeatId>> = const { Cell::new(None) };
        static LEASE: Lease = const { Lease };
    }

    /// A bit for each seat that is somebody's.
    static TAKEN: Mutex<u64> = Mutex::new(0);

    /// Gives the thread's seat back when the thread ends; later steps are everybody's.
    struct Lease;

    impl Drop for Lease {
        fn drop(&mut self) {
            if let Some(seat) = SEAT.replace(Some(SeatId::SHARED)) {
                // The next thread to have it locks this too, and so sees what this one stored.
                *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << seat.0);
            }
        }
    }

    impl SeatId {
        /// The calling thread's.
        #[inline]
        #[must_use]
        pub fn mine() -> Self {
            SEAT.get().unwrap_or_else(take)
        }
    }

    #[cold]
    fn take() -> SeatId {
        // Refused: the thread is ending.
        if LEASE.try_with(|_| ()).is_err() {
            return SeatId::SHARED;
        }
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u8::try_from(taken.trailing_ones()).expect("at most 64");
        let seat = if number < SeatId::SHARED.0 {
            *taken |= 1 << number;
            SeatId(number)
        } else {
            SeatId::SHARED
        };
        SEAT.set(Some(seat));
        seat
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    const A: SeatId = SeatId(3);
    const B: SeatId = SeatId(4);

    #[test]
    fn one_thread_is_refused_exactly_at_the_limit() {
        let ledger = Ledger::new();
        for limit in [1, 31, 32, 33, 64, 100] {
            for _ in 0..limit {
                assert!(ledger.try_take(A, 1, || limit));
            }
            assert!(!ledger.try_take(A, 1, || limit), "{limit}");
            assert!(!ledger.try_take(B, 1, || limit), "{limit}");
            assert_eq!(ledger.total(), limit.into());
            ledger.give(A, 1);
            assert!(ledger.try_take(B, 1, || limit), "{limit}");
            ledger.give(B, limit);
            assert_eq!(ledger.total(), 0);
        }
    }

    #[test]
    fn what_another_seat_was_granted_and_has_not_taken_is_to_be_had() {
        let ledger = Ledger::new();
        assert!(ledger.try_take(A, 1, || 40));
        assert!(ledger.try_take(B, 39, || 40), "A had 33 granted");
        assert!(!ledger.try_take(A, 1, || 40));
        assert!(!ledger.try_take(B, 1, || 40));
    }

    #[test]
    fn what_one_thread_takes_another_gives() {
        let ledger = Ledger::new();
        for _ in 0..1000 {
            assert!(ledger.try_take(A, 1, || 10));
            ledger.give(B, 1);
        }
        assert_eq!(ledger.total(), 0);
        assert!(ledger.try_take(B, 10, || 10));
        assert!(!ledger.try_take(A, 1, || 10));
    }

    #[test]
    fn a_lowered_limit_holds_for_who_had_more_granted() {
        let ledger = Ledger::new();
        assert!(ledger.try_take(A, 4, || 100));
        ledger.lower();
        assert!(!ledger.try_take(A, 1, || 3));
        ledger.give(A, 2);
        assert!(ledger.try_take(A, 1, || 3));
        assert!(!ledger.try_take(A, 1, || 3), "four were granted once");
        assert!(!ledger.try_take(B, 1, || 3));
        ledger.give(A, 3);
        assert!(ledger.try_take(A, 3, || 3));
    }

    #[test]
    fn several_at_once_are_taken_whole_or_not() {
        let ledger = Ledger::new();
        assert!(ledger.try_take(A, 300, || 512));
        assert!(!ledger.try_take(B, 213, || 512));
        assert!(ledger.try_take(B, 212, || 512));
        assert_eq!(ledger.total(), 512);
    }

    #[test]
    fn threads_have_seats_of_their_own_and_leave_them() {
        let mine = SeatId::mine();
        assert_eq!(mine, SeatId::mine());
        let theirs = thread::spawn(SeatId::mine).join().unwrap();
        assert!(theirs != mine || mine.is_shared());
        let beyond = Arc::new(std::sync::Barrier::new(usize::from(SEATS) + 1));
        let threads: Vec<_> = (0..=SEATS)
            .map(|_| {
                let beyond = beyond.clone();
                thread::spawn(move || {
                    let seat = SeatId::mine();
                    beyond.wait();
                    seat
                })
            })
            .collect();
        let mut seats: Vec<u8> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|seat| !seat.is_shared())
            .map(|seat| seat.0)
            .collect();
        let alone = seats.len();
        seats.sort_unstable();
        seats.dedup();
        assert_eq!(seats.len(), alone, "no two threads had one seat");
    }

    #[test]
    fn a_count_misses_no_step_of_more_threads_than_there_are_seats() {
        let tally = Tally::default();
        thread::scope(|scope| {
            for _ in 0..SEATS + 9 {
                scope.spawn(|| (0..1000).for_each(|_| tally.add(SeatId::mine(), 3)));
            }
        });
        assert_eq!(tally.total(), (u64::from(SEATS) + 9) * 3000);
    }

    #[test]
    fn threads_at_the_limit_pass_it_by_a_call_each_at_most() {
        const THREADS: u32 = 4;
        const LIMIT: u32 = 3;
        let (ledger, held) = (Ledger::new(), AtomicU32::new(0));
        let most = AtomicU32::new(0);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (ledger, held, most) = (&ledger, &held, &most);
                // Two of them share a seat.
                let seat = if number < 2 {
                    SeatId::SHARED
                } else {
                    SeatId(u8::try_from(number).unwrap())
                };
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        if ledger.try_take(seat, 1, || LIMIT) {
                            let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(now, Ordering::SeqCst);
                            held.fetch_sub(1, Ordering::SeqCst);
                            ledger.give(seat, 1);
                        }
                    }
                });
            }
        });
        assert!(most.into_inner() < LIMIT + THREADS);
        assert_eq!(ledger.total(), 0);
        assert!(ledger.try_take(A, LIMIT, || LIMIT), "nothing is lost");
        assert!(!ledger.try_take(A, 1, || LIMIT));
    }
}
