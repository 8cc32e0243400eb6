//! Two folders of results side by side.

use super::small::SMALL;
use super::{folder, run};

#[test]
fn what_a_change_does_is_told_in_per_cent_with_bands_and_plots() {
    let here = folder("diff");
    let name = "name = \"small\"\n";
    let small = SMALL.replace(name, &format!("{name}metrics = [\"mbps\"]\n"));
    std::fs::write(here.join("small.toml"), small).unwrap();
    let set = [
        "--set",
        "machine.dirty_percent=10",
        "--set",
        "machine.background_percent=2",
    ];
    let more = ["--set", "task.dd.file_mib=32"];
    let one = ["run", "small.toml", "--out", "one"];
    assert_eq!(run(&here, &one).0, 0);
    let other = [&["run", "small.toml", "--out", "other"][..], &set, &more].concat();
    assert_eq!(run(&here, &other).0, 0);
    let (status, out, err) = run(&here, &["diff", "one", "other", "--out", "page"]);
    assert_eq!(status, 0, "{err}");
    let written = out
        .lines()
        .find(|line| line.trim_start().starts_with("written_mb"));
    let written = written.unwrap_or_else(|| panic!("{out}"));
    assert!(
        written.contains("-4") || written.contains("-5"),
        "half as much: {written}"
    );
    assert!(out.contains("+ dirty_percent = 10"), "{out}");
    assert!(out.contains("band all-written [small]"), "{out}");
    assert!(
        out.contains("holds (67.") && out.contains("-> fails (3"),
        "{out}"
    );
    let page = std::fs::read_to_string(here.join("page/diff.html")).unwrap();
    for part in [
        "dirty and under writeback",
        "what all tasks move",
        "class=\"bad\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // With itself: nothing, and the figures that the scenario names say so.
    let (_, out, _) = run(&here, &["diff", "one", "one"]);
    assert!(out.contains("\n0 of "), "{out}");
    let named = out.lines().find(|line| line.starts_with("  mbps"));
    let named = named.unwrap_or_else(|| panic!("{out}"));
    assert!(named.contains("+0.0 %"), "{named}");
    assert!(out.contains("no band stands otherwise"), "{out}");
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn folders_without_results_or_with_nothing_in_common_are_told_so() {
    let here = folder("diff-none");
    std::fs::create_dir(here.join("empty")).unwrap();
    let (status, _, err) = run(&here, &["diff", "empty", "empty"]);
    assert_eq!(status, 2);
    assert!(
        err.contains("empty/runs.csv") && err.contains("--out DIR"),
        "{err}"
    );
    for (name, text) in [
        ("a", SMALL.to_owned()),
        ("b", SMALL.replace("\"small\"", "\"tiny\"")),
    ] {
        std::fs::write(here.join(name), text).unwrap();
        std::fs::rename(here.join(name), here.join(format!("{name}.toml"))).unwrap();
        let file = format!("{name}.toml");
        assert_eq!(run(&here, &["run", &file, "--out", name]).0, 0);
    }
    let (status, _, err) = run(&here, &["diff", "a", "b"]);
    assert_eq!(status, 2);
    assert!(
        err.contains("a has small/linux-2.6.36, small/tidegate; b has tiny/"),
        "{err}"
    );
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn a_row_is_run_by_its_name() {
    let here = folder("row");
    let arguments = [
        "run",
        "dd",
        "--column",
        "tidegate",
        "--scale",
        "1/64",
        "--replicas",
        "1",
    ];
    let row = [&arguments[..], &["--row", "xfs", "--out", "out"]].concat();
    let (status, _, err) = run(&here, &row);
    assert_eq!(status, 0, "{err}");
    let runs = std::fs::read_to_string(here.join("out/runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 2, "{runs}");
    assert!(runs.contains(",xfs,tidegate,"), "{runs}");
    let (status, _, err) = run(&here, &[&arguments[..], &["--row", "xf"]].concat());
    assert_eq!(status, 2);
    assert!(
        err.contains("there is no row `xf`; did you mean `xfs`?"),
        "{err}"
    );
    std::fs::remove_dir_all(here).unwrap();
}
