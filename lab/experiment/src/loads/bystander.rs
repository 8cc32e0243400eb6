//! `bystander`: takes a little memory on a schedule and gives it back.

use crate::task::{Given, Load, Sizes};
use policy::units::Pages;
use scenario::kinds::bystander::Keys;
use scenario::units::{PAGES_PER_MIB, millis, whole};
use workload::{Bystander, Work, bystander};

impl Load for Keys {
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
