//! Files, their pins and writers.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, TryLockError};

use tidegate::{Advice, File, OpenOptions, PAGE_SIZE, Writer};

use crate::border::slots::{Handle, Kind, Table, Taken};
use crate::border::{In, Out, Part, Pin, Result, count};
use crate::cache::{self, CacheOf, Lodger, only};
use crate::failure::{Failure, TG_AGAIN, TG_BUSY, TG_OK};

/// A file of C's. A request of a queue holds it, too.
pub(crate) struct Opened {
    pub(crate) file: Arc<File>,
    cache: Handle<CacheOf>,
}

/// A writer of C's.
pub(crate) struct WriterOf {
    writer: Mutex<Writer>,
    cache: Handle<CacheOf>,
}

kind! { Opened, FILES, 2, lodger }
kind! { WriterOf, WRITERS, 3, lodger }

flags! {
    TG_CREATE = 1,
    TG_TRUNCATE = 2,
    TG_RDONLY = 4,
    TG_DIRECT = 8,
    TG_UNLOCKED = 16,
    TG_NORMAL = 0,
    TG_SEQUENTIAL = 1,
    TG_RANDOM = 2,
    TG_WILL_NEED = 3,
    TG_DONT_NEED = 4,
    TG_NO_REUSE = 5,
}

/// An advice by its number.
pub(crate) fn advice_of(advice: u32) -> Result<Advice> {
    match advice {
        TG_NORMAL => Ok(Advice::Normal),
        TG_SEQUENTIAL => Ok(Advice::Sequential),
        TG_RANDOM => Ok(Advice::Random),
        TG_WILL_NEED => Ok(Advice::WillNeed),
        TG_DONT_NEED => Ok(Advice::DontNeed),
        TG_NO_REUSE => Ok(Advice::NoReuse),
        other => Err(Failure::invalid(format!(
            "advice is {other}; TG_NORMAL to TG_NO_REUSE are possible"
        ))),
    }
}

/// Does something with a file.
#[inline]
pub(crate) fn with<R>(
    file: Handle<Opened>,
    what: impl FnOnce(&Arc<File>) -> Result<R>,
) -> Result<R> {
    FILES.with(file, |opened| what(&opened.file))
}

fn open(
    cache: Handle<CacheOf>,
    path: In<c_char>,
    flags: u32,
    preallocate: u64,
) -> Result<Handle<Opened>> {
    only(
        flags,
        TG_CREATE | TG_TRUNCATE | TG_RDONLY | TG_DIRECT | TG_UNLOCKED,
        "flags",
    )?;
    let has = |flag| flags & flag != 0;
    let mut options = OpenOptions::new()
        .create(has(TG_CREATE))
        .truncate(has(TG_TRUNCATE))
        .read_only(has(TG_RDONLY))
        .direct(has(TG_DIRECT))
        .lock(!has(TG_UNLOCKED));
    if preallocate > 0 {
        options = options.preallocate(preallocate);
    }
    let path = path.path("path")?;
    // In the call on the cache: a close that comes meanwhile waits, and takes this file, too.
    cache::with(cache, |opener| {
        let file = Arc::new(opener.open(path, options)?);
        FILES.insert(Opened { file, cache })
    })
}

/// Takes a file that no request holds away from its handle.
fn take(file: Handle<Opened>) -> Result<(Taken<Opened>, File, Handle<CacheOf>)> {
    let mut taken = FILES.take(file)?;
    let Opened { file, cache } = taken.take_out();
    match Arc::try_unwrap(file) {
        Ok(file) => Ok((taken, file, cache)),
        Err(file) => {
            taken.put_back_as(Opened { file, cache });
            Err(Failure::new(
                TG_BUSY,
                "requests of a queue are under way in the file; reap them first",
            ))
        }
    }
}

/// Closes a file; one that cannot be closed stays open.
fn close(file: Handle<Opened>) -> Result<()> {
    let (taken, file, cache) = take(file)?;
    file.close().or_else(|failed| match failed.error {
        // The cache is closed: there is nothing to be kept open for.
        tidegate::Error::Closed => Ok(()),
        error => {
            let file = Arc::new(*failed.file);
            taken.put_back_as(Opened { file, cache });
            Err(error.into())
        }
    })
}

/// Discards a file.
fn discard(file: Handle<Opened>) -> Result<()> {
    let (_taken, file, _) = take(file)?;
    Ok(file.discard()?)
}

/// Bytes of the file from a page on.
#[inline(always)]
fn left(file: &File, page: u32) -> usize {
    let left = file
        .len()
        .saturating_sub(u64::from(page) * PAGE_SIZE as u64);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// Pins pages into the caller's struct: a page that is in the cache here, all else elsewhere.
#[inline(always)]
fn pin_pages(file: &File, page: u32, pages: u32, wait: bool, place: Out<Pin>) -> Result<i32> {
    if pages == 1
        && let Some(pin) = file.try_pin(page)
    {
        place.put_page(pin, left(file, page));
        return Ok(TG_OK);
    }
    pin_others(file, page, pages, wait, place)
}

/// Several pages, or one that is not in the cache.
fn pin_others(file: &File, page: u32, pages: u32, wait: bool, place: Out<Pin>) -> Result<i32> {
    let run = match file.try_pin_run(page, pages) {
        Some(run) if pages > 1 => run,
        _ if !wait => {
            let words = format!("page {page} is not in the cache; tg_pin_pages reads it");
            return Err(Failure::new(TG_AGAIN, words));
        }
        _ if pages == 1 => {
            place.put_page(file.pin(page)?, left(file, page));
            return Ok(TG_OK);
        }
        _ => file.pin_run(page, pages)?,
    };
    place.put_run(run, left(file, page));
    Ok(TG_OK)
}

/// Reads into one part after the other, up to the end of the file.
fn read_parts(file: &File, parts: &[Part], mut offset: u64) -> Result<i64> {
    let mut total = 0;
    for part in parts {
        let bytes = part.data.bytes(part.len, "iov_base")?;
        let read = file.read_at(bytes, offset)?;
        total += read;
        offset += read as u64;
        if read < part.len {
            break;
        }
    }
    Ok(count(total))
}

/// Writes one part after the other; a failure says how much of all was taken in.
fn write_parts(file: &File, parts: &[Part], offset: u64) -> Result<i64> {
    let mut total = 0;
    for part in parts {
        let bytes = In::from(part.data).bytes(part.len, "iov_base")?;
        match file.write_at(bytes, offset + total as u64) {
            Ok(written) => total += written,
            Err(error) => {
                return Err(Failure::from(error).after(total as u64));
            }
        }
    }
    Ok(count(total))
}

fn parts_of(parts: In<Part>, number: i32) -> Result<Vec<Part>> {
    match usize::try_from(number) {
        Ok(number @ 0..=1024) => parts.read_many(number, "iov"),
        _ => Err(Failure::invalid(format!(
            "iovcnt is {number}; 0 to 1024 are possible"
        ))),
    }
}

border! {
    fn tg_open(
        cache: Handle<CacheOf>,
        path: In<c_char>,
        flags: u32,
        preallocate: u64,
        file: Out<Handle<Opened>>,
    ) -> i32 {
        file.there("file")?.put(open(cache, path, flags, preallocate)?);
        Ok(TG_OK)
    }

    fn tg_file_close(file: Handle<Opened>) -> i32 {
        close(file).map(|()| TG_OK)
    }

    fn tg_file_discard(file: Handle<Opened>) -> i32 {
        discard(file).map(|()| TG_OK)
    }

    fn tg_pread(file: Handle<Opened>, data: Out<c_void>, len: usize, offset: u64) -> i64 {
        with(file, |file| Ok(count(file.read_at(data.bytes(len, "data")?, offset)?)))
    }

    fn tg_try_pread(file: Handle<Opened>, data: Out<c_void>, len: usize, offset: u64) -> i64 {
        with(file, |file| {
            let progress = file.try_read_at(data.bytes(len, "data")?, offset)?;
            if progress.bytes == 0 && progress.would_block {
                return Err(Failure::new(TG_AGAIN, "the first byte is not in the cache; it is being read if there is memory"));
            }
            Ok(count(progress.bytes))
        })
    }

    fn tg_pwrite(file: Handle<Opened>, data: In<c_void>, len: usize, offset: u64) -> i64 {
        with(file, |file| Ok(count(file.write_at(data.bytes(len, "data")?, offset)?)))
    }

    fn tg_pwrite_as(
        file: Handle<Opened>,
        writer: Handle<WriterOf>,
        data: In<c_void>,
        len: usize,
        offset: u64,
    ) -> i64 {
        let data = data.bytes(len, "data")?;
        WRITERS.with(writer, |writer| {
            let mut writer = match writer.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    let words = "another thread is writing as this writer; a writer is used by one thread at a time";
                    return Err(Failure::new(TG_BUSY, words));
                }
            };
            with(file, |file| Ok(count(file.write_at_with(&mut writer, data, offset)?)))
        })
    }

    fn tg_preadv(file: Handle<Opened>, iov: In<Part>, iovcnt: i32, offset: u64) -> i64 {
        let parts = parts_of(iov, iovcnt)?;
        with(file, |file| read_parts(file, &parts, offset))
    }

    fn tg_pwritev(file: Handle<Opened>, iov: In<Part>, iovcnt: i32, offset: u64) -> i64 {
        let parts = parts_of(iov, iovcnt)?;
        with(file, |file| write_parts(file, &parts, offset))
    }

    fn tg_pin_pages(file: Handle<Opened>, page: u32, pages: u32, pin: Out<Pin>) -> i32 {
        let pin = pin.there("pin")?;
        with(file, |file| pin_pages(file, page, pages, true, pin))
    }

    fn tg_try_pin_pages(file: Handle<Opened>, page: u32, pages: u32, pin: Out<Pin>) -> i32 {
        let pin = pin.there("pin")?;
        with(file, |file| pin_pages(file, page, pages, false, pin))
    }

    fn tg_unpin(pin: Out<Pin>) -> i32 {
        pin.unpin()
    }

    fn tg_sync(file: Handle<Opened>) -> i32 {
        with(file, |file| Ok(file.sync()?)).map(|()| TG_OK)
    }

    fn tg_sync_range(file: Handle<Opened>, offset: u64, len: u64) -> i32 {
        with(file, |file| Ok(file.sync_range(offset, len)?)).map(|()| TG_OK)
    }

    fn tg_advise(file: Handle<Opened>, advice: u32, offset: u64, len: u64) -> i32 {
        let advice = advice_of(advice)?;
        with(file, |file| Ok(file.advise(advice, offset, len)?)).map(|()| TG_OK)
    }

    fn tg_set_len(file: Handle<Opened>, len: u64) -> i32 {
        with(file, |file| Ok(file.set_len(len)?)).map(|()| TG_OK)
    }

    fn tg_len(file: Handle<Opened>) -> i64 {
        with(file, |file| Ok(count(file.len())))
    }

    fn tg_is_direct(file: Handle<Opened>) -> i32 {
        with(file, |file| Ok(i32::from(file.is_direct())))
    }

    fn tg_writer_new(cache: Handle<CacheOf>, writer: Out<Handle<WriterOf>>) -> i32 {
        let place = writer.there("writer")?;
        let made = cache::with(cache, |of| {
            let writer = Mutex::new(of.writer());
            WRITERS.insert(WriterOf { writer, cache })
        });
        place.put(made?);
        Ok(TG_OK)
    }

    fn tg_writer_free(writer: Handle<WriterOf>) -> i32 {
        drop(WRITERS.take(writer)?);
        Ok(TG_OK)
    }
}
