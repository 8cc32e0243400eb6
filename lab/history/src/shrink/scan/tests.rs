use super::*;

fn at(priority: u8) -> Pressure {
    Pressure {
        priority: Priority(priority),
        scanned: Pages::ZERO,
        listed: Pages::ZERO,
    }
}

fn pages(scanned: u64, listed: u64) -> Pressure {
    Pressure {
        scanned: Pages(scanned),
        listed: Pages(listed),
        ..at(12)
    }
}

/// The requests to a cache that frees half of the objects it looks at, and the outcome.
fn run(rule: ShrinkRule, freeable: u64, pressure: Pressure, owed: u64) -> (Vec<u64>, Outcome) {
    run_cache(rule, Cache::default(), freeable, pressure, owed)
}

fn run_cache(
    rule: ShrinkRule,
    cache: Cache,
    freeable: u64,
    pressure: Pressure,
    owed: u64,
) -> (Vec<u64>, Outcome) {
    let mut deferred = Deferred(owed);
    let mut scan = Scan::begin(&rule, cache, freeable, pressure, &mut deferred).expect("there are");
    assert_eq!(deferred, Deferred(0), "taken");
    let mut asked = Vec::new();
    while let ScanStep::Ask(objects) = scan.step() {
        asked.push(objects);
        scan.answered(Answer::Freed {
            freed: objects / 2,
            looked_at: objects,
        });
    }
    (asked, scan.end())
}

/// Objects owed after a pass that the cache refused.
fn refused(rule: ShrinkRule, freeable: u64, pressure: Pressure, owed: u64) -> u64 {
    let mut deferred = Deferred(owed);
    let mut scan = Scan::begin(&rule, Cache::default(), freeable, pressure, &mut deferred)
        .expect("there are objects");
    if let ScanStep::Ask(_) = scan.step() {
        scan.answered(Answer::Stop);
    }
    assert_eq!(scan.step(), ScanStep::Done);
    let outcome = scan.end();
    assert_eq!((outcome.freed, outcome.scanned), (0, 0));
    outcome.deferred
}

const BY_PRIORITY: [ShrinkRule; 3] = [
    ShrinkRule::LINUX_4_20,
    ShrinkRule::LINUX_5_0,
    ShrinkRule::LINUX_6_12,
];
const BY_PAGES: [ShrinkRule; 2] = [ShrinkRule::LINUX_2_6_36, ShrinkRule::LINUX_3_2];

#[test]
fn vector_sh1() {
    for rule in BY_PRIORITY {
        let (asked, outcome) = run(rule, 1_000_000, at(12), 0);
        assert_eq!(asked, [128; 3], "{}", rule.name);
        assert_eq!(
            outcome,
            Outcome {
                freed: 192,
                scanned: 384,
                deferred: 104
            }
        );
        let (asked, outcome) = run(rule, 1_000_000, at(0), 0);
        assert_eq!(asked.len(), 15_625, "2 000 000 in all");
        assert_eq!((outcome.scanned, outcome.deferred), (2_000_000, 0));
    }
}

#[test]
fn a_pass_asks_by_priority_and_seeks() {
    // seeks, priority, objects of a million
    let table = [
        (2, 12, 488),
        (4, 12, 244),
        (1, 12, 976),
        (8, 12, 122),
        (2, 10, 1_952),
        (2, 1, 1_000_000),
        (0, 12, 500_000),
        (0, 0, 500_000),
    ];
    for (seeks, priority, objects) in table {
        let found = delta(Weight::Priority, seeks, 1_000_000, at(priority));
        assert_eq!(found, objects, "{seeks} {priority}");
    }
    assert_eq!(delta(Weight::Priority, 2, u64::MAX, at(64)), 0);
}

#[test]
fn early_laws_ask_as_many_in_proportion_as_pages_were_scanned_times_two() {
    // 1000 of 99 999 + 1 pages: a hundredth, twice.
    for rule in BY_PAGES {
        let (asked, outcome) = run(rule, 1_000_000, pages(1_000, 99_999), 0);
        assert_eq!(asked, vec![128; 156], "{}", rule.name);
        assert_eq!((outcome.scanned, outcome.deferred), (19_968, 32));
    }
    let objects = |seeks, scanned| {
        delta(
            Weight::PagesScanned,
            seeks,
            1_000_000,
            pages(scanned, 99_999),
        )
    };
    assert_eq!(objects(2, 0), objects(2, 32), "none counts as a cluster");
    assert_eq!(objects(2, 32), 640);
    assert_eq!(objects(4, 32), 320);
}

#[test]
fn what_is_owed_is_paid_whole_or_by_priority() {
    // 10 000 owed: 5.0 pays it at once with 488 more, 6.12 a 4096th of it and the 488.
    let (asked, outcome) = run(ShrinkRule::LINUX_5_0, 1_000_000, at(12), 10_000);
    assert_eq!(asked.len(), 81);
    assert_eq!(outcome.deferred, 10_488 - 81 * 128);
    let (asked, outcome) = run(ShrinkRule::LINUX_6_12, 1_000_000, at(12), 10_000);
    assert_eq!(asked.len(), 3);
    assert_eq!(outcome.deferred, 10_488 - 384);
    let (asked, _) = run(ShrinkRule::LINUX_6_12, 1_000_000, at(4), 160_000);
    assert_eq!(asked.len(), (10_000 + 125_000) / 128);
}

#[test]
fn a_gentle_pass_does_not_empty_a_cache_that_owes_much() {
    // Owed: ten times what is freeable.
    let scanned = |rule, priority| run(rule, 10_000, at(priority), 100_000).1;
    let gentle = scanned(ShrinkRule::LINUX_5_0, 12);
    assert_eq!(gentle.scanned, 39 * 128, "half of it, in batches");
    assert_eq!(gentle.deferred, 100_004 - 39 * 128);
    let hard = scanned(ShrinkRule::LINUX_5_0, 2);
    assert_eq!(hard.scanned, 156 * 128, "twice what is freeable");
    assert_eq!(hard.deferred, 105_000 - 156 * 128);
    let later = scanned(ShrinkRule::LINUX_6_12, 2);
    assert_eq!(later.scanned, 156 * 128);
    assert_eq!(later.deferred, 20_000, "the rest is forgiven");
    // 2.6.36 has no half; what its bound cuts off is forgiven in both.
    let early = |rule| run(rule, 10_000, pages(10, 99_999), 100_000).1;
    let first = early(ShrinkRule::LINUX_2_6_36);
    assert_eq!(
        (first.scanned, first.deferred),
        (156 * 128, 20_000 - 156 * 128)
    );
    let second = early(ShrinkRule::LINUX_3_2);
    assert_eq!(
        (second.scanned, second.deferred),
        (39 * 128, 5_000 - 39 * 128)
    );
}

#[test]
fn a_small_cache_is_asked_for_its_last_objects_except_in_early_laws() {
    let asked = |rule, pressure| run(rule, 50, pressure, 0).0;
    assert_eq!(asked(ShrinkRule::LINUX_5_0, at(12)), [0; 0]);
    assert_eq!(asked(ShrinkRule::LINUX_6_12, at(12)), [0; 0]);
    assert_eq!(asked(ShrinkRule::LINUX_4_20, at(12)), [50], "its floor");
    for rule in BY_PRIORITY {
        assert_eq!(asked(rule, at(0)), [100], "{}", rule.name);
        assert_eq!(asked(rule, at(1)), [50], "{}", rule.name);
    }
    assert_eq!(asked(ShrinkRule::LINUX_5_0, at(2)), [0; 0], "24 of 50");
    for rule in BY_PAGES {
        assert_eq!(asked(rule, pages(99_999, 99_999)), [0; 0], "{}", rule.name);
    }
}

#[test]
fn a_batch_at_least_in_4_20() {
    // 1 000 freeable at priority 12: nothing by proportion.
    let (asked, outcome) = run(ShrinkRule::LINUX_4_20, 1_000, at(12), 0);
    assert_eq!((asked, outcome.deferred), (vec![128], 0));
    let (asked, outcome) = run(ShrinkRule::LINUX_5_0, 1_000, at(12), 0);
    assert_eq!((asked, outcome.deferred), (vec![], 0));
}

#[test]
fn who_may_not_enter_the_file_system_leaves_it_to_the_next() {
    for rule in BY_PRIORITY {
        assert_eq!(refused(rule, 1_000_000, at(12), 0), 488, "{}", rule.name);
    }
    // 5.0 owes without a bound, 6.12 at most twice what there is.
    assert_eq!(refused(ShrinkRule::LINUX_5_0, 100, at(12), 5_000), 5_000);
    assert_eq!(refused(ShrinkRule::LINUX_6_12, 100, at(12), 5_000), 200);
    for rule in BY_PAGES {
        let owed = refused(rule, 1_000_000, pages(1_000, 99_999), 7);
        assert_eq!(owed, 20_007, "{}", rule.name);
    }
}

#[test]
fn a_series_of_refusals_is_paid_by_the_one_who_may() {
    // 20 passes within a file system at priority 12, then a pass that may enter it.
    let series = |rule| {
        let mut owed = 0;
        for _ in 0..20 {
            owed = refused(rule, 1_000_000, at(12), owed);
        }
        (owed, run(rule, 1_000_000, at(12), owed).1.scanned)
    };
    assert_eq!(series(ShrinkRule::LINUX_5_0), (9_760, 80 * 128));
    assert_eq!(series(ShrinkRule::LINUX_6_12), (9_760, 3 * 128));
}

#[test]
fn a_cache_may_look_at_fewer_and_one_that_looks_at_none_has_stopped() {
    let begin = || {
        Scan::begin(
            &ShrinkRule::LINUX_5_0,
            Cache::default(),
            1_000_000,
            at(12),
            &mut Deferred::default(),
        )
        .expect("there are objects")
    };
    let mut scan = begin();
    let half = Answer::Freed {
        freed: 1,
        looked_at: 64,
    };
    let mut steps = 0;
    while let ScanStep::Ask(objects) = scan.step() {
        assert_eq!(objects, 128);
        scan.answered(half);
        steps += 1;
    }
    assert_eq!(steps, 6, "488, 424, 360, 296, 232, 168; 104 is no batch");
    assert_eq!(scan.end().scanned, 384);
    let mut idle = begin();
    idle.answered(Answer::Freed {
        freed: 0,
        looked_at: 0,
    });
    assert_eq!(idle.step(), ScanStep::Done);
    assert_eq!(idle.end().deferred, 488);
}

#[test]
fn batches_are_what_the_cache_says() {
    let asked = |batch| {
        let cache = Cache { seeks: 2, batch };
        run_cache(ShrinkRule::LINUX_5_0, cache, 1_000_000, at(12), 0).0
    };
    assert_eq!(asked(0), [128; 3]);
    assert_eq!(asked(244), [244, 244]);
    assert_eq!(asked(1_024), [0; 0], "owed until there are enough");
}

#[test]
fn an_empty_cache_goes_on_owing() {
    let mut deferred = Deferred::default();
    deferred.add(70);
    for rule in ShrinkRule::ALL {
        let scan = Scan::begin(&rule, Cache::default(), 0, at(0), &mut deferred);
        assert!(scan.is_none());
        assert_eq!(deferred.objects(), 70);
        assert_eq!(ShrinkRule::by_name(rule.name), Some(rule));
    }
    assert_eq!(ShrinkRule::by_name("linux-7"), None);
}

#[test]
fn no_pass_scans_more_than_twice_what_is_freeable() {
    for rule in ShrinkRule::ALL {
        for freeable in [1, 127, 128, 129, 10_000] {
            for owed in [0, 1, 128, 1 << 20, u64::MAX] {
                for priority in 0..=12 {
                    let pressure = Pressure {
                        priority: Priority(priority),
                        ..pages(1 << 40, 1)
                    };
                    let (_, outcome) = run(rule, freeable, pressure, owed);
                    assert!(outcome.scanned <= 2 * freeable, "{rule:?} {freeable}");
                }
            }
        }
    }
}
