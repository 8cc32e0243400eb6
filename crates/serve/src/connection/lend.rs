//! Large data of replies: from where they are in the cache to the socket, without a copy of our own.
//!
//! Pages are lent for one write that does not wait, and given back whatever came of it. So none is held for a client that
//! does not read: what the socket did not take is lent again when it takes more.
//!
//! A Unix socket holds 208 KiB by default, and wakes whoever fills it when three quarters of that are gone: a reply of
//! 1 MiB takes six rounds, in which client and server wait for each other. A few connections, those that read much first,
//! get larger ones. TCP's grow by themselves.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{AddressFamily, sockopt};
use tidegate::{Cursor, Error, Lent, Volume};
use tokio::io::{AsyncRead, AsyncWrite};

use super::machine::Connection;
use super::peer::Peer;

/// As much data of one reply is lent; of less, many are copied and sent together.
pub(super) const LENT_LEAST: usize = 32 << 10;
/// What the system may hold for a client of a wide socket, bytes; it doubles what it is asked for, and allows no more
/// than `net.core.wmem_max`.
const WIDE: usize = 1 << 20;

/// Fills `data` from `offset`, or has as much lent, up to the first page that is not there; answers how many bytes.
///
/// # Errors
/// As `Volume::try_read`.
pub(super) fn fetch<'v>(
    volume: &'v Volume,
    cursor: &mut Cursor,
    data: &mut [u8],
    offset: u64,
    lends: bool,
    lent: &mut Option<Lent<'v>>,
) -> Result<usize, Error> {
    if !lends {
        return Ok(volume.try_read(cursor, data, offset)?.bytes);
    }
    let (pages, tried) = volume.try_lend(cursor, offset, data.len() as u64)?;
    *lent = (tried.bytes > 0).then_some(pages);
    Ok(tried.bytes)
}

/// Writes `heads`, and behind them what is lent.
pub(super) fn write<S: AsyncWrite>(
    stream: Pin<&mut S>,
    cx: &mut Context<'_>,
    heads: &[u8],
    lent: &Lent<'_>,
) -> Poll<io::Result<usize>> {
    let mut parts = [IoSlice::new(&[]); 1 + Lent::PAGES_MAX];
    parts[0] = IoSlice::new(heads);
    let mut count = 1;
    for (part, bytes) in parts[1..].iter_mut().zip(lent.slices()) {
        *part = IoSlice::new(bytes);
        count += 1;
    }
    stream.poll_write_vectored(cx, &parts[..count])
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// The socket did not take all of what was lent: it is made wide, if it can be and few are.
    pub(super) fn widen(&mut self) {
        let Some(socket) = self.stream.socket() else {
            return;
        };
        if sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX) && self.seat.widen() {
            // Refused, it is as wide as it was.
            let _ = sockopt::set_socket_send_buffer_size(socket, WIDE / 2);
        }
    }
}
