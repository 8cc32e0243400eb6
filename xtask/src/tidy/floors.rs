//! Floors inside a crate: which module may import which.
//!
//! A *house* is the folder of a crate's modules, or of one module's; its *rooms* are the files and
//! folders in it. `HOUSES` lists the floors of a house from top to bottom: a room may import what
//! lies on its own floor or below, and no rooms may import each other in a circle. There is no
//! exception.
//!
//! Imports are read from the text: `use` statements and paths that begin with `crate`, `super` or
//! `self`. A name that the house's root (`lib.rs`, `mod.rs`) re-exports belongs to the room that it
//! comes from. Tests do not count.
//!
//! Files of a crate import each other in no circle but those of `CIRCLES`, each of which has its
//! reason; a module may import its parts, and these what is its own.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use crate::workspace::Source;

/// Circles of files that stand: the sources of the crate, a file of the circle, and the reason.
const CIRCLES: &[(&str, &str, &str)] = &[
    (
        "cache/frames/src",
        "zeroed",
        "the types whose zero bytes are a value stand where `unsafe` may, and their tables use it",
    ),
    (
        "cache/mm/src",
        "file::read",
        "a read and a write fill pages for each other",
    ),
    (
        "cache/mm/src",
        "file::sync",
        "a sync cuts what a truncate owes, which waits as a sync does",
    ),
    (
        "cache/mm/src",
        "memory::apart",
        "free memory by groups, and the way to a group",
    ),
    (
        "cache/mm/src",
        "registry::mapping",
        "a device, its files and their gates hold each other",
    ),
    (
        "cache/tidegate/src",
        "cache",
        "a cache opens files and volumes, which keep it",
    ),
];

/// Houses: the folder from the root of the repository, and its floors from top to bottom, with the
/// rooms of each.
const HOUSES: &[(&str, &str)] = &[
    (
        "cache/mm/src",
        "lib | lifecycle complete inside | file anon | alloc | reclaim relocate | writeback \
         swap | stats | cache | swapfile | slabs | registry memory lists pages | options | \
         vmstat error",
    ),
    (
        "cache/policy/src",
        "lib | place shares | reclaim dirty writeback readahead rule | watermark ticks | \
         units",
    ),
    (
        "cache/policy/src/dirty",
        "mod | untold | domain tidegate | law | running | limits rules | types",
    ),
    (
        "lab/scenario/src",
        "lib | document | kinds | limits task | experiments catalogue presets | keys | \
         mistake units",
    ),
    (
        "lab/experiment/src",
        "lib | trial | run expect | pool watch | loads metrics | task outcome | stats \
         timeline",
    ),
    (
        "lab/report/src",
        "lib | diff | output | comparison | stalls table terminal | status",
    ),
    (
        "lab/recordings/src",
        "lib | command | load sweep | answer trace | folder lab pressure several show | \
         change guess recording | differ figures ticks | scale | setting | kind | rows | \
         fault",
    ),
    (
        "lab/reproduce/src",
        "lib | markdown page picture progress text | scoreboard | plan | papers | board | \
         asked calibrated grade wanted",
    ),
    (
        "lab/cli/src",
        "lib | program | chosen hashes list | args | replay server without_server",
    ),
];

pub(super) fn judge(sources: &[Source], findings: &mut Findings) {
    for (folder, floors) in HOUSES {
        judge_house(folder, floors, &imports(sources, folder), findings);
    }
    for folder in crates(sources) {
        let circles = files(sources, folder).circles();
        judge_circles(folder, &circles, CIRCLES, findings);
    }
}

/// The circles of a crate are those that are listed.
fn judge_circles(
    folder: &str,
    circles: &[Vec<String>],
    listed: &[(&str, &str, &str)],
    findings: &mut Findings,
) {
    let listed = listed.iter().filter(|(home, ..)| *home == folder);
    let listed: Vec<&str> = listed.map(|(_, file, _)| *file).collect();
    let has = |circle: &[String], file: &str| circle.iter().any(|name| name == file);
    for circle in circles {
        if !listed.iter().any(|file| has(circle, file)) {
            let what = format!("files import each other in a circle: {}", circle.join(", "));
            findings.wrong(folder, what);
        }
    }
    for file in listed {
        if !circles.iter().any(|circle| has(circle, file)) {
            let what = format!("{file} is in no circle any more: take it out of CIRCLES");
            findings.wrong(folder, what);
        }
    }
}

fn judge_house(place: &str, floors: &str, imports: &Imports, findings: &mut Findings) {
    let table = "the table of xtask/src/tidy/floors.rs";
    let floors: Vec<Vec<&str>> = floors
        .split('|')
        .map(|floor| floor.split_whitespace().collect())
        .collect();
    let floor_of = |room: &str| floors.iter().position(|floor| floor.contains(&room));
    for room in &imports.rooms {
        if floor_of(room).is_none() {
            findings.wrong(place, format!("{room} is on no floor in {table}"));
        }
    }
    for room in floors.iter().flatten() {
        if !imports.rooms.contains(*room) {
            findings.wrong(place, format!("{table} has {room}, which is not there"));
        }
    }
    for Import { from, to, place } in &imports.all {
        let floors = floor_of(from).zip(floor_of(to));
        if floors.is_some_and(|(from, to)| from > to) {
            findings.wrong(
                place,
                format!("{from} imports {to}, which is on a floor above"),
            );
        }
    }
    for circle in imports.circles() {
        let circle = circle.join(", ");
        findings.wrong(place, format!("import each other in a circle: {circle}"));
    }
}

/// The folders of the crates' sources.
fn crates(sources: &[Source]) -> BTreeSet<&str> {
    let homes = sources.iter().filter_map(|source| {
        let path = source.path.strip_suffix(".rs")?;
        path.strip_suffix("/lib").or(path.strip_suffix("/main"))
    });
    homes.filter(|home| home.ends_with("/src")).collect()
}

/// One import: of a room, by a room, and where.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    /// `file:line`.
    place: String,
}

#[derive(Default)]
struct Imports {
    rooms: BTreeSet<String>,
    all: BTreeSet<Import>,
}

impl Imports {
    fn circles(&self) -> Vec<Vec<String>> {
        circles(self.all.iter().map(|import| (&*import.from, &*import.to)))
    }
}

/// A module by the names that lead to it from the root of its crate.
type Path = Vec<String>;

/// The modules of a crate: what is shipped of them.
struct Tree<'a> {
    modules: BTreeMap<Path, &'a Source>,
    /// Per module, what it re-exports by what name.
    exports: BTreeMap<Path, BTreeMap<String, Path>>,
}

impl<'a> Tree<'a> {
    /// The crate whose sources lie in `home`.
    fn new(sources: &'a [Source], home: &str) -> Self {
        let mut modules = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for source in sources {
            let path = source
                .path
                .strip_prefix(home)
                .and_then(|path| path.strip_prefix('/'));
            let Some(path) = path.filter(|_| source.is_rust() && !source.is_test()) else {
                continue;
            };
            let Some(module) = module_of(path) else {
                continue;
            };
            for name in test_modules(source) {
                tests.insert(join(&module, &[name]));
            }
            modules.insert(module, source);
        }
        modules.retain(|path, _| !(1..=path.len()).any(|end| tests.contains(&path[..end])));
        let mut tree = Self {
            modules,
            exports: BTreeMap::new(),
        };
        for (module, source) in &tree.modules {
            let mut names = BTreeMap::new();
            for (_, used) in uses(source) {
                if let Some(path) = tree.absolute(module, &used.path) {
                    names.insert(used.name, path);
                }
            }
            tree.exports.insert(module.clone(), names);
        }
        tree
    }

    /// A path as written in `module`, from the root of the crate; nothing if it leads to another
    /// crate.
    fn absolute(&self, module: &[String], written: &[String]) -> Option<Path> {
        let mut base = module.to_vec();
        let mut rest = written;
        match rest.first()?.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                base.pop()?;
            }
            child => {
                // A name that is not the module's own child is another crate's, or is imported
                // already.
                return self
                    .modules
                    .contains_key(&join(module, &[child.to_owned()]))
                    .then(|| join(module, written));
            }
        }
        rest = &rest[1..];
        while let Some("super") = rest.first().map(String::as_str) {
            base.pop()?;
            rest = &rest[1..];
        }
        Some(join(&base, rest))
    }

    /// The module in which what a path names is written down: past re-exports.
    fn home_of(&self, path: &[String]) -> Path {
        let mut path = path.to_vec();
        // A re-export of a re-export; no more than there can be modules.
        for _ in 0..self.modules.len() {
            let end = (0..=path.len())
                .rev()
                .find(|end| self.modules.contains_key(&path[..*end]))
                .unwrap_or(0);
            let Some(name) = path.get(end) else {
                return path;
            };
            let exported = self
                .exports
                .get(&path[..end])
                .and_then(|names| names.get(name));
            match exported.filter(|exported| **exported != path) {
                Some(exported) => path = join(exported, &path[end + 1..]),
                None => {
                    path.truncate(end);
                    return path;
                }
            }
        }
        path
    }

    /// The modules that a module imports, with the lines.
    fn imports_of(&self, module: &[String]) -> Vec<(usize, Path)> {
        let source = self.modules[module];
        let mut written: Vec<(usize, Path)> = uses(source)
            .into_iter()
            .map(|(line, used)| (line, used.path))
            .collect();
        written.extend(paths(source));
        let mut found = Vec::new();
        for (line, path) in written {
            if let Some(path) = self.absolute(module, &path) {
                found.push((line, self.home_of(&path)));
            }
        }
        found
    }
}

fn join(base: &[String], rest: &[String]) -> Path {
    base.iter().chain(rest).cloned().collect()
}

/// The module that a file below `src` is. `bin/` holds programs of their own.
fn module_of(path: &str) -> Option<Path> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "main" | "mod" => Some(Vec::new()),
        _ if path.starts_with("bin/") => None,
        _ => Some(path.split('/').map(str::to_owned).collect()),
    }
}

/// The imports between the rooms of a house.
fn imports(sources: &[Source], folder: &str) -> Imports {
    let (home, inner) = split(folder);
    collect(sources, &home, |module| {
        let below = module.strip_prefix(&*inner)?;
        let room = below.first().map_or(root_of(&inner), String::as_str);
        Some(room.to_owned())
    })
}

/// The imports between the files of a house, but for those of a module by what lies below it: a
/// module shares its own items with its parts.
fn files(sources: &[Source], folder: &str) -> Imports {
    let (home, inner) = split(folder);
    let mut imports = collect(sources, &home, |module| {
        let below = module.strip_prefix(&*inner)?;
        Some(if below.is_empty() {
            root_of(&inner).to_owned()
        } else {
            below.join("::")
        })
    });
    let is_root = |file: &str| file == root_of(&inner);
    imports.all.retain(|import| {
        let inside = import.from.strip_prefix(import.to.as_str());
        !is_root(&import.to) && inside.is_none_or(|rest| !rest.starts_with("::"))
    });
    imports
}

/// The `src` of a house, and the module in it that the house is.
fn split(folder: &str) -> (String, Path) {
    let (home, inner) = folder.split_once("/src").unwrap_or((folder, ""));
    let names = inner.split('/').filter(|name| !name.is_empty());
    (format!("{home}/src"), names.map(str::to_owned).collect())
}

fn root_of(inner: &[String]) -> &'static str {
    if inner.is_empty() { "lib" } else { "mod" }
}

fn collect(sources: &[Source], home: &str, room: impl Fn(&[String]) -> Option<String>) -> Imports {
    let tree = Tree::new(sources, home);
    let mut imports = Imports::default();
    for (module, source) in &tree.modules {
        let Some(from) = room(module) else {
            continue;
        };
        imports.rooms.insert(from.clone());
        for (line, target) in tree.imports_of(module) {
            match room(&target) {
                Some(to) if to != from => {
                    imports.all.insert(Import {
                        from: from.clone(),
                        to,
                        place: format!("{}:{line}", source.path),
                    });
                }
                _ => {}
            }
        }
    }
    imports
}

/// An import by a `use` statement: its path, and the name it has here.
struct Used {
    path: Path,
    name: String,
}

/// The lines of a file that are shipped, without comments and strings, counted from 1.
fn code(source: &Source) -> impl Iterator<Item = (usize, String)> {
    source.shipped_lines().map(|(at, line)| {
        let code = line.split("//").next().unwrap_or_default();
        // Every second part stands between quotes.
        (
            at,
            code.split('"').step_by(2).collect::<Vec<_>>().join("\"\""),
        )
    })
}

/// The modules that are for tests alone.
fn test_modules(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let pairs = lines
        .windows(2)
        .filter(|pair| pair[0].starts_with("#[cfg(") && pair[0].contains("test"));
    pairs
        .filter_map(|pair| {
            pair[1]
                .strip_suffix(';')?
                .rsplit_once("mod ")
                .map(|(_, name)| name.to_owned())
        })
        .collect()
}

/// The `use` statements of a file, with their first lines.
fn uses(source: &Source) -> Vec<(usize, Used)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut for_tests = false;
    for (at, line) in code(source) {
        let line = line.trim();
        if open.is_none() {
            if line.starts_with("#[cfg(test)]") {
                for_tests = true;
                continue;
            }
            if let Some(rest) = after_use(line) {
                open = Some((at, rest.to_owned()));
            } else if !line.is_empty() && !line.starts_with("#[") {
                for_tests = false;
            }
        } else if let Some((_, text)) = &mut open {
            text.push(' ');
            text.push_str(line);
        }
        let Some((begun, text)) = open.take_if(|(_, text)| text.contains(';')) else {
            continue;
        };
        if !std::mem::take(&mut for_tests) {
            let tree = text.split(';').next().unwrap_or_default();
            let mut expanded = Vec::new();
            expand(&[], tree, &mut expanded);
            found.extend(expanded.into_iter().map(|used| (begun, used)));
        }
    }
    found
}

/// The text behind `use` in a line that begins a statement.
fn after_use(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    rest.strip_prefix("use ")
}

/// `a::{b, c::{self, d as e}}` as paths.
fn expand(base: &[String], tree: &str, found: &mut Vec<Used>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut base = base.to_vec();
        base.extend(segments(head));
        let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
        for part in split_group(group) {
            expand(&base, part, found);
        }
        return;
    }
    let (path, renamed) = match tree.split_once(" as ") {
        Some((path, name)) => (path, Some(name.trim())),
        None => (tree, None),
    };
    let mut full = base.to_vec();
    full.extend(segments(path));
    if full.len() > 1 && matches!(full.last().map(String::as_str), Some("self" | "*")) {
        full.pop();
    }
    if let Some(last) = full.last() {
        let name = renamed.unwrap_or(last).to_owned();
        found.push(Used { path: full, name });
    }
}

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::")
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
}

/// The parts of a group, of which some are groups themselves.
fn split_group(group: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0_u32, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Paths in code that begin with `crate`, `super` or `self`, with their lines.
fn paths(source: &Source) -> Vec<(usize, Path)> {
    let mut found = Vec::new();
    for (at, line) in code(source) {
        if after_use(line.trim()).is_some() {
            continue;
        }
        for head in ["crate::", "super::", "self::"] {
            for (start, _) in line.match_indices(head) {
                let before = &line[..start];
                let goes_on =
                    before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'));
                // `pub(in crate::a)` says who may see it.
                if goes_on || before.ends_with("(in ") {
                    continue;
                }
                let end = line[start..]
                    .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':')))
                    .map_or(line.len(), |end| start + end);
                found.push((at, segments(&line[start..end]).collect()));
            }
        }
    }
    found
}

/// Rooms that all reach each other, the longest circle first.
fn circles<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in pairs {
        next.entry(from).or_default().insert(to);
    }
    let reached = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
        while let Some(room) = open.pop() {
            if seen.insert(room) {
                open.extend(next.get(room).into_iter().flatten());
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|room| (*room, reached(room))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (room, seen) in &all {
        if seen.contains(room) {
            let mates = seen
                .iter()
                .filter(|mate| all.get(*mate).is_some_and(|back| back.contains(room)));
            found.insert(mates.map(|mate| (*mate).to_owned()).collect());
        }
    }
    let mut found: Vec<Vec<String>> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<Source> {
        let file = |(path, text): &(&str, &str)| Source {
            path: format!("crates/a/src/{path}"),
            text: (*text).into(),
        };
        files.iter().map(file).collect()
    }

    fn wrong_with(files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        let (folder, floors) = ("crates/a/src", "lib | top | low beside");
        judge_house(
            folder,
            floors,
            &imports(&tree(files), folder),
            &mut findings,
        );
        findings.wrong
    }

    fn wrong(low: &str) -> Vec<String> {
        let files = [
            (
                "lib.rs",
                "mod top;\nmod low;\nmod beside;\npub use top::Top;\n",
            ),
            ("top.rs", "use crate::low::Low;\n"),
            ("low/mod.rs", low),
            ("beside.rs", ""),
        ];
        wrong_with(&files)
    }

    #[test]
    fn down_and_beside_is_allowed() {
        for text in [
            "use crate::beside::B;\n",
            "use super::beside::{self, B};\nfn f() { crate::beside::g() }\n",
            "use other::top::T;\n// crate::top::T\nfn f() -> &str { \"crate::top::T\" }\n",
            "pub(in crate::top) struct A;\n",
            "#[cfg(test)]\nuse crate::top::T;\n",
            "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::top::T;\n}\n",
        ] {
            assert_eq!(wrong(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn up_is_wrong_however_it_is_written() {
        for text in [
            "use crate::top::T;\n",
            "use super::{\n    beside::B,\n    top::{T, U},\n};\n",
            "use crate::Top;\n",
            "pub(crate) use crate::top as up;\n",
            "fn f() {\n    let x = crate::top::f();\n}\n",
            "fn f(x: &super::Top) {}\n",
        ] {
            // It goes up, and closes a circle.
            assert_eq!(wrong(text).len(), 2, "{text}: {:?}", wrong(text));
        }
        assert!(
            wrong("\nuse crate::top::T;\n")[0]
                .starts_with("crates/a/src/low/mod.rs:2: low imports top")
        );
    }

    #[test]
    fn a_circle_on_one_floor_is_wrong() {
        let files = [
            ("lib.rs", ""),
            ("top.rs", ""),
            ("low.rs", "use crate::beside::B;\n"),
            ("low/deep.rs", ""),
            ("beside.rs", "use crate::low::deep::D;\n"),
        ];
        let found = wrong_with(&files);
        assert_eq!(
            found,
            ["crates/a/src: import each other in a circle: beside, low"]
        );
    }

    #[test]
    fn a_circle_of_files_is_wrong_until_it_is_listed() {
        let both = tree(&[
            (
                "lib.rs",
                "mod low;\nmod top;\npub use low::Low;\npub use top::Top;\n",
            ),
            ("low.rs", "use crate::Top;\nmod part;\n"),
            ("low/part.rs", "use super::Low;\n"),
            ("top.rs", "use crate::Low;\n"),
        ]);
        let found = |listed: &[(&str, &str, &str)], sources: &[Source]| {
            let mut findings = Findings::default();
            let circles = files(sources, "crates/a/src").circles();
            judge_circles("crates/a/src", &circles, listed, &mut findings);
            findings.wrong
        };
        assert_eq!(
            found(&[], &both),
            ["crates/a/src: files import each other in a circle: low, top"]
        );
        let listed = [("crates/a/src", "top", "a test"), ("crates/b/src", "x", "")];
        assert_eq!(found(&listed, &both), Vec::<String>::new());
        assert_eq!(found(&listed, &both[..3]).len(), 1);
    }

    #[test]
    fn rooms_and_table_are_the_same() {
        let files = [
            ("lib.rs", ""),
            ("top.rs", ""),
            ("low.rs", ""),
            ("new.rs", ""),
        ];
        // `new` has no floor, `beside` is not there.
        assert_eq!(wrong_with(&files).len(), 2);
    }

    #[test]
    fn the_rooms_of_a_folder_are_a_house_too() {
        let files = tree(&[
            ("lib.rs", ""),
            (
                "dirty/mod.rs",
                "mod law;\nmod types;\nuse law::Law;\npub use types::T;\n",
            ),
            ("dirty/law.rs", "use super::T;\nuse crate::units::U;\n"),
            ("dirty/types.rs", ""),
            ("units.rs", ""),
        ]);
        let found = imports(&files, "crates/a/src/dirty");
        let rooms: Vec<&str> = found.rooms.iter().map(String::as_str).collect();
        assert_eq!(rooms, ["law", "mod", "types"]);
        let all: Vec<[&str; 2]> = found.all.iter().map(|one| [&*one.from, &*one.to]).collect();
        assert_eq!(all, [["law", "types"], ["mod", "law"], ["mod", "types"]]);
    }

    #[test]
    fn modules_for_tests_are_none() {
        let files = tree(&[
            ("lib.rs", "#[cfg(test)]\nmod testing;\nmod low;\n"),
            ("testing.rs", "use crate::low::L;\n"),
            ("testing/more.rs", ""),
            ("low/tests.rs", "use crate::testing::T;\n"),
            ("low.rs", ""),
        ]);
        let found = imports(&files, "crates/a/src");
        assert!(!found.rooms.contains("testing") && found.all.is_empty());
    }

    #[test]
    fn the_longest_circle_comes_first() {
        let pairs = [
            ("a", "b"),
            ("b", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "c"),
            ("a", "c"),
        ];
        let found = circles(pairs.into_iter());
        assert_eq!(found, [vec!["c", "d", "e"], vec!["a", "b"]]);
    }
}
