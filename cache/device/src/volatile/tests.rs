use std::collections::BTreeMap;

use policy::units::Instant;

use super::*;
use crate::EIO;
use crate::testing::{Rig, Serve};

/// Frames of the cache begin here; those of requests are below.
const OWN: u32 = 10_000;

fn volatile(rig: &Rig, frames: u32, survives: Odds) -> Arc<Volatile> {
    let options = VolatileOptions {
        survives,
        ..VolatileOptions::default()
    };
    let own = (OWN..OWN + frames).map(FrameId).collect();
    Volatile::new(rig.disk(), rig.host(), rig.copy(), own, options)
}

/// The frames that pages are written from begin here.
const SOURCE: u32 = 1_000;

/// Writes `word` to pages of object 1.
fn write(rig: &Rig, device: &Volatile, page: u64, pages: u32, word: u64) {
    let mut request = rig.request(IoOp::Write, 1, page * PAGE_SIZE, pages);
    let first = u32::try_from(page).unwrap();
    // Writes that are under way at once do not share frames.
    for (frame, number) in request.frames.iter_mut().zip(first..) {
        *frame = FrameId(SOURCE + number);
        rig.memory.set(*frame, word);
    }
    rig.submit(device, request);
}

/// Reads pages of object 1.
fn read(rig: &Rig, device: &Volatile, page: u64, pages: u32) -> Vec<u64> {
    rig.submit(device, rig.request(IoOp::Read, 1, page * PAGE_SIZE, pages));
    rig.run();
    let ended = rig.ended().pop().unwrap();
    assert_eq!(ended.result, Ok(()));
    ended
        .request
        .frames
        .iter()
        .map(|frame| rig.memory.get(*frame))
        .collect()
}

fn flush(rig: &Rig, device: &Volatile) -> Result<(), IoError> {
    rig.submit(device, rig.request(IoOp::Flush, 1, 0, 0));
    rig.run();
    rig.ended().pop().unwrap().result
}

fn on_disk(rig: &Rig, pages: core::ops::Range<u64>) -> Vec<u64> {
    pages.map(|page| rig.disk.page(1, page)).collect()
}

#[test]
fn a_write_is_done_before_it_is_on_the_device() {
    let rig = Rig::new();
    let device = volatile(&rig, 8, Odds::NEVER);
    write(&rig, &device, 2, 3, 7);
    // The submitter may use its frames again once the write has ended.
    rig.run();
    assert_eq!(rig.results(), [Ok(())]);
    for frame in 0..8 {
        rig.memory.set(FrameId(SOURCE + frame), 99);
    }
    assert_eq!(on_disk(&rig, 0..6), [0; 6]);
    assert_eq!(
        read(&rig, &device, 1, 5),
        [0, 7, 7, 7, 0],
        "a read that needs both"
    );
    assert_eq!(
        read(&rig, &device, 2, 2),
        [7, 7],
        "a read that the cache has whole"
    );
    assert_eq!(device.unsynced(), 3);
    assert_eq!(flush(&rig, &device), Ok(()));
    assert_eq!(on_disk(&rig, 0..6), [0, 0, 7, 7, 7, 0]);
    assert_eq!(device.unsynced(), 0);
    let ops: Vec<_> = rig.disk.seen().iter().map(|seen| seen.0).collect();
    assert_eq!(
        ops.last(),
        Some(&IoOp::Flush),
        "the flush goes down after the data"
    );
}

#[test]
fn a_crash_loses_what_was_not_flushed_and_nothing_else() {
    let rig = Rig::new();
    let device = volatile(&rig, 16, Odds::NEVER);
    write(&rig, &device, 0, 4, 1);
    rig.run();
    assert_eq!(flush(&rig, &device), Ok(()));
    write(&rig, &device, 2, 4, 2);
    rig.run();
    rig.ended();
    assert_eq!(device.crash(), 4, "pages lost");
    rig.submit(&*device, rig.request(IoOp::Read, 1, 0, 1));
    rig.submit(&*device, rig.request(IoOp::Flush, 1, 0, 0));
    rig.run();
    assert_eq!(rig.results(), [Err(IoError::Lost); 2], "until the restart");
    assert!(device.is_settled());
    device.restart();
    assert_eq!(read(&rig, &device, 0, 6), [1, 1, 1, 1, 0, 0]);
    write(&rig, &device, 0, 1, 3);
    rig.run();
    rig.ended();
    assert_eq!(flush(&rig, &device), Ok(()), "it works again");
    assert_eq!(on_disk(&rig, 0..2), [3, 1]);
}

#[test]
fn survivors_of_a_crash_have_holes() {
    let rig = Rig::new();
    let device = volatile(&rig, 64, Odds::from_ppb(500_000_000).unwrap());
    write(&rig, &device, 0, 64, 1);
    rig.run();
    let lost = device.crash();
    rig.run();
    assert!(device.is_settled());
    let left = on_disk(&rig, 0..64);
    assert_eq!(left.iter().filter(|word| **word == 0).count(), lost);
    assert!((16..48).contains(&lost), "{lost} of 64 lost at one half");
    let first_hole = left.iter().position(|word| *word == 0).unwrap();
    assert!(
        left[first_hole..].contains(&1),
        "later writes survive earlier ones"
    );
}

#[test]
fn a_full_cache_makes_room() {
    let rig = Rig::new();
    rig.disk.serve(Serve::After(Nanos::millis(1)));
    let device = volatile(&rig, 8, Odds::NEVER);
    for number in 0..10 {
        write(&rig, &device, number * 3, 3, number + 1);
        rig.run_until(rig.host.now() + Nanos::micros(100));
    }
    rig.run();
    assert_eq!(rig.results(), [Ok(()); 10]);
    assert!(device.unsynced() <= 8);
    assert_eq!(flush(&rig, &device), Ok(()));
    let expected: Vec<u64> = (0..30).map(|page| page / 3 + 1).collect();
    assert_eq!(on_disk(&rig, 0..30), expected);
    // Larger than the cache: it goes through, and is on the device when it ends.
    write(&rig, &device, 0, 9, 50);
    rig.run();
    assert_eq!(rig.results(), [Ok(())]);
    assert_eq!(
        on_disk(&rig, 0..10),
        [50, 50, 50, 50, 50, 50, 50, 50, 50, 4]
    );
}

#[test]
fn a_write_over_a_page_on_its_way_down_waits_and_wins() {
    let rig = Rig::new();
    rig.disk.serve(Serve::Hold);
    let device = volatile(&rig, 8, Odds::NEVER);
    write(&rig, &device, 0, 1, 1);
    rig.run();
    assert_eq!(rig.results(), [Ok(())]);
    rig.submit(&*device, rig.request(IoOp::Flush, 1, 0, 0));
    write(&rig, &device, 0, 1, 2);
    rig.run();
    assert_eq!(
        rig.results(),
        [],
        "the flush waits for page 0, the write for both"
    );
    assert!(rig.disk.end_one(Ok(())));
    rig.run();
    assert_eq!(
        rig.results(),
        [Ok(())],
        "the write, past the flush on its way"
    );
    assert_eq!(rig.disk.page(1, 0), 1);
    rig.disk.serve(Serve::Inside);
    assert!(rig.disk.end_one(Ok(())));
    assert_eq!(rig.results(), [Ok(())], "the flush");
    assert_eq!(flush(&rig, &device), Ok(()));
    assert_eq!(rig.disk.page(1, 0), 2);
}

#[test]
fn a_failed_destage_fails_the_flush_and_is_tried_again() {
    let rig = Rig::new();
    let device = volatile(&rig, 8, Odds::NEVER);
    write(&rig, &device, 0, 3, 1);
    rig.run();
    rig.ended();
    rig.disk.serve(Serve::Fail(EIO));
    assert_eq!(flush(&rig, &device), Err(EIO));
    assert_eq!(device.unsynced(), 3, "nothing is forgotten");
    assert_eq!(read(&rig, &device, 0, 3), [1, 1, 1]);
    rig.disk.serve(Serve::Inside);
    assert_eq!(flush(&rig, &device), Ok(()));
    assert_eq!(on_disk(&rig, 0..3), [1, 1, 1]);
}

#[test]
fn a_failed_flush_leaves_pages_on_their_way_and_a_write_over_them_waits() {
    let rig = Rig::new();
    rig.disk.serve(Serve::Hold);
    let device = volatile(&rig, 8, Odds::NEVER);
    write(&rig, &device, 0, 1, 1);
    write(&rig, &device, 4, 1, 1);
    rig.run();
    rig.submit(&*device, rig.request(IoOp::Flush, 1, 0, 0));
    assert_eq!(rig.disk.seen().len(), 2, "two runs under way at once");
    let second = rig.disk.seen()[1].2 / PAGE_SIZE;
    assert!(rig.disk.end_one(Err(EIO)));
    rig.run();
    assert_eq!(
        rig.results(),
        [Ok(()), Ok(()), Err(EIO)],
        "two writes and the flush"
    );
    write(&rig, &device, second, 1, 2);
    rig.run();
    assert_eq!(
        rig.results(),
        [],
        "the write waits for the page on its way down"
    );
    assert!(rig.disk.end_one(Ok(())));
    assert_eq!(
        rig.disk.page(1, second),
        1,
        "the older content came down whole"
    );
    rig.disk.serve(Serve::Inside);
    rig.run();
    assert_eq!(rig.results(), [Ok(())]);
    assert_eq!(flush(&rig, &device), Ok(()));
    assert_eq!(
        (rig.disk.page(1, second), rig.disk.page(1, 4 - second)),
        (2, 1)
    );
}

#[test]
fn a_change_of_length_keeps_its_place_among_the_writes() {
    let rig = Rig::new();
    rig.disk.serve(Serve::Hold);
    let device = volatile(&rig, 8, Odds::NEVER);
    write(&rig, &device, 0, 2, 1);
    rig.submit(
        &*device,
        rig.request(IoOp::SetLen { len: Bytes(4096) }, 1, 0, 0),
    );
    write(&rig, &device, 1, 1, 2);
    rig.submit(&*device, rig.request(IoOp::Flush, 1, 0, 0));
    for seen in 1..=4 {
        rig.run();
        assert_eq!(
            rig.disk.seen().len(),
            seen,
            "each waits for the one before it"
        );
        assert!(rig.disk.end_one(Ok(())));
    }
    rig.run();
    assert_eq!(rig.results(), [Ok(()); 4]);
    let seen: Vec<_> = rig
        .disk
        .seen()
        .iter()
        .map(|seen| (seen.0, seen.2, seen.3))
        .collect();
    let expected = [
        (IoOp::Write, 0, 2),
        (IoOp::SetLen { len: Bytes(4096) }, 0, 0),
        (IoOp::Write, 4096, 1),
        (IoOp::Flush, 0, 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_read_under_way_sees_the_page_that_comes_down_meanwhile() {
    let rig = Rig::new();
    rig.disk.serve(Serve::After(Nanos::millis(5)));
    let device = volatile(&rig, 8, Odds::NEVER);
    write(&rig, &device, 0, 1, 1);
    rig.run_until(Instant(1_000_000));
    // The disk answers this read in 5 ms with what it has then; the page comes down at 6 ms, or
    // before the read if the disk is quicker with writes.
    rig.submit(&*device, rig.request(IoOp::Read, 1, 0, 2));
    rig.disk.serve(Serve::After(Nanos::millis(1)));
    rig.submit(&*device, rig.request(IoOp::Flush, 1, 0, 0));
    rig.run();
    let read = rig
        .ended()
        .into_iter()
        .find(|ended| ended.request.op == IoOp::Read)
        .unwrap();
    let words: Vec<_> = read
        .request
        .frames
        .iter()
        .map(|frame| rig.memory.get(*frame))
        .collect();
    assert_eq!((read.result, words), (Ok(()), vec![1, 0]));
    assert_eq!(device.unsynced(), 0);
    assert_eq!(
        take_lock(&device.state).pages.free(),
        8,
        "frames come back after the read"
    );
}

/// Random writes, reads, flushes, errors of the device and a crash at the end: flushed pages are
/// there, pages that are there were written, and reads before the crash see the newest write.
#[test]
fn no_flushed_write_is_lost() {
    let mut lost_in_all = 0;
    for seed in 0..300 {
        lost_in_all += random_history(seed);
    }
    assert!(
        lost_in_all > 300,
        "crashes that lose {lost_in_all} pages in all show nothing"
    );
}

fn random_history(seed: u64) -> usize {
    const PAGES: u64 = 24;
    let mut chance = Chance::new(seed);
    let rig = Rig::new();
    let survives = Odds::from_ppb(500_000_000).unwrap();
    let frames = 4 + u32::try_from(chance.below(16)).unwrap();
    let device = volatile(&rig, frames, survives);
    // Page -> version: the newest that was written, the newest that is durable for sure.
    let mut newest = BTreeMap::new();
    let mut durable = BTreeMap::new();
    for version in 1..80 {
        rig.disk.serve(match chance.below(10) {
            0 => Serve::Fail(EIO),
            1..=4 => Serve::Inside,
            _ => Serve::After(Nanos(chance.below(300_000))),
        });
        let page = chance.below(PAGES);
        let pages = 1 + chance.below(6.min(PAGES - page));
        match chance.below(8) {
            0 => {
                let before = newest.clone();
                if flush(&rig, &device) == Ok(()) {
                    durable = before;
                }
            }
            1 => {
                rig.disk.serve(Serve::After(Nanos(7)));
                let words = read(&rig, &device, page, u32::try_from(pages).unwrap());
                let expected: Vec<_> = (page..page + pages)
                    .map(|page| newest.get(&page).copied().unwrap_or(0))
                    .collect();
                assert_eq!(words, expected, "seed {seed}: a read at version {version}");
            }
            _ => {
                write(&rig, &device, page, u32::try_from(pages).unwrap(), version);
                rig.run();
                let result = rig.ended().pop().unwrap().result;
                for page in page..page + pages {
                    if result.is_ok() {
                        newest.insert(page, version);
                    }
                }
            }
        }
    }
    // Some more, still under way when the power fails.
    rig.disk.serve(Serve::After(Nanos::micros(50)));
    for page in (0..PAGES).step_by(5) {
        write(&rig, &device, page, 2, 100);
    }
    let now = rig.host.now();
    rig.run_until(now + Nanos(chance.below(200_000)));
    let lost = device.crash();
    rig.run();
    assert!(device.is_settled(), "seed {seed}");
    for page in 0..PAGES {
        let found = rig.disk.page(1, page);
        let least = durable.get(&page).copied().unwrap_or(0);
        assert!(
            found >= least,
            "seed {seed}: page {page} fell from {least} to {found}"
        );
        let known = found <= newest.get(&page).copied().unwrap_or(0) || found == 100;
        assert!(
            known,
            "seed {seed}: page {page} has version {found}, which nobody wrote"
        );
    }
    lost
}
