//! The laws as their callers see them: as tables of single calls, and as series on a small plant.

mod plant;
mod recorded;
mod series;

use super::*;
use policy::dirty::{
    Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Domain, Due, InitialBandwidth, Law,
    PauseReason, Threshold, Tunables, Verdict, WriterIndex,
};
use policy::units::{Instant, Nanos, Pages};

const DEVICE: DeviceIndex = DeviceIndex(0);

const PLAIN: DeviceTunables = DeviceTunables {
    min_ratio: 0,
    max_ratio: 10_000,
    strict: false,
    initial: InitialBandwidth::Assumed,
};

/// A write of that many pages, of which only the end is told.
fn written(pages: u64) -> Completion {
    Completion {
        pages: Pages(pages),
        begun: Instant::ZERO,
        last: true,
    }
}

/// Limits of 200000 and 100000 pages, one device.
fn tunables(law: Law, hz: u32) -> Tunables {
    Tunables {
        law,
        hz,
        cpus: 2,
        memory: Pages(1 << 20),
        dirty: Threshold::Pages(Pages(200_000)),
        background: Threshold::Pages(Pages(100_000)),
    }
}

struct Bench {
    domain: Domain,
    writer: WriterIndex,
    now: Instant,
}

impl Bench {
    fn new(tunables: Tunables) -> Self {
        let mut domain = Domain::new(tunables, 2);
        domain.add_device(Instant(0), PLAIN);
        let writer = domain.add_writer();
        Self {
            domain,
            writer,
            now: Instant(0),
        }
    }

    /// Under the older laws all of the limit belongs to the device only after it has written.
    fn seasoned(tunables: Tunables) -> Self {
        let mut bench = Self::new(tunables);
        bench
            .domain
            .on_written(Instant(0), DEVICE, &written(1 << 24));
        if tunables.law == Law::TIDEGATE {
            // It wants to have seen the device at work.
            bench.now = Instant(1_000_000_000);
            bench.domain.on_written(bench.now, DEVICE, &written(25_600));
        }
        bench
    }

    /// One balance; pauses are slept. Every verdict, at most `most`.
    fn balance(&mut self, pages: u64, counts: &Counts, most: usize) -> Vec<Verdict> {
        self.domain.begin(&self.writer, DEVICE, Pages(pages));
        let mut verdicts = Vec::new();
        while verdicts.len() < most {
            let (verdict, _) = self.domain.decide(self.now, &self.writer, counts);
            verdicts.push(verdict);
            match verdict {
                Verdict::Done { .. } => break,
                Verdict::Pause { pause, .. } => self.now = self.now + pause,
                Verdict::WriteYourself { .. } => self.domain.wrote(&self.writer, Pages(0)),
            }
        }
        verdicts
    }
}

/// All of it on one device.
fn counts(dirty: u64, writeback: u64) -> Counts {
    Counts {
        dirtyable: Dirtyable::of_files(Pages(1 << 20)),
        dirty: Pages(dirty),
        writeback: Pages(writeback),
        device_dirty: Pages(dirty),
        device_writeback: Pages(writeback),
        ..Counts::default()
    }
}

fn pauses(verdicts: &[Verdict]) -> Vec<u64> {
    verdicts
        .iter()
        .filter_map(|verdict| match verdict {
            Verdict::Pause { pause, .. } => Some(pause.as_millis_floor()),
            Verdict::Done { .. } | Verdict::WriteYourself { .. } => None,
        })
        .collect()
}

#[test]
fn below_freerun_no_law_pauses() {
    for law in ALL.iter().copied() {
        for hz in [100, 250, 1000] {
            let mut bench = Bench::seasoned(tunables(law, hz));
            for dirty in [0, 50_000, 99_999] {
                let verdicts = bench.balance(1024, &counts(dirty, 0), 10);
                assert_eq!(
                    verdicts,
                    [Verdict::Done {
                        start_background: false
                    }],
                    "{law:?}"
                );
            }
            let verdicts = bench.balance(1024, &counts(100_001, 0), 10);
            assert_eq!(
                verdicts,
                [Verdict::Done {
                    start_background: true
                }],
                "{law:?}"
            );
            let running = Counts {
                flusher_running: true,
                ..counts(100_001, 0)
            };
            let verdicts = bench.balance(1024, &running, 10);
            assert_eq!(
                verdicts,
                [Verdict::Done {
                    start_background: false
                }],
                "{law:?}"
            );
        }
    }
}

#[test]
fn under_2_6_36_the_naps_of_a_call_double_up_to_100_ms() {
    let mut bench = Bench::seasoned(tunables(FOREGROUND, 250));
    // All is under writeback already: nothing to write, only to wait.
    let verdicts = bench.balance(1536, &counts(0, 200_000), 8);
    assert_eq!(pauses(&verdicts), [4, 8, 16, 32, 64, 100, 100, 100]);
}

#[test]
fn under_2_6_36_the_pauses_of_a_call_add_up_to_the_papers_values() {
    let mut bench = Bench::seasoned(tunables(FOREGROUND, 250));
    bench.domain.begin(&bench.writer, DEVICE, Pages(1536));
    let mut sums = Vec::new();
    for _ in 0..8 {
        let over = counts(0, 200_000);
        let (verdict, trace) = bench.domain.decide(bench.now, &bench.writer, &over);
        let Verdict::Pause { pause, .. } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(!trace.line);
        sums.push(trace.paused.as_millis_floor() / 4);
        bench.now = bench.now + pause;
    }
    assert_eq!(sums, [0, 1, 3, 7, 15, 31, 56, 81]);
    let below = counts(0, 1000);
    let (verdict, trace) = bench.domain.decide(bench.now, &bench.writer, &below);
    assert_eq!(
        verdict,
        Verdict::Done {
            start_background: false
        }
    );
    assert!(trace.line);
    assert_eq!(trace.paused, Nanos::millis(4 * 106));
}

#[test]
fn under_2_6_36_a_writer_that_wrote_its_chunk_leaves() {
    let mut bench = Bench::seasoned(tunables(FOREGROUND, 250));
    let over = counts(300_000, 0);
    let due = loop {
        let due = bench
            .domain
            .on_dirtied(bench.now, &bench.writer, DEVICE, 0, Pages(256));
        if let Some(due) = due {
            break due;
        }
    };
    assert_eq!(due.pages, Pages(1536));
    bench.domain.begin(&bench.writer, DEVICE, due.pages);
    let decide = |domain: &mut Domain| domain.decide(bench.now, &bench.writer, &over);
    assert_eq!(
        decide(&mut bench.domain).0,
        Verdict::WriteYourself { pages: Pages(1536) }
    );
    bench.domain.wrote(&bench.writer, Pages(1000));
    assert!(matches!(decide(&mut bench.domain).0, Verdict::Pause { .. }));
    assert_eq!(
        decide(&mut bench.domain).0,
        Verdict::WriteYourself { pages: Pages(1536) }
    );
    bench.domain.wrote(&bench.writer, Pages(536));
    let (verdict, trace) = decide(&mut bench.domain);
    assert_eq!(
        verdict,
        Verdict::Done {
            start_background: true
        }
    );
    assert_eq!(trace.written, Pages(1536));
    // It left over the limit: the next balance comes after 8 pages.
    assert_eq!(bench.domain.budget(&bench.writer, DEVICE, 1), Pages(8));
    bench.balance(8, &counts(150_001, 0), 2);
    assert_eq!(bench.domain.budget(&bench.writer, DEVICE, 1), Pages(1024));
}

#[test]
fn under_p1_a_writer_in_its_soft_region_pauses_once() {
    let mut bench = Bench::seasoned(tunables(SOFT_REGION, 250));
    let limit = bench.domain.device_limit(DEVICE, &counts(0, 0)).0;
    assert!(limit > 199_990);
    // Halfway through the soft region: 50 MiB/s, so 1024 pages are 80 ms.
    let verdicts = bench.balance(1024, &counts(limit - limit / 32, 0), 10);
    assert_eq!(pauses(&verdicts), [80]);
    assert_eq!(
        verdicts.last(),
        Some(&Verdict::Done {
            start_background: true
        })
    );
    let verdicts = bench.balance(1024, &counts(limit - limit / 16, 0), 10);
    assert_eq!(pauses(&verdicts), [0; 0]);
}

#[test]
fn under_p1_a_writer_over_its_limit_stays_and_starts_the_flusher() {
    let mut bench = Bench::seasoned(tunables(SOFT_REGION, 250));
    let verdicts = bench.balance(16, &counts(200_000, 0), 4);
    assert_eq!(pauses(&verdicts), [200, 200, 200, 200]);
    for (turn, verdict) in verdicts.iter().enumerate() {
        let Verdict::Pause {
            why,
            start_background,
            ..
        } = *verdict
        else {
            panic!("{verdict:?}")
        };
        assert!(start_background);
        let expected = if turn == 0 {
            PauseReason::OverShare
        } else {
            PauseReason::NoProgress
        };
        assert_eq!(why, expected, "turn {turn}");
    }
}

#[test]
fn under_p1_a_light_device_sleeps_while_the_others_are_over_the_limit() {
    let mut bench = Bench::seasoned(tunables(SOFT_REGION, 250));
    let others = Counts {
        device_dirty: Pages(10),
        ..counts(220_000, 0)
    };
    let verdicts = bench.balance(16, &others, 9);
    assert_eq!(pauses(&verdicts), [4, 8, 16, 32, 64, 128, 200, 200, 200]);
}

#[test]
fn the_measured_series_lets_a_writer_go_when_the_level_fell() {
    let second_verdict = |law| {
        let mut bench = Bench::seasoned(tunables(law, 250));
        bench.domain.begin(&bench.writer, DEVICE, Pages(16));
        let mut decide = |level| {
            let counts = counts(level, 0);
            bench.domain.decide(Instant(0), &bench.writer, &counts).0
        };
        assert!(matches!(decide(200_000), Verdict::Pause { .. }));
        // 16 pages, eight times: 128.
        assert!(matches!(decide(199_999 - 127), Verdict::Pause { .. }));
        bench.domain.begin(&bench.writer, DEVICE, Pages(16));
        let mut decide = |level| {
            let counts = counts(level, 0);
            bench.domain.decide(Instant(0), &bench.writer, &counts).0
        };
        assert!(matches!(decide(200_000), Verdict::Pause { .. }));
        decide(200_000 - 129)
    };
    assert!(matches!(
        second_verdict(SOFT_REGION_MEASURED),
        Verdict::Done { .. }
    ));
    assert!(matches!(second_verdict(SOFT_REGION), Verdict::Pause { .. }));
}

#[test]
fn under_6_12_a_writer_leaves_after_one_pause() {
    let mut bench = Bench::seasoned(tunables(RATE_BASED, 250));
    bench.balance(1, &counts(100, 0), 2);
    // At the set point, 25600 pages/s: 1024 pages are 40 ms.
    let verdicts = bench.balance(1024, &counts(175_000, 0), 10);
    assert_eq!(pauses(&verdicts), [40]);
    assert_eq!(verdicts.len(), 2);
}

#[test]
fn under_6_12_a_stopped_device_holds_its_writers_and_names_the_wait() {
    let mut bench = Bench::seasoned(tunables(RATE_BASED, 250));
    let verdicts = bench.balance(64, &counts(0, 210_000), 6);
    assert_eq!(pauses(&verdicts), [200; 6]);
    let named: Vec<_> = verdicts
        .iter()
        .map(|verdict| match verdict {
            Verdict::Pause { why, .. } => *why == PauseReason::NoProgress,
            Verdict::Done { .. } | Verdict::WriteYourself { .. } => panic!("{verdict:?}"),
        })
        .collect();
    assert_eq!(named, [false, true, true, true, true, true]);
}

#[test]
fn under_6_12_a_writer_of_a_clean_device_is_not_held_by_a_dead_one() {
    let mut bench = Bench::seasoned(tunables(RATE_BASED, 250));
    let others = Counts {
        device_dirty: Pages(20),
        device_writeback: Pages(12),
        ..counts(210_000, 0)
    };
    let verdicts = bench.balance(8, &others, 10);
    assert_eq!(verdicts.len(), 2);
    assert!(pauses(&verdicts)[0] <= 8);
}

#[test]
fn under_6_12_writers_call_by_their_own_count_and_by_their_cpus() {
    let mut bench = Bench::new(tunables(RATE_BASED, 250));
    let other = bench.domain.add_writer();
    let domain = &mut bench.domain;
    let writer = &bench.writer;
    // 200000 / (32 * 2)
    let guard = 3125;
    assert_eq!(domain.budget(writer, DEVICE, 0), Pages(32));
    assert_eq!(
        domain.on_dirtied(Instant(0), writer, DEVICE, 0, Pages(31)),
        None
    );
    assert_eq!(domain.budget(writer, DEVICE, 0), Pages(1));
    assert_eq!(
        domain.on_dirtied(Instant(0), writer, DEVICE, 0, Pages(1)),
        Some(Due {
            pages: Pages(32),
            replaces: true,
        })
    );
    // Many young writers on one CPU: the guard catches one of them.
    let mut dirtied = 0;
    let due = loop {
        let young = domain.add_writer();
        dirtied += 25;
        if let Some(due) = domain.on_dirtied(Instant(0), &young, DEVICE, 1, Pages(25)) {
            break due;
        }
    };
    assert_eq!((dirtied, due.pages), (guard, Pages(25)));
    // The debt of a writer that ended is taken over on its CPU, up to the heir's interval.
    domain.on_dirtied(Instant(0), &other, DEVICE, 0, Pages(30));
    domain.remove_writer(other, 0);
    let heir = domain.add_writer();
    assert_eq!(domain.budget(&heir, DEVICE, 0), Pages(2));
    assert_eq!(
        domain.on_dirtied(Instant(0), &heir, DEVICE, 0, Pages(2)),
        Some(Due {
            pages: Pages(32),
            replaces: true,
        })
    );
}

#[test]
fn a_strict_device_is_held_by_its_own_limit_far_from_the_global_one() {
    let mut domain = Domain::new(tunables(RATE_BASED, 250), 1);
    let strict = DeviceTunables {
        min_ratio: 0,
        max_ratio: 100,
        strict: true,
        initial: InitialBandwidth::Assumed,
    };
    domain.add_device(Instant(0), strict);
    for second in 0..200 {
        domain.on_written(Instant(second * 10_000_000), DEVICE, &written(100));
    }
    let limit = domain.device_limit(DEVICE, &counts(0, 0));
    assert_eq!(limit, Pages(2000));
    let writer = domain.add_writer();
    let mut bench = Bench {
        domain,
        writer,
        now: Instant(2_000_000_000),
    };
    assert!(pauses(&bench.balance(32, &counts(1500, 0), 4)).is_empty());
    assert_eq!(pauses(&bench.balance(1024, &counts(1750, 0), 4)).len(), 1);
    assert_eq!(pauses(&bench.balance(1024, &counts(0, 2000), 4)).len(), 4);
}

#[test]
fn the_background_limit_starts_the_flusher() {
    for law in ALL.iter().copied() {
        let bench = Bench::seasoned(tunables(law, 250));
        assert!(
            !bench
                .domain
                .over_background(DEVICE, &counts(90_000, 50_000)),
            "{law:?}"
        );
        assert!(
            bench.domain.over_background(DEVICE, &counts(100_001, 0)),
            "{law:?}"
        );
    }
    // Since 3.7 a device over its own share of it is enough.
    let mut bench = Bench::new(tunables(RATE_BASED, 250));
    bench.domain.add_device(Instant(0), PLAIN);
    bench
        .domain
        .on_written(Instant(0), DeviceIndex(1), &written(5000));
    assert!(bench.domain.over_background(DEVICE, &counts(1, 0)));
    assert!(!bench.domain.over_background(DeviceIndex(1), &counts(1, 0)));
}

#[test]
fn the_number_of_a_writer_is_used_again_and_what_was_known_of_it_is_not() {
    let mut bench = Bench::new(tunables(RATE_BASED, 250));
    let domain = &mut bench.domain;
    let gone = domain.add_writer();
    let number = format!("{gone:?}");
    domain.on_dirtied(Instant(0), &gone, DEVICE, 0, Pages(10));
    domain.begin(&gone, DEVICE, Pages(10));
    assert_eq!(domain.budget(&gone, DEVICE, 0), Pages(22));
    domain.remove_writer(gone, 1);
    let fresh = domain.add_writer();
    assert_eq!(format!("{fresh:?}"), number);
    assert_eq!(domain.budget(&fresh, DEVICE, 0), Pages(32));
    assert_ne!(format!("{:?}", domain.add_writer()), number);
}

#[test]
#[should_panic(expected = "a balance has begun")]
fn a_balance_that_is_over_has_no_more_verdicts() {
    let mut bench = Bench::new(tunables(RATE_BASED, 250));
    bench.balance(1, &counts(0, 0), 1);
    let _ = bench.domain.decide(bench.now, &bench.writer, &counts(0, 0));
}

#[test]
#[should_panic(expected = "room for 2 devices")]
fn a_full_domain_takes_no_more_devices() {
    let mut bench = Bench::new(tunables(RATE_BASED, 250));
    bench.domain.add_device(Instant(0), PLAIN);
    bench.domain.add_device(Instant(0), PLAIN);
}

/// Every law, with every input at both ends of its range: an answer, and no pause over 200 ms.
#[test]
fn no_input_breaks_a_law() {
    let ends = [0, 1, 199_999, u64::MAX];
    for law in ALL.iter().copied() {
        for hz in [1, 100, 250, 1000, 10_000] {
            for thresholds in [(0, 0), (1, 1), (200_000, u64::MAX), (u64::MAX, u64::MAX)] {
                let tunables = Tunables {
                    dirty: Threshold::Pages(Pages(thresholds.0)),
                    background: Threshold::Pages(Pages(thresholds.1)),
                    memory: Pages(thresholds.0),
                    ..tunables(law, hz)
                };
                let mut bench = Bench::new(tunables);
                for (step, dirty) in ends.iter().chain(&ends).enumerate() {
                    for writeback in ends {
                        for other in ends {
                            exercise(&mut bench, step as u64, *dirty, writeback, other);
                        }
                    }
                }
            }
        }
    }
}

fn exercise(bench: &mut Bench, step: u64, dirty: u64, writeback: u64, other: u64) {
    bench.now = bench.now + Nanos::millis(step * 97);
    let (now, domain, writer) = (bench.now, &mut bench.domain, &bench.writer);
    let counts = Counts {
        dirtyable: Dirtyable {
            now: Pages(other),
            most: Pages(other).at_least(Pages(dirty)),
        },
        dirty: Pages(dirty),
        writeback: Pages(writeback),
        device_dirty: Pages(other),
        device_writeback: Pages(writeback),
        device_dirtied: Pages(dirty),
        device_written: Pages(other),
        flusher_running: step.is_multiple_of(2),
    };
    domain.on_dirtied(now, writer, DEVICE, 1, Pages(dirty));
    domain.on_written(now, DEVICE, &written(writeback));
    domain.update(now, DEVICE, &counts);
    let _ = domain.over_background(DEVICE, &counts);
    assert!(domain.budget(writer, DEVICE, 0) >= Pages(1));
    for verdict in bench.balance(other, &counts, 5) {
        if let Verdict::Pause { pause, .. } = verdict {
            assert!(pause > Nanos::ZERO);
            assert!(
                pause <= Nanos::millis(200) || pause == Nanos::secs(1),
                "{pause:?}"
            );
        }
    }
}

/// Anonymous memory takes its part of a limit, in per cent or in pages, but not what the device
/// writes in 40 ms, as long as half of what files have is that much. Linux' limit in pages stays.
#[test]
fn anonymous_memory_takes_its_part_of_the_limits_and_leaves_the_device_at_work() {
    let limits = |law, dirty, background, rate: u64, left: u64| {
        let tunables = Tunables {
            dirty,
            background,
            ..tunables(law, 1000)
        };
        let mut domain = Domain::new(tunables, 1);
        domain.add_device(Instant(0), PLAIN);
        let dirtyable = Dirtyable {
            now: Pages(left),
            most: Pages(100_000),
        };
        let counts = Counts {
            dirtyable,
            ..Counts::default()
        };
        for step in 1..=200 {
            domain.on_written(
                Instant(0) + Nanos::millis(5 * step),
                DEVICE,
                &Completion {
                    pages: Pages(rate / 200),
                    begun: Instant(0) + Nanos::millis(5 * (step - 1)),
                    last: false,
                },
            );
            domain.update(Instant(0) + Nanos::millis(5 * step), DEVICE, &counts);
        }
        let limits = domain.limits(dirtyable);
        [limits.dirty.0, limits.background.0]
    };
    let percent = [Threshold::Percent(20), Threshold::Percent(10)];
    let pages = [20_000, 10_000].map(|pages| Threshold::Pages(Pages(pages)));
    for [dirty, background] in [percent, pages] {
        let ours = |rate, left| limits(Law::TIDEGATE, dirty, background, rate, left);
        for rate in [2000, 100_000, 10_000_000] {
            assert_eq!(ours(rate, 100_000), [20_000, 10_000]);
        }
        // 40 ms of 2000 pages a second are 80 pages.
        assert_eq!(ours(2000, 1000), [200, 100]);
        assert_eq!(ours(2000, 0), [2, 0]);
        assert_eq!(ours(100_000, 10_000), [4000, 2000]);
        assert_eq!(ours(100_000, 1000), [500, 250]);
        assert_eq!(ours(10_000_000, 50_000), [20_000, 10_000]);
    }
    let [dirty, background] = pages;
    let theirs = limits(RATE_BASED, dirty, background, 100_000, 1000);
    assert_eq!(theirs, [20_000, 10_000]);
}

/// Anonymous memory has pushed the limit from 200000 to 50000 pages, and 60000 are dirty. Writers
/// that filled it wait until the device has written them. A writer that adds a page now and then
/// does not wait, as long as all that is dirty did not matter before.
#[test]
fn anonymous_memory_that_takes_of_the_limit_does_not_stop_a_light_writer() {
    let held = |pages, dirty, most: u64| {
        let mut bench = Bench::seasoned(tunables(Law::TIDEGATE, 1000));
        let counts = Counts {
            dirtyable: Dirtyable {
                now: Pages(1 << 18),
                most: Pages(most),
            },
            ..counts(dirty, 0)
        };
        let limits = bench.domain.limits(counts.dirtyable);
        let verdicts = bench.balance(pages, &counts, 20);
        (limits.dirty, pauses(&verdicts).len())
    };
    let sunk = Pages(50_000);
    assert_eq!(held(1, 49_000, 1 << 20), (sunk, 0));
    assert_eq!(held(1, 60_000, 1 << 20), (sunk, 0));
    assert_eq!(held(1, 190_000, 1 << 20), (sunk, 0));
    assert_eq!(held(1 << 18, 60_000, 1 << 20), (sunk, 20));
    assert_eq!(held(1, 200_000, 1 << 20), (sunk, 20));
    // A limit that was lowered holds for all.
    let lowered = |pages| held(pages, 200_001, 1 << 18);
    assert_eq!(lowered(1), (Pages(200_000), 20));
}

/// Pages reserved for a device are the others' again as soon as it is gone, not when another one
/// takes its place.
#[test]
fn a_device_that_is_gone_has_nothing_reserved() {
    let counts = Counts {
        dirtyable: Dirtyable::of_files(Pages(1 << 20)),
        ..Counts::default()
    };
    for law in ALL.iter().copied() {
        let mut domain = Domain::new(
            Tunables {
                dirty: Threshold::Pages(Pages(2000)),
                background: Threshold::Pages(Pages(1000)),
                ..tunables(law, 1000)
            },
            2,
        );
        domain.add_device(Instant(0), PLAIN);
        domain.on_written(Instant(0), DEVICE, &written(1 << 20));
        let alone = domain.device_limit(DEVICE, &counts);
        let asks = DeviceTunables {
            min_ratio: 4_000,
            ..PLAIN
        };
        let other = domain.add_device(Instant(0), asks);
        assert!(domain.device_limit(DEVICE, &counts) < alone, "{law:?}");
        domain.remove_device(other);
        assert_eq!(domain.device_limit(DEVICE, &counts), alone, "{law:?}");
        domain.renew_device(other, asks);
        assert!(domain.device_limit(DEVICE, &counts) < alone, "{law:?}");
    }
}

#[test]
fn a_name_finds_its_own_law_alone() {
    for law in ALL {
        let of_that_name = ALL.iter().filter(|other| other.name == law.name);
        assert_eq!(of_that_name.count(), 1, "{law:?}");
        assert_eq!(by_name(law.name), Some(*law));
    }
    assert_eq!(by_name("none"), None);
}
