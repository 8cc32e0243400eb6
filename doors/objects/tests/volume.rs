//! A volume through the real cache: reopened, killed, on a store that fails.

#![allow(
    clippy::cast_possible_truncation,
    reason = "64 bits, and small numbers"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Chance, Fault, Faulty, MIB, PAGE, TestDir, attach, block};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use objects::Config;
use tidegate::{Cursor, Mode, Volume};

fn expect(volume: &Volume, cursor: &mut Cursor, at: u64, round: u64) {
    let mut data = vec![0; MIB as usize];
    volume
        .read(cursor, &mut data, at * MIB, Mode::Blocking)
        .unwrap();
    assert!(data == block(at, round), "MiB {at}");
}

#[test]
fn four_times_the_caches_memory_goes_through_and_is_there_after_reopening() {
    let dir = TestDir::new("through");
    let config = Config {
        size: Some(64 * MIB),
        ..Config::new(dir.url())
    };
    {
        let (cache, volume, device) = attach(16 << 20, |arena| objects::open(&config, arena));
        let mut writer = cache.writer();
        for at in 0..64 {
            volume
                .write(&mut writer, &block(at, 0), at * MIB, Mode::Blocking)
                .unwrap();
        }
        volume.sync().unwrap();
        // Sequential: hardly an object is put twice.
        let counts = device.counts();
        println!("{counts:?}");
        assert!(counts.puts < 3 * 64, "{counts:?}");
        let mut cursor = Cursor::default();
        (0..64).for_each(|at| expect(&volume, &mut cursor, at, 0));
        drop(volume);
        cache.close().unwrap();
    }
    let (cache, volume, _) = attach(16 << 20, |arena| objects::open(&config, arena));
    let mut cursor = Cursor::default();
    (0..64).for_each(|at| expect(&volume, &mut cursor, at, 0));
    drop(volume);
    cache.close().unwrap();
}

#[test]
fn a_store_that_fails_for_a_while_loses_nothing() {
    let faulty = Faulty::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let config = Config {
        size: Some(32 * MIB),
        object_size: Some(MIB / 2),
        timeout: Duration::from_secs(5),
        ..Config::new("test")
    };
    let open = |arena| objects::open_on(Arc::clone(&store), "v", &config, arena);
    let (cache, volume, device) = attach(16 << 20, open);
    let mut dice = Chance::new(5);
    // For its first puts, however long they take.
    let mut left = 90;
    faulty.rule(move |call, at| {
        let ours = at.filename().is_some_and(|name| name.len() == 16);
        if !ours || call != "put" || left == 0 {
            return None;
        }
        left -= 1;
        (dice.below(3) > 0).then(|| match dice.below(3) {
            0 => Fault::Fail,
            1 => Fault::DoneUnheard,
            _ => Fault::DoneLater,
        })
    });
    let mut writer = cache.writer();
    for at in 0..32 {
        // The error of a failed writeback is told once; the data was not taken then.
        while volume
            .write(&mut writer, &block(at, 0), at * MIB, Mode::Blocking)
            .is_err()
        {}
    }
    let mut tries = 0;
    while let Err(error) = volume.sync() {
        tries += 1;
        assert!(
            tries < 5000 && device.failure().is_none(),
            "{error}: {:?}",
            device.failure()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(device.counts().failed > 0);
    drop(volume);
    cache.close().unwrap();
    drop((cache, device));
    let (cache, volume, _) = attach(16 << 20, open);
    let mut cursor = Cursor::default();
    (0..32).for_each(|at| expect(&volume, &mut cursor, at, 0));
    drop(volume);
    cache.close().unwrap();
}

#[test]
fn what_was_synced_survives_a_kill() {
    let dir = TestDir::new("kill");
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "volume::writes_until_it_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env("TIDEGATE_KILL", dir.url())
            .env("TIDEGATE_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut synced = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(upto) = line.strip_prefix("synced ") {
                synced = upto.trim().parse().unwrap();
            }
            if synced >= 8 {
                break;
            }
        }
        // In the middle of the next writes.
        std::thread::sleep(Duration::from_millis(5 + 7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(synced >= 8, "it wrote");
        // Its lock went with it, and every object is whole.
        let (cache, volume, device) = attach(16 << 20, |arena| {
            objects::open(&Config::new(dir.url()), arena)
        });
        let mut cursor = Cursor::default();
        (0..synced).for_each(|at| expect(&volume, &mut cursor, at, round));
        let mut page = vec![0; PAGE];
        for at in 0..32 * MIB / PAGE as u64 {
            volume
                .read(&mut cursor, &mut page, at * PAGE as u64, Mode::Blocking)
                .unwrap();
        }
        assert_eq!(device.failure(), None);
        drop(volume);
        cache.close().unwrap();
    }
}

#[test]
#[ignore = "run by `what_was_synced_survives_a_kill`"]
fn writes_until_it_is_killed() {
    let config = Config {
        size: Some(32 * MIB),
        ..Config::new(std::env::var("TIDEGATE_KILL").unwrap())
    };
    let round = std::env::var("TIDEGATE_ROUND").unwrap().parse().unwrap();
    let (cache, volume, _) = attach(16 << 20, |arena| objects::open(&config, arena));
    let mut writer = cache.writer();
    for at in 0..32 {
        volume
            .write(&mut writer, &block(at, round), at * MIB, Mode::Blocking)
            .unwrap();
        if at % 4 == 3 {
            volume.sync().unwrap();
            println!("synced {}", at + 1);
        }
    }
    std::thread::sleep(Duration::from_secs(60));
}
