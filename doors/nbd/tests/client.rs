//! The client against a server in memory, and against nbdkit where that is installed.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Memory, SIZE, connect};
use nbd::client::{Ask, Client, ClientError, Extent, Handshake, Wishes, give_up_after};
use nbd::haggle::Missing;
use nbd::wire::{Command, CommandFlags, Errno, ExportFlags, OptionKind, ReplyKind, State};

/// Longer than anything here takes on a machine that does much else.
const LONG: Duration = Duration::from_secs(120);

fn flags() -> ExportFlags {
    ExportFlags::ALL.without(ExportFlags::READ_ONLY)
}

fn all_wishes() -> [Wishes; 4] {
    let wishes = Wishes::export("memory");
    let by_name = |wishes: Wishes| Wishes {
        export_name: true,
        ..wishes
    };
    [
        wishes.clone(),
        wishes.clone().simple(),
        by_name(wishes.clone()),
        by_name(wishes.simple()),
    ]
}

/// Requests that every server has to answer right, whatever was agreed on.
fn exercise<S>(client: &mut Client<S>, size: usize)
where
    S: std::io::Read + std::io::Write,
{
    assert_eq!(client.export().size, size as u64);
    let pattern: Vec<u8> = (0..70_000_u32).map(|i| (i % 251) as u8).collect();
    let mut into = vec![0xee; 70_000];
    client.read(1000, &mut into).unwrap();
    assert!(into.iter().all(|byte| *byte == 0));
    client.write(1000, &pattern).unwrap();
    client.write_durably(500, b"durable").unwrap();
    client.flush().unwrap();
    client.read(1000, &mut into).unwrap();
    assert_eq!(into, pattern);
    let mut seven = [0; 7];
    client.read(500, &mut seven).unwrap();
    assert_eq!(&seven, b"durable");
    client.zero(1000, 4096, CommandFlags::NO_HOLE).unwrap();
    client.trim(8192, 4096).unwrap();
    client.read(1000, &mut into[..4096]).unwrap();
    assert!(into[..4096].iter().all(|byte| *byte == 0));
    let end = size as u64;
    let beyond = client.call(Ask::read(end - 1, 2)).unwrap_err();
    assert_eq!(beyond.errno(), Some(Errno::Invalid), "{beyond}");
    let beyond = client.write(end - 1, b"ab").unwrap_err();
    assert_eq!(beyond.errno(), Some(Errno::NoSpace), "{beyond}");
    client.read(end - 1, &mut seven[..1]).unwrap();
}

/// Sixteen requests under way, reads among writes.
fn exercise_pipelined<S>(client: &mut Client<S>)
where
    S: std::io::Read + std::io::Write,
{
    let mut expected = std::collections::HashMap::new();
    for round in 0..64_u64 {
        let block = [u8::try_from(round).unwrap(); 512];
        client.submit(Ask::write(round * 512, &block)).unwrap();
        if client.under_way() >= 16 {
            assert!(client.receive().unwrap().failure.is_none());
        }
    }
    while client.under_way() > 0 {
        assert!(client.receive().unwrap().failure.is_none());
    }
    for round in 0..64_u64 {
        let cookie = client.submit(Ask::read(round * 512, 512)).unwrap();
        expected.insert(cookie, u8::try_from(round).unwrap());
        if client.under_way() >= 16 {
            let done = client.receive().unwrap();
            assert_eq!(done.data, [expected.remove(&done.cookie).unwrap(); 512]);
            client.give_back(done.data);
        }
    }
    while client.under_way() > 0 {
        let done = client.receive().unwrap();
        assert_eq!(done.data, [expected.remove(&done.cookie).unwrap(); 512]);
    }
    assert!(expected.is_empty());
}

fn open(memory: &std::sync::Arc<Memory>, wishes: &Wishes) -> Client<UnixStream> {
    let stream = connect(memory);
    give_up_after(&stream, LONG).unwrap();
    Handshake::begin(stream).unwrap().go(wishes).unwrap()
}

#[test]
fn everything_works_whatever_was_agreed_on() {
    for wishes in all_wishes() {
        let memory = Memory::new(flags());
        let mut client = open(&memory, &wishes);
        assert_eq!(client.export().structured, wishes.structured);
        assert_eq!(client.export().allocation.is_some(), wishes.allocation);
        assert_eq!(
            client.export().flags.has(ExportFlags::SEND_DF),
            wishes.structured
        );
        let name = (!wishes.export_name).then_some("memory");
        assert_eq!(client.export().name.as_deref(), name);
        exercise(&mut client, SIZE);
        exercise_pipelined(&mut client);
        let fast = client.zero(0, 512, CommandFlags::FAST_ZERO).unwrap_err();
        assert_eq!(fast.errno(), Some(Errno::NotSupported));
        client.disconnect().unwrap();
    }
}

#[test]
fn a_refused_write_leaves_the_stream_in_step() {
    for wishes in all_wishes() {
        let memory = Memory::new(ExportFlags::ALL);
        let mut client = open(&memory, &wishes);
        let refused = client.write(0, &[1; 100_000]).unwrap_err();
        assert_eq!(refused.errno(), Some(Errno::NotPermitted));
        let unknown = client
            .call(Ask::new(Command::Other(99), 0, 512))
            .unwrap_err();
        assert_eq!(unknown.errno(), Some(Errno::Invalid));
        let mut byte = [9];
        client.read(0, &mut byte).unwrap();
        assert_eq!(byte, [0]);
    }
}

#[test]
fn extents_tell_data_from_holes() {
    let memory = Memory::new(flags());
    let mut client = open(&memory, &Wishes::export(""));
    client.write(8192, &[1; 4096]).unwrap();
    let hole = State::HOLE.with(State::ZERO);
    let expected = [
        (8192, hole),
        (4096, State::NONE),
        (SIZE as u64 - 12288, hole),
    ];
    let extents = client.block_status(0, SIZE as u64).unwrap();
    assert_eq!(extents, expected.map(|(len, state)| Extent { len, state }));
    let one = Ask::new(Command::BlockStatus, 0, 65536).with(CommandFlags::REQ_ONE);
    assert_eq!(client.call(one).unwrap().extents.len(), 1);
}

#[test]
fn halves_on_two_threads() {
    let memory = Memory::new(flags());
    let client = open(&memory, &Wishes::export("memory"));
    let (mut submitter, mut receiver) = client.split().unwrap();
    let sending = std::thread::spawn(move || {
        for round in 0..1000_u64 {
            submitter
                .submit(Ask::write(round * 1000, &[3; 1000]))
                .unwrap();
            submitter.submit(Ask::read(0, 100_000)).unwrap();
        }
        submitter.disconnect().unwrap();
    });
    let mut completions = 0;
    loop {
        match receiver.receive() {
            Ok(done) => {
                assert!(done.failure.is_none());
                receiver.give_back(done.data);
                completions += 1;
            }
            Err(ClientError::Closed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    sending.join().unwrap();
    assert_eq!(completions, 2000);
}

#[test]
fn the_handshake_alone() {
    let memory = Memory::new(flags());
    let mut handshake = Handshake::begin(connect(&memory)).unwrap();
    let list = handshake.list().unwrap();
    assert_eq!(
        (list[0].name.as_str(), list[0].description.as_str()),
        ("memory", "bytes of a test")
    );
    let refused = handshake.option(OptionKind::Other(77), b"data").unwrap();
    assert_eq!(refused[0].kind, ReplyKind::Unsupported);
    handshake.abort().unwrap();
    let error = Handshake::begin(connect(&memory))
        .unwrap()
        .go(&Wishes::export("none"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("Unknown: there is no export of that name"),
        "{error}"
    );
    assert_eq!(format!("{:?}", Missing::Unknown), "Unknown");
    let error = Handshake::begin(connect(&memory))
        .unwrap()
        .start_tls()
        .unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Refused {
                reply: ReplyKind::Policy,
                ..
            }
        ),
        "{error}"
    );
}

struct Nbdkit(Child);

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nbdkit(socket: &Path) -> Option<Nbdkit> {
    let child = Process::new("nbdkit")
        .args(["--foreground", "--unix"])
        .arg(socket)
        .args(["memory", "1M"])
        .stdin(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        eprintln!("nbdkit is not installed: nothing was tested against it");
        return None;
    };
    let nbdkit = Nbdkit(child);
    let began = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(began.elapsed() < LONG, "nbdkit does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(nbdkit)
}

#[test]
fn against_nbdkit() {
    let folder = std::env::temp_dir().join(format!("nbd-client-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("socket");
    for wishes in all_wishes() {
        let wishes = Wishes {
            export: String::new(),
            ..wishes
        };
        // A fresh one each time: its memory is full of zeroes.
        let _ = std::fs::remove_file(&socket);
        let Some(server) = nbdkit(&socket) else { break };
        let mut client = Client::unix(&socket, &wishes).unwrap();
        give_up_after(client.stream(), LONG).unwrap();
        assert_eq!(client.export().structured, wishes.structured);
        exercise(&mut client, 1 << 20);
        exercise_pipelined(&mut client);
        if wishes.allocation {
            client.write(0, &[1; 65536]).unwrap();
            client.trim(65536, (1 << 20) - 65536).unwrap();
            let extents = client.block_status(0, 1 << 20).unwrap();
            assert_eq!(extents[0].state, State::NONE);
            assert_eq!(
                extents.iter().map(|extent| extent.len).sum::<u64>(),
                1 << 20
            );
        }
        client.disconnect().unwrap();
        drop(server);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
