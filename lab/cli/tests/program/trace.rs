//! `--trace` from outside: which files there are, in the lab and live, and what is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::small::SMALL;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tidegate-trace-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("small.toml"), SMALL).unwrap();
    path
}

fn tidegate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "small.toml", "--out", "out"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Names of the traces in the results, sorted.
fn traces(folder: &Path) -> Vec<String> {
    let entries = folder.join("out").read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".perfetto-trace"))
        .collect();
    names.sort();
    names
}

#[test]
fn traces_of_an_earlier_run_do_not_stay_beside_later_results() {
    let folder = folder("earlier");
    assert!(tidegate(&folder, &["--trace"]).status.success());
    let own = folder.join("out/kept.perfetto-trace");
    std::fs::copy(folder.join("out").join(&traces(&folder)[0]), own).unwrap();
    assert!(tidegate(&folder, &["--seed", "2"]).status.success());
    assert_eq!(traces(&folder), ["kept.perfetto-trace"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn two_traces_of_one_name_are_refused_before_the_work() {
    let folder = folder("same");
    let rows = "[[row]]\nname = \"a\"\n[[row]]\nname = \"a-linux\"\n";
    let column = "[[column]]\nname = \"2.6.36\"\npreset = \"linux-2.6.36\"\n";
    let path = folder.join("small.toml");
    std::fs::write(path, format!("{SMALL}{rows}{column}")).unwrap();
    let output = tidegate(&folder, &["--trace=a,a-linux"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the traces of a/linux-2.6.36 and a-linux/2.6.36 would both be called"),
        "{said}"
    );
    assert!(!folder.join("out").exists());
    // One of them alone is no trouble.
    let output = tidegate(&folder, &["--trace=a-linux/2.6.36"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(traces(&folder), ["a-linux-2.6.36.perfetto-trace"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_of_each_column_of_the_first_row_and_where_to_open_it() {
    let folder = folder("row");
    let output = tidegate(&folder, &["--trace"]);
    assert!(output.status.success(), "{output:?}");
    let names = traces(&folder);
    assert_eq!(
        names,
        [
            "small-linux-2.6.36.perfetto-trace",
            "small-tidegate.perfetto-trace"
        ]
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let table = std::fs::read_to_string(folder.join("out/table.txt")).unwrap();
    assert!(table.contains("Pressure: %") && table.contains("Waits by cause"));
    for name in names {
        assert!(printed.contains(&name), "{printed}");
        let trace = std::fs::read(folder.join("out").join(name)).unwrap();
        // A packet first, and the name of a task in it somewhere.
        assert!(trace[0] == 0x0a && trace.len() > 1000);
        assert!(trace.windows(9).any(|bytes| bytes == b"reclaimer"));
    }
    let waits = std::fs::read_to_string(folder.join("out/waits.csv")).unwrap();
    assert!(
        waits.contains("small/tidegate/1,"),
        "all repetitions: {waits}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn one_chosen_cell_live() {
    let folder = folder("live");
    std::fs::create_dir(folder.join("files")).unwrap();
    let chosen = "--trace=small/tidegate";
    let live = ["--live", "files", "--memory", "64M", "--replicas", "1"];
    let output = tidegate(&folder, &[&live[..], &[chosen]].concat());
    let names = traces(&folder);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names.len(), 1, "{names:?}");
    let trace = std::fs::read(folder.join("out").join(&names[0])).unwrap();
    assert!(
        trace.windows(7).any(|bytes| bytes == b"flush-0"),
        "a thread's own name"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_run_that_there_is_not_is_refused_with_what_there_is() {
    let folder = folder("none");
    let output = tidegate(&folder, &["--trace=small/tidgate"]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("small/tidegate"), "{complaint}");
    assert!(
        !folder.join("out").exists(),
        "refused before anything is made"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
