//! The end of a cache, and of all that lives in it.

use crate::border::Result;
use crate::border::slots::{Handle, Kind, Taken};
use crate::cache::{CacheOf, Lodger};
use crate::failure::{Failure, TG_BUSY, TG_OK};
use crate::file::{Opened, WriterOf};
use crate::map::MapOf;
use crate::queue::Queue;
use crate::region::Region;

/// Takes away all of a kind that lives in a cache.
fn take_lodgers<T: Lodger>(cache: Handle<CacheOf>) -> Vec<Taken<T>> {
    let lodgers = T::table().find(|lodger| lodger.cache() == cache);
    // A lodger that cannot be taken was closed meanwhile.
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
    let files = take_lodgers::<Opened>(handle);
    let pinned = cache.value().0.stats().pinned;
    let maps = MapOf::table().find(|map| map.cache() == handle).len();
    if pinned > 0 || maps > 0 {
        put_back_all(files);
        cache.put_back();
        let words = match maps {
            0 => format!("{pinned} bytes of the cache are pinned; unpin them first"),
            1 => "a file of the cache is mapped; free the map first".into(),
            _ => format!("{maps} files of the cache are mapped; free the maps first"),
        };
        return Err(Failure::new(TG_BUSY, words));
    }
    let (regions, writers) = (
        take_lodgers::<Region>(handle),
        take_lodgers::<WriterOf>(handle),
    );
    for mut file in files {
        // A file that fails stays in the cache, which tries again and answers for it.
        file.take_out().end();
    }
    let ended = cache.value().0.close();
    drop((regions, writers, cache));
    ended?;
    Ok(TG_OK)
}

border! {
    fn tg_cache_close(cache: Handle<CacheOf>) -> i32 {
        close(cache)
    }
}
