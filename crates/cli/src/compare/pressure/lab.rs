//! A setting of memory pressure as a scenario of the lab.

use core::fmt::Write as _;

use super::super::lab::{self, LabError, Planned};
use super::setting::{Blocks, Setting, Work};
use crate::scenario::SCHEMA;

/// Levels are sampled as often as the recordings are.
const SAMPLE_MS: u64 = 100;

/// Plans the runs of a setting; `columns` are presets.
///
/// # Errors
/// A column that is not known; or a bug of ours, when the scenario does not load.
pub fn plan(setting: &Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError> {
    let mut notes = Vec::new();
    let text = scenario(setting, columns, seed, &mut notes);
    lab::planned(&setting.name, text, columns, notes)
}

/// The setting as the text of a scenario.
fn scenario(setting: &Setting, columns: &[&str], seed: u64, notes: &mut Vec<String>) -> String {
    let reserved = 100.0 * (1.0 - setting.usable_mib / setting.memory_mib);
    let mut text = format!(
        "# Made by `tidegate compare` from the recording `{}`.\n\
         schema = \"{SCHEMA}\"\nname = \"{}\"\ntitle = {}\n\n\
         [run]\nreplicas = 1\nseed = {seed}\nmax_s = {}\nsample_ms = {SAMPLE_MS}\n\n\
         [machine]\ncpus = {}\nmemory_mib = {}\nreserved_percent = {reserved}\nmin_free_kib = {}\nswappiness = {}\n",
        setting.name,
        lab::plain(&setting.name),
        lab::quoted(&setting.summary()),
        setting.seconds * 10.0 + 600.0,
        setting.cpus,
        setting.memory_mib,
        setting.min_free_kib,
        setting.swappiness,
    );
    let read: Vec<usize> = setting
        .workers
        .iter()
        .filter_map(|worker| match &worker.work {
            Work::Read(blocks) => Some(blocks.disk),
            _ => None,
        })
        .collect();
    if let Some(disk) = read.first() {
        // The kernel's: ours is deeper.
        let _ = writeln!(
            text,
            "readahead_kib = {}",
            setting.disks[*disk].readahead_kib
        );
    }
    if let Some((disk, mib)) = setting.swap {
        let _ = writeln!(text, "swap = {{ device = \"disk-{disk}\", mib = {mib} }}");
    }
    for (index, disk) in setting.disks.iter().enumerate() {
        let used = setting.workers.iter().any(|worker| match &worker.work {
            Work::Write(blocks) | Work::Read(blocks) => blocks.disk == index,
            Work::Hog { .. } | Work::Map { .. } => false,
        });
        if !used && setting.swap.is_none_or(|(swap, _)| swap != index) {
            notes.push(format!("disk {index} is left out: nobody uses it"));
            continue;
        }
        let _ = write!(
            text,
            "\n[[device]]\nid = \"disk-{index}\"\nmodel = \"null_blk\"\nfs = \"bare\"\nrate_mib = {}\n\
             params = {{ request_max_bytes = {}, queue_depth = {} }}\n",
            disk.rate_mib,
            disk.request_kib * 1024.0,
            disk.requests,
        );
        if read.contains(&index) {
            // What is read was there before and lies somewhere: it takes the disk's time.
            text.push_str("placed_files = true\n");
        }
    }
    for worker in &setting.workers {
        let _ = write!(
            text,
            "\n[[task]]\nid = \"{}\"\nkind = \"{}\"\nstart_s = {:?}\nrun_s = {:?}\n",
            lab::plain(&worker.name),
            worker.work.kind(),
            worker.start_s,
            setting.seconds - worker.start_s,
        );
        let _ = match &worker.work {
            Work::Write(blocks) | Work::Read(blocks) => {
                let Blocks {
                    disk,
                    file_mib,
                    block_kib,
                } = blocks;
                writeln!(
                    text,
                    "device = \"disk-{disk}\"\nfiles = 1\nfile_mib = {file_mib}\nblock_kib = {block_kib}"
                )
            }
            Work::Hog { region_mib } => writeln!(text, "region_mib = {region_mib}"),
            Work::Map {
                region_mib,
                rest_ms,
            } => writeln!(text, "region_mib = {region_mib}\nevery_ms = {rest_ms}"),
        };
    }
    lab::columns(&mut text, columns, setting.hz);
    text
}
