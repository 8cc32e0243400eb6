//! A meter of a device's busy time and of its transfers: counters that change nothing.
//!
//! A device is *busy* while it has been given a request that it has not completed (the `%util` of
//! iostat). A device that stands still with work before it is busy.

use std::sync::{Arc, Mutex, Weak};

use env::{Device, DeviceInfo, Host, Interrupt, IoDone, IoError, IoOp, IoRequest, ObjectId};
use policy::units::{Bytes, Instant, Nanos};

use crate::take_lock;

/// A device that is counted.
pub struct Meter {
    me: Weak<Self>,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outstanding: u64,
    /// When the device was given something to do; meaningless while it has nothing.
    since: Instant,
    total: MeterReading,
    /// The end of the last read or write.
    last: Option<(ObjectId, Bytes)>,
}

/// The counts of a meter since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterReading {
    /// Time with a request under way.
    pub busy: Nanos,
    /// Bytes of writes that ended well.
    pub written: Bytes,
    /// Writes that ended well.
    pub writes: u64,
    /// The longest of them, in bytes.
    pub longest_write: Bytes,
    /// Bytes of reads that ended well.
    pub read: Bytes,
    /// Reads that ended well.
    pub reads: u64,
    /// Reads and writes that did not begin where the request that ended before them had ended.
    pub seeks: u64,
}

impl Meter {
    /// Counts what `inner` does.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            host,
            state: Mutex::new(State::default()),
        })
    }

    /// The counts now.
    #[must_use]
    pub fn reading(&self) -> MeterReading {
        let now = self.host.now();
        let state = take_lock(&self.state);
        let mut reading = state.total;
        if state.outstanding > 0 {
            reading.busy += now.since(state.since);
        }
        reading
    }
}

impl Device for Meter {
    fn submit(&self, mut request: Box<IoRequest>) {
        let handler = self
            .me
            .upgrade()
            .expect("a device in use is held by its user");
        let now = self.host.now();
        {
            let mut state = take_lock(&self.state);
            if state.outstanding == 0 {
                state.since = now;
            }
            state.outstanding += 1;
        }
        request.on_done(handler);
        self.inner.submit(request);
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

impl IoDone for Meter {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let now = self.host.now();
        {
            let mut state = take_lock(&self.state);
            state.outstanding -= 1;
            if state.outstanding == 0 {
                let busy = now.since(state.since);
                state.total.busy += busy;
            }
            let bytes = request.pages().bytes();
            if matches!(request.op, IoOp::Read | IoOp::Write) && result.is_ok() {
                let follows = state.last == Some((request.object, request.offset));
                state.total.seeks += u64::from(!follows);
                state.last = Some((request.object, request.offset + bytes));
            }
            let total = &mut state.total;
            if request.op == IoOp::Write && result.is_ok() {
                total.writes += 1;
                total.written += bytes;
                total.longest_write = total.longest_write.at_least(bytes);
            }
            if request.op == IoOp::Read && result.is_ok() {
                total.reads += 1;
                total.read += bytes;
            }
        }
        request.complete(context, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EIO;
    use crate::testing::{Rig, Serve};

    #[test]
    fn overlapping_requests_make_one_busy_time_and_failed_ones_move_nothing() {
        let rig = Rig::new();
        let meter = Meter::new(rig.disk(), rig.host());
        rig.disk.serve(Serve::After(Nanos(500)));
        rig.submit(&*meter, rig.request(IoOp::Write, 7, 0, 2));
        rig.run_until(Instant(300));
        rig.submit(&*meter, rig.request(IoOp::Write, 7, 8192, 3));
        rig.run_until(Instant(400));
        assert_eq!(
            meter.reading().busy,
            Nanos(400),
            "a reading counts up to now"
        );
        rig.run_until(Instant(10_000));
        rig.disk.serve(Serve::Fail(EIO));
        rig.submit(&*meter, rig.request(IoOp::Write, 7, 0, 8));
        rig.submit(&*meter, rig.request(IoOp::Read, 7, 0, 8));
        rig.disk.serve(Serve::After(Nanos(500)));
        rig.submit(&*meter, rig.request(IoOp::Read, 7, 0, 4));
        rig.run_until(Instant(20_000));
        let expected = MeterReading {
            busy: Nanos(1_300),
            written: Bytes(5 * 4096),
            writes: 2,
            longest_write: Bytes(3 * 4096),
            read: Bytes(4 * 4096),
            reads: 1,
            // The first, and the read: the second write follows the first.
            seeks: 2,
        };
        assert_eq!(meter.reading(), expected);
        assert_eq!(rig.results(), [Ok(()), Ok(()), Err(EIO), Err(EIO), Ok(())]);
    }
}
