//! The pages of a volatile cache: which frame holds which page, and in what state.

use core::ops::{Bound, Range};
use std::collections::BTreeMap;

use env::ObjectId;
use frames::FrameId;

/// Dirty pages that a run may pass over before it begins, so that it is not always the first.
const SKIP_MAX: u64 = 16;

/// The pages in the cache; see the states in the module above.
pub(super) struct Pages {
    entries: BTreeMap<(ObjectId, u64), Entry>,
    free: Vec<FrameId>,
    capacity: usize,
    dirty: usize,
    cleaning: usize,
    /// The first page of the last run.
    cursor: (ObjectId, u64),
}

#[derive(Clone, Copy)]
struct Entry {
    frame: FrameId,
    state: State,
    /// Reads under way that will look at it.
    readers: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Dirty,
    Cleaning,
    Clean,
}

impl Pages {
    pub(super) fn new(frames: Vec<FrameId>) -> Self {
        Self {
            entries: BTreeMap::new(),
            capacity: frames.len(),
            free: frames,
            dirty: 0,
            cleaning: 0,
            cursor: (ObjectId(0), 0),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages that the inner device does not have yet.
    pub(super) fn unsynced(&self) -> usize {
        self.dirty + self.cleaning
    }

    pub(super) fn cleaning(&self) -> usize {
        self.cleaning
    }

    pub(super) fn has_unsynced(&self, object: ObjectId) -> bool {
        let mut of_object = self.entries.range((object, 0)..=(object, u64::MAX));
        of_object.any(|(_, entry)| entry.state != State::Clean)
    }

    /// True if the cache alone has the page's newest content.
    pub(super) fn is_unsynced(&self, object: ObjectId, page: u64) -> bool {
        let entry = self.entries.get(&(object, page));
        entry.is_some_and(|entry| entry.state != State::Clean)
    }

    pub(super) fn frame(&self, object: ObjectId, page: u64) -> Option<FrameId> {
        self.entries.get(&(object, page)).map(|entry| entry.frame)
    }

    pub(super) fn any_cleaning(&self, object: ObjectId, pages: Range<u64>) -> bool {
        let mut range = self
            .entries
            .range((object, pages.start)..(object, pages.end));
        range.any(|(_, entry)| entry.state == State::Cleaning)
    }

    /// Frames that a write of these pages needs and that are not free.
    pub(super) fn lacking(&self, object: ObjectId, pages: Range<u64>) -> usize {
        let wanted = usize::try_from(pages.end - pages.start).unwrap_or(usize::MAX);
        let held = self
            .entries
            .range((object, pages.start)..(object, pages.end))
            .count();
        (wanted - held).saturating_sub(self.free.len())
    }

    /// Makes the page dirty; answers the frame to copy into. It is not Cleaning, and there is room.
    pub(super) fn write(&mut self, object: ObjectId, page: u64) -> FrameId {
        if let Some(entry) = self.entries.get_mut(&(object, page)) {
            assert!(
                entry.state != State::Cleaning,
                "a page on its way down is not written to"
            );
            if entry.state == State::Clean {
                entry.state = State::Dirty;
                self.dirty += 1;
            }
            return entry.frame;
        }
        let frame = self.free.pop().expect("the caller made room");
        let entry = Entry {
            frame,
            state: State::Dirty,
            readers: 0,
        };
        self.entries.insert((object, page), entry);
        self.dirty += 1;
        frame
    }

    /// Makes a run of dirty pages Cleaning and puts their frames into `frames`; answers its place.
    /// It begins `skip` (at most a few) dirty pages after the last one.
    pub(super) fn take_run(
        &mut self,
        object: Option<ObjectId>,
        skip: u64,
        most: usize,
        frames: &mut Vec<FrameId>,
    ) -> Option<(ObjectId, u64)> {
        if self.dirty == 0 {
            return None;
        }
        let first = self.find_dirty(object, skip % SKIP_MAX)?;
        self.cursor = first;
        let mut next = first;
        while frames.len() < most
            && let Some(entry) = self.entries.get_mut(&next)
            && entry.state == State::Dirty
        {
            entry.state = State::Cleaning;
            frames.push(entry.frame);
            next.1 += 1;
        }
        self.dirty -= frames.len();
        self.cleaning += frames.len();
        Some(first)
    }

    fn find_dirty(&self, object: Option<ObjectId>, skip: u64) -> Option<(ObjectId, u64)> {
        let (low, high) = match object {
            Some(object) => ((object, 0), (object, u64::MAX)),
            None => ((ObjectId(0), 0), (ObjectId(u32::MAX), u64::MAX)),
        };
        let middle = self.cursor.clamp(low, high);
        let after = self
            .entries
            .range((Bound::Excluded(middle), Bound::Included(high)));
        let dirty = |(_, entry): &(&(ObjectId, u64), &Entry)| entry.state == State::Dirty;
        let before = self.entries.range(low..=middle);
        let mut last = None;
        let mut found = after.chain(before).filter(dirty).map(|(place, _)| *place);
        for _ in 0..=skip {
            match found.next() {
                Some(place) => last = Some(place),
                None => break,
            }
        }
        last
    }

    /// A page has come down, or (`again`) has not and is to be tried again.
    pub(super) fn end_cleaning(&mut self, object: ObjectId, page: u64, again: bool) {
        let entry = self
            .entries
            .get_mut(&(object, page))
            .expect("a page on its way down is held");
        assert!(
            entry.state == State::Cleaning,
            "a page that came down was on its way"
        );
        self.cleaning -= 1;
        if again {
            entry.state = State::Dirty;
            self.dirty += 1;
        } else {
            entry.state = State::Clean;
            self.forget_if_unused(object, page);
        }
    }

    pub(super) fn begin_read(&mut self, object: ObjectId, page: u64) {
        let entry = self
            .entries
            .get_mut(&(object, page))
            .expect("the caller found it");
        entry.readers += 1;
    }

    pub(super) fn end_read(&mut self, object: ObjectId, page: u64) {
        // A crash may have dropped it, and a later write brought another.
        if let Some(entry) = self.entries.get_mut(&(object, page)) {
            entry.readers = entry.readers.saturating_sub(1);
            self.forget_if_unused(object, page);
        }
    }

    /// Drops the dirty pages for which `lost` says so; answers how many.
    pub(super) fn drop_dirty(&mut self, mut lost: impl FnMut() -> bool) -> usize {
        let before = self.entries.len();
        let Self { entries, free, .. } = self;
        entries.retain(|_, entry| {
            let drop = entry.state == State::Dirty && lost();
            if drop {
                free.push(entry.frame);
            }
            !drop
        });
        let dropped = before - self.entries.len();
        self.dirty -= dropped;
        dropped
    }

    fn forget_if_unused(&mut self, object: ObjectId, page: u64) {
        let place = (object, page);
        let unused = |entry: &Entry| entry.state == State::Clean && entry.readers == 0;
        if self.entries.get(&place).is_some_and(unused)
            && let Some(entry) = self.entries.remove(&place)
        {
            self.free.push(entry.frame);
        }
    }
}
