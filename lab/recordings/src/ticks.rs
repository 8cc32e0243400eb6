//! HZ, from the grid that pauses are on: a trace prints whole ticks in ms, rounded down.
//!
//! Source: Linux 6.12 include/trace/events/writeback.h, balance_dirty_pages: x 1000 / HZ.

/// The usual rates of kernels, coarse to fine.
const USUAL: [u32; 4] = [100, 250, 300, 1000];
/// Lengths that a guess needs.
const LEAST: usize = 8;

/// True if this many ms are a whole number of ticks, rounded down.
pub(super) fn fits(hz: u32, ms: f64) -> bool {
    let ticks = (ms * f64::from(hz) / 1e3).ceil();
    let back = (ticks * 1e3 / f64::from(hz)).floor();
    (back - ms).abs() < 0.5
}

/// The coarsest usual clock that all lengths fit; `None`: too few of them.
pub(super) fn guess(lengths: impl Iterator<Item = f64>) -> Option<u32> {
    let lengths: Vec<f64> = lengths.filter(|ms| *ms > 0.0).collect();
    if lengths.len() < LEAST {
        return None;
    }
    let all_fit = |hz: &u32| lengths.iter().all(|ms| fits(*hz, *ms));
    USUAL.into_iter().find(all_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_tells_the_clock() {
        for hz in USUAL {
            // Ticks as the trace prints them; 7 and 11 are on no coarser grid.
            let printed = |ticks: u32| f64::from(ticks * 1000 / hz);
            let lengths: Vec<f64> = [1, 2, 3, 5, 7, 11, 13, 60].map(printed).into();
            assert_eq!(guess(lengths.iter().copied()), Some(hz), "{lengths:?}");
            assert!(lengths.iter().all(|ms| fits(hz, *ms)));
        }
        assert!(!fits(250, 7.0) && !fits(100, 4.0) && !fits(300, 4.0));
        assert_eq!(guess([4.0; 7].into_iter()), None);
    }
}
