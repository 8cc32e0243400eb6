//! Callers that may not wait, in the lab: no time passes inside their calls, what was taken in is
//! right, limits hold, and a wait that is refused loses nothing.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use crate::common::{data, world};
use env::{Cause, ObjectId, Task};
use mm::{Cache, Error, File, Item, Progress, Reader, Writer};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Instant, Nanos, PAGE_SIZE, Pages};
use world::Sector;
use world::content::of_pin;

const PAGE: u64 = PAGE_SIZE;

/// A task that has others to serve: no call of it may take time.
struct Server<'a> {
    cache: &'a Arc<Cache>,
    file: &'a Arc<File>,
}

fn try_read(
    file: &File,
    task: &mut Task<'_>,
    reader: &mut Reader,
    at: Bytes,
    data: &mut [Sector],
) -> Result<Progress, Error> {
    task.nonblocking(|task| file.read(task, reader, at, data))
}

impl Server<'_> {
    fn try_write(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        at: u64,
        data: &[Sector],
    ) -> Progress {
        let before = task.now();
        let file = self.file;
        let tried = task.nonblocking(|task| file.write_unpaced(task, writer, Bytes(at), data));
        assert_eq!(
            task.now(),
            before,
            "time passed in a write that may not block"
        );
        tried.unwrap()
    }

    /// Reads all of it, with the waits on this task; answers how often it was stuck.
    fn read(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        at: u64,
        sectors: usize,
    ) -> (Vec<Sector>, u32) {
        let mut data = Vec::new();
        let mut stuck = 0;
        while data.len() < sectors {
            let mut rest = vec![Sector(0); sectors - data.len()];
            let from = Bytes(at + data.len() as u64 * 512);
            let before = task.now();
            let tried = try_read(self.file, task, reader, from, &mut rest).unwrap();
            assert_eq!(
                task.now(),
                before,
                "time passed in a read that may not block"
            );
            let got = usize::try_from(tried.bytes.0 / 512).unwrap();
            assert_eq!(tried.would_block, got < rest.len());
            data.extend(&rest[..got]);
            if tried.would_block {
                stuck += 1;
                assert!(stuck < 10_000, "no progress at {from:?}");
                let from = Bytes(at + data.len() as u64 * 512);
                let len = Bytes((sectors - data.len()) as u64 * 512);
                self.file.prepare_read(task, reader, from, len).unwrap();
            }
        }
        (data, stuck)
    }

    fn pace(&self, task: &mut Task<'_>, writer: &mut Writer) -> Option<Instant> {
        let before = task.now();
        let until = self.cache.pace(task, writer).unwrap();
        assert_eq!(task.now(), before, "time passed in pace");
        assert!(
            until.is_none_or(|until| until > before),
            "a pause that is over"
        );
        until
    }

    /// Writes all of it, with the waits on this task; answers how often it was stuck.
    fn write(&self, task: &mut Task<'_>, writer: &mut Writer, at: u64, data: &[Sector]) -> u32 {
        let mut done = 0;
        let mut stuck = 0;
        while done < data.len() {
            let rest = data[done..].to_vec();
            let from = at + done as u64 * 512;
            let tried = self.try_write(task, writer, from, &rest);
            assert_eq!(tried.bytes.0 % 512, 0);
            done += usize::try_from(tried.bytes.0 / 512).unwrap();
            assert_eq!(tried.would_block, done < data.len());
            if tried.would_block {
                stuck += 1;
                assert!(stuck < 10_000, "no progress at {from}");
                let len = Bytes((data.len() - done) as u64 * 512);
                let from = Bytes(at + done as u64 * 512);
                self.file.prepare_write(task, writer, from, len).unwrap();
            }
        }
        stuck
    }

    /// Sleeps as long as the writer is held; answers how long that was.
    fn hold(&self, task: &mut Task<'_>, writer: &mut Writer) -> Nanos {
        let began = task.now();
        while let Some(until) = self.pace(task, writer) {
            assert_eq!(self.pace(task, writer), Some(until), "asked too early");
            task.sleep_until(Cause::Think, until);
        }
        task.now().since(began)
    }
}

#[test]
fn what_fits_is_taken_at_once_and_is_there() {
    let mut world = world(4096, 100 << 20);
    let disk = Arc::clone(&world.disk);
    world.run(1 << 30, |task, cache, file| {
        file.assume_allocated(Bytes(1 << 30));
        let server = Server { cache, file };
        let mut writer = cache.writer();
        let written = data(3, 32, 1);
        // The first chunk of memory has to come from the system.
        server.write(task, &mut writer, 3 * PAGE, &written);
        let again = data(3, 32, 2);
        let tried = server.try_write(task, &mut writer, 3 * PAGE, &again);
        assert_eq!(tried.bytes, Bytes(32 * PAGE));
        assert!(!tried.would_block);
        assert_eq!(server.pace(task, &mut writer), None, "below freerun");
        let mut back = vec![Sector(0); 32 * 8];
        file.read(task, &mut Reader::default(), Bytes(3 * PAGE), &mut back)
            .unwrap();
        assert_eq!(back, again);
        file.sync(task).unwrap();
    });
    assert_eq!(disk.state().pages[&(1, 3)][..], data(3, 1, 2)[..]);
}

/// Offers the pages of `sectors` at `at`, and fills as many of them as the caller has: answers how
/// many were offered and filled; none: nothing was offered.
fn receive(
    task: &mut Task<'_>,
    file: &File,
    writer: &mut Writer,
    at: u64,
    sectors: &[Sector],
    have: usize,
) -> Option<(usize, usize)> {
    let len = sectors.len() * 512;
    let before = task.now();
    let mut seen = None;
    let content = task.env().content();
    let filled = file.receive(task, writer, Bytes(at), Bytes(len as u64), &mut |offered| {
        let mut from = 0;
        for (busy, part) in offered.parts() {
            let some = part.len().min(have * 512 - from);
            content.copy_in(busy, part.start, sectors.into(), from, some);
            from += some;
        }
        assert!(from <= offered.len() && offered.len() <= len);
        assert_eq!(
            offered.parts().map(|(_, part)| part.len()).sum::<usize>(),
            offered.len()
        );
        seen = Some((offered.len() / 512, from / 512));
        from
    });
    assert_eq!(task.now(), before, "time passed in try_receive");
    let filled = usize::try_from(filled.unwrap().0 / 512).unwrap();
    assert_eq!(filled, seen.map_or(0, |(_, filled)| filled));
    seen
}

#[test]
fn what_is_received_goes_into_pages_that_are_there() {
    let mut world = world(4096, 100 << 20);
    let disk = Arc::clone(&world.disk);
    world.run(1 << 30, move |task, cache, file| {
        file.assume_allocated(Bytes(1 << 30));
        let server = Server { cache, file };
        let (mut writer, mut reader) = (cache.writer(), Reader::default());
        let mut there = data(3, 80, 1);
        server.write(task, &mut writer, 3 * PAGE, &there);
        file.sync(task).unwrap();
        // From the middle of a page on; all that is offered, a part of a page less, a part of the
        // first page, nothing.
        for (version, (wanted, have)) in
            (2..).zip([(100, 100), (630, 65 * 8 - 3), (300, 69), (300, 2), (300, 0)])
        {
            let newer = &data(3, 80, version)[3..3 + wanted];
            let dirty = cache.stats().dirty;
            assert_eq!(dirty, Pages::ZERO);
            let at = 3 * PAGE + 3 * 512;
            let (offered, filled) = receive(task, file, &mut writer, at, newer, have).unwrap();
            assert_eq!((offered, filled), (wanted.min(65 * 8 - 3), have));
            let touched = if have == 0 { 0 } else { (3 + have).div_ceil(8) };
            assert_eq!(cache.stats().dirty, Pages(touched as u64));
            there[3..3 + have].copy_from_slice(&newer[..have]);
            let (back, stuck) = server.read(task, &mut reader, 3 * PAGE, there.len());
            assert_eq!((back == there, stuck), (true, 0));
            file.sync(task).unwrap();
            assert_eq!(disk.state().pages[&(1, 3)][..], there[..8]);
        }
        // A page that is pinned, or a page that is not there, ends the offer; as the first, nothing
        // is offered.
        let newer = data(3, 8, 9);
        let pinned = file.try_pin(5);
        assert!(pinned.is_some());
        let seen = receive(task, file, &mut writer, 3 * PAGE, &newer, 1);
        assert_eq!(seen, Some((16, 1)));
        let seen = receive(task, file, &mut writer, 5 * PAGE, &newer, 64);
        assert_eq!(seen, None);
        drop(pinned);
        let seen = receive(task, file, &mut writer, 82 * PAGE, &newer, 0);
        assert_eq!(seen, Some((8, 0)));
        let seen = receive(task, file, &mut writer, 83 * PAGE, &newer, 64);
        assert_eq!(seen, None);
        // Nothing lies beyond the end.
        let seen = receive(task, file, &mut writer, (1 << 30) - PAGE, &newer, 64);
        assert_eq!(seen, None);
        // A task that filled nothing has left nothing behind: the pages can be written to.
        let whole = data(3, 80, 10);
        assert_eq!(server.write(task, &mut writer, 3 * PAGE, &whole), 0);
        file.sync(task).unwrap();
    });
}

#[test]
fn a_writer_that_is_served_is_held_like_one_that_waits() {
    let rate = 20 << 20;
    let pages = 16_384;
    let took = [false, true].map(|served| {
        let mut world = world(8192, rate).limits(2048, 1024);
        world.run(1 << 30, move |task, cache, file| {
            file.assume_allocated(Bytes(1 << 30));
            let server = Server { cache, file };
            let mut writer = cache.writer();
            let began = task.now();
            for chunk in 0..pages / 32 {
                let written = data(chunk * 32, 32, 1);
                let at = u64::from(chunk) * 32 * PAGE;
                if served {
                    server.write(task, &mut writer, at, &written);
                    server.hold(task, &mut writer);
                } else {
                    file.write(task, &mut writer, Bytes(at), &written).unwrap();
                }
                let stats = cache.stats();
                let level = stats.dirty + stats.writeback;
                assert!(level.0 <= 2048 + 32, "{level:?} of 2048 pages are dirty");
            }
            task.now().since(began)
        })
    });
    let [waiting, served] = took.map(|took| took.0 / 1_000_000);
    assert!(
        waiting.abs_diff(served) < waiting / 20,
        "{waiting} ms by one that waits, {served} ms by one that is served"
    );
}

/// Files longer than the memory, read in order: by a task that waits, and by a task that is served.
#[test]
fn a_reader_that_is_served_is_read_ahead_of_like_one_that_waits() {
    let pages = 8192;
    let [waiting, served] = [false, true].map(|served| {
        let mut world = world(2048, 100 << 20);
        let disk = Arc::clone(&world.disk);
        for page in 0..u64::from(pages) {
            let content = data(u32::try_from(page).unwrap(), 1, 7);
            disk.state()
                .pages
                .insert((1, page), content.try_into().unwrap());
        }
        let (took, activated) = world.run(u64::from(pages) * PAGE, move |task, cache, file| {
            let server = Server { cache, file };
            let mut reader = Reader::default();
            let began = task.now();
            for chunk in 0..pages / 32 {
                let at = u64::from(chunk) * 32 * PAGE;
                let expected = data(chunk * 32, 32, 7);
                let got = if served {
                    server.read(task, &mut reader, at, 32 * 8).0
                } else {
                    let mut got = vec![Sector(0); 32 * 8];
                    file.read(task, &mut reader, Bytes(at), &mut got).unwrap();
                    got
                };
                assert!(got == expected, "wrong data at page {}", chunk * 32);
            }
            let activated = cache.vmstat().get(Item::Pgactivate);
            (task.now().since(began), activated)
        });
        let reads = disk.state().reads;
        (took.0 / 1_000_000, activated, reads)
    });
    assert!(
        served.0.abs_diff(waiting.0) <= waiting.0 / 20,
        "ms: {waiting:?}, {served:?}"
    );
    assert!(
        served.1 <= waiting.1 + 32,
        "activated: {waiting:?}, {served:?}"
    );
    // It does not reclaim: a window that finds too little memory is cut short.
    assert!(
        served.2 <= waiting.2 + waiting.2 / 3,
        "reads: {waiting:?}, {served:?}"
    );
}

#[test]
fn a_part_of_a_page_waits_for_the_rest_of_it_elsewhere() {
    let mut world = world(1024, 100 << 20);
    let disk = Arc::clone(&world.disk);
    for page in 0..64 {
        let content = data(u32::try_from(page).unwrap(), 1, 7);
        disk.state()
            .pages
            .insert((1, page), content.try_into().unwrap());
    }
    world.run(64 * PAGE, |task, cache, file| {
        let server = Server { cache, file };
        let mut writer = cache.writer();
        // From the middle of page 3 to the middle of page 7.
        let part = data(100, 4, 9);
        let stuck = server.write(task, &mut writer, 3 * PAGE + 2048, &part);
        assert!(stuck > 0, "pages 3 and 7 were not there");
        let (got, stuck) = server.read(task, &mut Reader::default(), 2 * PAGE, 8 * 8);
        assert!(stuck > 0, "page 2 was not there");
        let mut expected = data(2, 8, 7);
        expected[12..12 + 32].copy_from_slice(&part);
        assert_eq!(got, expected);
    });
}

/// A hundred at once, each with a file part of its own, over a disk of 8 MiB/s and a memory of 4
/// MiB.
#[test]
fn a_hundred_who_may_not_wait_keep_to_the_limits_and_share_the_disk() {
    const WRITERS: u32 = 100;
    const PAGES: u32 = 96;
    let mut world = world(1024, 8 << 20).limits(256, 128);
    let disk = Arc::clone(&world.disk);
    world.run(1 << 30, |task, cache, file| {
        file.assume_allocated(Bytes(1 << 30));
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (cache, file) = (Arc::clone(cache), Arc::clone(file));
                let body = move |task: &mut Task<'_>| {
                    let (cache, file) = (&cache, &file);
                    let server = Server { cache, file };
                    let mut writer = cache.writer();
                    for chunk in (0..PAGES).step_by(4) {
                        let first = number * PAGES + chunk;
                        let at = u64::from(first) * PAGE;
                        server.write(task, &mut writer, at, &data(first, 4, 3));
                        server.hold(task, &mut writer);
                        let stats = cache.stats();
                        let level = stats.dirty + stats.writeback;
                        let most = 256 + 4 * u64::from(WRITERS);
                        assert!(level.0 <= most, "{level:?} of {most} pages are dirty");
                        assert!(stats.cached + stats.free <= stats.frames, "{stats:?}");
                    }
                    task.now()
                };
                env::spawn(task.env(), "served", body)
            })
            .collect();
        let mut ends: Vec<_> = writers
            .into_iter()
            .map(|writer| writer.join(task).unwrap().0 / 1_000_000)
            .collect();
        ends.sort_unstable();
        // 37.5 MiB at 8 MiB/s; and but for those that came before the limit was reached, nobody was
        // done long before the others.
        assert!(ends[99] < 5000, "the last ended at {} ms", ends[99]);
        assert!(ends[10] > 3000, "{ends:?}");
        file.sync(task).unwrap();
        file.discard(task).unwrap();
        assert_eq!(cache.stats().free, cache.stats().frames, "frames are lost");
    });
    let state = disk.state();
    for page in 0..WRITERS * PAGES {
        assert_eq!(state.pages[&(1, u64::from(page))][..], data(page, 1, 3)[..]);
    }
}

/// Each wait that a read or a write can come to, refused; then the file is thrown away, and every
/// frame is there.
#[test]
fn a_wait_that_is_refused_loses_nothing() {
    let mut world = world(512, 4 << 20).limits(400, 300);
    let disk = Arc::clone(&world.disk);
    for page in 0..256 {
        let content = data(u32::try_from(page).unwrap(), 1, 7);
        disk.state()
            .pages
            .insert((1, page), content.try_into().unwrap());
    }
    world.run(256 * PAGE, |task, cache, file| {
        let server = Server { cache, file };
        let mut writer = cache.writer();
        let mut reader = Reader::default();
        let page = data(0, 1, 9);
        let at = |number: u64| number * PAGE;
        // No memory: the first chunk is not there yet. Space beyond the end.
        assert!(
            server
                .try_write(task, &mut writer, at(0), &page)
                .would_block
        );
        assert!(
            server
                .try_write(task, &mut writer, at(1 << 14), &page)
                .would_block
        );
        // A page that is being read, by a reader and by the writer of a part.
        server
            .file
            .prepare_read(task, &mut reader, Bytes(at(200)), Bytes(PAGE))
            .unwrap();
        let mut got = vec![Sector(0); 8];
        assert!(
            try_read(file, task, &mut reader, Bytes(at(100)), &mut got)
                .unwrap()
                .would_block
        );
        assert!(
            server
                .try_write(task, &mut writer, at(100), &page)
                .would_block
        );
        assert!(
            server
                .try_write(task, &mut writer, at(120), &page[..4])
                .would_block
        );
        server.write(task, &mut writer, at(100), &page);
        server.write(task, &mut writer, at(120), &page[..4]);
        // A pinned page under writeback.
        let pin = file.pin(task, &mut Reader::default(), 100).unwrap();
        let other = Arc::clone(file);
        let syncing = env::spawn(task.env(), "sync", move |task: &mut Task<'_>| {
            other.sync(task)
        });
        task.sleep(Cause::Think, Nanos::micros(100));
        assert!(cache.stats().writeback.0 > 0, "a sync is under way");
        assert!(
            server
                .try_write(task, &mut writer, at(100), &page)
                .would_block
        );
        server.write(task, &mut writer, at(100), &data(0, 1, 11));
        assert_eq!(
            of_pin(pin.content(), pin.pin())[..],
            page[..],
            "a pin is a snapshot"
        );
        drop(pin);
        syncing.join(task).unwrap().unwrap();
        // A truncation at the gate.
        let pages: Vec<_> = data(0, 64, 12);
        server.write(task, &mut writer, at(0), &pages);
        let other = Arc::clone(file);
        let cutting = env::spawn(task.env(), "cut", move |task: &mut Task<'_>| {
            other.truncate(task, Bytes(60 * PAGE))
        });
        task.sleep(Cause::Think, Nanos::micros(5));
        assert!(
            server
                .try_write(task, &mut writer, at(1), &page)
                .would_block,
            "the gate is shut"
        );
        cutting.join(task).unwrap().unwrap();
        server.write(task, &mut writer, at(1), &page);
        // All memory is dirty, and the disk has a second's work.
        let mut stuck = 0;
        for number in 0..2048 {
            stuck += u32::from(
                server
                    .try_write(task, &mut writer, at(number), &page)
                    .would_block,
            );
        }
        assert!(stuck > 1000, "there was memory for all");
        // A writer that is dropped with what it was to use.
        file.sync(task).unwrap();
        let before = cache.stats().free;
        let mut gone = cache.writer();
        let free_pages = Bytes(at(3000));
        file.prepare_write(task, &mut gone, free_pages, Bytes(32 * PAGE))
            .unwrap();
        let kept = before.0.saturating_sub(cache.stats().free.0);
        assert!(kept > 0, "nothing was kept for the writer");
        drop(gone);
        file.discard(task).unwrap();
        assert_eq!(cache.stats().free, cache.stats().frames, "frames are lost");
    });
}

/// Reads fail while nobody waits for them: the task that comes back hears of it, and nothing stays
/// busy.
#[test]
fn a_read_that_failed_unseen_is_tried_again_and_then_told() {
    let mut world = world(512, 100 << 20);
    let disk = Arc::clone(&world.disk);
    for page in 0..64 {
        let content = data(u32::try_from(page).unwrap(), 1, 7);
        disk.state()
            .pages
            .insert((1, page), content.try_into().unwrap());
    }
    let state = Arc::clone(&world.disk);
    world.run(64 * PAGE, move |task, cache, file| {
        let server = Server { cache, file };
        let mut reader = Reader::default();
        let mut got = vec![Sector(0); 8];
        file.prepare_read(task, &mut reader, Bytes(60 * PAGE), Bytes(PAGE))
            .unwrap();
        let next = state.state().reads;
        state.state().fail_reads = next..next + 2;
        assert!(
            try_read(file, task, &mut reader, Bytes(5 * PAGE), &mut got)
                .unwrap()
                .would_block
        );
        task.sleep(Cause::Think, Nanos::millis(50));
        // The failure is an older one: the device is asked again, and fails again.
        assert!(
            try_read(file, task, &mut reader, Bytes(5 * PAGE), &mut got)
                .unwrap()
                .would_block
        );
        let told = file.prepare_read(task, &mut reader, Bytes(5 * PAGE), Bytes(PAGE));
        assert!(matches!(told, Err(Error::ReadFailed { .. })), "{told:?}");
        let stats = cache.device_stats()[0];
        assert_eq!(stats.last_read_error, told.err(), "counted, and told");
        assert!(stats.read_failed.0 >= 2, "{:?}", stats.read_failed);
        assert_eq!(stats.health, mm::Health::Working, "nobody is held back");
        let failing = stats.reads_failing.expect("no read has gone well since");
        assert!(
            failing.since >= Nanos::millis(50) && failing.last < Nanos::millis(50),
            "{failing:?}"
        );
        // Nobody has read for long: what failed says nothing of now.
        task.sleep(Cause::Think, Nanos::secs(120));
        assert_eq!(cache.device_stats()[0].reads_failing, None);
        // Another one long after: it does not matter how long ago the first was.
        let next = state.state().reads;
        state.state().fail_reads = next..next + 1;
        let told = file.prepare_read(task, &mut reader, Bytes(5 * PAGE), Bytes(PAGE));
        assert!(told.is_err(), "{told:?}");
        let failing = cache.device_stats()[0].reads_failing.unwrap();
        assert!(failing.since < Nanos::secs(1), "{failing:?}");
        let (got, _) = server.read(task, &mut reader, 5 * PAGE, 8);
        assert_eq!(got, data(5, 1, 7));
        assert_eq!(cache.device_stats()[0].reads_failing, None);
        // A page behind the awaited page, for good: it does not matter before it is the first.
        let next = state.state().reads;
        state.state().fail_reads = next + 1..u64::MAX;
        let brought = file.prepare_read(task, &mut reader, Bytes(20 * PAGE), Bytes(8 * PAGE));
        assert!(brought.is_ok(), "{brought:?}");
        let mut got = vec![Sector(0); 8];
        let tried = try_read(file, task, &mut reader, Bytes(20 * PAGE), &mut got);
        assert!(!tried.unwrap().would_block, "the first page was read");
        file.discard(task).unwrap();
        assert_eq!(cache.stats().free, cache.stats().frames, "frames are lost");
    });
}

/// A quarter of the memory in one call.
#[test]
fn what_was_waited_for_is_there_as_a_whole() {
    let mut world = world(1024, 100 << 20);
    world.run(4096 * PAGE, |task, cache, file| {
        let mut reader = Reader::default();
        for chunk in 0..16 {
            let at = Bytes(chunk * 256 * PAGE);
            let mut got = vec![Sector(0); 256 * 8];
            let tried = try_read(file, task, &mut reader, at, &mut got).unwrap();
            assert!(tried.would_block || chunk > 0);
            file.prepare_read(task, &mut reader, at, Bytes(256 * PAGE))
                .unwrap();
            let tried = try_read(file, task, &mut reader, at, &mut got).unwrap();
            assert_eq!(tried.bytes, Bytes(256 * PAGE), "chunk {chunk}");
        }
        assert!(cache.stats().reclaimed.0 > 0, "memory was short");
    });
}

/// A look whether a range is there, and a check that all of it can be read, are no accesses: the
/// look sends for nothing, and the read behind the check is the first. A page that cannot be read
/// is found wherever it is in the range.
#[test]
fn a_range_is_proven_readable_without_an_access_to_it() {
    const PAGES: u64 = 300;
    let activated = |reads: u32| {
        let mut world = world(1024, 100 << 20);
        let disk = Arc::clone(&world.disk);
        world.run(8192 * PAGE, move |task, cache, file| {
            let all = Bytes(PAGES * PAGE);
            assert!(!file.is_cached(Bytes(0), all));
            assert_eq!(cache.stats().read_in, Pages::ZERO, "a look reads nothing");
            let mut reader = Reader::default();
            for piece in 0..3 {
                let (at, len) = (Bytes(piece * 100 * PAGE), Bytes(100 * PAGE));
                file.verify_readable(task, &mut reader, at, len).unwrap();
            }
            assert!(file.is_cached(Bytes(0), all));
            let mut got = vec![Sector(0); usize::try_from(PAGES * 8).unwrap()];
            for _ in 0..reads {
                let tried = try_read(file, task, &mut reader, Bytes(0), &mut got);
                assert_eq!(tried.unwrap().bytes, all);
            }
            // As much else that reclaim has to look at them.
            for at in (1024..8192).step_by(256) {
                let mut got = vec![Sector(0); 256 * 8];
                file.read(task, &mut reader, Bytes(at * PAGE), &mut got)
                    .unwrap();
            }
            let activated = cache.vmstat().get(Item::Pgactivate);

            let next = disk.state().reads;
            disk.state().fail_reads = next + 1..u64::MAX;
            let other = cache.open(task, DeviceIndex(0), ObjectId(2), all).unwrap();
            let told = other.verify_readable(task, &mut Reader::default(), Bytes(0), all);
            assert!(matches!(told, Err(Error::ReadFailed { .. })), "{told:?}");
            other.discard(task).unwrap();
            activated
        })
    };
    assert_eq!([1, 2].map(activated), [0, PAGES]);
}

/// Under the law that has a writer write pages itself, a writer that cannot is held all the same.
#[test]
fn the_dirty_limit_holds_where_a_writer_would_have_to_write() {
    let mut world = world(2048, 4 << 20)
        .law(history::dirty::FOREGROUND)
        .limits(256, 128);
    world.run(1 << 30, |task, cache, file| {
        file.assume_allocated(Bytes(1 << 30));
        let server = Server { cache, file };
        let mut writer = cache.writer();
        for chunk in 0..48 {
            let at = u64::from(chunk) * 32 * PAGE;
            server.write(task, &mut writer, at, &data(chunk * 32, 32, 1));
            server.hold(task, &mut writer);
            let stats = cache.stats();
            let level = stats.dirty + stats.writeback;
            assert!(level.0 <= 256 + 256, "{level:?} of 256 pages are dirty");
        }
    });
}

#[test]
fn who_waits_for_all_that_it_sends_for_would_do_it_itself() {
    let mut world = world(1024, 100 << 20);
    let disk = Arc::clone(&world.disk);
    let asked = move || core::mem::take(&mut disk.state().asked);
    world.run(4096 * PAGE, move |task, _, file| {
        let mut buffer = vec![Sector(0); 8];
        file.pin(task, &mut Reader::default(), 1000).unwrap();
        file.read(
            task,
            &mut Reader::default(),
            Bytes(2000 * PAGE),
            &mut buffer,
        )
        .unwrap();
        assert_eq!(asked(), [(1000, 1, true), (2000, 1, true)]);
        // It goes on to something else.
        let tried = try_read(
            file,
            task,
            &mut Reader::default(),
            Bytes(3000 * PAGE),
            &mut buffer,
        );
        assert!(tried.unwrap().would_block);
        assert_eq!(asked(), [(3000, 1, false)]);
        // A window: its reader begins with the first of it, and the next is sent for meanwhile.
        let mut reader = Reader::default();
        for page in 0..64 {
            file.read(task, &mut reader, Bytes(page * PAGE), &mut buffer)
                .unwrap();
        }
        let windows = asked();
        assert!(
            windows.len() > 2 && windows.iter().all(|(.., in_place)| !in_place),
            "{windows:?}"
        );
    });
}

#[test]
fn what_is_shown_is_what_is_read_and_is_sent_for_alike() {
    let run = |shows: bool| {
        let mut world = world(1024, 100 << 20);
        let disk = Arc::clone(&world.disk);
        world.run(4096 * PAGE, move |task, cache, file| {
            let (mut writer, env) = (cache.writer(), task.env());
            file.write(task, &mut writer, Bytes(0), &data(0, 300, 1))
                .unwrap();
            file.sync(task).unwrap();
            file.truncate(task, Bytes(299 * PAGE + 1024)).unwrap();
            // They are driven out.
            file.truncate(task, Bytes(4096 * PAGE)).unwrap();
            for page in 1000..3000 {
                file.pin(task, &mut Reader::default(), page).unwrap();
            }
            file.truncate(task, Bytes(299 * PAGE + 1024)).unwrap();
            disk.state().asked.clear();
            let (mut reader, mut all) = (Reader::default(), Vec::<Sector>::new());
            for at in (512..310 * PAGE).step_by(64 << 10) {
                let mut read = vec![Sector(0); 128];
                let bytes = if shows {
                    read.clear();
                    let place = (Bytes(at), Bytes(64 << 10));
                    let mut one = |pin: &frames::Pin, within: core::ops::Range<usize>| {
                        let mut page = vec![Sector(0); within.len() / 512];
                        env.content().copy_out(
                            pin,
                            within.start,
                            &mut (&mut page).into(),
                            0,
                            within.len(),
                        );
                        read.extend(page);
                    };
                    file.show(task, &mut reader, place, &mut one).unwrap().bytes
                } else {
                    file.read(task, &mut reader, Bytes(at), &mut read)
                        .unwrap()
                        .bytes
                };
                all.extend(&read[..usize::try_from(bytes.0 / 512).unwrap()]);
            }
            (all, core::mem::take(&mut disk.state().asked))
        })
    };
    let (read, shown) = (run(false), run(true));
    assert_eq!(read.0[..], data(0, 300, 1)[1..299 * 8 + 2]);
    assert!(shown == read && shown.1.len() > 2, "{:?}", shown.1);
}
