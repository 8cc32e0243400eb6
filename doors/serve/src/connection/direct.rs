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

use super::ended::EndedBy;
use super::errors::told;
use super::input::{Next, Owed};
use super::machine::{Connection, WriterSlot};
use super::peer::Peer;
use super::table::into_page;
use crate::job::RequestId;

/// Payload of as much is received straight into pages; with less, several requests come with one
/// call.
pub(super) const DIRECT_LEAST: usize = 64 << 10;

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// True if this much payload can be received straight into pages.
    pub(super) fn can_be_direct(&self, payload: usize) -> bool {
        payload >= DIRECT_LEAST && self.stream.plain().is_some()
    }

    /// Receives payload into the pages that it is for; answers what comes next. `None`: there is
    /// less than a page. Not direct any more: the cache does not have the pages at once.
    pub(super) fn receive_direct(&mut self, owed: Owed) -> Result<Option<Next>, EndedBy> {
        let refused = Next::Payload(Owed {
            is_direct: false,
            ..owed
        });
        if !self.has_writer() {
            return Ok(Some(refused));
        }
        let (WriterSlot::Here(writer), Some(socket)) = (&mut self.writer, self.stream.plain())
        else {
            return Ok(Some(refused));
        };
        let left = u64::from(owed.left);
        let there = ioctl_fionread(socket).unwrap_or(0).min(left);
        if there < left.min(PAGE_SIZE as u64) {
            return Ok(None);
        }
        let at = self.table.at(owed.id).next();
        match self.volume.receive(writer, socket, at, there) {
            Ok(Some(Ok(0))) => Err(EndedBy::Vanished),
            Ok(Some(Ok(bytes))) => Ok(Some(self.taken(owed, bytes))),
            Ok(None) => Ok(Some(refused)),
            Ok(Some(Err(error))) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(EndedBy::Stream(error)),
            },
            Err(error) => Ok(Some(self.spoiled(owed, told(&error)))),
        }
    }

    /// Bytes of a payload wanted in a buffer when `kept` bytes of it are there: up to the end of a
    /// page.
    pub(super) fn rest_of_page(&mut self, id: RequestId, kept: usize) -> usize {
        let at = into_page(self.table.at(id).next()) + kept;
        PAGE_SIZE - at % PAGE_SIZE
    }
}
