//! `stat_small`: looks small files up again.

use crate::task::{Given, Load, Sizes};
use scenario::keys::value;
use scenario::kinds::stat_small::Keys;
use scenario::units::whole;
use toml::Spanned;
use workload::{Revisit, Visit, Work, revisit};

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

impl Load for Keys {
    fn work(&self, at: &Sizes, given: Given) -> Work {
        work(Visit::Stat, (&self.loops, &self.after), at, given)
    }
}
