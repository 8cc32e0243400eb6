//! Values of TOML as those of keys, and mistakes of form with a way out.

use core::ops::Range;
use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Allowed, Key, Takes, Value};
use crate::mistake::{Mistake, choices};

/// Ends of keys that are units, and what they mean.
const UNITS: [(&str, &str); 20] = [
    ("_mib", "mebibytes"),
    ("_kib", "kibibytes"),
    ("_gib", "gibibytes"),
    ("_mb", "megabytes"),
    ("_kb", "kilobytes"),
    ("_gb", "gigabytes"),
    ("_bytes", "bytes"),
    ("_pages", "pages"),
    ("_ms", "milliseconds"),
    ("_us", "microseconds"),
    ("_ns", "nanoseconds"),
    ("_sec", "seconds"),
    ("_secs", "seconds"),
    ("_seconds", "seconds"),
    ("_min", "minutes"),
    ("_s", "seconds"),
    ("_pct", "per cent"),
    ("_percent", "per cent"),
    ("_ratio", "a ratio"),
    ("_factor", "a factor"),
];

/// A value in the text.
pub(crate) type Raw<'t> = Spanned<DeValue<'t>>;

/// The mistakes of a text.
#[derive(Debug, Default)]
pub(crate) struct Mistaken {
    /// Of form: a scenario cannot be made of the text.
    pub(crate) form: Vec<Mistake>,
    /// Values that are not allowed.
    pub(crate) values: Vec<Mistake>,
}

/// Reads the values of a text.
#[derive(Debug)]
pub(crate) struct Reader<'t> {
    text: &'t str,
    pub(crate) found: Mistaken,
    /// The numbers that were read, by their keys.
    pub(crate) numbers: Vec<(&'static str, Spanned<f64>)>,
    /// The texts.
    pub(crate) texts: Vec<(&'static str, Spanned<String>)>,
}

/// A table that is being read.
pub(crate) struct Open<'t> {
    entries: DeTable<'t>,
    span: Range<usize>,
    /// A key of it is unknown or missing: of those that are missing, nothing is said any more.
    complained: bool,
    keys: &'static [Key],
}

impl<'t> Open<'t> {
    /// A table at `span` that has these keys.
    pub(crate) fn new(entries: DeTable<'t>, span: Range<usize>, keys: &'static [Key]) -> Self {
        Self {
            entries,
            span,
            complained: false,
            keys,
        }
    }

    /// A table that is not there.
    pub(crate) fn empty(keys: &'static [Key]) -> Self {
        Self::new(DeTable::new(), 0..0, keys)
    }

    /// The value of a key, as it is given, or as it is without.
    pub(crate) fn take<T: Value>(
        &mut self,
        key: &'static Key,
        reader: &mut Reader<'_>,
        default: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        match self.entry(key, reader) {
            Some(raw) => T::read(raw, key, reader),
            None if key.needed => None,
            None => default().or_else(T::absent),
        }
    }

    fn entry(&mut self, key: &'static Key, reader: &mut Reader<'_>) -> Option<Raw<'t>> {
        let old = super::old_name(key.name);
        let entry = self.entries.remove(key.name);
        let entry = entry.or_else(|| self.entries.remove(old?));
        if entry.is_none() && key.needed && !self.complained {
            // Misspelt keys come first, and may be the one that is missing.
            let unknown = self.entries.keys().map(|key| key.get_ref().as_ref());
            let known = |word: &str| self.keys.iter().any(|key| key.name == word);
            self.complained = true;
            if unknown.into_iter().all(known) {
                reader.found.form.push(missing(key, self.span.clone()));
            }
        }
        entry
    }

    /// Nothing is left of it that is not known.
    pub(crate) fn close(self, reader: &mut Reader<'_>) {
        let allowed: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
        let unknown = self.entries.into_iter();
        let unknown = unknown.map(|(key, _)| unknown_key(key.get_ref(), &allowed, key.span()));
        reader.found.form.extend(unknown);
    }
}

fn missing(key: &Key, span: Range<usize>) -> Mistake {
    let name = key.name;
    let table = match key.takes {
        Takes::Table(_) => Some(format!("[{name}]")),
        Takes::List(Takes::Table(_)) => Some(format!("[[{name}]]")),
        _ => None,
    };
    match table {
        Some(table) => Mistake::new(
            format!("the table `{table}` is missing"),
            0..0,
            "in this file",
        )
        .help(format!("add a table that begins with `{table}`")),
        None => Mistake::new(
            format!("the key `{name}` is missing"),
            span,
            "in this table",
        )
        .help(format!("add `{name} = ...`")),
    }
}

impl<'t> Reader<'t> {
    /// Of a text.
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text,
            found: Mistaken::default(),
            numbers: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// The table that a key has.
    pub(crate) fn open<'r>(
        &mut self,
        raw: Raw<'r>,
        key: &Key,
        keys: &'static [Key],
    ) -> Option<Open<'r>> {
        let span = raw.span();
        let entries = self.table(raw, key)?;
        Some(Open::new(entries, span, keys))
    }

    pub(crate) fn table<'r>(&mut self, raw: Raw<'r>, key: &Key) -> Option<DeTable<'r>> {
        let span = raw.span();
        match raw.into_inner() {
            DeValue::Table(table) => Some(table),
            other => self.wrong(&other, span, key, "a table"),
        }
    }

    fn list<'r>(&mut self, raw: Raw<'r>, key: &Key) -> Option<Vec<Raw<'r>>> {
        let span = raw.span();
        match raw.into_inner() {
            DeValue::Array(list) => Some(list.into_iter().collect()),
            other => self.wrong(&other, span, key, "a list"),
        }
    }

    /// A number of any kind.
    fn number(&mut self, raw: &Raw<'_>, key: &Key) -> Option<f64> {
        let number = match raw.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(whole) if whole.radix() == 10 => whole.as_str().parse().ok(),
            #[expect(
                clippy::cast_precision_loss,
                reason = "a number with a fraction belongs there"
            )]
            DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix())
                .ok()
                .map(|whole| whole as f64),
            _ => None,
        };
        let Some(number) = number else {
            return self.wrong(raw.get_ref(), raw.span(), key, "a number");
        };
        self.allow_number(Spanned::new(raw.span(), number), key);
        Some(number)
    }

    /// A whole number from zero to `most`.
    fn whole(&mut self, raw: &Raw<'_>, key: &Key, most: u64) -> Option<u64> {
        let DeValue::Integer(whole) = raw.get_ref() else {
            let belongs = match most {
                0..=255 => "a whole number up to 255",
                _ => "a whole number",
            };
            return self.wrong(raw.get_ref(), raw.span(), key, belongs);
        };
        let number = u64::from_str_radix(whole.as_str(), whole.radix()).ok();
        let number = number.filter(|number| *number <= most);
        match number {
            Some(number) => {
                #[expect(clippy::cast_precision_loss, reason = "it is compared with a range")]
                self.allow_number(Spanned::new(raw.span(), number as f64), key);
            }
            None => {
                let name = self.name_at(&raw.span(), key);
                let word = self.text.get(raw.span()).unwrap_or("");
                self.found.form.push(Mistake::new(
                    format!("`{name}` is out of range: {word}"),
                    raw.span(),
                    format!("must be a whole number from 0 to {most}"),
                ));
            }
        }
        number
    }

    fn allow_number(&mut self, number: Spanned<f64>, key: &Key) {
        if let Allowed::Range { least, most, unit } = key.allowed {
            let mistake = Mistake::range(key.name, &number, least, most, unit);
            self.found.values.extend(mistake);
        }
        // A static name: this table's own key, as `KEYS` has it.
        self.numbers.push((key.name, number));
    }

    fn switch(&mut self, raw: &Raw<'_>, key: &Key) -> Option<bool> {
        match raw.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            other => self.wrong(other, raw.span(), key, "true or false"),
        }
    }

    fn string(&mut self, raw: &Raw<'_>, key: &Key) -> Option<String> {
        let DeValue::String(text) = raw.get_ref() else {
            return self.wrong(raw.get_ref(), raw.span(), key, "a string");
        };
        let text = Spanned::new(raw.span(), text.to_string());
        if let Allowed::Names { of, all } = key.allowed {
            self.found.values.extend(Mistake::unknown(of, &text, all()));
        }
        self.texts.push((key.name, text.clone()));
        Some(text.into_inner())
    }

    /// The place among `words` of the one that is written.
    pub(crate) fn word(&mut self, raw: &Raw<'_>, key: &Key, words: &[&str]) -> Option<usize> {
        let DeValue::String(word) = raw.get_ref() else {
            let wrong = self.wrong(raw.get_ref(), raw.span(), key, "a string");
            if let Some(mistake) = self.found.form.last_mut() {
                mistake.help = Some(choices("", words.iter().copied()));
            }
            return wrong;
        };
        let at = words.iter().position(|known| known == word);
        if at.is_none() {
            let mistake = Mistake::new(
                format!("unknown value `{word}`"),
                raw.span(),
                "not one of the known values",
            );
            let known = choices(word, words.iter().copied());
            self.found.form.push(mistake.help(known));
        }
        at
    }

    /// A value of another type than belongs there.
    pub(crate) fn wrong<T>(
        &mut self,
        value: &DeValue<'_>,
        span: Range<usize>,
        key: &Key,
        belongs: &str,
    ) -> Option<T> {
        let word = self.text.get(span.clone()).unwrap_or("");
        let mistake = if word.starts_with('[') && self.line_before(&span).trim().is_empty() {
            wrong_header(word, span)
        } else {
            wrong_type(self.name_at(&span, key), value, span, belongs)
        };
        self.found.form.push(mistake);
        None
    }

    fn line_before(&self, span: &Range<usize>) -> &'t str {
        let before = self.text.get(..span.start).unwrap_or("");
        before.rsplit('\n').next().unwrap_or("")
    }

    /// The name in front of a value's `=`: in a table of names it is one of those.
    fn name_at(&self, span: &Range<usize>, key: &Key) -> &'t str {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let line = self.line_before(span);
        let before = line.rsplit_once('=').map_or(line, |(before, _)| before);
        let name = before.trim_end().rsplit(|c| !is_word(c)).next();
        name.filter(|name| !name.is_empty()).unwrap_or(key.name)
    }
}

/// A table in double brackets that there is one of, or one in single brackets that may be many.
fn wrong_header(word: &str, span: Range<usize>) -> Mistake {
    let name = word.lines().next().unwrap_or("");
    let name = name.split(']').next().unwrap_or("");
    let name = name.trim_matches(['[', ' ']);
    let (what, header) = if word.starts_with("[[") {
        ("one table", format!("[{name}]"))
    } else {
        ("a list of tables", format!("[[{name}]]"))
    };
    Mistake::new(format!("`{name}` is {what}"), span, "the wrong brackets")
        .help(format!("write `{header}`"))
}

fn wrong_type(key: &str, value: &DeValue<'_>, span: Range<usize>, belongs: &str) -> Mistake {
    let (found, is_text) = match value {
        DeValue::String(text) => ("a string", text.starts_with(|c: char| c.is_ascii_digit())),
        DeValue::Integer(_) => ("a whole number", false),
        DeValue::Float(_) => ("a number with a fraction", false),
        DeValue::Boolean(_) => ("true or false", false),
        DeValue::Datetime(_) => ("a date", false),
        DeValue::Array(_) => ("a list", false),
        DeValue::Table(_) => ("a table", false),
    };
    let mistake = Mistake::new(
        format!("wrong type of value for `{key}`"),
        span,
        format!("this is {found}; {belongs} belongs here"),
    );
    match unit(key) {
        Some(unit) if is_text => mistake.help(format!(
            "write a bare number of {unit}: the unit is in the key's name, `{key}`"
        )),
        Some(unit) => mistake.help(format!("`{key}` takes a number of {unit}")),
        None => mistake,
    }
}

/// A key that a table does not have.
pub(crate) fn unknown_key(word: &str, allowed: &[&str], span: Range<usize>) -> Mistake {
    let mistake = Mistake::new(
        format!("unknown key `{word}`"),
        span,
        "not a key of this table",
    );
    match other_unit(word, allowed) {
        Some(key) => mistake.help(format!(
            "the unit here is {}: write `{key}`. Allowed: {}",
            unit(key).unwrap_or("part of the name"),
            allowed.join(", ")
        )),
        None => mistake.help(choices(word, allowed.iter().copied())),
    }
}

/// The key that differs from `word` in nothing but its unit.
pub(crate) fn other_unit<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let mut allowed = allowed.iter().copied();
    allowed.find(|key| *key != word && stem(key) == stem(word))
}

fn unit(key: &str) -> Option<&'static str> {
    let found = UNITS.iter().find(|(suffix, _)| key.ends_with(suffix));
    found.map(|(_, unit)| *unit)
}

fn stem(key: &str) -> &str {
    let mut units = UNITS.iter();
    let stem = units.find_map(|(suffix, _)| key.strip_suffix(suffix));
    stem.unwrap_or(key)
}

impl Value for f64 {
    const TAKES: Takes = Takes::Number;

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        reader.number(&raw, key)
    }
}

macro_rules! whole {
    ($($type:ident $most:expr;)*) => {$(
        impl Value for $type {
            const TAKES: Takes = Takes::Whole($most);

            fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
                reader.whole(&raw, key, $most)?.try_into().ok()
            }
        }
    )*};
}
// TOML has no greater numbers.
whole! { u8 255; u32 4_294_967_295; u64 9_223_372_036_854_775_807; }

impl Value for bool {
    const TAKES: Takes = Takes::Switch;

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        reader.switch(&raw, key)
    }
}

impl Value for String {
    const TAKES: Takes = Takes::Text;

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        reader.string(&raw, key)
    }
}

impl<T: Value> Value for Spanned<T> {
    const TAKES: Takes = T::TAKES;

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        let span = raw.span();
        Some(Self::new(span, T::read(raw, key, reader)?))
    }
}

impl<T: Value> Value for Option<T> {
    const TAKES: Takes = T::TAKES;
    const NEEDED: bool = false;

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        T::read(raw, key, reader).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Value> Value for Vec<T> {
    const TAKES: Takes = Takes::List(&T::TAKES);

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        let list = reader.list(raw, key)?;
        let each: Vec<Option<T>> = list
            .into_iter()
            .map(|raw| T::read(raw, key, reader))
            .collect();
        each.into_iter().collect()
    }
}

impl<T: Value> Value for BTreeMap<Spanned<String>, T> {
    const TAKES: Takes = Takes::Named(&T::TAKES);

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        let table = reader.table(raw, key)?;
        let each: Vec<Option<(Spanned<String>, T)>> = table
            .into_iter()
            .map(|(name, raw)| {
                let name = Spanned::new(name.span(), name.into_inner().into_owned());
                let value = T::read(raw, key, reader)?;
                Some((name, value))
            })
            .collect();
        each.into_iter().collect()
    }
}
