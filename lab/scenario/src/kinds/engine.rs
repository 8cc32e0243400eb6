//! `engine`: a storage engine with pages in place and a log.

use crate::keys::{May, keys, words};
use crate::limits::{BLOCK, EVERY, FILE_MIB, MADE};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Changes pages of its file by transactions, whose log is to be durable before they are.
    Keys:
        file_mib: Spanned<f64>, "Bytes of its pages, and of its log, which goes round; scaled.", FILE_MIB;
        log: Spanned<String>, "The device of its log.";
        pages: May<u32>, "Pages that a transaction changes.", MADE;
        block_kib: May<f64>, "Bytes of its record in the log.", BLOCK;
        commit_every: May<u32>, "Transactions that are made durable together.", MADE;
        every_ms: May<f64>, "Time between two checkpoints.", EVERY;
        kept_by: May<OrderKind>, "The keeper of the order: `cache`, `memory`, `page`.";
}

words! {
    /// The keeper of the order of pages and log.
    OrderKind:
        Cache = "cache", "The cache.";
        Memory = "memory", "The engine: it has the pages of a commit in memory of its own until the log is durable.";
        Page = "page", "The engine: it makes the log durable before it writes a page.";
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            ends: Ends::Timed,
            writes: Writes::Over,
            ..Traits::NONE
        }
    }
}
