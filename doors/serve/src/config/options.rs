//! The options of the server, of `[tls]` and of a volume, one a line.
//!
//! ```text
//!   options! ──> struct of what was understood <── read ── words of the command line and the file
//!           ├──> keys: what the file may have, and behind a volume's backend
//!           └──> arguments: what the command line has
//! ```
//! A line has the key; what is made of its value, and by what; and the arguments of the command
//! line that set it, each with what stands behind it (`=VALUE`: nothing does, and it sets that) and
//! its help.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use device::Layer;
use figures::size_above_zero;
use tidegate::{ErrorPolicy, Nodes, Threshold};

use super::WebConfig;
use super::default::Surroundings;
use super::mistake::{Mistake, Word};
use super::values::{
    REQUESTS_MOST, as_it_is, block, clients, control, description, layers, level, log_format,
    memory_limit, nodes, number, on_error, page_rule, parallel, patience, record_limit,
    record_path, request_size, share, socket_mode, threshold, truth, volume_size, web_address,
};
use crate::access::Access;
use crate::log::{Format, Level};

/// The words of some options, by their keys.
type Words = BTreeMap<&'static str, Word>;

/// An argument of the command line that sets an option.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name without `--`.
    pub name: &'static str,
    /// Its value, for people; or `=VALUE`: it takes none, and sets that.
    pub value: &'static str,
    /// The key that it sets in `Asked::values`.
    pub key: &'static str,
    /// Its help, in a line.
    pub help: &'static str,
}

/// All arguments that set options, in the order of the options.
pub fn arguments() -> impl Iterator<Item = &'static Argument> {
    [SERVER, TLS, VOLUME].into_iter().flatten()
}

/// A struct of options, how it is read, its keys and its arguments.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident, $keys:ident, $arguments:ident, $prefix:literal ($($from:ident: $of:ty),*);
     $($key:ident: $type:ty, $read:expr, [$($argument:literal, $value:literal, $help:literal);*];)*) => {
        $(#[$doc])*
        pub(super) struct $name {
            $(pub(super) $key: Option<$type>,)*
        }

        pub(super) const $keys: &[&str] = &[$(stringify!($key)),*];

        const $arguments: &[Argument] = &[$($(Argument {
            name: $argument,
            value: $value,
            key: concat!($prefix, stringify!($key)),
            help: $help,
        },)*)*];

        impl $name {
            pub(super) fn read(words: &Words, mistakes: &mut Vec<Mistake>, $($from: $of),*) -> Self {
                Self { $($key: read(words, mistakes, stringify!($key), $read),)* }
            }
        }
    };
}

options! {
    /// Options of the server: in the file above its tables.
    ServerOptions, SERVER_KEYS, SERVER, "" (surroundings: &Surroundings);
    memory: u64, |text| memory_limit(text, surroundings.group.as_ref()), ["memory", "SIZE", "Memory limit of the whole process [default: 1GiB, or 3/4 of what the control group allows]"];
    dirty: Threshold, threshold, ["dirty", "SHARE|SIZE", "Dirty data above which writers are held back: a share of the cache or a size [default: 20%]"];
    background: Threshold, threshold, ["background", "SHARE|SIZE", "Dirty data above which writeback begins [default: a sixteenth of --dirty]"];
    web: Option<WebConfig>, web_address, ["web", "ADDRESS:PORT", "Metrics and the live page [default: 127.0.0.1:9321, or a free port]"; "no-web", "=off", "Neither metrics nor a live page"];
    socket_mode: u32, socket_mode, ["socket-mode", "MODE", "Permissions of Unix sockets [default: 0600]"];
    max_connections: u32, |text| number(text, 1, 1 << 20), ["max-connections", "N", "Connections at one time [default: 1024]"];
    max_connections_per_address: u32, |text| number(text, 1, 1 << 20), ["max-connections-per-address", "N", "Connections of one address at one time, over TCP [default: seven eighths of --max-connections]"];
    clients: Access, clients, ["clients", "LIST", "Clients that may open volumes which name none: common names or fingerprints of certificates, joined by +"];
    control: PathBuf, control, ["control", "unix:PATH", "Socket on which `tidegate hold` asks, for this user and root [default: none]"];
    end_idle: Duration, patience, ["end-idle", "TIME", "End when no client was connected for this time"];
    max_requests: u32, |text| number(text, 1, REQUESTS_MOST), ["max-requests", "N", "Requests in flight on a connection [default: 128]"];
    max_request_size: u32, request_size, ["max-request-size", "SIZE", "Largest request [default: 32MiB]"];
    handshake_timeout: Duration, patience, ["handshake-timeout", "TIME", "Time that a client has for its handshake [default: 10s]"];
    slow_request: Duration, patience, ["slow-request", "TIME", "A request that takes longer is logged, with its client [default: 10s]"];
    paced: bool, truth, ["unpaced", "=false", "Do not hold writers back: the memory limit alone does (for comparisons)"];
    io_uring: bool, truth, ["no-io-uring", "=false", "Do not use io_uring"];
    nodes: Nodes, nodes, ["nodes", "NODES", "Memory nodes to allocate from: one, system [default: one]"];
    page_rule: Option<&'static str>, page_rule, ["page-rule", "RULE", "Rule that picks the page to evict when memory is full: lists, reuse, lirs, s3-fifo, mru [default: lists]"];
    record: PathBuf, record_path, ["record", "FILE", "Record the requests of clients, for `tidegate replay`"];
    record_limit: u64, record_limit, ["record-limit", "SIZE", "Maximum size of that file [default: 256MiB]"];
    log: Level, level, ["log", "LEVEL", "Lowest severity that is logged: error, warn, info, debug [default: info]"];
    log_format: Format, log_format, ["log-format", "FORMAT", "Format of log lines: logfmt, json [default: logfmt]"];
    take_out_all: bool, truth, [];
}

options! {
    /// Options of `[tls]`.
    TlsOptions, TLS_KEYS, TLS, "tls." ();
    certificate: PathBuf, as_it_is, ["tls-certificate", "FILE", "Encrypt: the server's certificate and its chain (PEM)"];
    key: PathBuf, as_it_is, ["tls-key", "FILE", "Its private key (PEM)"];
    clients: PathBuf, as_it_is, ["tls-clients", "FILE", "Clients need a certificate that one of these authorities signed (PEM)"];
    revoked: PathBuf, as_it_is, ["tls-revoked", "FILE", "Refuse client certificates in these lists of revocation (PEM)"];
    required: bool, truth, ["tls-optional", "=false", "Clients may go without encryption"];
}

options! {
    /// Options of a volume.
    VolumeOptions, VOLUME_KEYS, VOLUME, "" ();
    backend: String, as_it_is, [];
    size: u64, volume_size, [];
    read_only: bool, truth, [];
    durable: bool, truth, [];
    unlocked: bool, truth, [];
    on_error: ErrorPolicy, on_error, [];
    dirty_min: u32, share, [];
    dirty_max: u32, share, [];
    description: String, description, [];
    block_min: u32, block, [];
    block_preferred: u32, block, [];
    object_size: u64, |text| Ok(size_above_zero(text)?), [];
    parallel: u16, parallel, [];
    force: bool, truth, [];
    device: Vec<Layer>, layers, [];
    take_out: bool, truth, [];
    clients: Access, clients, [];
}

/// The key as it is in the list of known ones. `policy` is the old name of `on_error`.
pub(super) fn known(keys: &[&'static str], key: &str) -> Option<&'static str> {
    let key = if key == "policy" { "on_error" } else { key };
    keys.iter().find(|known| **known == key).copied()
}

/// Reads the word of an option, and keeps what is wrong with it.
fn read<T>(
    words: &Words,
    mistakes: &mut Vec<Mistake>,
    key: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let word = words.get(key)?;
    let refuse = |help| {
        let title = format!("`{}` is no value for `{key}`", word.text);
        mistakes.push(word.wrong(title, "this cannot be used", help));
    };
    read(word.text.trim()).map_err(refuse).ok()
}
