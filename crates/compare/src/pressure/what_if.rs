//! `--set KEY=VALUE` of a recording of memory pressure: one change of its setting.

use experiment::catalogue::CPUS_MAX;

use super::super::what_if::{Change, Keys};
use super::setting::Setting;
use super::shapes;

/// Workers of a kind, at most.
const CROWD_MOST: u32 = 64;

/// What can be changed, and in which unit it is written.
pub(super) const KEYS: Keys = &[
    ("memory_mib", "MiB"),
    ("vm.swappiness", "a number of 0 to 200"),
    ("vm.min_free_kbytes", "KiB"),
    ("vm.watermark_boost_factor", "1/10000 of HIGH"),
    ("vm.zone_reclaim_mode", "0 or 1"),
    ("device.N.rate", "MiB/s"),
    ("device.N.fs", "a file system: bare, ext4 or vfat"),
    ("swap_rate", "MiB/s of the disk that is swapped to"),
    ("writers", "a count of writers like the first"),
    ("readers", "a count of readers like the first"),
    ("hogs", "a count of hogs, that together touch as much"),
    ("seconds", "s"),
    ("hz", "ticks per second"),
    ("cpus", "a count"),
];

/// Changes a setting, without a look at the whole.
///
/// # Errors
/// It fits nowhere.
pub(super) fn put(change: &Change, setting: &mut Setting) -> Result<(), String> {
    match change.form {
        "memory_mib" => setting.set_memory(change.value),
        "vm.swappiness" => setting.swappiness = f64::from(change.count(0, 200)?),
        "vm.min_free_kbytes" => setting.min_free_kib = change.value - setting.small_zones_kib,
        "vm.watermark_boost_factor" => setting.boost_factor = Some(change.value),
        "vm.zone_reclaim_mode" => {
            if setting.nodes.len() < 2 {
                return Err("it says nothing to a machine of one node".into());
            }
            setting.zone_reclaim_mode = f64::from(change.count(0, 1)?);
        }
        "device.N.rate" => {
            change.there(setting.disks.len(), "device")?;
            setting.disks[change.index].rate_mib = change.value;
        }
        "device.N.fs" => {
            change.there(setting.disks.len(), "device")?;
            let fs = match change.text.as_str() {
                "bare" => None,
                fs @ ("ext4" | "vfat") => Some(fs.to_owned()),
                other => return Err(format!("`{other}` is none of bare, ext4, vfat")),
            };
            setting.disks[change.index].fs = fs;
        }
        "swap_rate" => {
            let (disk, _) = setting.swap.ok_or("there is no swap")?;
            setting.disks[disk].rate_mib = change.value;
        }
        "writers" => crowd(change, setting, "randwrite")?,
        "readers" => crowd(change, setting, "randread")?,
        "hogs" => crowd(change, setting, "hog")?,
        "seconds" => setting.seconds = change.value,
        "hz" => setting.hz = change.count(1, 10_000)?,
        _ => setting.cpus = change.count(1, CPUS_MAX)?,
    }
    Ok(())
}

/// As many workers of a kind, where the first of them stands. Hogs share what they touched before,
/// in whole MiB.
fn crowd(change: &Change, setting: &mut Setting, name: &str) -> Result<(), String> {
    let count = change.count(0, CROWD_MOST)?;
    let workers = &mut setting.workers;
    let of_kind = |worker: &super::worker::Worker| worker.work.name == name;
    let Some(at) = workers.iter().position(of_kind) else {
        let work = shapes::works().find(|work| work.name == name);
        let called = work.map_or(name, |work| work.called);
        return Err(format!("there is no first {called} to be like"));
    };
    let touched: f64 = match name {
        "hog" => workers
            .iter()
            .filter(|w| of_kind(w))
            .map(|w| w.number("memory"))
            .sum(),
        _ => 0.0,
    };
    let first = workers[at].clone();
    workers.retain(|worker| !of_kind(worker));
    for number in (0..count).rev() {
        let mut worker = first.clone();
        let letter = first.name.trim_end_matches(|c: char| c.is_ascii_digit());
        worker.name = format!("{letter}{number}");
        worker.set("memory", (touched / f64::from(count)).floor());
        workers.insert(at, worker);
    }
    Ok(())
}
