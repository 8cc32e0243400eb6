//! Keys of a table of the scenario as the fields of a type.
//!
//! `keys!` makes the type that serde reads, and keeps what serde does not tell: the names of the
//! keys, what is said of them, and which are needed. A key is needed unless it is an `Option`. A
//! number or a text can be asked for by its key's name, so that what is the same for all kinds is
//! checked once.

use toml::Spanned;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with its unit.
    pub name: &'static str,
    /// The text about it.
    pub about: &'static str,
    /// It has to be there.
    pub needed: bool,
}

/// The values that a key may have.
pub(crate) trait Field {
    /// It has to be there.
    const NEEDED: bool = true;

    /// It as a number, if it is one.
    fn number(&self) -> Option<Spanned<f64>> {
        None
    }

    /// It as a text, if it is one.
    fn text(&self) -> Option<&Spanned<String>> {
        None
    }
}

impl Field for Spanned<f64> {
    fn number(&self) -> Option<Spanned<f64>> {
        Some(self.clone())
    }
}

impl Field for Spanned<u32> {
    fn number(&self) -> Option<Spanned<f64>> {
        Some(Spanned::new(self.span(), f64::from(*self.get_ref())))
    }
}

impl Field for Spanned<String> {
    fn text(&self) -> Option<&Spanned<String>> {
        Some(self)
    }
}

impl Field for Spanned<bool> {}

impl<T: Field> Field for Option<T> {
    const NEEDED: bool = false;

    fn number(&self) -> Option<Spanned<f64>> {
        self.as_ref()?.number()
    }

    fn text(&self) -> Option<&Spanned<String>> {
        self.as_ref()?.text()
    }
}

/// Values by the names of their keys.
pub(crate) trait Keyed {
    /// The number of a key; none: no such key, or it is not given, or it is no number.
    fn number(&self, key: &str) -> Option<Spanned<f64>>;

    /// The text of a key.
    fn text(&self, key: &str) -> Option<&Spanned<String>>;
}

/// The value of a key, if it is given.
pub(crate) fn value<T: Copy>(key: &Option<Spanned<T>>) -> Option<T> {
    key.as_ref().map(|value| *value.get_ref())
}

/// Makes the type of a table.
macro_rules! keys {
    (
        $(#[doc = $about:literal])+
        pub struct $Name:ident {
            $($(#[doc = $doc:literal])+ $vis:vis $key:ident: $type:ty,)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $Name {
            $($(#[doc = $doc])+ $vis $key: $type,)*
        }

        impl $Name {
            /// The text about it.
            pub const ABOUT: &'static str = concat!($($about),+);
            /// Its keys.
            pub const KEYS: &'static [$crate::task::Key] = &[$($crate::task::Key {
                name: stringify!($key),
                about: concat!($($doc),+),
                needed: <$type as $crate::task::Field>::NEEDED,
            }),*];
        }

        impl $crate::task::Keyed for $Name {
            fn number(&self, key: &str) -> Option<toml::Spanned<f64>> {
                match key {
                    $(stringify!($key) => $crate::task::Field::number(&self.$key),)*
                    _ => None,
                }
            }

            fn text(&self, key: &str) -> Option<&toml::Spanned<String>> {
                match key {
                    $(stringify!($key) => $crate::task::Field::text(&self.$key),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use keys;
