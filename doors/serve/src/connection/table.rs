//! The requests of one connection that are under way.
//!
//! Places are used again; the table's memory grows to the most that were under way at once, and
//! stays.

use std::collections::VecDeque;
use std::time::Instant;

use tidegate::PAGE_SIZE;

use super::errors::Told;
use crate::counters::Kind;
use crate::job::RequestId;

/// A request under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) arrived: Instant,
    /// Of whom it is told that it failed.
    pub(super) failed: Option<Told>,
    /// The bytes behind the head of its reply: extents, or data that could not be kept in the cache
    /// until they were sent.
    pub(super) body: Option<Box<[u8]>>,
    pub(super) len: u32,
    /// Bytes sent or taken in.
    pub(super) moved: u32,
    /// Bytes of data that the client was told will come, and that were not sent yet.
    pub(super) promised: u32,
    /// Times in a row that it had to wait and did not get further.
    pub(super) tries: u8,
    pub(super) kind: Kind,
    /// The data in one piece.
    pub(super) unfragmented: bool,
    /// All of the data has been read once, or is being read for that.
    pub(super) is_proven: bool,
    /// Answered when it is durable.
    pub(super) durable: bool,
    /// Zeroes at once, or an error.
    pub(super) fast: bool,
    /// One extent is enough.
    pub(super) one: bool,
}

/// The offset in its page of a byte of the volume.
pub(super) fn into_page(at: u64) -> usize {
    usize::try_from(at % PAGE_SIZE as u64).expect("a remainder is smaller than a page")
}

impl Request {
    /// The next byte to be moved.
    pub(super) fn next(&self) -> u64 {
        self.offset + u64::from(self.moved)
    }

    /// `bytes` of it were taken in; answers how many are left.
    pub(super) fn take(&mut self, bytes: usize) -> u32 {
        let bytes = u32::try_from(bytes).expect("no more than was asked for");
        self.moved += bytes;
        self.tries = if bytes > 0 {
            0
        } else {
            self.tries.saturating_add(1)
        };
        self.len - self.moved
    }
}

/// All requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: Vec<Option<Request>>,
    free: Vec<RequestId>,
    /// As they arrived; some of them are gone.
    order: VecDeque<(RequestId, Instant)>,
}

/// Number of gone ones that are kept before they are looked for.
const GONE_MOST: usize = 64;

impl Table {
    /// Number of requests under way.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A place for a request. There are never more than a place can name: `Limits::in_flight` is
    /// cut to that.
    pub(super) fn insert(&mut self, request: Request) -> RequestId {
        let arrived = request.arrived;
        let id = match self.free.pop() {
            Some(id) => {
                self.places[usize::from(id)] = Some(request);
                id
            }
            None => {
                self.places.push(Some(request));
                let last = self.places.len() - 1;
                RequestId::try_from(last).expect("requests under way are bounded")
            }
        };
        if self.order.len() > 2 * self.len() + GONE_MOST {
            // Behind a request that waits, thousands may have come and gone.
            let places = &self.places;
            self.order.retain(|entry| is_there(places, *entry));
        }
        self.order.push_back((id, arrived));
        id
    }

    /// Number of those under way that change the volume.
    pub(super) fn changing(&self) -> usize {
        let all = self.places.iter().flatten();
        all.filter(|request| request.kind.changes()).count()
    }

    /// When the one arrived that is under way for longest.
    pub(super) fn oldest(&mut self) -> Option<Instant> {
        while let Some(first) = self.order.front() {
            if is_there(&self.places, *first) {
                return Some(first.1);
            }
            self.order.pop_front();
        }
        None
    }

    /// The request at a place that is taken.
    pub(super) fn at(&mut self, id: RequestId) -> &mut Request {
        self.places[usize::from(id)]
            .as_mut()
            .expect("a id is named only while its request is under way")
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Request {
        let request = self.places[usize::from(id)]
            .take()
            .expect("a id is named only while its request is under way");
        self.free.push(id);
        request
    }
}

fn is_there(places: &[Option<Request>], (id, arrived): (RequestId, Instant)) -> bool {
    let request = &places[usize::from(id)];
    request.as_ref().is_some_and(|it| it.arrived == arrived)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(arrived: Instant) -> Request {
        Request {
            cookie: 0,
            offset: 0,
            arrived,
            failed: None,
            body: None,
            len: 0,
            moved: 0,
            promised: 0,
            tries: 0,
            kind: Kind::Read,
            unfragmented: false,
            is_proven: false,
            durable: false,
            fast: false,
            one: false,
        }
    }

    #[test]
    fn the_oldest_is_known_however_many_come_and_go_behind_it() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let mut table = Table::default();
        assert_eq!(table.oldest(), None);
        let [first, second] = [at(0), at(1)].map(|at| table.insert(request(at)));
        for millis in 2..10_000 {
            let id = table.insert(request(at(millis)));
            table.remove(id);
        }
        assert!(table.order.len() < 100, "{}", table.order.len());
        assert_eq!(table.oldest(), Some(at(0)));
        table.remove(first);
        assert_eq!(table.oldest(), Some(at(1)));
        let last = table.insert(request(at(20_000)));
        table.remove(second);
        assert_eq!(table.oldest(), Some(at(20_000)));
        table.remove(last);
        assert_eq!(table.oldest(), None);
    }

    #[test]
    fn a_request_fits_two_cache_lines() {
        assert!(size_of::<Request>() <= 128, "{}", size_of::<Request>());
    }
}
