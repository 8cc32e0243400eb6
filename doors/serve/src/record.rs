//! Requests of clients, written to a file that `tidegate replay` reads.
//!
//! ```text
//!   connections ──a line each──> buffer, bounded ──a thread, ten times a second──> file, bounded
//! ```
//!
//! A line is a request of the traces of Microsoft Research Cambridge, which other tools read, too:
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. The host is the volume. It is
//! written when the request comes, so its response time is 0. Reads, writes and zeroing are in it:
//! what the cache is asked for.
//!
//! Invariants
//!   1. No connection waits for the file: a line that has no room in the buffer is left out and
//!      counted.
//!   2. The file never becomes larger than its limit, and a file that is no record is not touched.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::config::RecordConfig;
use crate::log::{info, warn};
use crate::may;
use crate::refusal::Refused;

/// Bytes of lines that are not in the file yet, and of a line at most: names are shorter.
const BUFFER: usize = 1 << 20;
const LINE_MOST: usize = 8 << 10;
/// Bytes that a record takes of the memory limit: a buffer that is filled and one that is written.
pub(crate) const MEMORY: u64 = 2 * BUFFER as u64;
/// Interval at which they are written.
const EVERY: Duration = Duration::from_millis(100);
/// Time that the end waits for a file that takes nothing; and for one that is to be at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
pub(crate) const HURRIED: Duration = EVERY;
/// A record begins with it.
const HEAD: &[u8] = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
/// From 1601, when the traces' clock begins, to 1970, in its unit of 100 ns.
const EPOCH: u128 = 116_444_736_000_000_000;

/// A record under way.
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    /// Dropped: the thread is to write the rest and end.
    going: Mutex<Option<Sender<()>>>,
    /// Hears when it has.
    ended: Mutex<Receiver<()>>,
}

struct Shared {
    is_on: AtomicBool,
    lines: Mutex<Lines>,
}

/// Lines that are to be written.
struct Lines {
    bytes: Vec<u8>,
    /// Bytes that the file may still become longer.
    left: u64,
    left_out: u64,
}

/// A request.
#[derive(Clone, Copy)]
pub(crate) struct Recorded<'a> {
    pub(crate) volume: &'a str,
    pub(crate) writes: bool,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Recorder {
    /// Opens the file, or goes on with one, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or is there and no record; no thread can be started.
    pub(crate) fn start(config: &RecordConfig) -> io::Result<Self> {
        let (file, len) = open(&config.path)?;
        let shared = Arc::new(Shared::new(config.limit.saturating_sub(len)));
        let (going, goes_on) = channel();
        let (end, ended) = channel();
        let (path, of_thread) = (config.path.clone(), Arc::clone(&shared));
        os::start_thread("record", os::STACK, move || {
            of_thread.write_all((file, len), &path, &goes_on);
            // The server may have ended without waiting for it.
            let _ = end.send(());
        })?;
        Ok(Self {
            shared,
            going: Mutex::new(Some(going)),
            ended: Mutex::new(ended),
        })
    }

    /// A request has come.
    pub(crate) fn note(&self, request: Recorded<'_>) {
        if self.shared.is_on.load(Ordering::Relaxed) {
            self.shared.note(request, SystemTime::now());
        }
    }

    /// Writes what is left, if the file takes it soon, and says how much was left out.
    pub(crate) fn finish(&self, patience: Duration) {
        self.shared.is_on.store(false, Ordering::Relaxed);
        drop(lock(&self.going).take());
        if lock(&self.ended).recv_timeout(patience).is_err() {
            warn!("the last requests are not in the record: its file takes nothing");
        }
        let left_out = self.shared.lines().left_out;
        if left_out > 0 {
            warn!(
                "{left_out} requests are not in the record: they came faster than it was written"
            );
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file at the end of its last whole line, and how long it is.
fn open(path: &Path) -> io::Result<(File, u64)> {
    look(path)?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    // A file system without locks is taken as it is.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(io::Error::other(
            "another server records there: name another file",
        ));
    }
    if is_empty(&file)? {
        file.write_all(HEAD)?;
        return Ok((file, HEAD.len() as u64));
    }
    // A server that was killed left the last line as it was.
    let end = file.seek(SeekFrom::End(0))?;
    let tail = file.seek(SeekFrom::Start(end.saturating_sub(u64::from(u16::MAX))))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    let len = tail + whole.map_or(0, |at| at as u64 + 1);
    file.set_len(len)?;
    file.seek(SeekFrom::Start(len))?;
    Ok((file, len))
}

/// True if nothing is in the file yet, which is read from its beginning.
fn is_empty(file: &File) -> io::Result<bool> {
    let mut text = Vec::new();
    file.take(HEAD.len() as u64).read_to_end(&mut text)?;
    if text.is_empty() || text == HEAD {
        return Ok(text.is_empty());
    }
    Err(io::Error::other(
        "it is there and no record of requests: name another file, or remove this one",
    ))
}

/// Checks that a record can be kept there, as far as that shows: nothing is made, changed or
/// locked.
///
/// # Errors
/// As `Recorder::start`, but for a file in use.
pub(crate) fn look(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => may::make(path),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => Err(Errno::ISDIR.into()),
        Ok(found) if found.is_file() => {
            may::open(path, true)?;
            is_empty(&File::open(path)?).map(drop)
        }
        Ok(_) => may::open(path, true),
    }
}

impl Shared {
    fn new(left: u64) -> Self {
        Self {
            is_on: AtomicBool::new(true),
            lines: Mutex::new(Lines {
                bytes: Vec::with_capacity(BUFFER),
                left,
                left_out: 0,
            }),
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        lock(&self.lines)
    }

    fn note(&self, request: Recorded<'_>, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = EPOCH + since.as_nanos() / 100;
        let way = if request.writes { "Write" } else { "Read" };
        let Recorded {
            volume,
            offset,
            len,
            ..
        } = request;
        let name = volume.bytes().map(|letter| match letter {
            b',' | b'"' => b'_',
            letter => letter,
        });
        let mut lines = self.lines();
        let before = lines.bytes.len();
        if before > BUFFER - LINE_MOST {
            lines.left_out += 1;
            return;
        }
        let takes = "memory takes it";
        write!(lines.bytes, "{time},").expect(takes);
        lines.bytes.extend(name);
        writeln!(lines.bytes, ",0,{way},{offset},{len},0").expect(takes);
        let line = (lines.bytes.len() - before) as u64;
        if let Some(left) = lines.left.checked_sub(line) {
            lines.left = left;
            return;
        }
        lines.bytes.truncate(before);
        drop(lines);
        if self.is_on.swap(false, Ordering::Relaxed) {
            info!("the record of requests is full: nothing more is recorded");
        }
    }

    /// Writes lines until nobody is there who adds some.
    fn write_all(&self, (mut file, len): (File, u64), path: &Path, goes_on: &Receiver<()>) {
        let mut bytes = Vec::with_capacity(BUFFER);
        let mut whole = len;
        loop {
            let waited = goes_on.recv_timeout(EVERY);
            bytes.clear();
            core::mem::swap(&mut bytes, &mut self.lines().bytes);
            if let Err(error) = file.write_all(&bytes) {
                self.is_on.store(false, Ordering::Relaxed);
                // No part of a line stays.
                let _ = file.set_len(whole);
                let file = path.display();
                warn!(file = %file, cause = %Refused(&error), "nothing more is recorded");
                return;
            }
            whole += bytes.len() as u64;
            if waited != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A file that is removed when dropped.
    struct Kept(PathBuf);

    impl Kept {
        fn new(name: &str) -> Self {
            let name = format!("tidegate-record-{name}-{}.csv", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn start(&self, limit: u64) -> Recorder {
            let path = self.0.clone();
            Recorder::start(&RecordConfig { path, limit }).unwrap()
        }

        fn text(&self) -> String {
            std::fs::read_to_string(&self.0).unwrap()
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn write(volume: &str, offset: u64) -> Recorded<'_> {
        Recorded {
            volume,
            writes: true,
            offset,
            len: 8192,
        }
    }

    #[test]
    fn requests_are_lines_and_a_second_server_goes_on_behind_the_last_whole_one() {
        let file = Kept::new("lines");
        let recorder = file.start(1 << 20);
        let (shared, noon) = (&recorder.shared, UNIX_EPOCH + Duration::from_micros(1));
        shared.note(write("a, \"b\"", 4096), noon);
        recorder.finish(PATIENCE);
        let line = "116444736000000010,a_ _b_,0,Write,4096,8192,0\n";
        let head = String::from_utf8(HEAD.to_vec()).unwrap();
        assert_eq!(file.text(), head.clone() + line);
        // As if it had been killed.
        std::fs::write(&file.0, head.clone() + line + "1164447").unwrap();
        let recorder = file.start(1 << 20);
        recorder.shared.note(write("a, \"b\"", 4096), noon);
        recorder.finish(PATIENCE);
        assert_eq!(file.text(), head + line + line);
    }

    #[test]
    fn a_record_ends_at_its_limit() {
        let file = Kept::new("limit");
        let recorder = file.start(1000);
        for at in 0..1000 {
            recorder.note(write("v", at));
        }
        recorder.finish(PATIENCE);
        let len = file.text().len();
        assert!((900..=1000).contains(&len), "{len}");
        assert!(file.text().ends_with(",0\n"));
        // There is no room for another.
        let recorder = file.start(1000);
        recorder.note(write("v", 0));
        recorder.finish(PATIENCE);
        assert_eq!(file.text().len(), len);
    }

    #[test]
    fn lines_that_have_no_room_are_counted() {
        // Nobody writes them.
        let shared = Shared::new(1 << 30);
        for at in 0..50_000 {
            shared.note(write("v", at), UNIX_EPOCH);
        }
        let lines = shared.lines();
        let kept = lines.bytes.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(kept as u64 + lines.left_out, 50_000);
        assert!(lines.left_out > 0);
        assert!(lines.bytes.len() <= BUFFER && lines.bytes.capacity() == BUFFER);
    }

    #[test]
    fn a_record_is_of_one_server() {
        let file = Kept::new("one");
        let recorder = file.start(1 << 20);
        let (path, limit) = (file.0.clone(), 1 << 20);
        let error = Recorder::start(&RecordConfig { path, limit })
            .err()
            .unwrap();
        assert!(error.to_string().contains("another server"), "{error}");
        recorder.finish(PATIENCE);
    }

    #[test]
    fn a_file_that_is_no_record_is_left_as_it_is() {
        let file = Kept::new("other");
        std::fs::write(&file.0, "a disk's image").unwrap();
        let config = RecordConfig {
            path: file.0.clone(),
            limit: 1 << 20,
        };
        let error = Recorder::start(&config).err().unwrap().to_string();
        assert!(error.contains("name another file"), "{error}");
        assert_eq!(look(&file.0).unwrap_err().to_string(), error);
        assert_eq!(file.text(), "a disk's image");
    }
}
