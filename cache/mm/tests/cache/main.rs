//! The cache in virtual time, through what its users call. One program: it is linked once.

mod ahead;
mod attack;
mod attack_reclaim;
mod common;
mod contract;
mod devices;
mod ending;
mod faults;
mod fragments;
mod generations;
mod limit;
mod logged;
mod map;
mod nonblocking;
mod paths;
mod planted;
mod punch;
mod reclaim;
mod rule;
mod spill;
mod turns;
