//! The words that a server was started with, and how they and the file's become one draft.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::check;
use super::default;
use super::file;
use super::mistake::{ConfigError, Mistake, Mistakes, Source, SourcePos, Word, choices};
use super::options::{SERVER_KEYS, TLS_KEYS, known};
use super::{Config, source};

/// The words of the command line. A word that is not given is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The TOML file.
    pub file: Option<PathBuf>,
    /// `NAME=BACKEND[,KEY=VALUE..]`.
    pub volumes: Vec<String>,
    /// `unix:PATH` and `tcp:ADDRESS:PORT`.
    pub listen: Vec<String>,
    /// Values by their keys: those of the file, and those of its table `[tls]` as `tls.KEY`.
    pub values: BTreeMap<String, String>,
}

impl Asked {
    /// Reads all of it.
    ///
    /// # Errors
    /// All mistakes with their places; the file cannot be read.
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.config_in(&default::Surroundings::of_process())
    }

    pub(super) fn config_in(
        &self,
        surroundings: &default::Surroundings,
    ) -> Result<Config, ConfigError> {
        let mut draft = Draft::default();
        if let Some(path) = &self.file {
            let read = std::fs::read(path).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|error| {
                    let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                    io::Error::other(format!("line {line} is not UTF-8: save it as that"))
                })
            });
            let text = read.map_err(|error| ConfigError::File {
                path: path.clone(),
                error,
            })?;
            file::read(&mut draft, path.display().to_string(), text);
        }
        let (of_file, of_listen) = (draft.volumes.len(), draft.listen.len());
        for (key, value) in &self.values {
            draft.take_value(key, value);
        }
        for value in &self.listen {
            let word = draft.argument("--listen", value);
            draft.listen.push(word);
        }
        // Addresses of the command line go first.
        draft.listen.rotate_left(of_listen);
        for value in &self.volumes {
            source::read(&mut draft, value);
        }
        draft.volumes.rotate_left(of_file);
        check::check(draft, self, surroundings)
    }
}

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

    fn take_value(&mut self, key: &str, value: &str) {
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
