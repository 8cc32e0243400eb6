//! The screen.
//!
//! ```text
//!   server, stage, connections, cpu                      what is the matter
//!   memory: one bar of what it is used for, with the limit as its whole
//!   volumes: a row each                                  (scrolls)
//!   waits by cause
//!   throughput of the last minutes
//! ```

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};

use super::model::{Model, bytes_of, p99_of, requests_of};
use super::text::{bytes, count, long, name, percent, time};
use crate::snapshot::{Level, Snapshot, State, Volume};

/// Draws one frame.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let Some(now) = &model.snapshot else {
        let waiting = match &model.gone {
            None => format!("asking {} ...", model.address),
            Some(why) => format!(
                "no answer from {}: {why}; trying again (q quits)",
                model.address
            ),
        };
        frame.render_widget(Paragraph::new(waiting), frame.area());
        return;
    };
    let reasons = u16::try_from(now.health.reasons.len().min(3)).unwrap_or(0);
    let gone = u16::from(model.gone.is_some());
    let waits = u16::try_from(now.waits.len().min(8)).unwrap_or(0) + 2;
    let areas = Layout::vertical([
        Constraint::Length(1 + reasons + gone),
        Constraint::Length(4),
        Constraint::Min(4),
        Constraint::Length(waits),
        Constraint::Length(5),
    ])
    .split(frame.area());
    frame.render_widget(heading(model, now), areas[0]);
    memory(frame, areas[1], now);
    volumes(frame, areas[2], model, now);
    waited(frame, areas[3], now);
    throughput(frame, areas[4], model);
}

fn heading<'a>(model: &Model, now: &Snapshot) -> Paragraph<'a> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "for people"
    )]
    let (up, cpu) = (now.uptime_s as u64, (now.cpu * 100.0) as u64);
    let mut lines = vec![Line::from(vec![
        Span::from("tidegate ").bold(),
        Span::from(format!(
            "{}  {}  up {}  {}/{} connections  cpu {cpu} %  (q quits)",
            model.address,
            name(&now.stage, 12),
            long(up),
            now.connections.now,
            now.connections.limit,
        )),
    ])];
    if let Some(why) = &model.gone {
        let text = format!(
            "no answer: {}; as it was last; trying again",
            name(why, 120)
        );
        lines.push(Line::from(text).style(Style::new().bold().reversed()));
    }
    for reason in now.health.reasons.iter().take(3) {
        lines.push(Line::from(format!("! {}", name(reason, 200))).red().bold());
    }
    Paragraph::new(lines)
}

fn titled<'a>(title: String) -> Block<'a> {
    Block::new().borders(Borders::TOP).title(title)
}

/// Parts of memory with their colours, in the order of the bar.
fn parts(now: &Snapshot) -> [(&'static str, u64, Color, char); 5] {
    let memory = &now.memory;
    [
        ("dirty", memory.dirty, Color::Yellow, '█'),
        ("writeback", memory.writeback, Color::Magenta, '▓'),
        ("clean", memory.clean, Color::Green, '▒'),
        ("tables", memory.metadata, Color::Blue, '░'),
        ("other", memory.other, Color::Cyan, '='),
    ]
}

fn memory(frame: &mut Frame<'_>, area: Rect, now: &Snapshot) {
    let memory = &now.memory;
    let title = format!(
        " memory: {} of {} resident ({} %) ",
        bytes(memory.resident),
        bytes(memory.limit),
        percent(memory.resident, memory.limit),
    );
    let block = titled(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let width = u64::from(inside.width);
    let whole = memory.limit.max(memory.resident).max(1);
    let (mut bar, mut legend, mut sum, mut drawn) = (Vec::new(), Vec::new(), 0_u64, 0_u64);
    for (what, part, colour, mark) in parts(now) {
        sum += part;
        // Rounded at the sum, so that the bar is as long as all of it.
        let end = (u128::from(sum) * u128::from(width) / u128::from(whole)).min(u128::from(width));
        let end = u64::try_from(end).unwrap_or(width);
        let cells = usize::try_from(end.saturating_sub(drawn)).unwrap_or(0);
        drawn = end.max(drawn);
        bar.push(Span::styled(mark.to_string().repeat(cells), colour));
        legend.push(Span::styled(format!("{mark} "), colour));
        legend.push(Span::from(format!("{what} {}  ", bytes(part))));
    }
    let left = usize::try_from(width.saturating_sub(drawn)).unwrap_or(0);
    bar.push(Span::from("·".repeat(left)).add_modifier(Modifier::DIM));
    let dirty = format!(
        "dirty level {} of {} ({} %), background from {}; pinned {}",
        bytes(now.dirty.level),
        bytes(now.dirty.limit),
        percent(now.dirty.level, now.dirty.limit),
        bytes(now.dirty.background),
        bytes(memory.pinned),
    );
    let lines = vec![Line::from(bar), Line::from(legend), Line::from(dirty)];
    frame.render_widget(Paragraph::new(lines), inside);
}

/// A level against its limit.
fn bar(level: &Level) -> String {
    const CELLS: usize = 6;
    let filled = percent(level.level, level.limit).min(100) * CELLS as u64 / 100;
    let filled = usize::try_from(filled).unwrap_or(CELLS);
    let empty = "·".repeat(CELLS - filled);
    format!("{}{empty} {:>5}", "█".repeat(filled), bytes(level.level))
}

fn volumes(frame: &mut Frame<'_>, area: Rect, model: &Model, now: &Snapshot) {
    let rows = now.volumes.iter().skip(model.first).map(row);
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Length(12),
        Constraint::Length(4),
        Constraint::Length(7),
        Constraint::Length(6),
    ];
    let heading = [
        "volume",
        "state",
        "read/s",
        "write/s",
        "req/s",
        "dirty/limit",
        "held",
        "pause99",
        "p99",
    ];
    let last = now.volumes.len();
    let title = match model.first {
        0 => format!(" volumes ({last}) "),
        first => format!(" volumes ({}-{last} of {last}) ", first + 1),
    };
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(Modifier::BOLD))
        .block(titled(title));
    frame.render_widget(table, area);
}

fn row<'a>(volume: &Volume) -> Row<'a> {
    let state = match volume.state {
        State::Ok => Span::from("ok").green(),
        State::Retrying => Span::from("retrying").yellow(),
        State::FlushFailed => Span::from("flush bad").red().bold(),
        bad => Span::from(bad.name()).red().bold(),
    };
    let at_limit = volume.level.limit > 0 && percent(volume.level.level, volume.level.limit) >= 95;
    let dirty = Span::from(bar(&volume.level));
    let pauses = &volume.pauses_recent;
    let pause = if pauses.count > 0 {
        time(pauses.p99_us)
    } else {
        "-".to_owned()
    };
    Row::new(vec![
        Span::from(name(&volume.name, 40)),
        state,
        Span::from(bytes(bytes_of(volume, Some("read")))),
        Span::from(bytes(bytes_of(volume, Some("write")))),
        Span::from(count(requests_of(volume))),
        if at_limit { dirty.yellow() } else { dirty },
        Span::from(count(volume.held)),
        Span::from(pause),
        Span::from(p99_of(volume).map_or("-".to_owned(), time)),
    ])
}

fn waited(frame: &mut Frame<'_>, area: Rect, now: &Snapshot) {
    let mut waits: Vec<_> = now.waits.iter().collect();
    waits.sort_by_key(|wait| std::cmp::Reverse((wait.waited_us_per_s, wait.total_us)));
    let rows = waits.into_iter().map(|wait| {
        Row::new([
            name(&wait.cause, 24),
            count(wait.rate),
            time(wait.waited_us_per_s),
            count(wait.count),
            time(wait.total_us),
            time(wait.p99_us),
            time(wait.max_us),
            count(wait.timed_out),
        ])
    });
    let mut widths = vec![Constraint::Fill(1)];
    widths.resize(8, Constraint::Length(7));
    let heading = [
        "waited for",
        "/s",
        "time/s",
        "count",
        "total",
        "p99",
        "max",
        "timeout",
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(Modifier::BOLD))
        .block(titled(" waits ".to_owned()));
    frame.render_widget(table, area);
}

fn throughput(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let shown = model
        .throughput
        .len()
        .saturating_sub(usize::from(area.width));
    let data: Vec<u64> = model.throughput.iter().skip(shown).copied().collect();
    let now = data.last().copied().unwrap_or(0);
    let most = data.iter().copied().max().unwrap_or(0);
    let title = format!(
        " throughput: {}/s now, {}/s at most here ",
        bytes(now),
        bytes(most)
    );
    let line = Sparkline::default()
        .block(titled(title))
        .style(Color::Green)
        .max(most.max(1))
        .data(data);
    frame.render_widget(line, area);
}
