//! A buffer in front of a slow medium: writes end when the interface has taken them in.
//!
//! The interface fills it faster than the medium empties it; when it is full the disk takes nothing
//! in until it has drained to its low mark. So completions of a steady stream come in lumps,
//! although the medium never rests:
//!
//! ```text
//!   buffered  high |     /|  /|  /|
//!             low  |    / |_/ |_/ |_     _ stall: nothing completes
//!                  |___/
//! ```
//!
//! Buffered data is measured by the time that the medium needs for it.

use policy::units::{Bytes, Nanos};

use super::transfer;

pub(super) struct WriteBuffer {
    high: Nanos,
    low: Nanos,
    interface_bytes_per_sec: u64,
}

/// The cost of a write at the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakeIn {
    /// Its transfer.
    pub(super) transfer: Nanos,
    /// The wait for room before it; 0 unless the buffer is full.
    pub(super) full: Nanos,
}

impl WriteBuffer {
    /// A buffer that is full at `high_us` of the medium's time and open again at `low_us`; none if
    /// it holds nothing.
    pub(super) fn new(high_us: u64, low_us: u64, interface_bytes_per_sec: u64) -> Option<Self> {
        (high_us > 0).then(|| Self {
            high: Nanos::micros(high_us),
            low: Nanos::micros(low_us),
            interface_bytes_per_sec,
        })
    }

    /// A write of `bytes`, with `buffered` of the medium's time in the buffer, itself included.
    pub(super) fn take_in(&self, bytes: Bytes, buffered: Nanos) -> TakeIn {
        let full = if buffered <= self.high {
            Nanos::ZERO
        } else {
            buffered.saturating_sub(self.low)
        };
        TakeIn {
            transfer: transfer(bytes, self.interface_bytes_per_sec),
            full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_it_full_waits_until_it_has_drained_to_its_low_mark() {
        let buffer = WriteBuffer::new(80_000, 40_000, 500_000_000).expect("it holds something");
        let wait = |buffered| buffer.take_in(Bytes(500_000), Nanos::millis(buffered));
        let transfer = Nanos::millis(1);
        assert_eq!(
            wait(80),
            TakeIn {
                transfer,
                full: Nanos::ZERO
            }
        );
        assert_eq!(
            wait(81),
            TakeIn {
                transfer,
                full: Nanos::millis(41)
            }
        );
    }
}
