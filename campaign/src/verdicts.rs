//! Judges a run's pauses and waits from its events, and keeps the longest.
//!
//! | checked | bound |
//! |---|---|
//! | a pause of any law | 200 ms, or a tick of the law where that is longer |
//! | a pause of Tidegate's law, unless the device stands still | 5 to 200 ms |
//! | a sleep for a pause | the pause, a tick of the law and of the machine, and a CPU's queue |
//! | timeouts where an event should have come | `TIMEOUTS_MAX` a run without any fault |
//! | a wait at whose deadline all was there, and no wake had said so | none, with any faults |
//! | a sleep in reclaim | the longest of any variant, ticks, and a CPU's queue |
//! | a throttling, a turn for memory | its own timeout, ticks, and a CPU's queue; 200 ms for a turn |

use env::{Cause, Event, Signal, Wakeup};
use policy::dirty::PauseReason;
use policy::reclaim::{Reason, turn};
use policy::units::{Nanos, SECOND};
use world::Recorded;

use crate::judge;
use crate::plan::{DevicePlan, Plan};
use crate::tally::Tally;

/// No law pauses longer at a time.
const PAUSE_MAX: Nanos = Nanos::millis(200);
/// Tidegate's law carries what is less.
const TIDEGATE_MIN: Nanos = Nanos::millis(5);
/// A task that is woken may wait for a CPU.
const CPU_QUEUE: Nanos = Nanos::millis(60);
/// Timeouts of a run in which nothing is wrong with any device.
const TIMEOUTS_MAX: u64 = 20;

/// No variant throttles longer at a time (5.16-rc1: no progress).
const THROTTLE_MAX: Nanos = Nanos::millis(500);

/// A task that waits for the reserve looks again after this.
const RESERVE_MAX: Nanos = Nanos::secs(1);

/// True if a task is held up by reclaim: it is woken by an event, or the time is up; both are as it
/// should be.
const fn is_throttled(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ReclaimWriteback
            | Cause::ReclaimIsolated
            | Cause::ReclaimNoProgress
            | Cause::ReclaimCongested
            | Cause::CongestionWait
            | Cause::Memory
    )
}

/// True if a wait ends by an event, so that its deadline is only a safety net.
const fn is_awaited(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::PageBusy
            | Cause::ReadIo
            | Cause::WritebackIo
            | Cause::WritebackFlight
            | Cause::DeviceFlush
            | Cause::DeviceMetadata
            | Cause::Memory
            | Cause::RequestSlot
            | Cause::SwapIo
    )
}

pub(crate) fn judge(tally: &mut Tally, plan: &Plan, events: &[Recorded]) {
    let law = plan.cache.law.as_str();
    let law_tick = Nanos(SECOND / u64::from(plan.cache.law_hz));
    let tick = SECOND.checked_div(u64::from(plan.machine.hz)).unwrap_or(0);
    let longest = PAUSE_MAX.max(law_tick);
    let slept_max = Nanos(longest.0 + law_tick.0 + tick + CPU_QUEUE.0);
    let (mut pauses, mut timeouts) = (0, 0);
    for Recorded { at, event, .. } in events {
        match event {
            Event::BalanceDirtyPages {
                trace,
                why: Some(why),
                ..
            } => {
                pauses += 1;
                let pause = trace.pause;
                let (group, stalled) = match why {
                    PauseReason::OverShare => ("longest pause", false),
                    PauseReason::NoProgress => ("longest pause, no progress", true),
                };
                tally.time(group, law, pause);
                judge!(
                    pause <= longest,
                    "pause",
                    "{law} pauses for {pause:?} at {at:?}; {longest:?} is the most ({trace:?})"
                );
                judge!(
                    law != "tidegate" || stalled || pause >= TIDEGATE_MIN,
                    "pause",
                    "{law} pauses for {pause:?} at {at:?}; {TIDEGATE_MIN:?} is the least ({trace:?})"
                );
            }
            Event::Waited {
                cause,
                waited,
                wakeup,
            } => {
                tally.add("waits ended by", &format!("{cause:?}: {}", wakeup.by()), 1);
                if !matches!(cause, Cause::Think | Cause::Idle) {
                    tally.time("longest wait", &format!("{cause:?}"), *waited);
                }
                judge!(
                    *cause != Cause::PageBusy || !wakeup.is_late(),
                    "lost-wake-up",
                    "a wait for a busy page, which has no deadline, ended by one at {at:?}"
                );
                if matches!(cause, Cause::DirtyPause | Cause::DeviceStalled) {
                    judge!(
                        *waited <= slept_max,
                        "pause",
                        "a pause at {at:?} lasted {waited:?}; {slept_max:?} is the most"
                    );
                }
                if is_throttled(*cause) {
                    let of_reason = if *cause == Cause::Memory {
                        RESERVE_MAX
                    } else {
                        THROTTLE_MAX
                    };
                    let most = Nanos(of_reason.0 + law_tick.0 + tick + CPU_QUEUE.0);
                    judge!(
                        *waited <= most,
                        "throttled",
                        "{cause:?} at {at:?} lasted {waited:?}; {most:?} is the most"
                    );
                    let ended = match wakeup {
                        Wakeup::TimedOut => "timed out",
                        Wakeup::Ready(_) | Wakeup::Cancelled | Wakeup::Refused => "woken",
                    };
                    let what = format!("{}: {cause:?}, {ended}", plan.cache.reclaim);
                    tally.add("throttled in reclaim", &what, 1);
                }
                // With anonymous memory, a turn for memory may well not come in time.
                let in_turn = *cause == Cause::Memory && !plan.regions.is_empty();
                if wakeup.is_late() && is_awaited(*cause) && !in_turn {
                    timeouts += 1;
                    tally.add("timeouts of safety nets", &format!("{cause:?}"), 1);
                }
            }
            Event::Throttled {
                reason,
                timeout,
                delayed,
                ..
            } => {
                let most = Nanos(timeout.0 + 2 * law_tick.0 + tick + CPU_QUEUE.0);
                judge!(
                    delayed <= &most && (*reason != Reason::Turn || *timeout <= turn::BOUND),
                    "throttled",
                    "{} at {at:?}: {delayed:?} of {timeout:?}; {most:?} is the most",
                    reason.name()
                );
                tally.time("longest throttling", reason.name(), *delayed);
            }
            _ => {}
        }
    }
    tally.add("pauses", law, pauses);
    tally.add("runs", "events judged", events.len() as u64);
    let all_steady = plan.devices.iter().all(DevicePlan::is_steady);
    if all_steady {
        tally.share(
            "timeouts without a fault, of what is allowed",
            "all",
            timeouts * 1000 / TIMEOUTS_MAX,
        );
        judge!(
            timeouts <= TIMEOUTS_MAX,
            "lost-wake-up",
            "{timeouts} waits ended by their safety net with nothing wrong; {TIMEOUTS_MAX} are allowed"
        );
    }
}

/// No wake-up was lost, of any task, however ill the devices were: a task that waits with a
/// deadline is woken when the awaited thing is there, and does not find it at its deadline.
///
/// But for the reserve under a law of Linux, whose background reclaimer alone wakes those that
/// leave it alone: a device may hold it up while others give memory back (`mm`'s
/// `reclaim::direct`).
pub(crate) fn judge_wakes(reclaim: &str, events: &[Recorded]) {
    let of_linux = reclaim != "tidegate";
    for Recorded { at, task, event } in events {
        if let Event::Waited {
            cause,
            waited,
            wakeup: Wakeup::Ready(Signal::AtDeadline),
        } = event
        {
            let for_reserve = of_linux && *cause == Cause::Memory && *waited >= RESERVE_MAX;
            judge!(
                !is_awaited(*cause) || for_reserve,
                "lost-wake-up",
                "{cause:?} of task {} lasted {waited:?}, to its deadline at {at:?}; it was there and no wake came",
                task.0
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, catch};
    use env::TaskId;
    use policy::units::Instant;

    fn judged(waits: &[(Cause, Wakeup)]) -> Result<(), Failure> {
        judged_under("tidegate", Nanos::millis(7), waits)
    }

    fn judged_under(
        reclaim: &str,
        waited: Nanos,
        waits: &[(Cause, Wakeup)],
    ) -> Result<(), Failure> {
        let events: Vec<Recorded> = waits
            .iter()
            .map(|(cause, wakeup)| Recorded {
                at: Instant(7_000_000),
                task: TaskId(3),
                event: Event::Waited {
                    cause: *cause,
                    waited,
                    wakeup: *wakeup,
                },
            })
            .collect();
        catch(|| judge_wakes(reclaim, &events))
    }

    const FOUND: Wakeup = Wakeup::Ready(Signal::AtDeadline);

    #[test]
    fn the_reserve_may_be_found_at_the_deadline_under_a_law_of_linux() {
        let found = [(Cause::Memory, FOUND)];
        judged_under("linux-5.16", RESERVE_MAX, &found).unwrap();
        judged_under("linux-5.16", Nanos::millis(100), &found).unwrap_err();
        judged_under("linux-5.16", RESERVE_MAX, &[(Cause::SwapIo, FOUND)]).unwrap_err();
        judged_under("tidegate", RESERVE_MAX, &found).unwrap_err();
    }

    #[test]
    fn what_is_found_at_the_deadline_was_a_lost_wake_up() {
        for cause in [Cause::Memory, Cause::SwapIo, Cause::RequestSlot] {
            let failure = judged(&[(cause, FOUND)]).unwrap_err();
            assert_eq!(failure.kind, "lost-wake-up", "{failure:?}");
            // Nothing came: that is the device's.
            judged(&[(cause, Wakeup::TimedOut)]).unwrap();
            judged(&[(cause, Wakeup::Ready(Signal::PageWritten))]).unwrap();
        }
        judged(&[(Cause::DirtyPause, FOUND)]).unwrap();
    }
}
