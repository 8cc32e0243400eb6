//! Lists of frames linked by index: a frame is on at most one list; no pointers.
//!
//! ```text
//!   head (newest)                           tail (oldest)
//!    |                                          |
//!    a  --older-->  b  --older-->  c  --older-> d
//!       <-newer---     <-newer---     <-newer---
//! ```

use crate::FrameId;
use crate::zeroed;

/// Several doubly linked lists over the same frames. Plain data behind one lock of `mm`.
pub struct Lists {
    /// Each means something while its frame is on a list.
    links: Box<[Link]>,
    /// One more than the list each frame is on, or `ON_NONE`.
    on: Box<[u8]>,
    ends: Box<[Ends]>,
}

#[derive(Clone, Copy)]
pub(crate) struct Link {
    newer: u32,
    older: u32,
}

impl Link {
    /// Of a frame that was never on a list.
    pub(crate) const UNUSED: Self = Self { newer: 0, older: 0 };
}

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// No frame: an end of a list.
const NIL: u32 = u32::MAX;
/// No list.
const ON_NONE: u8 = 0;

impl Lists {
    /// `lists` empty lists over `frames` frames.
    ///
    /// # Panics
    /// On 255 lists, or on `u32::MAX` frames.
    #[must_use]
    pub fn new(frames: u32, lists: u8) -> Self {
        assert!(lists < u8::MAX, "one number is kept for no list");
        assert!(frames < NIL, "one number is kept for no frame");
        Self {
            links: zeroed::table(frames as usize),
            on: vec![ON_NONE; frames as usize].into_boxed_slice(),
            ends: vec![
                Ends {
                    head: NIL,
                    tail: NIL,
                    len: 0
                };
                usize::from(lists)
            ]
            .into_boxed_slice(),
        }
    }

    /// Puts a frame that is on no list at the head (newest).
    ///
    /// # Panics
    /// If it is on one.
    #[inline]
    pub fn push_head(&mut self, list: u8, frame: FrameId) {
        self.enlist(list, frame);
        let ends = &mut self.ends[usize::from(list)];
        let older = core::mem::replace(&mut ends.head, frame.0);
        if older == NIL {
            ends.tail = frame.0;
        } else {
            self.links[older as usize].newer = frame.0;
        }
        self.links[frame.0 as usize] = Link { newer: NIL, older };
    }

    /// Puts frames that are on no list at the head, one after the other: the last is the newest.
    ///
    /// # Panics
    /// If one of them is on one.
    #[inline]
    pub fn push_heads(&mut self, list: u8, frames: &[FrameId]) {
        let mut ends = self.ends[usize::from(list)];
        for &frame in frames {
            let on = &mut self.on[frame.0 as usize];
            assert!(
                *on == ON_NONE,
                "frame {} is on list {} already",
                frame.0,
                *on - 1
            );
            *on = list + 1;
            let older = core::mem::replace(&mut ends.head, frame.0);
            if older == NIL {
                ends.tail = frame.0;
            } else {
                self.links[older as usize].newer = frame.0;
            }
            self.links[frame.0 as usize] = Link { newer: NIL, older };
            ends.len += 1;
        }
        self.ends[usize::from(list)] = ends;
    }

    /// Puts a frame that is on no list at the tail (oldest).
    ///
    /// # Panics
    /// If it is on one.
    #[inline]
    pub fn push_tail(&mut self, list: u8, frame: FrameId) {
        self.enlist(list, frame);
        let ends = &mut self.ends[usize::from(list)];
        let newer = core::mem::replace(&mut ends.tail, frame.0);
        if newer == NIL {
            ends.head = frame.0;
        } else {
            self.links[newer as usize].older = frame.0;
        }
        self.links[frame.0 as usize] = Link { newer, older: NIL };
    }

    /// Takes a frame off its list; false if it was on none.
    #[inline]
    pub fn remove(&mut self, frame: FrameId) -> bool {
        let Some(list) = self.list_of(frame) else {
            return false;
        };
        let Link { newer, older } = self.links[frame.0 as usize];
        self.close(list, newer, older);
        self.ends[usize::from(list)].len -= 1;
        self.on[frame.0 as usize] = ON_NONE;
        true
    }

    /// Puts a frame that is on no list in the place of another; false if that was on none.
    ///
    /// # Panics
    /// If `new` is on a list.
    pub fn replace(&mut self, old: FrameId, new: FrameId) -> bool {
        let Some(list) = self.list_of(old) else {
            return false;
        };
        assert!(
            self.list_of(new).is_none(),
            "frame {} is on a list already",
            new.0
        );
        let link = self.links[old.0 as usize];
        match link.newer {
            NIL => self.ends[usize::from(list)].head = new.0,
            newer => self.links[newer as usize].older = new.0,
        }
        match link.older {
            NIL => self.ends[usize::from(list)].tail = new.0,
            older => self.links[older as usize].newer = new.0,
        }
        self.links[new.0 as usize] = link;
        self.on[new.0 as usize] = list + 1;
        self.on[old.0 as usize] = ON_NONE;
        true
    }

    /// Takes frames off their lists, those that are on one. Neighbours that follow each other from
    /// old to new go in one step.
    pub fn remove_all(&mut self, frames: &[FrameId]) {
        let mut at = 0;
        while at < frames.len() {
            let oldest = frames[at];
            let Some(list) = self.list_of(oldest) else {
                at += 1;
                continue;
            };
            let Link { mut newer, older } = self.links[oldest.0 as usize];
            let first = at;
            at += 1;
            while frames.get(at).is_some_and(|next| next.0 == newer) {
                newer = self.links[newer as usize].newer;
                at += 1;
            }
            for frame in &frames[first..at] {
                self.on[frame.0 as usize] = ON_NONE;
            }
            self.close(list, newer, older);
            let gone = u32::try_from(at - first).expect("a list is no longer than a u32 counts");
            self.ends[usize::from(list)].len -= gone;
        }
    }

    /// Takes the newest frame.
    #[inline]
    pub fn pop_head(&mut self, list: u8) -> Option<FrameId> {
        let newest = frame(self.ends[usize::from(list)].head)?;
        self.remove(newest);
        Some(newest)
    }

    /// Takes the oldest frame.
    #[inline]
    pub fn pop_tail(&mut self, list: u8) -> Option<FrameId> {
        let oldest = self.tail(list)?;
        self.remove(oldest);
        Some(oldest)
    }

    /// The oldest frame, left in place.
    #[must_use]
    #[inline]
    pub fn tail(&self, list: u8) -> Option<FrameId> {
        frame(self.ends[usize::from(list)].tail)
    }

    /// The list a frame is on.
    #[must_use]
    #[inline]
    pub fn list_of(&self, frame: FrameId) -> Option<u8> {
        self.on[frame.0 as usize].checked_sub(1)
    }

    /// Length of a list.
    #[must_use]
    #[inline]
    pub fn len(&self, list: u8) -> u32 {
        self.ends[usize::from(list)].len
    }

    /// Frames from the oldest to the newest.
    pub fn iter(&self, list: u8) -> impl Iterator<Item = FrameId> + '_ {
        core::iter::successors(self.tail(list), |at| frame(self.links[at.0 as usize].newer))
    }

    /// Bytes of metadata.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.links) + size_of_val(&*self.on) + size_of_val(&*self.ends)) as u64
    }

    /// The frames between them are gone.
    #[inline]
    fn close(&mut self, list: u8, newer: u32, older: u32) {
        let ends = &mut self.ends[usize::from(list)];
        match newer {
            NIL => ends.head = older,
            _ => self.links[newer as usize].older = older,
        }
        match older {
            NIL => ends.tail = newer,
            _ => self.links[older as usize].newer = newer,
        }
    }

    #[inline]
    fn enlist(&mut self, list: u8, frame: FrameId) {
        let on = &mut self.on[frame.0 as usize];
        assert!(
            *on == ON_NONE,
            "frame {} is on list {} already",
            frame.0,
            *on - 1
        );
        *on = list + 1;
        self.ends[usize::from(list)].len += 1;
    }
}

#[inline]
fn frame(number: u32) -> Option<FrameId> {
    (number != NIL).then_some(FrameId(number))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const FRAMES: u32 = 24;
    const LISTS: u8 = 3;

    #[derive(Clone, Debug)]
    enum Op {
        PushHead(u8, u32),
        PushTail(u8, u32),
        Remove(u32),
        PopTail(u8),
        PushHeads(u8, Vec<u32>),
        RemoveAll(Vec<u32>),
        Replace(u32, u32),
        /// The oldest ones of a list, in order.
        RemoveOldest(u8, usize),
    }

    /// Different frames in any order.
    fn several() -> impl Strategy<Value = Vec<u32>> {
        prop::sample::subsequence((0..FRAMES).collect::<Vec<_>>(), 0..8).prop_shuffle()
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..LISTS, 0..FRAMES).prop_map(|(l, f)| Op::PushHead(l, f)),
            (0..LISTS, 0..FRAMES).prop_map(|(l, f)| Op::PushTail(l, f)),
            (0..FRAMES).prop_map(Op::Remove),
            (0..LISTS).prop_map(Op::PopTail),
            (0..LISTS, several()).prop_map(|(l, all)| Op::PushHeads(l, all)),
            several().prop_map(Op::RemoveAll),
            (0..FRAMES, 0..FRAMES).prop_map(|(old, new)| Op::Replace(old, new)),
            (0..LISTS, 0..8_usize).prop_map(|(l, count)| Op::RemoveOldest(l, count)),
        ]
    }

    /// The model keeps the head in front.
    fn holder(model: &[VecDeque<u32>], frame: u32) -> Option<usize> {
        model.iter().position(|list| list.contains(&frame))
    }

    proptest! {
        #[test]
        fn behaves_like_deques(ops in prop::collection::vec(op(), 1..200)) {
            let mut lists = Lists::new(FRAMES, LISTS);
            let mut model = vec![VecDeque::new(); usize::from(LISTS)];
            for op in ops {
                match op {
                    Op::PushHead(l, f) if holder(&model, f).is_none() => {
                        lists.push_head(l, FrameId(f));
                        model[usize::from(l)].push_front(f);
                    }
                    Op::PushTail(l, f) if holder(&model, f).is_none() => {
                        lists.push_tail(l, FrameId(f));
                        model[usize::from(l)].push_back(f);
                    }
                    Op::PushHead(..) | Op::PushTail(..) => {}
                    Op::PushHeads(l, all) => {
                        let free: Vec<_> = all.into_iter().filter(|&f| holder(&model, f).is_none()).collect();
                        lists.push_heads(l, &free.iter().copied().map(FrameId).collect::<Vec<_>>());
                        free.into_iter().for_each(|f| model[usize::from(l)].push_front(f));
                    }
                    Op::RemoveAll(all) => {
                        lists.remove_all(&all.iter().copied().map(FrameId).collect::<Vec<_>>());
                        for list in &mut model { list.retain(|at| !all.contains(at)) }
                    }
                    Op::RemoveOldest(l, count) => {
                        let oldest: Vec<_> = model[usize::from(l)].iter().rev().take(count).copied().collect();
                        lists.remove_all(&oldest.iter().copied().map(FrameId).collect::<Vec<_>>());
                        model[usize::from(l)].retain(|at| !oldest.contains(at));
                    }
                    Op::Remove(f) => {
                        let held = holder(&model, f);
                        prop_assert_eq!(lists.remove(FrameId(f)), held.is_some());
                        if let Some(l) = held { model[l].retain(|&at| at != f) }
                    }
                    Op::Replace(old, new) if holder(&model, new).is_none() => {
                        let held = holder(&model, old);
                        prop_assert_eq!(lists.replace(FrameId(old), FrameId(new)), held.is_some());
                        if let Some(l) = held {
                            for at in &mut model[l] {
                                if *at == old { *at = new }
                            }
                        }
                    }
                    Op::Replace(..) => {}
                    Op::PopTail(l) => {
                        prop_assert_eq!(lists.pop_tail(l), model[usize::from(l)].pop_back().map(FrameId));
                    }
                }
                for l in 0..LISTS {
                    let want: Vec<_> = model[usize::from(l)].iter().rev().copied().map(FrameId).collect();
                    prop_assert_eq!(lists.iter(l).collect::<Vec<_>>(), want.clone());
                    prop_assert_eq!(lists.len(l) as usize, want.len());
                    prop_assert_eq!(lists.tail(l), want.first().copied());
                }
                for f in 0..FRAMES {
                    let want = holder(&model, f).map(|l| u8::try_from(l).unwrap());
                    prop_assert_eq!(lists.list_of(FrameId(f)), want);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "is on list 0 already")]
    fn a_frame_is_on_one_list_only() {
        let mut lists = Lists::new(2, 2);
        lists.push_head(0, FrameId(1));
        lists.push_tail(1, FrameId(1));
    }
}
