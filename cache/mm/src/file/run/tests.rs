//! Runs of pages: what they hold, beside those that change the file, and what is refused.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{Device as _, ObjectId};
use policy::units::{Bytes, PAGE_SIZE};
use world::Sector;
use world::content::of_pin;

use super::*;
use crate::testing::{NULL, Null, with_cache};
use crate::{DeviceOptions, Options, Writer};

const FRAMES: u32 = 8 * 512;
const PAGES: u32 = 1024;

/// Writes a page of the file.
fn write(task: &mut Task<'_>, file: &File, writer: &mut Writer, page: u32, word: u32) {
    let offset = Bytes(u64::from(page) * PAGE_SIZE);
    file.write_unpaced(task, writer, offset, &[Sector(word); 8])
        .unwrap();
}

/// A file whose pages are in frames in no order: they were written in none.
fn with_file(
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>, &mut Writer) + Send + 'static,
) {
    with_cache(Options::new(FRAMES, 2), |task, cache| {
        let options = DeviceOptions::default();
        let device = cache.add_device(task, NULL, Null.info(), options).unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        for at in 0..PAGES {
            let page = at * 389 % PAGES;
            write(task, &file, &mut writer, page, page + 1);
        }
        body(task, cache, &file, &mut writer);
        assert_eq!(cache.stats().pinned, Pages::ZERO);
        assert_eq!(cache.memory.offline(task), Pages::ZERO);
        cache.retire(task, writer);
        file.sync(task).unwrap();
        assert!(cache.stats().is_conserved());
    });
}

/// The first words of its pages; they stand side by side.
fn words(run: &PinnedRun<'_>) -> Vec<u32> {
    let frames: Vec<u32> = run.pins().iter().map(|pin| pin.frame().0).collect();
    assert!(
        frames.is_sorted_by(|a, b| *a + 1 == *b),
        "side by side: {frames:?}"
    );
    let word = |pin| of_pin(run.content(), pin)[0].0;
    run.pins().iter().map(word).collect()
}

#[test]
fn pages_that_are_all_over_the_memory_stand_side_by_side_and_do_so_from_then_on() {
    with_file(|task, cache, file, _| {
        assert!(file.try_pin_run(100, 300).is_none());
        let (dirty, free) = (cache.stats().dirty, cache.stats().free);
        let run = file
            .pin_run(task, &mut Reader::default(), (100, 300))
            .unwrap();
        assert_eq!(words(&run), (101..401).collect::<Vec<_>>());
        assert_eq!(cache.stats().pinned, Pages(300));
        assert_eq!((cache.stats().dirty, cache.stats().free), (dirty, free));
        drop(run);
        let again = file.try_pin_run(100, 300).expect("they were moved there");
        assert_eq!(words(&again), (101..401).collect::<Vec<_>>());
        let part = file.try_pin_run(200, 9).expect("pins are shared");
        assert_eq!(words(&part), (201..210).collect::<Vec<_>>());
        assert_eq!(cache.stats().pinned, Pages(309));
    });
}

#[test]
fn a_run_stays_as_it_is_beside_writers_and_a_cut() {
    with_file(|task, _, file, writer| {
        let run = file
            .pin_run(task, &mut Reader::default(), (0, 512))
            .unwrap();
        for page in 0..512 {
            write(task, file, writer, page, 5000 + page);
        }
        assert_eq!(words(&run), (1..513).collect::<Vec<_>>());
        let later = file.pin_run(task, &mut Reader::default(), (0, 64)).unwrap();
        assert_eq!(words(&later), (5000..5064).collect::<Vec<_>>());
        file.truncate(task, Bytes(10 * PAGE_SIZE)).unwrap();
        assert_eq!(words(&run), (1..513).collect::<Vec<_>>());
        assert_eq!(words(&later), (5000..5064).collect::<Vec<_>>());
        assert!(matches!(
            file.pin_run(task, &mut Reader::default(), (0, 11)),
            Err(Error::OutOfRange { .. })
        ));
        assert_eq!(
            words(&file.pin_run(task, &mut Reader::default(), (0, 10)).unwrap()).len(),
            10
        );
    });
}

#[test]
fn a_page_that_cannot_move_is_copied_for_the_run_alone() {
    with_file(|task, cache, file, _| {
        let pinned = file.pin(task, &mut Reader::default(), 7).unwrap();
        let mapping = cache.mapping(task, 0).unwrap();
        let Slot::Frame(out) = mapping.index.get(&cache.pages.pool, 9) else {
            panic!("in memory");
        };
        assert!(cache.pages.table.try_begin_writeback(out));
        let free = cache.stats().free;
        let run = file.pin_run(task, &mut Reader::default(), (0, 16)).unwrap();
        assert_eq!(words(&run), (1..17).collect::<Vec<_>>());
        assert_eq!(cache.stats().free, free - Pages(2), "two copies");
        assert!(file.try_pin_run(0, 16).is_none());
        // A second one has copies of its own, of the fourteen that are pinned too.
        let other = file.pin_run(task, &mut Reader::default(), (0, 16)).unwrap();
        assert_eq!(words(&other), (1..17).collect::<Vec<_>>());
        drop((run, other));
        assert_eq!(cache.stats().free, free);
        cache.pages.table.end_writeback(out, true);
        drop(pinned);
        drop(file.pin_run(task, &mut Reader::default(), (0, 16)).unwrap());
        assert!(file.try_pin_run(0, 16).is_some());
    });
}

#[test]
fn a_block_is_emptied_where_no_run_is_free() {
    with_file(|task, cache, file, _| {
        // Every second frame of what is left: nothing of order 1 is free.
        let mut taken = Vec::new();
        cache.memory.populate_all(task).unwrap();
        while cache
            .try_alloc(task, Wanted::new(64, Purpose::Used), &mut taken)
            .unwrap()
            > 0
        {}
        taken.sort();
        let (put, kept): (Vec<_>, Vec<_>) = taken.iter().partition(|frame| frame.0 % 2 == 0);
        cache.put_unused(task, &put);
        // Taken frames hold no page, and do not move; 1024 of the file's do.
        let run = file
            .pin_run(task, &mut Reader::default(), (3, 200))
            .unwrap();
        assert_eq!(words(&run), (4..204).collect::<Vec<_>>());
        drop(run);
        cache.put_unused(task, &kept);
    });
}

#[test]
fn no_pages_too_many_and_those_beyond_the_end_are_refused() {
    with_file(|task, cache, file, _| {
        for pages in [0, RUN_MAX + 1, u32::MAX] {
            let refused = file.pin_run(task, &mut Reader::default(), (0, pages)).err();
            assert_eq!(
                refused,
                Some(Error::BadOption {
                    what: "pages of a run",
                    value: pages.into(),
                    allowed: (1, 512),
                })
            );
            assert!(file.try_pin_run(0, pages).is_none());
        }
        for (first, pages) in [(PAGES, 1), (PAGES - 1, 2), (u32::MAX, 512)] {
            let refused = file
                .pin_run(task, &mut Reader::default(), (first, pages))
                .err();
            assert!(
                matches!(refused, Some(Error::OutOfRange { .. })),
                "{refused:?}"
            );
            assert!(file.try_pin_run(first, pages).is_none());
        }
        // A quarter of the memory, and each page counts.
        let most = cache.pins_most();
        assert_eq!(most, FRAMES / 4);
        let held: Vec<_> = [0, 512]
            .map(|at| {
                file.pin_run(task, &mut Reader::default(), (at, 512))
                    .unwrap()
            })
            .into();
        let refused = file.pin_run(task, &mut Reader::default(), (0, 1)).err();
        let what = "pinned pages";
        assert_eq!(refused, Some(Error::TooMany { what, limit: most }));
        drop(held);
        assert!(file.pin_run(task, &mut Reader::default(), (0, 1)).is_ok());
    });
}

#[test]
fn what_is_pinned_or_taken_everywhere_leaves_no_run() {
    with_file(|task, cache, file, _| {
        cache.memory.populate_all(task).unwrap();
        let mut taken = Vec::new();
        while cache
            .try_alloc(task, Wanted::new(64, Purpose::Used), &mut taken)
            .unwrap()
            > 0
        {}
        taken.sort();
        // One page of each block of 512 stays pinned.
        let mut pins: Vec<crate::Pinned<'_>> = Vec::new();
        let mut blocks = std::collections::BTreeSet::new();
        for page in 0..PAGES {
            let pin = file.pin(task, &mut Reader::default(), page).unwrap();
            if blocks.insert(pin.pin().frame().0 / 512) {
                pins.push(pin);
            }
        }
        let refused = file.pin_run(task, &mut Reader::default(), (0, 512)).err();
        let pages = Pages(512);
        assert_eq!(refused, Some(Error::NoRun { pages }));
        drop(pins);
        cache.put_unused(task, &taken);
        assert!(file.pin_run(task, &mut Reader::default(), (0, 512)).is_ok());
    });
}

#[test]
fn a_limit_that_is_lowered_and_a_run_do_not_break_each_other() {
    with_file(|task, cache, file, _| {
        let run = file
            .pin_run(task, &mut Reader::default(), (0, 256))
            .unwrap();
        cache.set_limit(task, Pages(4 * 512)).unwrap();
        task.sleep(Cause::Idle, Nanos::secs(3));
        assert_eq!(words(&run), (1..257).collect::<Vec<_>>());
        assert_eq!(cache.limit().over, Pages::ZERO);
        drop(run);
        let run = file
            .pin_run(task, &mut Reader::default(), (512, 300))
            .unwrap();
        assert_eq!(words(&run), (513..813).collect::<Vec<_>>());
        cache.set_limit(task, Pages(FRAMES.into())).unwrap();
        assert_eq!(words(&run), (513..813).collect::<Vec<_>>());
    });
}
