//! What a page of p0's latency worker costs, on one thread: a region of 128 MiB that fits is touched, 16 fresh pages a call or one,
//! and given back. Beside it the same with anonymous memory of the kernel's, and a page's zeroing alone.
//!
//! Nanoseconds a page: the median of runs of 64 pages, so short that others' work seldom falls into one. The lab's costs
//! of such a page are set by these ratios (`lab::fs::costs::p0`).

use std::hint::black_box;
use std::time::Instant;

use tidegate::Cache;

const REGION: usize = 128 << 20;
const PAGE: usize = 4096;
const RUN: usize = 64 * PAGE;
const ROUNDS: usize = 5;

fn main() {
    let builder = Cache::builder().memory(4 * REGION as u64).prefault(true);
    let cache = builder.build().expect("512 MiB");
    let region = cache.spill(REGION as u64).expect("a region that fits");
    for _ in 0..ROUNDS {
        let touch = |together: usize| {
            by_run(|at| {
                for first in (at..at + RUN).step_by(together * PAGE) {
                    region
                        .touch(first as u64, (together * PAGE) as u64)
                        .expect("it fits");
                }
            })
        };
        let back = || {
            by_run(|at| {
                region
                    .discard(at as u64, RUN as u64)
                    .expect("nobody else uses it")
            })
        };
        let (by_16, back_16) = (touch(16), back());
        let (by_1, back_1) = (touch(1), back());
        let mut memory = vec![0_u8; REGION];
        let kernel = by_run(|at| {
            let run = &mut memory[at..at + RUN];
            for page in run.chunks_exact_mut(PAGE) {
                page[0] = 1;
            }
            black_box(run);
        });
        let zero = by_run(|at| {
            for page in memory[at..at + RUN].chunks_exact_mut(PAGE) {
                black_box(page).fill(0);
            }
        });
        println!(
            "page of a round, by 16 {:.1} ns ({by_16:.1}, {back_16:.1} back), by 1 {:.1} ns ({by_1:.1}, {back_1:.1} back), \
             kernel's fault {kernel:.1} ns, zeroing {zero:.1} ns",
            by_16 + back_16,
            by_1 + back_1,
        );
    }
    drop(region);
    cache.close().expect("nothing to write");
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
