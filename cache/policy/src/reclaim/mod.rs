//! Reclaim: what to scan, what to do with each page, when to stop, when to sleep and whom to wake.
//!
//! Everything here decides from a snapshot; `mm` isolates, waits, writes and frees.
//!
//! A law of reclaim is one file: ours is `tidegate`, those of Linux are in `history`. The
//! procedures ask the law they run under (`Rules`) and never which one it is.
//!
//! Source: mechanisms 1.2, 1.3, 2, 3, 4, 9; paper p0.

mod answers;
pub mod background;
pub mod boost;
pub mod direct;
pub mod growth;
pub mod law;
pub mod lead;
pub mod page;
pub mod prospects;
mod reason;
pub mod retry;
pub mod scan;
pub mod swap;
pub mod throttle;
mod tidegate;
pub mod token;
mod tunables;
pub mod turn;
pub mod workingset;

pub use self::answers::{ReserveWakes, SwapSender, WhenFull};
pub use self::law::{Admission, Isolation, Loops, Plenty, ReclaimLaw, Rules};
pub use self::reason::{Reason, Reasons};
pub use self::tunables::{FRESH, Tunables};
