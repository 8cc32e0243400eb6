//! What only this crate can see: the cost of a page scanned.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;
use std::time::Instant;

use env::{Device, DeviceInfo, IoRequest, ObjectId};
use lab::{Lab, Options as LabOptions, Sector};
use policy::reclaim::throttle::Who;
use policy::units::{Bytes, Pages};

use crate::{Cache, DeviceOptions, Item, Options, Reader};

/// Completes everything at once.
struct Null;

impl Device for Null {
    fn submit(&self, request: Box<IoRequest>) {
        request.complete(&env::Interrupt::new(), Ok(()));
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            alignment: 512,
            stable_writes: false,
            grows_slowly: false,
            prepares_writes: false,
            queue: None,
        }
    }
}

/// Reclaims half of a cache full of clean pages, twice over, and answers nanoseconds a page scanned.
fn scan_cost(frames: u32) -> f64 {
    let mut lab = Lab::new(LabOptions {
        frames,
        ..LabOptions::default()
    });
    let id = lab.add_device(Arc::new(Null));
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = Cache::new(env, Options::new(frames, 2)).unwrap();
        let info = Null.info();
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let len = Bytes(u64::from(frames) << 12);
        let file = cache.open(task, device, ObjectId(1), len).unwrap();
        let mut reader = Reader::default();
        let mut chunk = vec![Sector(0); 2048];
        for mib in 0..len.0 >> 20 {
            file.read(task, &mut reader, Bytes(mib << 20), &mut chunk)
                .unwrap();
        }
        let scanned = |cache: &Cache<_>| cache.vmstat().get(Item::PgscanDirect);
        let before = scanned(&cache);
        let began = Instant::now();
        let half = Pages(u64::from(frames / 2));
        let freed = super::direct::direct(task, &cache, half, Who::DIRECT);
        let took = began.elapsed();
        assert!(freed >= half, "{freed:?}");
        let pages = scanned(&cache) - before;
        let _ = cache.shutdown(task);
        took.as_secs_f64() * 1e9 / pages as f64
    })
    .unwrap()
}

#[test]
fn half_of_the_clean_pages_go_when_asked_for() {
    assert!(scan_cost(4096) > 0.0);
}

/// `cargo test --release -p tidegate-mm --lib -- --ignored --nocapture cost_of`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_page_scanned() {
    for frames in [16_384, 65_536, 262_144] {
        let costs = [0; 3].map(|_| scan_cost(frames));
        println!("{frames} frames: {costs:.1?} ns a page scanned and freed");
    }
}
