//! Resident memory beyond what members say they hold: their tables, their allocator's rests, all
//! else in the process.
//!
//! ```text
//!   slack = resident - held at its highest      as long as resident memory has not fallen since; what falls comes off both
//!                                                more of it counts at once, less is smoothed over half a second
//! ```
//!
//! An allocator keeps freed memory for the next request: that is not slack. Taken for slack, it
//! would shrink everybody again, and again. The part that it cannot use for the next shows as a
//! rise of the resident memory, and is slack by as much.
//!
//! Trial shows if it can use its rests: below the limit members may always hold a little more than
//! that says. If nothing rises, what they held at their highest rises, and the slack falls.

use std::time::Duration;

/// Time over which a smaller slack is believed.
const SMOOTHED: Duration = Duration::from_millis(500);
/// Part of the limit that is never slack: members keep an eighth whatever the process does beside.
const KEPT_PART: u64 = 8;
/// Part of the limit that members may hold more, to try it.
const TRIED_PART: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slack {
    bytes: u64,
    resident: u64,
    held_most: u64,
    at: Duration,
}

impl Slack {
    /// Looks at it, and answers what the slack is, in bytes.
    pub(crate) fn look(&mut self, now: Duration, resident: u64, held: u64, limit: u64) -> u64 {
        let fell = self.resident.saturating_sub(resident);
        self.held_most = self.held_most.saturating_sub(fell).max(held);
        self.resident = resident;
        let tried = if resident <= limit {
            limit / TRIED_PART
        } else {
            0
        };
        let beyond = resident.saturating_sub(self.held_most.saturating_add(tried));
        if beyond > self.bytes {
            self.bytes = beyond;
        } else {
            let passed = now.saturating_sub(self.at).min(SMOOTHED);
            let less = u128::from(self.bytes - beyond) * passed.as_nanos() / SMOOTHED.as_nanos();
            self.bytes -= u64::try_from(less).unwrap_or(0);
        }
        self.at = now;
        self.bytes = self.bytes.min(limit - limit / KEPT_PART);
        self.bytes
    }
}

/// Resident memory of this process, in bytes: the second field of `/proc/self/statm`, in pages of
/// the system.
pub(crate) fn of_this_process() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages = text.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * page_size())
}

/// The system's size of a page: what the kernel maps at least. Found once, from two figures for the
/// same memory.
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

    const LIMIT: u64 = 6400;
    /// The bytes that may be tried.
    const TRIED: u64 = 100;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_rise_counts_at_once_and_a_fall_in_half_a_second() {
        let mut slack = Slack::default();
        assert_eq!(slack.look(at(0), 5000, 4000, LIMIT), 1000 - TRIED);
        // More is held of the same memory.
        assert_eq!(slack.look(at(250), 5000, 4400, LIMIT), 700, "half way");
        assert_eq!(slack.look(at(900), 5000, 4400, LIMIT), 600 - TRIED);
    }

    #[test]
    fn what_an_allocator_keeps_is_not_slack_and_what_it_cannot_use_is() {
        let mut slack = Slack::default();
        assert_eq!(slack.look(at(0), 6000, 5000, LIMIT), 900);
        // Somebody gives 2000 back, which the allocator keeps.
        assert_eq!(slack.look(at(500), 6000, 3000, LIMIT), 900);
        // The next request needs 50 more than that from the system.
        assert_eq!(slack.look(at(1000), 6050, 3500, LIMIT), 950);
        // The system gets 1000 of it back: neither is what it was.
        assert_eq!(slack.look(at(1500), 5050, 3500, LIMIT), 950);
        assert_eq!(slack.look(at(2000), 5550, 4500, LIMIT), 950);
    }

    #[test]
    fn nobody_shrinks_for_ever_for_what_an_allocator_keeps() {
        let mut slack = Slack::default();
        let first = slack.look(at(0), LIMIT + 200, 5000, LIMIT);
        assert_eq!(first, 1600);
        let mut last = first;
        for step in 1..100 {
            last = slack.look(at(step * 100), LIMIT + 200, LIMIT - last, LIMIT);
        }
        assert_eq!(last, 1600);
    }

    #[test]
    fn an_eighth_is_never_slack() {
        assert_eq!(Slack::default().look(at(0), 90_000, 100, LIMIT), 5600);
        assert_eq!(Slack::default().look(at(0), 100, 300, LIMIT), 0);
    }

    #[test]
    fn this_process_has_resident_memory() {
        let resident = of_this_process().unwrap();
        assert!(resident > 1 << 20 && resident < 1 << 40, "{resident}");
    }
}
