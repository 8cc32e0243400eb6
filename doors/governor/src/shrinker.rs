//! The calls that a cache has to be able to answer.

use std::time::{Duration, Instant};

/// The bytes and entries that a cache could free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freeable {
    /// Bytes that could go now. A member that is looked at and has none is not asked.
    pub bytes: u64,
    /// Bytes it holds beside its permits, if it does not report them by
    /// [`Member::grew`](crate::Member::grew).
    pub held: Option<u64>,
}

impl Freeable {
    /// This much could be freed; held bytes are reported as they change.
    #[must_use]
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes, held: None }
    }

    /// This much is held, and all of it could be freed. For a cache that reports nothing by itself;
    /// it is asked now and then.
    #[must_use]
    pub fn all_of(held: u64) -> Self {
        Self {
            bytes: held,
            held: Some(held),
        }
    }
}

/// The request of a scan.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// Bytes wanted, at most.
    pub bytes: u64,
    /// Bytes to free between two looks at the deadline.
    pub batch: u64,
    /// When to stop, done or not.
    pub deadline: Instant,
    /// Somebody waits for it.
    pub urgent: bool,
}

impl Ask {
    /// Time until the deadline; zero once that has passed.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// The outcome of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes it freed, as it thinks. The fall of what it holds counts.
    pub freed: u64,
    /// Entries it looked at.
    pub looked_at: u64,
    /// There is more available.
    pub more: bool,
}

impl Scanned {
    /// It freed so much.
    #[must_use]
    pub fn freed(bytes: u64) -> Self {
        Self {
            freed: bytes,
            looked_at: 0,
            more: bytes > 0,
        }
    }
}

/// The answer to a new size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resized {
    /// The cache does not bound itself; it is scanned when the sum is too large.
    Unbounded,
    /// It holds no more than that from now on.
    Done,
    /// Not now; ask again after so long.
    Later(Duration),
}

/// A cache that can give memory back.
///
/// All of it is called from the governor's thread (or from the thread that calls
/// [`Governor::turn`](crate::Governor::turn)), never with a lock of the governor held and never
/// from the caller of [`Member::reserve`](crate::Member::reserve). One call at a time for each
/// member. A call that takes longer than 100 ms is noted, and the member rests; a member that
/// panics is not called again.
pub trait Shrinker: Send + Sync {
    /// The bytes and entries that could be freed now. Cheap, and may be stale.
    fn count(&self) -> Freeable;

    /// Gives back up to `ask.bytes` by `ask.deadline`, and reports what it gave as it always does.
    fn scan(&self, ask: &Ask) -> Scanned;

    /// A cache that bounds itself holds no more than `bytes` from now on. Called in steps, with
    /// less as with more.
    fn resize(&self, bytes: u64) -> Resized {
        let _ = bytes;
        Resized::Unbounded
    }

    /// Bytes of the largest entry that it keeps within its present bound: its part, where a cache
    /// splits it. None where all that fits the bound is kept.
    fn largest(&self) -> Option<u64> {
        None
    }
}

/// A cache of one's own, by two closures.
///
/// ```
/// # use std::sync::{Arc, Mutex};
/// # let entries = Arc::new(Mutex::new(vec![vec![0_u8; 100]; 3]));
/// # let held = |entries: &Vec<Vec<u8>>| entries.iter().map(|e| e.len() as u64).sum::<u64>();
/// let (look, take) = (entries.clone(), entries);
/// let shrinker = governor::by(
///     move || held(&look.lock().unwrap()),
///     move |ask| {
///         let mut freed = 0;
///         let mut entries = take.lock().unwrap();
///         while freed < ask.bytes
///             && let Some(entry) = entries.pop()
///         {
///             freed += entry.len() as u64;
///         }
///         freed
///     },
/// );
/// let governor = governor::Governor::new(1 << 20).unwrap();
/// let rows = governor.register("rows", governor::Share::default(), shrinker).unwrap();
/// ```
///
/// `held` answers the bytes held, all of which could go; `free` gives some back and answers how
/// many.
pub fn by(
    held: impl Fn() -> u64 + Send + Sync + 'static,
    free: impl Fn(&Ask) -> u64 + Send + Sync + 'static,
) -> std::sync::Arc<dyn Shrinker> {
    std::sync::Arc::new(Closures { held, free })
}

struct Closures<H, F> {
    held: H,
    free: F,
}

impl<H, F> Shrinker for Closures<H, F>
where
    H: Fn() -> u64 + Send + Sync,
    F: Fn(&Ask) -> u64 + Send + Sync,
{
    fn count(&self) -> Freeable {
        Freeable::all_of((self.held)())
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        Scanned::freed((self.free)(ask))
    }
}
