//! The differences of two settings: the keys of their scenarios that have other values. Keys that
//! say one thing together are one part; keys that follow from others are none.

use std::collections::BTreeMap;

use toml_edit::{Item, TableLike, Value};

use super::setting::{Setting, number};

/// Values of a key, one a table that has it.
type Keys = BTreeMap<String, Vec<String>>;

/// The part that a key is of.
fn part_of(key: &str, has_marks: bool) -> Option<&str> {
    match key {
        "machine.dirty_mib"
        | "machine.dirty_percent"
        | "machine.background_mib"
        | "machine.background_percent" => Some("limits"),
        "machine.cpus" | "machine.preempt_hz" | "machine.nodes" | "column.hz" | "device.model" => {
            Some("machine")
        }
        "device.strict" | "device.max_percent" => Some("strict limit"),
        "device.rate_mib" | "device.change" | "device.fs" | "seconds" => Some(key),
        "column.place" | "column.boost_factor" | "column.cpu_lists_part" | "column.defrag" => {
            Some(key)
        }
        // Memory to spare is no part of dirty throttling.
        "machine.memory_mib" | "machine.min_free_kib" if has_marks => Some(key),
        "machine.swappiness" | "machine.watermark_scale_factor" | "machine.thp" => Some(key),
        _ => None,
    }
}

/// In what two settings of one kind differ, in words, one per part.
#[must_use]
pub fn differences(one: &Setting, other: &Setting) -> Vec<String> {
    let has_marks = one.kind.has_marks;
    let (before, after) = (keys(one), keys(other));
    let mut parts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let is_new = |key: &&String| !before.contains_key(*key);
    for key in before.keys().chain(after.keys().filter(is_new)) {
        let values = |keys: &Keys| keys.get(key).map_or("none".into(), |own| own.join(" + "));
        let (from, to) = (values(&before), values(&after));
        let Some(part) = part_of(key, has_marks).filter(|_| from != to) else {
            continue;
        };
        let counts = match key.as_str() {
            // A disk more is one that a worker more uses.
            "device.rate_mib" => !has_marks || before["device.id"] == after["device.id"],
            // A boost that was not told is no difference.
            "column.boost_factor" => from != "none" && to != "none",
            _ => true,
        };
        if counts {
            let name = key.rsplit('.').next().unwrap_or(key);
            let words = parts.entry(part).or_default();
            words.push(format!("{name} {from} -> {to}"));
        }
    }
    let parts = parts.into_values().map(|words| words.join(", "));
    let mut all: Vec<String> = parts.collect();
    all.extend(tasks(one, other));
    all
}

/// The keys of a scenario's tables but for its tasks.
fn keys(setting: &Setting) -> Keys {
    let mut all = Keys::new();
    let mut put = |key: String, value: String| {
        let values: &mut Vec<String> = all.entry(key).or_default();
        // Disks that are alike say it once.
        if values.last() != Some(&value) {
            values.push(value);
        }
    };
    let mut take = |name: &str, table: &dyn TableLike| {
        for (key, item) in table.iter() {
            let value = shown(item);
            // A disk without a file system is not told from one that is not there.
            if !(setting.kind.has_marks && key == "fs" && value == "bare") {
                put(format!("{name}.{key}"), value);
            }
        }
    };
    if let Some(machine) = setting.document["machine"].as_table_like() {
        take("machine", machine);
    }
    for list in ["device", "column"] {
        let tables = setting.document[list].as_array_of_tables();
        let tables = tables.into_iter().flatten();
        for table in tables.filter(|table| list == "device" || table.contains_key("hz")) {
            take(list, table);
        }
    }
    let nodes = setting.scenario.machine.node.len().max(1);
    put("machine.nodes".into(), nodes.to_string());
    put("seconds".into(), format!("{:.0}", setting.seconds()));
    let rates: Vec<String> = setting.rates().iter().map(f64::to_string).collect();
    all.insert("device.rate_mib".into(), rates);
    all
}

/// A value as people read it: no more of a number than thousandths.
fn shown(item: &Item) -> String {
    match item.as_value() {
        Some(Value::String(text)) => text.value().clone(),
        Some(value @ (Value::Integer(_) | Value::Float(_))) => {
            let thousandths = (number(value) * 1e3).round() / 1e3;
            thousandths.to_string()
        }
        _ => item.to_string().trim().to_owned(),
    }
}

/// The differences of tasks: all together, where they only write; else their number of each kind,
/// their work, the memory that hogs touch.
fn tasks(one: &Setting, other: &Setting) -> Vec<String> {
    let (before, after) = (works(one), works(other));
    let mut all = Vec::new();
    let none = Vec::new();
    let mut kinds: Vec<&String> = before.keys().chain(after.keys()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let [own, others] = [&before, &after].map(|works| works.get(kind).unwrap_or(&none));
        let alike = own.iter().zip(others).all(|(one, other)| one == other);
        let counts = own.len() != others.len();
        if !one.kind.has_marks {
            if counts || !alike {
                all.push(format!("{kind} {} -> {}", crowd(own), crowd(others)));
            }
            continue;
        }
        if counts {
            all.push(format!("{kind} {} -> {}", own.len(), others.len()));
        }
        if !alike {
            all.push(format!("{kind} as they are -> others"));
        }
    }
    let touched = |setting: &Setting| -> f64 {
        let tasks = setting.scenario.tasks.iter();
        let hogs = tasks.filter(|task| task.kind.get_ref().name() == "hog");
        hogs.map(|task| task.amount("region_mib")).sum()
    };
    // Where several hogs share it, some MiB are left over.
    let (from, to) = (touched(one), touched(other));
    if from > 0.0 && to > 0.0 && (from / to - 1.0).abs() > 0.02 {
        all.push(format!("MiB that hogs touch {from:.0} -> {to:.0}"));
    }
    all
}

/// The work of the tasks of each kind, whatever their names.
fn works(setting: &Setting) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in setting.document["task"]
        .as_array_of_tables()
        .into_iter()
        .flatten()
    {
        let kind = shown(&task["kind"]);
        let is_work = |key: &str| {
            let of_hogs = kind == "hog" && key == "region_mib";
            !of_hogs && !["id", "kind", "run_s"].contains(&key)
        };
        let keys = task.iter().filter(|(key, _)| is_work(key));
        let keys = keys.map(|(key, item)| format!("{key} {}", shown(item)));
        let keys = keys
            .filter(|key| !["start_s 0", "file_mib 1048576", "device device-0"].contains(&&**key));
        let work = keys.collect::<Vec<_>>().join(", ");
        all.entry(kind).or_default().push(work);
    }
    all
}

/// Works, alike ones together.
fn crowd(works: &[String]) -> String {
    let alike = works.chunk_by(|one, other| one == other);
    let alike = alike.map(|alike| format!("{} x ({})", alike.len(), alike[0]));
    alike.collect::<Vec<_>>().join(" + ")
}
