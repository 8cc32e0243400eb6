//! Levels, rates and percentiles from two readings.

use std::time::{Duration, UNIX_EPOCH};

use tidegate::CallWait;

use super::reading::{ClientReading, CommandReading, Reading, VolumeReading, micros};
use super::{
    CauseWait, Client, Command, FORMAT, Health, Level, Memory, Percentiles, Pressure, Snapshot,
    State, Volume, Waited,
};
use crate::config::show_size;
use crate::counters::{Kind, Latencies};
use crate::hub::Stage;

/// Makes snapshots; keeps the reading before, for rates.
#[derive(Debug, Default)]
pub struct Sampler {
    before: Option<Reading>,
}

impl Sampler {
    /// The snapshot of `now`, with rates since the reading of the call before.
    pub fn next(&mut self, now: Reading) -> Snapshot {
        let interval = self.before.as_ref().map_or(Duration::ZERO, |before| {
            now.instant.saturating_duration_since(before.instant)
        });
        let snapshot = snapshot(&now, self.before.as_ref(), Per(interval));
        self.before = Some(now);
        snapshot
    }
}

/// The time by which rates are divided.
#[derive(Clone, Copy)]
struct Per(Duration);

impl Per {
    /// The growth of a counter in a second; zero where it was begun anew.
    fn second(self, now: u64, before: u64) -> u64 {
        let micros = self.0.as_micros();
        if micros == 0 {
            return 0;
        }
        let grown = u128::from(now.saturating_sub(before)) * 1_000_000;
        u64::try_from((grown + micros / 2) / micros).unwrap_or(u64::MAX)
    }
}

fn snapshot(now: &Reading, before: Option<&Reading>, per: Per) -> Snapshot {
    let stats = &now.stats;
    let mut volumes = Vec::with_capacity(now.volumes.len());
    for volume in &now.volumes {
        let of_before = before.and_then(|before| {
            let mut all = before.volumes.iter();
            all.find(|other| other.name == volume.name)
        });
        volumes.push(one_volume(volume, of_before, per));
    }
    let cpu_before = before.map_or(now.cpu, |before| before.cpu);
    let cpu = per.second(micros(now.cpu), micros(cpu_before));
    Snapshot {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at_ms: now
            .at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| micros(since) / 1000),
        uptime_s: round(now.uptime.as_secs_f64()),
        interval_s: round(per.0.as_secs_f64()),
        stage: stage_name(now.stage).to_owned(),
        health: health(now),
        memory: Memory::read(now.resident, stats),
        dirty: Level {
            level: stats.dirty + stats.writeback,
            limit: stats.dirty_limit,
            background: stats.background_limit,
        },
        connections: now.door,
        cpu: round(Duration::from_micros(cpu).as_secs_f64()),
        pressure: Pressure {
            some_us: micros(stats.pressure.some),
            full_us: micros(stats.pressure.full),
        },
        waits: waits(now, before, per),
        volumes,
    }
}

/// To the millisecond: more would only make the text longer.
fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// Its name in JSON.
pub(crate) fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Serving => "serving",
        Stage::Draining => "draining",
        Stage::Ending => "ending",
        Stage::Ended => "ended",
    }
}

/// A volume of which every read has failed for so long is not well; a single failed read may be a
/// bad sector.
const READS_FAIL: Duration = Duration::from_secs(5);

/// A request that is under way for so long is named: clients give up after 30 s.
const OLD: Duration = Duration::from_secs(10);

/// The health of the server for clients; also of readings that become no snapshot.
pub(crate) fn health(now: &Reading) -> Health {
    let mut reasons = Vec::new();
    let mut ok = now.stage == Stage::Serving;
    if !ok {
        let left = now.stats.dirty + now.stats.writeback;
        let left = match now.stage {
            Stage::Ended => String::new(),
            _ if left == 0 => ": everything is written, and not yet flushed".to_owned(),
            _ => format!(": {} are not written yet", show_size(left)),
        };
        reasons.push(format!("the server is {}{left}", stage_name(now.stage)));
    }
    let door = &now.door;
    if door.now >= door.limit && door.limit > 0 {
        reasons.push(format!(
            "all {} connections are taken: further clients are refused",
            door.limit
        ));
    }
    if door.limit < door.asked {
        reasons.push(format!(
            "there are descriptors for {} connections, {} are allowed: raise `ulimit -Hn`",
            door.limit, door.asked
        ));
    }
    for (key, ends) in &now.certificates {
        let at = now.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(matter) = crate::tls::lifetime((0, *ends), at.as_secs()) {
            reasons.push(format!("a certificate of the `{key}` of [tls] {matter}"));
        }
    }
    for volume in &now.volumes {
        let name = volume.name.escape_debug();
        let oldest = Duration::from_micros(volume.numbers.oldest_us);
        if oldest >= OLD {
            // Its clients wait; whether that is a fault the state of the volume says.
            let (requests, age) = (volume.numbers.in_flight, oldest.as_secs());
            let s = if requests == 1 { "" } else { "s" };
            reasons.push(format!(
                "volume \"{name}\": {requests} request{s} under way, the oldest for {age} s"
            ));
        }
        if let Some((since, last)) = volume.reads_failing {
            let cause = volume.last_read_error.as_deref().unwrap_or("not known");
            let seconds = since.as_secs();
            reasons.push(format!(
                "volume \"{name}\": reads from the backing have failed for {seconds} s: {cause}"
            ));
            ok &= since.saturating_sub(last) < READS_FAIL;
        }
        let since = match volume.state_for {
            Some(time) => format!(" for {} s", time.as_secs()),
            None => String::new(),
        };
        let has_cause = !matches!(volume.state, State::Lost | State::ReadsFail | State::Slow);
        let mut what = match volume.state {
            State::Ok => continue,
            State::Slow => {
                let why = volume.slow.as_deref().unwrap_or("not known");
                format!("slow{since}: {why}")
            }
            // Said above, with the time.
            State::ReadsFail if volume.reads_failing.is_some() => continue,
            State::ReadsFail => {
                let cause = volume.last_read_error.as_deref().unwrap_or("not known");
                format!("reads from the backing failed within the last minute: {cause}")
            }
            State::Retrying => {
                format!("writes to the backing have failed{since} and are tried again")
            }
            State::Stalled => format!("the backing has not answered{since}"),
            State::Stopped => "writes to the backing failed, and the policy is to stop".to_owned(),
            State::FlushFailed => "a flush of the backing failed".to_owned(),
            State::Lost => {
                let why = volume.lost.as_deref().unwrap_or("not known");
                format!("the backing is lost: {why}")
            }
        };
        if let Some(error) = volume.last_error.as_ref().filter(|_| has_cause) {
            what.push_str(": ");
            what.push_str(error);
        }
        ok &= volume.state.is_healthy();
        reasons.push(format!("volume \"{name}\": {what}"));
    }
    Health { ok, reasons }
}

fn waits(now: &Reading, before: Option<&Reading>, per: Per) -> Vec<Waited> {
    let mut waits = Vec::with_capacity(now.stats.waits.len());
    for wait in &now.stats.waits {
        let of_before = before.map(|before| {
            let mut all = before.stats.waits.iter();
            all.find(|other| other.cause == wait.cause)
                .map_or((0, Duration::ZERO), |other| (other.count, other.total))
        });
        let (count, total) = of_before.unwrap_or((wait.count, wait.total));
        waits.push(Waited {
            cause: wait.cause.to_owned(),
            count: wait.count,
            total_us: micros(wait.total),
            max_us: micros(wait.max),
            timed_out: wait.timed_out,
            p50_us: micros(wait.quantile(500)),
            p99_us: micros(wait.quantile(990)),
            rate: per.second(wait.count, count),
            waited_us_per_s: per.second(micros(wait.total), micros(total)),
        });
    }
    waits
}

fn percentiles(of: &Latencies) -> Percentiles {
    let count = of.count();
    Percentiles {
        count,
        mean_us: micros(of.total).checked_div(count).unwrap_or(0),
        p50_us: micros(of.quantile(500)),
        p90_us: micros(of.quantile(900)),
        p99_us: micros(of.quantile(990)),
        p999_us: micros(of.quantile(999)),
        max_us: micros(of.max),
    }
}

/// The times that were added to `now` since `before`. Its longest is not known: that of `now`
/// bounds it.
fn since(now: &Latencies, before: Option<&Latencies>) -> Latencies {
    let Some(before) = before else {
        return Latencies::default();
    };
    let mut grown = *now;
    for (bucket, old) in grown.buckets.iter_mut().zip(before.buckets) {
        *bucket = bucket.saturating_sub(old);
    }
    grown.total = now.total.saturating_sub(before.total);
    grown
}

fn one_volume(now: &VolumeReading, before: Option<&VolumeReading>, per: Per) -> Volume {
    let from = before.unwrap_or(now);
    let mut commands = Vec::new();
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        let reading = &now.commands[at];
        if reading.numbers.requests > 0 {
            let of_before = before.map(|before| &before.commands[at]);
            commands.push(command(kind, reading, of_before, per));
        }
    }
    let (numbers, earlier) = (now.numbers, from.numbers);
    Volume {
        name: now.name.clone(),
        read_only: now.read_only,
        paced: now.paced,
        state: now.state,
        state_us: now.state_for.map_or(0, micros),
        numbers,
        level: Level {
            level: numbers.dirty + numbers.writeback,
            limit: numbers.dirty_limit,
            background: numbers.background_limit,
        },
        slow: now.slow.clone(),
        written_rate: per.second(numbers.written_total, earlier.written_total),
        read_rate: per.second(numbers.read_total, earlier.read_total),
        last_error: now.last_error.clone(),
        last_read_error: now.last_read_error.clone(),
        pauses: percentiles(&now.held_for),
        pauses_recent: percentiles(&since(&now.held_for, before.map(|before| &before.held_for))),
        commands,
        clients: clients(now, from, per),
        waits: by_cause(&now.waits, &from.waits, per),
    }
}

fn by_cause(now: &[CallWait], from: &[CallWait], per: Per) -> Vec<CauseWait> {
    let one = |wait: &CallWait| {
        let before = from.iter().find(|other| other.cause == wait.cause);
        let before = before.map_or(Duration::ZERO, |before| before.total);
        CauseWait {
            cause: wait.cause.to_owned(),
            count: wait.count,
            total_us: micros(wait.total),
            waited_us_per_s: per.second(micros(wait.total), micros(before)),
        }
    };
    now.iter().map(one).collect()
}

/// Clients of a volume that a snapshot has.
const CLIENTS_MOST: usize = 50;
/// Causes of a client's waits that a snapshot has.
const CAUSES_MOST: usize = 3;

fn clients(now: &VolumeReading, from: &VolumeReading, per: Per) -> Vec<Client> {
    let one = |client: &ClientReading| {
        let before = &from.clients;
        let at = before.binary_search_by_key(&client.number, |other| other.number);
        let (requests, waited) = at.map_or((0, &[][..]), |at| {
            (before[at].requests, &before[at].waits[..])
        });
        let mut waits = by_cause(&client.waits, waited, per);
        waits.sort_by_key(|wait| core::cmp::Reverse((wait.waited_us_per_s, wait.total_us)));
        waits.truncate(CAUSES_MOST);
        Client {
            address: client.address.clone(),
            requests: client.requests,
            request_rate: per.second(client.requests, requests),
            oldest_us: micros(client.oldest),
            waits,
        }
    };
    let mut all: Vec<Client> = now.clients.iter().map(one).collect();
    all.sort_by_key(|client| core::cmp::Reverse((client.oldest_us, client.request_rate)));
    all.truncate(CLIENTS_MOST);
    all
}

fn command(kind: Kind, now: &CommandReading, before: Option<&CommandReading>, per: Per) -> Command {
    let from = before.unwrap_or(now);
    Command {
        command: kind.name().to_owned(),
        numbers: now.numbers,
        request_rate: per.second(now.numbers.requests, from.numbers.requests),
        byte_rate: per.second(now.numbers.bytes, from.numbers.bytes),
        latency: percentiles(&now.latency),
        latency_recent: percentiles(&since(&now.latency, before.map(|before| &before.latency))),
    }
}

#[cfg(test)]
mod tests;
