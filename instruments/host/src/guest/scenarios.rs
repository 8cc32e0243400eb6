//! The scenarios of dirty throttling: `guests/throttling.toml`, and how one is changed on the
//! command line.
//!
//! Three sets: the matrix (rates x limits x writers), named `RATE-DIRTY-BACKGROUND-WRITERS` as in
//! `16-64-32-four`; those that have the name and the settings of a field recording (`one-dd`); and
//! single ones that turn one thing the matrix holds still.

use std::fmt::Write as _;

use serde::Deserialize;

use super::Result;

/// The guests that have a name.
const GUESTS: &str = include_str!("../../guests/throttling.toml");

#[derive(Deserialize)]
struct Guests {
    guest: Vec<Scenario>,
    matrix: Matrix,
}

#[derive(Deserialize)]
struct Matrix {
    /// MiB/s.
    rates: Vec<u32>,
    /// MiB.
    limits: Vec<(u32, u32)>,
    crowd: Vec<Crowd>,
}

#[derive(Deserialize)]
struct Crowd {
    name: String,
    writers: Vec<Writer>,
}

/// The file system of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fs {
    #[default]
    /// Nothing: writers write to the device's file, each into its own part.
    None,
    /// ext4 with a journal of 16 MiB: a file per writer.
    Ext4,
}

/// Somebody who writes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Writer {
    pub(super) device: usize,
    pub(super) bytes: u32,
    pub(super) sleep_ms: u32,
    pub(super) start_s: u32,
}

impl Default for Writer {
    /// A heavy one, from the start.
    fn default() -> Self {
        Self {
            device: 0,
            bytes: 1 << 20,
            sleep_ms: 0,
            start_s: 0,
        }
    }
}

/// A device that gets another rate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Change {
    pub(super) device: usize,
    pub(super) at_s: u32,
    pub(super) mib: u32,
}

/// The scenario of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Scenario {
    pub(super) name: String,
    /// Rate of each device, MiB/s.
    pub(super) devices: Vec<u32>,
    /// `vm.dirty_bytes`, MiB.
    pub(super) dirty: u32,
    /// `vm.dirty_background_bytes`, MiB.
    pub(super) bg: u32,
    pub(super) writers: Vec<Writer>,
    pub(super) seconds: u32,
    pub(super) change: Vec<Change>,
    /// The devices' share of the limit in per cent, held strictly.
    pub(super) max_ratio: Option<u32>,
    pub(super) fs: Fs,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            devices: vec![16],
            dirty: 64,
            bg: 32,
            writers: Vec::new(),
            seconds: 60,
            change: Vec::new(),
            max_ratio: None,
            fs: Fs::None,
        }
    }
}

/// Every scenario there is.
pub(super) fn all() -> Vec<Scenario> {
    let Guests { guest, matrix } = toml::from_str(GUESTS).expect("the file of guests");
    let mut all = guest;
    for rate in &matrix.rates {
        for (dirty, bg) in &matrix.limits {
            all.extend(matrix.crowd.iter().map(|crowd| Scenario {
                name: format!("{rate}-{dirty}-{bg}-{}", crowd.name),
                devices: vec![*rate],
                dirty: *dirty,
                bg: *bg,
                writers: crowd.writers.clone(),
                ..Scenario::default()
            }));
        }
    }
    all
}

impl Scenario {
    /// Turns one setting: `dirty=200`, `rate=4,48`, `writers=3`. The name tells.
    ///
    /// # Errors
    /// The setting is not known, or its value is none.
    pub(super) fn set(&mut self, setting: &str) -> Result<()> {
        let known = "dirty, bg, rate, seconds, writers, max_ratio, fs";
        let (key, value) = super::parts(setting)?;
        let number = || super::number_from(1, setting);
        match key {
            "dirty" => self.dirty = number()?,
            "bg" => self.bg = number()?,
            "seconds" => self.seconds = number()?,
            "max_ratio" => self.max_ratio = Some(number()?),
            "writers" => {
                // Heavy ones, dealt out to the devices in turn.
                let devices = (0..self.devices.len()).cycle();
                let heavy = devices.map(|device| Writer {
                    device,
                    ..Writer::default()
                });
                self.writers = heavy.take(number()? as usize).collect();
            }
            "rate" => {
                let rates = value
                    .split(',')
                    .map(str::parse)
                    .collect::<std::result::Result<_, _>>();
                self.devices = rates
                    .map_err(|_| format!("--set {setting}: rates are MiB/s, one per device"))?;
            }
            "fs" => {
                self.fs = match value {
                    "none" => Fs::None,
                    "ext4" => Fs::Ext4,
                    _ => return Err(format!("--set {setting}: fs is none or ext4")),
                };
            }
            _ => {
                return Err(format!(
                    "--set {setting}: no setting '{key}'; there are {known}"
                ));
            }
        }
        self.name = format!("{}+{key}={value}", self.name);
        Ok(())
    }

    /// Checks that the kernel and the device can do this.
    ///
    /// # Errors
    /// Two settings contradict each other; the message names both.
    pub(super) fn judge(&self) -> Result<()> {
        let name = &self.name;
        if self.bg >= self.dirty {
            let (bg, dirty) = (self.bg, self.dirty);
            return Err(format!(
                "{name}: bg={bg} is not below dirty={dirty}; the kernel would take half of dirty"
            ));
        }
        if self.devices.contains(&0) {
            return Err(format!(
                "{name}: a device of 0 MiB/s is one without a limit"
            ));
        }
        if self.max_ratio.is_some_and(|ratio| ratio > 100) {
            return Err(format!("{name}: max_ratio is per cent, 1 to 100"));
        }
        let devices = self.devices.len();
        let touched = self.writers.iter().map(|writer| writer.device);
        let changed = self.change.iter().map(|change| change.device);
        if let Some(device) = touched.chain(changed).find(|device| *device >= devices) {
            return Err(format!(
                "{name}: something happens on device {device}, but there are rates for {devices}"
            ));
        }
        let begins = self.writers.iter().map(|writer| writer.start_s);
        let changes = self.change.iter().map(|change| change.at_s);
        if let Some(at) = begins.chain(changes).find(|at| *at >= self.seconds) {
            let seconds = self.seconds;
            return Err(format!(
                "{name}: something happens at second {at}, but seconds={seconds}"
            ));
        }
        Ok(())
    }

    /// The volume that all devices can take during the run, in MiB.
    pub(super) fn volume_mib(&self) -> u32 {
        let device = |number: usize| {
            let mut rate = self.devices[number];
            let mut since = 0;
            let mut volume = 0;
            for change in self.change.iter().filter(|change| change.device == number) {
                volume += rate * (change.at_s - since);
                (rate, since) = (change.mib, change.at_s);
            }
            volume + rate * (self.seconds - since)
        };
        (0..self.devices.len()).map(device).sum()
    }

    /// The guest's memory: all that is written stays cached, so that nothing is reclaimed and the
    /// limits, which are in bytes, are all that matters.
    pub(super) fn memory_mib(&self) -> u32 {
        // The device itself keeps what is written when a file system must read it back.
        let copies = if self.fs == Fs::Ext4 { 2 } else { 1 };
        let need = self.volume_mib() * copies + 2 * self.dirty + 384;
        if self.change.is_empty() {
            need.next_multiple_of(512).max(1024)
        } else {
            // The window through which the rate is changed has a size that is a power of two.
            need.next_power_of_two().max(1024)
        }
    }

    /// Rates, limits, writers and time, in words.
    pub(super) fn words(&self) -> String {
        let rates: Vec<String> = self.devices.iter().map(u32::to_string).collect();
        let light = self.writers.iter().filter(|writer| writer.sleep_ms > 0);
        let light = light.count();
        let (dirty, bg, heavy) = (self.dirty, self.bg, self.writers.len() - light);
        let mut text = format!(
            "{} MiB/s, limits {dirty}/{bg} MiB, writers: {heavy} heavy",
            rates.join(" + ")
        );
        if light > 0 {
            let _ = write!(text, " and {light} light");
        }
        let last = self.writers.iter().map(|writer| writer.start_s).max();
        if let Some(last) = last.filter(|last| *last > 0) {
            let _ = write!(text, " (the last from {last} s)");
        }
        for Change { device, at_s, mib } in &self.change {
            let _ = write!(text, ", device {device} {mib} MiB/s from {at_s} s");
        }
        if let Some(ratio) = self.max_ratio {
            let _ = write!(text, ", strict limit {ratio} %");
        }
        let fs = match self.fs {
            Fs::None => "bare device",
            Fs::Ext4 => "ext4",
        };
        let _ = write!(text, ", {} s, {fs}", self.seconds);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn find(name: &str) -> Scenario {
        all().into_iter().find(|one| one.name == name).unwrap()
    }

    #[test]
    fn every_scenario_can_be_run_and_has_its_own_name() {
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|one| one.name.clone()).collect();
        assert_eq!(names.len(), all.len());
        for one in &all {
            one.judge().unwrap();
            assert!(
                one.memory_mib() <= 8192,
                "{}: {}",
                one.name,
                one.memory_mib()
            );
        }
    }

    #[test]
    fn a_setting_is_turned_and_shows_in_the_name() {
        let mut one = find("two-dd");
        one.set("dirty=200").unwrap();
        one.set("writers=3").unwrap();
        assert_eq!((one.dirty, one.writers.len()), (200, 3));
        assert_eq!(one.name, "two-dd+dirty=200+writers=3");
        assert!(one.set("drity=1").unwrap_err().contains("bg"));
        assert!(one.set("dirty=x").is_err() && one.set("dirty").is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let set = |setting: &str| {
            let mut one = find("rate-drop");
            one.set(setting).and_then(|()| one.judge())
        };
        assert!(set("bg=64").unwrap_err().contains("bg=64"));
        assert!(set("seconds=30").unwrap_err().contains("second 40"));
        assert!(set("rate=0").is_err() && set("max_ratio=101").is_err());
        let mut two = find("two-devices");
        two.set("rate=16").unwrap();
        assert!(two.judge().unwrap_err().contains("device 1"));
    }

    #[test]
    fn a_drop_is_taken_into_account() {
        assert_eq!(find("rate-drop").volume_mib(), 32 * 40 + 8 * 40);
    }
}
