//! The header against this crate: the C compiler reads `include/tidegate.h`, and after it every
//! function, struct and number as this crate has them. A declaration that differs is an error of
//! its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use crate::{border, cache, close, failure, file, governors, map, queue, region, stats, told};

const HEADER: &str = include_str!("../../../include/tidegate.h");

fn declared() -> Vec<(&'static str, String)> {
    [
        told::declared(),
        cache::declared(),
        close::declared(),
        file::declared(),
        region::declared(),
        map::declared(),
        queue::declared(),
        stats::declared(),
        governors::declared(),
    ]
    .concat()
}

/// The source that checks the header.
fn judge() -> String {
    let mut text = String::from("#include \"tidegate.h\"\n");
    for (_, declaration) in declared() {
        text += &declaration;
        text.push('\n');
    }
    for layout in [
        cache::CacheOptions::layout(),
        border::Pin::layout(),
        queue::Request::layout(),
        queue::Done::layout(),
        stats::Stats::layout(),
        stats::FileStats::layout(),
        stats::Wait::layout(),
        map::MapStats::layout(),
        governors::TgShrinker::layout(),
        governors::TgShare::layout(),
    ] {
        text += &layout;
    }
    for (value, name) in failure::CODES {
        let name = name.to_str().unwrap();
        let _ = writeln!(text, "_Static_assert({name} == {value}, \"{name}\");");
    }
    for (name, value) in [cache::FLAGS, file::FLAGS, map::FLAGS, queue::FLAGS].concat() {
        let _ = writeln!(text, "_Static_assert({name} == {value}, \"{name}\");");
    }
    text
}

/// Names in a text that begin with `tg_` and are followed by a bracket, as functions are.
fn functions_of(text: &str) -> BTreeSet<&str> {
    let code = text
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    let words = code.flat_map(|code| code.split(|c: char| c.is_whitespace() || c == '*'));
    words
        .filter_map(|word| word.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("tg_"))
        .collect()
}

/// The C compiler's judgement of a text: what it says, or none if there is no compiler.
fn compiled(name: &str, text: &str) -> Option<String> {
    let path =
        std::env::temp_dir().join(format!("tidegate-header-{name}-{}.c", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let words = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-I",
        include,
    ];
    let ran = Command::new("cc").args(words).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    match ran {
        Ok(ran) => Some(String::from_utf8_lossy(&ran.stderr).into_owned()),
        Err(_) => {
            eprintln!("SKIPPED: there is no C compiler (cc)");
            None
        }
    }
}

#[test]
fn the_header_is_what_this_crate_is() {
    let names: BTreeSet<&str> = declared().iter().map(|(name, _)| *name).collect();
    assert_eq!(functions_of(HEADER), names);
    if let Some(said) = compiled("is", &judge()) {
        assert_eq!(said, "");
    }
}

/// The judge judges.
#[test]
fn a_header_that_differs_is_found() {
    for (name, wrong) in [
        ("argument", "int tg_sync(tg_cache cache);"),
        (
            "answer",
            "int tg_pread(tg_file file, void *data, size_t len, uint64_t offset);",
        ),
        ("size", "_Static_assert(sizeof(tg_pin) == 56, \"size\");"),
    ] {
        let text = format!("{}{wrong}\n", judge());
        if let Some(said) = compiled(name, &text) {
            assert!(said.contains("error"), "{name}: {said}");
        }
    }
}
