//! No wake-up is lost, and no dirty page escapes the law: `Task::wait_while`, `WaitQueue`, `Rounds`
//! and `policy::dirty::Untold` under every interleaving that loom finds.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-env --test loom --release`.
//!
//! The protocol: a waker changes the condition, then wakes; a waiter looks, takes its place in the
//! queue, looks again, then parks. The conditions below are relaxed atomics, so that nothing but
//! the two fences of the queue orders a change and a place against each other. A lost wake-up
//! leaves a thread parked for ever, which loom reports as a deadlock.
//!
//! Of dirty pages: a writer counts what it dirtied, then tells the law, some pages at a time; a
//! look reads the counters under the law's lock. Pages that stand between the two are in neither,
//! so a writer that asks afterwards would go on for longer than with all pages in sight.
#![cfg(loom)]

use std::task::{Wake, Waker};

use env::{
    Body, Cause, Env, Event, IoRequest, Local, NoThread, Rounds, Signal, Task, TaskId, Unparked,
    WaitQueue, Wakeup, Work,
};
use frames::Content;
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use policy::dirty::{
    Counts, DeviceIndex, DeviceTunables, Dirtyable, Domain, InitialBandwidth, Law, Teller,
    Threshold, Tunables, Untold,
};
use policy::units::{Instant, Pages};
use testkit::suite::TestContent;

/// Keeps one wake until the next park.
#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parker {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().expect("nobody panics under it") = true;
        self.changed.notify_one();
    }
}

/// The least `Env` that a wait needs. A deadline has passed when the task parks.
struct LoomEnv;

/// A task of it.
#[derive(Default)]
struct Parked(std::sync::Arc<Parker>);

/// A task of `env`, with a parker of its own.
fn task(env: &LoomEnv) -> Task<'_> {
    Task::new(env, std::rc::Rc::new(Parked::default()), TaskId(0))
}

impl Local for Parked {
    fn park(&self, deadline: Option<Instant>) -> Unparked {
        let mut woken = self.0.woken.lock().expect("nobody panics under it");
        if deadline.is_some() && !*woken {
            return Unparked::TimedOut;
        }
        while !*woken {
            woken = self.0.changed.wait(woken).expect("nobody panics under it");
        }
        *woken = false;
        Unparked::Woken
    }

    fn waker(&self) -> Waker {
        Waker::from(std::sync::Arc::clone(&self.0))
    }

    fn did(&self, _work: Work, _units: u64) {}

    fn cpu(&self) -> usize {
        0
    }

    fn random(&self) -> u64 {
        0
    }
}

impl Env for LoomEnv {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn submit(&self, _request: Box<IoRequest>) {
        unreachable!("the model has no devices")
    }

    fn spawn(&self, _name: &str, _body: Body) -> Result<(), NoThread> {
        unreachable!("the model starts its own threads")
    }

    fn emit(&self, _task: TaskId, _event: &Event) {}

    fn content(&self) -> std::sync::Arc<dyn Content> {
        std::sync::Arc::new(TestContent::new(0))
    }
}

/// A queue and the permits that its tasks wait for.
#[derive(Default)]
struct Gate {
    permits: AtomicUsize,
    taken: AtomicUsize,
    queue: WaitQueue,
}

impl Gate {
    fn give(&self) {
        self.permits.fetch_add(1, Ordering::Relaxed);
        self.queue.wake_one(Signal::Other);
    }

    fn take(&self) -> bool {
        let mut permits = self.permits.load(Ordering::Relaxed);
        while permits > 0 {
            let (new, order) = (permits - 1, Ordering::Relaxed);
            match self.permits.compare_exchange(permits, new, order, order) {
                Ok(_) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                Err(now) => permits = now,
            }
        }
        false
    }
}

/// Waits for a permit on a thread of its own.
fn taker(
    gate: &loom::sync::Arc<Gate>,
    deadline: Option<Instant>,
) -> loom::thread::JoinHandle<Wakeup> {
    let gate = loom::sync::Arc::clone(gate);
    loom::thread::spawn(move || {
        let mut task = task(&LoomEnv);
        task.wait_while(&gate.queue, Cause::Idle, deadline, |_| !gate.take())
    })
}

#[test]
fn a_change_and_a_wake_reach_the_waiter() {
    loom::model(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiter = taker(&gate, None);
        gate.give();
        assert!(waiter.join().expect("the waiter ends").is_ready());
        assert_eq!(gate.taken.load(Ordering::Relaxed), 1);
    });
}

/// A store and one `wake_all` free every waiter.
#[test]
fn wake_all_reaches_two_waiters() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiters = [taker(&gate, None), taker(&gate, None)];
        gate.permits.store(2, Ordering::Relaxed);
        gate.queue.wake_all(Signal::Other);
        for waiter in waiters {
            assert!(waiter.join().expect("a waiter ends").is_ready());
        }
    });
}

/// Two permits, one at a time, for two waiters.
#[test]
fn two_wakes_reach_two_waiters() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiters = [taker(&gate, None), taker(&gate, None)];
        gate.give();
        gate.give();
        for waiter in waiters {
            assert!(waiter.join().expect("a waiter ends").is_ready());
        }
        assert_eq!(gate.taken.load(Ordering::Relaxed), 2);
    });
}

/// One waiter gives up at any moment, one never does, and there is one permit for each that wants
/// one: whatever the first used up must reach the second.
#[test]
fn a_wake_used_up_by_a_deadline_is_passed_on() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        // Wants no permit and is gone at its deadline: a wake that it gets is another's.
        let passing = {
            let gate = loom::sync::Arc::clone(&gate);
            loom::thread::spawn(move || {
                let mut task = task(&LoomEnv);
                // Leaves the queue before it parks: the path on which a wake is used for nothing.
                let mut looks = 0;
                task.wait_while(&gate.queue, Cause::Idle, Some(Instant::ZERO), |_| {
                    looks += 1;
                    looks < 2
                })
            })
        };
        let waiter = taker(&gate, None);
        gate.give();
        passing.join().expect("the passing task ends");
        assert!(waiter.join().expect("the waiter ends").is_ready());
    });
}

/// One waiter gives up at its first park, one never does: with a permit for each, the patient one
/// gets one, no matter where the wakes went to.
#[test]
fn an_impatient_waiter_takes_no_wake_away() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let impatient = taker(&gate, Some(Instant::ZERO));
        let patient = taker(&gate, None);
        gate.give();
        gate.give();
        impatient.join().expect("the impatient waiter ends");
        assert!(patient.join().expect("the patient waiter ends").is_ready());
    });
}

/// A waiter whose deadline passes takes the permit or leaves it, and says which.
#[test]
fn a_timeout_and_a_permit_agree() {
    loom::model(|| {
        let gate = loom::sync::Arc::new(Gate::default());
        let waiter = taker(&gate, Some(Instant::ZERO));
        gate.give();
        let taken = usize::from(waiter.join().expect("the waiter ends").is_ready());
        assert_eq!(gate.taken.load(Ordering::Relaxed), taken);
        assert_eq!(gate.permits.load(Ordering::Relaxed), 1 - taken);
        assert!(gate.queue.is_empty());
    });
}

const DEVICE: DeviceIndex = DeviceIndex(0);
const MEMORY: Pages = Pages(2048);

/// The dirty pages of a device, and the law.
struct Dirtying {
    dirty: AtomicU64,
    domain: Mutex<Domain>,
}

impl Dirtying {
    fn new() -> loom::sync::Arc<Self> {
        let mut domain = Domain::new(
            Tunables {
                law: Law::TIDEGATE,
                hz: 1000,
                cpus: 1,
                memory: MEMORY,
                dirty: Threshold::Pages(Pages(1024)),
                background: Threshold::Pages(Pages(512)),
            },
            1,
        );
        domain.add_device(
            Instant::ZERO,
            DeviceTunables {
                min_ratio: 0,
                max_ratio: 10_000,
                strict: false,
                initial: InitialBandwidth::Learned,
            },
        );
        let world = Self {
            dirty: AtomicU64::new(0),
            domain: Mutex::new(domain),
        };
        world.look();
        loom::sync::Arc::new(world)
    }

    /// As `mm` looks: `writeback::balance`, `writeback::flush`.
    fn look(&self) {
        let mut domain = self.domain.lock().expect("nobody panics under it");
        let dirty = Pages(self.dirty.load(Ordering::Relaxed));
        let counts = Counts {
            dirtyable: Dirtyable {
                now: MEMORY,
                most: MEMORY,
            },
            dirty,
            device_dirty: dirty,
            ..Counts::default()
        };
        domain.update(Instant::ZERO, DEVICE, &counts);
    }

    /// A writer of its own dirties `pages` pages, some at a time, and is done.
    fn dirty(&self, pages: &[u64]) {
        let writer = self.domain.lock().expect("nobody panics").add_writer();
        let by = Teller {
            writer: &writer,
            now: Instant::ZERO,
            cpu: 0,
        };
        let mut untold = Untold::default();
        for pages in pages {
            self.dirty.fetch_add(*pages, Ordering::Relaxed);
            if untold.keeps(DEVICE, Pages(*pages)) {
                continue;
            }
            let mut domain = self.domain.lock().expect("nobody panics under it");
            untold.tell(&mut domain, by, Some((DEVICE, Pages(*pages))), |_, _| {});
            untold.keep(&domain, by, DEVICE);
        }
        let mut domain = self.domain.lock().expect("nobody panics under it");
        untold.tell(&mut domain, by, None, |_, _| {});
    }

    /// Pages that new writers may dirty, one each, before one of them has to ask.
    fn unseen_left(&self) -> u64 {
        let mut domain = self.domain.lock().expect("nobody panics under it");
        let (mut left, now, page) = (0, Instant::ZERO, Pages(1));
        loop {
            let writer = domain.add_writer();
            let due = domain.on_dirtied(now, &writer, DEVICE, 0, page);
            if due.is_some() {
                return left;
            }
            left += 1;
        }
    }
}

/// Two writers and a look beside them: as little may be dirtied unseen as if the look were now.
#[test]
fn what_is_dirtied_beside_a_look_is_seen_by_it_or_told_after_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = Dirtying::new();
        let writing = [&[20, 5, 20][..], &[20]].map(|pages| {
            let world = world.clone();
            loom::thread::spawn(move || world.dirty(pages))
        });
        world.look();
        for writer in writing {
            writer.join().expect("a writer ends");
        }
        let left = world.unseen_left();
        world.look();
        let all_seen = world.unseen_left();
        assert!(left <= all_seen, "{left} pages for {all_seen}");
    });
}

/// Tasks that come while the first round is carried out, the second, and so on.
const COME: [usize; 3] = [2, 1, 1];

#[derive(Default)]
struct Syncs {
    rounds: Rounds<usize, Vec<usize>>,
    is_running: AtomicBool,
    begun: AtomicUsize,
}

/// Syncs what this task wants, and has others come meanwhile.
fn sync(syncs: &loom::sync::Arc<Syncs>, own: usize) {
    let carry_out = |_: &mut Task<'_>, wants| {
        let others = syncs.is_running.swap(true, Ordering::Relaxed);
        assert!(!others, "one at a time");
        let nth = syncs.begun.fetch_add(1, Ordering::Relaxed);
        for other in 1..=COME.get(nth).copied().unwrap_or(0) {
            let syncs = loom::sync::Arc::clone(syncs);
            loom::thread::spawn(move || sync(&syncs, 10 * (nth + 1) + other));
        }
        loom::thread::yield_now();
        syncs.is_running.store(false, Ordering::Relaxed);
        wants
    };
    let mut task = task(&LoomEnv);
    let synced = syncs.rounds.join(&mut task, &[own], carry_out, |_| true);
    assert!(synced.expect("nobody cancels it").contains(&own));
}

/// While the end of a round wakes its tasks one by one, the next round ends, and a task of the one
/// after that waits.
#[test]
fn each_task_of_each_round_ends() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| sync(&loom::sync::Arc::default(), 0));
}
