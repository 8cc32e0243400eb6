//! Five phases, each with another need: point reads, scans, a load, reads and updates, point reads
//! of another range.

use std::sync::Arc;

use crate::engine::Engine;
use crate::store::{Counts, ROW, Store};

/// Data is this many times the limit.
const DATA: u64 = 8;
/// Rows of a scan.
const SCAN: u64 = 64;
/// A phase is judged without its first part: what a change costs is in the whole.
const FIRST_PART: u64 = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// Point reads (YCSB C).
    C,
    /// Scans (YCSB E).
    E,
    /// Puts.
    Load,
    /// Half reads, half updates (YCSB A).
    A,
    /// Point reads of rows that were cold.
    Other,
}

impl Phase {
    pub(crate) const ALL: [Self; 5] = [Self::C, Self::E, Self::Load, Self::A, Self::Other];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "reads",
            Self::E => "scans",
            Self::Load => "load",
            Self::A => "mixed",
            Self::Other => "other-reads",
        }
    }
}

/// The operations and counts of a phase, and of the part of it that is judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) ops: u64,
    pub(crate) whole: Counts,
    pub(crate) rest_ops: u64,
    pub(crate) rest: Counts,
    pub(crate) real: std::time::Duration,
}

/// Keys and their popularity.
pub(crate) struct Keys {
    keys: u64,
    random: u64,
    sum: u64,
}

impl Keys {
    /// `limit`: a power of two.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            keys: limit * DATA / ROW as u64,
            random: 0x1234_5678_9abc_def1,
            sum: 0,
        }
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A rank with popularity 1/rank, spread over all keys: hot rows lie in cold blocks. `range`
    /// gives each range hot rows of its own.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below the number of keys"
    )]
    fn skewed(&mut self, range: u64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((self.keys as f64 + 1.0).powf(uniform) - 1.0) as u64;
        (rank + range * (self.keys / 4))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(17)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            % self.keys
    }

    fn step(&mut self, engine: &Engine, phase: Phase, row: &Arc<[u8]>) {
        self.sum = self.sum.wrapping_add(match phase {
            Phase::C => u64::from(engine.get(self.skewed(0))[0]),
            Phase::Other => u64::from(engine.get(self.skewed(3))[0]),
            Phase::E => {
                let from = self.skewed(1);
                engine.scan(from, SCAN)
            }
            Phase::Load => {
                engine.put(self.skewed(2), row.clone());
                0
            }
            Phase::A if self.next().is_multiple_of(2) => u64::from(engine.get(self.skewed(0))[0]),
            Phase::A => {
                engine.put(self.skewed(0), row.clone());
                0
            }
        });
    }

    /// Runs a phase for `seconds` of the model.
    pub(crate) fn run(
        &mut self,
        engine: &Engine,
        store: &Store,
        phase: Phase,
        seconds: u64,
    ) -> Done {
        let row: Arc<[u8]> = vec![3; ROW].into();
        let began = (store.counts(), std::time::Instant::now());
        let length = seconds * 1_000_000_000;
        let (first, end) = (began.0.time + length / FIRST_PART, began.0.time + length);
        let mut done = Done::default();
        let mut middle = None;
        while store.now() < end {
            if middle.is_none() && store.now() >= first {
                middle = Some((store.counts(), done.ops));
            }
            // A copy a row, as of a request.
            let row = Arc::from(&*row);
            self.step(engine, phase, &row);
            done.ops += 1;
        }
        let (middle, ops) = middle.unwrap_or((began.0, 0));
        let after = store.counts();
        let less = |from: Counts| Counts {
            reads: after.reads - from.reads,
            writes: after.writes - from.writes,
            time: after.time - from.time,
        };
        done.whole = less(began.0);
        done.rest = less(middle);
        done.rest_ops = done.ops - ops;
        done.real = began.1.elapsed();
        done
    }
}
