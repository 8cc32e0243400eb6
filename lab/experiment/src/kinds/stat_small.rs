//! `stat_small`: looks small files up again.

use toml::Spanned;
use workload::{Revisit, Visit, Work, revisit};

use crate::keys::{May, keys, value};
use crate::limits::{MADE, PART};
use crate::task::units::whole;
use crate::task::{Ends, Files, Given, Kind, Sizes, Traits};

keys! {
    /// Looks up the last of the small files that were made, at random.
    Keys:
        memory_part: Spanned<f64>, "At as many files as have objects that fill this part of the memory.", PART;
        loops: May<u32>, "Times that it goes over them; 1 if not given.", MADE;
        after: May<bool>, "It begins when all files are made.";
}

/// Of both kinds that look at small files again.
pub(super) const TRAITS: Traits = Traits {
    files: Files::SmallSeen,
    ends: Ends::Early,
    reads: true,
    ..Traits::NONE
};

/// Looks at them again.
pub(super) fn work(
    visit: Visit,
    (loops, after): (&Option<Spanned<u32>>, &Option<Spanned<bool>>),
    at: &Sizes,
    mut given: Given,
) -> Work {
    let bytes = at.part_mib * at.scale * 1_048_576.0;
    let options = Revisit {
        visit,
        files: whole(bytes / at.small_file).max(1),
        passes: value(loops).unwrap_or(1),
        after: value(after).unwrap_or(false),
        for_at_most: at.run_for,
    };
    let (small, _) = given.small();
    Work::new(move |task, _, run| revisit(task, &small, &options, run))
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn work(&self, at: &Sizes, given: Given) -> Work {
        work(Visit::Stat, (&self.loops, &self.after), at, given)
    }
}
