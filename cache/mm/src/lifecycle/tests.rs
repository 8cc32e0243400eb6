//! Any end of a page's being busy wakes a task that waits for it.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{Cause, DeviceId, ObjectId, Signal, Task};
use frames::{Flags, FrameId, Owner};
use policy::dirty::DeviceIndex;
use policy::place::by_use::Purpose;
use policy::units::{Bytes, Nanos};
use world::{Lab, Options as LabOptions, Sector};

use crate::alloc::Wanted;
use crate::testing::{INFO, NULL, with_cache};
use crate::{Cache, DeviceOptions, Error, Options};

const FRAMES: u32 = 256;
const PAGE: Owner = Owner { file: 3, index: 7 };
const OTHER: Owner = Owner { file: 3, index: 8 };

/// Has a task wait for `PAGE` in a frame that is busy with it, and `change` what is there a
/// millisecond later; answers after how long the waiter went on. A waiter that nobody wakes is a
/// deadlock, which the lab reports.
fn let_go_by(
    change: impl FnOnce(&mut Task<'_>, &Arc<Cache>, frames::Busy) + Send + 'static,
) -> Nanos {
    with_cache(Options::new(FRAMES, 1), |task, cache| {
        let mut frames = Vec::new();
        cache
            .alloc(task, Wanted::new(1, Purpose::Anon), &mut frames)
            .unwrap();
        let frame: FrameId = frames[0];
        let busy = cache.pages.table.claim(frame);
        cache.pages.table.adopt(&busy, PAGE);
        let began = task.now();
        let theirs = Arc::clone(cache);
        let waiter = env::spawn(task.env(), "waiter", move |task| {
            theirs
                .wait_busy(task, Cause::PageBusy, frame, PAGE)
                .unwrap();
            task.now()
        });
        task.sleep(Cause::Think, Nanos::millis(1));
        change(task, cache, busy);
        waiter.join(task).unwrap().since(began)
    })
}

#[test]
fn a_page_that_could_not_be_put_into_the_index_lets_its_waiters_go() {
    let waited = let_go_by(|_, cache, busy| {
        cache.disown(busy);
    });
    assert!(waited < Nanos::millis(2), "{waited:?}");
}

#[test]
fn a_waiter_is_no_hostage_of_the_frames_next_page() {
    let waited = let_go_by(|task, cache, busy| {
        // Woken, the waiter finds the frame in its next life: busy, and still under the old name.
        let frame = cache.pages.table.disown(busy);
        let busy = cache.pages.table.claim(frame);
        cache.wake_busy(&[frame], Signal::PageUnlocked);
        task.sleep(Cause::Think, Nanos::millis(1));
        cache.pages.table.adopt(&busy, OTHER);
        // Its read takes long.
        task.sleep(Cause::Think, Nanos::secs(30));
        cache.release(busy, Flags::UPTODATE, Flags::NONE);
    });
    assert!(waited < Nanos::millis(2), "{waited:?}");
}

#[test]
fn a_new_file_has_the_lowest_number_that_is_free() {
    let mut options = Options::new(FRAMES, 1);
    options.files_max = 4;
    with_cache(options, |task, cache| {
        let device = cache.add_device(task, DeviceId(0), INFO, DeviceOptions::default());
        let device = device.unwrap();
        let open = |task: &mut Task<'_>| {
            let opened = cache.open(task, device, ObjectId(0), Bytes::ZERO);
            // There is no such device, which is not asked for anything then.
            opened.inspect(|file| file.assume_durable())
        };
        let files: Vec<_> = (0..4).map(|_| open(task).unwrap()).collect();
        let full = Error::TooMany {
            what: "files",
            limit: 4,
        };
        assert_eq!(open(task).err(), Some(full));
        for gone in [2, 0, 3] {
            files[gone].discard(task).unwrap();
        }
        for id in [0, 2, 3] {
            assert_eq!(open(task).unwrap().mapping.id, id);
        }
        assert_eq!(open(task).err(), Some(full));
    });
}

#[test]
fn a_file_that_was_written_goes_with_its_cache() {
    let file = with_cache(Options::new(FRAMES, 1), |task, cache| {
        let device = cache.add_device(task, NULL, INFO, DeviceOptions::default());
        let device = device.unwrap();
        let file = cache.open(task, device, ObjectId(0), Bytes::ZERO).unwrap();
        let data = vec![Sector(5); 8];
        file.write(task, &mut cache.writer(), Bytes::ZERO, &data)
            .unwrap();
        Arc::downgrade(&file.mapping)
    });
    assert!(
        file.upgrade().is_none(),
        "the device's lists and the file hold each other"
    );
}

#[test]
fn a_device_that_finds_no_thread_leaves_its_place() {
    let mut lab = Lab::new(LabOptions {
        frames: 1024,
        ..LabOptions::default()
    });
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        env.refuse_tasks(true);
        let refused = Cache::new(env.clone(), Options::new(1024, 2)).err();
        assert!(matches!(refused, Some(Error::NoThread { .. })));
        env.refuse_tasks(false);
        let mut options = Options::new(1024, 2);
        options.devices_max = 1;
        let cache = Cache::new(env.clone(), options).unwrap();
        let add = |task: &mut Task<'_>| {
            cache.add_device(task, DeviceId(0), INFO, DeviceOptions::default())
        };
        env.refuse_tasks(true);
        for _ in 0..2 {
            let refused = add(task).unwrap_err();
            assert!(
                matches!(
                    refused,
                    Error::NoThread {
                        task: "flusher",
                        ..
                    }
                ),
                "{refused}"
            );
        }
        env.refuse_tasks(false);
        assert_eq!(add(task), Ok(DeviceIndex(0)));
        let _ = cache.shutdown(task);
    })
    .unwrap();
}

#[test]
fn a_law_with_rooms_of_a_kernel_is_refused_without_one() {
    let plain = Options::new(1_024, 1);
    let law = |law| {
        let mut options = plain.clone();
        options.reclaim.law = law;
        options
    };
    let boosts = Options {
        boost: history::boost::LINUX_5_0,
        ..plain.clone()
    };
    for options in [
        law(history::reclaim::LINUX_3_0),
        law(history::reclaim::LINUX_6_12_MGLRU),
        boosts,
    ] {
        let without = options.check(false);
        assert!(
            matches!(without, Err(Error::BadOption { .. })),
            "{without:?}"
        );
        assert_eq!(options.check(true), Ok(()));
    }
    assert_eq!(plain.check(false), Ok(()));
}
