//! The C library: `cargo xtask c` lays it out as a system has it, and the step `c` of `cargo xtask
//! test --all` builds every example with it and runs it.
//!
//! ```text
//!   doors/capi ──cargo──> libtidegate.a ──cc, tidegate.map──> libtidegate.so.0.1.0
//!                                  '──────────────────────────────────'──> OUT/{include,lib,lib/pkgconfig}
//!   doors/preload ──cargo──> libtidegate_preload.a ──cc, preload.map──> OUT/lib/libtidegate-preload.so
//! ```
//!
//! The shared libraries are linked here, as rustc has no way to give it versions of symbols. A tool
//! that is not there is skipped by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::Server;
use crate::steps::{self, End};
use crate::workspace::{ALL_FEATURES, BUILD_MAX, Workspace, cargo, root};
use crate::{Arguments, Result, at};

/// Of this workspace: all crates have one.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Below 1.0 a minor version may change the interface.
const SONAME: &str = "libtidegate.so.0.1";
const PRELOAD: &str = "libtidegate-preload.so";
/// Allocators that programs have in place of the C library's, with the package, and what has them
/// give memory back to the system at once.
const ALLOCATORS: [(&str, &str, (&str, &str)); 3] = [
    (
        "libjemalloc.so.2",
        "libjemalloc2",
        ("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0"),
    ),
    (
        "libtcmalloc_minimal.so.4",
        "libtcmalloc-minimal4",
        ("TCMALLOC_RELEASE_RATE", "1000"),
    ),
    (
        "libmimalloc.so.2",
        "libmimalloc2.0",
        ("MIMALLOC_RESET_DELAY", "0"),
    ),
];
const RUN_MAX: Duration = Duration::from_secs(5 * 60);
const HEADERS: [&str; 2] = ["tidegate.h", "tidegate.hpp"];

/// The folders of an installed library.
pub(crate) struct Layout<'a> {
    pub(crate) out: &'a Path,
    /// The folder of its libraries, below a prefix.
    pub(crate) libdir: &'a str,
    /// The prefix in the pkg-config file; `out` if none.
    pub(crate) prefix: Option<&'a str>,
    /// The static library of C; that of the preload is beside it.
    pub(crate) built: &'a Path,
}

/// `cargo xtask c --out DIR [--debug]`.
pub(crate) fn command(mut arguments: Arguments) -> Result<()> {
    let mut out = Workspace::load()?.target.join("c");
    let mut profile = "release";
    while let Some(word) = arguments.next_word() {
        match word.as_str() {
            "--out" => out = PathBuf::from(arguments.value_of("--out")?),
            "--debug" => profile = "dev",
            _ => return Err(format!("c: unexpected '{word}'")),
        }
    }
    let out = std::path::absolute(&out).map_err(at(&out))?;
    let layout = Layout {
        out: &out,
        libdir: "lib",
        prefix: None,
        built: &build(profile)?,
    };
    lay_out(&layout)?;
    println!("PKG_CONFIG_PATH={}/lib/pkgconfig", out.display());
    Ok(())
}

/// Builds the static library; answers where it is.
fn build(profile: &str) -> Result<PathBuf> {
    let mut build = cargo(&["build", "-p", "tidegate-capi", "-p", "tidegate-preload"]);
    steps::run(build.args(["--profile", profile]), BUILD_MAX)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(Workspace::load()?.target.join(folder).join("libtidegate.a"))
}

/// Builds it of what the tests have built; answers where it is.
pub(crate) fn build_tested() -> Result<PathBuf> {
    let mut build = cargo(&["build", "--workspace", "--lib", "--profile", "test"]);
    steps::run(build.args(ALL_FEATURES), BUILD_MAX)?;
    Ok(Workspace::load()?.tested("libtidegate.a"))
}

/// Links a shared library of a static one.
fn link(built: &Path, exports: &str, words: &[&str], out: &Path) -> Result<()> {
    let mut link = Command::new("cc");
    link.args(["-shared", "-o"])
        .arg(out)
        .args(words)
        .arg(format!(
            "-Wl,--version-script={}",
            root().join(exports).display()
        ))
        .arg("-Wl,--whole-archive")
        .arg(built)
        .args([
            "-Wl,--no-whole-archive",
            "-Wl,--gc-sections",
            "-Wl,--as-needed",
        ])
        // Its threads run its code: it is never unloaded.
        .args([
            "-Wl,-z,nodelete",
            "-Wl,-z,now",
            "-Wl,-z,relro",
            "-Wl,--strip-debug",
        ])
        .args(["-pthread", "-ldl", "-lm"]);
    steps::run(&mut link, BUILD_MAX)
}

/// Links the shared libraries, and lays everything out.
pub(crate) fn lay_out(layout: &Layout<'_>) -> Result<()> {
    let lib = layout.out.join(layout.libdir);
    let include = layout.out.join("include");
    for folder in [&include, &lib.join("pkgconfig")] {
        make(folder)?;
    }
    for header in HEADERS {
        copy(&root().join("include").join(header), &include.join(header))?;
    }
    copy(layout.built, &lib.join("libtidegate.a"))?;
    let whole = format!("libtidegate.so.{VERSION}");
    let soname = format!("-Wl,-soname,{SONAME}");
    let exports = "doors/capi/tidegate.map";
    link(layout.built, exports, &[&soname], &lib.join(&whole))?;
    link(
        &layout.built.with_file_name("libtidegate_preload.a"),
        "doors/preload/preload.map",
        &[],
        &lib.join(PRELOAD),
    )?;
    for name in [SONAME, "libtidegate.so"] {
        let place = lib.join(name);
        let _ = fs::remove_file(&place);
        std::os::unix::fs::symlink(&whole, &place).map_err(at(&place))?;
    }
    let prefix = layout
        .prefix
        .map_or_else(|| layout.out.display().to_string(), str::to_owned);
    let text = read(&root().join("doors/capi/tidegate.pc.in"))?
        .replace("@PREFIX@", &prefix)
        .replace("@LIBDIR@", layout.libdir)
        .replace("@VERSION@", VERSION);
    write(&lib.join("pkgconfig/tidegate.pc"), &text)
}

pub(crate) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(at(folder))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).map_err(at(from))
}

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(at(path))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(at(path))
}

/// The step: builds the library, its examples in C and C++, and the nbdkit plugin; runs them.
pub(crate) fn judge() -> End {
    if !steps::is_there("cc", &["--version"]) {
        return End::Skipped("there is no C compiler (cc)".into());
    }
    try_judge().into()
}

fn try_judge() -> Result<()> {
    let bench = Bench::new()?;
    bench.exports()?;
    // Sums of sanitizers are judged by their exit status; leaks are errors.
    let checked = [
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ];
    let shared = bench.shared();
    for (source, words, name) in [
        ("tests/mistakes.c", &checked[..], "mistakes-shared"),
        ("tests/signals.c", &checked, "signals-shared"),
        ("examples/store.c", &checked, "store-shared"),
        ("examples/counts.c", &checked, "counts-shared"),
        ("examples/own_cache.c", &["-O1"], "own_cache-shared"),
    ] {
        bench.run(&bench.compiled("cc", source, words, &shared, name)?)?;
    }
    // And with the library inside.
    let library = bench.out.join("lib/libtidegate.a").display().to_string();
    let inside = [library, "-ldl".into(), "-lm".into()];
    bench.run(&bench.compiled("cc", "examples/store.c", &["-O1"], &inside, "store-static")?)?;
    if steps::is_there("c++", &["--version"]) {
        let words = [&checked[..], &["-std=c++20"]].concat();
        bench.run(&bench.compiled(
            "c++",
            "examples/tour.cpp",
            &words,
            &shared,
            "tour-shared",
        )?)?;
        bench.rocksdb()?;
    } else {
        println!("    SKIPPED: C++: there is no compiler (c++)");
    }
    bench.preload()?;
    bench.nbdkit()
}

/// The library laid out, and a folder to work in.
struct Bench {
    out: PathBuf,
    work: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        let folder = Workspace::load()?.target.join("xtask/c");
        let (out, work) = (folder.join("library"), folder.join("work"));
        let _ = fs::remove_dir_all(&work);
        make(&work)?;
        lay_out(&Layout {
            out: &out,
            libdir: "lib",
            prefix: None,
            built: &build_tested()?,
        })?;
        Ok(Self { out, work })
    }

    /// The shared library exports forty functions at least, and none that the header has not.
    fn exports(&self) -> Result<()> {
        let library = self.out.join("lib/libtidegate.so");
        let mut nm = Command::new("nm");
        let listed = steps::output(nm.args(["-D", "--defined-only"]).arg(&library))?;
        let name = |line: &str| {
            Some(
                line.split_whitespace()
                    .nth(2)?
                    .split('@')
                    .next()?
                    .to_owned(),
            )
        };
        let exported: BTreeSet<String> = listed
            .lines()
            .filter_map(name)
            .filter(|name| !name.starts_with("TIDEGATE_"))
            .collect();
        let header = read(&root().join("include/tidegate.h"))?;
        let missing = exported
            .iter()
            .find(|name| !header.contains(&format!("{name}(")));
        match missing {
            Some(name) => Err(format!(
                "{} exports {name}, which the header has not",
                library.display()
            )),
            None if exported.len() < 40 => Err(format!(
                "{} exports {} functions",
                library.display(),
                exported.len()
            )),
            None => Ok(()),
        }
    }

    /// The shared library, as the linker takes it.
    fn shared(&self) -> Vec<String> {
        let lib = self.out.join("lib").display().to_string();
        vec![
            format!("-L{lib}"),
            "-ltidegate".into(),
            format!("-Wl,-rpath,{lib}"),
        ]
    }

    /// Compiles a source of the C crate, and links it with these libraries into a file so named.
    fn compiled(
        &self,
        compiler: &str,
        source: &str,
        words: &[&str],
        libraries: &[String],
        name: &str,
    ) -> Result<PathBuf> {
        let program = self.work.join(name);
        let mut command = Command::new(compiler);
        command
            .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(words)
            .arg(root().join("doors/capi").join(source))
            .arg("-I")
            .arg(self.out.join("include"))
            .args(libraries)
            .arg("-o")
            .arg(&program);
        steps::run(&mut command, BUILD_MAX)?;
        Ok(program)
    }

    /// Runs a program in the folder to work in.
    fn run(&self, program: &Path) -> Result<()> {
        steps::run(Command::new(program).arg(&self.work), RUN_MAX)
    }
}

/// Bytes of the image that is served.
const IMAGE: usize = 24 << 20;

impl Bench {
    /// The plugin serves an image to real clients, and what was flushed survives a kill.
    fn nbdkit(&self) -> Result<()> {
        let is_absent = |tool: &&str| !steps::is_there(tool, &["--version"]);
        if let Some(tool) = ["nbdkit", "nbdcopy"].into_iter().find(is_absent) {
            println!("    SKIPPED: the nbdkit plugin: {tool} is not installed");
            return Ok(());
        }
        if !Path::new("/usr/include/nbdkit-plugin.h").exists() {
            println!(
                "    SKIPPED: the nbdkit plugin: nbdkit-plugin.h is not there (nbdkit-plugin-dev)"
            );
            return Ok(());
        }
        let words = ["-O2", "-fPIC", "-shared"];
        let name = "nbdkit-tidegate-plugin.so";
        let plugin = self.compiled("cc", "nbdkit/tidegate.c", &words, &self.shared(), name)?;
        let socket = self.work.join("nbd.sock");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let (source, image) = (self.work.join("source"), self.work.join("image"));
        let bytes: Vec<u8> = (0..IMAGE)
            .map(|at| (at / 4096 * 7 + at % 251).to_le_bytes()[0])
            .collect();
        fs::write(&source, &bytes).map_err(|error| error.to_string())?;
        let fresh = || fs::write(&image, vec![0; IMAGE]).map_err(|error| error.to_string());
        let is_same = |path: &Path| fs::read(path).is_ok_and(|found| found == bytes);
        let serve = |more: &[&str]| {
            let _ = fs::remove_file(&socket);
            let mut command = Command::new("nbdkit");
            command
                .args(["--foreground", "--unix"])
                .arg(&socket)
                .arg(&plugin)
                .arg(format!("file={}", image.display()))
                .arg("memory=16MiB")
                .args(more);
            Server::start(&mut command, &socket)
        };
        let write = || {
            let mut copy = Command::new("nbdcopy");
            steps::run(copy.arg("--flush").arg(&source).arg(&uri), RUN_MAX)
        };

        fresh()?;
        let server = serve(&[])?;
        write()?;
        if steps::is_there("fio", &["--version"]) {
            let mut fio = Command::new("fio");
            fio.args([
                "--name=f",
                "--ioengine=nbd",
                "--rw=randrw",
                "--bs=4k",
                "--iodepth=16",
                "--size=8m",
            ]);
            fio.args([
                "--verify=crc32c",
                "--offset=8m",
                "--output-format=terse",
                "--output=/dev/null",
            ]);
            steps::run(fio.arg(format!("--uri={uri}")), RUN_MAX)?;
            write()?;
        } else {
            println!("    SKIPPED: fio over the nbdkit plugin: fio is not installed");
        }
        let back = self.work.join("back");
        steps::run(Command::new("nbdcopy").arg(&uri).arg(&back), RUN_MAX)?;
        if !is_same(&back) {
            return Err("what nbdcopy read through the plugin is not what it wrote".into());
        }
        server.end_well()?;
        if !is_same(&image) {
            return Err("after TERM the image is not what was written".into());
        }

        // The disk is slow: without a flush most of it would be in memory only.
        fresh()?;
        let server = serve(&["layers=slow:rate=64MB"])?;
        write()?;
        server.end("KILL")?;
        if !is_same(&image) {
            return Err("what was flushed did not survive kill -9".into());
        }
        let refused = Command::new("nbdkit")
            .arg(&plugin)
            .arg("memry=1GiB")
            .stderr(Stdio::piped())
            .output();
        let said = refused.map_err(|error| error.to_string())?.stderr;
        if !String::from_utf8_lossy(&said).contains("there is no parameter 'memry'") {
            return Err("a parameter that is not there is not refused".into());
        }
        Ok(())
    }

    /// Programs that know nothing of the library, with their maps in its hands.
    fn preload(&self) -> Result<()> {
        let library = self.out.join("lib").join(PRELOAD);
        let source = "../preload/tests/calls.c";
        let program = self.compiled("cc", source, &["-O1", "-g"], &[], "preload")?;
        let folder = self.work.join("preload-files");
        make(&folder)?;
        let calls = |preload: &str, words: &[&str], more: &[(&str, &str)]| {
            let mut run = Command::new(&program);
            run.arg(&folder).args(words);
            run.env("LD_PRELOAD", preload).envs(more.iter().copied());
            steps::run(run.env("TIDEGATE_MEMORY", "16MiB"), RUN_MAX)
        };
        let ours = library.display().to_string();
        calls(&ours, &[], &[])?;
        calls(&ours, &["nobody"], &[])?;
        calls(&ours, &["nobody"], &[("TIDEGATE_STRICT", "1")])?;
        for (allocator, package, gives_back) in ALLOCATORS {
            let theirs = Path::new("/usr/lib/x86_64-linux-gnu").join(allocator);
            if !theirs.exists() {
                println!(
                    "    SKIPPED: {allocator} beside the preload: it is not there ({package})"
                );
                continue;
            }
            let both = format!("{ours}:{}", theirs.display());
            calls(&both, &["allocator"], &[gives_back])?;
        }
        let environment = self.work.with_file_name("python");
        let python = environment.join("bin/python");
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(&environment);
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "numpy", "lmdb"]);
        let made = steps::run(&mut venv, BUILD_MAX).and_then(|()| steps::run(&mut pip, BUILD_MAX));
        if let Err(problem) = made {
            println!("    SKIPPED: numpy and LMDB under the preload: {problem}");
            return Ok(());
        }
        let mut programs = Command::new(python);
        programs.arg(root().join("doors/preload/tests/programs.py"));
        steps::run(programs.arg(&library).arg(&folder), RUN_MAX)
    }

    /// RocksDB on the cache, where its headers are.
    fn rocksdb(&self) -> Result<()> {
        if !Path::new("/usr/include/rocksdb/file_system.h").exists() {
            println!(
                "    SKIPPED: RocksDB on the cache: its headers are not there (librocksdb-dev)"
            );
            return Ok(());
        }
        let (source, words) = ("examples/rocksdb.cpp", ["-std=c++20", "-O1"]);
        let libraries = [self.shared(), vec!["-lrocksdb".into()]].concat();
        let program = self.compiled("c++", source, &words, &libraries, "rocksdb")?;
        for files in ["tidegate", "direct", "kernel"] {
            let folder = self.work.join(format!("rocksdb-{files}"));
            make(&folder)?;
            let mut run = Command::new(&program);
            run.args([
                files, "--keys", "20000", "--gets", "20000", "--memory", "32MiB",
            ]);
            steps::run(run.arg(&folder), RUN_MAX)?;
        }
        Ok(())
    }
}
