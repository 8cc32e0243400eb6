//! Numbers and names as people read them.

/// Bytes, to three digits.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return format!("{bytes}");
    }
    let (mut scaled, mut unit) = (bytes, 0);
    while scaled >= 1024 * 1024 && unit + 1 < UNITS.len() {
        scaled /= 1024;
        unit += 1;
    }
    let (whole, tenths) = (scaled / 1024, scaled % 1024 * 10 / 1024);
    if whole < 100 {
        format!("{whole}.{tenths}{}", UNITS[unit])
    } else {
        format!("{whole}{}", UNITS[unit])
    }
}

/// A number of things, to three or four digits.
pub(super) fn count(count: u64) -> String {
    match count {
        0..10_000 => format!("{count}"),
        10_000..10_000_000 => format!("{}k", count / 1000),
        10_000_000..10_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

/// A time.
pub(super) fn time(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros}us"),
        1000..100_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        100_000..1_000_000 => format!("{}ms", micros / 1000),
        1_000_000..100_000_000 => {
            format!("{}.{}s", micros / 1_000_000, micros % 1_000_000 / 100_000)
        }
        _ => long(micros / 1_000_000),
    }
}

/// A long time in its two largest units.
pub(super) fn long(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// The part of `of` that it is, in percent.
pub(super) fn percent(part: u64, of: u64) -> u64 {
    let exact = (u128::from(part) * 100).checked_div(u128::from(of));
    u64::try_from(exact.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// A name from the server: the default export's is empty; without what would draw; at most `most`
/// characters.
pub(super) fn name(name: &str, most: usize) -> String {
    if name.is_empty() {
        return "(default)".to_owned();
    }
    let mut shown: String = name.chars().map(plain).take(most + 1).collect();
    if shown.chars().count() > most {
        shown = shown.chars().take(most.saturating_sub(1)).collect();
        shown.push('…');
    }
    shown
}

/// A character, or `?` in place of one that would draw.
pub(super) fn plain(c: char) -> char {
    if figures::is_unsafe(c) { '?' } else { c }
}
