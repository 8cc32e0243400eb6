//! Flushes and durable writes of many clients: how often the backing is flushed for them, and what
//! each is told.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{PAGE, Server, Setup, bytes, until};
use device::{FaultPlan, Faulty, TraceRecord};
use env::IoOp;
use nbd::client::{Ask, Client};
use nbd::wire::{Command, CommandFlags, Errno};
use serve::export::ExportOptions;

/// A device that holds what it is told to hold, and writes down what comes through.
const WATCHED: &str = "faulty:seed=1+trace:records=10000";
const MANY: u64 = 40;

fn server() -> (Server, Arc<Faulty>) {
    let server = Server::start(Setup {
        layers: WATCHED,
        ..Setup::default()
    });
    let faulty = Arc::clone(&server.layers.stack().unwrap().faulty[0]);
    (server, faulty)
}

fn records(server: &Server) -> Vec<TraceRecord> {
    server.layers.stack().unwrap().trace[0].records()
}

fn flushes(server: &Server) -> usize {
    let records = records(server);
    records.iter().filter(|it| it.op == IoOp::Flush).count()
}

fn at(page: u64) -> u64 {
    page * PAGE as u64
}

fn failure(client: &mut Client<UnixStream>) -> Option<Errno> {
    client.receive().unwrap().failure.map(|it| it.errno)
}

/// Has a client ask for something durable that hangs in the device, and others ask meanwhile.
fn while_one_hangs(
    server: &Server,
    faulty: &Faulty,
    ask: impl Fn(&mut Client<UnixStream>, u64),
) -> Vec<Client<UnixStream>> {
    let mut clients: Vec<_> = (0..=MANY).map(|_| server.client()).collect();
    faulty.hold();
    ask(&mut clients[0], 0);
    until("the first one's page is on its way", || faulty.held() > 0);
    for (client, page) in clients.iter_mut().zip(0..).skip(1) {
        ask(client, page);
    }
    until("all of them are under way", || {
        server.export.counters.in_flight.load(Ordering::SeqCst) == MANY + 1
    });
    clients
}

#[test]
fn the_first_flush_of_a_server_reaches_the_backing() {
    let (server, _) = server();
    let mut client = server.client();
    for _ in 0..2 {
        client.submit(Ask::flush()).unwrap();
        assert_eq!(failure(&mut client), None);
        assert_eq!(flushes(&server), 1, "{:#?}", records(&server));
    }
}

/// A volume of which each write is durable before its reply, for clients that do not know that they
/// might lose one.
#[test]
fn a_volume_can_make_every_write_durable_before_its_reply() {
    let server = Server::start(Setup {
        layers: WATCHED,
        options: ExportOptions {
            durable: true,
            ..ExportOptions::default()
        },
        ..Setup::default()
    });
    let mut client = server.client();
    let stored = |page: u64| {
        let records = records(&server);
        let write = |it: &&TraceRecord| it.op == IoOp::Write && it.offset.0 == at(page);
        records.iter().filter(write).count() == 1
    };
    for page in 0..3 {
        client.write(at(page), &bytes(page, PAGE)).unwrap();
        assert!(stored(page), "{:#?}", records(&server));
        assert!(flushes(&server) > usize::try_from(page).unwrap());
    }
    let before = flushes(&server);
    client.trim(at(8), 8 * PAGE as u32).unwrap();
    assert!(flushes(&server) > before, "a trim");
    // And off again.
    server.export.set_durable(false);
    client.write(at(5), &bytes(5, PAGE)).unwrap();
    client.read(at(5), &mut vec![0; PAGE]).unwrap();
    assert!(!stored(5), "{:#?}", records(&server));
}

/// A client that was killed had asked for a hole, or for zeroes, all over the volume; another
/// writes into the rest of that, and flushes.
#[test]
fn nothing_changes_for_a_client_that_is_gone_once_a_flush_is_answered() {
    const SIZE: u64 = 1 << 30;
    for command in [Command::Trim, Command::WriteZeroes] {
        let ask = Ask::new(command, 0, u32::try_from(SIZE).unwrap());
        let server = Server::start(Setup {
            size: SIZE,
            layers: "slow:latency=50ms+trace:records=10000",
            ..Setup::default()
        });
        let discards = || {
            let records = records(&server);
            let is_discard = |it: &&TraceRecord| matches!(it.op, IoOp::Discard { .. });
            records.iter().filter(is_discard).count()
        };
        let mut gone = server.client();
        gone.submit(ask).unwrap();
        until("it is under way", || discards() > 0);
        drop(gone);
        let mut other = server.client();
        let (last, data) = (SIZE / PAGE as u64 - 1, bytes(1, PAGE));
        other.write(at(last), &data).unwrap();
        other.submit(Ask::flush()).unwrap();
        assert_eq!(failure(&mut other), None);
        let before = discards();
        let load = || server.export.opened.pool.load();
        until("nothing is under way", || load().idle == load().threads);
        assert_eq!(discards(), before, "{:#?}", records(&server));
        assert!(before < 32, "it was to be killed halfway");
        let mut back = vec![0; PAGE];
        other.read(at(last), &mut back).unwrap();
        assert!(back == data, "what was flushed is there");
    }
}

#[test]
fn durable_writes_that_come_while_one_is_under_way_share_one_flush_of_the_backing() {
    let (server, faulty) = server();
    let mut clients = while_one_hangs(&server, &faulty, |client, page| {
        let data = bytes(page, PAGE);
        let ask = Ask::write(at(page), &data).with(CommandFlags::FUA);
        client.submit(ask).unwrap();
    });
    // They wait for a sync, not for a thread of their own.
    assert_eq!(server.export.opened.pool.load().queued, 0);
    faulty.release();
    for client in &mut clients {
        assert_eq!(failure(client), None);
    }
    assert_eq!(flushes(&server), 2, "{:#?}", records(&server));
}

#[test]
fn flushes_that_come_while_one_is_under_way_are_answered_by_the_next() {
    let (server, faulty) = server();
    let mut clients = while_one_hangs(&server, &faulty, |client, page| {
        client.write(at(page), &bytes(page, PAGE)).unwrap();
        client.submit(Ask::flush()).unwrap();
    });
    assert_eq!(server.export.opened.pool.load().queued, 0);
    faulty.release();
    for client in &mut clients {
        assert_eq!(failure(client), None);
    }
    // Each page was written, and the backing flushed after the last of them.
    let records = records(&server);
    let end = |it: &TraceRecord| it.at + it.took;
    let is_of = |it: &TraceRecord, page| {
        let pages = it.offset.0 / PAGE as u64..it.offset.0 / PAGE as u64 + it.pages.0;
        it.op == IoOp::Write && pages.contains(&page)
    };
    let written = |page| records.iter().find(|it| is_of(it, page)).map(end).unwrap();
    let last = (0..=MANY).map(written).max().unwrap();
    let flushed = records.iter().filter(|it| it.op == IoOp::Flush);
    assert!(flushed.clone().any(|it| it.at >= last), "{records:#?}");
    assert_eq!(flushed.count(), 2, "{records:#?}");
}

#[test]
fn a_durable_write_does_not_wait_for_a_flush_of_everything() {
    let (server, faulty) = server();
    let mut client = server.client();
    client.write(at(9), &bytes(9, PAGE)).unwrap();
    // It is held here for good; what comes after `release` is not.
    faulty.hold();
    client.submit(Ask::flush()).unwrap();
    until("it hangs", || faulty.held() > 0);
    let mut other = server.client();
    let data = bytes(1, PAGE);
    let ask = Ask::write(at(1), &data).with(CommandFlags::FUA);
    other.submit(ask).unwrap();
    until("both are at the device", || faulty.held() > 1);
    faulty.release();
    assert_eq!(failure(&mut client), None);
    assert_eq!(failure(&mut other), None);
}

#[test]
fn a_bad_sector_holds_back_no_durable_write_but_its_own() {
    let server = Server::start(Setup {
        layers: "faulty:seed=1",
        on_error: tidegate::ErrorPolicy::Retry,
        options: ExportOptions {
            patient: true,
            ..Default::default()
        },
        ..Setup::default()
    });
    let faulty = Arc::clone(&server.layers.stack().unwrap().faulty[0]);
    faulty.set_plan(FaultPlan {
        eio_range: Some(at(1)..at(2)),
        ..FaultPlan::default()
    });
    let durable = |client: &mut Client<UnixStream>, page| {
        let data = bytes(page, PAGE);
        let ask = Ask::write(at(page), &data).with(CommandFlags::FUA);
        client.submit(ask).unwrap();
    };
    let failed = || server.export.opened.volume.stats().errors;
    let (mut bad, mut good) = (server.client(), server.client());
    durable(&mut bad, 1);
    until("it has failed", || failed() > 0);
    for page in 9..12 {
        durable(&mut good, page);
        assert_eq!(failure(&mut good), None);
    }
    until("the other one waits still", || {
        server.export.counters.in_flight.load(Ordering::SeqCst) == 1
    });
    faulty.set_plan(FaultPlan::default());
    assert_eq!(failure(&mut bad), None, "it waits until it is durable");
}

#[test]
fn an_error_is_told_to_each_who_shares_a_sync_and_once_when_it_has_healed() {
    let (server, faulty) = server();
    let mut late = server.client();
    late.write(at(99), &bytes(99, PAGE)).unwrap();
    let fails = FaultPlan {
        seed: 1,
        eio_writes: device::Odds::ALWAYS,
        ..FaultPlan::default()
    };
    faulty.set_plan(fails);
    let mut clients = while_one_hangs(&server, &faulty, |client, page| {
        client.write(at(page), &bytes(page, PAGE)).unwrap();
        client.submit(Ask::flush()).unwrap();
    });
    faulty.release();
    for client in &mut clients {
        assert_eq!(failure(client), Some(Errno::Io));
    }
    faulty.set_plan(FaultPlan::default());
    // Until it has healed; it was tried, and failed, more than once.
    for client in &mut clients {
        until("it is durable", || client.flush().is_ok());
    }
    // A client that has not heard of it yet is in one sync with those that have.
    let mut all = while_one_hangs_again(&server, &faulty, clients, late);
    faulty.release();
    let late = all.last_mut().unwrap();
    assert_eq!(failure(late), Some(Errno::Io), "it is told once");
    late.flush().unwrap();
    let heard = all.len() - 1;
    for client in &mut all[..heard] {
        assert_eq!(failure(client), None, "it was told before");
    }
}

fn while_one_hangs_again(
    server: &Server,
    faulty: &Faulty,
    mut clients: Vec<Client<UnixStream>>,
    late: Client<UnixStream>,
) -> Vec<Client<UnixStream>> {
    clients.push(late);
    // A writer of its own, which is told of the error too.
    let mut fresh = server.client();
    until("it is taken in", || fresh.write(0, &bytes(7, PAGE)).is_ok());
    faulty.hold();
    for (client, number) in clients.iter_mut().zip(0..) {
        client.submit(Ask::flush()).unwrap();
        if number == 0 {
            until("the first one hangs", || faulty.held() > 0);
        }
    }
    until("all of them are under way", || {
        server.export.counters.in_flight.load(Ordering::SeqCst) == MANY + 2
    });
    clients
}
