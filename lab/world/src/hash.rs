//! Fingerprint of everything that happens, in order.
//!
//! Rotate, exclusive or, multiply for each word (the step of Firefox's and rustc's FxHash): a
//! nanosecond a word, and the order of the words counts. It tells two runs apart; it is no defence
//! against somebody who wants a collision.

use core::sync::atomic::{AtomicU64, Ordering};

/// Odd, with bits spread well: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// One word more.
#[must_use]
pub(crate) const fn mix(state: u64, word: u64) -> u64 {
    (state.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER)
}

/// Spreads every bit of the state over the answer (the finalizer of SplitMix64).
#[must_use]
pub(crate) const fn finish(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The words of a name.
#[must_use]
pub(crate) fn name(name: &str) -> u64 {
    name.bytes()
        .fold(name.len() as u64, |state, byte| mix(state, u64::from(byte)))
}

/// The running fingerprint of one lab.
#[derive(Debug)]
pub(crate) struct TraceHash(AtomicU64);

impl TraceHash {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(mix(MULTIPLIER, seed)))
    }

    /// Takes the words in; only ever called from the thread that runs the lab.
    pub(crate) fn add<const N: usize>(&self, words: [u64; N]) {
        let state = words.into_iter().fold(self.0.load(Ordering::Relaxed), mix);
        self.0.store(state, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        finish(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_every_word_count() {
        let hash = |words: [u64; 3]| {
            let hash = TraceHash::new(1);
            hash.add(words);
            hash.value()
        };
        assert_eq!(hash([1, 2, 3]), hash([1, 2, 3]));
        assert_ne!(hash([1, 2, 3]), hash([2, 1, 3]));
        assert_ne!(hash([1, 2, 3]), hash([1, 2, 4]));
        assert_ne!(hash([0, 0, 1]), hash([0, 1, 0]));
        assert_ne!(TraceHash::new(1).value(), TraceHash::new(2).value());
        assert_ne!(name("ab"), name("ba"));
    }
}
