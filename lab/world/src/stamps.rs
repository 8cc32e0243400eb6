//! The stamp that is written into a sector so that it can be recognised: 32 bits in the lab, 512
//! bytes live.

use core::fmt;

use env::ObjectId;

use crate::content::{self, Sector};

/// Highest version an object may reach: a stamp has 31 bits for it.
pub const VERSION_MAX: u32 = (1 << 31) - 1;
/// First bytes of a live stamp.
const MAGIC: [u8; 8] = *b"tidegate";
/// Bytes of a sector.
pub(crate) const LEN: usize = content::SECTOR_SIZE;
/// Bytes of a live stamp before its filling: magic, object, version, sector.
const HEADER: usize = 24;

/// The stamp of a live sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The object it belongs to.
    pub object: ObjectId,
    /// Its place there.
    pub sector: u64,
    /// Which write of it.
    pub version: u32,
}

/// The bytes are no stamp: torn within the sector, or foreign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbled;

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            object,
            sector,
            version,
        } = self;
        write!(
            f,
            "version {version} of object {} sector {sector}",
            object.0
        )
    }
}

/// The lab's stamp of a sector. Never zero, which stands for zeroes.
///
/// The top bit is set; the other 31 are the version under a mask that depends on the place, so that
/// at another place it reads as a version out of the blue.
///
/// # Panics
/// If the version is zero or above `VERSION_MAX`.
#[must_use]
pub fn stamp(object: ObjectId, sector: u64, version: u32) -> Sector {
    assert!(
        (1..=VERSION_MAX).contains(&version),
        "version {version} has no stamp"
    );
    Sector(!VERSION_MAX | (version ^ mask(object, sector)))
}

/// The version that a stamp means at this place; zero for zeroes. A stamp from another place, or no
/// stamp at all, means a version that was most probably never written.
#[must_use]
pub fn version_in(object: ObjectId, sector: u64, found: Sector) -> u32 {
    match found.0 {
        0 => 0,
        stamp if stamp & !VERSION_MAX == 0 => VERSION_MAX,
        stamp => match (stamp ^ mask(object, sector)) & VERSION_MAX {
            0 => VERSION_MAX,
            version => version,
        },
    }
}

/// The live stamp of a sector: its identity, and a filling derived from that to the last byte, so
/// that a sector torn anywhere is recognised.
#[must_use]
pub fn stamp_bytes(object: ObjectId, sector: u64, version: u32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&object.0.to_le_bytes());
    bytes[12..16].copy_from_slice(&version.to_le_bytes());
    bytes[16..HEADER].copy_from_slice(&sector.to_le_bytes());
    let seed = mix(u64::from(object.0) << 32 | u64::from(version)) ^ mix(sector);
    let (words, _) = bytes[HEADER..].as_chunks_mut::<8>();
    for (at, word) in (1_u64..).zip(words) {
        *word = mix(seed.wrapping_add(at)).to_le_bytes();
    }
    bytes
}

/// Reads a live stamp. `None`: zeroes.
///
/// # Errors
/// The bytes are not all of one stamp.
pub fn read_bytes(bytes: &[u8; LEN]) -> Result<Option<Stamp>, Garbled> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (object, version) = (ObjectId(word(8)), word(12));
    let sector = u64::from(word(16)) | u64::from(word(20)) << 32;
    if *bytes == stamp_bytes(object, sector, version) {
        Ok(Some(Stamp {
            object,
            sector,
            version,
        }))
    } else {
        Err(Garbled)
    }
}

/// 31 bits that depend on every bit of the place.
fn mask(object: ObjectId, sector: u64) -> u32 {
    let mixed = mix(mix(u64::from(object.0) + 1) ^ sector) & u64::from(VERSION_MAX);
    u32::try_from(mixed).expect("31 bits")
}

/// The finaliser of splitmix64 (S. Vigna, public domain): a permutation that spreads every bit.
fn mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_reads_back_at_its_place_and_nowhere_else() {
        let mut strays = 0;
        for sector in 0..4096_u64 {
            for version in [1, 2, 1000, VERSION_MAX - 1] {
                let found = stamp(ObjectId(7), sector, version);
                assert_eq!(version_in(ObjectId(7), sector, found), version);
                strays += u32::from(version_in(ObjectId(7), sector + 1, found) <= 100_000);
                strays += u32::from(version_in(ObjectId(8), sector, found) <= 100_000);
            }
        }
        assert!(
            strays <= 8,
            "{strays} of 32768 misplaced stamps look like early versions"
        );
    }

    #[test]
    fn what_is_no_stamp_is_no_early_version() {
        assert_eq!(version_in(ObjectId(0), 0, Sector(0)), 0);
        assert_eq!(version_in(ObjectId(0), 0, Sector(17)), VERSION_MAX);
    }

    #[test]
    fn bytes_read_back_and_a_tear_anywhere_is_seen() {
        let old = stamp_bytes(ObjectId(1), 99, 4);
        let new = stamp_bytes(ObjectId(1), 99, 5);
        let stamp = Stamp {
            object: ObjectId(1),
            sector: 99,
            version: 5,
        };
        assert_eq!(read_bytes(&new), Ok(Some(stamp)));
        assert_eq!(read_bytes(&[0; 512]), Ok(None));
        for cut in 13..512 {
            let mut torn = new;
            torn[cut..].copy_from_slice(&old[cut..]);
            let whole = torn == new || torn == old;
            assert_eq!(read_bytes(&torn).is_ok(), whole, "cut at {cut}");
        }
    }
}
