//! A page that moves while it is to be dropped.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use env::{Device as _, ObjectId};
use policy::place::by_use::Purpose;
use policy::units::Bytes;
use world::Sector;

use super::*;
use crate::alloc::Wanted;
use crate::lists::isolate::Page;
use crate::relocate::move_page;
use crate::testing::{NULL, Null, with_cache};
use crate::{DeviceOptions, Options};

#[test]
fn a_page_that_was_moved_meanwhile_is_dropped_where_it_is() {
    with_cache(Options::new(1024, 2), |task, cache| {
        let device = cache
            .add_device(task, NULL, Null.info(), DeviceOptions::default())
            .unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        let data = vec![Sector(5); 8];
        file.write(task, &mut writer, Bytes(0), &data).unwrap();
        let mapping = cache.mapping(task, 0).unwrap();
        let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, 0) else {
            panic!("it was written");
        };
        let mut fresh = Vec::new();
        cache
            .try_alloc(task, Wanted::new(1, Purpose::Used), &mut fresh)
            .unwrap();
        let (_, generation) = cache.pages.table.look(frame);
        let page = Page { frame, generation };
        assert_eq!(move_page(task, cache, page, fresh[0]), Ok(()));
        // As the task that looked it up before that.
        drop_page(task, cache, &mapping, 0, frame, Which::All).unwrap();
        let left = mapping.lookup(task, &cache.pages.pool, 0);
        assert_eq!(left, Slot::Empty);
        assert_eq!((cache.stats().cached.0, cache.stats().dirty.0), (0, 0));
        assert!(cache.stats().is_conserved());
    });
}
