//! `cargo instruments picture`: draws the plots that README.md and docs/ show, by running the
//! experiments.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::workspace::{Workspace, build_program, root};
use crate::{Result, at, steps};

/// A plot of an experiment, and where it is shown.
struct Picture {
    experiment: &'static str,
    /// Before, and after.
    columns: &'static str,
    /// Its name for `tidegate run`.
    drawn: &'static str,
    shown: &'static str,
}

const PICTURES: [Picture; 4] = [
    Picture {
        experiment: "cp-pauses",
        columns: "linux-2.6.36,tidegate",
        drawn: "pauses-cp.svg",
        shown: "docs/img/pauses.svg",
    },
    Picture {
        experiment: "many-writers",
        columns: "linux-6.12,tidegate",
        drawn: "pauses-4.svg",
        shown: "docs/img/four-writers.svg",
    },
    Picture {
        experiment: "rate-drop",
        columns: "linux-6.12,tidegate",
        drawn: "levels-1.svg",
        shown: "docs/img/rate-drop.svg",
    },
    Picture {
        experiment: "hung-device",
        columns: "linux-6.12,tidegate",
        drawn: "rates-hung.svg",
        shown: "docs/img/hung-device.svg",
    },
];

/// Longest time for one experiment.
const RUN_MAX: Duration = Duration::from_secs(5 * 60);

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::load()?;
    build_program()?;
    for picture in &PICTURES {
        let out = workspace
            .target
            .join("xtask/picture")
            .join(picture.experiment);
        let mut command = Command::new(workspace.program());
        command
            .args(["run", picture.experiment, "--replicas", "1", "--column"])
            .arg(picture.columns)
            .arg("--out")
            .arg(&out)
            .current_dir(root());
        steps::run(&mut command, RUN_MAX)?;
        let (from, to) = (out.join(picture.drawn), root().join(picture.shown));
        fs::copy(&from, &to).map_err(at(&from))?;
        println!("drawn: {}", picture.shown);
    }
    Ok(())
}
