//! The parsers of all crates as functions of bytes, and good inputs for each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cli::args::Arguments;
use experiment::experiments::{self, EXPERIMENTS};
use experiment::run::{Cell, Column};
use experiment::scenario::{Override, Scenario, Source};
use governor::{Governor, Share};
use recordings::change::turn;
use recordings::kind::THROTTLING;
use recordings::{Change, Recording};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn inputs(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A folder of this run, for what is read from files.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("parsers-{name}"));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file's text, unpacked.
fn unpacked(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let mut text = Vec::new();
    match path.extension() {
        Some(end) if end == "gz" => {
            let mut unpacked = flate2::read::GzDecoder::new(&bytes[..]);
            unpacked.read_to_end(&mut text).unwrap();
            text
        }
        _ => bytes,
    }
}

/// Words, one a line.
pub(crate) fn arguments(bytes: &[u8]) {
    let text = text(bytes);
    let words = core::iter::once("tidegate").chain(text.lines());
    let words: Vec<OsString> = words.map(OsString::from).collect();
    if let Err(told) = Arguments::of(&words) {
        assert!(!told.to_string().is_empty());
    }
}

pub(crate) fn command_lines() -> Vec<Vec<u8>> {
    inputs(&[
        "run\ndd\n--column\nlinux-2.6.36,p1\n--set\ncolumn.p1.hz=100\n--scale\n1/8\n--seed\n7",
        "run\ndd\n--live\n/tmp\n--memory\n64MiB\n--device\nslow:rate=16MB\n--replicas\n5\n--trace=8:100dd",
        "reproduce\np0\np3\n--replicas\n5\n--scale\n0.125\n--format\njson",
        "compare\nrecordings/held/one-dd\n--set\nvm.dirty_bytes=200M\n--given\nhz=250\n--seed\n3\n--check",
        "list\npapers",
        "serve\ndisk=/tmp/disk.img,size=1GiB\n--memory\n256MiB\n--listen\nunix:/tmp/s\n--dirty\n20%",
        "demo\n--rate\n16MB",
        "top\nhttp://127.0.0.1:9080",
    ])
}

/// A scenario that was loaded has passed every check: its cells can be made.
fn made(scenario: &Scenario) {
    for row in scenario.rows() {
        for policy in &scenario.columns {
            let _ = Cell::resolve(scenario, &row, &Column::of(policy));
        }
    }
}

fn loaded(source: Source, sets: &[Override]) {
    match Scenario::load(source, sets) {
        Ok((scenario, _)) => made(&scenario),
        Err(told) => assert!(!told.to_string().is_empty()),
    }
}

pub(crate) fn scenario(bytes: &[u8]) {
    let source = Source {
        origin: "fuzz.toml".into(),
        text: text(bytes),
    };
    loaded(source, &[]);
}

pub(crate) fn scenarios() -> Vec<Vec<u8>> {
    let texts = EXPERIMENTS.iter().map(|(_, text)| text.as_bytes().to_vec());
    texts.collect()
}

/// `--set`, on an experiment that is named before it.
pub(crate) fn set(bytes: &[u8]) {
    let text = text(bytes);
    let (name, set) = text.split_once('\n').unwrap_or(("dd", &text));
    let source = experiments::by_name(name).or_else(|| experiments::by_name("dd"));
    if let Ok(set) = Override::parse(set) {
        loaded(source.unwrap(), &[set]);
    }
}

pub(crate) fn sets() -> Vec<Vec<u8>> {
    inputs(&[
        "dd\nmachine.memory_mib=512",
        "dd\ncolumn.p1.hz=100",
        "dd\ndevice.disk.wrap=slow:rate=16MB",
        "dd\nrun.scale=0.125",
        "stutterp\nmachine.swap.mib=64",
        "stutterp\nmachine.cpus=4",
        "stutterp\nmachine.nodes=2",
        "stutterp\nrun.max_s=100",
    ])
}

/// A recording of which one file is changed: its name, then what is in it.
struct Changed {
    folder: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

impl Changed {
    /// A copy, unpacked.
    fn of(name: &str, whole: &str) -> Self {
        let folder = folder(name);
        let files = std::fs::read_dir(root().join(whole)).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let files = files.filter_map(|path| {
            let name = path.file_name()?.to_str()?.trim_end_matches(".gz");
            let ends = [".csv", ".json", ".toml"];
            let is_read = ends.iter().any(|end| name.ends_with(end));
            is_read.then(|| (name.to_owned(), unpacked(&path)))
        });
        let files: BTreeMap<_, _> = files.collect();
        for (name, content) in &files {
            std::fs::write(folder.join(name), content).unwrap();
        }
        Self { folder, files }
    }

    /// The first of many lines say as much.
    fn inputs(&self) -> Vec<Vec<u8>> {
        let files = self.files.iter();
        let heads = files.map(|(name, content)| {
            let lines = content.split_inclusive(|byte| *byte == b'\n');
            let head: Vec<u8> = lines.take(60).flatten().copied().collect();
            [name.as_bytes(), b"\n", &head].concat()
        });
        heads.collect()
    }

    /// Reads it with the change, and takes that back.
    fn read(&self, bytes: &[u8], read: impl FnOnce(&Path)) {
        let at = bytes.iter().position(|byte| *byte == b'\n');
        let (name, content) = bytes.split_at(at.map_or(bytes.len(), |at| at + 1));
        let Some((name, whole)) = self.files.get_key_value(text(name).trim()) else {
            return;
        };
        let path = self.folder.join(name);
        std::fs::write(&path, content).unwrap();
        let read = catch_unwind(AssertUnwindSafe(|| read(&self.folder)));
        std::fs::write(&path, whole).unwrap();
        if let Err(panic) = read {
            resume_unwind(panic);
        }
    }
}

fn of_throttling() -> &'static Changed {
    static CHANGED: OnceLock<Changed> = OnceLock::new();
    CHANGED.get_or_init(|| Changed::of("tables", "lab/recordings/tests/fixtures/guest"))
}

fn of_pressure() -> &'static Changed {
    static CHANGED: OnceLock<Changed> = OnceLock::new();
    CHANGED.get_or_init(|| Changed::of("pressure", "recordings/held/r1-4"))
}

pub(crate) fn tables(bytes: &[u8]) {
    of_throttling().read(bytes, judged);
}

fn judged(path: &Path) {
    match Recording::load(path) {
        Ok(recording) => {
            let _ = recordings::measure(&recording.setting, &recording.outcome);
            let plan = recordings::lab::plan(&recording.setting, &["linux-6.12"], 1);
            assert!(plan.is_ok(), "{:?}", plan.map(|plan| plan.source));
        }
        Err(told) => assert!(!told.to_string().is_empty()),
    }
}

pub(crate) fn recordings() -> Vec<Vec<u8>> {
    of_throttling().inputs()
}

pub(crate) fn pressure(bytes: &[u8]) {
    of_pressure().read(bytes, judged);
}

pub(crate) fn recordings_of_pressure() -> Vec<Vec<u8>> {
    of_pressure().inputs()
}

pub(crate) fn trace(bytes: &[u8]) {
    let path = folder("trace").join("trace.txt");
    std::fs::write(&path, bytes).unwrap();
    judged(&path);
}

pub(crate) fn traces() -> Vec<Vec<u8>> {
    let ftrace = unpacked(&root().join("lab/recordings/tests/fixtures/ftrace.txt.gz"));
    let ftrace = text(&ftrace);
    let perf = ftrace.lines().filter_map(|line| {
        let (task, rest) = line.split_once('[')?;
        let (comm, pid) = task.trim().rsplit_once('-')?;
        let (head, event) = rest.split_once(": ")?;
        let time = head.rsplit(' ').next()?;
        Some(format!("{comm} {pid} {time}: writeback:{event}\n"))
    });
    let perf: String = perf.take(120).collect();
    let ftrace: String = ftrace
        .lines()
        .take(120)
        .map(|line| format!("{line}\n"))
        .collect();
    let calls = "cpus=2\n\
        dd-1 [000] .....  1.5: sys_write(fd: 1, buf: 7f00, count: 100000)\n\
        dd-1 [000] .....  1.6: sys_write -> 0x100000\n\
        CPU:1 [LOST 12 EVENTS]\n\
        dd-1 [001]  1.7: balance_dirty_pages: bdi 7:0: limit=16384 setpoint=14336 dirty=12353 bdi_dirty=12360 \
        dirty_ratelimit=102400 task_ratelimit=197000 dirtied=64 paused=0 pause=8 period=8 think=0\n\
        dd-1 [001]  1.8: bdi_dirty_ratelimit: bdi 7:0: awrite_bw=102400\n\
        kworker/u8:2-7 [001]  1.9: global_dirty_state: dirty=9000 writeback=20 bg_thresh=8192 thresh=16384 dirtied=1 written=2\n\
        dd-1 [001]  61.8: bdi_dirty_ratelimit: bdi 7:0: awrite_bw=102400\n";
    inputs(&[&ftrace, &perf, calls])
}

/// `--set` and `--given` of `compare`, put to a recording's setting.
pub(crate) fn change(bytes: &[u8]) {
    static WHOLE: OnceLock<recordings::Setting> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| Recording::load(&of_throttling().folder).unwrap().setting);
    match Change::parse(&THROTTLING, &text(bytes)) {
        Ok(change) => {
            let mut setting = whole.clone();
            if turn(&mut setting, "--set", &[&change]).is_ok() {
                let _ = recordings::lab::plan(&setting, &["linux-6.12"], 1).unwrap();
            }
        }
        Err(told) => assert!(!told.to_string().is_empty()),
    }
}

pub(crate) fn changes() -> Vec<Vec<u8>> {
    inputs(&[
        "vm.dirty_bytes=200M",
        "vm.dirty_background_bytes=8MiB",
        "device.0.rate=16",
        "device.0.max_ratio=50",
        "writers=4",
        "writer.0.bytes=1MiB",
        "writer.0.sleep_ms=20",
        "writer.0.start_s=3",
        "hz=250",
        "cpus=2",
        "memory_mib=1024",
        "page_size=65536",
    ])
}

pub(crate) fn server(bytes: &[u8]) {
    let path = folder("server").join("server.toml");
    std::fs::write(&path, bytes).unwrap();
    let asked = serve::config::Asked {
        file: Some(path),
        ..serve::config::Asked::default()
    };
    if let Err(told) = asked.config() {
        assert!(!told.to_string().is_empty());
    }
}

pub(crate) fn configurations() -> Vec<Vec<u8>> {
    inputs(&[
        "memory = \"256MiB\"\ndirty = \"20%\"\nlisten = [\"unix:/tmp/s\", \"tcp:127.0.0.1:10809\"]\nweb = \"127.0.0.1:9080\"\n\
         [[volume]]\nname = \"disk\"\nbackend = \"file:/tmp/disk.img\"\nsize = \"1GiB\"\nread_only = false\n\
         [[volume]]\nname = \"mem\"\nbackend = \"mem:\"\nsize = \"64MiB\"\ndevice = \"slow:rate=16MB,latency=2ms\"\n",
        "memory = \"1GiB\"\nbackground = \"64MiB\"\nmax_connections = 200\n[tls]\ncert = \"a\"\nkey = \"b\"\n\
         [[volume]]\nname = \"objects\"\nbackend = \"dir:/tmp/objects\"\nsize = \"4GiB\"\nobject_size = \"4MiB\"\n",
    ])
}

pub(crate) fn volume(bytes: &[u8]) {
    let asked = serve::config::Asked {
        volumes: vec![text(bytes)],
        ..serve::config::Asked::default()
    };
    if let Err(told) = asked.config() {
        assert!(!told.to_string().is_empty());
    }
}

pub(crate) fn volumes() -> Vec<Vec<u8>> {
    inputs(&[
        "disk=/tmp/disk.img,size=1GiB",
        "disk=/dev/sda,ro",
        "disk=mem:size=64MiB,device=slow:rate=16MB",
        "disk=dir:/tmp/objects,size=4GiB,object_size=4MiB",
        "disk=s3://bucket/prefix,size=1TiB",
        "/tmp/disk.img",
    ])
}

pub(crate) fn wrapper(bytes: &[u8]) {
    if let Err(told) = device::Layer::parse_stack(&text(bytes)) {
        assert!(!told.to_string().is_empty());
    }
}

pub(crate) fn wrappers() -> Vec<Vec<u8>> {
    inputs(&[
        "slow:rate=16MB,latency=2ms",
        "faulty:eio_writes=0.3,seed=7",
        "volatile:frames=2048",
        "trace:records=1000+slow:latency=1ms",
    ])
}

pub(crate) fn figure(bytes: &[u8]) {
    let text = text(bytes);
    let told = [
        figures::size(&text).err(),
        figures::size_above_zero(&text).err(),
        figures::time(&text).err(),
    ];
    assert!(
        told.into_iter()
            .flatten()
            .all(|told| !told.to_string().is_empty())
    );
    let _ = figures::decimal(&text, 1 << 40);
}

pub(crate) fn figures() -> Vec<Vec<u8>> {
    inputs(&[
        "64MiB",
        "1.5TB",
        "0.000001s",
        "10s",
        "1.5ms",
        "18446744073709551615B",
    ])
}

/// A member's name; then its floor, ceiling and weight, a line each.
pub(crate) fn member(bytes: &[u8]) {
    let text = text(bytes);
    let mut lines = text.lines();
    let name = lines.next().unwrap_or("");
    let floor = lines.next().and_then(|line| line.parse().ok());
    let ceiling = lines.next().and_then(|line| line.parse().ok());
    let weight = lines.next().and_then(|line| line.parse().ok());
    let cost = lines.next().and_then(|line| figures::time(line).ok());
    let governor = Governor::builder(64 << 20)
        .without_resident()
        .driven_by_caller(|| {})
        .build()
        .unwrap();
    let share = Share::default()
        .floor(floor.unwrap_or(0))
        .ceiling(ceiling.unwrap_or(u64::MAX))
        .weight(weight.unwrap_or(1.0))
        .miss_cost(cost.unwrap_or_default());
    let shrinker = || governor::by(|| 0, |_| 0);
    match governor.register(name, share, shrinker()) {
        Ok(member) => {
            member.evicted(1, floor.unwrap_or(0));
            member.missed(1);
            governor.turn(governor.now());
            assert!(governor.register(name, share, shrinker()).is_err(), "twice");
        }
        Err(told) => assert!(!told.to_string().is_empty()),
    }
    if let Err(told) = governor.set_limit(floor.unwrap_or(0)) {
        assert!(!told.to_string().is_empty());
    }
    assert!(!governor.report().to_string().is_empty());
}

pub(crate) fn members() -> Vec<Vec<u8>> {
    inputs(&[
        "rows\n4194304\n8388608\n1.5\n100us",
        "pages\n0\n18446744073709551615\n0.0625\n1s",
    ])
}

pub(crate) fn corpus_of_nbd(target: &str) -> Vec<Vec<u8>> {
    let folder = root().join("doors/nbd/fuzz/corpus").join(target);
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}
