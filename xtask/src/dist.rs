//! `cargo xtask dist`: what is handed out, in one folder, and a trial of it.
//!
//! | what | how |
//! |---|---|
//! | `tidegate` | static: with musl where rustup has the target, else with glibc, and it says so |
//! | `tidegate_VERSION_ARCH.deb` | program, unit, manual pages, completions, an example configuration, the user `tidegate` |
//! | `libtidegate-dev_VERSION_ARCH.deb` | the C library, its headers and pkg-config file, the preload library, the nbdkit plugin's source |
//! | `tidegate-*.whl`, `tidegate_lab-*.whl` | the Python packages, for each CPython from 3.11 on |
//! | `SHA256SUMS` | of all that |
//!
//! `--built DIR` takes what is there: `tidegate`, `libtidegate.a`, `libtidegate_preload.a`, `manual`.
//!
//! Reproducible: paths of this machine are taken out of what is compiled, times in packages are
//! those of the commit. `--twice` builds again from nothing, and compares.
//!
//! The trial happens in a root of its own, an overlay on this machine's in a mount namespace: the
//! package is installed, the server started by the words of its unit, a volume written to; the
//! package is upgraded while it serves, removed, purged. Without root, or overlays, it is skipped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::c::{self, Layout, VERSION, copy, make, read, write};
use crate::steps::{self, End};
use crate::workspace::{ALL_FEATURES, BUILD_MAX, Workspace, cargo, root};
use crate::{Arguments, Result, at, python, trial};

const RUN_MAX: Duration = Duration::from_secs(5 * 60);
const MUSL: &str = "x86_64-unknown-linux-musl";
const GLIBC: &str = "x86_64-unknown-linux-gnu";
const ARCH: &str = "amd64";
/// Crates that are to be published, each after those that it uses.
const PUBLISHED: [&str; 9] = [
    "tidegate-policy",
    "tidegate-frames",
    "tidegate-figures",
    "tidegate-env",
    "tidegate-device",
    "tidegate-mm",
    "tidegate-os",
    "tidegate",
    "tidegate-governor",
];

/// `cargo xtask dist [--out DIR] [--built DIR] [--twice]`, `dist --crates`, `dist --wheels`.
pub(crate) fn command(mut arguments: Arguments) -> Result<()> {
    let target = Workspace::load()?.target;
    let usual = target.join("dist-out");
    let mut out = usual.clone();
    let (mut twice, mut given, mut only_wheels) = (false, None, false);
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--out" => out = PathBuf::from(arguments.value_of("--out")?),
            "--twice" => twice = true,
            "--built" => given = Some(PathBuf::from(arguments.value_of("--built")?)),
            "--crates" => return crates(),
            "--wheels" => only_wheels = true,
            // Of `trial`, in namespaces of its own.
            "--inside" => {
                let mut path = || arguments.value_of("--inside").map(PathBuf::from);
                return trial::run(&path()?, &path()?, &path()?);
            }
            _ => return Err(format!("dist: unexpected '{word}'")),
        }
    }
    let out = std::path::absolute(&out).map_err(at(&out))?;
    let has_files = fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some());
    if has_files && out != usual && !out.join("SHA256SUMS").exists() {
        return Err(format!(
            "{} has files of others: --out takes an empty folder, or one that dist has filled",
            out.display()
        ));
    }
    let _ = fs::remove_dir_all(&out);
    make(&out)?;
    if only_wheels {
        said("wheels", python::wheels(&out))?;
        return sums(&out);
    }
    let built = match given {
        Some(folder) => Built::of(&folder),
        None => build(&target)?,
    };
    pack(&built, Packed::Small, &out)?;
    if twice {
        let scratch = target.join("dist-again");
        let _ = fs::remove_dir_all(&scratch);
        let again = scratch.join("out");
        make(&again)?;
        pack(&build(&scratch.join("target"))?, Packed::Small, &again)?;
        compare(&out, &again)?;
        fs::remove_dir_all(&scratch).map_err(|error| error.to_string())?;
    }
    let wheels = python::wheels(&out);
    sums(&out)?;
    said("wheels", wheels)?;
    said("the trial of the package", trial(&out))
}

/// A part that was skipped is said, and is no error.
fn said(what: &str, end: End) -> Result<()> {
    match end {
        End::Passed => Ok(()),
        End::Failed(problem) => Err(problem),
        End::Skipped(why) => {
            println!("    SKIPPED: {what}: {why}");
            Ok(())
        }
    }
}

/// The form of a package.
#[derive(Clone, Copy)]
enum Packed {
    /// To be handed out.
    Small,
    /// To be tried.
    Fast,
}

/// The files that were compiled.
struct Built {
    program: PathBuf,
    library: PathBuf,
    manual: PathBuf,
}

impl Built {
    /// In a folder of cargo's.
    fn of(folder: &Path) -> Self {
        Self {
            program: folder.join("tidegate"),
            library: folder.join("libtidegate.a"),
            manual: folder.join("manual"),
        }
    }

    /// The manual pages and completions: those that are there, or made now.
    fn manual(&self, out: &Path) -> Result<PathBuf> {
        if self.manual.exists() {
            return Ok(self.manual.clone());
        }
        let manual = out.join("manual");
        let mut pages = cargo(&["run", "--quiet", "--profile", "test", "-p", "tidegate-cli"]);
        pages.args(["--features", "serve", "--example", "manual", "--"]);
        steps::run(pages.arg(&manual), BUILD_MAX)?;
        Ok(manual)
    }
}

/// The target that the program is built for.
fn target() -> &'static str {
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "list", "--installed"]);
    let installed = steps::output(&mut rustup).unwrap_or_default();
    if installed.lines().any(|line| line == MUSL) {
        return MUSL;
    }
    println!(
        "    SKIPPED: musl: its target is not installed (rustup target add {MUSL}); the program is static with glibc: it \
         looks names of hosts up without the system's modules (NSS)"
    );
    GLIBC
}

/// Builds the program, and the library for programs of this system, in a folder of cargo's.
fn build(folder: &Path) -> Result<Built> {
    let target = target();
    compile(folder, target, "tidegate-cli", &["--features", "serve"])?;
    compile(folder, GLIBC, "tidegate-capi", &["-p", "tidegate-preload"])?;
    let at = |target: &str| Built::of(&folder.join(target).join("dist"));
    Ok(Built {
        library: at(GLIBC).library,
        ..at(target)
    })
}

fn compile(folder: &Path, target: &str, package: &str, features: &[&str]) -> Result<()> {
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let home = home.map_err(|_| "neither CARGO_HOME nor HOME is set")?;
    // The last one that fits a path counts: sources that a build script wrote are in `folder`.
    let flags = format!(
        "-C target-feature=+crt-static --remap-path-prefix={}=/tidegate --remap-path-prefix={home}=/cargo \
         --remap-path-prefix={}=/target",
        root().display(),
        folder.display()
    );
    let mut command = cargo(&["build", "--locked", "--profile", "dist", "--target", target]);
    command
        .args(["-p", package])
        .args(features)
        .arg("--target-dir")
        .arg(folder)
        .env("RUSTFLAGS", flags)
        .env("SOURCE_DATE_EPOCH", epoch()?);
    steps::run(&mut command, 2 * BUILD_MAX)
}

/// The time of the commit: that of everything in a package.
fn epoch() -> Result<String> {
    let mut git = Command::new("git");
    let time = steps::output(git.args(["log", "-1", "--format=%ct"]).current_dir(root()));
    // Of an archive without its history.
    Ok(time.map_or_else(|_| "0".into(), |time| time.trim().to_owned()))
}

/// The program and both packages, in a folder.
fn pack(built: &Built, packed: Packed, out: &Path) -> Result<()> {
    let program = out.join("tidegate");
    copy(&built.program, &program)?;
    steps::run(Command::new("strip").arg(&program), RUN_MAX)?;
    let manual = built.manual(out)?;
    let tree = out.join("tree");
    program_tree(&program, &manual, &tree)?;
    deb("tidegate", VERSION, &tree, packed, out)?;
    fs::remove_dir_all(&tree).map_err(|error| error.to_string())?;
    let library = Layout {
        out: &tree.join("usr"),
        libdir: "lib/x86_64-linux-gnu",
        prefix: Some("/usr"),
        built: &built.library,
    };
    c::lay_out(&library)?;
    let examples = tree.join("usr/share/doc/libtidegate-dev/examples");
    make(&examples)?;
    for source in [
        "examples/store.c",
        "examples/own_cache.c",
        "examples/tour.cpp",
        "examples/rocksdb.cpp",
        "nbdkit/tidegate.c",
    ] {
        let from = root().join("doors/capi").join(source);
        let name = if source.starts_with("nbdkit") {
            "nbdkit-tidegate.c".as_ref()
        } else {
            from.file_name().unwrap_or_default()
        };
        copy(&from, &examples.join(name))?;
    }
    copy(
        &root().join("docs/embed/c.md"),
        &tree.join("usr/share/doc/libtidegate-dev/c.md"),
    )?;
    deb("libtidegate-dev", VERSION, &tree, packed, out)?;
    fs::remove_dir_all(&tree).map_err(|error| error.to_string())
}

/// The files of the package `tidegate`.
fn program_tree(program: &Path, manual: &Path, tree: &Path) -> Result<()> {
    let packaging = |name: &str| root().join("packaging").join(name);
    let places = [
        (program.to_owned(), "usr/bin/tidegate"),
        (
            packaging("tidegate.service"),
            "lib/systemd/system/tidegate.service",
        ),
        (packaging("tidegate.toml"), "etc/tidegate/tidegate.toml"),
        (
            manual.join("bash/tidegate"),
            "usr/share/bash-completion/completions/tidegate",
        ),
        (
            manual.join("zsh/_tidegate"),
            "usr/share/zsh/vendor-completions/_tidegate",
        ),
        (
            manual.join("fish/tidegate.fish"),
            "usr/share/fish/vendor_completions.d/tidegate.fish",
        ),
        (
            root().join("LICENSE-MIT"),
            "usr/share/doc/tidegate/copyright",
        ),
    ];
    for (from, to) in places {
        let to = tree.join(to);
        make(to.parent().unwrap_or(tree))?;
        copy(&from, &to)?;
    }
    let man = tree.join("usr/share/man/man1");
    make(&man)?;
    let pages = fs::read_dir(manual.join("man")).map_err(|error| error.to_string())?;
    for page in pages.flatten() {
        let to = man.join(page.file_name());
        copy(&page.path(), &to)?;
        // Without its name and its time, so that it is the same each time.
        steps::run(Command::new("gzip").args(["-9n"]).arg(&to), RUN_MAX)?;
    }
    Ok(())
}

/// Packs a tree, with the scripts of `packaging/NAME.*`.
fn deb(name: &str, version: &str, tree: &Path, packed: Packed, out: &Path) -> Result<()> {
    let control = tree.join("DEBIAN");
    make(&control)?;
    let size = steps::output(
        Command::new("du")
            .args(["-sk", "--apparent-size"])
            .arg(tree),
    )?;
    let size = size.split_whitespace().next().unwrap_or("0");
    let text = read(&root().join(format!("packaging/{name}.control")))?
        .replace("@VERSION@", version)
        .replace("@ARCH@", ARCH)
        .replace("@SIZE@", size);
    write(&control.join("control"), &text)?;
    for script in ["postinst", "prerm", "postrm", "conffiles"] {
        let from = root().join(format!("packaging/{name}.{script}"));
        if from.exists() {
            copy(&from, &control.join(script))?;
        }
    }
    permissions(tree)?;
    let mut pack = Command::new("dpkg-deb");
    let how = match packed {
        Packed::Small => "-Zxz",
        Packed::Fast => "-Znone",
    };
    pack.args(["--root-owner-group", how, "--build"])
        .arg(tree)
        .arg(out.join(format!("{name}_{version}_{ARCH}.deb")))
        .env("SOURCE_DATE_EPOCH", epoch()?);
    steps::run(&mut pack, RUN_MAX)
}

/// The same whatever the umask: programs and scripts may be run, all else may be read.
fn permissions(folder: &Path) -> Result<()> {
    let set = |path: &Path, mode: u32| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, permissions).map_err(at(path))
    };
    set(folder, 0o755)?;
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            permissions(&path)?;
        } else if ["postinst", "prerm", "postrm"].contains(&name.as_str())
            || path.ends_with("usr/bin/tidegate")
        {
            set(&path, 0o755)?;
        } else {
            set(&path, 0o644)?;
        }
    }
    Ok(())
}

fn artifacts(out: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(out).map_err(at(out))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// Writes the sums, and says how large everything is.
fn sums(out: &Path) -> Result<()> {
    let files = artifacts(out)?;
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
    let text = steps::output(Command::new("sha256sum").args(&names).current_dir(out))?;
    write(&out.join("SHA256SUMS"), &text)?;
    for file in files {
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        println!("{:>10} bytes  {}", bytes, file.display());
    }
    Ok(())
}

/// Both builds have the same bytes.
fn compare(out: &Path, again: &Path) -> Result<()> {
    let mut differ = Vec::new();
    for file in artifacts(again)? {
        let name = file.file_name().unwrap_or_default();
        let bytes = |path: &Path| fs::read(path).map_err(at(path));
        if bytes(&file)? != bytes(&out.join(name))? {
            differ.push(name.to_string_lossy().into_owned());
        }
    }
    if differ.is_empty() {
        println!("built twice, with the same bytes");
        return Ok(());
    }
    Err(format!("built twice, these differ: {}", differ.join(", ")))
}

/// Installs the package in a root of its own, uses it, upgrades it, removes it.
fn trial(out: &Path) -> End {
    for tool in ["nbdcopy", "nbdinfo", "qemu-img", "ip"] {
        let word = if tool == "ip" { "-V" } else { "--version" };
        if !steps::is_there(tool, &[word]) {
            return End::Skipped(format!("{tool} is not installed"));
        }
    }
    let work = out.join("trial");
    let namespaces = [
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--net",
        "--propagation",
        "private",
    ];
    let mut probe = Command::new("unshare");
    let overlay = "mount -t tmpfs none \"$0\" && mkdir \"$0/u\" \"$0/w\" \"$0/r\" && mount -t overlay overlay \
                   -o \"lowerdir=/,upperdir=$0/u,workdir=$0/w\" \"$0/r\"";
    probe
        .args(namespaces)
        .args(["sh", "-c", overlay])
        .arg(&work);
    let made = make(&work).and_then(|()| steps::run(&mut probe, RUN_MAX));
    if made.is_err() {
        return End::Skipped(
            "no root of its own can be made (it needs root, unshare, overlayfs)".into(),
        );
    }
    let next = format!("{VERSION}+next");
    let own = std::env::current_exe().map_err(|error| error.to_string());
    let ended = own.and_then(|own| {
        repack(out, &next)?;
        let mut run = Command::new("unshare");
        run.args(namespaces)
            .arg(own)
            .args(["dist", "--inside"])
            .arg(work.join("root"))
            .arg(out.join(format!("tidegate_{VERSION}_{ARCH}.deb")))
            .arg(work.join(format!("tidegate_{next}_{ARCH}.deb")));
        make(&work.join("root"))?;
        steps::run(&mut run, RUN_MAX)
    });
    let _ = fs::remove_dir_all(&work);
    ended.into()
}

/// The package once more with a later version, for an upgrade.
fn repack(out: &Path, version: &str) -> Result<()> {
    let (work, tree) = (out.join("trial"), out.join("trial/tree"));
    let package = out.join(format!("tidegate_{VERSION}_{ARCH}.deb"));
    steps::run(
        Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree),
        RUN_MAX,
    )?;
    deb("tidegate", version, &tree, Packed::Fast, &work)
}

/// The step `dist`, without a long build: the crates that are published can be packed, and the
/// packages are tried with the tests' program.
pub(crate) fn judge(program: &Path) -> End {
    try_judge(program).unwrap_or_else(End::Failed)
}

fn try_judge(program: &Path) -> Result<End> {
    crates()?;
    if !steps::is_there("dpkg-deb", &["--version"]) {
        return Ok(End::Skipped(
            "the packages: dpkg-deb is not installed".into(),
        ));
    }
    let out = Workspace::load()?.target.join("xtask/dist");
    let _ = fs::remove_dir_all(&out);
    make(&out)?;
    let built = Built {
        program: program.to_owned(),
        library: c::build_tested()?,
        manual: out.join("manual"),
    };
    let mut pages = cargo(&[
        "build",
        "--workspace",
        "--example",
        "manual",
        "--profile",
        "test",
    ]);
    steps::run(pages.args(ALL_FEATURES), BUILD_MAX)?;
    let maker = Workspace::load()?.tested("examples/manual");
    steps::run(Command::new(maker).arg(&built.manual), RUN_MAX)?;
    pack(&built, Packed::Fast, &out)?;
    Ok(trial(&out))
}

/// Packs what crates.io gets.
fn crates() -> Result<()> {
    let mut package = cargo(&["package", "--no-verify", "--allow-dirty", "--quiet"]);
    for name in PUBLISHED {
        package.args(["-p", name]);
    }
    steps::run(&mut package, BUILD_MAX)
}
