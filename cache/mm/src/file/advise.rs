//! A reader's advice on its reads to come.
//!
//! | advice | of | does |
//! |---|---|---|
//! | `Normal` | the reader | takes back what it said before |
//! | `Sequential` | the reader | windows of twice the length, a sixteenth of the cache at most |
//! | `Random` | the reader | nothing is read that was not asked for |
//! | `NoReuse` | the reader | its reads are no uses: what it alone reads goes first |
//! | `WillNeed` | a range | begins to read it, up to a quarter of the cache, and does not wait |
//! | `DontNeed` | a range | drops its whole pages that are clean and in nobody's use |
//!
//! Source: posix_fadvise(2); Linux 6.12 mm/fadvise.c, generic_fadvise(). Deviations: `DontNeed`
//! begins no write; `WillNeed` has a bound.

use std::sync::Arc;

use env::{IoClass, Task, Work};
use policy::readahead::Run;
use policy::units::{Bytes, PAGE_SIZE, Pages};

use super::read::start_read;
use crate::Error;
use crate::cache::Cache;
use crate::file::File;
use crate::file::read::Reader;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Nothing is known of what will be read.
    #[default]
    Normal,
    /// The file is read from front to end.
    Sequential,
    /// It is read here and there.
    Random,
    /// The range will be read soon.
    WillNeed,
    /// The range will not be read soon.
    DontNeed,
    /// Pages that are read will not be read again.
    NoReuse,
}

/// A reader's advice so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pattern: Advice,
    pub(super) no_reuse: bool,
}

impl Said {
    pub(super) const RANDOM: Self = Self {
        pattern: Advice::Random,
        no_reuse: false,
    };

    /// The largest window.
    pub(super) fn window(self, cache: &Cache) -> Pages {
        let max = cache.options.readahead_max;
        match self.pattern {
            Advice::Random => Pages(1).at_most(max),
            Advice::Sequential => {
                let most = Pages(u64::from(cache.options.frames / 16));
                Pages(max.0 * 2).at_most(most).at_least(max)
            }
            Advice::Normal | Advice::WillNeed | Advice::DontNeed | Advice::NoReuse => max,
        }
    }
}

impl File {
    /// Takes advice of a reader about itself, or about `len` bytes at `offset`, to the end of the
    /// file if `len` is zero.
    ///
    /// # Errors
    /// `Cancelled`, of `WillNeed`.
    pub fn advise(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        (offset, len): (Bytes, Bytes),
        advice: Advice,
    ) -> Result<(), Error> {
        let size = self.mapping.size();
        let end = match len {
            Bytes::ZERO => size,
            len => offset.0.saturating_add(len.0).min(size),
        };
        match advice {
            Advice::Normal => reader.said = Said::default(),
            Advice::Sequential | Advice::Random => reader.said.pattern = advice,
            Advice::NoReuse => reader.said.no_reuse = true,
            Advice::WillNeed if offset.0 < end => {
                let start = offset.0 / PAGE_SIZE;
                let most = Pages(u64::from(self.cache.options.frames / 4));
                let count = Pages(end.div_ceil(PAGE_SIZE) - start).at_most(most);
                let run = Run { start, count };
                let (cache, mapping): (&Arc<_>, &Arc<_>) = (&self.cache, &self.mapping);
                start_read(task, cache, mapping, run, None, IoClass::ReadAhead)?;
            }
            Advice::DontNeed => {
                let whole = match end {
                    end if end == size => end.div_ceil(PAGE_SIZE),
                    end => end / PAGE_SIZE,
                };
                let dropped = self.drop_all_clean(task, offset.0.div_ceil(PAGE_SIZE)..whole);
                task.did(Work::Free, dropped);
            }
            Advice::WillNeed => {}
        }
        Ok(())
    }
}
