//! Makes the list of loads from the modules of `src/loads`.

use std::path::Path;

/// The list of loads.
const LOADS: &str = "src/loads/mod.rs";

/// Writes `kinds.rs`: `kinds! { dd cp }`, of the modules of `src/loads` in their order.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LOADS}");
    let text = std::fs::read_to_string(LOADS).expect("the list of loads is there");
    let modules = text
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let modules = modules.collect::<Vec<_>>().join(" ");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let path = Path::new(&out).join("kinds.rs");
    std::fs::write(path, format!("kinds! {{ {modules} }}\n")).expect("cargo's folder");
}
