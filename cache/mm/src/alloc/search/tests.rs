//! Two nodes, a reader on the first: what each law of placement does when that is full of clean
//! pages.

use std::sync::Arc;

use env::{Device, ObjectId, Task};
use policy::dirty::Threshold;
use policy::place::machine::Machine;
use policy::place::{PlaceLaw, ZoneId};
use policy::reclaim::Tunables;
use policy::units::{Bytes, Pages};
use world::{Lab, Options as LabOptions, Sector};

use crate::testing::Null;
use crate::{Cache, DeviceOptions, File, Item, Options, Reader};

const FRAMES: u32 = 4096;
const HERE: ZoneId = ZoneId(0);
const THERE: ZoneId = ZoneId(1);

/// Runs `body` on the first of two nodes, with a file of as many pages as all memory has. Nothing
/// is written back before it is asked for.
fn with_law<T: Send + 'static>(
    place: PlaceLaw,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &File) -> T + Send + 'static,
) -> T {
    with_limit(place, 95, body)
}

/// The same under a dirty limit, in per cent.
fn with_limit<T: Send + 'static>(
    place: PlaceLaw,
    limit: u8,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &File) -> T + Send + 'static,
) -> T {
    let mut lab = Lab::new(LabOptions {
        frames: FRAMES,
        ..LabOptions::default()
    });
    let id = lab.add_device(Arc::new(Null));
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let mut options = Options::new(FRAMES, 2);
        options.reclaim = Tunables::of(history::reclaim::LINUX_5_15, 250);
        options.readahead_max = Pages(32);
        options.dirty.dirty = Threshold::Percent(limit);
        options.dirty.background = Threshold::Percent(limit - 5);
        options.machine = Some(Machine::even(Pages(FRAMES.into()), 2, 2).unwrap());
        options.place = place;
        let cache = Cache::new(env, options).unwrap();
        let info = Null.info();
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let len = Bytes(u64::from(FRAMES) << 12);
        let file = cache.open(task, device, ObjectId(1), len).unwrap();
        let answer = body(task, &cache, &file);
        cache.shutdown(task).unwrap();
        answer
    })
    .unwrap()
}

fn read(task: &mut Task<'_>, file: &File, pages: u32) {
    let mut reader = Reader::default();
    let mut chunk = vec![Sector(0); 256];
    for at in 0..pages / 32 {
        let at = Bytes(u64::from(at) << 17);
        file.read(task, &mut reader, at, &mut chunk).unwrap();
    }
}

/// Reads three quarters of all memory; answers what is free on both nodes, and counters.
fn after_reading(place: PlaceLaw) -> ([u32; 2], impl Fn(Item) -> u64) {
    let (free, vmstat) = with_law(place, |task, cache, file| {
        read(task, file, FRAMES / 4 * 3);
        let free = [HERE, THERE].map(|zone| cache.memory.free_of(zone));
        (free, cache.vmstat())
    });
    (free, move |item| vmstat.get(item))
}

#[test]
fn without_trims_a_reader_goes_to_the_other_node_and_wakes_nobody() {
    for place in [history::place::LINUX_3_0_OFF, history::place::LINUX_6_12] {
        let (free, count) = after_reading(place);
        assert!(free[1] < FRAMES / 4, "{free:?}");
        assert_eq!(count(Item::ZoneReclaimSuccess), 0);
        assert_eq!(count(Item::PgscanDirect) + count(Item::PgscanKswapd), 0);
        assert!(count(Item::NumaMiss) >= u64::from(FRAMES / 5));
        assert_eq!(count(Item::NumaMiss), count(Item::NumaForeign));
    }
}

#[test]
fn with_trims_it_stays_at_home_and_the_other_node_stays_empty() {
    for place in [
        history::place::LINUX_3_0,
        history::place::LINUX_6_12_RECLAIM,
    ] {
        let (free, count) = after_reading(place);
        // A few pages spill where the mark fails after a trim that gave enough: on a CPU's list
        // they count as taken.
        assert!(
            free[1] > FRAMES / 2 - FRAMES / 8,
            "{}: {free:?}",
            place.name
        );
        assert!(count(Item::ZoneReclaimSuccess) > 0);
        assert!(count(Item::PgscanDirect) >= u64::from(FRAMES / 8));
        assert_eq!(count(Item::PgscanKswapd), 0, "nobody woke it");
        assert_eq!(count(Item::Allocstall), 0, "a trim is no direct reclaim");
    }
}

#[test]
fn every_frame_that_was_given_out_is_counted_once() {
    for place in history::place::ALL {
        let (_, count) = after_reading(place);
        let all = count(Item::NumaHit) + count(Item::NumaMiss);
        assert_eq!(all, count(Item::Pgalloc), "{}", place.name);
        assert_eq!(all, count(Item::NumaLocal) + count(Item::NumaOther));
    }
}

/// A program's memory after a stream: how much of it came from the other node, and what was freed
/// for it.
fn memory_after_a_stream(place: PlaceLaw) -> (u64, u64) {
    with_law(place, |task, cache, file| {
        read(task, file, FRAMES / 4 * 3);
        let before = cache.vmstat();
        let region = cache.spill(task, Pages(u64::from(FRAMES / 4))).unwrap();
        region.touch(task, 0, FRAMES / 4).unwrap();
        let after = cache.vmstat();
        let since = |item| after.get(item) - before.get(item);
        (since(Item::NumaOther), since(Item::PgscanDirect))
    })
}

#[test]
fn memory_in_use_stays_local_though_a_stream_was_there_first() {
    let wanted = u64::from(FRAMES / 4);
    let (other, _) = memory_after_a_stream(history::place::LINUX_6_12);
    assert!(other > wanted * 9 / 10, "without trims it is far: {other}");
    let (other, scanned) = memory_after_a_stream(PlaceLaw::TIDEGATE);
    assert!(other < wanted / 20, "{other} of {wanted}");
    // One page looked at for one page freed.
    assert!(scanned < wanted * 5 / 4, "{scanned}");
    let (_, count) = after_reading(PlaceLaw::TIDEGATE);
    assert_eq!(count(Item::PgscanDirect) + count(Item::PgscanKswapd), 0);
}

/// A trim in its plain mode leaves dirty pages alone: the node counts as full.
#[test]
fn a_node_full_of_dirty_pages_is_not_trimmed() {
    let scanned = with_law(history::place::LINUX_3_0, |task, cache, file| {
        let mut writer = cache.writer();
        let chunk = vec![Sector(1); 256];
        for at in 0..FRAMES / 2 / 32 {
            let at = Bytes(u64::from(at) << 17);
            file.write(task, &mut writer, at, &chunk).unwrap();
        }
        let dirty = cache.zones[HERE].dirty() + cache.zones[THERE].dirty();
        assert_eq!(dirty, cache.stats().dirty);
        let scanned = cache.vmstat().get(Item::PgscanDirect);
        file.sync(task).unwrap();
        for zone in [HERE, THERE].map(|zone| &cache.zones[zone]) {
            assert!(zone.dirty().is_zero() && zone.writeback().is_zero());
        }
        cache.retire(task, writer);
        scanned
    });
    assert_eq!(scanned, 0);
}

/// A quarter of all memory is written under a limit of 40 %, which is above it: two fifths of the
/// first node, a fifth of all, is all that it takes.
#[test]
fn a_writer_leaves_its_node_where_that_has_its_share_of_the_dirty_limit() {
    let dirty = |place| {
        with_limit(place, 40, |task, cache, file| {
            let mut writer = cache.writer();
            let chunk = vec![Sector(1); 256];
            for at in 0..FRAMES / 4 / 32 {
                let at = Bytes(u64::from(at) << 17);
                file.write(task, &mut writer, at, &chunk).unwrap();
            }
            cache.retire(task, writer);
            [HERE, THERE].map(|zone| cache.zones[zone].dirty().0)
        })
    };
    let all = u64::from(FRAMES / 4);
    for place in [history::place::LINUX_3_0_OFF, PlaceLaw::TIDEGATE] {
        assert_eq!(dirty(place), [all, 0], "{}", place.name);
    }
    for place in [
        history::place::LINUX_6_12,
        history::place::LINUX_6_12_RECLAIM,
    ] {
        let [here, there] = dirty(place);
        assert_eq!(here + there, all, "{}", place.name);
        let share = u64::from(FRAMES / 2) * 2 / 5;
        assert!((share * 9 / 10..share).contains(&here), "{here} of {share}");
    }
}
