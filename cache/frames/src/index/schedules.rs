//! Random schedules of readers beside writers, larger than loom can exhaust.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p tidegate-frames --lib schedules`
//!
//! shuttle is sequentially consistent: it looks for wrong orders of steps, loom for weak memory. It
//! prints the schedule of a failure, which `shuttle::replay` takes.

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use super::*;
use crate::{Flags, FrameTable, Owner};

/// Pages that share leaves, and that make the tree grow and shrink.
const PAGES: [u32; 5] = [0, 1, 63, 64, 4097];
/// Few, so that a frame goes from page to page and from file to file while a reader looks at it.
const FRAMES: u32 = 3;
const SCHEDULES: usize = 10_000;
/// A thread is stopped for long at this many places of a schedule. (Switching at every step finds
/// nothing here: a whole eviction has to fit between two steps of a reader.)
const PREEMPTIONS: usize = 3;

struct World {
    table: FrameTable,
    pool: NodePool,
    files: [PageIndex; 2],
    free: Mutex<Vec<FrameId>>,
    /// Stands for the content: the owner it was written for.
    content: Vec<AtomicU64>,
}

fn content_of(owner: Owner) -> u64 {
    u64::from(owner.file) << 32 | u64::from(owner.index)
}

fn random_page() -> u32 {
    PAGES[thread_rng().gen_range(0..PAGES.len())]
}

/// Caches pages of one file in frames from the free list, and evicts them again.
fn write(world: &World, file: u32, mut token: WriteToken) {
    for _ in 0..10 {
        let owner = Owner {
            file,
            index: random_page(),
        };
        let mut writer = world.files[file as usize].writer(&world.pool, &mut token);
        let freed = match writer.get(owner.index) {
            Slot::Frame(frame) => {
                let Ok(busy) = world.table.try_busy(frame, owner) else {
                    continue;
                };
                assert_eq!(writer.remove(owner.index, None), Slot::Frame(frame));
                Some(world.table.disown(busy))
            }
            _ => cache(world, &mut writer, owner),
        };
        world.free.lock().unwrap().extend(freed);
    }
}

/// Answers the frame again if there was no node for the page.
fn cache(world: &World, writer: &mut IndexWriter<'_>, owner: Owner) -> Option<FrameId> {
    let frame = world.free.lock().unwrap().pop()?;
    let busy = world.table.claim(frame);
    world.table.adopt(&busy, owner);
    world.content[frame.0 as usize].store(content_of(owner), Ordering::SeqCst);
    if writer.insert(owner.index, frame).is_err() {
        return Some(world.table.disown(busy));
    }
    world.table.release(busy, Flags::UPTODATE, Flags::NONE);
    None
}

/// Looks pages of both files up; a page that can be pinned holds what was asked for, as long as it
/// is pinned.
fn read(world: &World) -> u32 {
    let mut hits = 0;
    for _ in 0..12 {
        let owner = Owner {
            file: thread_rng().gen_range(0..2),
            index: random_page(),
        };
        let Slot::Frame(frame) = world.files[owner.file as usize].get(&world.pool, owner.index)
        else {
            continue;
        };
        assert!(frame.0 < FRAMES, "a frame that nobody put there");
        let Ok(pin) = world.table.try_pin(frame, owner) else {
            continue;
        };
        for _ in 0..2 {
            assert_eq!(
                world.content[frame.0 as usize].load(Ordering::SeqCst),
                content_of(owner)
            );
        }
        assert!(!world.table.unpin(pin));
        hits += 1;
    }
    hits
}

#[test]
fn readers_get_their_own_pages() {
    static HITS: PlainU64 = PlainU64::new(0);
    shuttle::check_pct(
        || {
            let ((first, first_token), (second, second_token)) =
                (PageIndex::new(), PageIndex::new());
            let world = Arc::new(World {
                table: FrameTable::new(FRAMES),
                pool: NodePool::new(6),
                files: [first, second],
                free: Mutex::new((0..FRAMES).map(FrameId).collect()),
                content: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
            });
            let writers = [(0, first_token), (1, second_token)].map(|(file, token)| {
                let world = world.clone();
                thread::spawn(move || write(&world, file, token))
            });
            let readers = [(), ()].map(|()| {
                let world = world.clone();
                thread::spawn(move || read(&world))
            });
            for writer in writers {
                writer.join().unwrap();
            }
            for reader in readers {
                HITS.fetch_add(u64::from(reader.join().unwrap()), PlainOrdering::Relaxed);
            }
            assert!((0..FRAMES).all(|frame| world.table.flags(FrameId(frame)).pins() == 0));
        },
        SCHEDULES,
        PREEMPTIONS,
    );
    assert!(
        HITS.load(PlainOrdering::Relaxed) > 0,
        "the readers met the writers at least once"
    );
}
