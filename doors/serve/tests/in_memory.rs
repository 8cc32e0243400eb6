//! A volume that is kept in memory alone, as a client sees it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "support code of tests: a failure here is a failed test; the numbers are small"
)]

use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use crate::common::{Dice, PAGE, Server, Setup, bytes};
use nbd::client::Client;
use nbd::wire::{CommandFlags, State};
use serve::config::BackendConfig;

const MIB: u64 = 1 << 20;

/// Larger than the cache.
fn server() -> Server {
    Server::start(Setup {
        memory: 32 * MIB,
        backend: Some(BackendConfig::Memory { size: 128 * MIB }),
        ..Setup::default()
    })
}

#[test]
fn it_keeps_what_is_written_and_the_cache_has_nothing_of_it() {
    let server = server();
    let mut client = server.client();
    let (mut dice, mut model) = (Dice::new(7), vec![0_u8; 64 * MIB as usize]);
    for round in 0..400 {
        let len = 1 + dice.below([2 * PAGE as u64, 300 << 10, 2 * MIB][round % 3]) as usize;
        let at = dice.below(model.len() as u64 - len as u64) as usize;
        match round % 5 {
            0 => {
                client.trim(at as u64, len as u32).unwrap();
                model[at..at + len].fill(0);
            }
            1 => {
                client
                    .zero(at as u64, len as u32, CommandFlags::NONE)
                    .unwrap();
                model[at..at + len].fill(0);
            }
            _ => {
                let data = bytes(round as u64, len);
                client.write(at as u64, &data).unwrap();
                model[at..at + len].copy_from_slice(&data);
            }
        }
    }
    client.flush().unwrap();
    let mut back = vec![1; model.len()];
    for (at, part) in (0..)
        .step_by(4 * MIB as usize)
        .zip(back.chunks_mut(4 * MIB as usize))
    {
        client.read(at, part).unwrap();
    }
    assert!(back == model, "other bytes than were written");
    let stats = server.cache.stats();
    assert_eq!((stats.dirty, stats.writeback, stats.cached), (0, 0, 0));
    assert_eq!(
        server.export.counters.held_total.load(Ordering::Relaxed),
        0,
        "it is not paced"
    );
}

#[test]
fn its_holes_are_holes_and_it_grows() {
    let server = server();
    let mut client = server.client();
    let holes = |client: &mut Client<UnixStream>| {
        let extents = client.block_status(0, 128 * MIB).unwrap();
        let holes = extents
            .iter()
            .filter(|extent| extent.state.has(State::HOLE));
        holes.map(|extent| extent.len).sum::<u64>()
    };
    assert_eq!(holes(&mut client), 128 * MIB);
    client.write(10 * MIB, &bytes(1, MIB as usize)).unwrap();
    assert_eq!(holes(&mut client), 127 * MIB);
    client.trim(10 * MIB, MIB as u32 / 2).unwrap();
    assert_eq!(holes(&mut client), 127 * MIB + MIB / 2);
    assert_eq!(server.export.grow(Some(256 * MIB)), Ok(256 * MIB));
    let mut client = server.client();
    let mut back = vec![1; PAGE];
    client.read(200 * MIB, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 0));
    client
        .write(256 * MIB - PAGE as u64, &bytes(3, PAGE))
        .unwrap();
    client.read(256 * MIB - PAGE as u64, &mut back).unwrap();
    assert!(back == bytes(3, PAGE));
}
