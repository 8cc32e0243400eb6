//! The server: volumes in one bounded, paced cache, exported over NBD.
#![deny(unsafe_code)]

pub mod access;
mod aside;
pub mod backend;
pub mod buffers;
mod clients;
pub mod config;
pub mod connection;
pub mod counters;
pub mod demo;
mod durable;
pub mod export;
mod gate;
pub mod hold;
pub mod hub;
mod job;
pub mod limits;
pub mod listen;
pub mod log;
mod mailbox;
mod may;
pub mod metrics;
pub mod opened;
mod pace;
pub mod pool;
mod record;
mod refusal;
mod rounds;
pub mod run;
pub mod snapshot;
mod systemd;
pub mod tls;
pub mod top;
pub mod web;

pub use export::Export;
pub use hub::{Hub, Limits, Stage};
pub use opened::{Extents, Opened};
