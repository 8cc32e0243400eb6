//! An export: a volume offered under a name, with all that its connections share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tidegate::{Cache, Error, VolumeState, VolumeStats};

use crate::access::{Access, Right, Shown};
use crate::buffers::Buffers;
use crate::clients::Clients;
use crate::config::{show_exactly, show_size};
pub use crate::counters::{Counters, Histogram, Kind, Latencies};
use crate::durable::Durable;
use crate::gate::Gate;
use crate::log::warn;
use crate::opened::{Loss, Opened, Room};
use crate::pace::{Pace, Sample, Slow};

/// A volume of which a read failed within this time is not as it should be.
const LATELY: Duration = Duration::from_secs(60);

/// The description of an export for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// For people, in the list of exports.
    pub description: String,
    /// Requests should be multiples of it; a power of two.
    pub minimum_block: u32,
    /// Requests that are multiples of it need no reading of what is around them; a power of two.
    pub preferred_block: u32,
}

/// The options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Its name; empty for the default export.
    pub name: String,
    /// The description for clients. Can change later: `Export::set_about`.
    pub about: About,
    /// The place of its bytes, for people.
    pub place: String,
    /// No client may write.
    pub read_only: bool,
    /// The clients that may open it. Can change later: `Export::set_access`.
    pub access: Access,
    /// Replies to writes are held back as the cache says. Off, the memory limit alone holds writers
    /// back: for comparisons. Can change later: `Export::set_paced`.
    pub paced: bool,
    /// While writes to the backing fail, clients that want them durable are held back, as writers
    /// are (`ErrorPolicy::Retry`). Can change later: `Export::set_patient`.
    pub patient: bool,
    /// Each write, trim and zeroing is durable before its reply, as if the client had asked for
    /// that each time. Can change later: `Export::set_durable`.
    pub durable: bool,
    /// Most receive buffers (128 KiB each).
    pub buffers: usize,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            about: About {
                description: String::new(),
                minimum_block: 1,
                preferred_block: 4096,
            },
            place: "its backing".to_owned(),
            read_only: false,
            access: Access::default(),
            paced: true,
            patient: false,
            durable: false,
            buffers: 8,
        }
    }
}

/// An opened volume with its name: what connections hold.
pub struct Export {
    /// Its options.
    pub options: ExportOptions,
    /// The counters of its clients.
    pub counters: Counters,
    /// The cache that the volume is in.
    pub cache: Cache,
    /// The volume, and what its backing can do.
    pub opened: Opened,
    /// Buffers to receive into.
    pub(crate) buffers: Buffers,
    /// The flushes that wait for it to be durable.
    pub(crate) durable: Arc<Durable>,
    /// The clients that are connected to it.
    pub(crate) clients: Clients,
    /// The gate that clients which change it pass.
    pub(crate) gate: Gate,
    pace: Pace,
    /// It is not offered any more: its connections are to end.
    pub(crate) withdrawn: AtomicBool,
    /// Its connections end now, wherever they are.
    pub(crate) cut_off: AtomicBool,
    paced: AtomicBool,
    patient: AtomicBool,
    all_durable: AtomicBool,
    about: RwLock<About>,
    access: RwLock<Access>,
    /// Data that could not be read, as of the last look, and when that grew.
    unread: Mutex<(u64, Option<Instant>)>,
}

impl Export {
    /// Offers `opened`.
    #[must_use]
    pub fn new(options: ExportOptions, cache: Cache, opened: Opened) -> Self {
        let buffers = Buffers::new(options.buffers);
        Self {
            paced: AtomicBool::new(options.paced),
            patient: AtomicBool::new(options.patient),
            all_durable: AtomicBool::new(options.durable),
            about: RwLock::new(options.about.clone()),
            access: RwLock::new(options.access.clone()),
            options,
            counters: Counters::default(),
            cache,
            opened,
            buffers,
            durable: Arc::default(),
            clients: Clients::default(),
            unread: Mutex::default(),
            gate: Gate::default(),
            pace: Pace::default(),
            withdrawn: AtomicBool::new(false),
            cut_off: AtomicBool::new(false),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.opened.volume.size()
    }

    /// Follows a backing that has grown, or has it grow to the size that is wanted: for new
    /// connections; those that are there were told another size. Answers how large it is. May wait
    /// for the backing.
    ///
    /// # Errors
    /// Why not, as people read it.
    pub fn grow(&self, wanted: Option<u64>) -> Result<u64, String> {
        let Some(grow) = &self.opened.grow else {
            return Err(
                "its backing cannot grow while it is served, or its size is no multiple of 4 KiB"
                    .to_owned(),
            );
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted < self.size()) {
            let (wanted, has) = (show_exactly(wanted), show_exactly(self.size()));
            return Err(format!(
                "{wanted} is less than the {has} that it has; a volume does not shrink"
            ));
        }
        let size = grow(wanted).map_err(|cause| cause.to_string())?;
        if size > self.size() {
            let grown = self.opened.volume.grow(size);
            grown.map_err(|cause| cause.to_string())?;
        }
        Ok(self.size())
    }

    /// True if replies to writes are held back as the cache says.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.paced.load(Ordering::Relaxed)
    }

    /// Replies to writes are held back as the cache says, or not; from the next ones on.
    pub fn set_paced(&self, paced: bool) {
        self.paced.store(paced, Ordering::Relaxed);
    }

    /// The description for clients.
    #[must_use]
    pub fn about(&self) -> About {
        let about = self.about.read().unwrap_or_else(PoisonError::into_inner);
        about.clone()
    }

    /// New clients are told this.
    pub fn set_about(&self, about: About) {
        *self.about.write().unwrap_or_else(PoisonError::into_inner) = about;
    }

    /// The right of a client that has shown this certificate, or none.
    #[must_use]
    pub fn right(&self, shown: Option<&Shown>) -> Right {
        let access = self.access.read().unwrap_or_else(PoisonError::into_inner);
        match access.right(shown) {
            Right::Write if self.options.read_only => Right::Read,
            right => right,
        }
    }

    /// These clients may open it. Those that have it open are looked at when the hub says so
    /// (`Hub::rights_changed`).
    pub fn set_access(&self, access: Access) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = access;
    }

    /// A client that wants something durable while writes fail is held back, or hears of it; those
    /// that wait now, too.
    pub fn set_patient(&self, patient: bool) {
        self.patient.store(patient, Ordering::Relaxed);
    }

    /// Each write is durable before its reply, or not; from the next ones on.
    pub fn set_durable(&self, durable: bool) {
        self.all_durable.store(durable, Ordering::Relaxed);
    }

    /// True if each write is durable before its reply.
    pub(crate) fn makes_all_durable(&self) -> bool {
        self.all_durable.load(Ordering::Relaxed)
    }

    /// True if clients that want something durable are held back while writes fail.
    pub(crate) fn is_patient(&self) -> bool {
        self.patient.load(Ordering::Relaxed)
    }

    /// Makes everything durable, for the server itself. An error that has healed since is logged:
    /// nobody has to hear of it any more.
    ///
    /// # Errors
    /// The data that are not durable.
    pub fn sync(&self) -> Result<(), Error> {
        let volume = &self.opened.volume;
        let Err(earlier) = volume.sync() else {
            return Ok(());
        };
        // Each holder is told once: an error told again is still so.
        volume.sync()?;
        warn!(volume = %self.options.name, cause = %earlier, "it had failed before, and is durable now");
        Ok(())
    }

    /// Why the backing is lost, if it says so.
    pub(crate) fn lost(&self) -> Option<String> {
        self.loss().map(|loss| loss.why)
    }

    /// The same, and whether there is something to be saved.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.opened.lost.as_ref().and_then(|lost| lost())
    }

    /// True if reads from the backing failed lately, by the bytes that could not be read so far.
    pub(crate) fn reads_fail(&self, total: u64) -> bool {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if core::mem::replace(&mut unread.0, total) < total {
            unread.1 = Some(Instant::now());
        }
        unread.1.is_some_and(|at| at.elapsed() < LATELY)
    }

    /// Its backing, if clients have waited for it for long.
    pub(crate) fn slow(&self, stats: &VolumeStats, oldest: Duration) -> Option<Slow> {
        let counters = &self.counters;
        let now = Sample {
            at: Instant::now(),
            moved: [stats.written_total, stats.read_total],
            held: counters.held_total.load(Ordering::Relaxed),
            oldest,
            times: Sample::times(|kind| counters.of(kind).latency.read()),
        };
        self.pace.look(now, &self.options.place)
    }

    /// Why a request of this kind took long, in words.
    pub(crate) fn why_slow(&self, kind: Kind) -> String {
        let stats = self.opened.volume.stats();
        let (place, rate) = (&self.options.place, show_size(stats.write_rate));
        let error = || stats.last_error.as_ref().map(|error| self.in_words(error));
        match (stats.state, self.pace.why()) {
            _ if self.gate.is_shut() => "the volume is held (tidegate hold)".to_owned(),
            (VolumeState::Stalled { since }, _) => {
                format!("{place} has not answered for {} s", since.as_secs())
            }
            (VolumeState::Retrying { .. }, _) => {
                error().unwrap_or_else(|| format!("writes to {place} fail"))
            }
            (_, Some(why)) => why,
            (_, None) => match kind {
                Kind::Write | Kind::Zero => format!("writes go at the pace of {place}, {rate}/s"),
                Kind::Flush => format!("dirty data had to be written to {place}, at {rate}/s"),
                _ => format!("it waited for {place}"),
            },
        }
    }

    /// The room of its backing, if that is known.
    pub(crate) fn room(&self) -> Option<Room> {
        self.opened.space.as_ref().and_then(|space| space())
    }

    /// An error of the volume as people read it: with what the backing says of it.
    pub(crate) fn in_words(&self, error: &impl core::fmt::Display) -> String {
        match self.lost() {
            Some(why) => format!("{why} ({error})"),
            None => error.to_string(),
        }
    }

    /// Receive buffers that are in use now.
    #[must_use]
    pub fn buffers_lent(&self) -> usize {
        self.buffers.lent()
    }
}
