//! Calls of the system that are refused from a moment on: for tests of what a program asks for
//! after it has promised something.
//!
//! A filter of the kernel (seccomp(2)), or a limit of the process, for all its threads and for
//! good: what is tested has a process of its own. They lie below every library, so nothing in the
//! code under test knows of them.

use std::collections::BTreeMap;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// A kind of thing that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A thread or a process: EAGAIN, as at a limit of the control group.
    Thread,
    /// Memory, new or opened for writing: ENOMEM, as at `ulimit -d`. The heap gets its own by
    /// brk(2): a program that allocates ends without it.
    Memory,
    /// A descriptor: EMFILE, at a limit of as many as there are. One that is closed later can be
    /// opened again.
    Descriptor,
    /// A lock of a file: ENOLCK.
    Lock,
    /// Another request in a ring: EAGAIN, as where the kernel has no memory for it.
    Entry,
}

type Argument = (u8, SeccompCmpOp, u64);

/// Linux 5.14, include/uapi/asm-generic/mman-common.h.
const MADV_POPULATE_WRITE: u64 = 23;

impl Refused {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Thread,
        Self::Memory,
        Self::Descriptor,
        Self::Lock,
        Self::Entry,
    ];

    fn errno(self) -> i32 {
        match self {
            Self::Thread | Self::Entry => libc::EAGAIN,
            Self::Memory => libc::ENOMEM,
            Self::Descriptor => libc::EMFILE,
            Self::Lock => libc::ENOLCK,
        }
    }

    /// The calls, each with the argument that makes it one, if not all are.
    fn calls(self) -> Vec<(libc::c_long, Option<Argument>)> {
        let all = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, None)).collect();
        let writable = u64::from(libc::PROT_WRITE.unsigned_abs());
        match self {
            Self::Thread => all(&[libc::SYS_clone, libc::SYS_clone3]),
            Self::Memory => vec![
                (libc::SYS_mmap, None),
                (libc::SYS_mremap, None),
                (
                    libc::SYS_mprotect,
                    Some((2, SeccompCmpOp::MaskedEq(writable), writable)),
                ),
                (
                    libc::SYS_madvise,
                    Some((2, SeccompCmpOp::Eq, MADV_POPULATE_WRITE)),
                ),
            ],
            // The limit is another mechanism.
            Self::Descriptor => Vec::new(),
            Self::Lock => {
                let commands = [
                    libc::F_SETLK,
                    libc::F_SETLKW,
                    libc::F_OFD_SETLK,
                    libc::F_OFD_SETLKW,
                ];
                let bytes = commands.map(|command| {
                    let is = (1, SeccompCmpOp::Eq, u64::from(command.unsigned_abs()));
                    (libc::SYS_fcntl, Some(is))
                });
                bytes.into_iter().chain([(libc::SYS_flock, None)]).collect()
            }
            Self::Entry => vec![(libc::SYS_io_uring_enter, Some((1, SeccompCmpOp::Gt, 0)))],
        }
    }

    fn program(self) -> Result<BpfProgram, seccompiler::Error> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for (call, argument) in self.calls() {
            let rule = argument.map(|(at, is, value)| {
                let condition = SeccompCondition::new(at, SeccompCmpArgLen::Dword, is, value)?;
                SeccompRule::new(vec![condition])
            });
            rules.entry(call).or_default().extend(rule.transpose()?);
        }
        let errno = SeccompAction::Errno(self.errno().unsigned_abs());
        let arch: TargetArch = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch)?;
        Ok(filter.try_into()?)
    }
}

/// Takes all descriptors that there are, below a limit just above the highest.
fn take_descriptors() -> std::io::Result<()> {
    let mut highest = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        highest = highest.max(number.unwrap_or(0));
    }
    let some = std::fs::File::open("/dev/null")?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(highest + 1);
    setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    while let Ok(copy) = rustix::io::dup(&some) {
        std::mem::forget(copy);
    }
    std::mem::forget(some);
    Ok(())
}

/// From now on these are refused.
///
/// # Panics
/// On a system that has no such filters.
pub fn refuse(kinds: &[Refused]) {
    // Before the first: making one takes memory.
    let calls = kinds.iter().filter(|kind| !kind.calls().is_empty());
    let programs: Result<Vec<_>, _> = calls.map(|kind| kind.program()).collect();
    if kinds.contains(&Refused::Descriptor) {
        take_descriptors().expect("a process may lower its limit");
    }
    for program in programs.expect("the calls are known") {
        apply_filter_all_threads(&program).expect("the system has filters of calls");
    }
}
