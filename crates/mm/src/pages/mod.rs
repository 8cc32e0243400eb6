//! The pages of a cache: which frame holds which, who is busy with one, and who waits for that.

pub(crate) mod awaited;
pub(crate) mod replace;
