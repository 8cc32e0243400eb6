//! Resident memory beyond what members say they hold: their tables, their allocator's rests, all else in the process.
//!
//! ```text
//!   slack = resident - held         when the resident memory rises: at once
//!                                   when it does not, and the difference is smaller: smoothed over 2 s
//! ```
//!
//! A difference that grows because `held` falls is not taken: an allocator keeps what is freed for a while, and who took that for
//! slack would shrink everybody again, and again.

use std::time::Duration;

/// Time over which a smaller slack is believed.
const SMOOTHED: Duration = Duration::from_secs(2);
/// Part of the limit that is never slack: members keep an eighth whatever the process does beside.
const KEPT_PART: u64 = 8;
/// Part of the limit by which resident memory must have fallen before a rise from there counts as one.
const FALLEN_PART: u64 = 128;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slack {
    bytes: u64,
    peak: u64,
    at: Duration,
}

impl Slack {
    /// Looks at it, and answers what the slack is, in bytes.
    pub(crate) fn look(&mut self, now: Duration, resident: u64, held: u64, limit: u64) -> u64 {
        let beyond = resident.saturating_sub(held);
        if resident > self.peak {
            self.peak = resident;
            self.bytes = beyond;
        } else if beyond < self.bytes {
            let passed = now.saturating_sub(self.at).min(SMOOTHED);
            let less = u128::from(self.bytes - beyond) * passed.as_nanos() / SMOOTHED.as_nanos();
            self.bytes -= u64::try_from(less).unwrap_or(0);
        }
        if resident < self.peak - (limit / FALLEN_PART).min(self.peak) {
            self.peak = resident;
        }
        self.at = now;
        self.bytes = self.bytes.min(limit - limit / KEPT_PART);
        self.bytes
    }
}

/// Resident memory of this process, in bytes: the second field of `/proc/self/statm`, in pages of the system.
pub(crate) fn of_this_process() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages = text.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * page_size())
}

/// The system's size of a page: what the kernel maps at least. Found once, from two figures for the same memory.
fn page_size() -> u64 {
    static SIZE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SIZE.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("KernelPageSize:"));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(4) * 1024
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_rise_counts_at_once_and_a_fall_in_two_seconds() {
        let mut slack = Slack::default();
        assert_eq!(slack.look(at(0), 700, 500, LIMIT), 200);
        assert_eq!(slack.look(at(1), 650, 550, LIMIT), 150, "half way");
        assert_eq!(slack.look(at(3), 650, 550, LIMIT), 100);
    }

    #[test]
    fn what_an_allocator_keeps_does_not_shrink_everybody_for_ever() {
        let mut slack = Slack::default();
        let first = slack.look(at(0), 1020, 900, LIMIT);
        assert_eq!(first, 120);
        // Members shrink to the limit less slack; nothing is given to the system.
        for second in 1..60 {
            assert_eq!(slack.look(at(second), 1020, LIMIT - first, LIMIT), 120);
        }
    }

    #[test]
    fn an_eighth_is_never_slack() {
        assert_eq!(Slack::default().look(at(0), 90_000, 100, LIMIT), 875);
        assert_eq!(Slack::default().look(at(0), 100, 300, LIMIT), 0);
    }

    #[test]
    fn this_process_has_resident_memory() {
        let resident = of_this_process().unwrap();
        assert!(resident > 1 << 20 && resident < 1 << 40, "{resident}");
    }
}
