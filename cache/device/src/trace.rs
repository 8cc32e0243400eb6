//! A trace of a device's requests and its answers, in a ring of bounded length.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use env::{
    Device, DeviceInfo, Host, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest, ObjectId,
};
use policy::units::{Bytes, Instant, Nanos, Pages};

use crate::take_lock;

/// One request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it came to the wrapper.
    pub at: Instant,
    /// The operation.
    pub op: IoOp,
    /// The kind of task that waited.
    pub class: IoClass,
    /// On which object.
    pub object: ObjectId,
    /// From where.
    pub offset: Bytes,
    /// Its length.
    pub pages: Pages,
    /// From coming in to completion.
    pub took: Nanos,
    /// Its result.
    pub result: Result<(), IoError>,
}

/// A device that is written down.
pub struct Trace {
    me: Weak<Self>,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    ring: Mutex<Ring>,
}

struct Ring {
    records: VecDeque<TraceRecord>,
    room: usize,
    dropped: u64,
}

impl Trace {
    /// Most records a ring may have room for.
    pub const ROOM_MAX: usize = 1 << 22;

    /// Writes down the last `room` requests of `inner`.
    ///
    /// # Panics
    /// If `room` is above `Trace::ROOM_MAX`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, host: Arc<dyn Host>, room: usize) -> Arc<Self> {
        assert!(room <= Self::ROOM_MAX, "a ring of {room} records");
        let ring = Ring {
            records: VecDeque::with_capacity(room),
            room,
            dropped: 0,
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            host,
            ring: Mutex::new(ring),
        })
    }

    /// The records, in the order of their completion; oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<TraceRecord> {
        take_lock(&self.ring).records.iter().copied().collect()
    }

    /// Records that the ring had no room for any more.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        take_lock(&self.ring).dropped
    }
}

impl Device for Trace {
    fn submit(&self, mut request: Box<IoRequest>) {
        let handler = self
            .me
            .upgrade()
            .expect("a device in use is held by its user");
        request.on_done_noted(handler, self.host.now().0);
        self.inner.submit(request);
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

impl IoDone for Trace {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let at = Instant(request.note());
        let record = TraceRecord {
            at,
            op: request.op,
            class: request.class,
            object: request.object,
            offset: request.offset,
            pages: request.pages(),
            took: self.host.now().since(at),
            result,
        };
        {
            let mut ring = take_lock(&self.ring);
            if ring.records.len() == ring.room {
                ring.records.pop_front();
                ring.dropped += 1;
            }
            if ring.room > 0 {
                ring.records.push_back(record);
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
    fn a_record_says_what_when_how_long_and_how() {
        let rig = Rig::new();
        let trace = Trace::new(rig.disk(), rig.host(), 2);
        rig.disk.serve(Serve::After(Nanos(500)));
        rig.run_until(Instant(40));
        rig.submit(&*trace, rig.request(IoOp::Write, 7, 4096, 2));
        rig.run();
        rig.disk.serve(Serve::Fail(EIO));
        rig.submit(&*trace, rig.request(IoOp::Flush, 7, 0, 0));
        rig.run();
        let (class, object) = (IoClass::Writeback, ObjectId(7));
        let write = TraceRecord {
            at: Instant(40),
            op: IoOp::Write,
            class,
            object,
            offset: Bytes(4096),
            pages: Pages(2),
            took: Nanos(500),
            result: Ok(()),
        };
        let flush = TraceRecord {
            at: Instant(540),
            op: IoOp::Flush,
            class: IoClass::Sync,
            object,
            offset: Bytes(0),
            pages: Pages(0),
            took: Nanos(0),
            result: Err(EIO),
        };
        assert_eq!(trace.records(), [write, flush]);
        assert_eq!(trace.dropped(), 0);
        assert_eq!(
            rig.results(),
            [Ok(()), Err(EIO)],
            "results go on to the submitter"
        );
    }

    #[test]
    fn the_ring_keeps_the_last() {
        let rig = Rig::new();
        let trace = Trace::new(rig.disk(), rig.host(), 3);
        for page in 0..5 {
            rig.submit(&*trace, rig.request(IoOp::Write, 1, page * 4096, 1));
            rig.run();
        }
        let offsets: Vec<u64> = trace
            .records()
            .iter()
            .map(|record| record.offset.0)
            .collect();
        assert_eq!(offsets, [8192, 12288, 16384]);
        assert_eq!(trace.dropped(), 2);
    }
}
