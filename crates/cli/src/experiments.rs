//! The experiments that come with the program.

use crate::scenario::Source;

/// Name and text of each.
pub const EXPERIMENTS: [(&str, &str); 24] = [
    ("dd", include_str!("../../../experiments/dd.toml")),
    (
        "cp-pauses",
        include_str!("../../../experiments/cp-pauses.toml"),
    ),
    ("dd-many", include_str!("../../../experiments/dd-many.toml")),
    (
        "two-writers",
        include_str!("../../../experiments/two-writers.toml"),
    ),
    (
        "many-writers",
        include_str!("../../../experiments/many-writers.toml"),
    ),
    (
        "light-writer",
        include_str!("../../../experiments/light-writer.toml"),
    ),
    (
        "two-devices",
        include_str!("../../../experiments/two-devices.toml"),
    ),
    (
        "rate-drop",
        include_str!("../../../experiments/rate-drop.toml"),
    ),
    (
        "hung-device",
        include_str!("../../../experiments/hung-device.toml"),
    ),
    ("burst", include_str!("../../../experiments/burst.toml")),
    (
        "stutterp",
        include_str!("../../../experiments/stutterp.toml"),
    ),
    (
        "stutterp-readers",
        include_str!("../../../experiments/stutterp-readers.toml"),
    ),
    (
        "stutterp-oom",
        include_str!("../../../experiments/stutterp-oom.toml"),
    ),
    ("zone-dd", include_str!("../../../experiments/zone-dd.toml")),
    (
        "zone-fsmark",
        include_str!("../../../experiments/zone-fsmark.toml"),
    ),
    (
        "zone-locality",
        include_str!("../../../experiments/zone-locality.toml"),
    ),
    (
        "fsmark-small",
        include_str!("../../../experiments/fsmark-small.toml"),
    ),
    (
        "metadata-reread",
        include_str!("../../../experiments/metadata-reread.toml"),
    ),
    (
        "data-reread",
        include_str!("../../../experiments/data-reread.toml"),
    ),
    (
        "zone-mapped",
        include_str!("../../../experiments/zone-mapped.toml"),
    ),
    (
        "small-limit",
        include_str!("../../../experiments/small-limit.toml"),
    ),
    (
        "hogs-arrive",
        include_str!("../../../experiments/hogs-arrive.toml"),
    ),
    (
        "two-devices-one-hung",
        include_str!("../../../experiments/two-devices-one-hung.toml"),
    ),
    (
        "competing-phases",
        include_str!("../../../experiments/competing-phases.toml"),
    ),
];

/// The built-in experiment of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Source> {
    let (name, text) = EXPERIMENTS.iter().find(|(known, _)| *known == name)?;
    Some(Source {
        origin: format!("{name} (built in)"),
        text: (*text).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_experiment_is_free_of_mistakes_and_named_as_it_is_called() {
        for (name, _) in EXPERIMENTS {
            let loaded = Scenario::load(by_name(name).unwrap(), &[]);
            let (scenario, _) = loaded.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name.get_ref(), name);
            assert!(!scenario.expects.is_empty(), "{name} checks nothing");
        }
    }
}
