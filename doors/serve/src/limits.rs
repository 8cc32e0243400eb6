//! The server's demands on the system: descriptors, and leave to write while memory is short.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::log::{debug, warn};

/// Descriptors of the server whoever comes: standard ones, those of the runtime and its signals,
/// listeners, the page with its connections, files that are read and closed again.
const DESCRIPTORS_OWN: u64 = 96;

/// Memory of one connection with 32 requests under way, bytes: what a server keeps off its memory
/// limit for each that it allows. Measured by `tests/connection_many.rs`.
pub const CONNECTION_BYTES: u64 = 24 << 10;
/// Memory of an encrypted connection beside that of a plain one, bytes: records under way in both
/// directions and the state of a session. Measured: 12 KiB while idle, 59 KiB after requests of 1
/// MiB both ways (300 connections, resident memory).
pub const TLS_BYTES: u64 = 64 << 10;

/// Memory that a connection may take.
pub(crate) fn connection_bytes(encrypted: bool) -> u64 {
    CONNECTION_BYTES + if encrypted { TLS_BYTES } else { 0 }
}

/// Asks not to be made to wait for writeback of others, nor to write other files back, when memory
/// is taken from the system: others may wait for us to write theirs. For the calling thread and
/// those that it makes.
///
/// Source: prctl(2), PR_SET_IO_FLUSHER.
pub(crate) fn become_io_flusher() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        // It takes CAP_SYS_RESOURCE, and is needed only where the system swaps to, or has mounted,
        // what is served here.
        debug!(cause = %error, "PR_SET_IO_FLUSHER was refused");
    }
}

/// Lifts the soft limit on descriptors to what `connections` and `volumes` need, the latter in
/// descriptors, or as far as it goes. Answers how many connections there is room for.
pub(crate) fn lift_descriptors(connections: u64, volumes: u64) -> u64 {
    let others = volumes.saturating_add(DESCRIPTORS_OWN);
    let wanted = connections.saturating_add(others);
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= wanted {
        return connections;
    }
    let reached = limit
        .maximum
        .map_or(wanted, |hard| hard.min(wanted))
        .max(soft);
    let lifted = Rlimit {
        current: Some(reached),
        maximum: limit.maximum,
    };
    let reached = match setrlimit(Resource::Nofile, lifted) {
        Ok(()) => reached,
        Err(error) => {
            debug!(cause = %error, "the limit on open files stays as it is");
            soft
        }
    };
    let room = reached.saturating_sub(others).clamp(1, connections);
    if room < connections {
        warn!(
            connections,
            descriptors = reached,
            help = "raise `ulimit -Hn` (LimitNOFILE= in systemd), or allow fewer connections",
            "there is room for {room} clients at a time: {others} descriptors are for volumes and the server"
        );
    }
    room
}
