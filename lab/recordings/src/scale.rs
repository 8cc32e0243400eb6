//! The factors of constant guesses.

use super::setting::{Setting, changes, is_heavy, start_s};

/// The factor of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing.
    One,
    /// The length of the recording.
    Seconds,
    /// The memory that there is.
    Memory,
    /// The devices' rates.
    Rates,
    /// The dirty limit.
    Dirty,
    /// The background limit.
    Background,
    /// The middle of both limits.
    Middle,
    /// The heavy writers' time.
    HeavyTime,
}

impl Scale {
    /// It, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::One => "always",
            Self::Seconds => "a second",
            Self::Memory => "of the memory",
            Self::Rates => "of the devices' rates",
            Self::Dirty => "of the dirty limit",
            Self::Background => "of the background limit",
            Self::Middle => "of the middle of both limits",
            Self::HeavyTime => "of the heavy writers' time",
        }
    }

    /// Its size under a setting.
    #[must_use]
    pub fn of(self, setting: &Setting) -> f64 {
        let (dirty, background) = setting.limits_mib();
        match self {
            Self::One => 1.0,
            Self::Seconds => setting.seconds(),
            Self::Memory => setting.usable_mib(),
            Self::Rates => rates(setting),
            Self::Dirty => strict(setting) * dirty,
            Self::Background => strict(setting) * background,
            Self::Middle => strict(setting) * f64::midpoint(dirty, background),
            Self::HeavyTime => {
                let heavy = setting.scenario.tasks.iter().filter(|task| is_heavy(task));
                heavy.map(|task| setting.seconds() - start_s(task)).sum()
            }
        }
    }
}

/// MiB/s that the devices could do, over the time of the recording.
fn rates(setting: &Setting) -> f64 {
    let seconds = setting.seconds();
    let devices = setting.scenario.devices.iter().zip(setting.rates());
    let mean = devices.map(|(device, rate)| {
        let (mut sum, mut now, mut from) = (0.0, rate, 0.0);
        for (at, rate) in changes(device) {
            let at = at.min(seconds);
            sum += now * (at - from);
            (now, from) = (rate, at);
        }
        (sum + now * (seconds - from)) / seconds
    });
    mean.sum()
}

/// The part of the limits that a strict one leaves.
fn strict(setting: &Setting) -> f64 {
    let mut devices = setting.scenario.devices.iter();
    let percent = devices.find_map(|device| experiment::keys::value(&device.max_percent));
    percent.map_or(1.0, |percent| percent / 100.0)
}
