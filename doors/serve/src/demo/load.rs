//! Writers with a schedule, and what they met: the load of the demonstration and of `cargo xtask
//! bench serve`.
//!
//! ```text
//!   due ........ due ........ due        every so often; one call at a time
//!    |--call--|   |----call (held)------|-call-|
//!    |<-took->|   |<------ took ------->|
//!                              |<---- took --->|   it was due while the one before it was held: that is the
//!                                                  server's doing, so its time counts from when it was due
//! ```
//!
//! A writer that is woken late by a busy machine counts from when it began: that is nobody's doing.
//! A *heavy* writer behind its schedule does not catch up: at no time is it faster than its rate. A
//! *light* one keeps its times.
//!
//! A block holds its place and its version over and over, so a reader knows whether it is the block
//! that was written last.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a write.
pub const BLOCK: usize = 4096;
/// A write that takes this long was held up: a *pause*, no matter which server it is. Our law holds
/// nobody for less; what takes 1 to 4 ms without being held, on a machine that does other things
/// too, was waiting for a CPU.
pub const PAUSE_MIN: Duration = Duration::from_millis(5);

/// A target that takes blocks.
pub trait Target: Send {
    /// Writes, and waits until that has been answered.
    ///
    /// # Errors
    /// The other side's error.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The other side's error.
    fn flush(&mut self) -> io::Result<()>;
}

/// A file or block device, through the kernel's page cache.
impl Target for File {
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The plan of a writer.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time from one write to the next; zero: one after the other.
    pub every: Duration,
    /// A late write does not move those after it.
    pub keeps_times: bool,
    /// First byte of the range that it writes to.
    pub offset: u64,
    /// Blocks of that range; each write goes to one of them by chance.
    pub blocks: u64,
    /// A flush after this many writes; zero: none.
    pub flush_every: u64,
    /// Of the order of the blocks.
    pub seed: u64,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// From when it counts, since the beginning.
    pub from: Duration,
    /// Until it was answered.
    pub took: Duration,
    /// A flush, not a write.
    pub is_flush: bool,
}

/// The measurements of a writer, and the versions it left behind.
#[derive(Debug, Default)]
pub struct Met {
    /// All calls in order.
    pub calls: Vec<Call>,
    /// The last version of each block that was answered; zero: not written.
    pub versions: Vec<u32>,
}

/// Writes from `begin` until `begin + lasting`, or until told to stop. `done` counts the writes.
///
/// # Errors
/// The target's.
pub fn run(
    target: &mut dyn Target,
    plan: &Plan,
    begin: Instant,
    lasting: Duration,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> io::Result<Met> {
    let mut met = Met {
        calls: Vec::with_capacity(1 << 16),
        versions: vec![0; usize::try_from(plan.blocks).unwrap_or(0)],
    };
    let mut chance = plan.seed;
    let mut data = [0; BLOCK];
    let mut due = begin;
    let mut last_end = begin;
    let mut writes = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < due {
            // In parts, so that a stop is seen.
            std::thread::sleep((due - now).min(Duration::from_millis(50)));
            continue;
        }
        if now - begin >= lasting {
            break;
        }
        let place = below(&mut chance, plan.blocks);
        let slot = usize::try_from(place).unwrap_or(0);
        let version = met.versions[slot] + 1;
        let offset = plan.offset + place * BLOCK as u64;
        stamp(&mut data, offset, version);
        let from = if plan.keeps_times && last_end > due {
            due
        } else {
            Instant::now()
        };
        target.write(offset, &data)?;
        last_end = Instant::now();
        met.versions[slot] = version;
        met.calls.push(Call {
            from: from - begin,
            took: last_end - from,
            is_flush: false,
        });
        done.fetch_add(1, Ordering::Relaxed);
        writes += 1;
        due = if plan.keeps_times {
            due + plan.every
        } else {
            due.max(now) + plan.every
        };
        if plan.flush_every > 0 && writes.is_multiple_of(plan.flush_every) {
            let from = Instant::now();
            target.flush()?;
            last_end = Instant::now();
            met.calls.push(Call {
                from: from - begin,
                took: last_end - from,
                is_flush: true,
            });
        }
    }
    Ok(met)
}

/// Fills a block with its place and version.
pub fn stamp(block: &mut [u8; BLOCK], offset: u64, version: u32) {
    let word = word(offset, version).to_le_bytes();
    for part in block.chunks_exact_mut(8) {
        part.copy_from_slice(&word);
    }
}

/// True if a block is this version of that place; version zero: nothing but zeroes.
#[must_use]
pub fn is_stamped(block: &[u8], offset: u64, version: u32) -> bool {
    let mut wanted = [0; BLOCK];
    if version > 0 {
        stamp(&mut wanted, offset, version);
    }
    block == wanted
}

fn word(offset: u64, version: u32) -> u64 {
    (offset / BLOCK as u64) << 32 | u64::from(version)
}

/// Less than `end`, by chance (splitmix64).
fn below(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % end.max(1)
}

/// Lengths of calls, sorted.
#[derive(Clone, Debug, Default)]
pub struct Lengths(Vec<Duration>);

impl FromIterator<Duration> for Lengths {
    fn from_iter<I: IntoIterator<Item = Duration>>(lengths: I) -> Self {
        let mut lengths: Vec<Duration> = lengths.into_iter().collect();
        lengths.sort_unstable();
        Self(lengths)
    }
}

impl Lengths {
    /// Number of lengths.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest that is not exceeded by `thousandths` of them.
    #[must_use]
    pub fn percentile(&self, thousandths: usize) -> Option<Duration> {
        figures::quantile(&self.0, thousandths)
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        self.0.last().copied()
    }
}

impl Met {
    /// Lengths of the writes that count from at or after `from`.
    #[must_use]
    pub fn writes(&self, from: Duration) -> Lengths {
        let calls = self.calls.iter();
        calls
            .filter(|call| !call.is_flush && call.from >= from)
            .map(|call| call.took)
            .collect()
    }

    /// Lengths of the writes that were held up.
    #[must_use]
    pub fn pauses(&self, from: Duration) -> Lengths {
        let writes = self.writes(from).0.into_iter();
        writes.filter(|took| *took >= PAUSE_MIN).collect()
    }

    /// Lengths of the flushes.
    #[must_use]
    pub fn flushes(&self, from: Duration) -> Lengths {
        let calls = self.calls.iter();
        calls
            .filter(|call| call.is_flush && call.from >= from)
            .map(|call| call.took)
            .collect()
    }

    /// Lengths of the writes that overlap a flush of another writer, and of those that do not.
    #[must_use]
    pub fn beside_flushes_of(&self, other: &Self, from: Duration) -> (Lengths, Lengths) {
        let flushes: Vec<(Duration, Duration)> = other
            .calls
            .iter()
            .filter(|call| call.is_flush)
            .map(|call| (call.from, call.from + call.took))
            .collect();
        let overlaps = |call: &&Call| {
            let end = call.from + call.took;
            // Sorted, and none overlaps the next.
            let next = flushes.partition_point(|(_, ended)| *ended < call.from);
            flushes.get(next).is_some_and(|(began, _)| *began <= end)
        };
        let writes = self.calls.iter();
        let (during, apart): (Vec<&Call>, Vec<&Call>) = writes
            .filter(|call| !call.is_flush && call.from >= from)
            .partition(overlaps);
        let lengths = |calls: Vec<&Call>| calls.into_iter().map(|call| call.took).collect();
        (lengths(during), lengths(apart))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `held` for each write whose number is in the list.
    struct Fake {
        held: Vec<(u64, Duration)>,
        writes: u64,
    }

    impl Target for Fake {
        fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
            let held = self.held.iter().find(|(at, _)| *at == self.writes);
            self.writes += 1;
            if let Some((_, time)) = held {
                std::thread::sleep(*time);
            }
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
    }

    fn plan(every_ms: u64, keeps_times: bool) -> Plan {
        Plan {
            every: Duration::from_millis(every_ms),
            keeps_times,
            offset: 1 << 20,
            blocks: 16,
            flush_every: 0,
            seed: 1,
        }
    }

    fn run_for(plan: &Plan, lasting_ms: u64, held: &[(u64, u64)]) -> Met {
        let held = held
            .iter()
            .map(|(at, ms)| (*at, Duration::from_millis(*ms)))
            .collect();
        let mut target = Fake { held, writes: 0 };
        let lasting = Duration::from_millis(lasting_ms);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let met = run(&mut target, plan, Instant::now(), lasting, &stop, &done).unwrap();
        assert_eq!(done.load(Ordering::Relaxed), target.writes);
        met
    }

    #[test]
    fn what_was_due_while_another_was_held_counts_from_then() {
        let met = run_for(&plan(20, true), 300, &[(2, 110)]);
        // The third is held for 110 ms; five are due meanwhile: 90, 70, 50, 30, 10 ms late.
        let late = met.writes(Duration::ZERO);
        assert!(late.max() >= Some(Duration::from_millis(110)));
        let took: Vec<bool> = met.calls[2..7]
            .iter()
            .map(|call| call.took >= Duration::from_millis(25))
            .collect();
        assert_eq!(took, [true; 5], "{:?}", met.calls);
        assert!(
            met.calls.len() >= 14,
            "it keeps its times: {}",
            met.calls.len()
        );
    }

    #[test]
    fn a_heavy_writer_does_not_catch_up() {
        let met = run_for(&plan(20, false), 300, &[(2, 150)]);
        assert!(met.calls.len() <= 10, "{}", met.calls.len());
        assert_eq!(met.pauses(Duration::ZERO).count(), 1);
    }

    #[test]
    fn versions_count_the_writes_of_a_block() {
        let met = run_for(&plan(0, false), 5, &[]);
        let all: u64 = met.versions.iter().map(|version| u64::from(*version)).sum();
        assert_eq!(all, met.calls.len() as u64);
    }

    #[test]
    fn a_flush_is_no_write_and_stands_beside_others() {
        let heavy = run_for(
            &Plan {
                flush_every: 4,
                ..plan(5, false)
            },
            1000,
            &[],
        );
        assert!(heavy.flushes(Duration::ZERO).count() >= 3);
        // A busy machine may hold up a write; each flush takes 20 ms.
        assert!(heavy.pauses(Duration::ZERO).count() < heavy.flushes(Duration::ZERO).count());
        let light = run_for(&plan(1, true), 1000, &[]);
        let (during, apart) = light.beside_flushes_of(&heavy, Duration::ZERO);
        assert!(during.count() > 0 && apart.count() > 0);
        assert_eq!(during.count() + apart.count(), light.calls.len());
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let lengths: Lengths = (1..=1000).rev().map(Duration::from_millis).collect();
        assert_eq!(lengths.percentile(500), Some(Duration::from_millis(500)));
        assert_eq!(lengths.percentile(999), Some(Duration::from_millis(999)));
        assert_eq!(lengths.max(), Some(Duration::from_secs(1)));
        assert_eq!(Lengths::default().percentile(500), None);
    }

    #[test]
    fn a_stamp_is_known_again() {
        let mut block = [0; BLOCK];
        assert!(is_stamped(&block, 8192, 0));
        stamp(&mut block, 8192, 3);
        assert!(is_stamped(&block, 8192, 3));
        assert!(!is_stamped(&block, 8192, 2) && !is_stamped(&block, 4096, 3));
        block[4000] ^= 1;
        assert!(!is_stamped(&block, 8192, 3));
    }
}
