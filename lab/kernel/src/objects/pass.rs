//! A pass where pages and caches of objects share the memory: each is asked for what it holds above
//! its share.
//!
//! ```text
//!   objects give theirs --> pages give theirs --> from the second pass on: what one has left undone, the others give
//! ```
//!
//! A page or an object that cannot go now (dirty, in use) is a reason to look further, not to stand
//! still: a pass at the gentlest priority leaves it at the shares, and the next ones are content
//! with any cache that has something.
//!
//! Source: ours (ADR 21).

use env::Task;
use mm::Turned;
use mm::inside::{Control, Inside};
use policy::reclaim::page::Tally;
use policy::reclaim::scan::Priority;
use policy::units::Pages;

use super::shares::Writers;
use super::{Objects, ask};

/// The part of a pass that goes to those that share the memory; `None`: nobody shares it with the
/// pages. Answers what came of it. The caller holds nothing.
pub(crate) fn pass(
    task: &mut Task<'_>,
    (cache, own): (Inside<'_>, &Objects),
    control: &Control,
    tally: &mut Tally,
) -> Option<Turned> {
    let shares = own.shares()?;
    let members = own.members(task);
    if members.is_empty() {
        return None;
    }
    let held: Vec<_> = members.iter().map(|one| (one.id, one.held)).collect();
    let (sizes, aside) = cache.zones.all_sizes_and_aside(task);
    let asks = shares.asks(task, control.target, sizes.total() + aside, &held);
    let is_patient = control.priority == Priority::GENTLEST;
    let mut freed = Pages::ZERO;
    for (id, wanted) in &asks.objects {
        if let Some(one) = members.iter().find(|one| one.id == *id) {
            freed += ask::give(task, (cache, own), control, &one.registered, *wanted);
        }
    }
    let of_objects: Pages = asks.objects.iter().map(|(_, pages)| *pages).sum();
    let undone = if is_patient {
        Pages::ZERO
    } else {
        of_objects.saturating_sub(freed)
    };
    let target = asks.pages + undone;
    let listed = cache.zones.sizes(task, control.zone).total();
    let mut turned = Turned::default();
    if !target.is_zero() {
        let less = Control {
            target,
            priority: reaching(listed, target).min(control.priority),
            ..*control
        };
        turned = cache.take_turns(task, &less, tally);
        freed += turned.reclaimed;
    }
    if !is_patient {
        for one in &members {
            let undone = control.target.saturating_sub(freed);
            if undone.is_zero() {
                break;
            }
            freed += ask::give(task, (cache, own), control, &one.registered, undone);
        }
    }
    note_evicted(task, (cache, own), turned.reclaimed);
    turned.reclaimed = freed;
    Some(turned)
}

/// The gentlest priority at which a pass looks at twice as many pages of the lists as are wanted:
/// the request is for a number of pages and not for a part of the lists.
fn reaching(listed: Pages, wanted: Pages) -> Priority {
    let part = listed.0 / wanted.0.saturating_mul(2).max(1);
    let shift = part.checked_ilog2().unwrap_or(0);
    Priority(u8::try_from(shift).unwrap_or(u8::MAX)).min(Priority::GENTLEST)
}

/// Tells the shares what has gone of the pages.
fn note_evicted(task: &Task<'_>, (cache, own): (Inside<'_>, &Objects), pages: Pages) {
    let Some(shares) = own.shares() else {
        return;
    };
    shares.evicted_pages(task, task.now(), pages, cache.shared_memory(), || {
        let (written, dirty, files) = cache.writers(task);
        Writers {
            written,
            dirty,
            files,
        }
    });
}
