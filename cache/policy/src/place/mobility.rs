//! From which free lists a block is taken where those of its own mobility have none, and whether
//! its pageblock goes with it.
//!
//! Memory is kept apart by *mobility*: what can be moved, what can be thrown away, what stays. Then
//! some pageblocks can be emptied whole. A request that finds no block of its own *falls back* on
//! another mobility's lists. That is an *external-fragmentation event* if the block it takes from
//! is smaller than a pageblock: from then on two mobilities live in one.
//!
//! ```text
//!   own lists empty
//!     4.20 to 5.3   the largest foreign block   >= pageblock   -> Retag: all of it changes sides, no event
//!                                               >= half order, or I am not Movable
//!                                                              -> Claim: all that is free there; tag it if half is like me
//!                                               else           -> Move: the smallest block that holds me; it alone
//!     3.2           the same, but Unmovable claims as Movable does, and else -> Take: from the largest block
//!     6.12          the largest foreign blocks, one of each order while they may be claimed
//!                                                              -> Retag, or Claim if half is like me: else on to the next
//!                   none claimed                               -> Take: from the smallest block; its rest stays foreign
//! ```
//!
//! Vocabulary: a *pageblock* is a run of frames that is kept together, 2^9 or what its owner says;
//! its *tag* is the mobility whose lists get what is freed in it; a *block* is a free run of
//! 2^order frames.
//!
//! Invariants
//!   1. No step names a block of the request's own mobility, nor a block that is smaller than the
//!      request.
//!   2. A fallback ends: claims go down in order, and any other step is the last.
//!   3. A block of a pageblock or more is never split between two mobilities.
//!   4. A rule that keeps pageblocks apart never splits one.
//!
//! Concurrency: plain data, decided under the caller's lock of the lists.
//!
//! Source: mechanisms 1.8; kernel-facts 15, 19; Linux 5.0, 5.3 and 6.12 mm/page_alloc.c,
//! __rmqueue_fallback(), steal_suitable_fallback(), __rmqueue_claim(), __rmqueue_steal(),
//! try_to_claim_block(), find_suitable_fallback(); include/trace/events/kmem.h,
//! mm_page_alloc_extfrag.
//! Deviations: no HIGHATOMIC, CMA or ISOLATE pageblocks, and none that lies in two zones.

use crate::reclaim::boost::Event;
use crate::units::Pages;

/// Orders of blocks: 0 to 10 (`MAX_ORDER`).
pub const ORDERS: usize = 11;

/// The mobility of the content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mobility {
    /// Nothing: it stays until it is freed. Slabs that cannot be reclaimed, buffers of metadata.
    Unmovable = 0,
    /// It can be moved: page cache and anonymous memory.
    Movable = 1,
    /// It can be thrown away, if not singly: slabs of inodes and directory entries.
    Reclaimable = 2,
}

/// The ability of a file system to move its dirty pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migrates {
    /// Like clean ones: nothing but the index points at a page (anonymous memory, and ours).
    #[default]
    Copy,
    /// Buffers point at them too, each with a lock (ext4: `buffer_migrate_page`).
    Buffers,
    /// They have to be written first (no `->migratepage`: vfat, and raw devices up to 3.x).
    WritesPage,
}

impl Mobility {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// 0 to 2.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The mobility of the pageblocks that a page of a file lies in, where pages lie with their
    /// like: `written` by somebody, or read.
    #[must_use]
    pub const fn of_page(written: bool) -> Self {
        if written {
            Self::Unmovable
        } else {
            Self::Reclaimable
        }
    }

    /// The mobilities whose lists are tried when its own are empty, in this order.
    #[must_use]
    pub const fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}

/// Which lists of a zone have a block: bit k of a mobility's number says whether its list of order
/// k has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeOrders([u16; 3]);

impl FreeOrders {
    /// Of the number of free blocks, by mobility and order.
    #[must_use]
    pub fn of_blocks(blocks: [[u32; ORDERS]; 3]) -> Self {
        let bits = |orders: [u32; ORDERS]| {
            let of = |at: usize| u16::from(orders[at] > 0) << at;
            (0..ORDERS).map(of).sum()
        };
        Self(blocks.map(bits))
    }

    fn has(self, mobility: Mobility, order: u8) -> bool {
        self.0[mobility.index()] >> order & 1 == 1
    }

    /// Which of the fallbacks of a mobility has a block of that order; the first that does.
    fn foreign(self, want: Mobility, order: u8) -> Option<Block> {
        let from = want
            .fallbacks()
            .into_iter()
            .find(|from| self.has(*from, order))?;
        Some(Block { order, from })
    }
}

/// A law of falling back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackRule {
    /// Name of its column.
    pub name: &'static str,
    /// A pageblock is claimed whole or left; a request that can claim none takes what it needs from
    /// a block and leaves the rest. Else what is free of a pageblock changes lists, whether or not
    /// the pageblock does.
    pub claims_or_leaves: bool,
    /// Requests may ask that pageblocks be kept apart (`ALLOC_NOFRAGMENT`). 5.0 works it out and
    /// forgets to say so.
    pub keeps_apart: bool,
    /// As it was in 3.x: always the largest block; what is free of its pageblock goes along only if
    /// the block is half a pageblock's order, or for what can be thrown away; the tag if half of
    /// the pageblock is free, whatever else is in it.
    pub by_what_is_free: bool,
}

/// A request that its own lists cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The mobility of its content.
    pub mobility: Mobility,
    /// 2^order frames.
    pub order: u8,
    /// It would rather look in another zone than split a pageblock of this one.
    pub keeps_apart: bool,
}

/// The first block of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Of that list.
    pub order: u8,
    /// The mobility whose list it is.
    pub from: Mobility,
}

/// The next step of the lists' owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackStep {
    /// Tags all pageblocks of the block as the request's, moves the block to its list and takes
    /// from it. No event.
    Retag(Block),
    /// Looks at the block's pageblock, and asks `Fallback::looked`.
    Claim(Block),
    /// Moves that block alone to the request's list and takes from it.
    Move(Block),
    /// Takes from that block; the rest of it stays on its lists.
    Take(Block),
    /// There is none.
    None,
}

impl FallbackStep {
    /// The event it is, if the law boosts by it. With `Claim` it happens whether or not the claim
    /// succeeds.
    #[must_use]
    pub fn event(self) -> Option<Event> {
        match self {
            Self::Claim(_) => Some(Event::Claims),
            Self::Move(_) | Self::Take(_) => Some(Event::Takes),
            Self::Retag(_) | Self::None => None,
        }
    }
}

/// The pages found in a pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its tag.
    pub tag: Mobility,
    /// Its free pages.
    pub free: Pages,
    /// Its pages in use that can be moved: they are on the lists of reclaim.
    pub movable: Pages,
}

/// The fate of a pageblock that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Its free pages go to the request's lists, which then serve it, and it is tagged as theirs.
    Tagged,
    /// Its free pages go to the request's lists, which then serve it; its tag stays.
    Moved,
    /// It stays as it is: the next step.
    Left,
}

/// True if half of a pageblock is free or like the request, so that it is better off with its tag.
///
/// Pages in use that cannot be moved are not told apart: for a request of either kind they are like
/// it in a pageblock that was tagged movable, and in others none is.
#[must_use]
pub fn is_alike(want: Mobility, found: &Found, pageblock_order: u8) -> bool {
    let whole = 1_u64 << pageblock_order;
    let others = whole.saturating_sub(found.free.0.saturating_add(found.movable.0));
    let alike = match (want, found.tag) {
        (Mobility::Movable, _) => found.movable.0,
        (Mobility::Unmovable | Mobility::Reclaimable, Mobility::Movable) => others,
        (
            Mobility::Unmovable | Mobility::Reclaimable,
            Mobility::Unmovable | Mobility::Reclaimable,
        ) => 0,
    };
    found.free.0 + alike >= whole / 2
}

/// The search of one request among the lists of other mobilities.
#[derive(Clone, Debug)]
pub struct Fallback {
    rule: FallbackRule,
    request: Request,
    pageblock_order: u8,
    /// The largest order not tried yet; `None`: all were, or are too small to claim.
    next: Option<u8>,
}

impl Fallback {
    /// # Panics
    /// If an order is not below `ORDERS`.
    #[must_use]
    pub fn begin(rule: FallbackRule, request: Request, pageblock_order: u8) -> Self {
        let is_order = |order: u8| usize::from(order) < ORDERS;
        assert!(is_order(request.order), "a block has an order");
        assert!(is_order(pageblock_order), "a pageblock is a block");
        Self {
            rule,
            request,
            pageblock_order,
            next: Some(LARGEST),
        }
    }

    /// The same where claims are known to fail: no block has come or gone since the last one.
    ///
    /// # Source
    /// Linux 6.12 mm/page_alloc.c, __rmqueue() (`RMQUEUE_STEAL`).
    #[must_use]
    pub fn without_claims(self) -> Self {
        Self { next: None, ..self }
    }

    /// The next step. `free`: the lists as they are now.
    #[must_use]
    pub fn step(&mut self, free: FreeOrders) -> FallbackStep {
        let Request {
            mobility, order, ..
        } = self.request;
        let keeps_apart = self.request.keeps_apart && self.rule.keeps_apart;
        let least = if keeps_apart {
            order.max(self.pageblock_order)
        } else {
            order
        };
        let largest = self.next.take().and_then(|next| {
            let mut down = (least..=next).rev();
            down.find_map(|order| free.foreign(mobility, order))
        });
        match largest {
            Some(block) if block.order >= self.pageblock_order => {
                return FallbackStep::Retag(block);
            }
            Some(block) if self.claims(block) => {
                self.next = block.order.checked_sub(1);
                return FallbackStep::Claim(block);
            }
            Some(_) | None => {}
        }
        if keeps_apart {
            return FallbackStep::None;
        }
        if let Some(block) = largest
            && self.rule.by_what_is_free
        {
            return FallbackStep::Take(block);
        }
        let smallest = (order..=LARGEST).find_map(|order| free.foreign(mobility, order));
        match smallest {
            None => FallbackStep::None,
            Some(block) if self.rule.claims_or_leaves => FallbackStep::Take(block),
            Some(block) => FallbackStep::Move(block),
        }
    }

    /// The fate of the pageblock that the last step, a `Claim`, has looked at.
    #[must_use]
    pub fn looked(&self, found: &Found) -> Claimed {
        let tags = if self.rule.by_what_is_free {
            found.free.0 >= 1 << self.pageblock_order >> 1
        } else {
            is_alike(self.request.mobility, found, self.pageblock_order)
        };
        if tags {
            Claimed::Tagged
        } else if self.rule.claims_or_leaves {
            Claimed::Left
        } else {
            Claimed::Moved
        }
    }

    /// True if a pageblock may go with the block. Movable requests are content with a small one:
    /// compaction can gather them.
    fn claims(&self, block: Block) -> bool {
        let takes_all = match self.request.mobility {
            Mobility::Movable => false,
            Mobility::Reclaimable => true,
            Mobility::Unmovable => !self.rule.by_what_is_free,
        };
        takes_all || block.order >= self.pageblock_order / 2
    }
}

/// The largest order.
const LARGEST: u8 = 10;
const _: () = assert!(LARGEST as usize + 1 == ORDERS);
