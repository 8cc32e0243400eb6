//! Says in the log what happens to volumes: states that change, reads and writes of the backing
//! that fail.
//!
//! Looked at once a second rather than told by the volume that fails: however many writes fail, a
//! volume has one line a second at most, and a failing device does not wait for a log. While they
//! go on failing, lines come 1, 2, 4 ... 60 s apart, each with all failures since the one before; a
//! change of state is said at once. A volume that works again, or has not failed for ten seconds,
//! has recovered: the next failure is said at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Reading, Source, State};
use crate::log::{error, info, warn};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks from one line about failures to the next, at most.
const APART_MOST: u32 = 60;
/// Looks without a failure after which the trouble has ended. Longer than between two tries of a
/// write that fails (6.4 s).
const QUIET: u32 = 10;

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

/// The last word on each volume.
#[derive(Debug, Default)]
struct Watcher {
    volumes: BTreeMap<String, Said>,
}

/// The last word on a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    state: State,
    is_lost: bool,
    /// Writes that failed.
    writes: Failures,
    /// Bytes of reads that failed.
    reads: Failures,
}

/// Failures that were reported, and the time of the next report.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    said: u64,
    /// Their number at the last look.
    seen: u64,
    /// Looks since there was a new one.
    quiet: u32,
    /// Looks between the last two lines; 0: there was none for so long that the next is said at
    /// once.
    apart: u32,
    /// Looks to the next line.
    left: u32,
}

impl Failures {
    /// A look at a total that grows; how many are to be said now.
    fn look(&mut self, total: u64, at_once: bool) -> Option<u64> {
        if core::mem::replace(&mut self.seen, total) == total {
            self.quiet = self.quiet.saturating_add(1);
        } else if core::mem::take(&mut self.quiet) >= QUIET {
            self.are_over();
        }
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

    /// The next one is new, and said at once.
    fn are_over(&mut self) {
        (self.apart, self.left) = (0, 0);
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
            let was_lost = core::mem::replace(&mut said.is_lost, volume.lost.is_some());
            if let Some(cause) = volume.lost.as_deref().filter(|_| !was_lost) {
                error!(volume = name, cause, "the backing is lost");
            }
            if let Some(failures) = said.writes.look(volume.numbers.errors, is_other) {
                warn!(
                    volume = name,
                    failures,
                    cause,
                    dirty = volume.numbers.dirty + volume.numbers.writeback,
                    "writing to the backing failed"
                );
            }
            if let Some(bytes) = said.reads.look(volume.numbers.read_failed_total, is_other) {
                let cause = volume.last_read_error.as_deref().unwrap_or("not known");
                warn!(
                    volume = name,
                    bytes, cause, "reading from the backing failed"
                );
            }
            if is_other {
                match volume.state {
                    State::Ok => {
                        said.writes.are_over();
                        info!(
                            volume = name,
                            before = said.state.name(),
                            "volume works again"
                        );
                    }
                    State::Slow => warn!(
                        volume = name,
                        state = "slow",
                        seconds,
                        cause = volume.slow.as_deref().unwrap_or("not known"),
                        "volume state"
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
                        at_backing = volume.numbers.at_backing,
                        "volume state: the backing does not answer"
                    ),
                    // Said already, with the cause.
                    State::Lost | State::ReadsFail => {}
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
    use crate::snapshot::tests::reading;

    #[test]
    fn failures_that_go_on_are_said_ever_more_rarely_and_none_is_left_out() {
        let mut failures = Failures::default();
        let said: Vec<(u64, u64)> = (1..=300)
            .filter_map(|second| Some((second, failures.look(3 * second, false)?)))
            .collect();
        let seconds: Vec<u64> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 124, 184, 244]);
        assert_eq!(said.iter().map(|(_, more)| more).sum::<u64>(), 3 * 244);
        // The volume works again: unreported failures are said at once; then the next is new.
        assert_eq!(failures.look(3 * 300, true), Some(3 * 56));
        assert!((0..120).all(|_| failures.look(3 * 300, false).is_none()));
        assert_eq!(failures.look(3 * 300 + 1, false), Some(1));
        assert_eq!(failures.look(5, false), None);
        assert_eq!(failures.look(6, false), Some(1));
    }

    #[test]
    fn a_failure_after_a_recovery_is_said_at_once() {
        // Reads: nothing failed for a while, and the pace of before is not kept.
        let mut failures = Failures::default();
        assert_eq!(
            (1..=70)
                .filter_map(|n| failures.look(n, false))
                .sum::<u64>(),
            64
        );
        assert!((0..11).all(|_| failures.look(70, false).is_none()));
        assert_eq!(failures.look(71, false), Some(7));
        assert_eq!(failures.look(72, false), Some(1), "and soon again");
        // Writes: the volume works again, and fails between two looks at its state.
        let said = logged(|watcher, began| {
            for second in 1..=40 {
                let mut now = reading(began, second, State::Retrying);
                now.volumes[1].numbers.errors = second;
                watcher.look(&now);
            }
            for (second, errors) in [(41, 41), (42, 42)] {
                let mut now = reading(began, second, State::Ok);
                now.volumes[1].numbers.errors = errors;
                watcher.look(&now);
            }
        });
        let last: Vec<&str> = said[said.len() - 3..]
            .iter()
            .map(|line| &line[..line.find(" cause=").unwrap_or(line.len())])
            .collect();
        let failed = "warn msg=\"writing to the backing failed\" volume=data/backup failures=";
        assert_eq!(
            last,
            [
                &format!("{failed}9"),
                "info msg=\"volume works again\" volume=data/backup before=retrying",
                &format!("{failed}1"),
            ]
        );
    }

    /// The words of a watcher, without the time.
    fn logged(looks: impl FnOnce(&mut Watcher, Instant)) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let sink = move |line: &[u8]| {
            into.lock().unwrap().extend_from_slice(line);
            true
        };
        let log = Log::new(Format::Logfmt, Level::Info, Box::new(sink));
        tracing::subscriber::with_default(log, || {
            looks(&mut Watcher::default(), Instant::now());
        });
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| line.split_once(" level=").unwrap().1.to_owned())
            .collect()
    }

    #[test]
    fn a_backing_that_is_lost_is_said_once() {
        let said = logged(|watcher, began| {
            for second in 1..=3 {
                let mut now = reading(began, second, State::Ok);
                now.volumes[1].lost = (second > 1).then(|| "it was removed".to_owned());
                watcher.look(&now);
            }
        });
        assert_eq!(
            said,
            ["error msg=\"the backing is lost\" volume=data/backup cause=\"it was removed\""]
        );
    }

    #[test]
    fn changes_are_said_once_and_failures_with_their_number() {
        let said = logged(|watcher, began| {
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
                now.volumes[1].numbers.errors = errors;
                if second >= 5 {
                    now.volumes[1].numbers.read_failed_total = 8192;
                    now.volumes[1].last_read_error = Some("the device is gone".to_owned());
                }
                watcher.look(&now);
            }
        });
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
