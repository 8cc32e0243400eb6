//! The log of the server while it runs: one line an event, on standard error.
//!
//! Events are made with [`error`], [`warn`], [`info`] and [`debug`] of the `tracing` crate, so that
//! those of libraries (`object_store`) arrive here too. They are dealt with here:
//!
//! ```text
//!   info!(volume = %name, offset, cause = %error, "writeback failed")
//!   time=2026-11-22T00:05:03.123Z level=info msg="writeback failed" volume=root offset=4096 cause="..."
//! ```
//!
//! Invariants
//!   1. One event, one line: names and texts that come from clients are escaped and cut, so they
//!      cannot forge a line, move a terminal's cursor or fill a disk. A line is at most
//!      [`LINE_MAX`] bytes.
//!   2. Writing never waits: a standard error that takes nothing now (a full pipe) loses lines, and
//!      the next line that gets through says how many.
//!   3. At most `PER_SECOND` lines a second from one place in the code for one volume; the number
//!      of those left out is said when the second has passed, with the next line or by [`finish`].
//!   4. Memory is bounded: the table of places has at most `PLACES_MAX` rows.
//!
//! Of crates that are not ours only warnings and errors are written.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use figures::is_unsafe;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
pub use tracing::{debug, error, info, warn};

/// Lines a second from one place for one volume.
pub const PER_SECOND: u64 = 10;
/// Longest line in bytes; what the kernel promises to take from us in one piece when a pipe has
/// room at all.
pub const LINE_MAX: usize = 4096;
/// Longest value and longest message in characters; a cut one ends with an ellipsis.
const VALUE_MAX: usize = 600;
/// Characters that the table of places keeps of a volume's name and of a message.
const PLACE_MAX: usize = 100;
/// Rows in the table of places.
const PLACES_MAX: usize = 1024;
/// Crates whose events are ours.
const OURS: [&str; 6] = ["serve", "tidegate", "objects", "nbd", "os", "device"];

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `key=value`.
    #[default]
    Logfmt,
    /// An object of JSON a line.
    Json,
}

/// The least grave events that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Events that need somebody: data are not safe, or the server cannot go on.
    Error,
    /// Events that may need somebody.
    Warn,
    /// Events a few times in a server's life.
    #[default]
    Info,
    /// Events of every connection.
    Debug,
}

impl Level {
    /// All, by name.
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
    ];

    fn of(level: &tracing::Level) -> Option<Self> {
        let named = |(name, _): &&(&str, Self)| level.as_str().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).map(|(_, level)| *level)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// The log of this process; set once.
static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// From now on events of this process are written. A second call changes the level only.
pub fn start(format: Format, level: Level) {
    let mut is_new = false;
    let log = LOG.get_or_init(|| {
        is_new = true;
        Arc::new(Log::new(format, level, Box::new(to_stderr)))
    });
    if !is_new {
        log.level.store(level as u8, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    } else {
        append_to_stderr();
        // Fails only in a program that embeds the server and has a subscriber of its own, which
        // hears our events then.
        let _ = tracing::dispatcher::set_global_default(tracing::Dispatch::new(Arc::clone(log)));
    }
}

/// A log file that is cut to be rotated (copytruncate of logrotate) goes on at its new end, and not
/// behind a hole: also where the shell was told `2>`, and not `2>>`.
fn append_to_stderr() {
    use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
    let stderr = std::io::stderr();
    let is_file =
        fstat(&stderr).is_ok_and(|of| FileType::from_raw_mode(of.st_mode) == FileType::RegularFile);
    if is_file && let Ok(flags) = fcntl_getfl(&stderr) {
        // A system that refuses leaves it as it is.
        let _ = fcntl_setfl(&stderr, flags | OFlags::APPEND);
    }
}

/// Says how many lines were left out and not yet told; for the end of the process.
pub fn finish() {
    if let Some(log) = LOG.get() {
        log.sweep(Instant::now(), true);
    }
}

/// Writes to standard error what it takes without waiting; false: it takes nothing now.
fn to_stderr(line: &[u8]) -> bool {
    let stderr = std::io::stderr();
    let mut polled = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let has_room = poll(&mut polled, Some(&now)).is_ok_and(|ready| ready == 1)
        && polled[0].revents().contains(PollFlags::OUT);
    has_room && std::io::Write::write_all(&mut stderr.lock(), line).is_ok()
}

/// Takes a line; false: it was lost.
type Sink = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Writes events as lines.
pub struct Log {
    format: Format,
    level: AtomicU8,
    sink: Sink,
    places: Mutex<BTreeMap<Origin, Window>>,
    lost: AtomicU64,
}

/// Where in the code, and of which volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    file: &'static str,
    line: u32,
    volume: String,
}

/// One second of one place.
struct Window {
    began: Instant,
    written: u64,
    suppressed: u64,
    what: String,
}

impl Log {
    /// A log that writes to `sink`.
    #[must_use]
    pub fn new(format: Format, level: Level, sink: Sink) -> Self {
        Self {
            format,
            level: AtomicU8::new(level as u8),
            sink,
            places: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let Some(level) = Level::of(metadata.level()) else {
            return false;
        };
        let target = metadata.target().split("::").next().unwrap_or_default();
        let is_ours = OURS.contains(&target) || target.starts_with("tidegate");
        metadata.is_event()
            && level as u8 <= self.level.load(Ordering::Relaxed)
            && (is_ours || level <= Level::Warn)
    }

    /// Admits a line of the place now; then answers the number of lines it had to leave out before.
    fn admit(&self, place: Origin, what: &str, now: Instant) -> Option<u64> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX && !places.contains_key(&place) {
            places.retain(|_, window| {
                window.suppressed > 0 || now.duration_since(window.began) < SECOND
            });
            if places.len() >= PLACES_MAX {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let window = places.entry(place).or_insert_with(|| Window {
            began: now,
            written: 0,
            suppressed: 0,
            what: shortened(what),
        });
        let mut before = 0;
        if now.duration_since(window.began) >= SECOND {
            before = core::mem::take(&mut window.suppressed);
            window.began = now;
            window.written = 0;
        }
        if window.written >= PER_SECOND {
            window.suppressed += 1;
            return None;
        }
        window.written += 1;
        Some(before)
    }

    /// Logs how many lines each call site suppressed in the second that has passed; with `all`,
    /// also in the current one.
    fn sweep(&self, now: Instant, all: bool) {
        let mut told = Vec::new();
        {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            for (place, window) in places.iter_mut() {
                let is_over = all || now.duration_since(window.began) >= SECOND;
                if window.suppressed > 0 && is_over {
                    let suppressed = core::mem::take(&mut window.suppressed);
                    told.push((place.volume.clone(), window.what.clone(), suppressed));
                }
            }
        }
        for (volume, what, suppressed) in told {
            let mut line = Line::new(self.format, Level::Warn, "lines like this left out");
            line.text("of", &what);
            if !volume.is_empty() {
                line.text("volume", &volume);
            }
            line.plain("suppressed", suppressed);
            self.write(line);
        }
    }

    fn write(&self, mut line: Line) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line.plain("lines_lost", lost);
        }
        if !(self.sink)(line.end().as_bytes()) {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

impl Subscriber for Log {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.wants(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let Some(level) = Level::of(metadata.level()) else {
            return;
        };
        let now = Instant::now();
        self.sweep(now, false);
        let mut heading = Heading::default();
        event.record(&mut heading);
        let place = Origin {
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
            volume: heading.volume,
        };
        let Some(suppressed) = self.admit(place, &heading.message, now) else {
            return;
        };
        let mut line = Line::new(self.format, level, &heading.message);
        event.record(&mut line);
        if suppressed > 0 {
            line.plain("suppressed", suppressed);
        }
        self.write(line);
    }

    // Spans of libraries are of no use here.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The name of an event, and the volume of which it tells.
#[derive(Default)]
struct Heading {
    message: String,
    volume: String,
}

impl Visit for Heading {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A bounded writer says stop: of the message one more than is written, which then shows
        // that it was cut.
        let (into, left) = match field.name() {
            "message" => (&mut self.message, VALUE_MAX + 1),
            "volume" => (&mut self.volume, PLACE_MAX),
            _ => return,
        };
        let _ = write!(Cut { into, left }, "{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// The part of a message that the table of places keeps.
fn shortened(what: &str) -> String {
    match what.char_indices().nth(PLACE_MAX) {
        Some((end, _)) => format!("{}…", &what[..end]),
        None => what.to_owned(),
    }
}

/// Takes `left` characters, then refuses.
struct Cut<'a> {
    into: &'a mut String,
    left: usize,
}

impl fmt::Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.left == 0 {
                return Err(fmt::Error);
            }
            self.left -= 1;
            self.into.push(character);
        }
        Ok(())
    }
}

/// A line as it grows.
struct Line {
    format: Format,
    text: String,
    is_cut: bool,
}

impl Line {
    fn new(format: Format, level: Level, message: &str) -> Self {
        let text = match format {
            Format::Logfmt => String::with_capacity(256),
            Format::Json => String::from("{"),
        };
        let mut line = Self {
            format,
            text,
            is_cut: false,
        };
        line.text("time", &timestamp(SystemTime::now()));
        line.text("level", level.name());
        line.text("msg", message);
        line
    }

    /// A number or a truth value.
    fn plain(&mut self, key: &str, value: impl fmt::Display) {
        let mark = self.key(key);
        let _ = write!(self.text, "{value}");
        self.fit(mark);
    }

    fn text(&mut self, key: &str, value: &str) {
        let mark = self.key(key);
        let needs_quotes = self.format == Format::Json
            || value.is_empty()
            || value
                .chars()
                .any(|c| matches!(c, ' ' | '=' | '"' | '\\') || is_unsafe(c));
        if !needs_quotes {
            let end = value
                .char_indices()
                .nth(VALUE_MAX)
                .map_or(value.len(), |(at, _)| at);
            self.text.push_str(&value[..end]);
            if end < value.len() {
                self.text.push('…');
            }
            return self.fit(mark);
        }
        self.text.push('"');
        for (at, character) in value.chars().enumerate() {
            if at == VALUE_MAX {
                self.text.push('…');
                break;
            }
            escape_into(&mut self.text, character);
        }
        self.text.push('"');
        self.fit(mark);
    }

    /// Begins a field; answers where, so that it can be taken back.
    fn key(&mut self, key: &str) -> usize {
        let mark = self.text.len();
        let is_first = matches!(self.text.as_str(), "" | "{");
        match (self.format, is_first) {
            (Format::Logfmt, true) | (Format::Json, true) => {}
            (Format::Logfmt, false) => self.text.push(' '),
            (Format::Json, false) => self.text.push(','),
        }
        match self.format {
            Format::Logfmt => self.text.extend([key, "="]),
            Format::Json => self.text.extend(["\"", key, "\":"]),
        }
        mark
    }

    /// Takes a field back with which the line is too long.
    fn fit(&mut self, mark: usize) {
        // For the end of the line, and that it was cut.
        const RESERVE: usize = 64;
        if self.text.len() > LINE_MAX - RESERVE {
            self.text.truncate(mark);
            self.is_cut = true;
        }
    }

    fn end(mut self) -> String {
        if self.is_cut {
            self.is_cut = false;
            let text = match self.format {
                Format::Logfmt => " cut=true",
                Format::Json => ",\"cut\":true",
            };
            self.text.push_str(text);
        }
        if self.format == Format::Json {
            self.text.push('}');
        }
        self.text.push('\n');
        self.text
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            return;
        }
        let mut text = String::new();
        let into = &mut text;
        let left = VALUE_MAX + 1;
        // Refused beyond the bound: `text` cuts what is one too long.
        let _ = write!(Cut { into, left }, "{value:?}");
        self.text(field.name(), &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != "message" {
            self.text(field.name(), value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.plain(field.name(), value);
        } else {
            self.text(field.name(), &value.to_string());
        }
    }
}

/// The same escapes for both forms: those of JSON.
fn escape_into(into: &mut String, character: char) {
    match character {
        '"' => into.push_str("\\\""),
        '\\' => into.push_str("\\\\"),
        '\n' => into.push_str("\\n"),
        '\r' => into.push_str("\\r"),
        '\t' => into.push_str("\\t"),
        other if is_unsafe(other) => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                let _ = write!(into, "\\u{unit:04x}");
            }
        }
        other => into.push(other),
    }
}

/// The moment in UTC, to the millisecond, as RFC 3339 writes it.
pub(crate) fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days to a date of the Gregorian calendar, in eras of 400 years that begin on 1 March.
    // Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that `made` writes, as one text.
    fn written(format: Format, level: Level, made: impl FnOnce()) -> String {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let sink = move |line: &[u8]| {
            into.lock().unwrap().extend_from_slice(line);
            true
        };
        let log = Arc::new(Log::new(format, level, Box::new(sink)));
        let dispatch =
            tracing::Dispatch::from(Arc::clone(&log) as Arc<dyn Subscriber + Send + Sync>);
        tracing::dispatcher::with_default(&dispatch, made);
        log.sweep(Instant::now(), true);
        let bytes = lines.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// Without the time, which comes first.
    fn timeless(text: &str) -> Vec<&str> {
        text.lines()
            .map(|line| line.split_once(" level=").unwrap().1)
            .collect()
    }

    #[test]
    fn an_event_is_a_line_of_keys_and_values() {
        let text = written(Format::Logfmt, Level::Info, || {
            info!(volume = "root", offset = 4096, ok = true, cause = %"disk full", "writeback failed");
            debug!("not written at this level");
        });
        let expected =
            r#"info msg="writeback failed" volume=root offset=4096 ok=true cause="disk full""#;
        assert_eq!(timeless(&text), [expected]);
    }

    #[test]
    fn json_lines_are_json_with_numbers_as_numbers() {
        let text = written(Format::Json, Level::Debug, || {
            debug!(
                export = "a\"b\\c\n\u{1b}[2J\u{202e}x",
                bytes = 7_u64,
                share = f64::NAN,
                "opened"
            );
        });
        let value: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(value["export"], "a\"b\\c\n\u{1b}[2J\u{202e}x");
        assert_eq!(value["bytes"], 7);
        assert_eq!(value["share"], "NaN");
        assert_eq!(value["level"], "debug");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_name_cannot_forge_a_line_nor_a_key() {
        for name in [
            "x\ntime=2026-01-01T00:00:00.000Z level=error msg=forged",
            "x\r\nlevel=error",
            "x level=error",
            "x\u{2028}level=error",
            "x\u{85}level=error",
            "\" level=error msg=\"",
            "\\\" level=error",
            "\u{1b}[1A\u{1b}[2K",
        ] {
            for format in [Format::Logfmt, Format::Json] {
                let text = written(format, Level::Info, || {
                    warn!(export = name, "no such export")
                });
                assert_eq!(text.lines().count(), 1, "{text:?}");
                let body = text.strip_suffix('\n').unwrap();
                assert!(!body.chars().any(is_unsafe), "{text:?}");
                assert_eq!(
                    outside_quotes(body).matches("level").count(),
                    usize::from(format == Format::Logfmt)
                );
            }
        }
    }

    /// The text that a reader of logfmt sees outside of quoted values.
    fn outside_quotes(text: &str) -> String {
        let (mut outside, mut is_quoted, mut is_escaped) = (String::new(), false, false);
        for c in text.chars() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if is_quoted => is_escaped = true,
                '"' => is_quoted = !is_quoted,
                c if !is_quoted => outside.push(c),
                _ => {}
            }
        }
        assert!(!is_quoted && !is_escaped);
        outside
    }

    #[test]
    fn values_and_lines_are_cut() {
        let long = "x".repeat(1 << 20);
        let controls = "\u{1}".repeat(1 << 20);
        for format in [Format::Logfmt, Format::Json] {
            let text = written(format, Level::Info, || {
                info!(a = long, b = controls, c = controls, d = controls, "{long}");
            });
            assert!(text.len() <= LINE_MAX, "{}", text.len());
            assert!(text.contains('…'));
            assert!(text.contains("cut"));
            if format == Format::Json {
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
            }
        }
    }

    #[test]
    fn a_message_is_whole_up_to_its_bound_and_then_ends_with_an_ellipsis() {
        let whole = "a word ".repeat(80);
        let text = written(Format::Logfmt, Level::Info, || info!("{whole}"));
        assert!(text.contains(&format!("msg=\"{whole}\"")), "{text}");
        let long = "word ".repeat(VALUE_MAX);
        // Enough for some to be left out, though a machine that stalls makes seconds of them.
        let text = written(Format::Logfmt, Level::Info, || {
            (0..100 * PER_SECOND).for_each(|_| info!("{long}"));
        });
        let cut = &long[..VALUE_MAX];
        assert!(text.contains(&format!("msg=\"{cut}…\"")), "{text}");
        let told = &long[..PLACE_MAX];
        assert!(
            text.contains(&format!("of=\"{told}…\" suppressed=")),
            "{text}"
        );
    }

    #[test]
    fn a_flood_is_thinned_for_each_volume_and_counted() {
        let text = written(Format::Logfmt, Level::Info, || {
            for _ in 0..1000 {
                for volume in ["a", "b"] {
                    error!(volume, "writeback failed");
                }
            }
        });
        for volume in ["a", "b"] {
            let lines = text
                .lines()
                .filter(|line| line.contains(&format!("volume={volume}")));
            // A slow machine may see more than one second of it: the sum is what must be right.
            let (mut written, mut suppressed) = (0, 0);
            for line in lines {
                written += u64::from(line.contains("level=error"));
                if let Some((_, count)) = line.split_once("suppressed=") {
                    suppressed += count.parse::<u64>().unwrap();
                }
            }
            assert_eq!(written + suppressed, 1000);
            assert!(written <= 10 * PER_SECOND, "{written}");
        }
    }

    #[test]
    fn the_table_of_places_is_bounded() {
        let log = Log::new(Format::Logfmt, Level::Info, Box::new(|_| true));
        let now = Instant::now();
        for number in 0..3 * PLACES_MAX {
            let place = Origin {
                file: "f",
                line: 1,
                volume: number.to_string(),
            };
            log.admit(place, "x", now);
        }
        assert_eq!(log.places.lock().unwrap().len(), PLACES_MAX);
        assert_eq!(log.lost.load(Ordering::Relaxed), 2 * PLACES_MAX as u64);
    }

    #[test]
    fn lost_lines_are_counted_by_the_next_one() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let refused = AtomicU64::new(3);
        let sink = move |line: &[u8]| {
            if refused.load(Ordering::Relaxed) > 0 {
                refused.fetch_sub(1, Ordering::Relaxed);
                return false;
            }
            into.lock().unwrap().extend_from_slice(line);
            true
        };
        let log = Log::new(Format::Logfmt, Level::Info, Box::new(sink));
        tracing::subscriber::with_default(log, || {
            for _ in 0..4 {
                info!("one");
            }
        });
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert_eq!(timeless(&text), ["info msg=one lines_lost=3"]);
    }

    #[test]
    fn times_are_right() {
        let at = |seconds, millis: u32| {
            timestamp(UNIX_EPOCH + Duration::new(seconds, millis * 1_000_000))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_795_305_903, 123), "2026-11-22T00:05:03.123Z");
        assert_eq!(at(4_107_542_399, 0), "2100-02-28T23:59:59.000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
