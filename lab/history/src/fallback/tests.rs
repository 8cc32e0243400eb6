use policy::place::mobility::Mobility::{Movable, Reclaimable, Unmovable};
use policy::place::mobility::*;
use policy::reclaim::boost::Event;
use policy::units::Pages;

use super::*;

const PAGEBLOCK: u8 = 9;

/// Rules that tag a pageblock by what is free of it or like the request: all but that of 3.x, which
/// has a test of its own.
const BY_WHAT_IS_ALIKE: [FallbackRule; 4] = [LINUX_4_20, LINUX_5_0, LINUX_5_3, LINUX_6_12];

/// Lists that have a block: mobility and order.
fn free(blocks: &[(Mobility, u8)]) -> FreeOrders {
    let mut counts = [[0; ORDERS]; 3];
    for (mobility, order) in blocks {
        counts[mobility.index()][usize::from(*order)] += 1;
    }
    FreeOrders::of_blocks(counts)
}

fn request(mobility: Mobility, order: u8) -> Request {
    Request {
        mobility,
        order,
        keeps_apart: false,
    }
}

fn block(from: Mobility, order: u8) -> Block {
    Block { order, from }
}

fn first(rule: FallbackRule, request: Request, blocks: &[(Mobility, u8)]) -> FallbackStep {
    Fallback::begin(rule, request, PAGEBLOCK).step(free(blocks))
}

/// All steps, if no claim succeeds.
fn steps(rule: FallbackRule, request: Request, blocks: &[(Mobility, u8)]) -> Vec<FallbackStep> {
    let mut fallback = Fallback::begin(rule, request, PAGEBLOCK);
    let mut steps = Vec::new();
    loop {
        let step = fallback.step(free(blocks));
        steps.push(step);
        if !matches!(step, FallbackStep::Claim(_)) {
            return steps;
        }
    }
}

#[test]
fn each_mobility_has_its_order_of_fallbacks_without_itself() {
    for mobility in Mobility::ALL {
        let mut all = mobility.fallbacks().to_vec();
        assert!(!all.contains(&mobility));
        all.push(mobility);
        all.sort_unstable();
        assert_eq!(all, Mobility::ALL);
    }
    // One list of order 9 each: the first fallback is taken.
    let all = [(Unmovable, 9), (Movable, 9), (Reclaimable, 9)];
    let taken = Mobility::ALL.map(|mobility| first(LINUX_5_0, request(mobility, 0), &all));
    assert_eq!(
        taken,
        [Reclaimable, Reclaimable, Unmovable].map(|from| FallbackStep::Retag(block(from, 9)))
    );
}

#[test]
fn a_larger_block_goes_before_a_nearer_mobility() {
    let lists = [(Unmovable, 3), (Movable, 7)];
    for rule in ALL {
        assert_eq!(
            first(rule, request(Reclaimable, 0), &lists),
            FallbackStep::Claim(block(Movable, 7)),
            "{}",
            rule.name
        );
    }
}

#[test]
fn a_movable_request_claims_from_half_a_pageblock_order_on() {
    // The largest foreign block, and what a movable request of order 0 and a reclaimable one do
    // with it.
    let of = |rule, want, order| {
        let from = if want == Movable {
            Reclaimable
        } else {
            Movable
        };
        first(rule, request(want, 0), &[(from, order), (from, 1)])
    };
    for rule in BY_WHAT_IS_ALIKE {
        for order in 2..=8 {
            let claim = FallbackStep::Claim(block(Movable, order));
            assert_eq!(of(rule, Reclaimable, order), claim, "{}", rule.name);
        }
        for order in 4..=8 {
            let claim = FallbackStep::Claim(block(Reclaimable, order));
            assert_eq!(of(rule, Movable, order), claim, "{}", rule.name);
        }
        for order in 2..=3 {
            let smallest = block(Reclaimable, 1);
            let step = if rule.claims_or_leaves {
                FallbackStep::Take(smallest)
            } else {
                FallbackStep::Move(smallest)
            };
            assert_eq!(of(rule, Movable, order), step, "{}", rule.name);
        }
        for order in 9..=10 {
            let retag = FallbackStep::Retag(block(Reclaimable, order));
            assert_eq!(of(rule, Movable, order), retag, "{}", rule.name);
        }
    }
}

#[test]
fn the_smallest_block_still_holds_the_request() {
    let lists = [(Reclaimable, 0), (Unmovable, 2), (Reclaimable, 3)];
    let smallest = |order| first(LINUX_5_0, request(Movable, order), &lists);
    assert_eq!(smallest(0), FallbackStep::Move(block(Reclaimable, 0)));
    assert_eq!(smallest(1), FallbackStep::Move(block(Unmovable, 2)));
    assert_eq!(smallest(3), FallbackStep::Move(block(Reclaimable, 3)));
    assert_eq!(smallest(4), FallbackStep::None);
}

#[test]
fn a_claim_that_fails_in_6_12_goes_on_to_smaller_blocks_and_takes_in_the_end() {
    let lists = [(Movable, 7), (Unmovable, 5), (Movable, 2), (Movable, 0)];
    assert_eq!(
        steps(LINUX_6_12, request(Reclaimable, 0), &lists),
        [
            FallbackStep::Claim(block(Movable, 7)),
            FallbackStep::Claim(block(Unmovable, 5)),
            FallbackStep::Claim(block(Movable, 2)),
            FallbackStep::Claim(block(Movable, 0)),
            FallbackStep::Take(block(Movable, 0)),
        ]
    );
    // A movable request leaves off where blocks are too small to claim, though a claim succeeded
    // with none.
    let lists = [(Reclaimable, 7), (Unmovable, 4), (Unmovable, 3)];
    assert_eq!(
        steps(LINUX_6_12, request(Movable, 0), &lists),
        [
            FallbackStep::Claim(block(Reclaimable, 7)),
            FallbackStep::Claim(block(Unmovable, 4)),
            FallbackStep::Take(block(Unmovable, 3)),
        ]
    );
}

#[test]
fn who_keeps_pageblocks_apart_takes_whole_ones_or_none() {
    let apart = Request {
        keeps_apart: true,
        ..request(Movable, 0)
    };
    let small = [(Reclaimable, 8)];
    let whole = [(Reclaimable, 8), (Unmovable, 9)];
    for rule in ALL {
        let split = FallbackStep::Claim(block(Reclaimable, 8));
        let expected = if rule.keeps_apart {
            FallbackStep::None
        } else {
            split
        };
        assert_eq!(first(rule, apart, &small), expected, "{}", rule.name);
        let retag = FallbackStep::Retag(block(Unmovable, 9));
        assert_eq!(first(rule, apart, &whole), retag, "{}", rule.name);
    }
    // Larger than a pageblock.
    let huge = Request { order: 10, ..apart };
    assert_eq!(first(LINUX_5_3, huge, &whole), FallbackStep::None);
}

#[test]
fn half_a_pageblock_free_or_alike_is_tagged() {
    // want, tag, free, movable, whether it is
    let table = [
        (Movable, Reclaimable, 256, 0, true),
        (Movable, Reclaimable, 255, 0, false),
        (Movable, Reclaimable, 200, 56, true),
        (Movable, Unmovable, 200, 55, false),
        // Of a movable pageblock what is not movable is alike: 512 - (100 + 256) = 156.
        (Reclaimable, Movable, 100, 256, true),
        (Reclaimable, Movable, 100, 257, false),
        (Unmovable, Movable, 0, 256, true),
        (Unmovable, Movable, 0, 257, false),
        (Reclaimable, Movable, 1, 511, false),
        // Of the other kind nothing is.
        (Reclaimable, Unmovable, 255, 0, false),
        (Reclaimable, Unmovable, 256, 0, true),
        (Unmovable, Reclaimable, 255, 200, false),
    ];
    for (want, tag, free, movable, expected) in table {
        let found = Found {
            tag,
            free: Pages(free),
            movable: Pages(movable),
        };
        assert_eq!(
            is_alike(want, &found, PAGEBLOCK),
            expected,
            "{want:?} {found:?}"
        );
        for rule in BY_WHAT_IS_ALIKE {
            let fallback = Fallback::begin(rule, request(want, 0), PAGEBLOCK);
            let expected = match (expected, rule.claims_or_leaves) {
                (true, _) => Claimed::Tagged,
                (false, true) => Claimed::Left,
                (false, false) => Claimed::Moved,
            };
            assert_eq!(fallback.looked(&found), expected, "{}", rule.name);
        }
    }
    // A pageblock of a scaled memory: 128 pages.
    let found = Found {
        tag: Reclaimable,
        free: Pages(64),
        movable: Pages(0),
    };
    assert!(is_alike(Movable, &found, 7));
    assert!(!is_alike(Movable, &found, 8));
}

#[test]
fn what_is_an_event() {
    let of = |step: FallbackStep| step.event();
    let small = block(Movable, 8);
    assert_eq!(of(FallbackStep::Claim(small)), Some(Event::Claims));
    assert_eq!(of(FallbackStep::Move(small)), Some(Event::Takes));
    assert_eq!(of(FallbackStep::Take(small)), Some(Event::Takes));
    assert_eq!(of(FallbackStep::Retag(block(Movable, 9))), None);
    assert_eq!(of(FallbackStep::None), None);
}

#[test]
fn half_the_order_of_a_scaled_pageblock_decides() {
    // 9 / 2 = 4, 7 / 2 = 3, 1 / 2 = 0.
    for (pageblock, least) in [(9, 4), (8, 4), (7, 3), (1, 0)] {
        for order in 0..pageblock {
            let mut fallback = Fallback::begin(LINUX_5_0, request(Movable, 0), pageblock);
            let step = fallback.step(free(&[(Unmovable, order)]));
            let claims = matches!(step, FallbackStep::Claim(_));
            assert_eq!(claims, order >= least, "{pageblock} {order}");
        }
    }
}

#[test]
fn any_lists_end_a_fallback_and_give_no_block_that_is_own_or_too_small() {
    for lists in 0_u32..1 << 12 {
        // Orders 0, 3, 4 and 9 of each mobility.
        let all = Mobility::ALL
            .into_iter()
            .flat_map(|mobility| [0, 3, 4, 9].map(|order| (mobility, order)));
        let blocks: Vec<_> = all
            .enumerate()
            .filter_map(|(at, block)| (lists >> at & 1 == 1).then_some(block))
            .collect();
        for want in Mobility::ALL {
            for rule in ALL {
                let steps = steps(rule, request(want, 1), &blocks);
                let foreign = blocks
                    .iter()
                    .any(|(from, order)| *from != want && *order >= 1);
                assert_eq!(steps[0] != FallbackStep::None, foreign);
                for step in steps {
                    match step {
                        FallbackStep::Retag(block)
                        | FallbackStep::Claim(block)
                        | FallbackStep::Move(block)
                        | FallbackStep::Take(block) => {
                            let retags = matches!(step, FallbackStep::Retag(_));
                            assert_eq!(block.order >= PAGEBLOCK, retags);
                            assert!(block.from != want && block.order >= 1);
                            assert!(blocks.contains(&(block.from, block.order)));
                        }
                        FallbackStep::None => assert!(!foreign),
                    }
                }
            }
        }
    }
}

#[test]
fn rules_are_found_by_name() {
    for rule in ALL {
        assert_eq!(by_name(rule.name), Some(rule));
    }
    assert_eq!(by_name("linux-2.4"), None);
}

#[test]
fn three_two_looks_at_what_is_free_alone() {
    let rule = LINUX_3_2;
    let blocks = [(Movable, 3), (Movable, 1)];
    // Below half a pageblock's order it is taken from, the largest first, and nothing goes along.
    let take = FallbackStep::Take(block(Movable, 3));
    assert_eq!(first(rule, request(Unmovable, 0), &blocks), take);
    let claim = FallbackStep::Claim(block(Movable, 3));
    assert_eq!(first(rule, request(Reclaimable, 0), &blocks), claim);
    let half = [(Movable, 4)];
    let claim = FallbackStep::Claim(block(Movable, 4));
    assert_eq!(first(rule, request(Unmovable, 0), &half), claim);
    let looked = |free, movable| {
        Fallback::begin(rule, request(Movable, 0), PAGEBLOCK).looked(&Found {
            tag: Unmovable,
            free: Pages(free),
            movable: Pages(movable),
        })
    };
    assert_eq!(
        looked(255, 200),
        Claimed::Moved,
        "what is like it does not count"
    );
    assert_eq!(looked(256, 0), Claimed::Tagged);
}
