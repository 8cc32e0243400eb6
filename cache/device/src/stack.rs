//! Layers put on a device, and handles to them.

use core::fmt;
use std::sync::Arc;

use env::{Device, Host, Interrupt};
use frames::FrameId;

use crate::{Faulty, FrameCopy, Layer, Slow, Trace, Volatile};

/// Needs of a `Volatile` beyond a host: frames of its own and a way to copy into them.
pub struct Scratch {
    /// The copier of pages into its frames.
    pub copy: Arc<dyn FrameCopy>,
    /// Frames, populated and not used by anybody else: for all volatile layers together.
    pub frames: Vec<FrameId>,
}

/// Why layers cannot be put on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackError {
    /// A volatile layer, and too few frames for it: see `Stack::frames_needed`.
    NoFrames {
        /// Frames that all volatile layers need.
        needed: usize,
        /// Frames given.
        given: usize,
    },
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::NoFrames { needed, given } = self;
        write!(
            f,
            "device layer `volatile` needs {needed} frames for its cache and got {given}"
        )
    }
}

impl std::error::Error for StackError {}

/// A device with its layers. Handles are in the order of the specification.
pub struct Stack {
    /// The outermost: what requests are submitted to.
    pub device: Arc<dyn Device>,
    /// The slow layers.
    pub slow: Vec<Arc<Slow>>,
    /// The faulty layers.
    pub faulty: Vec<Arc<Faulty>>,
    /// The volatile layers.
    pub volatile: Vec<Arc<Volatile>>,
    /// The traces.
    pub trace: Vec<Arc<Trace>>,
}

impl Stack {
    /// Frames that the volatile layers need.
    #[must_use]
    pub fn frames_needed(layers: &[Layer]) -> usize {
        layers.iter().map(frames_of).sum()
    }

    /// Puts `layers` on `inner`, the last first.
    ///
    /// # Errors
    /// A volatile layer without frames.
    pub fn new(
        layers: &[Layer],
        inner: Arc<dyn Device>,
        host: &Arc<dyn Host>,
        scratch: Option<Scratch>,
    ) -> Result<Self, StackError> {
        let needed = Self::frames_needed(layers);
        let (copy, mut frames) = match scratch {
            Some(scratch) => (Some(scratch.copy), scratch.frames),
            None => (None, Vec::new()),
        };
        if frames.len() < needed {
            return Err(StackError::NoFrames {
                needed,
                given: frames.len(),
            });
        }
        let mut stack = Self {
            device: inner,
            slow: Vec::new(),
            faulty: Vec::new(),
            volatile: Vec::new(),
            trace: Vec::new(),
        };
        for layer in layers.iter().rev() {
            let inner = Arc::clone(&stack.device);
            let host = Arc::clone(host);
            stack.device = match layer {
                Layer::Slow(options) => {
                    stack.slow.insert(0, Slow::new(inner, host, options));
                    Arc::<Slow>::clone(&stack.slow[0])
                }
                Layer::Faulty(plan) => {
                    stack
                        .faulty
                        .insert(0, Faulty::new(inner, host, plan.clone()));
                    Arc::<Faulty>::clone(&stack.faulty[0])
                }
                Layer::Volatile { options, .. } => {
                    let own = frames.split_off(frames.len() - frames_of(layer));
                    let copy = Arc::clone(copy.as_ref().expect("frames come with a way to copy"));
                    stack
                        .volatile
                        .insert(0, Volatile::new(inner, host, copy, own, *options));
                    Arc::<Volatile>::clone(&stack.volatile[0])
                }
                Layer::Trace { records } => {
                    stack.trace.insert(0, Trace::new(inner, host, *records));
                    Arc::<Trace>::clone(&stack.trace[0])
                }
            };
        }
        Ok(stack)
    }

    /// For the shutdown: no layer holds a request back any more, and none will.
    pub fn cancel(&self, context: &Interrupt) {
        self.slow.iter().for_each(|layer| layer.cancel(context));
        self.faulty.iter().for_each(|layer| layer.cancel(context));
        self.volatile.iter().for_each(|layer| layer.cancel(context));
    }
}

fn frames_of(layer: &Layer) -> usize {
    match layer {
        Layer::Volatile { frames, .. } => *frames as usize,
        Layer::Slow(_) | Layer::Faulty(_) | Layer::Trace { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EIO;
    use crate::testing::Rig;
    use env::{IoError, IoOp};
    use policy::units::{Instant, Nanos};

    fn stack(rig: &Rig, spec: &str) -> Stack {
        let layers = Layer::parse_stack(spec).unwrap();
        let needed = u32::try_from(Stack::frames_needed(&layers)).unwrap();
        let frames = (1_000..1_000 + needed).map(FrameId).collect();
        let scratch = Scratch {
            copy: rig.copy(),
            frames,
        };
        Stack::new(&layers, rig.disk(), &rig.host(), Some(scratch)).unwrap()
    }

    #[test]
    fn the_first_layer_is_the_nearest_to_the_cache() {
        let rig = Rig::new();
        let stack = stack(
            &rig,
            "trace+slow:latency=1ms+faulty:eio_write_at=2+trace:records=5",
        );
        for _ in 0..2 {
            rig.submit(&*stack.device, rig.request(IoOp::Write, 1, 0, 1));
            rig.run();
        }
        assert_eq!(rig.results(), [Ok(()), Err(EIO)]);
        let outer: Vec<_> = stack.trace[0]
            .records()
            .iter()
            .map(|r| (r.at, r.took, r.result))
            .collect();
        let ms = Nanos::millis(1);
        assert_eq!(
            outer,
            [(Instant(0), ms, Ok(())), (Instant(1_000_000), ms, Err(EIO))]
        );
        let inner: Vec<_> = stack.trace[1].records().iter().map(|r| r.took).collect();
        assert_eq!(
            inner,
            [Nanos::ZERO],
            "the failed one did not get there, and no time passed"
        );
    }

    #[test]
    fn no_frames_for_a_volatile_layer_is_an_error() {
        let rig = Rig::new();
        let layers = Layer::parse_stack("volatile:size=16KiB").unwrap();
        let error = Stack::new(&layers, rig.disk(), &rig.host(), None)
            .err()
            .unwrap();
        assert_eq!(
            error,
            StackError::NoFrames {
                needed: 4,
                given: 0
            }
        );
        let text = "device layer `volatile` needs 4 frames for its cache and got 0";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn cancel_leaves_no_request_behind() {
        let rig = Rig::new();
        let stack = stack(
            &rig,
            "slow:rate=0B+faulty:hang_at=0s+volatile:size=16KiB+slow:rate=0B",
        );
        for (number, op) in [IoOp::Read, IoOp::Write, IoOp::Flush]
            .into_iter()
            .enumerate()
        {
            rig.submit(&*stack.device, rig.request(op, 1, number as u64 * 4096, 1));
        }
        rig.run_until(Instant(1_000_000_000));
        assert!(rig.results().is_empty(), "everything is held somewhere");
        stack.cancel(&Interrupt::new());
        rig.run();
        let results = rig.results();
        assert_eq!(results.len(), 3, "{results:?}");
        assert!(
            results
                .iter()
                .all(|r| [Ok(()), Err(IoError::Cancelled)].contains(r))
        );
        rig.submit(&*stack.device, rig.request(IoOp::Write, 1, 0, 1));
        rig.run();
        assert_eq!(rig.results(), [Ok(())], "what comes after passes");
    }
}
