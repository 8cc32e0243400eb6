//! A backing that makes clients wait: since when, at what rate, and what it was before.
//!
//! ```text
//!   a look a second ──> waits are long, or writers are held ──for 10 s, for 60 s──> slow ──5 s of neither──> not slow
//! ```
//! Writers that are held are no fault by themselves: they go at the backing's pace. It is slow if
//! clients notice (requests that take long), if its rate is less than half of what it was within
//! the last hour, or if that goes on for a minute.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::show_size;
use crate::counters::{Kind, Latencies};

/// Between two looks, at least.
const EVERY: Duration = Duration::from_millis(900);
/// Looks that a rate is of.
const WINDOW: usize = 10;
/// Long waits for so long are a slow backing, and held writers whose rate has fallen.
const LONG: Duration = Duration::from_secs(10);
/// Held writers are, after so long.
const HELD: Duration = Duration::from_secs(60);
/// Neither for so long: it is over.
const OVER: Duration = Duration::from_secs(5);
/// A rate of before counts for so long.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// The oldest request under way that is long by itself.
const OLD: Duration = Duration::from_secs(2);
/// Kinds whose waits are looked at, in words, and from which bucket of their times on a wait is
/// long: from 0.26 s on; flushes, which have all that is dirty to write, from 2.1 s on.
const KINDS: [(Kind, &str, usize); 3] = [
    (Kind::Read, "reads", 19),
    (Kind::Write, "writes", 19),
    (Kind::Flush, "flushes", 22),
];
/// So much of the requests of a look, in per cent, makes it one of long waits.
const SHARE: u64 = 5;

/// The figures of one look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Ever written to and read from the backing, bytes.
    pub(crate) moved: [u64; 2],
    /// Replies ever held back.
    pub(crate) held: u64,
    /// Age of the oldest request under way.
    pub(crate) oldest: Duration,
    /// The times of requests, by `KINDS`.
    pub(crate) times: [Latencies; KINDS.len()],
}

impl Sample {
    /// The times of requests that are looked at.
    pub(crate) fn times(of: impl Fn(Kind) -> Latencies) -> [Latencies; KINDS.len()] {
        KINDS.map(|(kind, ..)| of(kind))
    }
}

/// A backing that is slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// For how long clients have waited for it.
    pub(crate) since: Duration,
    /// The cause, in words: requests, their backing, its rate.
    pub(crate) why: String,
}

/// The looks at a backing.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Sample>,
    /// When, and bytes ever written and read by then.
    window: VecDeque<(Instant, [u64; 2])>,
    /// The highest rates, bytes a second, and when they were.
    best: [Option<(u64, Instant)>; 2],
    /// The first and the last look with long waits, and with held writers.
    long: Option<(Instant, Instant)>,
    held: Option<(Instant, Instant)>,
    /// Those of `KINDS` that had long waits last.
    waiting: [bool; KINDS.len()],
    slow: Option<Slow>,
}

impl Pace {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look at the backing at `place`; more than one a second are one.
    pub(crate) fn look(&self, now: Sample, place: &str) -> Option<Slow> {
        let mut state = self.state();
        let is_new = |last: &Sample| now.at.saturating_duration_since(last.at) >= EVERY;
        if state.last.as_ref().is_none_or(is_new) {
            state.take(now, place);
        }
        state.slow.clone()
    }

    /// Why clients wait, if it is slow.
    pub(crate) fn why(&self) -> Option<String> {
        self.state().slow.as_ref().map(|slow| slow.why.clone())
    }
}

impl State {
    fn take(&mut self, now: Sample, place: &str) {
        let Some(last) = self.last.replace(now) else {
            self.window.push_back((now.at, now.moved));
            return;
        };
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        self.window.push_back((now.at, now.moved));
        let rates = [0, 1].map(|at| self.rate(at));
        let waits = [0, 1, 2].map(|at| is_long(&now.times[at], &last.times[at], KINDS[at].2));
        if waits.contains(&true) {
            self.waiting = waits;
        }
        note(
            &mut self.long,
            now.at,
            waits.contains(&true) || now.oldest >= OLD,
        );
        note(&mut self.held, now.at, now.held > last.held);
        let lasts = |of: Option<(Instant, Instant)>| {
            of.map_or(Duration::ZERO, |(first, _)| {
                now.at.saturating_duration_since(first)
            })
        };
        let (long, held) = (lasts(self.long), lasts(self.held));
        let has_fallen = self.best[0].is_some_and(|(best, _)| rates[0] < best / 2);
        let is_slow = long >= LONG || held >= HELD || held >= LONG && has_fallen;
        self.slow = is_slow.then(|| Slow {
            since: long.max(held),
            why: self.words(rates, held >= LONG, place),
        });
        for (best, rate) in self.best.iter_mut().zip(rates) {
            let is_past = best.is_none_or(|(best, at)| {
                rate >= best || now.at.saturating_duration_since(at) > REMEMBERED
            });
            if is_past && self.window.len() > WINDOW {
                *best = Some((rate, now.at));
            }
        }
    }

    /// Bytes a second over the window.
    fn rate(&self, which: usize) -> u64 {
        let (Some((from, before)), Some((to, now))) = (self.window.front(), self.window.back())
        else {
            return 0;
        };
        let millis = to.saturating_duration_since(*from).as_millis().max(1);
        let moved = u128::from(now[which].saturating_sub(before[which]));
        u64::try_from(moved * 1000 / millis).unwrap_or(u64::MAX)
    }

    fn words(&self, rates: [u64; 2], is_held: bool, place: &str) -> String {
        let mut who: Vec<&str> = Vec::new();
        if self.long.is_some() {
            let waiting = KINDS.iter().zip(self.waiting).filter(|(_, waits)| *waits);
            who.extend(waiting.map(|((_, words, _), _)| *words));
        }
        if is_held && !who.contains(&"writes") {
            who.push("writes");
        }
        // Nothing has ended since they began to wait.
        let who = if who.is_empty() {
            "requests".to_owned()
        } else {
            who.join(" and ")
        };
        let (which, verb) = if who == "reads" {
            (1, "gives")
        } else {
            (0, "takes")
        };
        let before = match self.best[which] {
            Some((best, _)) if best / 2 > rates[which] => {
                format!("; it was {}/s within the last hour", show_size(best))
            }
            _ => String::new(),
        };
        format!(
            "{who} wait for {place}, which {verb} {}/s{before}",
            show_size(rates[which])
        )
    }
}

/// Begins a time at a look that is `so`, goes on with it, or ends it after a while of others.
fn note(time: &mut Option<(Instant, Instant)>, now: Instant, so: bool) {
    match time {
        Some((_, last)) if so => *last = now,
        None if so => *time = Some((now, now)),
        Some((_, last)) if now.saturating_duration_since(*last) >= OVER => *time = None,
        _ => {}
    }
}

/// True if enough of the requests that have ended since then took long.
fn is_long(now: &Latencies, before: &Latencies, from: usize) -> bool {
    let grown = now.buckets.iter().zip(before.buckets);
    let grown: Vec<u64> = grown
        .map(|(now, before)| now.saturating_sub(before))
        .collect();
    let (all, long): (u64, u64) = (grown.iter().sum(), grown[from..].iter().sum());
    long > 0 && long * 100 >= all * SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Histogram;

    /// A server second by second.
    struct Rig {
        pace: Pace,
        now: Sample,
        times: [Histogram; KINDS.len()],
    }

    impl Rig {
        fn new() -> Self {
            Self {
                pace: Pace::default(),
                now: Sample {
                    at: Instant::now(),
                    moved: [0; 2],
                    held: 0,
                    oldest: Duration::ZERO,
                    times: Default::default(),
                },
                times: Default::default(),
            }
        }

        /// Seconds in which bytes are written, replies are held, and requests of a kind take long.
        fn goes(
            &mut self,
            seconds: u64,
            written: u64,
            held: u64,
            took: &[(usize, u64)],
        ) -> Option<Slow> {
            let mut slow = None;
            for _ in 0..seconds {
                self.now.at += Duration::from_secs(1);
                self.now.moved[0] += written;
                self.now.moved[1] += written / 4;
                self.now.held += held;
                for (kind, millis) in took {
                    self.times[*kind].note_many(Duration::from_millis(*millis), 10);
                }
                self.now.times = core::array::from_fn(|at| self.times[at].read());
                slow = self.pace.look(self.now, "/srv/a.img on /dev/sdb");
            }
            slow
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn held_writers_are_slow_after_a_minute_or_when_the_rate_has_fallen() {
        let mut rig = Rig::new();
        assert_eq!(rig.goes(50, 80 * MIB, 9, &[(1, 20)]), None, "at its pace");
        let slow = rig.goes(15, 80 * MIB, 9, &[(1, 20)]).unwrap();
        assert_eq!(
            slow.why,
            "writes wait for /srv/a.img on /dev/sdb, which takes 80 MiB/s"
        );
        assert_eq!(slow.since, Duration::from_secs(63));
        assert_eq!(rig.goes(5, 0, 0, &[]), None, "nobody waits any more");
        assert_eq!(rig.goes(9, 4 * MIB, 9, &[(1, 20)]), None);
        let slow = rig.goes(4, 4 * MIB, 9, &[(1, 20)]).unwrap();
        let told = "which takes 4 MiB/s; it was 80 MiB/s within the last hour";
        assert!(slow.why.ends_with(told), "{slow:?}");
        // A rate of more than an hour ago is nothing to go by.
        assert_eq!(rig.goes(3700, 4 * MIB, 0, &[]), None);
        let slow = rig.goes(62, 4 * MIB, 9, &[]).unwrap();
        assert!(slow.why.ends_with("takes 4 MiB/s"), "{slow:?}");
    }

    #[test]
    fn each_kind_of_request_that_takes_long_is_named_and_others_are_not() {
        for (at, (_, words, _)) in KINDS.iter().enumerate() {
            let mut rig = Rig::new();
            let (short, long) = if at == 2 { (1000, 3000) } else { (100, 600) };
            assert_eq!(rig.goes(30, MIB, 0, &[(at, short)]), None, "{words}");
            let slow = rig.goes(12, MIB, 0, &[(at, long)]).unwrap();
            assert!(
                slow.why.starts_with(&format!("{words} wait for ")),
                "{slow:?}"
            );
            assert!(
                slow.why.contains(if at == 0 {
                    "gives 256 KiB/s"
                } else {
                    "takes 1 MiB/s"
                }),
                "{slow:?}"
            );
            assert_eq!(rig.goes(6, MIB, 0, &[(at, short)]), None, "{words}");
        }
        let mut rig = Rig::new();
        rig.goes(2, MIB, 0, &[]);
        rig.now.oldest = 2 * OLD;
        let slow = rig.goes(12, 0, 0, &[]).unwrap();
        assert!(slow.why.starts_with("requests wait for "), "{slow:?}");
    }

    #[test]
    fn looks_within_a_second_are_one() {
        let mut rig = Rig::new();
        rig.goes(1, MIB, 0, &[]);
        for _ in 0..1000 {
            rig.now.at += Duration::from_millis(1);
            rig.pace.look(rig.now, "x");
        }
        assert!(rig.pace.state().window.len() <= 3);
    }
}
