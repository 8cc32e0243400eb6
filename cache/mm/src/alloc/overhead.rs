//! Frames for the overhead of pages (`memory::overhead`), taken and given back as pages come and
//! go.

use env::Task;
use policy::place::by_use::Purpose;
use policy::units::Pages;

use super::Wanted;
use crate::cache::Cache;
use crate::memory::overhead::{Kind, Overhead, Step};

impl Cache {
    /// Makes as many objects as pages want, or frees those that they do not. It neither reclaims
    /// nor waits; it may boost a zone, and wake its reclaimer.
    #[inline]
    pub(crate) fn settle_overhead(&self, task: &mut Task<'_>) {
        if let Some(overhead) = &self.memory.overhead {
            self.settle_kinds(task, overhead, true);
        }
    }

    /// The same after pages were evicted.
    #[inline]
    pub(crate) fn shrink_overhead(&self, task: &mut Task<'_>) {
        if let Some(overhead) = &self.memory.overhead {
            self.settle_kinds(task, overhead, false);
        }
    }

    fn settle_kinds(&self, task: &mut Task<'_>, overhead: &Overhead, takes: bool) {
        for kind in Kind::ALL {
            loop {
                let swapped = self.swap.area().map_or(0, |area| area.groups());
                let nodes = u64::from(self.pages.pool.taken()) + u64::from(swapped);
                match overhead.step(task, kind, overhead.wanted(kind, nodes)) {
                    Step::Take if takes && self.take_block(task, overhead, kind) => {}
                    Step::Take | Step::Done => break,
                    Step::Free(busies) => {
                        let zone = self.zones.layout().of(busies[0].frame());
                        let pages = Pages(busies.len() as u64);
                        self.shrinkers.note_gone(task, kind.mobility(), zone, pages);
                        let frames = busies.into_iter().map(|busy| self.disown(busy));
                        let frames: Vec<_> = frames.collect();
                        self.memory.put(task, &frames);
                    }
                }
            }
        }
    }

    /// Takes a block, or a frame; false: none is free.
    fn take_block(&self, task: &mut Task<'_>, overhead: &Overhead, kind: Kind) -> bool {
        let mut frames = Vec::with_capacity(1 << kind.order());
        for order in (0..=kind.order()).rev() {
            let wanted = Wanted::new(1, Purpose::Used).of(kind.mobility());
            // Refused by the system: it is made later.
            let taken = self.try_alloc(task, Wanted { order, ..wanted }, &mut frames);
            if taken.is_ok_and(|taken| taken > 0) {
                break;
            }
        }
        if frames.is_empty() {
            return false;
        }
        let zone = self.zones.layout().of(frames[0]);
        let pages = Pages(frames.len() as u64);
        self.shrinkers.note_slab(kind.mobility(), zone, pages);
        let claim = |frame: &_| self.pages.table.claim(*frame);
        overhead.add(task, kind, frames.iter().map(claim).collect());
        true
    }
}

#[cfg(test)]
mod tests {

    use env::{Device as _, ObjectId};
    use policy::units::{Bytes, PAGE_SIZE};
    use world::Sector;

    use super::*;
    use crate::testing::{NULL, Null, with_cache};
    use crate::{DeviceOptions, Options};

    #[test]
    fn what_is_kept_of_pages_comes_and_goes_with_them() {
        let options = Options {
            overhead: true,
            ..Options::new(4_096, 1)
        };
        with_cache(options, |task, cache| {
            let device = cache
                .add_device(
                    task,
                    NULL,
                    Null.info(),
                    DeviceOptions {
                        blocks_a_page: 4,
                        ..DeviceOptions::default()
                    },
                )
                .unwrap();
            let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
            let mut writer = cache.writer();
            let page = vec![Sector(1); 8];
            for at in 0..780 {
                file.write(task, &mut writer, Bytes(at * PAGE_SIZE), &page)
                    .unwrap();
            }
            cache.settle_overhead(task);
            // 3120 heads, 39 a frame; 13 leaves and a root, 14 in two frames.
            let kept = |cache: &Cache| cache.slab_pages();
            assert_eq!(kept(cache).reclaimable, Pages(80 + 2));
            let region = cache.spill(task, Pages(1_025)).unwrap();
            region.touch(task, 0, 1_025).unwrap();
            assert_eq!(kept(cache).unreclaimable, Pages(3));
            region.discard(task, 0, 1_024).unwrap();
            assert_eq!(kept(cache).unreclaimable, Pages(1));
            drop(region);
            file.truncate(task, Bytes(0)).unwrap();
            cache.settle_overhead(task);
            assert_eq!(kept(cache).all(), Pages(0));
            assert!(cache.stats().is_conserved());
        });
    }
}
