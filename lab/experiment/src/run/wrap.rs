//! Wrappers around a device: those that its text names (`slow:rate=16MB,latency=2ms+trace`), the
//! wrapper that gives it its rate, and the meter that every device of a run has outermost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device::{BytesPerSec, Layer, Meter, RateStep, SlowOptions, Stack};
use env::{Device, Host, Interrupt};
use workload::Stop;

use super::disk::DeviceSpec;
use super::session::{Change, RunError};
use scenario::catalogue;

/// Interval at which the guard of a live run looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A device as a run uses it.
pub(super) struct Built {
    /// The outermost.
    pub(super) device: Arc<dyn Device>,
    pub(super) meter: Arc<Meter>,
    /// Sets its changes, if it has any.
    pub(super) change: Option<Change>,
    /// The layers that may hold requests back.
    pub(super) stacks: Vec<Stack>,
}

/// Puts around a device what its scenario says: its rate by a wrapper, if `paced`, then its
/// wrappers and `more`, then the meter. Rates shrink with the machine.
pub(super) fn dress(
    inner: Arc<dyn Device>,
    spec: &DeviceSpec,
    more: Option<&str>,
    host: &Arc<dyn Host>,
    (paced, shrink): (bool, u64),
) -> Result<Built, RunError> {
    let mut built = Built {
        meter: Meter::new(Arc::clone(&inner), Arc::clone(host)),
        device: inner,
        change: None,
        stacks: Vec::new(),
    };
    let rates = if paced {
        spec.rates(shrink)
    } else {
        Vec::new()
    };
    if let [(_, first), later @ ..] = rates.as_slice() {
        let layer = Layer::Slow(SlowOptions {
            rate: Some(BytesPerSec(*first)),
            ..SlowOptions::default()
        });
        let stack = stack(&[layer], &built.device, host)?;
        let (slow, later) = (Arc::clone(&stack.slow[0]), later.to_vec());
        built.change = Some(Box::new(move |origin| {
            for (at, rate) in &later {
                let (at, rate) = (origin + *at, BytesPerSec(*rate));
                slow.change_at(RateStep { at, rate });
            }
        }));
        built.device = Arc::clone(&stack.device);
        built.stacks.push(stack);
    }
    for text in spec.wrap.as_deref().into_iter().chain(more) {
        let stack = wrap(&built.device, text, host, shrink)?;
        built.device = Arc::clone(&stack.device);
        built.stacks.push(stack);
    }
    built.meter = Meter::new(built.device, Arc::clone(host));
    built.device = Arc::<Meter>::clone(&built.meter);
    Ok(built)
}

/// The device in its wrapper; rates shrink with the machine.
fn wrap(
    inner: &Arc<dyn Device>,
    text: &str,
    host: &Arc<dyn Host>,
    shrink: u64,
) -> Result<Stack, RunError> {
    let mut layers = catalogue::wrapper(text)
        .map_err(|problem| RunError::Impossible(format!("the wrapper `{text}`: {problem}")))?;
    for layer in &mut layers {
        if let Layer::Slow(options) = layer {
            options.rate = options.rate.map(|rate| BytesPerSec(rate.0 / shrink));
            for step in &mut options.then {
                step.rate = BytesPerSec(step.rate.0 / shrink);
            }
        }
    }
    stack(&layers, inner, host)
}

fn stack(
    layers: &[Layer],
    inner: &Arc<dyn Device>,
    host: &Arc<dyn Host>,
) -> Result<Stack, RunError> {
    let inner = Arc::clone(inner);
    Stack::new(layers, inner, host, None).map_err(|error| RunError::Impossible(error.to_string()))
}

/// Stops a live run whose time is up. Lets go of all that wrappers hold when one is stopped, so
/// that it can end.
pub(super) struct Release {
    over: Arc<AtomicBool>,
    guard: Option<std::thread::JoinHandle<()>>,
}

impl Release {
    /// Watches over the run and its wrappers until dropped.
    pub(super) fn guard(stacks: Vec<Stack>, stop: &Stop, longest: Duration) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (ended, stop) = (Arc::clone(&over), stop.clone());
        let began = Instant::now();
        let guard = std::thread::spawn(move || {
            while !stop.is_raised() && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY);
                if began.elapsed() > longest && !ended.load(Ordering::Relaxed) {
                    stop.raise();
                }
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
