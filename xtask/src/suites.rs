//! The step `suites` of `cargo xtask test --all`: suites of tests for NBD that others wrote, against
//! our server.
//!
//! ```text
//!   apt-get source ──> target/xtask/suites/NAME-VERSION ──prepare──> case ──> nbdkit, qemu-nbd
//!   suites/cases.txt: each case by name, or why it does not apply               (suites/stand-in)
//!                                          real server <── what ours cannot <──┴──> tidegate serve
//! ```
//!
//! Sources come by the names of Debian's source packages; a suite without is skipped, loudly.
//! `TIDEGATE_SUITES` names a folder that has them already, as NAME-VERSION. A case passes when it
//! ends well, has reached our server, and every server of it ended with all bytes durable.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::c::{make, read, write};
use crate::steps::{self, End, seconds};
use crate::workspace::{BUILD_MAX, Workspace, root};
use crate::{Result, at};

const CASES: &str = include_str!("../suites/cases.txt");
/// Longest time for a case; on two cores that nobody else uses the longest takes a tenth.
const CASE_MAX: Duration = Duration::from_secs(120);
/// Cases side by side: most of them wait.
const AT_A_TIME: usize = 4;
/// The status of a case that lacks something, as Automake has it.
const LACKS: i32 = 77;

/// A suite: its source package, what it needs here, and how a case of it is run.
struct Suite {
    name: &'static str,
    /// Parts of the archive that are unpacked.
    parts: &'static [&'static str],
    /// Programs or headers, and the packages that have them.
    needs: &'static [(&'static str, &'static str)],
    /// Shell, run once in the sources.
    prepare: &'static str,
    /// Shell, run in the sources for a case: `$CASE`.
    run: &'static str,
    /// Shell that lists what the sources have, so that the list can be held against them.
    list: &'static str,
}

const NBDKIT: (&str, &str) = ("/usr/bin/nbdkit", "nbdkit");
const NBDCOPY: (&str, &str) = ("/usr/bin/nbdcopy", "libnbd-bin");

const SUITES: [Suite; 4] = [
    Suite {
        name: "nbd",
        parts: &["*"],
        needs: &[("/usr/include/glib-2.0/glib.h", "libglib2.0-dev")],
        prepare: "touch config.h && cc -O1 -w -DHAVE_CONFIG_H -DHAVE_GNUTLS=1 -DWITH_GNUTLS -D_GNU_SOURCE \
                  -DSIZEOF_UNSIGNED_SHORT_INT=2 -DSIZEOF_UNSIGNED_INT=4 -DSIZEOF_UNSIGNED_LONG_INT=8 \
                  -DSIZEOF_UNSIGNED_LONG_LONG_INT=8 -DPROG_NAME='\"tester\"' -DPACKAGE_VERSION='\"0\"' -I. \
                  tests/run/nbd-tester-client.c cliserv.c buffer.c crypto-gnutls.c -o tester \
                  $(pkg-config --cflags --libs glib-2.0 gnutls)",
        run: "bash \"$SUITES/tester\" \"$CASE\"",
        list: "true",
    },
    Suite {
        name: "libnbd",
        parts: &["*"],
        needs: &[
            NBDKIT,
            NBDCOPY,
            ("/usr/include/libnbd.h", "libnbd-dev"),
            ("/usr/bin/certtool", "gnutls-bin"),
            ("/usr/bin/socat", "socat"),
        ],
        // Its programs are those that are installed; its tests are linked with the library that
        // is, and configured by the real nbdkit, not by the stand-in.
        prepare: "PATH=${PATH#*:} ./configure -q --disable-python --disable-ocaml --disable-golang && \
                  sed -i 's#$(top_builddir)/lib/libnbd.la#-lnbd#' tests/Makefile interop/Makefile && \
                  make -k -j2 -C tests check TESTS= && make -k -j2 -C interop check TESTS=",
        run: "cd ${CASE%/*} && LIBNBD_DEBUG=1 srcdir=. ../run ./${CASE#*/}",
        list: "ls info/*.sh copy/*.sh dump/*.sh tests/*.sh interop/*.sh",
    },
    Suite {
        name: "nbdkit",
        parts: &["*/tests/*"],
        needs: &[NBDKIT, NBDCOPY, ("/usr/bin/nbdsh", "python3-libnbd")],
        prepare: "cd tests && sed -e \"s#@abs_top_srcdir@#${PWD%/tests}#\" -e 's#@CXX@#c++#;s#@PYTHON@#python3#' \
                  -e 's#@SOEXT@#so#;s#@CUT@#cut#;s#@SED@#sed#;s#@STAT@#stat#;s#@TRUNCATE@#truncate#' \
                  -e 's#@[A-Za-z_]*@##' functions.sh.in >functions.sh",
        run: "cd tests && srcdir=. SOEXT=so PYTHON=python3 bash ./$CASE",
        list: "cd tests && ls test-*.sh",
    },
    Suite {
        name: "qemu",
        parts: &["*/tests/qemu-iotests/*", "*/python/*"],
        needs: &[
            ("/usr/bin/qemu-io", "qemu-utils"),
            ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
        ],
        // It waits for a second and takes the server for ready.
        prepare: "touch tests/qemu-iotests/common.env && sed -i \
                  's|sleep 1 # FIX[M]E: qemu-nbd.*|until [ -S \"$SOCK_DIR/nbd\" ]; do sleep 0.05; done|' \
                  tests/qemu-iotests/common.rc",
        run: "cd tests/qemu-iotests && export QEMU_PROG=/usr/bin/qemu-system-x86_64 QEMU_IMG_PROG=/usr/bin/qemu-img \
              QEMU_IO_PROG=/usr/bin/qemu-io QSD_PROG=/usr/bin/qemu-storage-daemon QEMU_NBD_PROG=$SUITE_BIN/qemu-nbd \
              TEST_DIR=$SUITE_WORK/$CASE && ./check -raw -nbd $CASE",
        list: "cd tests/qemu-iotests && ls [0-9][0-9][0-9]",
    },
];

/// The cases of a suite, as `suites/cases.txt` has them.
#[derive(Default)]
struct Cases {
    run: Vec<&'static str>,
    /// With why they are not run.
    without: Vec<(&'static str, &'static str)>,
}

/// `[suite]`, then lines of cases; a line with a colon says why its cases do not apply.
fn cases(suite: &str) -> Cases {
    let mut cases = Cases::default();
    let lines = CASES.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut section = "";
    for line in lines {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if section == suite {
            match line.split_once(": ") {
                Some((names, why)) => {
                    let names = names.split_whitespace();
                    cases.without.extend(names.map(|name| (name, why)));
                }
                None => cases.run.extend(line.split_whitespace()),
            }
        }
    }
    cases
}

/// Runs all suites against a built program.
pub(crate) fn judge(program: &Path) -> End {
    let bench = match Bench::new(program) {
        Ok(bench) => bench,
        Err(problem) => return End::Failed(problem),
    };
    let (mut failed, mut ran) = (Vec::new(), 0);
    for suite in &SUITES {
        match bench.sources(suite) {
            Err(why) => println!("    SKIPPED: {}: {why}", suite.name),
            Ok(sources) => {
                let ended = bench.run(suite, &sources);
                ran += ended.0;
                failed.extend(ended.1);
            }
        }
    }
    if ran == 0 {
        return End::Skipped("no suite could be had; each says why above".into());
    }
    match failed.is_empty() {
        true => End::Passed,
        false => End::Failed(format!("{} of {ran}: {}", failed.len(), failed.join(", "))),
    }
}

/// The folders in which suites are unpacked, and a PATH with the stand-ins.
struct Bench {
    folder: PathBuf,
    bin: PathBuf,
    program: PathBuf,
}

impl Bench {
    fn new(program: &Path) -> Result<Self> {
        let folder = Workspace::load()?.target.join("xtask/suites");
        let bin = folder.join("bin");
        make(&bin)?;
        for name in ["nbdkit", "qemu-nbd"] {
            let place = bin.join(name);
            let _ = fs::remove_file(&place);
            std::os::unix::fs::symlink(root().join("xtask/suites/stand-in"), &place)
                .map_err(at(&place))?;
        }
        let program = program.to_owned();
        Ok(Self {
            folder,
            bin,
            program,
        })
    }

    /// The sources of a suite, ready to run; the error is why it is skipped.
    fn sources(&self, suite: &Suite) -> Result<PathBuf> {
        for (file, package) in suite.needs {
            if !Path::new(file).exists() {
                return Err(format!("{file} is not there (apt-get install {package})"));
            }
        }
        let given = std::env::var_os("TIDEGATE_SUITES").map(PathBuf::from);
        let found = given.and_then(|folder| unpacked(&folder, suite.name));
        let sources = match found.or_else(|| unpacked(&self.folder, suite.name)) {
            Some(sources) => sources,
            None => self.fetch(suite)?,
        };
        let ready = sources.join(".ready");
        if !ready.exists() {
            let mut prepare = self.shell(suite.prepare, &sources);
            let log = self.folder.join(format!("{}.log", suite.name));
            let out = fs::File::create(&log).map_err(|error| error.to_string())?;
            prepare.stderr(out.try_clone().map_err(|error| error.to_string())?);
            steps::run(prepare.stdout(out), BUILD_MAX)
                .map_err(|_| format!("its tests do not build: {}", log.display()))?;
            write(&ready, "")?;
        }
        Ok(sources)
    }

    /// Fetches a source package by name, and unpacks it.
    fn fetch(&self, suite: &Suite) -> Result<PathBuf> {
        let lists = self.folder.join("lists");
        make(&lists.join("partial"))?;
        let sources = self.folder.join("debian.sources");
        let release = read(Path::new("/etc/os-release"))?;
        let codename = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let codename = codename.ok_or("this system's release has no name")?;
        let text = format!(
            "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: {codename}\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        );
        write(&sources, &text)?;
        let apt = |words: &[&str]| {
            let mut command = Command::new("apt-get");
            command
                .current_dir(&self.folder)
                .args([
                    "-q",
                    "-o",
                    &format!("Dir::Etc::sourcelist={}", sources.display()),
                ])
                .args(["-o", "Dir::Etc::sourceparts=-", "-o"])
                .arg(format!("Dir::State::lists={}", lists.display()))
                .args(words)
                .stdout(Stdio::null());
            steps::run(&mut command, BUILD_MAX)
        };
        let fetched = apt(&["update"])
            .and_then(|()| apt(&["source", "--download-only", "--tar-only", suite.name]));
        fetched.map_err(|_| format!("apt-get source {} has nothing", suite.name))?;
        let mut tar = Command::new("sh");
        let parts = suite.parts.iter().map(|part| format!(" '{part}'"));
        let words = format!(
            "tar xf {}_*.orig.tar.* --wildcards{}",
            suite.name,
            parts.collect::<String>()
        );
        steps::run(
            tar.current_dir(&self.folder).args(["-c", &words]),
            BUILD_MAX,
        )?;
        unpacked(&self.folder, suite.name).ok_or_else(|| format!("{} is not unpacked", suite.name))
    }

    /// A shell in the sources, with the stand-ins before all other programs.
    fn shell(&self, text: &str, sources: &Path) -> Command {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.bin.display());
        let mut shell = Command::new("bash");
        shell
            .args(["-c", text])
            .current_dir(sources)
            .env("PATH", path)
            .env("SUITES", root().join("xtask/suites"))
            .env("SUITE_BIN", &self.bin)
            .env("TIDEGATE", &self.program)
            .stdin(Stdio::null());
        shell
    }

    /// Runs the cases of a suite: how many, and those that failed.
    fn run(&self, suite: &Suite, sources: &Path) -> (usize, Vec<String>) {
        let cases = cases(suite.name);
        let began = Instant::now();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let lacks = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.run.get(number) else {
                            break;
                        };
                        match self.case(suite, sources, case, number) {
                            Ok(None) => {}
                            Ok(Some(lack)) => {
                                lacks.fetch_add(1, Ordering::Relaxed);
                                println!("    SKIPPED: {} {case}: {lack}", suite.name);
                            }
                            Err(why) => {
                                println!("    FAILED: {} {case}: {why}", suite.name);
                                let mut failed =
                                    failed.lock().unwrap_or_else(PoisonError::into_inner);
                                failed.push(format!("{} {case}", suite.name));
                            }
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let lacks = lacks.into_inner();
        println!(
            "    {}: {} passed, {} failed, {lacks} skipped, in {}; {} cases do not apply (xtask/suites/cases.txt){}",
            suite.name,
            cases.run.len() - failed.len() - lacks,
            failed.len(),
            seconds(began.elapsed()),
            cases.without.len(),
            self.unlisted(suite, sources, &cases)
        );
        (cases.run.len() - lacks, failed)
    }

    /// Cases that these sources have and the list does not: of another version.
    fn unlisted(&self, suite: &Suite, sources: &Path, cases: &Cases) -> String {
        let listed = steps::output(&mut self.shell(suite.list, sources)).unwrap_or_default();
        let without = cases.without.iter().map(|(name, _)| *name);
        let known: BTreeSet<&str> = cases.run.iter().copied().chain(without).collect();
        let new: Vec<&str> = listed
            .split_whitespace()
            .filter(|name| !known.contains(name))
            .collect();
        match new.is_empty() {
            true => String::new(),
            false => format!("; not in that list: {}", new.join(" ")),
        }
    }

    /// Runs a case: nothing if it passed, or what it lacks.
    fn case(
        &self,
        suite: &Suite,
        sources: &Path,
        case: &str,
        number: usize,
    ) -> Result<Option<String>> {
        // Short: the path of a socket has room for 107 bytes. The folder of one that fails stays.
        let place = format!(
            "tidegate-suites-{}/{}-{number}",
            std::process::id(),
            suite.name
        );
        let folder = std::env::temp_dir().join(place);
        make(&folder)?;
        let (printed, log) = (folder.join("printed"), folder.join("servers"));
        write(&log, "")?;
        let file = fs::File::create(&printed).map_err(|error| error.to_string())?;
        let mut command = self.shell(suite.run, sources);
        command
            .env("CASE", case)
            .env("SUITE_WORK", &folder)
            .env("SUITE_LOG", &log)
            .stderr(file.try_clone().map_err(|error| error.to_string())?)
            .stdout(file);
        let ended = steps::Job::begin(&mut command, CASE_MAX)?.wait();
        let status = ended.map_err(|why| format!("{why}; {}", printed.display()))?;
        let said = fs::read(&printed).unwrap_or_default();
        let end = judged(status.code(), &read(&log)?, &String::from_utf8_lossy(&said));
        if end.is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
        end.map_err(|why| format!("{why}; {}", printed.display()))
    }
}

/// The end of a case by its status, what the stand-ins noted, and what it printed.
fn judged(status: Option<i32>, log: &str, printed: &str) -> Result<Option<String>> {
    let last = printed.lines().rev().find(|line| !line.trim().is_empty());
    let last = || last.unwrap_or("it printed nothing").to_owned();
    let bad = log
        .lines()
        .find(|line| line.starts_with("no start") || line.starts_with("ended with"));
    match (status, bad) {
        (Some(LACKS), _) => Ok(Some(last())),
        (_, Some(bad)) => Err(format!("a server of it: {bad}")),
        (Some(0), None) if log.lines().any(|line| line.starts_with("ours")) => Ok(None),
        (Some(0), None) => {
            Err("it passed without our server: it belongs to those that do not apply".into())
        }
        (code, None) => Err(format!("status {}: {}", code.unwrap_or(-1), last())),
    }
}

/// The folder NAME-VERSION in a folder.
fn unpacked(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_one = |path: &PathBuf| {
        let rest = path
            .file_name()
            .and_then(|own| own.to_str()?.strip_prefix(name)?.strip_prefix('-'));
        path.is_dir()
            && rest.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().map(|entry| entry.path()).find(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_listed_once_and_a_reason_is_said_for_what_is_left_out() {
        for suite in &SUITES {
            let cases = cases(suite.name);
            assert!(
                cases.run.len() > 10,
                "{} runs {}",
                suite.name,
                cases.run.len()
            );
            let mut seen = BTreeSet::new();
            let without = cases.without.iter().map(|(name, _)| name);
            for name in cases.run.iter().chain(without) {
                assert!(seen.insert(name), "{name} is listed twice");
            }
            for (name, why) in &cases.without {
                assert!(why.split(' ').count() > 2, "{name}: {why}");
            }
        }
        let sections = CASES.lines().filter(|line| line.starts_with('[')).count();
        assert_eq!(sections, SUITES.len(), "a section is of no suite");
    }

    #[test]
    fn a_case_passes_only_if_our_server_was_asked_and_ended_well() {
        let ours = "real: option -o\nours: serve data=x\n";
        assert_eq!(judged(Some(0), ours, ""), Ok(None));
        assert_eq!(
            judged(Some(LACKS), "", "no qemu\n\n"),
            Ok(Some("no qemu".into()))
        );
        for (status, log) in [
            (Some(0), "real: option -o\n"),
            (Some(0), ""),
            (Some(1), ours),
            (None, ours),
            (Some(0), "ours: serve\nended with 1: lost\n"),
            (Some(0), "ours: serve\nno start: size\n"),
        ] {
            assert!(judged(status, log, "x").is_err(), "{status:?} {log}");
        }
    }

    #[test]
    fn sources_are_found_by_name_and_version() {
        let folder = std::env::temp_dir().join(format!("tidegate-suites-{}", std::process::id()));
        for name in ["libnbd-1.14.2", "nbd-3.24", "nbdkit-x"] {
            make(&folder.join(name)).unwrap();
        }
        let name = |wanted| unpacked(&folder, wanted).map(|path| path.ends_with("nbd-3.24"));
        assert_eq!(
            (name("nbd"), name("nbdkit"), name("libnbd")),
            (Some(true), None, Some(false))
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
