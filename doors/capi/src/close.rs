//! The end of a cache, and of all that lives in it.

use crate::border::Result;
use crate::border::slots::{Handle, Kind, Taken};
use crate::cache::{CacheOf, Lodger};
use crate::failure::{Failure, TG_BUSY, TG_OK};
use crate::file::{Opened, WriterOf};
use crate::queue::Queue;
use crate::region::Region;

/// Takes away all of a kind that lives in a cache.
fn take_lodgers<T: Lodger>(cache: Handle<CacheOf>) -> Vec<Taken<T>> {
    let lodgers = T::table().find(|lodger| lodger.cache() == cache);
    lodgers
        .into_iter()
        .filter_map(|lodger| T::table().take(lodger).ok())
        .collect()
}

fn put_back_all<T: Kind>(taken: Vec<Taken<T>>) {
    for one in taken {
        one.put_back();
    }
}

fn close(handle: Handle<CacheOf>) -> Result<i32> {
    let cache = CacheOf::table().take(handle)?;
    if !Queue::table()
        .find(|queue| queue.cache() == handle)
        .is_empty()
    {
        cache.put_back();
        return Err(Failure::new(
            TG_BUSY,
            "the cache has a queue; free the queue first",
        ));
    }
    // One that cannot be taken was closed meanwhile.
    let files = take_lodgers::<Opened>(handle);
    let regions = take_lodgers::<Region>(handle);
    let writers = take_lodgers::<WriterOf>(handle);
    let closed = match cache.value().0.stats().pinned {
        0 => cache.value().0.close().map_err(Failure::from),
        pinned => Err(Failure::new(
            TG_BUSY,
            format!("{pinned} bytes of the cache are pinned; unpin them first"),
        )),
    };
    if closed.as_ref().is_err_and(|busy| busy.code == TG_BUSY) {
        put_back_all(files);
        put_back_all(regions);
        put_back_all(writers);
        cache.put_back();
    }
    closed.map(|()| TG_OK)
}

border! {
    fn tg_cache_close(cache: Handle<CacheOf>) -> i32 {
        close(cache)
    }
}
