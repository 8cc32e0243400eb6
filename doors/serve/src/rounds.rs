//! Making things durable for clients: those that ask while a sync runs share the next one.
//!
//! ```text
//!   asked ──> waiting ──a round begins──> in hand ──its sync has ended──> each gets its own answer
//!                ^                                       │
//!                '── a patient export, and a write failed ┘
//! ```
//!
//! Two lanes, each with a round at a time: whole volumes, and parts of them. So a durable write of
//! a page does not wait for a flush of everything, and a thousand clients that flush cost the
//! backing no more than one.
//!
//! Invariants
//!   1. A flush is answered by a sync that began after it; so the sync covers all writes that were
//!      answered before.
//!   2. An error is told to each connection as if it had synced alone; one that has healed, once.
//!   3. A part that cannot be written fails those that want it, and nobody else. Others wait beside
//!      it for `TRY_AGAIN` while it is tried again, and until the backing gives up if it hangs.
//!   4. Once it is answered, nothing changes any more for a client that was gone when it was asked
//!      for (`clients.rs`).
//!   5. A flush is answered, also if the pool drops the round or it panics.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate::{CacheError, Error};

use crate::durable::{Asker, Durable};
use crate::export::Export;

/// Between two tries to make something durable that fails.
pub(crate) const TRY_AGAIN: Duration = Duration::from_millis(250);

impl Export {
    /// Has the asker told when what it wants is durable. Of a patient export it waits for as long
    /// as writes fail, and hears of no error that may heal; until the export is withdrawn.
    pub(crate) fn make_durable(self: &Arc<Self>, asker: Asker) {
        let is_whole = asker.part.is_none();
        let mut lane = self.durable.lane(is_whole);
        lane.waiting.push(asker);
        if core::mem::replace(&mut lane.is_running, true) {
            return;
        }
        drop(lane);
        let round = Round {
            durable: Arc::clone(&self.durable),
            export: Arc::downgrade(self),
            is_whole,
            has_ended: false,
        };
        self.opened.pool.sync(Box::new(move || round.run()));
    }
}

/// One sync after the other, until nobody waits in a lane.
struct Round {
    durable: Arc<Durable>,
    /// The asker holds it. It is not held here while they are told: a connection that hears of it
    /// may want the volume for itself.
    export: Weak<Export>,
    is_whole: bool,
    /// Nobody was waiting: the next one to come begins another.
    has_ended: bool,
}

impl Round {
    fn run(mut self) {
        while let Some(askers) = self.take() {
            let left = self.serve(askers);
            if !left.is_empty() {
                self.durable.lane(self.is_whole).waiting.extend(left);
                std::thread::sleep(TRY_AGAIN);
            }
        }
    }

    /// All that wait now.
    fn take(&mut self) -> Option<Vec<Asker>> {
        let mut lane = self.durable.lane(self.is_whole);
        let waiting = core::mem::take(&mut lane.waiting);
        if waiting.is_empty() {
            lane.is_running = false;
            drop(lane);
            self.has_ended = true;
            return None;
        }
        Some(waiting)
    }

    /// Syncs for them and tells them; answers which have to wait for another try.
    fn serve(&self, askers: Vec<Asker>) -> Vec<Asker> {
        let Some(export) = self.export.upgrade() else {
            return Vec::new();
        };
        // After they have asked: nothing changes for clients that were gone by then.
        export.clients.end_the_gone();
        let whole = (0, export.size());
        let parts: Vec<(u64, u64)> = if self.is_whole {
            vec![whole]
        } else {
            let parts = askers.iter().map(|asker| asker.part.unwrap_or(whole));
            parts.collect()
        };
        let volume = &export.opened.volume;
        let together = volume.sync_parts(&parts);
        let is_common = self.is_whole || askers.len() == 1 || together.is_done();
        let (mut left, mut answers) = (Vec::new(), Vec::new());
        for asker in askers {
            let synced = if is_common || export.withdrawn.load(Ordering::Acquire) {
                together
            } else {
                volume.sync_parts(&[asker.part.unwrap_or(whole)])
            };
            let is_patient = export.is_patient() && !export.withdrawn.load(Ordering::Acquire);
            match asker.volume.answer(&synced) {
                // Its own is durable: what failed is another's, or has healed.
                Err(Error::Cache(CacheError::WriteFailed { .. }))
                    if is_patient && synced.is_done() =>
                {
                    answers.push((asker.tell, Ok(())));
                }
                Err(Error::Cache(CacheError::WriteFailed { .. })) if is_patient => left.push(asker),
                answer => answers.push((asker.tell, answer)),
            }
        }
        drop(export);
        for (tell, answer) in answers {
            tell(answer);
        }
        left
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Dropped by the pool, or ended by a panic: nobody else would come for them.
        let mut lane = self.durable.lane(self.is_whole);
        lane.is_running = false;
        let lost = core::mem::take(&mut lane.waiting);
        drop(lane);
        drop(lost);
    }
}
