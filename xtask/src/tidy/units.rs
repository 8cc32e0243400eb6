//! Commands of everyday work compile one set of units, whatever they select.
//!
//! Cargo turns on the features that the selected packages ask for, and a crate with another set of
//! them is compiled again with all that stands on it. `workspace-hack` names the features that
//! differ; here the unit graphs of commands are compared, and the crates named that it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::Findings;
use crate::workspace::{TESTS, cargo};
use crate::{Result, steps};

/// The README's first command, and `demo`'s.
const FIRST: &str = "build --release";
const SECOND: &str = "build --release --features serve";
/// Crates whose own tests are held against those of all: one of each wing, and those that see the
/// most features.
const ALONE: [&str; 5] = ["policy", "mm", "tidegate", "serve", "recordings"];

pub(super) fn judge(findings: &mut Findings) -> Result<()> {
    let mut compare = |first: &Units, second: &Units, words: &str| {
        for crate_name in second.again(first) {
            findings.wrong(
                "workspace-hack/Cargo.toml",
                format!("`cargo {words}` compiles {crate_name} again, with other features"),
            );
        }
    };
    compare(&Units::of(FIRST)?, &Units::of(SECOND)?, SECOND);
    let all = Units::of(&TESTS.join(" "))?;
    for name in ALONE {
        let package = crate::workspace::package(name);
        let words = format!("test --lib --bins --tests -p {package}");
        compare(&all, &Units::of(&words)?, &words);
    }
    Ok(())
}

/// The units of a command: each by all that goes into it, with the name of its crate and whether
/// that is of this repository and has features of its own turned on.
struct Units(BTreeMap<u64, Unit>);

struct Unit {
    /// Its crate, target, and mode.
    place: String,
    features: BTreeSet<String>,
}

impl Units {
    /// Asks cargo, which compiles nothing for it.
    fn of(words: &str) -> Result<Self> {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = cargo(&words);
        command.args(["--unit-graph", "-Zunstable-options"]);
        // A nightly cargo needs no more to show it.
        command.env("RUSTC_BOOTSTRAP", "1");
        let text = steps::output(&mut command)?;
        let graph: Value =
            serde_json::from_str(&text).map_err(|error| format!("cargo --unit-graph: {error}"))?;
        Self::read(&graph).ok_or_else(|| "cargo --unit-graph: a form that is not known".into())
    }

    fn read(graph: &Value) -> Option<Self> {
        let units = graph["units"].as_array()?;
        let mut keys: Vec<Option<u64>> = vec![None; units.len()];
        for index in 0..units.len() {
            key(units, index, &mut keys)?;
        }
        let read = |(unit, key): (&Value, Option<u64>)| {
            let features = unit["features"].as_array()?.iter();
            let features = features.filter_map(|feature| Some(feature.as_str()?.to_owned()));
            let target = &unit["target"];
            let package = unit["pkg_id"].as_str()?;
            // The part after the last `/`: `cache/mm#tidegate-mm@0.1.0`.
            let name = package.rsplit('/').next()?.rsplit('#').next()?;
            let place = format!(
                "{name} ({} {}, {})",
                target["kind"][0].as_str()?,
                target["name"].as_str()?,
                unit["mode"].as_str()?
            );
            let features = features.collect();
            Some((key?, Unit { place, features }))
        };
        units
            .iter()
            .zip(keys)
            .map(read)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// Those that a build of `first` does not have though it has the same with other features, each
    /// with the difference. Crates of the program that the feature itself is about are its own.
    fn again(&self, first: &Self) -> Vec<String> {
        let mut before: BTreeMap<&str, Vec<&BTreeSet<String>>> = BTreeMap::new();
        for unit in first.0.values() {
            before.entry(&unit.place).or_default().push(&unit.features);
        }
        let others = self.0.iter().filter(|(key, _)| !first.0.contains_key(key));
        others
            .filter_map(|(_, unit)| {
                let known = before.get(unit.place.as_str())?;
                let asked = unit.place.starts_with("tidegate-cli@");
                if asked || known.contains(&&unit.features) {
                    return None;
                }
                let differ: BTreeSet<&str> = known
                    .iter()
                    .flat_map(|features| features.symmetric_difference(&unit.features))
                    .map(String::as_str)
                    .collect();
                let differ: Vec<&str> = differ.into_iter().collect();
                Some(format!("{}: {}", unit.place, differ.join(", ")))
            })
            .collect()
    }
}

/// A number of a unit and of the units it depends on: two builds share those of one number.
fn key(units: &[Value], index: usize, keys: &mut [Option<u64>]) -> Option<u64> {
    if let Some(known) = *keys.get(index)? {
        return Some(known);
    }
    let unit = units.get(index)?;
    let mut below = Vec::new();
    for dependency in unit["dependencies"].as_array()? {
        let at = usize::try_from(dependency["index"].as_u64()?).ok()?;
        below.push(key(units, at, keys)?);
    }
    below.sort_unstable();
    let mut hasher = DefaultHasher::new();
    for field in [
        "pkg_id", "target", "profile", "platform", "mode", "features",
    ] {
        unit[field].to_string().hash(&mut hasher);
    }
    below.hash(&mut hasher);
    let made = hasher.finish();
    keys[index] = Some(made);
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `low`, with these features, under `high`.
    fn units(features: &[&str]) -> Units {
        let unit = |name: &str, features: &[&str], below: &[usize]| {
            let below: Vec<Value> = below
                .iter()
                .map(|index| serde_json::json!({ "index": index }))
                .collect();
            serde_json::json!({
                "pkg_id": format!("registry+x#{name}@1.0.0"),
                "target": { "kind": ["lib"], "name": name },
                "profile": { "name": "test" },
                "mode": "build",
                "features": features,
                "dependencies": below,
            })
        };
        let graph = [unit("low", features, &[]), unit("high", &[], &[0])];
        Units::read(&serde_json::json!({ "units": graph })).unwrap()
    }

    #[test]
    fn the_crate_whose_features_differ_is_named_and_what_stands_on_it_is_not() {
        let (few, many) = (units(&["std"]), units(&["serde", "std"]));
        assert_eq!(few.again(&many), ["low@1.0.0 (lib low, build): serde"]);
        assert!(many.again(&many).is_empty());
        assert!(many.0.keys().all(|key| !few.0.contains_key(key)));
    }
}
