//! The user's view of a run, while it runs and after it: text on standard output, progress and
//! complaints on standard error.
//!
//! A reader that goes away (`| head`) ends the printing, not the program. Colours and moving bars
//! are for terminals only, colours not under NO_COLOR or on a terminal that calls itself dumb.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use experiment::outcome::Outcome;
use experiment::run::{Order, RunError, Watcher};

/// Standard output could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Text as it can be printed: control characters of others draw nothing. Lines, tabs and colours
/// are ours.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| !matches!(c, '\n' | '\t') && figures::is_unsafe(c)) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        let colour = from.strip_prefix("\x1b[").and_then(|from| {
            let end = from.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            from[end..].starts_with('m').then_some(end + "\x1b[m".len())
        });
        let taken = colour.unwrap_or_else(|| from.chars().next().map_or(0, char::len_utf8));
        match colour {
            Some(_) => plain.push_str(&from[..taken]),
            None => plain.push_str(&figures::shown(&from[..taken]).to_string()),
        }
        rest = &from[taken..];
    }
    plain.push_str(rest);
    plain
}

/// Prints to standard output; a closed pipe is not an error. A line that cannot be written
/// otherwise (a full disk) is said once.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    match out
        .write_all(plain(text).as_bytes())
        .and_then(|()| out.flush())
    {
        Ok(()) => {}
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !LOST.swap(true, Ordering::Relaxed) {
                complain(&format!(
                    "tidegate: cannot write to standard output: {error}"
                ));
            }
        }
    }
}

/// True if something that was to be printed could not be.
#[must_use]
pub fn output_is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Prints a line to standard error; likewise.
pub fn complain(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "{}", plain(text));
}

/// True if somebody sees standard error as it is written.
#[must_use]
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Letters in a line of the terminal that standard output is; 100 where it is none. `COLUMNS` says
/// otherwise.
#[must_use]
pub fn width() -> usize {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|columns| columns.parse().ok());
    let size = || rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let width = said.or_else(|| size().map(|size| usize::from(size.ws_col)));
    // A terminal that does not know says zero.
    width
        .filter(|width| *width > 0)
        .map_or(100, |width| width.clamp(40, 120))
}

/// True if standard error takes colours.
#[must_use]
pub fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !refused && !dumb && std::io::stderr().is_terminal()
}

/// Progress of a number of runs: a bar on a terminal, a line per run elsewhere; a run that fails
/// says why at once.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: usize,
    done: AtomicUsize,
}

impl Progress {
    /// Progress of `total` runs.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(core::time::Duration::from_millis(200));
            bar
        });
        Self {
            bar,
            total,
            done: AtomicUsize::new(0),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Watcher for Progress {
    fn began(&self, order: &Order) {
        if let Some(bar) = &self.bar {
            bar.set_message(name(order));
        }
    }

    fn ended(&self, order: &Order, result: &Result<Outcome, RunError>) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let bar = self.bar.as_ref();
        if let Some(bar) = bar {
            bar.inc(1);
            if result.is_ok() {
                return;
            }
        }
        let what = match result {
            Ok(outcome) if outcome.interrupted => format!(
                "interrupted after {:.1} s; its figures are dropped",
                outcome.wall_s
            ),
            Ok(outcome) => {
                format!(
                    "{:.1} s of its time in {:.1} s",
                    outcome.virtual_s, outcome.wall_s
                )
            }
            Err(error @ RunError::Interrupted) => error.to_string(),
            Err(error) => format!("failed: {error}"),
        };
        let line = format!("[{done}/{}] {}: {what}", self.total, name(order));
        match bar {
            // Above the bar, which stays.
            Some(bar) => bar.println(plain(&line)),
            None => complain(&line),
        }
    }
}

fn name(order: &Order) -> String {
    format!(
        "{} {} #{}",
        order.cell.case, order.cell.policy, order.replica
    )
}

/// The words in lines of at most that many letters; a longer word has a line of its own.
#[must_use]
pub fn wrap(line: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in line.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        let letters = last.chars().count() + word.chars().count();
        if last.is_empty() {
            last.push_str(word);
        } else if letters < width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let words = "a claim of several words that does not fit one line";
        let lines = wrap(words, 20);
        assert!(lines.iter().all(|line| line.len() <= 20), "{lines:?}");
        assert_eq!(lines.join(" "), words);
        assert_eq!(wrap("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn nothing_of_others_draws_and_colours_are_left() {
        let ours = "a\tb\n\x1b[1;31mred\x1b[0m \x1b[m.\n";
        assert_eq!(plain(ours), ours);
        let all: String = ('\0'..=char::MAX)
            .filter(|c| figures::is_unsafe(*c))
            .collect();
        let shown = plain(&(all + "\x1b[2J\x1b[12;7H\x1b]0;title\x07\x1b[31"));
        let drawn = shown.chars().filter(|c| figures::is_unsafe(*c));
        assert_eq!(drawn.collect::<String>(), "\t\n");
    }
}
