//! The checks that types cannot make: ranges, names that must exist, sizes that must fit.

mod memory;
mod nodes;
mod runs;
mod small;

use std::collections::BTreeSet;

use toml::Spanned;

use super::parse::parse;
use super::{
    ALL, ColumnEntry, CompareKind, CountersEntry, DeviceEntry, ExpectEntry, RowEntry, SAMPLED,
    SCHEMA, Scenario, TaskEntry, is_plain,
};
use crate::catalogue;
use crate::experiments;
use crate::keys::{Allowed, value};
use crate::limits::{MEMORY_LEAST_MIB, RATE};
use crate::mistake::Mistake;
use crate::presets::PRESETS;
use crate::task::{Around, Ends};

/// Parts of the full size that a scenario can be run at.
const SCALES: core::ops::RangeInclusive<f64> = 1.0 / 64.0..=1.0;
/// The file system that has a journal in the lab.
const JOURNALLED: &str = "ext4";
/// All mistakes of the scenario, those of its values among them.
pub(super) fn check(scenario: &Scenario, values: Vec<Mistake>) -> Vec<Mistake> {
    let mut checker = Checker { list: values };
    checker.run_section(scenario);
    checker.machine(scenario);
    checker.devices(scenario);
    for task in &scenario.tasks {
        checker.task(scenario, task);
    }
    checker.object_caches(scenario);
    checker.small_files(scenario);
    checker.rows(scenario);
    checker.columns(&scenario.columns);
    for entry in &scenario.published {
        checker.row(scenario, &entry.row);
        checker.column(scenario, &entry.column);
    }
    for entry in &scenario.counters {
        checker.counters(scenario, entry);
    }
    for delays in &scenario.delays {
        checker.column(scenario, &delays.column);
    }
    for expect in &scenario.expects {
        checker.expect(scenario, expect);
    }
    checker.reproduce(scenario);
    checker.list.sort_by_key(|mistake| mistake.span.start);
    checker.list
}

struct Checker {
    list: Vec<Mistake>,
}

impl Checker {
    fn range(&mut self, key: &str, value: &Spanned<f64>, least: f64, most: f64, unit: &str) {
        self.list
            .extend(Mistake::range(key, value, least, most, unit));
    }

    fn known<'a>(
        &mut self,
        what: &str,
        value: &Spanned<String>,
        allowed: impl IntoIterator<Item = &'a str> + Clone,
    ) {
        self.list.extend(Mistake::unknown(what, value, allowed));
    }

    fn unique<'a>(&mut self, what: &str, names: impl IntoIterator<Item = &'a Spanned<String>>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if name.get_ref().is_empty() {
                self.list.push(Mistake::new(
                    format!("empty {what}"),
                    name.span(),
                    "needs a name",
                ));
            }
            if !name.get_ref().chars().all(is_plain) {
                self.list.push(
                    Mistake::new(
                        format!(
                            "the {what} `{}` cannot stand in tables and names of files",
                            name.get_ref()
                        ),
                        name.span(),
                        "letters, digits, -, _, . and +",
                    )
                    .help("use letters, digits, -, _, . and + only"),
                );
            }
            if !seen.insert(name.get_ref()) {
                self.list.push(Mistake::new(
                    format!("two of the same {what} `{}`", name.get_ref()),
                    name.span(),
                    "the second one",
                ));
            }
        }
    }

    fn run_section(&mut self, scenario: &Scenario) {
        if scenario.schema.get_ref() != SCHEMA {
            self.list.push(
                Mistake::new(
                    format!("unknown schema `{}`", scenario.schema.get_ref()),
                    scenario.schema.span(),
                    "this program does not read it",
                )
                .help(format!("write schema = \"{SCHEMA}\"")),
            );
        }
        let name = scenario.name.get_ref();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            self.list.push(
                Mistake::new(
                    format!("the name `{name}` cannot name a folder"),
                    scenario.name.span(),
                    "letters, digits, - and _",
                )
                .help("use letters, digits, - and _ only"),
            );
        }
        self.scale(&scenario.run.scale);
    }

    fn machine(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        let memory = *machine.memory_mib.get_ref();
        let scaled = memory * scenario.run.scale.get_ref();
        let is_scale = SCALES.contains(scenario.run.scale.get_ref());
        if is_scale && memory >= MEMORY_LEAST_MIB && scaled < MEMORY_LEAST_MIB {
            self.list.push(
                Mistake::new(
                    format!("scaled down, the memory is only {scaled} MiB"),
                    machine.memory_mib.span(),
                    format!("times the scale must be at least {MEMORY_LEAST_MIB} MiB"),
                )
                .also(scenario.run.scale.span(), "the scale")
                .help("raise memory_mib or scale"),
            );
        }
        for (key, limit) in [
            ("dirty_mib", &machine.dirty_mib),
            ("background_mib", &machine.background_mib),
        ] {
            let Some(limit) = limit else { continue };
            if *limit.get_ref() > memory {
                self.list.push(
                    Mistake::new(
                        format!(
                            "`{key}` exceeds the memory: {} > {memory} MiB",
                            limit.get_ref()
                        ),
                        limit.span(),
                        "more than there is",
                    )
                    .also(machine.memory_mib.span(), "the memory")
                    .help("lower the limit, or raise memory_mib"),
                );
            }
        }
        for (mib, percent, keys) in [
            (
                &machine.dirty_mib,
                &machine.dirty_percent,
                ["dirty_mib", "dirty_percent"],
            ),
            (
                &machine.background_mib,
                &machine.background_percent,
                ["background_mib", "background_percent"],
            ),
        ] {
            if let (Some(mib), Some(percent)) = (mib, percent) {
                let [in_mib, in_percent] = keys;
                self.list.push(
                    Mistake::new(
                        format!("`{in_mib}` and `{in_percent}` are both given"),
                        mib.span(),
                        "one limit, said twice",
                    )
                    .also(percent.span(), "the other")
                    .help(format!("keep `{in_mib}` or `{in_percent}`, not both")),
                );
            }
        }
        self.reclaim_of_machine(scenario);
        self.nodes(scenario);
        self.runs_of_machine(scenario);
        for row in scenario.rows() {
            self.background_below_dirty(scenario, &row);
        }
    }

    /// The limits of a row: the scenario's, or its own.
    fn background_below_dirty(&mut self, scenario: &Scenario, row: &RowEntry) {
        let machine = &scenario.machine;
        let memory = *machine.memory_mib.get_ref();
        if let Some(dirty) = &row.dirty_mib
            && *dirty.get_ref() > memory
        {
            self.list.push(
                Mistake::new(
                    format!(
                        "`dirty_mib` exceeds the memory: {} > {memory} MiB",
                        dirty.get_ref()
                    ),
                    dirty.span(),
                    "more than there is",
                )
                .also(machine.memory_mib.span(), "the memory")
                .help("lower the limit, or raise memory_mib"),
            );
        }
        // (MiB, where, as written)
        let limit = |mib: &Option<Spanned<f64>>, percent: &Option<Spanned<u8>>, default: u8| match (
            mib, percent,
        ) {
            (Some(mib), _) => (*mib.get_ref(), Some(mib.span())),
            (None, Some(percent)) => (
                memory * f64::from(*percent.get_ref()) / 100.0,
                Some(percent.span()),
            ),
            (None, None) => (memory * f64::from(default) / 100.0, None),
        };
        let own = |row: &Option<Spanned<f64>>, machine: &Option<Spanned<f64>>| {
            row.clone().or_else(|| machine.clone())
        };
        let dirty_mib = own(&row.dirty_mib, &machine.dirty_mib);
        let background_mib = own(&row.background_mib, &machine.background_mib);
        let (dirty, dirty_at) = limit(&dirty_mib, &machine.dirty_percent, 20);
        let (background, background_at) = limit(&background_mib, &machine.background_percent, 10);
        if background < dirty {
            return;
        }
        let Some(place) = background_at.clone().or_else(|| dirty_at.clone()) else {
            return;
        };
        let mut mistake = Mistake::new(
            format!(
                "the background limit ({background} MiB) is not below the dirty limit ({dirty} MiB)"
            ),
            place,
            "writers would be held before the flusher starts",
        )
        .help("the background limit is usually half of the dirty limit (defaults: 10 % and 20 %)");
        if let (Some(_), Some(at)) = (background_at, dirty_at) {
            mistake = mistake.also(at, "the dirty limit");
        }
        // Rows that share both limits share the mistake.
        if !self.list.contains(&mistake) {
            self.list.push(mistake);
        }
    }

    fn devices(&mut self, scenario: &Scenario) {
        self.unique(
            "device id",
            scenario.devices.iter().map(|device| &device.id),
        );
        for device in &scenario.devices {
            for (name, value) in &device.params {
                let model = device.model.get_ref();
                if let Err(problem) =
                    catalogue::check_param(model, name.get_ref(), *value.get_ref())
                {
                    self.list.push(Mistake::new(
                        format!("this parameter does not fit the model `{model}`"),
                        name.span(),
                        problem,
                    ));
                }
            }
            if let Some(wrap) = &device.wrap
                && let Err(problem) = catalogue::check_wrap(wrap.get_ref())
            {
                self.list.push(
                    Mistake::new("this wrapper cannot be read", wrap.span(), problem)
                        .help("for example: slow:rate=16MB,latency=2ms"),
                );
            }
        }
        for device in &scenario.devices {
            self.rates(scenario, device);
            self.journal(scenario, device);
        }
        if scenario.devices.is_empty() {
            self.list.push(Mistake::new(
                "there is no device",
                scenario.name.span(),
                "needs one",
            ));
        }
        if scenario.tasks.is_empty() {
            self.list.push(Mistake::new(
                "there is no task",
                scenario.name.span(),
                "needs one",
            ));
        }
        self.unique("task id", scenario.tasks.iter().map(|task| &task.id));
    }

    /// A device's rate and its changes.
    fn rates(&mut self, scenario: &Scenario, device: &DeviceEntry) {
        let Some(rate) = &device.rate_mib else {
            if let Some(change) = device.change.first() {
                self.list.push(
                    Mistake::new(
                        "a change of a rate that is not given",
                        change.at_s.span(),
                        "from what?",
                    )
                    .also(device.id.span(), "this device has no `rate_mib`")
                    .help("add `rate_mib = ...` to the device"),
                );
            }
            return;
        };
        let own = (&device.model, scenario.rows.iter());
        let models = own.1.filter_map(|row| row.model.as_ref());
        let first = scenario
            .devices
            .first()
            .is_some_and(|first| first.id == device.id);
        for model in core::iter::once(own.0).chain(models.filter(|_| first)) {
            if let Err(problem) = catalogue::check_rate(model.get_ref()) {
                self.list.push(
                    Mistake::new(
                        format!("the model `{}` does not take this", model.get_ref()),
                        model.span(),
                        problem,
                    )
                    .also(rate.span(), "the rate")
                    .help(
                        "use null, token_bucket or null_blk with `rate_mib`; or `rate_factor` for this \
                         model",
                    ),
                );
            }
        }
        let mut before = 0.0;
        for change in &device.change {
            let at = *change.at_s.get_ref();
            if at <= before {
                self.list.push(
                    Mistake::new(
                        format!("a change at {at} s, not after the one before it"),
                        change.at_s.span(),
                        format!("must be later than {before} s"),
                    )
                    .help("write the changes in order of time"),
                );
            }
            before = at;
            if *change.rate_mib.get_ref() != 0.0
                && let Allowed::Range { least, most, unit } = RATE
            {
                self.range("rate_mib", &change.rate_mib, least, most, unit);
            }
        }
        if let Some(last) = device.change.last()
            && *last.rate_mib.get_ref() == 0.0
        {
            self.list.push(
                Mistake::new(
                    "the device stands still for ever",
                    last.rate_mib.span(),
                    "the last change",
                )
                .help("add a change to a rate above zero: a run ends with a sync of all devices"),
            );
        }
    }

    /// A device's journal: ext4's is the only one there is.
    fn journal(&mut self, scenario: &Scenario, device: &DeviceEntry) {
        let Some(entry) = &device.journal else {
            return;
        };
        if entry.get_ref().table().is_none() {
            return;
        }
        let is_first = scenario
            .devices
            .first()
            .is_some_and(|first| first.id.get_ref() == device.id.get_ref());
        let rows = scenario.rows.iter().filter(|_| is_first);
        let others = device
            .fs
            .iter()
            .chain(rows.filter_map(|row| row.fs.as_ref()));
        let wrong = others.clone().find(|fs| fs.get_ref() != JOURNALLED);
        if device.fs.is_none() || wrong.is_some() {
            let mut mistake = Mistake::new(
                "a journal without its file system",
                entry.span(),
                "only ext4's is known",
            );
            if let Some(wrong) = wrong {
                mistake = mistake.also(wrong.span(), "this one has none in the lab");
            }
            self.list
                .push(mistake.help("add `fs = \"ext4\"` to the device, or leave `journal` out"));
        }
    }

    fn task(&mut self, scenario: &Scenario, task: &TaskEntry) {
        let ids: Vec<&str> = scenario
            .devices
            .iter()
            .map(|device| device.id.get_ref().as_str())
            .collect();
        if let Some(device) = &task.device {
            self.known("device", device, ids.iter().copied());
        }
        if let Some(other) = task.other_device() {
            self.known("device", other, ids.iter().copied());
        }
        self.whole_sectors("block", task.key("block_kib"));
        self.whole_sectors("file", task.key("file_kib"));
        self.keys_of_traits(task);
        self.ends_in_time(scenario, task);
        self.grows(scenario, task);
        let around = Around {
            id: task.id.span(),
            count: value(&task.count).map_or(1.0, f64::from),
            scale: *scenario.run.scale.get_ref(),
            memory_mib: scenario.machine.memory_mib.clone(),
            has_swap: scenario.machine.swap.is_some(),
        };
        self.list.extend(task.kind.get_ref().kind().check(&around));
    }

    fn whole_sectors(&mut self, what: &str, kib: Option<Spanned<f64>>) {
        if let Some(kib) = kib
            && (kib.get_ref() * 2.0).fract() != 0.0
        {
            self.list.push(Mistake::new(
                format!("a {what} of {} KiB is not whole sectors", kib.get_ref()),
                kib.span(),
                "must be a multiple of 0.5 KiB",
            ));
        }
    }

    /// A run is stopped after `max_s`, and has failed: whatever lasts for longer than that fails in
    /// any case. A task that has an amount to do may be done with it before.
    fn ends_in_time(&mut self, scenario: &Scenario, task: &TaskEntry) {
        let longest = &scenario.run.max_s;
        let start = task.start_s.as_ref();
        let run = task.run_s.as_ref();
        let run = run.filter(|_| task.kind.get_ref().traits().ends == Ends::Timed);
        let number = |value: Option<&Spanned<f64>>| value.map_or(0.0, |value| *value.get_ref());
        let end = number(start) + number(run);
        let Some(place) = run.or(start).filter(|_| end > *longest.get_ref()) else {
            return;
        };
        let what = match (start, run) {
            (Some(_), Some(_)) => "`start_s` and `run_s` together are",
            (_, Some(_)) => "`run_s` is",
            (_, None) => "`start_s` is",
        };
        let mut mistake = Mistake::new(
            format!("{what} above `max_s`: {end} > {} s", longest.get_ref()),
            place.span(),
            "every run would be stopped before it has ended, and fail",
        )
        .help(format!(
            "lower it, or give the run longer (`max_s` of `[run]`, --set run.max_s={})",
            (end * 4.0).ceil()
        ));
        // A key that is not given has no place.
        if !longest.span().is_empty() {
            mistake = mistake.also(longest.span(), "the longest run");
        }
        self.list.push(mistake);
    }

    fn rows(&mut self, scenario: &Scenario) {
        self.unique("row name", scenario.rows.iter().map(|row| &row.name));
        for row in &scenario.rows {
            if row.name.get_ref() == ALL && scenario.rows.len() > 1 {
                self.list.push(
                    Mistake::new(
                        format!("a row of several cannot be called `{ALL}`"),
                        row.name.span(),
                        "that is the row of all of them together",
                    )
                    .help("give it another name"),
                );
            }
            self.rate_of_row(scenario, row);
            self.numbers_of_row(scenario, row);
            self.runs_of_row(scenario, row);
            let ids = scenario.tasks.iter().map(|task| task.id.get_ref().as_str());
            for task in &row.tasks {
                self.known("task", task, ids.clone());
            }
        }
        // Sizes that have to fit have to in the one row of a scenario without `[[row]]`, too.
        for row in scenario.rows() {
            self.hogs_of_row(scenario, &row);
            self.regions_of_row(scenario, &row);
            self.maps_of_row(scenario, &row);
            self.pins_of_row(scenario, &row);
        }
    }

    /// A row's rate is of the first device, which must have one to be changed.
    fn rate_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        let Some(rate) = &row.rate_mib else { return };
        if let Some(first) = scenario.devices.first()
            && first.rate_mib.is_none()
        {
            self.list.push(
                Mistake::new(
                    "the first device has no rate to be changed",
                    rate.span(),
                    "`rate_mib` of a row",
                )
                .also(first.id.span(), "this device")
                .help("add `rate_mib = ...` to the device"),
            );
        }
    }

    fn columns(&mut self, columns: &[ColumnEntry]) {
        self.unique("column", columns.iter().map(|column| &column.name));
        for column in columns {
            let preset = column.preset.as_ref().unwrap_or(&column.name);
            if crate::presets::by_name(preset.get_ref()).is_none() {
                self.known("preset", preset, PRESETS.iter().map(|preset| preset.name));
            }
            self.runs_of_column(column);
        }
    }

    /// One over a whole number.
    fn scale(&mut self, entry: &Spanned<f64>) {
        let scale = *entry.get_ref();
        let (least, most) = (*SCALES.start(), *SCALES.end());
        let mistake = Mistake::range("scale", entry, least, most, "");
        let is_part = (2.0..=1.0 / least).contains(&scale) && scale.fract() == 0.0;
        let parts = format!("did you mean {} (1/{scale})?", 1.0 / scale);
        self.list
            .extend(mistake.map(|wrong| if is_part { wrong.help(parts) } else { wrong }));
        let shrink = 1.0 / scale;
        if SCALES.contains(&scale) && (shrink - shrink.round()).abs() > 1e-6 {
            self.list.push(
                Mistake::new(
                    format!("`scale` is not one over a whole number: {scale}"),
                    entry.span(),
                    "devices shrink by whole numbers only",
                )
                .help(format!(
                    "write {} (1/{})",
                    1.0 / shrink.round(),
                    shrink.round()
                )),
            );
        }
    }

    /// Checks the table of `reproduce`.
    fn reproduce(&mut self, scenario: &Scenario) {
        let section = &scenario.reproduce;
        if let Some(scale) = &section.scale {
            self.scale(scale);
        }
        for row in &section.rows {
            self.row(scenario, row);
        }
        for column in &section.columns {
            self.column(scenario, column);
        }
        for column in &section.sides {
            self.column(scenario, column);
        }
        let ids = scenario.expects.iter().map(|one| one.id.get_ref().as_str());
        for left in &section.leaves {
            self.known("claim", left, ids.clone());
        }
        if let (Some(side), false) = (section.sides.last(), [0, 2].contains(&section.sides.len())) {
            let help = "write the column before the paper's change and the one after it";
            let mistake = Mistake::new("`sides` takes two columns", side.span(), "not two");
            self.list.push(mistake.help(help));
        }
    }

    fn row(&mut self, scenario: &Scenario, row: &Spanned<String>) {
        let rows = scenario.rows();
        let names = rows.iter().map(|row| row.name.get_ref().as_str());
        let names: Vec<&str> = names.chain((rows.len() > 1).then_some(ALL)).collect();
        self.known("row", row, names.iter().copied());
    }

    /// The rows and columns of a table of counters; a miss has its cause.
    fn counters(&mut self, scenario: &Scenario, entry: &CountersEntry) {
        self.row(scenario, &entry.row);
        for column in [&entry.column, &entry.before] {
            self.column(scenario, column);
        }
        if let (Some(metric), None) = (entry.missed.first(), &entry.why) {
            let mistake = Mistake::new("a miss without its cause", metric.span(), "`missed`");
            self.list
                .push(mistake.help("say in `why` what was measured"));
        }
    }

    /// A column that a band or a published value is of. A column that is misspelt itself is
    /// the mistake.
    fn column(&mut self, scenario: &Scenario, column: &Spanned<String>) {
        let misspelt = scenario.columns.iter().any(|own| {
            let preset = own.preset.as_ref().unwrap_or(&own.name);
            crate::presets::by_name(preset.get_ref()).is_none()
        });
        if misspelt {
            return;
        }
        let names: Vec<&str> = scenario
            .columns
            .iter()
            .map(|column| column.name.get_ref().as_str())
            .collect();
        self.known("column", column, names.iter().copied());
    }

    /// A band that no check fails for here has to fail one elsewhere.
    fn held_in(&mut self, expect: &ExpectEntry) {
        let Some(name) = &expect.held_in else { return };
        let Some(source) = experiments::by_name(name.get_ref()) else {
            let names = experiments::EXPERIMENTS.iter().map(|(name, _)| *name);
            return self.known("experiment", name, names);
        };
        let holds = |other: &ExpectEntry| {
            other.held_in.is_none() && other.missed.is_none() && other.is_same(expect)
        };
        if !parse(&source).is_ok_and(|(other, _)| other.expects.iter().any(holds)) {
            let help = "it needs a band of this id with the same metric, columns, rows, `min` and `max`, and no `held_in` of its own; or leave `held_in` out";
            self.list.push(
                Mistake::new(
                    format!("`{}` does not hold this band", name.get_ref()),
                    name.span(),
                    "held nowhere",
                )
                .help(help),
            );
        }
    }

    /// The run in which a claim must not hold is another one.
    fn knock_out(&mut self, scenario: &Scenario, expect: &ExpectEntry) {
        let Some(out) = expect.knocked_out() else {
            return;
        };
        if expect.is_same(&out) {
            let what = "a `knock_out` that changes nothing";
            let mistake = Mistake::new(what, expect.id.span(), "the claim itself");
            let help = "name the column or the row in which the claim must not hold";
            self.list.push(mistake.help(help));
            return;
        }
        self.cells(scenario, &out);
    }

    /// The rows and columns that a band compares.
    fn cells(&mut self, scenario: &Scenario, expect: &ExpectEntry) {
        for row in expect.rows.iter().chain(&expect.vs_row) {
            self.row(scenario, row);
        }
        for column in core::iter::once(&expect.column).chain(&expect.vs) {
            self.column(scenario, column);
        }
    }

    fn expect(&mut self, scenario: &Scenario, expect: &ExpectEntry) {
        self.cells(scenario, expect);
        self.knock_out(scenario, expect);
        if let Some(of) = &expect.of {
            let tasks = scenario.tasks.iter().map(|task| task.id.get_ref().as_str());
            let devices = scenario.devices.iter();
            let devices = devices.map(|device| device.id.get_ref().as_str());
            self.known("task or device", of, tasks.chain(devices));
        }
        self.held_in(expect);
        for (key, text) in [("claim", &expect.claim), ("published", &expect.published)] {
            if let Some(text) = text
                && text.get_ref().trim().is_empty()
            {
                let what = format!("`{key}` says nothing");
                self.list.push(
                    Mistake::new(what, text.span(), "empty").help("write it, or leave it out"),
                );
            }
        }
        if let Some(why) = &expect.missed
            && (why.get_ref().trim().is_empty() || expect.held_in.is_some())
        {
            self.list.push(
                Mistake::new("a miss without its cause", why.span(), "`missed`")
                    .help("say in one sentence what was measured; `held_in` does not go with it"),
            );
        }
        let compares = expect.vs.is_some() || expect.vs_row.is_some();
        if (*expect.op.get_ref() == CompareKind::Value) == compares {
            self.list.push(
                Mistake::new("this comparison does not fit", expect.op.span(), "`op`").help(
                    "`value` stands alone; `ratio`, `change_percent` and `chance` need \
                     `vs = \"POLICY\"` or `vs_row = \"CASE\"`",
                ),
            );
        }
        let metric = expect.metric.get_ref();
        if *expect.op.get_ref() == CompareKind::Chance && metric != SAMPLED {
            self.list.push(
                Mistake::new("this comparison does not fit", expect.op.span(), "`op`").help(
                    format!("`chance` compares samples, and `{metric}` has none"),
                ),
            );
        }
        for (key, bound) in [("min", &expect.min), ("max", &expect.max)] {
            if let Some(bound) = bound
                && !bound.get_ref().is_finite()
            {
                self.list.push(
                    Mistake::new(
                        format!("`{key}` is no finite number: {}", bound.get_ref()),
                        bound.span(),
                        "nothing can be compared with it",
                    )
                    .help(format!("write a number, or leave `{key}` out")),
                );
            }
        }
        match (&expect.min, &expect.max) {
            (None, None) => self.list.push(
                Mistake::new(
                    "an expectation without a band",
                    expect.id.span(),
                    "always holds",
                )
                .help("add `min = ...`, `max = ...` or both"),
            ),
            (Some(min), Some(max)) if min.get_ref() > max.get_ref() => self.list.push(
                Mistake::new("a band that nothing can meet", max.span(), "below `min`")
                    .also(min.span(), "`min`"),
            ),
            _ => {}
        }
    }
}
