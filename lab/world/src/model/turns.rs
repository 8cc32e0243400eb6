//! Turns of an I/O scheduler that shares a disk's time: some for what is waited for, some for
//! writeback.
//!
//! ```text
//!   waited for |====read====read====read=|                |====read====
//!   writeback                            |==write==write==|
//!              <------- 100 ms ---------> <--- 40 ms ---->
//! ```
//!
//! A turn ends early if its side has nothing more to do and the other has. A side that is waited
//! for has nothing more when no request has come for `idle`: a reader of a file has its next read
//! ready a moment after the last. Nobody's turn is cut short by the other.
//!
//! Source: Linux 3.2 block/cfq-iosched.c: cfq_slice_sync, cfq_slice_async, cfq_slice_idle.
//! Deviations: one queue a side; a read that comes does not end a turn of writeback (in the kernel
//! it may).

use policy::units::{Instant, Nanos};

/// Lengths of turns of an I/O scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    /// For what somebody waits for, and for read-ahead.
    pub(super) waited: Nanos,
    /// For writeback.
    pub(super) writeback: Nanos,
    /// Within the former, the device is left idle for so long after a piece has ended: another that
    /// follows it is to come.
    pub(super) idle: Nanos,
}

/// The side whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    writeback: bool,
    until: Instant,
    /// Only awaited requests are served before this.
    pub(super) quiet: Instant,
}

/// The side that is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Waited,
    Writeback,
    /// Nobody before that.
    At(Instant),
}

impl Turns {
    pub(super) const FIRST: Self = Self {
        writeback: false,
        until: Instant::ZERO,
        quiet: Instant::ZERO,
    };

    /// The side whose piece is next, of those that there are of each; at least one has any.
    pub(super) fn next(
        &mut self,
        slices: Slices,
        now: Instant,
        (waited, writeback): (bool, bool),
    ) -> Next {
        let over = now >= self.until;
        let stays = if self.writeback {
            writeback && !(over && waited)
        } else {
            waited && !(over && writeback)
        };
        if !stays && !self.writeback && writeback && !over && now < self.quiet {
            return Next::At(self.quiet.min(self.until));
        }
        if !stays {
            self.writeback = writeback && !(self.writeback && waited);
            let length = if self.writeback {
                slices.writeback
            } else {
                slices.waited
            };
            self.until = now + length;
        }
        if self.writeback {
            Next::Writeback
        } else {
            Next::Waited
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICES: Slices = Slices {
        waited: Nanos(100),
        writeback: Nanos(40),
        idle: Nanos(8),
    };

    /// The sides whose pieces of 10 are served until 300, a letter each, where reads come `think`
    /// after one has ended.
    fn served(think: u64, writes: bool) -> String {
        let (mut turns, mut now, mut ready) = (Turns::FIRST, 0, 0);
        let mut text = String::new();
        while now < 300 {
            let sides = (ready <= now, writes);
            if sides == (false, false) {
                now = ready;
                continue;
            }
            match turns.next(SLICES, Instant(now), sides) {
                Next::Waited => {
                    text.push('r');
                    now += 10;
                    ready = now + think;
                    turns.quiet = Instant(now) + SLICES.idle;
                }
                Next::Writeback => {
                    text.push('w');
                    now += 10;
                }
                Next::At(until) => now = until.0.min(ready.max(now + 1)),
            }
        }
        text
    }

    #[test]
    fn a_reader_and_a_writer_share_the_time_by_the_lengths_of_their_turns() {
        assert_eq!(served(0, true), "wwwwrrrrrrrrrrwwwwrrrrrrrrrrww");
        assert_eq!(served(0, false), "r".repeat(30));
    }

    #[test]
    fn a_reader_that_is_back_within_the_idle_time_keeps_its_turn_and_a_slower_one_does_not() {
        // 10 + 5 a read: seven in a turn of 100.
        assert_eq!(served(5, true), "wwwwrrrrrrrwwwwrrrrrrrww");
        let slow = served(50, true);
        let reads = slow.matches('r').count();
        assert!(reads <= 6 && slow.contains("wwww"), "{slow}");
    }
}
