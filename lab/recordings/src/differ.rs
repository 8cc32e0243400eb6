//! The parts of a setting that two recordings of a kind may differ in.

use experiment::keys::value;
use experiment::scenario::{DeviceEntry, TaskEntry};

use super::setting::{Setting, changes, is_heavy, start_s};

/// A part of a setting, in words: two that say the same are the same.
type Part = (&'static str, fn(&Setting) -> String);

/// Of dirty throttling.
const THROTTLING: &[Part] = &[
    ("rates", |setting| numbers(&setting.rates(), " MiB/s")),
    ("limits", limits),
    ("writers", |setting| {
        crowd(setting.scenario.tasks.iter().collect())
    }),
    ("changes of rates", |setting| {
        devices(setting, |device| format!("{:?}", changes(device)))
    }),
    ("strict limit", |setting| {
        devices(setting, |device| {
            value(&device.max_percent).map_or("none".into(), |percent| format!("{percent} %"))
        })
    }),
    ("file system", |setting| {
        devices(setting, |device| fs(device).to_owned())
    }),
    ("machine", |setting| {
        let models = devices(setting, |device| device.model.get_ref().clone());
        format!("{}, {models}", machine(setting))
    }),
    ("seconds", |setting| format!("{:.0}", setting.seconds())),
];

/// Of memory pressure.
const PRESSURE: &[Part] = &[
    ("memory", |setting| {
        format!("{:.0} MiB", setting.memory_mib())
    }),
    ("vm.min_free_kbytes", |setting| {
        let own = value(&setting.scenario.machine.min_free_kib).unwrap_or(0.0);
        format!("{:.0}", own + setting.small_zones_kib())
    }),
    ("vm.swappiness", |setting| {
        value(&setting.scenario.machine.swappiness).map_or("60".into(), |own| own.to_string())
    }),
    ("dirty limits", |setting| {
        let machine = &setting.scenario.machine;
        let limit = |mib, percent| match (value(mib), value(percent)) {
            (Some(mib), _) => format!("{mib} MiB"),
            (_, percent) => format!("{} %", percent.unwrap_or(0_u8)),
        };
        let dirty = limit(&machine.dirty_mib, &machine.dirty_percent);
        let background = limit(&machine.background_mib, &machine.background_percent);
        format!("{dirty}, {background}")
    }),
    ("vm.watermark_scale_factor", |setting| {
        let own = value(&setting.scenario.machine.watermark_scale_factor);
        own.unwrap_or(10).to_string()
    }),
    ("vm.zone_reclaim_mode", |setting| {
        let columns = &mut setting.scenario.columns.iter();
        let is_on = columns.any(|column| column.place.is_some());
        u8::from(is_on).to_string()
    }),
    ("vm.watermark_boost_factor", |setting| {
        let columns = &mut setting.scenario.columns.iter();
        let boost = columns.find_map(|column| value(&column.boost_factor));
        boost.map_or(String::new(), |boost| boost.to_string())
    }),
    ("huge pages", |setting| {
        let always = value(&setting.scenario.machine.thp) == Some(true);
        String::from(if always { "always" } else { "never" })
    }),
    ("defrag", |setting| {
        let columns = &mut setting.scenario.columns.iter();
        let defrag = columns.find_map(|column| value(&column.defrag));
        defrag.map_or(String::new(), |defrag| format!("{defrag:?}"))
    }),
    ("disks", |setting| numbers(&setting.rates(), " MiB/s")),
    ("file system", |setting| {
        let files = setting.scenario.devices.iter().map(fs);
        let files = files.filter(|fs| *fs != "bare");
        files.collect::<Vec<_>>().join(" + ")
    }),
    ("machine", |setting| {
        let nodes = setting.scenario.machine.node.len().max(1);
        format!("{}, {nodes} nodes", machine(setting))
    }),
    ("seconds", |setting| format!("{:.0}", setting.seconds())),
];

/// In what two settings differ, in words, one per part.
#[must_use]
pub fn differences(one: &Setting, other: &Setting) -> Vec<String> {
    let mut all = Vec::new();
    let same_disks = ids(one) == ids(other);
    let has_marks = one.kind.has_marks;
    let parts = if has_marks { PRESSURE } else { THROTTLING };
    for (name, of) in parts {
        let (before, after) = (of(one), of(other));
        // A disk more is one that a worker more uses; what was not told is no difference.
        let counts = match *name {
            "disks" => same_disks,
            _ => !has_marks || !before.is_empty() && !after.is_empty(),
        };
        if before != after && counts {
            all.push(format!("{name} {before} -> {after}"));
        }
    }
    if has_marks {
        all.extend(workers(one, other));
    }
    all
}

/// In what workers differ: how many there are of each kind, what they do, what hogs touch.
fn workers(one: &Setting, other: &Setting) -> Vec<String> {
    let mut all = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for task in one.scenario.tasks.iter().chain(&other.scenario.tasks) {
        let kind = task.kind.get_ref().name();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let of = |setting: &'_ Setting| -> Vec<TaskEntry> {
            let own = setting.scenario.tasks.iter();
            let own = own.filter(|task| task.kind.get_ref().name() == kind);
            own.cloned().collect()
        };
        let (before, after) = (of(one), of(other));
        if before.len() != after.len() {
            all.push(format!("{kind}s {} -> {}", before.len(), after.len()));
        }
        let touched = |tasks: &[TaskEntry]| -> f64 {
            tasks.iter().map(|task| task.amount("region_mib")).sum()
        };
        if kind == "hog" {
            // Many hogs each touch less; where several share it, some MiB are left over.
            let (one, two) = (touched(&before), touched(&after));
            if one > 0.0 && two > 0.0 && (one / two - 1.0).abs() > 0.02 {
                all.push(format!("MiB that hogs touch {one:.0} -> {two:.0}"));
            }
        } else if before
            .iter()
            .zip(&after)
            .any(|(one, two)| work(one) != work(two))
        {
            all.push(format!("{kind}s as they are -> others"));
        }
    }
    all
}

fn ids(setting: &Setting) -> Vec<&str> {
    let devices = setting.scenario.devices.iter();
    devices.map(|device| device.id.get_ref().as_str()).collect()
}

fn devices(setting: &Setting, of: fn(&DeviceEntry) -> String) -> String {
    let all = setting.scenario.devices.iter().map(of);
    let mut all: Vec<String> = all.collect();
    all.dedup();
    all.join(" + ")
}

fn fs(device: &DeviceEntry) -> &str {
    let fs = device.fs.as_ref();
    fs.map_or("none", |fs| fs.get_ref().as_str())
}

fn machine(setting: &Setting) -> String {
    let cpus = setting.scenario.machine.cpus.get_ref();
    let hz = setting.hz().unwrap_or_default();
    format!("{cpus} CPU, {hz} Hz")
}

fn numbers(all: &[f64], unit: &str) -> String {
    let all: Vec<String> = all.iter().map(f64::to_string).collect();
    format!("{}{unit}", all.join(" + "))
}

/// As people read it: no more than a tenth.
fn limits(setting: &Setting) -> String {
    let tenths = |value: f64| (value * 10.0).round() / 10.0;
    let (dirty, background) = setting.limits_mib();
    format!("{}/{} MiB", tenths(dirty), tenths(background))
}

/// The work of a task, whatever its name.
fn work(task: &TaskEntry) -> String {
    let device = task.device.as_ref().map_or("", |device| device.get_ref());
    let numbers = [
        "block_kib",
        "file_mib",
        "region_mib",
        "every_ms",
        "below_mib",
        "loops",
    ]
    .map(|key| task.amount(key).to_string());
    let passes = task.text("passes").map_or("", |text| text.get_ref());
    let others = ["file_kib", "files_per_loop"].map(|key| task.amount(key).to_string());
    format!(
        "{device} {} {} {passes} {}",
        start_s(task),
        numbers.join(" "),
        others.join(" ")
    )
}

/// Writers, in words: alike ones together.
fn crowd(tasks: Vec<&TaskEntry>) -> String {
    let one = |task: &&TaskEntry| {
        let kib = task.key("block_kib").map_or(0.0, |kib| kib.into_inner());
        let mut text = format!("{kib} KiB");
        if !is_heavy(task) {
            text.push_str(&format!(" every {} ms", task.amount("every_ms")));
        }
        if start_s(task) > 0.0 {
            text.push_str(&format!(" from {} s", start_s(task)));
        }
        let device = task.device.as_ref().map_or("", |device| device.get_ref());
        if !device.ends_with("-0") {
            text.push_str(&format!(" on {device}"));
        }
        text
    };
    let all: Vec<String> = tasks.iter().map(one).collect();
    let alike = all.chunk_by(|one, other| one == other);
    let alike: Vec<String> = alike
        .map(|alike| format!("{} x {}", alike.len(), alike[0]))
        .collect();
    alike.join(" + ")
}
