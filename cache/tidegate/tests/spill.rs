//! Anonymous memory on real memory and a real swap file: bytes come back, the limit holds, nothing
//! is left behind.

use std::sync::Arc;

use tidegate::{Cache, CacheError, Error, OpenOptions, ReclaimLaw};

use crate::dir::Dir;

const PAGE: u64 = 4096;
const PAGE_BYTES: usize = 4096;

/// Bytes of a page that differ from those of any other page and version.
fn page(number: u64, version: u64) -> Vec<u8> {
    (0..PAGE / 16)
        .flat_map(|at| [number * 512 + at, version ^ at.rotate_left(32)])
        .flat_map(u64::to_le_bytes)
        .collect()
}

#[test]
fn a_region_four_times_the_limit_comes_back_whole() {
    for uring in [true, false] {
        let dir = Dir::new(if uring { "uring" } else { "pool" });
        let cache = Cache::builder()
            .memory(16 << 20)
            .io_uring(uring)
            .swap_file(dir.0.join("swap"), 80 << 20)
            .build()
            .unwrap();
        assert_eq!(
            std::fs::read_dir(&dir.0).unwrap().count(),
            0,
            "its name is gone"
        );
        let region = cache.spill(64 << 20).unwrap();
        let pages = region.len() / PAGE;
        for version in 1..=3 {
            for number in 0..pages {
                region
                    .write_at(&page(number, version), number * PAGE)
                    .unwrap();
            }
            for number in 0..pages {
                let mut back = vec![0; PAGE_BYTES];
                region.read_at(&mut back, number * PAGE).unwrap();
                assert!(back == page(number, version), "page {number} of {version}");
            }
        }
        let stats = cache.stats();
        assert!(stats.anonymous + stats.cached <= stats.limit);
        assert!(region.resident() <= stats.limit);
        let count = |name| {
            stats
                .vmstat
                .iter()
                .find(|(other, _)| *other == name)
                .unwrap()
                .1
        };
        assert!(count("pswpout") > pages, "{}", count("pswpout"));
        assert!(count("pswpin") > pages, "{}", count("pswpin"));
        assert!(stats.pressure.some >= stats.pressure.full);
        assert!(stats.waits.iter().any(|wait| wait.cause == "swap"));
        for wait in &stats.waits {
            assert_eq!(
                wait.histogram.iter().sum::<u64>(),
                wait.count,
                "{}",
                wait.cause
            );
        }
        drop(region);
        cache.close().unwrap();
    }
}

#[test]
fn many_threads_share_regions_and_files_under_one_limit() {
    for law in [
        ReclaimLaw::TIDEGATE,
        history::reclaim::LINUX_5_16_RC1,
        history::reclaim::LINUX_5_15,
    ] {
        let dir = Dir::new(&format!("share-{law:?}"));
        let cache = Cache::builder()
            .memory(24 << 20)
            .reclaim(law)
            .swap_file(dir.0.join("swap"), 128 << 20)
            .build()
            .unwrap();
        let file = cache
            .open(dir.0.join("data"), OpenOptions::new().create(true))
            .unwrap();
        let file = Arc::new(file);
        let region = Arc::new(cache.spill(64 << 20).unwrap());
        let mut threads = Vec::new();
        for own in 0..3_u64 {
            let (region, cache) = (Arc::clone(&region), cache.clone());
            threads.push(std::thread::spawn(move || {
                // A part of the shared region, and a region of its own that comes and goes.
                let first = own * 5120;
                for version in 1..=3 {
                    for at in first..first + 4000 {
                        region.write_at(&page(at, version), at * PAGE).unwrap();
                    }
                    let mine = cache.spill(4 << 20).unwrap();
                    let touched = mine.touch(0, 4 << 20).unwrap();
                    assert_eq!(touched.bytes, 4 << 20);
                    for at in (first..first + 5120).step_by(7) {
                        let mut back = vec![0; PAGE_BYTES];
                        region.read_at(&mut back, at * PAGE).unwrap();
                        let written = at < first + 4000;
                        let expected = if written {
                            page(at, version)
                        } else {
                            back.clone()
                        };
                        assert!(back == expected, "page {at} of {version}");
                        assert!(written || back[8..].iter().all(|byte| *byte == 0));
                    }
                }
            }));
        }
        for own in 0..2_u64 {
            let file = Arc::clone(&file);
            threads.push(std::thread::spawn(move || {
                for at in 0..8000_u64 {
                    let offset = (at * 2 + own) * PAGE;
                    file.write_at(&page(at, own), offset).unwrap();
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        for at in 0..8000_u64 {
            for own in 0..2 {
                let mut back = vec![0; PAGE_BYTES];
                file.read_at(&mut back, (at * 2 + own) * PAGE).unwrap();
                assert!(back == page(at, own), "page {at} of the file");
            }
        }
        let stats = cache.stats();
        assert!(stats.anonymous + stats.cached + stats.metadata <= stats.limit);
        drop(region);
        let after = cache.stats();
        assert_eq!(after.anonymous, 0, "the region gave all back");
        // A page on its way out gives its slot back when it arrives.
        for _ in 0..12_000 {
            if cache.stats().swap.free == cache.stats().swap.total {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(cache.stats().swap.free, cache.stats().swap.total);
        cache.close().unwrap();
    }
}

#[test]
fn without_a_swap_file_memory_runs_out_with_a_name() {
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let region = cache.spill(64 << 20).unwrap();
    let refused = region.touch(0, 64 << 20).unwrap_err();
    assert!(
        matches!(refused, Error::Cache(ref error) if error.to_string().contains("can be freed")),
        "{refused}"
    );
    region.discard(0, 64 << 20).unwrap();
    region.write_at(b"again", 12_345).unwrap();
    let mut back = [0; 5];
    region.read_at(&mut back, 12_345).unwrap();
    assert_eq!(&back, b"again");
}

#[test]
fn a_swap_file_does_not_overwrite_anything() {
    let dir = Dir::new("taken");
    let path = dir.0.join("precious");
    std::fs::write(&path, b"do not lose").unwrap();
    let refused = Cache::builder()
        .memory(16 << 20)
        .swap_file(&path, 16 << 20)
        .build();
    let refused = refused.err().unwrap();
    assert!(matches!(refused, Error::System(_)), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"do not lose");
    let nowhere = Cache::builder()
        .memory(16 << 20)
        .swap_file(dir.0.join("no/such/dir"), 16 << 20)
        .build();
    assert!(matches!(nowhere.err().unwrap(), Error::System(_)));
    let empty = Cache::builder()
        .memory(16 << 20)
        .swap_file(dir.0.join("empty"), 100)
        .build();
    assert!(matches!(empty.err().unwrap(), Error::BadSize { .. }));
    assert!(!dir.0.join("empty").exists(), "nothing is made");
}

#[test]
fn odd_ranges_are_refused_and_odd_bytes_are_not() {
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let region = cache.spill(10_000).unwrap();
    assert!(region.touch(100, 4096).is_err());
    assert!(region.touch(0, 4000).is_err());
    assert!(region.touch(8192, 10_000 - 8192).is_ok(), "up to the end");
    assert!(region.write_at(&[1; 2], 9_999).is_err());
    region.write_at(&[7; 5000], 3000).unwrap();
    let mut back = vec![0; 10_000];
    region.read_at(&mut back, 0).unwrap();
    assert!(back[3000..8000].iter().all(|byte| *byte == 7));
    assert!(back[8200..].iter().all(|byte| *byte == 0));
    assert!(cache.spill(0).is_err());
    cache.close().unwrap();
    assert!(matches!(region.write_at(&[1], 0), Err(Error::Closed)));
}

#[test]
fn a_limit_is_lowered_and_raised_while_running() {
    let dir = Dir::new("lower");
    let cache = Cache::builder()
        .memory(48 << 20)
        .swap_file(dir.0.join("swap"), 128 << 20)
        .build()
        .unwrap();
    let file = cache
        .open(dir.0.join("data"), OpenOptions::new().create(true))
        .unwrap();
    let region = cache.spill(32 << 20).unwrap();
    let pages = region.len() / PAGE;
    for number in 0..pages {
        region.write_at(&page(number, 1), number * PAGE).unwrap();
    }
    for number in 0..1000 {
        file.write_at(&page(number, 2), number * PAGE).unwrap();
    }
    let pin = file.pin(7).unwrap();
    let lower = 20 << 20;
    cache.set_limit(lower).unwrap();
    let limit = cache.stats().limit;
    let step = lower..lower + (4 << 20);
    assert!(step.contains(&limit), "rounded up to whole chunks: {limit}");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    // The pinned page may be in one of the chunks that have to go.
    while cache.stats().over_limit > 4 << 20 {
        assert!(std::time::Instant::now() < deadline, "{:?}", cache.stats());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let stats = cache.stats();
    assert!(stats.anonymous + stats.cached <= stats.limit, "{stats:?}");
    assert!(pin[..] == page(7, 2)[..]);
    drop(pin);
    for number in 0..pages {
        let mut back = vec![0; PAGE_BYTES];
        region.read_at(&mut back, number * PAGE).unwrap();
        assert!(back == page(number, 1), "page {number}");
    }
    let too_small = cache.set_limit(1 << 20).unwrap_err();
    assert!(
        matches!(too_small, Error::LimitTooSmall { .. }),
        "{too_small}"
    );
    assert!(
        cache.set_limit(96 << 20).is_err(),
        "more than it was built with"
    );
    cache.set_limit(48 << 20).unwrap();
    assert_eq!(cache.stats().limit, 48 << 20);
    region.touch(0, region.len()).unwrap();
    assert!(cache.stats().anonymous > 30 << 20, "it may be used again");
}

/// A page is written and read as a whole: a reader sees one version of it, or zeroes.
fn is_whole(number: u64, bytes: &[u8]) -> bool {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap());
    let version = word(1);
    // Fresh: zeroes, but for the stamp of a touch at the start.
    let fresh = version == 0 && (1..512).all(|at| word(at) == 0);
    let written = (0..256_u32).all(|at| {
        let (place, at) = (2 * at as usize, u64::from(at));
        word(place) == number * 512 + at && word(place + 1) == version ^ at.rotate_left(32)
    });
    fresh || written
}

#[test]
fn threads_meet_on_the_same_pages() {
    let dir = Dir::new("meet");
    let cache = Cache::builder()
        .memory(8 << 20)
        .swap_file(dir.0.join("swap"), 64 << 20)
        .build()
        .unwrap();
    let region = cache.spill(32 << 20).unwrap();
    let pages = region.len() / PAGE;
    std::thread::scope(|scope| {
        for own in 1..=6_u64 {
            let region = &region;
            scope.spawn(move || {
                let mut chance = own.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut back = vec![0; PAGE_BYTES];
                for step in 0..12_000_u64 {
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    // Some pages are met far more often than others.
                    let reach = if chance & 1 << 40 == 0 { pages } else { 64 };
                    let number = chance % reach;
                    let at = number * PAGE;
                    match chance >> 50 & 15 {
                        0 => region.discard(at, PAGE * (pages - number).min(6)).unwrap(),
                        1..=6 => region
                            .write_at(&page(number, own << 40 | step), at)
                            .unwrap(),
                        7 => {
                            region.touch(at, PAGE).unwrap();
                        }
                        _ => {
                            region.read_at(&mut back, at).unwrap();
                            assert!(is_whole(number, &back), "page {number} is torn");
                        }
                    }
                }
            });
        }
    });
    let count = |name| {
        let vmstat = cache.stats().vmstat;
        vmstat.iter().find(|(other, _)| *other == name).unwrap().1
    };
    assert!(count("pswpin") > 0 && count("pswpout") > 0);
    assert!(count("pgmajfault") <= count("pgfault"));
    drop(region);
    for _ in 0..12_000 {
        if cache.stats().swap.free == cache.stats().swap.total {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let stats = cache.stats();
    assert_eq!(stats.swap.free, stats.swap.total, "slots were lost");
    assert_eq!(stats.anonymous, 0);
    assert_eq!(stats.cached, 0);
    cache.close().unwrap();
}

#[test]
fn what_is_kept_of_slots_counts_against_the_limit() {
    let dir = Dir::new("slots");
    let build = |swap: u64| {
        let builder = Cache::builder().memory(64 << 20);
        let builder = match swap {
            0 => builder,
            bytes => builder.swap_file(dir.0.join("swap"), bytes),
        };
        builder.build().unwrap().stats()
    };
    let (without, with) = (build(0), build(1 << 30));
    let slots = (1 << 30) / PAGE;
    // Fewer frames, so less for those: the difference is a little less than the slots'.
    assert!(with.metadata - without.metadata <= 13 * slots);
    assert!(with.metadata + 100_000 > without.metadata + 12 * slots);
    assert!(with.free + with.metadata <= with.limit);
    assert!(
        without.free - with.free >= 12 * slots,
        "it comes off the pages"
    );
}

#[test]
fn with_the_swap_file_full_all_that_is_out_can_be_read() {
    let dir = Dir::new("full");
    let cache = Cache::builder()
        .memory(12 << 20)
        .swap_file(dir.0.join("swap"), 8 << 20)
        .build()
        .unwrap();
    let region = cache.spill(32 << 20).unwrap();
    let is_out_of_memory = |answer: Result<(), Error>| match answer {
        Ok(()) => false,
        Err(Error::Cache(CacheError::OutOfMemory { .. })) => true,
        Err(error) => panic!("{error}"),
    };
    let pages = region.len() / PAGE;
    let taken = (0..pages)
        .find(|number| is_out_of_memory(region.write_at(&page(*number, 1), number * PAGE)))
        .unwrap();
    let read = |number: u64| {
        let mut back = vec![0; PAGE_BYTES];
        let refused = is_out_of_memory(region.read_at(&mut back, number * PAGE));
        assert!(refused || back == page(number, 1), "page {number}");
        refused
    };
    assert!(taken * PAGE > 12 << 20, "more than memory holds is out");
    for round in 0..3 {
        let refused: Vec<_> = (0..taken).filter(|number| read(*number)).collect();
        assert_eq!(refused, [], "round {round}: its slot goes around");
    }
    let half = taken / 2;
    region.discard(half * PAGE, (taken - half) * PAGE).unwrap();
    assert!(!(0..half).any(read));
}
