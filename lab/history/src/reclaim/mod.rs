//! The laws of reclaim, one file each, and the list of them.
//!
//! | law | sleeps for | woken by |
//! |---|---|---|
//! | Linux 3.0, 3.1, 3.2 | `congestion_wait`, also between priorities | nothing: it lasts its timeout |
//! | Linux 5.15 | `congestion_wait`, 100 ms for too many isolated | nothing: it lasts its timeout |
//! | and patch 1 of p0 | WRITEBACK instead of the first in the scan | 32 pages written a sleeper: all |
//! | 5.16-rc1 (p0) | WRITEBACK 100 ms, ISOLATED 20 ms, NOPROGRESS 500 ms | that; a look that finds few isolated; one that frees > 1/8 of what it scans |
//! | 5.16 | the same, NOPROGRESS and CONGESTED one tick and rarely | the same |
//! | 6.12 | as 5.16; dirty pages of files are not written by reclaim, but made active | the same |
//! | 6.12, generations | ISOLATED never, and nothing that a pass found | the same |
//! | Tidegate | WRITEBACK and ISOLATED; memory itself is handed out in turn (`policy::reclaim::turn`) | as many as the event can serve |
//!
//! The laws of Linux from 5.15 to 5.16 throttle differently over one and the same table of pages,
//! that of 5.15, so that what they differ in is the throttling. That of 3.0 differs in nearly
//! everything; 3.1 and 3.2 are nearly it.

mod linux_3_0;
mod linux_3_1;
mod linux_3_2;
mod linux_5_15;
mod linux_5_15_patch1;
mod linux_5_16;
mod linux_5_16_rc1;
mod linux_6_12;
mod linux_6_12_mglru;
mod linux_6_12_mglru_walks;

pub use linux_3_0::LINUX_3_0;
pub use linux_3_1::LINUX_3_1;
pub use linux_3_2::LINUX_3_2;
pub use linux_5_15::LINUX_5_15;
pub use linux_5_15_patch1::LINUX_5_15_PATCH1;
pub use linux_5_16::LINUX_5_16;
pub use linux_5_16_rc1::LINUX_5_16_RC1;
pub use linux_6_12::LINUX_6_12;
pub use linux_6_12_mglru::LINUX_6_12_MGLRU;
pub use linux_6_12_mglru_walks::LINUX_6_12_MGLRU_WALKS;

use policy::reclaim::ReclaimLaw;

/// All laws, in the order of history. A new one joins here.
pub const ALL: &[ReclaimLaw] = &[
    LINUX_3_0,
    LINUX_3_1,
    LINUX_3_2,
    LINUX_5_15,
    LINUX_5_15_PATCH1,
    LINUX_5_16_RC1,
    LINUX_5_16,
    LINUX_6_12,
    LINUX_6_12_MGLRU,
    LINUX_6_12_MGLRU_WALKS,
    ReclaimLaw::TIDEGATE,
];

/// The law of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<ReclaimLaw> {
    ALL.iter().copied().find(|law| law.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::reclaim::Tunables;

    #[test]
    fn a_name_finds_its_own_law_alone() {
        for law in ALL {
            let of_that_name = ALL.iter().filter(|other| other.name == law.name);
            assert_eq!(of_that_name.count(), 1, "{law:?}");
            assert_eq!(by_name(law.name), Some(*law));
        }
        assert_eq!(by_name("linux"), None);
    }

    #[test]
    fn no_file_system_of_6_12_writes_single_pages() {
        let writes = |law, on_these| {
            let tunables = Tunables {
                writes_files: on_these,
                ..Tunables::of(law, 250)
            };
            tunables.judge_rule().writes_files
        };
        assert!(writes(LINUX_5_16, true));
        assert!(!writes(LINUX_5_16, false));
        assert!(!writes(LINUX_6_12, true));
    }
}
