//! Where zones lie among the frames, and in which order tasks try them.
//!
//! A zone is a run of whole chunks, so that a chunk gets its memory, and gives it back, in one
//! zone. The sizes that the machine says are rounded to chunks.

use core::ops::Range;

use frames::FrameId;
use policy::place::machine::Machine;
use policy::place::order::Zone;
use policy::place::{ZONES_MAX, ZoneId};
use policy::units::Pages;

use super::NodeId;

/// See the module.
#[derive(Debug)]
pub struct Layout {
    machine: Machine,
    chunk: u32,
    /// The zone of each chunk.
    zone_of_chunk: Box<[u8]>,
    /// Zones with the frames they have got.
    zones: Vec<Zone>,
}

const _: () = assert!(ZONES_MAX <= u8::MAX as usize, "a zone's number fits");

/// Counts pages that lie on another node than a task that uses them. Nothing is counted on a
/// machine of one node.
pub(crate) struct FarPages<'a> {
    several: Option<(&'a Layout, NodeId)>,
    count: u64,
}

impl FarPages<'_> {
    /// The task uses the page in that frame.
    #[inline]
    pub(crate) fn uses(&mut self, frame: FrameId) {
        if let Some((layout, home)) = self.several {
            self.count += u64::from(layout.node_of(layout.of(frame)) != home);
        }
    }

    /// True if there are several nodes.
    pub(crate) fn counts(&self) -> bool {
        self.several.is_some()
    }

    /// Pages used so far that lie elsewhere; counts on from none.
    pub(crate) fn take(&mut self) -> u64 {
        core::mem::take(&mut self.count)
    }
}

impl Layout {
    /// For a task of the node `home`.
    pub(crate) fn far_from(&self, home: NodeId) -> FarPages<'_> {
        let is_one = self.machine.nodes().len() == 1;
        FarPages {
            several: (!is_one).then_some((self, home)),
            count: 0,
        }
    }

    /// The frames of a machine, in chunks of `chunk`. Zones are of `frames` in all.
    ///
    /// # Errors
    /// The first zone that has less than `least`, unless it is the only one, and how much.
    pub(crate) fn new(
        machine: Machine,
        frames: u32,
        chunk: u32,
        least: u32,
    ) -> Result<Self, (ZoneId, Pages)> {
        let mut zone_of_chunk = Vec::with_capacity(frames.div_ceil(chunk) as usize);
        let mut zones = machine.zones().to_vec();
        let (mut first, mut end) = (0, Pages::ZERO);
        let count = zones.len();
        for (zone, number) in zones.iter_mut().zip(0u8..) {
            end += zone.pages;
            let is_last = usize::from(number) + 1 == count;
            let rounded = end.0.next_multiple_of(u64::from(chunk));
            let rounded = u32::try_from(rounded).unwrap_or(frames).min(frames);
            let end = if is_last { frames } else { rounded };
            let own = end - first;
            zone.pages = Pages(u64::from(own));
            if count > 1 && own < least {
                return Err((ZoneId(number), zone.pages));
            }
            zone_of_chunk.resize(end.div_ceil(chunk) as usize, number);
            first = end;
        }
        Ok(Self {
            machine,
            chunk,
            zone_of_chunk: zone_of_chunk.into(),
            zones,
        })
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// True if there is but one zone.
    pub(crate) fn is_one(&self) -> bool {
        self.zones.len() == 1
    }

    /// The zone of a frame.
    pub fn of(&self, frame: FrameId) -> ZoneId {
        if self.is_one() {
            return ZoneId(0);
        }
        ZoneId(self.zone_of_chunk[(frame.0 / self.chunk) as usize])
    }

    /// The frames of a zone.
    pub fn frames(&self, zone: ZoneId) -> Range<u32> {
        let pages = |zone: &Zone| u32::try_from(zone.pages.0).expect("no more than all frames");
        let first = self.zones[..zone.index()].iter().map(pages).sum();
        first..first + pages(self.zone(zone))
    }

    /// All zones, in the order of their frames.
    pub(crate) fn zones(&self) -> impl ExactSizeIterator<Item = ZoneId> + Clone + use<> {
        let count = u8::try_from(self.zones.len()).expect("zones are few");
        (0..count).map(ZoneId)
    }

    /// A zone with its frames.
    pub fn zone(&self, zone: ZoneId) -> &Zone {
        &self.zones[zone.index()]
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Zone] {
        &self.zones
    }

    /// All nodes.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + Clone + use<> {
        let count = u8::try_from(self.machine.nodes().len()).expect("nodes are few");
        (0..count).map(NodeId)
    }

    /// The node that a zone is of.
    pub fn node_of(&self, zone: ZoneId) -> NodeId {
        NodeId(self.zones[zone.index()].node)
    }

    /// The zones of a node, in the order of their frames.
    pub fn zones_of(&self, node: NodeId) -> impl Iterator<Item = ZoneId> + Clone + '_ {
        self.zones().filter(move |zone| self.node_of(*zone) == node)
    }

    /// The node of a CPU.
    pub(crate) fn node_of_cpu(&self, cpu: usize) -> NodeId {
        let node = self.machine.node_of_cpu(cpu);
        NodeId(u8::try_from(node).expect("nodes are few"))
    }

    /// The zones that tasks of a node try, in order.
    pub(crate) fn list(&self, node: NodeId) -> &[ZoneId] {
        self.machine.list(node.index())
    }

    /// The parts of `frames` that are of one zone each, in order.
    pub(crate) fn parts<'a>(
        &'a self,
        frames: &'a [FrameId],
    ) -> impl Iterator<Item = (ZoneId, &'a [FrameId])> {
        let same = |a: &FrameId, b: &FrameId| self.is_one() || self.of(*a) == self.of(*b);
        let parts = frames.chunk_by(same);
        parts.map(|part| (self.of(part[0]), part))
    }
}

#[cfg(test)]
mod tests {
    use policy::place::distance::Distances;
    use policy::place::machine::Node;

    use super::*;

    fn even(frames: u32, chunk: u32, count: u8) -> Layout {
        let machine = Machine::even(Pages(u64::from(frames)), count, 12).unwrap();
        Layout::new(machine, frames, chunk, 1).unwrap()
    }

    #[test]
    fn zones_are_whole_chunks() {
        for (frames, chunk, count, firsts) in [
            (4096, 512, 1, vec![0]),
            (4096, 512, 2, vec![0, 2048]),
            (4096, 512, 3, vec![0, 1536, 3072]),
            (4608, 512, 2, vec![0, 2560]),
        ] {
            let layout = even(frames, chunk, count);
            let mut seen = Vec::new();
            for frame in 0..frames {
                let zone = layout.of(FrameId(frame));
                if seen.len() == zone.index() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, firsts, "{frames} by {count}");
            let sizes: u64 = layout.all().iter().map(|zone| zone.pages.0).sum();
            assert_eq!(sizes, u64::from(frames));
        }
    }

    #[test]
    fn zones_of_unequal_size_lie_one_after_the_other() {
        let node = |normal, dma32, cpus| Node {
            normal: Pages(normal),
            dma32: Pages(dma32),
            cpus,
        };
        let nodes = [node(1000, 1030, 2), node(2066, 0, 2)];
        let machine = Machine::new(&nodes, Distances::even(2).unwrap(), None).unwrap();
        let layout = Layout::new(machine, 4096, 64, 1).unwrap();
        let of = |frame| layout.of(FrameId(frame));
        let (dma32, normal, other) = (ZoneId(0), ZoneId(1), ZoneId(2));
        assert_eq!((of(0), of(1087), of(1088)), (dma32, dma32, normal));
        assert_eq!((of(2047), of(2048), of(4095)), (normal, other, other));
        let of_first = layout.zones_of(NodeId(0));
        assert_eq!(of_first.collect::<Vec<_>>(), [dma32, normal]);
        assert_eq!(layout.zone(dma32).pages, Pages(1088));
    }

    #[test]
    fn a_zone_of_too_few_frames_is_refused_and_a_small_memory_is_not() {
        let machine = Machine::even(Pages(1024), 3, 3).unwrap();
        let refused = Layout::new(machine, 1024, 512, 256).unwrap_err();
        assert_eq!(refused, (ZoneId(2), Pages(0)));
        let one = Machine::of_one_node(Pages(100));
        assert!(Layout::new(one, 100, 512, 256).is_ok());
    }

    #[test]
    fn a_task_tries_its_own_node_first() {
        let layout = even(4096, 512, 2);
        let list = |cpu| layout.list(layout.node_of_cpu(cpu));
        assert_eq!((list(0), list(5)), (&[ZoneId(0), ZoneId(1)][..], list(0)));
        assert_eq!((list(6), list(11)), (&[ZoneId(1), ZoneId(0)][..], list(6)));
        assert_eq!(list(12), list(0), "a CPU that was not counted");
    }

    #[test]
    fn parts_are_of_one_zone_each() {
        let layout = even(4096, 512, 2);
        let frames = [1, 2, 2048, 5, 4095, 3000].map(FrameId);
        let parts = layout.parts(&frames);
        let parts: Vec<_> = parts
            .map(|(zone, part)| (zone.index(), part.len()))
            .collect();
        assert_eq!(parts, [(0, 2), (1, 1), (0, 1), (1, 2)]);
        assert_eq!(layout.parts(&[]).count(), 0);
    }
}
