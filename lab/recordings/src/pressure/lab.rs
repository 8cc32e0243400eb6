//! A setting of memory pressure as a scenario of the lab.

use core::fmt::Write as _;

use super::super::lab::{self, LabError, Planned};
use super::setting::{Disk, Limit, SCALE_FACTOR, Setting};
use experiment::scenario::SCHEMA;

/// Levels are sampled as often as the recordings are.
const SAMPLE_MS: u64 = 100;
/// The column that is Linux 6.12.
const LINUX: &str = "linux-6.12";

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
    let mut text = format!(
        "# Made by `tidegate compare` from the recording `{}`.\n\
         schema = \"{SCHEMA}\"\nname = \"{}\"\ntitle = {}\n\n\
         [run]\nreplicas = 1\nseed = {seed}\nmax_s = {}\nsample_ms = {SAMPLE_MS}\n\n",
        setting.name,
        lab::plain(&setting.name),
        lab::quoted(&setting.summary()),
        setting.seconds * 10.0 + 600.0,
    );
    machine(&mut text, setting);
    for (index, disk) in setting.disks.iter().enumerate() {
        if setting.is_used(index) {
            device(&mut text, setting, index, disk);
        } else {
            notes.push(format!("disk {index} is left out: nobody uses it"));
        }
    }
    for worker in &setting.workers {
        let _ = write!(
            text,
            "\n[[task]]\nid = \"{}\"\nkind = \"{}\"\nstart_s = {:?}\nrun_s = {:?}\n",
            lab::plain(&worker.name),
            worker.work.task,
            worker.start_s,
            setting.seconds - worker.start_s,
        );
        if let Some(disk) = worker.disk {
            let _ = writeln!(text, "device = \"disk-{disk}\"");
        }
        text.push_str(&(worker.work.keys)(worker));
    }
    lab::columns(&mut text, columns, setting.hz, |name| column(setting, name));
    text
}

fn machine(text: &mut String, setting: &Setting) {
    let reserved = 100.0 * (1.0 - setting.usable_mib / setting.memory_mib);
    let _ = write!(
        text,
        "[machine]\ncpus = {}\nmemory_mib = {}\nreserved_percent = {reserved}\nmin_free_kib = {}\nswappiness = {}\npreempt_hz = {}\n",
        setting.cpus, setting.memory_mib, setting.min_free_kib, setting.swappiness, setting.hz,
    );
    for (name, limit) in [("dirty", setting.dirty), ("background", setting.background)] {
        let _ = match limit {
            Limit::Percent(percent) => writeln!(text, "{name}_percent = {percent}"),
            Limit::Mib(mib) => writeln!(text, "{name}_mib = {mib:?}"),
        };
    }
    if setting.scale_factor != SCALE_FACTOR {
        let _ = writeln!(text, "watermark_scale_factor = {}", setting.scale_factor);
    }
    let mut read = setting
        .workers
        .iter()
        .filter(|worker| (worker.work.reads)(worker));
    if let Some(disk) = read.find_map(|worker| worker.disk).or(setting.read_later()) {
        // The kernel's: ours is deeper.
        let _ = writeln!(
            text,
            "readahead_kib = {}",
            setting.disks[disk].readahead_kib
        );
    }
    if let Some((disk, mib)) = setting.swap {
        let _ = writeln!(text, "swap = {{ device = \"disk-{disk}\", mib = {mib} }}");
    }
    if setting.disks.iter().any(|disk| disk.fs.is_some()) {
        let files = if setting.object_caches.is_empty() {
            ""
        } else {
            "-files"
        };
        let _ = writeln!(text, "costs = \"guest{files}\"");
    }
    if setting.thp.0 == "always" {
        text.push_str("thp = true\n");
    }
    if !setting.nodes.is_empty() {
        // Shares of what the programs can have; the CPUs are all on the first.
        let whole: f64 = setting.nodes.iter().sum();
        let node = |(number, mib): (usize, &f64)| {
            let cpus = if number == 0 { setting.cpus } else { 1 };
            format!(
                "{{ mib = {:?}, cpus = {cpus} }}",
                mib / whole * setting.memory_mib
            )
        };
        let nodes: Vec<String> = setting.nodes.iter().enumerate().map(node).collect();
        let _ = writeln!(text, "node = [{}]", nodes.join(", "));
    }
    if setting.boost_factor.is_some() && setting.object_caches.is_empty() {
        // Else heads are among the caches of objects.
        text.push_str("overhead = true\n");
    }
    if !setting.object_caches.is_empty() {
        let cache = |cache: &super::setting::ObjectCache| {
            format!(
                "{{ role = \"{}\", bytes = {}, order = {}, reclaimable = {} }}",
                cache.role, cache.bytes, cache.order, cache.reclaimable
            )
        };
        let caches: Vec<String> = setting.object_caches.iter().map(cache).collect();
        let _ = writeln!(text, "object_cache = [{}]", caches.join(", "));
    }
}

fn device(text: &mut String, setting: &Setting, index: usize, disk: &Disk) {
    let fs = disk.fs.as_deref().unwrap_or("bare");
    let _ = write!(
        text,
        "\n[[device]]\nid = \"disk-{index}\"\nmodel = \"null_blk\"\nfs = {}\nrate_mib = {}\n\
         params = {{ request_max_bytes = {}, queue_depth = {} }}\n",
        lab::quoted(fs),
        disk.rate_mib,
        disk.request_kib * 1024.0,
        disk.requests,
    );
    if disk.blocks_a_page() > 1 {
        let _ = writeln!(text, "blocks_a_page = {}", disk.blocks_a_page());
    }
    let read =
        |worker: &&super::worker::Worker| worker.disk == Some(index) && (worker.work.reads)(worker);
    if setting.workers.iter().any(|worker| read(&worker)) {
        // A file that is read was there before and lies somewhere: it takes the disk's time.
        text.push_str("placed_files = true\n");
    }
}

/// The guest's sysctls, and its file systems, as a column of Linux 6.12 has them.
fn column(setting: &Setting, name: &str) -> String {
    let mut text = String::new();
    if name != LINUX {
        return text;
    }
    if setting.zone_reclaim_mode > 0.0 {
        text.push_str("place = \"linux-6.12-mode1\"\n");
    }
    if let Some(boost) = setting.boost_factor {
        // Pages lie apart from objects, and from what is kept of them.
        let _ = writeln!(text, "keeps_apart = true\nboost_factor = {boost}");
    }
    if setting.thp.0 == "always" {
        let _ = writeln!(text, "defrag = \"{}\"", setting.thp.1);
    }
    text
}
