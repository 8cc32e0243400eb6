//! Sizes and times: a decimal number and a unit.
//!
//! ```text
//!   figure = number [space] unit
//!   number = digits ['.' digits]          as long as whole bytes, or nanoseconds, come of it
//! ```

use core::fmt;
use core::time::Duration;

/// Units of sizes. One letter is a power of 1024, as for qemu and dd.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KB", 1_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];
/// Those of them that are proposed, in the order of proposal.
const PROPOSED: core::ops::Range<usize> = 1..9;

/// Units of times, in nanoseconds.
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The reading of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes.
    Size,
    /// Nanoseconds.
    Time,
}

/// The mistake in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is no number with a unit.
    Form,
    /// It is a number alone.
    NoUnit,
    /// A part of a byte, or of a nanosecond, would be left over.
    Fraction {
        /// The whole ones below.
        below: u64,
    },
    /// 64 bits do not hold it.
    TooLarge,
    /// It is zero where that has no meaning.
    Zero,
}

/// A text that is no size, or no time. Its message names the text and the ways out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureError {
    /// The text.
    pub text: String,
    /// The kind of figure that was asked for.
    pub quantity: Quantity,
    /// The mistake.
    pub fault: Fault,
}

/// The bytes of a size, as in `1GiB`, `512M` or `1.5TB`.
///
/// # Errors
/// The fault of the text, and the ways out.
pub fn size(text: &str) -> Result<u64, FigureError> {
    read(text, SIZES).map_err(|fault| wrong(text, Quantity::Size, fault))
}

/// Likewise, where no bytes at all would have no meaning.
///
/// # Errors
/// Likewise.
pub fn size_above_zero(text: &str) -> Result<u64, FigureError> {
    match size(text)? {
        0 => Err(wrong(text, Quantity::Size, Fault::Zero)),
        bytes => Ok(bytes),
    }
}

/// A time, as in `10s` or `1.5ms`.
///
/// # Errors
/// The fault of the text, and the ways out.
pub fn time(text: &str) -> Result<Duration, FigureError> {
    read(text, TIMES)
        .map(Duration::from_nanos)
        .map_err(|fault| wrong(text, Quantity::Time, fault))
}

/// Likewise, where no time at all would have no meaning.
///
/// # Errors
/// Likewise.
pub fn time_above_zero(text: &str) -> Result<Duration, FigureError> {
    match time(text)? {
        Duration::ZERO => Err(wrong(text, Quantity::Time, Fault::Zero)),
        long => Ok(long),
    }
}

/// `number * scale`, if that is whole and fits: a decimal number as a count of its smallest parts.
#[must_use]
pub fn decimal(number: &str, scale: u64) -> Option<u64> {
    scaled(number, scale).ok()
}

fn wrong(text: &str, quantity: Quantity, fault: Fault) -> FigureError {
    FigureError {
        text: text.to_owned(),
        quantity,
        fault,
    }
}

fn read(text: &str, units: &[(&str, u64)]) -> Result<u64, Fault> {
    let text = text.trim();
    let Some(end) = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.') else {
        return Err(match scaled(text, 1) {
            Err(Fault::Form) => Fault::Form,
            _ => Fault::NoUnit,
        });
    };
    let (number, unit) = text.split_at(end);
    let unit = units.iter().find(|(name, _)| *name == unit.trim_start());
    let (_, scale) = unit.ok_or(Fault::Form)?;
    scaled(number, *scale)
}

fn scaled(number: &str, scale: u64) -> Result<u64, Fault> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return Err(Fault::Form);
    }
    let whole = whole.parse::<u64>().ok();
    let whole = whole.and_then(|whole| whole.checked_mul(scale));
    let one = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| Fault::Form)?);
    let parts = fraction.parse::<u128>().map_err(|_| Fault::Form)? * u128::from(scale);
    let more = u64::try_from(parts / one).map_err(|_| Fault::TooLarge)?;
    let below = whole.and_then(|whole| whole.checked_add(more));
    let below = below.ok_or(Fault::TooLarge)?;
    match parts % one {
        0 => Ok(below),
        _ => Err(Fault::Fraction { below }),
    }
}

impl FigureError {
    /// A number without a unit, with those that may have been meant.
    fn with_units(&self) -> String {
        let digits = self.text.trim();
        match (self.quantity, digits.parse::<u64>()) {
            (Quantity::Time, Ok(0..10_000)) => format!("{digits}s or {digits}ms"),
            (Quantity::Time, _) => "a unit after it, as in 10s or 1.5ms".to_owned(),
            (Quantity::Size, Err(_)) => "a unit after it, as in 1.5GiB".to_owned(),
            (Quantity::Size, Ok(bytes)) => {
                let whole = |(_, scale): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*scale);
                let (binary, decimal) = SIZES[PROPOSED].split_at(PROPOSED.len() / 2);
                let largest = |units: &'static [(&str, u64)]| units.iter().rev().find(whole);
                match largest(binary).or_else(|| largest(decimal)) {
                    Some((name, scale)) => format!("{digits}B or {}{name}", bytes / scale),
                    None if (1..1 << 20).contains(&bytes) => {
                        format!("{digits}B, {digits}MiB or {digits}GiB")
                    }
                    None => format!("{digits}B for bytes, or another unit, as in 512MiB"),
                }
            }
        }
    }
}

impl fmt::Display for FigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            quantity,
            fault,
        } = self;
        let is_size = *quantity == Quantity::Size;
        match fault {
            Fault::Form if is_size => write!(
                f,
                "`{text}` is not a size: write a number and one of B, KiB, MiB, GiB, TiB (also K, M, G, T) or kB, MB, GB, \
                 TB, as in 512MiB or 1.5GB"
            ),
            Fault::Form => write!(
                f,
                "`{text}` is not a time: write a number and one of ns, us, ms, s, min, h, as in 10s or 1.5ms"
            ),
            Fault::NoUnit => write!(f, "`{text}` has no unit: write {}", self.with_units()),
            Fault::Fraction { below } => {
                let (unit, what) = match is_size {
                    true => ("B", "bytes"),
                    false => ("ns", "nanoseconds"),
                };
                write!(
                    f,
                    "`{text}` is no whole number of {what}: write {below}{unit}"
                )?;
                match below.checked_add(1) {
                    Some(above) => write!(f, " or {above}{unit}"),
                    None => Ok(()),
                }
            }
            Fault::TooLarge => {
                let most = if is_size { "16777215TiB" } else { "5124095h" };
                write!(f, "`{text}` is too large: write at most {most}")
            }
            Fault::Zero => {
                let such = if is_size { "512MiB" } else { "10s" };
                write!(f, "`{text}` is zero: write more than that, as in {such}")
            }
        }
    }
}

impl core::error::Error for FigureError {}

impl From<FigureError> for String {
    fn from(error: FigureError) -> Self {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_documents_is_the_grammar() {
        let page = include_str!("../../../docs/sizes.md");
        let (page, _) = page.split_once("A time is").unwrap();
        let mut spelt = Vec::new();
        for row in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let bytes: String = cells[2].chars().filter(char::is_ascii_digit).collect();
            for unit in cells[1].split(", ").map(|unit| unit.trim_matches('`')) {
                assert_eq!(
                    size(&format!("1{unit}")),
                    Ok(bytes.parse().unwrap()),
                    "{row}"
                );
                spelt.push(unit);
            }
        }
        let known: Vec<&str> = SIZES.iter().map(|(name, _)| *name).collect();
        assert!(known.iter().all(|unit| spelt.contains(unit)), "{spelt:?}");
    }

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        for (text, bytes) in [
            ("0B", 0),
            (" 1.5 MiB ", 3 << 19),
            ("0.5K", 512),
            ("2.000KB", 2_000),
            ("0.000000000001TB", 1),
            ("18446744073709551615B", u64::MAX),
            ("16777215.5TiB", u64::MAX - (1 << 39) + 1),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, fault) in [
            ("", Fault::Form),
            ("MB", Fault::Form),
            (".5M", Fault::Form),
            ("1.M", Fault::Form),
            ("1.2.3M", Fault::Form),
            ("-1M", Fault::Form),
            ("+1M", Fault::Form),
            ("1e3B", Fault::Form),
            ("1 000MB", Fault::Form),
            ("1,5GB", Fault::Form),
            ("16mb", Fault::Form),
            ("16Mb", Fault::Form),
            ("1.0000000000000000001M", Fault::Form),
            ("5", Fault::NoUnit),
            ("1.5", Fault::NoUnit),
            ("99999999999999999999", Fault::NoUnit),
            ("0.5B", Fault::Fraction { below: 0 }),
            ("1.0001KiB", Fault::Fraction { below: 1024 }),
            ("99999999T", Fault::TooLarge),
            ("18446744073709551616B", Fault::TooLarge),
            ("16777216TiB", Fault::TooLarge),
        ] {
            assert_eq!(
                size(text),
                Err(wrong(text, Quantity::Size, fault)),
                "{text}"
            );
        }
        assert_eq!(size_above_zero("0.0G").unwrap_err().fault, Fault::Zero);
        assert_eq!(size_above_zero("1B"), Ok(1));
    }

    #[test]
    fn what_is_proposed_can_be_read() {
        for (text, said) in [
            (
                "0",
                "`0` has no unit: write 0B for bytes, or another unit, as in 512MiB",
            ),
            ("5", "`5` has no unit: write 5B, 5MiB or 5GiB"),
            ("4096", "`4096` has no unit: write 4096B or 4KiB"),
            ("1048576", "`1048576` has no unit: write 1048576B or 1MiB"),
            ("5000000", "`5000000` has no unit: write 5000000B or 5MB"),
            (
                "1048577",
                "`1048577` has no unit: write 1048577B for bytes, or another unit, as in 512MiB",
            ),
            (
                "1.5",
                "`1.5` has no unit: write a unit after it, as in 1.5GiB",
            ),
            ("1.5B", "`1.5B` is no whole number of bytes: write 1B or 2B"),
            (
                "99999999T",
                "`99999999T` is too large: write at most 16777215TiB",
            ),
        ] {
            let shown = size(text).unwrap_err().to_string();
            assert_eq!(shown, said);
            let (_, ways_out) = shown.split_once("write ").unwrap();
            let words = ways_out.split(' ').map(|word| word.trim_end_matches(','));
            for word in words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                assert!(size(word).is_ok(), "{word}");
            }
        }
        let shown = time("99999999h").unwrap_err().to_string();
        assert_eq!(shown, "`99999999h` is too large: write at most 5124095h");
        assert!(time("5124095h").is_ok() && time("5124096h").is_err());
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for (text, nanos) in [
            ("1.5s", 1_500_000_000),
            ("0.002 s", 2_000_000),
            ("7ns", 7),
            ("1min", 60_000_000_000),
            ("8h", 28_800_000_000_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for (text, said) in [
            ("2", "`2` has no unit: write 2s or 2ms"),
            (
                "1.5",
                "`1.5` has no unit: write a unit after it, as in 10s or 1.5ms",
            ),
            (
                "0.5ns",
                "`0.5ns` is no whole number of nanoseconds: write 0ns or 1ns",
            ),
            (
                "2 days",
                "`2 days` is not a time: write a number and one of ns, us, ms, s, min, h, as in 10s or 1.5ms",
            ),
        ] {
            assert_eq!(time(text).unwrap_err().to_string(), said);
        }
    }
}
