//! The flushes that the end of a file costs: one where something of it is not durable, else none.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use crate::common::{Disk, data, world};
use env::{ObjectId, Task};
use mm::{Access, Cache, Error, File, Reader};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Pages};
use world::Sector;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const DEVICE: DeviceIndex = DeviceIndex(0);

/// Something that happens to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
    Store,
    Lengthen,
    Shorten,
    Punch,
    Allocate,
    Sync,
    SyncPart,
    WriteFails,
    FlushFails,
}

const DEEDS: [Deed; 11] = [
    Deed::Read,
    Deed::Write,
    Deed::Store,
    Deed::Lengthen,
    Deed::Shorten,
    Deed::Punch,
    Deed::Allocate,
    Deed::Sync,
    Deed::SyncPart,
    Deed::WriteFails,
    Deed::FlushFails,
];

/// All sequences of at most `most` deeds.
fn sequences(most: u32) -> Vec<Vec<Deed>> {
    let mut all = vec![Vec::new()];
    for _ in 0..most {
        let longer = all.iter().flat_map(|before| {
            DEEDS.map(|deed| before.iter().copied().chain([deed]).collect::<Vec<_>>())
        });
        all = core::iter::once(Vec::new()).chain(longer).collect();
    }
    all
}

/// The parts of a file that are not durable.
#[derive(Clone, Copy, Debug)]
struct Owed {
    /// Its content when it was opened: a sync covers it, the end of the file need not.
    stood: bool,
    changes: bool,
}

struct Scene<'a> {
    cache: &'a Arc<Cache>,
    disk: &'a Disk,
}

impl Scene<'_> {
    fn open(&self, task: &mut Task<'_>, object: u32, len: u64) -> (Arc<File>, Owed) {
        let object = ObjectId(object);
        let file = self.cache.open(task, DEVICE, object, Bytes(len)).unwrap();
        let owed = Owed {
            stood: len > 0,
            // An empty one may have been made just now.
            changes: len == 0,
        };
        (file, owed)
    }

    fn write(&self, task: &mut Task<'_>, file: &File) {
        let mut writer = self.cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 1, 1))
            .unwrap();
        self.cache.retire(task, writer);
    }

    fn does(&self, task: &mut Task<'_>, file: &File, deed: Deed, owed: &mut Owed) {
        let len = file.len().0;
        let changes = match deed {
            Deed::Read => {
                let mut back = vec![Sector(0); 8];
                file.read(task, &mut Reader::default(), Bytes(0), &mut back)
                    .unwrap();
                false
            }
            Deed::Write => {
                self.write(task, file);
                true
            }
            Deed::Store if len < PAGE => false,
            Deed::Store => {
                let map = file.map(task, Pages(len / PAGE)).unwrap();
                let mut writer = self.cache.writer();
                map.touch(task, &mut writer, (0, 1), Access::Store).unwrap();
                self.cache.retire(task, writer);
                true
            }
            Deed::Lengthen => {
                file.truncate(task, Bytes(len + 4 * PAGE)).unwrap();
                true
            }
            Deed::Shorten => {
                file.truncate(task, Bytes(len / 2 / PAGE * PAGE)).unwrap();
                len > 0
            }
            Deed::Punch => {
                file.punch(task, Bytes(0), Bytes(len / 2 / PAGE * PAGE))
                    .unwrap();
                len >= 2 * PAGE
            }
            Deed::Allocate => {
                file.allocate(task, Bytes(len + PAGE)).unwrap();
                true
            }
            Deed::Sync | Deed::SyncPart => {
                let before = self.disk.state().flushes;
                match deed {
                    Deed::Sync => file.sync(task).unwrap(),
                    _ => file.sync_range(task, Bytes(0), Bytes(MIB)).unwrap(),
                }
                let flushes = self.disk.state().flushes - before;
                assert_eq!(flushes, u64::from(owed.stood || owed.changes), "{owed:?}");
                *owed = Owed {
                    stood: false,
                    changes: false,
                };
                false
            }
            Deed::WriteFails => {
                self.write(task, file);
                let writes = self.disk.state().writes;
                self.disk.state().fail_writes = writes..writes + 1;
                let synced = file.sync(task);
                assert!(matches!(synced, Err(Error::WriteFailed { .. })));
                true
            }
            Deed::FlushFails => {
                self.write(task, file);
                self.disk.state().fail_flushes = true;
                let synced = file.sync(task);
                assert!(matches!(synced, Err(Error::FlushFailed { .. })));
                self.disk.state().fail_flushes = false;
                self.cache.reopen_device(task, DEVICE);
                true
            }
        };
        owed.changes |= changes;
    }
}

#[test]
fn the_end_of_a_file_flushes_what_is_not_durable_once_and_nothing_else() {
    let mut world = world(4096, 64 * MIB);
    world.options.files_max = 8;
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, _| {
        let scene = Scene { cache, disk: &disk };
        for (object, deeds) in (2..).zip(sequences(3)) {
            for len in [0, 16 * PAGE] {
                let (file, mut owed) = scene.open(task, object, len);
                for deed in &deeds {
                    scene.does(task, &file, *deed, &mut owed);
                }
                let before = disk.state().flushes;
                file.close(task).unwrap();
                let flushes = disk.state().flushes - before;
                assert_eq!(flushes, u64::from(owed.changes), "{len} {deeds:?}");
            }
        }
    });
}

#[test]
fn the_end_of_a_cache_flushes_each_file_that_is_not_durable_once() {
    // Failures are the device's: each file would hear of all.
    let fails = |deed: &Deed| matches!(deed, Deed::WriteFails | Deed::FlushFails);
    let sequences = sequences(2).into_iter();
    let sequences: Vec<_> = sequences.filter(|deeds| !deeds.iter().any(fails)).collect();
    for ends in [false, true] {
        let sequences = sequences.clone();
        let mut world = world(4096, 64 * MIB);
        let disk = Arc::clone(&world.disk);
        world.run(PAGE, move |task, cache, first| {
            first.assume_durable();
            let scene = Scene { cache, disk: &disk };
            let (mut expected, mut files) = (0, Vec::new());
            for (object, deeds) in (2..).zip(&sequences) {
                let len = 16 * PAGE * u64::from(object % 2);
                let (file, mut owed) = scene.open(task, object, len);
                for deed in deeds {
                    scene.does(task, &file, *deed, &mut owed);
                }
                expected += u64::from(owed.changes || owed.stood && !ends);
                files.push(file);
            }
            let before = disk.state().flushes;
            match ends {
                false => cache.sync(task).unwrap(),
                true => cache.shutdown(task).unwrap(),
            }
            assert_eq!(disk.state().flushes - before, expected);
        });
    }
}

#[test]
fn a_file_that_could_not_be_closed_owes_what_stood_in_it_again() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, first| {
        let scene = Scene { cache, disk: &disk };
        let (file, _) = scene.open(task, 2, 16 * PAGE);
        scene.write(task, first);
        disk.state().fail_flushes = true;
        first.sync(task).unwrap_err();
        file.close(task).unwrap_err();
        disk.state().fail_flushes = false;
        cache.reopen_device(task, DEVICE);
        let before = disk.state().flushes;
        file.sync(task).unwrap();
        assert_eq!(disk.state().flushes - before, 1);
    });
}
