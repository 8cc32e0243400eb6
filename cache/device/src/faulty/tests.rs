use super::*;
use crate::testing::{Rig, Serve};
use policy::units::SECOND;

fn faulty(rig: &Rig, plan: FaultPlan) -> Arc<Faulty> {
    Faulty::new(rig.disk(), rig.host(), plan)
}

/// Submits one request and answers how it ended.
fn one(rig: &Rig, device: &Faulty, op: IoOp, offset: u64, pages: u32) -> Result<(), IoError> {
    rig.submit(device, rig.request(op, 1, offset, pages));
    rig.run();
    let results = rig.results();
    assert_eq!(results.len(), 1, "one request, one end");
    results[0]
}

fn percent(percent: u32) -> Odds {
    Odds::from_ppb(percent * 10_000_000).unwrap()
}

#[test]
fn an_empty_plan_changes_nothing() {
    let rig = Rig::new();
    let faulty = faulty(&rig, FaultPlan::default());
    for op in [
        IoOp::Read,
        IoOp::Write,
        IoOp::Flush,
        IoOp::SetLen { len: Bytes(9) },
    ] {
        assert_eq!(one(&rig, &faulty, op, 0, 3), Ok(()));
    }
    rig.disk.serve(Serve::Fail(IoError::NoSpace));
    assert_eq!(one(&rig, &faulty, IoOp::Write, 0, 1), Err(IoError::NoSpace));
    assert_eq!(
        faulty.counts(),
        FaultyCounts {
            requests: 5,
            ..FaultyCounts::default()
        }
    );
}

#[test]
fn the_nth_read_write_and_flush_fail_and_move_nothing() {
    let rig = Rig::new();
    let plan = FaultPlan {
        eio_read_at: Some(1),
        eio_write_at: Some(2),
        flush_fail_at: Some(3),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    let run = |op| -> Vec<_> { (0..4).map(|_| one(&rig, &faulty, op, 0, 1)).collect() };
    assert_eq!(run(IoOp::Read), [Err(EIO), Ok(()), Ok(()), Ok(())]);
    assert_eq!(run(IoOp::Write), [Ok(()), Err(EIO), Ok(()), Ok(())]);
    assert_eq!(run(IoOp::Flush), [Ok(()), Ok(()), Err(EIO), Ok(())]);
    assert_eq!(
        rig.disk.seen().len(),
        9,
        "failed requests do not reach the device"
    );
    assert_eq!(faulty.counts().failed, 3);
}

#[test]
fn odds_fail_that_share_and_repeat_with_the_seed() {
    let run = |seed| {
        let rig = Rig::new();
        let plan = FaultPlan {
            seed,
            eio_writes: percent(20),
            ..FaultPlan::default()
        };
        let faulty = faulty(&rig, plan);
        (0..1_000)
            .map(|_| one(&rig, &faulty, IoOp::Write, 0, 1).is_err())
            .collect::<Vec<_>>()
    };
    let first = run(1);
    let failed = first.iter().filter(|failed| **failed).count();
    assert!((150..250).contains(&failed), "{failed} of 1000 at 20 %");
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

#[test]
fn a_bad_range_fails_whatever_touches_it() {
    let rig = Rig::new();
    let plan = FaultPlan {
        eio_range: Some(8192..12_288),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    assert_eq!(one(&rig, &faulty, IoOp::Write, 0, 2), Ok(()));
    assert_eq!(one(&rig, &faulty, IoOp::Write, 0, 3), Err(EIO));
    assert_eq!(one(&rig, &faulty, IoOp::Read, 8192, 1), Err(EIO));
    assert_eq!(one(&rig, &faulty, IoOp::Read, 12_288, 1), Ok(()));
    assert_eq!(one(&rig, &faulty, IoOp::Flush, 8192, 0), Ok(()));
}

#[test]
fn a_full_device_refuses_new_space_only() {
    let rig = Rig::new();
    let plan = FaultPlan {
        full_after: Some(Bytes(4 * 4096)),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    assert_eq!(
        one(
            &rig,
            &faulty,
            IoOp::Allocate {
                len: Bytes(3 * 4096)
            },
            0,
            0
        ),
        Ok(())
    );
    assert_eq!(
        one(&rig, &faulty, IoOp::Write, 4096, 2),
        Ok(()),
        "allocated before"
    );
    assert_eq!(
        one(&rig, &faulty, IoOp::Write, 3 * 4096, 2),
        Err(IoError::NoSpace)
    );
    assert_eq!(
        one(&rig, &faulty, IoOp::Write, 3 * 4096, 1),
        Ok(()),
        "the last page"
    );
    let more = IoOp::Allocate {
        len: Bytes(4 * 4096 + 1),
    };
    assert_eq!(one(&rig, &faulty, more, 0, 0), Err(IoError::NoSpace));
    assert_eq!(
        one(&rig, &faulty, IoOp::Read, 1 << 30, 2),
        Ok(()),
        "reads take no space"
    );
    assert_eq!(
        one(&rig, &faulty, IoOp::SetLen { len: Bytes(4096) }, 0, 0),
        Ok(())
    );
    assert_eq!(
        one(&rig, &faulty, IoOp::Write, 4096, 3),
        Ok(()),
        "space given back"
    );
    assert_eq!(faulty.counts().no_space, 2);
}

#[test]
fn a_hole_takes_no_space() {
    let rig = Rig::new();
    let plan = FaultPlan {
        full_after: Some(Bytes(3 * 4096)),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    let one_page = IoOp::Allocate { len: Bytes(4096) };
    assert_eq!(one(&rig, &faulty, one_page, 1 << 40, 0), Ok(()));
    assert_eq!(one(&rig, &faulty, IoOp::Write, 1 << 41, 2), Ok(()));
    assert_eq!(
        one(&rig, &faulty, one_page, 1 << 42, 0),
        Err(IoError::NoSpace)
    );
    let cut = IoOp::SetLen {
        len: Bytes((1 << 41) + 4096),
    };
    assert_eq!(one(&rig, &faulty, cut, 0, 0), Ok(()));
    assert_eq!(one(&rig, &faulty, one_page, 1 << 42, 0), Ok(()));
    assert_eq!(
        one(&rig, &faulty, IoOp::Write, 1 << 43, 1),
        Err(IoError::NoSpace)
    );
}

#[test]
fn a_torn_write_arrives_in_part_and_comes_back_whole() {
    let rig = Rig::new();
    let plan = FaultPlan {
        seed: 5,
        torn_writes: Odds::ALWAYS,
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let before = rig.disk.seen().len();
        rig.submit(&*faulty, rig.request(IoOp::Write, 1, 0, 4));
        rig.run();
        let ended = rig.ended().pop().unwrap();
        let Err(IoError::Torn { done }) = ended.result else {
            panic!("{:?}", ended.result)
        };
        assert_eq!(
            ended.request.frames,
            (0..4).map(FrameId).collect::<Vec<_>>()
        );
        let written: usize = rig.disk.seen()[before..].iter().map(|seen| seen.3).sum();
        assert_eq!(
            written as u64 * 4096,
            done,
            "what arrived is what the error says"
        );
        lengths.insert(written);
    }
    assert_eq!(
        lengths.into_iter().collect::<Vec<_>>(),
        [0, 1, 2, 3],
        "every cut happens"
    );
    rig.disk.serve(Serve::Fail(IoError::Lost));
    rig.submit(&*faulty, rig.request(IoOp::Write, 1, 0, 400));
    rig.run();
    let ended = rig.ended().pop().unwrap();
    assert_eq!(
        ended.result,
        Err(IoError::Lost),
        "the inner device's error goes first"
    );
    assert_eq!(ended.request.frames.len(), 400);
}

#[test]
fn the_device_hangs_for_a_time_and_then_goes_on_in_order() {
    let rig = Rig::new();
    let plan = FaultPlan {
        hang_at: Some(Instant(SECOND)),
        hang_for: Some(Nanos::secs(2)),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    assert_eq!(one(&rig, &faulty, IoOp::Write, 0, 1), Ok(()));
    rig.run_until(Instant(2 * SECOND));
    rig.submit(&*faulty, rig.request(IoOp::Write, 1, 4096, 1));
    rig.run_until(Instant(2 * SECOND + SECOND / 2));
    rig.submit(&*faulty, rig.request(IoOp::Write, 1, 8192, 1));
    rig.run_until(Instant(3 * SECOND - 1));
    assert_eq!(faulty.held(), 2);
    rig.run();
    let ends: Vec<_> = rig
        .ended()
        .iter()
        .map(|e| (e.request.offset.0, e.at))
        .collect();
    assert_eq!(ends, [(4096, 3 * SECOND), (8192, 3 * SECOND)]);
    assert_eq!(
        one(&rig, &faulty, IoOp::Write, 0, 1),
        Ok(()),
        "after the hang"
    );
    assert_eq!(faulty.counts().hung, 2);
}

#[test]
fn a_hang_without_end_waits_for_release() {
    let rig = Rig::new();
    let plan = FaultPlan {
        hang_at: Some(Instant::ZERO),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    for page in 0..3 {
        rig.submit(&*faulty, rig.request(IoOp::Write, 1, page * 4096, 1));
    }
    rig.run_until(Instant(1_000 * SECOND));
    assert_eq!((faulty.held(), rig.results().len()), (3, 0));
    faulty.release();
    rig.run();
    assert_eq!(rig.results(), [Ok(()); 3]);
    assert_eq!(
        one(&rig, &faulty, IoOp::Read, 0, 1),
        Ok(()),
        "the plan's hang is over"
    );
    faulty.hold();
    rig.submit(&*faulty, rig.request(IoOp::Write, 1, 0, 1));
    rig.run();
    assert_eq!(faulty.held(), 1, "held by hand");
    faulty.cancel(&Interrupt::new());
    assert_eq!(rig.results(), [Err(IoError::Cancelled)]);
}

#[test]
fn single_requests_hang_by_chance() {
    let rig = Rig::new();
    let plan = FaultPlan {
        hang: percent(30),
        hang_for: Some(Nanos::secs(1)),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    for _ in 0..200 {
        rig.submit(&*faulty, rig.request(IoOp::Write, 1, 0, 1));
    }
    let held = faulty.held();
    assert!((30..90).contains(&held), "{held} of 200 held at 30 %");
    rig.run();
    let late = rig
        .ended()
        .iter()
        .filter(|ended| ended.at == SECOND)
        .count();
    assert_eq!(late, held, "each hangs a second");
}

#[test]
fn a_lost_device_stays_lost() {
    let rig = Rig::new();
    let plan = FaultPlan {
        lost_at: Some(Instant(SECOND)),
        ..FaultPlan::default()
    };
    let gone = faulty(&rig, plan);
    assert_eq!(one(&rig, &gone, IoOp::Write, 0, 1), Ok(()));
    rig.run_until(Instant(SECOND));
    for op in [
        IoOp::Read,
        IoOp::Write,
        IoOp::Flush,
        IoOp::Allocate { len: Bytes(1) },
    ] {
        assert_eq!(one(&rig, &gone, op, 0, 1), Err(IoError::Lost));
    }
    assert_eq!(gone.counts().lost, 4);
    let held = faulty(&rig, FaultPlan::default());
    held.hold();
    rig.submit(&*held, rig.request(IoOp::Write, 1, 0, 1));
    held.lose();
    rig.run();
    assert_eq!(
        rig.results(),
        [Err(IoError::Lost)],
        "what hung when the device went"
    );
}

#[test]
fn lengths_space_and_slow_failures_are_planned_too() {
    let rig = Rig::new();
    let plan = FaultPlan {
        length_fails: Odds::ALWAYS,
        discard_fails: Odds::ALWAYS,
        no_space: Odds::ALWAYS,
        flush_fails: Odds::ALWAYS,
        fails_after: Nanos::millis(7),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, plan);
    for (op, expected) in [
        (IoOp::SetLen { len: Bytes(9) }, Err(EIO)),
        (IoOp::Write, Err(IoError::NoSpace)),
        (IoOp::Allocate { len: Bytes(1) }, Err(IoError::NoSpace)),
        (IoOp::Discard { len: Bytes(1) }, Err(EIO)),
        (IoOp::Flush, Err(EIO)),
        (IoOp::Read, Ok(())),
    ] {
        let before = rig.host().now();
        assert_eq!(one(&rig, &faulty, op, 0, 1), expected, "{op:?}");
        let took = rig.host().now().since(before);
        let expected = if expected.is_err() { 7_000_000 } else { 0 };
        assert_eq!(took.0, expected, "{op:?}");
    }
}

#[test]
fn another_plan_holds_for_what_comes_after_it() {
    let rig = Rig::new();
    let always = FaultPlan {
        eio_writes: Odds::ALWAYS,
        lingers: Nanos::millis(50),
        ..FaultPlan::default()
    };
    let faulty = faulty(&rig, always);
    assert_eq!(one(&rig, &faulty, IoOp::Write, 0, 1), Err(EIO));
    let before = rig.host().now();
    for _ in 0..5 {
        assert_eq!(one(&rig, &faulty, IoOp::Flush, 0, 0), Ok(()));
    }
    let took = rig.host().now().since(before);
    assert!(
        took > Nanos::ZERO && took <= Nanos::millis(250),
        "five flushes linger up to 50 ms each: {took:?}"
    );
    faulty.set_plan(FaultPlan::default());
    let before = rig.host().now();
    assert_eq!(one(&rig, &faulty, IoOp::Write, 0, 1), Ok(()));
    assert_eq!(one(&rig, &faulty, IoOp::Flush, 0, 0), Ok(()));
    assert_eq!(rig.host().now(), before);
}
