//! Signs of life of a start: a large volume in a store takes minutes to be listed, and a supervisor
//! that hears nothing takes the server for dead, for ever.
//!
//! A start goes on while volumes are opened, one after the other, or stores answer. One in which
//! nothing goes on says nothing: it is for the supervisor to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::log::info;
use crate::systemd::Notify;

/// Between two signs.
const EVERY: Duration = Duration::from_secs(5);
/// Time that the supervisor is asked to wait for the next one.
const MORE: Duration = Duration::from_secs(60);
/// Signs between two lines in the log.
const LINE: u32 = 6;

/// The signs that are given until a start has ended, one way or the other.
pub(super) struct Signs(JoinHandle<()>);

impl Signs {
    /// Begins to give them, while `opened` of `all` volumes grows.
    pub(super) fn give(notify: &Arc<Notify>, opened: &Arc<AtomicUsize>, all: usize) -> Self {
        let (notify, opened) = (Arc::clone(notify), Arc::clone(opened));
        let mut life = Life::default();
        notify.starting(&status(0, all, 0), MORE);
        Self(tokio::spawn(async move {
            let first = objects::answers();
            loop {
                tokio::time::sleep(EVERY).await;
                let (opened, heard) = (opened.load(Ordering::Relaxed), objects::answers() - first);
                let (goes_on, is_told) = life.look(opened, heard);
                if goes_on {
                    notify.starting(&status(opened, all, heard), MORE);
                }
                if is_told {
                    info!("{}", status(opened, all, heard));
                }
            }
        }))
    }
}

impl Drop for Signs {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The signs of life of a start.
#[derive(Debug, Default)]
struct Life {
    opened: usize,
    heard: u64,
    looks: u32,
}

impl Life {
    /// Tells if it goes on, and if the log is to say so.
    fn look(&mut self, opened: usize, heard: u64) -> (bool, bool) {
        let goes_on = (opened, heard) != (self.opened, self.heard);
        (self.opened, self.heard) = (opened, heard);
        self.looks += 1;
        (goes_on, goes_on && self.looks.is_multiple_of(LINE))
    }
}

fn status(opened: usize, all: usize, heard: u64) -> String {
    let mut status = format!("opening volumes: {opened} of {all} are open");
    if heard > 0 {
        status += &format!(", {heard} objects listed");
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_goes_on_says_so_and_one_that_hangs_does_not() {
        let mut life = Life::default();
        assert_eq!(life.look(0, 0), (false, false));
        assert_eq!(life.look(0, 1000), (true, false));
        assert_eq!(life.look(0, 1000), (false, false));
        assert_eq!(life.look(1, 1000), (true, false));
        assert_eq!(life.look(1, 2000), (true, false));
        assert_eq!(
            life.look(1, 3000),
            (true, true),
            "twice a minute in the log"
        );
        assert_eq!(
            status(1, 3, 3000),
            "opening volumes: 1 of 3 are open, 3000 objects listed"
        );
    }
}
