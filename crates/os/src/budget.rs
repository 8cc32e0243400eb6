//! From a memory limit in bytes to a number of frames.
//!
//! The limit is for everything: pages, their metadata, what does not grow with them, and, when the
//! whole process is meant, what is resident already. So
//!
//! ```text
//!   limit = frames * (a page + metadata per frame) + fixed + resident
//! ```
//!
//! Who asks knows what its metadata and its fixed part are; whether the system has that much
//! memory to give is asked here.
//!
//! Source: docs/adr/0006. Resident and pinned memory together stay below the limit and 5 %.

use policy::units::PAGE_SIZE;

/// A memory limit and what of it is not for pages. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What may be used altogether.
    pub limit: u64,
    /// What the process has already, if the limit is for all of it; else zero.
    pub resident: u64,
    /// What comes beside the pages and does not grow with them.
    pub fixed: u64,
    /// Metadata of a frame.
    pub per_frame: u64,
    /// Frames below which a cache is no use.
    pub frames_least: u64,
}

/// Why a limit cannot be kept. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// It leaves no room for pages.
    TooSmall {
        /// The least that works.
        least: u64,
        /// What is not for pages.
        overhead: u64,
    },
    /// The system does not have that much memory to give.
    TooLarge {
        /// What is left.
        available: u64,
    },
    /// More frames than can be numbered.
    TooMany,
}

impl Budget {
    /// How many frames the limit leaves, given what the system has to give now.
    ///
    /// # Errors
    /// The limit is too small for a cache, or more than there is.
    pub fn frames(&self) -> Result<u32, BudgetError> {
        self.frames_of(crate::available_bytes())
    }

    fn frames_of(&self, left: u64) -> Result<u32, BudgetError> {
        let available = left.saturating_add(self.resident);
        if self.limit > available {
            return Err(BudgetError::TooLarge { available });
        }
        let overhead = self.fixed.saturating_add(self.resident);
        let per_frame = PAGE_SIZE + self.per_frame;
        let frames = self.limit.saturating_sub(overhead) / per_frame;
        if frames < self.frames_least {
            let least = overhead.saturating_add(self.frames_least * per_frame);
            return Err(BudgetError::TooSmall { least, overhead });
        }
        u32::try_from(frames).map_err(|_| BudgetError::TooMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        limit: 64 << 20,
        resident: 0,
        fixed: 3 << 20,
        per_frame: 72,
        frames_least: 1024,
    };

    #[test]
    fn the_limit_covers_frames_metadata_and_the_rest() {
        let frames = u64::from(BUDGET.frames_of(u64::MAX).unwrap());
        assert!(frames * (4096 + 72) + (3 << 20) <= 64 << 20);
        assert!(frames * 4096 > 58 << 20, "most of it is pages: {frames}");
    }

    #[test]
    fn a_limit_without_room_says_what_would_do() {
        let mut budget = BUDGET;
        (budget.limit, budget.resident) = (4 << 20, 10 << 20);
        let Err(BudgetError::TooSmall { least, overhead }) = budget.frames_of(u64::MAX) else {
            panic!("4 MiB cannot hold 10 MiB");
        };
        assert_eq!(overhead, 13 << 20);
        budget.limit = least;
        assert_eq!(budget.frames_of(u64::MAX), Ok(1024));
        budget.limit = least - 1;
        assert!(budget.frames_of(u64::MAX).is_err());
    }

    #[test]
    fn a_limit_beyond_what_the_system_has_left_is_refused() {
        let mut budget = BUDGET;
        budget.resident = 10 << 20;
        let available = 63 << 20;
        let left = available - budget.resident;
        assert_eq!(
            budget.frames_of(left),
            Err(BudgetError::TooLarge { available })
        );
        assert!(budget.frames_of(left + (1 << 20)).is_ok());
    }

    #[test]
    fn more_frames_than_numbers_are_refused() {
        let mut budget = BUDGET;
        budget.limit = 1 << 60;
        assert_eq!(budget.frames_of(u64::MAX), Err(BudgetError::TooMany));
    }
}
