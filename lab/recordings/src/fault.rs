//! The fault of a recording, shown like a compiler's complaint: file, line, and the allowed values.

use core::fmt;
use core::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Snippet};

use experiment::scenario::renderer;

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
