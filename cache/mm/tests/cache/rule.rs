//! The cache under page rules, and what readers say of what is to come.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{data, uses, world};
use env::Task;
use mm::{Advice, Cache, File, Reader};
use policy::rule::{Coming, End, PageRule, Queue, Queues, RuleMaker, Use};
use policy::units::{Bytes, PAGE_SIZE, Pages};

const FRAMES: u32 = 4096;
const RATE: u64 = 1 << 30;

/// Runs under a rule, or by the law's lists, over a file of `pages` pages.
fn under<T: Send + 'static>(
    rule: Option<&str>,
    pages: u32,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>) -> T + Send + 'static,
) -> T {
    let rule = rule.map(|name| RuleMaker::by_name(name).unwrap());
    under_made(rule, pages, body)
}

/// The same, under any rule.
fn under_made<T: Send + 'static>(
    rule: Option<RuleMaker>,
    pages: u32,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>) -> T + Send + 'static,
) -> T {
    let mut world = world(FRAMES, RATE);
    world.disk.keep(false);
    world.options.page_rule = rule;
    world.run(u64::from(pages) * PAGE_SIZE, body)
}

fn read(task: &mut Task<'_>, file: &File, reader: &mut Reader, page: u32) {
    let place = (Bytes(u64::from(page) * PAGE_SIZE), Bytes(PAGE_SIZE));
    file.show(task, reader, place, &mut |_, _| {}).unwrap();
}

/// Hits in a thousand of a hot set of 60 % of memory, beside a scan of ten times memory.
fn hot_beside_scan(rule: Option<&str>, advice: Advice) -> u32 {
    const HOT: u32 = FRAMES / 10 * 6;
    const SCAN: u32 = 10 * FRAMES;
    under(rule, HOT + SCAN, move |task, _, file| {
        for _ in 0..4 {
            for page in 0..HOT {
                uses(task, file, page);
            }
        }
        let mut reader = Reader::default();
        file.advise(task, &mut reader, (Bytes(0), Bytes(0)), advice)
            .unwrap();
        let mut hits = 0;
        for at in 0..SCAN {
            read(task, file, &mut reader, HOT + at);
            hits += u32::from(uses(task, file, at % HOT));
        }
        hits * 1000 / SCAN
    })
}

#[test]
fn a_scan_of_ten_times_memory_leaves_a_hot_set_where_it_is() {
    for advice in [Advice::Normal, Advice::Sequential, Advice::NoReuse] {
        let hits = hot_beside_scan(Some("reuse"), advice);
        assert!(hits >= 980, "{advice:?}: {hits} of 1000");
    }
}

/// Hits in a thousand of the last rounds of a loop over half as much again as memory.
fn of_a_loop(rule: Option<&str>) -> u32 {
    const PAGES: u32 = FRAMES + FRAMES / 2;
    under(rule, PAGES, |task, _, file| {
        let mut hits = 0;
        for round in 0..8 {
            for page in 0..PAGES {
                let hit = uses(task, file, page);
                hits += u32::from(hit && round >= 4);
            }
        }
        hits * 1000 / (4 * PAGES)
    })
}

#[test]
fn a_loop_over_more_than_memory_hits_where_the_rule_is_for_loops() {
    assert!(of_a_loop(None) < 100, "lists: {}", of_a_loop(None));
    // Two thirds of it have room.
    for rule in ["reuse", "lirs", "mru"] {
        let hits = of_a_loop(Some(rule));
        assert!(hits >= 500, "{rule}: {hits} of 1000");
    }
}

#[test]
fn dirty_pages_beside_read_ones_are_written_and_go_under_any_rule() {
    for (rule, _) in policy::rule::ALL {
        let [written, reclaimed] = under(Some(rule), 4 * FRAMES, |task, cache, file| {
            let mut writer = cache.writer();
            for page in (0..4 * FRAMES).step_by(4) {
                let at = Bytes(u64::from(page) * PAGE_SIZE);
                file.write(task, &mut writer, at, &data(page, 2, 1))
                    .unwrap();
                uses(task, file, page / 2);
                uses(task, file, page / 2);
            }
            cache.retire(task, writer);
            file.sync(task).unwrap();
            let stats = cache.stats();
            [stats.written, stats.reclaimed]
        });
        assert!(
            written >= Pages(u64::from(2 * FRAMES)),
            "{rule}: {written:?}"
        );
        assert!(
            reclaimed >= Pages(u64::from(FRAMES)),
            "{rule}: {reclaimed:?}"
        );
    }
}

/// First in, first out, with or without ghosts: counts the pages that come with one.
struct Fifo {
    leaves_ghosts: bool,
    come_back: Arc<AtomicU32>,
}

impl PageRule for Fifo {
    fn place(&mut self, coming: &Coming) -> Queue {
        let with_one = u32::from(coming.ghost.is_some());
        self.come_back.fetch_add(with_one, Ordering::Relaxed);
        Queue::Young
    }

    fn next(&self, _: &Queues) -> (Queue, End) {
        (Queue::Young, End::Old)
    }

    fn look(&mut self, _: Queue, _: &mut Use) -> Option<Queue> {
        None
    }

    fn went(&mut self, _: Queue) -> bool {
        self.leaves_ghosts
    }
}

#[test]
fn a_page_leaves_a_ghost_if_its_rule_wants_one() {
    const PAGES: u32 = 2 * FRAMES;
    for leaves_ghosts in [true, false] {
        let come_back = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&come_back);
        let rule = RuleMaker::new("fifo", move |_| Fifo {
            leaves_ghosts,
            come_back: Arc::clone(&counter),
        });
        under_made(Some(rule), PAGES, |task, _, file| {
            for page in (0..PAGES).chain(0..PAGES) {
                uses(task, file, page);
            }
        });
        let come_back = come_back.load(Ordering::Relaxed);
        assert_eq!(come_back > 0, leaves_ghosts, "{come_back}");
    }
}

/// Pages that were read for `pages` of them, one after the other, under advice.
fn read_for(pages: u32, advice: Advice) -> Pages {
    let mut world = world(FRAMES, RATE);
    world.disk.keep(false);
    world.options.readahead_max = Pages(32);
    world.run(
        u64::from(4 * FRAMES) * PAGE_SIZE,
        move |task, cache, file| {
            let mut reader = Reader::default();
            let all = (Bytes(0), Bytes(0));
            file.advise(task, &mut reader, all, advice).unwrap();
            for at in 0..pages {
                read(task, file, &mut reader, at);
            }
            cache.stats().read_in
        },
    )
}

#[test]
fn advice_says_how_far_is_read_ahead() {
    assert!(read_for(8, Advice::Normal) > Pages(8));
    assert_eq!(read_for(8, Advice::Random), Pages(8));
    // Up to the largest window, and what is left of the one before.
    let [normal, sequential] = [Advice::Normal, Advice::Sequential].map(|advice| {
        let ahead = (1..=8).map(|part| read_for(part * 128, advice).0 - u64::from(part) * 128);
        ahead.max().unwrap()
    });
    assert!(sequential > normal, "{sequential} {normal}");
}

#[test]
fn what_will_be_needed_comes_and_what_is_not_goes() {
    let page = |page: u64| Bytes(page * PAGE_SIZE);
    under(None, FRAMES, move |task, cache, file| {
        let mut reader = Reader::default();
        let range = (page(10), page(64));
        let willneed = Advice::WillNeed;
        file.advise(task, &mut reader, range, willneed).unwrap();
        task.sleep(env::Cause::Think, policy::units::Nanos::millis(100));
        assert!(file.is_cached(range.0, range.1));
        assert_eq!(cache.stats().read_in, Pages(64));
        // Half of the first page and of the last are not meant.
        let inner = (Bytes(page(10).0 + 1), Bytes(page(64).0 - 2));
        let dontneed = Advice::DontNeed;
        file.advise(task, &mut reader, inner, dontneed).unwrap();
        assert_eq!(cache.stats().cached, Pages(2));
        // No more than a quarter.
        let all = (Bytes(0), Bytes(0));
        file.advise(task, &mut reader, all, willneed).unwrap();
        task.sleep(env::Cause::Think, policy::units::Nanos::millis(100));
        let cached = cache.stats().cached;
        assert!(cached <= Pages(u64::from(FRAMES / 4)), "{cached:?}");
        file.advise(task, &mut reader, all, dontneed).unwrap();
        assert_eq!(cache.stats().cached, Pages::ZERO);
    });
}
