//! Page rules: the choice of the page to evict when another one is read and the cache is full.
//!
//! | rule | after | variant |
//! |---|---|---|
//! | `lru` | | |
//! | `clock` | Corbató 1968 | one bit a page |
//! | `2q` | Johnson and Shasha, VLDB 1994 | the full version; Kin 25 %, Kout 50 % |
//! | `arc` | Megiddo and Modha, FAST 2003 | steps of whole pages |
//! | `lirs` | Jiang and Zhang, SIGMETRICS 2002 | 1 % for HIR pages, a stack of two capacities |
//! | `s3-fifo` | Yang et al., SOSP 2023 | 10 % small, ghosts for 90 %, two accesses to stay |
//! | `w-tinylfu` | Einziger et al., ToS 2017 | window of 1 %, segments of 20 and 80 %, exact counts |
//! | `reuse` | ours: docs/adr/0028 | |
//! | `belady` | Belady 1966 | the bound: it knows the future |
//!
//! A rule that reads alone is measured here: one page a step, no read-ahead, no time. Pages are
//! numbered densely in the order of their addresses, so that a rule keeps arrays and no maps. To
//! add one: a file, and a line in `ALL`.
//!
//! Variants are those of libCacheSim 0.3, which the rules are held against; each file says where
//! its paper leaves something open. `lirs` and `s3-fifo` are the papers' to the page; the cache's
//! own of those names (`policy::rule`, here `tidegate+lirs`) keep time in ticks, and come out up to
//! 12 points away on the stored traces, so that neither stands for the other.

pub(crate) mod arc;
pub(crate) mod belady;
pub(crate) mod clock;
pub(crate) mod lirs;
mod lists;
pub(crate) mod lru;
pub(crate) mod s3_fifo;
pub(crate) mod two_q;
pub(crate) mod two_queues;
pub(crate) mod w_tinylfu;

use policy::rule::reuse::Reuse;

use crate::trace::Trace;

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The page was in memory.
    Hit,
    /// It was not and is now; another may have gone for it.
    Miss {
        /// The evicted page.
        evicted: Option<u32>,
    },
}

/// A page rule with its cache of a fixed number of pages.
pub trait Rule {
    /// A page is accessed.
    fn access(&mut self, page: u32) -> Access;
}

/// The constructor of a rule: for a trace, which only a bound looks into, and a capacity in pages.
pub type Build = fn(&Trace, u32) -> Box<dyn Rule>;

/// All rules that stand here, in the order of history.
pub const ALL: &[(&str, Build)] = &[
    ("lru", |trace, pages| {
        Box::new(lru::Lru::new(trace.distinct(), pages))
    }),
    ("clock", |trace, pages| {
        Box::new(clock::Clock::new(trace.distinct(), pages))
    }),
    ("2q", |trace, pages| {
        Box::new(two_q::TwoQ::new(trace.distinct(), pages))
    }),
    ("lirs", |trace, pages| match pages {
        // There is no choice, and no room for a low and a high page.
        1 => Box::new(lru::Lru::new(trace.distinct(), pages)),
        _ => Box::new(lirs::Lirs::new(trace.distinct(), pages)),
    }),
    ("arc", |trace, pages| {
        Box::new(arc::Arc::new(trace.distinct(), pages))
    }),
    ("w-tinylfu", |trace, pages| {
        Box::new(w_tinylfu::WTinyLfu::new(trace.distinct(), pages))
    }),
    ("s3-fifo", |trace, pages| {
        Box::new(s3_fifo::S3Fifo::new(trace.distinct(), pages))
    }),
    ("reuse", |trace, pages| {
        let rule = two_queues::TwoQueues::new(trace.distinct(), pages, Reuse::new);
        Box::new(rule)
    }),
    ("belady", |trace, pages| {
        Box::new(belady::Belady::new(trace, pages))
    }),
];

/// A part of a capacity in hundredths, rounded down.
pub(crate) fn percent(pages: u32, hundredths: u32) -> u32 {
    let part = u64::from(pages) * u64::from(hundredths) / 100;
    u32::try_from(part).expect("a part of a capacity")
}
