//! One file at a time: its size, its `unsafe`, its notes; and whether anybody includes it.

use super::Findings;
use crate::workspace::Source;

/// Longest file, tests and all.
const LINES_MAX: usize = 1500;
/// Advice: lines without tests, of a file, of a function, and from which a module has a header.
const LINES_GOOD: usize = 800;
const FUNCTION_GOOD: usize = 70;
const HEADER_FROM: usize = 100;

/// Where `unsafe` may stand: raw memory, io_uring, calls of the C library, the context switch, zero
/// bytes as values, and data of one thread in a type that has to be `Sync`.
const UNSAFE: [&str; 21] = [
    "doors/capi/src/border/macros.rs",
    "doors/capi/src/border/mod.rs",
    "doors/capi/src/border/slots.rs",
    "doors/serve/src/demo/map/kernel.rs",
    "doors/preload/src/calls.rs",
    "doors/preload/src/system.rs",
    "cache/frames/src/zeroed.rs",
    "doors/governor/src/trim.rs",
    "lab/world/src/confined.rs",
    "lab/world/src/coroutine.rs",
    "cache/os/src/arena.rs",
    "cache/os/src/arena/homes.rs",
    "cache/os/src/ring.rs",
    "cache/os/src/ring/tests.rs",
    "cache/os/src/sys.rs",
    "cache/os/src/view.rs",
    "cache/tidegate/tests/memory.rs",
    "doors/python/src/bytes.rs",
    "doors/python/src/lent.rs",
    "instruments/guest/src/bin/guest-load/system.rs",
    "instruments/workers/src/bin/maps/memory.rs",
];

/// Notes that belong into an issue. Put together here so that this file has none.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

pub(super) fn judge(source: &Source, findings: &mut Findings) {
    unsafe_code(source, findings);
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        findings.wrong(
            &source.path,
            format!("{lines} lines, more than {LINES_MAX}"),
        );
    }
    if source.is_test() {
        return;
    }
    let shipped = source.shipped_lines().count();
    if shipped > LINES_GOOD {
        findings.advice(
            &source.path,
            format!("{shipped} lines without tests; {LINES_GOOD} is long"),
        );
    }
    if shipped > HEADER_FROM && !source.text.starts_with("//!") {
        findings.advice(
            &source.path,
            format!("{shipped} lines and no module header"),
        );
    }
    for (line, name, length) in long_functions(source) {
        findings.advice(
            &format!("{}:{line}", source.path),
            format!("{name} has {length} lines"),
        );
    }
}

fn unsafe_code(source: &Source, findings: &mut Findings) {
    if UNSAFE.contains(&source.path.as_str()) {
        return;
    }
    for (at, line) in source.text.lines().enumerate() {
        if has_unsafe(line) {
            let place = format!("{}:{}", source.path, at + 1);
            findings.wrong(
                &place,
                "unsafe, in a file that is not on the list of xtask/src/tidy/files.rs",
            );
        }
    }
}

/// True if a line of code opens something unsafe. Comments, strings, and lints whose names begin
/// like it do not.
fn has_unsafe(line: &str) -> bool {
    // Every second part stands between quotes.
    let code: String = line.split('"').step_by(2).collect();
    let code = code.split("//").next().unwrap_or_default();
    let mut words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '{'));
    let mut opened = false;
    words.any(|word| {
        let opens = opened && matches!(word, "fn" | "impl" | "extern" | "trait" | "{");
        if !word.is_empty() {
            opened = word == "unsafe";
        }
        opens || word == "unsafe{"
    }) || code.trim_end().ends_with("unsafe")
}

/// (line, name, length) of the functions that are long.
fn long_functions(source: &Source) -> Vec<(usize, String, usize)> {
    let mut long = Vec::new();
    let mut open: Option<(usize, String, usize)> = None;
    for (at, line) in source.shipped_lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some((start, name, depth)) = &open {
            if indent == *depth && line.trim_end() == format!("{}}}", " ".repeat(*depth)) {
                let length = at - start + 1;
                if length > FUNCTION_GOOD {
                    long.push((*start, name.clone(), length));
                }
                open = None;
            }
        } else if let Some(name) = function_name(line) {
            open = Some((at, name, indent));
        }
    }
    long
}

/// The name of a function whose body opens here or on a later line.
fn function_name(line: &str) -> Option<String> {
    let code = line.trim_start();
    let modifiers = ["pub", "const", "unsafe", "extern", "async"];
    let begins = code.starts_with("fn ") || modifiers.iter().any(|word| code.starts_with(word));
    if !begins || code.trim_end().ends_with([';', '}']) {
        return None;
    }
    let (_, rest) = code.split_once("fn ")?;
    let name: String = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

pub(super) fn notes(source: &Source, findings: &mut Findings) {
    for (at, line) in source.text.lines().enumerate() {
        for note in NOTES {
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if words.any(|word| word == note) {
                let place = format!("{}:{}", source.path, at + 1);
                findings.wrong(&place, format!("{note}: do it, or write an issue"));
            }
        }
    }
}

/// Files below a `src` that no module includes.
pub(super) fn dead(sources: &[Source], findings: &mut Findings) {
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some((home, path)) = source.path.split_once("/src/") else {
            continue;
        };
        if is_included(sources, home, path) {
            continue;
        }
        findings.wrong(&source.path, "no module includes it");
    }
}

fn is_included(sources: &[Source], home: &str, path: &str) -> bool {
    let module = path.strip_suffix(".rs").unwrap_or(path);
    let module = module.strip_suffix("/mod").unwrap_or(module);
    if matches!(module, "lib" | "main") || module.starts_with("bin/") {
        return true;
    }
    let (parent, name) = module.rsplit_once('/').unwrap_or(("", module));
    let parents = if parent.is_empty() {
        vec![format!("{home}/src/lib.rs"), format!("{home}/src/main.rs")]
    } else {
        vec![
            format!("{home}/src/{parent}.rs"),
            format!("{home}/src/{parent}/mod.rs"),
        ]
    };
    let includes = format!("mod {name};");
    sources.iter().any(|source| {
        parents.contains(&source.path)
            && source
                .text
                .lines()
                .any(|line| line.trim_start().ends_with(&includes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn unsafe_is_seen_in_code_only() {
        for line in [
            "unsafe {",
            "    unsafe fn f() {}",
            "let x = unsafe { y };",
            "unsafe impl Send",
        ] {
            assert!(has_unsafe(line), "{line}");
        }
        for line in [
            "#![deny(unsafe_code)]",
            "// unsafe {",
            "/// no unsafe fn here",
            "unsafe_op(x)",
        ] {
            assert!(!has_unsafe(line), "{line}");
        }
    }

    #[test]
    fn unsafe_in_a_string_is_not_code() {
        assert!(!has_unsafe(&format!("let text = {0}unsafe {{{0};", '"')));
    }

    #[test]
    fn unsafe_outside_the_list_is_wrong() {
        let mut findings = Findings::default();
        judge(
            &file("cache/mm/src/file/read.rs", "//! x\nunsafe { y }\n"),
            &mut findings,
        );
        assert_eq!(findings.wrong.len(), 1);
        judge(
            &file("cache/os/src/ring.rs", "//! x\nunsafe { y }\n"),
            &mut findings,
        );
        assert_eq!(findings.wrong.len(), 1);
    }

    #[test]
    fn notes_are_found_as_words() {
        let mut findings = Findings::default();
        let text = format!("// {}: later\nlet {}_COUNT = 1;\n", NOTES[0], NOTES[0]);
        notes(&file("a.rs", &text), &mut findings);
        assert_eq!(findings.wrong.len(), 1);
    }

    #[test]
    fn a_file_without_a_module_is_dead() {
        let mut tree = vec![
            file("crates/a/src/lib.rs", "mod used;\npub mod deep;\n"),
            file("crates/a/src/used.rs", "mod inner;\n"),
            file("crates/a/src/used/inner.rs", ""),
            file("crates/a/src/deep/mod.rs", "#[cfg(test)]\nmod tests;\n"),
            file("crates/a/src/deep/tests.rs", ""),
        ];
        let mut findings = Findings::default();
        dead(&tree, &mut findings);
        assert!(findings.wrong.is_empty(), "{findings:?}");
        tree.push(file("crates/a/src/used/lost.rs", ""));
        dead(&tree, &mut findings);
        assert_eq!(findings.wrong.len(), 1);
    }

    #[test]
    fn long_files_and_functions_are_told() {
        let body = "    x();\n".repeat(80);
        let text = format!("pub(crate) fn long() {{\n{body}}}\nfn short() {{\n    x();\n}}\n");
        let source = file("crates/a/src/lib.rs", &text);
        assert_eq!(long_functions(&source), [(1, "long".to_owned(), 82)]);
        let mut findings = Findings::default();
        judge(
            &file("crates/a/src/lib.rs", &"\n".repeat(1501)),
            &mut findings,
        );
        assert_eq!(findings.wrong.len(), 1);
    }
}
