//! Which request goes to the store next: the order within an object, and merging.
//!
//! A request is cut into *parts*, one per object. Writes of one object go one put at a time: writes
//! that arrive while a put is under way wait, and go together in the next one. Reads go beside
//! them, unless an earlier write that has not ended touches the same bytes.
//!
//! A write whose submitter said that more follows is held for a moment, so that its neighbours make
//! it in time for the same put: half an object costs a read as well.
//!
//! Invariants
//!   1. Of one object, at most one job of writes is under way, and it has all writes that waited
//!      when it began.
//!   2. A read never overtakes a write that came before it and overlaps it.
//!   3. Nothing here waits, and nothing is dropped: `drain` gives back what never began.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use env::IoClass;

/// Two reads of an object with no more than this between them become one.
const READ_GAP: u64 = 64 << 10;

/// The operation that a part asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Bytes of the object.
    Read,
    /// Bytes into the object.
    Write,
    /// Zeroes in the object.
    Discard,
}

/// A request's share of one object.
#[derive(Debug)]
pub(crate) struct Part<T> {
    /// The request.
    pub(crate) whole: T,
    pub(crate) want: Want,
    /// Bytes within the object.
    pub(crate) range: Range<u64>,
    /// Their beginning within the request.
    pub(crate) from: usize,
    pub(crate) class: IoClass,
}

type Key = (IoClass, u64, u64);

struct Waiting<T> {
    part: Part<T>,
    seq: u64,
}

struct Entry<T> {
    writes: Vec<Waiting<T>>,
    flying: Vec<Range<u64>>,
    reads: Vec<Waiting<T>>,
    held: bool,
    write_key: Option<Key>,
    read_key: Option<Key>,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            flying: Vec::new(),
            reads: Vec::new(),
            held: false,
            write_key: None,
            read_key: None,
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<T> Entry<T> {
    fn is_blocked(&self, read: &Waiting<T>) -> bool {
        let range = &read.part.range;
        let earlier = |write: &&Waiting<T>| write.seq < read.seq;
        self.flying.iter().any(|flying| overlap(flying, range))
            || self
                .writes
                .iter()
                .filter(earlier)
                .any(|write| overlap(&write.part.range, range))
    }
}

/// Parts that have not begun, by object.
pub(crate) struct Queue<T> {
    objects: BTreeMap<u64, Entry<T>>,
    writes: BTreeSet<Key>,
    reads: BTreeSet<Key>,
    seq: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            writes: BTreeSet::new(),
            reads: BTreeSet::new(),
            seq: 0,
        }
    }

    /// Takes a part. `hold`: more of the same object is on its way; the caller calls `let_go` in a
    /// moment.
    pub(crate) fn push(&mut self, object: u64, part: Part<T>, hold: bool) {
        self.seq += 1;
        let waiting = Waiting {
            part,
            seq: self.seq,
        };
        let entry = self.objects.entry(object).or_default();
        if waiting.part.want == Want::Read {
            entry.reads.push(waiting);
        } else {
            entry.held = hold;
            entry.writes.push(waiting);
        }
        self.look(object);
    }

    /// The request that was held in this object is held no more.
    pub(crate) fn let_go(&mut self, object: u64) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.held = false;
            self.look(object);
        }
    }

    /// True if anything of this object waits, or writes of it are under way.
    pub(crate) fn has(&self, object: u64) -> bool {
        self.objects.contains_key(&object)
    }

    /// All writes that wait for the object whose turn it is, in the order in which they came.
    pub(crate) fn next_write(&mut self) -> Option<(u64, Vec<Part<T>>)> {
        let (.., object) = *self.writes.first()?;
        let entry = self.objects.get_mut(&object)?;
        let parts: Vec<_> = entry.writes.drain(..).map(|waiting| waiting.part).collect();
        entry.flying = parts.iter().map(|part| part.range.clone()).collect();
        self.look(object);
        Some((object, parts))
    }

    /// The read whose turn it is, and those of the same object that are near it.
    pub(crate) fn next_read(&mut self) -> Option<(u64, Vec<Part<T>>)> {
        let (_, seq, object) = *self.reads.first()?;
        let entry = self.objects.get_mut(&object)?;
        let mut span = entry
            .reads
            .iter()
            .find(|read| read.seq == seq)?
            .part
            .range
            .clone();
        let mut order: Vec<usize> = (0..entry.reads.len())
            .filter(|&place| !entry.is_blocked(&entry.reads[place]))
            .collect();
        order.sort_unstable_by_key(|&place| entry.reads[place].part.range.start);
        let mut chosen = Vec::new();
        // Twice: a range to the left of the first may be reached only over others.
        for _ in 0..2 {
            for &place in order.iter().chain(order.iter().rev()) {
                let range = &entry.reads[place].part.range;
                let near = range.start <= span.end.saturating_add(READ_GAP)
                    && span.start <= range.end.saturating_add(READ_GAP);
                if near && !chosen.contains(&place) {
                    span = span.start.min(range.start)..span.end.max(range.end);
                    chosen.push(place);
                }
            }
        }
        chosen.sort_unstable_by(|a, b| b.cmp(a));
        let mut parts: Vec<_> = chosen
            .into_iter()
            .map(|place| entry.reads.remove(place).part)
            .collect();
        parts.reverse();
        self.look(object);
        Some((object, parts))
    }

    /// The put of the object has ended.
    pub(crate) fn end_write(&mut self, object: u64) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.flying.clear();
            self.look(object);
        }
    }

    /// Everything that has not begun.
    pub(crate) fn drain(&mut self) -> Vec<Part<T>> {
        self.writes.clear();
        self.reads.clear();
        let mut all = Vec::new();
        self.objects.retain(|_, entry| {
            all.extend(entry.writes.drain(..).map(|waiting| waiting.part));
            all.extend(entry.reads.drain(..).map(|waiting| waiting.part));
            (entry.write_key, entry.read_key) = (None, None);
            !entry.flying.is_empty()
        });
        all
    }

    /// Objects that have anything waiting or under way.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.objects.len()
    }

    /// Brings the object's place among the ready ones up to date.
    fn look(&mut self, object: u64) {
        let Some(entry) = self.objects.get_mut(&object) else {
            return;
        };
        let may_write = entry.flying.is_empty() && !entry.held;
        let most_urgent = |a: Key, b: Key| if b < a { b } else { a };
        let write_key = entry
            .writes
            .iter()
            .map(|write| (write.part.class, write.seq, object))
            .reduce(most_urgent)
            .filter(|_| may_write);
        let read_key = entry
            .reads
            .iter()
            .filter(|read| !entry.is_blocked(read))
            .map(|read| (read.part.class, read.seq, object))
            .reduce(most_urgent);
        move_key(&mut self.writes, &mut entry.write_key, write_key);
        move_key(&mut self.reads, &mut entry.read_key, read_key);
        if entry.writes.is_empty() && entry.reads.is_empty() && entry.flying.is_empty() {
            self.objects.remove(&object);
        }
    }
}

fn move_key(keys: &mut BTreeSet<Key>, from: &mut Option<Key>, to: Option<Key>) {
    if *from == to {
        return;
    }
    if let Some(old) = from.take() {
        keys.remove(&old);
    }
    if let Some(new) = to {
        keys.insert(new);
    }
    *from = to;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: u32, want: Want, range: Range<u64>) -> Part<u32> {
        Part {
            whole: name,
            want,
            range,
            from: 0,
            class: IoClass::Writeback,
        }
    }

    fn names(taken: Option<(u64, Vec<Part<u32>>)>) -> Option<(u64, Vec<u32>)> {
        taken.map(|(object, parts)| (object, parts.iter().map(|part| part.whole).collect()))
    }

    #[test]
    fn writes_that_wait_together_go_together() {
        let mut queue = Queue::new();
        queue.push(7, part(1, Want::Write, 0..10), false);
        assert_eq!(names(queue.next_write()), Some((7, vec![1])));
        queue.push(7, part(2, Want::Write, 10..20), false);
        queue.push(7, part(3, Want::Discard, 20..30), false);
        assert_eq!(names(queue.next_write()), None, "one put at a time");
        queue.push(8, part(4, Want::Write, 0..10), false);
        assert_eq!(names(queue.next_write()), Some((8, vec![4])));
        queue.end_write(7);
        assert_eq!(names(queue.next_write()), Some((7, vec![2, 3])));
        queue.end_write(7);
        queue.end_write(8);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_read_waits_for_the_writes_it_overlaps() {
        let mut queue = Queue::new();
        queue.push(1, part(1, Want::Write, 0..10), false);
        queue.push(1, part(2, Want::Read, 5..6), false);
        queue.push(1, part(3, Want::Read, 1_000_000..1_000_010), false);
        assert_eq!(names(queue.next_read()), Some((1, vec![3])));
        assert_eq!(names(queue.next_read()), None);
        assert_eq!(names(queue.next_write()), Some((1, vec![1])));
        assert_eq!(names(queue.next_read()), None);
        // A part that came later is not waited for.
        queue.push(1, part(4, Want::Write, 0..10), false);
        queue.end_write(1);
        assert_eq!(names(queue.next_read()), Some((1, vec![2])));
    }

    #[test]
    fn near_reads_are_one() {
        let mut queue = Queue::new();
        let far = 10 * READ_GAP;
        queue.push(1, part(1, Want::Read, far..far + 10), false);
        queue.push(1, part(2, Want::Read, 0..10), false);
        queue.push(1, part(3, Want::Read, 20..30), false);
        queue.push(
            1,
            part(4, Want::Read, far - READ_GAP..far - READ_GAP + 10),
            false,
        );
        assert_eq!(names(queue.next_read()), Some((1, vec![1, 4])));
        assert_eq!(names(queue.next_read()), Some((1, vec![2, 3])));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn the_urgent_go_first() {
        let mut queue = Queue::new();
        queue.push(1, part(1, Want::Write, 0..10), false);
        let mut sync = part(2, Want::Write, 0..10);
        sync.class = IoClass::Sync;
        queue.push(2, sync, false);
        assert_eq!(names(queue.next_write()), Some((2, vec![2])));
    }

    #[test]
    fn what_is_held_goes_when_let_go_or_joined_by_the_last() {
        let mut queue = Queue::new();
        queue.push(1, part(1, Want::Write, 0..10), true);
        assert_eq!(names(queue.next_write()), None);
        queue.push(1, part(2, Want::Write, 10..20), false);
        assert_eq!(names(queue.next_write()), Some((1, vec![1, 2])));
        queue.push(2, part(3, Want::Write, 0..10), true);
        queue.let_go(2);
        assert_eq!(names(queue.next_write()), Some((2, vec![3])));
    }

    #[test]
    fn what_never_began_is_given_back() {
        let mut queue = Queue::new();
        queue.push(1, part(1, Want::Write, 0..10), false);
        assert!(queue.next_write().is_some());
        queue.push(1, part(2, Want::Write, 0..10), false);
        queue.push(2, part(3, Want::Read, 0..10), false);
        let mut left: Vec<_> = queue.drain().iter().map(|part| part.whole).collect();
        left.sort_unstable();
        assert_eq!(left, [2, 3]);
        assert_eq!(names(queue.next_write()), None);
        queue.end_write(1);
        assert_eq!(queue.objects.len(), 0);
    }
}
