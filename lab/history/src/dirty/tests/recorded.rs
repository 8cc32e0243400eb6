//! The rate-based law against a real kernel: every 97th `balance_dirty_pages` event of five
//! recordings of Linux 6.18 (HZ=250, limits of 64 and 32 MiB;
//! docs/study/reference/field-recordings.md says how they were made).
//!
//! A line of the trace holds what the kernel knew (levels, base rate, think time) and what it made
//! of it (this task's rate, period, pause); the bandwidth is the one traced next, because the
//! kernel traces before it measures. Rates are in KiB/s, times in ms.
//!
//! A task's rate must agree within 1 %, since the trace rounds the share and the bandwidth; a pause
//! and its period must agree exactly. (Of all 8200 events 0.6 % differ in rate and 0.2 % in pause:
//! the kernel reads bandwidth and levels at slightly different moments than it traces them.)

use super::super::pause::{self, Rates};
use super::super::position::Position;
use policy::dirty::Limits;
use policy::dirty::limits::bounded_rate;
use policy::ticks::{TickRate, Ticks};
use policy::units::{Nanos, Pages, PagesPerSec};

const RECORDED: &str = include_str!("recorded.csv");
const MS_PER_TICK: i64 = 4;
const KIB_PER_PAGE: u64 = 4;

struct Line {
    position: Position,
    base: PagesPerSec,
    task: u64,
    dirtied: u64,
    pause: i64,
    period: i64,
    think: i64,
}

fn lines() -> Vec<Line> {
    RECORDED.lines().skip(1).map(line).collect()
}

fn line(text: &str) -> Line {
    let mut fields = text.split(',');
    let strict = fields.next() == Some("one-dd-strict");
    let mut next = || -> i64 { fields.next().expect("13 fields").parse().expect("a number") };
    let mut pages = || Pages(next().unsigned_abs());
    let (setpoint, hard_limit, dirty) = (pages(), pages(), pages());
    let (device_setpoint, device_dirty, base, task) = (pages(), pages(), pages(), pages());
    let dirtied = pages().0;
    let (pause, period, think) = (next(), next(), next());
    let bandwidth = next().unsigned_abs() / KIB_PER_PAGE;
    let limits = Limits {
        dirty: Pages(16_384),
        background: Pages(8192),
    };
    // The trace has setpoint * share / (limit + 1): the least share that gives it.
    let share = (device_setpoint.0 * (limits.dirty.0 + 1)).div_ceil(setpoint.0);
    let position = Position {
        limits,
        hard_limit,
        dirty,
        device_limit: Pages(share),
        device_background: limits.background_of(Pages(share)),
        device_dirty,
        bandwidth: bounded_rate(bandwidth.max(1)),
        strict,
    };
    assert_eq!(position.setpoint(), setpoint);
    let base = PagesPerSec(base.0 / KIB_PER_PAGE);
    Line {
        position,
        base,
        task: task.0 / KIB_PER_PAGE,
        dirtied,
        pause,
        period,
        think,
    }
}

#[test]
fn the_position_gives_a_task_the_rate_the_kernel_gave_it() {
    let lines = lines();
    assert!(lines.len() > 70, "{}", lines.len());
    let off = lines.iter().filter(|line| {
        let task = line.position.ratio().of(line.base).0;
        task.abs_diff(line.task) * 100 > line.task
    });
    assert_eq!(off.count(), 0);
}

#[test]
fn a_pause_is_as_long_as_the_kernels() {
    let rate = TickRate::new(250);
    let lines = lines();
    let off = lines.iter().filter(|line| {
        let bandwidth = line.position.bandwidth;
        let task = PagesPerSec(line.task);
        let longest = pause::longest(rate, line.position.device_dirty, bandwidth);
        let aim = pause::aim(
            rate,
            longest,
            &Rates {
                bandwidth,
                base: line.base,
                task,
            },
        );
        let mut account = pause::Account::new();
        let now = Ticks(1_000_000);
        let began = now
            .0
            .checked_add_signed(-line.think / MS_PER_TICK)
            .expect("in range");
        account.run_free(Ticks(began), Pages(1));
        let due = account.charge(rate, now, Pages(line.dirtied), task, (aim, longest));
        // A pause not taken is traced as zero or as what the writer has in hand.
        let traced = line.pause.max(0).unsigned_abs();
        let pause = due.pause.map_or(Nanos::ZERO, |pause| rate.nanos(pause));
        pause != Nanos::millis(traced)
            || rate.nanos(due.period) != Nanos::millis(line.period.unsigned_abs())
    });
    assert_eq!(off.count(), 0);
}
