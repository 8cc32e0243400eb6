use super::*;
use crate::EIO;
use crate::chance::Chance;
use crate::testing::{Rig, Serve};
use env::ObjectId;
use policy::units::SECOND;

const MIB: u64 = 1 << 20;

fn slow(rig: &Rig, options: SlowOptions) -> Arc<Slow> {
    Slow::new(rig.disk(), rig.host(), &options)
}

fn rate(rate: u64) -> SlowOptions {
    SlowOptions {
        rate: Some(BytesPerSec(rate)),
        ..SlowOptions::default()
    }
}

/// (offset, when) of what came back.
fn ends(rig: &Rig) -> Vec<(u64, u64)> {
    rig.ended()
        .iter()
        .map(|ended| (ended.request.offset.0, ended.at))
        .collect()
}

#[test]
fn one_request_takes_its_length_over_the_rate() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(16 * MIB));
    for number in 0..4 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * MIB, 256));
    }
    rig.run();
    let sixteenth = SECOND / 16;
    let expected: Vec<_> = (0..4).map(|n| (n * MIB, (n + 1) * sixteenth)).collect();
    assert_eq!(ends(&rig), expected);
}

#[test]
fn latency_and_transfer_add_up_at_depth_one() {
    let rig = Rig::new();
    let options = SlowOptions {
        latency: Nanos::millis(2),
        ..rate(4_096_000)
    };
    let slow = slow(&rig, options);
    for number in 0..3 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * 4096, 1));
    }
    rig.submit(&*slow, rig.request(IoOp::Flush, 1, 0, 0));
    rig.run();
    // 2 ms and 1 ms each; the flush (class sync) overtakes the writes that wait, and moves nothing.
    let ms = 1_000_000;
    assert_eq!(
        ends(&rig),
        [(0, 3 * ms), (0, 5 * ms), (4096, 8 * ms), (8192, 11 * ms)]
    );
}

#[test]
fn work_of_the_file_system_does_not_queue_for_the_disk() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(MIB));
    rig.submit(&*slow, rig.request(IoOp::Write, 1, 0, 256));
    let len = Bytes(8 * MIB);
    rig.submit(&*slow, rig.request(IoOp::Allocate { len }, 1, 1, 0));
    rig.submit(&*slow, rig.request(IoOp::SetLen { len }, 1, 2, 0));
    rig.run();
    assert_eq!(ends(&rig), [(1, 0), (2, 0), (0, SECOND)]);
}

#[test]
fn a_deeper_queue_overlaps_latencies_and_shares_the_rate() {
    let rig = Rig::new();
    let options = SlowOptions {
        latency: Nanos::millis(2),
        depth: 4,
        ..rate(4_096_000)
    };
    let slow = slow(&rig, options);
    for number in 0..5 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * 4096, 1));
    }
    assert_eq!((slow.in_service(), slow.waiting()), (4, 1));
    rig.run();
    let ms = 1_000_000;
    // The fifth begins at 3 ms, is ready at 5 ms, and the link is free at 6 ms.
    let expected = [
        (0, 3 * ms),
        (4096, 4 * ms),
        (8192, 5 * ms),
        (12288, 6 * ms),
        (16384, 7 * ms),
    ];
    assert_eq!(ends(&rig), expected);
}

#[test]
fn readers_go_before_writeback_in_order_of_their_classes() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(4_096_000));
    let classes = [
        IoClass::Writeback, // in service at once
        IoClass::Writeback,
        IoClass::ReadAhead,
        IoClass::Read,
        IoClass::Sync,
        IoClass::Writeback,
        IoClass::Read,
    ];
    for (number, class) in (0..).zip(classes) {
        let mut request = rig.request(IoOp::Write, 1, number * 4096, 1);
        request.class = class;
        rig.submit(&*slow, request);
    }
    rig.run();
    let order: Vec<u64> = ends(&rig).iter().map(|(offset, _)| offset / 4096).collect();
    assert_eq!(order, [0, 3, 6, 4, 2, 1, 5]);
    let served: Vec<u64> = rig.disk.seen().iter().map(|seen| seen.2 / 4096).collect();
    assert_eq!(served, order, "the inner device sees the order of service");
}

#[test]
fn an_idle_device_saves_no_more_than_its_burst() {
    let rig = Rig::new();
    let slow = slow(
        &rig,
        SlowOptions {
            burst: Bytes(2 * 4096),
            ..rate(4_096_000)
        },
    );
    rig.run_until(Instant(SECOND));
    for number in 0..4 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * 4096, 1));
    }
    rig.run();
    let ms = 1_000_000;
    let expected = [
        (0, SECOND),
        (4096, SECOND),
        (8192, SECOND + ms),
        (12288, SECOND + 2 * ms),
    ];
    assert_eq!(ends(&rig), expected);
}

#[test]
fn the_rate_changes_for_the_request_in_service_too() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(MIB));
    rig.submit(&*slow, rig.request(IoOp::Write, 1, 0, 256));
    rig.submit(&*slow, rig.request(IoOp::Write, 1, MIB, 256));
    rig.run_until(Instant(SECOND / 2));
    slow.set_rate(Some(BytesPerSec(MIB / 4)));
    rig.run_until(Instant(SECOND));
    assert!(
        ends(&rig).is_empty(),
        "a quarter of the rate from the middle of the first request"
    );
    slow.set_rate(Some(BytesPerSec(0)));
    rig.run_until(Instant(10 * SECOND));
    assert!(ends(&rig).is_empty(), "a rate of zero");
    slow.set_rate(Some(BytesPerSec(MIB)));
    rig.run();
    // 3/8 of the first were left.
    let first = 10 * SECOND + 3 * SECOND / 8;
    assert_eq!(ends(&rig), [(0, first), (MIB, first + SECOND)]);
    slow.set_rate(None);
    rig.submit(&*slow, rig.request(IoOp::Write, 1, 0, 256));
    assert_eq!(
        ends(&rig),
        [(0, first + SECOND)],
        "without a rate it is as fast as the inner one"
    );
}

#[test]
fn a_slower_inner_device_shows_and_a_quicker_one_does_not() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(4_096_000));
    rig.disk.serve(Serve::After(Nanos::micros(900)));
    rig.submit(&*slow, rig.request(IoOp::Write, 1, 0, 1));
    rig.run();
    assert_eq!(ends(&rig), [(0, 1_000_000)]);
    rig.disk.serve(Serve::After(Nanos::micros(1_500)));
    rig.submit(&*slow, rig.request(IoOp::Write, 1, 0, 1));
    rig.run();
    assert_eq!(ends(&rig), [(0, 2_500_000)]);
}

#[test]
fn errors_of_the_inner_device_go_on() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(4_096_000));
    rig.disk.serve(Serve::Fail(EIO));
    rig.submit(&*slow, rig.request(IoOp::Read, 1, 0, 1));
    rig.run();
    assert_eq!(rig.results(), [Err(EIO)]);
}

#[test]
fn cancel_ends_what_waits_and_lets_what_is_in_service_end() {
    let rig = Rig::new();
    let slow = slow(&rig, rate(0));
    rig.disk.serve(Serve::Hold);
    for number in 0..3 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * 4096, 1));
    }
    rig.run_until(Instant(SECOND));
    slow.cancel(&Interrupt::new());
    assert_eq!(rig.results(), [Err(IoError::Cancelled); 2]);
    assert!(rig.disk.end_one(Ok(())));
    assert_eq!(rig.results(), [Ok(())], "what the inner device had");
    rig.disk.serve(Serve::Inside);
    rig.submit(&*slow, rig.request(IoOp::Write, 1, 0, 1));
    rig.run();
    assert_eq!(rig.results(), [Ok(())], "what comes later passes at once");
}

#[test]
fn a_hurried_timer_opens_the_device() {
    let rig = Rig::new();
    let options = SlowOptions {
        latency: Nanos::secs(5),
        ..rate(1)
    };
    let slow = slow(&rig, options);
    for number in 0..3 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * 4096, 1));
    }
    assert!(rig.host.hurry(), "a timer is set");
    assert_eq!(rig.results(), [Ok(()); 3]);
}

/// Submits again from its completion, `left` times.
struct Chain {
    slow: Arc<Slow>,
    left: Mutex<u32>,
    me: Weak<Self>,
}

impl IoDone for Chain {
    fn io_done(&self, _context: &Interrupt, mut request: Box<IoRequest>, _: Result<(), IoError>) {
        let again = {
            let mut left = take_lock(&self.left);
            *left -= 1;
            *left > 0
        };
        if again {
            request.on_done(self.me.upgrade().unwrap());
            self.slow.submit(request);
        }
    }
}

#[test]
fn a_completion_that_submits_does_not_recurse() {
    let rig = Rig::new();
    let slow = slow(&rig, SlowOptions::default());
    let left = Mutex::new(200_000);
    let chain = Arc::new_cyclic(|me| Chain {
        slow: Arc::clone(&slow),
        left,
        me: Weak::clone(me),
    });
    let mut request = rig.request(IoOp::Write, 1, 0, 1);
    request.on_done(Arc::<Chain>::clone(&chain));
    slow.submit(request);
    assert_eq!(*take_lock(&chain.left), 0);
}

/// Random requests, depths, bursts and rates: order within classes, service limit, conservation,
/// and the bound on bytes in every window.
#[test]
fn random_loads_keep_order_and_rate() {
    for seed in 0..200 {
        random_load(seed);
    }
}

fn random_load(seed: u64) {
    let mut chance = Chance::new(seed);
    let bytes_per_sec = 1_000_000 + chance.below(50_000_000);
    let burst = chance.below(3) * chance.below(1 << 20);
    let depth = [1, 1, 2, 8][usize::try_from(chance.below(4)).unwrap()];
    let latency = Nanos(chance.below(2) * chance.below(3_000_000));
    let rig = Rig::new();
    rig.disk.serve(match chance.below(3) {
        0 => Serve::Inside,
        _ => Serve::After(Nanos(chance.below(500_000))),
    });
    let options = SlowOptions {
        burst: Bytes(burst),
        latency,
        depth,
        ..rate(bytes_per_sec)
    };
    let slow = slow(&rig, options);
    let classes = [
        IoClass::Read,
        IoClass::Sync,
        IoClass::ReadAhead,
        IoClass::Writeback,
    ];
    let mut pages_max = 0;
    let count = 60;
    for number in 0..count {
        let pages = 1 + chance.below(64);
        pages_max = pages_max.max(pages);
        let op = [IoOp::Read, IoOp::Write][usize::try_from(chance.below(2)).unwrap()];
        let mut request = rig.request(op, 1, 0, u32::try_from(pages).unwrap());
        request.class = classes[usize::try_from(chance.below(4)).unwrap()];
        request.object = ObjectId(u32::try_from(number).unwrap());
        rig.submit(&*slow, request);
        assert!(slow.in_service() <= depth, "seed {seed}: in service");
        if chance.below(3) == 0 {
            let now = rig.host.now();
            rig.run_until(now + Nanos(chance.below(3_000_000)));
        }
    }
    rig.run();
    let ended = rig.ended();
    assert_eq!(ended.len(), 60, "seed {seed}: every request ends once");
    // First come, first served within a class, as the inner device sees it.
    for class in classes {
        let served: Vec<u32> = rig
            .disk
            .seen()
            .iter()
            .map(|seen| seen.1)
            .filter(|object| {
                ended
                    .iter()
                    .any(|e| e.request.object.0 == *object && e.request.class == class)
            })
            .collect();
        assert!(
            served.is_sorted(),
            "seed {seed}: {class:?} served as {served:?}"
        );
    }
    // Bytes in the window between any two completions, both included. An inner device that is
    // slow at times bunches completions: only a quick one keeps the bound exactly.
    if matches!(rig.disk.how(), Serve::Inside) {
        let bytes: Vec<u64> = ended.iter().map(|e| e.request.pages().bytes().0).collect();
        for first in 0..ended.len() {
            let mut sum = 0;
            for last in first..ended.len() {
                sum += bytes[last];
                let window = ended[last].at - ended[first].at;
                let moved = u128::from(bytes_per_sec) * u128::from(window) / u128::from(SECOND);
                let bound = moved + u128::from(burst + pages_max * 4096);
                let excess = u128::from(sum).saturating_sub(bound);
                assert_eq!(excess, 0, "seed {seed}: bytes too many in {first}..={last}");
            }
        }
    }
}

#[test]
fn a_rate_changes_at_its_moment_and_a_rate_of_zero_stands_still() {
    let rig = Rig::new();
    let at = |s, rate| RateStep {
        at: Instant(s * SECOND),
        rate: BytesPerSec(rate),
    };
    let options = SlowOptions {
        then: vec![at(2, 0), at(5, MIB / 2)],
        ..rate(MIB)
    };
    let slow = slow(&rig, options);
    for number in 0..4 {
        rig.submit(&*slow, rig.request(IoOp::Write, 1, number * MIB, 256));
    }
    rig.run();
    // Two at 1 MiB/s; nothing from 2 to 5 s; then 2 s each.
    let expected = [
        (0, SECOND),
        (MIB, 2 * SECOND),
        (2 * MIB, 7 * SECOND),
        (3 * MIB, 9 * SECOND),
    ];
    assert_eq!(ends(&rig), expected);
}
