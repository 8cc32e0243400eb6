//! A storage engine with pages in place and a log, on a cache that keeps the order of the two.
//!
//! `cargo run --release -p tidegate --example engine -- kill FOLDER 1000`: a child moves money
//! between accounts by four threads and is killed (SIGKILL), a thousand times. After each kill
//! the engine recovers in this process: every transfer that was acknowledged is there, whole, and
//! the sum of all accounts is what it was. `careless` beside it has pages written before their log
//! is: then recovery finds them ahead of it.
//!
//! ```text
//!   transfer --> record to the log (its end is the LSN) --> pages, held by the LSN --> commit: the log is synced,
//!                                                                                     pages up to it may go
//!   recovery: every record whose LSN is above its page's, in order --> pages synced --> a fresh log
//! ```
//!
//! A record is a whole transaction, so recovery has nothing to undo: a page is on the disk only if
//! all of its transactions are in the log. A real engine has besides: images of pages that a
//! loss of power has torn, checkpoints while it runs, and more than one transaction at a time.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes of files here fit any machine that the library is for"
)]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tidegate::{Bytes, Cache, File, OpenOptions, PAGE_SIZE, Threshold, WriteAhead};

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A page is its LSN and balances.
const ACCOUNTS_A_PAGE: u64 = (PAGE_SIZE as u64 - 8) / 8;
const PAGES: u64 = 8192;
/// The first accounts count the transfers of each thread.
const THREADS: u64 = 4;
/// Transfers that a thread commits at once.
const TOGETHER: i64 = 16;
const ACCOUNTS: u64 = PAGES * ACCOUNTS_A_PAGE;
/// A record: its length and checksum, then pairs of an account and its new balance.
const HEAD: usize = 16;
const SPACE: u64 = 64 << 20;

struct Engine {
    pages: File,
    ahead: WriteAhead,
    careless: bool,
    /// The log, the LSN at which its file begins, and the one at which it ends.
    file: File,
    base: u64,
    end: Mutex<u64>,
}

impl Engine {
    /// Recovers what is in a folder.
    fn open(cache: &Cache, folder: &Path, careless: bool) -> Answer<Arc<Self>> {
        let pages = cache.open(folder.join("pages"), OpenOptions::new().create(true))?;
        if pages.len() < PAGES * PAGE_SIZE as u64 {
            pages.set_len(PAGES * PAGE_SIZE as u64)?;
        }
        let mut end = 0;
        let logs = logs_in(folder)?;
        for (base, path) in &logs {
            let log = cache.open(path, OpenOptions::new())?;
            end = redo(&log, *base, &pages)?;
            log.close()?;
        }
        let mut last = 0;
        pages.show_at(0, u64::MAX, |page| last = last.max(number(&page[..8])))?;
        if last > end {
            return Err(
                format!("a page is ahead of the log: at {last}, the log ends at {end}").into(),
            );
        }
        pages.sync()?;
        // From here on the old logs are not needed; until they are gone they do no harm.
        let options = OpenOptions::new().create(true).preallocate(SPACE);
        let file = cache.open(folder.join(format!("log-{end:020}")), options)?;
        file.set_len(SPACE)?;
        file.sync()?;
        for (_, path) in logs.iter().filter(|(base, _)| *base < end) {
            std::fs::remove_file(path)?;
        }
        let (ask, asked) = mpsc::channel();
        let ahead = WriteAhead::new(move |lsn| ask.send(lsn).unwrap_or(()));
        ahead.durable(end);
        pages.follow(&ahead)?;
        let engine = Arc::new(Self {
            pages,
            ahead,
            careless,
            file,
            base: end,
            end: Mutex::new(end),
        });
        let weak = Arc::downgrade(&engine);
        std::thread::spawn(move || {
            while let Ok(lsn) = asked.recv() {
                let Some(engine) = weak.upgrade() else { return };
                if engine.commit(lsn).is_err() {
                    engine.ahead.end();
                }
            }
        });
        Ok(engine)
    }

    fn balance(&self, account: u64) -> Answer<i64> {
        let mut balance = [0; 8];
        self.pages.read_at(&mut balance, place(account))?;
        Ok(i64::from_le_bytes(balance))
    }

    /// Changes accounts together; answers the LSN. It is durable once that is committed.
    fn change(&self, changes: &[(u64, i64)]) -> Answer<u64> {
        // One at a time: what the log says in order, the pages have in order.
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = vec![0; HEAD];
        for (account, by) in changes {
            let balance = self.balance(*account)? + by;
            record.extend_from_slice(&account.to_le_bytes());
            record.extend_from_slice(&balance.to_le_bytes());
        }
        let at = *end;
        let len = record.len() as u64;
        record[..8].copy_from_slice(&len.to_le_bytes());
        let sum = checksum(at, &record);
        record[8..HEAD].copy_from_slice(&sum.to_le_bytes());
        self.file.write_at(&record, at - self.base)?;
        *end += len;
        for pair in record[HEAD..].chunks(16) {
            self.apply(number(&pair[..8]), &pair[8..], *end)?;
        }
        Ok(*end)
    }

    fn apply(&self, account: u64, balance: &[u8], lsn: u64) -> Answer<()> {
        let (page, mut bytes) = changed(&self.pages, account, balance)?;
        bytes[..8].copy_from_slice(&lsn.to_le_bytes());
        // Whole: a flusher never finds a page with its LSN and without the change.
        if self.careless {
            let place = page * PAGE_SIZE as u64;
            self.pages.write_at(&bytes, place)?;
            // As a cache may that knows of no log.
            self.pages.sync_range(place, PAGE_SIZE as u64)?;
        } else {
            self.pages
                .write_logged(&bytes, page * PAGE_SIZE as u64, lsn)?;
        }
        Ok(())
    }

    /// Makes the log durable up to `lsn`. Commits of the same time share the flush. Takes
    /// no lock that is held while pages are written: they may be waiting for this.
    fn commit(&self, lsn: u64) -> Answer<()> {
        let done = self.ahead.durable_lsn();
        if lsn > done {
            self.file.sync_range(done - self.base, lsn - done)?;
            self.ahead.durable(lsn);
        }
        Ok(())
    }
}

/// Applies the records of a log that its pages do not have; answers the LSN of its end.
fn redo(log: &File, base: u64, pages: &File) -> Answer<u64> {
    let mut at = base;
    loop {
        let mut head = [0; HEAD];
        log.read_at(&mut head, at - base)?;
        let len = number(&head[..8]) as usize;
        if !(HEAD..PAGE_SIZE).contains(&len) {
            return Ok(at);
        }
        let mut record = vec![0; len];
        log.read_at(&mut record, at - base)?;
        record[8..HEAD].fill(0);
        if checksum(at, &record) != number(&head[8..]) {
            return Ok(at);
        }
        at += len as u64;
        // Judged before any is changed: two of them may be on one page.
        let mut missing = Vec::new();
        for pair in record[HEAD..].chunks(16) {
            let (_, bytes) = changed(pages, number(&pair[..8]), &pair[8..])?;
            missing.extend((number(&bytes[..8]) < at).then_some(pair));
        }
        for pair in missing {
            let (page, mut bytes) = changed(pages, number(&pair[..8]), &pair[8..])?;
            bytes[..8].copy_from_slice(&at.to_le_bytes());
            pages.write_at(&bytes, page * PAGE_SIZE as u64)?;
        }
    }
}

/// The page of an account, and what it becomes.
fn changed(pages: &File, account: u64, balance: &[u8]) -> Answer<(u64, Vec<u8>)> {
    let (page, within) = (
        account / ACCOUNTS_A_PAGE,
        place(account) as usize % PAGE_SIZE,
    );
    let mut bytes = vec![0; PAGE_SIZE];
    pages.read_at(&mut bytes, page * PAGE_SIZE as u64)?;
    bytes[within..within + 8].copy_from_slice(balance);
    Ok((page, bytes))
}

fn place(account: u64) -> u64 {
    account / ACCOUNTS_A_PAGE * PAGE_SIZE as u64 + 8 + account % ACCOUNTS_A_PAGE * 8
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// FNV-1a, of a record and the place that it has in the log.
fn checksum(at: u64, record: &[u8]) -> u64 {
    let bytes = at.to_le_bytes();
    let all = bytes.iter().chain(record);
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The logs of a folder with the LSNs at which they begin, in order.
fn logs_in(folder: &Path) -> Answer<Vec<(u64, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(base) = name.and_then(|name| name.strip_prefix("log-")) {
            logs.push((base.parse()?, path));
        }
    }
    logs.sort();
    Ok(logs)
}

/// A cache that is much smaller than the pages, and writes them back early.
fn cache() -> Answer<Cache> {
    let background = Threshold::Pages(Bytes(256 << 10).pages_ceil());
    let builder = Cache::builder()
        .memory(16 << 20)
        .background_limit(background);
    Ok(builder.build()?)
}

/// Transfers until it is killed; tells of each that is committed.
pub(crate) fn work(folder: &Path, careless: bool) -> Answer<()> {
    let engine = Engine::open(&cache()?, folder, careless)?;
    // Ends a line that its harness may have begun.
    println!();
    let seed = std::process::id();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let engine = Arc::clone(&engine);
            std::thread::spawn(move || -> Answer<()> {
                let mut random = u64::from(seed) << 8 | thread << 1 | 1;
                loop {
                    let mut any = || {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        THREADS + random % (ACCOUNTS - THREADS)
                    };
                    let mut lsn = 0;
                    for _ in 0..TOGETHER {
                        let (from, to, amount) = (any(), any(), (any() % 1000) as i64);
                        let to = if from == to { to ^ 1 } else { to };
                        lsn = engine.change(&[(from, -amount), (to, amount), (thread, 1)])?;
                    }
                    engine.commit(lsn)?;
                    let said = writeln!(std::io::stdout().lock(), "{thread}");
                    // The other end of the pipe is gone: so is the wish for more.
                    if said.is_err() {
                        return Ok(());
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}

/// Kills a program that does `work` so often; answers how many transfers were acknowledged.
pub(crate) fn kill(folder: &Path, times: u64, program: &mut Command) -> Answer<i64> {
    std::fs::create_dir_all(folder)?;
    let mut acknowledged = [0; THREADS as usize];
    for round in 1..=times {
        kill_once(folder, program, &mut acknowledged, round)
            .map_err(|error| format!("after kill {round}: {error}"))?;
    }
    Ok(acknowledged.iter().sum())
}

/// Starts the program, kills it, recovers, and looks at what is there; `acknowledged` has how many
/// transfers of each thread must be.
fn kill_once(
    folder: &Path,
    program: &mut Command,
    acknowledged: &mut [i64],
    round: u64,
) -> Answer<()> {
    let mut child = program.stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("no pipe")?;
    let mut lines = BufReader::new(out).lines();
    // At times in the middle of the recovery before it.
    let wanted = round * 7919 % 100;
    let mut heard = 0;
    let mut hear = |line: &str| {
        let Ok(thread) = line.parse::<usize>() else {
            return ControlFlow::Continue(());
        };
        acknowledged[thread] += TOGETHER;
        heard += 1;
        if heard < wanted {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    std::thread::sleep(Duration::from_millis(round % 5 * 7));
    let mut goes_on = wanted > 0;
    while goes_on {
        let line = lines.next().ok_or("the child ended by itself")??;
        goes_on = hear(&line).is_continue();
    }
    child.kill()?;
    for line in lines {
        let _ = hear(&line?);
    }
    child.wait()?;
    let engine = Engine::open(&cache()?, folder, false)?;
    let mut sum = 0;
    engine.pages.show_at(0, u64::MAX, |page| {
        sum += page[8..]
            .chunks_exact(8)
            .map(|b| number(b) as i64)
            .sum::<i64>();
    })?;
    for (thread, least) in acknowledged.iter_mut().enumerate() {
        let there = engine.balance(thread as u64)?;
        sum -= there;
        // Some were on their way.
        if !(*least..=*least + TOGETHER).contains(&there) {
            return Err(format!("thread {thread}: {there} of {least} transfers").into());
        }
        *least = there;
    }
    if sum != 0 {
        return Err(format!("the accounts' sum is {sum}").into());
    }
    Ok(())
}

fn run() -> Answer<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["work", folder, mode] => work(Path::new(folder), mode == "careless"),
        ["kill", folder, times, ref mode @ ..] => {
            let mode = mode.first().copied().unwrap_or("careful");
            let mut program = Command::new(std::env::current_exe()?);
            program.args(["work", folder, mode]);
            let all = kill(Path::new(folder), times.parse()?, &mut program)?;
            println!("{times} kills: {all} transfers, none lost, none by half");
            Ok(())
        }
        _ => Err("engine kill FOLDER TIMES [careless]".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
