//! Threads of the library start by `os::spawn` or `os::start_thread`: those block the signals of
//! the program, which would otherwise end in them.

use super::Findings;
use crate::workspace::Source;

/// Crates whose threads run in programs of others.
const CRATES: [&str; 8] = [
    "cache/os/src/",
    "cache/tidegate/src/",
    "cache/mm/src/",
    "cache/device/src/",
    "doors/governor/src/",
    "doors/capi/src/",
    "doors/preload/src/",
    "doors/objects/src/",
];

/// The places that block them.
const STARTERS: [&str; 2] = ["cache/os/src/spawn.rs", "cache/os/src/file.rs"];

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for source in sources {
        let path = source.path.as_str();
        let is_judged = CRATES.iter().any(|folder| path.starts_with(folder));
        if !is_judged || STARTERS.contains(&path) || path.contains("tests") {
            continue;
        }
        let code = source
            .text
            .lines()
            .take_while(|line| *line != "mod tests {");
        for (at, line) in code.enumerate().filter(|(_, line)| starts(line)) {
            let place = format!("{path}:{}", at + 1);
            let line = line.trim();
            findings.wrong(&place, format!("`{line}`: start it by `os::spawn`"));
        }
    }
}

/// True for a line that starts a thread; tasks of a runtime are none.
fn starts(line: &str) -> bool {
    let line = line.trim();
    let words = [
        "thread::spawn(",
        "thread.spawn(",
        "builder.spawn(",
        ".spawn_scoped(",
    ];
    !line.starts_with("//")
        && (line.starts_with(".spawn(") || words.iter().any(|word| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_takes_signals_is_found() {
        let text = "let a = std::thread::spawn(run);\nlet b = thread::Builder::new()\n    .name(name)\n    .spawn(run);\n\
                    os::spawn(builder, run);\nself.handle.spawn(job.run());\nmod tests {\nthread::spawn(run);\n";
        let source = |path: &str| Source {
            path: path.into(),
            text: text.into(),
        };
        for (path, wrong) in [
            ("doors/capi/src/a.rs", 2),
            ("cache/os/src/spawn.rs", 0),
            ("cache/os/src/file/tests.rs", 0),
            ("doors/serve/src/a.rs", 0),
        ] {
            let mut findings = Findings::default();
            judge(&[source(path)], &mut findings);
            assert_eq!(findings.wrong.len(), wrong, "{path}: {:?}", findings.wrong);
        }
    }
}
