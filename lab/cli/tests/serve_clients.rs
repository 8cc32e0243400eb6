//! `tidegate serve` with the clients that people use: each test runs the client itself against the
//! program itself.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::serving::{
    Folder, MIB, Server, client, command, difference, have, patchwork, sparse, tell,
};

/// Less than most volumes here: pages are evicted, and misses are read again.
const MEMORY: &str = "96MiB";
/// Time that anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn nbdinfo() {
    if !have("nbdinfo", &["nbdinfo"]) {
        return;
    }
    let folder = Folder::new("nbdinfo");
    let (one, two) = (
        sparse(&folder, "one", 32 * MIB),
        sparse(&folder, "two", 48 * MIB),
    );
    // Data in the second MiB, holes around it.
    let file = fs::File::options().write(true).open(folder.path("one"));
    file.unwrap().write_all_at(&vec![7; 1 << 20], MIB).unwrap();
    let server = Server::start(&folder, MEMORY, &[&one, &two]);
    let uri = server.uri("one");
    assert_eq!(client("nbdinfo", &["--size", &uri]).trim(), "33554432");
    let about: serde_json::Value =
        serde_json::from_str(&client("nbdinfo", &["--json", &uri])).unwrap();
    assert_eq!(about["protocol"], "newstyle-fixed");
    assert_eq!(about["structured"], true);
    let export = &about["exports"][0];
    assert_eq!(export["export-size"], 32 * MIB);
    for can in [
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_multi_conn",
    ] {
        assert_eq!(export[can], true, "{can}: {export}");
    }
    assert_eq!(export["is_read_only"], false);
    let list: serde_json::Value =
        serde_json::from_str(&client("nbdinfo", &["--list", "--json", &uri])).unwrap();
    let exports = list["exports"].as_array().unwrap();
    let mut names: Vec<(&str, u64)> = exports
        .iter()
        .map(|export| {
            let name = export["export-name"].as_str().unwrap();
            (name, export["export-size"].as_u64().unwrap())
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, [("one", 32 * MIB), ("two", 48 * MIB)]);
    assert_eq!(
        extents(&uri),
        [(0, MIB, 3), (MIB, MIB, 0), (2 * MIB, 30 * MIB, 3)],
        "a hole that reads as zeroes, data, a hole"
    );
    // Written blocks are data at once, whether the file has them yet or not.
    if have("nbdinfo --map after a write", &["qemu-io"]) {
        qemu_io(&uri, &["write -P 5 8M 64k"]);
        assert_eq!(
            extents(&uri)
                .into_iter()
                .filter(|(_, _, kind)| kind & 1 == 0)
                .collect::<Vec<_>>(),
            [(MIB, MIB, 0), (8 * MIB, 64 << 10, 0)]
        );
    }
    // A name that is not there is refused, and said so.
    let refused = command("nbdinfo", &["--size", &server.uri("three")]).output();
    let refused = refused.unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("three"), "{said}");
}

/// Offset, length and type of each run of `base:allocation`, equal neighbours joined.
fn extents(uri: &str) -> Vec<(u64, u64, u64)> {
    let map: serde_json::Value =
        serde_json::from_str(&client("nbdinfo", &["--map", "--json", uri])).unwrap();
    let field = |extent: &serde_json::Value, name: &str| extent[name].as_u64().unwrap();
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for extent in map.as_array().unwrap() {
        let (offset, length) = (field(extent, "offset"), field(extent, "length"));
        let kind = field(extent, "type");
        match runs.last_mut() {
            Some((from, len, last)) if *last == kind && *from + *len == offset => *len += length,
            _ => runs.push((offset, length, kind)),
        }
    }
    runs
}

#[test]
fn nbdcopy_in_and_out() {
    if !have("nbdcopy", &["nbdcopy"]) {
        return;
    }
    let folder = Folder::new("nbdcopy");
    let size = 256 * MIB;
    let (source, back) = (folder.path("source"), folder.path("back"));
    patchwork(&source, size, 1);
    let volume = sparse(&folder, "disk", size);
    let mut server = Server::start(&folder, MEMORY, &[&volume]);
    client("nbdcopy", &["--flush", text(&source), &server.uri("disk")]);
    // Flushed data are in the file, as others see it, while the server runs.
    assert_eq!(difference(&source, &folder.path("disk")), None);
    client("nbdcopy", &[&server.uri("disk"), text(&back)]);
    assert_eq!(difference(&source, &back), None);
    server.stop_well();
    assert_eq!(difference(&source, &folder.path("disk")), None);
    // And from a server that has none of it in memory.
    fs::remove_file(&back).unwrap();
    let server = Server::start(&folder, MEMORY, &[&volume]);
    client(
        "nbdcopy",
        &["--connections=4", &server.uri("disk"), text(&back)],
    );
    assert_eq!(difference(&source, &back), None);
    assert_holes(&back, size);
}

/// A copy of a patchwork has holes, too: the map told of them.
fn assert_holes(path: &Path, size: u64) {
    use std::os::unix::fs::MetadataExt as _;
    let taken = fs::metadata(path).unwrap().blocks() * 512;
    assert!(taken < size * 3 / 4, "{taken} of {size} bytes take space");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs commands in one `qemu-io` and answers what it said; a pattern that does not match fails.
fn qemu_io(uri: &str, commands: &[&str]) -> String {
    let mut arguments = vec!["-f", "raw"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(uri);
    let said = client("qemu-io", &arguments);
    for bad in ["verification failed", "failed:", "error"] {
        assert!(!said.contains(bad), "{commands:?}: {said}");
    }
    said
}

#[test]
fn qemu_io_commands() {
    if !have("qemu-io", &["qemu-io"]) {
        return;
    }
    let folder = Folder::new("qemu-io");
    let volume = sparse(&folder, "disk", 64 * MIB);
    let mut server = Server::start(&folder, MEMORY, &[&volume]);
    let uri = server.uri("disk");
    qemu_io(
        &uri,
        &[
            "write -P 0xab 0 1M",
            "read -P 0xab 0 1M",
            // Parts of pages, across their edges.
            "write -P 0xcd 4608 7680",
            "read -P 0xab 0 4608",
            "read -P 0xcd 4608 7680",
            "read -P 0xab 12288 64k",
            "write -z 64k 64k",
            "read -P 0 64k 64k",
            "write -z -u 256k 128k",
            "read -P 0 256k 128k",
            "discard 512k 128k",
            "flush",
            // FUA.
            "write -f -P 0x11 2M 64k",
            // Many at once, then wait.
            "aio_write -P 1 4M 1M",
            "aio_write -P 2 5M 1M",
            "aio_write -P 3 6M 1M",
            "aio_flush",
            "read -P 1 4M 1M",
            "read -P 2 5M 1M",
            "read -P 3 6M 1M",
            "flush",
        ],
    );
    // Beyond the end is refused and does no harm.
    let beyond = command("qemu-io", &["-f", "raw", "-c", "write -P 1 63M 2M", &uri]).output();
    assert!(!beyond.unwrap().status.success());
    let file = fs::File::open(folder.path("disk")).unwrap();
    let byte_at = |offset: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        byte[0]
    };
    let seen: Vec<u8> = [
        0,
        4608,
        12287,
        12288,
        65536,
        262_144,
        2 * MIB,
        4 * MIB,
        7 * MIB - 1,
    ]
    .map(byte_at)
    .into();
    assert_eq!(seen, [0xab, 0xcd, 0xcd, 0xab, 0, 0, 0x11, 1, 3]);
    server.stop_well();
}

/// The server is stopped and started again, as for an upgrade, while QEMU has the volume: requests
/// wait, and all that was answered is there.
#[test]
fn qemu_goes_on_when_the_server_is_started_again() {
    if !have("qemu restart", &["qemu-io"]) {
        return;
    }
    let folder = Folder::new("qemu-restart");
    let volume = sparse(&folder, "disk", 8 * MIB);
    let mut server = Server::start(&folder, MEMORY, &[&volume]);
    let image = format!(
        "driver=raw,file.driver=nbd,file.export=disk,file.reconnect-delay=60,\
         file.server.type=unix,file.server.path={}",
        text(&folder.path("socket"))
    );
    let mut qemu = command("qemu-io", &["--image-opts", &image])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = qemu.stdin.take().unwrap();
    writeln!(input, "write -P 1 0 1M").unwrap();
    // Its output stays in its buffer until it ends. A write that is not answered by then waits as
    // the next one does.
    std::thread::sleep(Duration::from_millis(500));
    server.stop_well();
    // Nobody listens: this one waits.
    writeln!(input, "write -P 2 1M 1M").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut server = Server::start(&folder, MEMORY, &[&volume]);
    writeln!(input, "read -P 1 0 1M\nread -P 2 1M 1M\nflush\nquit").unwrap();
    drop(input);
    let output = qemu.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{complaint}");
    for (done, times) in [("wrote 1048576/1048576", 2), ("read 1048576/1048576", 2)] {
        assert_eq!(said.matches(done).count(), times, "{said}{complaint}");
    }
    assert!(!said.contains("verification failed"), "{said}");
    server.stop_well();
    let disk = fs::read(folder.path("disk")).unwrap();
    let (first, second) = disk[..2 << 20].split_at(1 << 20);
    assert!(first.iter().all(|byte| *byte == 1) && second.iter().all(|byte| *byte == 2));
}

#[test]
fn qemu_and_the_server_keep_each_other_out() {
    if !have("qemu locks", &["qemu-io"]) {
        return;
    }
    let folder = Folder::new("qemu-locks");
    let volume = sparse(&folder, "disk", 8 * MIB);
    let path = folder.path("disk");
    let locked = "Failed to get \"write\" lock";
    let write = |path: &Path| {
        let arguments = ["-f", "raw", "-c", "write 0 4k", text(path)];
        let output = command("qemu-io", &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    // The server first: for writing, and for reading only.
    for volume in [volume.clone(), format!("{volume},ro")] {
        let mut server = Server::start(&folder, MEMORY, &[&volume]);
        let (is_written, said) = write(&path);
        assert!(!is_written && said.contains(locked), "{volume}: {said}");
        server.stop_well();
        let (is_written, said) = write(&path);
        assert!(is_written, "{volume}: {said}");
    }
    // QEMU first: neither is available while it may write.
    let mut qemu = command("qemu-io", &["-f", "raw", text(&path)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let number = format!(":{} ", fs::metadata(&path).unwrap().ino());
    while !fs::read_to_string("/proc/locks").unwrap().contains(&number) {
        std::thread::sleep(Duration::from_millis(5));
        assert!(began.elapsed() < PATIENCE, "it does not lock");
    }
    let at = format!("unix:{}", folder.path("socket").display());
    for volume in [volume.clone(), format!("{volume},ro")] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([
                "serve", "--memory", MEMORY, "--listen", &at, "--no-web", &volume,
            ])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("in use by another program that has locked it (QEMU"),
            "{said}"
        );
    }
    drop(qemu.stdin.take());
    assert!(qemu.wait().unwrap().success());
    Server::start(&folder, MEMORY, &[&volume]).stop_well();
}

#[test]
fn qemu_img() {
    if !have("qemu-img", &["qemu-img"]) {
        return;
    }
    let folder = Folder::new("qemu-img");
    let size = 128 * MIB;
    let (source, back) = (folder.path("source"), folder.path("back"));
    patchwork(&source, size, 2);
    let volume = sparse(&folder, "disk", size);
    let server = Server::start(&folder, MEMORY, &[&volume]);
    let uri = server.uri("disk");
    let raw = ["-f", "raw", "-O", "raw"];
    client(
        "qemu-img",
        &[&["convert", "-n"], &raw[..], &[text(&source), &uri]].concat(),
    );
    client(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", text(&source), &uri],
    );
    client(
        "qemu-img",
        &[&["convert"], &raw[..], &[&uri, text(&back)]].concat(),
    );
    assert_eq!(difference(&source, &back), None);
    let bench = |options: &[&str]| {
        let fixed = ["bench", "-f", "raw", "-d", "16", "-s", "4096"];
        client("qemu-img", &[&fixed, options, &[&uri]].concat())
    };
    let said = bench(&["-c", "8000"]);
    assert!(said.contains("Run completed"), "{said}");
    let said = bench(&["-c", "8000", "-w", "--flush-interval=1000"]);
    assert!(said.contains("Run completed"), "{said}");
}

#[test]
fn fio_verifies() {
    if !have("fio", &["fio"]) {
        return;
    }
    if !client("fio", &["--enghelp"]).contains("nbd") {
        tell("SKIPPED: fio: it has no nbd engine");
        return;
    }
    let folder = Folder::new("fio");
    let volume = sparse(&folder, "disk", 160 * MIB);
    let server = Server::start(&folder, MEMORY, &[&volume]);
    let uri = format!("--uri={}", server.uri("disk"));
    let random = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bssplit=4k/60:512/10:2560/10:64k/20",
        "--bs_unaligned=0",
        "--iodepth=16",
        "--size=128m",
        "--io_size=96m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--fsync=500",
        "--randseed=7",
        "--verify_state_save=0",
    ];
    client("fio", &random);
    let whole = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=16",
        "--size=128m",
        "--io_size=48m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    client("fio", &whole);
}

/// Taken back whatever comes of the test, the last first.
struct Undo {
    fuse: Option<(Child, PathBuf)>,
    node: Option<String>,
    mount: Option<PathBuf>,
}

impl Undo {
    fn now(&mut self) {
        if let Some(mount) = self.mount.take() {
            let _ = command("umount", &[text(&mount)]).status();
        }
        if let Some(node) = self.node.take() {
            let _ = command("losetup", &["-d", &node]).status();
        }
        if let Some((mut child, folder)) = self.fuse.take() {
            let began = Instant::now();
            // The loop device releases the file when it likes.
            while !command("umount", &[text(&folder)])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
                && began.elapsed() < PATIENCE
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            if began.elapsed() >= PATIENCE {
                let _ = command("umount", &["--lazy", text(&folder)]).status();
            }
            let _ = child.wait();
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.now();
    }
}

/// The volume as a file.
fn fuse(folder: &Folder, server: &Server) -> (Undo, PathBuf) {
    let place = folder.path("fuse");
    fs::create_dir(&place).unwrap();
    let mut nbdfuse = Command::new("nbdfuse");
    nbdfuse.arg(&place).arg(server.uri("disk"));
    nbdfuse.stdin(Stdio::null());
    let undo = Undo {
        fuse: Some((nbdfuse.spawn().unwrap(), place.clone())),
        node: None,
        mount: None,
    };
    let file = place.join("nbd");
    let began = Instant::now();
    while !file.exists() {
        assert!(began.elapsed() < PATIENCE, "nbdfuse");
        std::thread::sleep(Duration::from_millis(10));
    }
    (undo, file)
}

/// The work of fsx on a file of 24 MiB: the cache has room for a quarter of it.
const FSX: &str = "blockmode = true
nosizechecks = true
flen = 25165824
opsize = { max = 262144 }
[weights]
close_open = 0
invalidate = 0
truncate = 0
mapread = 0
mapwrite = 0
read = 10
write = 10
fsync = 0.2
fdatasync = 0.2
punch_hole = 3
";

/// An exerciser of others, `fsx`, which `TIDEGATE_FSX` names: each read is what was written and
/// punched before, to the byte. `TIDEGATE_SEED` is its dice, `TIDEGATE_FSX_OPS` how many.
#[test]
fn fsx_over_nbdfuse() {
    let Some(fsx) = std::env::var("TIDEGATE_FSX").ok() else {
        tell(
            "SKIPPED: fsx over nbdfuse: TIDEGATE_FSX names no fsx (cargo xtask test --all installs it)",
        );
        return;
    };
    if !have("fsx over nbdfuse", &["nbdfuse", "umount"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        tell("SKIPPED: fsx over nbdfuse: there is no /dev/fuse");
        return;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let seed = number("TIDEGATE_SEED").unwrap_or(u64::from(since.subsec_nanos()));
    let ops = number("TIDEGATE_FSX_OPS").unwrap_or(1500).to_string();
    for (kind, memory) in [("file", "36MiB"), ("dir", "56MiB"), ("mem", "80MiB")] {
        let folder = Folder::new(kind);
        let volume = match kind {
            "file" => sparse(&folder, "disk", 24 * MIB),
            "dir" => format!("disk=dir:{},size=24MiB", text(&folder.path("objects"))),
            _ => "disk=mem:,size=24MiB".to_owned(),
        };
        if kind == "dir" {
            fs::create_dir(folder.path("objects")).unwrap();
        }
        let more = ["--no-web", "--max-connections", "8"];
        let mut server = Server::start_with(&folder, memory, &more, &[&volume]);
        let (mut undo, file) = fuse(&folder, &server);
        let (config, here) = (folder.path("fsx.toml"), folder.path(""));
        fs::write(&config, FSX).unwrap();
        tell(&format!(
            "fsx over nbdfuse, {kind}: {ops} operations, TIDEGATE_SEED={seed}"
        ));
        let seed = seed.to_string();
        let places = ["-f", text(&config), "-P", text(&here), text(&file)];
        client(
            &fsx,
            &[&["-q", "-N", &ops, "-S", &seed], &places[..]].concat(),
        );
        undo.now();
        server.stop_well();
    }
}

/// A kernel's file system on our volume: mkfs, mount, a tree copied, unmounted, checked, mounted
/// again and compared.
#[test]
fn a_file_system_over_nbdfuse() {
    let tools = [
        "nbdfuse",
        "losetup",
        "mkfs.ext4",
        "e2fsck",
        "mount",
        "umount",
    ];
    if !have("a file system over nbdfuse", &tools) {
        return;
    }
    let is_root = fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    if !is_root || !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        tell("SKIPPED: a file system over nbdfuse: it needs root, /dev/fuse and loop devices");
        return;
    }
    let folder = Folder::new("mounted");
    let mount = folder.path("mount");
    fs::create_dir(&mount).unwrap();
    let volume = sparse(&folder, "disk", 160 * MIB);
    let mut server = Server::start(&folder, MEMORY, &[&volume]);
    let (mut undo, file) = fuse(&folder, &server);
    let node = client("losetup", &["-f", "--show", text(&file)]);
    let node = node.trim().to_owned();
    undo.node = Some(node.clone());
    client("mkfs.ext4", &["-q", "-F", &node]);
    let mounted = |undo: &mut Undo| {
        client("mount", &[&node, text(&mount)]);
        undo.mount = Some(mount.clone());
    };
    mounted(&mut undo);
    // Our own sources: a tree of small files; and a tree that is larger than the server's memory
    // for clean pages.
    let tree = folder.path("tree");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cache/mm");
    client("cp", &["-a", text(&ours), text(&tree)]);
    let big = folder.path("big");
    patchwork(&big, 96 * MIB, 3);
    client("cp", &["-a", text(&tree), text(&mount.join("tree"))]);
    client("cp", &[text(&big), text(&mount.join("big"))]);
    client("umount", &[text(&mount)]);
    undo.mount = None;
    client("e2fsck", &["-f", "-n", &node]);
    mounted(&mut undo);
    client("diff", &["-r", text(&tree), text(&mount.join("tree"))]);
    assert_eq!(difference(&big, &mount.join("big")), None);
    client("umount", &[text(&mount)]);
    undo.mount = None;
    undo.now();
    server.stop_well();
    // And what is on the disk after the server has ended is a whole file system.
    client("e2fsck", &["-f", "-n", text(&folder.path("disk"))]);
}
