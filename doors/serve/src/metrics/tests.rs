//! A strict reader of the text format, and what it must find.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::*;
use crate::snapshot::tests::{assert_stored, reading};

/// Samples of a family by their name and labels.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    unit: Option<String>,
    samples: BTreeMap<(String, Vec<(String, String)>), f64>,
}

/// Reads the whole text; every rule that it breaks is an error with its line.
fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let mut families = BTreeMap::<String, Family>::new();
    let mut current: Option<String> = None;
    for line in body.lines() {
        let wrong = |what: &str| format!("{what}: {line}");
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (word, name, value) = (words.next(), words.next(), words.next());
            let name = name.ok_or_else(|| wrong("no name"))?;
            let value = value.filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| wrong("no value"))?;
            if word == Some("HELP") {
                let is_new = families
                    .insert(name.to_owned(), Family::default())
                    .is_none();
                if !is_new {
                    return Err(wrong("twice"));
                }
                current = Some(name.to_owned());
                continue;
            }
            if current.as_deref() != Some(name) {
                return Err(wrong("of another family"));
            }
            let family = families.get_mut(name).ok_or_else(|| wrong("no HELP"))?;
            if !family.samples.is_empty() {
                return Err(wrong("after samples"));
            }
            match word {
                Some("TYPE") => family.kind = value.to_owned(),
                Some("UNIT") if name.ends_with(&format!("_{value}")) => {
                    family.unit = Some(value.to_owned());
                }
                _ => return Err(wrong("unknown")),
            }
            continue;
        }
        let (name, labels, value) = sample(line).map_err(wrong)?;
        let of = current.as_ref().ok_or_else(|| wrong("before any family"))?;
        let family = families.get_mut(of).ok_or_else(|| wrong("no family"))?;
        let suffix = name
            .strip_prefix(of.as_str())
            .ok_or_else(|| wrong("of another family"))?;
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_sum", "_count", "_bucket"],
            "info" => &["_info"],
            _ => return Err(wrong("no type")),
        };
        if !allowed.contains(&suffix) {
            return Err(wrong("suffix does not go with the type"));
        }
        if family.kind == "counter" && value < 0.0 {
            return Err(wrong("negative"));
        }
        if family
            .samples
            .insert((suffix.to_owned(), labels), value)
            .is_some()
        {
            return Err(wrong("the same sample twice"));
        }
    }
    Ok(families)
}

type Sample = (String, Vec<(String, String)>, f64);

fn sample(line: &str) -> Result<Sample, &'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = line.find(|c| !is_name(c)).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("no name");
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (key, after) = rest.split_once("=\"").ok_or("no label")?;
            if key.is_empty() || !key.chars().all(is_name) {
                return Err("a label's name");
            }
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().ok_or("a label without an end")? {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next() {
                        Some((_, 'n')) => value.push('\n'),
                        Some((_, c @ ('"' | '\\'))) => value.push(c),
                        _ => return Err("an escape"),
                    },
                    (_, c) => value.push(c),
                }
            };
            labels.push((key.to_owned(), value));
            rest = &after[end + 1..];
            if let Some(after) = rest.strip_prefix(',') {
                rest = after;
                continue;
            }
            rest = rest.strip_prefix('}').ok_or("no } after the labels")?;
            break;
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    let value = value.parse().map_err(|_| "not a number")?;
    Ok((name.to_owned(), labels, value))
}

fn families() -> BTreeMap<String, Family> {
    let text = text(reading(Instant::now(), 10, State::Stalled)).unwrap();
    parse(&text).unwrap()
}

fn value(
    families: &BTreeMap<String, Family>,
    family: &str,
    suffix: &str,
    labels: &[(&str, &str)],
) -> f64 {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let key = (suffix.to_owned(), labels.collect::<Vec<_>>());
    families[family].samples[&key]
}

#[test]
fn the_reader_is_strict() {
    let good = "# HELP a_bytes A.\n# TYPE a_bytes gauge\n# UNIT a_bytes bytes\na_bytes{x=\"1\\n\"} 2\n# EOF\n";
    assert_eq!(parse(good).unwrap()["a_bytes"].samples.len(), 1);
    for (from, to) in [
        ("# EOF\n", ""),
        ("gauge", "counter"),
        ("gauge", "thing"),
        (" 2\n", " 2\na_bytes{x=\"1\\n\"} 2\n"),
        (" 2\n", " two\n"),
        ("\\n\"", "\\x\""),
        ("1\\n\"}", "1\\n\""),
        ("# UNIT a_bytes bytes", "# UNIT a_bytes seconds"),
        ("\na_bytes{", "\nb_bytes{"),
        (
            "# HELP a_bytes A.\n",
            "# HELP a_bytes A.\n# HELP a_bytes A.\n",
        ),
    ] {
        let bad = good.replace(from, to);
        assert!(parse(&bad).is_err(), "{bad}");
    }
}

#[test]
fn all_of_it_is_read_back_with_its_values() {
    let families = families();
    let root = [("volume", "root"), ("command", "write")];
    assert_eq!(
        value(&families, "tidegate_requests", "_total", &root),
        20_000.0
    );
    assert_eq!(
        value(&families, "tidegate_request_bytes", "_total", &root),
        81_920_000.0
    );
    let read = [("volume", "root"), ("command", "read")];
    assert_eq!(
        value(&families, "tidegate_request_errors", "_total", &read),
        2.0
    );
    assert_eq!(
        value(&families, "tidegate_memory_bytes", "", &[("mode", "dirty")]),
        31_457_280.0
    );
    assert_eq!(
        value(&families, "tidegate_memory_limit_bytes", "", &[]),
        268_435_456.0
    );
    let stalled = [("volume", "data/backup"), ("state", "stalled")];
    assert_eq!(value(&families, "tidegate_volume_state", "", &stalled), 1.0);
    let ok = [("volume", "data/backup"), ("state", "ok")];
    assert_eq!(value(&families, "tidegate_volume_state", "", &ok), 0.0);
    assert_eq!(value(&families, "process_cpu_seconds", "_total", &[]), 2.5);
    assert_eq!(
        value(&families, "process_start_time_seconds", "", &[]),
        1_795_305_900.0
    );
    let pause = [("volume", "root")];
    assert_eq!(
        value(
            &families,
            "tidegate_volume_pause_duration_seconds",
            "_count",
            &pause
        ),
        9000.0
    );
}

/// Names, types, units, helps, labels and values: what dashboards and alerts of others hold on to.
#[test]
fn the_whole_text_is_as_stored() {
    let mut reading = reading(Instant::now(), 10, State::Retrying);
    let mut node = NodeStats::default();
    (node.number, node.cached, node.anonymous) = (Some(3), 7 << 20, 6 << 20);
    (node.aside, node.free, node.misplaced) = (5 << 20, 4 << 20, 3 << 20);
    (node.taken_here_total, node.taken_elsewhere_total) = (2 << 20, 1 << 20);
    node.reclaimed_total = 4096;
    reading.stats.nodes = vec![NodeStats::default(), node];
    (reading.stats.moved_total, reading.stats.move_refused_total) = (5, 6);
    (reading.stats.over_limit, reading.stats.reclaimed_total) = (7, 8);
    reading.stats.pressure.some = Duration::from_millis(1500);
    reading.stats.pressure.full = Duration::from_millis(250);
    reading.stats.runs[..3].copy_from_slice(&[3, 2, 1]);
    let text = text(reading).unwrap();
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    assert_stored("metrics.txt", &text.replace(&version, "version=\"0\""));
}

#[test]
fn names_follow_the_conventions() {
    let units = ["bytes", "seconds"];
    for (name, family) in families() {
        assert!(
            name.starts_with("tidegate_") || name.starts_with("process_"),
            "{name}"
        );
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        // The reader of the format adds it; a name that has it would have it twice.
        assert!(!name.ends_with("_total"), "{name}");
        for unit in units {
            if name.ends_with(&format!("_{unit}")) {
                assert_eq!(family.unit.as_deref(), Some(unit), "{name}");
            }
        }
        for wrong in ["_ms", "_us", "_mib", "_kb", "_percent"] {
            assert!(!name.ends_with(wrong), "{name}");
        }
        if family.kind == "histogram" {
            assert!(name.ends_with("_duration_seconds"), "{name}");
        }
        let keys: BTreeSet<_> = family
            .samples
            .keys()
            .flat_map(|(_, labels)| labels)
            .map(|(key, _)| key.as_str())
            .collect();
        let known = [
            "volume", "command", "cause", "by", "state", "mode", "kind", "le", "version", "bytes",
            "file",
        ];
        assert!(
            keys.iter().all(|key| known.contains(key)),
            "{name}: {keys:?}"
        );
    }
}

#[test]
fn buckets_are_cumulative_and_end_at_the_count() {
    let mut histograms = 0;
    for (name, family) in families() {
        let mut by_labels = BTreeMap::<Vec<(String, String)>, Vec<(f64, f64)>>::new();
        for ((suffix, labels), value) in &family.samples {
            if suffix == "_bucket" {
                let (le, others): (Vec<_>, Vec<_>) =
                    labels.iter().cloned().partition(|(key, _)| key == "le");
                let end = le[0].1.parse().unwrap();
                by_labels.entry(others).or_default().push((end, *value));
            }
        }
        for (labels, mut buckets) in by_labels {
            histograms += 1;
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(
                buckets
                    .windows(2)
                    .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
                "{name}"
            );
            assert_eq!(buckets.len(), LAST_BUCKET - FIRST_BUCKET + 2, "{name}");
            assert_eq!(buckets[0].0, 16e-6);
            let (end, last) = *buckets.last().unwrap();
            assert_eq!(end, f64::INFINITY);
            assert_eq!(
                last,
                family.samples[&("_count".to_owned(), labels.clone())],
                "{name}"
            );
            assert!(family.samples.contains_key(&("_sum".to_owned(), labels)));
        }
    }
    // Two causes, pauses of two volumes, two commands that were used.
    assert_eq!(histograms, 6);
}

#[test]
fn a_strange_name_of_a_volume_stays_one_label() {
    let mut reading = reading(Instant::now(), 1, State::Ok);
    let strange = "a\"} 1\ntidegate_forged 1\n\\";
    reading.volumes[1].name = strange.to_owned();
    let families = parse(&text(reading).unwrap()).unwrap();
    assert!(!families.contains_key("tidegate_forged"));
    assert_eq!(
        value(
            &families,
            "tidegate_volume_size_bytes",
            "",
            &[("volume", strange)]
        ),
        4_294_967_296.0
    );
}

#[test]
fn a_server_without_volumes_or_waits_has_metrics_too() {
    let mut reading = reading(Instant::now(), 1, State::Ok);
    reading.volumes.clear();
    reading.stats.waits.clear();
    assert!(parse(&text(reading).unwrap()).unwrap().len() > 20);
}

#[test]
fn nodes_are_told_apart_by_the_systems_numbers_where_there_are_several() {
    let mut reading = reading(Instant::now(), 1, State::Ok);
    let mut node = NodeStats::default();
    node.number = Some(3);
    node.cached = 7 << 20;
    node.misplaced = 4 << 20;
    node.taken_elsewhere_total = 5 << 20;
    reading.stats.nodes = vec![node];
    let one = parse(&text(reading.clone()).unwrap()).unwrap();
    assert!(!one.contains_key("tidegate_node_memory_bytes"));
    reading.stats.nodes = vec![NodeStats::default(), node];
    let families = parse(&text(reading).unwrap()).unwrap();
    let value = |family, suffix, labels: &[_]| {
        value(&families, family, suffix, labels) / f64::from(1 << 20)
    };
    let file = [("node", "3"), ("mode", "file")];
    assert_eq!(value("tidegate_node_memory_bytes", "", &file), 7.0);
    let free = [("node", "0"), ("mode", "free")];
    assert_eq!(value("tidegate_node_memory_bytes", "", &free), 0.0);
    assert_eq!(
        value("tidegate_node_misplaced_bytes", "", &[("node", "3")]),
        4.0
    );
    let elsewhere = [("node", "3"), ("place", "elsewhere")];
    assert_eq!(
        value("tidegate_node_taken_bytes", "_total", &elsewhere),
        5.0
    );
}

/// A label, and the values that are asked for.
type Matcher = (String, Vec<String>);

/// The names in an expression of Prometheus, each with the matchers that stand behind it:
/// `name{key="value",...}`.
fn named(expression: &str) -> Vec<(String, Vec<Matcher>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        // A number's or a duration's letters are no name.
        let is_part = rest[..start].ends_with(|c: char| c.is_ascii_digit());
        let after = &rest[start..];
        let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
        let (name, mut after) = after.split_at(end);
        let mut matchers = Vec::new();
        if let Some(inside) = after.strip_prefix('{') {
            let (inside, behind) = inside.split_once('}').expect("an end of the matchers");
            after = behind;
            for matcher in inside.split(',') {
                let (key, value) = matcher.split_once('=').expect("a matcher");
                let value = value.trim_start_matches('~').trim_matches('"');
                matchers.push((
                    key.to_owned(),
                    value.split('|').map(str::to_owned).collect(),
                ));
            }
        }
        if name == "by" {
            // Labels, not names.
            rest = after.split_once(')').expect("an end of the labels").1;
            continue;
        }
        let is_word = ["and", "or", "unless", "rate", "increase", "sum", "time"].contains(&name);
        if !(is_part || is_word || after.starts_with('(')) {
            found.push((name.to_owned(), matchers));
        }
        rest = after;
    }
    found
}

#[test]
fn names_are_found_in_expressions() {
    let found = named(r#"rate(a_total[5m]) > 0 and b{x=~"1|2",y="3"} / c_bytes < 1e9"#);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a_total", "b", "c_bytes"]);
    let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    assert_eq!(
        found[1].1,
        [
            ("x".to_owned(), values(&["1", "2"])),
            ("y".to_owned(), values(&["3"]))
        ]
    );
}

/// Every metric and label of an expression is told; answers how many names it has.
fn assert_told(families: &BTreeMap<String, Family>, expression: &str) -> usize {
    // As they are asked for: a sample's name is its family's and a suffix.
    let samples: BTreeMap<String, &Family> = families
        .iter()
        .flat_map(|(name, family)| {
            let keys = family.samples.keys();
            keys.map(move |(suffix, _)| (format!("{name}{suffix}"), family))
        })
        .collect();
    let asked = named(expression);
    let count = asked.len();
    for (name, matchers) in asked {
        // Prometheus' own.
        let is_own = name == "up";
        assert!(
            is_own || samples.contains_key(&name),
            "{name} is no metric: {expression}"
        );
        for (key, values) in matchers {
            // Prometheus puts it on everything.
            if key == "job" {
                assert_eq!(values, ["tidegate"]);
                continue;
            }
            // Commands that were used alone are there.
            if key == "command" {
                let known = |value: &String| Kind::ALL.iter().any(|kind| kind.name() == value);
                assert!(values.iter().all(known), "{values:?}");
                continue;
            }
            // The reader of the board chooses it.
            if values == ["$volume"] {
                continue;
            }
            let told: BTreeSet<&str> = samples[&name]
                .samples
                .keys()
                .flat_map(|(_, labels)| labels)
                .filter(|(label, _)| *label == key)
                .map(|(_, value)| value.as_str())
                .collect();
            for value in values {
                assert!(
                    told.contains(value.as_str()),
                    "{name} has no {key}={value}: {told:?}"
                );
            }
        }
    }
    count
}

#[test]
fn what_the_alerts_ask_for_is_told() {
    let rules = include_str!("../../../../docs/serve/tidegate-alerts.yml");
    let page = include_str!("../../../../docs/serve/monitor.md");
    let families = families();
    let (mut alerts, mut asked) = (0, 0);
    for line in rules.lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            alerts += 1;
            assert!(
                page.contains(&format!("| `{alert}` (")),
                "{alert} is not in monitor.md"
            );
        }
        if let Some(expression) = line.trim().strip_prefix("expr: ") {
            asked += assert_told(&families, expression);
        }
    }
    assert!(
        alerts >= 10 && asked > alerts,
        "{alerts} alerts, {asked} names"
    );
    assert_eq!(
        page.matches("` (page) |").count() + page.matches("` (ticket) |").count(),
        alerts
    );
}

#[test]
fn what_the_board_draws_is_told() {
    let board = include_str!("../../../../docs/serve/tidegate-board.json");
    let board: serde_json::Value = serde_json::from_str(board).unwrap();
    let families = families();
    let panels = board["panels"].as_array().unwrap();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        let asked = targets
            .iter()
            .map(|target| assert_told(&families, target["expr"].as_str().unwrap()));
        assert!(asked.sum::<usize>() > 0, "{}", panel["title"]);
    }
    assert!(panels.len() >= 10, "{}", panels.len());
}
