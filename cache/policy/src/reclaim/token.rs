//! Tidegate's own: where what tasks use together does not fit, one at a time brings its memory
//! back.
//!
//! Several tasks that walk over more than there is push each other's pages out in the order in
//! which they will be wanted: under a fair hand all of them wait for the disk at each step, and
//! nothing gets done. So while memory is short a task that wants pages back that were taken from it
//! needs the *token*. Its holder reads at the speed of the device until its memory is there and it
//! asks no more; it then runs without asking, and as its pages are used all the time, reclaim
//! passes them by and takes those of the tasks that are *held*. These come in page by page, one
//! each `HELD`, so that none stands still.
//!
//! ```text
//!   asks -> nobody holds, or the holder has not asked for IDLE, or held for LONGEST -> holds: go
//!        -> holds: go
//!        -> another holds: pause, at most HELD, less if the token may pass on before; then one page, alone
//! ```
//!
//! Invariants
//!   1. No pause is longer than `HELD`, a tick more or less.
//!   2. A holder that asks no more loses the token after `IDLE`; a holder that always asks, after
//!      `LONGEST`, if anybody waits for it.
//!
//! Concurrency: plain data behind a short lock of `mm`; asked once for each page that is read back.
//!
//! Source: ours, docs/adr/0014. The idea is P. Denning's load control and the kernel's swap token
//! (2.6.9 to 3.4, mm/thrash.c), which protected a holder's pages but held nobody back.

use crate::ticks::TickRate;
use crate::units::{Instant, Nanos};

/// A task that is held may read a page back each so often.
pub const HELD: Nanos = Nanos::millis(200);
/// A holder that has not asked for this long has its memory: longer than a slow read.
const IDLE: Nanos = Nanos::millis(100);
/// Nobody holds it longer while others wait: several times what a disk needs to bring a gibibyte
/// back.
const LONGEST: Nanos = Nanos::secs(20);

/// The answer to a task that wants a page back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It reads the page and what lies beside it.
    Go,
    /// It pauses until then, and asks again with `paused`.
    Pause(Instant),
    /// It reads this page alone.
    OnePage,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    task: u32,
    since: Instant,
    asked: Instant,
}

/// The right to bring one's memory back.
#[derive(Clone, Debug)]
pub struct Token {
    rate: TickRate,
    holder: Option<Holder>,
    /// When somebody was last turned away: others wait.
    refused: Option<Instant>,
}

impl Token {
    /// # Panics
    /// Unless `hz` lies in 1..=10000.
    #[must_use]
    pub fn new(hz: u32) -> Self {
        Self {
            rate: TickRate::new(hz),
            holder: None,
            refused: None,
        }
    }

    /// A task asks for a page while memory is short. `paused`: it has just paused for this page
    /// since then.
    pub fn ask(&mut self, now: Instant, task: u32, paused: Option<Instant>) -> Entry {
        let Some(holder) = &mut self.holder else {
            return self.hold(now, task);
        };
        let mine = holder.task == task;
        let idle = now.since(holder.asked) >= IDLE;
        let waited_for = self
            .refused
            .is_some_and(|then| now.since(then) <= HELD + HELD);
        let overstayed = waited_for && now.since(holder.since) >= LONGEST;
        if mine && !overstayed {
            holder.asked = now;
            return Entry::Go;
        }
        if !mine && (idle || overstayed) {
            return self.hold(now, task);
        }
        let passes = (holder.asked + IDLE).min(holder.since + LONGEST);
        if !mine {
            self.refused = Some(now);
        }
        if paused.is_some_and(|began| now.since(began) >= HELD) {
            return Entry::OnePage;
        }
        let until = (paused.unwrap_or(now) + HELD).min(passes.max(now));
        let rate = self.rate;
        let ticks = rate.tick_at(until).since(rate.tick_at(now));
        let fires = rate.fires(rate.tick_at(now), ticks);
        Entry::Pause(rate.instant_of(fires))
    }

    /// True if a task holds it.
    #[must_use]
    pub fn is_held_by(&self, task: u32) -> bool {
        self.holder.is_some_and(|holder| holder.task == task)
    }

    fn hold(&mut self, now: Instant, task: u32) -> Entry {
        self.holder = Some(Holder {
            task,
            since: now,
            asked: now,
        });
        Entry::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0) + Nanos::millis(ms)
    }

    #[test]
    fn the_holder_goes_on_and_others_pause() {
        let mut token = Token::new(250);
        for ms in (0..1000).step_by(10) {
            assert_eq!(token.ask(at(ms), 1, None), Entry::Go);
        }
        assert_eq!(
            token.ask(at(1000), 2, None),
            Entry::Pause(at(1092)),
            "the holder may be done"
        );
    }

    #[test]
    fn one_that_is_held_gets_a_page_now_and_then() {
        let mut token = Token::new(250);
        let (mut began, mut pages, mut until) = (0, 0, 0);
        for ms in 0..4000 {
            assert_eq!(token.ask(at(ms), 1, None), Entry::Go);
            if ms < until {
                continue;
            }
            let paused = (until > 0).then_some(at(began));
            match token.ask(at(ms), 2, paused) {
                Entry::Go => panic!("{ms}: another holds"),
                Entry::OnePage => (pages, until) = (pages + 1, 0),
                Entry::Pause(deadline) => {
                    if until == 0 {
                        began = ms;
                    }
                    until = deadline.0 / 1_000_000;
                    assert!(until > ms && until <= began + 204, "{began} {ms} {until}");
                }
            }
        }
        assert!((18..=20).contains(&pages), "{pages}: one in about 200 ms");
    }

    #[test]
    fn it_passes_on_when_the_holder_asks_no_more() {
        let mut token = Token::new(250);
        assert_eq!(token.ask(at(0), 1, None), Entry::Go);
        assert!(matches!(token.ask(at(50), 2, None), Entry::Pause(_)));
        assert_eq!(token.ask(at(104), 2, Some(at(50))), Entry::Go);
        assert!(matches!(token.ask(at(110), 1, None), Entry::Pause(_)));
    }

    #[test]
    fn nobody_holds_it_for_ever_if_others_wait() {
        let mut token = Token::new(250);
        let mut refused = None;
        for ms in (0..25_000).step_by(20) {
            if ms % 200 == 100 {
                let _ = token.ask(at(ms), 2, None);
            }
            if token.ask(at(ms), 1, None) != Entry::Go {
                refused = refused.or(Some(ms));
            }
        }
        assert_eq!(refused, Some(20_000), "while another waits");
        let mut alone = Token::new(250);
        for ms in (0..60_000).step_by(20) {
            assert_eq!(alone.ask(at(ms), 1, None), Entry::Go, "nobody else asks");
        }
    }
}
