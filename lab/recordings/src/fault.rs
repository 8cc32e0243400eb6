//! The fault of a recording, shown like a compiler's complaint: file, line, and the allowed values.

use core::fmt;
use core::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Snippet};

use experiment::scenario::{Mistakes, renderer};

/// A line of a file, and the part of it that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Counted from one.
    pub line: usize,
    /// The line as it stands in the file, shortened where it is very long.
    pub text: String,
    /// Bytes of `text` that are meant.
    pub span: Range<usize>,
}

/// Lines are shown up to here: a binary file has no short ones.
const SHOWN_MOST: usize = 240;

impl Place {
    /// A line, and the part of it that matters.
    #[must_use]
    pub fn new(line: usize, text: &str, span: Range<usize>) -> Self {
        let mut end = text.len().min(SHOWN_MOST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let start = span.start.min(end);
        Self {
            line,
            text: text[..end].to_owned(),
            span: start..span.end.clamp(start, end),
        }
    }

    /// A whole line.
    #[must_use]
    pub fn whole(line: usize, text: &str) -> Self {
        Self::new(line, text, 0..text.trim_end().len())
    }
}

/// A recording that cannot be used: where, why, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file or folder.
    pub path: PathBuf,
    /// Its place in it; `None`: all of it.
    pub place: Option<Place>,
    /// The complaint, with the value.
    pub title: String,
    /// The allowed values.
    pub help: String,
}

impl Fault {
    /// A fault of a whole file or folder.
    #[must_use]
    pub fn of(path: &Path, title: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            place: None,
            title: title.into(),
            help: help.into(),
        }
    }

    /// The first mistake of a recording's scenario.
    #[must_use]
    pub fn of_scenario(path: &Path, mistakes: &Mistakes) -> Self {
        let first = &mistakes.list[0];
        let title = format!("cannot make a scenario of this recording: {}", first.title);
        let fault = Self::of(path, title, first.help.as_ref().unwrap_or(&first.label));
        let text = &mistakes.source.text;
        let from = first.span.start.min(text.len());
        let begin = text[..from].rfind('\n').map_or(0, |at| at + 1);
        let line = text[begin..].lines().next().unwrap_or("");
        let number = text[..from].matches('\n').count() + 1;
        let end = first.span.end.saturating_sub(begin);
        fault.at(Place::new(number, line, from - begin..end))
    }

    /// The same at a place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// The fault as text; `colour` adds terminal colours.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = renderer(colour);
        let path = self.path.display().to_string();
        let title = Level::ERROR.primary_title(&self.title);
        let group: Group<'_> = match &self.place {
            Some(place) => title.element(
                Snippet::source(&place.text)
                    .path(&path)
                    .line_start(place.line)
                    .annotation(AnnotationKind::Primary.span(place.span.clone())),
            ),
            None => title.element(annotate_snippets::Origin::path(&path)),
        };
        let group = group.element(Level::HELP.message(&self.help));
        renderer.render(&[group]).to_string()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Fault {}
