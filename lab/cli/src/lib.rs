//! The program `tidegate`: words in, exit status out.
//!
//! ```text
//!   args (the command line) -> program (run) -> experiment (a scenario, run and judged)
//!                                      |        report     (what is printed and written)
//!                                      '-> chosen (of which runs a trace is made)
//!                           -> list      (what there is to choose from)
//!                           -> reproduce (every published claim, one scoreboard)
//!                           -> compare   (a recording of a real kernel beside the lab)
//!                           -> replay    (traces under page rules)
//!                           -> server    (`serve`, `top`, `demo`: feature `serve`)
//! ```
#![forbid(unsafe_code)]

pub mod args;
mod chosen;
mod hashes;
mod list;
pub mod program;
mod replay;
#[cfg(feature = "serve")]
mod server;
#[cfg(not(feature = "serve"))]
mod without_server;
