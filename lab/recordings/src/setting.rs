//! The setting of a recording: the scenario that lies beside its tables (`scenario.toml`), and what
//! a change has to know of the machine beyond it. Changes are made to its text, which is then
//! loaded and checked like any scenario's.
//!
//! Invariant: `scenario` is what `document` says.

use std::path::Path;

use experiment::keys::value;
use experiment::scenario::{
    DeviceEntry, LoadError, Mistakes, Scenario, Source, TaskEntry, drop_twin, settle_limits,
};
use serde_json::Value as Json;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

use super::fault::Fault;
use super::kind::Kind;
use super::rows;

/// The name of a recording's scenario.
pub const FILE: &str = "scenario.toml";
/// The list of columns in a scenario.
pub(super) const COLUMN_LIST: &str = "column";
/// From this part of freerun on, writers were being held when the recording began.
pub(super) const HELD: f64 = 0.9;
/// Ticks a second of a null_blk's budget.
const TICKS: f64 = 50.0;

/// The circumstances of a recording.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its kind.
    pub kind: &'static Kind,
    /// The scenario.
    pub scenario: Scenario,
    /// Dirty and under writeback when the recording begins, MiB.
    pub begins_mib: f64,
    /// Of the memory, what no file can have, MiB; `None`: the recording tells nothing of its
    /// memory.
    pub(super) kept_mib: Option<f64>,
    pub(super) document: DocumentMut,
    origin: String,
    facts: Facts,
}

/// The words of a machine about itself (`facts.json`): numbers by name.
#[derive(Clone, Debug, Default)]
struct Facts(serde_json::Map<String, Json>);

impl Facts {
    fn read(folder: &Path) -> Self {
        let text = rows::find(folder, "facts.json").and_then(|path| rows::text(&path).ok());
        let facts = text.and_then(|text| serde_json::from_str(&text).ok());
        Self(facts.unwrap_or_default())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A number, or the one that a text begins with.
    fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            Json::Number(number) => number.as_f64(),
            Json::String(text) => text.split_whitespace().next()?.parse().ok(),
            _ => None,
        }
    }
}

impl Setting {
    /// The setting of a folder of tables.
    ///
    /// # Errors
    /// There is no scenario, or it has a mistake.
    pub(super) fn of_folder(kind: &'static Kind, folder: &Path) -> Result<Self, Fault> {
        let path = rows::need(folder, FILE, kind.folder)?;
        let mut setting = Self::of_text(kind, &path, &rows::text(&path)?)?;
        setting.facts = Facts::read(folder);
        let files = setting.facts.number("MemAvailable");
        let kept = |kib: f64| (setting.memory_mib() - kib / 1024.0).max(0.0);
        setting.kept_mib = Some(files.map_or(0.0, kept));
        Ok(setting)
    }

    /// The same of a scenario's text that lies at `path`, or was made of what does.
    ///
    /// # Errors
    /// It has a mistake.
    pub(super) fn of_text(kind: &'static Kind, path: &Path, text: &str) -> Result<Self, Fault> {
        let origin = path.display().to_string();
        let scenario = load(&origin, text).map_err(|error| Fault::of_scenario(path, &error))?;
        let mut document: DocumentMut = text.parse().expect("a scenario that was loaded is TOML");
        if let Some(columns) = document.remove("policy") {
            document.insert(COLUMN_LIST, columns);
        }
        // Tables that are written in a line are tables all the same.
        for (_, item) in document.as_table_mut().iter_mut() {
            let table = core::mem::take(item);
            let table = if table.is_array() {
                table.into_array_of_tables().map(Item::ArrayOfTables)
            } else {
                table.into_table().map(Item::Table)
            };
            *item = table.unwrap_or_else(|item| item);
        }
        let setting = Self {
            kind,
            scenario,
            begins_mib: 0.0,
            kept_mib: None,
            document,
            origin,
            facts: Facts::default(),
        };
        if setting.seconds() < 1.0 {
            let title = "the scenario does not say for how long it was recorded";
            let help = "give each task its `run_s`, of a second at the least";
            return Err(Fault::of(path, title, help));
        }
        Ok(setting)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.scenario.name.get_ref()
    }

    /// One line about it.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.scenario.title
    }

    /// A note of the kernel that was recorded, where `columns` are of others: each that is of a
    /// kernel's line bears its name. None where the recording does not tell its kernel.
    #[must_use]
    pub fn another_kernel(&self, columns: &[&str]) -> Option<String> {
        let kernel = self.facts.text("kernel")?;
        let line = |version: &str| {
            let mut parts = version.split(['.', '-', '+']);
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        };
        let mut others = columns.iter().filter(|column| {
            let of = column.strip_prefix("linux-").and_then(line);
            of.is_some_and(|of| Some(of) != line(kernel))
        });
        let first = others.next()?;
        let others = others.fold(first.to_string(), |all, one| format!("{all}, {one}"));
        Some(format!(
            "Linux {kernel} was recorded; {others} stands for another kernel, and what differs may be the kernels' own"
        ))
    }

    /// The time of the recording.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let end = |task: &TaskEntry| start_s(task) + value(&task.run_s).unwrap_or(0.0);
        self.scenario.tasks.iter().map(end).fold(0.0, f64::max)
    }

    /// All memory, MiB.
    #[must_use]
    pub fn memory_mib(&self) -> f64 {
        *self.scenario.machine.memory_mib.get_ref()
    }

    /// The memory that programs and files can have, MiB.
    #[must_use]
    pub fn usable_mib(&self) -> f64 {
        let reserved = value(&self.scenario.machine.reserved_percent).unwrap_or(0.0);
        self.memory_mib() * (1.0 - reserved / 100.0)
    }

    /// The dirty limit and the background limit, MiB.
    #[must_use]
    pub fn limits_mib(&self) -> (f64, f64) {
        let machine = &self.scenario.machine;
        let limit = |mib, percent, or| {
            let part = f64::from(value(percent).unwrap_or(or)) / 100.0;
            value(mib).unwrap_or(part * self.usable_mib())
        };
        (
            limit(&machine.dirty_mib, &machine.dirty_percent, 20),
            limit(&machine.background_mib, &machine.background_percent, 10),
        )
    }

    /// Dirty memory up to which writers are not held, MiB.
    pub(super) fn freerun_mib(&self) -> f64 {
        let (dirty, background) = self.limits_mib();
        f64::midpoint(dirty, background)
    }

    /// Ticks a second of the recorded kernel.
    #[must_use]
    pub fn hz(&self) -> Option<u32> {
        let columns = self.scenario.columns.iter();
        columns.filter_map(|column| value(&column.hz)).next()
    }

    /// The rate of each device, MiB/s.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        let devices = self.scenario.devices.iter();
        let rates = devices.map(|device| value(&device.rate_mib).unwrap_or(0.0));
        rates.collect()
    }

    /// Gives it another name.
    pub(super) fn rename(&mut self, name: &str) {
        let named = self.change(|setting| {
            setting.document["name"] = toml_edit::value(name);
            Ok(())
        });
        named.expect("a name that is plain");
    }

    /// Changes its text, and loads it again.
    ///
    /// # Errors
    /// The change fits nowhere, or the scenario would be impossible: then nothing is changed.
    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut changed = self.clone();
        change(&mut changed)?;
        settle_limits(&mut changed.document);
        let text = changed.document.to_string();
        changed.scenario = load(&self.origin, &text).map_err(|error| in_words(&error))?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// Puts a value into the table at `path` (`machine.swappiness`, `device.N.rate_mib`), `number`
    /// being that in the path.
    ///
    /// # Errors
    /// There is no such table.
    pub(super) fn put(&mut self, path: &str, number: usize, put: f64) -> Result<(), String> {
        let (list, key) = path.rsplit_once('.').unwrap_or(("", path));
        let table = match list.split_once('.') {
            None => self.document[list].as_table_mut().ok_or("no such table")?,
            Some((list, _)) => self.entry(list, number)?,
        };
        drop_twin(table, key);
        table.insert(key, Item::Value(number_of(put)));
        Ok(())
    }

    /// The device or the writer of that number, which stands at the end of its id.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn entry(&mut self, list: &str, number: usize) -> Result<&mut Table, String> {
        let all = tables(&mut self.document, list);
        let numbers: Vec<&str> = all.iter().map(number_in).collect();
        let number = number.to_string();
        let Some(at) = numbers.iter().position(|own| *own == number) else {
            let what = if list == "task" { "writer" } else { list };
            let numbers = numbers.join(", ");
            return Err(format!("there is no {what} {number}; allowed: {numbers}"));
        };
        Ok(all.get_mut(at).expect("it was found"))
    }

    /// The level at the begin, where writers were held at it under the limits `before`: these would
    /// have held them at another. The way from one to the other is not what is asked for.
    pub(super) fn hold(&mut self, before: &Self) {
        if before.begins_mib >= HELD * before.freerun_mib() {
            self.begins_mib *= self.freerun_mib() / before.freerun_mib();
        }
    }

    /// Sets the size of the memory. The memory of programs and files grows or shrinks by the
    /// difference, in each node alike.
    pub(super) fn set_memory(&mut self, mib: f64) -> Result<(), String> {
        let (before, usable) = (self.memory_mib(), self.usable_mib());
        let more = mib - before;
        self.put("machine.memory_mib", 0, mib)?;
        self.kept_mib.get_or_insert(0.0);
        if usable < before {
            let reserved = 100.0 * (1.0 - (usable + more) / mib);
            self.put("machine.reserved_percent", 0, reserved)?;
        }
        let count = self.scenario.machine.node.len();
        let each = more / experiment::stats::count(count.max(1));
        for node in self.nodes() {
            let own = node.get("mib").map_or(0.0, number) * usable / before;
            node.insert("mib", number_of((own + each) / (usable + more) * mib));
        }
        Ok(())
    }

    /// Another number of CPUs, all on the first node.
    pub(super) fn set_cpus(&mut self, cpus: f64) -> Result<(), String> {
        if let Some(first) = self.nodes().next() {
            first.insert("cpus", number_of(cpus));
        }
        self.put("machine.cpus", 0, cpus)
    }

    fn nodes(&mut self) -> impl Iterator<Item = &mut InlineTable> {
        let nodes = self.document["machine"].get_mut("node");
        let nodes = nodes.and_then(Item::as_array_mut).into_iter();
        nodes.flat_map(|nodes| nodes.iter_mut().filter_map(Value::as_inline_table_mut))
    }

    /// A percentage of the memory that files can have, MiB.
    ///
    /// # Errors
    /// The recording tells nothing of its memory.
    pub(super) fn part(&self, key: &str, percent: f64) -> Result<f64, String> {
        let kept = self.kept_mib.ok_or_else(|| {
            format!(
                "{key} is a part of the memory, and the recording does not tell that; state it with \
                 --given memory_mib=..., or ask in bytes: vm.dirty_bytes, vm.dirty_background_bytes"
            )
        })?;
        if !(1.0..=100.0).contains(&percent) {
            return Err(format!("`{percent}` is out of range; allowed: 1 to 100 %"));
        }
        // Whole pages, as the kernel counts them.
        let memory = self.document["machine"].as_table();
        let memory = memory.map_or(0.0, |machine| number_at(machine, "memory_mib"));
        Ok(((memory - kept) * percent / 100.0 * 256.0).floor() / 256.0)
    }

    /// The part of `vm.min_free_kbytes` that small zones keep, which are none of the lab's memory.
    pub(super) fn small_zones_kib(&self) -> f64 {
        let own = value(&self.scenario.machine.min_free_kib);
        let all = self.facts.number("vm.min_free_kbytes");
        all.zip(own).map_or(0.0, |(all, own)| all - own)
    }

    /// Pages of zones below the largest of a node, or of all nodes, that no program gets: their
    /// MIN, and a part kept from requests that could have other memory. They are free, and no part
    /// of the memory that the lab has.
    ///
    /// # Source
    /// Linux 6.12 mm/page_alloc.c, setup_per_zone_lowmem_reserve(), __zone_watermark_ok().
    pub(super) fn kept_free(&self, node: Option<usize>) -> f64 {
        let zones = self.facts.0.get("zones_pages").and_then(Json::as_object);
        let zones = zones.into_iter().flatten();
        let pages = |zone: &Json, name: &str| zone[name].as_f64().unwrap_or(0.0);
        let ratio = self.facts.number("vm.lowmem_reserve_ratio").unwrap_or(0.0);
        let of = |name: &str| name.split('.').next().map(str::to_owned);
        let kept = |(name, zone): (&String, &Json)| {
            let managed = pages(zone, "managed");
            let own = zones.clone().filter(|(other, _)| of(other) == of(name));
            let largest = own
                .map(|(_, zone)| pages(zone, "managed"))
                .fold(0.0, f64::max);
            let reserve = if ratio > 0.0 {
                (largest / ratio).floor()
            } else {
                0.0
            };
            let kept = (reserve + pages(zone, "min")).min(managed);
            if managed < largest { kept } else { 0.0 }
        };
        let node = node.map(|node| format!("node{node}"));
        let here = |(name, _): &(&String, &Json)| node.is_none() || of(name) == node;
        zones.clone().filter(here).map(kept).sum()
    }

    /// The file system of a disk, and the blocks that it has in a page: made with nothing said of
    /// them, a sector each under vfat; of ext4 1 KiB below 512 MiB (mke2fs.conf, `small`), and a
    /// page above. Those of a disk are pages (Linux 6.12 block/bdev.c, set_init_blocksize()).
    pub(super) fn set_fs(&mut self, disk: usize, fs: &str) -> Result<(), String> {
        let mib = self.facts.number(&format!("nullb{disk}.null_blk.size"));
        let blocks = match fs {
            "bare" => 1,
            "vfat" => 8,
            "ext4" if mib.is_some_and(|mib| mib < 512.0) => 4,
            "ext4" => 1,
            other => return Err(format!("`{other}` is none of bare, ext4, vfat")),
        };
        let table = self.entry("device", disk)?;
        table.insert("fs", toml_edit::value(fs));
        table.remove("blocks_a_page");
        if blocks > 1 {
            table.insert("blocks_a_page", toml_edit::value(blocks));
        }
        let machine = &mut self.document["machine"];
        let costs = machine.get("costs").and_then(Item::as_str);
        if costs.is_none() && fs != "bare" {
            machine["costs"] = toml_edit::value("guest");
        }
        Ok(())
    }

    /// Checks that every request goes out: one that the budget of a tick does not hold never does.
    fn check(&self) -> Result<(), String> {
        for device in self.scenario.devices.iter().filter(|_| self.kind.has_marks) {
            let request = device.params.iter();
            let request = request.filter(|(name, _)| name.get_ref() == "request_max_bytes");
            let bytes: u32 = request
                .map(|(_, bytes)| u32::try_from(*bytes.get_ref()).unwrap_or(u32::MAX))
                .sum();
            let least = f64::from(bytes) * TICKS / 1_048_576.0;
            let rate = value(&device.rate_mib).filter(|rate| *rate > 0.0);
            if let Some(rate) = rate.filter(|rate| *rate < least) {
                return Err(format!(
                    "{}: {rate} MiB/s is less than a request in a tick of 20 ms; allowed: {least} and more",
                    device.id.get_ref()
                ));
            }
        }
        if self.scenario.tasks.is_empty() {
            return Err("nobody is left to work; allowed: 1 worker and more".into());
        }
        Ok(())
    }
}

/// The start of a task, in seconds.
pub(super) fn start_s(task: &TaskEntry) -> f64 {
    value(&task.start_s).unwrap_or(0.0)
}

/// The rates of a device, with the time of each.
pub(super) fn changes(device: &DeviceEntry) -> Vec<(f64, f64)> {
    let changes = device.change.iter();
    let changes = changes.map(|change| (*change.at_s.get_ref(), *change.rate_mib.get_ref()));
    changes.collect()
}

/// True of a writer that writes as fast as it may.
pub(super) fn is_heavy(task: &TaskEntry) -> bool {
    task.key("every_ms").is_none()
}

fn load(origin: &str, text: &str) -> Result<Scenario, Mistakes> {
    let source = Source {
        origin: origin.to_owned(),
        text: text.to_owned(),
    };
    match Scenario::load(source, &[]) {
        Ok((scenario, _)) => Ok(scenario),
        Err(LoadError::Mistakes(mistakes)) => Err(mistakes),
        Err(LoadError::Override(_)) => unreachable!("nothing is overridden"),
    }
}

/// The first mistake, in a line.
fn in_words(mistakes: &Mistakes) -> String {
    let first = &mistakes.list[0];
    format!(
        "{}; {}",
        first.title,
        first.help.as_ref().unwrap_or(&first.label)
    )
}

/// A list of tables of the document; an empty one where there is none.
pub(super) fn tables<'a>(document: &'a mut DocumentMut, list: &str) -> &'a mut ArrayOfTables {
    let item = document.entry(list).or_insert_with(toml_edit::array);
    item.as_array_of_tables_mut()
        .expect("a scenario's list has tables")
}

/// The text of a key.
pub(super) fn text<'a>(table: &'a Table, key: &str) -> &'a str {
    table.get(key).and_then(Item::as_str).unwrap_or("")
}

/// The number at the end of a table's id.
fn number_in(table: &Table) -> &str {
    let id = text(table, "id");
    let name = id.trim_end_matches(|c: char| c.is_ascii_digit());
    &id[name.len()..]
}

/// A value of TOML as a number; zero, if it is none.
pub(super) fn number(value: &Value) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "sizes and counts are small")]
    let whole = value.as_integer().map(|whole| whole as f64);
    value.as_float().or(whole).unwrap_or(0.0)
}

/// The number of a key; zero without it.
pub(super) fn number_at(table: &Table, key: &str) -> f64 {
    table.get(key).and_then(Item::as_value).map_or(0.0, number)
}

/// A number as a value of TOML: whole ones have no point.
#[expect(clippy::cast_possible_truncation, reason = "whole and small")]
pub(super) fn number_of(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}
