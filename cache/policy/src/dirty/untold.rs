//! Pages that a writer has dirtied of which the law was not told yet: it would have nothing to say.
//!
//! A writer that told the law of each page would take its lock for each. So it keeps some to
//! itself, up to where the law's answer could change, and tells of them all at once.
//!
//! Invariants
//!   1. Each page is told of once, of its own device, at the latest when the writer ends.
//!   2. A page is in the counters before the law is told of it, and the counters for a look are
//!      read under the law's lock: so each page that the law was told of is in what the look finds,
//!      or is told of after it. Else it would be in neither, and nobody held for it.

use super::domain::{Domain, WriterIndex};
use super::types::{DeviceIndex, Due};
use crate::units::{Instant, Pages};

/// Pages that a writer keeps to itself.
#[derive(Debug, Default)]
pub struct Untold(Option<Kept>);

#[derive(Debug)]
struct Kept {
    device: DeviceIndex,
    pages: Pages,
    /// Fewer than that there may be.
    max: Pages,
}

/// The writer that tells, when, and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Teller<'a> {
    /// The writer.
    pub writer: &'a WriterIndex,
    /// Now.
    pub now: Instant,
    /// Its CPU.
    pub cpu: usize,
}

impl Untold {
    /// Keeps pages that the writer has dirtied; false: the law has to be told of them now.
    pub fn keeps(&mut self, device: DeviceIndex, pages: Pages) -> bool {
        let kept = self.0.as_mut().filter(|kept| kept.device == device);
        let Some(kept) = kept.filter(|kept| kept.pages + pages < kept.max) else {
            return false;
        };
        kept.pages += pages;
        true
    }

    /// Tells the law of what was kept, and of `more`. `due` hears of balances that are due then.
    pub fn tell(
        &mut self,
        domain: &mut Domain,
        by: Teller<'_>,
        more: Option<(DeviceIndex, Pages)>,
        mut due: impl FnMut(DeviceIndex, Due),
    ) {
        let kept = self.0.take().map(|kept| (kept.device, kept.pages));
        let told = match (kept, more) {
            (Some((device, before)), Some((same, pages))) if device == same => {
                [Some((device, before + pages)), None]
            }
            told => told.into(),
        };
        let told = told.into_iter().flatten();
        for (device, pages) in told.filter(|(_, pages)| !pages.is_zero()) {
            if let Some(now) = domain.on_dirtied(by.now, by.writer, device, by.cpu, pages) {
                due(device, now);
            }
        }
    }

    /// From now on the writer keeps pages of the device, as many as the law lets it.
    pub fn keep(&mut self, domain: &Domain, by: Teller<'_>, device: DeviceIndex) {
        let max = domain.untold_max(by.now, by.writer, device);
        let pages = Pages::ZERO;
        self.0 = (max > pages).then_some(Kept { device, pages, max });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceTunables, InitialBandwidth, Law, Threshold, Tunables};
    use super::*;

    #[test]
    fn each_page_is_told_of_once_and_what_is_left_at_the_end() {
        let memory = Pages(1 << 20);
        let mut domain = Domain::new(
            Tunables {
                law: Law::TIDEGATE,
                hz: 1000,
                cpus: 1,
                memory,
                dirty: Threshold::Percent(20),
                background: Threshold::Percent(10),
            },
            2,
        );
        let tunables = DeviceTunables {
            min_ratio: 0,
            max_ratio: 10_000,
            strict: false,
            initial: InitialBandwidth::Learned,
        };
        let [one, other] = [0; 2].map(|_| domain.add_device(Instant::ZERO, tunables));
        let counts = super::super::Counts {
            dirtyable: super::super::Dirtyable::of_files(memory),
            ..Default::default()
        };
        domain.update(Instant::ZERO, one, &counts);
        let writer = domain.add_writer();
        let by = Teller {
            writer: &writer,
            now: Instant::ZERO,
            cpu: 0,
        };
        let mut untold = Untold::default();
        assert!(!untold.keeps(one, Pages(1)), "the law was not asked yet");
        let mut due = Vec::new();
        let mut tell = |untold: &mut Untold, domain: &mut Domain, more| {
            untold.tell(domain, by, more, |device, now| {
                due.push((device, now.pages))
            });
        };
        tell(&mut untold, &mut domain, Some((one, Pages(20))));
        untold.keep(&domain, by, one);
        // A balance is due at 32.
        assert!(untold.keeps(one, Pages(5)) && untold.keeps(one, Pages(6)));
        assert!(!untold.keeps(one, Pages(1)) && !untold.keeps(other, Pages(1)));
        // The writer pauses, or is done.
        tell(&mut untold, &mut domain, None);
        tell(&mut untold, &mut domain, None);
        tell(&mut untold, &mut domain, Some((one, Pages(1))));
        assert_eq!(due, [(one, Pages(32))]);
    }
}
