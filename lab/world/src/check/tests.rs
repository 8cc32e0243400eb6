//! Legal histories are accepted, each planted fault is caught.

use super::*;
use crate::media::VolatileCache;

const FILE: ObjectId = ObjectId(2);
const PAGE: Bytes = Bytes(4096);

fn wrote(checker: &mut Checker, offset: u64, len: u64) -> u32 {
    let write = checker.on_write_begin(FILE, Bytes(offset), Bytes(len));
    let version = write.version();
    checker.on_write_end(write);
    version
}

fn page_of(version: u32) -> [Sector; 8] {
    core::array::from_fn(|at| match version {
        0 => Sector(0),
        version => stamp(FILE, at as u64, version),
    })
}

fn read(checker: &mut Checker, data: &[Sector]) -> Result<(), Violation> {
    let read = checker.on_read_begin(FILE, Bytes::ZERO, PAGE);
    checker.on_read_stamps(read, data)
}

fn fault(verdict: Result<(), Violation>) -> Fault {
    verdict.expect_err("must be caught").fault
}

fn synced(checker: &mut Checker) {
    let sync = checker.on_sync_begin(FILE);
    checker.on_sync_ok(sync);
}

#[test]
fn zeroes_then_what_was_written_are_legal() {
    let mut checker = Checker::new();
    assert_eq!(read(&mut checker, &page_of(0)), Ok(()));
    let first = wrote(&mut checker, 0, 4096);
    assert_eq!(read(&mut checker, &page_of(first)), Ok(()));
    let second = wrote(&mut checker, 0, 4096);
    assert_eq!(read(&mut checker, &page_of(second)), Ok(()));
}

#[test]
fn a_lost_write_is_caught() {
    let mut checker = Checker::new();
    let newest = wrote(&mut checker, 0, 4096);
    assert_eq!(
        fault(read(&mut checker, &page_of(0))),
        Fault::Lost { newest }
    );
}

#[test]
fn a_stale_read_is_caught_with_and_without_records() {
    for forget in [false, true] {
        let mut checker = Checker::new();
        let old = wrote(&mut checker, 0, 4096);
        let newest = wrote(&mut checker, 0, 4096);
        if forget {
            synced(&mut checker);
            assert!(checker.objects[2].log.is_empty());
        }
        let verdict = read(&mut checker, &page_of(old));
        assert_eq!(
            fault(verdict),
            Fault::Stale { seen: old, newest },
            "forgotten: {forget}"
        );
    }
}

#[test]
fn a_page_torn_between_old_and_new_sectors_is_caught() {
    let mut checker = Checker::new();
    let old = wrote(&mut checker, 0, 4096);
    let newest = wrote(&mut checker, 0, 4096);
    let mut torn = page_of(newest);
    torn[5..].copy_from_slice(&page_of(old)[5..]);
    let violation = read(&mut checker, &torn).expect_err("torn");
    assert_eq!(violation.sector, 5);
    assert_eq!(violation.fault, Fault::Stale { seen: old, newest });
}

#[test]
fn a_partial_write_leaves_the_rest_of_the_page() {
    let mut checker = Checker::new();
    let old = wrote(&mut checker, 0, 4096);
    let newest = wrote(&mut checker, 1024, 512);
    let mut mixed = page_of(old);
    mixed[2] = page_of(newest)[2];
    assert_eq!(read(&mut checker, &mixed), Ok(()));
    // A partial-page bug: the whole page went out with the new version.
    assert_eq!(
        fault(read(&mut checker, &page_of(newest))),
        Fault::NeverWritten { seen: newest }
    );
}

#[test]
fn a_misplaced_page_is_caught() {
    let mut checker = Checker::new();
    let version = wrote(&mut checker, 0, 8192);
    let second: [Sector; 8] = core::array::from_fn(|at| stamp(FILE, 8 + at as u64, version));
    assert!(matches!(
        fault(read(&mut checker, &second)),
        Fault::NeverWritten { .. }
    ));

    let mut bytes = [0; 4096];
    let read = checker.on_read_begin(FILE, Bytes::ZERO, PAGE);
    bytes[..512].copy_from_slice(&stamp_bytes(FILE, 8, version));
    let from = Stamp {
        object: FILE,
        sector: 8,
        version,
    };
    assert_eq!(
        fault(checker.on_read_bytes(read, &bytes)),
        Fault::Misplaced { from }
    );
}

#[test]
fn a_sector_torn_within_is_caught_live() {
    let mut checker = Checker::new();
    let write = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
    let mut bytes = [0; 4096];
    write.fill_bytes(&mut bytes);
    checker.on_write_end(write);
    let good = checker.on_read_begin(FILE, Bytes::ZERO, PAGE);
    assert_eq!(checker.on_read_bytes(good, &bytes), Ok(()));
    bytes[700] ^= 1;
    let bad = checker.on_read_begin(FILE, Bytes::ZERO, PAGE);
    let violation = checker.on_read_bytes(bad, &bytes).expect_err("torn");
    assert_eq!((violation.sector, violation.fault), (1, Fault::Garbled));
}

#[test]
fn a_write_under_way_may_be_seen_or_not_but_once_seen_stays() {
    let mut checker = Checker::new();
    let old = wrote(&mut checker, 0, 4096);
    let write = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
    let new = write.version();
    assert_eq!(read(&mut checker, &page_of(old)), Ok(()));
    assert_eq!(read(&mut checker, &page_of(new)), Ok(()));
    let verdict = read(&mut checker, &page_of(old));
    assert_eq!(
        fault(verdict),
        Fault::Stale {
            seen: old,
            newest: new
        },
        "time runs backwards"
    );
    checker.on_write_end(write);
}

#[test]
fn a_read_may_show_what_was_there_when_it_began() {
    let mut checker = Checker::new();
    let old = wrote(&mut checker, 0, 4096);
    let slow = checker.on_read_begin(FILE, Bytes::ZERO, PAGE);
    let new = wrote(&mut checker, 0, 4096);
    synced(&mut checker);
    assert_eq!(checker.on_read_stamps(slow, &page_of(old)), Ok(()));
    let late = checker.on_read_begin(FILE, Bytes::ZERO, PAGE);
    let verdict = checker.on_read_stamps(late, &page_of(old));
    assert_eq!(
        fault(verdict),
        Fault::Stale {
            seen: old,
            newest: new
        }
    );
}

#[test]
fn overlapping_writes_may_end_in_either_order() {
    let mut checker = Checker::new();
    let before = wrote(&mut checker, 0, 4096);
    let one = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
    let two = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
    let (first, second) = (one.version(), two.version());
    checker.on_write_end(two);
    checker.on_write_end(one);
    synced(&mut checker);
    assert_eq!(read(&mut checker, &page_of(first)), Ok(()));
    assert_eq!(read(&mut checker, &page_of(second)), Ok(()));
    assert!(matches!(
        fault(read(&mut checker, &page_of(before))),
        Fault::Stale { .. }
    ));
    let newest = wrote(&mut checker, 0, 4096);
    let verdict = read(&mut checker, &page_of(first));
    assert_eq!(
        fault(verdict),
        Fault::Stale {
            seen: first,
            newest
        }
    );
}

#[test]
fn a_version_of_the_future_is_caught() {
    let mut checker = Checker::new();
    let version = wrote(&mut checker, 0, 4096);
    let verdict = read(&mut checker, &page_of(version + 1));
    assert_eq!(fault(verdict), Fault::NeverWritten { seen: version + 1 });
}

#[test]
fn a_failed_write_may_have_been_done_or_not() {
    let mut checker = Checker::new();
    let old = wrote(&mut checker, 0, 4096);
    let write = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
    let failed = write.version();
    checker.on_write_failed(write);
    let mut half = page_of(old);
    half[..4].copy_from_slice(&page_of(failed)[..4]);
    assert_eq!(read(&mut checker, &half), Ok(()));
    synced(&mut checker);
    let newest = wrote(&mut checker, 0, 4096);
    let verdict = read(&mut checker, &page_of(failed));
    assert_eq!(
        fault(verdict),
        Fault::Stale {
            seen: failed,
            newest
        }
    );
}

#[test]
fn truncated_sectors_are_zeroes_and_nothing_else() {
    let mut checker = Checker::new();
    let old = wrote(&mut checker, 0, 4096);
    let truncate = checker.on_truncate_begin(FILE, Bytes(1024));
    let mut cut = page_of(old);
    cut[2..].fill(Sector(0));
    assert_eq!(read(&mut checker, &page_of(old)), Ok(()), "under way");
    checker.on_truncate_end(truncate);
    assert_eq!(read(&mut checker, &cut), Ok(()));
    assert!(matches!(
        fault(read(&mut checker, &page_of(old))),
        Fault::Stale { .. }
    ));
    synced(&mut checker);
    assert!(matches!(
        fault(read(&mut checker, &page_of(old))),
        Fault::Stale { .. }
    ));
    assert_eq!(read(&mut checker, &cut), Ok(()));
    let new = wrote(&mut checker, 0, 4096);
    let newest = new;
    assert_eq!(
        fault(read(&mut checker, &cut)),
        Fault::Stale { seen: old, newest }
    );
    assert_eq!(
        fault(read(&mut checker, &page_of(0))),
        Fault::Lost { newest }
    );
}

struct Device {
    checker: Checker,
    media: Media,
}

impl Device {
    fn new() -> Self {
        let media = Media::new(VolatileCache::Pages(Pages(100)));
        Self {
            checker: Checker::new(),
            media,
        }
    }

    fn write(&mut self, pages: core::ops::Range<u64>) -> u32 {
        let len = Pages(pages.end - pages.start).bytes();
        let write = self
            .checker
            .on_write_begin(FILE, Pages(pages.start).bytes(), len);
        let mut data = vec![Sector(0); (len.0 / SECTOR_SIZE) as usize];
        write.fill(&mut data);
        for (page, content) in pages.zip(data.as_chunks().0) {
            self.media.write(FILE, page, *content);
        }
        let version = write.version();
        self.checker.on_write_end(write);
        version
    }

    fn sync(&mut self, flushes: bool) {
        let sync = self.checker.on_sync_begin(FILE);
        if flushes {
            self.media.flush(FILE, self.media.mark(FILE));
        }
        self.checker.on_sync_ok(sync);
    }
}

#[test]
fn a_crash_after_an_honest_sync_is_legal_over_many_seeds() {
    for seed in 0..300_u64 {
        let mut device = Device::new();
        let mut state = seed;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            state >> 33
        };
        for _ in 0..20 {
            let first = random() % 10;
            device.write(first..first + 1 + random() % 4);
            if random() % 4 == 0 {
                device.sync(true);
                assert_eq!(device.checker.check_durable(&device.media), Ok(()));
            }
            if random() % 8 == 0 {
                device.media.crash(&mut random);
                assert_eq!(
                    device.checker.on_crash(&device.media),
                    Ok(()),
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_sync_that_did_not_flush_is_caught() {
    let mut device = Device::new();
    let old = device.write(0..2);
    device.sync(true);
    let newest = device.write(0..2);
    device.sync(false);
    let violation = device
        .checker
        .check_durable(&device.media)
        .expect_err("not durable");
    assert_eq!(violation.during, During::Sync);
    assert_eq!(violation.fault, Fault::Stale { seen: old, newest });
    // A crash in which the old content wins shows it too.
    let caught = (0..64_u64).any(|seed| {
        let mut device = Device::new();
        device.write(0..2);
        device.sync(true);
        device.write(0..2);
        device.sync(false);
        let mut state = seed;
        device.media.crash(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        });
        device.checker.on_crash(&device.media).is_err()
    });
    assert!(caught);
}

#[test]
fn an_acknowledged_page_that_is_gone_is_caught() {
    let mut device = Device::new();
    device.write(0..4);
    device.sync(true);
    device.media.set_len(FILE, Pages(3).bytes());
    let violation = device.checker.on_crash(&device.media).expect_err("short");
    assert!(matches!(violation.fault, Fault::Short { .. }));
}

#[test]
fn a_lost_version_may_not_come_back_after_the_crash() {
    let mut device = Device::new();
    let kept = device.write(0..1);
    device.sync(true);
    let lost = device.write(0..1);
    device.media.write(FILE, 0, page_of(kept)); // the crash undid the second write
    assert_eq!(device.checker.on_crash(&device.media), Ok(()));
    assert_eq!(read(&mut device.checker, &page_of(kept)), Ok(()));
    let verdict = read(&mut device.checker, &page_of(lost));
    assert_eq!(fault(verdict), Fault::NeverWritten { seen: lost });
}

#[test]
fn a_page_written_where_nothing_was_written_is_caught_in_the_crash() {
    let mut device = Device::new();
    let version = device.write(0..1);
    device.media.write(FILE, 5, page_of(version));
    let violation = device
        .checker
        .on_crash(&device.media)
        .expect_err("misplaced");
    assert!((40..48).contains(&violation.sector), "{violation}");
}

#[test]
fn a_truncate_beside_a_sync_promises_no_length() {
    let mut device = Device::new();
    device.write(0..4);
    let sync = device.checker.on_sync_begin(FILE);
    let truncate = device.checker.on_truncate_begin(FILE, Bytes(4096));
    device.media.flush(FILE, device.media.mark(FILE));
    device.media.set_len(FILE, Bytes(4096));
    device.checker.on_sync_ok(sync);
    assert_eq!(device.checker.on_crash(&device.media), Ok(()));
    device.checker.on_truncate_end(truncate);
    assert_eq!(device.media.len(FILE), Bytes(4096));
}

#[test]
fn a_prefilled_object_is_known() {
    let mut checker = Checker::new();
    checker.prefilled(FILE, Pages(1 << 20), 7);
    assert_eq!(read(&mut checker, &page_of(7)), Ok(()));
    let newest = wrote(&mut checker, 0, 4096);
    assert_eq!(newest, 8);
    assert_eq!(
        fault(read(&mut checker, &page_of(7))),
        Fault::Stale { seen: 7, newest }
    );
}

#[test]
fn dead_records_of_overlapping_writes_are_dropped() {
    let mut checker = Checker::new();
    for _ in 0..3 * KEPT_MAX {
        let one = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
        let two = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
        checker.on_write_end(one);
        checker.on_write_end(two);
        synced(&mut checker);
    }
    assert!(checker.objects[2].kept.len() <= KEPT_MAX + 2);
    assert!(checker.objects[2].log.is_empty());
}

#[test]
fn an_overlapped_write_stays_legal_when_the_dead_are_dropped() {
    let mut checker = Checker::new();
    let other = Bytes(4 * PAGE.0);
    // Two that overlap: either may be what stands there, for good.
    let one = checker.on_write_begin(FILE, other, PAGE);
    let two = checker.on_write_begin(FILE, other, PAGE);
    let version = one.version();
    checker.on_write_end(one);
    checker.on_write_end(two);
    synced(&mut checker);
    for _ in 0..KEPT_MAX {
        let one = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
        let two = checker.on_write_begin(FILE, Bytes::ZERO, PAGE);
        checker.on_write_end(one);
        checker.on_write_end(two);
        synced(&mut checker);
    }
    assert!(checker.objects[2].kept.len() <= KEPT_MAX + 2);
    let read = checker.on_read_begin(FILE, other, PAGE);
    let page: [Sector; 8] = core::array::from_fn(|at| stamp(FILE, 32 + at as u64, version));
    assert_eq!(checker.on_read_stamps(read, &page), Ok(()));
}
