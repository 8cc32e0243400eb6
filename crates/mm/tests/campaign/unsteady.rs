//! A device whose temper changes while it runs: a test switches faults on and off, and heals it.
//!
//! `device::Faulty` follows a plan made beforehand; this one obeys the test. Requests that it fails
//! move nothing; torn ones move their first pages; held ones go to the inner device when let go.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use env::{Device, DeviceInfo, Host, Interrupt, IoDone, IoError, IoOp, IoRequest};
use frames::FrameId;
use policy::units::{Nanos, PAGE_SIZE};

/// What goes wrong now. Chances are in 1024ths of the requests of that kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Temper {
    pub write_fails: u64,
    /// What fails does so after this, and a little.
    pub fails_after: Nanos,
    pub write_torn: u64,
    pub read_fails: u64,
    pub hangs: u64,
    /// A hang lasts up to so long.
    pub hang_max: Nanos,
    pub flush_fails: u64,
    /// Metadata operations and flushes take up to so long more: no fault.
    pub lingers: Nanos,
    /// Setting the length fails.
    pub length_fails: u64,
    /// Allocations and writes find no space.
    pub full: u64,
    /// Everything ends with `Lost`.
    pub lost: bool,
    /// Everything is held until `heal` or `let_go`.
    pub stuck: bool,
}

pub struct Unsteady {
    me: Weak<Self>,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    temper: Temper,
    held: Vec<Box<IoRequest>>,
    torn: Vec<Vec<FrameId>>,
    faults: u64,
}

enum Fate {
    Pass,
    Fail(IoError),
    Tear,
    Hold,
    Delay(Nanos),
}

impl Unsteady {
    pub fn new(inner: Arc<dyn Device>, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            host,
            state: Mutex::default(),
        })
    }

    pub fn set(&self, temper: Temper) {
        self.state().temper = temper;
        if !temper.stuck {
            self.let_go();
        }
    }

    pub fn heal(&self) {
        self.set(Temper::default());
    }

    /// Requests that it has spoilt so far.
    pub fn faults(&self) -> u64 {
        self.state().faults
    }

    fn let_go(&self) {
        let held = std::mem::take(&mut self.state().held);
        for request in held {
            self.inner.submit(request);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn fate(&self, request: &IoRequest) -> Fate {
        let temper = self.state().temper;
        let happens = |chance: u64| chance > 0 && self.host.random() % 1024 < chance;
        let eio = IoError::Failed { errno: 5 };
        if temper.lost {
            return Fate::Fail(IoError::Lost);
        }
        if temper.stuck {
            return Fate::Hold;
        }
        if happens(temper.hangs) {
            return Fate::Delay(Nanos(1 + self.host.random() % temper.hang_max.0.max(1)));
        }
        let is_data = matches!(request.op, IoOp::Read | IoOp::Write);
        let lingers = if is_data { Nanos::ZERO } else { temper.lingers };
        let fails = match request.op {
            IoOp::Read => happens(temper.read_fails),
            IoOp::Write if happens(temper.full) => return Fate::Fail(IoError::NoSpace),
            IoOp::Write if happens(temper.write_torn) => return Fate::Tear,
            IoOp::Write => happens(temper.write_fails),
            IoOp::Flush => happens(temper.flush_fails),
            IoOp::SetLen { .. } => happens(temper.length_fails),
            IoOp::Allocate { .. } if happens(temper.full) => return Fate::Fail(IoError::NoSpace),
            IoOp::Allocate { .. } | IoOp::Discard { .. } | IoOp::Prepare { .. } => false,
        };
        if fails {
            Fate::Fail(eio)
        } else if lingers > Nanos::ZERO {
            Fate::Delay(Nanos(1 + self.host.random() % lingers.0))
        } else {
            Fate::Pass
        }
    }

    fn fail(&self, request: Box<IoRequest>, error: IoError) {
        let end = move |context: &Interrupt| request.complete(context, Err(error));
        let after = self.state().temper.fails_after + Nanos::micros(50);
        self.host.after(after, Box::new(end));
    }
}

impl Device for Unsteady {
    fn submit(&self, mut request: Box<IoRequest>) {
        let fate = self.fate(&request);
        if !matches!(fate, Fate::Pass) {
            self.state().faults += 1;
        }
        match fate {
            Fate::Pass => self.inner.submit(request),
            Fate::Fail(error) => self.fail(request, error),
            Fate::Hold => self.state().held.push(request),
            Fate::Delay(delay) => {
                let inner = Arc::clone(&self.inner);
                self.host
                    .after(delay, Box::new(move |_| inner.submit(request)));
            }
            Fate::Tear => {
                let kept = (self.host.random() % request.pages().0) as usize;
                if kept == 0 {
                    return self.fail(request, IoError::Torn { done: 0 });
                }
                let cut = request.frames.split_off(kept);
                let note = {
                    let mut state = self.state();
                    state.torn.push(cut);
                    state.torn.len() as u64 - 1
                };
                request.on_done_noted(self.me.upgrade().unwrap(), note);
                self.inner.submit(request);
            }
        }
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

impl IoDone for Unsteady {
    fn io_done(
        &self,
        context: &Interrupt,
        mut request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let done = request.pages().0 * PAGE_SIZE;
        let note = request.note() as usize;
        let cut = std::mem::take(&mut self.state().torn[note]);
        request.frames.extend(cut);
        request.complete(context, result.and(Err(IoError::Torn { done })));
    }
}
