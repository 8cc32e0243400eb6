//! The requests on their way to and from a device, and the bound on them.

pub(crate) mod read;
pub(crate) mod write;
