//! The marks of each region of a machine.
//!
//! MIN of the whole machine is shared out by size. Besides its marks a region of low memory keeps a *reserve* from
//! those who could have used higher memory of its node.
//!
//! ```text
//!   MIN  = whole MIN * region / all regions
//!   LOW  = MIN + gap, HIGH = MIN + 2 gap      gap: MIN / 4; since 4.6 at least 0.1 % of the region
//!   reserve against a class = pages of the node's regions above, up to that class / 256
//! ```
//!
//! Source: mechanisms 1.2; Linux 3.0 and 6.12 mm/page_alloc.c, __setup_per_zone_wmarks(),
//! setup_per_zone_lowmem_reserve().

use super::order::{Class, Region};
use crate::units::Pages;
use crate::watermark::Watermarks;

/// A region of low memory keeps this part of the memory above it (`sysctl_lowmem_reserve_ratio`: Dma and Dma32).
const RESERVE_PART: u64 = 256;
/// Since 4.6, the least gap between two marks, in 1/10000 of the region (`vm.watermark_scale_factor`).
const SCALE_FACTOR: u64 = 10;

/// How far the marks of a region are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gap {
    /// A quarter of MIN: up to 4.5.
    Quarter,
    /// That or 0.1 % of the region, whichever is more.
    Scaled,
}

/// The marks of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// What has to stay free, by who asks for what.
    pub watermarks: Watermarks,
    /// Besides it, against requests that may use Normal memory.
    pub reserve: Pages,
}

/// The marks of all regions of a machine. `min`: what the machine keeps free in all, MIN of all regions together.
///
/// A region too small for a share of its own gets a MIN of 0; whether that can work is the caller's to check.
#[must_use]
pub fn of_regions(regions: &[Region], min: Pages, gap: Gap) -> Vec<Marks> {
    let all: u64 = regions.iter().map(|region| region.pages.0).sum();
    let of = |region: &Region| {
        let share = scaled(min.0, region.pages.0, all);
        let quarter = share / 4;
        let apart = match gap {
            Gap::Quarter => quarter,
            Gap::Scaled => quarter.max(scaled(region.pages.0, SCALE_FACTOR, 10_000)),
        };
        // Up to 4.5 HIGH is half above MIN, rounded once.
        let high = match gap {
            Gap::Quarter => share / 2,
            Gap::Scaled => 2 * apart,
        };
        Marks {
            watermarks: Watermarks {
                min: Pages(share),
                low: Pages(share + apart),
                high: Pages(share + high),
            },
            reserve: reserve(regions, region),
        }
    };
    regions.iter().map(of).collect()
}

/// What a region keeps back from a request that could have used any memory of its node.
fn reserve(regions: &[Region], of: &Region) -> Pages {
    let above = |region: &&Region| region.node == of.node && region.class < of.class;
    let pages: u64 = regions
        .iter()
        .filter(above)
        .map(|region| region.pages.0)
        .sum();
    match of.class {
        Class::Normal => Pages::ZERO,
        Class::Dma32 | Class::Dma => Pages(pages / RESERVE_PART),
    }
}

/// `part * of / whole`, rounded down, without overflow; 0 of nothing.
fn scaled(part: u64, of: u64, whole: u64) -> u64 {
    let product = u128::from(part) * u128::from(of);
    let share = product.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(node: u8, class: Class, pages: u64) -> Region {
        Region {
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
    fn a_machine_of_one_region_has_the_marks_of_a_zone() {
        for pages in [1_048_576, 4_194_304] {
            let one = [region(0, Class::Normal, pages)];
            let modern = Watermarks::of_zone(Pages(pages));
            let old = Watermarks::of_zone_before_4_6(Pages(pages));
            let marks = of_regions(&one, modern.min, Gap::Scaled);
            assert_eq!(marks[0].watermarks, modern);
            let marks = of_regions(&one, old.min, Gap::Quarter);
            assert_eq!(marks[0].watermarks, old);
            assert_eq!(marks[0].reserve, Pages::ZERO);
        }
    }

    #[test]
    fn min_is_shared_out_by_size() {
        // The paper's machine with transparent huge pages: 90112 KiB in 2.5, 3.0 and 6.0 GiB.
        let regions = [
            region(0, Class::Normal, 655_360),
            region(0, Class::Dma32, 786_432),
            region(1, Class::Normal, 1_572_864),
        ];
        let marks = of_regions(&regions, Pages(22_528), Gap::Quarter);
        let of = |at: usize| marks[at].watermarks;
        assert_eq!(of(0), watermarks(4_897, 6_121, 7_345));
        assert_eq!(of(1), watermarks(5_876, 7_345, 8_814));
        assert_eq!(of(2), watermarks(11_753, 14_691, 17_629));
        let mins: u64 = marks.iter().map(|marks| marks.watermarks.min.0).sum();
        assert!(mins <= 22_528 && mins + 3 > 22_528);
    }

    #[test]
    fn low_memory_keeps_a_reserve_of_its_own_node() {
        // Mechanisms 12, W3.
        let regions = [
            region(0, Class::Dma32, 786_432),
            region(0, Class::Normal, 3_407_872),
        ];
        let marks = of_regions(&regions, Pages(4_096), Gap::Scaled);
        assert_eq!(marks[0].reserve, Pages(13_312));
        assert_eq!(marks[1].reserve, Pages::ZERO);
        // What another node has does not count.
        let regions = [
            region(0, Class::Dma32, 786_432),
            region(1, Class::Normal, 3_407_872),
        ];
        let marks = of_regions(&regions, Pages(4_096), Gap::Scaled);
        assert_eq!(marks[0].reserve, Pages::ZERO);
    }

    #[test]
    fn the_least_memory_keeps_it_from_all_above() {
        let regions = [
            region(0, Class::Dma, 3_970),
            region(0, Class::Dma32, 520_000),
        ];
        let marks = of_regions(&regions, Pages(11_264), Gap::Quarter);
        assert_eq!(marks[0].reserve, Pages(2_031));
        assert_eq!(marks[0].watermarks, watermarks(85, 106, 127));
    }
}
