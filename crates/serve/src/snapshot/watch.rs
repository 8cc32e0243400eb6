//! Says in the log what happens to volumes: states that change, reads and writes of the backing that fail.
//!
//! Looked at once a second rather than told by whoever fails: however many writes fail, a volume has one line a second,
//! and a failing device does not wait for a log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Reading, Source, State};
use crate::log::{error, info, warn};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Says what happens; ends with the task that it runs in.
pub async fn watch(source: Arc<dyn Source>) {
    let mut watcher = Watcher::default();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        watcher.look(&source.read());
    }
}

/// What was said of each volume.
#[derive(Debug, Default)]
struct Watcher {
    volumes: BTreeMap<String, Said>,
}

/// What was said of a volume: its state, how many writes failed, and the bytes of failed reads.
type Said = (State, u64, u64);

impl Watcher {
    fn look(&mut self, now: &Reading) {
        let mut seen = BTreeMap::new();
        for volume in &now.volumes {
            let (state, errors, unread) =
                self.volumes.get(&volume.name).copied().unwrap_or_default();
            let cause = volume.last_error.as_deref().unwrap_or("not known");
            let (name, seconds) = (
                volume.name.as_str(),
                volume.state_for.map_or(0, |time| time.as_secs()),
            );
            // Attached anew, it may have fewer than before.
            if volume.errors > errors {
                let failures = volume.errors - errors;
                warn!(
                    volume = name,
                    failures,
                    cause,
                    dirty = volume.dirty + volume.writeback,
                    "writing to the backing failed"
                );
            }
            if volume.read_failed_total > unread {
                let cause = volume.last_read_error.as_deref().unwrap_or("not known");
                warn!(
                    volume = name,
                    bytes = volume.read_failed_total - unread,
                    cause,
                    "reading from the backing failed"
                );
            }
            if volume.state != state {
                match volume.state {
                    State::Ok => info!(volume = name, before = state.name(), "volume works again"),
                    State::Retrying => warn!(
                        volume = name,
                        state = "retrying",
                        seconds,
                        cause,
                        "volume state"
                    ),
                    State::Stalled => warn!(
                        volume = name,
                        state = "stalled",
                        seconds,
                        at_backing = volume.at_backing,
                        "volume state: the backing does not answer"
                    ),
                    State::Stopped | State::FlushFailed => error!(
                        volume = name,
                        state = volume.state.name(),
                        cause,
                        "volume state: it takes no writes until it is reopened"
                    ),
                }
            }
            let said = (volume.state, volume.errors, volume.read_failed_total);
            seen.insert(volume.name.clone(), said);
        }
        self.volumes = seen;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;
    use crate::log::{Format, Level, Log};
    use crate::snapshot::example::reading;

    #[test]
    fn changes_are_said_once_and_failures_with_their_number() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let sink = move |line: &[u8]| {
            into.lock().unwrap().extend_from_slice(line);
            true
        };
        let log = Log::new(Format::Logfmt, Level::Info, Box::new(sink));
        let began = Instant::now();
        tracing::subscriber::with_default(log, || {
            let mut watcher = Watcher::default();
            for (second, state, errors) in [
                (1, State::Ok, 0),
                (2, State::Retrying, 17),
                (3, State::Retrying, 17),
                (4, State::Retrying, 20),
                (5, State::Ok, 20),
                (6, State::Stalled, 20),
                (7, State::FlushFailed, 21),
                (8, State::FlushFailed, 21),
            ] {
                let mut now = reading(began, second, state);
                now.volumes[1].errors = errors;
                if second >= 5 {
                    now.volumes[1].read_failed_total = 8192;
                    now.volumes[1].last_read_error = Some("the device is gone".to_owned());
                }
                watcher.look(&now);
            }
        });
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        let said: Vec<_> = text
            .lines()
            .map(|line| line.split_once(" level=").unwrap().1)
            .collect();
        let cause = "cause=\"writing back the data at byte 4096 failed: no space\"";
        assert_eq!(
            said,
            [
                format!("warn msg=\"writing to the backing failed\" volume=data/backup failures=17 {cause} dirty=0"),
                format!("warn msg=\"volume state\" volume=data/backup state=retrying seconds=2 {cause}"),
                format!("warn msg=\"writing to the backing failed\" volume=data/backup failures=3 {cause} dirty=0"),
                "warn msg=\"reading from the backing failed\" volume=data/backup bytes=8192 cause=\"the device is gone\"".to_owned(),
                "info msg=\"volume works again\" volume=data/backup before=retrying".to_owned(),
                "warn msg=\"volume state: the backing does not answer\" volume=data/backup state=stalled seconds=6 at_backing=0".to_owned(),
                "warn msg=\"writing to the backing failed\" volume=data/backup failures=1 cause=\"not known\" dirty=0".to_owned(),
                "error msg=\"volume state: it takes no writes until it is reopened\" volume=data/backup state=flush_failed cause=\"not known\"".to_owned(),
            ]
        );
    }
}
