//! Accesses as they are read: all of them where there is memory for them, and else those of a part
//! of the pages, chosen by their hashes.
//!
//! ```text
//!   format --> Sink: is the page's hash below the limit? --> kept --> Trace
//!                    ^-- halved when what is kept is more than there is memory for
//! ```
//!
//! A page is in the sample with all of its accesses or not at all, so a memory that is smaller by
//! the rate sees the distances that the whole one would (Waldspurger et al., Efficient MRC
//! Construction with SHARDS, FAST 2015; for any rule: Cache Modeling and Optimization using
//! Miniature Simulations, ATC 2017). Pages that fall out when the limit is halved leave a sample
//! that is the same as if the limit had been so from the beginning.

use std::collections::HashMap;

use super::{Fault, PAGE_SHIFT, PLACE_BITS, PLACES_MOST, REQUEST_MOST, Reading, Trace};

/// Number of hashes of pages: they are fractions of 53 bits, as numbers have them.
const HASHES: u64 = 1 << 53;
/// Most accesses, and pages, of a sample: both are kept in 32 bits, with one for writes.
const MOST: usize = 1 << 31;
/// Bytes of an access, and of a page's address.
const WORD: u64 = 4;
const ADDRESS: u64 = 8;
/// Bytes that a rule keeps of a page, at most; `belady` has a word for each access beside.
const RULE: u64 = 64;
/// Bytes for an access while a trace is read and replayed: its word, which is there twice while the
/// words double or in the parts of a sample, and that of `belady`.
const ACCESS: u64 = 4 * WORD;
/// The same for a page: its address twice, its number and their table while that doubles, and what
/// a rule keeps.
const PAGE: u64 = 10 * ADDRESS + RULE;

/// The finalizer of SplitMix64, Steele et al., OOPSLA 2014.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// Accesses as they are read: addresses of pages, wherever they lie.
pub(super) struct Sink {
    /// By access: its page's number, and in the lowest bit whether it was written.
    accesses: Vec<u32>,
    /// By page, in the order in which they came: its address; and the other way round.
    addresses: Vec<u64>,
    numbers: HashMap<u64, u32>,
    /// Accesses of all pages, and those that write.
    all: u64,
    writes: u64,
    /// Pages are kept whose hash is below.
    limit: u64,
    draw: u64,
    memory: u64,
    /// The numbers of devices or files, by name.
    places: HashMap<String, u64>,
    /// The line that is read.
    pub(super) line: usize,
    /// The sort of events that counts, where a format has several: of less worth the higher.
    pub(super) sort: u8,
}

impl Sink {
    pub(super) fn new(reading: &Reading) -> Self {
        Self {
            accesses: Vec::new(),
            addresses: Vec::new(),
            numbers: HashMap::new(),
            all: 0,
            writes: 0,
            limit: limit(reading.rate),
            draw: mixed(reading.draw),
            memory: reading.memory,
            places: HashMap::new(),
            line: 0,
            sort: u8::MAX,
        }
    }

    /// Nothing read so far counts: a better sort of events has come.
    pub(super) fn restart(&mut self, sort: u8) {
        *self = Self {
            sort,
            line: self.line,
            limit: self.limit,
            draw: self.draw,
            memory: self.memory,
            ..Self::new(&Reading::default())
        };
    }

    pub(super) fn access(&mut self, address: u64, write: bool) {
        self.all += 1;
        self.writes += u64::from(write);
        if self.keeps(address) {
            while self.limit > 0 && self.is_full() {
                self.thin();
            }
            if self.keeps(address) {
                self.keep(address, write);
            }
        }
    }

    fn keeps(&self, address: u64) -> bool {
        self.limit == HASHES || mixed(address ^ self.draw) >> 11 < self.limit
    }

    fn keep(&mut self, address: u64, write: bool) {
        let next = number(self.addresses.len());
        let page = *self.numbers.entry(address).or_insert(next);
        if page == next {
            self.addresses.push(address);
        }
        self.accesses.push(page << 1 | u32::from(write));
    }

    /// True where there is no memory for another access of another page.
    fn is_full(&mut self) -> bool {
        let (accesses, pages) = (self.accesses.len(), self.addresses.len());
        accesses as u64 * ACCESS + pages as u64 * PAGE >= self.memory
            || accesses >= MOST
            || self.accesses.try_reserve(1).is_err()
            || self.addresses.try_reserve(1).is_err()
            || self.numbers.try_reserve(1).is_err()
    }

    /// Halves the limit, and lets go what is no longer of the sample.
    #[cold]
    fn thin(&mut self) {
        self.limit /= 2;
        let accesses = core::mem::take(&mut self.accesses);
        let addresses = core::mem::take(&mut self.addresses);
        self.numbers = HashMap::new();
        for word in &accesses {
            let address = addresses[(word >> 1) as usize];
            if self.keeps(address) {
                self.keep(address, word & 1 != 0);
            }
        }
    }

    /// The pages of `len` bytes at `offset` of the place of that name.
    pub(super) fn bytes(
        &mut self,
        place: &str,
        offset: u64,
        len: u64,
        write: bool,
    ) -> Result<(), Fault> {
        let wrong = |what: &str| Err(Fault::line(self.line, what));
        if len > REQUEST_MOST {
            let what = "no request has more than 4 GiB: are two columns exchanged?";
            return wrong(&format!("a request of {len} bytes; {what}"));
        }
        let last = offset.saturating_add(len.max(1) - 1) >> PAGE_SHIFT;
        if last >> PLACE_BITS != 0 {
            return wrong(&format!(
                "byte {offset} lies beyond 4 PiB, the most of a device or a file"
            ));
        }
        let known = self.places.get(place).copied();
        let number = known.unwrap_or(self.places.len() as u64);
        if number == PLACES_MOST {
            return wrong("more than 2^24 devices or files");
        }
        if known.is_none() {
            self.places.insert(place.to_owned(), number);
        }
        for page in offset >> PAGE_SHIFT..=last {
            self.access(number << PLACE_BITS | page, write);
        }
        Ok(())
    }

    /// True if nothing was an access.
    pub(super) fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// The trace of what was kept: pages have their numbers in the order of their addresses.
    pub(super) fn trace(self) -> Trace {
        let Self {
            mut accesses,
            mut addresses,
            numbers,
            ..
        } = self;
        drop(numbers);
        let mut order: Vec<u32> = (0..number(addresses.len())).collect();
        order.sort_unstable_by_key(|page| addresses[*page as usize]);
        let mut numbers = vec![0; order.len()];
        for (at, page) in order.into_iter().enumerate() {
            numbers[page as usize] = number(at);
        }
        for word in &mut accesses {
            *word = numbers[(*word >> 1) as usize] << 1 | *word & 1;
        }
        addresses.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "fractions of 53 bits")]
        let rate = self.limit as f64 / HASHES as f64;
        Trace {
            accesses,
            addresses,
            all: self.all,
            writes: self.writes,
            rate,
            draw: self.draw,
        }
    }
}

/// The limit below which hashes are so often.
fn limit(rate: f64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "fractions of 53 bits, from 0 to 1"
    )]
    let limit = (rate.clamp(0.0, 1.0) * HASHES as f64) as u64;
    limit.max(1)
}

fn number(page: usize) -> u32 {
    u32::try_from(page).expect("fewer than 2^31 pages")
}

/// The parts of a sample by which its error is judged: each is as good as a sample of its own.
const PARTS: u8 = 8;

impl Trace {
    /// Bytes that it takes, with its parts; and that a replay of it takes on top.
    pub(crate) fn held(&self) -> (u64, u64) {
        let (accesses, pages) = (self.accesses.len() as u64, self.addresses.len() as u64);
        let held = accesses * 2 * WORD + pages * 2 * ADDRESS;
        (held, accesses * WORD + pages * RULE)
    }

    /// Independent samples of a `PARTS`-th of the pages each.
    pub(crate) fn parts(&self) -> Vec<Self> {
        let mut parts = vec![Self::default(); PARTS.into()];
        let part = |address: u64| usize::from(mixed(address ^ self.draw).to_le_bytes()[0] % PARTS);
        let mut numbers = Vec::with_capacity(self.addresses.len());
        for address in &self.addresses {
            let addresses = &mut parts[part(*address)].addresses;
            numbers.push(number(addresses.len()));
            addresses.push(*address);
        }
        for word in &self.accesses {
            let page = (word >> 1) as usize;
            let accesses = &mut parts[part(self.addresses[page])].accesses;
            accesses.push(numbers[page] << 1 | word & 1);
        }
        for part in &mut parts {
            (part.all, part.writes, part.draw) = (self.all, self.writes, self.draw);
            part.rate = self.rate / f64::from(PARTS);
        }
        parts
    }
}
