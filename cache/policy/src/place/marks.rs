//! The marks of each zone of a machine.
//!
//! MIN of the whole machine is shared out by size. Besides its marks a zone of low memory keeps a
//! *reserve* from those that could have used higher memory of its node.
//!
//! ```text
//!   MIN, LOW, HIGH = those of the whole * zone / all zones
//!   reserve against a class = pages of the node's zones above, up to that class / 256
//! ```
//!
//! Shared out this way a gap between two marks is what the kernel gives the zone: a part of its
//! MIN, or since 4.6 of its size if that is more, and both grow with the zone.
//!
//! Source: mechanisms 1.2; Linux 3.0 and 6.12 mm/page_alloc.c, __setup_per_zone_wmarks(),
//! setup_per_zone_lowmem_reserve().

use super::order::{Class, Zone};
use crate::units::Pages;
use crate::watermark::Watermarks;

/// A zone of low memory keeps this part of the memory above it (`sysctl_lowmem_reserve_ratio`: Dma
/// and Dma32).
const RESERVE_PART: u64 = 256;

/// The marks of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Pages that have to stay free, by the kind of request.
    pub watermarks: Watermarks,
    /// Besides it, against requests that may use Normal memory.
    pub reserve: Pages,
}

/// The marks of all zones of a machine. `whole`: those of all its memory.
///
/// A zone too small for a share of its own gets a MIN of 0; whether that can work is the caller's
/// to check.
#[must_use]
pub fn of_zones(zones: &[Zone], whole: Watermarks) -> Vec<Marks> {
    let all: u64 = zones.iter().map(|zone| zone.pages.0).sum();
    let of = |zone: &Zone| {
        let share = |pages: Pages| Pages(scaled(pages.0, zone.pages.0, all));
        Marks {
            watermarks: Watermarks {
                min: share(whole.min),
                low: share(whole.low),
                high: share(whole.high),
            },
            reserve: reserve(zones, zone),
        }
    };
    zones.iter().map(of).collect()
}

/// Pages that a zone keeps back from a request that could have used any memory of its node.
fn reserve(zones: &[Zone], of: &Zone) -> Pages {
    let above = |zone: &&Zone| zone.node == of.node && zone.class < of.class;
    let pages: u64 = zones.iter().filter(above).map(|zone| zone.pages.0).sum();
    match of.class {
        Class::Normal => Pages::ZERO,
        Class::Dma32 | Class::Dma => Pages(pages / RESERVE_PART),
    }
}

/// `part * of / whole`, rounded down, without overflow; 0 of nothing.
pub(super) fn scaled(part: u64, of: u64, whole: u64) -> u64 {
    let product = u128::from(part) * u128::from(of);
    let share = product.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(node: u8, class: Class, pages: u64) -> Zone {
        Zone {
            node,
            class,
            pages: Pages(pages),
        }
    }

    fn watermarks(min: u64, low: u64, high: u64) -> Watermarks {
        Watermarks {
            min: Pages(min),
            low: Pages(low),
            high: Pages(high),
        }
    }

    #[test]
    fn a_machine_of_one_zone_has_the_marks_of_a_zone() {
        for pages in [1_048_576, 4_194_304] {
            let one = [zone(0, Class::Normal, pages)];
            for whole in [
                Watermarks::of_zone(Pages(pages)),
                Watermarks::of_zone_before_4_6(Pages(pages)),
            ] {
                let marks = of_zones(&one, whole);
                assert_eq!(marks[0].watermarks, whole);
                assert_eq!(marks[0].reserve, Pages::ZERO);
            }
        }
    }

    #[test]
    fn marks_are_shared_out_by_size() {
        // The paper's machine with transparent huge pages: 90112 KiB in 2.5, 3.0 and 6.0 GiB.
        let zones = [
            zone(0, Class::Normal, 655_360),
            zone(0, Class::Dma32, 786_432),
            zone(1, Class::Normal, 1_572_864),
        ];
        let marks = of_zones(&zones, watermarks(22_528, 28_160, 33_792));
        let of = |at: usize| marks[at].watermarks;
        assert_eq!(of(0), watermarks(4_897, 6_121, 7_346));
        assert_eq!(of(1), watermarks(5_876, 7_346, 8_815));
        assert_eq!(of(2), watermarks(11_753, 14_692, 17_630));
        let mins: u64 = marks.iter().map(|marks| marks.watermarks.min.0).sum();
        assert!(mins <= 22_528 && mins + 3 > 22_528);
    }

    #[test]
    fn low_memory_keeps_a_reserve_of_its_own_node() {
        // Mechanisms 12, W3.
        let whole = watermarks(4_096, 5_120, 6_144);
        let zones = [
            zone(0, Class::Dma32, 786_432),
            zone(0, Class::Normal, 3_407_872),
        ];
        let marks = of_zones(&zones, whole);
        assert_eq!(marks[0].reserve, Pages(13_312));
        assert_eq!(marks[1].reserve, Pages::ZERO);
        // Memory of another node does not count.
        let zones = [
            zone(0, Class::Dma32, 786_432),
            zone(1, Class::Normal, 3_407_872),
        ];
        assert_eq!(of_zones(&zones, whole)[0].reserve, Pages::ZERO);
    }

    #[test]
    fn the_least_memory_keeps_it_from_all_above() {
        let zones = [zone(0, Class::Dma, 3_970), zone(0, Class::Dma32, 520_000)];
        let marks = of_zones(&zones, watermarks(11_264, 14_080, 16_896));
        assert_eq!(marks[0].reserve, Pages(2_031));
        assert_eq!(marks[0].watermarks, watermarks(85, 106, 128));
    }
}
