//! A part of the tests: programs by name, a wing, or those that a change can affect.
//!
//! A change is a list of files. A file of a crate's `src` changes that crate: its own programs run,
//! and those of the crates that use it directly and name the changed module, within its wing; where
//! no crate of its wing uses it, in those behind, too. Crates that stand on it through these are
//! left out, by name, as are the longest programs of the users: seeds of faults and trace hashes
//! run in their place, and `cargo xtask test` proves the whole. A file of tests runs its own
//! program alone; a page, a table or a recording the programs whose source names it.
//!
//! Units are shared with the whole test command, as every selection has the same features
//! (`tidy::units`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::lab::Which;
use crate::programs::{self, Program};
use crate::workspace::{
    ALL_FEATURES, BUILD_MAX, Crate, Dependency, Kind, Source, Workspace, root, sources,
};
use crate::{Result, steps};

/// Wings that have a test command of their own, with the tools that go with each.
const WINGS: [(&str, &[&str]); 3] = [
    ("cache", &["cache"]),
    ("doors", &["doors"]),
    ("lab", &["lab", "campaign", "testkit", "xtask"]),
];
/// Crates whose sources decide a trace.
const TRACED: [&str; 8] = [
    "device",
    "env",
    "experiment",
    "frames",
    "mm",
    "policy",
    "workload",
    "world",
];
/// Crates whose tests read every scenario of `experiments/`.
const READ_SCENARIOS: [&str; 2] = ["experiment", "reproduce"];
/// Files of the root, and folders, that every crate is built by.
const BUILDS_ALL: [&str; 4] = ["Cargo.toml", "Cargo.lock", "clippy.toml", ".cargo/"];
/// Programs that take minutes of a core: a change of their own crate runs them.
const OWN: [&str; 7] = [
    "cli serve_kill",
    "recordings compare",
    "serve connection_many",
    "serve fuzz",
    "tidegate limit",
    "tidegate stamps",
    "tidegate tests",
];
/// Folders that only steps of `--all` look at, with the step.
const ONLY_ALL: [(&str, &str); 6] = [
    ("doors/python/", "python"),
    ("doors/python-lab/", "python"),
    ("python/", "python"),
    ("instruments/", "instruments"),
    ("packaging/", "dist"),
    ("include/", "c"),
];

/// Test programs to run, and the steps beside them.
#[derive(Default)]
pub(crate) struct Part {
    /// As the summary of tests names them: `mm cache`.
    pub(crate) programs: BTreeSet<String>,
    /// Random runs with faults.
    pub(crate) faults: bool,
    /// Trace hashes, of some experiments or of those that take seconds.
    pub(crate) hashes: Option<Which>,
}

impl Part {
    /// A wing, if the word is the name of one.
    pub(crate) fn of_wing(workspace: &Workspace, word: &str) -> Option<Self> {
        let (_, folders) = WINGS.iter().find(|(name, _)| *name == word)?;
        let of_it = workspace.crates.iter();
        let of_it = of_it.filter(|one| folders.contains(&one.wing.as_str()));
        Some(Self {
            programs: of_it.flat_map(Crate::programs).collect(),
            faults: word != "doors",
            hashes: (word == "lab").then_some(Which::Short),
        })
    }

    /// Builds the programs, no other, and answers them in order.
    ///
    /// # Errors
    /// They do not build.
    pub(crate) fn build(&self, workspace: &Workspace, all: bool) -> Result<Vec<Program>> {
        let mut whole = vec!["--lib".to_owned(), "--bins".into(), "--tests".into()];
        let mut libraries = vec!["--lib".to_owned()];
        let (none, mut some) = (whole.len(), Vec::new());
        for one in &workspace.crates {
            let package = ["-p".to_owned(), one.package.clone()];
            let wanted = one.programs().filter(|name| self.programs.contains(name));
            let wanted: Vec<String> = wanted.collect();
            if wanted.len() == one.programs().count() {
                whole.extend(package);
            } else if wanted == [format!("{} lib", one.name)] {
                libraries.extend(package);
            } else if !wanted.is_empty() {
                let mut words = package.to_vec();
                for name in &wanted {
                    match name.split_once(' ').map_or("", |(_, own)| own) {
                        "lib" => words.push("--lib".into()),
                        "bin" => words.push("--bins".into()),
                        test => words.extend(["--test".into(), test.into()]),
                    }
                }
                some.push(words);
            }
        }
        if whole.len() > none {
            some.push(whole);
        }
        if libraries.len() > 1 {
            some.push(libraries);
        }
        let mut built = Vec::new();
        for words in &some {
            let mut command = vec!["test"];
            command.extend(words.iter().map(String::as_str));
            if all {
                command.extend(ALL_FEATURES);
            }
            built.extend(programs::build(&command, BUILD_MAX)?);
        }
        built.retain(|program| self.programs.contains(&program.name));
        Ok(built)
    }
}

/// The programs that words name: `mm cache` or `serve_kill` one, `mm` all of a crate. Answers how
/// many words that took.
///
/// # Errors
/// None or several have that name; those near it.
pub(crate) fn named(workspace: &Workspace, words: &[String]) -> Result<(BTreeSet<String>, usize)> {
    let all: Vec<String> = workspace.crates.iter().flat_map(Crate::programs).collect();
    let first = words.first().map_or("", String::as_str);
    let of_crate = workspace.crates.iter().find(|one| one.name == first);
    if let (Some(one), Some(own)) = (of_crate, words.get(1)) {
        let name = format!("{} {own}", one.name);
        if all.contains(&name) {
            return Ok((BTreeSet::from([name]), 2));
        }
        let known: Vec<String> = one.programs().collect();
        return Err(format!(
            "there is no test program '{name}'; {first} has {}. A filter of tests comes behind the program: \
             cargo xtask test {} {own}",
            known.join(", "),
            known.last().map_or(first, String::as_str)
        ));
    }
    if let Some(one) = of_crate {
        return Ok((one.programs().collect(), 1));
    }
    let named: BTreeSet<String> = all
        .iter()
        .filter(|name| own(name) == first)
        .cloned()
        .collect();
    match named.len() {
        1 => Ok((named, 1)),
        0 => {
            let near: Vec<&str> = all
                .iter()
                .map(String::as_str)
                .filter(|name| is_near(name, first))
                .collect();
            let near = if near.is_empty() {
                let crates = workspace.crates.iter().map(|one| one.name.as_str());
                format!("crates: {}", crates.collect::<Vec<_>>().join(", "))
            } else {
                format!("near it: {}", near.join(", "))
            };
            Err(format!(
                "there is no wing, crate or test program '{first}'; {near}"
            ))
        }
        _ => {
            let named: Vec<String> = named.into_iter().collect();
            Err(format!("'{first}' is the name of {}", named.join(", ")))
        }
    }
}

/// The second word of a program's name.
fn own(name: &str) -> &str {
    name.split_once(' ').map_or("", |(_, own)| own)
}

/// A word of the name begins like `asked`, or has it inside.
fn is_near(name: &str, asked: &str) -> bool {
    let begins = asked.get(..3.min(asked.len())).unwrap_or(asked);
    name.split(' ')
        .any(|word| word.starts_with(begins) || asked.len() > 2 && word.contains(asked))
}

/// The change since `rev`: files that differ, and new ones.
struct Change {
    since: String,
    files: Vec<String>,
}

impl Change {
    fn since(rev: Option<String>) -> Result<Self> {
        let (rev, why) = match rev {
            Some(rev) => (rev, ""),
            None => default_rev()?,
        };
        // Changes of others since the branch left `rev` are not its own.
        let base = git(&["merge-base", "HEAD", &rev])?;
        let since = git(&["rev-parse", "--short=12", &base])?;
        let changed = git(&["diff", "--name-only", "--no-renames", &since])?;
        let new = git(&["ls-files", "--others", "--exclude-standard"])?;
        let files: BTreeSet<&str> = changed.lines().chain(new.lines()).collect();
        Ok(Self {
            since: format!("{since}{why}"),
            files: files.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// Where the branch left `main`; on `main` itself the last commit, or what stands before it if
/// nothing has changed since.
fn default_rev() -> Result<(String, &'static str)> {
    let mains = ["main", "origin/main"];
    let base = mains
        .iter()
        .find_map(|main| git(&["merge-base", "HEAD", main]).ok());
    let head = git(&["rev-parse", "HEAD"])?;
    if let Some(base) = base.filter(|base| *base != head) {
        return Ok((base, ", where the branch left main"));
    }
    if git(&["status", "--porcelain"])?.is_empty() {
        Ok(("HEAD^".into(), ", the commit before the last"))
    } else {
        Ok(("HEAD".into(), ", the last commit"))
    }
}

fn git(words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    // Names as they are, whatever letters they have.
    command
        .args(["-c", "core.quotePath=false"])
        .args(words)
        .current_dir(root());
    let output = command.output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", steps::typed(&command), said.trim()));
    }
    let text = String::from_utf8(output.stdout).map_err(|error| format!("git: {error}"))?;
    Ok(text.trim_end().to_owned())
}

/// The part that a change since `rev` can affect; prints it, its causes, and the programs left out.
///
/// # Errors
/// There is no git, no such revision, or the tree cannot be read.
pub(crate) fn changed(workspace: &Workspace, rev: Option<String>) -> Result<Part> {
    let change = Change::since(rev)?;
    let rust = sources(&["rs"])?;
    let tree = Tree {
        workspace,
        rust: &rust,
    };
    let reach = tree.reach(&change.files);
    println!(
        "changed since {}: {} files",
        change.since,
        change.files.len()
    );
    for line in &reach.why {
        println!("    {line}");
    }
    let part = reach.part(workspace);
    let runs: Vec<&str> = part.programs.iter().map(String::as_str).collect();
    println!(
        "runs: {}",
        if runs.is_empty() {
            "no test program".into()
        } else {
            runs.join(", ")
        }
    );
    let beside = [
        Some("format, tidy"),
        part.faults.then_some("seeds of faults"),
        part.hashes.is_some().then_some("trace hashes"),
    ];
    let beside: Vec<&str> = beside.into_iter().flatten().collect();
    println!("      {}", beside.join(", "));
    let out = workspace.crates.iter().flat_map(Crate::programs);
    let out: Vec<String> = out.filter(|name| !part.programs.contains(name)).collect();
    if !out.is_empty() {
        println!("left out, cargo xtask test runs them: {}", out.join(", "));
    }
    Ok(part)
}

/// Programs and steps that files reach.
#[derive(Default)]
struct Reach {
    /// Programs of their own.
    programs: BTreeSet<String>,
    /// Crates whose sources changed.
    crates: BTreeSet<String>,
    /// Experiments whose scenarios changed; all that take seconds, where it is empty and `hashes`.
    experiments: BTreeSet<String>,
    hashes: bool,
    all: bool,
    /// A line for each file, or for those of one folder.
    why: Vec<String>,
}

impl Reach {
    fn part(&self, workspace: &Workspace) -> Part {
        let all = workspace.crates.iter().flat_map(Crate::programs);
        let traced = self.all || TRACED.iter().any(|name| self.crates.contains(*name));
        let hashes = if traced || self.hashes {
            Some(Which::Short)
        } else if self.experiments.is_empty() {
            None
        } else {
            Some(Which::Named(self.experiments.iter().cloned().collect()))
        };
        Part {
            programs: if self.all {
                all.collect()
            } else {
                self.programs.clone()
            },
            faults: traced || self.crates.contains("campaign"),
            hashes,
        }
    }
}

/// The tree that a change is looked at in.
struct Tree<'a> {
    workspace: &'a Workspace,
    rust: &'a [Source],
}

impl Tree<'_> {
    fn reach(&self, files: &[String]) -> Reach {
        let mut reach = Reach::default();
        // Modules that changed, by crate; of none, the whole crate.
        let mut changed: BTreeMap<&str, BTreeSet<Option<String>>> = BTreeMap::new();
        let mut why: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for file in files {
            let said = self.of_file(file, &mut reach, &mut changed);
            why.entry(said).or_default().push(file);
        }
        for (said, files) in why {
            let more = files.len() - 1;
            let others = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            reach.why.push(format!("{}{others}: {said}", files[0]));
        }
        for (name, modules) in changed {
            reach.crates.insert(name.to_owned());
            let Some(one) = self.workspace.crates.iter().find(|one| one.name == name) else {
                continue;
            };
            reach.programs.extend(one.programs());
            let mut users = Vec::new();
            // A wing behind sees a change through the crates of this wing that stand on it.
            let is_door = !self.workspace.crates.iter().any(|user| {
                let ships = |used: &&Dependency| used.kind == Kind::Normal && used.name == name;
                user.wing == one.wing && user.dependencies.iter().any(|used| ships(&used))
            });
            for user in &self.workspace.crates {
                let is_seen = is_door || user.wing == one.wing;
                if is_seen && uses(user, name) && self.names(user, one, &modules) {
                    let programs = user.programs();
                    reach
                        .programs
                        .extend(programs.filter(|name| !OWN.contains(&name.as_str())));
                    users.push(user.name.as_str());
                }
            }
            if !users.is_empty() {
                reach
                    .why
                    .push(format!("{name} is used by {}", users.join(", ")));
            }
        }
        reach
    }

    /// Adds the programs that a file reaches; answers them in a few words.
    fn of_file<'b>(
        &'b self,
        file: &str,
        reach: &mut Reach,
        changed: &mut BTreeMap<&'b str, BTreeSet<Option<String>>>,
    ) -> String {
        if let Some((_, step)) = ONLY_ALL.iter().find(|(folder, _)| file.starts_with(folder)) {
            self.of_page(file, reach);
            return format!("cargo xtask test --only {step}");
        }
        if BUILDS_ALL.iter().any(|start| file.starts_with(start)) {
            reach.all = true;
            return "everything".into();
        }
        if let Some(one) = self.crate_of(file) {
            let rest = &file[one.folder.len() + 1..];
            return of_crate(one, rest, reach, changed);
        }
        let experiment = file.strip_prefix("experiments/");
        if let Some(name) = experiment.and_then(|name| name.strip_suffix(".toml")) {
            reach.experiments.insert(name.to_owned());
            let readers = self.workspace.crates.iter();
            let readers = readers.filter(|one| READ_SCENARIOS.contains(&one.name.as_str()));
            reach.programs.extend(readers.flat_map(Crate::programs));
            self.of_page(file, reach);
            return format!("its trace hashes, {}", READ_SCENARIOS.join(", "));
        }
        if experiment == Some("hashes.txt") {
            reach.hashes = true;
            return "trace hashes".into();
        }
        let named = self.of_page(file, reach);
        if named.is_empty() {
            "tidy alone".into()
        } else {
            format!(
                "named by {}",
                named.into_iter().collect::<Vec<_>>().join(", ")
            )
        }
    }

    fn crate_of(&self, file: &str) -> Option<&Crate> {
        let crates = self.workspace.crates.iter();
        crates.into_iter().find(|one| {
            file.strip_prefix(one.folder.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// Programs with a source that names a file in a string, or the folder of the root it is in.
    fn of_page(&self, file: &str, reach: &mut Reach) -> BTreeSet<String> {
        let name = Path::new(file)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let folder = file.split('/').next().filter(|first| *first != file);
        let mut ends = vec![format!("/{name}\"")];
        ends.extend(folder.map(|folder| format!("/{folder}\"")));
        let naming = self
            .rust
            .iter()
            .filter(|source| ends.iter().any(|end| source.text.contains(end)));
        let mut named = BTreeSet::new();
        for source in naming {
            if let Some(one) = self.crate_of(&source.path) {
                named.extend(program_of(one, &source.path[one.folder.len() + 1..]));
            }
        }
        reach.programs.extend(named.iter().cloned());
        named
    }

    /// A source of `user` names one of the modules of `used`; yes where they cannot be told apart.
    fn names(&self, user: &Crate, used: &Crate, modules: &BTreeSet<Option<String>>) -> bool {
        let lib = format!("{}/src/lib.rs", used.folder);
        let lib = self.rust.iter().find(|source| source.path == lib);
        let lib = lib.map_or("", |source| source.text.as_str());
        modules.iter().any(|module| {
            let Some(module) = module else { return true };
            // An item that the root of a crate shows again is named without its module.
            if !lib.lines().any(|line| line == format!("pub mod {module};"))
                || lib.contains(&format!("pub use {module}::"))
            {
                return true;
            }
            let inside = self.rust.iter().filter(|source| {
                let rest = source.path.strip_prefix(user.folder.as_str());
                rest.is_some_and(|rest| rest.starts_with('/'))
            });
            inside
                .into_iter()
                .any(|source| names_module(&source.text, &used.ident, module))
        })
    }
}

/// The same for a file of a crate.
fn of_crate<'a>(
    one: &'a Crate,
    rest: &str,
    reach: &mut Reach,
    changed: &mut BTreeMap<&'a str, BTreeSet<Option<String>>>,
) -> String {
    if rest.starts_with("examples/") || rest.starts_with("benches/") {
        return "cargo xtask test --only clippy".into();
    }
    let is_source = rest == "build.rs" || rest == "Cargo.toml" || rest.starts_with("src/");
    if is_source && !is_unit_test(rest) {
        let module = rest.strip_prefix("src/").map(|path| {
            let first = path.split('/').next().unwrap_or_default();
            first.trim_end_matches(".rs").to_owned()
        });
        let module = module.filter(|name| name != "lib" && name != "main");
        changed.entry(&one.name).or_default().insert(module);
        return one.name.clone();
    }
    let programs = program_of(one, rest);
    let said = programs.iter().cloned().collect::<Vec<_>>().join(", ");
    reach.programs.extend(programs);
    said
}

/// Tests, and what they are compared with, below `src`.
fn is_unit_test(rest: &str) -> bool {
    let parts = ["/tests/", "/golden/", "/snapshots/"];
    rest.ends_with("/tests.rs") || parts.iter().any(|part| rest.contains(part))
}

/// Programs that a file of a crate's tests is a part of: of a source its library's, of a folder
/// that is a program, or of a file that is one, that; of another, all.
fn program_of(one: &Crate, rest: &str) -> BTreeSet<String> {
    let program = |own: &str| format!("{} {own}", one.name);
    if rest.starts_with("src/") {
        return one
            .programs()
            .filter(|name| *name == program("lib"))
            .collect();
    }
    let mut own = BTreeSet::new();
    for (name, path) in &one.tests {
        let folder = path
            .strip_suffix("main.rs")
            .filter(|folder| *folder != "tests/");
        if path == rest || folder.is_some_and(|folder| rest.starts_with(folder)) {
            own.insert(program(name));
        }
    }
    if own.is_empty() {
        own = one
            .programs()
            .filter(|name| *name != program("lib") && *name != program("bin"))
            .collect();
    }
    if own.is_empty() {
        own = one.programs().collect();
    }
    own
}

fn uses(user: &Crate, name: &str) -> bool {
    user.name != name
        && user
            .dependencies
            .iter()
            .any(|used| used.wing.is_some() && used.name == name && used.kind != Kind::Build)
}

/// The text has `ident::module`, or `ident::{.., module, ..}`, or all of it by `*`.
fn names_module(text: &str, ident: &str, module: &str) -> bool {
    let start = format!("{ident}::");
    let is_word = |text: &str| {
        text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .any(|word| word == module)
    };
    text.match_indices(&start).any(|(at, _)| {
        let behind = &text[at + start.len()..];
        if behind.starts_with('*') {
            return true;
        }
        let end = if behind.starts_with('{') {
            behind.find(';')
        } else {
            behind.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
        };
        is_word(&behind[..end.unwrap_or(behind.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, wing: &str, used: &[&str], tests: &[&str]) -> Crate {
        let dependency = |name: &&str| Dependency {
            name: (*name).into(),
            wing: Some("cache".into()),
            kind: Kind::Normal,
            is_checker: false,
        };
        Crate {
            dependencies: used.iter().map(dependency).collect(),
            units: vec!["lib"],
            tests: tests
                .iter()
                .map(|path| {
                    let name = path.trim_end_matches(".rs").trim_end_matches("/main");
                    let name = name.rsplit('/').next().unwrap_or(name);
                    (name.to_owned(), (*path).to_owned())
                })
                .collect(),
            ..Crate::bare(name, wing)
        }
    }

    fn workspace() -> Workspace {
        Workspace {
            target: "target".into(),
            crates: vec![
                one("policy", "cache", &[], &[]),
                one("os", "cache", &["policy"], &[]),
                one(
                    "mm",
                    "cache",
                    &["policy"],
                    &["tests/cache/main.rs", "tests/faults.rs"],
                ),
                one(
                    "serve",
                    "doors",
                    &["mm", "policy"],
                    &["tests/churn.rs", "tests/fuzz.rs"],
                ),
            ],
        }
    }

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
        }
    }

    fn reached(files: &[&str]) -> Part {
        let workspace = workspace();
        let rust = [
            source(
                "cache/policy/src/lib.rs",
                "pub mod dirty;\npub mod units;\n",
            ),
            source("cache/os/src/lib.rs", "use policy::units::Bytes;\n"),
            source(
                "cache/mm/src/lib.rs",
                "use policy::{dirty::Law, units::Bytes};\n",
            ),
            source(
                "doors/serve/src/lib.rs",
                "const PAGE: &str = include_str!(\"../../../docs/serve.md\");",
            ),
        ];
        let tree = Tree {
            workspace: &workspace,
            rust: &rust,
        };
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        tree.reach(&files).part(&workspace)
    }

    fn programs(files: &[&str]) -> Vec<String> {
        reached(files).programs.into_iter().collect()
    }

    #[test]
    fn a_source_runs_its_crate_and_those_that_name_its_module() {
        let of_mm = ["mm cache", "mm faults", "mm lib", "policy lib"];
        assert_eq!(programs(&["cache/policy/src/dirty/pacer.rs"]), of_mm);
        let all = ["mm cache", "mm faults", "mm lib", "os lib", "policy lib"];
        assert_eq!(programs(&["cache/policy/src/units.rs"]), all);
        assert_eq!(programs(&["cache/policy/src/lib.rs"]), all);
        // The door of a wing is seen by those behind it, but for their longest programs;
        // `policy` is seen through `mm`.
        let of_serve = [
            "mm cache",
            "mm faults",
            "mm lib",
            "serve churn",
            "serve lib",
        ];
        assert_eq!(programs(&["cache/mm/src/file/write.rs"]), of_serve);
    }

    #[test]
    fn tests_run_their_own_program() {
        assert_eq!(programs(&["cache/mm/tests/cache/attack.rs"]), ["mm cache"]);
        assert_eq!(programs(&["cache/mm/tests/faults.rs"]), ["mm faults"]);
        let both = ["mm cache", "mm faults"];
        assert_eq!(programs(&["cache/mm/tests/contract/mod.rs"]), both);
        assert_eq!(
            programs(&["cache/policy/src/dirty/tests.rs"]),
            ["policy lib"]
        );
    }

    #[test]
    fn pages_run_the_programs_that_name_them() {
        assert_eq!(programs(&["docs/serve.md"]), ["serve lib"]);
        assert!(programs(&["docs/other.md", "python/x.py", "cache/mm/benches/scan.rs"]).is_empty());
    }

    #[test]
    fn faults_and_hashes_go_with_the_crates_that_decide_a_trace() {
        let beside = |file: &str| {
            let part = reached(&[file]);
            (part.faults, part.hashes.is_some())
        };
        assert_eq!(beside("cache/policy/src/units.rs"), (true, true));
        assert_eq!(beside("cache/os/src/lib.rs"), (false, false));
        assert_eq!(beside("doors/serve/src/lib.rs"), (false, false));
        assert_eq!(beside("Cargo.lock"), (true, true));
        assert_eq!(reached(&["Cargo.lock"]).programs.len(), 8);
        let named = reached(&["experiments/zone-dd.toml"]).hashes;
        assert!(matches!(named, Some(Which::Named(names)) if names == ["zone-dd"]));
    }

    #[test]
    fn a_program_has_two_words_and_an_unknown_one_is_told_those_near() {
        let named = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let found = named(&workspace(), &words);
            found
                .map(|(programs, took)| (programs.into_iter().collect::<Vec<_>>().join(", "), took))
        };
        assert_eq!(named("mm cache writeback"), Ok(("mm cache".into(), 2)));
        assert_eq!(named("churn"), Ok(("serve churn".into(), 1)));
        assert_eq!(named("mm"), Ok(("mm cache, mm faults, mm lib".into(), 1)));
        let told = |words| named(words).unwrap_err();
        assert!(told("mm writeback").contains("mm has mm lib, mm cache, mm faults"));
        assert!(
            told("caches").contains("near it: mm cache"),
            "{}",
            told("caches")
        );
        assert!(told("lib").contains("policy lib"));
        assert!(told("xyz").contains("crates: policy, os"));
    }
}
