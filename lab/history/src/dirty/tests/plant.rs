//! A small plant to close the loop around a law: devices of a given rate, a flusher each, writers.
//!
//! Time goes on in steps of one millisecond. Nothing in here knows which law it serves.

use policy::dirty::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Domain, PauseReason,
    Tunables, Verdict, WriterIndex,
};
use policy::units::{Instant, Nanos, Pages, SECOND};

pub(crate) const STEP: Nanos = Nanos::millis(1);
/// Pages that complete together.
const REQUEST: u64 = 32;
/// Time between two looks of a running flusher at its device's bandwidth.
const FLUSHER_UPDATE: Nanos = Nanos::millis(500);

/// A device, its flusher and its counters.
pub(crate) struct Disk {
    /// Pages per second; zero: it hangs.
    pub(crate) rate: u64,
    /// Most pages under writeback.
    pub(crate) flight: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    pub(crate) dirtied: u64,
    pub(crate) written: u64,
    flusher_running: bool,
    updated: Instant,
    /// Pages times nanoseconds per second that the device has worked beyond its last completion.
    credit: u64,
    /// When it was last given work while it had none.
    began: Instant,
}

impl Disk {
    pub(crate) fn new(rate: u64, flight: u64) -> Self {
        Self {
            rate,
            flight,
            dirty: 0,
            writeback: 0,
            dirtied: 0,
            written: 0,
            flusher_running: false,
            updated: Instant(0),
            credit: 0,
            began: Instant(0),
        }
    }

    /// Pages whose writeback ends in this step.
    fn complete(&mut self) -> u64 {
        self.credit = if self.writeback == 0 {
            0
        } else {
            self.credit + self.rate * STEP.0
        };
        let request = REQUEST.min(self.writeback).max(1) * SECOND;
        let requests = self.credit / request;
        let pages = (requests * request / SECOND).min(self.writeback);
        self.credit -= pages * SECOND;
        self.writeback -= pages;
        self.written += pages;
        pages
    }

    fn submit(&mut self, now: Instant, most: u64) -> u64 {
        let pages = most
            .min(self.dirty)
            .min(self.flight.saturating_sub(self.writeback));
        if self.writeback == 0 {
            self.began = now;
        }
        self.dirty -= pages;
        self.writeback += pages;
        pages
    }
}

/// A writer in a loop, and what happened to it.
pub(crate) struct Writer {
    pub(crate) device: usize,
    /// Pages it wants per second.
    pub(crate) demand: u64,
    pub(crate) starts: Instant,
    index: WriterIndex,
    owed: u64,
    wakes: Instant,
    /// A balance that is not over.
    balances: bool,
    pub(crate) dirtied: u64,
    /// Single pauses, with the time they began.
    pub(crate) pauses: Vec<(Instant, Nanos)>,
    /// The sleep of each call in all.
    pub(crate) calls: Vec<Nanos>,
    pub(crate) unnamed: u64,
    /// Longest time without a page, though it wanted to dirty one.
    pub(crate) longest_stall: Nanos,
    last_page: Instant,
    /// Where it writes, in turn: device and pages at a time. Empty: always to `device`.
    pub(crate) route: Vec<(usize, u64)>,
    leg: usize,
    gone: u64,
    pub(crate) trace: BalanceTrace,
}

impl Writer {
    /// Goes on to the next device of its route if it has done its pages here; pages left here.
    fn turn(&mut self) -> u64 {
        let Some((_, pages)) = self.route.get(self.leg) else {
            return u64::MAX;
        };
        if self.gone >= *pages {
            self.gone = 0;
            self.leg = (self.leg + 1) % self.route.len();
        }
        let (device, pages) = self.route[self.leg];
        self.device = device;
        pages - self.gone
    }
}

pub(crate) struct Plant {
    pub(crate) domain: Domain,
    pub(crate) now: Instant,
    pub(crate) dirtyable: u64,
    pub(crate) disks: Vec<Disk>,
    pub(crate) writers: Vec<Writer>,
}

impl Plant {
    pub(crate) fn new(
        tunables: Tunables,
        dirtyable: u64,
        disks: Vec<(Disk, DeviceTunables)>,
    ) -> Self {
        let mut domain = Domain::new(tunables, disks.len());
        let mut kept = Vec::new();
        for (disk, tunables) in disks {
            domain.add_device(Instant(0), tunables);
            kept.push(disk);
        }
        Self {
            domain,
            now: Instant(0),
            dirtyable,
            disks: kept,
            writers: Vec::new(),
        }
    }

    pub(crate) fn writer(&mut self, device: usize, demand: u64, starts: Nanos) {
        let index = self.domain.add_writer();
        self.writers.push(Writer {
            device,
            demand,
            starts: Instant(0) + starts,
            index,
            owed: 0,
            wakes: Instant(0),
            balances: false,
            dirtied: 0,
            pauses: Vec::new(),
            calls: Vec::new(),
            unnamed: 0,
            longest_stall: Nanos::ZERO,
            last_page: Instant(0) + starts,
            route: Vec::new(),
            leg: 0,
            gone: 0,
            trace: BalanceTrace::default(),
        });
    }

    pub(crate) fn counts(&self, device: usize) -> Counts {
        let disk = &self.disks[device];
        Counts {
            dirtyable: Dirtyable::of_files(Pages(self.dirtyable)),
            dirty: Pages(self.disks.iter().map(|disk| disk.dirty).sum()),
            writeback: Pages(self.disks.iter().map(|disk| disk.writeback).sum()),
            device_dirty: Pages(disk.dirty),
            device_writeback: Pages(disk.writeback),
            device_dirtied: Pages(disk.dirtied),
            device_written: Pages(disk.written),
            flusher_running: disk.flusher_running,
        }
    }

    pub(crate) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            for device in 0..self.disks.len() {
                self.device_step(device);
                self.flusher_step(device);
            }
            for writer in 0..self.writers.len() {
                self.writer_step(writer);
            }
            self.now = self.now + STEP;
        }
    }

    fn device_step(&mut self, device: usize) {
        let pages = self.disks[device].complete();
        if pages > 0 {
            let index = DeviceIndex(u16::try_from(device).expect("few devices"));
            let done = Completion {
                pages: Pages(pages),
                begun: self.disks[device].began,
                last: self.disks[device].writeback == 0,
            };
            self.domain.on_written(self.now, index, &done);
        }
    }

    fn flusher_step(&mut self, device: usize) {
        if !self.disks[device].flusher_running {
            return;
        }
        let index = DeviceIndex(u16::try_from(device).expect("few devices"));
        let counts = self.counts(device);
        if !self.domain.over_background(index, &counts) || counts.device_dirty.is_zero() {
            self.disks[device].flusher_running = false;
            return;
        }
        if self.now.since(self.disks[device].updated) >= FLUSHER_UPDATE {
            self.disks[device].updated = self.now;
            self.domain.update(self.now, index, &counts);
        }
        self.disks[device].submit(self.now, u64::MAX);
    }

    fn writer_step(&mut self, number: usize) {
        if self.now < self.writers[number].starts || self.now < self.writers[number].wakes {
            return;
        }
        let writer = &mut self.writers[number];
        // It wants no more than a step's worth at a time: what it missed it does not catch up.
        writer.owed = (writer.owed + writer.demand).min(writer.demand + 1000);
        loop {
            if self.writers[number].balances && !self.balance(number) {
                return;
            }
            let writer = &mut self.writers[number];
            let left = writer.turn();
            let index = DeviceIndex(u16::try_from(writer.device).expect("few devices"));
            let budget = self.domain.budget(&writer.index, index, number % 2);
            let pages = budget.0.min(writer.owed / 1000).min(left);
            if pages == 0 {
                return;
            }
            writer.owed -= pages * 1000;
            writer.gone += pages;
            writer.longest_stall = writer
                .longest_stall
                .at_least(self.now.since(writer.last_page));
            writer.last_page = self.now;
            writer.dirtied += pages;
            self.disks[writer.device].dirty += pages;
            self.disks[writer.device].dirtied += pages;
            let due =
                self.domain
                    .on_dirtied(self.now, &writer.index, index, number % 2, Pages(pages));
            if let Some(due) = due {
                self.domain.begin(&writer.index, index, due.pages);
                writer.balances = true;
            }
        }
    }

    /// Goes on with a balance; true if it has ended.
    fn balance(&mut self, number: usize) -> bool {
        loop {
            let device = self.writers[number].device;
            let counts = self.counts(device);
            let writer = &mut self.writers[number];
            let (verdict, trace) = self.domain.decide(self.now, &writer.index, &counts);
            if trace.line {
                writer.trace = trace;
            }
            match verdict {
                Verdict::Done { start_background } => {
                    self.disks[device].flusher_running |= start_background;
                    writer.calls.push(trace.paused);
                    writer.balances = false;
                    return true;
                }
                Verdict::Pause {
                    pause,
                    start_background,
                    why,
                } => {
                    self.disks[device].flusher_running |= start_background;
                    writer.unnamed += u64::from(why == PauseReason::OverShare);
                    writer.pauses.push((self.now, pause));
                    writer.wakes = self.now + pause;
                    return false;
                }
                Verdict::WriteYourself { pages } => {
                    let pages = self.disks[device].submit(self.now, pages.0);
                    self.domain.wrote(&writer.index, Pages(pages));
                }
            }
        }
    }
}
