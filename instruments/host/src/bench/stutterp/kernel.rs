//! The kernel's column: a cgroup, a swap file, and the worker processes in them.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Measured, Shape};
use crate::bench::chain::is_root;
use crate::bench::undo::{Deed, Process, Undo};
use crate::{Result, at, steps};

/// The folder in which cgroups of version 1 keep memory.
const GROUPS: &str = "/sys/fs/cgroup/memory";
/// The machine's limits of dirty memory: what it has, what it gets, and per cent of the group's
/// limit.
const LIMITS: [(&str, &str, u64); 2] = [
    ("dirty_background_ratio", "dirty_background_bytes", 10),
    ("dirty_ratio", "dirty_bytes", 20),
];
/// The folder in which they keep CPU time.
const CPUACCT: &str = "/sys/fs/cgroup/cpuacct";
/// Workers may overrun by a stall.
const PATIENCE: Duration = Duration::from_secs(300);

/// The part that this column lacks; none: it can be run.
pub(super) fn missing() -> Option<String> {
    if !is_root() {
        return Some("it needs root (a cgroup, a swap file, vm.dirty_bytes)".into());
    }
    let limit = Path::new(GROUPS).join("memory.limit_in_bytes");
    if !limit.exists() {
        return Some(format!("there is no {GROUPS} (memory cgroup of version 1)"));
    }
    ["mkswap", "swapon"]
        .into_iter()
        .find(|tool| !steps::is_there(tool, &["--version"]))
        .map(|tool| format!("{tool} is not installed (apt-get install util-linux)"))
}

/// Runs the workers of a shape.
pub(super) fn run(undo: &Undo, shape: &Shape, folder: &Path) -> Result<Measured> {
    let _scope = undo.scope();
    let name = format!("tidegate-bench-{}", std::process::id());
    let group = Path::new(GROUPS).join(&name);
    let account = Path::new(CPUACCT).join(&name);
    for path in [&group, &account] {
        undo.note(Deed::MadeFolder(path.clone()))?;
        fs::create_dir(path).map_err(at(path))?;
    }
    let limit = group.join("memory.limit_in_bytes");
    fs::write(&limit, shape.memory.to_string()).map_err(at(&limit))?;
    for (ratio, bytes, percent) in LIMITS {
        let vm = |name: &str| Path::new("/proc/sys/vm").join(name);
        // Of a ratio and its bytes one is in force and the other is zero, which cannot be written
        // back.
        let ruling =
            |name: &&str| fs::read_to_string(vm(name)).is_ok_and(|text| text.trim() != "0");
        let before = [ratio, bytes].into_iter().find(ruling);
        let before = vm(before.ok_or_else(|| format!("neither vm.{ratio} nor vm.{bytes} is set"))?);
        let value = fs::read_to_string(&before).map_err(|error| error.to_string())?;
        undo.note(Deed::Wrote(before, value.trim().to_owned()))?;
        fs::write(vm(bytes), (shape.memory * percent / 100).to_string())
            .map_err(|error| format!("vm.{bytes}: {error}"))?;
    }
    swap_on(undo, &folder.join("swap"), shape.memory)?;
    let files = folder.join("kernel");
    fs::create_dir_all(&files).map_err(at(&files))?;
    let measured = workers(undo, shape, &files, &group, &account);
    let _ = fs::remove_dir_all(&files);
    measured
}

fn swap_on(undo: &Undo, file: &Path, bytes: u64) -> Result<()> {
    undo.note(Deed::MadeFile(file.into()))?;
    let blocks = (bytes >> 20).to_string();
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).arg(file).stdout(Stdio::null());
        steps::run(&mut command, PATIENCE)
    };
    run("fallocate", &["-l", &format!("{blocks}MiB")])?;
    run("chmod", &["600"])?;
    run("mkswap", &["-q"])?;
    undo.note(Deed::SwappedOn(file.into()))?;
    run("swapon", &[])
}

fn workers(
    undo: &Undo,
    shape: &Shape,
    files: &Path,
    group: &Path,
    account: &Path,
) -> Result<Measured> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let end = shape.warm_up + shape.seconds;
    let start = |kind: &str, from: u64, words: Vec<String>| -> Result<Process> {
        let mut command = Command::new(&this);
        command
            .args(["bench", "stutterp-worker", kind])
            .arg(group)
            .args([from.to_string(), end.to_string()])
            .args(words)
            .stdout(Stdio::piped());
        let process = undo.start(&mut command)?;
        let number = process.number();
        let _ = fs::write(account.join("cgroup.procs"), number.to_string());
        Ok(process)
    };
    let mut all = Vec::new();
    for writer in 0..shape.writers() {
        let folder: PathBuf = files.join(format!("w{writer}"));
        let words = vec![
            folder.display().to_string(),
            shape.writers().to_string(),
            shape.file_bytes().to_string(),
        ];
        all.push(start("writer", 0, words)?);
    }
    for _ in 0..shape.hogs() {
        all.push(start(
            "hog",
            shape.warm_up,
            vec![shape.hog_bytes().to_string()],
        )?);
    }
    let words = vec![shape.mapping_pages().to_string()];
    all.push(start("mapper", shape.warm_up, words)?);
    let mut measured = Measured::default();
    for process in &all {
        let mut text = String::new();
        if let Some(mut output) = process.output() {
            output
                .read_to_string(&mut text)
                .map_err(|error| error.to_string())?;
        }
        process.wait(PATIENCE)?;
        read(&text, &mut measured);
    }
    let stat = fs::read_to_string(account.join("cpuacct.stat")).unwrap_or_default();
    let ticks = stat
        .lines()
        .find_map(|line| line.strip_prefix("system "))
        .and_then(|ticks| ticks.parse::<f64>().ok());
    measured.system_s = ticks.unwrap_or(f64::NAN) / 100.0;
    Ok(measured)
}

/// Takes a worker's answer in.
fn read(text: &str, measured: &mut Measured) {
    for line in text.lines() {
        let Some((what, value)) = line.split_once(' ') else {
            continue;
        };
        let Ok(value) = value.parse::<f64>() else {
            continue;
        };
        match what {
            "sample" => measured.samples_ms.push(value / 1e6),
            "touched" => measured.touched += value,
            "written" => measured.written_mib += value / 1_048_576.0,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_answer_is_added_up() {
        let mut measured = Measured::default();
        read("sample 2000000\nsample 500000\n", &mut measured);
        read("touched 7\n", &mut measured);
        read("touched 5\nwritten 2097152\nnonsense\n", &mut measured);
        assert_eq!(measured.samples_ms, [2.0, 0.5]);
        assert_eq!((measured.touched, measured.written_mib), (12.0, 2.0));
    }
}
