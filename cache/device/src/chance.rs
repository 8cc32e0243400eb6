//! Chance of the wrappers: a seeded stream and exact odds.

use core::fmt;

/// A probability in parts per billion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Odds(u32);

impl Odds {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(Self::ONE);
    /// One, in parts per billion.
    const ONE: u32 = 1_000_000_000;

    /// From parts per billion; none above one billion.
    #[must_use]
    pub const fn from_ppb(ppb: u32) -> Option<Self> {
        if ppb <= Self::ONE {
            Some(Self(ppb))
        } else {
            None
        }
    }

    /// As parts per billion.
    #[must_use]
    pub const fn ppb(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Odds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:09}", self.0 / Self::ONE, self.0 % Self::ONE);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A stream of random numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`, zero if that is zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let word = (u128::from(self.draw()) * u128::from(bound)) >> 64;
        u64::try_from(word).expect("a 64-bit word times a bound, shifted by 64, is below the bound")
    }

    /// True if it happens this time. Draws only if it could go either way.
    pub(crate) fn happens(&mut self, odds: Odds) -> bool {
        match odds {
            Odds::NEVER => false,
            Odds::ALWAYS => true,
            Odds(ppb) => self.below(u64::from(Odds::ONE)) < u64::from(ppb),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_happen_as_often_as_they_say() {
        let mut chance = Chance::new(3);
        let odds = Odds::from_ppb(250_000_000).unwrap();
        let hits = (0..10_000).filter(|_| chance.happens(odds)).count();
        assert!(
            (2_300..2_700).contains(&hits),
            "{hits} of 10,000 at one in four"
        );
        assert!(!(0..100).any(|_| chance.happens(Odds::NEVER)));
        assert!((0..100).all(|_| chance.happens(Odds::ALWAYS)));
        assert_eq!(Odds::from_ppb(1_000_000_001), None);
    }

    #[test]
    fn odds_print_as_decimals() {
        assert_eq!(Odds::from_ppb(10_000_000).unwrap().to_string(), "0.01");
        assert_eq!(Odds::ALWAYS.to_string(), "1");
        assert_eq!(Odds::NEVER.to_string(), "0");
    }
}
