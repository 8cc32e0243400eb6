//! A server that is not there, for tests of what shows it.

use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use tidegate::{CallWait, Stats, Wait};

use super::{
    ClientReading, CommandNumbers, CommandReading, Connections, Reading, Source, State,
    VolumeNumbers, VolumeReading,
};
use crate::counters::{Histogram, Kind, Latencies};
use crate::hub::Stage;
use crate::opened::Room;

const MIB: u64 = 1 << 20;

/// The latencies of `times`: pairs of microseconds and a count.
pub(crate) fn latencies(times: &[(u64, u64)]) -> Latencies {
    let histogram = Histogram::default();
    for &(micros, count) in times {
        for _ in 0..count {
            histogram.note(Duration::from_micros(micros));
        }
    }
    histogram.read()
}

/// The server `seconds` after `began`: `root` is written at 2000 requests of 4 KiB a second and
/// paced, `data/backup` is in `state`.
pub(crate) fn reading(began: Instant, seconds: u64, state: State) -> Reading {
    let mut root = VolumeReading {
        name: "root".to_owned(),
        paced: true,
        numbers: VolumeNumbers {
            size: 512 * MIB,
            dirty: 30 * MIB,
            writeback: 6 * MIB,
            dirty_limit: 48 * MIB,
            background_limit: 24 * MIB,
            bandwidth: 3 * MIB,
            written_total: seconds * 3 * MIB,
            read_total: 7 * MIB,
            connections: 3,
            connections_total: 5,
            in_flight: 20,
            oldest_us: 3000,
            held: 16,
            held_total: 900 * seconds,
            stuck_total: 12,
            no_buffer_total: 11,
            broken_total: 2,
            at_backing: 4,
            ..VolumeNumbers::default()
        },
        clients: [
            (5, "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:51234", 2000, 0),
            (6, "process 4711", 100, 3),
        ]
        .map(|(number, address, rate, oldest)| ClientReading {
            number,
            address: address.to_owned(),
            requests: rate * seconds,
            oldest: Duration::from_millis(oldest),
            waits: vec![CallWait {
                cause: if oldest > 0 { "flush" } else { "held reply" },
                count: 9 * seconds,
                total: Duration::from_millis(700 * seconds),
            }],
        })
        .to_vec(),
        waits: vec![CallWait {
            cause: "memory",
            count: 3 * seconds,
            total: Duration::from_millis(20 * seconds),
        }],
        held_for: latencies(&[(7_000, 890 * seconds), (40_000, 10 * seconds)]),
        ..VolumeReading::default()
    };
    root.commands[Kind::Write as usize] = CommandReading {
        numbers: CommandNumbers {
            requests: 2000 * seconds,
            bytes: 2000 * 4096 * seconds,
            errors: 0,
        },
        latency: latencies(&[
            (30, 1100 * seconds),
            (7_100, 890 * seconds),
            (40_000, 10 * seconds),
        ]),
    };
    root.commands[Kind::Read as usize] = CommandReading {
        numbers: CommandNumbers {
            requests: 100 * seconds,
            bytes: 100 * 4096 * seconds,
            errors: 2,
        },
        latency: latencies(&[(12, 99 * seconds), (2_000, seconds)]),
    };
    let backup = VolumeReading {
        name: "data/backup".to_owned(),
        read_only: true,
        room: Some(Room {
            free: 300 * MIB,
            taken: 1024 * MIB,
        }),
        paced: true,
        state,
        slow: (state == State::Slow).then(|| {
            "flushes wait for /srv/b.img, which takes 4 MiB/s; it was 80 MiB/s within the last hour".to_owned()
        }),
        state_for: (state != State::Ok).then_some(Duration::from_secs(seconds)),
        numbers: VolumeNumbers {
            size: 4096 * MIB,
            dirty_limit: 16 * MIB,
            background_limit: 8 * MIB,
            failed_total: u64::from(state == State::Retrying) * (17 << 12),
            errors: u64::from(state == State::Retrying) * 17,
            read_failed_total: u64::from(state == State::ReadsFail) * (3 << 12),
            connections: 1,
            connections_total: 1,
            ..VolumeNumbers::default()
        },
        last_error: (state == State::Retrying)
            .then(|| "writing back the data at byte 4096 failed: no space".to_owned()),
        last_read_error: (state == State::ReadsFail)
            .then(|| "reading at byte 4096 failed: the device is gone".to_owned()),
        ..VolumeReading::default()
    };
    let mut histogram = [0; 32];
    histogram[14] = 5 * seconds;
    let mut paused = Wait::default();
    paused.cause = "dirty pause";
    paused.count = 5 * seconds;
    paused.total = Duration::from_millis(50 * seconds);
    paused.max = Duration::from_millis(11);
    paused.histogram = histogram;
    paused.ended_by = vec![("deadline", 5 * seconds)];
    let mut memory = Wait::default();
    memory.cause = "memory";
    memory.count = 5 * seconds;
    memory.total = Duration::from_millis(40 * seconds);
    memory.max = Duration::from_millis(9);
    memory.timed_out = 1;
    memory.histogram = histogram;
    memory.ended_by = vec![("pages freed", 5 * seconds - 1), ("deadline", 1)];
    let mut stats = Stats::default();
    stats.limit = 256 * MIB;
    stats.cached = 200 * MIB;
    stats.free = 30 * MIB;
    stats.pinned = MIB;
    stats.dirty = 30 * MIB;
    stats.writeback = 6 * MIB;
    stats.dirty_limit = 64 * MIB;
    stats.background_limit = 32 * MIB;
    stats.dirtied_total = seconds * 8 * MIB;
    stats.written_total = seconds * 3 * MIB;
    stats.read_total = 7 * MIB;
    stats.metadata = 5 * MIB;
    stats.waits = vec![paused, memory];
    Reading {
        at: UNIX_EPOCH + Duration::from_secs(1_795_305_900 + seconds),
        instant: began + Duration::from_secs(seconds),
        uptime: Duration::from_secs(seconds),
        stage: Stage::Serving,
        stats,
        resident: 215 * MIB,
        cpu: Duration::from_millis(250 * seconds),
        door: Connections {
            now: 4,
            limit: 256,
            asked: 256,
            accepted_total: 7,
            refused_total: 1,
            handshake_failures_total: 1,
            denied_total: 2,
        },
        certificates: vec![("certificate", 1_800_000_000), ("clients", 2_000_000_000)],
        volumes: vec![root, backup],
    }
}

/// A source whose every reading is a second after the one before.
pub(crate) struct Example {
    began: Instant,
    state: Mutex<(u64, State)>,
}

impl Example {
    pub(crate) fn new(state: State) -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::new((0, state)),
        }
    }
}

impl Source for Example {
    fn read(&self) -> Reading {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        reading(self.began, state.0, state.1)
    }
}

/// Compares with a stored text; `UPDATE_STORED=1` stores it.
pub(crate) fn assert_stored(name: &str, text: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/snapshot/stored");
    let path = folder.join(name);
    if std::env::var_os("UPDATE_STORED").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} differs; UPDATE_STORED=1 stores what it is now:\n{text}",
        path.display()
    );
}
