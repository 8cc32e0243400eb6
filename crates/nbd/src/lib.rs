//! The NBD protocol, without I/O: bytes in, decisions and bytes out.
//!
//! Source: the NBD protocol specification (proto.md of the NetworkBlockDevice project).
#![forbid(unsafe_code)]
