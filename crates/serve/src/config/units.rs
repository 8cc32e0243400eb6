//! Sizes, times and shares as people write them. A unit is never guessed.

use std::time::Duration;

use policy::units::Bytes;
use tidegate::Threshold;

/// Units of sizes: those of 1024, with and without the `iB`, and those of 1000.
const SIZES: [(&str, u64); 14] = [
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Units of times, in nanoseconds.
const TIMES: [(&str, u64); 5] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A size: a number and a unit, as in `1GiB`, `512M` or `1.5TB`.
///
/// # Errors
/// The right form, in words.
pub fn size(text: &str) -> Result<u64, String> {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if bare {
        return Err(format!("a size needs a unit: write {}", as_bytes(text)));
    }
    with_unit(text, &SIZES).ok_or_else(|| {
        "a size is a number and one of B, KiB, MiB, GiB, TiB (also K, M, G, T) or kB, MB, GB, TB, as in 512MiB"
            .to_owned()
    })
}

/// The same number of bytes as a size, as people may have meant it.
fn as_bytes(digits: &str) -> String {
    let bytes = digits.parse::<u64>().unwrap_or(0);
    // Units that are written with a size of more than one byte, those of 1024 first, each time the
    // largest first.
    let suits = |(name, scale): &&(&str, u64)| {
        name.len() > 1 && *scale > 1 && bytes >= *scale && bytes.is_multiple_of(*scale)
    };
    let binary = |(name, _): &&(&str, u64)| name.contains('i');
    let units = SIZES.iter().rev();
    let unit = units.clone().filter(binary).find(suits);
    match unit.or_else(|| units.clone().find(suits)) {
        Some((name, scale)) => format!("{digits}B or {}{name}", bytes / scale),
        None => format!("{digits}B for bytes, or another unit, as in 512MiB"),
    }
}

/// A size with the unit that suits it: `10 GiB`, `1.5 MiB`, `513 B`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    Bytes(bytes).shown().to_string()
}

/// Likewise, and all of the bytes where that is not exact: `1 GiB (1073741825 bytes)`.
#[must_use]
pub(crate) fn show_exactly(bytes: u64) -> String {
    format!("{:#}", Bytes(bytes).shown())
}

/// A time: a number and a unit, as in `10s` or `500ms`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    with_unit(text, &TIMES)
        .map(Duration::from_nanos)
        .ok_or_else(|| "a time is a number and one of us, ms, s, min, h, as in 10s".to_owned())
}

/// A limit of dirty data: a share of the cache (`20%`) or a size.
pub(super) fn threshold(text: &str) -> Result<Threshold, String> {
    if let Some(number) = text.strip_suffix('%') {
        let share = number.trim_end().parse::<u8>().ok();
        let share = share.filter(|share| (1..=100).contains(share));
        return share
            .map(Threshold::Percent)
            .ok_or_else(|| "a share is a whole number from 1 to 100 with %, as in 20%".to_owned());
    }
    let is_nothing = !text.is_empty() && text.bytes().all(|digit| digit == b'0');
    let bytes = match is_nothing {
        true => 0,
        false => size(text).map_err(|problem| format!("{problem}; or a share, as in 20%"))?,
    };
    if bytes == 0 {
        return Err("a limit of dirty data cannot be nothing".to_owned());
    }
    Ok(Threshold::Pages(Bytes(bytes).pages_ceil()))
}

/// A share of the dirty limit, in 1/10000: `12.5%`.
pub(super) fn share(text: &str) -> Result<u32, String> {
    text.strip_suffix('%')
        .and_then(|number| decimal(number.trim_end(), 100))
        .and_then(|share| u32::try_from(share).ok())
        .filter(|share| *share <= 10_000)
        .ok_or_else(|| {
            "a share is a number from 0 to 100 with at most two digits after the point and %, as in 12.5%".to_owned()
        })
}

/// Yes or no.
pub(super) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        "yes" | "on" | "1" => Err("did you mean `true`? Allowed: true, false".to_owned()),
        "no" | "off" | "0" => Err("did you mean `false`? Allowed: true, false".to_owned()),
        _ => Err("allowed: true, false".to_owned()),
    }
}

/// A whole number within bounds.
pub(super) fn number(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = text.parse::<u32>().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("a whole number from {least} to {most} belongs here"))
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(end);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    decimal(number, *scale)
}

/// `number * scale`, if that is whole and fits.
fn decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale);
    let unit = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = part.is_multiple_of(unit).then_some(part / unit)?;
    whole.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use policy::units::Pages;

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1GiB", Some(1 << 30)),
            ("512M", Some(512 << 20)),
            ("1.5 MiB", Some(3 << 19)),
            ("2TB", Some(2_000_000_000_000)),
            ("0B", Some(0)),
            ("0.5B", None),
            ("1e3B", None),
            ("-1M", None),
            ("1m", None),
            ("1.M", None),
            (".5M", None),
            ("", None),
            ("99999999T", None),
        ] {
            assert_eq!(size(text).ok(), bytes, "{text}");
        }
        for (text, way_out) in [
            ("5", "5B for bytes, or another unit, as in 512MiB"),
            ("0", "0B for bytes, or another unit, as in 512MiB"),
            ("1048576", "1048576B or 1MiB"),
            ("10737418240", "10737418240B or 10GiB"),
            ("5000000", "5000000B or 5MB"),
            ("4096", "4096B or 4KiB"),
        ] {
            let said = size(text).unwrap_err();
            assert_eq!(said, format!("a size needs a unit: write {way_out}"));
            for proposed in said
                .split(' ')
                .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            {
                assert!(size(proposed.trim_end_matches(',')).is_ok(), "{proposed}");
            }
        }
        let nothing = threshold("0").unwrap_err();
        assert_eq!(nothing, "a limit of dirty data cannot be nothing");
    }

    #[test]
    fn sizes_are_shown_with_one_digit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (10 << 30, "10 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
        for (bytes, text) in [
            (1023, "1023 B"),
            (3 << 19, "1.5 MiB"),
            ((1 << 30) + 1, "1 GiB (1073741825 bytes)"),
            (1025 << 20, "1 GiB (1074790400 bytes)"),
        ] {
            assert_eq!(show_exactly(bytes), text);
        }
    }

    #[test]
    fn times_shares_limits() {
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(time("10").is_err());
        assert_eq!(share("12.5%"), Ok(1250));
        assert_eq!(share("100%"), Ok(10_000));
        assert!(share("100.01%").is_err() && share("5").is_err());
        assert_eq!(threshold("20%"), Ok(Threshold::Percent(20)));
        assert_eq!(threshold("8K"), Ok(Threshold::Pages(Pages(2))));
        assert!(threshold("0%").is_err() && threshold("0B").is_err() && threshold("20").is_err());
    }
}
