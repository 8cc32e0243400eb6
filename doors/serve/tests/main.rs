//! The server in this process: connections, what clients may rely on, what is seen of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alerts;
#[path = "common/certificates.rs"]
mod certificates;
mod common;
mod connection;
mod connection_durable;
mod connection_faults;
mod contract;
mod in_memory;
mod large_writes;
#[path = "common/promql.rs"]
mod promql;
mod tls;
mod watch;
