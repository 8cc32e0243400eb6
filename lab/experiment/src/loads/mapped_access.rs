//! `mapped_access`: loads from a file that it maps, or stores to it, at random.

use crate::task::{Facts, Given, Load, Sizes};
use mm::Access;
use policy::units::{Bytes, PAGE_SIZE};
use scenario::keys::value;
use scenario::kinds::mapped_access::Keys;
use scenario::units::millis;
use workload::{MappedAccess, Work, mapped_access};

fn options(keys: &Keys, at: &Sizes) -> MappedAccess {
    MappedAccess {
        pages: at.file(Bytes(PAGE_SIZE)).pages_ceil(),
        access: if keys.stores() {
            Access::Store
        } else {
            Access::Load
        },
        every: value(&keys.every_ms).map(millis),
        sync_every: value(&keys.sync_ms).map(millis),
        lasting: at.run_for.expect("what ends by time has its time"),
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        let due =
            |every: policy::units::Nanos| Bytes(PAGE_SIZE * (options.lasting.0 / every.0.max(1)));
        Facts {
            due: options.every.filter(|_| self.stores()).map(due),
            ..Facts::of_files(Bytes(PAGE_SIZE), options.pages.bytes())
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, cache, run| mapped_access(task, cache, &file, &options, run))
    }
}
