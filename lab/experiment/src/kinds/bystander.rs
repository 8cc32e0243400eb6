//! `bystander`: takes a little memory on a schedule and gives it back.

use policy::units::Pages;
use toml::Spanned;
use workload::{Bystander, Work, bystander};

use crate::keys::keys;
use crate::limits::{EVERY, REGION};
use crate::task::units::{PAGES_PER_MIB, millis, whole};
use crate::task::{Ends, Given, Kind, Memory, Sizes, Traits};

keys! {
    /// Takes a page on a schedule, and gives one back for it.
    Keys:
        region_mib: Spanned<f64>, "The memory that it keeps: a few pages, and not scaled.", REGION;
        every_ms: Spanned<f64>, "Time between two pages.", EVERY;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            memory: Memory::Scheduled,
            ends: Ends::Timed,
            ..Traits::NONE
        }
    }

    fn work(&self, at: &Sizes, _: Given) -> Work {
        let pages = Pages(whole(self.region_mib.get_ref() * PAGES_PER_MIB));
        let options = Bystander {
            pages: pages.at_least(Pages(1)),
            every: millis(*self.every_ms.get_ref()),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| bystander(task, cache, &options, run))
    }
}
