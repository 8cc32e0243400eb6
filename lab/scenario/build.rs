//! Makes the list of the experiments that come with the program from the files in `experiments/`,
//! and that of the kinds of task from the modules of `src/kinds`.

use std::fmt::Write as _;
use std::path::Path;

/// The folder of the experiments, from here.
const EXPERIMENTS: &str = "../../experiments";
/// The file that lists the kinds of task.
const KINDS: &str = "src/kinds/mod.rs";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    experiments();
    kinds();
}

/// Writes `kinds.rs`: `kinds! { dd cp }`, of the modules of `src/kinds` in their order.
fn kinds() {
    println!("cargo::rerun-if-changed={KINDS}");
    let text = std::fs::read_to_string(KINDS).expect("the list of kinds is there");
    let modules = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let modules = modules.collect::<Vec<_>>().join(" ");
    write("kinds.rs", &format!("kinds! {{ {modules} }}\n"));
}

fn write(name: &str, text: &str) {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join(name), text).expect("cargo's folder");
}

/// Writes `experiments.rs`: (name, text) of each experiment, by name.
fn experiments() {
    println!("cargo::rerun-if-changed={EXPERIMENTS}");
    let entries = std::fs::read_dir(EXPERIMENTS).expect("experiments/ is beside the crates");
    let paths = entries.map(|entry| entry.expect("a folder can be listed").path());
    let is_toml = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "toml");
    let mut paths: Vec<_> = paths.filter(is_toml).collect();
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths {
        let path = path.canonicalize().expect("it was listed");
        let name = path.file_stem().expect("it ends in .toml");
        let _ = writeln!(list, "    ({name:?}, include_str!({path:?})),");
    }
    list.push_str("]\n");
    write("experiments.rs", &list);
}
