use super::*;
use crate::linux::{LINUX_3_0, LINUX_3_2, LINUX_5_15};
use crate::reclaim::ReclaimLaw;

mod series;

use PageVerdict::{
    Activate, AwaitWrite, Defer, Keep, KeepForWrite, KeepReferenced, PageOut, Reclaim, SwapOut,
};

const FILE: Seen = Seen {
    anon: false,
    dirty: false,
    writeback: false,
    reclaim: false,
    mapped: false,
    young: false,
    referenced: false,
    has_slot: false,
};
const DIRTY: Seen = Seen {
    dirty: true,
    ..FILE
};
const WRITEBACK: Seen = Seen {
    writeback: true,
    ..FILE
};
const ANON: Seen = Seen {
    anon: true,
    dirty: true,
    ..FILE
};
const SWAP_CACHE: Seen = Seen {
    anon: true,
    has_slot: true,
    ..FILE
};

const DIRECT: Scanner = Scanner {
    background: false,
    node: NodeFlags {
        writeback: false,
        dirty: false,
        congested: false,
    },
    priority: Priority::GENTLEST,
    may_unmap: true,
    may_write: true,
    may_swap_out: true,
    slot_free: true,
    no_second_chance: false,
    rule: LINUX_5_15.rules().page,
};
const BACKGROUND: Scanner = Scanner {
    background: true,
    ..DIRECT
};

fn with_r(seen: Seen) -> Seen {
    Seen {
        reclaim: true,
        ..seen
    }
}

fn accessed(seen: Seen, young: bool, referenced: bool) -> Seen {
    Seen {
        young,
        referenced,
        ..seen
    }
}

fn on(scanner: Scanner, node: NodeFlags) -> Scanner {
    Scanner { node, ..scanner }
}

const ALL_WRITEBACK: NodeFlags = NodeFlags {
    writeback: true,
    dirty: false,
    congested: false,
};
const ALL_DIRTY: NodeFlags = NodeFlags {
    writeback: false,
    dirty: true,
    congested: false,
};

#[test]
fn the_table() {
    let no_slot = Scanner {
        slot_free: false,
        ..DIRECT
    };
    let no_io = Scanner {
        may_swap_out: false,
        ..DIRECT
    };
    let dirty_cache = Seen {
        dirty: true,
        ..SWAP_CACHE
    };
    let writer = on(BACKGROUND, ALL_DIRTY);
    let ours = Scanner {
        rule: ReclaimLaw::TIDEGATE.page,
        ..writer
    };
    let anon_writeback = Seen {
        anon: true,
        has_slot: true,
        ..WRITEBACK
    };
    let no_call = JudgeRule {
        writes_files: false,
        ..LINUX_5_15.page
    };
    let rows = [
        ("6b", WRITEBACK, DIRECT, AwaitWrite),
        ("6b", with_r(WRITEBACK), BACKGROUND, AwaitWrite),
        (
            "6b even if it was accessed",
            accessed(WRITEBACK, true, true),
            DIRECT,
            AwaitWrite,
        ),
        ("6b anon", anon_writeback, DIRECT, AwaitWrite),
        (
            "7 once",
            accessed(FILE, true, false),
            DIRECT,
            KeepReferenced,
        ),
        ("7 twice", accessed(FILE, true, true), DIRECT, Activate),
        (
            "7 once, dirty",
            accessed(DIRTY, true, false),
            DIRECT,
            KeepReferenced,
        ),
        (
            "7 anon once",
            accessed(ANON, true, false),
            DIRECT,
            KeepReferenced,
        ),
        ("7 anon twice", accessed(ANON, true, true), DIRECT, Activate),
        (
            "7 by a call, clean",
            accessed(FILE, false, true),
            DIRECT,
            Reclaim,
        ),
        (
            "7 by a call, dirty: not worth a write",
            accessed(with_r(DIRTY), false, true),
            writer,
            Keep,
        ),
        (
            "7 by a call, anon",
            accessed(ANON, false, true),
            DIRECT,
            SwapOut,
        ),
        ("8", ANON, DIRECT, SwapOut),
        ("8", ANON, BACKGROUND, SwapOut),
        (
            "8 clean, never written to",
            Seen {
                dirty: false,
                ..ANON
            },
            DIRECT,
            SwapOut,
        ),
        ("8 full", ANON, no_slot, Activate),
        ("8 no I/O", ANON, no_io, Keep),
        ("10 direct", DIRTY, DIRECT, AwaitWrite),
        (
            "10 direct, whatever the node",
            with_r(DIRTY),
            on(DIRECT, ALL_DIRTY),
            AwaitWrite,
        ),
        ("10 first time", DIRTY, writer, AwaitWrite),
        ("10 node not known", with_r(DIRTY), BACKGROUND, AwaitWrite),
        ("12", with_r(DIRTY), writer, PageOut),
        (
            "12 ours leaves it to the flusher",
            with_r(DIRTY),
            ours,
            Defer,
        ),
        (
            "12 no call for a single page",
            with_r(DIRTY),
            Scanner {
                rule: no_call,
                ..writer
            },
            Activate,
        ),
        ("12 anon", dirty_cache, DIRECT, PageOut),
        ("11 anon", dirty_cache, no_io, Keep),
        ("12 anon needs no new slot", dirty_cache, no_slot, PageOut),
        ("13", FILE, DIRECT, Reclaim),
        ("13", with_r(FILE), BACKGROUND, Reclaim),
        ("13 anon", SWAP_CACHE, no_io, Reclaim),
    ];
    for (row, seen, scanner, verdict) in rows {
        let found = judge(&seen, &scanner);
        assert_eq!(found.verdict, verdict, "{row}: {seen:?}");
        assert!(!found.immediate, "{row}");
        assert_eq!(found.tested, !seen.writeback, "{row}");
    }
}

#[test]
fn in_3_2_only_the_background_writes_files_and_only_once_gentle_passes_gave_too_little() {
    let at = |background, priority| Scanner {
        background,
        priority: Priority(priority),
        rule: LINUX_3_2.page,
        ..DIRECT
    };
    for (seen, scanner, verdict) in [
        (DIRTY, at(false, 0), KeepForWrite),
        (DIRTY, at(true, 12), KeepForWrite),
        (DIRTY, at(true, 10), KeepForWrite),
        (DIRTY, at(true, 9), PageOut),
        (accessed(DIRTY, false, true), at(true, 9), Keep),
        (WRITEBACK, at(false, 0), Keep),
        (FILE, at(false, 12), Reclaim),
        (ANON, at(false, 12), SwapOut),
        (SWAP_CACHE, at(false, 12), Reclaim),
    ] {
        let found = judge(&seen, &scanner);
        assert_eq!(found.verdict, verdict, "{seen:?} {scanner:?}");
        let mut tally = Tally::default();
        tally.note(&seen, &found);
        let left = u64::from(verdict == KeepForWrite);
        assert_eq!(tally.left_to_flusher, Pages(left), "{seen:?}");
        assert_eq!(tally.activated, Pages::ZERO);
    }
}

#[test]
fn the_table_of_3_0() {
    let direct = Scanner {
        rule: LINUX_3_0.page,
        ..DIRECT
    };
    let background = Scanner {
        rule: LINUX_3_0.page,
        ..BACKGROUND
    };
    // A trim that may neither write nor unmap; and a task within a file system.
    let trim = Scanner {
        may_unmap: false,
        may_write: false,
        may_swap_out: false,
        ..direct
    };
    let within_fs = Scanner {
        may_write: false,
        ..direct
    };
    let no_call = Scanner {
        rule: JudgeRule {
            writes_files: false,
            ..LINUX_3_0.page
        },
        ..direct
    };
    let mapped = |seen| Seen {
        mapped: true,
        ..seen
    };
    let dirty_cache = Seen {
        dirty: true,
        ..SWAP_CACHE
    };
    let rows = [
        ("3", mapped(FILE), trim, Keep),
        ("3 anon", mapped(SWAP_CACHE), trim, Keep),
        ("3 may be unmapped", mapped(FILE), direct, Reclaim),
        ("6b comes round", WRITEBACK, direct, Keep),
        ("6b comes round again", with_r(WRITEBACK), background, Keep),
        (
            "7 anon at once",
            accessed(ANON, true, false),
            direct,
            Activate,
        ),
        (
            "7 file once",
            accessed(FILE, true, false),
            direct,
            KeepReferenced,
        ),
        (
            "7 by a call, dirty",
            accessed(DIRTY, false, true),
            background,
            Keep,
        ),
        ("11 trim", DIRTY, trim, Keep),
        ("11 within a file system", DIRTY, within_fs, Keep),
        (
            "11 within a file system, anon",
            dirty_cache,
            within_fs,
            PageOut,
        ),
        ("12 direct", DIRTY, direct, PageOut),
        ("12 first time", DIRTY, background, PageOut),
        ("12 no call", DIRTY, no_call, Activate),
        ("13", FILE, trim, Reclaim),
    ];
    for (row, seen, scanner, verdict) in rows {
        let found = judge(&seen, &scanner);
        assert_eq!(found.verdict, verdict, "{row}: {seen:?}");
        assert_eq!(found.sets_reclaim(), verdict == PageOut, "{row}");
    }
}

#[test]
fn what_a_pass_of_3_0_met_marks_nothing_and_stalls_nobody() {
    let mut tally = Tally::default();
    for seen in [with_r(WRITEBACK), WRITEBACK] {
        let scanner = on(
            Scanner {
                rule: LINUX_3_0.page,
                ..BACKGROUND
            },
            ALL_WRITEBACK,
        );
        tally.note(&seen, &judge(&seen, &scanner));
    }
    let pass = |rule| Pass {
        background: true,
        may_throttle: true,
        node: ALL_WRITEBACK,
        aside: Pages::ZERO,
        inactive_file: Pages::ZERO,
        last: false,
        rule,
    };
    assert_eq!(
        after_pass(&tally, &pass(LINUX_3_0.page)),
        NodeChange::default()
    );
    let mut dirty = Tally::default();
    dirty.note(&DIRTY, &judge(&DIRTY, &DIRECT));
    assert_ne!(
        after_pass(&dirty, &pass(LINUX_5_15.page)),
        NodeChange::default()
    );
    assert!(dirty.wants_flushers(LINUX_5_15.page));
    assert!(!dirty.wants_flushers(LINUX_3_0.page));
}

#[test]
fn immediate_is_writeback_again_for_the_background_on_a_node_known_for_it() {
    for (seen, scanner, immediate) in [
        (with_r(WRITEBACK), on(BACKGROUND, ALL_WRITEBACK), true),
        (with_r(WRITEBACK), on(BACKGROUND, ALL_DIRTY), false),
        (with_r(WRITEBACK), on(DIRECT, ALL_WRITEBACK), false),
        (WRITEBACK, on(BACKGROUND, ALL_WRITEBACK), false),
        (with_r(DIRTY), on(BACKGROUND, ALL_WRITEBACK), false),
    ] {
        assert_eq!(judge(&seen, &scanner).immediate, immediate, "{seen:?}");
    }
}

/// Every page that can be seen by every reclaimer that can look, by three tables: 3 * 2^16 cases.
fn each_case(mut check: impl FnMut(&Seen, &Scanner)) {
    let rules = [
        LINUX_3_0.page,
        LINUX_3_2.page,
        LINUX_5_15.page,
        ReclaimLaw::TIDEGATE.page,
    ];
    for case in 0..4_u32 << 17 {
        let bit = |at: u32| case >> at & 1 != 0;
        let seen = Seen {
            anon: bit(0),
            dirty: bit(1),
            writeback: bit(2),
            mapped: bit(13),
            reclaim: bit(3),
            young: bit(4),
            referenced: bit(5),
            has_slot: bit(0) && bit(6),
        };
        let scanner = Scanner {
            background: bit(7),
            node: NodeFlags {
                writeback: bit(8),
                dirty: bit(9),
                congested: bit(10),
            },
            may_unmap: bit(14),
            may_write: bit(15),
            may_swap_out: bit(11),
            slot_free: bit(12),
            no_second_chance: false,
            priority: Priority(if bit(16) { 9 } else { 10 }),
            rule: rules[(case >> 17) as usize],
        };
        check(&seen, &scanner);
    }
}

#[test]
fn the_invariants_hold_in_every_case() {
    let mut met = [0_u32; 9];
    each_case(|seen, scanner| {
        let found = judge(seen, scanner);
        let what = format!("{seen:?} {scanner:?} {found:?}");
        met[found.verdict as usize] += 1;
        if found.verdict == Reclaim {
            assert!(!seen.dirty && !seen.writeback, "1: {what}");
            assert!(!seen.anon || seen.has_slot, "1: {what}");
        }
        if found.writes() {
            let may = scanner.background || scanner.rule.writers == Writers::All;
            assert!(seen.anon || may && scanner.may_write, "2: {what}");
            assert!(!seen.writeback, "3: {what}");
            assert!(!seen.anon || scanner.may_swap_out, "{what}");
        }
        if found.sets_reclaim() {
            let waits = seen.dirty || seen.writeback || found.verdict == SwapOut;
            assert!(waits, "5: {what}");
        }
        let stays = seen.mapped && !scanner.may_unmap;
        if stays {
            assert_eq!(found.verdict, Keep, "{what}");
        } else if scanner.rule.waits == Waits::Aside && !seen.anon && seen.writeback {
            assert_eq!(found.verdict, Defer, "6: {what}");
        }
        assert_eq!(
            found.verdict == SwapOut,
            found.writes() && !seen.has_slot && seen.anon
        );
        let at_once = seen.anon && scanner.rule.young_anon_is_active;
        let referenced = seen.young && !at_once;
        assert!(!found.tested || found.referenced == referenced, "{what}");
    });
    assert!(met.iter().all(|count| *count > 0), "{met:?}");
}

#[test]
fn a_tally_counts_every_page_once() {
    each_case(|seen, scanner| {
        let found = judge(seen, scanner);
        let mut tally = Tally::default();
        tally.note(seen, &found);
        let what = format!("{seen:?} {scanner:?} {found:?} {tally:?}");
        let one = Pages(1);
        assert_eq!((tally.scanned, tally.taken), (one, one), "{what}");
        let outcomes = tally.activated
            + tally.kept_referenced
            + tally.written
            + tally.reclaimed
            + if matches!(found.verdict, Defer | KeepForWrite) {
                tally.writeback + tally.left_to_flusher + tally.immediate
            } else {
                Pages::ZERO
            };
        assert_eq!(outcomes == one, found.verdict != Keep, "{what}");
        if seen.anon {
            let of_files = tally.dirty + tally.unqueued_dirty + tally.congested + tally.file_taken;
            assert_eq!(of_files, Pages::ZERO, "4: {what}");
        }
        assert!(tally.unqueued_dirty <= tally.dirty, "{what}");
        assert!(tally.congested <= tally.dirty, "{what}");
        assert!(tally.left_to_flusher <= tally.unqueued_dirty, "{what}");
        // Twice is twice, but for what is said of the last cluster alone.
        let mut twice = tally;
        twice.absorb(&tally);
        let mut again = tally;
        again.note(seen, &found);
        assert_eq!(twice.plainly_kept, tally.plainly_kept);
        again.plainly_kept = tally.plainly_kept;
        assert_eq!(twice, again);
    });
}

#[test]
fn a_page_that_comes_round_again_under_writeback_counts_as_congested() {
    for (seen, congested) in [(with_r(WRITEBACK), 1), (WRITEBACK, 0), (with_r(DIRTY), 0)] {
        let mut tally = Tally::default();
        tally.note(&seen, &judge(&seen, &DIRECT));
        assert_eq!(tally.congested, Pages(congested), "{seen:?}");
    }
}

#[test]
fn the_flushers_are_woken_by_a_cluster_of_nothing_but_dirty_pages() {
    let tally = |pages: &[Seen]| {
        let mut tally = Tally::default();
        for seen in pages {
            tally.note(seen, &judge(seen, &DIRECT));
        }
        tally
    };
    assert!(tally(&[DIRTY, DIRTY]).wants_flushers(LINUX_5_15.page));
    assert!(!tally(&[DIRTY, FILE]).wants_flushers(LINUX_5_15.page));
    assert!(!tally(&[DIRTY, WRITEBACK]).wants_flushers(LINUX_5_15.page));
    assert!(!tally(&[DIRTY, ANON]).wants_flushers(LINUX_5_15.page));
    assert!(!tally(&[]).wants_flushers(LINUX_5_15.page));
    let mut with_busy = tally(&[DIRTY]);
    with_busy.note_refused(false);
    assert!(!with_busy.wants_flushers(LINUX_5_15.page));
}

#[test]
fn what_follows_from_a_pass() {
    let none = NodeFlags::default();
    let background = Pass {
        background: true,
        may_throttle: false,
        node: none,
        aside: Pages::ZERO,
        inactive_file: Pages(31),
        last: true,
        rule: LINUX_5_15.page,
    };
    let direct = Pass {
        background: false,
        may_throttle: true,
        node: NodeFlags {
            congested: true,
            ..none
        },
        ..background
    };
    let ours = Pass {
        rule: ReclaimLaw::TIDEGATE.page,
        ..background
    };
    let one = Pages(1);
    let taken = Tally {
        taken: Pages(2),
        file_taken: Pages(2),
        ..Tally::default()
    };
    let all_writeback = Tally {
        writeback: Pages(2),
        ..taken
    };
    let all_dirty = Tally {
        dirty: Pages(2),
        unqueued_dirty: Pages(2),
        ..taken
    };
    let all_congested = Tally {
        dirty: Pages(2),
        congested: Pages(2),
        ..taken
    };
    let again = Tally {
        immediate: one,
        ..taken
    };
    let only_anon = Tally {
        file_taken: Pages::ZERO,
        ..taken
    };
    let freed = Tally {
        reclaimed: one,
        ..taken
    };
    let half_held = Tally {
        taken: Pages(256),
        file_taken: Pages(256),
        writeback: Pages(6),
        held: Pages(250),
        ..taken
    };
    let congested = NodeFlags {
        congested: true,
        ..none
    };
    let immediate = Some(PassStall::Immediate);
    let waiting = Pass { aside: one, ..ours };
    let table = [
        ("clean", taken, background, none, None),
        (
            "all under writeback",
            all_writeback,
            background,
            ALL_WRITEBACK,
            None,
        ),
        (
            "one of two",
            Tally {
                writeback: one,
                ..taken
            },
            background,
            none,
            None,
        ),
        ("all dirty", all_dirty, background, ALL_DIRTY, None),
        (
            "one of two",
            Tally {
                unqueued_dirty: one,
                ..all_dirty
            },
            background,
            none,
            None,
        ),
        (
            "no page of a file: the kernel's quirk",
            only_anon,
            background,
            ALL_DIRTY,
            None,
        ),
        ("no page of a file: 6.18", only_anon, ours, none, None),
        ("all congested", all_congested, background, congested, None),
        ("round again", again, background, none, immediate),
        (
            "round again, direct",
            again,
            direct,
            none,
            Some(PassStall::Congested),
        ),
        (
            "direct marks nothing",
            all_congested,
            Pass {
                node: none,
                ..direct
            },
            none,
            None,
        ),
        (
            "direct, congested, a part of writing itself",
            taken,
            Pass {
                may_throttle: false,
                ..direct
            },
            none,
            None,
        ),
        (
            "ours: nothing freed, pages aside, and what was met waits too",
            Tally {
                writeback: Pages(1),
                left_to_flusher: taken.taken - Pages(1),
                ..taken
            },
            waiting,
            none,
            immediate,
        ),
        (
            "ours: nothing freed, pages aside, but what was met is in use",
            Tally {
                kept_referenced: taken.taken,
                ..taken
            },
            waiting,
            none,
            None,
        ),
        (
            "ours: nothing freed, pages aside, and what else was met is held",
            Tally {
                writeback: Pages(1),
                held: taken.taken - Pages(1),
                ..taken
            },
            waiting,
            none,
            immediate,
        ),
        (
            "ours: half a list was looked at, and all but a few pages of that are held",
            half_held,
            Pass {
                inactive_file: Pages(512),
                ..waiting
            },
            none,
            immediate,
        ),
        (
            "ours: the same, but a third of that waits",
            Tally {
                writeback: Pages(86),
                held: Pages(170),
                ..half_held
            },
            Pass {
                inactive_file: Pages(512),
                ..waiting
            },
            none,
            None,
        ),
        (
            "ours: the same, but another pass looks at the other half",
            half_held,
            Pass {
                inactive_file: Pages(512),
                last: false,
                ..waiting
            },
            none,
            None,
        ),
        (
            "ours: a held page was met, but another pass looks at more",
            Tally {
                held: taken.taken,
                ..taken
            },
            Pass {
                last: false,
                ..waiting
            },
            none,
            None,
        ),
        (
            "ours: pages come round again, but something was freed",
            Tally {
                immediate: Pages(1),
                ..freed
            },
            waiting,
            none,
            None,
        ),
        (
            "ours: nothing met, pages aside",
            Tally::default(),
            waiting,
            none,
            immediate,
        ),
        (
            "ours: nothing met, but another pass looks at more",
            Tally::default(),
            Pass {
                last: false,
                ..waiting
            },
            none,
            None,
        ),
        ("ours: something freed", freed, waiting, none, None),
        (
            "ours: nothing freed, but more to look at",
            taken,
            Pass {
                inactive_file: Pages(32),
                ..waiting
            },
            none,
            None,
        ),
        ("ours: none aside", taken, ours, none, None),
    ];
    for (what, tally, pass, set, stall) in table {
        let flushers = stall.is_some() && !pass.aside.is_zero();
        let expected = NodeChange {
            set,
            stall,
            flushers,
        };
        assert_eq!(after_pass(&tally, &pass), expected, "{what}");
    }
    assert_eq!(
        none.with(ALL_DIRTY).with(ALL_WRITEBACK).with(none),
        NodeFlags {
            writeback: true,
            dirty: true,
            congested: false
        }
    );
}

#[test]
fn where_a_page_goes_when_its_write_ends() {
    use AfterWrite::{Rotates, Stays, StaysAside};
    // R, aside, dirty, busy
    let table = [
        (true, false, false, false, Rotates),
        (false, false, false, false, Stays),
        (true, false, true, false, Stays),
        (true, false, false, true, Stays),
        (true, true, false, false, Rotates),
        (false, true, false, false, Rotates),
        (false, true, false, true, Rotates),
        (true, true, true, false, StaysAside),
    ];
    for (reclaim, aside, dirty, busy, goes) in table {
        assert_eq!(after_write(reclaim, aside, dirty, busy), goes);
    }
}

#[test]
fn one_who_insists_gives_no_second_chance() {
    for (seen, gentle, insisting) in [
        (
            Seen {
                young: true,
                ..FILE
            },
            KeepReferenced,
            Reclaim,
        ),
        (
            Seen {
                young: true,
                referenced: true,
                ..FILE
            },
            Activate,
            Reclaim,
        ),
    ] {
        for no_second_chance in [false, true] {
            let scanner = Scanner {
                no_second_chance,
                ..DIRECT
            };
            let expected = if no_second_chance { insisting } else { gentle };
            assert_eq!(judge(&seen, &scanner).verdict, expected, "{seen:?}");
        }
    }
    let writeback = Seen {
        writeback: true,
        young: true,
        ..FILE
    };
    let scanner = Scanner {
        no_second_chance: true,
        ..DIRECT
    };
    assert_eq!(judge(&writeback, &scanner).verdict, AwaitWrite);
}

#[test]
fn a_pass_is_in_vain_if_hardly_anything_goes_and_most_is_in_use() {
    let tally = |scanned, reclaimed, written, kept, activated| Tally {
        scanned: Pages(scanned),
        reclaimed: Pages(reclaimed),
        written: Pages(written),
        kept_referenced: Pages(kept),
        activated: Pages(activated),
        ..Tally::default()
    };
    assert!(tally(256, 15, 16, 100, 29).is_fruitless(ReclaimLaw::TIDEGATE.page));
    assert!(
        !tally(255, 0, 0, 255, 0).is_fruitless(ReclaimLaw::TIDEGATE.page),
        "too few to say"
    );
    assert!(
        !tally(256, 16, 16, 200, 24).is_fruitless(ReclaimLaw::TIDEGATE.page),
        "an eighth goes"
    );
    assert!(
        !tally(256, 0, 0, 100, 28).is_fruitless(ReclaimLaw::TIDEGATE.page),
        "most waits for writes"
    );
    assert!(!tally(256, 15, 16, 100, 29).is_fruitless(LINUX_5_15.page));
}

#[test]
fn a_page_is_tallied_by_what_it_is_and_by_what_was_judged() {
    let bools = [false, true];
    let verdicts = [
        Keep,
        KeepReferenced,
        KeepForWrite,
        Activate,
        AwaitWrite,
        Defer,
        Reclaim,
        SwapOut,
        PageOut,
    ];
    for (verdict, immediate) in verdicts.into_iter().flat_map(|v| bools.map(|i| (v, i))) {
        for bits in 0..16_u8 {
            let [anon, dirty, writeback, reclaim] = [0, 1, 2, 3].map(|bit| bits & 1 << bit != 0);
            let seen = Seen {
                anon,
                dirty,
                writeback,
                reclaim,
                ..FILE
            };
            let judged = Judgement {
                verdict,
                tested: false,
                referenced: false,
                immediate,
            };
            let mut tally = Tally::default();
            tally.note(&seen, &judged);
            let leaves = matches!(verdict, Reclaim | SwapOut | PageOut);
            let waits = matches!(verdict, AwaitWrite | Defer | KeepForWrite);
            for (name, count, is_one) in [
                ("taken", tally.taken, true),
                ("file_taken", tally.file_taken, !anon),
                ("plainly_kept", tally.plainly_kept, !leaves && !writeback),
                ("dirty", tally.dirty, !anon && (dirty || writeback)),
                (
                    "unqueued_dirty",
                    tally.unqueued_dirty,
                    !anon && dirty && !writeback,
                ),
                ("congested", tally.congested, !anon && writeback && reclaim),
                (
                    "kept_referenced",
                    tally.kept_referenced,
                    verdict == KeepReferenced,
                ),
                (
                    "activated",
                    tally.activated,
                    matches!(verdict, Activate | AwaitWrite),
                ),
                ("immediate", tally.immediate, waits && immediate),
                (
                    "writeback",
                    tally.writeback,
                    waits && !immediate && writeback,
                ),
                (
                    "left_to_flusher",
                    tally.left_to_flusher,
                    waits && !immediate && !writeback,
                ),
                ("reclaimed", tally.reclaimed, verdict == Reclaim),
                (
                    "written",
                    tally.written,
                    matches!(verdict, SwapOut | PageOut),
                ),
            ] {
                assert_eq!(
                    count,
                    Pages(is_one.into()),
                    "{name} of {seen:?}, {judged:?}"
                );
            }
        }
    }
}
