//! Keys of the tables of a scenario: each is one line, and read, checked, listed and documented
//! from it.
//!
//! ```text
//!   keys! { a line a key }  ->  the type of the table, with a field a key
//!                               KEYS: name, type, help, allowed values
//!                               Value::read: from the text, with its places
//! ```
//!
//! A line is `name: Type, "help", allowed;`. `name as "key"` gives the key another name than the
//! field has. A key is needed unless its type is an `Option` or it has a default (`= value` behind
//! the type). Allowed are all values of the type, or a range, or names that are known elsewhere.
//! A limit that depends on other keys is not said here but checked afterwards.
//!
//! Invariants
//!   1. A number has its unit in its key's name.
//!   2. Reading tells all mistakes at once. Mistakes of form (unknown or missing keys, wrong types)
//!      come alone: without them a value is of its type, and may still be out of its range.
//!   3. `read` does the work, and is compiled once: generic code only hands its values on.

mod read;

use core::fmt;

use toml::Spanned;

pub(crate) use read::{Open, Raw, Reader, other_unit, unknown_key};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub about: &'static str,
    /// It has to be given.
    pub needed: bool,
    /// The type of its value.
    pub takes: Takes,
    /// The values of that type that it may have.
    pub allowed: Allowed,
}

/// Old names of keys and of tables, with the new ones. They are read as these.
pub(crate) const OLD_NAMES: [(&str, &str); 5] = [
    ("policy", "column"),
    ("policies", "columns"),
    ("case", "row"),
    ("cases", "rows"),
    ("vs_case", "vs_row"),
];

/// The old name of a key.
pub(crate) fn old_name(name: &str) -> Option<&'static str> {
    let found = OLD_NAMES.iter().find(|(_, new)| *new == name);
    found.map(|(old, _)| *old)
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// A number.
    Number,
    /// A whole number from zero to this.
    Whole(u64),
    /// A text.
    Text,
    /// True or false.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A table with these keys.
    Table(&'static [Key]),
    /// True or false, or such a table.
    SwitchOrTable(&'static [Key]),
    /// Any number of these.
    List(&'static Self),
    /// A table of these, by names that others gave.
    Named(&'static Self),
}

impl Key {
    /// The type of its value and the limits of that, in words.
    #[must_use]
    pub fn value(&self) -> String {
        match (self.takes, self.allowed) {
            (takes, Allowed::Any) => takes.to_string(),
            (takes, Allowed::Range { least, most, unit }) => {
                format!("{takes}, {least} to {most}{unit}")
            }
            (takes, Allowed::Names { of, .. }) => takes.to_string().replace("text", of),
        }
    }
}

impl Takes {
    /// The keys of the tables that it takes.
    #[must_use]
    pub const fn keys(&self) -> &'static [Key] {
        match self {
            Self::Table(keys) | Self::SwitchOrTable(keys) => keys,
            Self::List(inner) | Self::Named(inner) => inner.keys(),
            Self::Number | Self::Whole(_) | Self::Text | Self::Switch | Self::Word(_) => &[],
        }
    }
}

/// The values that a key may have, of its type.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// All.
    Any,
    /// Numbers from `least` to `most`.
    Range {
        /// The least.
        least: f64,
        /// The greatest.
        most: f64,
        /// Their unit, as it is written behind a number.
        unit: &'static str,
    },
    /// Known names.
    Names {
        /// The noun that is known by them.
        of: &'static str,
        /// All of them.
        all: fn() -> Vec<&'static str>,
    },
}

/// Numbers from `least` to `most`.
pub(crate) const fn range(least: f64, most: f64, unit: &'static str) -> Allowed {
    Allowed::Range { least, most, unit }
}

/// Names that are known.
pub(crate) const fn names(of: &'static str, all: fn() -> Vec<&'static str>) -> Allowed {
    Allowed::Names { of, all }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A longer list is no help in a line.
        const SHOWN: usize = 8;
        let keys = |keys: &[Key]| {
            let names = keys.iter().map(|key| key.name);
            match keys.len() {
                ..=SHOWN => format!("{{ {} }}", names.collect::<Vec<_>>().join(", ")),
                _ => "table".to_owned(),
            }
        };
        match self {
            Self::Number => f.write_str("number"),
            Self::Whole(_) => f.write_str("whole number"),
            Self::Text => f.write_str("text"),
            Self::Switch => f.write_str("true or false"),
            Self::Word(words) => f.write_str(&words.join(", ")),
            Self::Table(own) => f.write_str(&keys(own)),
            Self::SwitchOrTable(own) => write!(f, "true, false or {}", keys(own)),
            Self::List(inner) => write!(f, "[{inner}]"),
            Self::Named(inner) => write!(f, "{{ NAME = {inner} }}"),
        }
    }
}

/// A type of values that keys may have.
pub(crate) trait Value: Sized {
    /// Its type, as it is listed.
    const TAKES: Takes;
    /// A key of this type has to be given.
    const NEEDED: bool = true;

    /// It as it stands in the text; none: the reader was told a mistake.
    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self>;

    /// The value of a key that is not given; none: it has to be.
    fn absent() -> Option<Self> {
        None
    }
}

/// One of these keys has to be given.
pub(crate) const fn some_needed(keys: &[Key]) -> bool {
    let mut at = 0;
    while at < keys.len() {
        if keys[at].needed {
            return true;
        }
        at += 1;
    }
    false
}

/// The value of a key that is not given: it has no place.
pub(crate) fn absent<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// The value of a key, if it is given.
#[must_use]
pub fn value<T: Copy>(key: &Option<Spanned<T>>) -> Option<T> {
    key.as_ref().map(|value| *value.get_ref())
}

/// A value that may be left out.
pub type May<T> = Option<Spanned<T>>;

/// Makes the type of a table.
macro_rules! keys {
    (
        $(#[doc = $about:literal])+
        $Name:ident:
        $($field:ident $(as $name:literal)?: $type:ty $(= $default:expr)?, $help:literal $(, $allowed:expr)?;)*
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $Name {
            $(#[doc = $help] pub $field: $type,)*
        }

        impl $Name {
            /// Its meaning, in a sentence.
            pub const ABOUT: &'static str = concat!($($about),+);
            /// Its keys.
            pub const KEYS: &'static [$crate::keys::Key] = &[$($crate::keys::Key {
                name: $crate::keys::first!($($name,)? stringify!($field)),
                about: $help,
                needed: $crate::keys::first!($({ let _ = stringify!($default); false },)? <$type as $crate::keys::Value>::NEEDED),
                takes: <$type as $crate::keys::Value>::TAKES,
                allowed: $crate::keys::first!($($allowed,)? $crate::keys::Allowed::Any),
            }),*];

            /// It as its table says.
            pub(crate) fn of(mut table: $crate::keys::Open<'_>, reader: &mut $crate::keys::Reader<'_>) -> Option<Self> {
                let mut keys = Self::KEYS.iter();
                $(let $field: Option<$type> = table.take(keys.next()?, reader, || $crate::keys::first!($(Some($default),)? None));)*
                table.close(reader);
                Some(Self { $($field: $field?),* })
            }
        }

        impl $crate::keys::Value for $Name {
            const TAKES: $crate::keys::Takes = $crate::keys::Takes::Table(Self::KEYS);
            const NEEDED: bool = $crate::keys::some_needed(Self::KEYS);

            fn read(raw: $crate::keys::Raw<'_>, key: &$crate::keys::Key, reader: &mut $crate::keys::Reader<'_>) -> Option<Self> {
                let table = reader.open(raw, key, Self::KEYS)?;
                Self::of(table, reader)
            }

            fn absent() -> Option<Self> {
                if Self::NEEDED { None } else { Self::of($crate::keys::Open::empty(Self::KEYS), &mut $crate::keys::Reader::new("")) }
            }
        }
    };
}

/// The first of its arguments.
macro_rules! first {
    ($first:expr $(, $rest:expr)* $(,)?) => {
        $first
    };
}

/// Makes the type of a key that takes one of a few words.
macro_rules! words {
    ($(#[$about:meta])+ $Name:ident: $($Word:ident = $word:literal, $help:literal;)*) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name {
            $(#[doc = $help] $Word,)*
        }

        impl $crate::keys::Value for $Name {
            const TAKES: $crate::keys::Takes = $crate::keys::Takes::Word(&[$($word),*]);

            fn read(raw: $crate::keys::Raw<'_>, key: &$crate::keys::Key, reader: &mut $crate::keys::Reader<'_>) -> Option<Self> {
                let at = reader.word(&raw, key, &[$($word),*])?;
                [$(Self::$Word),*].get(at).copied()
            }
        }
    };
}
pub(crate) use {first, keys, words};
