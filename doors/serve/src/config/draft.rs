//! The words of the command line and of the file in one draft, each in its place.

use std::collections::BTreeMap;

use super::mistake::{ConfigError, Mistake, Mistakes, Source, SourcePos, Word, choices};
use super::options::{SERVER_KEYS, TLS_KEYS, known};

/// Words in their places, not yet understood.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) sources: Vec<Source>,
    pub(super) server: BTreeMap<&'static str, Word>,
    pub(super) tls: BTreeMap<&'static str, Word>,
    /// The place of the file's table `[tls]` or of the first option of TLS.
    pub(super) tls_place: Option<SourcePos>,
    pub(super) listen: Vec<Word>,
    pub(super) volumes: Vec<VolumeDraft>,
    pub(super) mistakes: Vec<Mistake>,
}

/// A volume's words.
#[derive(Debug)]
pub(super) struct VolumeDraft {
    pub(super) name: Word,
    pub(super) keys: BTreeMap<&'static str, Word>,
}

impl Draft {
    pub(super) fn source(&mut self, origin: String, text: String) -> usize {
        self.sources.push(Source { origin, text });
        self.sources.len() - 1
    }

    /// An argument of the command line, as a whole.
    pub(super) fn argument(&mut self, option: &str, value: &str) -> Word {
        let source = self.source(option.to_owned(), value.to_owned());
        Word {
            text: value.to_owned(),
            place: SourcePos {
                source,
                span: 0..value.len(),
            },
        }
    }

    pub(super) fn take_value(&mut self, key: &str, value: &str) {
        let option = format!("--{}", key.replace(['.', '_'], "-"));
        let word = self.argument(&option, value);
        if let Some(known) = known(SERVER_KEYS, key) {
            self.server.insert(known, word);
        } else if let Some(known) = key
            .strip_prefix("tls.")
            .and_then(|key| known(TLS_KEYS, key))
        {
            self.tls_place.get_or_insert_with(|| word.place.clone());
            self.tls.insert(known, word);
        } else {
            let help = choices(key, SERVER_KEYS.iter().copied());
            self.mistakes.push(word.wrong(
                format!("unknown key `{key}`"),
                "not a key of the server",
                help,
            ));
        }
    }

    /// The mistakes as an error.
    pub(super) fn refuse(self) -> ConfigError {
        let Self {
            sources,
            mistakes: mut list,
            ..
        } = self;
        list.sort_by_key(|mistake| (mistake.place.source, mistake.place.span.start));
        ConfigError::Mistakes(Mistakes { sources, list })
    }
}
