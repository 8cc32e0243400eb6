//! Pages that are under writeback and are not sent.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use env::{Device as _, ObjectId};
use lab::Sector;
use policy::dirty::Threshold;

use super::*;
use crate::testing::{Null, with_cache};
use crate::{DeviceOptions, Options};

/// The wait for room of a task that writes them was cancelled: they are dirty again, and the next
/// sync writes them. One of them was written to meanwhile.
#[test]
fn pages_that_are_not_sent_after_all_are_dirty_again() {
    let mut options = Options::new(1024, 2);
    // Nothing is written back before it is asked for.
    options.dirty.dirty = Threshold::Percent(95);
    options.dirty.background = Threshold::Percent(90);
    with_cache(options, |task, cache| {
        let id = cache.env.add_device(Arc::new(Null));
        let options = DeviceOptions {
            at_once: Pages(400),
            ..DeviceOptions::default()
        };
        let device = cache.add_device(task, id, Null.info(), options).unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        let data = vec![Sector(5); 8 * 400];
        file.write(task, &mut writer, Bytes(0), &data).unwrap();
        let mapping = cache.mapping(task, 0).unwrap();
        let select = Selection {
            from: 0,
            to: u32::MAX,
            tag: Tag::Dirty,
            max: Pages::MAX,
            class: IoClass::Writeback,
        };
        let mut run = IoRequest::for_writes(400);
        gather(task, cache, &mapping, &select, 0, Pages(400), &mut run);
        let levels = || (cache.stats().dirty.0, cache.stats().writeback.0);
        assert_eq!(levels(), (0, 400));
        file.write(task, &mut writer, Bytes(4096), &data[..8])
            .unwrap();
        assert_eq!(levels(), (1, 400));
        // The flusher has met the file beside a sync, and taken it off its lists.
        mapping.device.files.lock(task).dirty.clear();
        mapping.queued.store(false, Ordering::Release);
        mapping.take_back(cache, run.offset, &run.frames);
        assert_eq!(levels(), (400, 0));
        assert!(mapping.queued.load(Ordering::Acquire), "it is found again");
        assert!(cache.stats().is_conserved());
        file.sync(task).unwrap();
        assert_eq!(levels(), (0, 0));
        assert_eq!(cache.stats().written.0, 400);
        assert!(cache.stats().is_conserved());
    });
}
