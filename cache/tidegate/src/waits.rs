//! Where the time of a call goes: the waits of one call in their order, and by cause over all calls
//! on a file, of a writer, on a volume.
//!
//! ```text
//!   call begins --> waits of this thread, as events tell them --> call ends --> sums of its file, its writer
//!                                                                          '--> SlowCall, if it took that long
//! ```
//!
//! A call without a wait touches no sum. The clock is read only in a cache that was built with
//! `Builder::on_slow`: there the rest of the time (`own`: copying, looking up, and being without a
//! CPU) is a sum like the others, and all of them together are the time of the calls.
//!
//! Concurrency: the waits of a call are its thread's own; sums are locked when a call that waited
//! ends. A call from within another (`File::show_at`) has its waits to itself: to the outer one it
//! is own time.

use core::fmt;
use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use env::Cause;

use crate::causes::{CAUSES, name_of};

/// Waits of one call that are kept one after the other; later ones join those of their cause, for
/// which there is always room.
const STEPS: usize = 48;
const ORDERED: usize = STEPS - CAUSES.len() - 1;

/// Waits of one cause, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWait {
    /// The cause, as [`Wait::cause`](crate::Wait::cause).
    pub cause: &'static str,
    /// Number of waits.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
}

/// A call that took as long as [`Builder::on_slow`](crate::Builder::on_slow) says, or longer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowCall<'a> {
    /// The call: `write`, `read`, `sync` ...
    pub call: &'static str,
    /// The file that it was on.
    pub path: &'a Path,
    /// From which byte on.
    pub offset: u64,
    /// Number of bytes; zero of a call on the whole file.
    pub len: u64,
    /// The length of the call.
    pub took: Duration,
    /// Its waits, in their order.
    pub waits: Vec<CallWait>,
    /// The part of `took` that was no wait.
    pub own: Duration,
}

impl fmt::Display for SlowCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.call)?;
        // A call on the whole file has no place in it.
        if self.len > 0 {
            write!(f, "{} bytes at {} of ", self.len, self.offset)?;
        }
        write!(f, "{} took {:.1?}:", self.path.display(), self.took)?;
        for wait in &self.waits {
            write!(f, " {} {:.1?},", wait.cause, wait.total)?;
        }
        write!(f, " own time {:.1?}", self.own)
    }
}

/// The waits of all calls of a file, a writer or a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallWaits {
    /// By cause, those that took longest first.
    pub by_cause: Vec<CallWait>,
    /// The longest single wait.
    pub longest: Option<CallWait>,
    /// Calls whose time was taken: all, in a cache with `Builder::on_slow`; else none.
    pub timed: u64,
    /// The part of their time that was no wait.
    pub own: Duration,
}

#[derive(Clone, Copy, Default)]
struct Step {
    cause: Option<Cause>,
    count: u64,
    nanos: u64,
}

impl Step {
    fn told(self) -> Option<CallWait> {
        Some(CallWait {
            cause: name_of(self.cause?),
            count: self.count,
            total: Duration::from_nanos(self.nanos),
        })
    }
}

/// Calls that this thread is in, one within the other.
struct Calls {
    depth: u32,
    /// The first of the innermost one's steps.
    from: usize,
    steps: [Step; STEPS],
    len: usize,
}

thread_local! {
    static CALLS: RefCell<Calls> = const {
        RefCell::new(Calls {
            depth: 0,
            from: 0,
            steps: [Step { cause: None, count: 0, nanos: 0 }; STEPS],
            len: 0,
        })
    };
}

impl Calls {
    fn note(&mut self, cause: Cause, nanos: u64) {
        if self.depth == 0 {
            return;
        }
        let own = &mut self.steps[self.from..self.len];
        let last = own.last_mut().filter(|step| step.cause == Some(cause));
        let same = match last {
            Some(step) => Some(step),
            None if self.len - self.from < ORDERED && self.len < STEPS => None,
            None => own.iter_mut().find(|step| step.cause == Some(cause)),
        };
        match same {
            Some(step) => {
                step.count += 1;
                step.nanos += nanos;
            }
            None if self.len < STEPS => {
                let cause = Some(cause);
                self.steps[self.len] = Step {
                    cause,
                    count: 1,
                    nanos,
                };
                self.len += 1;
            }
            // Calls so deep within each other: it is own time.
            None => {}
        }
    }
}

/// A wait of this thread has ended.
pub(crate) fn note(cause: Cause, nanos: u64) {
    // A thread that ends has no calls any more.
    let _ = CALLS.try_with(|calls| {
        if let Ok(mut calls) = calls.try_borrow_mut() {
            calls.note(cause, nanos);
        }
    });
}

/// Sums over calls.
#[derive(Debug, Default)]
pub(crate) struct Sums(Mutex<Totals>);

#[derive(Clone, Debug, Default)]
struct Totals {
    by: [(u64, u64); CAUSES.len()],
    longest: Option<(Cause, u64)>,
    timed: u64,
    own: u64,
}

impl Sums {
    fn add(&self, steps: &[Step], own: Option<u64>) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for step in steps {
            let Some(cause) = step.cause else { continue };
            if let Some(at) = CAUSES.iter().position(|(known, ..)| *known == cause) {
                totals.by[at].0 += step.count;
                totals.by[at].1 += step.nanos;
            }
            // Of several in a row, their mean: what one of them was at least.
            let one = step.nanos / step.count.max(1);
            if totals.longest.is_none_or(|(_, longest)| one > longest) {
                totals.longest = Some((cause, one));
            }
        }
        if let Some(own) = own {
            totals.timed += 1;
            totals.own += own;
        }
    }

    pub(crate) fn read(&self) -> CallWaits {
        let totals = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let of = |cause, (count, nanos): (u64, u64)| CallWait {
            cause,
            count,
            total: Duration::from_nanos(nanos),
        };
        let all = CAUSES.iter().zip(totals.by);
        let some = all.filter(|(_, (count, _))| *count > 0);
        let mut by_cause: Vec<CallWait> = some.map(|((_, name, _), sum)| of(name, sum)).collect();
        by_cause.sort_by_key(|wait| core::cmp::Reverse(wait.total));
        CallWaits {
            by_cause,
            longest: totals
                .longest
                .map(|(cause, nanos)| of(name_of(cause), (1, nanos))),
            timed: totals.timed,
            own: Duration::from_nanos(totals.own),
        }
    }
}

/// From when on a call is slow, and who is told.
#[derive(Clone)]
pub(crate) struct OnSlow {
    pub(crate) least: Duration,
    pub(crate) tell: Arc<dyn Fn(&SlowCall<'_>) + Send + Sync>,
}

impl fmt::Debug for OnSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnSlow").field(&self.least).finish()
    }
}

/// A call, and its range.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) call: &'static str,
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A call that is under way on this thread; it ends when this is dropped.
pub(crate) struct Call<'a> {
    sums: &'a Sums,
    writer: Option<&'a Sums>,
    timed: Option<(Instant, &'a OnSlow, Named<'a>)>,
    /// The first of the outer call's steps.
    outer: usize,
    #[cfg(feature = "tracing")]
    span: Option<tracing::span::EnteredSpan>,
}

impl<'a> Call<'a> {
    /// A call on a file begins.
    pub(crate) fn of_file(
        sums: &'a Sums,
        writer: Option<&'a Sums>,
        named: Named<'a>,
        slow: Option<&'a OnSlow>,
    ) -> Self {
        #[cfg_attr(
            not(feature = "tracing"),
            expect(unused_mut, reason = "a span, with the feature")
        )]
        let mut call = Self::begin(sums, writer, slow.map(|slow| (slow, named)));
        #[cfg(feature = "tracing")]
        {
            call.span = Some(span(&named));
        }
        call
    }

    pub(crate) fn begin(
        sums: &'a Sums,
        writer: Option<&'a Sums>,
        named: Option<(&'a OnSlow, Named<'a>)>,
    ) -> Self {
        let outer = CALLS.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            let outer = calls.from;
            calls.depth += 1;
            calls.from = calls.len;
            outer
        });
        Self {
            sums,
            writer,
            timed: named.map(|(slow, named)| (Instant::now(), slow, named)),
            outer: outer.unwrap_or(0),
            #[cfg(feature = "tracing")]
            span: None,
        }
    }
}

/// The span of a call, entered; what it waited for is recorded at its end.
#[cfg(feature = "tracing")]
fn span(named: &Named<'_>) -> tracing::span::EnteredSpan {
    tracing::debug_span!(
        target: "tidegate",
        "call",
        call = named.call,
        path = %named.path.display(),
        offset = named.offset,
        len = named.len,
        waits = tracing::field::Empty,
    )
    .entered()
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let count = CALLS.try_with(|calls| {
            let calls = calls.borrow();
            calls.len - calls.from
        });
        let count = count.unwrap_or(0);
        if count == 0 {
            self.leave(&mut []);
            if self.timed.is_some() {
                self.tell(&[]);
            }
            return;
        }
        let mut kept = [Step::default(); STEPS];
        self.leave(&mut kept[..count]);
        self.tell(&kept[..count]);
    }
}

impl Call<'_> {
    /// This thread is in the outer call again; the steps go where they are wanted.
    fn leave(&self, steps: &mut [Step]) {
        let _ = CALLS.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            let from = calls.from;
            steps.copy_from_slice(&calls.steps[from..from + steps.len()]);
            calls.len = from;
            calls.from = self.outer;
            calls.depth = calls.depth.saturating_sub(1);
        });
    }

    /// Counts the call, and tells of it if it was slow.
    #[cold]
    fn tell(&self, steps: &[Step]) {
        #[cfg(feature = "tracing")]
        if let Some(span) = &self.span {
            let told = steps.iter().filter_map(|step| step.told());
            let words: Vec<String> = told
                .map(|wait| format!("{} {:.1?}", wait.cause, wait.total))
                .collect();
            span.record("waits", words.join(", "));
        }
        let took = self.timed.map(|(began, ..)| began.elapsed());
        let waited: u64 = steps.iter().map(|step| step.nanos).sum();
        let own = took.map(|took| took.saturating_sub(Duration::from_nanos(waited)));
        let nanos = own.map(|own| u64::try_from(own.as_nanos()).unwrap_or(u64::MAX));
        self.sums.add(steps, nanos);
        if let Some(writer) = self.writer {
            writer.add(steps, nanos);
        }
        let (Some((_, slow, named)), Some(took), Some(own)) = (self.timed, took, own) else {
            return;
        };
        if took >= slow.least && !std::thread::panicking() {
            (slow.tell)(&SlowCall {
                call: named.call,
                path: named.path,
                offset: named.offset,
                len: named.len,
                took,
                waits: steps.iter().filter_map(|step| step.told()).collect(),
                own,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(waits: &CallWaits) -> Vec<(&'static str, u64, u128)> {
        let of = |wait: &CallWait| (wait.cause, wait.count, wait.total.as_nanos());
        waits.by_cause.iter().map(of).collect()
    }

    #[test]
    fn waits_belong_to_the_call_they_are_in() {
        let (file, other, writer) = (Sums::default(), Sums::default(), Sums::default());
        note(Cause::ReadIo, 7);
        {
            let _outer = Call::begin(&file, Some(&writer), None);
            note(Cause::DirtyPause, 100);
            note(Cause::DirtyPause, 20);
            {
                let _inner = Call::begin(&other, None, None);
                note(Cause::ReadIo, 5);
            }
            note(Cause::Memory, 1);
        }
        note(Cause::ReadIo, 7);
        let expected = [("dirty pause", 2, 120), ("memory", 1, 1)];
        assert_eq!(shown(&file.read()), expected);
        assert_eq!(shown(&writer.read()), expected);
        assert_eq!(shown(&other.read()), [("read", 1, 5)]);
        assert_eq!(file.read().longest.unwrap().total.as_nanos(), 60);
    }

    #[test]
    fn a_call_of_many_waits_loses_none() {
        let sums = Sums::default();
        {
            let _call = Call::begin(&sums, None, None);
            for round in 0..1000 {
                note(CAUSES[round % CAUSES.len()].0, 3);
            }
        }
        let waits = sums.read();
        assert_eq!(waits.by_cause.len(), CAUSES.len());
        let all: u128 = waits
            .by_cause
            .iter()
            .map(|wait| wait.total.as_nanos())
            .sum();
        assert_eq!(all, 3000);
    }

    /// Waits and own time are all of it.
    #[test]
    fn what_a_slow_call_tells_adds_up() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let slow = OnSlow {
            least: Duration::ZERO,
            tell: Arc::new(move |call: &SlowCall<'_>| {
                let waits: Duration = call.waits.iter().map(|wait| wait.total).sum();
                assert_eq!(waits + call.own, call.took);
                tell.lock().unwrap().push(call.to_string());
            }),
        };
        let sums = Sums::default();
        let named = Named {
            call: "write",
            path: Path::new("/x"),
            offset: 4096,
            len: 10,
        };
        let call = Call::begin(&sums, None, Some((&slow, named)));
        note(Cause::PageBusy, 1);
        note(Cause::ReadIo, 2);
        note(Cause::PageBusy, 1);
        drop(call);
        // A call on the whole file has no place in it.
        let whole = Named {
            call: "sync",
            len: 0,
            ..named
        };
        drop(Call::begin(&sums, None, Some((&slow, whole))));
        let told = told.lock().unwrap();
        assert!(told[1].starts_with("sync of /x took "), "{}", told[1]);
        let ends = "page busy 1.0ns, read 2.0ns, page busy 1.0ns, own time ";
        assert!(
            told[0].starts_with("write of 10 bytes at 4096 of /x took "),
            "{}",
            told[0]
        );
        assert!(told[0].contains(ends), "{}", told[0]);
        assert_eq!(sums.read().timed, 2);
    }
}
