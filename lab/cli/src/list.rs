//! `tidegate list`.

use core::fmt::Write as _;

use crate::args::Listed;
use experiment::catalogue;
use experiment::experiments::{self, EXPERIMENTS};
use experiment::keys::Key;
use experiment::kinds;
use experiment::metrics::METRICS;
use experiment::presets::PRESETS;
use experiment::scenario::{Scenario, TABLES, TaskKeys, choices};
use experiment::stats::Better;
use reproduce::Papers;

/// The text of a list, and of keys that of one table.
///
/// # Errors
/// No such table, or of a list that is not of keys; in words.
pub(crate) fn of(what: Option<Listed>, table: Option<&str>) -> Result<String, String> {
    let Some(name) = table else {
        return Ok(list(what));
    };
    if what != Some(Listed::Keys) {
        return Err(format!(
            "`{name}` stands behind a list without tables; write `tidegate list keys {name}`"
        ));
    }
    let named = TABLES.iter().find(|table| table.name == name);
    let known = || choices(name, TABLES.iter().map(|table| table.name));
    let table = named.ok_or_else(|| format!("unknown table `{name}`; {}", known()))?;
    let mut text = format!("{}: {} * is needed.\n", table.header, table.about.trim());
    keys(&mut text, table.keys);
    Ok(text)
}

/// The text of the list.
pub(crate) fn list(what: Option<Listed>) -> String {
    let mut text = String::new();
    let wanted = |one| what.is_none_or(|what| what == one);
    if wanted(Listed::Experiments) {
        text.push_str("Experiments (tidegate run NAME)\n");
        for (name, _) in EXPERIMENTS {
            let source = experiments::by_name(name).expect("a name from the list");
            let title = Scenario::load(source, &[]).map_or(String::new(), |loaded| loaded.0.title);
            let _ = writeln!(text, "  {name:<20} {title}");
        }
        text.push('\n');
    }
    if wanted(Listed::Presets) {
        text.push_str("Presets (--column NAME; preset = \"NAME\" in a [[column]])\n");
        for preset in &PRESETS {
            let _ = writeln!(
                text,
                "  {:<17} HZ {:<5} {}",
                preset.name, preset.laws.dirty.hz, preset.about
            );
        }
        text.push('\n');
    }
    if wanted(Listed::Devices) {
        devices(&mut text);
    }
    if wanted(Listed::Papers) {
        papers(&mut text);
    }
    // Too many for the list of everything.
    if what == Some(Listed::Metrics) {
        metrics(&mut text);
    }
    if what == Some(Listed::Kinds) {
        kinds(&mut text);
    }
    if what == Some(Listed::Keys) {
        for table in TABLES {
            let _ = writeln!(
                text,
                "{}: {} * is needed.",
                table.header,
                table.about.trim()
            );
            keys(&mut text, table.keys);
            text.push('\n');
        }
        text.push_str("`tidegate list kinds` has the keys of each kind of task.\n");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn papers(text: &mut String) {
    text.push_str("Papers (tidegate reproduce NAME)\n");
    let scenarios: Vec<Scenario> = EXPERIMENTS
        .iter()
        .filter_map(|(name, _)| Scenario::load(experiments::by_name(name)?, &[]).ok())
        .map(|(scenario, _)| scenario)
        .collect();
    for paper in Papers::read().papers {
        let own = scenarios
            .iter()
            .filter(|scenario| scenario.paper_id() == Some(&paper.id));
        let names: Vec<&str> = own
            .map(|scenario| scenario.name.get_ref().as_str())
            .collect();
        let _ = writeln!(
            text,
            "  {:<4} {}\n       {}\n       experiments: {}",
            paper.id,
            paper.name,
            paper.who,
            names.join(", ")
        );
    }
    text.push('\n');
}

fn metrics(text: &mut String) {
    text.push_str("Metrics (metrics = [\"NAME\"] and metric = \"NAME\" in a scenario)\n");
    for metric in METRICS.iter() {
        let better = match metric.better {
            Better::Lower => "less",
            Better::Higher => "more",
        };
        let _ = writeln!(
            text,
            "  {:<24} {:<8} {better} is better; {}",
            metric.name, metric.unit, metric.about
        );
    }
    text.push_str("docs/study/read-the-tables.md explains the ones that its tables show.\n");
}

fn kinds(text: &mut String) {
    let _ = writeln!(text, "[[task]]:{} * is needed.", TaskKeys::ABOUT);
    keys(text, TaskKeys::KEYS);
    text.push_str("\nKinds of task (kind = \"NAME\" in a [[task]]), with the keys of their own\n");
    for kind in kinds::ALL {
        let _ = writeln!(text, "  {:<14} {}", kind.name, kind.about.trim());
        keys(text, kind.keys);
    }
}

fn keys(text: &mut String, keys: &[Key]) {
    for key in keys {
        let mark = if key.needed { "*" } else { "" };
        let name = format!("{}{mark}", key.name);
        let _ = writeln!(text, "      {name:<24} {}: {}", key.value(), key.about);
    }
}

fn devices(text: &mut String) {
    text.push_str("Device models (model = \"NAME\" in a [[device]]), with their params\n");
    for entry in &catalogue::model::MODELS {
        let _ = writeln!(text, "  {:<14} {}", entry.name, entry.summary);
        let params = entry.params();
        for (field, value) in params.fields().iter().zip(params.values()) {
            let _ = writeln!(
                text,
                "      {:<24} {value} {}",
                field.name,
                field.unit.name()
            );
        }
    }
    text.push_str("\nFile systems (fs = \"NAME\" in a [[device]])\n");
    for name in catalogue::fs::NAMES {
        let summary = catalogue::fs::by_name(name).map_or("", |model| model.summary);
        let _ = writeln!(text, "  {name:<14} {summary}");
    }
    text.push_str("\nWrappers (wrap = \"...\" in a [[device]]; --device with --live)\n");
    text.push_str("  slow:rate=16MB,latency=2ms,depth=1   a rate, a latency, requests at a time\n");
    text.push_str(
        "  faulty:eio_writes=0.01,seed=1        errors, torn writes, hangs, a full disk\n",
    );
    text.push_str("  several are joined by +, the first is the nearest to the cache\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_listed_by_table_with_type_range_and_unit() {
        let machine = of(Some(Listed::Keys), Some("machine")).unwrap();
        let memory = "      memory_mib*              number, 4 to 16777216 MiB: Memory for pages.";
        assert!(machine.contains(memory), "{machine}");
        assert!(!machine.contains("rate_factor"), "{machine}");
        let all = list(Some(Listed::Keys));
        for table in TABLES {
            assert!(all.contains(&format!("{}: ", table.header)), "{all}");
        }
        for (what, table, says) in [
            (Some(Listed::Keys), "machin", "did you mean `machine`?"),
            (None, "machine", "`tidegate list keys machine`"),
        ] {
            let refused = of(what, Some(table)).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn a_list_holds_what_it_was_asked_for_and_nothing_else() {
        let presets = list(Some(Listed::Presets));
        assert!(presets.contains("linux-2.6.36") && !presets.contains("cp-pauses"));
        let all = list(None);
        for word in [
            "two-writers",
            "tidegate",
            "sata2010",
            "btrfs",
            "IO-less balance_dirty_pages()",
        ] {
            assert!(all.contains(word), "{word}");
        }
        let papers = list(Some(Listed::Papers));
        assert!(
            papers.contains("experiments: cp-pauses, dd-many, dd, two-writers\n"),
            "{papers}"
        );
        let metrics = list(Some(Listed::Metrics));
        assert!(
            METRICS
                .iter()
                .all(|metric| metrics.contains(&format!("  {} ", metric.name)))
        );
        assert!(!all.contains("pause_zero_share"));
        let kinds = list(Some(Listed::Kinds));
        assert!(kinds.contains("\n      start_s  ") && !all.contains("light_writer"));
        for kind in kinds::ALL {
            let (_, own) = kinds.split_once(&format!("\n  {} ", kind.name)).unwrap();
            let keys = kind.keys.iter().filter(|key| key.needed);
            for key in keys {
                assert!(own.contains(&format!("\n      {}* ", key.name)), "{own}");
            }
        }
    }
}
