//! The kinds of task: a file each, and one line of the list below.
//!
//! A file has `Keys`, the type whose fields are the keys of the kind's table in a scenario, and
//! what `task::Kind` asks for. The kind is called as its file. `Task` is made of the list, and the
//! only matches over kinds are here.

pub mod alloc;
pub mod bystander;
pub mod cp;
pub mod dd;
pub mod engine;
pub mod fs_mark;
pub mod hog;
pub mod large_dd;
pub mod light_writer;
pub mod make_small;
pub mod mapped_access;
pub mod mapped_writer;
pub mod mapper;
pub mod passes;
pub mod phases;
pub mod pinner;
pub mod rand_read;
pub mod rand_write;
pub mod read_small;
pub mod reader;
pub mod stat_small;
pub mod thpavail;
pub mod ycsb;

use crate::keys::{Key, Open, Raw, Reader, Takes, Value};
use crate::task::{Kind, Traits};

/// A kind of task.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// Its name in scenarios.
    pub name: &'static str,
    /// The load of a task of it.
    pub about: &'static str,
    /// The keys that only some kinds have.
    pub keys: &'static [Key],
    /// Reads them.
    of: fn(Open<'_>, &mut Reader<'_>) -> Option<Task>,
}

impl Registered {
    /// It has a key of this name.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|own| own.name == key)
    }
}

/// The kind of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Registered> {
    ALL.iter().find(|kind| kind.name == name)
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// All kinds, in the order of the list.
        pub const ALL: &[Registered] = &[$(Registered {
            name: stringify!($kind),
            about: $kind::Keys::ABOUT,
            keys: $kind::Keys::KEYS,
            of: |table, reader| Some(Task::$kind($kind::Keys::of(table, reader)?)),
        }),*];

        /// The load of a task, with the keys of its kind.
        #[derive(Clone, Debug)]
        #[expect(non_camel_case_types, reason = "a variant is called as its kind is in scenarios")]
        pub enum Task {
            $(#[doc = concat!("`", stringify!($kind), "`.")] $kind($kind::Keys)),*
        }

        impl Task {
            /// Its kind's name in scenarios.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$kind(_) => stringify!($kind)),* }
            }

            /// The kind that it is.
            pub(crate) fn kind(&self) -> &dyn Kind {
                match self { $(Self::$kind(keys) => keys),* }
            }
        }
    };
}

// `kinds! { bystander cp .. }`: made of the list above by build.rs, as rustfmt does not find
// modules in a macro.
include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

impl Task {
    /// Its traits before it has a size.
    #[must_use]
    pub fn traits(&self) -> Traits {
        self.kind().traits()
    }
}

/// A kind with its keys, as `scenario::tasks` has put them together.
impl Value for Task {
    const TAKES: Takes = Takes::Text;

    fn read(raw: Raw<'_>, key: &Key, reader: &mut Reader<'_>) -> Option<Self> {
        let tagged = reader.table(raw, key)?;
        let (name, own) = tagged.into_iter().next()?;
        let kind = by_name(name.get_ref())?;
        let own = reader.open(own, key, kind.keys)?;
        (kind.of)(own, reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Ends, Files};
    use crate::{Scenario, Source};
    use toml::de::DeTable;

    /// A scenario with one task, and a task that makes small files for it to look at.
    fn loaded(task: &str) -> Scenario {
        let text = format!(
            r#"
            schema = "tidegate-exp/1"
            name = "least"
            machine = {{ cpus = 2, memory_mib = 64, swap = {{ device = "disk", mib = 64 }} }}
            device = [{{ id = "disk", model = "p0_ssd" }}]
            policy = [{{ name = "tidegate" }}]
            [[task]]
            id = "it"
            {task}
            [[task]]
            id = "maker"
            kind = "make_small"
            device = "disk"
            files_per_loop = 1000
            loops = 1
            file_kib = 4
            "#
        );
        let origin = "test".into();
        let loaded = Scenario::load(Source { origin, text }, &[]);
        loaded.unwrap_or_else(|error| panic!("{error}")).0
    }

    /// The keys that a kind needs, and no more.
    fn least(kind: &Registered) -> String {
        let needed = kind.keys.iter().filter(|key| key.needed);
        let values = needed.map(|key| match key.name {
            "from" | "log" => format!("{} = \"disk\"\n", key.name),
            "file_kib" => "file_kib = 4\n".to_owned(),
            "memory_part" => "memory_part = 0.001\n".to_owned(),
            "mix" => "mix = \"A\"\n".to_owned(),
            number => format!("{number} = 1\n"),
        });
        values.collect()
    }

    #[test]
    fn every_kind_runs_with_what_it_needs_and_no_more() {
        for kind in ALL {
            assert!(kind.about.trim().len() > 10, "{}", kind.name);
            assert!(kind.keys.iter().all(|key| !key.about.trim().is_empty()));
            let own = least(kind);
            let keys = DeTable::parse(&own).unwrap().into_inner();
            let keys = Open::new(keys, 0..0, kind.keys);
            let traits = (kind.of)(keys, &mut Reader::new(&own)).unwrap().traits();
            let mut text = format!("kind = \"{}\"\n{own}", kind.name);
            if traits.files != Files::None {
                text.push_str("device = \"disk\"\n");
            }
            if traits.ends == Ends::Timed {
                text.push_str("run_s = 1\n");
            }
            if let Some(size) = traits.size.first() {
                text.push_str(&format!("{size} = 1\n"));
            }
            let scenario = loaded(&text);
            assert_eq!(scenario.tasks[0].kind.get_ref().name(), kind.name);
        }
    }

    #[test]
    fn a_kind_is_found_by_its_own_name_alone() {
        for kind in ALL {
            assert_eq!(
                ALL.iter().filter(|other| other.name == kind.name).count(),
                1
            );
            assert_eq!(by_name(kind.name).unwrap().name, kind.name);
        }
        assert!(by_name("keeper").is_none(), "it comes by itself");
    }
}
