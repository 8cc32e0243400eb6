//! Which crate may use which, and which crates of others.

use super::{Findings, text_of};
use crate::workspace::{Crate, Dependency, Kind, Source, Workspace};

/// The arrows of ARCHITECTURE.md: what each crate may use in what it ships.
const MAY_USE: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("frames", &[]),
    ("figures", &[]),
    ("env", &["frames", "policy"]),
    ("device", &["env", "figures", "frames", "policy"]),
    ("mm", &["env", "frames", "policy"]),
    ("os", &["env", "figures", "frames", "policy"]),
    ("history", &["policy"]),
    ("world", &["device", "env", "frames", "policy"]),
    ("kernel", &["env", "frames", "history", "mm", "policy"]),
    (
        "workload",
        &["env", "frames", "history", "kernel", "mm", "policy"],
    ),
    (
        "tidegate",
        &["device", "env", "figures", "frames", "mm", "os", "policy"],
    ),
    (
        "scenario",
        &["device", "figures", "history", "policy", "world"],
    ),
    (
        "experiment",
        &[
            "device", "env", "figures", "frames", "history", "kernel", "mm", "os", "policy",
            "scenario", "workload", "world",
        ],
    ),
    ("report", &["env", "experiment", "figures", "policy"]),
    ("recordings", &["experiment", "figures", "policy", "report"]),
    ("reproduce", &["experiment", "report"]),
    (
        "replay",
        &[
            "device",
            "env",
            "experiment",
            "figures",
            "kernel",
            "world",
            "mm",
            "os",
            "policy",
            "report",
        ],
    ),
    (
        "cli",
        &[
            "recordings",
            "experiment",
            "figures",
            "os",
            "policy",
            "replay",
            "report",
            "reproduce",
            "serve",
            "workspace-hack",
        ],
    ),
    ("nbd", &[]),
    ("governor", &["figures", "os", "policy", "tidegate"]),
    ("capi", &["figures", "governor", "os", "tidegate"]),
    ("preload", &["figures", "tidegate"]),
    // `os` for `Arena`: a write's bytes are read while a writer may change them, and `os` is where
    // `unsafe` is.
    ("objects", &["env", "frames", "os", "policy"]),
    (
        "serve",
        &[
            "device", "env", "figures", "nbd", "objects", "os", "policy", "tidegate",
        ],
    ),
    ("guest", &[]),
    (
        "campaign",
        &[
            "device", "env", "figures", "frames", "history", "kernel", "mm", "policy", "world",
        ],
    ),
    ("python", &["figures", "os", "tidegate"]),
    (
        "python-lab",
        &[
            "campaign",
            "recordings",
            "experiment",
            "figures",
            "os",
            "replay",
            "report",
            "reproduce",
        ],
    ),
    ("testkit", &["env", "frames", "policy"]),
    ("workspace-hack", &["figures"]),
    ("xtask", &[]),
    ("instruments", &["figures", "xtask"]),
    (
        "workers",
        &["figures", "nbd", "os", "policy", "serve", "tidegate"],
    ),
];

/// The wings of the house, as folders: one may use those before it.
const WINGS: [&str; 3] = ["cache", "doors", "lab"];

/// Crates that use one of a wing behind theirs, each with what ends it.
const BEHIND: [(&str, &str); 3] = [
    // Where the package of the cache is, with which it shares a workspace (ADR 34).
    ("python-lab", "lab"),
    ("python-lab", "campaign"),
    // `resolver.feature-unification` of cargo, once it is stable.
    ("cli", "workspace-hack"),
];

/// Never, not in a test either: the two worlds do not know each other.
const NEVER: [(&str, &str); 2] = [("os", "world"), ("world", "os")];

/// Crates that use nobody else's code in what they ship.
const ALONE: [&str; 6] = ["policy", "frames", "env", "device", "mm", "nbd"];

/// The record of each dependency, its reason and its version.
const RECORD: &str = "docs/adr/0005-dependencies.md";

pub(super) fn judge(workspace: &Workspace, sources: &[Source], findings: &mut Findings) {
    let record = text_of(sources, RECORD);
    if record.is_none() {
        findings.wrong(RECORD, "is missing");
    }
    for one in &workspace.crates {
        ours(one, findings);
        others(one, record.unwrap_or_default(), findings);
    }
}

fn ours(one: &Crate, findings: &mut Findings) {
    let place = format!("crate {}", one.name);
    let Some((_, may)) = MAY_USE.iter().find(|(name, _)| *name == one.name) else {
        findings.wrong(&place, "has no row in the table of xtask/src/tidy/graph.rs");
        return;
    };
    for used in one
        .dependencies
        .iter()
        .filter(|dependency| dependency.wing.is_some())
    {
        if used.kind != Kind::Dev && is_behind(one, used) {
            findings.wrong(
                &place,
                format!(
                    "in {}/ must not use {}: its wing is behind",
                    one.wing, used.name
                ),
            );
        }
        let never = NEVER.contains(&(one.name.as_str(), used.name.as_str()));
        let ships = used.kind != Kind::Dev;
        if never || ships && !may.contains(&used.name.as_str()) {
            findings.wrong(
                &place,
                format!("must not use {} ({:?})", used.name, used.kind),
            );
        }
    }
}

/// A crate in no wing (tools) uses any of them, and none of them uses it.
fn is_behind(one: &Crate, used: &Dependency) -> bool {
    let place = |wing: &str| WINGS.iter().position(|name| *name == wing);
    let Some(used) = used.wing.as_deref() else {
        return false;
    };
    let behind = match (place(&one.wing), place(used)) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(here), Some(there)) => there > here,
    };
    behind && !BEHIND.contains(&(one.name.as_str(), used))
}

fn others(one: &Crate, record: &str, findings: &mut Findings) {
    let place = format!("crate {}", one.name);
    for used in one
        .dependencies
        .iter()
        .filter(|dependency| dependency.wing.is_none())
    {
        let ships = used.kind != Kind::Dev && !used.is_checker;
        if ships && ALONE.contains(&one.name.as_str()) {
            findings.wrong(
                &place,
                format!("ships no code of others, so not {}", used.name),
            );
        }
        if !record.contains(&format!("`{}`", used.name)) {
            findings.wrong(
                &place,
                format!("uses {}, which {RECORD} does not name", used.name),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, used: &str, is_ours: bool, kind: Kind, is_checker: bool) -> usize {
        let used = Dependency {
            name: used.into(),
            wing: is_ours.then(|| "cache".into()),
            kind,
            is_checker,
        };
        let one = Crate {
            dependencies: vec![used],
            ..Crate::bare(name, "cache")
        };
        let mut findings = Findings::default();
        ours(&one, &mut findings);
        others(&one, "| `loom` | `libc` | `proptest` |", &mut findings);
        findings.wrong.len()
    }

    #[test]
    fn arrows_run_one_way() {
        assert_eq!(found("mm", "policy", true, Kind::Normal, false), 0);
        assert_eq!(found("policy", "mm", true, Kind::Normal, false), 1);
        assert_eq!(found("mm", "world", true, Kind::Normal, false), 1);
        assert_eq!(found("mm", "world", true, Kind::Dev, false), 0);
        assert_eq!(found("os", "world", true, Kind::Dev, false), 1);
    }

    #[test]
    fn inner_crates_ship_no_code_of_others() {
        assert_eq!(found("env", "libc", false, Kind::Normal, false), 1);
        assert_eq!(found("env", "loom", false, Kind::Normal, true), 0);
        assert_eq!(found("frames", "proptest", false, Kind::Dev, false), 0);
        assert_eq!(found("os", "libc", false, Kind::Normal, false), 0);
        assert_eq!(found("os", "nix", false, Kind::Normal, false), 1);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert_eq!(found("nbd", "policy", true, Kind::Normal, false), 1);
    }

    #[test]
    fn a_wing_uses_those_before_it() {
        let behind = |name: &str, wing: &str, used: &str| {
            let one = Crate::bare(name, wing);
            let used = Dependency {
                name: "x".into(),
                wing: Some(used.into()),
                kind: Kind::Normal,
                is_checker: false,
            };
            is_behind(&one, &used)
        };
        assert!(!behind("serve", "doors", "cache"));
        assert!(!behind("mm", "cache", "cache"));
        assert!(behind("mm", "cache", "lab"));
        assert!(behind("os", "cache", "doors"));
        assert!(behind("report", "lab", "campaign"));
        assert!(!behind("campaign", "campaign", "lab"));
        assert!(!behind("python-lab", "doors", "lab"));
        assert!(behind("python", "doors", "lab"));
        assert!(behind("serve", "doors", "lab"));
    }
}
