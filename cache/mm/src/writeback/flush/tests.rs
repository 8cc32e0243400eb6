//! Pages that are under writeback and are not sent.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Mutex;

use env::{Device, DeviceInfo, ObjectId};
use policy::dirty::Threshold;
use policy::writeback::Flight;
use world::{Lab, Sector};

use super::*;
use crate::testing::{INFO, NULL, Null, with_cache};
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
        let options = DeviceOptions {
            at_once: Pages(400),
            ..DeviceOptions::default()
        };
        let device = cache.add_device(task, NULL, Null.info(), options).unwrap();
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
            is_last: false,
        };
        let mut run = IoRequest::for_writes(400);
        gather(task, cache, &mapping, &select, 0, Pages(400), &mut run);
        let levels = || (cache.stats().dirty.0, cache.stats().writeback.0);
        assert_eq!(levels(), (0, 400));
        file.write(task, &mut writer, Bytes(4096), &data[..8])
            .unwrap();
        assert_eq!(levels(), (1, 400));
        mapping.take_back(cache, run.offset, &run.frames);
        assert_eq!(levels(), (400, 0));
        assert!(cache.stats().is_conserved());
        file.sync(task).unwrap();
        assert_eq!(levels(), (0, 0));
        assert_eq!(cache.stats().written.0, 400);
        assert!(cache.stats().is_conserved());
    });
}

/// Keeps the writes that it is sent.
#[derive(Default)]
struct Silent(Mutex<Vec<IoRequest>>);

impl Device for Silent {
    fn submit(&self, request: Box<IoRequest>) {
        match request.op {
            IoOp::Write => self.0.lock().unwrap().push(*request),
            _ => request.complete(&env::Interrupt::new(), Ok(())),
        }
    }

    fn info(&self) -> DeviceInfo {
        INFO
    }
}

/// All pages of a file are under writeback, so the flusher has taken it off its lists; then the
/// sync that put them there is cancelled before it has sent the second request.
#[test]
fn pages_of_a_sync_that_is_cancelled_are_the_flushers() {
    let mut options = Options::new(1024, 1);
    options.dirty.dirty = Threshold::Percent(95);
    options.dirty.background = Threshold::Percent(90);
    options.flush.flight = Flight::Requests(1);
    options.flush.request_max = Pages(16);
    let mut lab = Lab::new(world::Options {
        frames: options.frames,
        ..world::Options::default()
    });
    let env = Arc::clone(lab.env());
    // At its end the lab cancels every wait.
    let (mapping, syncing) = lab
        .run(move |task| {
            let id = env.add_device(Arc::<Silent>::default());
            let cache = Cache::new(env, options).unwrap();
            let mut options = DeviceOptions {
                at_once: Pages(100),
                ..DeviceOptions::default()
            };
            // Its share of the limits is all of them from the start.
            options.tunables.min_ratio = 10_000;
            let device = cache.add_device(task, id, INFO, options).unwrap();
            let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
            let data = vec![Sector(5); 8 * 100];
            let mut writer = cache.writer();
            file.write(task, &mut writer, Bytes(0), &data).unwrap();
            let mapping = cache.mapping(task, 0).unwrap();
            let syncing = env::spawn(task.env(), "sync", move |task| {
                let synced = file.sync(task);
                (synced, cache.stats().dirty, file)
            });
            task.sleep(Cause::Think, Nanos::secs(60));
            assert_eq!(get(&mapping.dirty), 0);
            assert!(!mapping.queued.load(Ordering::Acquire));
            (mapping, syncing)
        })
        .unwrap();
    let (synced, dirty, _file) = syncing.try_join().unwrap();
    assert_eq!((synced, dirty), (Err(Error::Cancelled), Pages(84)));
    assert!(mapping.queued.load(Ordering::Acquire));
}
