//! Caches of objects of a run: a cache that a shrinker empties and a cache whose objects stay, both
//! on slab pages. A task takes and gives back while the others work and the devices have their
//! fault phases; at the end all of it is gone, and frames add up.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use env::{Cause, Task, Wakeup};
use history::shrink::Answer;
use kernel::{Ask, Object, Shrink, SlabSpec, Slabs};
use mm::{Cache, Error, NodeId};
use policy::place::mobility::Mobility;
use policy::units::{Bytes, Nanos, Pages};

use crate::failure::fail;
use crate::going::pause;
use crate::judge;

/// Objects that may be made again take up to this part of the frames, and those that stay up to
/// that.
const KEPT_PART: u64 = 8;
const STAYING_PART: u64 = 32;
/// Objects taken at a time.
const BATCH: u64 = 24;
/// Number of looks at the end of the task.
const LOOKS: u32 = 2000;

const KEPT: SlabSpec = SlabSpec {
    name: "kept",
    object: Bytes(600),
    order: 2,
    mobility: Mobility::Reclaimable,
};
const STAYING: SlabSpec = SlabSpec {
    name: "staying",
    object: Bytes(1024),
    order: 1,
    mobility: Mobility::Unmovable,
};

/// See the module.
pub(crate) struct Objects {
    kept: Arc<Kept>,
    staying: Arc<Slabs>,
    held: Mutex<Vec<Object>>,
    ended: AtomicBool,
}

/// Objects that may be made again, the oldest first.
struct Kept {
    slabs: Arc<Slabs>,
    list: Mutex<VecDeque<Object>>,
}

impl Shrink for Kept {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn count(&self, _: NodeId) -> u64 {
        self.list().len() as u64
    }

    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer {
        // One in eight cannot work for a caller that may be within a file system; and some objects
        // are in use.
        if !ask.may_enter_fs && task.random().is_multiple_of(8) {
            return Answer::Stop;
        }
        let mut freed = 0;
        for _ in 0..ask.objects {
            let Some(object) = self.list().pop_front() else {
                break;
            };
            if task.random().is_multiple_of(4) {
                self.list().push_back(object);
            } else {
                self.slabs.give(task, object);
                freed += 1;
            }
        }
        Answer::Freed {
            freed,
            looked_at: ask.objects,
        }
    }
}

impl Kept {
    fn list(&self) -> std::sync::MutexGuard<'_, VecDeque<Object>> {
        self.list.lock().expect("nobody panics with it")
    }
}

impl Objects {
    pub(crate) fn new(task: &Task<'_>, cache: &Arc<Cache>) -> Self {
        let refused = |error: Error| format!("slabs: {error}");
        let add = |spec| {
            let added = Slabs::new(cache, spec);
            added.unwrap_or_else(|error| fail("unexpected-error", refused(error)))
        };
        let kept = Arc::new(Kept {
            slabs: add(KEPT),
            list: Mutex::default(),
        });
        let shrinker: Arc<dyn Shrink> = Arc::clone(&kept) as _;
        kernel::register(cache, task, Arc::clone(&shrinker))
            .unwrap_or_else(|error| fail("unexpected-error", refused(error)));
        let twice = kernel::register(cache, task, shrinker);
        judge!(
            matches!(twice, Err(Error::RegisteredTwice { name: "kept" })),
            "unexpected-error",
            "registered twice: {twice:?}"
        );
        Self {
            kept,
            staying: add(STAYING),
            held: Mutex::default(),
            ended: false.into(),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Object>> {
        self.held.lock().expect("nobody panics with it")
    }

    /// Takes and gives back until the run has ended (`fair`).
    pub(crate) fn work(&self, task: &mut Task<'_>, cache: &Cache, fair: &AtomicBool) {
        while !fair.load(Ordering::Relaxed) {
            if !self.step(task, cache, fair) {
                break;
            }
        }
        self.ended.store(true, Ordering::Relaxed);
    }

    fn step(&self, task: &mut Task<'_>, cache: &Cache, fair: &AtomicBool) -> bool {
        let frames = cache.stats().frames.0;
        let pages = |slabs: &Slabs, task: &Task<'_>| slabs.pages(task).0;
        for _ in 0..BATCH {
            // Each may wait for memory for a minute and be refused, and the end waits for this one
            // only.
            if fair.load(Ordering::Relaxed) {
                break;
            }
            let stays = task.random().is_multiple_of(4);
            let taken = if stays && pages(&self.staying, task) < frames / STAYING_PART {
                let taken = self.staying.take(task);
                taken.map(|object| self.held().push(object))
            } else if pages(&self.kept.slabs, task) < frames / KEPT_PART {
                let taken = self.kept.slabs.take(task);
                taken.map(|object| self.kept.list().push_back(object))
            } else {
                Ok(())
            };
            match taken {
                Ok(()) | Err(Error::OutOfMemory { .. }) => {}
                Err(Error::Cancelled) => return false,
                Err(error) => fail("unexpected-error", format!("an object: {error}")),
            }
        }
        for _ in 0..BATCH / 8 {
            let at = task.random();
            let object = {
                let mut held = self.held();
                let count = held.len() as u64;
                (count > 0).then(|| {
                    let at = usize::try_from(at % count).expect("an index");
                    held.swap_remove(at)
                })
            };
            if let Some(object) = object {
                self.staying.give(task, object);
            }
        }
        let rest = Nanos::micros(200 + task.random() % 3000);
        pause(task, rest).is_ok()
    }

    /// Gives all back, once the task has ended; false: the lab has given up.
    pub(crate) fn finish(&self, task: &mut Task<'_>, cache: &Cache) -> bool {
        let mut looks = 0;
        while !self.ended.load(Ordering::Relaxed) {
            looks += 1;
            judge!(
                looks < LOOKS,
                "unfinished",
                "the task with the objects did not end"
            );
            if task.sleep(Cause::Think, Nanos::millis(500)) == Wakeup::Cancelled {
                return false;
            }
        }
        let before = cache.slab_pages().all();
        let own = self.kept.slabs.pages(task) + self.staying.pages(task);
        judge!(
            before == own,
            "accounting",
            "{before:?} of slabs, and their caches have {own:?}"
        );
        while let Some(object) = { self.kept.list().pop_front() } {
            self.kept.slabs.give(task, object);
        }
        while let Some(object) = { self.held().pop() } {
            self.staying.give(task, object);
        }
        let left = cache.slab_pages().all();
        judge!(
            left == Pages::ZERO,
            "accounting",
            "{left:?} of slabs without an object"
        );
        true
    }
}
