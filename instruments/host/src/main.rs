//! The instruments of the authors: `cargo instruments COMMAND`, in a workspace of its own.
//!
//! Benches of the programs that the first workspace builds, recordings of real kernels, and the
//! plots of the documents. Each command prints what it runs; whatever it leaves out because a tool
//! is not there, it says so in a line that begins with `SKIPPED`.
#![forbid(unsafe_code)]

mod bench;
mod guest;
mod picture;

use std::process::ExitCode;

use steps::End;
use xtask::{Arguments, Result, at, csv, steps, workspace};

const USAGE: &str = "\
The instruments of Tidegate's authors.

usage: cargo instruments COMMAND

  guest SCENARIO... [--set KEY=VALUE]... [--twice] | --all | --list
                                   records what a real kernel does, in virtual time
  numa                             whether a cache's memory is on the nodes that it asks: in a machine of two, by QEMU
  bench [STEP]... [--dir DIR] [--pairs N]
                                   the figures of README.md; steps: hit, lab, scan, swap, fio, slow
  bench pacing [--row R]... [--column C]... [--seconds S] [--strict PERCENT] [--out DIR]
                                   writers on a slow device: Linux, strict Linux, Tidegate (root)
  bench stutterp [--dir DIR]       memory under pressure: the kernel in a cgroup, Tidegate under the same limit (root)
  bench serve [--step S]... [--column C]... [--pairs N] [--seconds S] [--background MIB] [--dir DIR]
              [--programs DIR]
                                   the server: fio beside nbdkit, the pacing bar, limits (root for the bar)
  bench maps [--quick] [--only PART]... [--dir DIR]
                                   a map of ours beside the kernel's in a cgroup (root for it, and for the slow device) and umap
  picture                          redraws the plots that README.md and docs/ show
";

fn main() -> ExitCode {
    let mut arguments = Arguments::new(std::env::args().skip(1).collect());
    let end: End = match arguments.next_word().as_deref() {
        Some("guest") => guest::run(arguments),
        Some("numa") => arguments.finish().and_then(|()| guest::nodes::run()).into(),
        Some("bench") => bench::run(arguments).into(),
        Some("picture") => arguments.finish().and_then(|()| picture::run()).into(),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => End::Failed(format!("there is no command '{other}'\n\n{USAGE}")),
        None => End::Failed(USAGE.to_owned()),
    };
    match end {
        End::Passed => ExitCode::SUCCESS,
        End::Skipped(why) => {
            println!("SKIPPED: {why}");
            ExitCode::from(steps::SKIPPED)
        }
        End::Failed(problem) => {
            eprintln!("instruments: {problem}");
            ExitCode::FAILURE
        }
    }
}
