//! Pins that are kept, counted, and read ahead of.

use tidegate::{Advice, Cache, File, FileStats, OpenOptions, OwnedPin};

use crate::dir::Dir;

const PAGE: usize = 4096;
const PAGES: u32 = 4000;

/// A folder with a file of `PAGES` pages, each filled with its number.
fn filled(name: &str) -> Dir {
    let dir = Dir::new(name);
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| [of(page); PAGE]).collect();
    std::fs::write(dir.0.join("data"), bytes).unwrap();
    dir
}

impl Dir {
    /// In a cache that has none of it.
    fn open(&self) -> (Cache, File) {
        let cache = Cache::builder().memory(32 << 20).build().unwrap();
        let file = cache.open(self.0.join("data"), OpenOptions::new()).unwrap();
        (cache, file)
    }
}

fn of(page: u32) -> u8 {
    u8::try_from(page % 251).unwrap()
}

fn place(page: u32) -> u64 {
    u64::from(page) * PAGE as u64
}

/// The end of a page that its pin outlives.
#[derive(Clone, Copy, Debug)]
enum End {
    Written,
    Cut,
    Closed,
    Discarded,
    CacheClosed,
    CacheDropped,
}

#[test]
fn an_owned_pin_outlives_whatever_becomes_of_its_file() {
    let dir = filled("owned");
    for end in [
        End::CacheDropped,
        End::CacheClosed,
        End::Closed,
        End::Discarded,
        End::Written,
        End::Cut,
    ] {
        for pages in [1, 5] {
            let (cache, file) = dir.open();
            file.set_len(place(PAGES)).unwrap();
            let there: Vec<u8> = (70..70 + pages).flat_map(|page| [of(page); PAGE]).collect();
            file.write_at(&there, place(70)).unwrap();
            let pin: OwnedPin = match pages {
                1 => file.pin(70).unwrap().into_owned(),
                _ => file.pin_run(70, pages).unwrap().into_owned(),
            };
            // In another thread, as it borrows nothing.
            let pin = std::thread::spawn(move || pin).join().unwrap();
            assert_eq!(cache.stats().pinned, place(pages));
            let cache = match end {
                End::Written => {
                    file.write_at(&vec![3; 20 * PAGE], place(65)).unwrap();
                    file.sync().unwrap();
                    Some(cache)
                }
                End::Cut => {
                    file.set_len(0).unwrap();
                    Some(cache)
                }
                End::Closed => {
                    file.close().unwrap();
                    Some(cache)
                }
                End::Discarded => {
                    file.discard().unwrap();
                    Some(cache)
                }
                End::CacheClosed => {
                    cache.close().unwrap();
                    Some(cache)
                }
                End::CacheDropped => {
                    drop((file, cache));
                    None
                }
            };
            assert_eq!(pin[..], there[..], "{end:?}");
            if let Some(cache) = cache {
                assert_eq!(cache.stats().pinned, place(pages), "{end:?}");
                drop(pin);
                assert_eq!(cache.stats().pinned, 0, "{end:?}");
            }
        }
    }
}

/// Hits and misses of some calls on a file that is not in memory.
fn counted(name: &str, calls: impl FnOnce(&File)) -> FileStats {
    let dir = filled(name);
    let (cache, file) = dir.open();
    calls(&file);
    let stats = file.stats().unwrap();
    drop(file);
    cache.close().unwrap();
    stats
}

#[test]
fn pins_in_order_are_read_ahead_of_and_others_are_not() {
    let pin_all = |file: &File, order: &[u32]| {
        for &page in order {
            assert_eq!(file.pin(page).unwrap()[..], [of(page); PAGE]);
        }
    };
    let order: Vec<u32> = (1..PAGES).chain([0]).collect();
    let in_order = counted("order", |file| pin_all(file, &order));
    let all = u64::from(PAGES);
    assert_eq!(in_order.hits_total + in_order.misses_total, all);
    let read = counted("read", |file| {
        for page in (1..PAGES).chain([0]) {
            file.read_at(&mut [0; PAGE], place(page)).unwrap();
        }
    });
    let (pinned, read) = (in_order.misses_total, read.misses_total);
    assert!(pinned < 40 && read < 40, "{pinned} {read}");
    // Each in another place than the one before it, at no distance twice.
    let mut dice = 1_u64;
    let scatter = |_: &u32| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u32::try_from(dice >> 33).unwrap() % PAGES
    };
    let places: Vec<u32> = order.iter().map(scatter).collect();
    let scattered = counted("scattered", |file| pin_all(file, &places));
    let pages: std::collections::BTreeSet<u32> = places.iter().copied().collect();
    let missed = scattered.misses_total.abs_diff(pages.len() as u64);
    assert!(
        missed < all / 100,
        "{scattered:?}, of {} pages",
        pages.len()
    );
    let random = counted("random", |file| {
        file.advise(Advice::Random, 0, 0).unwrap();
        pin_all(file, &order);
    });
    assert_eq!((random.hits_total, random.misses_total), (0, all));
    let runs = counted("runs", |file| {
        for first in (0..PAGES).step_by(16) {
            let run = file.pin_run(first, 16).unwrap();
            assert_eq!((run[0], run[16 * PAGE - 1]), (of(first), of(first + 15)));
        }
    });
    assert_eq!(runs.hits_total + runs.misses_total, all);
    assert!(runs.misses_total < all / 10, "{runs:?}");
}

/// However they are pinned, and by how many threads.
#[test]
fn each_pin_is_a_hit_or_a_miss_once() {
    const ROUNDS: u64 = 3000;
    const THREADS: u64 = 4;
    let stats = counted("once", |file| {
        file.advise(Advice::Random, 0, 0).unwrap();
        for page in 0..64 {
            assert!(file.try_pin(page).is_none(), "it is not there, and no miss");
            drop(file.pin(page).unwrap());
        }
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let page = u32::try_from(round % 60).unwrap();
                        drop(file.try_pin(page).unwrap());
                        drop(file.pin(page).unwrap());
                    }
                });
            }
        });
        drop(file.pin_run(0, 32).unwrap());
        drop(file.try_pin_run(0, 32).unwrap());
        file.read_at(&mut [0; PAGE], 0).unwrap();
    });
    let hits = THREADS * ROUNDS * 2 + 32 + 32 + 1;
    assert_eq!((stats.hits_total, stats.misses_total), (hits, 64));
}
