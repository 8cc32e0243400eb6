//! `--set KEY=VALUE` of a recording of memory pressure: one change of its setting.

use experiment::catalogue::CPUS_MAX;

use super::super::what_if::{Change, Keys, key};
use super::setting::{Limit, Setting};
use super::shapes;

/// Workers of a kind, at most.
const CROWD_MOST: u32 = 64;
const MIB: f64 = 1_048_576.0;

/// The keys that can be changed, and their units.
pub(super) const KEYS: Keys<Setting> = &[
    key("memory_mib", "MiB", |change, setting| {
        setting.set_memory(change.value);
        Ok(())
    }),
    key("vm.dirty_ratio", "% of the memory", |change, setting| {
        setting.dirty = Limit::Percent(change.count(1, 100)?);
        Ok(())
    }),
    key(
        "vm.dirty_background_ratio",
        "% of the memory",
        |change, setting| {
            setting.background = Limit::Percent(change.count(1, 100)?);
            Ok(())
        },
    ),
    key(
        "vm.dirty_bytes",
        "a size, as in 64MiB",
        |change, setting| {
            setting.dirty = Limit::Mib(change.value / MIB);
            Ok(())
        },
    ),
    key(
        "vm.dirty_background_bytes",
        "a size, as in 32MiB",
        |change, setting| {
            setting.background = Limit::Mib(change.value / MIB);
            Ok(())
        },
    ),
    key(
        "vm.swappiness",
        "a number of 0 to 200",
        |change, setting| {
            setting.swappiness = f64::from(change.count(0, 200)?);
            Ok(())
        },
    ),
    key("vm.min_free_kbytes", "KiB", |change, setting| {
        setting.min_free_kib = change.value - setting.small_zones_kib;
        Ok(())
    }),
    key(
        "vm.watermark_scale_factor",
        "1/10000 of the memory",
        |change, setting| {
            setting.scale_factor = change.count(1, 3_000)?;
            Ok(())
        },
    ),
    key(
        "vm.watermark_boost_factor",
        "1/10000 of HIGH",
        |change, setting| {
            setting.boost_factor = Some(change.value);
            Ok(())
        },
    ),
    key("vm.zone_reclaim_mode", "0 or 1", |change, setting| {
        if setting.nodes.len() < 2 {
            return Err("it says nothing to a machine of one node".into());
        }
        setting.zone_reclaim_mode = f64::from(change.count(0, 1)?);
        Ok(())
    }),
    key("device.N.rate", "MiB/s", |change, setting| {
        change.there(setting.disks.len(), "device")?;
        setting.disks[change.index].rate_mib = change.value;
        Ok(())
    }),
    key(
        "device.N.fs",
        "a file system: bare, ext4 or vfat",
        |change, setting| {
            change.there(setting.disks.len(), "device")?;
            let fs = match change.text.as_str() {
                "bare" => None,
                fs @ ("ext4" | "vfat") => Some(fs.to_owned()),
                other => return Err(format!("`{other}` is none of bare, ext4, vfat")),
            };
            setting.disks[change.index].fs = fs;
            Ok(())
        },
    ),
    key(
        "swap_rate",
        "MiB/s of the disk that is swapped to",
        |change, setting| {
            let (disk, _) = setting.swap.ok_or("there is no swap")?;
            setting.disks[disk].rate_mib = change.value;
            Ok(())
        },
    ),
    key(
        "writers",
        "a count of writers like the first",
        |change, setting| crowd(change, setting, "randwrite"),
    ),
    key(
        "readers",
        "a count of readers like the first",
        |change, setting| crowd(change, setting, "randread"),
    ),
    key(
        "hogs",
        "a count of hogs, that together touch as much",
        |change, setting| crowd(change, setting, "hog"),
    ),
    key("seconds", "s", |change, setting| {
        setting.seconds = change.value;
        Ok(())
    }),
    key("hz", "ticks per second", |change, setting| {
        setting.hz = change.count(1, 10_000)?;
        Ok(())
    }),
    key("cpus", "a count", |change, setting| {
        setting.cpus = change.count(1, CPUS_MAX)?;
        Ok(())
    }),
];

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
