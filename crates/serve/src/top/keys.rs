//! Keys of a terminal, until it is gone.
//!
//! Read here and not by the library that draws: that one reads again for ever where a terminal that
//! is gone says, each time, that it has nothing more.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long the rest of a key may take that is more than one byte: an arrow begins as Escape does.
const REST: Duration = Duration::from_millis(25);
/// Bytes of a key at most.
const LONGEST: usize = 16;

/// What was pressed, as far as it is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// `q`, Escape, or Ctrl-C.
    Quit,
    Down,
    Up,
    Other,
}

/// What a wait for a key brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Pressed(Key),
    /// Nothing in that time.
    Nothing,
    /// There will be no more: its end was read, or it was hung up.
    Gone,
}

/// The terminal that keys come from.
pub(super) struct Keys(File);

impl Keys {
    /// Standard input, or the terminal of the process where that is none.
    pub(super) fn open() -> io::Result<Self> {
        let input = io::stdin();
        if input.is_terminal() {
            return Ok(Self(File::from(input.as_fd().try_clone_to_owned()?)));
        }
        File::open("/dev/tty").map(Self)
    }

    /// The next key within that time.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<Waited> {
        if !self.has_input(time)? {
            return Ok(Waited::Nothing);
        }
        let mut bytes = [0; LONGEST];
        let mut len = match self.0.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Waited::Nothing),
            // A terminal that was hung up says this.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => 0,
            Err(error) => return Err(error),
        };
        if len == 0 {
            return Ok(Waited::Gone);
        }
        if bytes[..len] == *b"\x1b" && self.has_input(REST)? {
            len += self.0.read(&mut bytes[len..])?;
        }
        Ok(Waited::Pressed(key(&bytes[..len])))
    }

    /// Whether there is something to read: an end is.
    fn has_input(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn key(bytes: &[u8]) -> Key {
    match bytes {
        [b'q', ..] | [0x03, ..] | b"\x1b" => Key::Quit,
        b"j" | b"\x1b[B" | b"\x1bOB" => Key::Down,
        b"k" | b"\x1b[A" | b"\x1bOA" => Key::Up,
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn keys_are_told_apart_and_the_end_ends() {
        let (mut hand, tty) = UnixStream::pair().unwrap();
        let mut keys = Keys(File::from(OwnedFd::from(tty)));
        assert_eq!(keys.wait(Duration::ZERO).unwrap(), Waited::Nothing);
        for (bytes, key) in [
            (&b"j"[..], Key::Down),
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"x", Key::Other),
            (b"\x1b", Key::Quit),
            (b"\x03", Key::Quit),
            (b"q", Key::Quit),
        ] {
            hand.write_all(bytes).unwrap();
            assert_eq!(keys.wait(LONG).unwrap(), Waited::Pressed(key), "{bytes:?}");
        }
        drop(hand);
        assert_eq!(keys.wait(LONG).unwrap(), Waited::Gone);
    }

    #[test]
    fn a_terminal_that_is_hung_up_is_gone() {
        // A pseudo-terminal: its other end is closed as by an ssh that was dropped.
        let Ok(master) = File::options().read(true).write(true).open("/dev/ptmx") else {
            return;
        };
        let flags = rustix::pty::OpenptFlags::NOCTTY;
        rustix::pty::unlockpt(&master).unwrap();
        let tty = rustix::pty::ioctl_tiocgptpeer(&master, flags | rustix::pty::OpenptFlags::RDWR);
        let mut keys = Keys(File::from(tty.unwrap()));
        assert_eq!(keys.wait(Duration::ZERO).unwrap(), Waited::Nothing);
        drop(master);
        let began = std::time::Instant::now();
        for _ in 0..3 {
            assert_eq!(keys.wait(LONG).unwrap(), Waited::Gone);
        }
        assert!(began.elapsed() < LONG);
    }
}
