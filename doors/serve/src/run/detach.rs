//! Volumes that are taken out while the server goes on: each on a task of its own, as one may take
//! for ever.
//!
//! ```text
//!   withdrawn ──its clients finish, or are cut off──> synced, out of the cache ──> closed: its name and place are free
//!                                                       └── fails: offered again, so that nothing is lost
//! ```
//!
//! Invariant: until it is closed it is among the server's volumes, so that an end syncs it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinError;

use super::Server;
use super::message::place;
use crate::aside;
use crate::config::show_size;
use crate::export::Export;
use crate::hub::Hub;
use crate::log::{error, info, warn};

/// Time in which the clients of a volume that goes may finish.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// Time that their connections, once cut off, may take to end: each does as soon as it is polled.
const CUT_OFF_MAX: Duration = Duration::from_secs(5);
/// Interval at which this is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The progress of a volume on its way out.
pub(super) enum Left {
    /// It is synced and out of the cache, or could not be.
    Synced(Arc<Export>, Result<(), String>),
    /// Nothing holds its backing open any more.
    Closed(String),
}

impl Server {
    /// Begins to take a volume out.
    pub(super) fn take_out(&mut self, name: &str) {
        let mut volumes = self.volumes.iter_mut();
        let served = volumes.find(|volume| volume.config.name == name && !volume.is_leaving);
        if let Some(served) = served
            && let Some(export) = self.hub.withdraw(name)
        {
            served.is_leaving = true;
            self.leaving.spawn(leave(Arc::clone(&self.hub), export));
        }
    }

    /// Names volumes that are still on their way out.
    pub(super) fn name_those_that_leave(&self) {
        for volume in self.volumes.iter().filter(|volume| volume.is_leaving) {
            let connections = volume.export.counters.connections.load(Ordering::Acquire);
            let left = volume.unwritten();
            warn!(
                volume = %volume.config.name, connections, left,
                "still being taken out: {connections} connections, {} to be written to {}; the rest of the file is in force",
                show_size(left),
                place(&volume.config.backend)
            );
        }
    }

    /// A volume has come further on its way out.
    pub(super) fn has_left(&mut self, left: Result<Left, JoinError>) {
        let left = left.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        match left {
            Left::Synced(export, Ok(())) => {
                let name = export.name().to_owned();
                let mut volumes = self.volumes.iter_mut();
                let served = volumes.find(|volume| volume.config.name == name);
                let closer = served.and_then(|served| {
                    served.layers.release();
                    served.closer.take()
                });
                drop(export);
                self.leaving.spawn(async {
                    if let Some(closer) = closer {
                        let _ = aside::run(move || closer.close()).await;
                    }
                    Left::Closed(name)
                });
            }
            Left::Synced(export, Err(cause)) => {
                let name = export.name().to_owned();
                self.hub.offer(export);
                error!(
                    volume = %name, cause,
                    "kept: it could not be synced; its clients may connect again"
                );
                self.stays(&name);
                // Volumes that waited for it hear what they are refused for.
                self.add();
            }
            Left::Closed(name) => {
                self.volumes.retain(|volume| volume.config.name != name);
                info!(volume = %name, "taken out: synced and closed");
                self.has_gone();
            }
        }
    }
}

async fn leave(hub: Arc<Hub>, export: Arc<Export>) -> Left {
    if left_behind(&export, LEAVE_MAX).await > 0 {
        hub.cut_off(&export);
        let connections = left_behind(&export, CUT_OFF_MAX).await;
        if connections > 0 {
            // Their further requests are refused once the volume is closed.
            warn!(volume = %export.name(), connections, "taken out although connections have not ended");
        }
    }
    let leaving = Arc::clone(&export);
    let (told, left) = oneshot::channel();
    export.opened.pool.sync(Box::new(move || {
        let synced = leaving.sync();
        let synced = synced.and_then(|()| leaving.opened.volume.detach());
        if synced.is_ok()
            && let Some(cause) = leaving.lost()
        {
            warn!(volume = %leaving.name(), cause, "taken out, and what was written is not known to be durable");
        }
        let synced = synced.map_err(|cause| leaving.in_words(&cause));
        // The task that hears of it may want the volume for itself.
        drop(leaving);
        let _ = told.send(synced);
    }));
    let given_up = |_| Err("its sync was given up".to_owned());
    let synced = left.await.unwrap_or_else(given_up);
    Left::Synced(export, synced)
}

/// Waits until no connection has the export any more, so long at most. Answers how many still have
/// it.
async fn left_behind(export: &Export, most: Duration) -> u64 {
    let until = tokio::time::Instant::now() + most;
    loop {
        let connections = export.counters.connections.load(Ordering::Acquire);
        if connections == 0 || tokio::time::Instant::now() >= until {
            return connections;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
