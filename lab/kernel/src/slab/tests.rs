use std::collections::VecDeque;
use std::sync::Mutex;

use env::{DeviceId, ObjectId};
use frames::sync::{AtomicU64, Ordering};
use history::shrink::Answer;
use policy::dirty::Threshold;
use policy::reclaim::ReclaimLaw;
use policy::units::Nanos;
use world::Sector;

use super::*;
use crate::testing::{INFO, Null, with_cache};
use crate::{Ask, ObjectShare, Shrink};
use mm::inside::{Pick, ZoneId};
use mm::{DeviceOptions, Dropped, Item, Options, SlabPages};

const FRAMES: u32 = 1024;
const INODES: SlabSpec = SlabSpec {
    name: "inodes",
    object: Bytes(960),
    order: 3,
    mobility: Mobility::Reclaimable,
};

fn options() -> Options {
    let mut options = Options::new(FRAMES, 1);
    options.reclaim.law = history::reclaim::LINUX_5_15;
    options
}

#[test]
fn objects_fill_a_slab_and_its_frames_go_with_the_last() {
    with_cache(options(), |task, cache| {
        let free = cache.stats().free;
        let slabs = Slabs::new(cache, INODES).unwrap();
        assert_eq!(slabs.objects_a_slab(), 34);
        let mut taken: Vec<_> = (0..35).map(|_| slabs.take(task).unwrap()).collect();
        assert_eq!(
            slabs.pages(task),
            Pages(16),
            "34 in the first, one in the next"
        );
        let counted = SlabPages {
            reclaimable: Pages(16),
            unreclaimable: Pages::ZERO,
        };
        assert_eq!(cache.slab_pages(), counted);
        assert_eq!(cache.stats().free + Pages(16), free);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 35, "no place is given to two");
        // A hole in a full slab is filled before a fresh one is made.
        let last = taken.pop().unwrap();
        slabs.give(task, taken.remove(3));
        for _ in 0..34 {
            taken.push(slabs.take(task).unwrap());
        }
        assert_eq!(slabs.pages(task), Pages(16));
        slabs.give(task, last);
        for object in taken {
            slabs.give(task, object);
        }
        assert_eq!((slabs.objects(task), slabs.pages(task)), (0, Pages::ZERO));
        assert_eq!(cache.stats().free, free);
        assert_eq!(cache.slab_pages(), SlabPages::default());
    });
}

#[test]
fn where_no_frames_stand_together_a_slab_is_a_page() {
    with_cache(options(), |task, cache| {
        let slabs = Slabs::new(cache, INODES).unwrap();
        let mut frames = Vec::new();
        let pick = Pick::single(ZoneId(0), FRAMES);
        let left = |taken| FRAMES - taken;
        let taken = cache
            .inside()
            .memory
            .take(task, pick, &mut frames, left, |_| true);
        assert_eq!(taken.unwrap().frames, FRAMES);
        let odd: Vec<_> = frames
            .iter()
            .copied()
            .filter(|frame| frame.0 % 2 == 1)
            .collect();
        cache.inside().memory.put(task, &odd);
        let object = slabs.take(task).unwrap();
        assert_eq!(slabs.pages(task), Pages(1));
        // Four fit, and the fifth needs another.
        let more: Vec<_> = (0..4).map(|_| slabs.take(task).unwrap()).collect();
        assert_eq!(slabs.pages(task), Pages(2));
        for object in more.into_iter().chain([object]) {
            slabs.give(task, object);
        }
        frames.retain(|frame| frame.0 % 2 == 0);
        cache.inside().memory.put(task, &frames);
        assert_eq!(cache.stats().free, Pages(u64::from(FRAMES)));
    });
}

#[test]
fn what_no_slab_can_be_is_said_by_name() {
    with_cache(options(), |task, cache| {
        let _ = task;
        let refused = |spec| match Slabs::new(cache, spec) {
            Err(Error::BadOption { what, value, .. }) => (what, value),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{spec:?} was taken"),
        };
        let object = |bytes| SlabSpec {
            object: Bytes(bytes),
            ..INODES
        };
        assert_eq!(refused(object(0)), ("slab.object", 0));
        assert_eq!(
            refused(object(PAGE_SIZE + 1)),
            ("slab.object", PAGE_SIZE + 1)
        );
        let high = SlabSpec { order: 4, ..INODES };
        assert_eq!(refused(high), ("slab.order", 4));
        let movable = SlabSpec {
            mobility: Mobility::Movable,
            ..INODES
        };
        assert_eq!(refused(movable).0, "slab.mobility, movable,");
    });
}

/// Objects in the order in which they were taken; the oldest go first.
struct Cached {
    slabs: Arc<Slabs>,
    objects: Mutex<VecDeque<Object>>,
    /// Answers `Stop`.
    stops: AtomicU64,
    /// Says what it holds, and so has a share of the memory.
    shares: bool,
}

impl Shrink for Cached {
    fn name(&self) -> &'static str {
        "objects"
    }

    fn count(&self, _: NodeId) -> u64 {
        self.objects.lock().unwrap().len() as u64
    }

    fn held(&self) -> Option<Pages> {
        self.shares.then(|| self.slabs.held())
    }

    fn carries_pages(&self) -> bool {
        true
    }

    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer {
        if self.stops.load(Ordering::Relaxed) > 0 {
            return Answer::Stop;
        }
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
            looked_at: ask.objects,
        }
    }
}

impl Cached {
    /// Takes objects until there is no memory for one.
    fn fill(&self, task: &mut Task<'_>) -> Error {
        loop {
            match self.slabs.take(task) {
                Ok(object) => self.objects.lock().unwrap().push_back(object),
                Err(error) => return error,
            }
        }
    }
}

fn cached(task: &Task<'_>, cache: &Arc<Cache>) -> Arc<Cached> {
    registered(task, cache, false).0
}

fn registered(task: &Task<'_>, cache: &Arc<Cache>, shares: bool) -> (Arc<Cached>, ObjectShare) {
    let cached = Arc::new(Cached {
        shares,
        slabs: Slabs::new(cache, INODES).unwrap(),
        objects: Mutex::default(),
        stops: AtomicU64::new(0),
    });
    let share = crate::register(cache, task, Arc::clone(&cached) as Arc<dyn Shrink>).unwrap();
    (cached, share)
}

#[test]
fn objects_without_end_take_the_memory_of_the_oldest() {
    for law in [
        history::reclaim::LINUX_5_15,
        history::reclaim::LINUX_3_0,
        ReclaimLaw::TIDEGATE,
    ] {
        let mut options = options();
        options.reclaim.law = law;
        with_cache(options, move |task, cache| {
            let cached = cached(task, cache);
            let twice = crate::register(cache, task, Arc::clone(&cached) as Arc<dyn Shrink>);
            let name = "objects";
            assert_eq!(twice, Err(Error::RegisteredTwice { name }));
            // Five times what fits.
            for _ in 0..5 * u64::from(FRAMES) * PAGE_SIZE / INODES.object.0 {
                let object = cached.slabs.take(task).unwrap();
                cached.objects.lock().unwrap().push_back(object);
            }
            let vmstat = cache.vmstat();
            assert!(vmstat.get(Item::SlabsScanned) > 0, "{law:?}");
            let freed = vmstat.get(Item::SlabFreed);
            assert!(freed > 3 * u64::from(FRAMES), "{law:?}: {freed} pages");
            assert_eq!(vmstat.broken_sum(), None, "{law:?}");
            let (free, slab) = (cache.stats().free, cache.slab_pages().all());
            assert_eq!(free + slab, Pages(u64::from(FRAMES)), "{law:?}");
        });
    }
}

/// Takes objects until `times` times the memory went through, and evicts the oldest for them.
fn stream(task: &mut Task<'_>, cached: &Cached, times: u64) {
    for _ in 0..times * u64::from(FRAMES) * PAGE_SIZE / INODES.object.0 {
        let object = cached.slabs.take(task).unwrap();
        cached.objects.lock().unwrap().push_back(object);
    }
}

#[test]
fn objects_with_a_share_of_the_memory_may_have_all_that_nobody_else_holds() {
    with_cache(options(), |task, cache| {
        let (cached, share) = registered(task, cache, true);
        assert!(share.is_some());
        stream(task, &cached, 5);
        let vmstat = cache.vmstat();
        let freed = vmstat.get(Item::SlabFreed);
        assert!(freed > 3 * u64::from(FRAMES), "{freed} pages");
        assert_eq!(vmstat.broken_sum(), None);
        let (free, slab) = (cache.stats().free, cache.slab_pages().all());
        assert_eq!(free + slab, Pages(u64::from(FRAMES)));
        let (views, _) = crate::shares(cache, task);
        let held: Vec<_> = views.iter().map(|view| (view.name, view.held)).collect();
        assert_eq!(held[0], ("pages", Bytes::ZERO));
        assert_eq!(held[1].0, "objects");
        // The targets are the memory but for what is kept free, and lent where they are not used.
        let targets: Bytes = views.iter().map(|view| view.target).sum();
        assert!(held[1].1 > targets - Bytes(targets.0 / 8), "{views:?}");
        assert!(
            views.iter().all(|view| view.target >= view.floor),
            "{views:?}"
        );
    });
}

#[test]
fn what_objects_miss_moves_targets_and_where_pages_are_alone_nobody_shares() {
    with_cache(options(), |task, cache| {
        assert_eq!(crate::shares(cache, task), (Vec::new(), 0));
        let (cached, share) = registered(task, cache, true);
        let target = |task: &Task<'_>| crate::shares(cache, task).0[1].target;
        let before = target(task);
        let (_, moved) = crate::shares(cache, task);
        assert_eq!(moved, 0);
        for _ in 0..20 {
            stream(task, &cached, 1);
            for _ in 0..64 {
                let age = crate::objects_evicted(cache, task, share, INODES.object);
                crate::object_missed(cache, task, share, age, Nanos::micros(100));
            }
            task.sleep(env::Cause::Idle, Nanos::millis(50));
        }
        let (views, moved) = crate::shares(cache, task);
        assert!(moved > 0, "{views:?}");
        assert!(views[1].target > before, "{views:?}");
        // One without a share has nothing to say.
        let none = ObjectShare::default();
        assert_eq!(
            crate::objects_evicted(cache, task, none, Bytes(9)),
            Bytes::ZERO
        );
        crate::object_missed(cache, task, none, Bytes::ZERO, Nanos(1));
    });
}

#[test]
fn a_sharer_that_always_stops_ends_in_an_error_and_not_in_a_loop() {
    with_cache(options(), |task, cache| {
        let (cached, _) = registered(task, cache, true);
        cached.stops.store(1, Ordering::Relaxed);
        let error = cached.fill(task);
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    });
}

#[test]
fn a_shrinker_that_always_stops_ends_in_an_error_and_not_in_a_loop() {
    with_cache(options(), |task, cache| {
        let cached = cached(task, cache);
        cached.stops.store(1, Ordering::Relaxed);
        let error = cached.fill(task);
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        cached.stops.store(0, Ordering::Relaxed);
        cached.slabs.take(task).unwrap();
    });
}

#[test]
fn a_lowered_limit_asks_for_slabs_and_says_what_stays() {
    let mut options = options();
    options.frames = 4 * FRAMES;
    with_cache(options, |task, cache| {
        let cached = cached(task, cache);
        let staying = Slabs::new(
            cache,
            SlabSpec {
                mobility: Mobility::Unmovable,
                order: 0,
                object: Bytes(PAGE_SIZE),
                ..INODES
            },
        )
        .unwrap();
        // Some of both in every chunk.
        let mut kept = Vec::new();
        while cache.stats().free > Pages(512) {
            for _ in 0..34 * 4 {
                let object = cached.slabs.take(task).unwrap();
                cached.objects.lock().unwrap().push_back(object);
            }
            kept.push(staying.take(task).unwrap());
        }
        cache.set_limit(task, Pages(u64::from(FRAMES))).unwrap();
        let wait = |task: &mut Task<'_>| {
            task.sleep(env::Cause::Idle, Nanos::secs(20));
        };
        wait(task);
        assert_eq!(
            cached.objects.lock().unwrap().len(),
            0,
            "all were asked for"
        );
        assert!(!cache.limit().over.is_zero(), "what stays is in some chunk");
        for object in kept {
            staying.give(task, object);
        }
        wait(task);
        assert_eq!(cache.limit().over, Pages::ZERO);
    });
}

#[test]
fn what_slabs_take_is_not_dirtyable() {
    let mut options = options();
    options.dirty.dirty = Threshold::Percent(100);
    with_cache(options, |task, cache| {
        let slabs = Slabs::new(cache, INODES).unwrap();
        let limit = || cache.stats().dirty_limit;
        let before = limit();
        let objects: Vec<_> = (0..34).map(|_| slabs.take(task).unwrap()).collect();
        assert_eq!(before, limit() + Pages(8));
        for object in objects {
            slabs.give(task, object);
        }
        assert_eq!(limit(), before);
    });
}

#[test]
fn a_clean_page_is_dropped_and_a_dirty_one_stays() {
    let options = options();
    let mut lab = world::Lab::new(world::Options {
        frames: options.frames,
        ..world::Options::default()
    });
    let id: DeviceId = lab.add_device(Arc::new(Null));
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = Cache::new(env, options).unwrap();
        let device = cache
            .add_device(task, id, INFO, DeviceOptions::default())
            .unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        let page = [Sector(7); 8];
        file.write(task, &mut writer, Bytes(PAGE_SIZE), &page)
            .unwrap();
        assert_eq!(file.drop_clean(task, 1), Dropped::Kept, "it is dirty");
        cache.sync(task).unwrap();
        let free = cache.stats().free;
        assert_eq!(file.drop_clean(task, 2), Dropped::Absent);
        assert_eq!(file.drop_clean(task, u64::MAX), Dropped::Absent);
        assert_eq!(file.drop_clean(task, 1), Dropped::Dropped);
        assert_eq!(file.drop_clean(task, 1), Dropped::Absent);
        assert_eq!(cache.stats().free, free + Pages(1));
        assert_eq!(cache.stats().cached, Pages::ZERO);
        cache.shutdown(task).unwrap();
    })
    .unwrap();
}
