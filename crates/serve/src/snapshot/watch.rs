//! Says in the log what happens to volumes: states that change, reads and writes of the backing that fail.
//!
//! Looked at once a second rather than told by whoever fails: however many writes fail, a volume has one line a second at
//! most, and a failing device does not wait for a log. While they go on failing, lines come 1, 2, 4 ... 60 s apart, each
//! with all failures since the one before; a change of state is said at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Reading, Source, State};
use crate::log::{error, info, warn};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks from one line about failures to the next, at most.
const APART_MOST: u32 = 60;

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

/// What was said of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    state: State,
    /// Writes that failed.
    writes: Failures,
    /// Bytes of reads that failed.
    reads: Failures,
}

/// How many failures were said, and when more are.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    said: u64,
    /// Looks between the last two lines; 0: there was none for so long that the next is said at once.
    apart: u32,
    /// Looks to the next line.
    left: u32,
}

impl Failures {
    /// A look at a total that grows; how many are to be said now.
    fn look(&mut self, total: u64, at_once: bool) -> Option<u64> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 && !at_once {
            return None;
        }
        // Attached anew, a volume may have fewer than before.
        let more = total.saturating_sub(self.said);
        self.said = total;
        self.apart = match more {
            0 => 0,
            _ => (2 * self.apart).clamp(1, APART_MOST),
        };
        self.left = self.apart;
        (more > 0).then_some(more)
    }
}

impl Watcher {
    fn look(&mut self, now: &Reading) {
        let mut seen = BTreeMap::new();
        for volume in &now.volumes {
            let mut said = self.volumes.get(&volume.name).copied().unwrap_or_default();
            let is_other = volume.state != said.state;
            let cause = volume.last_error.as_deref().unwrap_or("not known");
            let (name, seconds) = (
                volume.name.as_str(),
                volume.state_for.map_or(0, |time| time.as_secs()),
            );
            if let Some(failures) = said.writes.look(volume.errors, is_other) {
                warn!(
                    volume = name,
                    failures,
                    cause,
                    dirty = volume.dirty + volume.writeback,
                    "writing to the backing failed"
                );
            }
            if let Some(bytes) = said.reads.look(volume.read_failed_total, is_other) {
                let cause = volume.last_read_error.as_deref().unwrap_or("not known");
                warn!(
                    volume = name,
                    bytes, cause, "reading from the backing failed"
                );
            }
            if is_other {
                match volume.state {
                    State::Ok => info!(
                        volume = name,
                        before = said.state.name(),
                        "volume works again"
                    ),
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
            said.state = volume.state;
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
    fn failures_that_go_on_are_said_ever_more_rarely_and_none_is_left_out() {
        let mut failures = Failures::default();
        let said: Vec<(u64, u64)> = (1..=300)
            .filter_map(|second| Some((second, failures.look(3 * second, false)?)))
            .collect();
        let seconds: Vec<u64> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 124, 184, 244]);
        assert_eq!(said.iter().map(|(_, more)| more).sum::<u64>(), 3 * 244);
        // The volume works again: what is not yet said is, at once; then the next is new.
        assert_eq!(failures.look(3 * 300, true), Some(3 * 56));
        assert!((0..120).all(|_| failures.look(3 * 300, false).is_none()));
        assert_eq!(failures.look(3 * 300 + 1, false), Some(1));
        assert_eq!(failures.look(5, false), None);
        assert_eq!(failures.look(6, false), Some(1));
    }

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
