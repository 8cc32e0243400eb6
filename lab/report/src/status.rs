//! Exit statuses of the program.

/// All well.
pub const OK: u8 = 0;
/// A run failed, a band does not hold, or standard output cannot be written.
pub const FAILED: u8 = 1;
/// A mistake in the command line or a file, or something that is not there.
pub const MISTAKE: u8 = 2;
/// Ended by an interrupt.
pub const INTERRUPTED: u8 = 130;
