//! The workspace as cargo sees it, and the files that make it up.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::{Result, at, steps};

/// A crate of the workspace.
pub struct Crate {
    /// Name without the prefix `tidegate-`: as ARCHITECTURE.md has it.
    pub name: String,
    /// The whole name, as `-p` takes it.
    pub package: String,
    /// Its library's name, as sources have it; of a crate without one, its own.
    pub ident: String,
    /// Its folder, from the root.
    pub folder: String,
    /// Its folder in the root: a wing of the house, or its own.
    pub wing: String,
    /// Its arrows.
    pub dependencies: Vec<Dependency>,
    /// `lib` and `bin`, where it has unit tests of these.
    pub units: Vec<&'static str>,
    /// Integration programs: the name of each, and its file from the crate's folder. None that
    /// takes a feature that no test turns on.
    pub tests: Vec<(String, String)>,
}

impl Crate {
    /// One without arrows and tests.
    pub fn bare(name: &str, wing: &str) -> Self {
        Self {
            name: name.into(),
            package: package(name),
            ident: name.into(),
            folder: format!("{wing}/{name}"),
            wing: wing.into(),
            dependencies: Vec::new(),
            units: Vec::new(),
            tests: Vec::new(),
        }
    }

    /// Its test programs, as the summary of tests names them: `mm cache`.
    pub fn programs(&self) -> impl Iterator<Item = String> {
        let own = self.tests.iter().map(|(name, _)| name.as_str());
        let all = self.units.iter().copied().chain(own);
        all.map(|own| format!("{} {own}", self.name))
    }
}

/// An arrow of the graph.
pub struct Dependency {
    /// Name as `Crate::name`, or that of an external crate.
    pub name: String,
    /// As `Crate::wing`, of a crate of this repository; none of others.
    pub wing: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// Only with `--cfg loom` or `--cfg shuttle`: a model checker.
    pub is_checker: bool,
}

/// The use of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is shipped.
    Normal,
    /// Tests.
    Dev,
    /// Its build script.
    Build,
}

/// The workspace as `cargo metadata` describes it.
pub struct Workspace {
    /// The folder that cargo builds into.
    pub target: PathBuf,
    /// Its members, by name.
    pub crates: Vec<Crate>,
}

/// The folder of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the root").to_owned()
}

/// Features that bring no more crates than the server has. Dev-dependencies turn them on in every
/// test; what is no test names them.
pub const FEATURES: &str = "tidegate-cli/serve,tidegate-governor/tidegate,tidegate/tracing";

/// Those and the features with crates of their own, of `--all` alone, as cargo takes them.
pub const ALL_FEATURES: [&str; 4] = [
    "--features",
    FEATURES,
    "--features",
    "tidegate-cli/s3,tidegate-governor/quick-cache",
];

/// Every test program, as cargo builds it.
pub const TESTS: [&str; 5] = ["test", "--workspace", "--lib", "--bins", "--tests"];

/// `cargo`, the program that runs us, in the root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Longest time for a command that builds.
pub const BUILD_MAX: Duration = Duration::from_secs(20 * 60);

/// Builds the program as the README's first command does, without the server, and answers where it
/// is.
///
/// # Errors
/// It does not build.
pub fn build_program() -> Result<PathBuf> {
    let mut command = cargo(&["build", "--release", "-p", "tidegate-cli"]);
    steps::run(&mut command, BUILD_MAX)?;
    Ok(Workspace::load()?.program())
}

impl Workspace {
    /// Asks cargo about the first workspace.
    ///
    /// # Errors
    /// Cargo fails, or answers in a form that is not known.
    pub fn load() -> Result<Self> {
        Self::load_at("Cargo.toml")
    }

    /// Asks cargo about the one whose manifest this is, from the root.
    ///
    /// # Errors
    /// As of `load`.
    pub fn load_at(manifest: &str) -> Result<Self> {
        let mut command = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
        command.args(["--manifest-path", manifest]);
        let text = steps::output(&mut command)?;
        let json: Value =
            serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
        let packages = json["packages"]
            .as_array()
            .ok_or("cargo metadata: no packages")?;
        let mut crates = packages
            .iter()
            .map(read_crate)
            .collect::<Result<Vec<_>>>()?;
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        let target = PathBuf::from(text_of(&json, "target_directory")?);
        Ok(Self { target, crates })
    }

    /// The program, as the release profile builds it.
    pub fn program(&self) -> PathBuf {
        self.target.join("release/tidegate")
    }

    /// A program of ours that the tests have built.
    pub fn tested(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }
}

fn read_crate(package: &Value) -> Result<Crate> {
    let name = short(&text_of(package, "name")?);
    let list = package["dependencies"]
        .as_array()
        .ok_or("cargo metadata: no dependencies")?;
    let dependencies = list
        .iter()
        .map(read_dependency)
        .collect::<Result<Vec<_>>>()?;
    let manifest = text_of(package, "manifest_path")?;
    let folder = Path::new(&manifest).parent().unwrap_or(Path::new(""));
    let wing = wing(&manifest)?;
    let mut one = Crate {
        package: text_of(package, "name")?,
        folder: from_root(folder)?.to_string_lossy().into_owned(),
        dependencies,
        ..Crate::bare(&name, &wing)
    };
    let targets = package["targets"].as_array();
    for target in targets.ok_or("cargo metadata: no targets")? {
        let (name, file) = (text_of(target, "name")?, text_of(target, "src_path")?);
        let is_tested = target["test"] == true && target["required-features"].is_null();
        match target["kind"][0].as_str() {
            Some("test") if is_tested => {
                let file = Path::new(&file)
                    .strip_prefix(folder)
                    .unwrap_or(Path::new(&file));
                one.tests.push((name, file.to_string_lossy().into_owned()));
            }
            Some("bin") if is_tested && !one.units.contains(&"bin") => one.units.push("bin"),
            Some("lib" | "staticlib" | "proc-macro") => {
                if is_tested {
                    one.units.push("lib");
                }
                one.ident = name;
            }
            _ => {}
        }
    }
    Ok(one)
}

fn read_dependency(dependency: &Value) -> Result<Dependency> {
    let name = text_of(dependency, "name")?;
    let wing = dependency["path"].as_str().map(wing).transpose()?;
    let kind = match dependency["kind"].as_str() {
        None => Kind::Normal,
        Some("dev") => Kind::Dev,
        Some("build") => Kind::Build,
        Some(other) => return Err(format!("cargo metadata: a dependency of kind '{other}'")),
    };
    let target = dependency["target"].as_str().unwrap_or_default();
    let is_checker = matches!(target, "cfg(loom)" | "cfg(shuttle)");
    let name = if wing.is_some() { short(&name) } else { name };
    Ok(Dependency {
        name,
        wing,
        kind,
        is_checker,
    })
}

/// The first folder of a path in the root.
fn wing(path: &str) -> Result<String> {
    let below = from_root(Path::new(path))?;
    let first = below.iter().next().unwrap_or_default();
    Ok(first.to_string_lossy().into_owned())
}

fn from_root(path: &Path) -> Result<PathBuf> {
    let below = path.strip_prefix(root()).map_err(|_| {
        let (path, root) = (path.display(), root());
        format!("cargo metadata: '{path}' is not in {}", root.display())
    })?;
    Ok(below.to_owned())
}

/// The package of a crate, of its name without the prefix.
pub fn package(name: &str) -> String {
    match name {
        "tidegate" | "xtask" | "workspace-hack" => name.to_owned(),
        _ => format!("tidegate-{name}"),
    }
}

fn short(name: &str) -> String {
    name.strip_prefix("tidegate-").unwrap_or(name).to_owned()
}

fn text_of(json: &Value, key: &str) -> Result<String> {
    let text = json[key]
        .as_str()
        .ok_or_else(|| format!("cargo metadata: no '{key}'"))?;
    Ok(text.to_owned())
}

/// A text file of the repository.
pub struct Source {
    /// From the root, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl Source {
    /// By its name.
    pub fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// The ending of its name.
    pub fn extension(&self) -> &str {
        Path::new(&self.path)
            .extension()
            .and_then(OsStr::to_str)
            .unwrap_or_default()
    }

    /// Under `tests/`, `benches/` or `examples/`, or a `tests.rs`: not part of what is shipped.
    pub fn is_test(&self) -> bool {
        let parts = ["/tests/", "/benches/", "/examples/", "/tests.rs"];
        parts.iter().any(|part| self.path.contains(part))
    }

    /// The lines before the tests at the foot of the file, counted from 1.
    pub fn shipped_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self
            .text
            .find("\n#[cfg(test)]\nmod tests {")
            .unwrap_or(self.text.len());
        self.text[..end]
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line))
    }
}

/// The repository's own text files of these kinds, in order of their paths.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn sources(extensions: &[&str]) -> Result<Vec<Source>> {
    let root = root();
    let mut paths = Vec::new();
    walk(&root, extensions, &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let path = path.strip_prefix(&root).expect("the walk began there");
        Ok(Source {
            path: path.to_string_lossy().replace('\\', "/"),
            text,
        })
    };
    paths.into_iter().map(read).collect()
}

fn walk(folder: &Path, extensions: &[&str], paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "results" {
                walk(&path, extensions, paths)?;
            }
        } else if path
            .extension()
            .and_then(OsStr::to_str)
            .is_some_and(|e| extensions.contains(&e))
        {
            paths.push(path);
        }
    }
    Ok(())
}
