//! Nanoseconds for the operations on the hot paths: `cargo bench -p tidegate-frames`.
//!
//! Each figure is the best of several rounds, so that a busy machine disturbs it little; the median
//! is printed beside it. Nothing here fails: a timed test would.

use std::hint::black_box;
use std::time::Instant;

use frames::{
    Flags, FrameId, FrameTable, FreeLists, Group, Lists, NodePool, Owner, PageIndex, Slot, Tag,
    WriteToken,
};

/// 1 GiB of pages.
const PAGES: u32 = 1 << 18;
const ROUNDS: usize = 9;
const FILE: u32 = 3;

fn main() {
    println!("{:<52} {:>8} {:>8}", "ns per page", "best", "median");
    hits();
    two_threads_hit();
    index_changes();
    free_lists();
    lru();
}

/// Runs `round` several times, over `pages` pages each, and prints what one page took.
fn bench(name: &str, pages: u32, mut round: impl FnMut()) {
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            round();
            began.elapsed().as_secs_f64() * 1e9 / f64::from(pages)
        })
        .collect();
    took.sort_by(f64::total_cmp);
    println!("{name:<52} {:>8.2} {:>8.2}", took[0], took[ROUNDS / 2]);
}

struct Cache {
    table: FrameTable,
    pool: NodePool,
    index: PageIndex,
    token: WriteToken,
}

/// `PAGES` pages of one file, each in a frame; frame numbers are scattered as after a while of
/// running.
fn filled() -> Cache {
    let (index, mut token) = PageIndex::new();
    let table = FrameTable::new(PAGES);
    let pool = NodePool::new(NodePool::nodes_for(u64::from(PAGES)));
    let mut writer = index.writer(&pool, &mut token);
    for page in 0..PAGES {
        let busy = table.claim(FrameId(scattered(page)));
        table.adopt(
            &busy,
            Owner {
                file: FILE,
                index: page,
            },
        );
        writer.insert(page, busy.frame()).expect("sized for it");
        table.release(busy, Flags::UPTODATE, Flags::NONE);
    }
    Cache {
        table,
        pool,
        index,
        token,
    }
}

/// A permutation of the pages.
fn scattered(page: u32) -> u32 {
    page.wrapping_mul(0x9e37_79b1) % PAGES
}

fn hit(cache: &Cache, page: u32) {
    let Slot::Frame(frame) = cache.index.get(&cache.pool, page) else {
        panic!("cached")
    };
    let pin = cache
        .table
        .try_pin(
            frame,
            Owner {
                file: FILE,
                index: page,
            },
        )
        .expect("idle");
    assert!(!cache.table.unpin(black_box(pin)));
}

fn hits() {
    let cache = filled();
    bench("hit: get + try_pin + unpin, one page", PAGES, || {
        (0..PAGES).for_each(|_| hit(&cache, black_box(77)))
    });
    bench("hit: get + try_pin + unpin, sequential", PAGES, || {
        (0..PAGES).for_each(|page| hit(&cache, page))
    });
    bench(
        "hit: get + try_pin + unpin, random over 1 GiB",
        PAGES,
        || {
            (0..PAGES)
                .for_each(|page| hit(&cache, scattered(page).wrapping_mul(0x2c1b_3c6d) % PAGES));
        },
    );
    bench("get alone, sequential", PAGES, || {
        for page in 0..PAGES {
            black_box(cache.index.get(&cache.pool, page));
        }
    });
    bench("update REFERENCED, already set", PAGES, || {
        for _ in 0..PAGES {
            cache
                .table
                .update(black_box(FrameId(5)), Flags::REFERENCED, Flags::NONE);
        }
    });
    bench("dirty: try_busy + release(DIRTY)", PAGES, || {
        for page in 0..PAGES {
            let (frame, owner) = (
                FrameId(scattered(page)),
                Owner {
                    file: FILE,
                    index: page,
                },
            );
            let busy = cache.table.try_busy(frame, owner).expect("idle");
            cache.table.release(busy, Flags::DIRTY, Flags::NONE);
        }
    });
    bench("write: begin + end, dirtied again between", PAGES, || {
        for frame in (0..PAGES).map(FrameId) {
            assert!(cache.table.try_begin_writeback(frame));
            cache.table.update(frame, Flags::DIRTY, Flags::NONE);
            cache.table.end_writeback(frame, false);
        }
    });
}

fn two_threads_hit() {
    let cache = filled();
    bench(
        "hit, 2 threads, different pages (per page and thread)",
        PAGES,
        || {
            std::thread::scope(|scope| {
                for half in 0..2 {
                    let cache = &cache;
                    scope.spawn(move || {
                        (0..PAGES).for_each(|page| hit(cache, page / 2 + half * (PAGES / 2)))
                    });
                }
            });
        },
    );
    bench(
        "hit, 2 threads, the same page (per page and thread)",
        PAGES,
        || {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let cache = &cache;
                    scope.spawn(move || (0..PAGES).for_each(|_| hit(cache, black_box(77))));
                }
            });
        },
    );
}

fn index_changes() {
    let Cache {
        pool,
        index,
        mut token,
        ..
    } = filled();
    let mut writer = index.writer(&pool, &mut token);
    bench("index: remove + insert, sequential", PAGES, || {
        for page in 0..PAGES {
            writer.remove(page, None);
        }
        for page in 0..PAGES {
            writer.insert(page, FrameId(page)).expect("sized for it");
        }
    });
    bench("index: set_tag + clear_tag, sequential", PAGES, || {
        for page in 0..PAGES {
            writer.set_tag(page, Tag::Dirty);
        }
        for page in 0..PAGES {
            writer.clear_tag(page, Tag::Dirty);
        }
    });
    bench("index: set_tag + clear_tag, scattered", PAGES, || {
        for page in (0..PAGES).map(scattered) {
            writer.set_tag(page, Tag::Dirty);
        }
        for page in (0..PAGES).map(scattered) {
            writer.clear_tag(page, Tag::Dirty);
        }
    });
    for page in (0..PAGES).step_by(2) {
        writer.set_tag(page, Tag::Dirty);
    }
    bench(
        "index: next_tagged, every second page (per tagged)",
        PAGES / 2,
        || {
            let mut from = 0;
            while let Some((at, frame)) = writer.next_tagged(from, PAGES, Tag::Dirty) {
                black_box(frame);
                from = at + 1;
            }
        },
    );
    bench(
        "index: tag_range, every second page (per tagged)",
        PAGES / 2,
        || {
            let mut from = Some(0);
            while let Some(at) = from {
                from = writer.tag_range(at, PAGES, Tag::Dirty, Tag::ToWrite, 1024);
            }
        },
    );
}

fn free_lists() {
    let mut free = FreeLists::new(PAGES);
    free.add_range(FrameId(0), PAGES);
    let mut batches: Vec<Vec<FrameId>> =
        (0..PAGES / 256).map(|_| Vec::with_capacity(256)).collect();
    bench("free lists: batches of 256 taken + put", PAGES, || {
        for batch in &mut batches {
            assert_eq!(free.try_take_batch(Group::FIRST, 256, batch), 256);
        }
        for batch in &mut batches {
            free.put_batch(batch);
            batch.clear();
        }
    });
    let mut frames = Vec::with_capacity(PAGES as usize);
    bench(
        "free lists: single frames taken + put in disorder",
        PAGES,
        || {
            while let Some(frame) = free.try_take(Group::FIRST, 0) {
                frames.push(frame);
            }
            for page in 0..PAGES {
                free.put(frames[scattered(page) as usize], 0);
            }
            frames.clear();
        },
    );
    bench(
        "free lists: batches of 32 in disorder, taken + put",
        PAGES,
        || {
            assert_eq!(free.try_take_batch(Group::FIRST, PAGES, &mut frames), PAGES);
            for page in 0..PAGES / 2 {
                let other = scattered(page);
                frames.swap(page as usize, other as usize);
            }
            for batch in frames.chunks(32) {
                free.put_batch(batch);
            }
            frames.clear();
        },
    );
}

fn lru() {
    let mut lists = Lists::new(PAGES, 4);
    for page in 0..PAGES {
        lists.push_head(0, FrameId(scattered(page)));
    }
    bench("lists: pop_tail + push_head", PAGES, || {
        for _ in 0..PAGES {
            let oldest = lists.pop_tail(0).expect("filled");
            lists.push_head(0, oldest);
        }
    });
}
