//! The end: drain, sync every volume side by side with progress, say what is not durable.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use env::IoError;
use tidegate::{CacheError, Error, VolumeState};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::attach::{Opened, close};
use super::message::{in_memory, place};
use super::start::OTHERS;
use super::{NotDurable, ServeError, Served, Server, Signals};
use crate::aside;
use crate::config::show_size;
use crate::export::Export;
use crate::hub::Stage;
use crate::log::{error, info, warn};
use crate::rounds::TRY_AGAIN;

/// Time that requests under way may take before their connections are cut off. Data that they wrote
/// are synced all the same.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Interval at which progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// A backing that has taken nothing for so long is named.
const SILENT: Duration = Duration::from_secs(3);

/// Time for which writes to a backing that says that it is gone are tried again at the end, and for
/// which a file that has no name any more is kept open so that it can be saved.
const GONE_MAX: Duration = Duration::from_secs(30);

/// The progress of a volume's sync.
struct Progress {
    /// The end of its sync, or the reason why it is not durable; none: it goes on.
    end: Option<Result<(), String>>,
    /// Bytes that were left when it was last looked at, and since when it is that many.
    left: u64,
    since: Instant,
    /// Its sync has begun: a flush is wanted of the backing, also if nothing is left to be written.
    is_syncing: bool,
}

impl Progress {
    fn new(volume: &Served) -> Self {
        Self {
            // A volume that nobody can write to is durable.
            end: volume.config.read_only.then_some(Ok(())),
            left: volume.unwritten(),
            since: Instant::now(),
            is_syncing: false,
        }
    }

    /// Looks again. Answers for how long the backing has taken nothing, if that is long.
    fn look(&mut self, left: u64) -> Option<Duration> {
        if left != self.left {
            (self.left, self.since) = (left, Instant::now());
        }
        let is_asked = self.end.is_none() && (self.is_syncing || left > 0);
        Some(self.since.elapsed()).filter(|silent| is_asked && *silent >= SILENT)
    }
}

impl Server {
    /// Ends the server. A second wish to end is heeded at any time.
    pub(super) async fn stop(self, signals: &mut Signals) -> Result<(), ServeError> {
        let Self {
            cache,
            hub,
            volumes,
            leaving,
            opening,
            notify,
            listeners,
            ..
        } = self;
        // A volume on its way out is synced with the rest.
        drop(leaving);
        let progress: Vec<Progress> = volumes.iter().map(Progress::new).collect();
        let progress = Mutex::new(progress);
        let stopping = |status: &str| notify.stopping(status, DRAIN_MAX + 30 * TELL_EVERY);
        stopping("finishing requests");
        let work = async {
            let (cut_off, ()) = tokio::join!(hub.drain(DRAIN_MAX), let_go(opening));
            if cut_off > 0 {
                warn!(
                    connections = cut_off,
                    "cut off: their requests took too long"
                );
            }
            listeners.iter().for_each(tokio::task::JoinHandle::abort);
            sync_all(&volumes, &progress, &|status| stopping(status)).await
        };
        let failed = tokio::select! {
            failed = work => failed,
            () = signals.again() => {
                let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                let left = volumes.iter().zip(progress.iter_mut());
                let left = left.map(|(volume, progress)| {
                    let silent = progress.look(volume.unwritten());
                    let end = progress.end.take().unwrap_or_else(|| {
                        Err(silent.map(|silent| volume.silence(silent)).unwrap_or_default())
                    });
                    volume.left(end)
                });
                let left = left.collect();
                // Its threads may hang, and nobody waits for them: the process ends with them.
                core::mem::forget(cache);
                return Err(ServeError::Interrupted(left));
            }
        };
        if !failed.is_empty() {
            let _ = unless_again(keep_open(&volumes, GONE_MAX, &stopping), signals).await;
            core::mem::forget(cache);
            return Err(ServeError::NotDurable(failed));
        }
        // All is durable: only the release is left.
        let ends = what_is_left(&volumes);
        let closed = aside::run(move || {
            let closed = cache.close();
            for volume in volumes {
                if let Some(closer) = volume.closer {
                    closer.close();
                }
            }
            closed
        });
        match unless_again(closed, signals).await {
            Some(Ok(Err(cause))) => {
                warn!(cause = %cause, "the cache did not close cleanly, but every volume is durable");
            }
            None => warn!(
                "told again to end while letting go: every volume is durable, but leases of objects may not have been given back"
            ),
            Some(Ok(Ok(_))) => (),
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        }
        hub.enter(Stage::Ended);
        info!("ended: {ends}");
        Ok(())
    }
}

/// Waits while data of a volume can still be saved that go with this process, so long at most: told
/// in words, and every second to the supervisor.
async fn keep_open(volumes: &[Served], most: Duration, tell: &dyn Fn(&str)) {
    let until = Instant::now() + most;
    let mut is_told = false;
    loop {
        let all = volumes
            .iter()
            .filter_map(|volume| Some((volume, volume.export.loss()?)));
        let kept: Vec<_> = all.filter(|(_, loss)| loss.goes_with_us).collect();
        let left = until.saturating_duration_since(Instant::now());
        if kept.is_empty() || left.is_zero() {
            return;
        }
        if !core::mem::replace(&mut is_told, true) {
            for (volume, loss) in &kept {
                warn!(
                    volume = %volume.config.name,
                    cause = %loss.why,
                    "kept open for {} s, so that it can be saved; a second signal ends at once",
                    most.as_secs()
                );
            }
        }
        tell(&format!("kept open for {} s, to be saved", left.as_secs()));
        tokio::time::sleep(TELL_EVERY.min(left)).await;
    }
}

/// Drops volumes still being opened and removes the files made for them. Does not wait for a volume
/// that hangs; its files stay.
async fn let_go(mut opening: JoinSet<Opened>) {
    let all = async {
        while let Some(opened) = opening.join_next().await {
            if let Ok((_, Ok(Some((_, backend))))) = opened {
                close(backend).await;
            }
        }
    };
    let _ = timeout(OTHERS, all).await;
}

/// The result of `work`, unless a second wish to end comes first: it goes with the process then.
async fn unless_again<T>(work: impl Future<Output = T>, signals: &mut Signals) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = signals.again() => None,
    }
}

/// Syncs every volume on a thread of its own, or on one that it has; tells what is left every
/// second.
async fn sync_all(
    volumes: &[Served],
    progress: &Mutex<Vec<Progress>>,
    tell: &dyn Fn(&str),
) -> Vec<NotDurable> {
    let (done, mut results) = mpsc::unbounded_channel();
    let of_all = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    // Clients were waited for: what counts is from now on.
    let begun = |volume| Progress {
        is_syncing: true,
        ..Progress::new(volume)
    };
    *of_all() = volumes.iter().map(begun).collect();
    for (place, volume) in volumes.iter().enumerate() {
        // Nobody is left to wait for what else its threads have.
        let pool = &volume.export.opened.pool;
        if volume.config.read_only {
            pool.close();
            continue;
        }
        let (export, done) = (Arc::clone(&volume.export), done.clone());
        pool.end_with(Box::new(move || {
            let volume = &export.opened.volume;
            let result = match sync_patiently(&export, GONE_MAX) {
                // A reload was taking it out, and had got so far that nothing is left.
                Err(Error::Closed) if unwritten(volume) == 0 => Ok(()),
                result => result,
            };
            // Nobody listens after a second signal.
            let result = result.map_err(|error| export.in_words(&last_words(&error)));
            let result = result.and_then(|()| export.lost().map_or(Ok(()), Err));
            let _ = done.send((place, result));
        }));
    }
    drop(done);
    let mut failed = Vec::new();
    let mut ticks = tokio::time::interval(TELL_EVERY);
    ticks.tick().await;
    loop {
        tokio::select! {
            result = results.recv() => {
                let Some((place, result)) = result else {
                    // A panic took its answer with it.
                    let all = of_all();
                    let silent = volumes.iter().zip(all.iter());
                    let silent = silent.filter(|(_, progress)| progress.end.is_none());
                    let cause = || Err("its sync was given up".to_owned());
                    failed.extend(silent.map(|(volume, _)| volume.left(cause())));
                    return failed;
                };
                of_all()[place].end = Some(result.clone());
                let volume = &volumes[place];
                match result {
                    Ok(()) => info!(volume = %volume.config.name, "synced"),
                    Err(cause) => {
                        error!(volume = %volume.config.name, cause = %cause, "not synced");
                        failed.push(volume.left(Err(cause)));
                    }
                }
            }
            _ = ticks.tick() => {
                let mut all = 0;
                for (volume, progress) in volumes.iter().zip(of_all().iter_mut()) {
                    if progress.end.is_some() {
                        continue;
                    }
                    let left = volume.unwritten();
                    all += left;
                    let name = &volume.config.name;
                    match progress.look(left) {
                        None => info!(volume = %name, left, "syncing: {} left", show_size(left)),
                        Some(silent) => warn!(
                            volume = %name,
                            left,
                            "syncing: {}, {} unwritten; a second signal gives it up",
                            volume.silence(silent),
                            show_size(left)
                        ),
                    }
                }
                tell(&format!("syncing: {} left", show_size(all)));
            }
        }
    }
}

/// The state of the volumes' data when the server has ended well.
fn what_is_left(volumes: &[Served]) -> String {
    let gone: Vec<&str> = volumes
        .iter()
        .filter(|volume| in_memory(&volume.config.backend))
        .map(|volume| volume.config.name.as_str())
        .collect();
    match gone.len() {
        0 => "everything is durable".to_owned(),
        all if all == volumes.len() => {
            "everything was kept in memory alone (mem:), and is gone".to_owned()
        }
        _ => format!(
            "everything is durable but what was kept in memory alone (mem:), which is gone: {}",
            gone.join(", ")
        ),
    }
}

impl Served {
    /// Bytes that were written by clients and are not on the backend.
    pub(super) fn unwritten(&self) -> u64 {
        unwritten(&self.export.opened.volume)
    }

    /// The message for a backing that has taken nothing for so long, since it was looked at.
    fn silence(&self, seen: Duration) -> String {
        let stats = self.export.opened.volume.stats();
        let silent = match stats.state {
            // It had begun before.
            VolumeState::Stalled { since } => since.max(seen),
            _ => seen,
        };
        let failure = stats
            .last_error
            .map(|error| self.export.in_words(&last_words(&Error::Cache(error))))
            .map(|error| format!(" (last error: {error})"))
            .unwrap_or_default();
        format!(
            "backing {} has taken nothing for {} s{failure}",
            place(&self.config.backend),
            silent.as_secs()
        )
    }

    /// Its part in the report at the end: the result of its sync, or the reason why nobody waits
    /// for that.
    fn left(&self, end: Result<(), String>) -> NotDurable {
        NotDurable {
            volume: self.config.name.clone(),
            is_durable: end.is_ok(),
            in_memory: in_memory(&self.config.backend),
            bytes: self.unwritten(),
            cause: end.err().unwrap_or_default(),
        }
    }
}

/// Syncs a volume. A volume that is to try again does, for as long as its writes fail: where the
/// backing says that it is gone, for `gone_max`.
fn sync_patiently(export: &Export, gone_max: Duration) -> Result<(), Error> {
    let (mut is_told, mut gone_since) = (false, None);
    loop {
        let error = match export.sync() {
            Err(Error::Cache(error @ CacheError::WriteFailed { .. })) if export.is_patient() => {
                error
            }
            result => return result,
        };
        let is_gone = matches!(
            error,
            CacheError::WriteFailed {
                cause: IoError::Lost,
                ..
            }
        );
        gone_since = is_gone.then(|| gone_since.unwrap_or_else(Instant::now));
        let error = Error::Cache(error);
        if gone_since.is_some_and(|since| since.elapsed() >= gone_max) {
            return Err(error);
        }
        if !core::mem::replace(&mut is_told, true) {
            let until = match gone_since {
                Some(_) => format!("for {} s", gone_max.as_secs()),
                None => "until it is".to_owned(),
            };
            warn!(
                volume = %export.name(),
                cause = %last_words(&error),
                "not synced yet: it is tried again {until}; a second signal gives it up"
            );
        }
        std::thread::sleep(TRY_AGAIN);
    }
}

/// An error as it is told when the server ends: no later sync is promised.
fn last_words(error: &Error) -> String {
    match error {
        Error::Cache(CacheError::WriteFailed { offset, cause }) => {
            format!("writing back the data at byte {} failed: {cause}", offset.0)
        }
        error => error.to_string(),
    }
}

fn unwritten(volume: &tidegate::Volume) -> u64 {
    let stats = volume.stats();
    stats.dirty + stats.writeback
}

#[cfg(test)]
mod tests {
    use super::super::attach::tests::{NEW, Rig};
    use super::*;

    #[test]
    fn what_is_being_opened_at_the_end_leaves_nothing_behind() {
        let mut rig = Rig::new("opening");
        rig.begin(NEW);
        let opening = core::mem::take(&mut rig.server.opening);
        rig.runtime.block_on(let_go(opening));
        assert!(!rig.folder.0.join("x.img").exists());
    }

    #[test]
    fn a_file_that_was_removed_is_not_durable_and_may_be_taken_out() {
        let mut rig = Rig::new("removed");
        rig.reload(NEW);
        let path = rig.folder.0.join("x.img");
        let lost = |rig: &Rig| rig.server.volumes[0].export.lost();
        assert_eq!(lost(&rig), None);
        std::fs::remove_file(&path).unwrap();
        let said = lost(&rig).expect("removed");
        let (_, save) = said.split_once(" from ").unwrap();
        assert_eq!(std::fs::metadata(save).unwrap().len(), 8 << 20);
        rig.reload("");
        assert!(rig.served().is_empty());

        rig.reload(NEW);
        let other = rig.folder.0.join("other");
        std::fs::write(&other, "").unwrap();
        std::fs::rename(other, path).unwrap();
        let (runtime, volumes) = (&rig.runtime, &rig.server.volumes);
        let failed = runtime.block_on(sync_all(volumes, &Mutex::default(), &|_| ()));
        assert!(failed[0].cause.contains("replaced"), "{}", failed[0]);

        // It is kept open so long and no longer, and the supervisor hears of it.
        let (most, told) = (Duration::from_millis(50), Mutex::new(0));
        let tell = |_: &str| *told.lock().unwrap() += 1;
        let kept = keep_open(volumes, most, &tell);
        let began = Instant::now();
        let ended = runtime.block_on(async { timeout(Duration::from_secs(60), kept).await });
        assert!(ended.is_ok(), "it goes on");
        assert!(began.elapsed() >= most && *told.lock().unwrap() > 0);
    }

    #[test]
    fn a_backing_that_is_gone_is_tried_again_for_a_while_and_no_longer() {
        let mut rig = Rig::new("lost");
        rig.reload(&(NEW.to_owned() + "on_error = \"retry\"\ndevice = \"faulty:lost_at=0s\"\n"));
        let export = &rig.server.volumes[0].export;
        let volume = &export.opened.volume;
        let mut writer = rig.server.cache.writer();
        let wrote = volume.write(&mut writer, &[1; 4096], 0, tidegate::Mode::Blocking);
        wrote.unwrap();
        let began = Instant::now();
        let error = sync_patiently(export, Duration::from_millis(600)).unwrap_err();
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(600), "{took:?}");
        assert!(error.to_string().contains("the device is gone"), "{error}");
        assert_eq!(unwritten(volume), 4096);
        // Nothing of it can be saved.
        let kept = keep_open(&rig.server.volumes, Duration::from_secs(3600), &|_| ());
        rig.runtime.block_on(kept);
    }

    #[test]
    fn who_wishes_again_to_end_does_not_wait_for_what_lets_go() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut signals = Signals::new().unwrap();
            let own = rustix::process::getpid();
            let terminate = async {
                loop {
                    rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let hangs = core::future::pending::<()>();
            tokio::select! {
                ended = unless_again(hangs, &mut signals) => assert_eq!(ended, None),
                () = terminate => {}
            }
            let ended = unless_again(core::future::ready(7), &mut signals).await;
            assert_eq!(ended, Some(7));
        });
    }

    #[test]
    fn a_backing_of_which_nothing_is_wanted_has_not_stopped_answering() {
        let since = Instant::now().checked_sub(2 * SILENT).unwrap();
        let is_silent = |left, is_syncing| {
            let mut progress = Progress {
                end: None,
                left,
                since,
                is_syncing,
            };
            progress.look(left).is_some()
        };
        assert!(!is_silent(0, false), "its clients are still waited for");
        assert!(is_silent(0, true), "a flush");
        assert!(is_silent(4096, false), "what is dirty");
    }
}
