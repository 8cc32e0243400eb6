//! Sizes as people read them.

use policy::units::Bytes;

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

#[cfg(test)]
mod tests {
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
}
