//! The virtual machine: QEMU without hardware help, whose clock counts instructions.

use std::fs::{self, File};
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::Guest;
use super::kernel::Kernel;
use crate::{Result, at, steps};

/// Interval at which the machine is looked at.
const POLL: Duration = Duration::from_millis(200);
/// Lines of the console that are shown when something went wrong.
const LAST_LINES: usize = 25;

/// The last words of a guest when all of it went well.
const LAST_WORDS: &str = "virtual end";

/// The command line of every kernel.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 nokaslr";

/// The host's folder of files that are memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// A machine about to run.
pub(super) struct Machine<'a> {
    pub(super) guest: &'a dyn Guest,
    pub(super) kernel: &'a Kernel,
    /// A folder of this run alone.
    pub(super) folder: &'a Path,
    /// Longest time, by the clock on the wall.
    pub(super) limit: Duration,
    /// True if somebody wants it to end.
    pub(super) stopped: &'a dyn Fn() -> bool,
}

impl Machine<'_> {
    /// Runs the machine to its end, and answers what the guest handed out.
    ///
    /// # Errors
    /// QEMU does not start, the guest hangs or fails, or somebody stopped it.
    pub(super) fn run(&self, initrd: &[u8]) -> Result<Vec<u8>> {
        let image = self.folder.join("initrd");
        fs::write(&image, initrd).map_err(at(&image))?;
        let memory = self.guest.memory();
        memory.judge()?;
        let mut command = self.command(&image, &memory)?;
        eprintln!("    {}", steps::typed(&command));
        let mut child = command
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let ended = self.wait(&mut child, &memory);
        if ended.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let status = ended?;
        if !status.success() {
            return Err(self.failed(&format!("QEMU ended with {status}")));
        }
        if !self.console().contains(LAST_WORDS) {
            return Err(self.failed("the guest did not get to its end"));
        }
        let out = self.folder.join("out");
        fs::read(&out).map_err(at(&out))
    }

    fn command(&self, image: &Path, memory: &Memory) -> Result<Command> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        // Were we killed, nobody would end QEMU: the kernel does.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
        command.args(["-accel", "tcg,thread=single"]);
        command.args(["-icount", "shift=1,sleep=off"]);
        command.args(["-rtc", "base=2026-01-01,clock=vm", "-smp", "1"]);
        command.args(["-seed", "1"]);
        command.args(["-nographic", "-no-reboot", "-nodefaults"]);
        command.args(memory.words());
        command.args(["-serial", &format!("file:{}", file("console"))]);
        // Without ioeventfd the guest's writes are answered where it stands, not when the host's
        // main loop comes round to them.
        command.args(["-device", "virtio-serial-pci,ioeventfd=off"]);
        command.args(["-chardev", &format!("file,id=out,path={}", file("out"))]);
        command.args(["-device", "virtserialport,chardev=out,name=out"]);
        command.arg("-kernel").arg(self.kernel.image());
        command.arg("-initrd").arg(image);
        let words = format!("{COMMAND_LINE} {}", self.guest.command_line());
        command.args(["-append", words.trim()]);
        let said = file("qemu");
        let said = File::create(&said).map_err(|error| format!("{said}: {error}"))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        // An interrupt of the terminal is ours to answer.
        command.process_group(0);
        Ok(command)
    }

    fn wait(&self, child: &mut Child, memory: &Memory) -> Result<ExitStatus> {
        let began = Instant::now();
        let progress = Progress::new(self.guest);
        loop {
            let status = child
                .try_wait()
                .map_err(|error| format!("waiting for QEMU: {error}"))?;
            if let Some(status) = status {
                let ended = self.console().contains(LAST_WORDS);
                progress.finish(ended.then(|| began.elapsed()));
                return Ok(status);
            }
            if (self.stopped)() {
                progress.finish(None);
                return Err("interrupted; nothing is left of this run".to_owned());
            }
            if began.elapsed() >= self.limit {
                progress.finish(None);
                let limit = self.limit.as_secs();
                return Err(self.failed(&format!("not done after {limit} s, ended (--limit)")));
            }
            let console = self.console();
            if !console.is_empty() {
                memory.forget();
            }
            progress.show(&console, began.elapsed());
            std::thread::sleep(POLL);
        }
    }

    fn console(&self) -> String {
        let bytes = fs::read(self.folder.join("console")).unwrap_or_default();
        plain(&String::from_utf8_lossy(&bytes))
    }

    /// The problem, and the last that was heard.
    fn failed(&self, problem: &str) -> String {
        let qemu = fs::read_to_string(self.folder.join("qemu")).unwrap_or_default();
        let console = self.console();
        let lines: Vec<_> = console.lines().chain(qemu.lines()).collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        let name = self.guest.name();
        if last.is_empty() {
            return format!("{name}: {problem}; its console said nothing");
        }
        format!(
            "{name}: {problem}. Its console's last lines:\n{}",
            last.join("\n")
        )
    }
}

/// A text without what moves the cursor: the firmware clears the screen, and ours is not its own.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(one) = chars.next() {
        if one == '\x1b' {
            // A sequence is one character long, or ends with the first letter after a bracket.
            if chars.next() == Some('[') {
                chars.find(char::is_ascii_alphabetic);
            }
        } else if one == '\n' || !one.is_control() {
            plain.push(one);
        }
    }
    plain
}

/// The guest's memory, in MiB.
pub(super) enum Memory {
    Plain {
        mib: u32,
    },
    /// Nodes of this size each; the processor is on the first.
    Nodes {
        count: u32,
        mib: u32,
    },
    /// A file with two doors, when a rate has to be changed (see `image`).
    Doors {
        mib: u32,
        file: PathBuf,
    },
}

impl Memory {
    pub(super) fn with_doors(mib: u32) -> Self {
        let name = format!("tidegate-guest-{}", std::process::id());
        let file = Path::new(SHARED_MEMORY).join(name);
        Self::Doors { mib, file }
    }

    fn judge(&self) -> Result<()> {
        match self {
            Self::Doors { .. } if !Path::new(SHARED_MEMORY).is_dir() => {
                Err(format!("changing a rate needs {SHARED_MEMORY}"))
            }
            _ => Ok(()),
        }
    }

    fn words(&self) -> Vec<String> {
        let (mib, file) = match self {
            Self::Plain { mib } => return vec!["-m".into(), format!("{mib}M")],
            Self::Nodes { count, mib } => return nodes(*count, *mib),
            Self::Doors { mib, file } => (mib, file),
        };
        let file = file.display();
        let backend =
            |id: &str| format!("memory-backend-file,id={id},size={mib}M,mem-path={file},share=on");
        let words = [
            "-m",
            &format!("{mib}M"),
            "-machine",
            "pc,memory-backend=ram",
            "-object",
            &backend("ram"),
            "-object",
            &backend("door"),
            "-device",
            "ivshmem-plain,memdev=door",
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Takes the file's name away. QEMU keeps what it has open, and nothing stays behind however
    /// we end.
    fn forget(&self) {
        if let Self::Doors { file, .. } = self {
            let _ = fs::remove_file(file);
        }
    }
}

/// Memory of several nodes, one after the other.
fn nodes(count: u32, mib: u32) -> Vec<String> {
    let mut words = vec!["-m".to_owned(), format!("{}M", count * mib)];
    for node in 0..count {
        let cpus = if node == 0 { ",cpus=0" } else { "" };
        words.extend([
            "-object".to_owned(),
            format!("memory-backend-ram,id=m{node},size={mib}M"),
            "-numa".to_owned(),
            format!("node,nodeid={node},memdev=m{node}{cpus}"),
        ]);
    }
    words
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.forget();
    }
}

/// One line that tells how far the guest's own time is.
struct Progress<'a> {
    guest: &'a dyn Guest,
    terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(guest: &'a dyn Guest) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { guest, terminal }
    }

    fn show(&self, console: &str, took: Duration) {
        if self.terminal {
            let at = console
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("virtual "))
                .map_or_else(
                    || "booting".to_owned(),
                    |at| format!("second {}", at.trim()),
                );
            let (name, seconds) = (self.guest.name(), self.guest.seconds() + 1);
            eprint!(
                "\r{name}: {at} of {seconds} (virtual), {} s on the wall ",
                took.as_secs()
            );
        }
    }

    /// Leaves the line to others; `took` is the time of a guest that got to its end.
    fn finish(&self, took: Option<Duration>) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        if let Some(took) = took {
            let (name, seconds) = (self.guest.name(), self.guest.seconds());
            let took = took.as_secs_f64();
            eprintln!("{name}: {seconds} virtual seconds in {took:.1} s");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_on_the_first_node() {
        let words = Memory::Nodes { count: 2, mib: 384 }.words().join(" ");
        assert!(words.starts_with("-m 768M -object memory-backend-ram,id=m0,size=384M"));
        assert!(words.contains("nodeid=0,memdev=m0,cpus=0"));
        assert!(words.ends_with("nodeid=1,memdev=m1"), "{words}");
    }

    #[test]
    fn the_firmwares_sequences_are_taken_out() {
        let text = "\x1bc\x1b[?7l\x1b[2JBooting\r\nvirtual 5\r\n\x1b[0mend";
        assert_eq!(plain(text), "Booting\nvirtual 5\nend");
        assert_eq!(plain("half \x1b["), "half ");
    }
}
