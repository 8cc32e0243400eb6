//! Clients that stall, vanish, overrun and crowd; volumes that hang; servers that end.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{PAGE, Server, Setup, allow_descriptors, bytes, until};
use device::FaultPlan;
use nbd::client::{Ask, Client, Wishes};
use nbd::wire::{Command, CommandFlags, Errno, Request};
use serve::export::ExportOptions;
use serve::hub::{Limits, Stage};

/// A layer that does nothing until it is told to hold.
const HOLDABLE: &str = "faulty:seed=1";

fn named(name: &str) -> ExportOptions {
    ExportOptions {
        name: name.into(),
        ..ExportOptions::default()
    }
}

#[test]
fn whoever_does_not_take_replies_holds_nothing() {
    let server = Server::start(Setup::default());
    let mut stalled = server.client();
    let data = bytes(1, 1 << 20);
    for part in 0..16_u64 {
        stalled.write(part << 20, &data).unwrap();
    }
    for part in 0..100_u64 {
        stalled
            .submit(Ask::read((part % 16) << 20, 1 << 20))
            .unwrap();
    }
    let counters = &server.export.counters;
    until("as many as may be are under way", || {
        counters.in_flight.load(Ordering::SeqCst) >= 99
    });
    until("nothing is kept for it", || {
        server.export.buffers_lent() == 0
            && server.cache.stats().pinned == 0
            && server.export.opened.pool.load().queued == 0
    });
    // If it waited for the client that stalls, it would give up after `LONG`.
    let mut other = server.client();
    let mut back = vec![0; 1 << 20];
    other.read(0, &mut back).unwrap();
    assert!(back == data);
    // It comes back to life, and nothing was lost.
    for _ in 0..100 {
        let completion = stalled.receive().unwrap();
        assert!(completion.failure.is_none() && completion.data == data);
    }
}

#[test]
fn whoever_sends_more_than_may_be_under_way_is_held_back_and_then_cut_off() {
    let limits = Limits {
        in_flight: 8,
        ..Limits::default()
    };
    let server = Server::start(Setup {
        limits,
        ..Setup::default()
    });
    // Held back: a client that takes its replies gets them all.
    let mut client = server.client();
    client.write(0, &bytes(2, 64 * PAGE)).unwrap();
    let (mut asks, mut hears) = client.split().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for index in 0..2000_u64 {
                asks.submit(Ask::read((index % 64) * PAGE as u64, 100))
                    .unwrap();
            }
        });
        for _ in 0..2000 {
            assert!(hears.receive().unwrap().failure.is_none());
        }
    });
    // A client that does not is served as far as that goes, and holds no buffer.
    let greedy: Vec<_> = (0..20)
        .map(|_| {
            let mut greedy = server.client();
            for _ in 0..8 {
                greedy.submit(Ask::read(0, 256 * 1024)).unwrap();
            }
            let request = Request {
                flags: CommandFlags::NONE,
                command: Command::Read,
                cookie: 9,
                offset: 0,
                len: 4096,
            };
            let many = request.encode().repeat(4000);
            let stream = greedy.stream();
            stream.set_nonblocking(true).unwrap();
            let mut stream_of = stream;
            let _ = stream_of.write(&many);
            greedy
        })
        .collect();
    until("no buffer is kept", || server.export.buffers_lent() == 0);
    let mut client = server.client();
    client.write(0, b"others are served").unwrap();
    drop((greedy, client, hears));
    server.wait("all is given back", Server::is_at_rest);
}

/// Sixteen trims of half the volume are two thousand steps of 20 ms. Nobody is behind them: not
/// another connection's read, not its flush.
#[test]
fn large_trims_starve_nobody() {
    let server = Server::start(Setup {
        size: 4 << 30,
        layers: "slow:latency=20ms",
        ..Setup::default()
    });
    let (mut trims, mut other) = (server.client(), server.client());
    for trim in 0..16 {
        let ask = Ask::new(Command::Trim, (trim % 2) << 31, 1 << 31);
        trims.submit(ask).unwrap();
    }
    let counters = &server.export.counters;
    until("they are under way", || {
        counters.in_flight.load(Ordering::SeqCst) == 16
    });
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    other.read(1 << 20, &mut vec![0; PAGE]).unwrap();
    let read = began.elapsed();
    other.write(3 << 30, &bytes(7, PAGE)).unwrap();
    other.flush().unwrap();
    let all = began.elapsed();
    println!("read {read:?}, all {all:?}");
    assert!(
        counters.in_flight.load(Ordering::SeqCst) >= 16,
        "trims go on"
    );
    assert!(
        read < Duration::from_secs(2) && all < Duration::from_secs(10),
        "{read:?}, {all:?}"
    );
}

/// Requests take memory while they wait: over the 32 that each connection may have, all connections
/// share a number of them.
#[test]
fn requests_under_way_are_bounded_for_all_connections_together() {
    let limits = Limits {
        in_flight: 100,
        in_flight_more: 64,
        ..Limits::default()
    };
    let server = Server::start(Setup {
        layers: HOLDABLE,
        limits,
        ..Setup::default()
    });
    let hold = &server.layers.stack().unwrap().faulty[0];
    let under_way = || server.export.counters.in_flight.load(Ordering::SeqCst);
    let mut next = 0;
    let mut submit = |client: &mut Client<_>, count: u64| {
        let mut asked = Vec::new();
        for _ in 0..count {
            next += 1;
            let request = Request {
                flags: CommandFlags::NONE,
                command: Command::Flush,
                cookie: next,
                offset: 0,
                len: 0,
            };
            asked.extend_from_slice(&request.encode());
        }
        let mut stream: &std::os::unix::net::UnixStream = client.stream();
        stream.write_all(&asked).unwrap();
    };
    let take = |client: &Client<_>, count: usize| {
        let mut stream: &std::os::unix::net::UnixStream = client.stream();
        let mut replies = vec![0; 16 * count];
        stream.read_exact(&mut replies).unwrap();
        for reply in replies.chunks(16) {
            assert_eq!(reply[4..8], [0; 4], "it failed");
        }
    };
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    clients[3].write(0, &[1; PAGE]).unwrap();
    hold.hold();
    for client in &mut clients[..3] {
        submit(client, 100);
    }
    until("all that may be are", || under_way() >= 3 * 32 + 64);
    submit(&mut clients[3], 1);
    until("who comes later has its own", || under_way() > 3 * 32 + 64);
    assert_eq!(under_way(), 3 * 32 + 64 + 1);
    hold.release();
    for client in &clients[..3] {
        take(client, 100);
    }
    take(&clients[3], 1);
    // A connection that has none under way has given back what it took.
    until("all are answered", || under_way() == 0);
    clients[3].write(0, &[2; PAGE]).unwrap();
    hold.hold();
    submit(&mut clients[3], 100);
    until("one has what all share", || under_way() >= 32 + 64);
    hold.release();
    take(&clients[3], 100);
    drop(clients);
    server.wait("all is given back", Server::is_at_rest);
}

/// A client may send as many as it may have under way and take the replies later, also where others
/// have taken what all share.
#[test]
fn many_that_send_all_they_may_before_they_take_replies_are_answered() {
    const EACH: usize = 128;
    const LEN: usize = 8 << 10;
    allow_descriptors();
    let server = Server::start(Setup {
        limits: Limits {
            in_flight_more: 0,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let mut clients: Vec<_> = (0..900).map(|_| server.client()).collect();
    clients[0].write(0, &bytes(1, LEN)).unwrap();
    let request = Request {
        flags: CommandFlags::NONE,
        command: Command::Read,
        cookie: 0,
        offset: 0,
        len: LEN as u32,
    };
    let asked = request.encode().repeat(EACH);
    for client in &clients {
        let mut stream: &std::os::unix::net::UnixStream = client.stream();
        stream.write_all(&asked).unwrap();
    }
    let counters = &server.export.counters;
    until("they have what each may have", || {
        counters.in_flight.load(Ordering::SeqCst) >= 32 * clients.len() as u64 / 2
    });
    // One chunk for each, or more: until all data are there.
    for client in &clients {
        let mut stream: &std::os::unix::net::UnixStream = client.stream();
        let (mut data, mut head, mut body) = (0, [0; 20], vec![0; LEN + 8]);
        while data < EACH * LEN {
            stream.read_exact(&mut head).unwrap();
            let len = u32::from_be_bytes([head[16], head[17], head[18], head[19]]) as usize;
            stream.read_exact(&mut body[..len]).unwrap();
            data += len - 8;
        }
    }
    drop(clients);
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn a_hung_volume_keeps_its_own_threads_and_nobody_elses() {
    let server = Server::start(Setup {
        layers: HOLDABLE,
        options: named("hung"),
        ..Setup::default()
    });
    server.add(named("well"), 64 << 20, "");
    let hold = &server.layers.stack().unwrap().faulty[0];
    let mut hung: Vec<_> = (0..40)
        .map(|_| server.client_of(&Wishes::export("hung")))
        .collect();
    let mut well = server.client_of(&Wishes::export("well"));
    hold.hold();
    for (index, client) in hung.iter_mut().enumerate() {
        // A miss, then a part of a page that is not there, then what follows in the stream.
        let at = (index as u64) << 20;
        client.submit(Ask::read(at, 4096)).unwrap();
        client
            .submit(Ask::write(at + (512 << 10) + 10, &[7; 100]))
            .unwrap();
        client.submit(Ask::read(at, 4096)).unwrap();
    }
    until("its pool is at it", || {
        server.export.opened.pool.load().queued > 20
    });
    let load = server.export.opened.pool.load();
    assert!(load.threads <= 8, "{load:?}");
    // If it waited for the volume that hangs, it would give up after `LONG`: that volume is dropped
    // only afterwards.
    let data = bytes(4, 1 << 20);
    for part in 0..8_u64 {
        well.write(part << 20, &data).unwrap();
        let mut back = vec![0; 1 << 20];
        well.read(part << 20, &mut back).unwrap();
        assert!(back == data);
    }
    well.flush().unwrap();
    // Half of its clients vanish while their jobs are in the pool.
    hung.truncate(20);
    hold.release();
    for client in &mut hung {
        for _ in 0..3 {
            let completion = client.receive().unwrap();
            assert!(completion.failure.is_none(), "{:?}", completion.failure);
        }
    }
    drop((hung, well));
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn what_comes_behind_a_write_that_waits_for_its_page_goes_on() {
    let server = Server::start(Setup {
        layers: HOLDABLE,
        ..Setup::default()
    });
    let mut client = server.client();
    let data = bytes(6, PAGE);
    client.write(0, &data).unwrap();
    let hold = &server.layers.stack().unwrap().faulty[0];
    hold.hold();
    let at = |part: u64| (part << 20) + 10;
    let mut asked = vec![client.submit(Ask::write(at(1), &[7; 100])).unwrap()];
    for part in 2..5 {
        let read = client.submit(Ask::read(0, PAGE as u32)).unwrap();
        if part == 2 {
            let completion = client.receive().unwrap();
            assert_eq!(completion.cookie, read, "the write waits for the device");
            assert!(completion.failure.is_none() && completion.data == data);
        } else {
            asked.push(read);
        }
        // It waits for the writer, and what is behind it with it.
        asked.push(client.submit(Ask::write(at(part), &[7; 100])).unwrap());
    }
    hold.release();
    for _ in &asked {
        let completion = client.receive().unwrap();
        assert!(completion.failure.is_none() && asked.contains(&completion.cookie));
    }
    for part in 1..5 {
        let mut back = [0; 102];
        client.read(at(part) - 1, &mut back).unwrap();
        assert_eq!((back[0], back[101]), (0, 0));
        assert_eq!(back[1..101], [7; 100]);
    }
    drop(client);
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn a_client_that_vanishes_from_a_hung_volume_gives_its_place_back() {
    let server = Server::start(Setup {
        layers: HOLDABLE,
        ..Setup::default()
    });
    let hold = &server.layers.stack().unwrap().faulty[0];
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    hold.hold();
    for (index, client) in clients.iter_mut().enumerate() {
        let at = (index as u64) << 20;
        if index % 2 == 0 {
            client.submit(Ask::read(at, 4096)).unwrap();
        } else {
            client.submit(Ask::flush()).unwrap();
            client.submit(Ask::write(at + 10, &[7; 100])).unwrap();
        }
    }
    // A flush of a volume that has nothing to write may be answered.
    until("they wait", || {
        server.export.counters.in_flight.load(Ordering::SeqCst) >= 4
            && server.export.opened.pool.load().idle < server.export.opened.pool.load().threads
    });
    drop(clients);
    until("their places are free while the volume still hangs", || {
        server.hub.counters.connections.load(Ordering::SeqCst) == 0
    });
    hold.release();
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn a_client_with_much_advice_starves_nobody_and_leaves_none_of_it_behind() {
    const RANGE: u32 = 32 << 20;
    const RANGES: u64 = 16;
    let all = RANGES * u64::from(RANGE);
    // All of it takes half a minute: what has to come before half of it is there has time, on any
    // machine.
    let server = Server::start(Setup {
        layers: "slow:rate=16MiB",
        size: 1 << 30,
        ..Setup::default()
    });
    let read = || server.export.opened.volume.stats().read_total;
    let begin = || {
        let mut hog = server.client();
        for range in 0..RANGES {
            let at = range * u64::from(RANGE);
            hog.submit(Ask::new(Command::Cache, at, RANGE)).unwrap();
        }
        let before = read();
        until("it begins", || read() > before);
        hog
    };
    let hog = begin();
    let mut back = [1; PAGE];
    server.client().read(all + (64 << 20), &mut back).unwrap();
    assert_eq!(back, [0; PAGE]);
    assert!(read() < all / 2, "another's page came behind {}", read());
    drop(hog);
    server.wait("all is given back", Server::is_at_rest);
    assert!(read() < all / 2, "nobody waits for it: {}", read());
    // A server that ends does not wait for it either: it is answered as if it were there.
    let before = read();
    let mut hog = begin();
    let hub = Arc::clone(&server.hub);
    let draining = async move { hub.drain(Duration::from_secs(60)).await };
    let drained = server.runtime().spawn(draining);
    for _ in 0..RANGES {
        assert!(hog.receive().unwrap().failure.is_none());
    }
    assert_eq!(server.runtime().block_on(drained).unwrap(), 0);
    assert!(read() - before < all / 2, "it was waited for: {}", read());
}

#[test]
fn a_paced_write_holds_no_thread_and_reads_go_on_behind_it() {
    // 2 MiB/s: at 64 MiB of memory, writers are soon held.
    let server = Server::start(Setup {
        layers: "slow:rate=2MiB,depth=1",
        ..Setup::default()
    });
    let mut client = server.client();
    let counters = &server.export.counters;
    let data = bytes(5, 128 << 10);
    client.write(0, &data).unwrap();
    // Replies to reads that were there before those to all of the writes before them in the stream.
    let (mut writes, mut overtook) = (0_u64, 0);
    let began = Instant::now();
    while counters.held_total.load(Ordering::SeqCst) < 20 && began.elapsed() < crate::common::LONG {
        for _ in 0..4 {
            writes += 1;
            let at = (writes * data.len() as u64) % (48 << 20);
            client.submit(Ask::write(at, &data)).unwrap();
        }
        // Behind them in the stream, and in memory.
        let read = client.submit(Ask::read(0, 4096)).unwrap();
        for left in (0..5).rev() {
            let completion = client.receive().unwrap();
            assert!(completion.failure.is_none(), "{:?}", completion.failure);
            overtook += u32::from(completion.cookie == read && left > 0);
        }
    }
    assert!(
        counters.held_total.load(Ordering::SeqCst) >= 20,
        "nothing was held"
    );
    let held = counters.held_for.read();
    assert!(held.max >= Duration::from_millis(5), "{held:?}");
    // A read that waited for the writes before it would always be the last.
    assert!(overtook > 0, "reads wait for writes that are held");
    client.disconnect().unwrap();
    server.wait("its place is free", |server| {
        server.hub.counters.connections.load(Ordering::SeqCst) == 0
    });
}

#[test]
fn a_server_that_drains_finishes_what_it_has_and_refuses_what_comes() {
    let server = Server::start(Setup {
        layers: HOLDABLE,
        ..Setup::default()
    });
    let idle = server.client();
    let mut busy = server.client();
    let hold = &server.layers.stack().unwrap().faulty[0];
    hold.hold();
    busy.submit(Ask::read(0, 4096)).unwrap();
    until("it waits", || {
        server.export.counters.in_flight.load(Ordering::SeqCst) == 1
    });
    let hub = Arc::clone(&server.hub);
    let drained = server
        .runtime()
        .spawn(async move { hub.drain(Duration::from_secs(30)).await });
    until("it drains", || server.hub.stage() == Stage::Draining);
    // The idle one is closed, the busy one is told.
    let mut nothing = [0; 1];
    assert_eq!(idle.stream().read(&mut nothing).unwrap(), 0);
    busy.submit(Ask::write(0, &[1; 100])).unwrap();
    let refused = busy.receive().unwrap();
    assert_eq!(refused.failure.map(|it| it.errno), Some(Errno::Shutdown));
    hold.release();
    assert!(busy.receive().unwrap().failure.is_none());
    let cut_off = server.runtime().block_on(drained).unwrap();
    assert_eq!(cut_off, 0);
    assert!(Client::unix(&server.socket, &Wishes::export("")).is_err());
}

#[test]
fn what_does_not_end_in_time_is_cut_off() {
    let server = Server::start(Setup {
        layers: HOLDABLE,
        ..Setup::default()
    });
    let mut busy = server.client();
    let hold = &server.layers.stack().unwrap().faulty[0];
    hold.hold();
    busy.submit(Ask::read(0, 4096)).unwrap();
    until("it waits", || {
        server.export.counters.in_flight.load(Ordering::SeqCst) == 1
    });
    let cut_off = server
        .runtime()
        .block_on(server.hub.drain(Duration::from_millis(100)));
    assert_eq!(cut_off, 1);
    assert!(busy.receive().is_err());
    hold.release();
}

#[test]
fn too_many_and_too_slow_are_turned_away() {
    let limits = Limits {
        connections: 3,
        ..Limits::default()
    };
    let server = Server::start(Setup {
        limits,
        ..Setup::default()
    });
    let kept: Vec<_> = (0..3).map(|_| server.client()).collect();
    assert!(Client::unix(&server.socket, &Wishes::export("")).is_err());
    assert_eq!(server.hub.counters.refused_total.load(Ordering::SeqCst), 1);
    drop(kept);
    server.wait("their places are free", Server::is_at_rest);
    // Says nothing: is cut off.
    let handshake = Duration::from_millis(300);
    server.hub.set_limits(Limits {
        handshake,
        ..limits
    });
    let silent = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
    nbd::client::give_up_after(&silent, crate::common::LONG).unwrap();
    let mut all = Vec::new();
    (&silent).read_to_end(&mut all).unwrap();
    let counters = &server.hub.counters;
    assert_eq!(counters.handshake_failures_total.load(Ordering::SeqCst), 1);
    // Once it has agreed it may be silent for longer than that. (A busy machine may need more than
    // one try to agree in time.)
    let mut agreed = None;
    until("one agrees in time", || {
        agreed = Client::unix(&server.socket, &Wishes::export("")).ok();
        agreed.is_some()
    });
    let mut agreed = agreed.unwrap();
    nbd::client::give_up_after(agreed.stream(), crate::common::LONG).unwrap();
    std::thread::sleep(handshake + handshake / 3);
    agreed.write(0, b"still here").unwrap();
    // Asks for what there is not.
    assert!(Client::unix(&server.socket, &Wishes::export("other")).is_err());
}

#[test]
fn a_client_that_says_goodbye_gets_all_its_answers() {
    let server = Server::start(Setup::default());
    let mut client = server.client();
    for part in 0..20_u64 {
        client
            .submit(Ask::write(part << 16, &bytes(part, 1 << 16)))
            .unwrap();
    }
    client.submit(Ask::flush()).unwrap();
    client.submit(Ask::new(Command::Disconnect, 0, 0)).unwrap();
    let mut replies = 0;
    let mut stream = client.stream();
    // As libnbd does: nothing more will be asked, and the answers are still wanted.
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    for chunk in all.chunks(16) {
        assert_eq!(&chunk[4..8], &[0; 4]);
        replies += 1;
    }
    assert_eq!(replies, 21);
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn a_volume_whose_device_fails_says_so_and_the_stream_goes_on() {
    let server = Server::start(Setup {
        layers: "faulty:seed=1,eio_reads=1",
        ..Setup::default()
    });
    for wishes in [Wishes::export(""), Wishes::export("").simple()] {
        let mut client = server.client_of(&wishes);
        let error = client.read(1 << 20, &mut [0; 4096]).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::Io));
        let error = client.write((2 << 20) + 5, &[1; 100]).unwrap_err();
        assert_eq!(
            error.errno(),
            Some(Errno::Io),
            "part of a page that cannot be read"
        );
        let data = bytes(8, PAGE);
        client.write(3 << 20, &data).unwrap();
        let mut back = vec![0; PAGE];
        client.read(3 << 20, &mut back).unwrap();
        assert!(back == data);
    }
}

/// A simple reply, and a reply that is to come in one piece, promises all data with its head: an
/// unreadable part has to be found before.
#[test]
fn a_read_that_fails_in_the_middle_is_an_error_and_the_stream_goes_on() {
    const BAD: u64 = (3 << 20) + 7 * PAGE as u64;
    let server = Server::start(Setup {
        layers: "faulty:seed=1,eio_range=3100KiB..3104KiB",
        ..Setup::default()
    });
    let mut piece = Ask::read(BAD - (1 << 20), 2 << 20);
    piece.flags = CommandFlags::DF;
    let mut whole = server.client();
    whole.submit(piece).unwrap();
    let completion = whole.receive().unwrap();
    assert_eq!(
        completion.failure.map(|failure| failure.errno),
        Some(Errno::Io)
    );
    whole.read(BAD - PAGE as u64, &mut [0; PAGE]).unwrap();
    for (before, len) in [(1, 3), (16, 32), (256, 300), (700, 2000)] {
        let (offset, len) = (BAD - before * PAGE as u64, len * PAGE);
        let mut client = server.client_of(&Wishes::export("").simple());
        // The readable part is in memory, or is not.
        for _ in 0..2 {
            let error = client.read(offset, &mut vec![0; len]).unwrap_err();
            assert_eq!(error.errno(), Some(Errno::Io), "{before} pages before it");
        }
        client.read(BAD - PAGE as u64, &mut [0; PAGE]).unwrap();
        client
            .read(BAD + PAGE as u64, &mut vec![0; 4 << 20])
            .unwrap();
    }
}

#[test]
fn a_patient_export_holds_a_flush_until_its_device_takes_writes() {
    let server = Server::start(Setup {
        layers: "faulty:seed=1,eio_writes=1",
        options: ExportOptions {
            patient: true,
            ..ExportOptions::default()
        },
        ..Setup::default()
    });
    let mut client = server.client();
    client.write(0, &bytes(1, PAGE)).unwrap();
    let flushed = std::thread::spawn(move || client.flush().map(|()| client));
    let failed = || server.export.opened.volume.stats().failed_total;
    until("two tries have failed", || failed() >= 2);
    assert!(!flushed.is_finished());
    server.layers.stack().unwrap().faulty[0].set_plan(FaultPlan::default());
    flushed.join().unwrap().unwrap();
}

#[test]
fn what_has_healed_is_no_failure_of_the_servers_own_sync() {
    let server = Server::start(Setup {
        layers: "faulty:seed=1,eio_writes=1",
        ..Setup::default()
    });
    let mut client = server.client();
    client.write(0, &bytes(1, PAGE)).unwrap();
    assert_eq!(client.flush().unwrap_err().errno(), Some(Errno::Io));
    assert!(server.export.sync().is_err(), "it is not durable");
    server.layers.stack().unwrap().faulty[0].set_plan(FaultPlan::default());
    until("it is durable", || server.client().flush().is_ok());
    server.export.sync().unwrap();
}

#[test]
fn who_stalls_on_a_withdrawn_export_is_cut_off_when_its_time_is_over() {
    let server = Server::start(Setup {
        options: named("going"),
        ..Setup::default()
    });
    let mut client = server.client_of(&Wishes::export("going"));
    client.write(0, &bytes(1, PAGE)).unwrap();
    let counters = &server.export.counters;
    // It is counted off after its reply: it is not to be taken for the next.
    until("the first is over", || {
        counters.in_flight.load(Ordering::SeqCst) == 0
    });
    // The head of a write, and part of its payload.
    let head = Request {
        flags: CommandFlags::NONE,
        command: Command::Write,
        cookie: 7,
        offset: 0,
        len: 2 * PAGE as u32,
    };
    let mut stream = client.stream();
    stream.write_all(&head.encode()).unwrap();
    stream.write_all(&bytes(2, 5000)).unwrap();
    until("it has begun", || {
        counters.in_flight.load(Ordering::SeqCst) == 1
    });
    let connections = || server.export.counters.connections.load(Ordering::SeqCst);
    let export = server.hub.withdraw("going").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(connections(), 1, "it may finish");
    server.hub.cut_off(&export);
    until("it is cut off", || connections() == 0);
    assert!(server.hub.offer(export));
    let mut again = server.client_of(&Wishes::export("going"));
    again.flush().unwrap();
}

#[test]
fn whoever_loses_the_writer_still_gets_the_answers_to_the_writes_before() {
    let server = Server::start(Setup {
        layers: HOLDABLE,
        ..Setup::default()
    });
    let hold = &server.layers.stack().unwrap().faulty[0];
    let mut client = server.client_of(&Wishes::export("").simple());
    client.write(0, &bytes(2, PAGE)).unwrap();
    // Nobody can be waited with: jobs for the pool are dropped, and the writer with them.
    server.export.opened.pool.close();
    hold.hold();
    let write = |cookie, offset, len| Request {
        flags: CommandFlags::NONE,
        command: Command::Write,
        cookie,
        offset,
        len,
    };
    // In one piece, of no more than is received at once. The first is taken in; while its answer is
    // still to be paced, the second, for which a page has to be read, takes the writer away.
    let data = bytes(1, 512);
    let mut sent = write(1, 0, 512).encode().to_vec();
    sent.extend(&data);
    sent.extend(write(2, (1 << 20) + 5, 100).encode());
    sent.extend([7; 100]);
    let mut stream = client.stream();
    stream.write_all(&sent).unwrap();
    let mut replies = Vec::new();
    for _ in 0..2 {
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        let (error, cookie) = (&reply[4..8], reply[15]);
        replies.push((cookie, u32::from_be_bytes(error.try_into().unwrap())));
    }
    replies.sort_unstable();
    assert_eq!(
        replies,
        [(1, 0), (2, 5)],
        "it is taken, and EIO for what was lost"
    );
    hold.release();
    let mut back = vec![0; 512];
    server.client().read(0, &mut back).unwrap();
    assert!(back == data);
}
