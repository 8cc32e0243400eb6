//! A cache in a lab of its size, for the tests of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use crate::compact::Compactor;
use crate::{Kernel, Parts};
use env::{DeviceId, ObjectId, Task};
use policy::units::Bytes;
pub(crate) use testkit::null::{INFO, NULL, Null};
use world::{Lab, LabEnv, Options as LabOptions, Sector};

use mm::inside::Place;
use mm::{Cache, DeviceOptions, Error, File, Options, Reader};

impl Kernel {
    /// With that way to huge pages.
    pub(crate) fn with_compactor(place: &Place, compactor: Arc<Compactor>) -> Self {
        let parts = Parts::default();
        Self {
            compactor: Some(compactor),
            ..Self::plain(place, (parts.shrink, parts.shares))
        }
    }
}

/// Runs `body` with a cache of these options and this way to huge pages, and shuts it down.
pub(crate) fn with_compactor<T: Send + 'static>(
    options: Options,
    compactor: Arc<Compactor>,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    let frames = options.frames;
    let build = move |env: Arc<LabEnv>| {
        Cache::with_kernel(env, options, &|place| {
            Arc::new(Kernel::with_compactor(place, Arc::clone(&compactor)))
        })
    };
    with_built(frames, build, body)
}

/// The same where the overhead of pages takes frames.
pub(crate) fn with_overhead<T: Send + 'static>(
    options: Options,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    let parts = Parts {
        overhead: true,
        ..Parts::default()
    };
    with_built(
        options.frames,
        move |env| crate::build(env, options, parts),
        body,
    )
}

/// Runs `body` with a cache of these options, and shuts it down.
pub(crate) fn with_cache<T: Send + 'static>(
    options: Options,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    with_built(
        options.frames,
        |env| crate::build(env, options, Parts::default()),
        body,
    )
}

fn with_built<T: Send + 'static>(
    frames: u32,
    build: impl FnOnce(Arc<LabEnv>) -> Result<Arc<Cache>, Error> + Send + 'static,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    let mut lab = Lab::new(LabOptions {
        frames,
        ..LabOptions::default()
    });
    assert_eq!(lab.add_device(Arc::new(Null)), NULL);
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = build(env).unwrap();
        let answer = body(task, &cache);
        cache.shutdown(task).unwrap();
        answer
    })
    .unwrap()
}

/// Reads a file of whole MiB on a device that the cache does not have yet, from end to end.
pub(crate) fn read_whole(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    id: DeviceId,
    len: Bytes,
) -> Arc<File> {
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
