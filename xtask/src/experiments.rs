//! The experiments by name, and the folders that their results are in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::workspace::{Workspace, root};
use crate::{Result, at};

/// The folder of the results of `reproduce`.
pub(crate) fn of_reproduce(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask/reproduce")
}

/// The folder of an experiment that `reproduce` has run with this very program just as it stands,
/// and of which it has judged all bands.
pub(crate) fn reproduced(workspace: &Workspace, program: &Path, name: &str) -> Option<PathBuf> {
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let folder = of_reproduce(workspace).join(name);
    let scenario = folder.join("scenario.toml");
    let ran = std::fs::read_to_string(&scenario).ok()?;
    let own = std::fs::read_to_string(root().join(format!("experiments/{name}.toml"))).ok()?;
    let all = Bands::read(&folder)?.stand("not_run").next().is_none();
    (ran == own && all && changed(&scenario) > changed(program)).then_some(folder)
}

/// The folder of the results of experiments, each in one of its name.
pub(crate) fn out(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask/experiments")
}

/// The outcome of an experiment's bands, from `bands.json` of its folder.
pub(crate) struct Bands(Vec<Value>);

impl Bands {
    /// Nothing if the experiment has not been run there, or not to its end.
    pub(crate) fn read(out: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(out.join("bands.json")).ok()?;
        serde_json::from_str(&text).ok().map(Self)
    }

    pub(crate) fn stand<'a>(&'a self, standing: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0
            .iter()
            .filter(move |band| band["standing"] == standing)
    }

    pub(crate) fn print(&self) {
        for band in &self.0 {
            let word = |key: &str| band[key].as_str().unwrap_or_default();
            println!(
                "    {:<8} {} [{}] {}, expected {} to {}",
                word("standing"),
                word("id"),
                word("case"),
                band["value"],
                band["min"],
                band["max"]
            );
        }
    }

    /// Bands that another experiment holds and that hold here, too, in all their rows.
    pub(crate) fn needless(&self) -> BTreeSet<&str> {
        let ids = |standing| self.stand(standing).flat_map(|band| band["id"].as_str());
        let elsewhere = self
            .stand("holds")
            .filter(|band| !band["held_in"].is_null());
        let held: BTreeSet<&str> = elsewhere.flat_map(|band| band["id"].as_str()).collect();
        held.difference(&ids("misses").collect()).copied().collect()
    }
}

/// Names of the experiments: those of the files in `experiments/`.
pub(crate) fn names() -> Result<Vec<String>> {
    let folder = root().join("experiments");
    let entries = std::fs::read_dir(&folder).map_err(at(&folder))?;
    let stem = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .filter_map(|path| stem(&path))
        .collect();
    names.sort();
    if names.is_empty() {
        Err(format!("no experiments in {}", folder.display()))
    } else {
        Ok(names)
    }
}

/// The same, among which are those that a command was told.
pub(crate) fn named(command: &str, asked: &[String]) -> Result<Vec<String>> {
    let known = names()?;
    match asked.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(format!("{command}: there is no experiments/{name}.toml")),
        None => Ok(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_that_holds_in_every_row_needs_no_other_experiment() {
        let band = |id: &str, standing: &str, held_in: Option<&str>| serde_json::json!({ "id": id, "standing": standing, "held_in": held_in });
        let bands = Bands(vec![
            band("a", "holds", Some("other")),
            band("b", "holds", Some("other")),
            band("b", "misses", Some("other")),
            band("c", "holds", None),
            band("d", "not_run", Some("other")),
        ]);
        assert_eq!(bands.needless(), BTreeSet::from(["a"]));
        assert_eq!(bands.stand("not_run").count(), 1);
    }
}
