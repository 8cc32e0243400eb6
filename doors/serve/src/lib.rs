//! The server: volumes in one bounded, paced cache, exported over NBD.
#![forbid(unsafe_code)]

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
pub mod hold;
pub mod hub;
mod limits;
pub mod listen;
pub mod log;
mod may;
#[cfg(feature = "web")]
pub mod metrics;
mod pace;
pub mod pool;
mod record;
mod refusal;
pub mod run;
pub mod snapshot;
mod systemd;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "web")]
pub mod top;
#[cfg(feature = "web")]
pub mod web;

pub use export::{Export, Extents, Opened};
pub use hub::{Hub, Limits, Stage};
