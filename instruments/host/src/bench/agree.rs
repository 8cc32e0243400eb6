//! `cargo instruments bench agree`: the same experiments in the lab and on threads and files,
//! figure by figure.
//!
//! Column `tidegate` of experiments whose devices are files behind the `slow` wrapper, which is the
//! same code in both worlds. The program's own metrics are compared: medians and rates agree within
//! 10 %, 99th percentiles within 20 %. The longest of anything is shown and not judged: it is one
//! event of one run.
//!
//! A difference below a millisecond is marked apart from other misses: it is what a thread takes to
//! wake up on a machine that does other things too, and has nothing to do with the law.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::plan::{Device, Plan, Writer};
use crate::csv::{self, Table};
use crate::steps::End;
use crate::workspace::{Workspace, build_program, root};
use crate::{Result, steps};

/// Longest time for one experiment.
const RUN_MAX: Duration = Duration::from_secs(30 * 60);
/// An old and a new writer. `experiments/two-writers.toml` is on a simulated disk of 2010, which
/// files are not; so this one is a plan of ours.
const TWO: &str = "two-slow";
/// Which rows of which experiments; without rows, all of them.
const EXPERIMENTS: [(&str, &[&str]); 6] = [
    ("light-writer", &["beside", "null"]),
    (TWO, &[]),
    ("two-devices", &["both", "fast-alone"]),
    ("rate-drop", &["1"]),
    ("many-writers", &["1", "4"]),
    ("hung-device", &["hung"]),
];
/// Files no longer than the time is for: live, their space is taken before the run, which may be
/// memory.
const FILES: [(&str, &str); 7] = [
    ("light-writer", "task.heavy.file_mib=1536"),
    ("two-devices", "task.to-slow.file_mib=384"),
    ("two-devices", "task.to-fast.file_mib=2304"),
    ("rate-drop", "task.dd.file_mib=1536"),
    ("many-writers", "task.dd.file_mib=896"),
    ("hung-device", "task.to-hung.file_mib=1536"),
    ("hung-device", "task.to-well.file_mib=1536"),
];

/// How much two figures may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Band {
    Within(f64),
    Shown,
}

const FIGURES: [(&str, Band); 17] = [
    ("settled_mibps", Band::Within(0.1)),
    ("level_mib", Band::Within(0.1)),
    ("pause_p50_ms", Band::Within(0.1)),
    ("pause_p99_ms", Band::Within(0.2)),
    ("pause_rate", Band::Within(0.1)),
    ("write_p50_ms", Band::Within(0.1)),
    ("write_p99_ms", Band::Within(0.2)),
    ("write_max_ms", Band::Shown),
    ("writer_cv", Band::Shown),
    ("light_rate", Band::Within(0.1)),
    ("light_p50_ms", Band::Within(0.1)),
    ("light_p99_ms", Band::Within(0.2)),
    ("light_max_ms", Band::Shown),
    ("jain_early", Band::Within(0.1)),
    ("device_busy", Band::Within(0.1)),
    ("level_peak", Band::Within(0.1)),
    ("stall_s", Band::Within(0.1)),
];

/// A figure's name by its row, and what it came to.
type Figures = BTreeMap<(String, String), f64>;

/// The step.
pub(crate) fn run(only: &[String], out: Option<&Path>, files: &Path) -> End {
    compare(only, out, files).into()
}

/// Whether there is an experiment of that name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|(name, _)| *name)
}

fn compare(only: &[String], out: Option<&Path>, files: &Path) -> Result<()> {
    let workspace = Workspace::load()?;
    build_program()?;
    let out = out.map_or_else(|| workspace.target.join("xtask/agree"), Path::to_owned);
    let make = |folder: &Path| {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
    };
    make(&out)?;
    make(files)?;
    let mut text = "| experiment | row | figure | lab | live | live/lab | |\n\
                    |---|---|---|---:|---:|---:|---|\n"
        .to_owned();
    let (mut judged, mut missed, mut small) = (0, 0, 0);
    for (name, cases) in EXPERIMENTS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let scenario = out.join(format!("{name}.toml"));
        std::fs::write(&scenario, text_of(name, cases)?)
            .map_err(|error| format!("{}: {error}", scenario.display()))?;
        let run = |world: &str, live| {
            let out = out.join(name).join(world);
            figures(&workspace, name, &scenario, &out, live)
        };
        let (lab, live) = (run("lab", None)?, run("live", Some(files))?);
        for ((case, figure), lab, live) in pairs(&lab, &live) {
            let Some((_, band)) = FIGURES.iter().find(|(name, _)| *name == figure) else {
                continue;
            };
            let verdict = verdict(*band, figure, lab, live);
            judged += i32::from(*band != Band::Shown);
            missed += i32::from(verdict == MISS);
            small += i32::from(verdict == SMALL);
            let ratio = live / lab;
            let _ = writeln!(
                text,
                "| {name} | {case} | {figure} | {lab:.3} | {live:.3} | {ratio:.3} | {verdict} |"
            );
        }
    }
    let _ = writeln!(
        text,
        "\n{judged} figures judged: {missed} differ by more than their band, {small} by less than 1 ms."
    );
    println!("\n{text}");
    let path = out.join("agree.md");
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The scenario of an experiment.
fn text_of(name: &str, cases: &[&str]) -> Result<String> {
    if name == TWO {
        let plan = Plan {
            name: TWO,
            seconds: 40,
            devices: vec![Device::of(16)],
            writers: vec![Writer::heavy("old", 0, 0), Writer::heavy("new", 0, 10)],
        };
        return Ok(plan.scenario());
    }
    let path = root().join(format!("experiments/{name}.toml"));
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(cut(&text, cases))
}

/// What is not seen in the table: a part of nothing has no per cent.
const PRINTED: f64 = 0.001;
const MISS: &str = "differs";
const SMALL: &str = "differs, < 1 ms";

fn verdict(band: Band, figure: &str, lab: f64, live: f64) -> &'static str {
    let Band::Within(part) = band else {
        return "";
    };
    let differ = (live - lab).abs();
    if differ <= part * lab.abs() || differ < PRINTED {
        "agrees"
    } else if figure.ends_with("_ms") && differ < 1.0 {
        SMALL
    } else {
        MISS
    }
}

/// Figures that both have, in the order of `FIGURES` within a row.
fn pairs<'a>(
    lab: &'a Figures,
    live: &'a Figures,
) -> impl Iterator<Item = ((&'a str, &'a str), f64, f64)> {
    let place = |figure: &str| FIGURES.iter().position(|(name, _)| *name == figure);
    let mut both: Vec<_> = lab
        .iter()
        .filter_map(|(key, lab)| Some((key, *lab, *live.get(key)?)))
        .collect();
    both.sort_by_key(|((case, figure), ..)| (case.clone(), place(figure)));
    both.into_iter()
        .map(|((case, figure), lab, live)| ((case.as_str(), figure.as_str()), lab, live))
}

/// A scenario with some of its rows only, and no bands: those are of the lab.
fn cut(scenario: &str, cases: &[&str]) -> String {
    let mut text = String::new();
    let mut block = String::new();
    let mut flush = |block: &mut String| {
        let is_case = block.contains("[[case]]");
        let is_wanted = |case: &&str| block.contains(&format!("name = \"{case}\"\n"));
        let drop = block.contains("[[expect]]")
            || block.contains("[[published]]")
            || (is_case && !cases.is_empty() && !cases.iter().any(is_wanted));
        if !drop {
            text += block;
        }
        block.clear();
    };
    for line in scenario.lines() {
        if line.starts_with('[') {
            flush(&mut block);
        }
        block += line;
        block += "\n";
    }
    flush(&mut block);
    text
}

/// Runs an experiment and reads its metrics.
fn figures(
    workspace: &Workspace,
    name: &str,
    scenario: &Path,
    out: &Path,
    live: Option<&Path>,
) -> Result<Figures> {
    // Files that an earlier run left there are not read.
    let _ = std::fs::remove_dir_all(out);
    let mut command = Command::new(workspace.program());
    command
        .arg("run")
        .arg(scenario)
        .args(["--policy", "tidegate", "--replicas", "1", "--out"])
        .arg(out)
        .current_dir(root())
        .stdout(Stdio::null());
    for (_, set) in FILES.iter().filter(|(experiment, _)| *experiment == name) {
        command.args(["--set", set]);
    }
    if let Some(live) = live {
        command.arg("--live").arg(live);
    }
    steps::run(&mut command, RUN_MAX)?;
    read(&csv::only(out, "samples.csv")?)
}

fn read(samples: &Path) -> Result<Figures> {
    let mut figures = Figures::new();
    for row in Table::read(samples)?.select(&["task_kind", "run_id", "metric", "value"])? {
        let case = row[1].split('/').next().unwrap_or_default();
        if let ("run", Ok(value)) = (row[0], row[3].parse()) {
            figures.insert((case.to_owned(), row[2].to_owned()), value);
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_relative_and_small_differences_are_told_apart() {
        assert_eq!(
            verdict(Band::Within(0.1), "pause_p50_ms", 10.0, 10.9),
            "agrees"
        );
        assert_eq!(verdict(Band::Within(0.1), "pause_p50_ms", 10.0, 11.5), MISS);
        assert_eq!(verdict(Band::Within(0.2), "light_p99_ms", 0.01, 0.5), SMALL);
        assert_eq!(verdict(Band::Within(0.1), "settled_mibps", 0.1, 0.5), MISS);
        assert_eq!(
            verdict(Band::Within(0.1), "device_busy", 0.0, 0.0004),
            "agrees"
        );
        assert_eq!(verdict(Band::Shown, "write_max_ms", 1.0, 500.0), "");
    }

    #[test]
    fn a_scenario_is_cut_to_its_rows() {
        let scenario = "name = \"x\"\n[run]\nseed = 1\n\n[[case]]\nname = \"1\"\n\n[[case]]\nname = \"16\"\n\n\
                        [[policy]]\nname = \"tidegate\"\n\n[[expect]]\nid = \"e\"\ncases = [\"16\"]\n";
        let text = cut(scenario, &["1"]);
        assert!(
            text.contains("name = \"1\"\n") && !text.contains("16"),
            "{text}"
        );
        assert!(
            text.contains("[[policy]]") && !text.contains("[[expect]]"),
            "{text}"
        );
        assert!(cut(scenario, &[]).contains("name = \"16\"\n"));
    }

    #[test]
    fn only_what_both_have_is_compared() {
        let key = |figure: &str| ("1".to_owned(), figure.to_owned());
        let lab = Figures::from([(key("write_p50_ms"), 1.0), (key("pause_p50_ms"), 2.0)]);
        let live = Figures::from([
            (key("write_p50_ms"), 1.5),
            (key("pause_p50_ms"), 2.5),
            (key("stall_s"), 3.0),
        ]);
        let found: Vec<_> = pairs(&lab, &live).collect();
        assert_eq!(
            found,
            [
                (("1", "pause_p50_ms"), 2.0, 2.5),
                (("1", "write_p50_ms"), 1.0, 1.5)
            ]
        );
    }
}
