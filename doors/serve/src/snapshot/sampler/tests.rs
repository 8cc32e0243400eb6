use std::time::{Duration, Instant};

use super::*;
use crate::snapshot::tests::{assert_stored, latencies, reading};

const MIB: u64 = 1 << 20;

fn two(state: State) -> Snapshot {
    let began = Instant::now();
    let mut sampler = Sampler::default();
    sampler.next(reading(began, 1, state));
    sampler.next(reading(began, 3, state))
}

#[test]
fn the_first_snapshot_has_no_rates() {
    let snapshot = Sampler::default().next(reading(Instant::now(), 9, State::Ok));
    assert_eq!((snapshot.interval_s, snapshot.cpu), (0.0, 0.0));
    let write = &snapshot.volumes[0].commands[1];
    assert_eq!((write.numbers.requests, write.request_rate), (18_000, 0));
    assert_eq!(write.latency_recent, Percentiles::default());
    assert_eq!(snapshot.waits[0].rate, 0);
}

#[test]
fn rates_are_per_second_of_the_time_between() {
    let snapshot = two(State::Ok);
    assert_eq!(snapshot.interval_s, 2.0);
    assert_eq!(snapshot.cpu, 0.25);
    let root = &snapshot.volumes[0];
    assert_eq!(root.written_rate, 3 * MIB);
    let names: Vec<_> = root
        .commands
        .iter()
        .map(|command| command.command.as_str())
        .collect();
    assert_eq!(names, ["read", "write"]);
    let write = &root.commands[1];
    assert_eq!((write.request_rate, write.byte_rate), (2000, 2000 * 4096));
    assert_eq!(
        (
            write.numbers.requests,
            write.latency.count,
            write.latency_recent.count
        ),
        (6000, 6000, 4000)
    );
    assert_eq!(write.latency.p50_us, 32);
    assert_eq!(write.latency.p90_us, 8192);
    assert_eq!(
        (write.latency.p999_us, write.latency.max_us),
        (40_000, 40_000)
    );
    let pause = &snapshot.waits[0];
    assert_eq!((pause.rate, pause.waited_us_per_s), (5, 50_000));
}

#[test]
fn clients_in_one_place_have_rates_of_their_own() {
    let began = Instant::now();
    let one_place = |seconds| {
        let mut reading = reading(began, seconds, State::Ok);
        for client in &mut reading.volumes[0].clients {
            client.address = "process 4711".to_owned();
        }
        reading
    };
    let mut sampler = Sampler::default();
    sampler.next(one_place(1));
    let snapshot = sampler.next(one_place(3));
    let clients = snapshot.volumes[0].clients.iter();
    let rates = clients.map(|client| {
        let most = &client.waits[0];
        let waited = (most.cause.as_str(), most.waited_us_per_s);
        (client.request_rate, waited)
    });
    let expected = [(100, ("flush", 700_000)), (2000, ("held reply", 700_000))];
    assert_eq!(rates.collect::<Vec<_>>(), expected);
}

#[test]
fn memory_adds_up_to_what_is_resident() {
    let memory = two(State::Ok).memory;
    assert_eq!(
        memory.clean + memory.dirty + memory.writeback,
        memory.cached
    );
    assert_eq!(
        memory.cached + memory.metadata + memory.other,
        memory.resident
    );
}

#[test]
fn a_volume_that_came_or_began_anew_has_no_negative_rates() {
    let began = Instant::now();
    let mut sampler = Sampler::default();
    let mut first = reading(began, 5, State::Ok);
    first.volumes.remove(1);
    sampler.next(first);
    // Offered again: its counters began anew.
    let mut second = reading(began, 1, State::Ok);
    second.instant = began + Duration::from_secs(6);
    let snapshot = sampler.next(second);
    let write = &snapshot.volumes[0].commands[1];
    assert_eq!((write.request_rate, write.latency_recent.count), (0, 0));
    assert_eq!(snapshot.volumes[1].written_rate, 0);
}

#[test]
fn a_volume_whose_clients_do_not_get_on_is_told_with_its_name() {
    assert_eq!(
        two(State::Ok).health,
        Health {
            ok: true,
            reasons: Vec::new()
        }
    );
    for state in State::ALL {
        let snapshot = two(state);
        assert_eq!(snapshot.health.ok, state.is_healthy());
        assert_eq!(
            snapshot.health.reasons.len(),
            usize::from(state != State::Ok)
        );
        assert!(
            snapshot
                .health
                .reasons
                .iter()
                .all(|reason| reason.contains("data/backup"))
        );
    }
    let stalled = two(State::Stalled).health.reasons;
    assert_eq!(
        stalled,
        ["volume \"data/backup\": the backing has not answered for 3 s"]
    );
}

#[test]
fn a_volume_whose_every_read_fails_is_not_healthy_and_one_that_failed_a_read_is() {
    let mut now = reading(Instant::now(), 1, State::Ok);
    let cause = "reading at byte 4096 failed: the device is gone";
    now.volumes[1].last_read_error = Some(cause.to_owned());
    let mut of = |failing: Option<(u64, u64)>| {
        now.volumes[1].reads_failing =
            failing.map(|(since, last)| (Duration::from_secs(since), Duration::from_secs(last)));
        health(&now)
    };
    let said = |seconds| {
        vec![format!(
            "volume \"data/backup\": reads from the backing have failed for {seconds} s: {cause}"
        )]
    };
    for (failing, ok, reasons) in [
        // It failed before; the last one went well.
        (None, true, Vec::new()),
        // A bad sector.
        (Some((0, 0)), true, said(0)),
        (Some((30, 30)), true, said(30)),
        // One after the other.
        (Some((6, 1)), false, said(6)),
        (Some((90, 60)), false, said(90)),
    ] {
        let health = of(failing);
        assert_eq!((health.ok, health.reasons), (ok, reasons), "{failing:?}");
    }
}

#[test]
fn a_server_that_drains_is_not_healthy_and_says_how_much_is_left_until_it_has_ended() {
    let mut now = reading(Instant::now(), 1, State::Ok);
    let mut of = |stage, dirty, writeback| {
        now.stage = stage;
        (now.stats.dirty, now.stats.writeback) = (dirty, writeback);
        let health = health(&now);
        assert!(!health.ok);
        health.reasons[0].clone()
    };
    for (said, expected) in [
        (
            of(Stage::Draining, 3 << 20, 0),
            "the server is draining: 3 MiB are not written yet",
        ),
        (
            of(Stage::Ending, 1 << 20, 1 << 20),
            "the server is ending: 2 MiB are not written yet",
        ),
        (
            of(Stage::Ending, 0, 0),
            "the server is ending: everything is written, and not yet flushed",
        ),
        (of(Stage::Ended, 0, 0), "the server is ended"),
    ] {
        assert_eq!(said, expected);
    }
}

/// Keys, types and values: what programs that read `/snapshot.json` hold on to.
#[test]
fn the_json_is_as_stored() {
    let mut snapshot = two(State::Retrying);
    "0".clone_into(&mut snapshot.version);
    let value = serde_json::to_value(&snapshot).unwrap();
    let text = serde_json::to_string_pretty(&value).unwrap();
    assert_stored("snapshot.json", &(text + "\n"));
}

#[test]
fn json_there_and_back_is_the_same_and_gaps_are_filled() {
    let snapshot = two(State::Retrying);
    let text = serde_json::to_string(&snapshot).unwrap();
    let back: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    let gaps: Snapshot =
        serde_json::from_str("{\"format\": 7, \"volumes\": [{\"name\": \"x\"}]}").unwrap();
    assert_eq!((gaps.format, gaps.volumes[0].name.as_str()), (7, "x"));
}

#[test]
fn the_last_second_is_told_apart_from_the_ones_before() {
    let before = latencies(&[(10, 1000)]);
    let mut now = latencies(&[(10, 1000), (5_000, 10)]);
    now.max = Duration::from_millis(5);
    let recent = percentiles(&since(&now, Some(&before)));
    assert_eq!(
        (recent.count, recent.p50_us, recent.mean_us),
        (10, 5_000, 5_000)
    );
}

#[test]
fn who_waits_for_long_is_named() {
    let mut now = reading(Instant::now(), 5, State::Ok);
    now.volumes[0].numbers.oldest_us = 9_000_000;
    assert_eq!(health(&now).reasons, [""; 0]);
    now.volumes[0].numbers.oldest_us = 12_000_000;
    let health = health(&now);
    assert!(health.ok, "a limit of dirty data may be why");
    assert_eq!(
        health.reasons,
        ["volume \"root\": 20 requests under way, the oldest for 12 s"]
    );
}

#[test]
fn a_volume_of_which_reads_failed_lately_says_so_once() {
    let mut now = reading(Instant::now(), 5, State::ReadsFail);
    let cause = "reading at byte 4096 failed: the device is gone";
    let told = |now: &Reading| {
        let health = health(now);
        assert!(health.ok, "others are served");
        health.reasons
    };
    let lately = "reads from the backing failed within the last minute";
    assert_eq!(
        told(&now),
        [format!("volume \"data/backup\": {lately}: {cause}")]
    );
    now.volumes[1].reads_failing = Some((Duration::from_secs(3), Duration::ZERO));
    let all = "reads from the backing have failed for 3 s";
    assert_eq!(
        told(&now),
        [format!("volume \"data/backup\": {all}: {cause}")]
    );
    let snapshot = Sampler::default().next(now);
    assert_eq!(snapshot.volumes[1].last_read_error.as_deref(), Some(cause));
}

#[test]
fn a_volume_whose_backing_is_lost_is_not_well() {
    let mut now = reading(Instant::now(), 5, State::Lost);
    now.volumes[1].lost = Some("/srv/a.img: it was removed".to_owned());
    let health = health(&now);
    assert!(!health.ok);
    assert_eq!(
        health.reasons,
        ["volume \"data/backup\": the backing is lost: /srv/a.img: it was removed"]
    );
}
