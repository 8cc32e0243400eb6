//! TOML into a `Scenario`.

use toml::de::DeTable;

use super::{LoadError, Scenario};
use crate::keys::{Open, Reader};
use crate::mistake::{Mistake, Mistakes, Source};

/// Reads the text; the answer has also the values that are not allowed.
pub(super) fn parse(source: &Source) -> Result<(Scenario, Vec<Mistake>), LoadError> {
    read(&source.text).map_err(|mut list| {
        list.sort_by_key(|mistake| mistake.span.start);
        let source = source.clone();
        LoadError::Mistakes(Mistakes { source, list })
    })
}

fn read(text: &str) -> Result<(Scenario, Vec<Mistake>), Vec<Mistake>> {
    let root = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        vec![Mistake::new(
            "this is not valid TOML",
            span,
            error.message(),
        )]
    })?;
    let span = root.span();
    let mut reader = Reader::new(text);
    let root = Open::new(root.into_inner(), span, Scenario::KEYS);
    match Scenario::of(root, &mut reader) {
        Some(mut scenario) if reader.found.form.is_empty() => {
            scenario.expects.extend(super::counters::claims(&scenario));
            Ok((scenario, reader.found.values))
        }
        _ => Err(reader.found.form),
    }
}
