//! The words of a start: on standard output the addresses, one a line; on standard error the
//! volumes, and how to use them.

use core::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use super::Served;
use crate::config::{BackendConfig, Config, ListenConfig, show_size};
use crate::log::{self, Format, error, info};

/// Where a client finds a volume, as libnbd and QEMU write it.
///
/// Source: the NBD project's doc/uri.md.
#[must_use]
pub fn uri(listen: &ListenConfig, volume: &str, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    let volume = escape(volume.as_bytes(), b"/");
    match listen {
        ListenConfig::Unix { path, .. } => {
            let path = escape(path.as_os_str().as_encoded_bytes(), b"/");
            format!("{scheme}+unix:///{volume}?socket={path}")
        }
        ListenConfig::Tcp(address) => format!("{scheme}://{}/{volume}", reachable(*address)),
    }
}

/// An address that listens everywhere is reached here by the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Per-cent signs for all that is neither unreserved (RFC 3986) nor in `more`.
fn escape(text: &[u8], more: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || more.contains(byte) {
            escaped.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// A start, as people read it.
pub(super) fn started(
    config: &Config,
    listen: &[ListenConfig],
    volumes: &[Served],
    web: Option<SocketAddr>,
) -> String {
    let mut text = format!(
        "tidegate {} serves {}, in at most {} of memory{}\n",
        env!("CARGO_PKG_VERSION"),
        counted(volumes.len(), "volume"),
        show_size(config.memory),
        of_group(config),
    );
    let widest = volumes
        .iter()
        .map(|volume| volume.config.name.chars().count())
        .max();
    let width = widest.unwrap_or(0).min(32);
    for volume in volumes {
        let about = &volume.config;
        let size = show_size(volume.export.size());
        let place = place(&about.backend);
        let ro = if about.read_only { ", read-only" } else { "" };
        let gone = if in_memory(&about.backend) {
            ", gone at the end"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  {:width$}  {size:>10}  {place}{ro}{gone}",
            about.name
        );
    }
    for listen in listen {
        let _ = match listen {
            ListenConfig::Unix { path, .. } => {
                writeln!(text, "listening at unix:{}", path.display())
            }
            ListenConfig::Tcp(address) => writeln!(text, "listening at tcp:{address}"),
        };
    }
    if let Some(web) = web {
        let _ = writeln!(
            text,
            "watch it at http://{}/ (metrics: /metrics), or with `tidegate top{}`",
            reachable(web),
            unless_default(web)
        );
    }
    let embedded = volumes
        .iter()
        .find(|volume| matches!(volume.config.backend, BackendConfig::Embedded { .. }));
    if let (Some(volume), Some(listen)) = (embedded, listen.first()) {
        let uri = uri(listen, &volume.config.name, config.tls.is_some());
        let _ = write!(
            text,
            "\nTo use it, for example:\n  \
             nbdinfo '{uri}'\n  \
             qemu-img info '{uri}'\n  \
             nbdcopy disk.img '{uri}'\n  \
             mkdir -p mnt && nbdfuse mnt '{uri}' &   # then mnt/nbd is the volume: mkfs.ext4 mnt/nbd, mount -o loop mnt/nbd DIR\n\
             \nEnd it with Ctrl-C: it writes everything back first. All options: tidegate serve --help\n"
        );
    }
    text
}

/// Why the memory limit is what it is, if the control group is why.
fn of_group(config: &Config) -> String {
    config.memory_of.as_ref().map_or(String::new(), |group| {
        let (bytes, file) = (show_size(group.bytes), group.file.display());
        format!(", three quarters of what its control group allows ({bytes}: {file})")
    })
}

/// True if data written there are lost with the server.
pub(super) fn in_memory(backend: &BackendConfig) -> bool {
    match backend {
        BackendConfig::Memory { .. } => true,
        BackendConfig::Objects { url, .. } => url == "mem:",
        _ => false,
    }
}

/// The argument that `top` needs to find the page.
fn unless_default(web: SocketAddr) -> String {
    let address = reachable(web).to_string();
    if address == crate::top::DEFAULT_ADDRESS {
        return String::new();
    }
    format!(" {address}")
}

/// Where a volume is kept, as it was named.
pub(super) fn place(backend: &BackendConfig) -> String {
    match backend {
        BackendConfig::File { path, .. }
        | BackendConfig::New { path, .. }
        | BackendConfig::Embedded { path, .. } => path.display().to_string(),
        BackendConfig::Memory { .. } => "mem:".to_owned(),
        BackendConfig::Objects { url, .. } => url.clone(),
    }
}

pub(super) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// True if standard error is read by people, and not by programs that expect JSON alone.
pub(super) fn is_for_people(format: Format) -> bool {
    format != Format::Json || std::io::stderr().is_terminal()
}

/// A start, as programs read it; `web` has said where it is.
pub(super) fn announce(config: &Config, listen: &[ListenConfig], volumes: &[Served]) {
    for volume in volumes {
        info!(
            volume = %volume.config.name,
            bytes = volume.export.size(),
            backend = %place(&volume.config.backend),
            read_only = volume.config.read_only,
            "serving"
        );
    }
    for listen in listen {
        match listen {
            ListenConfig::Unix { path, .. } => {
                info!(at = %format!("unix:{}", path.display()), "listening")
            }
            ListenConfig::Tcp(address) => info!(at = %format!("tcp:{address}"), "listening"),
        }
    }
    info!(
        version = env!("CARGO_PKG_VERSION"),
        volumes = volumes.len() as u64,
        memory = config.memory,
        "started"
    );
}

/// The last words of a server that did not start, or did not end well, for programs. False: people
/// read standard error, nothing was written.
pub(super) fn last_words(format: Format, words: &str) -> bool {
    if is_for_people(format) {
        return false;
    }
    // Of no effect after a start; before it nothing has set the log up.
    log::start(format, log::Level::Error);
    error!(cause = words, "cannot go on");
    log::finish();
    true
}

/// Says it to people.
pub(super) fn say(text: &str) {
    // A standard error that is closed must not end the server.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints addresses for programs.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // Likewise.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_is_told_where_the_page_is_if_it_would_not_find_it() {
        let told = |address: &str| unless_default(address.parse().unwrap());
        assert_eq!(told("127.0.0.1:9321"), "");
        assert_eq!(told("0.0.0.0:9321"), "");
        assert_eq!(told("127.0.0.1:4321"), " 127.0.0.1:4321");
    }

    #[test]
    fn addresses() {
        let unix = |path: &str| ListenConfig::Unix {
            path: path.into(),
            mode: 0o600,
        };
        let tcp = |address: &str| ListenConfig::Tcp(address.parse().unwrap());
        for (listen, volume, tls, expected) in [
            (
                unix("/run/t.sock"),
                "data",
                false,
                "nbd+unix:///data?socket=/run/t.sock",
            ),
            (
                unix("/a b&c?"),
                "vm/disk 0ä",
                true,
                "nbds+unix:///vm/disk%200%C3%A4?socket=/a%20b%26c%3F",
            ),
            (tcp("0.0.0.0:10809"), "x", false, "nbd://127.0.0.1:10809/x"),
            (tcp("[::]:1"), "x", true, "nbds://[::1]:1/x"),
            (tcp("10.0.0.2:10809"), "", false, "nbd://10.0.0.2:10809/"),
        ] {
            assert_eq!(uri(&listen, volume, tls), expected);
        }
    }
}
