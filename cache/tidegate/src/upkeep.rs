//! The upkeep of a volume by a server, beside reading and writing it: holes, data not written yet,
//! its health, its end.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mm::Health;
use policy::units::{Bytes, Pages};

use crate::cache::Inner;
use crate::{Cache, Error, Volume, VolumeOptions};

/// Time that a volume that is taken out waits for those that are inside it, before it leaves them
/// its place, which the last of them gives up. They are microseconds from their end, or wait for a
/// backing that hangs.
const LEAVE_MAX: Duration = Duration::from_millis(200);

/// A reading of one volume. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeStats {
    /// Written and not yet on its way to the backing.
    pub dirty: u64,
    /// On its way to the backing.
    pub writeback: u64,
    /// Its share of the dirty limit now.
    pub dirty_limit: u64,
    /// Its share of the background limit now.
    pub background_limit: u64,
    /// Bytes that the backing is believed to write in a second.
    pub write_rate: u64,
    /// Ever made dirty.
    pub dirtied_total: u64,
    /// Ever written to the backing.
    pub written_total: u64,
    /// Ever read from the backing.
    pub read_total: u64,
    /// Could not be read from the backing, in whole pages (each try counts).
    pub read_failed_total: u64,
    /// Writes to the backing that failed and are tried again (each try counts).
    pub failed_total: u64,
    /// Write requests at the backing.
    pub in_flight: u32,
    /// Writers were made to pause within the last second.
    pub pausing: bool,
    /// Failed write requests and flushes so far.
    pub errors: u64,
    /// The first failure since it was attached or reopened, with where and why.
    pub first_error: Option<mm::Error>,
    /// The last one.
    pub last_error: Option<mm::Error>,
    /// The last read that failed since then.
    pub last_read_error: Option<mm::Error>,
    /// Reads fail, the last within a minute, none has gone well since: how long ago the first and
    /// the last one did.
    pub reads_failing: Option<(Duration, Duration)>,
    /// Its health.
    pub state: VolumeState,
}

/// The health of a volume. Its errors are in `VolumeStats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeState {
    /// As it should, as far as one can tell.
    #[default]
    Working,
    /// Writes to the backing fail, all or more than one in a hundred of the last minute, and are
    /// tried again.
    Retrying {
        /// For how long they do.
        since: Duration,
    },
    /// The backing has writes and has not ended one for five seconds or more, or reads.
    Stalled {
        /// For how long.
        since: Duration,
    },
    /// It takes no new writes after an error (policy `Stop`) until it is reopened.
    Stopped,
    /// A flush failed: nothing can be promised until it is reopened.
    FlushFailed,
}

impl Volume {
    /// Punches a hole: the whole pages inside `offset..offset + len` lose their content, give their
    /// space on the backing back and read as zeroes. The rest of the range is left as it is. Waits
    /// for the backing.
    ///
    /// # Errors
    /// `Cache` with `PunchFailed`; the range is then as it was, or zeroes; if
    /// [`Error::is_unsupported`], writing zeroes works instead. Beyond the end, a failed flush, no
    /// memory. `Closed`.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(offset, len)?;
        if let Some(memory) = &self.memory {
            return self.change(memory, || memory.punch(offset, len));
        }
        let mut task = self.enter()?;
        Ok(self.inner.punch(&mut task, Bytes(offset), Bytes(len))?)
    }

    /// The next pages from `from` on and before `to` that the backing does not have as they are:
    /// where they begin, and how many bytes. Cut where a run is long; ask again from its end. Does
    /// not wait.
    #[must_use]
    pub fn next_unwritten(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let task = self.cache.task();
        let (at, len) = self.inner.next_unwritten(&task, Bytes(from), Bytes(to))?;
        Some((at.0, len.0))
    }

    /// Levels, totals, and how it does. Does not wait.
    #[must_use]
    pub fn stats(&self) -> VolumeStats {
        if self.is_there().is_err() {
            // Another volume may have its place.
            return VolumeStats::default();
        }
        let stats = self.cache.inner.mm.device_stats_of(self.device);
        let bytes = |pages: Pages| pages.bytes().0;
        let time = |nanos: policy::units::Nanos| Duration::from_nanos(nanos.0);
        VolumeStats {
            dirty: bytes(stats.dirty),
            writeback: bytes(stats.writeback),
            dirty_limit: bytes(stats.dirty_limit),
            background_limit: bytes(stats.background_limit),
            write_rate: bytes(Pages(stats.bandwidth.0)),
            dirtied_total: bytes(stats.dirtied),
            written_total: bytes(stats.written),
            read_total: bytes(stats.read_in),
            read_failed_total: bytes(stats.read_failed),
            failed_total: bytes(stats.write_failed),
            in_flight: stats.requests,
            pausing: stats.pausing,
            errors: stats.errors,
            first_error: stats.first_error,
            last_error: stats.last_error,
            last_read_error: stats.last_read_error,
            reads_failing: stats
                .reads_failing
                .map(|failing| (time(failing.since), time(failing.last))),
            state: match stats.health {
                Health::Retrying { since, .. } => VolumeState::Retrying { since: time(since) },
                Health::Stalled { since } => VolumeState::Stalled { since: time(since) },
                Health::Stopped { .. } => VolumeState::Stopped,
                Health::FlushFailed { .. } => VolumeState::FlushFailed,
                _ => VolumeState::Working,
            },
        }
    }

    /// The backing works again, and the caller answers for it: a failed flush or the policy `Stop`
    /// holds it back no longer. Data that it had taken between its last good flush and the failure
    /// are unknown; write them again.
    pub fn reopen(&self) {
        // Another volume may have the place of a volume that was taken out.
        let Ok(mut task) = self.enter() else { return };
        self.cache.inner.mm.reopen_device(&mut task, self.device);
    }

    /// From now on it has this share of the dirty limit, and its writers get this while writes to
    /// the backing fail.
    ///
    /// # Errors
    /// `Cache` with `BadOption`. `Closed`.
    pub fn set_options(&self, options: VolumeOptions) -> Result<(), Error> {
        let mut task = self.enter()?;
        let mm = &self.cache.inner.mm;
        Ok(mm.set_device(&mut task, self.device, options.of_device())?)
    }

    /// Syncs the volume and takes it out of the cache, for all holders: whatever they ask for
    /// afterwards is `Closed`. Its memory is free for others, and so are its place among the
    /// devices, its device with its threads, and its backing: at once, or when what is under way in
    /// it has ended.
    ///
    /// # Errors
    /// As `sync`; the volume then stays as it is.
    pub fn detach(&self) -> Result<(), Error> {
        self.cache.is_open()?;
        let holders = &*self.holders;
        if holders.gone.swap(true, Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let closed = self.inner.close(&mut self.cache.task());
        if closed.is_err() {
            holders.gone.store(false, Ordering::SeqCst);
        }
        closed?;
        holders.closed.store(true, Ordering::SeqCst);
        if let Some(memory) = &self.memory {
            memory.settle();
            memory.clear();
        }
        // A holder that is still inside asks for no page that is not there, but has the place in
        // hand.
        let is_used = |(): &mut ()| holders.inside.load(Ordering::SeqCst) > 0;
        let quiet = holders.quiet.lock();
        let quiet = quiet.unwrap_or_else(PoisonError::into_inner);
        drop(
            holders
                .emptied
                .wait_timeout_while(quiet, LEAVE_MAX, is_used),
        );
        if holders.inside.load(Ordering::SeqCst) == 0 {
            self.leave_place();
        }
        Ok(())
    }

    /// Gives its place up, now that it is closed and nobody is inside.
    pub(crate) fn leave_place(&self) {
        if self.holders.left.swap(true, Ordering::SeqCst) {
            return;
        }
        let Inner { env, mm, .. } = &*self.cache.inner;
        let gone = mm.remove_device(&mut self.cache.task(), self.device);
        if let Some(id) = gone {
            env.remove_device(id);
        }
    }
}

impl Cache {
    /// Gives back what is kept of devices that were taken out while a sync of the whole cache was
    /// in them.
    pub(crate) fn give_back_devices(&self) {
        let gone = self.inner.mm.removed_devices(&mut self.task());
        gone.into_iter()
            .for_each(|id| self.inner.env.remove_device(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backing;

    /// One file, over which a volume is attached.
    struct Attached(std::path::PathBuf);

    impl Drop for Attached {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn the_last_one_inside_gives_the_place_up() {
        let name = format!("tidegate-upkeep-{}", std::process::id());
        let file = Attached(std::env::temp_dir().join(name));
        let made = std::fs::File::create(&file.0).and_then(|made| made.set_len(1 << 20));
        made.expect("a file");
        let builder = Cache::builder().memory(32 << 20).devices(1);
        let cache = builder.build().expect("a cache");
        let attach = || {
            cache.attach(VolumeOptions::default(), |env| {
                let device = os::FileDevice::new(env)?;
                let (object, len) = device.open(&file.0, os::OpenOptions::default())?;
                Ok::<_, Error>(Backing {
                    device,
                    object,
                    size: len.0,
                })
            })
        };
        for _ in 0..3 {
            let volume = attach().expect("a place");
            let straggler = volume.clone_handle();
            let inside = straggler.enter().expect("it is there");
            volume.detach().expect("nothing fails");
            assert!(matches!(
                attach().err(),
                Some(Error::Cache(mm::Error::TooMany { .. }))
            ));
            drop(inside);
            assert!(matches!(straggler.enter().err(), Some(Error::Closed)));
        }
        let volume = attach().expect("a place");
        volume.detach().expect("nothing fails");
        cache.close().expect("nothing is left");
    }
}
