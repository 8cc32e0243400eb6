//! libCacheSim's `oracleGeneral`: records of 24 bytes, little-endian: time in seconds (4), object
//! (8), its size (4), when it is accessed next (8). An object is a page, whatever its size.
//!
//! Source: libCacheSim, doc/quickstart_traceAnalyzer.md and `oracleGeneral` in its README.

pub(super) fn object(record: &[u8; 24]) -> u64 {
    u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"))
}
