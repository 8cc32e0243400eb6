//! The flusher's next writes, and their size.
//!
//! Vocabulary: a *slice* is what the flusher writes of one file before it turns to the next; a
//! *request* is neighbouring pages sent to the device as one; the *flight* is all requests that
//! the device has not completed.
//!
//! A read that misses waits behind the flight. Linux bounds the flight by the number of requests (a
//! queue of 128), which is nothing on a fast device and seconds on a slow one. Tidegate bounds it
//! by time: pages in flight are at most those that the device writes in, say, 40 ms; and a request
//! is at most half of that, so that there are two and the device never runs dry between them. For a
//! device that turns out to do more with more (a file server, an object store) the bound is doubled
//! as often as it does (`Domain::reach`).
//!
//! Linux 6.12 keeps writeback below three quarters of the device's queue, so that there is always
//! room for others (*writeback throttling*), and lets it go on only when that has drained by a good
//! part. The pages of a throttled writer are thus for the most part dirty and not under
//! writeback, and the flusher sends them in lumps:
//!
//! ```text
//!  requests in flight    48 |\    |\    |\          queue of 64: up to 48, then not before 18
//!                           | \   | \   | \
//!                        18 |  \__|  \__|  \__
//! ```
//!
//! Invariants
//!   1. A request is never larger than `request_max`, nor, except at `request_max`, smaller than 64
//!      KiB.
//!   2. Two requests may always be in flight, however slow the device is: it never runs dry.
//!   3. A slice is never empty while pages are left.
//!
//! Source: mechanisms 6.2 (Linux 6.12 fs/fs-writeback.c, writeback_chunk_size(); 2.6.36 the same
//! file, MAX_WRITEBACK_PAGES). The flight bound is Tidegate's own. Writeback
//! throttling: Linux 6.12 block/blk-wbt.c, get_limit(), wbt_rqw_done(), calc_wb_limits(), and
//! block/blk-rq-qos.c, rq_depth_calc_max_depth(); held against recordings of a guest, whose
//! nr_writeback runs from 23 requests to 48 in steps of a tick's completions.
//! Without a writer that paused in the last second it is given a quarter of that room only: 12
//! requests of a queue of 64. The room that counts writes to a swap file changed in 6.11
//! (`SwapRoom`): get_rq_wait() and bio_to_wbt_flags() of 5.15 and 6.12; B. Li, "blk-wbt: don't
//! throttle swap writes in direct reclaim", June 2024. Which rule there is belongs to the column,
//! as it came with a version of the kernel; how long the queue is, to the device.
//! A request is no longer than the device takes in one, and each needs room: blk_mq_submit_bio() of
//! 6.12 asks for it (rq_qos_throttle()) for every bio that no request of the task's plug takes in.
//! Deviation: the throttle is taken as it stands after its first 300 ms of nothing but writes, at
//! its widest. With readers beside them the kernel narrows it when their latency suffers. A disk
//! with a volatile cache, where the kernel lets a sleeper go on only when nothing is left while no
//! writer pauses, is taken for one without.

use crate::units::{Nanos, Pages, PagesPerSec};

/// Unit of a slice: 4 MiB.
const SLICE_UNIT_PAGES: u64 = 1024;
/// A slice is at most this share of the dirty limit (`DIRTY_SCOPE`).
const DIRTY_SCOPE: u64 = 8;
/// The smallest request worth sending while more pages are at hand: 64 KiB.
const REQUEST_MIN: Pages = Pages(16);
/// Requests that may be in flight in any case.
const REQUESTS_ALWAYS: u32 = 2;
/// A request takes at most this share of the flight bound.
const REQUESTS_PER_FLIGHT: u64 = 2;

/// The capacity of a device's own queue, where that is known (kernel: `nr_requests`,
/// `max_sectors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceQueue {
    /// Requests in it at once.
    pub requests: u32,
    /// The largest request.
    pub request_max: Pages,
}

/// The tunables of a cache's flusher. One value per column of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushTunables {
    /// The time that data may stay dirty (`dirty_expire_centisecs`, 30 s).
    pub expire: Nanos,
    /// The interval of the periodic flush (`dirty_writeback_centisecs`, 5 s). Zero: never.
    pub interval: Nanos,
    /// Number of pages that one slice of one file takes.
    pub slice: Slice,
    /// The bound on writeback in flight to a device.
    pub flight: Flight,
    /// Neighbouring pages merged into one request, at most.
    pub request_max: Pages,
}

/// The room that writes to a swap file take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapRoom {
    /// The background reclaimer has one for itself, and tasks that reclaim have one (kernel:
    /// `WBT_KSWAPD`, 4.10 to 6.10, where the tasks' is that of the device's writeback: deviation).
    /// A task that waits goes on when one write has ended (deviation).
    Background,
    /// There is one for all writes to the swap file (kernel: `WBT_SWAP`, since 6.11).
    Swap,
}

/// Size of a slice of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// A fixed count shared by one round over all files (2.6.36: 1024 pages).
    Fixed(Pages),
    /// About half a second of the device (6.12): see `slice_pages`.
    Bandwidth,
}

/// Bound on writeback in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flight {
    /// This many requests (block layer of Linux: 128).
    Requests(u32),
    /// As Linux has throttled writeback since 4.10: three quarters of the device's queue, in lumps.
    Throttled {
        /// Number of requests where the device does not tell of its queue.
        untold: u32,
        /// The room that writes to a swap file take up.
        swap_room: SwapRoom,
    },
    /// The pages that the device writes in that time, at least one request. Reads wait no longer
    /// than this.
    DeviceTime(Nanos),
}

impl FlushTunables {
    /// Tidegate's own: 30 s, 5 s, slices by bandwidth, 40 ms in flight, 1 MiB.
    #[must_use]
    pub const fn tidegate() -> Self {
        Self {
            expire: Nanos::secs(30),
            interval: Nanos::secs(5),
            slice: Slice::Bandwidth,
            flight: Flight::DeviceTime(Nanos::millis(40)),
            request_max: Pages(256),
        }
    }

    /// Linux 2.6.36: slices of 1024 pages, a queue of 128 requests of 512 KiB.
    #[must_use]
    pub const fn linux_2_6_36() -> Self {
        Self {
            expire: Nanos::secs(30),
            interval: Nanos::secs(5),
            slice: Slice::Fixed(Pages(1024)),
            flight: Flight::Requests(128),
            request_max: Pages(128),
        }
    }

    /// Linux 3.2: slices by bandwidth, a queue of 128 requests of 512 KiB.
    #[must_use]
    pub const fn linux_3_2() -> Self {
        Self {
            slice: Slice::Bandwidth,
            ..Self::linux_2_6_36()
        }
    }

    /// Linux 4.10 to 6.10: slices by bandwidth, writeback throttling, or a queue of 128 requests.
    ///
    /// Their block layer merges up to 1280 KiB; 1 MiB is the most that Tidegate sends at a time.
    #[must_use]
    pub const fn linux_4_10() -> Self {
        Self {
            expire: Nanos::secs(30),
            interval: Nanos::secs(5),
            slice: Slice::Bandwidth,
            flight: Flight::Throttled {
                untold: 128,
                swap_room: SwapRoom::Background,
            },
            request_max: Pages(256),
        }
    }

    /// Linux 6.12: the same, and one room for all writes to a swap file.
    #[must_use]
    pub const fn linux_6_12() -> Self {
        Self {
            flight: Flight::Throttled {
                untold: 128,
                swap_room: SwapRoom::Swap,
            },
            ..Self::linux_4_10()
        }
    }

    /// Pages of one slice (mechanisms 6.2: `round_down(min(bw/2, limit/8, left) + 1024, 1024)`).
    ///
    /// `bandwidth`: of the device. `dirty_limit`: the global one. `left`: what the work still has
    /// to write, `Pages::MAX` for background work. A fixed slice is never more than `left`; a slice
    /// by bandwidth is rounded up to the next 4 MiB and may be.
    #[must_use]
    pub fn slice_pages(&self, bandwidth: PagesPerSec, dirty_limit: Pages, left: Pages) -> Pages {
        match self.slice {
            Slice::Fixed(pages) => pages.at_most(left),
            Slice::Bandwidth => {
                let pages = (bandwidth.0 / 2)
                    .min(dirty_limit.0 / DIRTY_SCOPE)
                    .min(left.0);
                let pages = pages.saturating_add(SLICE_UNIT_PAGES);
                Pages(pages - pages % SLICE_UNIT_PAGES)
            }
        }
    }

    /// Pages of one request, so that a single request does not occupy the device for longer than a
    /// share of the flight bound; at least 64 KiB, at most `request_max`.
    ///
    /// Under a bound by time: half of what the device writes in it, rounded down to a power of two.
    /// Under Linux: no more than the device takes in one.
    #[must_use]
    pub fn request_pages(&self, bandwidth: PagesPerSec, queue: Option<DeviceQueue>) -> Pages {
        match self.flight {
            Flight::Requests(_) | Flight::Throttled { .. } => match queue {
                Some(queue) => self
                    .request_max
                    .at_most(queue.request_max)
                    .at_least(Pages(1)),
                None => self.request_max,
            },
            Flight::DeviceTime(bound) => {
                let half = bandwidth.pages_in(Nanos(bound.0 / REQUESTS_PER_FLIGHT));
                let power = half.0.checked_ilog2().map_or(0, |log| 1 << log);
                Pages(power).at_least(REQUEST_MIN).at_most(self.request_max)
            }
        }
    }

    /// The room for writes to a swap file on a device of that queue; `None`: it is not throttled.
    #[must_use]
    pub fn swap_flight(&self, queue: Option<DeviceQueue>) -> Option<SwapFlight> {
        let (Flight::Throttled { swap_room, .. }, Some(queue)) = (self.flight, queue) else {
            return None;
        };
        let throttle = Throttle::of(queue);
        Some(SwapFlight {
            most: throttle.most,
            resume: throttle.resume,
            request_max: queue.request_max.at_least(Pages(1)),
            room: swap_room,
        })
    }

    /// True if one more request may go out. `resumes`: the task that asks was refused before, and
    /// waits.
    #[must_use]
    pub fn may_submit(&self, flight: &InFlight, resumes: bool) -> bool {
        match self.flight {
            Flight::Requests(most) => flight.requests < most.max(1),
            Flight::Throttled { untold, .. } => {
                let Some(queue) = flight.queue else {
                    return flight.requests < untold.max(1);
                };
                let throttle = Throttle::of(queue);
                let most = if flight.hurried {
                    throttle.most
                } else {
                    throttle.calm
                };
                flight.requests < most && (!resumes || flight.requests <= throttle.resume)
            }
            Flight::DeviceTime(bound) => {
                let pages = flight.pages.saturating_add(flight.next);
                let bound = Nanos(bound.0.saturating_mul(1 << flight.reach));
                flight.requests < REQUESTS_ALWAYS << flight.reach
                    || pages <= flight.bandwidth.pages_in(bound)
            }
        }
    }
}

/// The room for writes to a swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapFlight {
    /// No more requests than these.
    pub most: u32,
    /// Once one was refused, no more until so few are left.
    pub resume: u32,
    /// The largest request: a longer run of pages takes up the room of several.
    pub request_max: Pages,
    /// The room it takes.
    pub room: SwapRoom,
}

/// The flight of a device, and the request that would come on top.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    /// Smoothed bandwidth of the device.
    pub bandwidth: PagesPerSec,
    /// Number of times that the bound by time is doubled for it, at most 16 times
    /// (`Domain::reach`).
    pub reach: u32,
    /// Its queue, if it is known.
    pub queue: Option<DeviceQueue>,
    /// A writer of the device paused in the last second.
    pub hurried: bool,
    /// Requests of writeback that it has.
    pub requests: u32,
    /// Their pages.
    pub pages: Pages,
    /// Pages of the next request.
    pub next: Pages,
}

/// Bounds on the requests of writeback in a device's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Throttle {
    /// No more than these.
    most: u32,
    /// No more than these while no writer waits for them.
    calm: u32,
    /// A task that was refused goes on when so few are left.
    resume: u32,
}

impl Throttle {
    /// At its widest: three quarters of the queue. Half of that counts as room for writeback that
    /// nobody hurries; its half again, less an eighth, is where a sleeper is woken.
    const fn of(queue: DeviceQueue) -> Self {
        let most = if queue.requests <= 1 {
            2
        } else {
            let most = queue.requests.saturating_mul(3) / 4;
            if most == 0 { 1 } else { most }
        };
        if most <= 2 {
            return Self {
                most,
                calm: 1,
                resume: most - 1,
            };
        }
        let normal = most.div_ceil(2);
        let background = most.div_ceil(4);
        Self {
            most,
            calm: background,
            resume: normal - background / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: Pages = Pages::MAX;

    #[test]
    fn a_slice_is_about_half_a_second_of_the_device() {
        let flush = FlushTunables::linux_6_12();
        // 100 MiB/s: 50 MiB, rounded up to the next 4 MiB.
        assert_eq!(
            flush.slice_pages(PagesPerSec(25600), NO_LIMIT, NO_LIMIT),
            Pages(13312)
        );
        // A slow device still gets 4 MiB.
        assert_eq!(
            flush.slice_pages(PagesPerSec(256), NO_LIMIT, NO_LIMIT),
            Pages(1024)
        );
        // 64 MiB may be dirty: an eighth is 8 MiB.
        assert_eq!(
            flush.slice_pages(PagesPerSec(25600), Pages(16384), NO_LIMIT),
            Pages(3072)
        );
        // Little left.
        assert_eq!(
            flush.slice_pages(PagesPerSec(25600), NO_LIMIT, Pages(10)),
            Pages(1024)
        );
        let huge = flush.slice_pages(PagesPerSec::MAX, NO_LIMIT, NO_LIMIT);
        assert_eq!(huge.0 % 1024, 0);
        assert!(huge.0 > 1 << 60);
    }

    #[test]
    fn writes_to_a_swap_file_are_throttled_where_the_queue_is_known() {
        let queue = DeviceQueue {
            requests: 32,
            request_max: Pages(256),
        };
        let flight = |room| SwapFlight {
            most: 24,
            resume: 9,
            request_max: Pages(256),
            room,
        };
        let queue = Some(queue);
        let linux = FlushTunables::linux_6_12();
        assert_eq!(linux.swap_flight(queue), Some(flight(SwapRoom::Swap)));
        let before = FlushTunables::linux_4_10();
        let apart = flight(SwapRoom::Background);
        assert_eq!(before.swap_flight(queue), Some(apart));
        assert_eq!(linux.swap_flight(None), None);
        assert_eq!(FlushTunables::tidegate().swap_flight(queue), None);
        assert_eq!(FlushTunables::linux_2_6_36().swap_flight(queue), None);
    }

    #[test]
    fn a_fixed_slice_ends_with_the_work() {
        let flush = FlushTunables::linux_2_6_36();
        assert_eq!(
            flush.slice_pages(PagesPerSec(25600), NO_LIMIT, NO_LIMIT),
            Pages(1024)
        );
        assert_eq!(
            flush.slice_pages(PagesPerSec(25600), NO_LIMIT, Pages(10)),
            Pages(10)
        );
    }

    #[test]
    fn a_request_is_half_the_flight_rounded_down() {
        let flush = FlushTunables::tidegate();
        // MiB/s of the device, pages of a request: 20 ms of it.
        let table = [
            (0, 16),
            (1, 16),
            (4, 16),
            (8, 32),
            (16, 64),
            (32, 128),
            (49, 128),
            (52, 256),
            (4096, 256),
        ];
        for (mib, pages) in table {
            let bandwidth = PagesPerSec(mib << 8);
            assert_eq!(
                flush.request_pages(bandwidth, None),
                Pages(pages),
                "{mib} MiB/s"
            );
        }
        let small = FlushTunables {
            request_max: Pages(8),
            ..flush
        };
        assert_eq!(small.request_pages(PagesPerSec(25600), None), Pages(8));
        assert_eq!(
            FlushTunables::linux_6_12().request_pages(PagesPerSec(1), None),
            Pages(256)
        );
    }

    fn flight(bandwidth: PagesPerSec, requests: u32, pages: u64, next: u64) -> InFlight {
        InFlight {
            bandwidth,
            reach: 0,
            queue: None,
            hurried: false,
            requests,
            pages: Pages(pages),
            next: Pages(next),
        }
    }

    #[test]
    fn the_flight_is_bounded_by_time_and_two_requests_always_go() {
        let flush = FlushTunables::tidegate();
        let bandwidth = PagesPerSec(4096); // 40 ms are 163 pages.
        let may = |requests, pages, next| {
            flush.may_submit(&flight(bandwidth, requests, pages, next), false)
        };
        assert!(may(0, 0, 256));
        assert!(may(1, 64, 64));
        assert!(may(2, 99, 64));
        assert!(!may(2, 100, 64));
        let hung = PagesPerSec(0);
        assert!(flush.may_submit(&flight(hung, 1, 32, 32), false));
        assert!(!flush.may_submit(&flight(hung, 2, u64::MAX, u64::MAX), false));
        let far = |requests, pages| {
            let flight = InFlight {
                reach: 2,
                ..flight(bandwidth, requests, pages, 64)
            };
            flush.may_submit(&flight, false)
        };
        // 160 ms are 655 pages.
        assert!(far(9, 591) && !far(9, 592) && far(7, 592));
    }

    #[test]
    fn two_requests_of_the_size_given_fit_the_flight() {
        let flush = FlushTunables::tidegate();
        for rate in (1640..200_000).step_by(777) {
            let request = flush.request_pages(PagesPerSec(rate), None).0;
            let second = flight(PagesPerSec(rate), 1, request, request);
            assert!(flush.may_submit(&second, false), "{rate}");
        }
    }

    #[test]
    fn a_queue_counts_requests_whatever_their_size() {
        for flush in [FlushTunables::linux_2_6_36(), FlushTunables::linux_6_12()] {
            assert!(flush.may_submit(&flight(PagesPerSec(1), 127, 1 << 20, 256), true));
            assert!(!flush.may_submit(&flight(PagesPerSec::MAX, 128, 1, 1), true));
        }
    }

    #[test]
    fn linux_6_12_fills_three_quarters_of_the_queue_and_lets_it_drain() {
        let queue = |requests| DeviceQueue {
            requests,
            request_max: Pages(16),
        };
        // Requests in the queue; most; most without a hurry; where a sleeper goes on.
        let table = [
            (1, 2, 1, 1),
            (2, 1, 1, 0),
            (4, 3, 1, 2),
            (32, 24, 6, 9),
            (64, 48, 12, 18),
            (128, 96, 24, 36),
        ];
        for (requests, most, calm, resume) in table {
            let expected = Throttle { most, calm, resume };
            assert_eq!(Throttle::of(queue(requests)), expected, "{requests}");
        }
        let flush = FlushTunables::linux_6_12();
        let with = |requests, resumes, hurried| {
            let queue = Some(queue(64));
            let flight = InFlight {
                queue,
                hurried,
                ..flight(PagesPerSec(1), requests, 0, 16)
            };
            flush.may_submit(&flight, resumes)
        };
        assert!(with(47, false, true) && !with(48, false, true));
        assert!(with(18, true, true) && !with(19, true, true));
        assert!(with(11, false, false) && !with(12, false, false) && with(11, true, false));
        assert_eq!(
            flush.request_pages(PagesPerSec(1), Some(queue(64))),
            Pages(16)
        );
    }
}
