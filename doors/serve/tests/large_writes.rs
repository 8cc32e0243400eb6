//! Large writes, whose payload goes from the socket into pages: clients that stall, vanish, send in
//! odd pieces, and write over each other.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Dice, PAGE, Server, Setup, bytes, until};
use nbd::client::{Ask, Client, Wishes};
use nbd::wire::{Command, CommandFlags, Errno, Request};

const LARGE: usize = 1 << 20;

fn head(cookie: u64, offset: u64, len: usize) -> [u8; 28] {
    Request {
        flags: CommandFlags::NONE,
        command: Command::Write,
        cookie,
        offset,
        len: len as u32,
    }
    .encode()
}

fn read(client: &mut Client<UnixStream>, offset: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0; len];
    client.read(offset, &mut back).unwrap();
    back
}

/// A server whose first MiB is in memory, as is what lies behind it, and a client of it.
fn started() -> (Server, Client<UnixStream>, Vec<u8>) {
    let server = Server::start(Setup::default());
    let mut client = server.client_of(&Wishes::export("").simple());
    let first = bytes(1, LARGE);
    client.write(0, &first).unwrap();
    client.write(LARGE as u64, &bytes(2, LARGE)).unwrap();
    (server, client, first)
}

fn answered(client: &Client<UnixStream>, cookie: u64) {
    let mut reply = [0; 16];
    let mut stream = client.stream();
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
    assert_eq!(reply[8..], cookie.to_be_bytes());
}

#[test]
fn whoever_stalls_in_the_middle_holds_no_page() {
    let (server, client, first) = started();
    let newer = bytes(3, LARGE);
    let mut stream = client.stream();
    stream.write_all(&head(1, 0, LARGE)).unwrap();
    // Up to the middle of a page.
    let sent = 100 * PAGE + 1234;
    stream.write_all(&newer[..sent]).unwrap();
    let mut other = server.client();
    let whole = sent / PAGE * PAGE;
    until("what was sent is taken in", || {
        read(&mut other, 0, whole) == newer[..whole]
    });
    until("no buffer is kept", || server.export.buffers_lent() == 0);
    assert_eq!(server.cache.stats().pinned, 0);
    assert_eq!(server.export.opened.pool.load().queued, 0);
    // All of its range can be read and written by others meanwhile, and made durable.
    let back = read(&mut other, 0, LARGE);
    let end = (sent / PAGE + 1) * PAGE;
    assert!(back[end..] == first[end..]);
    other
        .write((end - PAGE) as u64, &newer[..3 * PAGE])
        .unwrap();
    other.flush().unwrap();
    // The client goes on where it stopped.
    stream.write_all(&newer[sent..]).unwrap();
    answered(&client, 1);
    let back = read(&mut other, 0, LARGE);
    // Of the page in which it had stopped, what came last is what is there.
    assert!(back[..whole] == newer[..whole] && back[sent..] == newer[sent..]);
    let now = &back[whole..sent];
    assert!(now == &newer[whole..sent] || now == &newer[..sent - whole]);
}

#[test]
fn whoever_vanishes_in_the_middle_leaves_a_beginning_and_nothing_else() {
    let (server, client, first) = started();
    let newer = bytes(3, LARGE);
    let sent = 70 * PAGE + 17;
    let mut stream = client.stream();
    stream.write_all(&head(1, 0, LARGE)).unwrap();
    stream.write_all(&newer[..sent]).unwrap();
    drop(client);
    server.wait("all is given back", Server::is_at_rest);
    assert_eq!(server.cache.stats().pinned, 0);
    let mut other = server.client();
    let back = read(&mut other, 0, LARGE);
    let whole = sent / PAGE * PAGE;
    assert!(back[..whole] == newer[..whole], "what was received whole");
    let page = &back[whole..whole + PAGE];
    let split = (0..=PAGE).find(|at| {
        page[..*at] == newer[whole..whole + at] && page[*at..] == first[whole + at..whole + PAGE]
    });
    assert!(split.is_some(), "a page of new bytes and then old ones");
    assert!(back[whole + PAGE..] == first[whole + PAGE..]);
    other.write(0, &newer).unwrap();
    assert!(read(&mut other, 0, LARGE) == newer);
}

#[test]
fn payload_in_odd_pieces_comes_whole_and_the_stream_stays_in_step() {
    let (server, client, _) = started();
    let mut dice = Dice::new(5);
    let mut there = [bytes(1, LARGE), bytes(2, LARGE)].concat();
    let mut stream = client.stream();
    for round in 0..40_u64 {
        // Large ones, small ones, and ones at odd places; the last MiB is in memory as the first
        // one is.
        let len = [LARGE, 64 << 10, 65_537, 200_000, 12, 5000][dice.below(6) as usize];
        let offset = dice.below((there.len() - len) as u64 + 1) as usize;
        let offset = if round % 2 == 0 {
            offset / PAGE * PAGE
        } else {
            offset
        };
        let data = bytes(100 + round, len);
        there[offset..offset + len].copy_from_slice(&data);
        let mut sent = head(round, offset as u64, len).to_vec();
        sent.extend(&data);
        let mut rest = &sent[..];
        let pieces = 1 + dice.below(5);
        while !rest.is_empty() {
            let most = (sent.len() as u64 / pieces).max(1) + 1;
            let some = (1 + dice.below(most) as usize).min(rest.len());
            stream.write_all(&rest[..some]).unwrap();
            rest = &rest[some..];
            if round % 4 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        answered(&client, round);
    }
    let mut other = server.client();
    assert!(read(&mut other, 0, there.len()) == there);
    other.flush().unwrap();
    assert_eq!(server.cache.stats().pinned, 0);
}

#[test]
fn pages_that_are_not_there_are_written_too() {
    // A volume larger than the cache: pages come and go under the writes.
    let server = Server::start(Setup {
        memory: 32 << 20,
        size: 64 << 20,
        ..Setup::default()
    });
    let mut client = server.client();
    for round in 0..2_u64 {
        for part in 0..64_u64 {
            let data = bytes(round * 64 + part, LARGE);
            client.write(part << 20, &data).unwrap();
        }
    }
    for part in 0..64_u64 {
        let back = read(&mut client, part << 20, LARGE);
        assert!(back == bytes(64 + part, LARGE), "part {part}");
    }
}

#[test]
fn two_that_write_over_each_other_and_readers_between_see_whole_sectors() {
    const LEN: usize = 256 << 10;
    const ROUNDS: u64 = 60;
    // Each word says which client wrote it, in which round, and where.
    let stamped = |who: u64, round: u64| -> Vec<u8> {
        (0..LEN as u64 / 8)
            .flat_map(|at| (who << 56 | round << 40 | at).to_le_bytes())
            .collect()
    };
    let server = Server::start(Setup::default());
    server.client().write(0, &stamped(0, 0)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=2)
            .map(|who| {
                let mut client = server.client();
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        client.write(0, &stamped(who, round)).unwrap();
                    }
                })
            })
            .collect();
        let mut reader = server.client();
        let is_over = &is_over;
        let looks = scope.spawn(move || {
            let mut latest = [0; 3];
            let mut looks = 0;
            loop {
                let last = is_over.load(Ordering::Acquire);
                let back = read(&mut reader, 0, LEN);
                for (at, word) in back.chunks_exact(8).enumerate() {
                    let word = u64::from_le_bytes(word.try_into().unwrap());
                    let (who, round) = (word >> 56, word >> 40 & 0xffff);
                    assert_eq!(word & 0xff_ffff_ffff, at as u64, "a word of another place");
                    assert!(who <= 2 && round <= ROUNDS, "a word that nobody wrote");
                    if at == 0 {
                        // Of the first word: a writer's later rounds are not followed by its
                        // earlier ones.
                        let latest = &mut latest[who as usize];
                        assert!(round >= *latest, "{round} after {latest} of {who}");
                        *latest = round;
                    }
                }
                looks += 1;
                if last {
                    return looks;
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Release);
        assert!(looks.join().unwrap() > 0);
    });
    // Each page is of a last round.
    let back = read(&mut server.client(), 0, LEN);
    for page in back.chunks(PAGE) {
        let word = u64::from_le_bytes(page[..8].try_into().unwrap());
        assert_eq!(word >> 40 & 0xffff, ROUNDS);
    }
    server.client().flush().unwrap();
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn large_writes_between_small_requests_are_answered_in_any_case() {
    let (server, _, _) = started();
    let mut client = server.client();
    let mut dice = Dice::new(9);
    let mut there = [bytes(1, LARGE), bytes(2, LARGE)].concat();
    for round in 0..200_u64 {
        let offset = dice.below(1 << 20) as usize;
        let len = if dice.below(3) == 0 { 300_000 } else { 4096 };
        let data = bytes(round, len);
        match dice.below(3) {
            0 => {
                client.submit(Ask::write(offset as u64, &data)).unwrap();
                let done = client.receive().unwrap();
                assert!(done.failure.is_none());
                there[offset..offset + len].copy_from_slice(&data);
            }
            1 => assert!(read(&mut client, offset as u64, len) == there[offset..offset + len]),
            _ => {
                client.write_durably(offset as u64, &data).unwrap();
                there[offset..offset + len].copy_from_slice(&data);
            }
        }
    }
    assert!(read(&mut client, 0, there.len()) == there);
}

/// The part of a write that was taken in is held like a write of its own: while nothing can be
/// written back, the writer has to hear of that and not wait for each next piece until the backing
/// has failed once more.
#[test]
fn a_write_that_is_held_on_a_full_backing_fails_when_that_does() {
    const WHOLE: usize = 32 << 20;
    let server = Server::start(Setup {
        layers: "faulty:seed=1,no_space=1",
        ..Setup::default()
    });
    let zeroes = Ask {
        flags: CommandFlags::NO_HOLE,
        ..Ask::new(Command::WriteZeroes, 0, WHOLE as u32)
    };
    let data = bytes(1, WHOLE);
    for ask in [Ask::write(0, &data), zeroes] {
        let mut client = server.client();
        client.submit(ask).unwrap();
        let completion = client.receive().unwrap();
        let failure = completion.failure.unwrap();
        assert_eq!(failure.errno, Errno::NoSpace);
        // It is of one request, and the stream goes on.
        client.read(40 << 20, &mut [0; PAGE]).unwrap();
    }
}
