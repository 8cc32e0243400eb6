//! Mistakes in a configuration, shown like a compiler's: where, the word, and the way out.

use core::fmt;
use core::ops::Range;
use std::path::PathBuf;

pub(super) use figures::choices;

use crate::refusal::Refused;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// A text that words come from: a file, or an argument of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The file's path, or `--memory`.
    pub(super) origin: String,
    pub(super) text: String,
}

/// A word and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) place: SourcePos,
}

/// A place in one of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourcePos {
    /// Its number.
    pub(super) source: usize,
    pub(super) span: Range<usize>,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub(super) place: SourcePos,
    /// The complaint, with the word.
    pub title: String,
    /// A few words under the caret.
    pub label: String,
    /// The way out.
    pub help: Option<String>,
}

/// All mistakes that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    pub(super) sources: Vec<Source>,
    /// They, those of the file first.
    pub list: Vec<Mistake>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Mistakes in its words.
    #[error("{0}")]
    Mistakes(Mistakes),
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {}", path.display(), Refused(error))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// There is no place for the default volume.
    #[error(
        "no folder for the default volume: neither XDG_STATE_HOME nor HOME is an absolute path; set one of them, or \
         name a volume, as in `tidegate serve data=new:/srv/data.img,size=10GiB`"
    )]
    NoHome,
}

impl Word {
    /// A mistake at this word.
    pub(super) fn wrong(
        &self,
        title: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Mistake {
        Mistake::new(self.place.clone(), title, label).help(help)
    }
}

impl Mistake {
    pub(super) fn new(
        place: SourcePos,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            place,
            title: title.into(),
            label: label.into(),
            help: None,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl Mistakes {
    /// As text; `colour` adds terminal colours.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let shown: Vec<String> = self
            .list
            .iter()
            .map(|mistake| self.show(mistake, &renderer))
            .collect();
        shown.join("\n\n")
    }

    /// Each of them with its place, `FILE:LINE` or `--memory`, for a log.
    pub fn places(&self) -> impl Iterator<Item = (String, &Mistake)> {
        self.list.iter().map(|mistake| {
            let Source { origin, text } = &self.sources[mistake.place.source];
            let before = text.as_bytes().iter().take(mistake.place.span.start);
            let line = before.filter(|byte| **byte == b'\n').count() + 1;
            let at = match text.contains('\n') {
                true => format!("{origin}:{line}"),
                false => origin.clone(),
            };
            (at, mistake)
        })
    }

    fn show(&self, mistake: &Mistake, renderer: &Renderer) -> String {
        let source = &self.sources[mistake.place.source];
        let end = source.text.len();
        let span = &mistake.place.span;
        let from = span.start.min(end);
        let snippet = Snippet::source(&source.text)
            .path(&source.origin)
            .annotation(
                AnnotationKind::Primary
                    .span(from..span.end.min(end).max(from))
                    .label(&mistake.label),
            );
        let mut group = Level::ERROR.primary_title(&mistake.title).element(snippet);
        if let Some(help) = &mistake.help {
            group = group.element(Level::HELP.message(help));
        }
        renderer.render(&[group]).to_string()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}
