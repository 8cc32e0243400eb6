//! The nodes of the machine, as far as this process may use them, and memory that is asked from one
//! of them.
//!
//! ```text
//!   Topology::read    /sys/devices/system/node: which nodes there are, their CPUs, memory, distances
//!                     /proc/self/status: which nodes and CPUs this process may use
//!   Binding           which frames are asked from which node, and the CPUs node by node
//!   ThreadEnv::start  tells the system of it; the memory itself comes as it is used
//! ```
//!
//! A part of the arena *prefers* its node: where that has nothing left the system gives memory of
//! another, and does not refuse. Such chunks are *misplaced*: counted, and not moved.
//!
//! Source: Documentation/admin-guide/mm/numa_memory_policy.rst,
//! Documentation/ABI/stable/sysfs-devices-node, set_mempolicy(2), mbind(2), proc_pid_status(5) of
//! Linux 6.12.

use core::ops::Range;
use std::fs;
use std::path::{Path, PathBuf};

use policy::units::Bytes;

#[cfg(test)]
mod tests;

/// The folder in which the system tells of its nodes.
const NODES: &str = "/sys/devices/system/node";
/// The file in which it tells which of them this process may use.
const STATUS: &str = "/proc/self/status";
/// The system's numbers of nodes and CPUs are below it; a longer list is none.
const NUMBERS_MAX: u32 = 1 << 16;

/// A node of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemNode {
    /// The system's number of it.
    pub number: u32,
    /// Its memory; none if this process may not use it.
    pub memory: Bytes,
    /// Those of its CPUs that this process may run on.
    pub cpus: Vec<u32>,
    /// To each node of the machine, itself among them; 10 is its own.
    pub distances: Vec<u8>,
}

/// The nodes that have something for this process: memory, CPUs, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In the order of their numbers.
    pub nodes: Vec<SystemNode>,
}

/// Why what the system says of its nodes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file could not be read: there is no /sys here, or the system knows no nodes.
    #[error("cannot read {}: {}", path.display(), std::io::Error::from_raw_os_error(*errno))]
    Unread {
        /// Which.
        path: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// A file says something that is not understood.
    #[error("{} says {text:?}, which is not understood", path.display())]
    Unknown {
        /// Which.
        path: PathBuf,
        /// Its text, or the part that is not understood.
        text: String,
    },
}

impl Topology {
    /// The nodes of this machine.
    ///
    /// # Errors
    /// See `TopologyError`.
    pub fn read() -> Result<Self, TopologyError> {
        Self::of(Path::new(NODES), Path::new(STATUS))
    }

    /// The same from a folder and a file of that form.
    fn of(nodes: &Path, status: &Path) -> Result<Self, TopologyError> {
        let told = read(status)?;
        let allowed = |name| list_in(&told, name, status);
        let memory_of = allowed("Mems_allowed_list:")?;
        let cpus_of = allowed("Cpus_allowed_list:")?;
        let path = nodes.join("online");
        let online = list(&read(&path)?, &path)?;
        let mut found = Vec::with_capacity(online.len());
        for &number in &online {
            let folder = nodes.join(format!("node{number}"));
            let memory = if memory_of.contains(&number) {
                memory(&folder.join("meminfo"))?
            } else {
                Bytes(0)
            };
            let path = folder.join("cpulist");
            let mut cpus = list(&read(&path)?, &path)?;
            cpus.retain(|cpu| cpus_of.contains(cpu));
            let distances = distances(&folder.join("distance"), online.len())?;
            found.push(SystemNode {
                number,
                memory,
                cpus,
                distances,
            });
        }
        // A row has a distance to each node that is online.
        let has_something = |node: &SystemNode| node.memory.0 > 0 || !node.cpus.is_empty();
        let kept: Vec<bool> = found.iter().map(has_something).collect();
        for node in &mut found {
            let mut at = kept.iter();
            node.distances
                .retain(|_| *at.next().expect("a row has a place for each node"));
        }
        found.retain(has_something);
        Ok(Self { nodes: found })
    }
}

fn read(path: &Path) -> Result<String, TopologyError> {
    fs::read_to_string(path).map_err(|error| TopologyError::Unread {
        path: path.to_owned(),
        errno: error.raw_os_error().unwrap_or(0),
    })
}

fn unknown(path: &Path, text: &str) -> TopologyError {
    TopologyError::Unknown {
        path: path.to_owned(),
        text: text.trim().chars().take(80).collect(),
    }
}

/// The list in the line of a file that begins with `name`.
fn list_in(text: &str, name: &str, path: &Path) -> Result<Vec<u32>, TopologyError> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    list(
        line.ok_or_else(|| unknown(path, &format!("nothing of {name}")))?,
        path,
    )
}

/// Numbers as `0-3,8,10-11`, in order; none if the text is empty.
fn list(text: &str, path: &Path) -> Result<Vec<u32>, TopologyError> {
    let wrong = || unknown(path, text);
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let first = number(first).ok_or_else(wrong)?;
        let last = number(last).ok_or_else(wrong)?;
        if first > last || last >= NUMBERS_MAX {
            return Err(wrong());
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Memory of a node: `Node 0 MemTotal:       16384000 kB`.
fn memory(path: &Path) -> Result<Bytes, TopologyError> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.contains("MemTotal:"));
    let kib = line.and_then(|line| {
        let (_, rest) = line.split_once("MemTotal:")?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    });
    let bytes = kib.and_then(|kib| kib.checked_mul(1024));
    bytes
        .map(Bytes)
        .ok_or_else(|| unknown(path, line.unwrap_or("nothing of MemTotal:")))
}

/// A row of the table of distances.
fn distances(path: &Path, count: usize) -> Result<Vec<u8>, TopologyError> {
    let text = read(path)?;
    let row: Option<Vec<u8>> = text.split_whitespace().map(|at| at.parse().ok()).collect();
    let row = row.filter(|row| row.len() == count);
    row.ok_or_else(|| unknown(path, &text))
}

/// From which nodes the memory of an arena is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Runs of frames and the system's number of the node that each prefers.
    pub parts: Vec<(Range<u32>, u32)>,
    /// The CPUs in the order in which `Task::cpu` counts them; others come behind them.
    pub cpus: Vec<u32>,
}

impl Binding {
    /// For each CPU of the system, below `count`, the number that `Task::cpu` gives it.
    pub(crate) fn cpu_numbers(&self, count: usize) -> Box<[usize]> {
        let mut numbers = vec![usize::MAX; count];
        let mut next = 0;
        let named = self.cpus.iter().map(|&cpu| cpu as usize);
        for cpu in named.chain(0..count) {
            if let Some(number @ &mut usize::MAX) = numbers.get_mut(cpu) {
                *number = next;
                next += 1;
            }
        }
        numbers.into()
    }
}
