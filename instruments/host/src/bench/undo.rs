//! The changes of a bench to the machine, and their undoing, however the bench ends.
//!
//! Every change is a *deed*, written into a journal before it is done. Deeds are undone last first:
//! at the end of a `Scope`, also when a panic ends it; and by a *guardian*, a process of its own
//! that does nothing but wait for the end of the pipe it was given, which comes when this process
//! is gone for whatever reason (Ctrl-C, `kill -9`). A journal that even the guardian has left
//! behind is undone by the next bench.
//!
//! Invariants
//!   1. One bench at a time has the lock; the process that undoes holds it.
//!   2. A deed is in the journal before it is done and until it is undone; undoing a deed that was
//!      not done, or twice, does no harm.
//!   3. A process is ended by its number only while its start time is the noted one.
//!
//! Concurrency: one thread makes and undoes; the guardian acts when this process is gone.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Result, at};

/// Where lock and journal are; its owner is root, as is the user that can do these deeds.
const LOCK: &str = "/run/tidegate-bench.lock";
const JOURNAL: &str = "/run/tidegate-bench.journal";
/// Number of tries to unmount a file system that is still in use.
const UNMOUNT_TRIES: u32 = 50;
/// Time that a process may take to end, and a device to be released.
const PATIENCE: Duration = Duration::from_millis(100);

/// One change and how to take it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A file of the kernel had this value.
    Wrote(PathBuf, String),
    /// Something is mounted here.
    Mounted(PathBuf),
    /// A loop device was given a file.
    AttachedLoop(PathBuf),
    /// A loop device of this number was made.
    MadeLoop(u32),
    /// A process was started: its number and when.
    Started(u32, u64),
    /// A file was made.
    MadeFile(PathBuf),
    /// A folder was made.
    MadeFolder(PathBuf),
    /// The kernel swaps to this file.
    SwappedOn(PathBuf),
}

impl Deed {
    fn line(&self) -> String {
        let path = |path: &Path| path.display().to_string();
        match self {
            Self::Wrote(file, value) => format!("wrote\t{}\t{value}", path(file)),
            Self::Mounted(place) => format!("mounted\t{}", path(place)),
            Self::AttachedLoop(device) => format!("attached-loop\t{}", path(device)),
            Self::MadeLoop(number) => format!("made-loop\t{number}"),
            Self::Started(process, at) => format!("started\t{process}\t{at}"),
            Self::MadeFile(file) => format!("made-file\t{}", path(file)),
            Self::MadeFolder(folder) => format!("made-folder\t{}", path(folder)),
            Self::SwappedOn(file) => format!("swapped-on\t{}", path(file)),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let (verb, first) = (words.next()?, words.next()?);
        let path = || PathBuf::from(first);
        Some(match verb {
            "wrote" => Self::Wrote(path(), words.next()?.to_owned()),
            "mounted" => Self::Mounted(path()),
            "attached-loop" => Self::AttachedLoop(path()),
            "made-loop" => Self::MadeLoop(first.parse().ok()?),
            "started" => Self::Started(first.parse().ok()?, words.next()?.parse().ok()?),
            "made-file" => Self::MadeFile(path()),
            "made-folder" => Self::MadeFolder(path()),
            "swapped-on" => Self::SwappedOn(path()),
            _ => return None,
        })
    }

    /// Takes the change back, as far as it was made.
    fn undo(&self) {
        let failed = match self {
            Self::Wrote(file, value) => fs::write(file, value).err().map(|e| e.to_string()),
            Self::Mounted(place) => unmount(place),
            Self::AttachedLoop(device) => detach(device),
            Self::MadeLoop(number) => remove_loop(*number),
            Self::Started(process, at) => {
                end_process(*process, *at);
                None
            }
            Self::MadeFile(file) => remove(fs::remove_file(file)),
            Self::MadeFolder(folder) => remove(fs::remove_dir(folder)),
            Self::SwappedOn(file) => swap_off(file),
        };
        if let Some(problem) = failed {
            eprintln!("instruments: could not undo '{}': {problem}", self.line());
        }
    }
}

fn swap_off(file: &Path) -> Option<String> {
    let place = file.display().to_string();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_on = swaps
        .lines()
        .any(|line| line.split_whitespace().next() == Some(&place));
    (is_on && !quiet(Command::new("swapoff").arg(file))).then(|| "swapoff refuses".into())
}

fn remove(result: std::io::Result<()>) -> Option<String> {
    let error = result.err()?;
    (error.kind() != std::io::ErrorKind::NotFound).then(|| error.to_string())
}

/// True if something is mounted there, as the kernel says.
fn is_mounted(place: &Path) -> bool {
    let place = place.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&place))
}

fn unmount(place: &Path) -> Option<String> {
    for _ in 0..UNMOUNT_TRIES {
        if !is_mounted(place) {
            return None;
        }
        if quiet(Command::new("umount").arg(place)) {
            return None;
        }
        std::thread::sleep(PATIENCE);
    }
    if quiet(Command::new("umount").arg("--lazy").arg(place)) {
        return Some("still in use; it goes when its last user has gone".into());
    }
    Some("umount refuses".into())
}

fn detach(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_string_lossy().into_owned();
    let backing = format!("/sys/block/{name}/loop/backing_file");
    if Path::new(&backing).exists() && !quiet(Command::new("losetup").arg("-d").arg(device)) {
        return Some("losetup -d refuses".into());
    }
    // It goes when its last user has gone.
    for _ in 0..UNMOUNT_TRIES {
        if !Path::new(&backing).exists() {
            return None;
        }
        std::thread::sleep(PATIENCE);
    }
    Some("it still has its file".into())
}

/// `LOOP_CTL_REMOVE` has no command of its own; perl is part of every Debian.
fn remove_loop(number: u32) -> Option<String> {
    let device = format!("/sys/block/loop{number}");
    let program = "open(F, '<', '/dev/loop-control') or exit 1; \
                   exit(defined(ioctl(F, 0x4C81, $ARGV[0] + 0)) ? 0 : 1)";
    for _ in 0..UNMOUNT_TRIES {
        if !Path::new(&device).exists()
            || quiet(Command::new("perl").args(["-e", program, &number.to_string()]))
        {
            return None;
        }
        std::thread::sleep(PATIENCE);
    }
    Some(format!(
        "/dev/loop{number} stays behind, empty (it needs perl)"
    ))
}

fn end_process(process: u32, started: u64) {
    for signal in ["-TERM", "-KILL"] {
        let began = Instant::now();
        let patience = PATIENCE * UNMOUNT_TRIES;
        if start_time(process) == Some(started) {
            quiet(Command::new("kill").args([signal, &process.to_string()]));
        }
        while start_time(process) == Some(started) && began.elapsed() < patience {
            std::thread::sleep(PATIENCE / 10);
        }
    }
}

/// When a process was started, in ticks since the machine was; none when it is gone or a zombie.
fn start_time(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z").then_some(started)
}

/// Runs a command that has nothing to say; whether it succeeded.
fn quiet(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A process that is ended with its scope.
#[derive(Clone)]
pub(crate) struct Process(Arc<Mutex<Child>>);

impl Process {
    /// Waits for its end.
    ///
    /// # Errors
    /// It took longer than `limit` (it is ended then), or ended badly.
    pub(crate) fn wait(&self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("it ended with {status}")),
                Ok(None) if began.elapsed() > limit => {
                    let _ = child.kill();
                    return Err(format!("not done after {} s, ended", limit.as_secs()));
                }
                Ok(None) => {}
                Err(error) => return Err(error.to_string()),
            }
            drop(child);
            std::thread::sleep(PATIENCE / 10);
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// Takes what it writes to its standard output.
    pub(crate) fn output(&self) -> Option<std::process::ChildStdout> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        child.stdout.take()
    }

    /// True if it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(child.try_wait(), Ok(None))
    }

    fn reap(&self) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.wait();
    }
}

/// All deeds of this bench that are not undone.
pub(crate) struct Undo {
    deeds: Mutex<Vec<(Deed, Option<Process>)>>,
    journal: PathBuf,
    /// The guardian and the pipe whose end it waits for.
    guardian: Option<Child>,
    _lock: File,
}

impl Undo {
    /// Takes the lock and starts the guardian. Deeds that an earlier bench left behind are undone.
    ///
    /// # Errors
    /// Another bench is running, or the files cannot be opened (not root).
    pub(crate) fn begin() -> Result<Self> {
        let lock = lock_file()?;
        lock.try_lock()
            .map_err(|_| "another bench is changing the machine; wait for its end".to_owned())?;
        undo_journal(Path::new(JOURNAL));
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let guardian = Command::new(this)
            .args(["bench", "guard"])
            .stdin(Stdio::piped())
            // So that a Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("the guardian: {error}"))?;
        Ok(Self {
            deeds: Mutex::default(),
            journal: JOURNAL.into(),
            guardian: Some(guardian),
            _lock: lock,
        })
    }

    /// Notes a change that is about to be made.
    ///
    /// # Errors
    /// The journal cannot be written: then the change must not be made.
    pub(crate) fn note(&self, deed: Deed) -> Result<()> {
        self.push(deed, None)
    }

    fn push(&self, deed: Deed, process: Option<Process>) -> Result<()> {
        let mut deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        deeds.push((deed, process));
        self.write(&deeds)
    }

    fn write(&self, deeds: &[(Deed, Option<Process>)]) -> Result<()> {
        let lines: String = deeds.iter().map(|(deed, _)| deed.line() + "\n").collect();
        // Whole or not at all: a torn journal would undo half of it.
        let fresh = self.journal.with_extension("new");
        fs::write(&fresh, lines)
            .and_then(|()| fs::rename(&fresh, &self.journal))
            .map_err(at(&self.journal))
    }

    /// Writes a value to a file of the kernel, which gets its own back.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn set(&self, file: &Path, value: &str) -> Result<()> {
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let before = fs::read_to_string(file).map_err(failed)?;
        self.note(Deed::Wrote(file.into(), before.trim().to_owned()))?;
        fs::write(file, value).map_err(failed)
    }

    /// Starts a process of this bench.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let (number, at) = (child.id(), start_time(child.id()));
        let process = Process(Arc::new(Mutex::new(child)));
        self.push(
            Deed::Started(number, at.unwrap_or(0)),
            Some(process.clone()),
        )?;
        Ok(process)
    }

    /// From here on, everything is undone when what is answered is dropped.
    pub(crate) fn scope(&self) -> Scope<'_> {
        let deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        Scope {
            undo: self,
            mark: deeds.len(),
        }
    }

    fn back_to(&self, mark: usize) {
        let mut deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        while deeds.len() > mark {
            let Some((deed, process)) = deeds.last() else {
                return;
            };
            deed.undo();
            if let Some(process) = process {
                process.reap();
            }
            deeds.pop();
            if let Err(problem) = self.write(&deeds) {
                eprintln!("instruments: {problem}");
            }
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.back_to(0);
        let _ = fs::remove_file(&self.journal);
        if let Some(mut guardian) = self.guardian.take() {
            drop(guardian.stdin.take());
            // The lock is still ours: the guardian must not wait for it.
            let _ = guardian.wait();
        }
    }
}

/// Undoes, when dropped, what was done since it was made.
pub(crate) struct Scope<'a> {
    undo: &'a Undo,
    mark: usize,
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.undo.back_to(self.mark);
    }
}

/// The guardian's whole life.
pub(crate) fn guard() -> Result<()> {
    let mut nothing = Vec::new();
    // An error of the pipe is its end, too.
    let _ = std::io::stdin().read_to_end(&mut nothing);
    let journal = Path::new(JOURNAL);
    if !journal.exists() {
        return Ok(());
    }
    let lock = lock_file()?;
    lock.lock().map_err(|error| error.to_string())?;
    undo_journal(journal);
    Ok(())
}

fn lock_file() -> Result<File> {
    let open = File::options().create(true).append(true).open(LOCK);
    open.map_err(|error| format!("{LOCK}: {error}"))
}

fn undo_journal(journal: &Path) {
    let text = fs::read_to_string(journal).unwrap_or_default();
    for deed in text.lines().rev().filter_map(Deed::parse) {
        eprintln!("instruments: undoing '{}'", deed.line());
        deed.undo();
    }
    let _ = fs::remove_file(journal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_journal_is_read_back() {
        let deeds = [
            Deed::Wrote("/proc/sys/vm/dirty_bytes".into(), "67108864".into()),
            Deed::Mounted("/run/a b".into()),
            Deed::AttachedLoop("/dev/loop9".into()),
            Deed::MadeLoop(9),
            Deed::Started(1, 2),
            Deed::MadeFile("/run/x".into()),
            Deed::MadeFolder("/run/y".into()),
            Deed::SwappedOn("/var/swap".into()),
        ];
        for deed in deeds {
            assert_eq!(Deed::parse(&deed.line()), Some(deed));
        }
        assert_eq!(Deed::parse("wrote\t/proc/sys/vm/dirty_bytes"), None);
    }

    #[test]
    fn a_journal_is_undone_last_first_and_twice_does_no_harm() {
        let folder = std::env::temp_dir().join(format!("tidegate-undo-{}", std::process::id()));
        let (file, value) = (folder.join("made"), folder.join("value"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        fs::write(&value, "changed").unwrap();
        let deeds = [
            Deed::MadeFolder(folder.clone()),
            Deed::MadeFile(value.clone()),
            Deed::Wrote(value.clone(), "before".into()),
            Deed::MadeFile(file.clone()),
        ];
        let journal = folder.with_extension("journal");
        let lines: String = deeds.iter().map(|deed| deed.line() + "\n").collect();
        fs::write(&journal, &lines).unwrap();
        // Until the value's own file is removed it has its value back.
        deeds[2].undo();
        assert_eq!(fs::read_to_string(&value).unwrap(), "before");
        undo_journal(&journal);
        assert!(!folder.exists() && !journal.exists());
        fs::write(&journal, deeds[3].line()).unwrap();
        undo_journal(&journal);
        assert!(!folder.exists());
    }

    #[test]
    fn only_the_process_that_was_started_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let at = start_time(child.id()).unwrap();
        // Another process with that number would have another time.
        Deed::Started(child.id(), at + 1).undo();
        assert!(child.try_wait().unwrap().is_none());
        Deed::Started(child.id(), at).undo();
        assert!(child.wait().unwrap().code().is_none());
    }
}
