//! Objects on two nodes: when a trim of one asks for them.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::{Ask, Shrink};
use env::{Device, ObjectId};
use history::shrink::{Answer, ShrinkRule};
use mm::inside::ZoneId;
use mm::{DeviceOptions, File, Item, Options, Reader};
use policy::dirty::Threshold;
use policy::place::PlaceLaw;
use policy::place::machine::Machine;
use policy::reclaim::Tunables;
use world::{Lab, Options as LabOptions, Sector};

use super::*;
use crate::testing::Null;

const FRAMES: u32 = 4096;
const THERE: ZoneId = ZoneId(1);

/// Runs `body` on the first of two nodes, with a file of as many pages as all memory has. Nothing
/// is written back before it is asked for.
fn with_law<T: Send + 'static>(
    place: PlaceLaw,
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
        options.dirty.dirty = Threshold::Percent(95);
        options.dirty.background = Threshold::Percent(90);
        options.machine = Some(Machine::even(Pages(FRAMES.into()), 2, 2).unwrap());
        options.place = place;
        let mut parts = crate::Parts::default();
        if place.objects_last {
            parts.shrink = ShrinkRule::LINUX_2_6_36;
        }
        let cache = crate::build(env, options, parts).unwrap();
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

const OBJECTS: SlabSpec = SlabSpec {
    name: "objects",
    object: Bytes(4096),
    order: 0,
    mobility: Mobility::Reclaimable,
};
/// As many of these as a batch has are few pages.
const SMALL: SlabSpec = SlabSpec {
    name: "small",
    object: Bytes(128),
    ..OBJECTS
};

/// Objects, the oldest first.
struct Kept {
    slabs: Arc<Slabs>,
    objects: Mutex<VecDeque<Object>>,
}

impl Shrink for Kept {
    fn name(&self) -> &'static str {
        "objects"
    }

    fn count(&self, node: NodeId) -> u64 {
        let objects = self.objects.lock().unwrap().len() as u64;
        if node.index() == 0 { objects } else { 0 }
    }

    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer {
        let mut freed = 0;
        while freed < ask.objects {
            let Some(object) = self.objects.lock().unwrap().pop_front() else {
                break;
            };
            self.slabs.give(task, object);
            freed += 1;
        }
        Answer::Freed {
            freed,
            looked_at: freed.max(1),
        }
    }
}

/// A few objects, and a reader that has its node trimmed: 6.12 asks for objects in each pass, 3.0
/// where they are many.
#[test]
fn few_objects_are_asked_for_in_the_passes_of_a_trim_and_not_behind_them() {
    let scanned = |place| {
        with_law(place, |task, cache, file| {
            let kept = Arc::new(Kept {
                slabs: Slabs::new(cache, SMALL).unwrap(),
                objects: Mutex::default(),
            });
            let shrinker = Arc::clone(&kept) as Arc<dyn Shrink>;
            crate::register(cache, task, shrinker).unwrap();
            for _ in 0..FRAMES / 4 {
                let object = kept.slabs.take(task).unwrap();
                kept.objects.lock().unwrap().push_back(object);
            }
            read(task, file, FRAMES / 4 * 3);
            let count = |item| cache.vmstat().get(item);
            assert!(count(Item::ZoneReclaimSuccess) > 0);
            let scanned = count(Item::SlabsScanned);
            while let Some(object) = kept.objects.lock().unwrap().pop_front() {
                kept.slabs.give(task, object);
            }
            scanned
        })
    };
    assert_eq!(scanned(history::place::LINUX_3_0), 0);
    assert!(scanned(history::place::LINUX_6_12_RECLAIM) > 0);
}

/// Objects fill the near node; more of them come from it where it is trimmed, and from the other
/// one where it is not.
#[test]
fn a_trim_asks_objects_where_they_have_more_than_a_twentieth_of_the_zone() {
    for (place, stays) in [
        (history::place::LINUX_3_0, true),
        (history::place::LINUX_3_0_OFF, false),
    ] {
        with_law(place, move |task, cache, _| {
            let kept = Arc::new(Kept {
                slabs: Slabs::new(cache, OBJECTS).unwrap(),
                objects: Mutex::default(),
            });
            let shrinker = Arc::clone(&kept) as Arc<dyn Shrink>;
            crate::register(cache, task, shrinker).unwrap();
            for _ in 0..FRAMES / 4 * 3 {
                let object = kept.slabs.take(task).unwrap();
                kept.objects.lock().unwrap().push_back(object);
            }
            let there = cache.inside().memory.free_of(THERE);
            let scanned = cache.vmstat().get(Item::SlabsScanned);
            if stays {
                assert!(there > FRAMES / 2 - FRAMES / 8, "{there} free there");
                assert!(scanned > u64::from(FRAMES / 8), "{scanned}");
            } else {
                assert!(there < FRAMES / 4, "{there} free there");
                assert_eq!(scanned, 0);
            }
            while let Some(object) = kept.objects.lock().unwrap().pop_front() {
                kept.slabs.give(task, object);
            }
            assert_eq!(cache.vmstat().broken_sum(), None);
        });
    }
}
