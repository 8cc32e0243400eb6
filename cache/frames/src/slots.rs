//! Slots of a swap file: which are in use, and which comes next.
//!
//! Pages that go out together are wanted back together, so they are to lie together: each cursor
//! (one for each CPU) hands out the slots of a cluster of its own, in order. When that is used up
//! it moves to a cluster that is wholly free, and where there is none, to a cluster that has a free
//! slot.
//!
//! ```text
//!   cluster 0 (256 slots)      cluster 1                  cluster 2 ...
//!   [####################]     [#####>               ]    [                    ]
//!                                    ^ cursor of CPU 0      next for the task that needs a cluster
//! ```
//!
//! Invariants
//!   1. `free` and `cluster_free` count the clear bits of `used`, of all and of each cluster.
//!   2. A slot is handed out only while its bit is clear, and given back only while it is set.
//!
//! Concurrency: plain data behind one lock of `mm`.
//!
//! Source: mechanisms 9; Linux v5.15 mm/swapfile.c, scan_swap_map_try_ssd_cluster(), for the
//! scheme.
//! Deviations: clusters are found by a walk over their counts, not by lists; a whole cluster's
//! slots are handed out in order, no matter what is freed meanwhile.

/// Slots of a cluster.
const CLUSTER: u32 = 256;
const WORD: u32 = u64::BITS;
/// A cursor without a cluster.
const NIL: u32 = u32::MAX;

/// The slots of a swap file, 4 KiB each.
pub struct SlotMap {
    used: Box<[u64]>,
    /// Words of it that are not zero.
    groups: u32,
    slots: u32,
    free: u32,
    cluster_free: Box<[u16]>,
    /// The slot from which each cursor goes on, or `NIL`.
    cursors: Box<[u32]>,
    /// The cluster at which the next search for one begins.
    hand: u32,
}

impl SlotMap {
    /// `slots` free slots, handed out through `cursors` cursors.
    ///
    /// # Panics
    /// Without a cursor.
    #[must_use]
    pub fn new(slots: u32, cursors: usize) -> Self {
        assert!(cursors > 0, "slots are handed out through a cursor");
        let cluster_slots = |cluster: u32| {
            let left = slots - cluster * CLUSTER;
            u16::try_from(left.min(CLUSTER)).expect("a cluster is small")
        };
        Self {
            used: vec![0; slots.div_ceil(WORD) as usize].into(),
            groups: 0,
            slots,
            free: slots,
            cluster_free: (0..slots.div_ceil(CLUSTER)).map(cluster_slots).collect(),
            cursors: vec![NIL; cursors].into(),
            hand: 0,
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.slots
    }

    /// True if there is no slot at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Number of free slots.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Of how many groups of 64 neighbours a slot is in use.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// True if a slot is in use.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn is_used(&self, slot: u32) -> bool {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.used[(slot / WORD) as usize] >> (slot % WORD) & 1 == 1
    }

    /// Takes the next free slot of a cursor's cluster; `None` when all are in use.
    pub fn try_take(&mut self, cursor: usize) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let cursor = cursor % self.cursors.len();
        let slot = self.next_in_cluster(self.cursors[cursor]).or_else(|| {
            let cluster = self.next_cluster()?;
            self.next_in_cluster(cluster * CLUSTER)
        })?;
        let group = &mut self.used[(slot / WORD) as usize];
        self.groups += u32::from(*group == 0);
        *group |= 1 << (slot % WORD);
        self.free -= 1;
        self.cluster_free[(slot / CLUSTER) as usize] -= 1;
        let next = slot + 1;
        let goes_on = !next.is_multiple_of(CLUSTER) && next < self.slots;
        self.cursors[cursor] = if goes_on { next } else { NIL };
        Some(slot)
    }

    /// Gives a slot back.
    ///
    /// # Panics
    /// If it is not in use: it would be handed out twice.
    pub fn put(&mut self, slot: u32) {
        assert!(self.is_used(slot), "slot {slot} is given back but free");
        let group = &mut self.used[(slot / WORD) as usize];
        *group &= !(1 << (slot % WORD));
        self.groups -= u32::from(*group == 0);
        self.free += 1;
        self.cluster_free[(slot / CLUSTER) as usize] += 1;
    }

    /// Bytes of metadata.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.used) + size_of_val(&*self.cluster_free) + size_of_val(&*self.cursors))
            as u64
    }

    /// The first free slot at or after `from` in `from`'s cluster.
    fn next_in_cluster(&self, from: u32) -> Option<u32> {
        if from >= self.slots || self.cluster_free[(from / CLUSTER) as usize] == 0 {
            return None;
        }
        let end = (from / CLUSTER + 1).saturating_mul(CLUSTER).min(self.slots);
        let mut at = from;
        while at < end {
            let free = !self.used[(at / WORD) as usize] >> (at % WORD);
            if free != 0 {
                let slot = at + free.trailing_zeros();
                return (slot < end).then_some(slot);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// The next cluster that is wholly free, else the next that has a free slot.
    fn next_cluster(&mut self) -> Option<u32> {
        let clusters = u32::try_from(self.cluster_free.len()).expect("fewer than slots");
        let order = (self.hand..clusters).chain(0..self.hand);
        let mut partly = None;
        for cluster in order {
            let free = u32::from(self.cluster_free[cluster as usize]);
            if free == CLUSTER.min(self.slots - cluster * CLUSTER) {
                self.hand = (cluster + 1) % clusters;
                return Some(cluster);
            }
            if free > 0 {
                partly = partly.or(Some(cluster));
            }
        }
        self.hand = partly.map_or(0, |cluster| (cluster + 1) % clusters);
        partly
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_goes_out_together_lies_together() {
        let mut map = SlotMap::new(4 * CLUSTER, 2);
        let one: Vec<_> = (0..300).map(|_| map.try_take(0).unwrap()).collect();
        let other: Vec<_> = (0..10).map(|_| map.try_take(1).unwrap()).collect();
        assert_eq!(one, (0..300).collect::<Vec<_>>());
        assert_eq!(
            other,
            (512..522).collect::<Vec<_>>(),
            "a cluster of its own"
        );
    }

    #[test]
    fn a_group_is_in_use_from_its_first_slot_to_its_last() {
        let mut map = SlotMap::new(256, 1);
        let groups = [(); 130].map(|()| {
            map.try_take(0).unwrap();
            map.groups()
        });
        assert_eq!(
            (groups[0], groups[63], groups[64], groups[129]),
            (1, 1, 2, 3)
        );
        map.put(128);
        assert_eq!(map.groups(), 3);
        map.put(129);
        assert_eq!(map.groups(), 2);
    }

    #[test]
    fn a_full_file_says_so_and_takes_up_again() {
        let mut map = SlotMap::new(300, 1);
        while map.try_take(0).is_some() {}
        assert_eq!(map.free(), 0);
        map.put(7);
        map.put(299);
        let back = BTreeSet::from([map.try_take(0).unwrap(), map.try_take(0).unwrap()]);
        assert_eq!(back, BTreeSet::from([7, 299]));
        assert_eq!(map.try_take(0), None);
    }

    #[test]
    fn wholly_free_clusters_come_first() {
        let mut map = SlotMap::new(3 * CLUSTER, 1);
        for _ in 0..2 * CLUSTER {
            map.try_take(0).unwrap();
        }
        map.put(3);
        assert_eq!(map.try_take(0), Some(2 * CLUSTER));
    }

    #[test]
    #[should_panic(expected = "is given back but free")]
    fn a_slot_is_given_back_once() {
        let mut map = SlotMap::new(8, 1);
        let slot = map.try_take(0).unwrap();
        map.put(slot);
        map.put(slot);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(slots in 1_u32..700, ops in prop::collection::vec((any::<bool>(), 0_usize..3, any::<u32>()), 1..900)) {
            let mut map = SlotMap::new(slots, 3);
            let mut used = BTreeSet::new();
            for (take, cursor, pick) in ops {
                if take {
                    match map.try_take(cursor) {
                        Some(slot) => prop_assert!(slot < slots && used.insert(slot)),
                        None => prop_assert_eq!(used.len(), slots as usize),
                    }
                } else if !used.is_empty() {
                    let slot = *used.iter().nth(pick as usize % used.len()).unwrap();
                    used.remove(&slot);
                    map.put(slot);
                }
                prop_assert_eq!(map.free() as usize, slots as usize - used.len());
                prop_assert_eq!(map.is_used(pick % slots), used.contains(&(pick % slots)));
            }
        }
    }
}
