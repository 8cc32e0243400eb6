//! What a cache knows of its files and devices.

pub(crate) mod device;
pub(crate) mod flight;
pub(crate) mod mapping;
pub(crate) mod reading;
