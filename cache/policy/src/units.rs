//! Quantities that cross a function boundary, as types that cannot be mixed up.
//!
//! All are integers. Arithmetic that could overflow or go negative is saturating and says so in
//! its name, or is checked by the operator and panics: an overflow is our bug, never the input's.
//! Division names its rounding.
//!
//! Source: style N2. A page is 4096 bytes everywhere (mechanisms 0.1).

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a page, in a frame, and in the unit of all page counts.
pub const PAGE_SIZE: u64 = 4096;
/// `PAGE_SIZE` as a shift.
pub const PAGE_SHIFT: u32 = 12;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);
            /// The most the type can hold; used as "no limit".
            pub const MAX: Self = Self(u64::MAX);

            /// Subtracts, stopping at zero.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// Adds, stopping at the type's maximum.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The smaller of two, usable in constants.
            #[must_use]
            pub const fn at_most(self, other: Self) -> Self {
                if self.0 < other.0 { self } else { other }
            }

            /// The larger of two, usable in constants.
            #[must_use]
            pub const fn at_least(self, other: Self) -> Self {
                if self.0 > other.0 { self } else { other }
            }

            /// True if there is none of it.
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", self.0, $unit)
            }
        }
    };
}

macro_rules! additive {
    ($name:ident) => {
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

quantity! {
    /// A count of 4 KiB pages.
    Pages, "p"
}
quantity! {
    /// A count of bytes.
    Bytes, "B"
}
quantity! {
    /// A length of time, in nanoseconds.
    Nanos, "ns"
}
quantity! {
    /// A rate, in pages per second.
    PagesPerSec, "p/s"
}
quantity! {
    /// A point in time: nanoseconds since the `Env` began. Only differences mean anything.
    Instant, "ns@"
}
additive!(Pages);
additive!(Bytes);
additive!(Nanos);
additive!(PagesPerSec);

impl Pages {
    /// As bytes.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 << PAGE_SHIFT)
    }
}

impl Bytes {
    /// Whole pages, a partial last page left out.
    #[must_use]
    pub const fn pages_floor(self) -> Pages {
        Pages(self.0 >> PAGE_SHIFT)
    }

    /// Pages that hold all of the bytes, a partial last page counted.
    #[must_use]
    pub const fn pages_ceil(self) -> Pages {
        Pages(self.0.div_ceil(PAGE_SIZE))
    }

    /// `n` mebibytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// As people read it.
    #[must_use]
    pub const fn shown(self) -> ShownBytes {
        ShownBytes(self)
    }
}

/// Bytes as people read them, with the unit that suits them and one digit, rounded down: `10 GiB`,
/// `1.5 MiB`, `513 B`. With `{:#}` the bytes stand behind it where that is not all of them: `1 GiB
/// (1073741825 bytes)`.
#[derive(Clone, Copy, Debug)]
pub struct ShownBytes(Bytes);

impl fmt::Display for ShownBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let bytes = self.0.0;
        let Some((shift, unit)) = UNITS.into_iter().find(|(shift, _)| bytes >> shift > 0) else {
            return write!(f, "{bytes} B");
        };
        let tenths = (u128::from(bytes) * 10) >> shift;
        match tenths % 10 {
            0 => write!(f, "{} {unit}", tenths / 10)?,
            tenth => write!(f, "{}.{tenth} {unit}", tenths / 10)?,
        }
        if f.alternate() && tenths << shift != u128::from(bytes) * 10 {
            write!(f, " ({bytes} bytes)")?;
        }
        Ok(())
    }
}

impl Nanos {
    /// `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(n * SECOND)
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis_floor(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl PagesPerSec {
    /// The rate of a device that moves `bytes` a second, rounded down to whole pages.
    #[must_use]
    pub const fn from_bytes_per_sec(bytes: Bytes) -> Self {
        Self(bytes.0 >> PAGE_SHIFT)
    }

    /// Pages that go by in `time` at this rate, rounded down; exact in 128 bits.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what does not fit is cut off first"
    )]
    pub const fn pages_in(self, time: Nanos) -> Pages {
        let pages = self.0 as u128 * time.0 as u128 / SECOND as u128;
        Pages(if pages > u64::MAX as u128 {
            u64::MAX
        } else {
            pages as u64
        })
    }

    /// Time that `pages` take at this rate, rounded up; `Nanos::MAX` at rate zero.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what does not fit is cut off first"
    )]
    pub const fn time_for(self, pages: Pages) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        let time = (pages.0 as u128 * SECOND as u128).div_ceil(self.0 as u128);
        Nanos(if time > u64::MAX as u128 {
            u64::MAX
        } else {
            time as u64
        })
    }
}

impl Instant {
    /// Time from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, time: Nanos) -> Self {
        Self(self.0.saturating_add(time.0))
    }
}

impl Sub for Instant {
    type Output = Nanos;
    fn sub(self, earlier: Self) -> Nanos {
        Nanos(self.0 - earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_bytes_convert_with_named_rounding() {
        assert_eq!(Bytes(4097).pages_floor(), Pages(1));
        assert_eq!(Bytes(4097).pages_ceil(), Pages(2));
        assert_eq!(Pages(3).bytes(), Bytes(12288));
    }

    #[test]
    fn rate_and_time_are_inverse_up_to_rounding() {
        let rate = PagesPerSec(4096);
        assert_eq!(rate.time_for(Pages(256)), Nanos(62_500_000));
        assert_eq!(rate.pages_in(Nanos(62_500_000)), Pages(256));
        assert_eq!(PagesPerSec(0).time_for(Pages(1)), Nanos::MAX);
        assert_eq!(PagesPerSec(u64::MAX).pages_in(Nanos::MAX), Pages::MAX);
    }

    #[test]
    fn an_instant_never_wraps() {
        assert_eq!(Instant(5).since(Instant(9)), Nanos::ZERO);
        assert_eq!(Instant(u64::MAX) + Nanos(1), Instant(u64::MAX));
    }
}
