//! `serve --check`: what is right, what is wrong, and that nothing is served or made.

use std::fs;

use super::{Folder, MIB, Process, Written, listen, new_volume, sparse};

/// Its exit status, and the words on each stream.
fn check(folder: &Folder, arguments: &[&str]) -> (i32, String, String) {
    let mut process = Process::start(folder, &[&["--check"], arguments].concat());
    let status = process.ended().code().unwrap();
    (status, process.read("out"), process.said())
}

#[test]
fn what_is_right_ends_with_0_and_nothing_is_made() {
    let folder = Folder::new("check-right");
    let written = Written::new(&folder, "64MiB", "off");
    written.write(&[&new_volume(&folder, "a", ""), &new_volume(&folder, "b", "")]);
    let config = written.path.display().to_string();
    let right = |volumes: &str| format!("right: {volumes}, 64 MiB of memory\n");
    assert_eq!(
        check(&folder, &["--config", &config]),
        (0, right("2 volumes"), String::new())
    );
    for name in ["a.img", "b.img", "socket"] {
        assert!(!folder.path(name).exists(), "{name} was made");
    }
    // Words of the command line are looked at as well; a server that runs is in nobody's way.
    let volume = sparse(&folder, "c", MIB);
    let at = listen(&folder);
    let words = ["--memory", "64MiB", "--no-web", "--listen", &at, &volume];
    let mut server = Process::start(&folder, &words);
    server.wait_ready();
    let beside = Folder::new("check-beside");
    assert_eq!(
        check(&beside, &words),
        (0, right("1 volume"), String::new())
    );
    server.stop();
}

#[test]
fn what_is_wrong_ends_with_2_and_every_mistake_has_its_place() {
    let folder = Folder::new("check-wrong");
    let written = Written::new(&folder, "64MiB", "off");
    let config = written.path.display().to_string();
    let check = || check(&folder, &["--config", &config]);
    // No file at all.
    let (status, out, said) = check();
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(
        said.contains(&config) && said.contains("No such file"),
        "{said}"
    );
    // Keys that do not exist, and a value that is none: all of them at once.
    let bad = new_volume(&folder, "a", "on_eror = \"stop\"");
    fs::write(
        &written.path,
        format!("{}memry = \"1GiB\"\ndirty = \"lots\"\n{bad}", written.head),
    )
    .unwrap();
    let (status, out, said) = check();
    assert_eq!((status, out.as_str()), (2, ""));
    for text in [
        "did you mean `memory`?",
        "did you mean `on_error`?",
        "lots",
        &format!("{config}:4"),
    ] {
        assert!(said.contains(text), "{text}:\n{said}");
    }
    // Backings that are not there: each with its volume.
    let missing = |name: &str| {
        let path = folder.path(name);
        format!("[volume.{name}]\nbackend = \"{}\"\n", path.display())
    };
    written.write(&[&missing("b"), &new_volume(&folder, "a", ""), &missing("c")]);
    let (status, out, said) = check();
    assert_eq!((status, out.as_str()), (2, ""));
    for name in ["b", "c"] {
        let path = folder.path(name);
        let text = format!(
            "error: volume `{name}`: {}: there is no such file; to have it made, write new:",
            path.display()
        );
        assert!(said.contains(&text), "{text}:\n{said}");
    }
    assert!(!said.contains("`a`"), "{said}");
    // A record that is none, as the start says it.
    fs::write(folder.path("notes"), "a disk's image").unwrap();
    for (name, text) in [
        ("notes", "it is there and no record of requests"),
        ("nowhere/requests.csv", "No such file"),
    ] {
        let path = folder.path(name);
        let record = format!("{}record = \"{}\"\n", written.head, path.display());
        fs::write(&written.path, record + &new_volume(&folder, "a", "")).unwrap();
        let (status, out, said) = check();
        assert_eq!((status, out.as_str()), (2, ""));
        assert!(said.contains("error: `record`: "), "{said}");
        assert!(said.contains(name) && said.contains(text), "{said}");
    }
    // A file of another size than a start would make: as the start says it.
    sparse(&folder, "a.img", 4 * MIB);
    written.write(&[&new_volume(&folder, "a", "")]);
    let (status, out, said) = check();
    assert_eq!((status, out.as_str()), (2, ""));
    let text = "it is there and has 4 MiB, not 8 MiB; make file and `size` alike";
    assert!(said.contains(text), "{said}");
}
