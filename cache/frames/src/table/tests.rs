use super::*;

const PAGE: Owner = Owner { file: 7, index: 42 };
const OTHER: Owner = Owner { file: 7, index: 43 };

fn cached(table: &FrameTable, frame: FrameId, owner: Owner, flags: Flags) {
    let busy = table.claim(frame);
    table.adopt(&busy, owner);
    table.release(busy, flags, Flags::NONE);
}

/// A table whose frame 0 holds `PAGE` with `flags`.
fn page(flags: Flags) -> (FrameTable, FrameId) {
    let table = FrameTable::new(2);
    cached(&table, FrameId(0), PAGE, flags);
    (table, FrameId(0))
}

#[test]
fn the_busy_bit_of_a_later_life_is_no_matter_of_the_page_before() {
    let table = FrameTable::new(1);
    let frame = FrameId(0);
    let busy = table.claim(frame);
    assert!(!table.is_busy_with(frame, PAGE), "it holds nobody's page");
    table.adopt(&busy, PAGE);
    assert!(table.is_busy_with(frame, PAGE));
    table.release(busy, Flags::UPTODATE, Flags::NONE);
    assert!(!table.is_busy_with(frame, PAGE));
    let busy = table.try_busy(frame, PAGE).unwrap();
    assert!(table.is_busy_with(frame, PAGE));
    table.disown(busy);
    // Free again and claimed by the next: busy, and for a moment still under the old name.
    let busy = table.claim(frame);
    assert_eq!(table.owner(frame), PAGE);
    assert!(!table.is_busy_with(frame, PAGE));
    table.adopt(&busy, OTHER);
    assert!(!table.is_busy_with(frame, PAGE));
    assert!(table.is_busy_with(frame, OTHER));
    table.disown(busy);
}

#[test]
fn a_pin_needs_the_right_page() {
    let (table, frame) = page(Flags::UPTODATE);
    assert_eq!(table.try_pin(frame, OTHER).unwrap_err(), Refusal::Gone);
    assert_eq!(table.flags(frame).pins(), 0);
    let pin = table.try_pin(frame, PAGE).unwrap();
    assert_eq!(
        (pin.frame(), table.flags(frame).pins(), table.owner(frame)),
        (frame, 1, PAGE)
    );
    assert!(!table.unpin(pin));
    assert_eq!(
        table.try_pin(FrameId(1), PAGE).unwrap_err(),
        Refusal::Gone,
        "a free frame"
    );
}

#[test]
fn pin_and_busy_exclude_each_other() {
    let (table, frame) = page(Flags::UPTODATE);
    let pin = table.try_pin(frame, PAGE).unwrap();
    assert_eq!(table.try_busy(frame, PAGE).unwrap_err(), Refusal::Pinned);
    assert_eq!(table.try_busy_clean(frame).unwrap_err(), Refusal::Pinned);
    assert!(!table.unpin(pin));
    let busy = table.try_busy(frame, PAGE).unwrap();
    assert_eq!(table.try_pin(frame, PAGE).unwrap_err(), Refusal::Busy);
    assert_eq!(
        table.try_pin(frame, OTHER).unwrap_err(),
        Refusal::Gone,
        "nothing to wait for"
    );
    assert_eq!(table.try_busy(frame, PAGE).unwrap_err(), Refusal::Busy);
    let before = table.release(busy, Flags::DIRTY, Flags::NONE);
    assert!(before.has(Flags::BUSY | Flags::UPTODATE));
    assert!(table.flags(frame).has(Flags::DIRTY));
    assert!(!table.flags(frame).any(Flags::BUSY));
}

#[test]
fn a_page_that_was_never_read_cannot_be_pinned() {
    let (table, frame) = page(Flags::NONE);
    assert_eq!(
        table.try_pin(frame, PAGE).unwrap_err(),
        Refusal::NotUptodate
    );
    let busy = table.try_busy(frame, PAGE).unwrap();
    table.release(busy, Flags::UPTODATE, Flags::NONE);
    assert!(!table.unpin(table.try_pin(frame, PAGE).unwrap()));
}

#[test]
fn pins_stop_at_the_cap() {
    let (table, frame) = page(Flags::UPTODATE);
    let mut pins: Vec<Pin> = (0..PINS_MAX)
        .map(|_| table.try_pin(frame, PAGE).unwrap())
        .collect();
    assert_eq!(
        table.try_pin(frame, PAGE).unwrap_err(),
        Refusal::TooManyPins
    );
    assert!(!table.unpin(pins.pop().unwrap()));
    pins.push(table.try_pin(frame, PAGE).unwrap());
    assert!(pins.into_iter().all(|pin| !table.unpin(pin)));
    assert_eq!(table.flags(frame), Flags::CACHED | Flags::UPTODATE);
}

#[test]
fn reclaim_gets_only_clean_pages() {
    let (table, frame) = page(Flags::UPTODATE | Flags::DIRTY);
    assert_eq!(table.try_busy_clean(frame).unwrap_err(), Refusal::NotClean);
    assert!(table.try_begin_writeback(frame));
    assert_eq!(table.try_busy_clean(frame).unwrap_err(), Refusal::NotClean);
    table.end_writeback(frame, false);
    let busy = table.try_busy_clean(frame).unwrap();
    assert_eq!(table.disown(busy), frame);
    assert_eq!(table.flags(frame), Flags::FREE);
    assert_eq!(table.try_busy_clean(frame).unwrap_err(), Refusal::Gone);
    assert_eq!(table.try_pin(frame, PAGE).unwrap_err(), Refusal::Gone);
}

#[test]
fn a_page_is_known_again_by_its_generation() {
    let (table, frame) = page(Flags::UPTODATE | Flags::DIRTY);
    let (flags, life) = table.look(frame);
    assert!(flags.has(Flags::DIRTY | Flags::CACHED));
    let refused = table.try_busy_of(frame, life, Flags::DIRTY).unwrap_err();
    assert_eq!(refused, Refusal::NotClean);
    let before = table.update_of(frame, life, Flags::ACTIVE, Flags::DIRTY);
    assert!(before.unwrap().has(Flags::DIRTY));
    let busy = table.try_busy_of(frame, life, Flags::DIRTY).unwrap();
    let refused = table.try_busy_of(frame, life, Flags::NONE).unwrap_err();
    assert_eq!(refused, Refusal::Busy);
    table.disown(busy);
    let gone = table.try_busy_of(frame, life, Flags::NONE).unwrap_err();
    assert_eq!(gone, Refusal::Gone, "free");
    cached(&table, frame, PAGE, Flags::UPTODATE);
    let gone = table.try_busy_of(frame, life, Flags::NONE).unwrap_err();
    assert_eq!(gone, Refusal::Gone, "the same page again, in another life");
    assert_eq!(
        table.update_of(frame, life, Flags::ACTIVE, Flags::NONE),
        None
    );
    assert!(!table.flags(frame).any(Flags::ACTIVE));
}

#[test]
fn writeback_begins_only_on_dirty_idle_pages() {
    let (table, frame) = page(Flags::UPTODATE);
    assert!(!table.try_begin_writeback(frame), "clean");
    table.update(frame, Flags::DIRTY, Flags::NONE);
    let busy = table.try_busy(frame, PAGE).unwrap();
    assert!(!table.try_begin_writeback(frame), "busy");
    table.release(busy, Flags::NONE, Flags::NONE);
    assert!(table.try_begin_writeback(frame));
    assert!(!table.flags(frame).any(Flags::DIRTY));
    table.update(frame, Flags::DIRTY | Flags::RECLAIM, Flags::NONE);
    assert!(!table.try_begin_writeback(frame), "under writeback already");
    let before = table.end_writeback(frame, false);
    assert!(before.has(Flags::WRITEBACK | Flags::DIRTY | Flags::RECLAIM));
    assert_eq!(
        table.flags(frame),
        Flags::CACHED | Flags::UPTODATE | Flags::DIRTY
    );
}

#[test]
fn a_failed_write_stays_dirty_until_one_succeeds() {
    let (table, frame) = page(Flags::UPTODATE | Flags::DIRTY);
    assert!(table.try_begin_writeback(frame));
    table.end_writeback(frame, true);
    assert!(table.flags(frame).has(Flags::FAILED | Flags::DIRTY));
    assert!(table.try_begin_writeback(frame));
    assert!(table.flags(frame).has(Flags::FAILED), "not healed yet");
    table.end_writeback(frame, false);
    assert!(!table.flags(frame).any(Flags::FAILED | Flags::DIRTY));
}

#[test]
fn the_last_pin_frees_an_orphan() {
    let (table, frame) = page(Flags::UPTODATE | Flags::DIRTY);
    let pins = [
        table.try_pin(frame, PAGE).unwrap(),
        table.try_pin(frame, PAGE).unwrap(),
    ];
    assert!(table.try_orphan(frame));
    assert_eq!(table.try_pin(frame, PAGE).unwrap_err(), Refusal::Gone);
    assert_eq!(table.try_busy(frame, PAGE).unwrap_err(), Refusal::Gone);
    assert!(
        !table.try_begin_writeback(frame),
        "its replacement is the dirty one"
    );
    let [first, last] = pins;
    assert!(!table.unpin(first));
    assert!(!table.take_orphan(frame), "still pinned");
    assert!(table.unpin(last));
    assert!(table.take_orphan(frame));
    assert!(!table.take_orphan(frame), "exactly once");
    assert_eq!(table.flags(frame), Flags::FREE);
    cached(&table, frame, OTHER, Flags::UPTODATE);
}

#[test]
fn an_orphan_under_writeback_is_freed_by_whoever_is_last() {
    for pin_goes_first in [true, false] {
        let (table, frame) = page(Flags::UPTODATE | Flags::DIRTY);
        assert!(table.try_begin_writeback(frame));
        let pin = table.try_pin(frame, PAGE).unwrap();
        assert!(table.try_orphan(frame));
        let orphaned = |before: Flags| before.has(Flags::ORPHAN) && before.pins() == 0;
        if pin_goes_first {
            assert!(!table.unpin(pin));
            assert!(orphaned(table.end_writeback(frame, true)));
        } else {
            assert!(!orphaned(table.end_writeback(frame, true)));
            assert!(
                !table.flags(frame).any(Flags::DIRTY | Flags::FAILED),
                "nobody would write it again"
            );
            assert!(table.unpin(pin));
        }
        assert!(table.take_orphan(frame));
    }
}

#[test]
fn an_unused_or_busy_page_is_not_orphaned() {
    let (table, frame) = page(Flags::UPTODATE);
    let before = table.flags(frame);
    assert!(!table.try_orphan(frame), "nobody would free it");
    assert_eq!(table.flags(frame), before);
    table.update(frame, Flags::DIRTY, Flags::NONE);
    assert!(table.try_begin_writeback(frame));
    let busy = table.try_busy(frame, PAGE).unwrap();
    assert!(
        !table.try_orphan(frame),
        "its writer would write into a frame of nobody"
    );
    table.release(busy, Flags::DIRTY, Flags::NONE);
    assert!(table.try_orphan(frame));
}

#[test]
fn update_leaves_free_frames_alone() {
    let table = FrameTable::new(1);
    assert_eq!(
        table.update(FrameId(0), Flags::REFERENCED, Flags::NONE),
        Flags::FREE
    );
    assert_eq!(table.flags(FrameId(0)), Flags::FREE);
    cached(&table, FrameId(0), PAGE, Flags::UPTODATE);
}

#[test]
fn a_generation_that_wraps_does_no_harm() {
    let table = FrameTable::new(1);
    let frame = FrameId(0);
    let last = with_flags(u64::from(u32::MAX) << 32, Flags::FREE);
    table.frames[0].word.store(last, Ordering::Relaxed);
    cached(&table, frame, PAGE, Flags::UPTODATE);
    assert_eq!(table.frames[0].word.load(Ordering::Relaxed) >> 32, 0);
    assert!(!table.unpin(table.try_pin(frame, PAGE).unwrap()));
}

#[test]
#[should_panic(expected = "claimed but not free")]
fn a_frame_is_claimed_once() {
    let (table, frame) = page(Flags::UPTODATE);
    let _busy = table.claim(frame);
}

#[test]
#[should_panic(expected = "would be dropped")]
fn dirty_data_is_not_disowned() {
    let (table, frame) = page(Flags::UPTODATE | Flags::DIRTY);
    table.disown(table.try_busy(frame, PAGE).unwrap());
}

#[test]
#[should_panic(expected = "changes its owner only through the free lists")]
fn a_page_is_not_renamed() {
    let (table, frame) = page(Flags::UPTODATE);
    table.adopt(&table.try_busy(frame, PAGE).unwrap(), OTHER);
}

#[test]
#[should_panic(expected = "transition of their own")]
fn update_does_not_touch_the_protocol() {
    let (table, frame) = page(Flags::UPTODATE);
    table.update(frame, Flags::ORPHAN, Flags::NONE);
}

/// Threads hammer four pages; every reader checks, under its pin, that owner and content belong
/// together.
#[test]
fn threads_never_read_a_strangers_or_half_written_page() {
    use core::sync::atomic::AtomicU64 as Cell;
    const PAGES: u32 = 4;
    let table = FrameTable::new(PAGES);
    let content: Vec<[Cell; 2]> = (0..PAGES).map(|_| [Cell::new(0), Cell::new(0)]).collect();
    let reused = Cell::new(0);
    let seen = Cell::new(0);
    let owner = |n: u32| Owner {
        file: n % 3,
        index: n % 5,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut holds: Vec<Option<u32>> = vec![None; PAGES as usize];
            for n in 0..200_000u32 {
                let frame = FrameId(n % PAGES);
                let held = &mut holds[frame.0 as usize];
                if let Some(old) = *held {
                    let Ok(busy) = table.try_busy(frame, owner(old)) else {
                        continue;
                    };
                    table.disown(busy);
                    reused.fetch_add(1, Ordering::Relaxed);
                }
                let busy = table.claim(frame);
                table.adopt(&busy, owner(n));
                content[frame.0 as usize][0].store(owner(n).packed(), Ordering::Relaxed);
                content[frame.0 as usize][1].store(owner(n).packed(), Ordering::Relaxed);
                table.release(busy, Flags::UPTODATE, Flags::NONE);
                *held = Some(n);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..400_000u32 {
                    let frame = FrameId(n / 7 % PAGES);
                    let Ok(pin) = table.try_pin(frame, owner(n)) else {
                        continue;
                    };
                    for part in &content[frame.0 as usize] {
                        assert_eq!(part.load(Ordering::Relaxed), owner(n).packed());
                    }
                    assert!(!table.unpin(pin));
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(reused.load(Ordering::Relaxed) > 0);
    assert!(seen.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_page_goes_out_under_its_busy_bit_and_its_end_frees_an_orphan() {
    let table = FrameTable::new(1);
    let frame = FrameId(0);
    let busy = table.claim(frame);
    table.adopt(&busy, Owner { file: 1, index: 2 });
    table.release(busy, Flags::UPTODATE | Flags::DIRTY, Flags::NONE);
    let busy = table.try_busy(frame, Owner { file: 1, index: 2 }).unwrap();
    let busy = table
        .try_orphan_busy(busy)
        .expect_err("nothing is under way");
    table.begin_writeback(&busy, Flags::RECLAIM);
    let flags = table.flags(frame);
    assert!(flags.has(Flags::WRITEBACK | Flags::BUSY | Flags::RECLAIM));
    assert!(!flags.has(Flags::DIRTY));
    table.try_orphan_busy(busy).unwrap();
    assert!(!table.take_orphan(frame), "the device reads it still");
    let before = table.end_writeback(frame, true);
    assert!(before.has(Flags::ORPHAN));
    assert!(!table.flags(frame).has(Flags::DIRTY), "nobody wants it");
    assert!(table.take_orphan(frame));
    assert!(table.flags(frame).has(Flags::FREE));
}
