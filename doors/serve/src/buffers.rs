//! Receive buffers of one volume: a few large ones, lent for as long as the received bytes are
//! being handled.
//!
//! A buffer goes back in the same run of the connection that took it, unless the cache could not go
//! on in the middle of what was received. So a hung volume can hold all buffers of its own, and
//! none of another's.
//!
//! Invariant: there are never more than `most`, lent and free together.

use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a buffer: thirty-one requests of 4 KiB at once; the least with which a large write
/// costs few system calls.
pub const BUFFER: usize = 128 << 10;

/// Bytes that clients that send too much at once may have in memory of a volume: a few of them.
const SPILL: usize = 1 << 20;

struct Shelf {
    free: Vec<Box<[u8]>>,
    /// Made so far.
    made: usize,
    /// Given out beside the buffers.
    spilled: usize,
}

/// The buffers of one volume.
#[derive(Clone)]
pub struct Buffers {
    shelf: Arc<Mutex<Shelf>>,
    most: usize,
}

/// Memory beside the buffers that may be used; goes back when dropped.
pub(crate) struct Spilled {
    bytes: usize,
    home: Arc<Mutex<Shelf>>,
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let mut shelf = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.spilled -= self.bytes;
    }
}

/// A buffer that is lent; goes back when dropped.
pub struct Lease {
    buffer: Option<Box<[u8]>>,
    home: Arc<Mutex<Shelf>>,
}

impl Buffers {
    /// At most `most` buffers, made when they are wanted first.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let shelf = Shelf {
            free: Vec::with_capacity(most),
            made: 0,
            spilled: 0,
        };
        Self {
            shelf: Arc::new(Mutex::new(shelf)),
            most,
        }
    }

    /// A buffer, if one is free.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = match shelf.free.pop() {
            Some(buffer) => buffer,
            None if shelf.made < self.most => {
                shelf.made += 1;
                vec![0; BUFFER].into_boxed_slice()
            }
            None => return None,
        };
        drop(shelf);
        Some(Lease {
            buffer: Some(buffer),
            home: Arc::clone(&self.shelf),
        })
    }

    /// Leave to use `bytes` of memory beside the buffers, if there is any left.
    pub(crate) fn spill(&self, bytes: usize) -> Option<Spilled> {
        self.spill_up_to(bytes, SPILL)
    }

    /// The same for what can also wait in a buffer: half of that memory is left to those that
    /// cannot.
    pub(crate) fn spill_some(&self, bytes: usize) -> Option<Spilled> {
        self.spill_up_to(bytes, SPILL / 2)
    }

    fn spill_up_to(&self, bytes: usize, most: usize) -> Option<Spilled> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let spilled = shelf.spilled + bytes;
        if spilled > most {
            return None;
        }
        shelf.spilled = spilled;
        drop(shelf);
        Some(Spilled {
            bytes,
            home: Arc::clone(&self.shelf),
        })
    }

    /// Number lent now.
    #[must_use]
    pub fn lent(&self) -> usize {
        let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.made - shelf.free.len()
    }
}

impl Lease {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }

    /// Its bytes, to be received into.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let mut shelf = self.home.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_lent_than_there_are_and_each_comes_back() {
        let buffers = Buffers::new(2);
        let one = buffers.lease().unwrap();
        let mut two = buffers.lease().unwrap();
        assert!(buffers.lease().is_none());
        assert_eq!(buffers.lent(), 2);
        two.bytes_mut()[BUFFER - 1] = 7;
        assert_eq!(two.bytes().len(), BUFFER);
        drop(two);
        assert_eq!(buffers.lent(), 1);
        let again = buffers.lease().unwrap();
        assert_eq!(again.bytes()[BUFFER - 1], 7, "the same one");
        drop((one, again));
        assert_eq!(buffers.lent(), 0);
    }
}
