//! The two threads of a governor, each for a lane.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::Error;
use crate::lanes::LATE;
use crate::state::Inner;

/// The interval at which the second lane looks whether the first goes on.
const GOES_ON: Duration = Duration::from_millis(10);

/// The two threads. Told to end when this is dropped; nobody waits for a call that is stuck.
pub(crate) struct Threads {
    inner: Arc<Inner>,
}

impl Threads {
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<Self, Error> {
        // Made first: it stops the first lane if there is no thread for the second.
        let threads = Self {
            inner: inner.clone(),
        };
        for (name, lane) in [
            ("governor", first as fn(&Inner)),
            ("governor-2", second as fn(&Inner)),
        ] {
            let inner = inner.clone();
            let builder = std::thread::Builder::new().name(name.to_owned());
            os::spawn(builder, move || lane(&inner)).map_err(|error| Error::NoThread {
                why: error.to_string(),
            })?;
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.inner.bell.stop();
        self.inner.lanes.watch.stop();
    }
}

fn first(inner: &Inner) {
    while !inner.bell.has_stopped() {
        let next = inner.turn(inner.now());
        inner.bell.wait(next.wait(inner.now()));
    }
}

fn second(inner: &Inner) {
    let lanes = &inner.lanes;
    while !lanes.watch.has_stopped() {
        lanes.watch.wait(None);
        lanes.watching.store(true, SeqCst);
        lanes.watch.clear();
        while let Some(began) = lanes.oldest_call().filter(|_| !lanes.watch.has_stopped()) {
            let now = inner.now();
            if now < began + LATE {
                std::thread::sleep(began + LATE - now);
                continue;
            }
            let next = inner.turn(now);
            let pause = next.wait(inner.now()).unwrap_or(GOES_ON);
            // The first does not listen now.
            inner.bell.wait(Some(pause.min(GOES_ON)));
        }
        lanes.watching.store(false, SeqCst);
        if lanes.oldest_call().is_some() {
            // It began before it could see that nobody watches.
            lanes.watch.ring();
        }
        // A bell that was heard here is for both.
        inner.bell.ring();
    }
}
