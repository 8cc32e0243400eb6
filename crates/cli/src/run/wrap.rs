//! Wrappers around a device, from their text: `slow:rate=16MB,latency=2ms+trace`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{BytesPerSec, Layer, Stack};
use env::{Device, Host, Interrupt};
use workload::Stop;

use super::session::RunError;

/// How often the guard of a live run looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Reads a wrapper's text.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub(crate) fn parse(text: &str) -> Result<Vec<Layer>, String> {
    let layers = Layer::parse_stack(text).map_err(|error| error.to_string())?;
    if Stack::frames_needed(&layers) > 0 {
        return Err(
            "`volatile` keeps copies for tests of crashes and cannot be used here; \
             use slow, faulty or trace"
                .into(),
        );
    }
    Ok(layers)
}

/// The device in its wrapper; rates shrink with the machine.
pub(super) fn wrap(
    inner: Arc<dyn Device>,
    text: &str,
    host: &Arc<dyn Host>,
    shrink: u64,
) -> Result<Stack, RunError> {
    let mut layers = parse(text)
        .map_err(|problem| RunError::Impossible(format!("the wrapper `{text}`: {problem}")))?;
    for layer in &mut layers {
        if let Layer::Slow(options) = layer {
            options.rate = options.rate.map(|rate| BytesPerSec(rate.0 / shrink));
        }
    }
    Stack::new(&layers, inner, host, None).map_err(|error| RunError::Impossible(error.to_string()))
}

/// Lets go of all that wrappers hold when a live run is interrupted, so that it can end.
pub(super) struct Release {
    over: Arc<AtomicBool>,
    guard: Option<std::thread::JoinHandle<()>>,
}

impl Release {
    /// Watches over the wrappers until dropped.
    pub(super) fn guard(stacks: Vec<Stack>, stop: &Stop) -> Self {
        if stacks.is_empty() {
            return Self {
                over: Arc::default(),
                guard: None,
            };
        }
        let over = Arc::new(AtomicBool::new(false));
        let (ended, stop) = (Arc::clone(&over), stop.clone());
        let guard = std::thread::spawn(move || {
            while !stop.is_raised() && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY);
            }
            let context = Interrupt::new();
            stacks.iter().for_each(|stack| stack.cancel(&context));
        });
        Self {
            over,
            guard: Some(guard),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(guard) = self.guard.take() {
            // It has nothing to tell but that it panicked, which was reported then.
            let _ = guard.join();
        }
    }
}
