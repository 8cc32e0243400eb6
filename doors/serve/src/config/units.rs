//! Shares, limits and numbers as people write them, and sizes as people read them.

use figures::{decimal, size_above_zero};
use policy::units::Bytes;
use tidegate::Threshold;

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

/// A limit of dirty data: a share of the cache (`20%`) or a size.
pub(super) fn threshold(text: &str) -> Result<Threshold, String> {
    if let Some(number) = text.strip_suffix('%') {
        let share = number.trim_end().parse::<u8>().ok();
        let share = share.filter(|share| (1..=100).contains(share));
        return share
            .map(Threshold::Percent)
            .ok_or_else(|| "a share is a whole number from 1 to 100 with %, as in 20%".to_owned());
    }
    let bytes = size_above_zero(text).map_err(|error| format!("{error}; or a share, as in 20%"))?;
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

#[cfg(test)]
mod tests {
    use policy::units::Pages;

    use super::*;

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
    fn shares_and_limits() {
        assert_eq!(share("12.5%"), Ok(1250));
        assert_eq!(share("100%"), Ok(10_000));
        assert!(share("100.01%").is_err() && share("5").is_err());
        assert_eq!(threshold("20%"), Ok(Threshold::Percent(20)));
        assert_eq!(threshold("8K"), Ok(Threshold::Pages(Pages(2))));
        assert!(threshold("0%").is_err() && threshold("0B").is_err() && threshold("20").is_err());
    }
}
