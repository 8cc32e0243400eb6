//! A cache in a control group of its own, of the system that the test runs on: the limit is seen,
//! and followed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tidegate::{Cache, Error, OpenOptions};

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

/// A group below that of this process, and the file of its limit; removed when dropped.
struct Group(PathBuf, &'static str);

impl Group {
    /// None: groups cannot be made here.
    fn new() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("tidegate-group-{}", std::process::id());
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (kind, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            let (root, limit) = match kind {
                "" => ("/sys/fs/cgroup", "memory.max"),
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                _ => return None,
            };
            let group = Path::new(root).join(path).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Self(group, limit);
            group.limit(200 * MIB).ok().map(|()| group)
        })
    }

    fn limit(&self, bytes: u64) -> std::io::Result<()> {
        fs::write(self.0.join(self.1), bytes.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let began = Instant::now();
        // The process that was in it has to be gone.
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_limit_of_the_group_is_seen_and_followed() {
    let Some(group) = Group::new() else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no control group can be made here"
        );
        return;
    };
    let run = "echo $$ > \"$GROUP/cgroup.procs\"; exec \"$0\" --exact --ignored --nocapture group::in_the_group";
    let output = Command::new("sh")
        .args(["-c", run])
        .arg(std::env::current_exe().unwrap())
        .env("GROUP", &group.0)
        .env("GROUP_LIMIT", group.1)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn in_the_group() {
    let path = PathBuf::from(std::env::var_os("GROUP").unwrap());
    let file = path.join(std::env::var("GROUP_LIMIT").unwrap());
    let refused = Cache::builder().memory(512 * MIB).build().map(drop);
    let Err(Error::LimitAboveGroup {
        allowed,
        file: told,
        ..
    }) = &refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((*allowed, told), (200 * MIB, &file));
    // As much as it allows: some of it is the kernel's.
    let built = Cache::builder().memory(200 * MIB).whole_process(true);
    let cache = built.build().unwrap();
    let stats = cache.stats();
    assert_eq!(stats.ceiling, Some(200 * MIB - 200 * MIB / 16));
    let data = std::env::temp_dir().join(format!("tidegate-in-group-{}", std::process::id()));
    let opened = cache.open(&data, OpenOptions::new().create(true));
    let _ = fs::remove_file(&data);
    let opened = opened.unwrap();
    // Half as much again as the group allows.
    let piece = vec![7; 1 << 20];
    for at in 0..300 {
        opened.write_at(&piece, at * MIB).unwrap();
    }
    // Lowered in steps: a limit below what is in use kills, or is refused.
    for mib in (120..200).rev().step_by(5) {
        fs::write(&file, (mib * MIB).to_string()).unwrap();
        let ceiling = mib * MIB - mib * MIB / 16;
        let began = Instant::now();
        loop {
            let stats = cache.stats();
            if stats.limit <= ceiling + 2 * MIB && stats.over_limit == 0 {
                break;
            }
            assert!(began.elapsed() < LONG, "{mib} MiB: {stats:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    opened.write_at(&piece, 0).unwrap();
    fs::write(&file, (400 * MIB).to_string()).unwrap();
    let began = Instant::now();
    while cache.stats().ceiling.is_some() {
        assert!(began.elapsed() < LONG, "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(100));
    }
    cache.close().unwrap();
}
