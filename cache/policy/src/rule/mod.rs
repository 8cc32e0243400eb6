//! Which page of a file goes when one comes and memory is full.
//!
//! A zone has two queues of pages of files, *young* and *main*. A hit moves nothing: it stores the
//! time into its page's word and counts. When something has to go, the rule says at which end of
//! which queue to look, and of the page there, whether it is evicted or which queue has it next. An
//! evicted page leaves a *ghost*; one that comes back is shown to the rule with it.
//!
//! ```text
//!   word of a page, 32 bits:   | time of its last use (30 bits) | uses, up to 3 |
//!   ghost, 30 bits:            | when it was evicted (15) | how long it had been idle (14) | from main (1) |
//! ```
//!
//! Time is how many pages have come in, in *ticks* of a thousandth of memory. A page counts as used
//! once a tick at most, so a hit writes into its page no oftener, and a time, a length of time and
//! a bit fit a slot of the index.
//!
//! Invariants
//!   1. A rule is asked about clean and dirty, pinned and unpinned pages alike: a page that cannot
//!      go is put back at the new end of its queue.
//!   2. A ghost is as old as it is for 32 memories' worth of pages that come in. It was idle for
//!      as long as it says, or for ever, if that is longer than sixteen memories.
//!   3. Pages that were read ahead lately have a place among the young, beside the part that the
//!      rule gives them: a window is not driven out before its reader comes.
//!
//! To add a rule: a file, and a line in `ALL`; docs/work/add-a-policy.md has one whole.
//!
//! Source: docs/adr/0028. Deciding about isolated pages by a program of the user's is after
//! cache_ext (Zussman et al., SOSP 2025), which has lists, a look at the old end, and ghosts too.

mod lirs;
mod mru;
pub mod reuse;
mod s3_fifo;

use core::fmt;
use std::sync::Arc;

use crate::units::Pages;

/// Uses of a page that are counted.
pub const COUNT_MOST: u8 = 3;
/// Ticks in which as many pages come in as there are frames, at least (if there are as many
/// frames).
const TICKS: u64 = 1024;
/// Pages read ahead are averaged over this part of a memory that comes in: the largest window.
const AHEAD_PART: u64 = 16;
/// A reader has two windows before it: the one that it reads, and the next.
const WINDOWS: u64 = 2;
/// Bits of a ghost: of the time of eviction, 16 times as long as any rule here knows a page, and of
/// how long it had been idle.
const GONE_BITS: u32 = 15;
const IDLE_BITS: u32 = 14;
/// All of them.
pub const GHOST_BITS: u32 = GONE_BITS + IDLE_BITS + 1;
/// Bits of the time in a page's word.
const TIME_MASK: u32 = u32::MAX >> COUNT_BITS;
const COUNT_BITS: u32 = 2;

/// The pages of files of a zone are in two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Pages that have yet to be used again.
    Young,
    /// Pages that stay.
    Main,
}

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end with the pages that were put there longest ago.
    Old,
    /// The end where pages are put.
    New,
}

/// The uses of a page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Ticks since its last use.
    pub idle: u32,
    /// Uses, the first included, up to `COUNT_MOST`; 0: nobody has used it since it was read ahead.
    /// A rule that is asked about a page may count down.
    pub count: u8,
}

/// The memory of a page that was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ghost {
    /// Ticks since its last use.
    pub idle: u32,
    /// Ticks since its eviction.
    pub gone: u32,
    /// The queue that it was in.
    pub from: Queue,
}

/// The queues of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Pages of each.
    pub young: Pages,
    /// The same.
    pub main: Pages,
    /// Of the young, those that are left to the readers they were read ahead for.
    pub ahead: Pages,
}

impl Queues {
    /// Both.
    #[must_use]
    pub fn total(&self) -> Pages {
        self.young + self.main
    }

    /// The queue at whose old end to look, so that `young` pages of `memory` stay young: of the
    /// pages there are, the same part.
    #[must_use]
    pub fn next(&self, young: Pages, memory: Pages) -> Queue {
        let part = self.total().0.saturating_mul(young.0) / memory.0.max(1);
        let stay = Pages(part.max(1)) + self.ahead;
        if self.young >= stay || self.main.is_zero() {
            Queue::Young
        } else {
            Queue::Main
        }
    }
}

/// A page that comes in.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// It was in memory before, and went.
    pub ghost: Option<Ghost>,
    /// Nothing has to go for it: there are free frames above the marks.
    pub has_room: bool,
    /// The page of the main queue that would go first; of a page with a ghost, if the rule compares
    /// (`PageRule::compares`).
    pub oldest: Option<Use>,
}

/// The memory that a rule is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Frames.
    pub pages: Pages,
    /// Ticks in which as many pages come in.
    pub ticks: u32,
}

impl Memory {
    /// The given hundredths of the frames, one at least.
    #[must_use]
    pub fn percent(&self, hundredths: u64) -> Pages {
        Pages((self.pages.0.saturating_mul(hundredths) / 100).max(1))
    }

    /// The given hundredths of its ticks, one at least.
    #[must_use]
    pub fn ticks_percent(&self, hundredths: u64) -> u32 {
        let ticks = u64::from(self.ticks) * hundredths / 100;
        u32::try_from(ticks.max(1)).unwrap_or(u32::MAX)
    }
}

/// The choice of the page to evict. All methods are called under a lock, one at a time, none for a
/// hit.
pub trait PageRule: Send {
    /// The queue that a page comes into.
    fn place(&mut self, coming: &Coming) -> Queue;

    /// The place to look for a page that may be evicted.
    fn next(&self, queues: &Queues) -> (Queue, End);

    /// The verdict on a page that stands there: `None`, it is evicted; else it goes to the new end
    /// of that queue, with the count that is left in `used`.
    fn look(&mut self, from: Queue, used: &mut Use) -> Option<Queue>;

    /// A page of that queue has gone. Answers whether it leaves a ghost.
    fn went(&mut self, from: Queue) -> bool {
        let _ = from;
        true
    }

    /// True if `place` wants to see the oldest page of the main queue.
    fn compares(&self) -> bool {
        false
    }
}

/// A rule that can be chosen: its name, and how it is made.
#[derive(Clone)]
pub struct RuleMaker {
    name: &'static str,
    make: Arc<dyn Fn(Memory) -> Box<dyn PageRule> + Send + Sync>,
}

impl RuleMaker {
    /// A rule of that name.
    pub fn new<R: PageRule + 'static>(
        name: &'static str,
        make: impl Fn(Memory) -> R + Send + Sync + 'static,
    ) -> Self {
        let make = Arc::new(move |memory| -> Box<dyn PageRule> { Box::new(make(memory)) });
        Self { name, make }
    }

    /// The rule of that name in `ALL`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let (name, make) = ALL.iter().find(|(known, _)| *known == name)?;
        let make = Arc::new(make);
        Some(Self { name, make })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Makes one.
    #[must_use]
    pub fn make(&self, memory: Memory) -> Box<dyn PageRule> {
        (self.make)(memory)
    }
}

impl fmt::Debug for RuleMaker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// The maker of a rule.
type Make = fn(Memory) -> Box<dyn PageRule>;

/// All rules that stand here. A new one joins.
pub const ALL: &[(&str, Make)] = &[
    ("reuse", |memory| Box::new(reuse::Reuse::new(memory))),
    ("lirs", |memory| Box::new(lirs::Lirs::new(memory))),
    ("s3-fifo", |memory| Box::new(s3_fifo::S3Fifo::new(memory))),
    ("mru", |_| Box::new(mru::Mru)),
];

/// Time as rules have it, and how much of what comes in is read ahead.
#[derive(Clone, Debug)]
pub struct Clock {
    memory: Pages,
    per_tick: u64,
    arrived: u64,
    /// Pages read ahead, an average over a window's worth of arrivals.
    ahead: u64,
}

impl Clock {
    /// Of a memory of `memory` frames.
    #[must_use]
    pub fn new(memory: Pages) -> Self {
        Self {
            memory,
            per_tick: (memory.0 / TICKS).max(1),
            arrived: 0,
            ahead: 0,
        }
    }

    /// The memory, for a rule.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let ticks = u32::try_from(self.memory.0 / self.per_tick);
        Memory {
            pages: self.memory,
            ticks: ticks.unwrap_or(u32::MAX),
        }
    }

    /// Pages come in; `ahead`: nobody has asked for them yet.
    pub fn arrive(&mut self, pages: Pages, ahead: bool) {
        self.arrived = self.arrived.wrapping_add(pages.0);
        // Arrivals push as much out of the average as they stand for.
        let average = (self.memory.0 / AHEAD_PART).max(1);
        let forgotten = self.ahead.saturating_mul(pages.0) / average;
        self.ahead = self.ahead.saturating_sub(forgotten.max(1));
        if ahead {
            self.ahead = (self.ahead + pages.0).min(average);
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> u32 {
        // Masked: it fits.
        u32::try_from((self.arrived / self.per_tick) & u64::from(TIME_MASK)).unwrap_or(0)
    }

    /// Of the young of a zone with `of` pages of files, those that are left to their readers.
    #[must_use]
    pub fn ahead(&self, of: Pages) -> Pages {
        let part = u128::from(WINDOWS * self.ahead) * u128::from(of.0);
        Pages(u64::try_from(part / u128::from(self.memory.0.max(1))).unwrap_or(0))
    }

    /// Pages that came in during `ticks` ticks.
    #[must_use]
    pub fn pages(&self, ticks: u32) -> Pages {
        Pages(u64::from(ticks) * self.per_tick)
    }
}

/// The word of a page that is used at `now`, and had that one before. Uses in one tick are one:
/// several of one call, or of one turn of work, say nothing of the next (2Q's correlated
/// references).
#[inline]
#[must_use]
pub fn used(word: u32, now: u32) -> u32 {
    let count = word & u32::from(COUNT_MOST);
    if count > 0 && word >> COUNT_BITS == now {
        return word;
    }
    now << COUNT_BITS | (count + 1).min(u32::from(COUNT_MOST))
}

impl Use {
    /// Ticks since then.
    #[must_use]
    pub fn since(then: u32, now: u32) -> u32 {
        now.wrapping_sub(then) & TIME_MASK
    }

    /// As a page's word has it.
    #[must_use]
    pub fn of(word: u32, now: u32) -> Self {
        let count = u8::try_from(word & u32::from(COUNT_MOST));
        Self {
            idle: Self::since(word >> COUNT_BITS, now),
            count: count.unwrap_or(COUNT_MOST),
        }
    }

    /// As a page's word.
    #[must_use]
    pub fn word(self, now: u32) -> u32 {
        now.wrapping_sub(self.idle) << COUNT_BITS | u32::from(self.count.min(COUNT_MOST))
    }

    /// FIFO with second chances: a young page with `stays` uses goes to the main queue, and one of
    /// that goes round once for each use after the first.
    fn second_chance(&mut self, from: Queue, stays: u8) -> Option<Queue> {
        match from {
            Queue::Young if self.count < stays => None,
            Queue::Young => {
                self.count = 1;
                Some(Queue::Main)
            }
            Queue::Main if self.count <= 1 => None,
            Queue::Main => {
                self.count -= 1;
                Some(Queue::Main)
            }
        }
    }
}

impl Coming {
    /// Reuse against recency (LIRS): a page stays if it was away for less long than the oldest that
    /// stays has been idle. One evicted more than `known` ticks ago is new, and stays if nothing
    /// has to go for it.
    fn by_reuse(&self, known: u32) -> Queue {
        let stays = match self.ghost.filter(|ghost| ghost.gone <= known) {
            Some(ghost) => self.oldest.is_none_or(|oldest| oldest.idle > ghost.idle),
            None => self.has_room,
        };
        if stays { Queue::Main } else { Queue::Young }
    }
}

impl Ghost {
    const GONE_MASK: u32 = (1 << GONE_BITS) - 1;
    /// Idle for longer than can be said.
    const IDLE_MOST: u32 = (1 << IDLE_BITS) - 1;

    /// Of a page that is evicted now.
    #[must_use]
    pub fn of(used: Use, from: Queue) -> Self {
        Self {
            idle: used.idle,
            gone: 0,
            from,
        }
    }

    /// As bits, to be stored.
    #[must_use]
    pub fn bits(self, now: u32) -> u32 {
        let went = now.wrapping_sub(self.gone) & Self::GONE_MASK;
        let idle = self.idle.saturating_sub(self.gone).min(Self::IDLE_MOST);
        (went << IDLE_BITS | idle) << 1 | u32::from(self.from == Queue::Main)
    }

    /// From the bits that were stored.
    #[must_use]
    pub fn from_bits(bits: u32, now: u32) -> Self {
        let gone = now.wrapping_sub(bits >> 1 >> IDLE_BITS) & Self::GONE_MASK;
        let idle = match bits >> 1 & Self::IDLE_MOST {
            Self::IDLE_MOST => TIME_MASK,
            idle => idle + gone,
        };
        let from = if bits & 1 == 0 {
            Queue::Young
        } else {
            Queue::Main
        };
        Self { idle, gone, from }
    }
}

#[cfg(test)]
mod tests;
