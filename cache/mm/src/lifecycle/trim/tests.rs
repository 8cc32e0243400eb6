//! Memory that is scattered free is given back, and nothing is lost for it.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use env::{Device as _, ObjectId};
use policy::units::{Bytes, PAGE_SIZE};
use world::Sector;

use super::*;
use crate::testing::{NULL, Null, with_cache};
use crate::{DeviceOptions, File, Options, Reader};

const FRAMES: u32 = 16 * 512;
const PAGES: u32 = 6000;

/// A file of which every third page is dirty, after `body` two thirds of it are gone again: what is
/// left is all over the memory.
fn with_scattered(
    body: impl FnOnce(&mut Task<'_>, &std::sync::Arc<Cache>, &std::sync::Arc<File>) + Send + 'static,
) {
    with_cache(Options::new(FRAMES, 2), |task, cache| {
        let options = DeviceOptions::default();
        let device = cache.add_device(task, NULL, Null.info(), options).unwrap();
        let kept = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let gone = cache.open(task, device, ObjectId(2), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        for page in 0..PAGES {
            let file = if page % 3 == 0 { &kept } else { &gone };
            let offset = Bytes(u64::from(page / 3 + page % 3 / 2 * PAGES) * PAGE_SIZE);
            file.write_unpaced(task, &mut writer, offset, &[Sector(page + 1); 8])
                .unwrap();
            if page % 512 == 0 {
                cache.sync(task).unwrap();
            }
        }
        gone.discard(task).unwrap();
        body(task, cache, &kept);
        let mut reader = Reader::default();
        for page in (0..PAGES).step_by(3) {
            let mut back = [Sector(0); 8];
            let offset = Bytes(u64::from(page / 3) * PAGE_SIZE);
            kept.read(task, &mut reader, offset, &mut back).unwrap();
            assert_eq!(back, [Sector(page + 1); 8]);
        }
        assert!(cache.stats().is_conserved());
        kept.discard(task).unwrap();
        cache.retire(task, writer);
    });
}

fn resident(cache: &Cache, task: &Task<'_>) -> u32 {
    let chunks = cache.memory.chunks(task).into_iter();
    let chunks = chunks.filter(|chunk| chunk.has_memory);
    chunks
        .map(|chunk| chunk.frames.end - chunk.frames.start)
        .sum()
}

#[test]
fn what_is_free_in_pieces_is_given_back_and_no_page_is_lost() {
    with_scattered(|task, cache, _| {
        let before = resident(cache, task);
        let (cached, free, dirty) = {
            let stats = cache.stats();
            (stats.cached, stats.free, stats.dirty)
        };
        assert!(before > PAGES, "each chunk is in use");
        assert!(cached < Pages(u64::from(PAGES) / 2), "{cached:?}");
        let given = cache.trim(task);
        let after = resident(cache, task);
        assert_eq!(u64::from(before - after), given.0);
        // The rest holds the pages, the reclaimer's stock of free frames, and a chunk that is not
        // whole.
        let most = cached.0 + cache.memory.marks().high.0 + 2 * 512;
        assert!(u64::from(after) <= most, "{after} of {before}, {most}");
        let stats = cache.stats();
        assert_eq!(
            (stats.cached, stats.free, stats.dirty),
            (cached, free, dirty)
        );
        assert_eq!(cache.memory.offline(task), Pages::ZERO);
        assert_eq!(cache.trim(task), Pages::ZERO, "there is no more");
    });
}

#[test]
fn a_chunk_with_a_pinned_page_stays_and_the_others_go() {
    with_scattered(|task, cache, file| {
        let pins: Vec<_> = (0..PAGES / 3)
            .step_by(200)
            .map(|page| file.pin(task, &mut Reader::default(), page).unwrap())
            .collect();
        let stuck: std::collections::BTreeSet<u32> = pins
            .iter()
            .map(|pinned| pinned.pin().frame().0 / 512)
            .collect();
        assert!(cache.trim(task) > Pages::ZERO);
        for chunk in cache.memory.chunks(task) {
            let at = chunk.frames.start / 512;
            assert!(chunk.has_memory || !stuck.contains(&at), "chunk {at}");
        }
        assert_eq!(cache.memory.offline(task), Pages::ZERO);
    });
}
