//! The governor as its users see it: how it is built, its limit, its report.
//!
//! ```text
//!   0 ................... 15/16 .......... pool ... headroom ... ceiling ... slack ... limit
//!                          |               |                      |
//!              reserve slows down     targets come to this    reserve waits
//! ```

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::shares::{Mode, Shares};
use policy::units::Bytes;

use crate::Error;
use crate::due::{LATEST, Next};
use crate::lanes::{Bell, Lanes};
use crate::queue::Queue;
use crate::report::{MemberReport, Report, Standing};
use crate::resident::{Slack, of_this_process};
use crate::seat::Rate;
use crate::state::{Clock, Core, Inner, Resident};
use crate::threads::Threads;

/// Longest wait of a reservation.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// The mover of memory between members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regret {
    /// The regret of entries that they evicted and miss again.
    #[default]
    On,
    /// Nothing: floors, ceilings and weights alone say how much each member has. Memory that one
    /// does not use is still lent.
    Off,
}

/// A governor with other than the usual settings.
///
/// ```
/// let governor = governor::Governor::builder(256 << 20)
///     .regret(governor::Regret::Off)
///     .without_resident()
///     .build()?;
/// # Ok::<(), governor::Error>(())
/// ```
pub struct Builder {
    limit: u64,
    regret: Regret,
    resident: Option<Resident>,
    trim: Box<dyn Fn() + Send + Sync>,
    beside: u64,
    wait_max: Duration,
    clock: Clock,
    driven_by_caller: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Builder {
    /// Sets the mover of memory between members. Default: regret.
    #[must_use]
    pub fn regret(mut self, regret: Regret) -> Self {
        self.regret = regret;
        self
    }

    /// Does not look at the resident memory: the limit is for what members say they hold, and for
    /// nothing else.
    #[must_use]
    pub fn without_resident(mut self) -> Self {
        self.resident = None;
        self
    }

    /// Where the resident memory is asked for, in bytes. Default: `/proc/self/statm`.
    #[must_use]
    pub fn resident(mut self, look: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        self.resident = Some(Box::new(look));
        self
    }

    /// The call that gives back to the system what the allocator keeps, when the process has all
    /// that it may have. Default: `malloc_trim` of glibc, nothing elsewhere. It takes at most a
    /// fiftieth of the time of one thread.
    #[must_use]
    pub fn trim(mut self, trim: impl Fn() + Send + Sync + 'static) -> Self {
        self.trim = Box::new(trim);
        self
    }

    /// Bytes of the process that the limit is not for: what it holds beside its caches. Default:
    /// none, the limit is for the process.
    #[must_use]
    pub fn beside(mut self, bytes: u64) -> Self {
        self.beside = bytes;
        self
    }

    /// Longest wait of a reservation. Default: 200 ms. `Duration::MAX`: for as long as it takes.
    #[must_use]
    pub fn wait_max(mut self, time: Duration) -> Self {
        self.wait_max = time;
        self
    }

    /// The clock by which calls are timed; answers the time since the governor began, and never
    /// goes back. Times above 2^62 ns (146 years) count as that. For tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// No thread is started: the caller calls [`Governor::turn`], when its last answer says so or
    /// `wake` is called. `wake` comes from any thread, must not block, and must not call the
    /// governor.
    #[must_use]
    pub fn driven_by_caller(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.driven_by_caller = Some(Box::new(wake));
        self
    }

    /// Builds it, and starts its thread.
    ///
    /// # Errors
    /// A limit of 0, or the system has no thread to give.
    pub fn build(self) -> Result<Governor, Error> {
        if self.limit == 0 {
            return Err(Error::NoLimit);
        }
        let mode = match self.regret {
            Regret::On => Mode::ByRegret,
            Regret::Off => Mode::Fixed,
        };
        let now = policy::units::Instant(0);
        let driven = self.driven_by_caller.is_some();
        let inner = Arc::new(Inner {
            limit: AtomicU64::new(self.limit),
            ceiling: AtomicU64::new(self.limit),
            total: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            queue: Queue::default(),
            bell: Bell::new(self.driven_by_caller),
            lanes: Lanes::default(),
            hasher: BuildHasherDefault::default(),
            resident: self.resident,
            trim: self.trim,
            trims_again: Mutex::default(),
            beside: self.beside,
            wait_max: self.wait_max,
            clock: self.clock,
            core: Mutex::new(Core {
                shares: Shares::new(Bytes(self.limit), mode, now),
                places: Vec::new(),
                moves: VecDeque::new(),
                slack: Slack::default(),
                slack_bytes: 0,
                resident: None,
                rate: Rate::default(),
                wants_room: false,
                tries_again: Duration::ZERO,
                tried: 0,
                tried_at: 0,
                turns: 0,
                looked: Duration::ZERO,
                look_every: Duration::ZERO,
                seen: 0,
            }),
            waits: Mutex::default(),
        });
        inner.core().set_limit(&inner, self.limit)?;
        let threads = if driven {
            None
        } else {
            Some(Threads::start(&inner)?)
        };
        Ok(Governor {
            inner,
            _threads: threads.map(Arc::new),
        })
    }
}

/// One memory limit for all that register. Clones are the same governor; its thread ends with the
/// last of them and of its members.
#[derive(Clone)]
pub struct Governor {
    pub(crate) inner: Arc<Inner>,
    _threads: Option<Arc<Threads>>,
}

impl Governor {
    /// A governor with a thread of its own. `limit`: bytes, for the whole process unless
    /// [`Builder::beside`] or [`Builder::without_resident`] say otherwise.
    ///
    /// # Errors
    /// A limit of 0, or the system has no thread to give.
    pub fn new(limit: u64) -> Result<Self, Error> {
        Self::builder(limit).build()
    }

    /// One with other settings.
    #[must_use]
    pub fn builder(limit: u64) -> Builder {
        let began = Instant::now();
        Builder {
            limit,
            regret: Regret::On,
            resident: Some(Box::new(of_this_process)),
            trim: Box::new(crate::trim::trim),
            beside: 0,
            wait_max: WAIT_MAX,
            clock: Box::new(move || began.elapsed()),
            driven_by_caller: None,
        }
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.inner.limit()
    }

    /// Another limit. The excess is asked for at once; nobody waits for it here.
    ///
    /// # Errors
    /// It is 0, or below what the floors come to; then the old one stays.
    pub fn set_limit(&self, limit: u64) -> Result<(), Error> {
        let mut core = self.inner.core();
        core.set_limit(&self.inner, limit)?;
        drop(core);
        self.inner.grant();
        self.inner.bell.ring();
        Ok(())
    }

    /// Bytes that all members hold.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.inner.total.load(SeqCst)
    }

    /// Time since the governor began, by its clock: the `now` of [`turn`](Self::turn).
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.now()
    }

    /// Does what is due: looks at members that do not report, moves targets, asks members that have
    /// too much. Calls shrinkers, so it takes as long as they do. For
    /// [`Builder::driven_by_caller`]; beside the governor's thread it does no harm.
    ///
    /// `now` never goes back. The answer says when to come again if nothing happens before.
    pub fn turn(&self, now: Duration) -> Next {
        self.inner.turn(now.min(LATEST))
    }

    /// The members' memory, the moves of targets with their reasons, and the waits.
    #[must_use]
    pub fn report(&self) -> Report {
        let inner = &self.inner;
        let waits = *inner.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let core = inner.core();
        let members = core.places.iter().flatten().filter_map(|place| {
            let (seat, view) = (&place.seat, core.shares.view(place.seat.id)?);
            let conduct = seat.conduct.lock().unwrap_or_else(PoisonError::into_inner);
            let is_too_small = conduct.is_too_small || seat.evicted_larger(conduct.keeps);
            let standing = match conduct.standing {
                Standing::Good if is_too_small => Standing::TooLarge,
                standing => standing,
            };
            let floating = view.terms.weight.sixteenths() as f64;
            Some(MemberReport {
                name: seat.name.clone(),
                standing,
                held: seat.held(),
                target: view.target.0,
                bound: conduct.bound,
                floor: view.terms.floor.0,
                ceiling: view.terms.ceiling.0,
                weight: floating / 16.0,
                gain: Duration::from_nanos(view.gain.0),
                evicted: view.age.0,
                scans: conduct.scans,
                freed: conduct.freed,
                late: conduct.late,
            })
        });
        Report {
            limit: inner.limit(),
            held: inner.total.load(SeqCst),
            resident: core.resident,
            slack: core.slack_bytes,
            headroom: inner.headroom(),
            spare: core.shares.spare().0,
            tables: core.seats().map(|seat| seat.ghost_size()).sum(),
            epochs: core.shares.epoch(),
            turns: core.turns,
            members: members.collect(),
            moves: core.moves.iter().cloned().collect(),
            waits,
        }
    }
}

impl std::fmt::Debug for Governor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Governor({} of {} bytes held)",
            self.held(),
            self.limit()
        )
    }
}
