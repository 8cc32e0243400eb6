//! Reclaim: what to scan, what to do with each page, when to stop, when to sleep and whom to wake.
//!
//! Everything here decides from a snapshot; `mm` isolates, waits, writes and frees.
//!
//! Laws of reclaim are siblings, one file each, in `laws`; they are listed there. The procedures
//! ask the law they run under (`Rules`) and never which one it is.
//!
//! Source: mechanisms 1.2, 1.3, 2, 3, 4, 9; paper p0.

mod answers;
pub mod background;
pub mod boost;
pub mod direct;
pub mod generations;
pub mod growth;
mod law;
pub mod laws;
pub mod page;
mod reason;
pub mod retry;
pub mod scan;
pub mod swap;
pub mod throttle;
pub mod token;
mod tunables;
pub mod turn;
pub mod workingset;
pub mod zoned;

pub use self::answers::{ReserveWakes, SwapSender, WhenFull};
pub use self::law::{Admission, Isolation, Loops, Plenty, ReclaimLaw, Rules};
pub use self::reason::{Reason, Reasons};
pub use self::tunables::{FRESH, Tunables};
