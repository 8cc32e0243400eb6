//! A TOML file into a draft: its tables, with the place of every word.
//!
//! ```toml
//! memory = "1GiB"                     # of the whole process
//! listen = ["unix:/run/tidegate/nbd.sock", "tcp:127.0.0.1:10809"]
//!
//! [tls]
//! certificate = "/etc/tidegate/server.pem"
//! key = "/etc/tidegate/server.key"
//!
//! [volume.data]
//! backend = "new:/srv/data.img"
//! size = "10GiB"
//! ```

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{Draft, VolumeDraft};
use super::mistake::{Mistake, SourcePos, Word, choices};
use super::options::{SERVER_KEYS, TLS_KEYS, VOLUME_KEYS, known};
use super::values::LISTED;

/// Tables and lists of the file, beside the keys of the server.
const TABLES: [&str; 3] = ["listen", "tls", "volume"];

/// Takes all of a file into the draft.
pub(super) fn read(draft: &mut Draft, origin: String, text: String) {
    let source = draft.source(origin, text.clone());
    let (table, errors) = DeTable::parse_recoverable(&text);
    if !errors.is_empty() {
        draft.mistakes.extend(errors.iter().map(|error| {
            let span = error.span().unwrap_or(0..0);
            let place = SourcePos { source, span };
            Mistake::new(place, "this is not valid TOML", error.message())
        }));
        return;
    }
    let mut reader = Reader {
        draft,
        source,
        text: &text,
    };
    reader.top(table.get_ref());
}

struct Reader<'a> {
    draft: &'a mut Draft,
    source: usize,
    text: &'a str,
}

impl Reader<'_> {
    fn top(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "listen" => self.listen(value),
                "tls" => {
                    self.draft.tls_place = Some(self.place(key));
                    if let Some(table) = self.table(key.get_ref(), value) {
                        let keys = self.keys(table, TLS_KEYS, "not a key of [tls]");
                        self.draft.tls.extend(keys);
                    }
                }
                "volume" => self.volumes(value),
                other => {
                    if let Some(known) = known(SERVER_KEYS, other) {
                        if let Some(word) = self.word(other, value) {
                            self.draft.server.insert(known, word);
                        }
                    } else {
                        let allowed = [SERVER_KEYS, &TABLES].concat();
                        self.unknown(key, "not a key of the server", &allowed);
                    }
                }
            }
        }
    }

    fn listen(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Array(all) => {
                for value in all.iter() {
                    if let Some(word) = self.word("listen", value) {
                        self.draft.listen.push(word);
                    }
                }
            }
            _ => {
                if let Some(word) = self.word("listen", value) {
                    self.draft.listen.push(word);
                }
            }
        }
    }

    fn volumes(&mut self, value: &Spanned<DeValue<'_>>) {
        let Some(table) = self.table("volume", value) else {
            return;
        };
        for (name, value) in table {
            let Some(keys) = self.table(name.get_ref(), value) else {
                continue;
            };
            let keys = self.keys(keys, VOLUME_KEYS, "not a key of a volume");
            let name = Word {
                text: name.get_ref().to_string(),
                place: self.place(name),
            };
            self.draft.volumes.push(VolumeDraft { name, keys });
        }
    }

    fn keys(
        &mut self,
        table: &DeTable<'_>,
        allowed: &[&'static str],
        label: &str,
    ) -> BTreeMap<&'static str, Word> {
        let mut words = BTreeMap::new();
        for (key, value) in table {
            match known(allowed, key.get_ref()) {
                Some(known) => {
                    let word = self.word(known, value);
                    if word.is_some_and(|word| words.insert(known, word).is_some()) {
                        let title = format!("`{known}` is given twice");
                        let mistake = Mistake::new(self.place(key), title, "under another name");
                        self.draft
                            .mistakes
                            .push(mistake.help("leave one of them out"));
                    }
                }
                None => self.unknown(key, label, allowed),
            }
        }
        words
    }

    /// A plain value as the command line would have it.
    fn word(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Word> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Boolean(_) => self.text.get(value.span())?.to_owned(),
            // As they are written, but for what the command line does not know: 1_000.
            DeValue::Integer(_) | DeValue::Float(_) => {
                self.text.get(value.span())?.replace('_', "")
            }
            DeValue::Array(all) if key == "clients" => {
                let mut list = String::new();
                for value in all.iter() {
                    list.push(LISTED);
                    list.push_str(&self.word("", value)?.text);
                }
                if list.is_empty() {
                    list.push(LISTED);
                }
                list
            }
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                let title = format!("wrong kind of value for `{key}`");
                let label = "a text, a number, true or false belongs here";
                let mistake = Mistake::new(self.place(value), title, label);
                self.draft.mistakes.push(mistake);
                return None;
            }
        };
        let place = self.place(value);
        Some(Word { text, place })
    }

    fn table<'t, 'v>(
        &mut self,
        key: &str,
        value: &'t Spanned<DeValue<'v>>,
    ) -> Option<&'t DeTable<'v>> {
        if let DeValue::Table(table) = value.get_ref() {
            return Some(table);
        }
        let title = format!("`{key}` has to be a table");
        let label = match value.get_ref() {
            DeValue::Array(_) => "this is a list",
            _ => "this is a plain value",
        };
        let help = match key {
            "tls" => {
                "write [tls] on a line of its own, and its keys below: certificate = \"FILE\" and key = \"FILE\""
                    .to_owned()
            }
            _ => {
                let name = if key == "volume" { "NAME" } else { key };
                format!(
                    "write [volume.{}] on a line of its own, and its keys below, as in backend = \"/srv/data.img\"",
                    as_key(name)
                )
            }
        };
        let mistake = Mistake::new(self.place(value), title, label);
        self.draft.mistakes.push(mistake.help(help));
        None
    }

    fn unknown<T: AsRef<str>>(&mut self, key: &Spanned<T>, label: &str, allowed: &[&str]) {
        let word = key.get_ref().as_ref();
        let mistake = Mistake::new(self.place(key), format!("unknown key `{word}`"), label);
        self.draft
            .mistakes
            .push(mistake.help(choices(word, allowed)));
    }

    fn place<T>(&self, spanned: &Spanned<T>) -> SourcePos {
        SourcePos {
            source: self.source,
            span: spanned.span(),
        }
    }
}

/// A name as a part of a table's: quoted where it has to be.
fn as_key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_bare) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}
