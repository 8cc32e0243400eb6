//! From a timeline to tracks and what stands on them, in the order of time.

use std::collections::BTreeMap;

use env::{Cause, TaskId};
use policy::units::{Instant, Nanos};

use experiment::outcome::Outcome;
use experiment::watch::{Item, Timeline, What};

/// Lanes of a device; requests beyond are counted and not drawn.
const LANES_MOST: usize = 64;

/// A track's description. Parents come before children.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Track {
    Process {
        uuid: u64,
        pid: u32,
        name: String,
    },
    Thread {
        uuid: u64,
        pid: u32,
        tid: u32,
        name: String,
    },
    Child {
        uuid: u64,
        parent: u64,
        name: String,
    },
    Counter {
        uuid: u64,
        parent: u64,
        name: String,
        unit: &'static str,
    },
}

/// A fact about a slice: (number of its name, value).
pub(super) type Arg = (u64, Value);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(u64),
    Real(f64),
    Text(&'static str),
}

/// An event on a track; times are nanoseconds since the jobs began.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moment {
    pub(super) at: u64,
    pub(super) track: u64,
    pub(super) step: Step,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Begin { name: u64, args: Vec<Arg> },
    End,
    Instant { name: u64, args: Vec<Arg> },
    Note(String),
    Count(f64),
}

/// Names by number, from 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) events: BTreeMap<String, u64>,
    pub(super) args: BTreeMap<&'static str, u64>,
}

impl Names {
    fn event(&mut self, name: &str) -> u64 {
        if let Some(iid) = self.events.get(name) {
            return *iid;
        }
        let iid = self.events.len() as u64 + 1;
        self.events.insert(name.to_owned(), iid);
        iid
    }

    fn arg(&mut self, name: &'static str) -> u64 {
        let next = self.args.len() as u64 + 1;
        *self.args.entry(name).or_insert(next)
    }
}

/// Levels over time: (name, unit, points in nanoseconds since the jobs began).
pub(super) type Counters = Vec<(String, &'static str, Vec<(u64, f64)>)>;

/// The levels of a run that a trace shows, up to where its timeline ends.
pub(super) fn counters(outcome: &Outcome, timeline: &Timeline) -> Counters {
    const SHOWN: [&str; 15] = [
        "nr_free_pages",
        "nr_inactive_anon",
        "nr_active_anon",
        "nr_inactive_file",
        "nr_active_file",
        "nr_isolated_anon",
        "nr_isolated_file",
        "nr_dirty",
        "nr_writeback",
        "swap_free",
        "pgscan_direct",
        "pgscan_kswapd",
        "pgsteal_direct",
        "pgsteal_kswapd",
        "pswpout",
    ];
    let last = timeline.ends.since(timeline.begins).0;
    let points = |points: Vec<(f64, f64)>| {
        let points = points.into_iter().map(|(at, value)| (nanos(at), value));
        points.filter(|(at, _)| *at <= last).collect::<Vec<_>>()
    };
    let mut all: Counters = SHOWN
        .iter()
        .filter_map(|name| {
            Some((
                (*name).to_owned(),
                "pages",
                points(outcome.vmstat.of(name)?),
            ))
        })
        .collect();
    let mut level = |name: &str, of: fn(&experiment::outcome::Level) -> f64| {
        if !all.iter().any(|(other, ..)| other == name) {
            let levels = outcome.levels.iter().map(|level| (level.at_s, of(level)));
            all.push((name.to_owned(), "pages", points(levels.collect())));
        }
    };
    level("nr_free_pages", |level| level.free);
    level("nr_dirty", |level| level.dirty);
    level("nr_writeback", |level| level.writeback);
    level("nr_dirty_threshold", |level| level.limit);
    level("nr_dirty_background_threshold", |level| level.background);
    all
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a run, not negative"
)]
fn nanos(at_s: f64) -> u64 {
    (at_s * 1e9).round() as u64
}

const TASKS: u64 = 1;
const DEVICES: u64 = 2;
const MEMORY: u64 = 3;

/// Tracks are numbered by what they are and whose.
fn uuid(kind: u64, of: u64) -> u64 {
    kind << 32 | of
}
const THREAD: u64 = 1;
const RECLAIM: u64 = 2;
const FAULTS: u64 = 3;
const PASSES: u64 = 4;
const IN_FLIGHT: u64 = 5;
const LEVEL: u64 = 6;
const LANE: u64 = 16;

#[derive(Clone, Debug)]
struct Slice {
    begin: u64,
    end: u64,
    name: u64,
    args: Vec<Arg>,
}

/// A task, as the items so far tell.
struct Doing {
    /// Since when it runs, or sleeps on something.
    since: u64,
    asleep: Option<Cause>,
    /// When its own reclaim began; of the background reclaimer, when it woke.
    reclaims: Option<u64>,
    /// The beginning of its next pass.
    pass: u64,
    ended: bool,
}

struct Builder<'a> {
    timeline: &'a Timeline,
    names: Names,
    slices: BTreeMap<u64, Vec<Slice>>,
    tasks: BTreeMap<u32, Doing>,
    in_flight: BTreeMap<u16, u32>,
    requests: BTreeMap<u16, Vec<Slice>>,
    moments: Vec<Moment>,
}

/// Tracks, names, and what stands on the tracks in the order of time.
pub(super) fn of(
    timeline: &Timeline,
    counters: &Counters,
    title: &str,
) -> (Vec<Track>, Names, Vec<Moment>) {
    let mut builder = Builder {
        timeline,
        names: Names::default(),
        slices: BTreeMap::new(),
        tasks: BTreeMap::new(),
        in_flight: BTreeMap::new(),
        requests: BTreeMap::new(),
        moments: Vec::new(),
    };
    timeline.items.iter().for_each(|item| builder.take(item));
    builder.close();
    let lanes = builder.lanes();
    let mut tracks = vec![
        process(TASKS, format!("tasks of {title}")),
        process(DEVICES, "devices".into()),
        process(MEMORY, "memory".into()),
    ];
    builder.task_tracks(&mut tracks);
    builder.device_tracks(&lanes, &mut tracks);
    let mut moments = builder.moments;
    for (number, (name, unit, points)) in (0..).zip(counters) {
        let track = uuid(LEVEL, number);
        tracks.push(Track::Counter {
            uuid: track,
            parent: MEMORY,
            name: name.clone(),
            unit,
        });
        let points = points.iter();
        moments.extend(points.map(|(at, value)| Moment {
            at: *at,
            track,
            step: Step::Count(*value),
        }));
    }
    for (track, slices) in builder.slices {
        nest(track, slices, &mut moments);
    }
    if timeline.is_full {
        moments.push(Moment {
            at: timeline.ends.since(timeline.begins).0,
            track: TASKS,
            step: Step::Note(format!(
                "the trace ends here: it holds {} events",
                timeline.items.len()
            )),
        });
    }
    // Stable: what a track has at one moment stays in order.
    moments.sort_by_key(|moment| moment.at);
    (tracks, builder.names, moments)
}

fn process(id: u64, name: String) -> Track {
    let pid = u32::try_from(id).expect("three processes");
    Track::Process {
        uuid: id,
        pid,
        name,
    }
}

impl Builder<'_> {
    fn at(&self, at: Instant) -> u64 {
        at.since(self.timeline.begins).0
    }

    fn take(&mut self, item: &Item) {
        let at = self.at(item.at);
        match item.what {
            What::Submitted(device) => self.flies(at, device, 1),
            What::Completed {
                device,
                op,
                pages,
                took,
                failed,
            } => {
                self.flies(at, device, -1);
                let name = self.names.event(if failed { "failed" } else { op });
                let args = vec![(self.names.arg("pages"), Value::Number(pages.0))];
                self.requests.entry(device).or_default().push(Slice {
                    begin: at.saturating_sub(took.0),
                    end: at,
                    name,
                    args,
                });
            }
            what if item.task != TaskId::NONE => self.task(at, item.task.0, what),
            _ => {}
        }
    }

    fn flies(&mut self, at: u64, device: u16, by: i32) {
        let flying = self.in_flight.entry(device).or_default();
        *flying = flying.saturating_add_signed(by);
        let step = Step::Count(f64::from(*flying));
        let track = uuid(IN_FLIGHT, u64::from(device));
        self.moments.push(Moment { at, track, step });
    }

    fn doing(&mut self, task: u32) -> &mut Doing {
        self.tasks.entry(task).or_insert(Doing {
            since: 0,
            asleep: None,
            reclaims: None,
            pass: 0,
            ended: false,
        })
    }

    /// A slice of a task's track of a kind; one of no length is drawn as an instant.
    fn slice(
        &mut self,
        (kind, task): (u64, u32),
        [begin, end]: [u64; 2],
        name: &str,
        args: &[(&'static str, Value)],
    ) {
        let name = self.names.event(name);
        let args = args
            .iter()
            .map(|(arg, value)| (self.names.arg(arg), value.clone()));
        let args = args.collect();
        let slice = Slice {
            begin,
            end,
            name,
            args,
        };
        let track = uuid(kind, u64::from(task));
        self.slices.entry(track).or_default().push(slice);
    }

    fn task(&mut self, at: u64, task: u32, what: What) {
        self.doing(task);
        match what {
            What::Waits(cause) => {
                self.ran(at, task);
                let doing = self.doing(task);
                (doing.since, doing.asleep) = (at, Some(cause));
            }
            What::Waited(cause, waited, wakeup) => {
                let begin = at.saturating_sub(waited.0);
                let args = [("ended by", Value::Text(wakeup.by()))];
                self.slice((THREAD, task), [begin, at], &format!("{cause:?}"), &args);
                let doing = self.doing(task);
                (doing.since, doing.asleep) = (at, None);
            }
            What::Throttled {
                reason,
                timeout,
                delayed,
                wakeup,
            } => self.throttled(
                at,
                task,
                reason.name(),
                (timeout, delayed),
                wakeup.is_some(),
            ),
            What::Reclaims => self.doing(task).reclaims = Some(at),
            What::Reclaimed {
                background,
                scanned,
                freed,
            } => {
                let args = [
                    ("pages scanned", Value::Number(scanned.0)),
                    ("pages freed", Value::Number(freed.0)),
                ];
                let name = if background { "pass" } else { "direct reclaim" };
                let doing = self.doing(task);
                let begin = if background {
                    core::mem::replace(&mut doing.pass, at)
                } else {
                    doing.reclaims.take().unwrap_or(at)
                };
                self.slice((RECLAIM, task), [begin, at], name, &args);
            }
            What::Background(true) => {
                let doing = self.doing(task);
                (doing.reclaims, doing.pass) = (Some(at), at);
            }
            What::Background(false) => self.balanced(at, task),
            What::Faulted(took) => {
                let span = [at.saturating_sub(took.0), at];
                self.slice((FAULTS, task), span, "major fault", &[]);
            }
            What::Sampled(pages, took) => {
                let span = [at.saturating_sub(took.0), at];
                let args = [("pages", Value::Number(pages.0))];
                self.slice((PASSES, task), span, "pass of the job", &args);
            }
            What::Ended => {
                self.ran(at, task);
                self.doing(task).ended = true;
            }
            What::Submitted(_) | What::Completed { .. } => {}
        }
    }

    /// It ran until now, if it did not sleep.
    fn ran(&mut self, at: u64, task: u32) {
        let doing = self.doing(task);
        let (begin, runs) = (doing.since, doing.asleep.is_none() && !doing.ended);
        if runs && begin < at {
            self.slice((THREAD, task), [begin, at], "runs", &[]);
        }
    }

    /// The wait that has just ended was this throttling: it gets its name. A throttling without a
    /// sleep is a moment among the passes of reclaim.
    fn throttled(
        &mut self,
        at: u64,
        task: u32,
        reason: &'static str,
        (timeout, delayed): (Nanos, Nanos),
        slept: bool,
    ) {
        let args = [
            ("timeout ms", Value::Real(millis(timeout))),
            ("delayed ms", Value::Real(millis(delayed))),
        ];
        let name = self.names.event(reason);
        let runs = self.names.events.get("runs").copied();
        let waits = self.slices.get_mut(&uuid(THREAD, u64::from(task)));
        let wait = waits.and_then(|slices| slices.last_mut());
        // The event follows its wait, with nothing between but the cost of waking.
        match wait.filter(|wait| slept && Some(wait.name) != runs) {
            Some(wait) => {
                wait.name = name;
                let args = args.map(|(arg, value)| (self.names.arg(arg), value));
                wait.args.extend(args);
            }
            None => self.slice((RECLAIM, task), [at, at], reason, &args),
        }
    }

    fn balanced(&mut self, at: u64, task: u32) {
        if let Some(begin) = self.doing(task).reclaims.take() {
            self.slice((RECLAIM, task), [begin, at], "balancing", &[]);
        }
    }

    /// Open slices end with the timeline.
    fn close(&mut self) {
        let end = self.at(self.timeline.ends);
        let tasks: Vec<u32> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.ran(end, task);
            let doing = self.doing(task);
            let (since, asleep) = (doing.since, doing.asleep.filter(|_| !doing.ended));
            if let Some(cause) = asleep {
                let args = [("ended by", Value::Text("the trace's end"))];
                self.slice((THREAD, task), [since, end], &format!("{cause:?}"), &args);
            }
            self.balanced(end, task);
        }
    }

    /// Puts each device's requests on lanes, so that none overlap; answers how many lanes.
    fn lanes(&mut self) -> BTreeMap<u16, usize> {
        let mut used = BTreeMap::new();
        for (device, mut requests) in core::mem::take(&mut self.requests) {
            requests.sort_by_key(|request| (request.begin, request.end));
            let mut free: Vec<u64> = Vec::new();
            for request in requests {
                let lane = free.iter().position(|until| *until <= request.begin);
                let lane = lane.unwrap_or(free.len());
                if lane == free.len() {
                    if lane == LANES_MOST {
                        continue;
                    }
                    free.push(0);
                }
                free[lane] = request.end;
                let track = uuid(LANE + u64::from(device), lane as u64);
                self.slices.entry(track).or_default().push(request);
            }
            used.insert(device, free.len());
        }
        used
    }

    fn task_tracks(&self, tracks: &mut Vec<Track>) {
        let pid = u32::try_from(TASKS).expect("three processes");
        for task in self.tasks.keys() {
            let of = u64::from(*task);
            let name = self.timeline.tasks.get(task);
            tracks.push(Track::Thread {
                uuid: uuid(THREAD, of),
                pid,
                // Zero is the idle task's.
                tid: task + 1,
                name: name.cloned().unwrap_or_else(|| format!("task {task}")),
            });
            let below = [
                (RECLAIM, "reclaim"),
                (FAULTS, "major faults"),
                (PASSES, "passes of the job"),
            ];
            for (kind, name) in below {
                if self.slices.contains_key(&uuid(kind, of)) {
                    tracks.push(Track::Child {
                        uuid: uuid(kind, of),
                        parent: uuid(THREAD, of),
                        name: name.into(),
                    });
                }
            }
        }
    }

    fn device_tracks(&self, lanes: &BTreeMap<u16, usize>, tracks: &mut Vec<Track>) {
        let flown = self.in_flight.keys().chain(lanes.keys());
        let devices: std::collections::BTreeSet<u16> = flown.copied().collect();
        for device in devices {
            let known = self.timeline.devices.get(&device);
            let name = known.cloned().unwrap_or_else(|| format!("device {device}"));
            tracks.push(Track::Counter {
                uuid: uuid(IN_FLIGHT, u64::from(device)),
                parent: DEVICES,
                name: format!("{name}: requests in flight"),
                unit: "requests",
            });
            for lane in 0..lanes.get(&device).copied().unwrap_or(0) {
                tracks.push(Track::Child {
                    uuid: uuid(LANE + u64::from(device), lane as u64),
                    parent: DEVICES,
                    name: format!("{name}: requests, lane {}", lane + 1),
                });
            }
        }
    }
}

/// Slices of one track as moments: a slice that begins in another ends in it.
fn nest(track: u64, mut slices: Vec<Slice>, moments: &mut Vec<Moment>) {
    slices.sort_by_key(|slice| (slice.begin, u64::MAX - slice.end));
    let mut open: Vec<u64> = Vec::new();
    let ends = |open: &mut Vec<u64>, until: u64, moments: &mut Vec<Moment>| {
        while let Some(at) = open.pop_if(|end| *end <= until) {
            let step = Step::End;
            moments.push(Moment { at, track, step });
        }
    };
    for slice in slices {
        let Slice {
            begin,
            end,
            name,
            args,
        } = slice;
        ends(&mut open, begin, moments);
        if begin == end {
            let step = Step::Instant { name, args };
            let at = begin;
            moments.push(Moment { at, track, step });
            continue;
        }
        let step = Step::Begin { name, args };
        moments.push(Moment {
            at: begin,
            track,
            step,
        });
        open.push(open.last().map_or(end, |outer| end.min(*outer)));
    }
    ends(&mut open, u64::MAX, moments);
}

fn millis(time: Nanos) -> f64 {
    experiment::watch::seconds(time) * 1e3
}
