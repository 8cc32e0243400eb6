//! Which places of which slabs are taken.
//!
//! A slab has a number; an object's is that of its slab times the objects of the largest one, and
//! its place. Places are a bit each, set while free.

use frames::Busy;
use policy::units::Pages;

use super::Object;
use mm::NodeId;

const NIL: u32 = u32::MAX;

/// See the module.
pub(super) struct Places {
    /// Objects of a slab of the order that is tried first: none has more.
    most: u32,
    /// Words of free places a slab.
    words: usize,
    slabs: Vec<Slab>,
    free: Vec<u64>,
    /// Numbers of freed slabs.
    vacant: Vec<u32>,
    nodes: Box<[OfNode]>,
    objects: u64,
    pages: u64,
}

struct Slab {
    frames: Box<[Busy]>,
    node: NodeId,
    objects: u32,
    used: u32,
    state: State,
    next: u32,
    prev: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is gone.
    Vacant,
    /// On no list.
    Full,
    /// Its node's tasks take from it, if that is the one which `filled` names; whatever node its
    /// memory is on.
    Filled,
    /// On its node's list.
    Listed,
}

#[derive(Clone, Copy)]
struct OfNode {
    /// The slab that the node's tasks take from.
    filled: u32,
    /// Slabs of the node's memory that are partly used: the first is taken from next, and a slab
    /// that comes to be partly used is the last.
    head: u32,
    tail: u32,
}

impl Places {
    /// For slabs of at most `most` objects.
    pub(super) fn new(nodes: usize, most: u32) -> Self {
        let node = OfNode {
            filled: NIL,
            head: NIL,
            tail: NIL,
        };
        Self {
            most,
            words: most.div_ceil(u64::BITS) as usize,
            slabs: Vec::new(),
            free: Vec::new(),
            vacant: Vec::new(),
            nodes: vec![node; nodes].into(),
            objects: 0,
            pages: 0,
        }
    }

    /// A place of a slab that is partly used, for a task of a node.
    pub(super) fn take(&mut self, home: NodeId) -> Option<Object> {
        let own = &self.nodes[home.index()];
        if own.filled == NIL {
            let head = own.head;
            if head == NIL {
                return None;
            }
            self.unlist(head);
            self.fill(home, head);
        }
        Some(self.take_filled(home))
    }

    /// A fresh slab, on the memory of `node`; and a place of it for a task of `home`. Its frames
    /// again, if there can be no more.
    pub(super) fn add(
        &mut self,
        home: NodeId,
        node: NodeId,
        frames: Box<[Busy]>,
        objects: u32,
    ) -> Result<Object, Box<[Busy]>> {
        debug_assert!(objects > 0 && objects <= self.most, "{objects} objects");
        let last = (self.slabs.len() as u64 + 1) * u64::from(self.most);
        if self.vacant.is_empty() && last > u64::from(u32::MAX) {
            return Err(frames);
        }
        self.pages += frames.len() as u64;
        let slab = Slab {
            frames,
            node,
            objects,
            used: 0,
            state: State::Full,
            next: NIL,
            prev: NIL,
        };
        let number = if let Some(number) = self.vacant.pop() {
            self.slabs[number as usize] = slab;
            number
        } else {
            self.slabs.push(slab);
            self.free.resize(self.slabs.len() * self.words, 0);
            u32::try_from(self.slabs.len() - 1).expect("fewer slabs than objects")
        };
        for place in 0..objects {
            let (word, bit) = self.bit(number, place);
            self.free[word] |= bit;
        }
        let before = self.nodes[home.index()].filled;
        if before != NIL {
            // Another task of the node was as fast.
            self.list(before);
        }
        self.fill(home, number);
        Ok(self.take_filled(home))
    }

    /// Gives an object back; the frames of its slab, if it was the last one.
    pub(super) fn give(&mut self, object: Object) -> Option<Box<[Busy]>> {
        let number = object.0 / self.most;
        let (word, bit) = self.bit(number, object.0 % self.most);
        let slab = self
            .slabs
            .get_mut(number as usize)
            .expect("there is no such object");
        assert!(
            slab.state != State::Vacant && self.free[word] & bit == 0,
            "{object:?} is given back and was not taken"
        );
        self.free[word] |= bit;
        self.objects -= 1;
        slab.used -= 1;
        let (used, state) = (slab.used, slab.state);
        match state {
            State::Full => self.list(number),
            State::Filled | State::Listed | State::Vacant => {}
        }
        (used == 0).then(|| self.remove(number))
    }

    /// The node of an object's memory.
    pub(super) fn node_of(&self, object: Object) -> NodeId {
        let slab = self.slabs.get((object.0 / self.most) as usize);
        let slab = slab.filter(|slab| slab.state != State::Vacant);
        slab.expect("there is no such object").node
    }

    /// Objects that are taken.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Pages of all slabs.
    pub(super) fn pages(&self) -> Pages {
        Pages(self.pages)
    }

    /// The word and the bit of a place.
    fn bit(&self, number: u32, place: u32) -> (usize, u64) {
        let word = number as usize * self.words + (place / u64::BITS) as usize;
        (word, 1 << (place % u64::BITS))
    }

    /// The first free place of the slab that a node's tasks fill.
    fn take_filled(&mut self, home: NodeId) -> Object {
        let number = self.nodes[home.index()].filled;
        let first = number as usize * self.words;
        let words = self.free[first..first + self.words].iter();
        let (at, bits) = (0_u32..)
            .zip(words)
            .find(|(_, bits)| **bits != 0)
            .expect("it is not full");
        let place = at * u64::BITS + bits.trailing_zeros();
        let (word, bit) = self.bit(number, place);
        self.free[word] &= !bit;
        self.objects += 1;
        let slab = &mut self.slabs[number as usize];
        slab.used += 1;
        if slab.used == slab.objects {
            slab.state = State::Full;
            self.nodes[home.index()].filled = NIL;
        }
        Object(number * self.most + place)
    }

    fn fill(&mut self, home: NodeId, number: u32) {
        self.slabs[number as usize].state = State::Filled;
        self.nodes[home.index()].filled = number;
    }

    /// Puts a slab at the end of its node's list.
    fn list(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        let node = &mut self.nodes[slab.node.index()];
        slab.state = State::Listed;
        (slab.prev, slab.next) = (node.tail, NIL);
        let before = core::mem::replace(&mut node.tail, number);
        if before == NIL {
            node.head = number;
        } else {
            self.slabs[before as usize].next = number;
        }
    }

    fn unlist(&mut self, number: u32) {
        let slab = &self.slabs[number as usize];
        let (prev, next, node) = (slab.prev, slab.next, slab.node);
        let node = &mut self.nodes[node.index()];
        match prev {
            NIL => node.head = next,
            _ => self.slabs[prev as usize].next = next,
        }
        match next {
            NIL => node.tail = prev,
            _ => self.slabs[next as usize].prev = prev,
        }
    }

    /// An empty slab goes.
    fn remove(&mut self, number: u32) -> Box<[Busy]> {
        match self.slabs[number as usize].state {
            State::Listed => self.unlist(number),
            State::Filled => {
                let filled = |node: &&mut OfNode| node.filled == number;
                let node = self.nodes.iter_mut().find(filled);
                node.expect("some node's tasks fill it").filled = NIL;
            }
            State::Full | State::Vacant => unreachable!("it is empty"),
        }
        for word in &mut self.free[number as usize * self.words..][..self.words] {
            *word = 0;
        }
        let slab = &mut self.slabs[number as usize];
        slab.state = State::Vacant;
        self.vacant.push(number);
        self.pages -= slab.frames.len() as u64;
        core::mem::take(&mut slab.frames)
    }
}
