//! The part of large replies that goes to the socket at once.
//!
//! A Unix socket holds 208 KiB by default, and wakes its writer when three quarters of that are
//! gone: a reply of 1 MiB takes six rounds, in which client and server wait for each other. A few
//! connections, those that read much first, get larger ones. TCP's grow by themselves.
//!
//! Bytes that the socket does not take are copied from the cache for nothing. So no more is
//! composed than it took the last time from being writable to being full; a client that keeps up
//! gets more and more at once.
//!
//! Why the data are copied, and do not go to the socket from where they are in the cache: there
//! they are in no cache of the CPU, and the system's own copy fetches them more slowly than ours.
//! The client then overtakes it and sleeps, and to wake it costs more than the second copy, of what
//! is near. Measured: docs/work/bench.md, `throughput`.

/// Most bytes that are composed together: half of a CPU's own cache, so that they are still there
/// when the system copies them.
pub(super) const BATCH_MAX: usize = 512 << 10;
/// As many always may be.
const BATCH_LEAST: usize = 64 << 10;
/// As many as a socket is taken to have room for at first.
const TAKES_FIRST: usize = 256 << 10;
/// A client that reads as much at once, and fills its socket, gets a larger one.
pub(super) const LARGE: usize = 32 << 10;
/// The capacity of a socket.
#[derive(Debug)]
pub(super) struct SendBatch {
    /// Bytes that it took from being writable to being full, the last time.
    takes: usize,
    /// Bytes that it has taken since it was full.
    taken: usize,
}

impl Default for SendBatch {
    fn default() -> Self {
        Self {
            takes: TAKES_FIRST,
            taken: 0,
        }
    }
}

impl SendBatch {
    /// Number of bytes composed together.
    pub(super) fn bytes(&self) -> usize {
        let left = self.takes.saturating_sub(self.taken);
        left.max(self.taken / 4).clamp(BATCH_LEAST, BATCH_MAX)
    }

    /// The socket took `count` bytes, and is full with them or not.
    pub(super) fn note(&mut self, count: usize, is_full: bool) {
        self.taken = self.taken.saturating_add(count);
        if is_full && self.taken > 0 {
            self.takes = core::mem::take(&mut self.taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_composed_than_the_socket_takes() {
        let mut batch = SendBatch::default();
        assert_eq!(batch.bytes(), TAKES_FIRST);
        batch.note(160 << 10, true);
        // As much as it took, then a little to see, and again.
        for _ in 0..3 {
            assert_eq!(batch.bytes(), 160 << 10);
            batch.note(160 << 10, false);
            assert_eq!(batch.bytes(), BATCH_LEAST);
            // It was not writable at all, which says nothing.
            batch.note(0, true);
            assert_eq!(batch.bytes(), 160 << 10);
            batch.note(0, true);
            assert_eq!(batch.bytes(), 160 << 10);
        }
        // A wide one: a reply larger than can be composed together comes in two parts.
        batch.note(768 << 10, true);
        assert_eq!(batch.bytes(), BATCH_MAX);
        batch.note(BATCH_MAX, false);
        assert_eq!(batch.bytes(), 256 << 10);
        // A client that keeps up: more and more.
        let mut last = 0;
        for _ in 0..40 {
            batch.note(batch.bytes(), false);
            assert!(batch.bytes() >= last.min(BATCH_MAX) || last == 256 << 10);
            last = batch.bytes();
        }
        assert_eq!(last, BATCH_MAX);
    }
}
