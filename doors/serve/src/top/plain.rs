//! A snapshot as plain text: for pipes, logs and reports of faults.

use std::fmt::Write as _;

use super::text::{bytes, count, long, name, percent, time};
use crate::snapshot::{Snapshot, Volume};

/// The whole snapshot.
pub(super) fn show(address: &str, now: &Snapshot) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, address, now);
    text
}

fn write(text: &mut String, address: &str, now: &Snapshot) -> std::fmt::Result {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "for people"
    )]
    let (up, cpu) = (now.uptime_s as u64, (now.cpu * 100.0) as u64);
    writeln!(
        text,
        "tidegate {} at {address}: {}, up {}, {} of {} connections, cpu {cpu} %",
        name(&now.version, 20),
        name(&now.stage, 20),
        long(up),
        now.connections.now,
        now.connections.limit,
    )?;
    for reason in &now.health.reasons {
        writeln!(text, "! {}", name(reason, 200))?;
    }
    let memory = &now.memory;
    writeln!(
        text,
        "memory  limit {}, resident {} ({} %): clean {}, dirty {}, writeback {}, tables {}, other {}; free {}, pinned {}",
        bytes(memory.limit),
        bytes(memory.resident),
        percent(memory.resident, memory.limit),
        bytes(memory.clean),
        bytes(memory.dirty),
        bytes(memory.writeback),
        bytes(memory.metadata),
        bytes(memory.other),
        bytes(memory.free),
        bytes(memory.pinned),
    )?;
    writeln!(
        text,
        "dirty   {} of {}, background from {}",
        bytes(now.dirty.level),
        bytes(now.dirty.limit),
        bytes(now.dirty.background),
    )?;
    for volume in &now.volumes {
        writeln!(
            text,
            "\nvolume {}  {}  {}{}{}",
            name(&volume.name, 100),
            volume.state.name(),
            bytes(volume.numbers.size),
            if volume.read_only { ", read-only" } else { "" },
            if volume.paced { "" } else { ", not paced" },
        )?;
        writeln!(
            text,
            "  dirty {} of {}, backing written {}/s (estimated at {}/s), read {}/s, errors {}",
            bytes(volume.level.level),
            bytes(volume.level.limit),
            bytes(volume.written_rate),
            bytes(volume.numbers.bandwidth),
            bytes(volume.read_rate),
            volume.numbers.errors,
        )?;
        if let Some(error) = &volume.last_error {
            writeln!(text, "  last error: {}", name(error, 300))?;
        }
        let pauses = &volume.pauses;
        writeln!(
            text,
            "  clients {}, requests {}/s, {}/s; held {} now, {} ever, pauses p50 {} p99 {} max {}",
            volume.numbers.connections,
            count(requests_of(volume)),
            bytes(bytes_of(volume)),
            volume.numbers.held,
            count(volume.numbers.held_total),
            time(pauses.p50_us),
            time(pauses.p99_us),
            time(pauses.max_us),
        )?;
        if !volume.commands.is_empty() {
            writeln!(
                text,
                "  {:<13}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
                "command", "requests", "errors", "/s", "bytes/s", "p50", "p99", "p99.9", "max"
            )?;
        }
        for command in &volume.commands {
            let latency = &command.latency;
            writeln!(
                text,
                "  {:<13}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
                name(&command.command, 12),
                count(command.numbers.requests),
                count(command.numbers.errors),
                count(command.request_rate),
                bytes(command.byte_rate),
                time(latency.p50_us),
                time(latency.p99_us),
                time(latency.p999_us),
                time(latency.max_us),
            )?;
        }
    }
    of_volumes(text, now)?;
    if !now.waits.is_empty() {
        writeln!(
            text,
            "\n{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}",
            "waited for", "count", "/s", "total", "p50", "p99", "max", "timed out"
        )?;
    }
    for wait in &now.waits {
        writeln!(
            text,
            "{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}",
            name(&wait.cause, 21),
            count(wait.count),
            count(wait.rate),
            time(wait.total_us),
            time(wait.p50_us),
            time(wait.p99_us),
            time(wait.max_us),
            count(wait.timed_out),
        )?;
    }
    Ok(())
}

/// Clients and waits of each volume.
fn of_volumes(text: &mut String, now: &Snapshot) -> std::fmt::Result {
    let of = |volume: &Volume| name(&volume.name, 40);
    let clients = now.volumes.iter().flat_map(|volume| {
        volume.clients.iter().map(move |client| {
            let most = client.waits.first();
            let most = most.map(|wait| format!("{} {}", wait.cause, time(wait.waited_us_per_s)));
            [
                name(&client.address, 60),
                of(volume),
                count(client.requests),
                count(client.request_rate),
                time(client.oldest_us),
                most.map_or_else(|| "-".to_owned(), |most| name(&most, 40)),
            ]
        })
    });
    let heads = [
        "client",
        "volume",
        "requests",
        "/s",
        "oldest",
        "waits now /s",
    ];
    table(text, heads, clients)?;
    let waits = now.volumes.iter().flat_map(|volume| {
        volume.waits.iter().map(move |wait| {
            [
                name(&wait.cause, 40),
                of(volume),
                count(wait.count),
                time(wait.total_us),
                time(wait.waited_us_per_s),
            ]
        })
    });
    let heads = ["requests waited for", "volume", "count", "total", "now /s"];
    table(text, heads, waits)
}

/// A table, if it has a row; each column is as wide as it has to be.
fn table<const N: usize>(
    text: &mut String,
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> std::fmt::Result {
    let rows: Vec<[String; N]> = core::iter::once(heads.map(str::to_owned))
        .chain(rows)
        .collect();
    if rows.len() == 1 {
        return Ok(());
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: [usize; N] = core::array::from_fn(|at| width(at).unwrap_or(0));
    writeln!(text)?;
    for row in &rows {
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            match at {
                0 => write!(text, "{cell:<width$}")?,
                1 => write!(text, "  {cell:<width$}")?,
                _ => write!(text, "  {cell:>width$}")?,
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

/// Bytes a second that a volume's clients read and write.
fn bytes_of(volume: &Volume) -> u64 {
    let commands = volume.commands.iter();
    commands
        .filter(|command| matches!(command.command.as_str(), "read" | "write"))
        .map(|command| command.byte_rate)
        .sum()
}

/// Requests a second of a volume's clients.
fn requests_of(volume: &Volume) -> u64 {
    let commands = volume.commands.iter();
    commands.map(|command| command.request_rate).sum()
}
