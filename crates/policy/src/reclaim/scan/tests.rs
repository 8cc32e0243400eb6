use super::*;

#[test]
fn vector_l1() {
    let sizes_gib = [1, 2, 4, 8, 16, 32, 64, 100, 1024];
    let ratios = sizes_gib.map(|gib: u64| inactive_ratio(Pages(gib << GIB_SHIFT)));
    assert_eq!(ratios, [3, 4, 6, 8, 12, 17, 25, 31, 101]);
    assert_eq!(inactive_ratio(Pages((1 << GIB_SHIFT) - 1)), 1);
}

#[test]
fn the_active_list_feeds_a_short_inactive_one() {
    assert!(!inactive_is_low(Pages(100), Pages(100)));
    assert!(inactive_is_low(Pages(100), Pages(101)));
    // 4 GiB in all, ratio 6.
    let all = 4 << GIB_SHIFT;
    let inactive = all / 7;
    assert!(inactive_is_low(Pages(inactive), Pages(all - inactive)));
    assert!(!inactive_is_low(
        Pages(inactive + 1),
        Pages(all - inactive - 1)
    ));
    assert!(!inactive_is_low(Pages::MAX, Pages::MAX));
    assert!(!inactive_is_low(Pages(0), Pages(0)));
}

#[test]
fn scans_double_from_turn_to_turn_up_to_the_whole_list() {
    let mut priority = Some(Priority::GENTLEST);
    let mut counts = Vec::new();
    while let Some(turn) = priority {
        counts.push(scan_count(Pages(1 << 14), turn).0);
        priority = turn.raised();
    }
    assert_eq!(counts.len(), 13);
    assert_eq!(counts[..3], [4, 8, 16]);
    assert_eq!(counts[12], 1 << 14);
    assert_eq!(scan_count(Pages(4095), Priority::GENTLEST), Pages(0));
    assert_eq!(scan_count(Pages::MAX, Priority(200)), Pages(0));
}
