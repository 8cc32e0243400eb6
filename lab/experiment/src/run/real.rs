//! Counts and times as the numbers that an outcome holds.

use policy::units::Nanos;

pub(super) fn seconds(time: Nanos) -> f64 {
    number(time.0) / 1e9
}

pub(super) fn millis(time: Nanos) -> f64 {
    number(time.0) / 1e6
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts, bytes and times are below 2^53"
)]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}
