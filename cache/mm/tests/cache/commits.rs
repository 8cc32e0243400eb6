//! Commits: what a sync of a little costs, and who shares it.

use std::sync::Arc;

use crate::common::{data, world};
use env::{Cause, IoError, ObjectId};
use mm::{Cache, Error, File};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Nanos};

const MIB: u64 = 1 << 20;
const EIO: IoError = IoError::Failed { errno: 5 };

fn put(task: &mut env::Task<'_>, cache: &Arc<Cache>, file: &File, page: u32) {
    let mut writer = cache.writer();
    let at = Bytes(u64::from(page) << 12);
    let written = file.write(task, &mut writer, at, &data(page, 1, 1));
    assert_eq!(written, Ok(Bytes(4096)));
}

fn sync_page(task: &mut env::Task<'_>, file: &File, page: u32) -> Result<(), Error> {
    file.sync_range(task, Bytes(u64::from(page) << 12), Bytes(4096))
}

#[test]
fn a_commit_is_one_durable_write_where_nothing_else_is_to_be_flushed() {
    let mut world = world(1024, 64 * MIB);
    world.disk.state().knows_durable = true;
    let disk = Arc::clone(&world.disk);
    world.run(16 << 12, move |task, cache, file| {
        let did = || {
            let state = disk.state();
            (state.writes, state.durable, state.flushes)
        };
        put(task, cache, file, 0);
        sync_page(task, file, 0).unwrap();
        assert_eq!(did(), (1, 0, 1), "what was there before was flushed");
        put(task, cache, file, 1);
        sync_page(task, file, 1).unwrap();
        assert_eq!(did(), (2, 1, 1));
        sync_page(task, file, 1).unwrap();
        assert_eq!(did(), (2, 1, 1), "nothing to do");
        put(task, cache, file, 3);
        put(task, cache, file, 9);
        file.sync(task).unwrap();
        assert_eq!(did(), (4, 1, 2), "two writes and a flush of both");
        put(task, cache, file, 16);
        sync_page(task, file, 16).unwrap();
        assert_eq!(did(), (5, 1, 3), "its length has changed");
    });
}

#[test]
fn a_durable_write_that_fails_may_have_failed_as_a_flush() {
    for others in [false, true] {
        let mut world = world(1024, 64 * MIB);
        world.disk.state().knows_durable = true;
        let disk = Arc::clone(&world.disk);
        world.run(16 << 12, move |task, cache, file| {
            file.assume_durable();
            let other = cache
                .open(task, DeviceIndex(0), ObjectId(2), Bytes(4096))
                .unwrap();
            if !others {
                other.assume_durable();
            }
            put(task, cache, file, 1);
            let writes = disk.state().writes;
            disk.state().fail_writes = writes..writes + 1;
            let failed = sync_page(task, file, 1);
            assert_eq!(disk.state().durable, 1);
            let offset = Bytes(4096);
            assert_eq!(failed, Err(Error::WriteFailed { offset, cause: EIO }));
            if others {
                // The other file's bytes may have been lost with the flush.
                let failed = Err(Error::FlushFailed { cause: EIO });
                assert_eq!((file.sync(task), other.sync(task)), (failed, failed));
                cache.reopen_device(task, DeviceIndex(0));
            }
            task.sleep(Cause::Think, Nanos::secs(40));
            let _ = file.sync(task);
            assert_eq!(file.sync(task), Ok(()));
            let _ = other.sync(task);
            assert_eq!(other.sync(task), Ok(()));
        });
        assert_eq!(world.disk.state().pages[&(1, 1)].to_vec(), data(1, 1, 1));
    }
}

#[test]
fn syncs_that_come_meanwhile_are_one() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(64 << 12, move |task, cache, file| {
        let tasks: Vec<_> = (0..32)
            .map(|page| {
                let (cache, file) = (Arc::clone(cache), Arc::clone(file));
                let disk = Arc::clone(&disk);
                env::spawn(task.env(), "committer", move |task| {
                    for round in 0..8 {
                        put(task, &cache, &file, page);
                        // By parts and whole, and at odd times.
                        match round % 3 {
                            0 => file.sync(task).unwrap(),
                            _ => sync_page(task, &file, page).unwrap(),
                        }
                        assert!(disk.state().pages.contains_key(&(1, u64::from(page))));
                        let pause = Nanos::micros(task.random() % 50);
                        task.sleep(Cause::Think, pause);
                    }
                })
            })
            .collect();
        for committer in tasks {
            committer.join(task).unwrap();
        }
        let state = disk.state();
        assert!(state.flushes <= 64, "256 syncs, {} flushes", state.flushes);
    });
}
