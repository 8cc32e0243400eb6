//! Random schedules of readers beside writers, larger than loom can exhaust.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p tidegate-frames --lib schedules`
//!
//! shuttle is sequentially consistent: it looks for wrong orders of steps, loom for weak memory. It
//! prints the schedule of a failure, which `shuttle::replay` takes.

use shuttle::sync::Arc;
use shuttle::thread;

use super::*;
use crate::{Flags, FrameTable, Owner};

const PAGES: [u32; 6] = [0, 1, 63, 64, 130, 4097];
const FRAMES: u32 = 4;
const SCHEDULES: usize = 3_000;

struct World {
    table: FrameTable,
    pool: NodePool,
    files: [PageIndex; 2],
    /// Stands for the content: the owner it was written for.
    content: Vec<AtomicU64>,
}

fn content_of(owner: Owner) -> u64 {
    u64::from(owner.file) << 32 | u64::from(owner.index)
}

/// Caches pages of one file in frames that the other file's writer reclaims and reuses as well.
fn write(world: &World, file: u32, mut token: WriteToken) {
    for step in 0..12_u32 {
        let frame = FrameId((step * 3 + file) % FRAMES);
        let busy = if world.table.flags(frame).has(Flags::FREE) && step % 2 == file {
            // Two writers may see the same frame free: here each has frames of its own parity to claim.
            if frame.0 % 2 != file {
                continue;
            }
            world.table.claim(frame)
        } else {
            let Ok(busy) = world.table.try_busy_clean(frame) else {
                continue;
            };
            let owner = world.table.owner(frame);
            if owner.file != file {
                world.table.release(busy, Flags::NONE, Flags::NONE);
                continue;
            }
            let removed = world.files[file as usize]
                .writer(&world.pool, &mut token)
                .remove(owner.index, None);
            assert_eq!(removed, Slot::Frame(frame));
            world.table.disown(busy);
            if frame.0 % 2 != file {
                continue;
            }
            world.table.claim(frame)
        };
        let owner = Owner {
            file,
            index: PAGES[(step * 5 + file) as usize % PAGES.len()],
        };
        let mut writer = world.files[file as usize].writer(&world.pool, &mut token);
        if writer.get(owner.index) != Slot::Empty {
            world.table.disown(busy);
            continue;
        }
        world.table.adopt(&busy, owner);
        world.content[frame.0 as usize].store(content_of(owner), Ordering::SeqCst);
        if writer.insert(owner.index, frame).is_err() {
            world.table.disown(busy);
            continue;
        }
        world.table.release(busy, Flags::UPTODATE, Flags::NONE);
    }
}

/// Looks pages of both files up; what can be pinned holds what was asked for.
fn read(world: &World, seed: u32) -> u32 {
    let mut hits = 0;
    for step in 0..16_u32 {
        let owner = Owner {
            file: (step + seed) % 2,
            index: PAGES[(step * 7 + seed) as usize % PAGES.len()],
        };
        let Slot::Frame(frame) = world.files[owner.file as usize].get(&world.pool, owner.index)
        else {
            continue;
        };
        assert!(frame.0 < FRAMES, "a frame that nobody put there");
        let Ok(pin) = world.table.try_pin(frame, owner) else {
            continue;
        };
        assert_eq!(
            world.content[frame.0 as usize].load(Ordering::SeqCst),
            content_of(owner)
        );
        assert!(!world.table.unpin(pin));
        hits += 1;
    }
    hits
}

#[test]
fn readers_get_their_own_pages() {
    static HITS: PlainU64 = PlainU64::new(0);
    shuttle::check_random(
        || {
            let ((first, first_token), (second, second_token)) =
                (PageIndex::new(), PageIndex::new());
            let world = Arc::new(World {
                table: FrameTable::new(FRAMES),
                pool: NodePool::new(6),
                files: [first, second],
                content: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
            });
            let writers = [(0, first_token), (1, second_token)].map(|(file, token)| {
                let world = world.clone();
                thread::spawn(move || write(&world, file, token))
            });
            let readers = [0, 1].map(|seed| {
                let world = world.clone();
                thread::spawn(move || read(&world, seed))
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
    );
    assert!(
        HITS.load(PlainOrdering::Relaxed) > 0,
        "the readers met the writers at least once"
    );
}
