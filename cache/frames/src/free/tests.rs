use proptest::prelude::*;

use super::*;

const FRAMES: u32 = 5000;

fn lists(frames: u32) -> FreeLists {
    let mut lists = FreeLists::new(frames);
    lists.add_range(FrameId(0), frames);
    lists
}

/// Invariants 1 to 3, and that no two buddies are free beside each other.
fn check(lists: &FreeLists) -> Vec<bool> {
    let mut is_free = vec![false; lists.marks.len()];
    let mut total = 0;
    for group in groups(lists) {
        total += check_group(lists, group, &mut is_free);
    }
    let starts = lists.marks.iter().filter(|&&mark| mark != NO_BLOCK).count();
    let blocks = groups(lists).map(|group| lists.blocks(group).iter().sum::<u32>());
    assert_eq!(starts, blocks.sum::<u32>() as usize);
    assert_eq!(lists.free(), total);
    is_free
}

fn groups(lists: &FreeLists) -> impl Iterator<Item = Group> + use<> {
    let mobilities = lists.blocks.mobilities;
    (0..lists.blocks.zones)
        .flat_map(move |zone| (0..mobilities).map(move |mobility| Group { zone, mobility }))
}

/// Answers how many frames are free in the group.
fn check_group(lists: &FreeLists, group: Group, is_free: &mut [bool]) -> u32 {
    let own = lists.groups[usize::from(lists.blocks.number(group))];
    let mut total = 0;
    for order in 0..=FreeLists::ORDER_MAX {
        let list = usize::from(order);
        let (mut at, mut prev, mut blocks) = (own.heads[list], NIL, 0);
        assert_eq!(at != NIL, own.nonempty >> order & 1 == 1);
        while at != NIL {
            assert_eq!(at % (1 << order), 0);
            assert_eq!(
                lists.marks[at as usize],
                mark(order, lists.blocks.number(group))
            );
            assert_eq!(lists.home(FrameId(at)).zone, group.zone);
            assert_eq!(lists.links[at as usize].prev, prev);
            let buddy = at ^ 1 << order;
            if order < FreeLists::ORDER_MAX
                && order < lists.blocks.order
                && (buddy as usize) < lists.marks.len()
                && lists.home(FrameId(at)).mobility == group.mobility
            {
                assert_ne!(
                    lists.marks[buddy as usize],
                    mark(order, lists.blocks.number(group)),
                    "unmerged buddies"
                );
            }
            if order > lists.blocks.order {
                assert!(lists.is_of_one_group(at, order), "a block of two groups");
            }
            for frame in at..at + (1 << order) {
                assert!(!is_free[frame as usize], "frame {frame} is in two blocks");
                is_free[frame as usize] = true;
            }
            (prev, at, blocks) = (at, lists.links[at as usize].next, blocks + 1);
            total += 1 << order;
        }
        assert_eq!(own.blocks[list], blocks);
    }
    total
}

/// Runs of the answer: (first, length).
fn runs(frames: &[FrameId]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for frame in frames {
        match runs.last_mut() {
            Some((first, len)) if *first + *len == frame.0 => *len += 1,
            _ => runs.push((frame.0, 1)),
        }
    }
    runs
}

#[test]
fn a_batch_from_a_large_block_is_one_run() {
    let mut lists = lists(4096);
    let mut out = Vec::new();
    for want in [256, 300, 1, 77] {
        out.clear();
        assert_eq!(lists.try_take_batch(Group::FIRST, want, &mut out), want);
        assert_eq!(runs(&out).len(), 1, "{want} frames in one run");
        check(&lists);
    }
}

#[test]
fn a_batch_prefers_the_block_that_just_fits() {
    let mut lists = FreeLists::new(4096);
    lists.add_range(FrameId(0), 1024);
    lists.add_range(FrameId(2048), 256);
    let mut out = Vec::new();
    assert_eq!(lists.try_take_batch(Group::FIRST, 200, &mut out), 200);
    assert_eq!(runs(&out), [(2048, 200)]);
    assert_eq!(
        lists.blocks(Group::FIRST)[10],
        1,
        "the large block stays whole"
    );
}

#[test]
fn a_batch_larger_than_any_block_starts_with_the_largest() {
    let mut lists = FreeLists::new(8192);
    lists.add_range(FrameId(10), 1);
    lists.add_range(FrameId(64), 64);
    lists.add_range(FrameId(1024), 1024);
    let mut out = Vec::new();
    assert_eq!(lists.try_take_batch(Group::FIRST, u32::MAX, &mut out), 1089);
    assert_eq!(runs(&out), [(1024, 1024), (64, 64), (10, 1)]);
    assert_eq!(lists.free(), 0);
    assert_eq!(lists.try_take_batch(Group::FIRST, 1, &mut out), 0);
}

#[test]
fn blocks_are_aligned_and_split() {
    let mut lists = lists(1024);
    let small = lists.try_take(Group::FIRST, 3).unwrap();
    let large = lists.try_take(Group::FIRST, 9).unwrap();
    assert_eq!((small.0 % 8, large.0 % 512), (0, 0));
    assert_eq!(
        lists.try_take(Group::FIRST, 9),
        None,
        "the other half is split"
    );
    assert_eq!(lists.free(), 1024 - 512 - 8);
    lists.put(small, 3);
    lists.put(large, 9);
    assert_eq!(lists.blocks(Group::FIRST)[10], 1);
}

#[test]
fn a_range_is_removed_only_if_free() {
    let mut lists = lists(2048);
    let taken = lists.try_take(Group::FIRST, 0).unwrap();
    let chunk = taken.0 & !63;
    assert!(!lists.try_remove_range(FrameId(chunk), 64));
    lists.put(taken, 0);
    assert!(lists.try_remove_range(FrameId(chunk), 64));
    assert_eq!(lists.free(), 2048 - 64);
    let is_free = check(&lists);
    assert!((chunk..chunk + 64).all(|frame| !is_free[frame as usize]));
    lists.add_range(FrameId(chunk), 64);
    assert_eq!(lists.blocks(Group::FIRST)[10], 2);
}

#[test]
fn a_range_may_span_blocks_and_cut_them() {
    let mut lists = lists(4096);
    assert!(lists.try_remove_range(FrameId(1000), 2100));
    assert_eq!(lists.free(), 4096 - 2100);
    check(&lists);
    assert!(
        !lists.try_remove_range(FrameId(3000), 200),
        "partly gone already"
    );
}

#[test]
fn an_unsorted_batch_merges_as_well() {
    let mut lists = lists(2048);
    let mut out = Vec::new();
    lists.try_take_batch(Group::FIRST, 2048, &mut out);
    out.reverse();
    lists.put_batch(&out);
    assert_eq!(lists.blocks(Group::FIRST)[10], 2);
    check(&lists);
}

#[test]
#[should_panic(expected = "is given back twice")]
fn twice_in_one_batch() {
    let mut lists = lists(8);
    let mut out = Vec::new();
    lists.try_take_batch(Group::FIRST, 8, &mut out);
    lists.put_batch(&[FrameId(3), FrameId(3)]);
}

#[test]
#[should_panic(expected = "is free already")]
fn twice_in_two_batches() {
    let mut lists = lists(8);
    let first = lists.try_take(Group::FIRST, 0).unwrap();
    lists.put(first, 0);
    lists.put(first, 0);
}

#[test]
#[should_panic(expected = "not in the arena")]
fn outside_the_arena() {
    lists(8).put_batch(&[FrameId(8)]);
}

#[derive(Clone, Debug)]
enum Op {
    Take(u8),
    TakeBatch(u32),
    PutBlock(usize),
    PutBatch {
        from: usize,
        count: usize,
        stride: usize,
    },
    RemoveRange(u32, u32),
    AddRange(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..=FreeLists::ORDER_MAX).prop_map(Op::Take),
        (1..400u32).prop_map(Op::TakeBatch),
        any::<usize>().prop_map(Op::PutBlock),
        (any::<usize>(), 1..600usize, 1..5usize).prop_map(|(from, count, stride)| Op::PutBatch {
            from,
            count,
            stride
        }),
        (0..FRAMES, 1..700u32)
            .prop_map(|(first, count)| Op::RemoveRange(first, count.min(FRAMES - first))),
        any::<usize>().prop_map(Op::AddRange),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn behaves_like_a_set_and_merges_back(ops in prop::collection::vec(op(), 1..80)) {
        let mut lists = lists(FRAMES);
        let whole = lists.blocks(Group::FIRST);
        let mut is_free = vec![true; FRAMES as usize];
        let (mut blocks, mut singles, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Take(order) => if let Some(first) = lists.try_take(Group::FIRST, order) {
                    prop_assert_eq!(first.0 % (1 << order), 0);
                    for frame in first.0..first.0 + (1 << order) {
                        prop_assert!(core::mem::replace(&mut is_free[frame as usize], false), "handed out twice");
                    }
                    blocks.push((first, order));
                } else {
                    let aligned_free = is_free.chunks_exact(1 << order).any(|block| block.iter().all(|&free| free));
                    prop_assert!(!aligned_free, "a block of order {} was there", order);
                },
                Op::TakeBatch(want) => {
                    let before = lists.free();
                    let mut out = Vec::new();
                    let got = lists.try_take_batch(Group::FIRST, want, &mut out);
                    prop_assert_eq!(got, want.min(before));
                    prop_assert_eq!(out.len(), got as usize);
                    for frame in &out {
                        prop_assert!(core::mem::replace(&mut is_free[frame.0 as usize], false), "handed out twice");
                    }
                    singles.extend(out);
                }
                Op::PutBlock(which) => if !blocks.is_empty() {
                    let (first, order): (FrameId, u8) = blocks.swap_remove(which % blocks.len());
                    is_free[first.0 as usize..][..1 << order].fill(true);
                    lists.put(first, order);
                },
                Op::PutBatch { from, count, stride } => if !singles.is_empty() {
                    let from = from % singles.len();
                    let batch: Vec<FrameId> = singles.iter().copied().skip(from).step_by(stride).take(count).collect();
                    singles.retain(|frame| !batch.contains(frame));
                    for frame in &batch { is_free[frame.0 as usize] = true }
                    lists.put_batch(&batch);
                },
                Op::RemoveRange(first, count) => {
                    let all_free = is_free[first as usize..][..count as usize].iter().all(|&free| free);
                    prop_assert_eq!(lists.try_remove_range(FrameId(first), count), all_free);
                    if all_free {
                        is_free[first as usize..][..count as usize].fill(false);
                        removed.push((first, count));
                    }
                }
                Op::AddRange(which) => if !removed.is_empty() {
                    let (first, count) = removed.swap_remove(which % removed.len());
                    is_free[first as usize..][..count as usize].fill(true);
                    lists.add_range(FrameId(first), count);
                },
            }
            prop_assert_eq!(&check(&lists), &is_free);
        }
        lists.put_batch(&singles);
        for (first, order) in blocks { lists.put(first, order) }
        for (first, count) in removed { lists.add_range(FrameId(first), count) }
        check(&lists);
        prop_assert_eq!(lists.blocks(Group::FIRST), whole, "everything merged back");
    }
}

/// Four pageblocks of 16 frames, two in each of two zones, with two mobilities.
fn grouped() -> FreeLists {
    let blocks = Pageblocks::new(64, 4, 2, |first| u8::from(first.0 >= 32));
    let mut lists = FreeLists::with_blocks(64, blocks);
    lists.add_range(FrameId(0), 64);
    lists
}

const LEFT: Group = Group::of_zone(0);
const RIGHT: Group = Group::of_zone(1);
const OTHER: Group = Group {
    zone: 0,
    mobility: 1,
};

#[test]
fn blocks_of_two_regions_never_merge() {
    let mut lists = grouped();
    assert_eq!(lists.blocks(LEFT)[5], 1);
    assert_eq!(lists.blocks(RIGHT)[5], 1);
    let mut out = Vec::new();
    assert_eq!(lists.try_take_batch(RIGHT, 100, &mut out), 32);
    assert!(out.iter().all(|frame| frame.0 >= 32));
    assert_eq!((lists.free_of(0), lists.free_of(1)), (32, 0));
    lists.put_batch(&out);
    assert_eq!(lists.blocks(RIGHT)[5], 1);
    check(&lists);
}

#[test]
fn a_batch_over_two_regions_goes_home_to_each() {
    let mut lists = grouped();
    let mut out = Vec::new();
    lists.try_take_batch(LEFT, 32, &mut out);
    lists.try_take_batch(RIGHT, 32, &mut out);
    lists.put_batch(&out);
    assert_eq!((lists.free_of(0), lists.free_of(1)), (32, 32));
    check(&lists);
}

#[test]
fn what_a_tagged_pageblock_gets_back_goes_to_its_tag() {
    let mut lists = grouped();
    let block = lists.try_take(LEFT, 4).unwrap();
    lists.tag(block, 1);
    lists.put(block, 4);
    assert_eq!(lists.blocks(OTHER)[4], 1);
    assert_eq!(lists.blocks(LEFT)[4], 1);
    check(&lists);
    // The two are buddies of one zone, and two blocks all the same.
    assert_eq!(lists.try_take(LEFT, 5), None);
    assert_eq!(lists.try_take(OTHER, 5), None);
}

#[test]
fn a_block_that_was_moved_alone_comes_home_when_its_frames_are_given_back() {
    let mut lists = grouped();
    // The pageblock is in pieces: 1 + 1 + 2 + 4 + 8, the first in use.
    let used = lists.try_take(LEFT, 0).unwrap();
    let four = lists.first_block(LEFT, 2).unwrap();
    lists.move_block(four, 1);
    assert_eq!(lists.blocks(OTHER)[2], 1);
    let one = lists.try_take(OTHER, 0).unwrap();
    assert_eq!(one, four, "the smallest that holds it");
    assert_eq!(
        lists.blocks(OTHER)[..3],
        [1, 1, 0],
        "the rest stays where it was moved to"
    );
    check(&lists);
    // Home is the tag's group; blocks that still stand in the other one are merged with it.
    lists.put(one, 0);
    assert_eq!(lists.blocks(OTHER), [0; 11]);
    lists.put(used, 0);
    assert_eq!(lists.blocks(LEFT)[5], 1);
    check(&lists);
}

#[test]
fn all_that_is_free_of_a_pageblock_moves_together() {
    let mut lists = grouped();
    let used = lists.try_take(LEFT, 0).unwrap();
    assert_eq!(lists.free_in_block(used), 15);
    assert_eq!(lists.move_free_of_block(used, 1), 15);
    lists.tag(used, 1);
    assert_eq!(lists.blocks(OTHER)[..4], [1, 1, 1, 1]);
    assert_eq!(lists.free_of(0), 31);
    lists.put(used, 0);
    assert_eq!(lists.blocks(OTHER)[4], 1);
    assert_eq!(lists.home(used), OTHER);
    check(&lists);
}

#[test]
fn free_frames_of_a_pageblock_count_also_within_a_larger_block() {
    let lists = grouped();
    assert_eq!(lists.free_in_block(FrameId(20)), 16);
}

#[test]
#[should_panic(expected = "reaches beyond the pageblock")]
fn a_pageblock_within_a_larger_free_block_keeps_its_tag() {
    grouped().tag(FrameId(0), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn groups_keep_all_frames(ops in prop::collection::vec((0..6u8, 0..64u32, 0..5u8), 1..120)) {
        let mut lists = grouped();
        let mut taken: Vec<(FrameId, u8)> = Vec::new();
        for (what, at, order) in ops {
            let group = Group { zone: u8::from(at >= 32), mobility: order & 1 };
            match what {
                0 | 1 => taken.extend(lists.try_take(group, order).map(|first| (first, order))),
                2 => if !taken.is_empty() {
                    let (first, order) = taken.swap_remove(at as usize % taken.len());
                    lists.put(first, order);
                },
                3 => {
                    let reaches = lists.block_of(at >> 4 << 4).is_some_and(|(_, order)| order > 4);
                    if !reaches {
                        let before = lists.free_in_block(FrameId(at));
                        prop_assert_eq!(lists.move_free_of_block(FrameId(at), order & 1), before);
                        lists.tag(FrameId(at), order & 1);
                    }
                }
                4 => if let Some(first) = lists.first_block(group, order) {
                    lists.move_block(first, 1 - group.mobility);
                },
                _ => {
                    let mut out = Vec::new();
                    lists.try_take_batch(group, at, &mut out);
                    taken.extend(out.into_iter().map(|frame| (frame, 0)));
                }
            }
            let is_free = check(&lists);
            let used: u32 = taken.iter().map(|(_, order)| 1 << order).sum();
            prop_assert_eq!(lists.free() + used, 64);
            for (first, order) in &taken {
                let frames = first.0..first.0 + (1 << order);
                prop_assert!(frames.into_iter().all(|frame| !is_free[frame as usize]));
            }
        }
    }
}

#[test]
fn blocks_that_begin_among_frames_are_taken_whole() {
    let mut lists = FreeLists::new(64);
    lists.add_range(FrameId(0), 8);
    lists.add_range(FrameId(9), 3);
    assert_eq!(lists.block_at(FrameId(0)), Some(3));
    assert_eq!(lists.block_at(FrameId(4)), None);
    let mut out = Vec::new();
    // Nothing that begins before, and nothing that may not.
    assert_eq!(lists.take_blocks_in(4..16, |order| order == 0, &mut out), 1);
    assert_eq!(out, [FrameId(9)]);
    assert_eq!(lists.take_blocks_in(4..16, |_| true, &mut out), 2);
    assert_eq!(out, [FrameId(9), FrameId(10), FrameId(11)]);
    assert_eq!(lists.free(), 8);
    assert_eq!(lists.try_take_of(Group::FIRST, 2, 0), None);
    assert_eq!(lists.try_take_of(Group::FIRST, 3, 1), Some(FrameId(0)));
    assert_eq!(lists.free(), 6);
    for frame in [0, 1, 9, 10, 11] {
        lists.put(FrameId(frame), 0);
    }
    assert_eq!(lists.blocks_of(0), lists.blocks(Group::FIRST));
    assert_eq!((lists.free(), lists.block_at(FrameId(0))), (11, Some(3)));
}
