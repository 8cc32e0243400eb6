//! Every interleaving, under the weak memory model, of the protocols that `mm` builds on.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate-frames --test loom --release`
//!
//! A frame's content is modelled twice: by a cell that fails the model when a read and a write are
//! not ordered (`Content::cell`), and by a relaxed atomic that may show any value the orderings
//! allow.
#![cfg(loom)]

use frames::stack::IndexStack;
use frames::{
    Flags, FrameId, FrameTable, Ledger, NodePool, Owner, PageIndex, Pin, Refusal, SeatId, Slot,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use loom::sync::{Arc, Mutex};
use loom::thread;

const A: Owner = Owner { file: 1, index: 0 };
const B: Owner = Owner { file: 2, index: 5 };
const FRAME: FrameId = FrameId(0);

struct Content {
    cell: UnsafeCell<()>,
    value: AtomicU32,
}

impl Content {
    fn new(value: u32) -> Self {
        Self {
            cell: UnsafeCell::new(()),
            value: AtomicU32::new(value),
        }
    }

    fn write(&self, value: u32) {
        self.cell.with_mut(|_| self.value.store(value, Relaxed));
    }

    fn read(&self) -> u32 {
        self.cell.with(|_| self.value.load(Relaxed))
    }
}

struct World {
    table: FrameTable,
    content: Content,
    freed: AtomicU32,
}

impl World {
    /// Frame 0 holds page `A`, whose content is its file number.
    fn with_page(flags: Flags) -> Arc<Self> {
        let world = Self {
            table: FrameTable::new(1),
            content: Content::new(A.file),
            freed: AtomicU32::new(0),
        };
        let busy = world.table.claim(FRAME);
        world.table.adopt(&busy, A);
        world
            .table
            .release(busy, Flags::UPTODATE | flags, Flags::NONE);
        Arc::new(world)
    }

    /// Pins and reads; the content read is `owner`'s whenever the pin was had.
    fn read(&self, owner: Owner) -> Result<(), Refusal> {
        let pin = self.table.try_pin(FRAME, owner)?;
        assert_eq!(
            self.content.read(),
            owner.file,
            "the content of another page"
        );
        assert_eq!(self.table.owner(FRAME), owner);
        assert!(!self.table.unpin(pin));
        Ok(())
    }

    /// Reclaims the frame from `A` and reuses it for `B`.
    fn reuse(&self) -> Result<(), Refusal> {
        let busy = self.table.try_busy_clean(FRAME)?;
        let frame = self.table.disown(busy);
        let busy = self.table.claim(frame);
        self.table.adopt(&busy, B);
        self.content.write(B.file);
        self.table.release(busy, Flags::UPTODATE, Flags::NONE);
        Ok(())
    }

    /// The same as a fresh page of a region is made: claimed for its page in one step, and shown.
    fn reuse_at_once(&self) -> Result<(), Refusal> {
        let busy = self.table.try_busy_clean(FRAME)?;
        let frame = self.table.disown(busy);
        // Another task had put a frame there first.
        let busy = self.table.claim_for(frame, B, Flags::ANON);
        let frame = self.table.disown(busy);
        let busy = self.table.claim_for(frame, B, Flags::ANON);
        self.content.write(B.file);
        self.table.show(busy, Flags::UPTODATE | Flags::DIRTY);
        Ok(())
    }

    fn unpin(&self, pin: Pin) {
        if self.table.unpin(pin) {
            self.free_orphan();
        }
    }

    fn free_orphan(&self) {
        if self.table.take_orphan(FRAME) {
            self.content.write(0);
            self.freed.fetch_add(1, Relaxed);
        }
    }
}

fn model(preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(run);
}

fn reader_of_b(world: &Arc<World>) -> thread::JoinHandle<bool> {
    let world = world.clone();
    thread::spawn(move || world.read(B).is_ok())
}

#[test]
fn a_reader_never_sees_the_next_owners_content() {
    model(Some(3), || {
        let world = World::with_page(Flags::NONE);
        let reclaimer = {
            let world = world.clone();
            thread::spawn(move || world.reuse().is_ok())
        };
        let reader_of_b = reader_of_b(&world);
        let _ = world.read(A);
        reclaimer.join().unwrap();
        reader_of_b.join().unwrap();
        assert_eq!(world.table.flags(FRAME).pins(), 0);
    });
}

#[test]
fn a_frame_claimed_for_a_page_in_one_step_is_nobody_elses() {
    // Three take 80 s.
    model(Some(2), || {
        let world = World::with_page(Flags::NONE);
        let by_generation = {
            let world = world.clone();
            thread::spawn(move || {
                let (flags, generation) = world.table.look(FRAME);
                if let Ok(busy) = world.table.try_busy_of(FRAME, generation, Flags::DIRTY) {
                    assert!(flags.has(Flags::CACHED));
                    let owner = world.table.owner(FRAME);
                    assert_eq!(world.content.read(), owner.file);
                    world.content.write(owner.file);
                    world.table.release(busy, Flags::NONE, Flags::NONE);
                }
            })
        };
        let reader_of_b = reader_of_b(&world);
        let _ = world.reuse_at_once();
        if let Ok(busy) = world.table.try_busy(FRAME, A) {
            assert_eq!(world.content.read(), A.file);
            world.table.release(busy, Flags::NONE, Flags::NONE);
        }
        by_generation.join().unwrap();
        reader_of_b.join().unwrap();
    });
}

#[test]
fn who_sees_the_new_page_busy_sees_the_old_one_gone() {
    model(Some(3), || {
        let world = World::with_page(Flags::NONE);
        let stale = {
            let world = world.clone();
            thread::spawn(move || {
                let is_new = world.table.is_busy_with(FRAME, B);
                let flags = world.table.flags(FRAME);
                if is_new || flags.has(Flags::ANON) {
                    assert!(!world.table.is_busy_with(FRAME, A));
                    assert!(world.table.try_pin(FRAME, A).is_err());
                    assert!(world.table.try_busy(FRAME, A).is_err());
                }
            })
        };
        let _ = world.read(A);
        let _ = world.reuse_at_once();
        stale.join().unwrap();
    });
}

#[test]
fn a_stale_hint_is_lost_or_kept_and_nothing_else() {
    // From `claim` to `adopt` the word is stored to, not stepped.
    model(Some(3), || {
        let world = World::with_page(Flags::NONE);
        let stale = {
            let world = world.clone();
            thread::spawn(move || {
                world.table.update(FRAME, Flags::REFERENCED, Flags::NONE);
            })
        };
        let reader = reader_of_b(&world);
        let reused = world.reuse().is_ok();
        stale.join().unwrap();
        reader.join().unwrap();
        let flags = world.table.flags(FRAME);
        let hint = flags.0 & Flags::REFERENCED.0;
        assert_eq!(
            flags.0,
            Flags::UPTODATE.0 | Flags::CACHED.0 | hint,
            "{flags:?}"
        );
        let owner = if reused { B } else { A };
        assert_eq!(world.read(owner), Ok(()));
    });
}

#[test]
fn a_new_page_is_complete_when_it_is_shown_and_free_when_it_ends() {
    // Both are stores beside stale hints and lookups.
    model(Some(3), || {
        let world = Arc::new(World {
            table: FrameTable::new(1),
            content: Content::new(0),
            freed: AtomicU32::new(0),
        });
        let busy = world.table.claim(FRAME);
        world.table.adopt(&busy, B);
        let reader = reader_of_b(&world);
        let stale = {
            let world = world.clone();
            thread::spawn(move || {
                world.table.update(FRAME, Flags::REFERENCED, Flags::NONE);
            })
        };
        world.content.write(B.file);
        world.table.show(busy, Flags::UPTODATE);
        if let Ok(busy) = world.table.try_busy(FRAME, B) {
            world.content.write(0);
            let frame = world.table.disown(busy);
            assert_eq!(world.table.flags(frame).0, Flags::FREE.0);
        }
        stale.join().unwrap();
        reader.join().unwrap();
        let flags = world.table.flags(FRAME);
        assert!(
            flags.has(Flags::FREE) || flags.has(Flags::CACHED | Flags::UPTODATE),
            "{flags:?}"
        );
        assert_eq!(flags.pins(), 0);
    });
}

#[test]
fn a_reader_never_sees_a_page_being_written() {
    // The writer leaves the very same state word behind: only the ordering of the step tells.
    model(None, || {
        let world = World::with_page(Flags::NONE);
        let writer = {
            let world = world.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let Ok(busy) = world.table.try_busy(FRAME, A) else {
                        continue;
                    };
                    world.content.write(77);
                    world.content.write(A.file);
                    world.table.release(busy, Flags::NONE, Flags::NONE);
                }
            })
        };
        for _ in 0..2 {
            let _ = world.read(A);
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_stale_lookup_disturbs_nobody() {
    model(None, || {
        let world = World::with_page(Flags::NONE);
        let stale = {
            let world = world.clone();
            thread::spawn(move || {
                let refusal = world
                    .table
                    .try_pin(FRAME, Owner { file: 9, index: 9 })
                    .unwrap_err();
                assert_eq!(refusal, Refusal::Gone);
            })
        };
        world
            .reuse()
            .expect("nobody has this page pinned, not even for a moment");
        stale.join().unwrap();
    });
}

#[test]
fn an_orphan_is_freed_exactly_once() {
    model(None, || {
        let world = World::with_page(Flags::DIRTY);
        assert!(world.table.try_begin_writeback(FRAME));
        let pin = world.table.try_pin(FRAME, A).unwrap();
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                assert_eq!(world.content.read(), A.file);
                world.unpin(pin);
            })
        };
        let flusher = {
            let world = world.clone();
            thread::spawn(move || {
                assert_eq!(world.content.read(), A.file);
                let before = world.table.end_writeback(FRAME, false);
                if before.has(Flags::ORPHAN) && before.pins() == 0 {
                    world.free_orphan();
                }
            })
        };
        let orphaned = world.table.try_orphan(FRAME);
        reader.join().unwrap();
        flusher.join().unwrap();
        assert_eq!(
            world.freed.load(Relaxed),
            u32::from(orphaned),
            "freed once, or not an orphan at all"
        );
        assert_eq!(world.table.flags(FRAME).has(Flags::FREE), orphaned);
        assert_eq!(world.table.flags(FRAME).has(Flags::CACHED), !orphaned);
    });
}

#[test]
fn a_late_reader_does_not_revive_an_orphan() {
    model(None, || {
        let world = World::with_page(Flags::NONE);
        let pin = world.table.try_pin(FRAME, A).unwrap();
        let late = {
            let world = world.clone();
            thread::spawn(move || {
                if let Ok(pin) = world.table.try_pin(FRAME, A) {
                    assert_eq!(world.content.read(), A.file);
                    world.unpin(pin);
                }
            })
        };
        assert!(world.table.try_orphan(FRAME), "it is pinned here");
        world.unpin(pin);
        late.join().unwrap();
        assert_eq!(world.freed.load(Relaxed), 1);
        assert_eq!(world.table.flags(FRAME), Flags::FREE);
    });
}

/// Writes the page back if it is dirty, as the flusher does. The device sees `content` at some
/// moment in between: a writer may overwrite it meanwhile (docs/adr/0007), so only the atomic is
/// read here.
fn flush(world: &World, device: &AtomicU32, fails: bool) {
    if world.table.try_begin_writeback(FRAME) {
        let seen = world.content.value.load(Relaxed);
        if !fails {
            device.store(seen, Relaxed);
        }
        world.table.end_writeback(FRAME, fails);
    }
}

#[test]
fn a_write_beside_writeback_is_never_lost() {
    for fails in [false, true] {
        model(None, move || {
            let world = World::with_page(Flags::DIRTY);
            let device = Arc::new(AtomicU32::new(0));
            let writer = {
                let world = world.clone();
                thread::spawn(move || {
                    for version in [10, 11] {
                        let busy = world
                            .table
                            .try_busy(FRAME, A)
                            .expect("nobody else is busy, nobody pins");
                        world.content.write(version);
                        world.table.release(busy, Flags::DIRTY, Flags::NONE);
                    }
                })
            };
            flush(&world, &device, fails);
            writer.join().unwrap();
            let clean = !world.table.flags(FRAME).has(Flags::DIRTY);
            assert!(
                !clean || device.load(Relaxed) == 11,
                "clean, and the device has an older version"
            );
            flush(&world, &device, false);
            assert_eq!(device.load(Relaxed), 11);
        });
    }
}

#[test]
fn one_of_two_flushers_writes_a_page() {
    model(None, || {
        let world = World::with_page(Flags::DIRTY);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.table.try_begin_writeback(FRAME))
        };
        let mine = world.table.try_begin_writeback(FRAME);
        assert_ne!(mine, other.join().unwrap());
    });
}

#[test]
fn the_node_stack_hands_a_node_to_one_thread() {
    model(Some(4), || {
        let stack = Arc::new((
            IndexStack::full(3),
            [Content::new(0), Content::new(0), Content::new(0)],
        ));
        // Pops two and puts the first back, so that the head comes back with another `next` below
        // it.
        let shuffler = {
            let stack = stack.clone();
            thread::spawn(move || {
                let (stack, nodes) = &*stack;
                let first = stack.try_pop();
                let second = stack.try_pop();
                for held in [first, second].into_iter().flatten() {
                    nodes[held as usize].write(1);
                }
                first.into_iter().for_each(|first| stack.push(first));
                second
            })
        };
        let mine = {
            let (stack, nodes) = &*stack;
            let mine = [stack.try_pop(), stack.try_pop()];
            for held in mine.into_iter().flatten() {
                nodes[held as usize].write(2);
            }
            mine
        };
        let theirs = shuffler.join().unwrap();
        let mut all: Vec<u32> = mine.into_iter().chain([theirs]).flatten().collect();
        let (stack, _) = &*stack;
        all.extend(std::iter::from_fn(|| stack.try_pop()));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2], "each node once, none lost");
        assert_eq!(stack.len(), 0);
    });
}

// In the models of the index the main thread writes and the spawned ones read, not the other way
// round. loom runs the spawning thread first, and looks for other orders only from the last access
// to an atomic: a writer that loads a word and then stores it hides an earlier load by a reader
// (seen with loom 0.7.2: one execution in all, and a relaxed root went unnoticed).

/// A page leaves one file, its node and its frame are taken by another: a reader of either finds
/// its own page, nothing, or a refusal.
#[test]
fn a_lookup_through_a_reused_node_is_caught() {
    model(Some(3), || {
        let world = World::with_page(Flags::NONE);
        let pool = Arc::new(NodePool::new(1));
        let (first, mut first_token) = PageIndex::new();
        let (second, mut second_token) = PageIndex::new();
        first
            .writer(&pool, &mut first_token)
            .insert(A.index, FRAME)
            .unwrap();
        let files = Arc::new((first, second));
        let reader = {
            let (world, pool, files) = (world.clone(), pool.clone(), files.clone());
            thread::spawn(move || {
                for (file, owner) in [(&files.0, A), (&files.1, B)] {
                    match file.get(&pool, owner.index) {
                        Slot::Frame(frame) => {
                            assert_eq!(frame, FRAME);
                            let _ = world.read(owner);
                        }
                        Slot::Empty => {}
                        Slot::Shadow(shadow) => panic!("nobody left {shadow:?}"),
                    }
                }
            })
        };
        if let Ok(busy) = world.table.try_busy_clean(FRAME) {
            files
                .0
                .writer(&pool, &mut first_token)
                .remove(A.index, None);
            let frame = world.table.disown(busy);
            let busy = world.table.claim(frame);
            world.table.adopt(&busy, B);
            world.content.write(B.file);
            files
                .1
                .writer(&pool, &mut second_token)
                .insert(B.index, frame)
                .unwrap();
            world.table.release(busy, Flags::UPTODATE, Flags::NONE);
        }
        reader.join().unwrap();
    });
}

/// A reader that finds a page can pin it: owner and state word came before the slot.
#[test]
fn a_page_that_is_found_can_be_pinned() {
    model(None, || {
        let world = Arc::new(World {
            table: FrameTable::new(1),
            content: Content::new(0),
            freed: AtomicU32::new(0),
        });
        let pool = Arc::new(NodePool::new(1));
        let (index, mut token) = PageIndex::new();
        // The leaf is there already, so that nothing but the slot publishes the frame.
        index
            .writer(&pool, &mut token)
            .insert(A.index + 1, FrameId(1))
            .unwrap();
        let index = Arc::new(index);
        let reader = {
            let (world, pool, index) = (world.clone(), pool.clone(), index.clone());
            thread::spawn(move || {
                if let Slot::Frame(frame) = index.get(&pool, A.index) {
                    assert_eq!(frame, FRAME);
                    world.read(A).expect("what is in the index is ready");
                }
            })
        };
        let busy = world.table.claim(FRAME);
        world.table.adopt(&busy, A);
        world.content.write(A.file);
        world.table.release(busy, Flags::UPTODATE, Flags::NONE);
        index
            .writer(&pool, &mut token)
            .insert(A.index, FRAME)
            .unwrap();
        reader.join().unwrap();
    });
}

/// A page that stays is found at every moment while the tree grows above it (while it shrinks, it
/// may be missed).
#[test]
fn a_page_is_found_while_the_tree_grows() {
    model(Some(3), || {
        let pool = Arc::new(NodePool::new(3));
        let (index, mut token) = PageIndex::new();
        index.writer(&pool, &mut token).insert(0, FRAME).unwrap();
        let index = Arc::new(index);
        let reader = {
            let (pool, index) = (pool.clone(), index.clone());
            thread::spawn(move || {
                let new = index.get(&pool, 64);
                assert!(
                    matches!(new, Slot::Empty | Slot::Frame(FrameId(7))),
                    "{new:?}"
                );
                index.get(&pool, 0)
            })
        };
        let mut writer = index.writer(&pool, &mut token);
        writer.insert(64, FrameId(7)).unwrap();
        assert_eq!(reader.join().unwrap(), Slot::Frame(FRAME));
    });
}

#[test]
fn an_end_beside_a_flusher_and_a_hint_loses_a_hint_at_most() {
    model(Some(3), || {
        let world = World::with_page(Flags::DIRTY);
        let flusher = {
            let world = world.clone();
            thread::spawn(move || {
                if world.table.try_begin_writeback(FRAME) {
                    world.content.read();
                    let before = world.table.end_writeback(FRAME, true);
                    assert!(before.has(Flags::WRITEBACK));
                }
            })
        };
        let stale = {
            let world = world.clone();
            thread::spawn(move || {
                world.table.update(FRAME, Flags::REFERENCED, Flags::NONE);
            })
        };
        if let Ok(busy) = world.table.try_busy(FRAME, A) {
            if world.table.flags(FRAME).has(Flags::WRITEBACK) {
                world.table.release(busy, Flags::NONE, Flags::NONE);
            } else {
                let frame = world.table.discard(busy);
                let busy = world.table.claim(frame);
                world.content.write(0);
                world.table.disown(busy);
            }
        }
        flusher.join().unwrap();
        stale.join().unwrap();
    });
}

/// A page that is moved from one frame to another, beside those that use it: `mm::relocate`.
struct Moving {
    table: FrameTable,
    contents: [Content; 2],
    /// The index: which frame holds the page; changed under the lock.
    slot: AtomicU32,
    lock: Mutex<()>,
    device: AtomicU32,
}

const NO_FRAME: u32 = 9;
/// The page's first content, and the one that a writer gives it.
const OLD: u32 = 1;
const NEW: u32 = 2;

/// Does it in a thread beside the model's own.
fn beside(world: &Arc<Moving>, work: impl FnOnce(&Moving) + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

impl Moving {
    fn with_page(flags: Flags) -> Arc<Self> {
        let world = Self {
            table: FrameTable::new(2),
            contents: [Content::new(OLD), Content::new(0)],
            slot: AtomicU32::new(0),
            lock: Mutex::new(()),
            device: AtomicU32::new(if flags.has(Flags::DIRTY) { 0 } else { OLD }),
        };
        let busy = world.table.claim(FRAME);
        world.table.adopt(&busy, A);
        world
            .table
            .release(busy, Flags::UPTODATE | flags, Flags::NONE);
        Arc::new(world)
    }

    fn find(&self) -> Option<FrameId> {
        let frame = self.slot.load(Acquire);
        (frame != NO_FRAME).then_some(FrameId(frame))
    }

    fn content(&self, frame: FrameId) -> &Content {
        &self.contents[frame.0 as usize]
    }

    fn move_it(&self) {
        let (_, generation) = self.table.look(FRAME);
        let busy = self.table.try_busy_of(FRAME, generation, Flags::WRITEBACK);
        let Ok(old) = busy else { return };
        let dirty = self.table.flags(FRAME).has(Flags::DIRTY);
        let kept = if dirty { Flags::DIRTY } else { Flags::NONE };
        let new = self.table.claim(FrameId(1));
        self.table.adopt_as(&new, A, kept | Flags::UPTODATE);
        self.contents[1].write(self.contents[0].read());
        let moved = {
            let _index = self.lock.lock().unwrap();
            let stands = self.slot.load(Relaxed) == FRAME.0;
            if stands {
                self.slot.store(1, Release);
            }
            stands
        };
        if moved {
            self.table.discard(old);
            self.table.release(new, Flags::NONE, Flags::NONE);
        } else {
            self.table.discard(new);
            self.table.release(old, Flags::NONE, Flags::NONE);
        }
    }

    /// Looks the page up anew where it has moved, some times; answers whether it wrote.
    fn write(&self) -> bool {
        for _ in 0..3 {
            let Some(frame) = self.find() else {
                return false;
            };
            if let Ok(busy) = self.table.try_busy(frame, A) {
                self.content(frame).write(NEW);
                self.table.release(busy, Flags::DIRTY, Flags::NONE);
                return true;
            }
            thread::yield_now();
        }
        false
    }

    fn read(&self) {
        let Some(frame) = self.find() else { return };
        if let Ok(pin) = self.table.try_pin(frame, A) {
            let seen = self.content(frame).read();
            assert!(
                seen == OLD || seen == NEW,
                "{seen}: what the frame held before"
            );
            assert_eq!(self.content(frame).read(), seen, "it stays under a pin");
            assert!(!self.table.unpin(pin));
        }
    }

    fn flush(&self) {
        let begun = {
            let _index = self.lock.lock().unwrap();
            self.find()
                .filter(|frame| self.table.try_begin_writeback(*frame))
        };
        if let Some(frame) = begun {
            // As in `flush`: beside a writer.
            self.device
                .store(self.content(frame).value.load(Relaxed), Relaxed);
            self.table.end_writeback(frame, false);
        }
    }

    /// Cuts the page off, or gives it back (`discard`): dirty or not.
    fn cut(&self) {
        let Some(frame) = self.find() else { return };
        if let Ok(busy) = self.table.try_busy(frame, A) {
            {
                let _index = self.lock.lock().unwrap();
                assert_eq!(
                    self.slot.load(Relaxed),
                    frame.0,
                    "who is busy keeps it there"
                );
                self.slot.store(NO_FRAME, Release);
            }
            self.table.discard(busy);
        }
    }

    /// Nobody is left: the page is in one frame, the other is free, and a clean page is on the
    /// device.
    fn check(&self, newest: u32) {
        let frame = self.find();
        for other in [0, 1].map(FrameId) {
            let flags = self.table.flags(other);
            if Some(other) == frame {
                assert!(flags.has(Flags::CACHED | Flags::UPTODATE), "{flags:x?}");
                assert!(!flags.any(Flags::BUSY | Flags::WRITEBACK) && flags.pins() == 0);
                assert_eq!(self.content(other).read(), newest);
                let clean = !flags.has(Flags::DIRTY);
                assert!(
                    !clean || self.device.load(Relaxed) == newest,
                    "clean too early"
                );
            } else {
                assert!(flags.has(Flags::FREE), "{flags:x?}");
            }
        }
    }
}

#[test]
fn a_page_that_moves_is_read_and_written_beside_it() {
    model(Some(2), || {
        let world = Moving::with_page(Flags::NONE);
        let mover = beside(&world, Moving::move_it);
        let reader = beside(&world, Moving::read);
        let wrote = world.write();
        mover.join().unwrap();
        reader.join().unwrap();
        world.check(if wrote { NEW } else { OLD });
    });
}

#[test]
fn a_dirty_page_that_moves_is_flushed_and_written_beside_it() {
    model(Some(2), || {
        let world = Moving::with_page(Flags::DIRTY);
        let mover = beside(&world, Moving::move_it);
        let flusher = beside(&world, Moving::flush);
        let wrote = world.write();
        mover.join().unwrap();
        flusher.join().unwrap();
        world.check(if wrote { NEW } else { OLD });
        world.flush();
        world.check(if wrote { NEW } else { OLD });
    });
}

#[test]
fn a_page_that_moves_is_cut_off_beside_it() {
    for flags in [Flags::NONE, Flags::DIRTY] {
        model(Some(2), move || {
            let world = Moving::with_page(flags);
            let mover = beside(&world, Moving::move_it);
            let reader = beside(&world, Moving::read);
            world.cut();
            mover.join().unwrap();
            reader.join().unwrap();
            world.check(OLD);
        });
    }
}

#[test]
fn a_copy_for_one_reader_is_nobody_elses_and_ends_with_its_pin() {
    model(Some(3), || {
        let world = Moving::with_page(Flags::DIRTY);
        // They have the number of the copy's frame from a life before.
        let stale = beside(&world, |world| {
            assert!(world.table.try_busy(FrameId(1), A).is_err());
            assert!(world.table.try_pin(FrameId(1), A).is_err());
            world
                .table
                .update(FrameId(1), Flags::REFERENCED, Flags::NONE);
        });
        let writer = beside(&world, |world| {
            world.write();
        });
        if let Ok(pin) = world.table.try_pin(FRAME, A) {
            let copy = world.table.claim(FrameId(1));
            let seen = world.contents[0].read();
            world.contents[1].write(seen);
            assert!(!world.table.unpin(pin));
            let own = world.table.keep_for_pin(copy);
            assert_eq!(world.contents[1].read(), seen);
            assert!(world.table.unpin(own), "the last one");
            assert!(world.table.take_orphan(FrameId(1)));
        }
        stale.join().unwrap();
        writer.join().unwrap();
        assert!(world.table.flags(FrameId(1)).has(Flags::FREE));
    });
}

/// A page of a file that is read by hits alone, which tell no reader: `mm::file::read::read_hits`.
struct Read {
    page: Arc<World>,
    /// The file's end.
    size: AtomicU32,
}

/// The file's end, before and after it is cut within the page.
const LONG: u32 = 2;
const SHORT: u32 = 1;

impl Read {
    fn with_page(flags: Flags) -> Arc<Self> {
        Arc::new(Self {
            page: World::with_page(flags),
            size: AtomicU32::new(LONG),
        })
    }

    /// The content up to the long end; `None`: it is left to a reader, or not a part of the file.
    fn hit(&self) -> Option<u32> {
        let end = self.size.load(Acquire);
        if end < LONG {
            return None;
        }
        let (pin, flags) = self.page.table.try_pin_and_look(FRAME, A).ok()?;
        let is_marked = flags.has(Flags::MARK);
        if !is_marked {
            self.page
                .table
                .update(FRAME, Flags::REFERENCED, Flags::NONE);
        }
        let seen = self.page.content.read();
        self.page.unpin(pin);
        let is_cut = self.size.load(Acquire) < end;
        (!is_marked && !is_cut).then_some(seen)
    }

    /// `mm::file::truncate`: the end, and then the content behind it.
    fn cut(&self) {
        self.size.store(SHORT, Release);
        if let Ok(busy) = self.page.table.try_busy(FRAME, A) {
            self.page.content.write(0);
            self.page.table.release(busy, Flags::NONE, Flags::NONE);
        }
    }
}

#[test]
fn a_hit_beside_a_cut_has_nothing_of_what_was_zeroed() {
    model(None, || {
        let file = Read::with_page(Flags::NONE);
        let hit = {
            let file = file.clone();
            thread::spawn(move || file.hit())
        };
        file.cut();
        if let Some(seen) = hit.join().unwrap() {
            assert_eq!(seen, A.file, "zeroes in a file that was longer");
        }
    });
}

#[test]
fn a_page_with_a_mark_is_left_to_the_reader_that_takes_it() {
    model(None, || {
        let file = Read::with_page(Flags::MARK);
        let hits = {
            let file = file.clone();
            thread::spawn(move || [file.hit(), file.hit()])
        };
        // `Call::read_ahead`.
        file.page.table.update(FRAME, Flags::NONE, Flags::MARK);
        let hits = hits.join().unwrap();
        let flags = file.page.table.flags(FRAME);
        assert!(!flags.has(Flags::MARK), "it is taken, and stays so");
        let is_used = flags.has(Flags::REFERENCED);
        assert_eq!(is_used, hits.iter().any(Option::is_some), "a use was lost");
        assert!(hits[0].is_none() || hits[1].is_some(), "it came back");
    });
}

/// Takes one of the ledger if it may, and counts it in `held` while it has it.
fn take_and_give(ledger: &Ledger, held: &AtomicU32, seats: (SeatId, SeatId), limit: u32) {
    if ledger.try_take(seats.0, 1, || limit) {
        let others = held.fetch_add(1, Relaxed);
        // The other one had looked at its grant and taken nothing yet when this one settled it.
        assert!(others <= limit, "more than one call beyond the limit");
        held.fetch_sub(1, Relaxed);
        ledger.give(seats.1, 1);
    }
}

#[test]
fn a_ledger_keeps_its_books_beside_a_settlement() {
    model(Some(3), || {
        let world = Arc::new((Ledger::new(), AtomicU32::new(0)));
        let (mine, theirs) = (SeatId::of(0), SeatId::of(1));
        // Both have some granted.
        assert!(world.0.try_take(mine, 1, || 1));
        world.0.give(mine, 1);
        let other = {
            let world = world.clone();
            thread::spawn(move || take_and_give(&world.0, &world.1, (theirs, theirs), 1))
        };
        take_and_give(&world.0, &world.1, (mine, mine), 1);
        other.join().unwrap();
        assert_eq!(world.0.total(), 0);
        // Alone again it is exact: nothing was lost, and nothing made.
        assert!(world.0.try_take(theirs, 1, || 1));
        assert!(!world.0.try_take(mine, 1, || 1));
        assert!(!world.0.try_take(theirs, 1, || 1));
        assert_eq!(world.0.total(), 1);
    });
}

#[test]
fn a_ledger_keeps_its_books_where_two_share_a_seat_and_one_gives_for_another() {
    model(Some(3), || {
        let world = Arc::new((Ledger::new(), AtomicU32::new(0)));
        let (mine, shared) = (SeatId::of(0), SeatId::SHARED);
        let other = {
            let world = world.clone();
            thread::spawn(move || take_and_give(&world.0, &world.1, (shared, shared), 2))
        };
        take_and_give(&world.0, &world.1, (shared, mine), 2);
        other.join().unwrap();
        assert_eq!(world.0.total(), 0);
        assert!(world.0.try_take(shared, 2, || 2));
        assert!(!world.0.try_take(mine, 1, || 2));
    });
}

/// A page of a map: what the program's page table says of it, and its bytes. The lock is the
/// system's: a call on a page table and an access of the program are one after the other.
#[derive(Default)]
struct Mapped {
    /// The frame that is at home there.
    home: Option<FrameId>,
    loads: bool,
    stores: bool,
    bytes: u32,
}

/// Bytes that are not the page's yet.
const JUNK: u32 = 99;

/// The order rules of a map (docs/adr/0033), each of which can be broken.
struct MapWorld {
    table: FrameTable,
    page: Mutex<Mapped>,
    slot: Mutex<Option<FrameId>>,
    file: AtomicU32,
    broken: Option<u32>,
}

impl MapWorld {
    /// Frame 0 holds `A` and is at home in the map; the program may load from it.
    fn new(broken: Option<u32>) -> Arc<Self> {
        let world = Self {
            table: FrameTable::new(2),
            page: Mutex::new(Mapped {
                home: Some(FRAME),
                loads: true,
                stores: false,
                bytes: 1,
            }),
            slot: Mutex::new(Some(FRAME)),
            file: AtomicU32::new(1),
            broken,
        };
        let busy = world.table.claim(FRAME);
        world.table.adopt(&busy, A);
        world.table.release(busy, Flags::UPTODATE, Flags::NONE);
        Arc::new(world)
    }

    /// The program stores; its fault, if it is one, is answered once.
    fn store(&self, value: u32) {
        let stored = || {
            let mut page = self.page.lock().unwrap();
            if page.stores {
                page.bytes = value;
            }
            page.stores
        };
        if stored() {
            return;
        }
        let Ok(busy) = self.table.try_busy(FRAME, A) else {
            return;
        };
        let enter = || self.page.lock().unwrap().stores = true;
        if self.broken != Some(1) {
            enter();
        }
        self.table
            .release(busy, Flags::UPTODATE | Flags::DIRTY, Flags::NONE);
        if self.broken == Some(1) {
            enter();
        }
        stored();
    }

    fn write(&self) {
        if !self.table.flags(FRAME).has(Flags::DIRTY) || !self.table.try_begin_writeback(FRAME) {
            return;
        }
        let protect = || self.page.lock().unwrap().stores = false;
        if self.broken != Some(2) {
            protect();
        }
        let sent = self.page.lock().unwrap().bytes;
        self.file.store(sent, Relaxed);
        if self.broken == Some(2) {
            protect();
        }
        self.table.end_writeback(FRAME, false);
    }

    fn evict(&self) {
        let Ok(busy) = self.table.try_busy_clean(FRAME) else {
            return;
        };
        let vacate = || *self.page.lock().unwrap() = Mapped::default();
        if self.broken != Some(3) {
            vacate();
        }
        *self.slot.lock().unwrap() = None;
        self.table.disown(busy);
        if self.broken == Some(3) {
            vacate();
        }
    }

    /// The page is read again into frame 1, if it is gone.
    fn read(&self) {
        let other = FrameId(1);
        let busy = {
            let mut slot = self.slot.lock().unwrap();
            if slot.is_some() {
                return;
            }
            let busy = self.table.claim(other);
            self.table.adopt(&busy, A);
            *slot = Some(other);
            busy
        };
        {
            let mut page = self.page.lock().unwrap();
            assert_eq!(page.home, None, "two frames in one place");
            (page.home, page.bytes) = (Some(other), JUNK);
        }
        self.page.lock().unwrap().bytes = self.file.load(Relaxed);
        self.table.release(busy, Flags::UPTODATE, Flags::NONE);
    }

    /// A fault of a load: the program may load from the page, and does.
    fn load(&self) {
        let Some(frame) = *self.slot.lock().unwrap() else {
            return;
        };
        let Ok(pin) = self.table.try_pin(frame, A) else {
            return;
        };
        let enter = || {
            let mut page = self.page.lock().unwrap();
            // The system maps what is there.
            page.loads = page.home.is_some();
        };
        if self.broken != Some(4) {
            enter();
        }
        let _ = self.table.unpin(pin);
        if self.broken == Some(4) {
            enter();
        }
        let page = self.page.lock().unwrap();
        assert!(
            !page.loads || page.bytes != JUNK,
            "a page that is not read yet"
        );
    }

    /// After all: a page that is not dirty is in the file as the program sees it.
    fn check(&self) {
        let page = self.page.lock().unwrap();
        if let Some(frame) = *self.slot.lock().unwrap() {
            assert_eq!(page.home, Some(frame), "the page is not where its frame is");
            let is_dirty = self.table.flags(frame).has(Flags::DIRTY);
            let file = self.file.load(Relaxed);
            assert!(is_dirty || file == page.bytes, "a store is lost");
            assert!(is_dirty || !page.stores, "a clean page can be stored to");
        }
    }
}

fn both(broken: Option<u32>, others: [fn(&MapWorld); 2]) {
    model(Some(3), move || {
        let world = MapWorld::new(broken);
        let others = others.map(|other| {
            let world = world.clone();
            thread::spawn(move || other(&world))
        });
        for other in others {
            other.join().unwrap();
        }
        world.check();
    });
}

fn stores(world: &MapWorld) {
    world.store(2);
    world.store(3);
}

fn writes(world: &MapWorld) {
    world.write();
    world.write();
}

#[test]
fn rule_1_and_2_no_store_is_lost_beside_a_write() {
    both(None, [stores, writes]);
}

#[test]
#[should_panic = "a store is lost"]
fn rule_1_broken_a_page_becomes_storable_after_its_busy_bit() {
    both(Some(1), [stores, writes]);
}

#[test]
#[should_panic = "a store is lost"]
fn rule_2_broken_a_page_is_protected_after_it_is_sent() {
    both(Some(2), [stores, writes]);
}

#[test]
fn rule_3_and_4_a_page_that_is_evicted_and_read_again_has_one_place() {
    let reads = |world: &MapWorld| {
        world.evict();
        world.read();
    };
    both(None, [reads, MapWorld::load]);
    both(None, [MapWorld::evict, MapWorld::read]);
    both(None, [stores, reads]);
}

#[test]
#[should_panic = "two frames in one place"]
fn rule_3_broken_a_page_leaves_its_place_after_the_index() {
    both(Some(3), [MapWorld::evict, MapWorld::read]);
}

#[test]
#[should_panic = "a page that is not read yet"]
fn rule_4_broken_a_page_is_mapped_after_its_pin() {
    let reads = |world: &MapWorld| {
        world.evict();
        world.read();
    };
    both(Some(4), [reads, MapWorld::load]);
}
