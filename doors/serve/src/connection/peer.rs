//! The other end of a stream, and whether it is still there while nothing is read from it.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::{TcpStream, UnixStream};

/// A stream with a client at its other end.
pub trait Peer {
    /// The socket below it; `None`: there is none.
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Where the client is, in words: `192.0.2.7:51234`, or the process behind a Unix socket.
    fn address(&self) -> String {
        "unknown".into()
    }

    /// The client's address in a network; `None`: it is on this machine, or nobody knows.
    fn ip(&self) -> Option<IpAddr> {
        None
    }

    /// The socket, if its bytes are those of the stream; `None` if they are encrypted.
    fn plain(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Ready with true if it takes something after it was full; pending: not yet. False: it has to
    /// be tried.
    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }
}

impl Peer for UnixStream {
    fn address(&self) -> String {
        let process = self.peer_cred().ok().and_then(|peer| peer.pid());
        // A process in another name space has number 0 here.
        let process = process.filter(|number| *number > 0);
        process.map_or_else(|| "unknown".into(), |process| format!("process {process}"))
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn plain(&self) -> Option<BorrowedFd<'_>> {
        self.socket()
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        // An error is told when it is written to.
        self.poll_write_ready(cx).map(|ready| ready.is_ok())
    }
}

impl Peer for TcpStream {
    fn address(&self) -> String {
        self.peer_addr()
            .map_or_else(|_| "unknown".into(), |peer| peer.to_string())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.peer_addr().ok().map(|peer| peer.ip())
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn plain(&self) -> Option<BorrowedFd<'_>> {
        self.socket()
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        // An error is told when it is written to.
        self.poll_write_ready(cx).map(|ready| ready.is_ok())
    }
}

impl<S: Peer> Peer for crate::tls::Encrypted<S> {
    fn address(&self) -> String {
        self.below().address()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.below().socket()
    }
}

/// True if the client has closed, also if some of its bytes were not read. A client that
/// `said_goodbye` may have closed its half of the stream, and still reads.
pub(super) fn is_gone(peer: &impl Peer, said_goodbye: bool) -> bool {
    let Some(socket) = peer.socket() else {
        return false;
    };
    let mut sockets = [PollFd::new(&socket, PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut gone = PollFlags::HUP | PollFlags::ERR;
    if !said_goodbye {
        gone |= PollFlags::RDHUP;
    }
    poll(&mut sockets, Some(&at_once)).is_ok() && sockets[0].revents().intersects(gone)
}
