//! What a page of p0's latency worker costs, on one thread: a region of 128 MiB that fits is touched, 64 or 16 fresh pages a call or
//! one, and given back; and written, 64 pages a call. Beside it the same with anonymous memory of the kernel's, and what nobody can do
//! without: zeroing as many pages at once and a store to each, or a copy.
//!
//! Nanoseconds a page: the median of runs of 64 pages, so short that others' work seldom falls into one. What is above the
//! zeroing, and the way back, set the lab's costs of a page beside others (`lab::fs::costs::p0`).

use std::hint::black_box;
use std::time::Instant;

use tidegate::{Cache, Spill};

const REGION: usize = 128 << 20;
const PAGE: usize = 4096;
const TOGETHER: usize = 64;
const RUN: usize = TOGETHER * PAGE;
const ROUNDS: usize = 5;

fn main() {
    let builder = Cache::builder().memory(4 * REGION as u64).prefault(true);
    let cache = builder.build().expect("512 MiB");
    let region = cache.spill(REGION as u64).expect("a region that fits");
    for _ in 0..ROUNDS {
        // Its pages are there: what is measured is zeroing.
        let mut memory = vec![0_u8; REGION];
        let kernel = by_run(|at| store_to_each(&mut memory[at..at + RUN]));
        let above = [TOGETHER, 16, 1].map(|together| {
            let zero = by_run(|at| {
                for part in memory[at..at + RUN].chunks_exact_mut(together * PAGE) {
                    black_box(&mut *part).fill(0);
                    store_to_each(part);
                }
            });
            let (fresh, back) = round(&region, together);
            format!(
                "by {together} {:.1} ({zero:.1} zeroing), back {back:.1}",
                fresh - zero
            )
        });
        let data = [7_u8; RUN];
        let copy = by_run(|at| {
            let run = &mut memory[at..at + RUN];
            black_box(&mut *run).fill(0);
            run.copy_from_slice(&data);
            black_box(run);
        });
        let written = by_run(|at| {
            region.write_at(&data, at as u64).expect("it fits");
        });
        region
            .discard(0, REGION as u64)
            .expect("nobody else uses it");
        println!(
            "page of a round, ns: {}; written {:.1} ({copy:.1} zeroing and copy); kernel's fault {kernel:.1}",
            above.join("; "),
            written - copy
        );
    }
    drop(region);
    cache.close().expect("nothing to write");
}

/// A fresh page by `together` a call, and its way back.
fn round(region: &Spill, together: usize) -> (f64, f64) {
    let fresh = by_run(|at| {
        for first in (at..at + RUN).step_by(together * PAGE) {
            region
                .touch(first as u64, (together * PAGE) as u64)
                .expect("it fits");
        }
    });
    let back = by_run(|at| {
        region
            .discard(at as u64, RUN as u64)
            .expect("nobody else uses it");
    });
    (fresh, back)
}

fn store_to_each(run: &mut [u8]) {
    for page in run.chunks_exact_mut(PAGE) {
        page[0] = 1;
    }
    black_box(run);
}

/// Does it for each run of the region; answers the median of nanoseconds a page.
fn by_run(mut work: impl FnMut(usize)) -> f64 {
    let times = (0..REGION).step_by(RUN).map(|at| {
        let began = Instant::now();
        work(at);
        began.elapsed()
    });
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9 / (RUN / PAGE) as f64
}
