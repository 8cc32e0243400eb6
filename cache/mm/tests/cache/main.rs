//! The cache in virtual time, through what its users call. One program: each of these modules alone
//! would have the whole of `mm` compiled for it once more.

mod ahead;
mod attack;
mod attack_reclaim;
mod common;
mod devices;
mod fragments;
mod generations;
mod limit;
mod map;
mod nonblocking;
mod paths;
mod punch;
mod reclaim;
mod rule;
mod spill;
mod turns;
