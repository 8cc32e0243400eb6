//! A cache in a control group: it gives way before the kernel kills.
//!
//! ```text
//!   thread: 4 looks a second ──> Rule ──> ceiling ──> the limit in force = min(asked for, ceiling)
//! ```
//! A group's limit may be lowered while the cache runs, and others in the group may want memory
//! too. The cache's memory is anonymous memory that the kernel cannot take back: at the limit it
//! kills. So the cache looks at the limit, at what of the group's memory cannot be taken, and at
//! the pressure (PSI), and takes less in time. It takes more again, step by step, when all of that
//! has been quiet for a while.
//!
//! Invariants
//!   1. The ceiling is never above `ROOM` below the group's limit.
//!   2. It falls by a step a look at most while somebody is pressed, to a quarter of what the cache
//!      was built with at least; a lower limit of the group is followed at once.
//!   3. It rises by a step a second at most, after ten quiet seconds.
//!
//! Bounds: a limit that is written below what is in use at that moment kills at once; nobody can
//! give way in time. Lower it in steps, or lower `memory.high` first.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use os::Groups;

use crate::error::NO_DESCRIPTORS;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// Of a group's limit, what the kernel is left for its own part of it: page tables, sockets,
/// stacks. GUESS.
const ROOM: u64 = 16;
/// The group is full if no more than this part of its limit is left. GUESS.
const FULL: u64 = 32;
/// Stalled for longer than this part of a period is pressure. GUESS.
const PRESSED: u32 = 10;
/// Of what a cache was built with: a step, and what is left to it whatever happens.
const STEP: u64 = 16;
const LEAST: u64 = 4;
/// Looks until it is quiet, and then between two steps up.
const QUIET: u32 = 40;
const APART: u32 = 4;

/// A look at the groups.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// The smallest limit.
    limit: Option<u64>,
    /// The part of that group's memory that cannot be taken.
    unmovable: Option<u64>,
    /// The time that somebody was stalled, ever.
    stalled: Option<Duration>,
}

impl Look {
    /// `None`: the process has no descriptor for it, and each file would look as if it were not
    /// there. A limit that is not seen is not gone.
    fn at(groups: &Groups) -> Option<Self> {
        let opened = std::fs::File::open("/");
        let errno = opened.err().and_then(|error| error.raw_os_error());
        if errno.is_some_and(|errno| NO_DESCRIPTORS.contains(&errno)) {
            return None;
        }
        let limit = groups.limit();
        Some(Self {
            unmovable: limit.as_ref().and_then(|limit| groups.unmovable(limit)),
            limit: limit.map(|limit| limit.bytes),
            stalled: groups.stalled(),
        })
    }
}

/// The rule of how much a cache may take, by the looks at its group.
#[derive(Clone, Debug)]
struct Rule {
    built: u64,
    ceiling: u64,
    stalled: Option<Duration>,
    quiet: u32,
}

impl Rule {
    fn new(built: u64) -> Self {
        Self {
            built,
            ceiling: built,
            stalled: None,
            quiet: 0,
        }
    }

    /// The ceiling after a look.
    fn look(&mut self, look: Look) -> u64 {
        let before = core::mem::replace(&mut self.stalled, look.stalled);
        let stalled = before.zip(look.stalled);
        // Without a limit nobody is killed for it: the system's own shortage is for the system.
        let is_stalled = look.limit.is_some()
            && stalled.is_some_and(|(before, now)| now.saturating_sub(before) > PERIOD / PRESSED);
        let is_full = look
            .limit
            .zip(look.unmovable)
            .is_some_and(|(limit, unmovable)| unmovable > limit - limit / FULL);
        let step = self.built / STEP;
        if is_stalled || is_full {
            self.quiet = 0;
            let least = (self.built / LEAST).min(self.ceiling);
            self.ceiling = self.ceiling.saturating_sub(step).max(least);
        } else {
            self.quiet += 1;
            if self.quiet > QUIET && self.quiet.is_multiple_of(APART) {
                self.ceiling = self.ceiling.saturating_add(step);
            }
        }
        let most = look.limit.map_or(u64::MAX, |limit| limit - limit / ROOM);
        self.ceiling = self.ceiling.min(self.built).min(most);
        self.ceiling
    }
}

/// Looks at the groups for as long as it is there.
pub(crate) struct Follower {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Follows the groups of this process for a cache that was built with so much, if they could
    /// bound it. The first look is made before this returns; where there is no thread for the
    /// others, it is the only one.
    pub(crate) fn start(built: u64, follow: impl Fn(u64) + Send + 'static) -> Option<Self> {
        let groups = Groups::of_process();
        if !groups.is_bounded() {
            return None;
        }
        let (mut rule, mut followed) = (Rule::new(built), built);
        let mut look = move || {
            let Some(look) = Look::at(&groups) else {
                return;
            };
            let ceiling = rule.look(look);
            if core::mem::replace(&mut followed, ceiling) != ceiling {
                follow(ceiling);
            }
        };
        look();
        let (stop, stopped) = channel();
        let thread = os::spawn(
            std::thread::Builder::new().name("group".into()),
            move || {
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    look();
                }
            },
        );
        Some(Self {
            stop: Some(stop),
            thread: thread.ok(),
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A process of its own: it has no descriptors left.
    #[test]
    fn without_a_descriptor_a_limit_is_not_gone() {
        let run =
            "ulimit -n 40; exec \"$0\" --exact --ignored group::tests::with_no_descriptor_left";
        let mut command = std::process::Command::new("sh");
        let own = std::env::current_exe().unwrap();
        let output = command.args(["-c", run]).arg(own).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("1 passed"), "{output:?}");
    }

    #[test]
    #[ignore = "run by the test above, in a process of its own"]
    fn with_no_descriptor_left() {
        let groups = Groups::of_process();
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        assert!(Look::at(&groups).is_none());
        taken.pop();
        assert!(Look::at(&groups).is_some());
    }

    fn looks(rule: &mut Rule, look: Look, times: u32) -> u64 {
        (0..times).fold(0, |_, _| rule.look(look))
    }

    #[test]
    fn a_lower_limit_is_followed_at_once_and_a_higher_one_step_by_step() {
        let mut rule = Rule::new(400 * MIB);
        let of = |limit: u64| Look {
            limit: Some(limit * MIB),
            ..Look::default()
        };
        assert_eq!(rule.look(Look::default()), 400 * MIB, "no limit");
        assert_eq!(rule.look(of(1024)), 400 * MIB);
        assert_eq!(rule.look(of(400)), 375 * MIB, "some is the kernel's");
        assert_eq!(rule.look(of(160)), 150 * MIB);
        assert_eq!(looks(&mut rule, of(400), QUIET - 4), 150 * MIB);
        assert_eq!(looks(&mut rule, of(400), 4), 175 * MIB);
        assert_eq!(looks(&mut rule, of(400), 400), 375 * MIB);
        assert_eq!(looks(&mut rule, Look::default(), 4), 400 * MIB);
    }

    #[test]
    fn under_pressure_it_takes_less_but_not_nothing() {
        let mut rule = Rule::new(160 * MIB);
        let stalled = |ms| Look {
            limit: Some(1024 * MIB),
            stalled: Some(Duration::from_millis(ms)),
            ..Look::default()
        };
        // Stalls before it began are not its own.
        assert_eq!(rule.look(stalled(90_000)), 160 * MIB);
        assert_eq!(rule.look(stalled(90_020)), 160 * MIB);
        assert_eq!(rule.look(stalled(90_100)), 150 * MIB);
        assert_eq!(rule.look(stalled(90_200)), 140 * MIB);
        for look in 1..100 {
            rule.look(stalled(90_200 + 100 * look));
        }
        assert_eq!(rule.ceiling, 40 * MIB);
        let mut rule = Rule::new(160 * MIB);
        for look in 0..9 {
            let limit = None;
            let unbounded = Look {
                limit,
                ..stalled(100 * look)
            };
            assert_eq!(rule.look(unbounded), 160 * MIB, "no limit, no end");
        }
    }

    #[test]
    fn a_group_that_is_full_of_what_cannot_be_taken_is_pressure() {
        let mut rule = Rule::new(160 * MIB);
        let full = |mib: u64| Look {
            limit: Some(320 * MIB),
            unmovable: Some(mib * MIB),
            stalled: None,
        };
        assert_eq!(rule.look(full(310)), 160 * MIB);
        assert_eq!(rule.look(full(311)), 150 * MIB);
    }

    #[test]
    fn it_looks_and_ends() {
        let follower = Follower::start(u64::MAX, |_| ());
        let began = std::time::Instant::now();
        drop(follower);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
