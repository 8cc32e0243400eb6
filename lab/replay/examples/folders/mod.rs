//! The traces of folders, for benches.

use std::path::{Path, PathBuf};

/// Traces of folders, by name: files that are packed, or end as a trace does. Without a folder,
/// those that are stored here.
pub(crate) fn traces(mut folders: Vec<String>) -> Result<Vec<PathBuf>, String> {
    if folders.is_empty() {
        folders.push(concat!(env!("CARGO_MANIFEST_DIR"), "/traces").to_owned());
    }
    let mut found = Vec::new();
    for folder in folders {
        let wrong = |error| format!("{folder}: {error}");
        for entry in std::fs::read_dir(&folder).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            let name = path.to_string_lossy();
            let known = [
                ".xz",
                ".zst",
                ".gz",
                ".u64",
                ".oracleGeneral",
                ".blkparse",
                ".perf",
            ];
            if known.iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The name of a trace: that of its file, up to the first point.
pub(crate) fn name(file: &str) -> &str {
    let name = Path::new(file).file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or(file);
    name.split('.').next().unwrap_or(name)
}
