//! The experiments that come with the program.

use crate::mistake::Source;

/// Name and text of each, by name: the files of `experiments/`.
pub const EXPERIMENTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

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
    use crate::document::Scenario;

    #[test]
    fn every_experiment_is_free_of_mistakes_and_named_as_it_is_called() {
        for &(name, _) in EXPERIMENTS {
            let loaded = Scenario::load(by_name(name).unwrap(), &[]);
            let (scenario, _) = loaded.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name.get_ref(), name);
            assert!(!scenario.expects.is_empty(), "{name} checks nothing");
        }
    }
}
