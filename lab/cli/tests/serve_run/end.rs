//! Ends of a server that are not plain: what is waited for, what a second signal gives up, and what
//! is said of both.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::{MEMORY, Process, holds, listen, random, serve, write_all};
use crate::serving::{Client, Folder, MIB, sparse};

#[test]
fn a_second_signal_ends_at_once_and_says_what_is_lost() {
    let folder = Folder::new("second");
    // A MiB takes it a minute: most is left whenever the second signal comes, and who waited for it
    // would be late.
    let slow = sparse(&folder, "slow", 32 * MIB) + ",device=slow:rate=16KiB";
    let fast = sparse(&folder, "fast", 32 * MIB);
    let at = listen(&folder);
    let mut process = Process::start(
        &folder,
        &[
            "--memory",
            "128MiB",
            "--listen",
            &at,
            "--no-web",
            "--unpaced",
            &slow,
            &fast,
        ],
    );
    process.wait_ready();
    let mut client = Client::connect(&folder.path("socket"), "slow");
    write_all(&mut client, &random(4 * MIB, 3));
    process.signal(Signal::TERM);
    process.wait_said("syncing:");
    process.signal(Signal::INT);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(130), "{said}");
    let lost = said
        .lines()
        .find(|line| line.contains("volume `slow`:"))
        .unwrap();
    let bytes: u64 = lost
        .split(['(', ' '])
        .find_map(|word| {
            let number: u64 = word.parse().ok()?;
            (number > 4096).then_some(number)
        })
        .unwrap();
    assert!(
        lost.contains("are lost") && bytes > 3 * MIB && bytes <= 4 * MIB,
        "{lost}"
    );
    assert!(said.contains("ended at once"), "{said}");
}

#[test]
fn signals_without_a_meaning_end_nothing_and_failing_power_ends_it_well() {
    let folder = Folder::new("signals");
    let volume = sparse(&folder, "disk", 8 * MIB);
    let mut process = serve(&folder, &[&volume]);
    let mut client = Client::connect(&folder.path("socket"), "disk");
    let data = random(MIB, 9);
    write_all(&mut client, &data);
    let pid = process.child.id().to_string();
    for name in [
        "USR1", "USR2", "PIPE", "ALRM", "STKFLT", "VTALRM", "PROF", "IO", "XFSZ", "RTMIN+3",
        "RTMAX",
    ] {
        let sent = std::process::Command::new("bash")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status();
        assert!(sent.unwrap().success(), "{name}");
    }
    client.read(0, &mut [0; 512]).unwrap();
    process.signal(Signal::POWER);
    let status = process.ended();
    assert!(status.success(), "{status}:\n{}", process.said());
    assert!(holds(&folder.path("disk"), &data));
}

#[test]
fn a_backing_that_hangs_is_named_while_it_is_waited_for_and_when_it_is_given_up() {
    let folder = Folder::new("hangs");
    let volume = sparse(&folder, "hung", 8 * MIB) + ",device=faulty:hang=1";
    let mut process = serve(&folder, &[&volume]);
    let mut client = Client::connect(&folder.path("socket"), "hung");
    client.write(0, &random(MIB, 6), false).unwrap();
    process.signal(Signal::TERM);
    let path = folder.path("hung").display().to_string();
    let silent = format!("backing {path} has taken nothing for ");
    process.wait_said(&silent);
    process.signal(Signal::INT);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(130), "{said}");
    let waited = said.lines().find(|line| line.contains(&silent)).unwrap();
    assert!(
        waited.contains("volume=hung") && waited.contains("s, 1 MiB unwritten"),
        "{waited}"
    );
    let last = &said[said.find("ended at once").unwrap()..];
    assert!(
        last.contains("volume `hung`: backing") && last.contains("1 MiB (1048576 bytes)"),
        "{last}"
    );
}

#[test]
fn a_file_that_was_removed_is_kept_open_at_the_end_and_can_be_saved() {
    let folder = Folder::new("removed");
    let volume = sparse(&folder, "gone", 8 * MIB);
    let mut process = serve(&folder, &[&volume]);
    let data = random(MIB, 9);
    let mut client = Client::connect(&folder.path("socket"), "gone");
    write_all(&mut client, &data);
    drop(client);
    fs::remove_file(folder.path("gone")).unwrap();
    process.signal(Signal::TERM);
    process.wait_said("kept open for 30 s");
    let said = process.said();
    let (_, from) = said.split_once("save them before that from ").unwrap();
    let from = from
        .split(|c: char| c == '"' || c.is_whitespace())
        .next()
        .unwrap();
    // The written data are there: they were synced before.
    assert!(holds(Path::new(from), &data), "{from}");
    // One right behind the first would be taken for a part of it.
    let status = loop {
        process.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
        if let Some(status) = process.child.try_wait().unwrap() {
            break status;
        }
    };
    let said = process.said();
    assert_eq!(status.code(), Some(1), "{said}");
    let last = &said[said.find("not everything could be made durable").unwrap()..];
    assert!(
        last.contains("volume `gone`:") && last.contains("it was removed"),
        "{last}"
    );
}

#[test]
fn a_backing_that_is_gone_is_said_with_what_was_not_written() {
    let folder = Folder::new("device-gone");
    let volume = sparse(&folder, "away", 8 * MIB) + ",device=faulty:lost_at=0s";
    let mut process = serve(&folder, &[&volume]);
    let mut client = Client::connect(&folder.path("socket"), "away");
    client.write(0, &random(4096, 5), false).unwrap();
    process.signal(Signal::TERM);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(1), "{said}");
    let last = &said[said.find("not everything could be made durable").unwrap()..];
    assert!(
        last.contains("volume `away`:")
            && last.contains("the device is gone")
            && last.contains("(4096 bytes)"),
        "{last}"
    );
}

#[test]
fn a_volume_that_retries_is_tried_again_at_the_end_until_it_is_durable() {
    let folder = Folder::new("retry");
    let bad = sparse(&folder, "bad", 8 * MIB) + ",on_error=retry,device=faulty:eio_writes=0.7";
    let mut process = serve(&folder, &[&bad]);
    let data = random(4096, 7);
    let mut client = Client::connect(&folder.path("socket"), "bad");
    // Pages with gaps: a request each, and nearly all of a try's fail.
    for place in 0..24 {
        client.write(place << 18, &data, false).unwrap();
    }
    process.signal(Signal::TERM);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("msg=synced volume=bad"), "{said}");
    let file = File::open(folder.path("bad")).unwrap();
    for place in 0..24 {
        let mut found = vec![0; 4096];
        file.read_exact_at(&mut found, place << 18).unwrap();
        assert!(found == data, "page {place}");
    }
}

#[test]
fn a_volume_that_retries_in_vain_is_given_up_by_a_second_signal_alone() {
    let folder = Folder::new("in-vain");
    let bad = sparse(&folder, "bad", 8 * MIB) + ",on_error=retry,device=faulty:eio_writes=1";
    let good = sparse(&folder, "good", 8 * MIB);
    let mut process = serve(&folder, &["--unpaced", &bad, &good]);
    let data = random(4 * MIB, 8);
    let socket = folder.path("socket");
    write_all(&mut Client::connect(&socket, "good"), &data);
    write_all(&mut Client::connect(&socket, "bad"), &data);
    process.signal(Signal::TERM);
    process.wait_said("not synced yet");
    process.wait_said("syncing: backing");
    process.signal(Signal::INT);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(130), "{said}");
    let last = &said[said.find("ended at once").unwrap()..];
    assert!(
        last.contains("volume `bad`: backing") && last.contains("(4194304 bytes)"),
        "{last}"
    );
    assert!(
        last.contains("volume `good`: everything is durable"),
        "{last}"
    );
    assert!(!last.contains("kept in memory"), "{last}");
}

#[test]
fn a_server_that_still_writes_is_ending_and_says_how_much_is_left() {
    let folder = Folder::new("ending");
    // It writes for minutes.
    let slow = sparse(&folder, "slow", 32 * MIB) + ",device=slow:rate=16KiB";
    let at = listen(&folder);
    let mut process = Process::start(
        &folder,
        &[
            "--memory",
            "64MiB",
            "--listen",
            &at,
            "--web",
            "127.0.0.1:0",
            "--unpaced",
            &slow,
        ],
    );
    process.wait_ready();
    let mut client = Client::connect(&folder.path("socket"), "slow");
    write_all(&mut client, &random(4 * MIB, 9));
    process.signal(Signal::TERM);
    process.wait_said("syncing:");
    let said = process.said();
    let (_, address) = said.split_once("http://").unwrap();
    let (address, _) = address.split_once('/').unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let health = get("/healthz");
    assert!(
        health.contains("the server is ending: ") && health.contains("not written yet"),
        "{health}"
    );
    let snapshot = get("/snapshot.json");
    assert!(snapshot.contains("\"stage\":\"ending\""), "{snapshot}");
    process.signal(Signal::INT);
    assert_eq!(process.ended().code(), Some(130), "{}", process.said());
}

#[test]
fn what_cannot_be_made_durable_is_named_and_the_status_says_so() {
    let folder = Folder::new("eio");
    let bad = sparse(&folder, "bad", 8 * MIB) + ",on_error=stop,device=faulty:eio_writes=1";
    let good = sparse(&folder, "good", 8 * MIB);
    let mut process = serve(&folder, &[&bad, &good]);
    let data = random(MIB, 4);
    let socket = folder.path("socket");
    write_all(&mut Client::connect(&socket, "good"), &data);
    let mut client = Client::connect(&socket, "bad");
    client.write(0, &data[..4096], false).unwrap();
    client.flush().unwrap_err();
    process.signal(Signal::TERM);
    let status = process.ended();
    let said = process.said();
    assert_eq!(status.code(), Some(1), "{said}");
    let last = &said[said.find("not everything could be made durable").unwrap()..];
    assert!(
        last.contains("volume `bad`:") && last.contains("(4096 bytes)"),
        "{last}"
    );
    assert!(!last.contains("`good`"), "{last}");
    assert!(holds(&folder.path("good"), &data));
}

#[test]
fn what_was_kept_in_memory_alone_is_not_called_durable() {
    let folder = Folder::new("gone");
    let (file, memory) = (sparse(&folder, "file", MIB), "scratch=mem:,size=1MiB");
    for (volumes, expected) in [
        (
            vec![memory],
            "ended: everything was kept in memory alone (mem:), and is gone",
        ),
        (
            vec![memory, &file],
            "ended: everything is durable but what was kept in memory alone (mem:), which is gone: scratch",
        ),
    ] {
        let at = listen(&folder);
        let mut all = vec!["--memory", "128MiB", "--listen", &at, "--no-web"];
        all.extend(volumes);
        let mut process = Process::start(&folder, &all);
        process.wait_ready();
        let said = process.stop();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn each_volume_that_cannot_be_opened_is_named_and_what_was_made_for_others_is_removed() {
    let folder = Folder::new("several");
    let at = listen(&folder);
    let made = folder.path("made");
    let made_volume = format!("made=new:{},size=1MiB", made.display());
    let (status, said) = super::refused(
        &folder,
        &[
            "--listen",
            &at,
            "--no-web",
            "one=/nonexistent/one",
            &made_volume,
            "two=/nonexistent/two",
        ],
    );
    assert_eq!(status, 2, "{said}");
    for text in [
        "2 volumes cannot be opened:",
        "volume `one`: /nonexistent/one",
        "volume `two`: /nonexistent/two",
    ] {
        assert!(said.contains(text), "{said}");
    }
    assert!(!made.exists());
}

#[test]
fn a_start_that_is_refused_leaves_of_objects_what_was_there() {
    let folder = Folder::new("objects-refused");
    let at = listen(&folder);
    let refused = |volumes: &[String]| {
        let mut arguments = vec![
            "--listen",
            &at,
            "--no-web",
            "--memory",
            MEMORY,
            "missing=/nonexistent",
        ];
        arguments.extend(volumes.iter().map(String::as_str));
        let (status, said) = super::refused(&folder, &arguments);
        assert_eq!(status, 2, "{said}");
    };
    let volume = |name: &str, size: &str| {
        let path = folder.path(name);
        format!(
            "{}=dir:{},size={size}",
            name.replace('/', "-"),
            path.display()
        )
    };
    let all = |name: &str| {
        let mut names: Vec<_> = fs::read_dir(folder.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    // A volume that is served once, and a folder that somebody made for one.
    let old = volume("old", "4MiB");
    let process = serve(&folder, &[&old]);
    Client::connect(&folder.path("socket"), "old")
        .write(0, &[1; 4096], true)
        .unwrap();
    process.stop();
    let before = all("old");
    assert_eq!(before, ["0000000000000000", "lock", "volume.json"]);
    fs::create_dir(folder.path("empty")).unwrap();

    refused(&[
        old.clone(),
        volume("empty", "4MiB"),
        volume("deep/below", "4MiB"),
        volume("odd", "4100B"),
    ]);
    assert_eq!(all("old"), before);
    assert!(all("empty").is_empty(), "{:?}", all("empty"));
    for name in ["deep", "odd"] {
        assert!(!folder.path(name).exists(), "{name}");
    }
    // A volume that is refused by itself too.
    let (status, said) = super::refused(
        &folder,
        &["--listen", &at, "--no-web", &volume("odd", "4608B")],
    );
    assert!(status == 2 && said.contains("a multiple of 4096"), "{said}");
    assert!(!folder.path("odd").exists());
}
