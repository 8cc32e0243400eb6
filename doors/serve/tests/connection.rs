//! One client at a time against a real server: every command, in every form, at every size and
//! place.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Dice, PAGE, Server, Setup, bytes};
use nbd::client::{Ask, Client, Wishes, give_up_after};
use nbd::wire::{Command, CommandFlags, Errno, ExportFlags};
use serve::export::ExportOptions;

fn both(server: &Server) -> [Client<UnixStream>; 2] {
    let wishes = Wishes::export("");
    [
        server.client_of(&wishes),
        server.client_of(&wishes.simple()),
    ]
}

#[test]
fn every_command_does_what_it_says() {
    let server = Server::start(Setup::default());
    for (round, mut client) in both(&server).into_iter().enumerate() {
        assert!(client.export().flags.has(ExportFlags::CAN_MULTI_CONN));
        let base = (round as u64) << 24;
        let data = bytes(7 + round as u64, 3 * PAGE);
        client.write(base, &data).unwrap();
        let mut back = vec![0; data.len()];
        client.read(base, &mut back).unwrap();
        assert!(back == data);
        client.flush().unwrap();
        client
            .write_durably(base + PAGE as u64, &data[..PAGE])
            .unwrap();
        client.read(base + PAGE as u64, &mut back[..PAGE]).unwrap();
        assert!(back[..PAGE] == data[..PAGE]);
        client.cache(base, 1 << 20).unwrap();
        // Zeroes that keep their space, zeroes that need not, at places that are not those of
        // pages.
        for (flags, at) in [
            (CommandFlags::NO_HOLE, 0_u64),
            (CommandFlags::NONE, 1 << 20),
        ] {
            let data = bytes(99, 40 * PAGE);
            client.write(base + at, &data).unwrap();
            let (from, len) = (base + at + 1000, 30 * PAGE as u32 + 77);
            client.zero(from, len, flags).unwrap();
            let mut back = vec![1; data.len()];
            client.read(base + at, &mut back).unwrap();
            let mut expected = data.clone();
            expected[1000..1000 + len as usize].fill(0);
            assert!(back == expected, "zeroes with {flags:?}");
        }
        if client.export().flags.has(ExportFlags::SEND_TRIM) {
            // To the byte, though they begin and end within pages, or do both within one.
            for (from, len) in [(0, 16 * PAGE), (1000, 5 * PAGE + 77), (4096 + 100, 50)] {
                let mut expected = bytes(7, 16 * PAGE);
                client.write(base, &expected).unwrap();
                client.trim(base + from as u64, len as u32).unwrap();
                let mut back = vec![1; 16 * PAGE];
                client.read(base, &mut back).unwrap();
                expected[from..from + len].fill(0);
                assert!(back == expected, "a trim of {len} bytes at {from}");
            }
        }
        client.disconnect().unwrap();
    }
    server.wait("all is given back", Server::is_at_rest);
    assert_eq!(
        server.export.counters.broken_total.load(Ordering::SeqCst),
        0
    );
}

#[test]
fn a_trim_of_a_backing_that_only_discards_leaves_what_is_around_it() {
    let server = Server::start(Setup {
        only_discards: true,
        ..Setup::default()
    });
    let mut client = server.client();
    let flags = client.export().flags;
    assert!(flags.has(ExportFlags::SEND_TRIM) && !flags.has(ExportFlags::SEND_FAST_ZERO));
    let data = bytes(7, 16 * PAGE);
    client.write(0, &data).unwrap();
    let (from, to) = (1000, 1000 + 5 * PAGE);
    client.trim(from as u64, (to - from) as u32).unwrap();
    let mut back = vec![1; data.len()];
    client.read(0, &mut back).unwrap();
    assert!(back[..PAGE] == data[..PAGE] && back[5 * PAGE..] == data[5 * PAGE..]);
    assert!(
        back[PAGE..5 * PAGE].iter().all(|byte| *byte == 0),
        "a hole of this file"
    );
    // Zeroes are written.
    client.write(0, &data).unwrap();
    client
        .zero(from as u64, (to - from) as u32, CommandFlags::NONE)
        .unwrap();
    client.read(0, &mut back).unwrap();
    let mut expected = data;
    expected[from..to].fill(0);
    assert!(back == expected);
}

#[test]
fn data_are_never_called_a_hole() {
    let server = Server::start(Setup::default());
    let mut client = server.client();
    let size = client.export().size;
    let whole = client.block_status(0, size).unwrap();
    assert_eq!(whole.iter().map(|extent| extent.len).sum::<u64>(), size);
    // Dirty, on its way, and on the backing: at each moment it is data.
    client.write(10 << 20, &bytes(1, 100 * PAGE)).unwrap();
    for step in 0..3 {
        if step == 1 {
            client.flush().unwrap();
        }
        let extents = client.block_status(0, size).unwrap();
        let mut at = 0;
        for extent in &extents {
            let end = at + extent.len;
            let is_hole = extent.state.has(nbd::wire::State::HOLE);
            let touches = at < (10 << 20) + 100 * PAGE as u64 && end > 10 << 20;
            assert!(!(is_hole && touches), "step {step}: {extents:?}");
            at = end;
        }
        assert!(extents.len() > 1, "the rest is a hole: {extents:?}");
    }
    let ask = Ask::new(Command::BlockStatus, 0, 1 << 30).with(CommandFlags::REQ_ONE);
    let ask = Ask {
        len: u32::try_from(size).unwrap(),
        ..ask
    };
    assert_eq!(client.call(ask).unwrap().extents.len(), 1);
}

#[test]
fn a_thousand_requests_under_way_come_back_right() {
    let server = Server::start(Setup::default());
    for mut client in both(&server) {
        let mut model = vec![0_u8; 4 << 20];
        client.write(0, &model).unwrap();
        let mut dice = Dice::new(11);
        // Reads only of what no write under way touches: their order is not promised.
        for round in 0..8 {
            let mut asked = HashMap::new();
            for _ in 0..60 {
                let len = 1 + dice.below(200_000) as usize;
                let at = dice.below((model.len() - len) as u64);
                let cookie = client.submit(Ask::read(at, len as u32)).unwrap();
                asked.insert(cookie, (at as usize, len));
                if asked.len() > 20 {
                    check_one(&mut client, &mut asked, &model);
                }
            }
            while !asked.is_empty() {
                check_one(&mut client, &mut asked, &model);
            }
            let mut writes = 0;
            for slot in 0..16_usize {
                let len = 1 + dice.below(200_000) as usize;
                let at = slot * (256 << 10) + dice.below(1000) as usize;
                let data = bytes(round * 100 + slot as u64, len);
                model[at..at + len].copy_from_slice(&data);
                client.submit(Ask::write(at as u64, &data)).unwrap();
                writes += 1;
            }
            for _ in 0..writes {
                assert!(client.receive().unwrap().failure.is_none());
            }
        }
        client.disconnect().unwrap();
    }
    server.wait("all is given back", Server::is_at_rest);
}

fn check_one(
    client: &mut Client<UnixStream>,
    asked: &mut HashMap<u64, (usize, usize)>,
    model: &[u8],
) {
    let completion = client.receive().unwrap();
    assert!(completion.failure.is_none(), "{:?}", completion.failure);
    let (at, len) = asked.remove(&completion.cookie).unwrap();
    assert!(
        completion.data == model[at..at + len],
        "{len} bytes at {at}"
    );
    client.give_back(completion.data);
}

#[test]
fn a_volume_grows_for_new_clients_and_the_old_ones_do_not_notice() {
    const HAS: u64 = 8 << 20;
    let server = Server::start(Setup {
        size: HAS,
        ..Setup::default()
    });
    let mut old = server.client();
    let data = bytes(5, 4096);
    old.write(HAS - 4096, &data).unwrap();
    // Its file is made longer where it is ours to make, and followed where somebody else made it
    // longer.
    assert_eq!(server.export.grow(Some(2 * HAS)), Ok(2 * HAS));
    let path = server.folder.0.join("volume-");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * HAS);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(3 * HAS)
        .unwrap();
    assert_eq!(server.export.grow(None), Ok(3 * HAS));
    assert_eq!(
        server.export.grow(Some(HAS)).ok(),
        None,
        "it does not shrink"
    );
    let mut new = server.client();
    assert_eq!(new.export().size, 3 * HAS);
    for at in [2 * HAS - 4096, 2 * HAS, 3 * HAS - 4096] {
        new.write(at, &data).unwrap();
    }
    new.flush().unwrap();
    let stored = std::fs::read(&path).unwrap();
    for at in [HAS, 2 * HAS, 2 * HAS + 4096, 3 * HAS] {
        let at = usize::try_from(at).unwrap();
        assert!(stored[at - 4096..at] == data, "before {at}");
    }
    old.submit(Ask::read(HAS, 4096)).unwrap();
    let refused = old.receive().unwrap().failure.map(|it| it.errno);
    assert_eq!(refused, Some(Errno::Invalid));
    let mut back = vec![0; 4096];
    old.read(HAS - 4096, &mut back).unwrap();
    assert!(back == data);
}

#[test]
fn what_is_refused_is_answered_and_the_stream_stays_in_step() {
    let server = Server::start(Setup::default());
    for mut client in both(&server) {
        let size = client.export().size;
        let data = bytes(3, 5000);
        let refused = [
            (Ask::write(size - 100, &data), Errno::NoSpace),
            (Ask::read(size, 1), Errno::Invalid),
            (Ask::read(u64::MAX, 4096), Errno::Invalid),
            (Ask::new(Command::Other(77), 0, 0), Errno::Invalid),
            (Ask::new(Command::Trim, size, 4096), Errno::Invalid),
            (
                Ask::write(0, &data).with(CommandFlags::FAST_ZERO),
                Errno::Invalid,
            ),
        ];
        for (ask, errno) in refused {
            let cookie = client.submit(ask).unwrap();
            let after = client.submit(Ask::write(8192, b"in step")).unwrap();
            for _ in 0..2 {
                let completion = client.receive().unwrap();
                if completion.cookie == cookie {
                    assert_eq!(
                        completion.failure.map(|it| it.errno),
                        Some(errno),
                        "{ask:?}"
                    );
                } else {
                    assert_eq!(completion.cookie, after);
                    assert!(completion.failure.is_none());
                }
            }
        }
        let mut back = [0; 7];
        client.read(8192, &mut back).unwrap();
        assert_eq!(&back, b"in step");
    }
}

#[test]
fn a_read_only_export_takes_no_write() {
    let options = ExportOptions {
        read_only: true,
        ..ExportOptions::default()
    };
    // Made by a server that may write it.
    let server = Server::start(Setup::default());
    let folder = &server.folder.0;
    let (export, _) = {
        let path = folder.join("volume-other");
        std::fs::write(&path, bytes(5, 64 * PAGE)).unwrap();
        server.add(
            ExportOptions {
                name: "other".into(),
                ..options
            },
            64 * PAGE as u64,
            "",
        )
    };
    let mut client = server.client_of(&Wishes::export("other"));
    assert!(client.export().flags.has(ExportFlags::READ_ONLY));
    let error = client.write(0, &[1; 10]).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NotPermitted));
    let mut back = vec![0; 64 * PAGE];
    client.read(0, &mut back).unwrap();
    assert!(back == bytes(5, 64 * PAGE));
    client.flush().unwrap();
    assert_eq!(export.name(), "other");
}

/// The bytes of a whole session, from the client's flags on.
fn session() -> (Vec<u8>, usize) {
    let mut sent = Vec::new();
    sent.extend_from_slice(&3_u32.to_be_bytes());
    // GO for the default export, without questions.
    sent.extend_from_slice(b"IHAVEOPT");
    sent.extend_from_slice(&7_u32.to_be_bytes());
    sent.extend_from_slice(&6_u32.to_be_bytes());
    sent.extend_from_slice(&0_u32.to_be_bytes());
    sent.extend_from_slice(&0_u16.to_be_bytes());
    let handshake = sent.len();
    let mut request = |command: u16, cookie: u64, offset: u64, len: u32| {
        sent.extend_from_slice(&0x2560_9513_u32.to_be_bytes());
        sent.extend_from_slice(&0_u16.to_be_bytes());
        sent.extend_from_slice(&command.to_be_bytes());
        sent.extend_from_slice(&cookie.to_be_bytes());
        sent.extend_from_slice(&offset.to_be_bytes());
        sent.extend_from_slice(&len.to_be_bytes());
        if command == 1 {
            sent.extend_from_slice(&bytes(cookie, len as usize));
        }
    };
    request(1, 1, 100, 5000);
    request(0, 2, 8192, 100);
    request(3, 3, 0, 0);
    request(6, 4, 0, 9000);
    request(1, 5, 4096, 4096);
    request(0, 6, 0, 16384);
    (sent, handshake)
}

#[test]
fn byte_by_byte_is_as_good_as_at_once() {
    let server = Server::start(Setup::default());
    let (sent, _) = session();
    let mut answers = Vec::new();
    for step in [sent.len(), 1, 3, 27, 29, 4095] {
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        give_up_after(&stream, crate::common::LONG).unwrap();
        for piece in sent.chunks(step) {
            stream.write_all(piece).unwrap();
        }
        // The answers, in whatever order: greeting, GO, then replies.
        let expected = 18 + 20 + 12 + 20 + 6 * 16 + 100 + 16384;
        let mut all = vec![0; expected];
        stream.read_exact(&mut all).unwrap();
        answers.push(all.len());
        let mut client = server.client();
        let mut back = vec![0; 5000];
        client.read(100, &mut back).unwrap();
        // Zeroes over the first 9000 bytes, and a page written again: whichever came last.
        let page = bytes(5, 4096);
        let there = &back[4096 - 100..];
        assert!(there.iter().all(|byte| *byte == 0) || *there == page[..there.len()]);
    }
    assert_eq!(answers.len(), 6);
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn whoever_vanishes_at_whatever_byte_leaves_nothing_behind() {
    let server = Server::start(Setup::default());
    let (sent, handshake) = session();
    let mut cuts: Vec<usize> = (0..handshake + 200).collect();
    cuts.extend((handshake + 200..sent.len()).step_by(97));
    for cut in cuts {
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        stream.write_all(&sent[..cut]).unwrap();
        if cut % 3 == 0 {
            // In the middle of reading too.
            give_up_after(&stream, crate::common::LONG).unwrap();
            let mut some = [0; 10];
            stream.read_exact(&mut some).unwrap();
        }
    }
    server.wait("all is given back", Server::is_at_rest);
    let mut client = server.client();
    client.write(0, b"still serves").unwrap();
}

#[test]
fn long_writes_straddle_whatever_they_are_received_in() {
    let server = Server::start(Setup::default());
    for mut client in both(&server) {
        for (round, shift) in [0_u64, 1, 511, 4095].into_iter().enumerate() {
            let data = bytes(40 + round as u64, (1 << 20) + 13 * round);
            let at = (round as u64) * (4 << 20) + shift;
            for part in 0..3_u64 {
                client
                    .submit(Ask::write(at + part * (1 << 20), &data))
                    .unwrap();
            }
            for _ in 0..3 {
                assert!(client.receive().unwrap().failure.is_none());
            }
            let mut back = vec![0; data.len()];
            client.read(at + (2 << 20), &mut back).unwrap();
            assert!(back == data, "shifted by {shift}");
            client.read(at, &mut back[..1 << 20]).unwrap();
            // The next part begins where the first megabyte ends.
            assert!(back[..1 << 20] == data[..1 << 20], "shifted by {shift}");
        }
    }
}

#[test]
fn large_replies_are_whole_however_slowly_they_are_taken() {
    let server = Server::start(Setup::default());
    let data = bytes(81, 8 << 20);
    server.client().write(0, &data).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Writes the same again: pages are replaced while they are lent, and the bytes read stay
        // the same.
        let (mut writer, data, stop) = (server.client(), &data, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                writer.write(0, data).unwrap();
            }
        });
        for client in both(&server) {
            let (mut asks, mut hears) = client.split().unwrap();
            let mut dice = Dice::new(82);
            // Around what is lent at least and at most, and what goes out in many pieces; at any
            // place in a page.
            let lens = [
                1,
                4096,
                32 << 10,
                (32 << 10) + 1,
                256 << 10,
                (260 << 10) + 1,
                1 << 20,
                (3 << 20) + 77,
            ];
            let asked: Vec<(u64, usize)> = (0..40)
                .map(|round| {
                    let len = lens[round % lens.len()];
                    (dice.below((data.len() - len) as u64), len)
                })
                .collect();
            let mut places = HashMap::new();
            for (at, len) in asked {
                let cookie = asks.submit(Ask::read(at, len as u32)).unwrap();
                places.insert(cookie, (at as usize, len));
            }
            while !places.is_empty() {
                std::thread::sleep(Duration::from_millis(dice.below(4)));
                let completion = hears.receive().unwrap();
                assert!(completion.failure.is_none(), "{:?}", completion.failure);
                let (at, len) = places.remove(&completion.cookie).unwrap();
                assert!(completion.data == data[at..at + len], "{len} at {at}");
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    server.wait("all is given back", Server::is_at_rest);
    assert_eq!(server.cache.stats().pinned, 0);
}

#[test]
fn more_than_fits_into_memory_is_read_back_whole_and_never_fails() {
    let server = Server::start(Setup {
        memory: 48 << 20,
        size: 192 << 20,
        ..Setup::default()
    });
    let mut clients = both(&server);
    let piece = 4 << 20;
    for part in 0..(192 << 20) / piece {
        let data = bytes(part, piece as usize);
        clients[0].write(part * piece, &data).unwrap();
    }
    clients[0].flush().unwrap();
    // Four at a time from each of two, all over the place: what one brings in drives out what
    // another wants.
    std::thread::scope(|scope| {
        for (seed, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                let mut dice = Dice::new(seed as u64 + 5);
                let mut asked = HashMap::new();
                for _ in 0..60 {
                    let part = dice.below((192 << 20) / piece);
                    let cookie = client
                        .submit(Ask::read(part * piece, piece as u32))
                        .unwrap();
                    asked.insert(cookie, part);
                    if asked.len() == 4 {
                        let completion = client.receive().unwrap();
                        assert!(completion.failure.is_none(), "{:?}", completion.failure);
                        let part = asked.remove(&completion.cookie).unwrap();
                        assert!(completion.data == bytes(part, piece as usize));
                    }
                }
                while !asked.is_empty() {
                    let completion = client.receive().unwrap();
                    assert!(completion.failure.is_none(), "{:?}", completion.failure);
                    asked.remove(&completion.cookie).unwrap();
                }
            });
        }
    });
    drop(clients);
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn over_tcp_it_is_the_same() {
    let server = Server::start(Setup::default());
    let config = serve::config::ListenConfig::Tcp("127.0.0.1:0".parse().unwrap());
    let entered = server.runtime().enter();
    let listener = serve::listen::bind(&config).unwrap();
    drop(entered);
    let address = listener.name().strip_prefix("tcp:").unwrap().to_owned();
    server
        .runtime()
        .spawn(listener.serve(std::sync::Arc::clone(&server.hub)));
    let mut client = Client::tcp(address, &Wishes::export("")).unwrap();
    let data = bytes(77, 3 << 20);
    client.write(123, &data).unwrap();
    let mut back = vec![0; data.len()];
    client.read(123, &mut back).unwrap();
    assert!(back == data);
    client.disconnect().unwrap();
    server.wait("all is given back", Server::is_at_rest);
}
