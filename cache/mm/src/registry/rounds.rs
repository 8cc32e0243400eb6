//! Syncs of a file that share a round (`env::Rounds`): their pages in as few requests as there are
//! runs, one length, one flush.

use env::Wakeup;

use crate::Error;

/// Pages of a file, the first and the last.
pub(crate) type Part = (u32, u32);

/// The rounds of a file, or of its parts.
pub(crate) type Rounds = env::Rounds<Part, Synced>;

/// Errors of a file that its holder has already reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenErrors {
    /// Failed writes of the file (`Mapping::error_seq`).
    pub(crate) writes: u64,
    /// Failed flushes of its device (`DeviceState::flush_failures`).
    pub(crate) flushes: u64,
}

/// The result of a sync, before a holder has taken its answer from it.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    pub(crate) done: Result<(), Error>,
    /// Failed writes of the file, and failed flushes of its device, when it began.
    pub(crate) before: SeenErrors,
}

impl Synced {
    /// One that a wait was ended of.
    pub(crate) fn ended(wakeup: Wakeup) -> Self {
        let before = SeenErrors {
            writes: 0,
            flushes: 0,
        };
        let done = Error::after(wakeup);
        Self { done, before }
    }
}

/// Sorts parts and makes one of those that touch.
pub(crate) fn merge(parts: &mut Vec<Part>) {
    parts.sort_unstable();
    parts.dedup_by(|next, before| {
        let touches = next.0 <= before.1.saturating_add(1);
        if touches {
            before.1 = before.1.max(next.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_touch_become_one() {
        let mut parts = vec![(7, 9), (0, 3), (4, 4), (2, 3), (11, u32::MAX), (20, 30)];
        merge(&mut parts);
        assert_eq!(parts, [(0, 4), (7, 9), (11, u32::MAX)]);
    }
}
