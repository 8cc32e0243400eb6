//! What is on its way to and from a device, and how much of it may be.

pub(crate) mod read;
pub(crate) mod write;
