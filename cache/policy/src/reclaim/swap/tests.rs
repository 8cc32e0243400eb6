use super::*;
use proptest::prelude::*;

const SLOTS: u32 = 1000;

#[test]
fn a_window_grows_with_hits_and_halves_without() {
    // hits since the last fault, slot, window
    let table: [(u32, u32, Range<u32>); 14] = [
        (0, 100, 96..104),  // some trust to begin with
        (0, 500, 500..504), // half the last
        (0, 300, 300..302),
        (0, 777, 777..778),
        (0, 200, 200..201), // alone
        (0, 201, 200..202), // next to the last: two
        (0, 203, 203..204), // not next to it
        (1, 50, 48..52),
        (2, 50, 48..52),
        (3, 51, 48..56),
        (100, 9, 8..16),
        (6, 999, 992..1000), // the end of the file
        (0, 203, 200..204),
        (0, 998, 998..1000),
    ];
    let mut ahead = SwapReadahead::new(WINDOW_MAX);
    for (hits, slot, window) in table {
        for _ in 0..hits {
            ahead.on_hit();
        }
        assert_eq!(
            ahead.window(slot, SLOTS),
            window,
            "{hits} hits, slot {slot}"
        );
    }
}

#[test]
fn a_small_machine_reads_less_ahead() {
    assert_eq!(window_max(Pages(4096)), 8);
    assert_eq!(window_max(Pages(4095)), 4);
    let mut ahead = SwapReadahead::new(window_max(Pages(1)));
    assert_eq!(ahead.window(9, SLOTS), 8..12);
    // Where read-ahead is off, a window is its page.
    let mut off = SwapReadahead::new(1);
    assert_eq!(off.window(9, SLOTS), 9..10);
}

#[test]
fn a_window_ends_with_the_file() {
    let mut ahead = SwapReadahead::new(WINDOW_MAX);
    assert_eq!(ahead.window(2, 3), 0..3);
    let mut ahead = SwapReadahead::new(WINDOW_MAX);
    assert_eq!(ahead.window(u32::MAX - 1, u32::MAX), u32::MAX - 7..u32::MAX);
}

#[test]
fn when_a_slot_is_given_up() {
    use SlotMoment::{Activated, Mapped, Written};
    let half = (Pages(500), Pages(1000));
    let fuller = (Pages(499), Pages(1000));
    let table = [
        (Written, false, half, true),
        (Written, false, fuller, true),
        (Written, true, fuller, false),
        (Mapped, false, half, false),
        (Mapped, false, fuller, true),
        (Mapped, true, fuller, false),
        (Activated, false, half, false),
        (Activated, false, fuller, true),
        (Activated, true, fuller, false),
    ];
    for (moment, writeback, (free, total), gives_up) in table {
        let found = releases(moment, writeback, free, total);
        assert_eq!(found, gives_up, "{moment:?} {writeback} {free:?}");
    }
    assert!(!is_nearly_full(Pages(0), Pages(0)));
}

proptest! {
    #[test]
    fn a_window_holds_its_slot_and_stays_in_the_file(
        faults in prop::collection::vec((0..10_u32, any::<u32>()), 1..50),
        slots in 1..=u32::MAX,
        small: bool,
    ) {
        let most = if small { WINDOW_MAX_SMALL } else { WINDOW_MAX };
        let mut ahead = SwapReadahead::new(most);
        let mut before = 0;
        for (hits, slot) in faults {
            for _ in 0..hits {
                ahead.on_hit();
            }
            let slot = slot % slots;
            let window = ahead.window(slot, slots);
            prop_assert!(window.contains(&slot));
            prop_assert!(window.end <= slots);
            let pages = window.end - window.start;
            prop_assert!(pages <= most);
            prop_assert!(pages >= before / 2 || window.end == slots);
            prop_assert!(hits == 0 || pages >= WINDOW_HIT || window.end == slots);
            before = pages;
        }
    }
}
