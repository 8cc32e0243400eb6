//! The parts of a volume: names, sizes, and which bytes are in which object.
//!
//! ```text
//!   PREFIX/volume.json          format, size, object size, id; written once
//!   PREFIX/0000000000000000     the first object: hexadecimal, 16 digits
//!   PREFIX/000000000000000a     the eleventh; one that is missing or empty reads as zeroes
//!   PREFIX/lease                who has it (a directory has `lock` instead)
//!   PREFIX/probe                whether the store honours conditions
//! ```
//!
//! Objects are as long as the manifest says, the last one as long as the volume goes: put in order,
//! they are the volume.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The manifest's name.
pub(crate) const MANIFEST: &str = "volume.json";
/// The lease's name.
pub(crate) const LEASE: &str = "lease";
/// The probe's name.
pub(crate) const PROBE: &str = "probe";
/// The format that this program writes, and the only one it knows.
const FORMAT: u32 = 1;

/// The smallest object: below it, requests cost more than bytes.
pub(crate) const OBJECT_MIN: u64 = 256 << 10;
/// The largest: what a put without parts takes at ease, and memory.
pub(crate) const OBJECT_MAX: u64 = 64 << 20;
/// The usual: the largest request of the cache, so that a full one needs no read.
pub(crate) const OBJECT_USUAL: u64 = 1 << 20;
/// Objects of one volume, at most: 16 TiB of 1 MiB. Two bits of memory each.
pub(crate) const OBJECTS_MAX: u64 = 1 << 24;
/// Sizes are multiples of a page.
const PAGE: u64 = 4096;
/// Digits of an object's name.
const DIGITS: usize = 16;

/// Sizes of a volume, as they are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// Bytes.
    pub(crate) size: u64,
    /// Bytes.
    pub(crate) object_size: u64,
    /// By chance; tells volumes apart that took each other's place.
    pub(crate) id: String,
}

impl Manifest {
    /// A new volume.
    pub(crate) fn new(size: u64, object_size: u64) -> Result<Self, Error> {
        Geometry::new(size, object_size)?;
        Ok(Self {
            format: FORMAT,
            size,
            object_size,
            id: chance(),
        })
    }

    /// From its text.
    pub(crate) fn parse(text: &[u8], place: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Manifest {
            place: place.to_owned(),
            why,
        };
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(wrong(format!(
                "format {}, known is {FORMAT}",
                manifest.format
            )));
        }
        Geometry::new(manifest.size, manifest.object_size)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(manifest)
    }

    /// Its text.
    pub(crate) fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a struct of numbers and a word");
        text.push('\n');
        text
    }
}

/// Which bytes are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) size: u64,
    pub(crate) object_size: u64,
}

impl Geometry {
    /// Checked sizes.
    pub(crate) fn new(size: u64, object_size: u64) -> Result<Self, Error> {
        check_object_size(object_size)?;
        if size == 0 || !size.is_multiple_of(PAGE) {
            return Err(Error::Option {
                name: "size",
                value: size,
                allowed: "a multiple of 4096, at least 4096",
            });
        }
        if size.div_ceil(object_size) > OBJECTS_MAX {
            return Err(Error::Option {
                name: "size",
                value: size,
                allowed: "at most 16777216 objects; use larger ones (object_size)",
            });
        }
        Ok(Self { size, object_size })
    }

    /// Most objects of the volume.
    pub(crate) fn objects(&self) -> u64 {
        self.size.div_ceil(self.object_size)
    }

    /// Length of an object with data.
    pub(crate) fn object_len(&self, object: u64) -> u64 {
        self.object_size
            .min(self.size.saturating_sub(object * self.object_size))
    }

    /// The shares of the objects in a range of the volume: object, bytes within it. Cut at the
    /// volume's end.
    pub(crate) fn cut(self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
        let end = range.end.min(self.size);
        let mut at = range.start;
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let object = at / self.object_size;
            let first = object * self.object_size;
            let stop = (first + self.object_size).min(end);
            let part = at - first..stop - first;
            at = stop;
            Some((object, part))
        })
    }
}

/// A word by chance: 32 hexadecimal digits.
pub(crate) fn chance() -> String {
    let half =
        |salt: u32| RandomState::new().hash_one((salt, std::process::id(), SystemTime::now()));
    format!("{:016x}{:016x}", half(1), half(2))
}

/// Checks that objects may be that large.
pub(crate) fn check_object_size(object_size: u64) -> Result<(), Error> {
    if object_size.is_power_of_two() && (OBJECT_MIN..=OBJECT_MAX).contains(&object_size) {
        return Ok(());
    }
    Err(Error::Option {
        name: "object_size",
        value: object_size,
        allowed: "a power of two from 262144 (256 KiB) to 67108864 (64 MiB)",
    })
}

/// The name of an object.
pub(crate) fn name_of(object: u64) -> String {
    format!("{object:016x}")
}

/// The object of a name, if it is one.
pub(crate) fn object_of(name: &str) -> Option<u64> {
    let digits = name.len() == DIGITS
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    digits.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

/// True if a file of a directory is a rest of a write of `LocalFileSystem` that was killed:
/// NAME#NUMBER.
pub(crate) fn is_half_done(name: &str) -> bool {
    name.split_once('#').is_some_and(|(name, number)| {
        let ours = object_of(name).is_some() || name == MANIFEST;
        ours && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        for object in [0, 10, 0xabc_def0, u64::MAX] {
            assert_eq!(object_of(&name_of(object)), Some(object));
        }
        for other in [
            "",
            "lease",
            "00000000000000G0",
            "00000000000000A0",
            "0",
            "00000000000000001",
        ] {
            assert_eq!(object_of(other), None, "{other}");
        }
        assert!(is_half_done("000000000000000a#12"));
        assert!(is_half_done("volume.json#1"));
        for other in [
            "000000000000000a",
            "000000000000000a#",
            "000000000000000a#x",
            "notes#1",
        ] {
            assert!(!is_half_done(other), "{other}");
        }
    }

    #[test]
    fn ranges_are_cut_at_objects_and_at_the_end() {
        let geometry = Geometry::new((2 << 20) + 8192, 1 << 20).unwrap();
        assert_eq!(geometry.objects(), 3);
        assert_eq!(geometry.object_len(2), 8192);
        let cut: Vec<_> = geometry.cut((1 << 20) - 4096..4 << 20).collect();
        let mib = 1 << 20;
        assert_eq!(cut, [(0, mib - 4096..mib), (1, 0..mib), (2, 0..8192)]);
        assert_eq!(geometry.cut(5..5).count(), 0);
        assert_eq!(geometry.cut(9 << 20..10 << 20).count(), 0);
    }

    #[test]
    fn sizes_are_checked() {
        assert!(Geometry::new(4096, 256 << 10).is_ok());
        for (size, object_size) in [
            (0, OBJECT_USUAL),
            (4097, OBJECT_USUAL),
            (4096, 4096),
            (4096, 3 << 20),
            (4096, 128 << 20),
            ((OBJECTS_MAX + 1) * OBJECT_MIN, OBJECT_MIN),
        ] {
            let refused = Geometry::new(size, object_size);
            assert!(
                matches!(refused, Err(Error::Option { .. })),
                "{size} {object_size}"
            );
        }
    }

    #[test]
    fn a_manifest_is_read_back_or_refused() {
        let manifest = Manifest::new(1 << 30, OBJECT_USUAL).unwrap();
        assert_eq!(
            Manifest::parse(manifest.text().as_bytes(), "x").unwrap(),
            manifest
        );
        for wrong in [
            "",
            "{}",
            r#"{"format":2,"size":4096,"object_size":1048576,"id":"a"}"#,
            r#"{"format":1,"size":4097,"object_size":1048576,"id":"a"}"#,
            r#"{"format":1,"size":4096,"object_size":1,"id":"a"}"#,
        ] {
            let refused = Manifest::parse(wrong.as_bytes(), "x");
            assert!(matches!(refused, Err(Error::Manifest { .. })), "{wrong}");
        }
    }
}
