use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const TAGS: [Tag; 3] = [Tag::Dirty, Tag::Writeback, Tag::ToWrite];
const NODES: u32 = 400;

/// Walks the whole tree, checks the invariants, and answers how many nodes it has.
fn check(writer: &IndexWriter<'_>) -> u32 {
    let root = writer.root();
    if root.height == 0 {
        return 0;
    }
    let top = writer.node(root.node);
    assert!(
        root.height == 1 || top.occupied() != 1,
        "a root with nothing but its first child"
    );
    assert_eq!(top.parent(), None);
    check_node(writer, root.node, root.height - 1)
}

fn check_node(writer: &IndexWriter<'_>, number: u32, level: u32) -> u32 {
    let node = writer.node(number);
    assert_eq!(node.level(), level);
    assert_ne!(node.occupied(), 0, "an empty node in the tree");
    let mut nodes = 1;
    for slot in 0..SLOTS {
        let entry = node.entry(slot);
        let marked = |mark| node.marks(mark) >> slot & 1 == 1;
        if level > 0 {
            let child = entry.as_node();
            assert_eq!(child.is_some(), node.occupied() >> slot & 1 == 1);
            let Some(child) = child else { continue };
            assert_eq!(writer.node(child).parent(), Some(number));
            assert_eq!(writer.node(child).offset(), slot);
            for mark in Mark::ALL {
                assert_eq!(
                    marked(mark),
                    writer.node(child).marks(mark) != 0,
                    "{mark:?} of slot {slot}"
                );
            }
            nodes += check_node(writer, child, level - 1);
        } else {
            assert_eq!(
                marked(Mark::Frame),
                matches!(entry.as_slot(), Slot::Frame(_))
            );
            assert_eq!(
                marked(Mark::Shadow),
                matches!(entry.as_slot(), Slot::Shadow(_))
            );
            assert!(entry.as_node().is_none());
            assert!(
                Mark::TAGS
                    .iter()
                    .all(|&tag| !marked(tag) || marked(Mark::Frame)),
                "a tag on no page"
            );
        }
    }
    nodes
}

#[test]
fn one_page_at_zero() {
    let (pool, (index, mut token)) = (NodePool::new(4), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    assert_eq!(writer.get(0), Slot::Empty);
    assert_eq!(writer.insert(0, FrameId(9)), Ok(Slot::Empty));
    assert_eq!(check(&writer), 1);
    assert_eq!(index.get(&pool, 0), Slot::Frame(FrameId(9)));
    assert_eq!(index.get(&pool, 64), Slot::Empty);
    let mut writer = index.writer(&pool, &mut token);
    assert_eq!(writer.remove(0, None), Slot::Frame(FrameId(9)));
    assert_eq!((pool.free(), index.is_empty()), (4, true));
}

#[test]
fn the_root_grows_and_shrinks() {
    let (pool, (index, mut token)) = (NodePool::new(32), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    let pages = [0, 63, 64, 4095, 4096, 1 << 18, 1 << 24, 1 << 30, u32::MAX];
    let heights = [1, 1, 2, 2, 3, 4, 5, 6, 6];
    for (n, (&page, &height)) in (0..).zip(pages.iter().zip(&heights)) {
        writer.insert(page, FrameId(n)).unwrap();
        writer.set_tag(page, Tag::Dirty);
        assert_eq!(writer.root().height, height);
        check(&writer);
    }
    for (n, &page) in (0..).zip(&pages) {
        assert_eq!(index.get(&pool, page), Slot::Frame(FrameId(n)));
        assert_eq!(
            writer.next_tagged(page, u32::MAX, Tag::Dirty),
            Some((page, FrameId(n)))
        );
    }
    for (&page, _) in pages.iter().zip(&heights).rev() {
        writer.remove(page, None);
        check(&writer);
        let top = pages
            .iter()
            .filter(|&&at| at < page)
            .max()
            .map_or(0, |&at| height_for(at));
        assert_eq!(writer.root().height, top);
    }
    assert_eq!(pool.free(), 32);
}

#[test]
fn without_nodes_nothing_changes() {
    let (pool, (index, mut token)) = (NodePool::new(5), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    writer.insert(3, FrameId(1)).unwrap();
    assert_eq!(
        writer.insert(1 << 20, FrameId(2)),
        Err(NoNodes),
        "needs a path of its own and two roots"
    );
    assert_eq!(
        (pool.free(), check(&writer), writer.root().height),
        (4, 1, 1)
    );
    writer.insert(1 << 12, FrameId(2)).unwrap();
    assert_eq!((pool.free(), check(&writer)), (0, 5));
    assert_eq!(writer.insert(200, FrameId(3)), Err(NoNodes));
    assert_eq!(
        writer.insert(1 << 12 | 1, FrameId(3)),
        Ok(Slot::Empty),
        "that leaf is there"
    );
}

#[test]
fn shadows_keep_their_nodes_until_removed() {
    let (pool, (index, mut token)) = (NodePool::new(8), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    for page in [5, 100, 101, 300] {
        writer.insert(page, FrameId(page)).unwrap();
        writer.set_tag(page, Tag::Writeback);
        writer.remove(page, Some(Shadow(page + 7)));
    }
    assert_eq!(check(&writer), 4);
    assert_eq!(writer.get(100), Slot::Shadow(Shadow(107)));
    assert_eq!(writer.next_frame(0, u32::MAX), None);
    assert_eq!(writer.next_tagged(0, u32::MAX, Tag::Writeback), None);
    assert_eq!(
        writer.insert(101, FrameId(1)),
        Ok(Slot::Shadow(Shadow(108)))
    );
    assert_eq!(writer.remove_shadows(0, u32::MAX, 2), 2);
    assert_eq!(
        check(&writer),
        3,
        "the leaf of 5 is gone, that of 101 is not"
    );
    assert_eq!(writer.remove_shadows(0, u32::MAX, 9), 1);
    assert_eq!(writer.get(101), Slot::Frame(FrameId(1)));
    writer.remove(101, None);
    assert_eq!(pool.free(), 8);
}

#[test]
fn tag_range_goes_on_where_it_stopped() {
    let (pool, (index, mut token)) = (NodePool::new(8), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    for page in 0..200 {
        writer.insert(page, FrameId(page)).unwrap();
        if page % 3 == 0 {
            writer.set_tag(page, Tag::Dirty);
        }
    }
    let (mut from, mut calls) = (Some(10), 0);
    while let Some(at) = from {
        from = writer.tag_range(at, 150, Tag::Dirty, Tag::ToWrite, 11);
        calls += 1;
    }
    assert_eq!(calls, 5, "47 dirty pages, 11 at a time");
    for page in 0..200 {
        assert_eq!(
            writer.has_tag(page, Tag::ToWrite),
            page % 3 == 0 && (10..=150).contains(&page)
        );
    }
    check(&writer);
}

#[test]
fn the_end_of_the_largest_file_is_the_end() {
    let (pool, (index, mut token)) = (NodePool::new(8), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    writer.insert(u32::MAX, FrameId(0)).unwrap();
    writer.set_tag(u32::MAX, Tag::Dirty);
    assert_eq!(
        writer.tag_range(0, u32::MAX, Tag::Dirty, Tag::ToWrite, 1),
        None
    );
    assert!(writer.has_tag(u32::MAX, Tag::ToWrite));
    writer.remove(u32::MAX, Some(Shadow(1)));
    assert_eq!(writer.remove_shadows(0, u32::MAX, 5), 1);
    assert_eq!(pool.free(), 8);
}

#[test]
fn a_stale_reader_gets_a_wrong_answer_and_no_more() {
    let (pool, (first, mut first_token)) = (NodePool::new(2), PageIndex::new());
    let (second, mut second_token) = PageIndex::new();
    first
        .writer(&pool, &mut first_token)
        .insert(64, FrameId(1))
        .unwrap();
    let stale = first.root.load(Ordering::Relaxed);
    first.writer(&pool, &mut first_token).remove(64, None);
    for page in 0..2 {
        second
            .writer(&pool, &mut second_token)
            .insert(page, FrameId(2))
            .unwrap();
    }
    // The reader holds the old root, whose node may be the second index' leaf by now.
    first.root.store(stale, Ordering::Relaxed);
    for page in 0..4096 {
        assert_eq!(
            first.get(&pool, page),
            Slot::Empty,
            "a leaf's frame is not taken for a node"
        );
    }
}

#[test]
fn nodes_for_counts_all_levels() {
    for (pages, nodes) in [
        (0, 0),
        (1, 1),
        (64, 1),
        (65, 3),
        (4096, 65),
        (4097, 65 + 1 + 1 + 1),
    ] {
        assert_eq!(NodePool::nodes_for(pages), nodes, "{pages} pages");
    }
    let pages = 10_000;
    let (pool, (index, mut token)) = (NodePool::new(NodePool::nodes_for(pages)), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    for page in 0..u32::try_from(pages).unwrap() {
        writer.insert(page, FrameId(page)).unwrap();
    }
    assert_eq!(pool.free(), 0, "neither too few nor too many");
}

#[test]
#[should_panic(expected = "write token of another index")]
fn a_token_opens_its_own_index_only() {
    let (pool, (index, _)) = (NodePool::new(1), PageIndex::new());
    let (_, mut token) = PageIndex::new();
    let _ = index.writer(&pool, &mut token);
}

#[test]
#[should_panic(expected = "cached already")]
fn a_page_is_not_overwritten() {
    let (pool, (index, mut token)) = (NodePool::new(1), PageIndex::new());
    let mut writer = index.writer(&pool, &mut token);
    writer.insert(1, FrameId(1)).unwrap();
    let _ = writer.insert(1, FrameId(2));
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32),
    InsertRun(u32, u32),
    Replace(u32, u32),
    Remove(u32, Option<u32>),
    RemoveRun(u32, u32, Option<u32>),
    SetTag(u32, usize),
    ClearTag(u32, usize),
    Next(u32, u32, usize),
    TagRange {
        from: u32,
        to: u32,
        when: usize,
        set: usize,
        max: u32,
    },
    RemoveShadows(u32, u32, u32),
}

/// Pages that crowd in a few places, at the corners of nodes and of the number range.
fn page() -> impl Strategy<Value = u32> {
    let corner = prop::sample::select(vec![
        0,
        63,
        64,
        4095,
        4096,
        (1 << 18) - 1,
        1 << 18,
        1 << 24,
        1 << 30,
    ]);
    prop_oneof![
        6 => 0..200u32,
        3 => 4000..4300u32,
        2 => corner,
        1 => any::<u32>(),
        1 => (0..70u32).prop_map(|back| u32::MAX - back),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let shadow = || prop::option::of(0..1u32 << Shadow::BITS);
    let frame = || 0..1u32 << 30;
    prop_oneof![
        4 => (page(), frame()).prop_map(|(p, f)| Op::Insert(p, f)),
        2 => (page(), 1..150u32).prop_map(|(p, n)| Op::InsertRun(p, n)),
        1 => (page(), frame()).prop_map(|(p, f)| Op::Replace(p, f)),
        3 => (page(), shadow()).prop_map(|(p, s)| Op::Remove(p, s)),
        2 => (page(), 1..200u32, shadow()).prop_map(|(p, n, s)| Op::RemoveRun(p, n, s)),
        3 => (page(), 0..3usize).prop_map(|(p, t)| Op::SetTag(p, t)),
        2 => (page(), 0..3usize).prop_map(|(p, t)| Op::ClearTag(p, t)),
        2 => (page(), page(), 0..3usize).prop_map(|(a, b, t)| Op::Next(a, b, t)),
        2 => (page(), page(), 0..3usize, 0..3usize, 1..100u32)
            .prop_map(|(from, to, when, set, max)| Op::TagRange { from, to, when, set, max }),
        1 => (page(), page(), 0..50u32).prop_map(|(a, b, n)| Op::RemoveShadows(a, b, n)),
    ]
}

/// The entries and tags that the index should hold.
#[derive(Default)]
struct Model {
    frames: BTreeMap<u32, u32>,
    shadows: BTreeMap<u32, u32>,
    tags: [BTreeSet<u32>; 3],
}

impl Model {
    fn slot(&self, page: u32) -> Slot {
        match (self.frames.get(&page), self.shadows.get(&page)) {
            (Some(&frame), _) => Slot::Frame(FrameId(frame)),
            (None, Some(&shadow)) => Slot::Shadow(Shadow(shadow)),
            (None, None) => Slot::Empty,
        }
    }

    fn insert(&mut self, writer: &mut IndexWriter<'_>, page: u32, frame: u32) {
        if self.frames.contains_key(&page) {
            return;
        }
        let free = writer.pool.free();
        match writer.insert(page, FrameId(frame)) {
            Ok(before) => {
                assert_eq!(before, self.slot(page));
                self.shadows.remove(&page);
                self.frames.insert(page, frame);
            }
            Err(NoNodes) => assert_eq!(writer.pool.free(), free, "a refusal takes nothing"),
        }
    }

    fn remove(&mut self, writer: &mut IndexWriter<'_>, page: u32, leave: Option<u32>) {
        assert_eq!(writer.remove(page, leave.map(Shadow)), self.slot(page));
        if self.frames.remove(&page).is_some() {
            self.shadows.extend(leave.map(|shadow| (page, shadow)));
            for tag in &mut self.tags {
                tag.remove(&page);
            }
        }
    }

    fn apply(&mut self, writer: &mut IndexWriter<'_>, op: Op) {
        match op {
            Op::Insert(page, frame) => self.insert(writer, page, frame),
            Op::InsertRun(page, count) => {
                (page..page.saturating_add(count))
                    .for_each(|at| self.insert(writer, at, at % 1000));
            }
            Op::Replace(page, frame) => {
                if let Some(old) = self.frames.get_mut(&page) {
                    assert_eq!(
                        writer.replace(page, FrameId(frame)),
                        FrameId(core::mem::replace(old, frame))
                    );
                }
            }
            Op::Remove(page, leave) => self.remove(writer, page, leave),
            Op::RemoveRun(page, count, leave) => {
                (page..page.saturating_add(count)).for_each(|at| self.remove(writer, at, leave));
            }
            Op::SetTag(page, tag) => {
                if self.frames.contains_key(&page) {
                    assert_eq!(
                        writer.set_tag(page, TAGS[tag]),
                        !self.tags[tag].insert(page)
                    );
                }
            }
            Op::ClearTag(page, tag) => assert_eq!(
                writer.clear_tag(page, TAGS[tag]),
                self.tags[tag].remove(&page)
            ),
            Op::Next(from, to, tag) => self.check_next(writer, from, to, tag),
            Op::TagRange {
                from,
                to,
                when,
                set,
                max,
            } => self.tag_range(writer, (from, to), (when, set), max),
            Op::RemoveShadows(from, to, max) => {
                let range = from..=to.max(from);
                let gone: Vec<u32> = self
                    .shadows
                    .range(range)
                    .map(|(&at, _)| at)
                    .take(max as usize)
                    .collect();
                assert_eq!(
                    writer.remove_shadows(from, to.max(from), max) as usize,
                    gone.len()
                );
                for at in gone {
                    self.shadows.remove(&at);
                }
            }
        }
    }

    fn check_next(&self, writer: &IndexWriter<'_>, from: u32, to: u32, tag: usize) {
        let (tagged, frame) = if from <= to {
            let tagged = self.tags[tag]
                .range(from..=to)
                .next()
                .map(|&at| (at, FrameId(self.frames[&at])));
            (
                tagged,
                self.frames
                    .range(from..=to)
                    .next()
                    .map(|(&at, &frame)| (at, FrameId(frame))),
            )
        } else {
            (None, None)
        };
        assert_eq!(writer.next_tagged(from, to, TAGS[tag]), tagged);
        assert_eq!(writer.next_frame(from, to), frame);
    }

    fn tag_range(
        &mut self,
        writer: &mut IndexWriter<'_>,
        (from, to): (u32, u32),
        (when, set): (usize, usize),
        max: u32,
    ) {
        let to = to.max(from);
        let chosen: Vec<u32> = self.tags[when]
            .range(from..=to)
            .copied()
            .take(max as usize)
            .collect();
        let rest = self.tags[when].range(from..=to).nth(max as usize).copied();
        assert_eq!(writer.tag_range(from, to, TAGS[when], TAGS[set], max), rest);
        self.tags[set].extend(chosen);
    }

    fn check_whole(&self, index: &PageIndex, writer: &IndexWriter<'_>) {
        let mut pages: BTreeSet<u32> = self
            .frames
            .keys()
            .chain(self.shadows.keys())
            .copied()
            .collect();
        pages.extend([0, 1, 63, 64, 4096, u32::MAX]);
        for &page in &pages {
            assert_eq!(writer.get(page), self.slot(page));
            assert_eq!(index.get(writer.pool, page), self.slot(page));
            for (tag, pages) in TAGS.iter().zip(&self.tags) {
                assert_eq!(writer.has_tag(page, *tag), pages.contains(&page));
            }
        }
        let mut walked = BTreeMap::new();
        let mut from = Some(0);
        while let Some((at, frame)) = from.and_then(|from| writer.next_frame(from, u32::MAX)) {
            walked.insert(at, frame.0);
            from = at.checked_add(1);
        }
        assert_eq!(walked, self.frames);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn behaves_like_a_map_with_tags_and_shadows(
        ops in prop::collection::vec(op(), 1..120),
        nodes in prop_oneof![Just(NODES), 1..40u32],
    ) {
        let (pool, (index, mut token)) = (NodePool::new(nodes), PageIndex::new());
        let mut model = Model::default();
        for (n, op) in ops.into_iter().enumerate() {
            let mut writer = index.writer(&pool, &mut token);
            model.apply(&mut writer, op);
            prop_assert_eq!(pool.free() + check(&writer), nodes, "no node is lost");
            if n % 16 == 0 { model.check_whole(&index, &writer) }
        }
        let mut writer = index.writer(&pool, &mut token);
        model.check_whole(&index, &writer);
        let pages: Vec<u32> = model.frames.keys().copied().collect();
        for page in pages { model.remove(&mut writer, page, None) }
        prop_assert_eq!(writer.remove_shadows(0, u32::MAX, u32::MAX) as usize, model.shadows.len());
        prop_assert_eq!(pool.free(), nodes, "all nodes come back");
        prop_assert!(index.is_empty());
    }
}

/// A writer moves pages of two files in and out of one small pool; readers without locks never get
/// a frame that was not put there.
#[test]
fn readers_beside_a_writer() {
    use core::sync::atomic::AtomicBool;
    let pool = NodePool::new(12);
    let files = [PageIndex::new(), PageIndex::new()];
    let ([first, second], tokens): ([PageIndex; 2], Vec<WriteToken>) = {
        let [(first, first_token), (second, second_token)] = files;
        ([first, second], vec![first_token, second_token])
    };
    let indexes = [&first, &second];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pool, done) = (&pool, &done);
        scope.spawn(move || {
            let mut tokens = tokens;
            for round in 0..60_000u32 {
                let which = round % 2;
                let page = round.wrapping_mul(2_654_435_761) % 200 * (1 + round % 3 * 50);
                let mut writer = indexes[which as usize].writer(pool, &mut tokens[which as usize]);
                match writer.get(page) {
                    Slot::Empty => drop(writer.insert(page, FrameId(page << 1 | which))),
                    _ => drop(writer.remove(page, None)),
                }
            }
            done.store(true, Ordering::Release);
        });
        for seed in 0..2u32 {
            scope.spawn(move || {
                let (mut n, mut hits) = (seed, 0u64);
                while !done.load(Ordering::Acquire) || hits == 0 && n < 10_000_000 {
                    n = n.wrapping_add(1);
                    let page = n.wrapping_mul(2_654_435_761) % 200 * (1 + n % 3 * 50);
                    match indexes[n as usize % 2].get(pool, page) {
                        Slot::Frame(frame) => {
                            assert!(
                                frame.0 >> 1 < 200 * 101,
                                "a frame that nobody put there: {frame:?}"
                            );
                            hits += 1;
                        }
                        Slot::Empty => {}
                        Slot::Shadow(shadow) => panic!("nobody left {shadow:?}"),
                    }
                }
                assert!(hits > 0);
            });
        }
    });
}
