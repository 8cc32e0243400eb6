//! Why a server could not start, or did not end well.

use core::fmt;
use std::io;
use std::path::PathBuf;

use crate::backend::BackendError;
use crate::config::{ConfigError, show_exactly, show_size};
use crate::refusal::Refused;

/// Why a server could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Its words.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A volume cannot be opened.
    #[error("volume `{name}`: {cause}")]
    Volume {
        /// Which.
        name: String,
        /// Why.
        cause: BackendError,
    },
    /// Several volumes cannot be opened; each is a `Volume`.
    #[error("{} volumes cannot be opened:{}", .0.len(), lines(.0))]
    Volumes(Vec<ServeError>),
    /// The cache cannot be built.
    #[error("{0}")]
    Cache(tidegate::Error),
    /// The memory limit leaves nothing for the cache.
    #[error(
        "a memory limit of {} is too small: give --memory {}MiB; {} of it are for {connections} connections, volumes and \
         the page{}; or raise it less and {}",
        show_size(*limit), least >> 20, show_size(*beside), kept_lines(kept), way_out(*beside, kept)
    )]
    Memory {
        /// The limit asked for.
        limit: u64,
        /// A limit that works, whatever else the process takes by then: whole MiB.
        least: u64,
        /// The part for connections, buffers, backends, the page.
        beside: u64,
        /// Connections that are allowed.
        connections: usize,
        /// Volumes whose backend takes 1 MiB or more beside the cache, and how much.
        kept: Vec<(String, u64)>,
    },
    /// More may be dirty than the cache has room for: nobody would ever be held back.
    #[error(
        "`{key}` is {}, and the cache has {}: the rest of the memory limit of {} is put aside for code, metadata, \
         connections, volumes and the page; give --{key} {}MiB or less, or a share of the cache, as in --{key} 20%; or \
         raise --memory",
        show_exactly(*wanted), show_size(*cache), show_size(*limit), cache >> 20
    )]
    Dirty {
        /// `dirty` or `background`.
        key: &'static str,
        /// The number asked for.
        wanted: u64,
        /// Bytes of pages that the cache has.
        cache: u64,
        /// The memory limit.
        limit: u64,
    },
    /// It cannot listen.
    #[error("{0}")]
    Listen(crate::listen::ListenError),
    /// There is nowhere to listen.
    #[error("there is nowhere to listen; name a place, as in --listen unix:/run/tidegate/nbd.sock")]
    Nowhere,
    /// Certificates.
    #[error("{0}")]
    Tls(crate::tls::TlsError),
    /// The metrics and the live page.
    #[error("{0}")]
    Web(crate::web::WebError),
    /// Requests cannot be recorded.
    #[error("`record`: cannot record requests into {}: {}", path.display(), Refused(cause))]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The system refuses.
    #[error("cannot {doing}: {}", Refused(cause))]
    System {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// At the end not everything was made durable.
    #[error("not everything could be made durable:{}", lines(.0))]
    NotDurable(Vec<NotDurable>),
    /// It was told twice to end.
    #[error("ended at once:{}", lines(.0))]
    Interrupted(Vec<NotDurable>),
}

/// A volume at an end that was not a good one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDurable {
    /// Its name.
    pub volume: String,
    /// Nothing of it is lost: it is named because others are waited for.
    pub is_durable: bool,
    /// It was kept in memory alone, and is gone with the server.
    pub in_memory: bool,
    /// Bytes that were written to it and are not on its backend.
    pub bytes: u64,
    /// Why; empty: nobody waited for it.
    pub cause: String,
}

impl ServeError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::NotDurable(_) => 1,
            Self::Interrupted(_) => 130,
            _ => 2,
        }
    }
}

impl ServeError {
    /// Says it on standard error as an event, where that is for programs that expect JSON alone.
    /// False: it is for people, and nothing was said.
    #[must_use]
    pub fn tell(&self, format: crate::log::Format) -> bool {
        super::message::last_words(format, &self.to_string())
    }
}

impl fmt::Display for NotDurable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            volume,
            is_durable,
            in_memory,
            bytes,
            cause,
        } = self;
        if *in_memory {
            return write!(f, "volume `{volume}`: it was in memory, and is gone");
        }
        if *is_durable {
            return write!(f, "volume `{volume}`: everything is durable");
        }
        match (bytes, cause.as_str()) {
            (0, "") => write!(
                f,
                "volume `{volume}`: everything was written; a last flush was not waited for"
            ),
            (bytes, "") => write!(
                f,
                "volume `{volume}`: {} ({bytes} bytes) were not written and are lost",
                show_size(*bytes)
            ),
            (0, cause) => write!(
                f,
                "volume `{volume}`: {cause}; everything was written, but is not known to be durable"
            ),
            (bytes, cause) => write!(
                f,
                "volume `{volume}`: {cause}; {} ({bytes} bytes) were not written and are lost",
                show_size(*bytes)
            ),
        }
    }
}

fn kept_lines(kept: &[(String, u64)]) -> String {
    let each: Vec<String> = kept
        .iter()
        .map(|(name, bytes)| format!("{} for the backend of volume {name}", show_size(*bytes)))
        .collect();
    match each.is_empty() {
        true => String::new(),
        false => format!(" (of which {})", each.join(", ")),
    }
}

/// The things of `beside` bytes that one can do without: the most of it.
fn way_out(beside: u64, kept: &[(String, u64)]) -> String {
    match kept.iter().max_by_key(|(_, bytes)| *bytes) {
        Some((name, bytes)) if *bytes > beside / 2 => format!(
            "let the backend of volume {name} keep less (size= of mem:, object_size= and parallel= of a store)"
        ),
        _ => "allow fewer connections (--max-connections)".to_owned(),
    }
}

fn lines(volumes: &[impl fmt::Display]) -> String {
    volumes
        .iter()
        .map(|volume| format!("\n  {volume}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_small_names_one_that_works_and_what_needs_it() {
        let error = ServeError::Memory {
            limit: 16 << 20,
            least: 96 << 20,
            beside: 80 << 20,
            connections: 16,
            kept: vec![("d".to_owned(), 64 << 20)],
        };
        let said = error.to_string();
        for text in [
            "limit of 16 MiB is too small: give --memory 96MiB;",
            "(of which 64 MiB for the backend of volume d)",
        ] {
            assert!(said.contains(text), "{said}");
        }
    }
}
