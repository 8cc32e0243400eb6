//! The cost of a page of p0's latency worker, on one thread: a region that fits is touched, 2048
//! fresh pages a call, 64, 16 or one, and given back; and written, 64 pages a call. The worker
//! touches all of its 32768 in one call. Beside it the same with anonymous memory of the kernel's,
//! and what nobody can do without: zeroing as many pages at once (64 at most) and a store to each,
//! or a copy.
//!
//! Nanoseconds a page: the median of runs of 64 pages (2048 where a call has as many), so short
//! that others' work seldom falls into one. The time above the zeroing, and the way back, set the
//! lab's costs of a page beside others (`world::fs::costs::p0`).

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use frames::{Busy, Content, Data, FrameId, FrameTable};
use os::{Arena, ThreadEnv};
use tidegate::{Cache, Spill};

/// A size that fits the CPU's caches, where zeroing is as fast as on p0's machine, and the worker's
/// own.
const REGIONS: [usize; 2] = [8 << 20, 128 << 20];
const PAGE: usize = 4096;
const TOGETHER: usize = 64;
const RUN: usize = TOGETHER * PAGE;
const ROUNDS: usize = 9;

fn main() {
    let builder = Cache::builder().memory(512 << 20).prefault(true);
    let cache = builder.build().expect("512 MiB");
    for len in REGIONS {
        let region = cache.spill(len as u64).expect("a region that fits");
        for _ in 0..ROUNDS {
            println!("{:4} MiB: {}", len >> 20, rounds(&region, len));
        }
    }
    cache.close().expect("nothing to write");
}

/// One measurement of each, in words.
fn rounds(region: &Spill, len: usize) -> String {
    let mut memory = vec![0_u8; len];
    let kernel = by_run(len, |at| store_to_each(&mut memory[at..at + RUN]));
    let bare = Bare::new(len);
    let above = [2048, TOGETHER, 16, 1].map(|together| {
        let zero = by_run(len, |at| {
            for part in bare.run(at).chunks(together) {
                bare.zero(part);
                part.iter().for_each(|page| bare.arena().mark(page, 1));
            }
        });
        let (fresh, back) = round(region, len, together);
        format!(
            "by {together} {:.1} ({zero:.1} zeroing), back {back:.1}",
            fresh - zero
        )
    });
    let data = [7_u8; RUN];
    let copy = by_run(len, |at| {
        bare.zero(bare.run(at));
        for (page, from) in bare.run(at).iter().zip((0..RUN).step_by(PAGE)) {
            bare.arena()
                .copy_in(page, 0, Data::Bytes(&data), from, PAGE);
        }
    });
    let written = by_run(len, |at| {
        region.write_at(&data, at as u64).expect("it fits");
    });
    region.discard(0, len as u64).expect("nobody else uses it");
    format!(
        "page of a round, ns: {}; written {:.1} ({copy:.1} zeroing and copy); kernel's fault {kernel:.1}",
        above.join("; "),
        written - copy
    )
}

/// Frames that nobody else uses, in memory like the cache's.
struct Bare {
    env: Arc<ThreadEnv>,
    pages: Vec<Busy>,
}

impl Bare {
    fn new(len: usize) -> Self {
        let frames = u32::try_from(len / PAGE).expect("below a TiB");
        let env = ThreadEnv::start(os::Options::new(frames)).expect("memory for it");
        for first in (0..frames).step_by(env.arena().chunk_frames() as usize) {
            env.arena().populate(FrameId(first)).expect("memory for it");
        }
        let table = FrameTable::new(frames);
        let pages = (0..frames).map(|frame| table.claim(FrameId(frame)));
        let pages = pages.collect();
        Self { env, pages }
    }

    fn arena(&self) -> &Arena {
        self.env.arena()
    }

    fn run(&self, at: usize) -> &[Busy] {
        &self.pages[at / PAGE..][..TOGETHER]
    }

    fn zero(&self, pages: &[Busy]) {
        self.arena().zero_all(black_box(pages));
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.env.shutdown();
    }
}

/// A fresh page by `together` a call, and its way back.
fn round(region: &Spill, len: usize, together: usize) -> (f64, f64) {
    let run = RUN.max(together * PAGE);
    let fresh = by_runs(len, run, |at| {
        for first in (at..at + run).step_by(together * PAGE) {
            region
                .touch(first as u64, (together * PAGE) as u64)
                .expect("it fits");
        }
    });
    let back = by_run(len, |at| {
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

fn by_run(len: usize, work: impl FnMut(usize)) -> f64 {
    by_runs(len, RUN, work)
}

/// Does it for each run of the region; answers the median of nanoseconds a page.
fn by_runs(len: usize, run: usize, mut work: impl FnMut(usize)) -> f64 {
    let times = (0..len).step_by(run).map(|at| {
        let began = Instant::now();
        work(at);
        began.elapsed()
    });
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9 / (run / PAGE) as f64
}
