//! The bytes of a trace, a piece at a time: a thread reads the file, so that a pipe that says
//! nothing can be left, and lines and records are made of what has come.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::{Fault, Sink};

/// The file that is standard input.
const STDIN: &str = "-";
/// Bytes that are read at once, and such pieces that lie ready.
const PIECE: usize = 1 << 18;
const READY: usize = 4;
/// Interval of the looks at whether to go on, where nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a line at most.
const LINE_MOST: u64 = 1 << 16;
/// Records that are read at once.
const RECORDS: usize = 1 << 13;

/// A file that is read from its beginning to its end.
pub(super) struct Source<G> {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Cursor<Vec<u8>>,
    read: u64,
    /// Asked with the bytes read so far; no: reading ends with an error.
    goes_on: G,
}

impl<G> Source<G> {
    pub(super) fn open(path: &Path, goes_on: G) -> io::Result<Self> {
        let mut file: Box<dyn Read + Send> = if path == Path::new(STDIN) {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path)?)
        };
        let (sender, pieces) = sync_channel(READY);
        std::thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE];
                let read = match file.read(&mut piece) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    read => read,
                };
                let is_last = !matches!(read, Ok(1..));
                let read = read.map(|len| {
                    piece.truncate(len);
                    piece
                });
                // A reader that has gone needs no more.
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Self {
            pieces,
            piece: Cursor::default(),
            read: 0,
            goes_on,
        })
    }
}

impl<G: FnMut(u64) -> bool> Read for Source<G> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.position() == self.piece.get_ref().len() as u64 {
            match self.pieces.recv_timeout(LOOK) {
                Ok(piece) => self.piece = Cursor::new(piece?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
            self.read += self.piece.get_ref().len() as u64;
            if !(self.goes_on)(self.read) {
                return Err(io::Error::other("interrupted"));
            }
        }
        self.piece.read(into)
    }
}

/// Takes every line of a text.
pub(super) fn lines(
    reader: impl Read,
    sink: &mut Sink,
    take: fn(&str, &mut Sink) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut reader = BufReader::with_capacity(PIECE, reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut some = reader.by_ref().take(LINE_MOST);
        let read = some.read_until(b'\n', &mut line).map_err(Fault::Read)?;
        if read == 0 {
            return Ok(());
        }
        sink.line += 1;
        if read as u64 == LINE_MOST {
            let wrong = format!("a line of more than {} KiB", LINE_MOST >> 10);
            return Err(Fault::line(sink.line, wrong));
        }
        take(String::from_utf8_lossy(&line).trim_end(), sink)?;
    }
}

/// Takes every record of `N` bytes as an access that reads; `what` it is, for a message.
pub(super) fn records<const N: usize>(
    mut reader: impl Read,
    sink: &mut Sink,
    what: &str,
    address: fn(&[u8; N]) -> u64,
) -> Result<(), Fault> {
    let mut buffer = vec![0; N * RECORDS];
    let (mut have, mut done) = (0, 0);
    loop {
        let read = reader.read(&mut buffer[have..]).map_err(Fault::Read)?;
        if read == 0 {
            break;
        }
        have += read;
        let (records, rest) = buffer[..have].as_chunks::<N>();
        for record in records {
            sink.access(address(record), false);
        }
        let whole = have - rest.len();
        buffer.copy_within(whole..have, 0);
        (have, done) = (have - whole, done + whole as u64);
    }
    if have == 0 {
        return Ok(());
    }
    let wrong = format!("{have} bytes at the end, not the {N} of {what}");
    Err(Fault::At(format!("byte {done}"), wrong))
}
