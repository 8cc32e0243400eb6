//! Payload of large writes: from the socket straight into the pages of the cache, without a buffer
//! of ours.
//!
//! ```text
//!   head (alone, where large writes are usual) ──> payload: as much as the socket has ──> pages
//!                                                     └─less than a page, or nothing──> buffer, to the end of the page
//!                                                     └─pages not in the cache─────────> buffers, for the rest of it
//! ```
//!
//! The socket is asked how much it has, and gives it in one call that does not wait: pages are held
//! for that call and not for a client. The part of a write that has come is part of the volume at
//! once, as where it comes by a buffer.

use std::io;

use rustix::io::ioctl_fionread;
use tidegate::PAGE_SIZE;
use tokio::io::{AsyncRead, AsyncWrite};

use super::EndedBy;
use super::errors::told;
use super::input::Receiving;
use super::job::RequestId;
use super::machine::{Connection, WriterSlot};
use super::peer::Peer;
use super::table::into_page;

/// Payload of as much is received straight into pages; with less, several requests come with one
/// call.
pub(super) const DIRECT_LEAST: usize = 64 << 10;

/// What came of receiving straight into pages.
pub(super) enum Direct {
    /// Something was received.
    Moved,
    /// There is less than a page.
    TooLittle,
    /// The cache does not have the pages at once.
    Refused,
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// Whether so much payload can be received straight into pages.
    pub(super) fn can_be_direct(&self, payload: usize) -> bool {
        payload >= DIRECT_LEAST && self.stream.plain().is_some()
    }

    /// Receives payload into the pages that it is for.
    pub(super) fn receive_direct(&mut self, id: RequestId, left: u32) -> Result<Direct, EndedBy> {
        if !self.has_writer() {
            return Ok(Direct::Refused);
        }
        let (WriterSlot::Here(writer), Some(socket)) = (&mut self.writer, self.stream.plain())
        else {
            return Ok(Direct::Refused);
        };
        let there = ioctl_fionread(socket).unwrap_or(0).min(u64::from(left));
        if there < u64::from(left).min(PAGE_SIZE as u64) {
            return Ok(Direct::TooLittle);
        }
        let at = self.table.at(id).next();
        let bytes = match self.volume.receive(writer, socket, at, there) {
            Ok(Some(Ok(0))) => return Err(EndedBy::Vanished),
            Ok(Some(Ok(bytes))) => bytes,
            Ok(None) => return Ok(Direct::Refused),
            Ok(Some(Err(error))) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Direct::TooLittle),
                    _ => Err(EndedBy::Stream(error)),
                };
            }
            Err(error) => {
                self.table.at(id).failed = Some(told(&error));
                self.input.receiving = Receiving::Drop { id, left };
                return Ok(Direct::Moved);
            }
        };
        self.paced.unpaced_bytes += bytes as u64;
        let left = self.table.at(id).take(bytes);
        if left == 0 {
            self.input.receiving = Receiving::Head;
            self.written(id);
        } else {
            self.input.receiving = Receiving::Payload { id, left };
        }
        Ok(Direct::Moved)
    }

    /// How much of a payload is wanted in a buffer when `kept` bytes of it are there: up to the end
    /// of a page.
    pub(super) fn rest_of_page(&mut self, id: RequestId, kept: usize) -> usize {
        let at = into_page(self.table.at(id).next()) + kept;
        PAGE_SIZE - at % PAGE_SIZE
    }
}
