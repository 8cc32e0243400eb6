//! A snapshot as text: `/top`, for terminals, pipes, logs and reports of faults.

use super::text::{bytes, count, long, name, percent, time};
use crate::snapshot::{CauseWait, Client, Command, Snapshot, Volume, Waited};

/// The whole snapshot of the server whose page is at `address`.
pub(crate) fn page(address: &impl core::fmt::Display, now: &Snapshot) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "for people"
    )]
    let (up, cpu) = (long(now.uptime_s as u64), (now.cpu * 100.0) as u64);
    let (version, stage, door) = (&now.version, &now.stage, &now.connections);
    let mut lines = vec![format!(
        "tidegate {version} at {address}: {stage}, up {up}, {} of {} connections, cpu {cpu} %",
        door.now, door.limit
    )];
    let reasons = now.health.reasons.iter();
    lines.extend(reasons.map(|reason| format!("! {}", name(reason, 200))));
    let of = &now.memory;
    let used = percent(of.resident, of.limit);
    let (limit, resident) = (bytes(of.limit), bytes(of.resident));
    let parts = [
        ("clean", of.clean),
        ("dirty", of.dirty),
        ("writeback", of.writeback),
        ("tables", of.metadata),
        ("other", of.other),
    ];
    let parts = parts.map(|(part, size)| format!("{part} {}", bytes(size)));
    let (parts, free, pinned) = (parts.join(", "), bytes(of.free), bytes(of.pinned));
    lines.push(format!(
        "memory  limit {limit}, resident {resident} ({used} %): {parts}; free {free}, pinned {pinned}"
    ));
    let of = &now.dirty;
    let [level, limit, background] = [of.level, of.limit, of.background].map(bytes);
    lines.push(format!(
        "dirty   {level} of {limit}, background from {background}"
    ));
    now.volumes.iter().for_each(|one| volume(&mut lines, one));
    clients(&mut lines, now);
    lines.push(String::new());
    lines.join("\n")
}

fn volume(lines: &mut Vec<String>, of: &Volume) {
    let numbers = &of.numbers;
    let (title, state, size) = (name(&of.name, 100), of.state.name(), bytes(numbers.size));
    let read_only = if of.read_only { ", read-only" } else { "" };
    let paced = if of.paced { "" } else { ", not paced" };
    lines.push(format!(
        "\nvolume {title}  {state}  {size}{read_only}{paced}"
    ));
    let (level, limit) = (bytes(of.level.level), bytes(of.level.limit));
    let rates = [of.written_rate, numbers.bandwidth, of.read_rate].map(bytes);
    let ([written, estimated, read], errors) = (rates, numbers.errors);
    let unread = match numbers.read_failed_total {
        0 => String::new(),
        bytes => format!(", not read {}", self::bytes(bytes)),
    };
    lines.push(format!(
        "  dirty {level} of {limit}, backing written {written}/s (estimated at {estimated}/s), read {read}/s, errors {errors}{unread}"
    ));
    let slow = of.slow.iter();
    lines.extend(slow.map(|why| format!("  slow for {}: {}", time(of.state_us), name(why, 300))));
    let error = of.last_error.iter();
    lines.extend(error.map(|error| format!("  last error: {}", name(error, 300))));
    let error = of.last_read_error.iter();
    lines.extend(error.map(|error| format!("  last read error: {}", name(error, 300))));
    let commands = of.commands.iter();
    let requests = commands.clone().map(|command| command.request_rate).sum();
    let moved = commands.map(|command| command.byte_rate).sum();
    let pauses = [of.pauses.p50_us, of.pauses.p99_us, of.pauses.max_us].map(time);
    let ([p50, p99, max], ever) = (pauses, count(numbers.held_total));
    lines.push(format!(
        "  clients {}, requests {}/s, {}/s; held {} now, {ever} ever, pauses p50 {p50} p99 {p99} max {max}",
        numbers.connections,
        count(requests),
        bytes(moved),
        numbers.held
    ));
    #[rustfmt::skip]
    let columns: Columns<'_, &Command> = &[
        ("  command", &|of| format!("  {}", of.command)),
        ("requests",  &|of| count(of.numbers.requests)),
        ("errors",    &|of| count(of.numbers.errors)),
        ("/s",        &|of| count(of.request_rate)),
        ("bytes/s",   &|of| bytes(of.byte_rate)),
        ("p50",       &|of| time(of.latency.p50_us)),
        ("p99",       &|of| time(of.latency.p99_us)),
        ("p99.9",     &|of| time(of.latency.p999_us)),
        ("max",       &|of| time(of.latency.max_us)),
    ];
    table(lines, columns, 1, of.commands.iter());
}

/// Clients, what requests to each volume waited for, and what was waited for in the cache.
#[rustfmt::skip]
fn clients(lines: &mut Vec<String>, now: &Snapshot) {
    let most = |of: &Client| of.waits.first().map_or_else(|| "-".to_owned(), |wait| format!("{} {}", wait.cause, time(wait.waited_us_per_s)));
    let columns: Columns<'_, (&Volume, &Client)> = &[
        ("\nclient",     &|(_, of)| name(&of.address, 60)),
        ("volume",       &|(volume, _)| name(&volume.name, 40)),
        ("requests",     &|(_, of)| count(of.requests)),
        ("/s",           &|(_, of)| count(of.request_rate)),
        ("oldest",       &|(_, of)| time(of.oldest_us)),
        ("waits now /s", &|(_, of)| most(of)),
    ];
    let volumes = || now.volumes.iter();
    table(lines, columns, 2, volumes().flat_map(|of| of.clients.iter().map(move |client| (of, client))));
    let columns: Columns<'_, (&Volume, &CauseWait)> = &[
        ("\nrequests waited for", &|(_, of)| name(&of.cause, 40)),
        ("volume",                &|(volume, _)| name(&volume.name, 40)),
        ("count",                 &|(_, of)| count(of.count)),
        ("total",                 &|(_, of)| time(of.total_us)),
        ("now /s",                &|(_, of)| time(of.waited_us_per_s)),
    ];
    table(lines, columns, 2, volumes().flat_map(|of| of.waits.iter().map(move |wait| (of, wait))));
    let columns: Columns<'_, &Waited> = &[
        ("\nwaited for", &|of| name(&of.cause, 40)),
        ("count",        &|of| count(of.count)),
        ("/s",           &|of| count(of.rate)),
        ("total",        &|of| time(of.total_us)),
        ("p50",          &|of| time(of.p50_us)),
        ("p99",          &|of| time(of.p99_us)),
        ("max",          &|of| time(of.max_us)),
        ("timed out",    &|of| count(of.timed_out)),
    ];
    table(lines, columns, 1, now.waits.iter());
}

/// Columns of a table: the head of each, and what is in it.
type Columns<'a, T> = &'a [(&'a str, &'a dyn Fn(&T) -> String)];

/// A table, if it has a row; each column is as wide as it has to be, the first `left` of them begin
/// on the left.
fn table<T>(
    lines: &mut Vec<String>,
    columns: Columns<'_, T>,
    left: usize,
    all: impl Iterator<Item = T>,
) {
    let heads = columns
        .iter()
        .map(|(head, _)| (*head).trim_start_matches('\n').to_owned());
    let rows = all.map(|one| columns.iter().map(|(_, of)| of(&one)).collect());
    let rows: Vec<Vec<String>> = core::iter::once(heads.collect()).chain(rows).collect();
    if rows.len() == 1 {
        return;
    }
    if columns[0].0.starts_with('\n') {
        lines.push(String::new());
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| width(at).unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, width))| match at < left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        lines.push(cells.collect::<Vec<_>>().join("  "));
    }
}
