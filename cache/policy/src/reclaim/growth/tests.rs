//! Which tasks grow, and which do not, over time.

use super::*;
use crate::units::Nanos;

fn at(ms: u64) -> Instant {
    Instant(0) + Nanos::millis(ms)
}

fn take(growth: &mut Growth, ms: u64, pages: u64) {
    growth.note(at(ms), Pages(pages), Pages::ZERO);
}

fn give(growth: &mut Growth, ms: u64, pages: u64) {
    growth.note(at(ms), Pages::ZERO, Pages(pages));
}

#[test]
fn one_who_only_takes_grows_by_what_it_took_in_the_last_second() {
    let mut growth = Growth::new(at(0));
    for ms in 0..5000 {
        take(&mut growth, ms, 2);
        let last_second = 2 * ms.min(1000);
        let found = growth.growth(at(ms)).0;
        let eighth = 2 * 125;
        assert!(
            (last_second.saturating_sub(eighth)..=last_second + eighth).contains(&found),
            "{ms}: {found}"
        );
    }
    assert_eq!(
        growth.growth(at(7000)),
        Pages::ZERO,
        "and not if it has stopped"
    );
}

#[test]
fn one_who_stands_still_is_not_modest_unless_it_gave_back() {
    let mut hog = Growth::new(at(0));
    take(&mut hog, 0, 100);
    assert_eq!(hog.growth(at(3000)), Pages::ZERO);
    assert!(!hog.is_modest(at(3000)), "others were before it");
    let mut mapper = Growth::new(at(0));
    take(&mut mapper, 0, 100);
    give(&mut mapper, 1500, 100);
    assert!(mapper.is_modest(at(3000)));
    take(&mut mapper, 4000, 100);
    assert!(mapper.is_modest(at(4000)), "it has had that before");
    take(&mut mapper, 4000, 1);
    assert!(!mapper.is_modest(at(4000)), "it grows");
    assert!(!mapper.is_modest(at(60_000)), "that was long ago");
}

/// A writer takes batches and hands on what it did not use; that is no giving back, and it grows by
/// what it kept, to within a batch, however long it holds one.
#[test]
fn what_was_taken_and_not_used_is_as_if_it_had_not_been_taken() {
    for held in [0, 130, 250, 870] {
        let (mut writer, mut hog) = (Growth::new(at(0)), Growth::new(at(0)));
        for ms in (0..6000).step_by(10) {
            take(&mut hog, ms, 2);
            take(&mut writer, ms, 32);
            if ms >= held {
                writer.unused(at(ms), Pages(30));
            }
        }
        writer.unused(at(6000), Pages(30 * held.div_ceil(10)));
        let (found, wanted) = (writer.growth(at(6000)), hog.growth(at(6000)));
        let most = 32 * (held / 10 + 1);
        assert!(
            wanted.0.abs_diff(found.0) <= most,
            "{held}: {found:?} {wanted:?}"
        );
        assert!(!writer.is_modest(at(8000)), "it gave nothing back");
    }
}

#[test]
fn one_who_gives_back_what_it_takes_does_not_grow_however_slow_its_rounds() {
    for round in [40, 400, 1500, 3000, 7000] {
        let mut growth = Growth::new(at(0));
        for ms in 0..60_000u64 {
            let place = ms % round;
            let upto = |place: u64| 32_768 * place / round;
            if place == round - 1 {
                give(&mut growth, ms, upto(place));
            } else {
                take(&mut growth, ms, upto(place + 1) - upto(place));
            }
            // The first round is growth: nobody knows yet that it will give back.
            if ms > round + 1500 {
                let found = growth.growth(at(ms));
                assert!(
                    found <= Pages(32_768 * 2 / round),
                    "{round} {ms}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn what_it_held_before_is_forgotten_in_the_end() {
    let mut growth = Growth::new(at(0));
    take(&mut growth, 0, 1000);
    give(&mut growth, 2000, 1000);
    take(&mut growth, 6000, 500);
    assert_eq!(
        growth.growth(at(6000)),
        Pages::ZERO,
        "it had twice that before"
    );
    give(&mut growth, 6100, 500);
    take(&mut growth, 40_000, 500);
    assert_eq!(growth.growth(at(40_000)), Pages(500), "long ago");
}

#[test]
fn time_that_jumps_or_stands_and_counts_without_end_do_no_harm() {
    let mut growth = Growth::new(Instant(u64::MAX - 5));
    growth.note(Instant(0), Pages::MAX, Pages::ZERO);
    growth.note(Instant(u64::MAX), Pages::MAX, Pages::ZERO);
    assert!(growth.growth(Instant(u64::MAX)) > Pages::ZERO);
    growth.note(Instant(u64::MAX), Pages::ZERO, Pages::MAX);
    growth.note(Instant(3), Pages::ZERO, Pages::MAX);
    assert_eq!(growth.growth(Instant(7)), Pages::ZERO);
    let mut growth = Growth::new(at(0));
    take(&mut growth, 10, 77);
    assert_eq!(growth.growth(at(u64::MAX / 2_000_000)), Pages::ZERO);
}
