//! Mistakes in a scenario, shown like a compiler's: file, line, caret, and the way out.

use core::ops::Range;

pub use figures::{choices, nearest};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use toml::Spanned;

/// The text of a scenario and where it came from.
#[derive(Clone, Debug)]
pub struct Source {
    /// File name, or `NAME (built in)`; with options that change it, these too.
    pub origin: String,
    /// The text that was parsed.
    pub text: String,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The complaint, with the value.
    pub title: String,
    /// Its place in the text.
    pub span: Range<usize>,
    /// A few words under the caret.
    pub label: String,
    /// Another place that matters.
    pub also: Option<(Range<usize>, String)>,
    /// The way out.
    pub help: Option<String>,
}

impl Mistake {
    /// A mistake at one place.
    #[must_use]
    pub fn new(title: impl Into<String>, span: Range<usize>, label: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            span,
            label: label.into(),
            also: None,
            help: None,
        }
    }

    /// A number that is not from `least` to `most`, if it is not.
    pub(crate) fn range(
        key: &str,
        value: &Spanned<f64>,
        least: f64,
        most: f64,
        unit: &str,
    ) -> Option<Self> {
        let number = *value.get_ref();
        let mistake = || {
            Self::new(
                format!("`{key}` is out of range: {number}"),
                value.span(),
                format!("must be {least} to {most}{unit}"),
            )
            .help(format!("write a number from {least} to {most}{unit}"))
        };
        (!(least..=most).contains(&number)).then(mistake)
    }

    /// A name that none of `known` is, if none is.
    pub(crate) fn unknown<'a>(
        of: &str,
        name: &Spanned<String>,
        known: impl IntoIterator<Item = &'a str> + Clone,
    ) -> Option<Self> {
        let word = name.get_ref().as_str();
        let mistake = || {
            Self::new(format!("unknown {of} `{word}`"), name.span(), "not known")
                .help(choices(word, known.clone()))
        };
        let is_known = known.clone().into_iter().any(|known| known == word);
        (!is_known).then(mistake)
    }

    /// Adds the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a second place.
    #[must_use]
    pub fn also(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.also = Some((span, label.into()));
        self
    }
}

/// All mistakes found in one scenario.
#[derive(Clone, Debug)]
pub struct Mistakes {
    /// Its text.
    pub source: Source,
    /// The mistakes, in the order of the text.
    pub list: Vec<Mistake>,
}

/// The renderer of mistakes; `colour` adds terminal colours.
pub fn renderer(colour: bool) -> Renderer {
    if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    }
}

impl Mistakes {
    /// The mistakes as text; `colour` adds terminal colours.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = renderer(colour);
        let shown: Vec<String> = self
            .list
            .iter()
            .map(|mistake| renderer.render(&[self.group(mistake)]).to_string())
            .collect();
        shown.join("\n\n")
    }

    fn group<'a>(&'a self, mistake: &'a Mistake) -> Group<'a> {
        let mut snippet = Snippet::source(&self.source.text)
            .path(&self.source.origin)
            .annotation(
                AnnotationKind::Primary
                    .span(self.clamp(&mistake.span))
                    .label(&mistake.label),
            );
        if let Some((span, label)) = &mistake.also {
            snippet =
                snippet.annotation(AnnotationKind::Context.span(self.clamp(span)).label(label));
        }
        let mut group = Level::ERROR.primary_title(&mistake.title).element(snippet);
        if let Some(help) = &mistake.help {
            group = group.element(Level::HELP.message(help));
        }
        group
    }

    fn clamp(&self, span: &Range<usize>) -> Range<usize> {
        let end = self.source.text.len();
        span.start.min(end)..span.end.min(end).max(span.start.min(end))
    }
}
