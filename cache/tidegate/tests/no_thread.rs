//! A running cache when the system has no thread to give: an error, and nothing is lost.

use std::path::Path;
use std::process::Command;

use tidegate::{Cache, Error, OpenOptions};

const MIB: u64 = 1 << 20;

/// The limit of its address space is for a process of its own.
#[test]
fn without_a_thread_there_is_an_error() {
    let dir = std::env::temp_dir().join(format!("tidegate-no-thread-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let run =
        "ulimit -v 2000000; exec \"$0\" --exact --ignored no_thread::in_a_small_address_space";
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    let command = command
        .args(["-c", run])
        .arg(own)
        .env("NO_THREAD_DIR", &dir);
    let output = command.output().unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn in_a_small_address_space() {
    let dir = std::env::var_os("NO_THREAD_DIR").unwrap();
    let dir = Path::new(&dir);
    let cache = Cache::builder().memory(64 * MIB).build().unwrap();
    let taken = take_all_address_space();
    let path = dir.join("file");
    let options = OpenOptions::new().create(true);
    let results = [
        cache.set_limit(32 * MIB),
        cache.open(&path, options).map(drop),
        Cache::builder().memory(16 * MIB).build().map(drop),
    ];
    let limit = cache.stats().limit;
    drop(taken);
    for result in results {
        assert!(matches!(result, Err(Error::System(_))), "{result:?}");
    }
    assert_eq!(limit, 64 * MIB);
    cache.set_limit(32 * MIB).unwrap();
    let file = cache.open(&path, options).unwrap();
    file.write_at(&[7; 4096], 0).unwrap();
    file.sync().unwrap();
    assert!(cache.stats().limit < 64 * MIB);
    cache.close().unwrap();
}

/// Less is left than the stack of a thread needs, and enough for what an error is made of.
fn take_all_address_space() -> Vec<Vec<u8>> {
    let kept: Vec<u8> = Vec::with_capacity(1 << 20);
    let mut taken = Vec::new();
    let mut size = 1 << 30;
    while size >= 256 << 10 {
        let mut part = Vec::new();
        match part.try_reserve_exact(size) {
            Ok(()) => taken.push(part),
            Err(_) => size /= 2,
        }
    }
    drop(kept);
    taken
}
