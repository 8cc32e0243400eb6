//! The movement of dirty pages to their devices: pacing of writers, flushers, requests and their
//! ends.

pub(crate) mod balance;
pub(crate) mod flush;
pub(crate) mod io;
pub(crate) mod pacer;
