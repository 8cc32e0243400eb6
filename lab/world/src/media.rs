//! The content of a simulated device: per object a length and, per 4 KiB page, the stamps of its
//! eight sectors; and the part that would survive a loss of power.
//!
//! Vocabulary: a write is *completed* when the device has said so, *durable* when no loss of power
//! can undo it. Between the two it sits in the device's volatile cache. The media keep the
//! completed content as the truth and, for every completed write that is not yet durable, the
//! content it replaced (an undo log, oldest first):
//!
//! ```text
//!   page 7:  v0 --write v1--> v1 --write v2--> v2          log: (7, v0) (7, v1)
//!            flush up to here ^                            log:         (7, v1)
//!            a crash leaves any of v0, v1, v2; after the flush only v1 or v2
//! ```
//!
//! Invariants
//!   1. `read` answers the last completed content, or zeroes where nothing was ever written.
//!   2. After `flush(mark)` no write completed before `mark(...)` can be undone by `crash`.
//!   3. A crash leaves in every sector one of the contents that the page had since the last flush;
//!      sectors of one page may differ in age (a page can tear, a sector cannot).
//!   4. The log holds at most as many writes as the cache has pages: the oldest becomes durable.
//!
//! Setting the length and discarding are durable as they complete, like a metadata operation that
//! a journal commits; growth of the length by writes is durable with the writes' flush.
//!
//! Memory: 32 bytes a page, in chunks of 512 pages taken when first written; a prefilled object
//! takes none until it is written. Concurrency: behind one mutex (`SharedMedia`), a leaf lock.
//!
//! Source: docs/adr/0009 (error contract), docs/adr/0011 (true size); ATA8-ACS (volatile write
//! cache, FLUSH CACHE) for the meaning of completed and durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use ::env::ObjectId;
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::content::{self, Sector};
use crate::stamps::stamp;

/// Bytes of a sector: the unit that never tears.
pub const SECTOR_SIZE: u64 = content::SECTOR_SIZE as u64;
/// Sectors of a page.
pub const SECTORS_PER_PAGE: usize = content::SECTORS_PER_FRAME;
const _: () = assert!(SECTORS_PER_PAGE as u64 * SECTOR_SIZE == PAGE_SIZE);
/// Pages of a chunk.
const CHUNK_PAGES: usize = 512;
/// One page in this many that a crash touches is torn between sectors. GUESS: often enough to be
/// met in every run of a fault campaign.
const TEARS_ONE_IN: usize = 8;
/// Content of a page where nothing was written.
pub const ZEROES: PageStamps = [Sector(0); SECTORS_PER_PAGE];

/// The stamps of one page.
pub type PageStamps = [Sector; SECTORS_PER_PAGE];

/// Media that a device, its test and a checker look at together.
pub type SharedMedia = Arc<Mutex<Media>>;

/// The writes of one object completed so far; what a flush that starts now will cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark {
    writes: u64,
    len: Bytes,
}

/// Size of a device's volatile cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolatileCache {
    /// Off: a completed write is durable.
    Off,
    /// At most that many pages; beyond it the oldest become durable by themselves.
    Pages(Pages),
}

/// All objects of a device.
#[derive(Debug)]
pub struct Media {
    objects: Vec<Object>,
    cache: VolatileCache,
}

#[derive(Debug, Default)]
struct Object {
    chunks: Vec<Option<Box<[PageStamps; CHUNK_PAGES]>>>,
    prefill: Option<Prefill>,
    len: Bytes,
    durable_len: Bytes,
    /// The contents replaced by completed but volatile writes, oldest first.
    undo: VecDeque<Undo>,
    /// Writes that were ever completed; the front of `undo` is number `writes - undo.len()`.
    writes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Undo {
    page: u64,
    before: PageStamps,
}

/// Content that stood there before the run began.
#[derive(Clone, Copy, Debug)]
struct Prefill {
    object: ObjectId,
    pages: u64,
    version: u32,
}

impl Prefill {
    fn page(&self, page: u64) -> PageStamps {
        if page >= self.pages {
            return ZEROES;
        }
        core::array::from_fn(|at| {
            stamp(
                self.object,
                page * SECTORS_PER_PAGE as u64 + at as u64,
                self.version,
            )
        })
    }
}

impl Media {
    /// Empty media.
    #[must_use]
    pub fn new(cache: VolatileCache) -> Self {
        Self {
            objects: Vec::new(),
            cache,
        }
    }

    /// Empty media to be shared.
    #[must_use]
    pub fn shared(cache: VolatileCache) -> SharedMedia {
        Arc::new(Mutex::new(Self::new(cache)))
    }

    /// Makes `object` hold `version` in all its first `pages` pages, durably and at no cost of
    /// memory.
    ///
    /// # Panics
    /// If the object was written before.
    pub fn prefill(&mut self, object: ObjectId, pages: Pages, version: u32) {
        let slot = self.object_mut(object);
        assert!(
            slot.writes == 0 && slot.chunks.is_empty(),
            "prefilled after it was written"
        );
        slot.prefill = Some(Prefill {
            object,
            pages: pages.0,
            version,
        });
        slot.len = pages.bytes();
        slot.durable_len = slot.len;
    }

    /// Completed content of a page.
    #[must_use]
    pub fn read(&self, object: ObjectId, page: u64) -> PageStamps {
        self.objects
            .get(object.0 as usize)
            .map_or(ZEROES, |slot| slot.read(page))
    }

    /// Completes the write of a whole page; the object grows to hold it.
    pub fn write(&mut self, object: ObjectId, page: u64, content: PageStamps) {
        let cache = self.cache;
        let slot = self.object_mut(object);
        let before = core::mem::replace(slot.page_mut(page), content);
        let end = Bytes((page + 1) << PAGE_SHIFT);
        slot.len = slot.len.at_least(end);
        slot.writes += 1;
        match cache {
            VolatileCache::Off => slot.durable_len = slot.len,
            VolatileCache::Pages(most) => {
                slot.undo.push_back(Undo { page, before });
                if slot.undo.len() as u64 > most.0 {
                    slot.drop_oldest();
                }
            }
        }
    }

    /// Completes the first `sectors` sectors of a page's write: a torn page.
    pub fn write_torn(&mut self, object: ObjectId, page: u64, content: PageStamps, sectors: usize) {
        let mut torn = self.read(object, page);
        let moved = sectors.min(SECTORS_PER_PAGE);
        torn[..moved].copy_from_slice(&content[..moved]);
        self.write(object, page, torn);
    }

    /// The mark up to which a flush submitted now has to cover.
    #[must_use]
    pub fn mark(&self, object: ObjectId) -> FlushMark {
        self.objects.get(object.0 as usize).map_or(
            FlushMark {
                writes: 0,
                len: Bytes::ZERO,
            },
            |slot| FlushMark {
                writes: slot.writes,
                len: slot.len,
            },
        )
    }

    /// Makes durable what had completed at `mark`.
    pub fn flush(&mut self, object: ObjectId, mark: FlushMark) {
        let slot = self.object_mut(object);
        while slot.writes - (slot.undo.len() as u64) < mark.writes && !slot.undo.is_empty() {
            slot.undo.pop_front();
        }
        slot.durable_len = slot.durable_len.at_least(mark.len.at_most(slot.len));
    }

    /// Completed writes of the object that a crash may undo.
    #[must_use]
    pub fn volatile_pages(&self, object: ObjectId) -> Pages {
        self.objects
            .get(object.0 as usize)
            .map_or(Pages::ZERO, |slot| Pages(slot.undo.len() as u64))
    }

    /// Length of the object; zero if there is none.
    #[must_use]
    pub fn len(&self, object: ObjectId) -> Bytes {
        self.objects
            .get(object.0 as usize)
            .map_or(Bytes::ZERO, |slot| slot.len)
    }

    /// True if the object has no content.
    #[must_use]
    pub fn is_empty(&self, object: ObjectId) -> bool {
        self.len(object).is_zero()
    }

    /// Number of objects; their numbers are below it.
    #[must_use]
    pub fn objects(&self) -> u32 {
        u32::try_from(self.objects.len()).expect("object numbers are 32 bits")
    }

    /// Sets the length; what is cut off reads as zeroes if the object grows again.
    ///
    /// # Panics
    /// If `len` is not a multiple of the sector size.
    pub fn set_len(&mut self, object: ObjectId, len: Bytes) {
        let slot = self.object_mut(object);
        if len < slot.len {
            let cut = slot.len.saturating_sub(len);
            slot.zero(len, cut);
        }
        slot.len = len;
        slot.durable_len = len;
    }

    /// Makes a range read as zeroes; the length stays.
    ///
    /// # Panics
    /// If the range is not in whole sectors.
    pub fn discard(&mut self, object: ObjectId, offset: Bytes, len: Bytes) {
        let slot = self.object_mut(object);
        let end = offset.saturating_add(len).at_most(slot.len);
        if offset < end {
            slot.zero(offset, end.saturating_sub(offset));
        }
    }

    /// The content of every page if nothing volatile survived: pages that would differ from `read`.
    #[must_use]
    pub fn undone(&self, object: ObjectId) -> BTreeMap<u64, PageStamps> {
        let mut undone = BTreeMap::new();
        if let Some(slot) = self.objects.get(object.0 as usize) {
            for undo in &slot.undo {
                undone.entry(undo.page).or_insert(undo.before);
            }
        }
        undone
    }

    /// The power fails: of every page with volatile writes, any of the contents since the last
    /// flush survives, mostly whole, sometimes torn between sectors. `random` decides.
    pub fn crash(&mut self, mut random: impl FnMut() -> u64) {
        for slot in &mut self.objects {
            slot.crash(&mut random);
        }
    }

    fn object_mut(&mut self, object: ObjectId) -> &mut Object {
        let at = object.0 as usize;
        if at >= self.objects.len() {
            self.objects.resize_with(at + 1, Object::default);
        }
        &mut self.objects[at]
    }
}

impl Object {
    fn read(&self, page: u64) -> PageStamps {
        let (chunk, at) = place(page);
        match self.chunks.get(chunk) {
            Some(Some(pages)) => pages[at],
            Some(None) | None => self.prefill.map_or(ZEROES, |prefill| prefill.page(page)),
        }
    }

    fn page_mut(&mut self, page: u64) -> &mut PageStamps {
        let (chunk, at) = place(page);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let prefill = self.prefill;
        let pages = self.chunks[chunk].get_or_insert_with(|| {
            let first = (chunk * CHUNK_PAGES) as u64;
            let mut pages = Box::new([ZEROES; CHUNK_PAGES]);
            if let Some(prefill) = prefill {
                for (page, slot) in (first..).zip(pages.iter_mut()) {
                    *slot = prefill.page(page);
                }
            }
            pages
        });
        &mut pages[at]
    }

    fn drop_oldest(&mut self) {
        if let Some(undo) = self.undo.pop_front() {
            let end = Bytes((undo.page + 1) << PAGE_SHIFT).at_most(self.len);
            self.durable_len = self.durable_len.at_least(end);
        }
    }

    /// Zeroes a range durably: nothing that stood there comes back.
    fn zero(&mut self, offset: Bytes, len: Bytes) {
        assert!(
            offset.0.is_multiple_of(SECTOR_SIZE) && len.0.is_multiple_of(SECTOR_SIZE),
            "the lab knows whole sectors only: {offset:?} + {len:?}"
        );
        let end = offset.0 + len.0;
        let (first, last) = (offset.0 >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE));
        for page in first..last {
            let sectors = sectors_within(page, offset.0, end);
            if sectors == (0..SECTORS_PER_PAGE) && self.has_nothing(page) {
                continue;
            }
            self.page_mut(page)[sectors].fill(Sector(0));
        }
        for undo in &mut self.undo {
            if (first..last).contains(&undo.page) {
                undo.before[sectors_within(undo.page, offset.0, end)].fill(Sector(0));
            }
        }
    }

    fn has_nothing(&self, page: u64) -> bool {
        let unwritten = !matches!(self.chunks.get(place(page).0), Some(Some(_)));
        unwritten && self.prefill.is_none_or(|prefill| page >= prefill.pages)
    }

    fn crash(&mut self, random: &mut impl FnMut() -> u64) {
        let mut ages: BTreeMap<u64, Vec<PageStamps>> = BTreeMap::new();
        for undo in self.undo.drain(..) {
            ages.entry(undo.page).or_default().push(undo.before);
        }
        for (page, mut contents) in ages {
            contents.push(self.read(page));
            let mut pick = || contents[below(random(), contents.len())];
            let whole = pick();
            let torn: PageStamps = core::array::from_fn(|at| pick()[at]);
            let survivor = if below(random(), TEARS_ONE_IN) == 0 {
                torn
            } else {
                whole
            };
            *self.page_mut(page) = survivor;
        }
        if self.durable_len < self.len && random() & 1 == 0 {
            let (short, cut) = (self.durable_len, self.len.saturating_sub(self.durable_len));
            self.zero(short, cut);
            self.len = short;
        }
        self.durable_len = self.len;
    }
}

/// Chunk and place in it.
fn place(page: u64) -> (usize, usize) {
    let page = usize::try_from(page).expect("page numbers fit the address space");
    (page / CHUNK_PAGES, page % CHUNK_PAGES)
}

/// The sectors of `page` that lie in the bytes `from..to`.
fn sectors_within(page: u64, from: u64, to: u64) -> core::ops::Range<usize> {
    let start = page << PAGE_SHIFT;
    let sector = |byte: u64| {
        usize::try_from(byte.saturating_sub(start).min(PAGE_SIZE) / SECTOR_SIZE)
            .expect("at most eight")
    };
    sector(from)..sector(to)
}

/// A random number below `count`.
fn below(random: u64, count: usize) -> usize {
    usize::try_from(random % count as u64).expect("below a usize")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId(3);

    fn page(version: u32) -> PageStamps {
        [Sector(version); SECTORS_PER_PAGE]
    }

    fn volatile() -> Media {
        Media::new(VolatileCache::Pages(Pages(1000)))
    }

    fn counting() -> impl FnMut() -> u64 {
        let mut state = 1_u64;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        }
    }

    #[test]
    fn unwritten_pages_read_as_zeroes_and_growth_is_sparse() {
        let mut media = volatile();
        media.write(FILE, 1_000_000, page(1));
        assert_eq!(media.read(FILE, 1_000_000), page(1));
        assert_eq!(media.read(FILE, 999_999), ZEROES);
        assert_eq!(media.read(ObjectId(9), 0), ZEROES);
        assert_eq!(media.len(FILE), Pages(1_000_001).bytes());
        let chunks = &media.objects[3].chunks;
        assert_eq!(chunks.iter().filter(|chunk| chunk.is_some()).count(), 1);
    }

    #[test]
    fn a_flush_covers_what_had_completed_when_it_began_and_nothing_later() {
        let mut media = volatile();
        media.write(FILE, 7, page(1));
        let mark = media.mark(FILE);
        media.write(FILE, 7, page(2));
        media.flush(FILE, mark);
        assert_eq!(
            media.undone(FILE)[&7],
            page(1),
            "the first write is durable, the second not"
        );
        media.flush(FILE, media.mark(FILE));
        assert!(media.undone(FILE).is_empty());
        assert_eq!(media.read(FILE, 7), page(2));
    }

    #[test]
    fn a_crash_leaves_any_content_since_the_flush_and_none_older() {
        let mut seen = std::collections::BTreeSet::new();
        let mut random = counting();
        for _ in 0..200 {
            let mut media = volatile();
            media.write(FILE, 0, page(1));
            media.write(FILE, 0, page(2));
            media.flush(FILE, media.mark(FILE));
            media.write(FILE, 0, page(3));
            media.write(FILE, 0, page(4));
            media.crash(&mut random);
            let left = media.read(FILE, 0);
            assert!(
                left.iter().all(|sector| (2..=4).contains(&sector.0)),
                "{left:?}"
            );
            seen.insert(if left.iter().all(|sector| *sector == left[0]) {
                left[0].0
            } else {
                0
            });
            assert!(media.undone(FILE).is_empty(), "what survived is durable");
        }
        assert_eq!(
            seen.into_iter().collect::<Vec<_>>(),
            [0, 2, 3, 4],
            "0 stands for a torn page"
        );
    }

    #[test]
    fn without_a_volatile_cache_nothing_is_undone() {
        let mut media = Media::new(VolatileCache::Off);
        media.write(FILE, 0, page(1));
        media.write(FILE, 0, page(2));
        media.crash(counting());
        assert_eq!(media.read(FILE, 0), page(2));
        assert_eq!(media.len(FILE), Pages(1).bytes());
    }

    #[test]
    fn a_full_cache_makes_its_oldest_write_durable() {
        let mut media = Media::new(VolatileCache::Pages(Pages(2)));
        for at in 0..5 {
            media.write(FILE, at, page(1));
        }
        assert_eq!(media.undone(FILE).into_keys().collect::<Vec<_>>(), [3, 4]);
        assert_eq!(media.volatile_pages(FILE), Pages(2));
    }

    #[test]
    fn what_is_cut_off_never_comes_back() {
        let mut media = volatile();
        media.write(FILE, 0, page(1));
        media.write(FILE, 1, page(1));
        media.write(FILE, 1, page(2));
        media.set_len(FILE, Bytes(4096 + 1024));
        media.set_len(FILE, Bytes(3 * 4096));
        let mut half = page(2);
        half[2..].fill(Sector(0));
        assert_eq!(media.read(FILE, 1), half);
        media.crash(counting());
        assert!(
            media.read(FILE, 1)[2..]
                .iter()
                .all(|sector| *sector == Sector(0))
        );
        assert_eq!(media.len(FILE), Bytes(3 * 4096));
    }

    #[test]
    fn a_discarded_range_reads_as_zeroes_and_the_length_stays() {
        let mut media = volatile();
        media.prefill(FILE, Pages(4), 9);
        media.discard(FILE, Bytes(4096), Bytes(8192));
        assert_eq!(media.read(FILE, 1), ZEROES);
        assert_eq!(media.read(FILE, 2), ZEROES);
        assert_ne!(media.read(FILE, 3), ZEROES);
        assert_eq!(media.len(FILE), Pages(4).bytes());
    }

    #[test]
    fn a_prefilled_object_costs_nothing_until_it_is_written() {
        let mut media = volatile();
        media.prefill(FILE, Pages(1 << 30), 5);
        assert_eq!(media.read(FILE, 77)[2], stamp(FILE, 77 * 8 + 2, 5));
        assert!(media.objects[3].chunks.is_empty());
        media.write(FILE, 77, page(1));
        assert_eq!(
            media.read(FILE, 78)[0],
            stamp(FILE, 78 * 8, 5),
            "neighbours keep theirs"
        );
    }

    #[test]
    fn a_torn_write_changes_its_first_sectors_only() {
        let mut media = volatile();
        media.write(FILE, 0, page(1));
        media.write_torn(FILE, 0, page(2), 3);
        assert_eq!(
            media.read(FILE, 0).map(|sector| sector.0),
            [2, 2, 2, 1, 1, 1, 1, 1]
        );
    }
}
