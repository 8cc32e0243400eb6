//! Work that may wait, beside the threads of connections: each on a thread of its own, or, where
//! the system has none to give, on one that is there from the start, one after the other.
//!
//! The runtime's own threads for such work do not do: it panics, or waits for ever, where it gets
//! none.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Work = Box<dyn FnOnce() + Send>;

const NAME: &str = "aside";

/// The channel from which the thread takes its work.
static SPARE: OnceLock<mpsc::Sender<Work>> = OnceLock::new();

/// Starts the thread, unless it is there.
///
/// # Errors
/// The system has none to give.
pub(crate) fn prepare() -> io::Result<()> {
    if SPARE.get().is_some() {
        return Ok(());
    }
    let (sender, all) = mpsc::channel::<Work>();
    os::start_thread(NAME, os::STACK, move || all.iter().for_each(|work| work()))?;
    let _ = SPARE.set(sender);
    Ok(())
}

/// Runs `work` on a thread; it runs to its end even if the caller stops waiting. Must be called
/// inside a runtime; before `prepare`, failing to start a thread panics the waiting task.
pub(crate) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (told, answer) = oneshot::channel();
    let work: Work = Box::new(move || {
        let _ = told.send(catch_unwind(AssertUnwindSafe(work)));
    });
    // Whichever thread it is that takes it.
    let work = Arc::new(Mutex::new(Some(work)));
    let take =
        |work: &Mutex<Option<Work>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = Arc::clone(&work);
    let started = os::start_thread(NAME, os::STACK, move || {
        if let Some(work) = take(&theirs) {
            work();
        }
    });
    if started.is_err()
        && let (Some(spare), Some(work)) = (SPARE.get(), take(&work))
    {
        let _ = spare.send(work);
    }
    tokio::spawn(async {
        let answered = answer.await.expect("a thread takes it");
        answered.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
