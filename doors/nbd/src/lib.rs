//! The NBD protocol, without I/O: bytes in, decisions and bytes out.
//!
//! ```text
//!   wire      the numbers of the specification; requests parsed, replies encoded, both in fixed arrays
//!   haggle    the server's side of the handshake: bytes of a client in, replies out, until both agree
//!   transmit  what a request asks for, or why it is refused, before anything is done for it
//!   client    a blocking client over any stream, for tests, the demonstration and benchmarks
//! ```
//!
//! Source: the specification of the protocol (NetworkBlockDevice/nbd, doc/proto.md, public domain),
//! cited here by the names of its sections. Fixed newstyle only: the oldstyle handshake is not
//! spoken, nor are extended headers.
#![forbid(unsafe_code)]

pub mod client;
pub mod haggle;
pub mod transmit;
pub mod wire;
