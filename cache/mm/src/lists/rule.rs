//! Pages of files under a page rule (`policy::rule`): their words, what is looked at to be taken
//! out, what comes back.
//!
//! The young queue is the inactive list of files, the main queue the active one. A hit stores into
//! its page's word and takes no lock. The rule and its clock are behind one lock of all zones, as a
//! ghost does not say of which zone its page was; it is taken inside that of the lists.
//!
//! Source: docs/adr/0028.

use env::{Context, Lock, LockClass};
use frames::sync::{AtomicU32, Ordering};
use frames::{Flags, FrameId, Shadow};
use policy::reclaim::scan::{CLUSTER, Kind, Sizes};
use policy::rule::{self, Clock, Coming, End, Ghost, PageRule, Queue, Queues, RuleMaker, Use};
use policy::units::Pages;

use super::isolate::{Batch, Page};
use super::{ACTIVE_FILE, INACTIVE_FILE, Lru, ZoneId, Zones, list_of};
use crate::pages::CachedPages;

/// Memory is full until this part of it has come in without that a page had to go.
const FULL_PART: u32 = 16;
/// Pages that a turn moves at most before it has found one to evict.
const MOVED_MOST: u64 = 4 * CLUSTER.0;

/// See the module.
pub(crate) struct Ruled {
    words: Box<[AtomicU32]>,
    /// The clock's time, for hits.
    now: AtomicU32,
    compares: bool,
    state: Lock<State>,
}

struct State {
    clock: Clock,
    rule: Box<dyn PageRule>,
    /// When a page had to go last.
    went: Option<u32>,
}

impl State {
    /// True if nothing has to be evicted for a page that comes in: there are free frames, and not
    /// because the background reclaimer has just freed some more than it was asked for.
    fn has_room(&self, has_free: bool) -> bool {
        let since = |went: u32| Use::since(went, self.clock.now());
        has_free
            && self
                .went
                .is_none_or(|went| since(went) > self.clock.memory().ticks / FULL_PART)
    }
}

/// The arrival of pages of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// There are free frames above the marks.
    pub(crate) has_room: bool,
    /// Nobody has asked for them yet.
    pub(crate) ahead: bool,
    /// Their owner has used them already.
    pub(crate) used: bool,
}

impl Ruled {
    pub(super) fn new(frames: u32, maker: &RuleMaker) -> Self {
        let clock = Clock::new(Pages(u64::from(frames)));
        let rule = maker.make(clock.memory());
        Self {
            words: (0..frames).map(|_| AtomicU32::new(0)).collect(),
            now: AtomicU32::new(0),
            compares: rule.compares(),
            state: Lock::new(
                LockClass::Leaf,
                State {
                    clock,
                    rule,
                    went: None,
                },
            ),
        }
    }

    /// A page is used: no more than a store into its word, once a tick.
    #[inline]
    pub(crate) fn note_use(&self, frame: FrameId) {
        let word = &self.words[frame.0 as usize];
        let before = word.load(Ordering::Relaxed);
        let after = rule::used(before, self.now.load(Ordering::Relaxed));
        if after != before {
            word.store(after, Ordering::Relaxed);
        }
    }

    fn used(&self, frame: FrameId, now: u32) -> Use {
        Use::of(self.words[frame.0 as usize].load(Ordering::Relaxed), now)
    }

    fn set(&self, frame: FrameId, used: Use, now: u32) {
        let word = &self.words[frame.0 as usize];
        word.store(used.word(now), Ordering::Relaxed);
    }

    /// A page goes to another frame.
    pub(crate) fn moved(&self, from: FrameId, to: FrameId) {
        let word = self.words[from.0 as usize].load(Ordering::Relaxed);
        self.words[to.0 as usize].store(word, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    fn queues(&self, lru: &Lru<'_>, state: &State, zone: ZoneId) -> Queues {
        let [young, main] = [INACTIVE_FILE, ACTIVE_FILE].map(|list| lru.len(zone, list));
        Queues {
            young,
            main,
            ahead: state.clock.ahead(young + main),
        }
    }

    /// Looks at the page at an end of a queue. `None`: the queue is empty; else the page, and
    /// whether it goes. One that stays has been moved.
    fn look(
        &self,
        (lru, state): (&mut Lru<'_>, &mut State),
        pages: &CachedPages,
        zone: ZoneId,
        (queue, end): (Queue, End),
    ) -> Option<(FrameId, bool)> {
        let list = list_of_queue(queue);
        let frame = match end {
            End::Old => lru.pop_tail(zone, list),
            End::New => lru.pop_head(zone, list),
        }?;
        let now = state.clock.now();
        let mut used = self.used(frame, now);
        let Some(to) = state.rule.look(queue, &mut used) else {
            mark(pages, frame, queue);
            return Some((frame, true));
        };
        self.set(frame, used, now);
        mark(pages, frame, to);
        lru.push_head(list_of_queue(to), frame);
        Some((frame, false))
    }
}

fn list_of_queue(queue: Queue) -> u8 {
    match queue {
        Queue::Young => INACTIVE_FILE,
        Queue::Main => ACTIVE_FILE,
    }
}

/// Its flags say on which list a page belongs.
fn mark(pages: &CachedPages, frame: FrameId, queue: Queue) {
    let was_main = pages.table.flags(frame).has(Flags::ACTIVE);
    let is_main = queue == Queue::Main;
    if is_main && !was_main {
        pages.table.update(frame, Flags::ACTIVE, Flags::NONE);
    } else if was_main && !is_main {
        pages.table.update(frame, Flags::NONE, Flags::ACTIVE);
    }
}

impl Zones {
    /// The page rule, if there is one.
    #[inline]
    pub(crate) fn ruled(&self) -> Option<&Ruled> {
        self.ruled.as_ref()
    }

    /// Lists as scans see them: under a rule all pages of files are on one.
    pub(super) fn as_scanned(&self, mut sizes: Sizes) -> Sizes {
        if self.ruled.is_some() {
            let main = core::mem::take(&mut sizes.0[usize::from(ACTIVE_FILE)]);
            sizes.0[usize::from(INACTIVE_FILE)] += main;
        }
        sizes
    }

    /// True if the next page to evict is one of those that stay, as the young ones are no more than
    /// their part.
    pub(crate) fn takes_main(&self, context: &impl Context, zone: ZoneId) -> bool {
        self.ruled.as_ref().is_some_and(|ruled| {
            let lru = self.lru(context);
            let state = ruled.state.lock(context);
            let queues = ruled.queues(&lru, &state, zone);
            state.rule.next(&queues).0 == Queue::Main
        })
    }

    /// New pages of files onto the lists that their flags say, or the rule.
    pub(crate) fn add_files(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        frames: &[FrameId],
        how: Arrival,
    ) {
        let Some(ruled) = &self.ruled else {
            return self.add(context, pages, frames);
        };
        let mut lru = self.lru(context);
        let mut state = ruled.state.lock(context);
        state.clock.arrive(Pages(frames.len() as u64), how.ahead);
        let now = state.clock.now();
        ruled.now.store(now, Ordering::Relaxed);
        let used = Use {
            idle: 0,
            count: u8::from(how.used),
        };
        let coming = Coming {
            ghost: None,
            has_room: state.has_room(how.has_room),
            oldest: None,
        };
        for &frame in frames {
            ruled.set(frame, used, now);
            // It has come back, and was placed.
            if !pages.table.flags(frame).has(Flags::ACTIVE) {
                let queue = state.rule.place(&coming);
                mark(pages, frame, queue);
            }
            lru.push_head(list_of(pages.table.flags(frame)), frame);
        }
    }

    /// Takes up to `count` pages of files to look at; those that the rule keeps are moved. Answers
    /// how many were.
    pub(super) fn isolate_by(
        &self,
        ruled: &Ruled,
        context: &impl Context,
        pages: &CachedPages,
        zone: ZoneId,
        count: u64,
    ) -> (Batch, u64) {
        let mut batch = Batch::default();
        let mut moved = 0;
        let mut lru = self.lru(context);
        let mut state = ruled.state.lock(context);
        while batch.len() < count && moved < MOVED_MOST {
            let queues = ruled.queues(&lru, &state, zone);
            if queues.total().is_zero() {
                break;
            }
            let next = state.rule.next(&queues);
            match ruled.look((&mut lru, &mut state), pages, zone, next) {
                Some((frame, true)) => {
                    let (_, generation) = pages.table.look(frame);
                    batch.push(Page { frame, generation });
                }
                Some((_, false)) => moved += 1,
                None => break,
            }
        }
        self[zone].note_isolated(Kind::File, batch.len());
        (batch, moved)
    }

    /// A page comes back into `frame`: whether it stays. Answers what it left, and in how many
    /// evictions ago that was.
    pub(super) fn place(
        &self,
        ruled: &Ruled,
        context: &impl Context,
        pages: &CachedPages,
        (frame, shadow): (FrameId, u32),
        has_room: bool,
    ) -> (Ghost, Queue, Pages) {
        let zone = self.layout.of(frame);
        let mut lru = self.lru(context);
        let mut state = ruled.state.lock(context);
        let now = state.clock.now();
        let ghost = Ghost::from_bits(shadow, now);
        let mut oldest = None;
        for _ in 0..MOVED_MOST {
            if !ruled.compares {
                break;
            }
            let next = (Queue::Main, End::Old);
            let Some((found, goes)) = ruled.look((&mut lru, &mut state), pages, zone, next) else {
                break;
            };
            oldest = Some(ruled.used(found, now));
            if goes {
                lru.push_tail(ACTIVE_FILE, found);
                break;
            }
        }
        let has_room = state.has_room(has_room);
        let queue = state.rule.place(&Coming {
            ghost: Some(ghost),
            has_room,
            oldest,
        });
        mark(pages, frame, queue);
        (ghost, queue, state.clock.pages(ghost.gone))
    }

    /// Pages of files are evicted: for each, what stays of it, if the rule wants something to.
    pub(super) fn ghosts<'a>(
        &self,
        ruled: &Ruled,
        context: &impl Context,
        pages: &CachedPages,
        going: impl Iterator<Item = (FrameId, &'a mut Option<Shadow>)>,
    ) {
        let mut state = ruled.state.lock(context);
        let now = state.clock.now();
        state.went = Some(now);
        for (frame, shadow) in going {
            let is_main = pages.table.flags(frame).has(Flags::ACTIVE);
            let from = if is_main { Queue::Main } else { Queue::Young };
            let ghost = Ghost::of(ruled.used(frame, now), from);
            let is_left = state.rule.went(from);
            *shadow = is_left.then(|| Shadow(ghost.bits(now)));
        }
    }
}
