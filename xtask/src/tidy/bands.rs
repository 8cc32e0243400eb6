//! The acceptance bands of the experiments: each says whose it is.

use toml::{Table, Value};

use super::Findings;
use crate::workspace::Source;

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("experiments/"))
    {
        if source.extension() == "toml" {
            one(source, findings);
        }
    }
}

fn one(source: &Source, findings: &mut Findings) {
    let table = match source.text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => return findings.wrong(&source.path, error.message()),
    };
    let bands = table.get("expect").and_then(Value::as_array);
    let Some(bands) = bands.filter(|bands| !bands.is_empty()) else {
        return findings.advice(&source.path, "expects nothing");
    };
    for (at, band) in bands.iter().enumerate() {
        let text = |key: &str| band.get(key).and_then(Value::as_str).unwrap_or_default();
        let named = text("id");
        let name = if named.is_empty() {
            format!("expect {}", at + 1)
        } else {
            named.to_owned()
        };
        if text("source").trim().is_empty() {
            findings.wrong(
                &source.path,
                format!("{name} does not say whose band it is (source)"),
            );
        }
        if band.get("min").is_none() && band.get("max").is_none() {
            findings.wrong(
                &source.path,
                format!("{name} has neither min nor max: it cannot fail"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> usize {
        let mut findings = Findings::default();
        let source = Source {
            path: "experiments/x.toml".into(),
            text: text.into(),
        };
        judge(&[source], &mut findings);
        findings.wrong.len()
    }

    #[test]
    fn a_band_needs_a_source_and_an_end() {
        assert_eq!(
            wrong("[[expect]]\nid = 'a'\nsource = 'A7 row 13'\nmin = 1\n"),
            0
        );
        assert_eq!(wrong("[[expect]]\nid = 'a'\nmin = 1\n"), 1);
        assert_eq!(wrong("[[expect]]\nid = 'a'\nsource = ' '\nmax = 1\n"), 1);
        assert_eq!(wrong("[[expect]]\nid = 'a'\nsource = 'A7 row 13'\n"), 1);
        assert_eq!(wrong("not toml"), 1);
    }
}
