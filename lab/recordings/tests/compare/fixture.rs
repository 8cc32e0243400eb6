//! The first seconds of a recording of a real kernel (`cargo instruments guest one-dd`), and copies
//! of it with something wrong: for the tests of this crate and, by its path, of the program.

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../recordings/tests/fixtures")
        .join(name)
}

/// A fresh folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let name = format!("tidegate-compare-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// A copy of the recording, its tables unpacked.
pub(crate) fn copy(name: &str) -> PathBuf {
    let to = folder(name);
    let from = fixture("guest");
    for file in [
        "scenario.toml",
        "writes.csv",
        "vmstat.csv",
        "ratelimit.csv",
        "device.csv",
    ] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    std::fs::write(to.join("pauses.csv"), unpacked(&from.join("pauses.csv.gz"))).unwrap();
    to
}

/// A copy with one change in one file.
pub(crate) fn changed(name: &str, file: &str, change: impl Fn(&str) -> String) -> PathBuf {
    let path = copy(name);
    let text = std::fs::read_to_string(path.join(file)).unwrap();
    let new = change(&text);
    assert_ne!(new, text, "{name} changes something");
    std::fs::write(path.join(file), new).unwrap();
    path
}
