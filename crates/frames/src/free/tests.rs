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
    let mut is_free = vec![false; lists.orders.len()];
    let mut total = 0;
    for order in 0..=FreeLists::ORDER_MAX {
        let list = usize::from(order);
        let (mut at, mut prev, mut blocks) = (lists.heads[list], NIL, 0);
        assert_eq!(at != NIL, lists.nonempty >> order & 1 == 1);
        while at != NIL {
            assert_eq!(at % (1 << order), 0);
            assert_eq!(lists.orders[at as usize], order);
            assert_eq!(lists.links[at as usize].prev, prev);
            if order < FreeLists::ORDER_MAX {
                assert_ne!(
                    lists.orders.get((at ^ 1 << order) as usize),
                    Some(&order),
                    "unmerged buddies"
                );
            }
            for frame in at..at + (1 << order) {
                assert!(!is_free[frame as usize], "frame {frame} is in two blocks");
                is_free[frame as usize] = true;
            }
            (prev, at, blocks) = (at, lists.links[at as usize].next, blocks + 1);
            total += 1 << order;
        }
        assert_eq!(lists.blocks()[list], blocks);
    }
    let starts = lists
        .orders
        .iter()
        .filter(|&&order| order != NO_BLOCK)
        .count();
    assert_eq!(starts, lists.blocks().iter().sum::<u32>() as usize);
    assert_eq!(lists.free(), total);
    is_free
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
        assert_eq!(lists.try_take_batch(want, &mut out), want);
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
    assert_eq!(lists.try_take_batch(200, &mut out), 200);
    assert_eq!(runs(&out), [(2048, 200)]);
    assert_eq!(lists.blocks()[10], 1, "the large block stays whole");
}

#[test]
fn a_batch_larger_than_any_block_starts_with_the_largest() {
    let mut lists = FreeLists::new(8192);
    lists.add_range(FrameId(10), 1);
    lists.add_range(FrameId(64), 64);
    lists.add_range(FrameId(1024), 1024);
    let mut out = Vec::new();
    assert_eq!(lists.try_take_batch(u32::MAX, &mut out), 1089);
    assert_eq!(runs(&out), [(1024, 1024), (64, 64), (10, 1)]);
    assert_eq!(lists.free(), 0);
    assert_eq!(lists.try_take_batch(1, &mut out), 0);
}

#[test]
fn blocks_are_aligned_and_split() {
    let mut lists = lists(1024);
    let small = lists.try_take(3).unwrap();
    let large = lists.try_take(9).unwrap();
    assert_eq!((small.0 % 8, large.0 % 512), (0, 0));
    assert_eq!(lists.try_take(9), None, "the other half is split");
    assert_eq!(lists.free(), 1024 - 512 - 8);
    lists.put(small, 3);
    lists.put(large, 9);
    assert_eq!(lists.blocks()[10], 1);
}

#[test]
fn a_range_is_removed_only_if_free() {
    let mut lists = lists(2048);
    let taken = lists.try_take(0).unwrap();
    let chunk = taken.0 & !63;
    assert!(!lists.try_remove_range(FrameId(chunk), 64));
    lists.put(taken, 0);
    assert!(lists.try_remove_range(FrameId(chunk), 64));
    assert_eq!(lists.free(), 2048 - 64);
    let is_free = check(&lists);
    assert!((chunk..chunk + 64).all(|frame| !is_free[frame as usize]));
    lists.add_range(FrameId(chunk), 64);
    assert_eq!(lists.blocks()[10], 2);
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
    lists.try_take_batch(2048, &mut out);
    out.reverse();
    lists.put_batch(&out);
    assert_eq!(lists.blocks()[10], 2);
    check(&lists);
}

#[test]
#[should_panic(expected = "is given back twice")]
fn twice_in_one_batch() {
    let mut lists = lists(8);
    let mut out = Vec::new();
    lists.try_take_batch(8, &mut out);
    lists.put_batch(&[FrameId(3), FrameId(3)]);
}

#[test]
#[should_panic(expected = "is free already")]
fn twice_in_two_batches() {
    let mut lists = lists(8);
    let first = lists.try_take(0).unwrap();
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
        let whole = lists.blocks();
        let mut is_free = vec![true; FRAMES as usize];
        let (mut blocks, mut singles, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Take(order) => if let Some(first) = lists.try_take(order) {
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
                    let got = lists.try_take_batch(want, &mut out);
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
        prop_assert_eq!(lists.blocks(), whole, "everything merged back");
    }
}
