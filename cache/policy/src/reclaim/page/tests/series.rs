//! A node under a writer that is faster than its device, reclaimed by the background alone: how
//! many pages are looked at for each that is freed, with and without a list for pages that wait for
//! their write.

use super::super::super::background::LAST;
use super::super::super::scan::{
    CLUSTER, CostRule, Costs, CountInput, Kind, Lru, Priority, Sizes, Turns, plan,
};
use super::*;
use crate::linux::LINUX_5_15;
use crate::reclaim::ReclaimLaw;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

/// Frames of the node.
const FRAMES: usize = 16_384;
/// Pages that the flusher has under writeback at a time.
const FLIGHT: usize = 256;

#[derive(Clone, Copy)]
struct Page {
    dirty: bool,
    writeback: bool,
    reclaim: bool,
    list: usize,
}

const NOWHERE: usize = 9;
const INACTIVE: usize = 0;
const ACTIVE: usize = 1;
const ASIDE: usize = 2;

struct Node {
    rule: JudgeRule,
    pages: Vec<Page>,
    free: Vec<usize>,
    /// Old end in front.
    lists: [VecDeque<usize>; 3],
    dirty: VecDeque<usize>,
    flight: VecDeque<usize>,
    flags: NodeFlags,
    tally: Tally,
}

impl Node {
    fn new(rule: JudgeRule) -> Self {
        let page = Page {
            dirty: false,
            writeback: false,
            reclaim: false,
            list: NOWHERE,
        };
        Self {
            rule,
            pages: vec![page; FRAMES],
            free: (0..FRAMES).collect(),
            lists: Default::default(),
            dirty: VecDeque::new(),
            flight: VecDeque::new(),
            flags: NodeFlags::default(),
            tally: Tally::default(),
        }
    }

    fn push(&mut self, list: usize, page: usize, old_end: bool) {
        self.pages[page].list = list;
        if old_end {
            self.lists[list].push_front(page);
        } else {
            self.lists[list].push_back(page);
        }
    }

    fn fill(&mut self, count: usize, dirty: bool) -> usize {
        let count = count.min(self.free.len());
        for _ in 0..count {
            let page = self.free.pop().expect("counted");
            self.pages[page] = Page {
                dirty,
                writeback: false,
                reclaim: false,
                list: NOWHERE,
            };
            self.push(INACTIVE, page, false);
            if dirty {
                self.dirty.push_back(page);
            }
        }
        count
    }

    /// The device completes `count` pages; the flusher fills the gap.
    fn write(&mut self, count: usize) {
        for _ in 0..count.min(self.flight.len()) {
            let at = self.flight.pop_front().expect("counted");
            let page = &mut self.pages[at];
            page.writeback = false;
            let (list, reclaim) = (page.list, page.reclaim);
            page.reclaim = false;
            match after_write(reclaim, list == ASIDE, page.dirty, list == NOWHERE) {
                AfterWrite::Stays | AfterWrite::StaysAside => {}
                AfterWrite::Rotates => {
                    let on = &mut self.lists[list];
                    let place = on.iter().position(|other| *other == at);
                    on.remove(place.expect("it is on its list"));
                    self.push(INACTIVE, at, true);
                }
            }
        }
        while self.flight.len() < FLIGHT {
            let Some(at) = self.dirty.pop_front() else {
                return;
            };
            let page = &mut self.pages[at];
            page.dirty = false;
            page.writeback = true;
            self.flight.push_back(at);
        }
    }

    fn sizes(&self) -> Sizes {
        let of = |list: usize| Pages(self.lists[list].len() as u64);
        Sizes([Pages::ZERO, Pages::ZERO, of(INACTIVE), of(ACTIVE)])
    }

    /// The background, from the gentlest priority on, until `target` pages are freed or it is to
    /// pause.
    fn balance(&mut self, target: u64) -> bool {
        let mut freed = 0;
        let mut priority = Some(Priority::GENTLEST);
        while let Some(now) = priority {
            if freed >= target {
                self.flags = NodeFlags::default();
                return false;
            }
            let pass = self.pass(now, target);
            freed += pass.reclaimed.0;
            self.tally.absorb(&pass);
            let change = after_pass(
                &pass,
                &Pass {
                    background: true,
                    may_throttle: false,
                    node: self.flags,
                    aside: Pages(self.lists[ASIDE].len() as u64),
                    inactive_file: Pages(self.lists[INACTIVE].len() as u64),
                    last: now <= LAST,
                    rule: self.rule,
                },
            );
            self.flags = self.flags.with(change.set);
            if change.stall.is_some() {
                return true;
            }
            if pass.reclaimed.is_zero() {
                priority = now.raised().filter(|next| next.0 > 0);
            }
        }
        false
    }

    fn pass(&mut self, priority: Priority, target: u64) -> Tally {
        let sizes = self.sizes();
        let plan = plan(&CountInput {
            sizes: &sizes,
            told: &sizes,
            free: Pages::ZERO,
            high_mark_sum: Pages::ZERO,
            priority,
            background: true,
            rule: LINUX_5_15.scan,
            swappiness: 60,
            may_swap: false,
            costs: &Costs::new(CostRule::WritesOnly),
            may_deactivate: [false, sizes.inactive_is_low(Kind::File)],
            plenty: Pages::ZERO,
            spares_anon: true,
        });
        let mut turns = Turns::new(plan, Pages(target), false);
        let mut pass = Tally::default();
        while let Some(turn) = turns.next(pass.reclaimed) {
            if turn.list == Lru::ActiveFile {
                for _ in 0..turn.pages.0.min(self.lists[ACTIVE].len() as u64) {
                    let page = self.lists[ACTIVE].pop_front().expect("counted");
                    self.push(INACTIVE, page, false);
                }
            } else {
                let cluster = self.shrink(turn.pages.at_most(CLUSTER));
                pass.absorb(&cluster);
            }
        }
        pass
    }

    fn shrink(&mut self, count: Pages) -> Tally {
        let mut tally = Tally::default();
        for _ in 0..count.0 {
            let Some(at) = self.lists[INACTIVE].pop_front() else {
                break;
            };
            let page = self.pages[at];
            let seen = Seen {
                dirty: page.dirty,
                writeback: page.writeback,
                reclaim: page.reclaim,
                ..FILE
            };
            let scanner = Scanner {
                rule: self.rule,
                ..on(BACKGROUND, self.flags)
            };
            let mut judged = judge(&seen, &scanner);
            if judged.writes() {
                // Reclaim writes nothing itself: what the scan costs is the point here.
                judged.verdict = Keep;
            }
            tally.note(&seen, &judged);
            self.pages[at].reclaim |= judged.sets_reclaim();
            match judged.verdict {
                Reclaim => {
                    self.pages[at].list = NOWHERE;
                    self.free.push(at);
                }
                Defer => self.push(ASIDE, at, false),
                AwaitWrite | Activate => self.push(ACTIVE, at, false),
                Keep | KeepForWrite | KeepReferenced => self.push(INACTIVE, at, false),
                SwapOut | PageOut => unreachable!("these are kept"),
            }
        }
        tally
    }
}

/// Sixty ticks, a line for every ten: a writer that would fill memory at once is held at 80 % of
/// it, dirty; a reader streams through the rest at 400 pages a tick; the device writes 100.
///
/// Answers what was met, and the pages written to.
fn run(rule: JudgeRule, text: &mut String) -> (Tally, u64) {
    *text += "tick   read  written  scanned  reclaimed  immed.  stalls  inactive  active  aside\n";
    let mut node = Node::new(rule);
    let (mut read, mut written, mut stalls) = (0, 0, 0);
    for tick in 0..60 {
        let pending = node.dirty.len() + node.flight.len();
        written += node.fill((FRAMES * 4 / 5).saturating_sub(pending), true);
        read += node.fill(400, false);
        let wanted = 1000_usize.saturating_sub(node.free.len());
        if wanted > 0 && node.balance(wanted as u64) {
            stalls += 1;
        }
        node.write(100);
        if tick % 10 == 9 {
            let [inactive, active, aside] =
                [INACTIVE, ACTIVE, ASIDE].map(|list| node.lists[list].len());
            let Tally {
                scanned,
                reclaimed,
                immediate,
                ..
            } = node.tally;
            writeln!(
                text,
                "{tick:4} {read:6} {written:8} {:8} {:10} {:7} {stalls:7} {inactive:9} {active:7} {aside:6}",
                scanned.0, reclaimed.0, immediate.0,
            )
            .expect("a string grows");
        }
    }
    (node.tally, written as u64)
}

#[test]
fn pages_that_wait_for_their_write_are_not_looked_at_again() {
    let mut text = String::from("Linux 5.15\n");
    let linux = run(LINUX_5_15.page, &mut text);
    text += "\nTidegate\n";
    let ours = run(ReclaimLaw::TIDEGATE.page, &mut text);
    compare("aside", &text);
    // With Linux's table, dirty pages outgrow the inactive list, come back from the active one, and
    // the background pauses for them while clean pages are at hand. Ours looks at a page at most
    // once before its write and once after it, and does not pause.
    let (linux, _) = linux;
    let (ours, written) = ours;
    assert!(ours.reclaimed.0 > 2 * linux.reclaimed.0, "{text}");
    assert!(ours.scanned.0 <= ours.reclaimed.0 + written, "{text}");
    let scanned_per_1000 = |tally: &Tally| tally.scanned.0 * 1000 / tally.reclaimed.0;
    let [before, after] = [&linux, &ours].map(scanned_per_1000);
    assert!(after * 4 < before * 3, "{before} {after}");
}

fn compare(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reclaim/snapshots");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).expect("the snapshot can be written");
        return;
    }
    let stored = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_SNAPSHOTS=1?", path.display()));
    assert_eq!(text, stored, "{}", path.display());
}
