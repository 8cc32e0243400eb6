//! A device that does nothing.

use env::{Device, DeviceId, DeviceInfo, Interrupt, IoRequest};

/// Number of a `Null` that is the first device.
pub const NULL: DeviceId = DeviceId(0);

/// The description of a device without wishes.
pub const INFO: DeviceInfo = DeviceInfo {
    alignment: 512,
    stable_writes: false,
    grow_ahead: None,
    prepares_writes: false,
    queue: None,
};

/// Completes everything at once.
#[derive(Debug)]
pub struct Null;

impl Device for Null {
    fn submit(&self, request: Box<IoRequest>) {
        request.complete(&Interrupt::new(), Ok(()));
    }

    fn info(&self) -> DeviceInfo {
        INFO
    }
}
