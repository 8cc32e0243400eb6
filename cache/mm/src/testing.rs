//! A cache in a lab of its size, for the tests of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{Device, DeviceId, DeviceInfo, IoRequest, ObjectId, Task};
use policy::units::Bytes;
use world::{Lab, LabEnv, Options as LabOptions, Sector};

use crate::{Cache, DeviceOptions, File, Options, Reader};

/// Runs `body` with a cache of these options, and shuts it down.
pub(crate) fn with_cache<T: Send + 'static>(
    options: Options,
    body: impl FnOnce(&mut Task<'_, LabEnv>, &Arc<Cache<LabEnv>>) -> T + Send + 'static,
) -> T {
    let mut lab = Lab::new(LabOptions {
        frames: options.frames,
        ..LabOptions::default()
    });
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = Cache::new(env, options).unwrap();
        let answer = body(task, &cache);
        cache.shutdown(task).unwrap();
        answer
    })
    .unwrap()
}

/// Reads a file of whole MiB on a device that the cache does not have yet, from end to end.
pub(crate) fn read_whole(
    task: &mut Task<'_, LabEnv>,
    cache: &Arc<Cache<LabEnv>>,
    id: DeviceId,
    len: Bytes,
) -> Arc<File<LabEnv>> {
    let options = DeviceOptions::default();
    let device = cache.add_device(task, id, INFO, options).unwrap();
    let file = cache.open(task, device, ObjectId(1), len).unwrap();
    let mut reader = Reader::default();
    let mut chunk = vec![Sector(0); 2048];
    for mib in 0..len.0 >> 20 {
        file.read(task, &mut reader, Bytes(mib << 20), &mut chunk)
            .unwrap();
    }
    file
}

/// What a device without wishes says of itself.
pub(crate) const INFO: DeviceInfo = DeviceInfo {
    alignment: 512,
    stable_writes: false,
    grow_ahead: None,
    prepares_writes: false,
    queue: None,
};

/// Completes everything at once.
pub(crate) struct Null;

impl Device for Null {
    fn submit(&self, request: Box<IoRequest>) {
        request.complete(&env::Interrupt::new(), Ok(()));
    }

    fn info(&self) -> DeviceInfo {
        INFO
    }
}
