//! A cache in a lab of its size, for the tests of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{DeviceId, ObjectId, Task};
use policy::reclaim::{Loops, ReclaimLaw, Rules};
use policy::units::Bytes;
pub(crate) use testkit::null::{INFO, NULL, Null};
use world::{Lab, LabEnv, Options as LabOptions, Sector};

use crate::{Cache, DeviceOptions, File, Options, Reader};

/// Runs `body` with a cache of these options, and shuts it down.
pub(crate) fn with_cache<T: Send + 'static>(
    options: Options,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    with_lab(options, |task, cache, _| body(task, cache))
}

/// The same, with the lab that it is in.
pub(crate) fn with_lab<T: Send + 'static>(
    options: Options,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &LabEnv) -> T + Send + 'static,
) -> T {
    let mut lab = Lab::new(LabOptions {
        frames: options.frames,
        ..LabOptions::default()
    });
    assert_eq!(lab.add_device(Arc::new(Null)), NULL);
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = Cache::new(env.clone(), options).unwrap();
        let answer = body(task, &cache, &env);
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

/// A law over nodes that is otherwise one over zones, which takes a kernel.
pub(crate) fn over_nodes(law: ReclaimLaw) -> ReclaimLaw {
    ReclaimLaw::new(Box::leak(Box::new(Rules {
        loops: Loops::Nodes,
        ..*law.rules()
    })))
}
