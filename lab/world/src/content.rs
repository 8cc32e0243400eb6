//! The content of a frame in the lab: the version of each of its eight 512-byte sectors.
//!
//! A writer stamps every sector with a number of its own choosing; the cache, the devices and the
//! checkers move the stamps as if they were bytes. So a checker sees lost, stale and torn data down
//! to a sector, and a page costs 32 bytes instead of 4096.
//!
//! A chunk of frames starts, and ends, as `Sector::JUNK`: what a frame holds before it is filled
//! or zeroed must not matter to anybody, and a checker that meets junk has found a bug.
//!
//! Concurrency: relaxed atomics. Rights (`Busy`, `Pin`) keep writers and readers apart; a device
//! model reads and writes frames of requests that it holds.
//!
//! Source: ours; live tests write the same stamps, so that one checker serves both.

use core::ops::Range;

use frames::sync::{AtomicBool, AtomicU32, Ordering};

use frames::{Buffer, Busy, Content, Data, DataMut, FrameId, Pin, PopulateError};
pub use frames::{SECTOR_SIZE, Sector};

use crate::views::Views;

/// Stamps in a frame.
pub const SECTORS_PER_FRAME: usize = 8;
/// Frames made usable together: 2 MiB of pages.
const CHUNK_FRAMES: u32 = 512;

const ENXIO: i32 = 6;
const ENOMEM: i32 = 12;

/// The stamps of all frames.
#[derive(Debug)]
pub struct Stamps {
    /// Stamps less `Sector::JUNK`: an unfilled sector is zero, and costs nothing.
    frames: Box<[[AtomicU32; SECTORS_PER_FRAME]]>,
    populated: Box<[AtomicBool]>,
    refuses: AtomicBool,
    views: Views,
}

impl Stamps {
    /// Room for `frames` frames, rounded up to whole chunks; none populated.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        let chunks = frames.div_ceil(CHUNK_FRAMES) as usize;
        let frames = chunks * CHUNK_FRAMES as usize;
        Self {
            frames: frames::zeroed::table(frames),
            populated: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            refuses: AtomicBool::new(false),
            views: Views::default(),
        }
    }

    /// A view for a map of a program (`mm::File::map_live`), until `close_view`.
    pub fn open_view(&self) -> u32 {
        self.views.open()
    }

    /// The program is done with a view.
    pub fn close_view(&self, view: u32) {
        self.views.close(view);
    }

    /// A program loads a page of its view. `None`: a fault.
    #[must_use]
    pub fn load_through(&self, view: u32, page: u32) -> Option<[Sector; SECTORS_PER_FRAME]> {
        let frame = self.views.usable(view, page, false)?;
        Some(self.load(frame))
    }

    /// A program stores to a page of its view, from the page's first sector on. False: a fault.
    pub fn store_through(&self, view: u32, page: u32, sectors: &[Sector]) -> bool {
        let frame = self.views.usable(view, page, true);
        for (cell, sector) in frame
            .iter()
            .flat_map(|frame| self.frame(*frame))
            .zip(sectors)
        {
            put(cell, *sector);
        }
        frame.is_some()
    }

    /// Pages that programs may use without a fault.
    #[must_use]
    pub fn viewed(&self) -> u64 {
        self.views.used()
    }

    /// Sets whether chunks are refused memory from now on.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// The content of the frame; for device models and checkers.
    #[must_use]
    pub fn load(&self, frame: FrameId) -> [Sector; SECTORS_PER_FRAME] {
        self.frame(frame).each_ref().map(stamp)
    }

    /// Fills the frame; for device models.
    pub fn store(&self, frame: FrameId, sectors: [Sector; SECTORS_PER_FRAME]) {
        for (cell, sector) in self.frame(frame).iter().zip(sectors) {
            put(cell, sector);
        }
    }

    /// Number of frames populated now.
    #[must_use]
    pub fn populated(&self) -> u64 {
        let chunks = self
            .populated
            .iter()
            .filter(|chunk| chunk.load(Ordering::Relaxed))
            .count();
        chunks as u64 * u64::from(CHUNK_FRAMES)
    }

    #[inline]
    fn frame(&self, frame: FrameId) -> &[AtomicU32; SECTORS_PER_FRAME] {
        debug_assert!(
            self.populated[(frame.0 / CHUNK_FRAMES) as usize].load(Ordering::Relaxed),
            "{frame:?} is used and not populated"
        );
        &self.frames[frame.0 as usize]
    }

    #[inline]
    fn part(&self, frame: FrameId, offset: usize, len: usize) -> &[AtomicU32] {
        &self.frame(frame)[sectors(offset)..sectors(offset + len)]
    }

    /// The chunk's first and last state: junk.
    fn set_chunk(&self, first: FrameId, populated: bool) {
        assert!(
            first.0.is_multiple_of(CHUNK_FRAMES),
            "{first:?} does not begin a chunk"
        );
        let before =
            self.populated[(first.0 / CHUNK_FRAMES) as usize].swap(populated, Ordering::Relaxed);
        assert!(
            before != populated,
            "the chunk of {first:?}: populated is {populated} already"
        );
        if populated {
            // As it began, or was left.
            return;
        }
        let start = first.0 as usize;
        let chunk = &self.frames[start..start + CHUNK_FRAMES as usize];
        for cell in chunk.as_flattened() {
            // A look first: nothing is behind what nobody has filled.
            if stamp(cell) != Sector::JUNK {
                put(cell, Sector::JUNK);
            }
        }
    }
}

/// The content of a pinned frame of a lab.
///
/// # Panics
/// If the contents are not those of a lab.
#[must_use]
pub fn of_pin(contents: &dyn Content, pin: &Pin) -> [Sector; SECTORS_PER_FRAME] {
    let mut sectors = [Sector::JUNK; SECTORS_PER_FRAME];
    let whole = SECTORS_PER_FRAME * SECTOR_SIZE;
    contents.copy_out(pin, 0, &mut (&mut sectors).into(), 0, whole);
    sectors
}

#[inline]
fn stamp(cell: &AtomicU32) -> Sector {
    Sector(cell.load(Ordering::Relaxed).wrapping_add(Sector::JUNK.0))
}

#[inline]
fn put(cell: &AtomicU32, sector: Sector) {
    cell.store(sector.0.wrapping_sub(Sector::JUNK.0), Ordering::Relaxed);
}

/// Bytes as whole sectors.
#[inline]
fn sectors(bytes: usize) -> usize {
    assert!(
        bytes.is_multiple_of(SECTOR_SIZE),
        "{bytes} bytes are not whole sectors"
    );
    bytes / SECTOR_SIZE
}

impl Content for Stamps {
    fn chunk_frames(&self) -> u32 {
        CHUNK_FRAMES
    }

    fn populate(&self, first: FrameId) -> Result<(), PopulateError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(PopulateError { errno: ENOMEM });
        }
        self.set_chunk(first, true);
        Ok(())
    }

    fn release(&self, first: FrameId) {
        self.set_chunk(first, false);
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::Sectors(vec![Sector::ZERO; sectors(bytes)].into())
    }

    #[inline]
    fn zero(&self, frame: &Busy, offset: usize, len: usize) {
        for cell in self.part(frame.frame(), offset, len) {
            put(cell, Sector::ZERO);
        }
    }

    #[inline]
    fn zero_all(&self, frames: &[Busy]) {
        for frame in frames {
            for cell in self.frame(frame.frame()) {
                put(cell, Sector::ZERO);
            }
        }
    }

    fn copy_in(&self, frame: &Busy, offset: usize, data: Data<'_>, from: usize, len: usize) {
        let from = &data.sectors()[sectors(from)..sectors(from + len)];
        for (cell, sector) in self.part(frame.frame(), offset, len).iter().zip(from) {
            put(cell, *sector);
        }
    }

    fn copy_out(&self, frame: &Pin, offset: usize, data: &mut DataMut<'_>, to: usize, len: usize) {
        let to = &mut data.sectors()[sectors(to)..sectors(to + len)];
        for (cell, sector) in self.part(frame.frame(), offset, len).iter().zip(to) {
            *sector = stamp(cell);
        }
    }

    #[inline]
    fn mark(&self, frame: &Busy, word: u64) {
        let version = u32::try_from(word & u64::from(u32::MAX)).expect("the upper half is zero");
        put(&self.frame(frame.frame())[0], Sector(version));
    }

    fn copy_frame(&self, to: &Busy, from: &Pin) {
        self.store(to.frame(), self.load(from.frame()));
    }

    fn move_frame(&self, to: &Busy, from: &Busy) {
        self.store(to.frame(), self.load(from.frame()));
        self.views.hand_over(to.frame(), from.frame());
    }

    fn home(&self, frame: FrameId) -> Option<(u32, u32)> {
        self.views.home(frame)
    }

    fn settle(
        &self,
        map: u32,
        first: u32,
        frames: &[&Busy],
        _fresh: bool,
    ) -> Result<(), PopulateError> {
        for (page, busy) in (first..).zip(frames) {
            let place = (map, page);
            if self.views.home(busy.frame()) == Some(place) {
                continue;
            }
            if self.refuses.load(Ordering::Relaxed) {
                return Err(PopulateError { errno: ENOMEM });
            }
            if !self.views.settle(place, busy.frame()) {
                return Err(PopulateError { errno: ENXIO });
            }
        }
        Ok(())
    }

    fn vacate(&self, frames: &[FrameId]) {
        frames.iter().for_each(|frame| self.views.vacate(*frame));
    }

    fn enter(&self, map: u32, pages: Range<u32>, storable: bool) {
        self.views.enter(map, pages, storable);
    }

    fn protect(&self, map: u32, pages: Range<u32>) {
        self.views.refuse(map, pages, false);
    }

    fn leave(&self, map: u32, pages: &[u32]) {
        self.views.refuse(map, pages.iter().copied(), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_begins_as_junk_and_forgets_when_released() {
        let stamps = Stamps::new(600);
        assert_eq!(stamps.populated(), 0);
        stamps.populate(FrameId(512)).unwrap();
        assert_eq!(stamps.populated(), 512);
        assert_eq!(stamps.load(FrameId(599)), [Sector::JUNK; 8]);
        let versions = core::array::from_fn(|at| Sector(7 + u32::try_from(at).unwrap()));
        stamps.store(FrameId(599), versions);
        assert_eq!(stamps.load(FrameId(599)), versions);
        assert_eq!(stamps.load(FrameId(600)), [Sector::JUNK; 8]);
        stamps.release(FrameId(512));
        stamps.populate(FrameId(512)).unwrap();
        assert_eq!(stamps.load(FrameId(599)), [Sector::JUNK; 8]);
    }

    #[test]
    #[should_panic(expected = "populated is true already")]
    fn a_chunk_is_not_populated_twice() {
        let stamps = Stamps::new(1);
        stamps.populate(FrameId(0)).unwrap();
        let _ = stamps.populate(FrameId(0));
    }

    #[test]
    #[should_panic(expected = "not whole sectors")]
    fn partial_sectors_are_refused() {
        sectors(513);
    }
}
