//! A function, a struct and a list of codes of the header, in Rust: the thing itself, and in a test
//! the text with which the C compiler checks the header (`tests`).

/// Functions of the header. Each body answers a `Result`.
macro_rules! border {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $answer:ty $body:block)*) => {
        $(
            $(#[$doc])*
            #[allow(unsafe_code, reason = "the name is C's")]
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $kind),*) -> $answer {
                $crate::border::guarded(move || -> $crate::border::Result<$answer> { $body })
            }
        )*

        #[cfg(test)]
        pub(crate) fn declared() -> Vec<(&'static str, String)> {
            use $crate::border::CType;
            vec![$((
                stringify!($name),
                {
                    let args: Vec<String> = vec![$(<$kind as CType>::name()),*];
                    let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
                    format!("{} {}({args});", <$answer as CType>::name(), stringify!($name))
                },
            )),*]
        }
    };
}

/// A struct of the header, of numbers and bare pointers.
macro_rules! c_struct {
    ($(#[$doc:meta])* $c:literal $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind),*
        }

        impl $crate::border::CType for $name {
            fn name() -> String {
                $c.into()
            }
        }

        impl $name {
            /// The layout that the C compiler has to find.
            #[cfg(test)]
            pub(crate) fn layout() -> String {
                let mut lines = format!("_Static_assert(sizeof({}) == {}, \"size\");\n", $c, size_of::<Self>());
                $(lines += &format!(
                    "_Static_assert(offsetof({}, {}) == {}, \"{}\");\n",
                    $c, stringify!($field), std::mem::offset_of!(Self, $field), stringify!($field)
                );)*
                lines
            }
        }
    };
}

/// A struct of the header that begins with its size.
macro_rules! sized_struct {
    ($(#[$doc:meta])* $c:literal $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        c_struct! { $(#[$doc])* $c $name { size: u32, $($field: $kind),* } }

        impl Default for $name {
            fn default() -> Self {
                Self { size: 0, $($field: Default::default()),* }
            }
        }

        impl $crate::border::Sized_ for $name {
            fn size(&self) -> u32 {
                self.size
            }

            fn set_size(&mut self, size: u32) {
                self.size = size;
            }
        }
    };
}

/// A kind of handle: its table and its number; and if it lives in a cache, that.
macro_rules! kind {
    ($name:ty, $table:ident, $number:literal) => {
        static $table: Table<$name> = Table::new();

        impl Kind for $name {
            const NUMBER: u32 = $number;
            fn table() -> &'static Table<Self> {
                &$table
            }
        }
    };
    ($name:ty, $table:ident, $number:literal, lodger) => {
        kind! { $name, $table, $number }

        impl Lodger for $name {
            fn cache(&self) -> Handle<CacheOf> {
                self.cache
            }
        }
    };
}

/// Numbers of the header with names.
macro_rules! codes {
    ($($name:ident = $value:literal),* $(,)?) => {
        $(pub(crate) const $name: i32 = $value;)*

        /// All of them.
        pub(crate) const CODES: &[(i32, &std::ffi::CStr)] = &[$(
            ($value, match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero"),
            })
        ),*];
    };
}

/// Flags of the header.
macro_rules! flags {
    ($($name:ident = $value:expr),* $(,)?) => {
        $(pub(crate) const $name: u32 = $value;)*

        #[cfg(test)]
        pub(crate) const FLAGS: &[(&str, u32)] = &[$((stringify!($name), $name)),*];
    };
}

/// Types of C with one name.
macro_rules! c_names {
    ($($kind:ty => $name:literal),* $(,)?) => {
        $(impl $crate::border::CType for $kind {
            fn name() -> String {
                $name.into()
            }
        })*
    };
}

c_names! {
    i32 => "int",
    i64 => "int64_t",
    u32 => "uint32_t",
    u64 => "uint64_t",
    usize => "size_t",
    std::ffi::c_char => "char",
    std::ffi::c_void => "void",
}

impl<T: super::CType> super::CType for super::In<T> {
    fn name() -> String {
        format!("const {} *", T::name())
    }
}

impl<T: super::CType> super::CType for super::Out<T> {
    fn name() -> String {
        format!("{} *", T::name())
    }
}
