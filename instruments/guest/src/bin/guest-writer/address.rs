//! The place of a null_blk device's rate in the guest's memory.
//!
//! `/proc/kallsyms` names the list of devices; `/proc/kcore` lets one read along it. A device's
//! description is found from there, and in it the rate, by the numbers that stand before it:
//! largest request, way of completion, depth of the queue, the device's index. Nothing is written
//! here. A kernel whose structures are laid out otherwise ends in an error, not in a wrong place.
//!
//! Source: Linux 6.12 drivers/block/null_blk/null_blk.h, struct nullb and struct nullb_device.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use guest::{Result, read_text};

const KCORE: &str = "/proc/kcore";
/// The name in a device's description: `/sys/kernel/config/nullb/nullb0`.
const CONFIG: &str = "/sys/kernel/config/nullb/nullb";
/// More than the description is long.
const DESCRIPTION_MAX: usize = 4096;
/// Most devices of a guest.
const DEVICES_MAX: usize = 64;

/// Prints how far into the file of the guest's memory the rate of device `index` lies.
/// `low` is the memory below the PCI devices, in MiB; what is above begins at 4 GiB.
///
/// # Errors
/// The device is not found, or its rate is not `mib`.
pub(crate) fn print(index: &str, mib: &str, low: &str) -> Result<()> {
    let [index, mib, low] = [index, mib, low].map(|word| {
        word.parse::<u32>()
            .map_err(|_| format!("'{word}' is not a number"))
    });
    let (index, mib, low) = (index?, mib?, low?);
    let memory = Memory::open()?;
    let pattern = pattern(index, mib)?;
    let found = devices(&memory)?
        .into_iter()
        .filter_map(|device| memory.find(device, &pattern).transpose())
        .collect::<Result<Vec<_>>>()?;
    let [address] = found[..] else {
        return Err(format!(
            "nullb{index}: {} places look like its rate of {mib} MiB/s",
            found.len()
        ));
    };
    println!("{}", in_file(memory.physical(address)?, low)?);
    Ok(())
}

/// The numbers that stand side by side in the description; the last is the rate.
fn pattern(index: u32, mib: u32) -> Result<Vec<u8>> {
    let mut pattern = Vec::new();
    for name in ["blocksize", "max_sectors", "irqmode", "hw_queue_depth"] {
        let path = format!("{CONFIG}{index}/{name}");
        let text = read_text(&path)?;
        let number: u32 = text
            .trim()
            .parse()
            .map_err(|_| format!("{path}: '{}'", text.trim()))?;
        pattern.extend(number.to_ne_bytes());
    }
    pattern.extend(index.to_ne_bytes());
    pattern.extend(mib.to_ne_bytes());
    Ok(pattern)
}

/// The addresses of the devices' descriptions.
fn devices(memory: &Memory) -> Result<Vec<u64>> {
    let symbols = read_text("/proc/kallsyms")?;
    let head = symbols
        .lines()
        .find(|line| line.contains(" nullb_list\t[null_blk]"))
        .and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .ok_or("/proc/kallsyms: no nullb_list of null_blk")?;
    let mut devices = Vec::new();
    let mut at = memory.pointer(head)?;
    while at != head {
        if devices.len() == DEVICES_MAX {
            return Err("the list of null_blk's devices does not end".to_owned());
        }
        // A device begins with the pointer to its description; the link comes next.
        devices.push(memory.pointer(at - 8)?);
        at = memory.pointer(at)?;
    }
    Ok(devices)
}

/// The place of a physical address in the memory's file.
fn in_file(physical: u64, low_mib: u32) -> Result<u64> {
    const HIGH: u64 = 1 << 32;
    let low = u64::from(low_mib) << 20;
    if physical < low {
        Ok(physical)
    } else if physical >= HIGH {
        Ok(physical - HIGH + low)
    } else {
        Err(format!("{physical:#x} is not memory; it ends at {low:#x}"))
    }
}

/// Part of the kernel's memory, as `/proc/kcore` shows it.
struct Segment {
    virtual_address: u64,
    physical_address: u64,
    offset: u64,
    length: u64,
}

/// The kernel's memory.
struct Memory {
    file: File,
    segments: Vec<Segment>,
}

impl Memory {
    fn open() -> Result<Self> {
        const HEADER: usize = 64;
        const ENTRY: usize = 56;
        const LOAD: u64 = 1;
        let said = |error| format!("{KCORE}: {error}");
        let file = File::open(KCORE).map_err(said)?;
        let mut header = [0_u8; HEADER];
        file.read_exact_at(&mut header, 0).map_err(said)?;
        let (table, count) = (word(&header, 32, 8), word(&header, 56, 2));
        let mut segments = Vec::new();
        for number in 0..count {
            let mut entry = [0_u8; ENTRY];
            file.read_exact_at(&mut entry, table + number * ENTRY as u64)
                .map_err(said)?;
            if word(&entry, 0, 4) == LOAD {
                segments.push(Segment {
                    offset: word(&entry, 8, 8),
                    virtual_address: word(&entry, 16, 8),
                    physical_address: word(&entry, 24, 8),
                    length: word(&entry, 32, 8),
                });
            }
        }
        Ok(Self { file, segments })
    }

    fn segment(&self, address: u64) -> Result<&Segment> {
        self.segments
            .iter()
            .find(|one| (one.virtual_address..one.virtual_address + one.length).contains(&address))
            .ok_or_else(|| format!("{KCORE}: nothing at {address:#x}"))
    }

    fn read(&self, address: u64, room: &mut [u8]) -> Result<()> {
        let segment = self.segment(address)?;
        let offset = segment.offset + (address - segment.virtual_address);
        self.file
            .read_exact_at(room, offset)
            .map_err(|error| format!("{KCORE}: {address:#x}: {error}"))
    }

    fn pointer(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn physical(&self, address: u64) -> Result<u64> {
        let segment = self.segment(address)?;
        Ok(segment.physical_address + (address - segment.virtual_address))
    }

    /// The place of the last word of the pattern behind `begin`.
    fn find(&self, begin: u64, pattern: &[u8]) -> Result<Option<u64>> {
        let mut room = vec![0; DESCRIPTION_MAX];
        self.read(begin, &mut room)?;
        let at = room.windows(pattern.len()).position(|part| part == pattern);
        Ok(at.map(|at| begin + (at + pattern.len() - 4) as u64))
    }
}

/// A number of up to eight bytes, the lowest first.
fn word(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length]
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_above_the_hole_follows_that_below() {
        assert_eq!(in_file(0x1000, 3072), Ok(0x1000));
        assert_eq!(in_file((1 << 32) + 8, 3072), Ok((3072 << 20) + 8));
        assert!(in_file(3072 << 20, 3072).is_err());
    }

    #[test]
    fn words_have_their_lowest_byte_first() {
        assert_eq!(word(&[9, 0x34, 0x12, 9], 1, 2), 0x1234);
    }
}
