//! A device that does what a case tells it, and the submitter's side of a request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use policy::units::{Bytes, Nanos};

use super::{PATIENCE, take_lock};
use env::{
    Cause, Device, DeviceId, DeviceInfo, Host, Interrupt, IoClass, IoDone, IoError, IoOp,
    IoRequest, ObjectId, Signal, Task, WaitQueue, Wakeup,
};

/// The device's answer to a request that comes in.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    /// Keeps it until it is told.
    Hold,
    /// Completes it inside `submit`.
    Inside(Result<(), IoError>),
    /// Completes it by a timer.
    After(Nanos, Result<(), IoError>),
}

/// Keeps, completes or fails requests on command.
pub struct TestDevice {
    host: Arc<dyn Host>,
    script: Mutex<Script>,
    held: Mutex<VecDeque<Box<IoRequest>>>,
}

impl TestDevice {
    /// A device that holds what it gets.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Arc<Self> {
        let held = Mutex::new(VecDeque::new());
        Arc::new(Self {
            host,
            script: Mutex::new(Script::Hold),
            held,
        })
    }

    /// The host that its `Env` gave it.
    #[must_use]
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Sets its answers from now on.
    pub fn set_script(&self, script: Script) {
        *take_lock(&self.script) = script;
    }

    /// Number of requests that it holds.
    #[must_use]
    pub fn held(&self) -> usize {
        take_lock(&self.held).len()
    }

    /// Completes the request that it has held longest. False: it holds none.
    pub fn complete_next(&self, result: Result<(), IoError>) -> bool {
        let request = take_lock(&self.held).pop_front();
        request.is_some_and(|request| {
            request.complete(&Interrupt::new(), result);
            true
        })
    }

    /// Completes the request that it was given last. False: it holds none.
    pub fn complete_last(&self, result: Result<(), IoError>) -> bool {
        let request = take_lock(&self.held).pop_back();
        request.is_some_and(|request| {
            request.complete(&Interrupt::new(), result);
            true
        })
    }
}

impl Device for TestDevice {
    fn submit(&self, request: Box<IoRequest>) {
        let script = *take_lock(&self.script);
        match script {
            Script::Hold => take_lock(&self.held).push_back(request),
            Script::Inside(result) => request.complete(&Interrupt::new(), result),
            Script::After(delay, result) => {
                self.host.after(
                    delay,
                    Box::new(move |context| request.complete(context, result)),
                );
            }
        }
    }

    fn info(&self) -> DeviceInfo {
        crate::null::INFO
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The request.
    pub request: Box<IoRequest>,
    /// The result.
    pub result: Result<(), IoError>,
}

/// The queue at which a submitter waits for its request.
#[derive(Default)]
pub struct Reply {
    answer: Mutex<Option<Answer>>,
    done: WaitQueue,
}

impl Reply {
    /// A request without frames whose end comes here.
    #[must_use]
    pub fn request(self: &Arc<Self>, device: DeviceId, op: IoOp) -> Box<IoRequest> {
        let mut request = IoRequest::with_room(4);
        request.device = device;
        request.object = ObjectId(3);
        request.op = op;
        request.class = IoClass::Sync;
        request.offset = Bytes(8192);
        let handler: Arc<Self> = Arc::clone(self);
        request.on_done(handler);
        request
    }

    /// True if the request is back.
    #[must_use]
    pub fn is_there(&self) -> bool {
        take_lock(&self.answer).is_some()
    }

    /// The request, if it is back.
    #[must_use]
    pub fn take(&self) -> Option<Answer> {
        take_lock(&self.answer).take()
    }

    /// Waits until the request is back, or for how the wait ended without it.
    ///
    /// # Errors
    /// The wait timed out, or was cancelled.
    pub fn wait(&self, task: &mut Task<'_>) -> Result<Answer, Wakeup> {
        let deadline = task.now() + PATIENCE;
        let blocked = |_: &Task<'_>| !self.is_there();
        let wakeup = task.wait_while(&self.done, Cause::ReadIo, Some(deadline), blocked);
        self.take().ok_or(wakeup)
    }
}

impl IoDone for Reply {
    fn io_done(&self, _context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let before = take_lock(&self.answer).replace(Answer { request, result });
        assert!(before.is_none(), "a request was completed twice");
        self.done.wake_all(Signal::Answered);
    }
}
