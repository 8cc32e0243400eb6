use super::*;
use crate::linux::{LINUX_3_0, LINUX_5_15, LINUX_6_12};

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

use proptest::prelude::*;

const MIB: u64 = 256;
const GIB: u64 = 1 << GIB_SHIFT;

fn sizes(of: [u64; 4]) -> Sizes {
    Sizes(of.map(Pages))
}

fn counts(of: [u64; 4]) -> Sizes {
    sizes(of)
}

/// Costs of the 6.4 rule that are just these.
fn costs(anon: u64, file: u64) -> Costs {
    Costs {
        of: [anon, file],
        ..Costs::new(CostRule::WritesAndFailures)
    }
}

/// A node of 8 GiB, half anonymous, nothing free above the marks, swap there.
fn input<'a>(sizes: &'a Sizes, costs: &'a Costs) -> CountInput<'a> {
    CountInput {
        sizes,
        told: sizes,
        free: Pages(2 * MIB),
        high_mark_sum: Pages(8 * MIB),
        priority: Priority(6),
        background: false,
        rule: LINUX_5_15.scan,
        swappiness: 60,
        may_swap: true,
        costs,
        may_deactivate: [true, true],
        plenty: Pages::ZERO,
        spares_anon: true,
    }
}

const LISTS: [u64; 4] = [GIB, GIB, GIB, GIB];

#[test]
fn what_decides_how_a_pass_divides_itself() {
    let lists = sizes(LISTS);
    let none = costs(0, 0);
    let base = input(&lists, &none);
    let no_files = sizes([GIB, GIB, MIB, MIB]);
    let tiny = CountInput {
        sizes: &no_files,
        told: &no_files,
        may_deactivate: [false, false],
        ..base
    };
    let few_inactive_anon = sizes([63, GIB, MIB, MIB]);
    let few_inactive_file = sizes([GIB, GIB, 63, GIB]);
    let by_swappiness = Balance::Shares {
        anon: 60,
        file: 140,
        of: 200,
    };
    let desperate = Priority::DESPERATE;
    let table = [
        (
            "costs and swappiness",
            base,
            by_swappiness,
            [1228, 1228, 2867, 2867],
        ),
        (
            "no swap",
            CountInput {
                may_swap: false,
                ..base
            },
            Balance::FilesOnly,
            [0, 0, 4096, 4096],
        ),
        (
            "no swap, and desperate",
            CountInput {
                may_swap: false,
                priority: desperate,
                ..base
            },
            Balance::FilesOnly,
            [0, 0, GIB, GIB],
        ),
        (
            "desperate",
            CountInput {
                priority: desperate,
                ..base
            },
            Balance::Equal,
            LISTS,
        ),
        (
            "desperate, and told never to swap",
            CountInput {
                priority: desperate,
                swappiness: 0,
                ..base
            },
            Balance::Shares {
                anon: 0,
                file: 200,
                of: 200,
            },
            [0, 0, GIB, GIB],
        ),
        (
            "hardly a file left",
            tiny,
            Balance::AnonOnly,
            [4096, 4096, 0, 0],
        ),
        (
            "hardly a file left, but free memory",
            CountInput {
                free: Pages(8 * MIB),
                ..tiny
            },
            Balance::FilesOnly,
            [0, 0, 4, 4],
        ),
        (
            "the same, and that is not what is wanted",
            CountInput {
                free: Pages(8 * MIB),
                plenty: Pages(300 * MIB),
                ..tiny
            },
            by_swappiness,
            [1228, 1228, 2, 2],
        ),
        (
            "hardly a file left, and active anonymous pages to age",
            CountInput {
                may_deactivate: [true, true],
                ..tiny
            },
            by_swappiness,
            [1228, 1228, 2, 2],
        ),
        (
            "hardly a file left, and no inactive anonymous page",
            CountInput {
                sizes: &few_inactive_anon,
                told: &few_inactive_anon,
                ..tiny
            },
            Balance::FilesOnly,
            [0, 0, 4, 4],
        ),
        (
            "inactive files in plenty",
            CountInput {
                may_deactivate: [true, false],
                ..base
            },
            Balance::FilesOnly,
            [0, 0, 4096, 4096],
        ),
        (
            "inactive files in plenty, and none is spared for them any more",
            CountInput {
                may_deactivate: [true, false],
                spares_anon: false,
                ..base
            },
            by_swappiness,
            [1228, 1228, 2867, 2867],
        ),
        (
            "few inactive files, and the pass is told of the many there were",
            CountInput {
                sizes: &few_inactive_file,
                may_deactivate: [true, false],
                ..base
            },
            Balance::FilesOnly,
            [0, 0, 0, 4096],
        ),
        (
            "few inactive files",
            CountInput {
                sizes: &few_inactive_file,
                told: &few_inactive_file,
                may_deactivate: [true, false],
                ..base
            },
            by_swappiness,
            [1228, 1228, 0, 2867],
        ),
        (
            "swap is as dear as files",
            CountInput {
                swappiness: 100,
                ..base
            },
            Balance::Shares {
                anon: 100,
                file: 100,
                of: 200,
            },
            [2048, 2048, 2048, 2048],
        ),
        (
            "files cost nothing",
            CountInput {
                swappiness: 200,
                ..base
            },
            Balance::Shares {
                anon: 200,
                file: 0,
                of: 200,
            },
            [4096, 4096, 0, 0],
        ),
    ];
    for (what, input, balance, scan) in table {
        let found = plan(&input);
        assert_eq!(found.balance, balance, "{what}");
        assert_eq!(found.counts, counts(scan), "{what}");
        assert_eq!(found.may_deactivate, input.may_deactivate, "{what}");
    }
}

#[test]
fn the_dearer_kind_is_scanned_less_by_half_at_most() {
    let lists = sizes(LISTS);
    // Costs of both kinds, share of anonymous pages in the pass in per mille, at swappiness 100.
    let table = [
        (0, 0, 500),
        (1000, 1000, 500),
        (1000, 0, 333),
        (0, 1000, 666),
        (3000, 1000, 416),
        (1 << 40, 0, 333),
    ];
    for (anon, file, per_mille) in table {
        let costs = costs(anon, file);
        let found = plan(&CountInput {
            swappiness: 100,
            ..input(&lists, &costs)
        });
        let share = found.counts.kind(Kind::Anon).0 * 1000 / found.counts.total().0;
        assert!(share.abs_diff(per_mille) <= 1, "{anon} {file}: {share}");
    }
}

#[test]
fn each_rule_counts_its_own_costs() {
    let listed = Pages(GIB);
    let shrunk = Shrunk {
        scanned: Pages(32),
        reclaimed: Pages(12),
        written: Pages(5),
        activated: Pages(3),
    };
    let table = [
        (CostRule::WritesOnly, [5, 7, 0]),
        (
            CostRule::WritesAndFailures,
            [5 * IO_WEIGHT + 20, 7 * IO_WEIGHT, 9],
        ),
    ];
    for (rule, [for_shrunk, for_refault, for_rotated]) in table {
        let mut costs = Costs::new(rule);
        costs.note_shrunk(Kind::Anon, shrunk, listed);
        assert_eq!(costs.of, [for_shrunk, 0]);
        costs.note_refault(Kind::File, Pages(7), listed);
        assert_eq!(costs.of, [for_shrunk, for_refault]);
        costs.note_rotated(Kind::File, Pages(9), listed);
        assert_eq!(costs.of, [for_shrunk, for_refault + for_rotated]);
    }
}

#[test]
fn costs_are_forgotten_as_new_ones_come() {
    let listed = Pages(4000);
    let mut costs = Costs::new(CostRule::WritesOnly);
    costs.note_refault(Kind::Anon, Pages(1000), listed);
    assert_eq!(costs.of, [1000, 0]);
    costs.note_refault(Kind::File, Pages(1), listed);
    assert_eq!(costs.of, [500, 0]);
    // From then on only files are dear: the other cost fades.
    for _ in 0..100 {
        costs.note_refault(Kind::File, Pages(100), listed);
    }
    assert_eq!(costs.of(Kind::Anon), 0);
    assert!(costs.of(Kind::File) >= 500);
}

#[test]
fn active_lists_are_aged_when_short_of_inactive_pages_or_after_a_refault() {
    let even = sizes([100, 100, 100, 100]);
    let low = sizes([100, 101, 100, 100]);
    // lists, forced, refaults since, may age anonymous pages
    let table = [
        (&even, false, 0, false),
        (&even, true, 0, true),
        (&even, false, 1, true),
        (&low, false, 0, true),
    ];
    for (lists, force, since, may) in table {
        assert_eq!(may_deactivate(lists, Kind::Anon, force, 7 + since, 7), may);
    }
    assert!(!may_deactivate(&low, Kind::File, false, 7, 7));
    let rule = LINUX_5_15.scan;
    assert!(rule.ages_anon(&low, true, Pages(GIB)));
    assert!(!rule.ages_anon(&low, false, Pages(GIB)));
    assert!(!rule.ages_anon(&even, true, Pages(GIB)));
}

#[test]
fn a_pass_of_6_12_is_told_of_lists_and_refaults_as_they_were() {
    let (then, now) = (sizes([1, 2, 3, 4]), sizes([9, 9, 9, 9]));
    let at = |millis| Instant(Nanos::millis(millis).0);
    let mut told = Told::new(LINUX_6_12.scan.told_every);
    // ms, lists, refaults; lists and refaults as they are told
    let table = [
        (1_500, &then, 5, &then, 5),
        (1_999, &now, 6, &then, 5),
        (2_000, &now, 6, &now, 6),
        (3_999, &then, 7, &now, 6),
        (9_000, &then, 7, &then, 7),
    ];
    for (millis, lists, refaults, told_lists, told_refaults) in table {
        assert_eq!(
            told.look(at(millis), lists, [refaults; 2]),
            *told_lists,
            "{millis}"
        );
        assert_eq!(told.activated([99; 2]), [told_refaults; 2], "{millis}");
    }
    let mut told = Told::new(LINUX_5_15.scan.told_every);
    assert_eq!(told.look(at(1), &then, [5; 2]), then);
    assert_eq!(told.look(at(1), &now, [6; 2]), now);
    assert_eq!(told.activated([7; 2]), [7; 2]);
}

fn planned(of: [u64; 4], may_deactivate: [bool; 2]) -> ScanPlan {
    ScanPlan {
        balance: Balance::Equal,
        counts: counts(of),
        cluster: CLUSTER,
        may_deactivate,
        ends_in_proportion: true,
        scans_proportion: true,
        spares_anon: false,
    }
}

/// Runs a pass in which each turn on an inactive list reclaims one page of `one_in`; answers what
/// was scanned, by list, and what was reclaimed.
fn run(mut turns: Turns, one_in: u64) -> ([u64; 4], u64) {
    let mut scanned = [0; 4];
    let mut reclaimed = 0;
    while let Some(turn) = turns.next(Pages(reclaimed)) {
        assert!(!turn.pages.is_zero() && turn.pages <= CLUSTER);
        scanned[turn.list.index()] += turn.pages.0;
        if !turn.list.is_active() {
            reclaimed += turn.pages.0 / one_in;
        }
    }
    assert_eq!(turns.next(Pages(reclaimed)), None, "the end is the end");
    (scanned, reclaimed)
}

#[test]
fn a_round_takes_a_cluster_of_each_list() {
    let plan = planned([40, 32, 33, 1], [true, true]);
    let mut turns = Turns::new(plan, Pages(1000), false);
    let mut found = Vec::new();
    while let Some(turn) = turns.next(Pages(0)) {
        found.push((turn.list, turn.pages.0));
    }
    let expected = [
        (Lru::InactiveAnon, 32),
        (Lru::ActiveAnon, 32),
        (Lru::InactiveFile, 32),
        (Lru::ActiveFile, 1),
        (Lru::InactiveAnon, 8),
        (Lru::InactiveFile, 1),
    ];
    assert_eq!(found, expected);
    assert!(!turns.skipped_deactivate());
}

#[test]
fn a_pass_ends_in_proportion_when_enough_was_reclaimed() {
    let all = u64::MAX;
    // planned, one page reclaimed in, target, never early, scanned
    let table = [
        // Nothing is ever enough.
        ([640, 0, 320, 0], 1, all, false, [640, 0, 320, 0]),
        // Reached in the first round, 64 pages: anonymous pages have 608 left of 640, files 288
        // of 320. Files stop, having scanned 10 % (288 * 100 / 321 = 89 left): the other goes on to
        // 11 % of 640.
        ([640, 0, 320, 0], 1, 64, false, [70, 0, 32, 0]),
        // The same, the other way round.
        ([320, 0, 640, 0], 1, 64, false, [32, 0, 70, 0]),
        // At the gentlest priority direct reclaim goes to the end.
        ([640, 0, 320, 0], 1, 64, true, [640, 0, 320, 0]),
        // One kind alone: no proportion to keep.
        ([640, 0, 0, 0], 1, 64, false, [64, 0, 0, 0]),
        // One kind is through when the target is reached: the pass ends.
        ([640, 0, 32, 0], 1, 64, false, [32, 0, 32, 0]),
        // Equal plans: per cent are rounded, so the other goes on for one more.
        ([640, 0, 640, 0], 1, 64, false, [38, 0, 32, 0]),
        // Half is reclaimed: two rounds.
        ([640, 0, 320, 0], 2, 64, false, [134, 0, 64, 0]),
        // The active list alone is no reason to go on.
        ([32, 640, 0, 0], 1, all, false, [32, 32, 0, 0]),
        // Of files it is.
        ([32, 0, 0, 640], 1, all, false, [32, 0, 0, 640]),
        ([0; 4], 1, 0, false, [0; 4]),
    ];
    for (plan, one_in, target, never_early, scanned) in table {
        let turns = Turns::new(planned(plan, [true, true]), Pages(target), never_early);
        let what = format!("{plan:?} {one_in} {target} {never_early}");
        assert_eq!(run(turns, one_in).0, scanned, "{what}");
    }
}

#[test]
fn in_6_12_a_round_follows_when_enough_was_reclaimed() {
    // planned, one page reclaimed in, scanned; 5.15 would go on to 134 and to 9,000.
    let table = [
        ([640, 0, 320, 0], 2, [96, 0, 64, 0]),
        ([9_000, 0, 32, 1_000], 16, [1_024, 0, 32, 992]),
    ];
    for (plan, one_in, scanned) in table {
        let plan = ScanPlan {
            scans_proportion: LINUX_6_12.scan.scans_proportion,
            ..planned(plan, [true, true])
        };
        let turns = Turns::new(plan, Pages(32 + 2 * 16), false);
        assert_eq!(run(turns, one_in).0, scanned, "{plan:?}");
    }
}

#[test]
fn an_active_list_that_may_not_be_aged_is_passed_over_and_remembered() {
    let plan = planned([64, 64, 64, 64], [false, true]);
    let mut turns = Turns::new(plan, Pages::MAX, false);
    let mut lists = Vec::new();
    while let Some(turn) = turns.next(Pages(0)) {
        lists.push(turn.list.index());
    }
    assert_eq!(lists, [0, 2, 3, 0, 2, 3]);
    assert!(turns.skipped_deactivate());
}

proptest! {
    #[test]
    fn a_pass_scans_no_more_than_was_planned_and_ends(
        plan in prop::array::uniform4(0..5_000_u64),
        may_deactivate in prop::array::uniform2(any::<bool>()),
        target in 0..3_000_u64,
        never_early: bool,
        one_in in 1..40_u64,
    ) {
        let turns = Turns::new(planned(plan, may_deactivate), Pages(target), never_early);
        let (scanned, reclaimed) = run(turns, one_in);
        for list in Lru::ALL {
            let at = list.index();
            prop_assert!(scanned[at] <= plan[at]);
            let all = reclaimed < target || never_early;
            if all && !list.is_active() {
                prop_assert_eq!(scanned[at], plan[at], "nothing may cut it short");
            }
            if list.is_active() && !may_deactivate[list.kind().index()] {
                prop_assert_eq!(scanned[at], 0);
            }
        }
    }

    #[test]
    fn a_cut_pass_keeps_the_proportion_of_its_plan(
        anon in 1_000..100_000_u64,
        file in 1_000..100_000_u64,
        target in 1..500_u64,
    ) {
        let turns = Turns::new(planned([anon, 0, file, 0], [true; 2]), Pages(target), false);
        let (scanned, _) = run(turns, 1);
        // Both to the same share, up to a cluster a round, and the truncation to whole per cent.
        let shares = [scanned[0] * 10_000 / anon, scanned[2] * 10_000 / file];
        let cluster = CLUSTER.0 * 10_000 / anon.min(file);
        prop_assert!(shares[0].abs_diff(shares[1]) <= 100 + cluster, "{:?}", shares);
    }

    #[test]
    fn a_plan_is_within_its_lists_whatever_the_input(
        lists in prop::array::uniform4(0..1_u64 << 52),
        of in prop::array::uniform2(any::<u64>()),
        free: u32,
        priority in 0..=12_u8,
        swappiness in 0..=200_u8,
        may_swap: bool,
        may_deactivate in prop::array::uniform2(any::<bool>()),
    ) {
        let lists = sizes(lists);
        let costs = costs(of[0], of[1]);
        let found = plan(&CountInput {
            sizes: &lists,
            told: &lists,
            free: Pages(u64::from(free)),
            high_mark_sum: Pages(1 << 20),
            priority: Priority(priority),
            background: false,
            rule: LINUX_5_15.scan,
            swappiness,
            may_swap,
            costs: &costs,
            may_deactivate,
            plenty: Pages::ZERO,
            spares_anon: true,
        });
        for list in Lru::ALL {
            let full = scan_count(lists.of(list), Priority(priority));
            prop_assert!(found.counts.of(list) <= full);
            if list.kind() == Kind::Anon && (!may_swap || swappiness == 0 && found.balance != Balance::AnonOnly) {
                prop_assert_eq!(found.counts.of(list), Pages::ZERO);
            }
            if priority == 0 && may_swap && swappiness > 0 {
                prop_assert_eq!(found.counts.of(list), full);
            }
        }
    }

    #[test]
    fn costs_stay_below_a_quarter_of_the_lists_or_halve(
        notes in prop::collection::vec((any::<bool>(), 0..10_000_u64), 1..100),
        listed in 0..1_u64 << 30,
    ) {
        let mut costs = Costs::new(CostRule::WritesAndFailures);
        for (anon, pages) in notes {
            let before = costs.of[0] + costs.of[1];
            let kind = if anon { Kind::Anon } else { Kind::File };
            costs.note_refault(kind, Pages(pages), Pages(listed));
            let (after, added) = (costs.of[0] + costs.of[1], pages * IO_WEIGHT);
            prop_assert!(after <= listed / 4 || after <= (before + added) / 2);
            prop_assert!(after == before + added || before + added > listed / 4);
        }
    }
}

#[test]
fn a_list_taken_for_longer_is_planned_like_a_long_one_and_scanned_in_part() {
    let costs = Costs::new(CostRule::WritesOnly);
    let small = sizes([40_000, 10_000, 3_000, 1_000]);
    let full = small.times(32);
    let gentle = |sizes: &Sizes| {
        plan(&CountInput {
            priority: Priority::GENTLEST,
            may_deactivate: [false, false],
            ..input(sizes, &costs)
        })
    };
    // 3000 pages shifted by twelve are none: the files that are at hand would be overlooked.
    assert!(gentle(&small).counts.of(Lru::InactiveFile).is_zero());
    let long = gentle(&full);
    assert_eq!(long.balance, Balance::FilesOnly);
    assert_eq!(long.counts.of(Lru::InactiveFile), Pages(23));
    let part = long.counts.part(32);
    assert_eq!(part.of(Lru::InactiveFile), Pages(1));
    assert!(part.of(Lru::InactiveAnon).is_zero());
    assert_eq!(small.times(1), small);
    assert_eq!(small.part(1), small);
}

#[test]
fn in_3_0_files_feed_by_half_and_anonymous_pages_by_the_zone() {
    let rule = LINUX_3_0.scan;
    let lists = sizes([100, 301, 100, 100]);
    assert!(!rule.feeds(&lists, Kind::File, Pages(4 * GIB)));
    assert!(rule.feeds(&sizes([0, 0, 100, 101]), Kind::File, Pages(GIB)));
    // Ratio 3 in a zone of 1 GiB, 6 in one of 4, 1 in a smaller one, however short the lists are
    // (vector L1).
    assert!(rule.feeds(&lists, Kind::Anon, Pages(GIB)));
    assert!(!rule.feeds(&lists, Kind::Anon, Pages(4 * GIB)));
    assert!(rule.feeds(&sizes([100, 101, 0, 0]), Kind::Anon, Pages(GIB - 1)));
    assert!(!rule.ages_anon(&lists, false, Pages(GIB)));
    // Turn by turn, and no plan is told before.
    let once = |answer| move || answer;
    assert_eq!(rule.may_deactivate(once([false; 2])), [true; 2]);
    assert_eq!(LINUX_5_15.scan.may_deactivate(once([false; 2])), [false; 2]);
    assert!(!rule.takes_turn(|| lists, Kind::File, Pages(GIB)));
    assert!(LINUX_5_15.scan.takes_turn(|| lists, Kind::File, Pages(GIB)));
}

/// The costs of pages looked at and found in use, anonymous and of files.
fn looked_at(anon: (u64, u64), file: (u64, u64)) -> Costs {
    let mut costs = Costs::new(CostRule::Rotations);
    costs.note_aged(Kind::Anon, Pages(anon.0), Pages(anon.1));
    costs.note_aged(Kind::File, Pages(file.0), Pages(file.1));
    costs
}

#[test]
fn in_3_0_a_kind_that_is_in_use_is_looked_at_less() {
    let lists = sizes(LISTS);
    let plan_of = |costs: &Costs, change: fn(&mut CountInput<'_>)| {
        let mut input = CountInput {
            rule: LINUX_3_0.scan,
            ..input(&lists, costs)
        };
        change(&mut input);
        let found = plan(&input);
        (found.balance, found.counts.0.map(|pages| pages.0))
    };
    let none = looked_at((0, 0), (0, 0));
    // Nothing known: 61 and 141 of 203; the rest is nobody's.
    let shares = |anon, file| Balance::Shares {
        anon,
        file,
        of: anon + file + 1,
    };
    assert_eq!(
        plan_of(&none, |_| ()),
        (shares(61, 141), [1230, 1230, 2845, 2845])
    );
    // 999 anonymous pages looked at and half of them used; of files none: 61 * 1000 / 500 and 141
    // * 1000.
    let known = looked_at((999, 499), (999, 0));
    assert_eq!(plan_of(&known, |_| ()).0, shares(122, 141_000));
    // Inactive files in plenty spare nobody; few files do.
    let few = plan_of(&none, |input| input.high_mark_sum = Pages::MAX);
    assert_eq!(few, (Balance::AnonOnly, [4096, 4096, 0, 0]));
    let desperate = plan_of(&none, |input| {
        input.priority = Priority::DESPERATE;
        input.swappiness = 0;
        input.high_mark_sum = Pages::MAX;
    });
    assert_eq!(desperate, (Balance::Equal, [GIB; 4]));
    let no_swap = plan_of(&none, |input| input.may_swap = false);
    assert_eq!(no_swap, (Balance::FilesOnly, [0, 0, 4096, 4096]));
}

#[test]
fn in_3_0_the_background_looks_at_a_share_of_a_cluster_at_least() {
    let lists = sizes([100, 5000, 0, 100]);
    let costs = looked_at((0, 0), (0, 0));
    let counts = |background, may_swap| {
        let input = CountInput {
            rule: LINUX_3_0.scan,
            priority: Priority(12),
            high_mark_sum: Pages::ZERO,
            background,
            may_swap,
            ..input(&lists, &costs)
        };
        plan(&input).counts.0.map(|pages| pages.0)
    };
    assert_eq!(counts(false, true), [0, 0, 0, 0]);
    // 32 * 61 / 203 and 32 * 141 / 203.
    assert_eq!(counts(true, true), [9, 9, 22, 22]);
    assert_eq!(counts(true, false), [0, 0, 32, 32]);
}

#[test]
fn in_3_0_a_pass_ends_when_it_has_enough() {
    let plan = ScanPlan {
        ends_in_proportion: false,
        ..planned([1000, 0, 1000, 0], [true; 2])
    };
    // Two clusters a round, half of each reclaimed: 32 after the first.
    assert_eq!(
        run(Turns::new(plan, Pages(32), false), 2),
        ([32, 0, 32, 0], 32)
    );
    let never = run(Turns::new(plan, Pages(32), true), 2).0;
    assert_eq!(never, [1000, 0, 1000, 0]);
}

#[test]
fn what_was_looked_at_long_ago_counts_for_half() {
    let mut costs = looked_at((1001, 400), (100, 100));
    let lists = sizes([2000, 2000, 200, 200]);
    costs.forget(&lists);
    assert_eq!((costs.scanned, costs.of), ([500, 100], [200, 100]));
    costs.forget(&lists);
    assert_eq!((costs.scanned, costs.of), ([500, 100], [200, 100]));
    costs.note_refault(Kind::Anon, Pages(1000), Pages(1));
    assert_eq!(costs.of, [200, 100], "no I/O counts");
    let shrunk = Shrunk {
        scanned: Pages(32),
        reclaimed: Pages(30),
        written: Pages(9),
        activated: Pages(2),
    };
    costs.note_shrunk(Kind::File, shrunk, Pages(1));
    assert_eq!((costs.scanned, costs.of), ([500, 132], [200, 102]));
    let mut later = Costs::new(CostRule::WritesOnly);
    later.note_aged(Kind::File, Pages(32), Pages(32));
    later.note_shrunk(Kind::File, shrunk, Pages(GIB));
    assert_eq!((later.scanned, later.of), ([0, 0], [0, 9]));
}
