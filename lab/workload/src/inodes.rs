//! Inodes of files that stay: what they take of the memory beside the files' pages, and the
//! shrinkers that let them go, and their pages with them.
//!
//! ```text
//!   made, open: an entry and its inode    about to be written: a head a page, a tree node for 64 of them
//!   entry   used since the last look: round again       else gone; its inode is unused once it is written
//!   inode   used: round again
//!           has pages: those that are clean go with their heads; it counts as used, at the list's old end
//!           none: gone
//!   a page that reclaim frees takes its head along, the last of 64 their tree node
//! ```
//!
//! Vocabulary: a *head* says which block of the device a page is (`buffer_head`); a *lane* is a
//! pair of lists, of entries and of inodes: one a node, or one for all nodes (`InodeRule::apart`).
//!
//! Objects are ext3's: of the file systems of 3.0 it is the one whose writes ask for pages with a
//! right to enter the file system. ext4 and xfs take that right away, and their shrinkers answer a
//! caller without it that they cannot work; paper p2 counts 7.4 million pages that went with
//! inodes, all by tasks that needed memory.
//!
//! Invariants
//!   1. A page of a known file that is in memory has a head, from before it was written.
//!   2. An inode is on at most one list, and with an entry on none.
//!   3. Nothing is held while objects are taken or given back, or pages dropped.
//!
//! Concurrency: one lock for the table, held for a few list steps; counts are told by atomics.
//!
//! Source: paper p2; mechanisms 1.7, 7.3; Linux 3.0 fs/dcache.c, dput(), __shrink_dcache_sb();
//! fs/inode.c, iput_final(), prune_icache(); fs/buffer.c, try_to_free_buffers(); fs/ext3/inode.c,
//! ext3_write_begin(), fs/ext4/inode.c, ext4_da_write_begin() (`AOP_FLAG_NOFS`).
//! Deviations: the root of a tree, directories and the blocks of inode tables are left out; slabs
//! are of one page, and hold as many objects a page as those of four that SLUB tries first (inodes
//! 5 for 5.25); a dirty inode is found written at the next look and not when it is;
//! an inode with several pages loses them under 4.20, too, and no task waits for a dirty one.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use env::{Lock, LockClass, Task, Work};
use history::files::{InodeRule, Objects, PRESSURE, WithPages};
use history::shrink::Answer;
use kernel::{Ask, Object, Shrink, SlabSpec, Slabs};
use mm::{Cache, Dropped, File, NodeId, PageWatch};
use policy::place::mobility::Mobility;
use policy::units::{Bytes, PAGE_SIZE, Pages};

use crate::Failure;
use crate::unused::Unused;

/// Pages of a tree node (`RADIX_TREE_MAP_SIZE`).
const TREE_PAGES: u32 = 64;
/// Inodes that wait for their write of which a look finds out whether they still do.
const WAITING_LOOKS: usize = 64;

const fn spec(name: &'static str, bytes: u64) -> SlabSpec {
    SlabSpec {
        name,
        object: Bytes(bytes),
        order: 0,
        mobility: Mobility::Reclaimable,
    }
}

/// Sizes on x86-64. The first, third and fourth as a slabtop of that time prints them (0.19 K and
/// 21 a page, 0.10 K and 39 a page, 28 in four pages: toofishes.net, "slabtop"); the second from
/// `/proc/slabinfo` (`ext3_inode_cache`, 768: openzfs/zfs#3748).
const ENTRY: SlabSpec = spec("dentry", 192);
const INODE: SlabSpec = spec("ext3_inode_cache", 768);
const HEAD: SlabSpec = spec("buffer_head", 104);
const TREE: SlabSpec = spec("radix_tree_node", 576);

/// The inodes of a run's files.
pub struct Inodes {
    cache: Arc<Cache>,
    rule: InodeRule,
    entry: Arc<Slabs>,
    inode: Arc<Slabs>,
    head: Arc<Slabs>,
    tree: Arc<Slabs>,
    table: Lock<Table>,
    /// Objects that each lane could give.
    unused: Unused,
}

impl Inodes {
    /// None yet, on a machine of `nodes` nodes, with their shrinkers in the cache.
    ///
    /// # Errors
    /// `RegisteredTwice`: this cache has such inodes already.
    pub fn new(
        task: &Task<'_>,
        cache: &Arc<Cache>,
        rule: InodeRule,
        nodes: u8,
    ) -> Result<Arc<Self>, mm::Error> {
        let lanes = if rule.apart { 1 } else { usize::from(nodes) };
        let inodes = Arc::new(Self {
            cache: Arc::clone(cache),
            rule,
            entry: Slabs::new(cache, ENTRY)?,
            inode: Slabs::new(cache, INODE)?,
            head: Slabs::new(cache, HEAD)?,
            tree: Slabs::new(cache, TREE)?,
            table: Lock::new(LockClass::Leaf, Table::new(lanes, rule)),
            unused: Unused::new(lanes),
        });
        let which: &[Which] = if rule.apart {
            &[Which::Entries, Which::Inodes]
        } else {
            &[Which::Both]
        };
        for which in which {
            kernel::register(
                cache,
                task,
                Arc::new(Pruner(Arc::downgrade(&inodes), *which)),
            )?;
        }
        cache.watch_pages(Arc::new(Watch(Arc::downgrade(&inodes))));
        Ok(inodes)
    }

    /// A file is made: its inode and its entry come into memory.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn made(&self, task: &mut Task<'_>, file: &Arc<File>) -> Result<(), Failure> {
        let inode = self.inode.take(task)?;
        let entry = match self.entry.take(task) {
            Ok(entry) => entry,
            Err(error) => {
                self.inode.give(task, inode);
                return Err(error.into());
            }
        };
        let lanes = [
            self.lane(self.entry.node_of(task, entry)),
            self.lane(self.inode.node_of(task, inode)),
        ];
        let known = Known {
            file: Arc::clone(file),
            inode,
            entry: Some(entry),
            // Any put of an entry, the one of its closing too, leaves the mark of a use.
            entry_used: self.rule.apart,
            inode_used: false,
            lanes,
            heads: Vec::new(),
            leaves: Vec::new(),
            pages: 0,
        };
        self.with(task, |table| table.add(file.number(), known));
        Ok(())
    }

    /// Bytes of a known file are about to be written: each page gets its head.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn will_write(
        &self,
        task: &mut Task<'_>,
        file: &File,
        at: Bytes,
        len: Bytes,
    ) -> Result<(), Failure> {
        let page = |byte: u64| u32::try_from(byte / PAGE_SIZE).unwrap_or(u32::MAX);
        for page in page(at.0)..page((at + len).0.next_multiple_of(PAGE_SIZE)) {
            if self.with(task, |table| table.has_head(file.number(), page)) {
                continue;
            }
            let head = self.head.take(task)?;
            let mut leaf = None;
            while !self.with(task, |table| {
                table.add_page(file.number(), page, head, &mut leaf)
            }) {
                leaf = match self.tree.take(task) {
                    Ok(leaf) => Some(leaf),
                    Err(error) => {
                        self.head.give(task, head);
                        return Err(error.into());
                    }
                };
            }
            if let Some(leaf) = leaf {
                self.tree.give(task, leaf);
            }
        }
        Ok(())
    }

    /// A file is not open any more: its entry may be freed.
    pub fn closed(&self, task: &Task<'_>, file: &File) {
        self.with(task, |table| table.closed(file.number()));
        // Nobody asks for inodes before there is one that could go.
        self.find_written(task);
    }

    /// Gives all objects back, for a run that has ended.
    pub fn clear(&self, task: &mut Task<'_>) {
        let all = self.with(task, Table::drain);
        for known in all {
            self.inode.give(task, known.inode);
            if let Some(entry) = known.entry {
                self.entry.give(task, entry);
            }
            for head in known.heads.into_iter().flatten() {
                self.head.give(task, head);
            }
            for (leaf, _) in known.leaves.into_iter().flatten() {
                self.tree.give(task, leaf);
            }
        }
    }

    /// Heads of pages in memory.
    pub fn heads(&self, task: &Task<'_>) -> u64 {
        self.head.objects(task)
    }

    fn lane(&self, node: NodeId) -> usize {
        if self.rule.apart { 0 } else { node.index() }
    }

    /// Works on the table, and tells what could be freed afterwards.
    fn with<T>(&self, task: &Task<'_>, work: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock(task);
        let answer = work(&mut table);
        for (at, lane) in table.lanes.iter().enumerate() {
            self.unused.tell(at, lane.unused());
        }
        answer
    }

    fn prune_entries(&self, task: &mut Task<'_>, lane: usize, most: u64) -> u64 {
        let gone = self.with(task, |table| table.prune_entries(lane, most));
        let freed = gone.len() as u64;
        for entry in gone {
            self.entry.give(task, entry);
        }
        freed
    }

    fn prune_inodes(&self, task: &mut Task<'_>, lane: usize, most: u64) -> u64 {
        let mut freed = 0;
        for _ in 0..most {
            match self.with(task, |table| table.look_at_inode(lane)) {
                Looked::Empty => break,
                Looked::Stays => {}
                Looked::Gone(inode) => {
                    self.inode.give(task, inode);
                    freed += 1;
                }
                Looked::Held(file, pages) => {
                    self.drop_pages(task, &file, &pages);
                    self.with(task, |table| table.looked_at(file.number()));
                }
            }
        }
        freed
    }

    /// Drops those pages of a file that are clean.
    fn drop_pages(&self, task: &mut Task<'_>, file: &File, pages: &[u32]) {
        let dropped = |page: &&u32| file.drop_clean(task, u64::from(**page)) == Dropped::Dropped;
        let dropped = pages.iter().filter(dropped);
        let gone: Vec<_> = dropped.map(|page| (file.number(), *page)).collect();
        let stolen = gone.len() as u64;
        task.did(Work::Free, stolen);
        if stolen > 0 {
            kernel::note_inode_steal(&self.cache, task, Pages(stolen));
        }
        self.pages_gone(task, &gone);
    }

    /// Pages left the memory: what they had beside them goes, too.
    fn pages_gone(&self, task: &mut Task<'_>, pages: &[(u32, u32)]) {
        for (file, page) in pages {
            let (head, leaf) = self.with(task, |table| table.remove_page(*file, *page));
            if let Some(head) = head {
                self.head.give(task, head);
            }
            if let Some(leaf) = leaf {
                self.tree.give(task, leaf);
            }
        }
    }

    /// Puts inodes on their list that waited for their pages to be written.
    fn find_written(&self, task: &Task<'_>) {
        let waiting = self.with(task, |table| table.waiting());
        let mut written = Vec::new();
        for file in waiting {
            let unwritten = file.next_unwritten(task, Bytes::ZERO, file.len());
            if unwritten.is_none() {
                written.push(file.number());
            }
        }
        if !written.is_empty() {
            self.with(task, |table| table.written(&written));
        }
    }
}

/// The kind of object that a shrinker frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Entries,
    Inodes,
    /// Each its share.
    Both,
}

struct Pruner(Weak<Inodes>, Which);

impl Shrink for Pruner {
    fn name(&self) -> &'static str {
        match self.1 {
            Which::Entries => "entries of files",
            Which::Inodes => "inodes of files",
            Which::Both => "entries and inodes of files",
        }
    }

    fn count(&self, node: NodeId) -> u64 {
        let Some(inodes) = self.0.upgrade() else {
            return 0;
        };
        let all = inodes.unused.of(inodes.lane(node));
        let own = match self.1 {
            Which::Entries => Objects { inodes: 0, ..all },
            Which::Inodes => Objects { entries: 0, ..all },
            Which::Both => all,
        };
        own.freeable(PRESSURE)
    }

    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer {
        let Some(inodes) = self.0.upgrade().filter(|_| ask.may_enter_fs) else {
            return Answer::Stop;
        };
        inodes.find_written(task);
        let (lane, wanted) = (inodes.lane(ask.node), ask.objects);
        let (entries, own) = match self.1 {
            Which::Entries => (wanted, 0),
            Which::Inodes => (0, wanted),
            Which::Both => {
                let share = inodes.rule.shared_out(inodes.unused.of(lane), wanted);
                (share.entries, share.inodes)
            }
        };
        let mut freed = inodes.prune_entries(task, lane, entries);
        if own > 0 {
            freed += inodes.prune_inodes(task, lane, own);
        }
        task.did(Work::Prune, wanted);
        Answer::Freed {
            freed,
            looked_at: wanted,
        }
    }
}

struct Watch(Weak<Inodes>);

impl PageWatch for Watch {
    fn pages_gone(&self, task: &mut Task<'_>, pages: &[(u32, u32)]) {
        if let Some(inodes) = self.0.upgrade() {
            inodes.pages_gone(task, pages);
        }
    }
}

/// A file whose inode is in memory.
struct Known {
    file: Arc<File>,
    inode: Object,
    entry: Option<Object>,
    entry_used: bool,
    inode_used: bool,
    /// Of its entry, and of its inode.
    lanes: [usize; 2],
    /// Of each page that is in memory; none of the others.
    heads: Vec<Option<Object>>,
    /// Of each 64 pages: their tree node, and how many there are.
    leaves: Vec<Option<(Object, u32)>>,
    pages: u32,
}

/// The outcome of a look at the oldest inode of a lane.
enum Looked {
    /// There is none.
    Empty,
    /// It stays for another round.
    Stays,
    /// It has these pages: they are to be dropped, and then `Table::looked_at`.
    Held(Arc<File>, Vec<u32>),
    /// It is gone.
    Gone(Object),
}

/// Files by number, the oldest first.
#[derive(Default)]
struct Lane {
    entries: VecDeque<u32>,
    inodes: VecDeque<u32>,
}

impl Lane {
    fn unused(&self) -> Objects {
        Objects {
            entries: self.entries.len() as u64,
            inodes: self.inodes.len() as u64,
            own: 0,
        }
    }
}

struct Table {
    files: Vec<Option<Known>>,
    lanes: Vec<Lane>,
    /// Without an entry, and dirty.
    waiting: VecDeque<u32>,
    rule: InodeRule,
}

impl Table {
    fn new(lanes: usize, rule: InodeRule) -> Self {
        Self {
            files: Vec::new(),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            waiting: VecDeque::new(),
            rule,
        }
    }

    fn get(&mut self, file: u32) -> Option<&mut Known> {
        self.files.get_mut(file as usize)?.as_mut()
    }

    fn add(&mut self, file: u32, known: Known) {
        let at = file as usize;
        if self.files.len() <= at {
            self.files.resize_with(at + 1, || None);
        }
        self.files[at] = Some(known);
    }

    fn closed(&mut self, file: u32) {
        if let Some(lane) = self.get(file).map(|known| known.lanes[0]) {
            self.lanes[lane].entries.push_back(file);
        }
    }

    fn has_head(&mut self, file: u32, page: u32) -> bool {
        let known = self.get(file);
        known.is_none_or(|known| known.heads.get(page as usize).is_some_and(Option::is_some))
    }

    /// A page gets its head. False: it needs a tree node, which is taken from `leaf` if there is
    /// one.
    fn add_page(&mut self, file: u32, page: u32, head: Object, leaf: &mut Option<Object>) -> bool {
        let known = self.get(file).expect("a file that is written is open");
        let (at, above) = (page as usize, (page / TREE_PAGES) as usize);
        if known.leaves.len() <= above {
            known.leaves.resize(above + 1, None);
        }
        let node = &mut known.leaves[above];
        if node.is_none() {
            *node = leaf.take().map(|leaf| (leaf, 0));
        }
        let Some((_, pages)) = node else {
            return false;
        };
        *pages += 1;
        if known.heads.len() <= at {
            known.heads.resize(at + 1, None);
        }
        known.heads[at] = Some(head);
        known.pages += 1;
        true
    }

    /// A page was evicted; its head and, with the last page, the tree node are the caller's to give
    /// back.
    fn remove_page(&mut self, file: u32, page: u32) -> (Option<Object>, Option<Object>) {
        let first = self.rule.pages == WithPages::PagesFirst;
        let Some(known) = self.get(file) else {
            return (None, None);
        };
        let Some(head) = known.heads.get_mut(page as usize).and_then(Option::take) else {
            return (None, None);
        };
        known.pages -= 1;
        let node = &mut known.leaves[(page / TREE_PAGES) as usize];
        let left = node.as_mut().map(|(_, pages)| {
            *pages -= 1;
            *pages
        });
        let leaf = if left == Some(0) { node.take() } else { None };
        if known.pages == 0 {
            known.heads = Vec::new();
            if first && known.entry.is_none() {
                let lane = known.lanes[1];
                self.lanes[lane].inodes.push_back(file);
            }
        }
        (Some(head), leaf.map(|(leaf, _)| leaf))
    }

    fn prune_entries(&mut self, lane: usize, most: u64) -> Vec<Object> {
        let mut gone = Vec::new();
        for _ in 0..most {
            let Some(file) = self.lanes[lane].entries.pop_front() else {
                break;
            };
            let (first, marks) = (self.rule.pages == WithPages::PagesFirst, self.rule.apart);
            let known = self.get(file).expect("a listed file is known");
            if core::mem::take(&mut known.entry_used) {
                self.lanes[lane].entries.push_back(file);
                continue;
            }
            gone.extend(known.entry.take());
            // So does the last put of an inode.
            known.inode_used = marks;
            match (first, known.pages) {
                (true, 0) => {
                    let lane = known.lanes[1];
                    self.lanes[lane].inodes.push_back(file);
                }
                (true, _) => {}
                (false, _) => self.waiting.push_back(file),
            }
        }
        gone
    }

    /// The files that have waited longest for their write.
    fn waiting(&self) -> Vec<Arc<File>> {
        let oldest = self.waiting.iter().take(WAITING_LOOKS);
        let known = oldest.filter_map(|file| self.files[*file as usize].as_ref());
        known.map(|known| Arc::clone(&known.file)).collect()
    }

    fn written(&mut self, written: &[u32]) {
        let mut found = 0;
        for _ in 0..self.waiting.len().min(WAITING_LOOKS) {
            let Some(file) = self.waiting.get(found).copied() else {
                break;
            };
            if !written.contains(&file) {
                found += 1;
                continue;
            }
            self.waiting.remove(found);
            let lane = self.get(file).map_or(0, |known| known.lanes[1]);
            self.lanes[lane].inodes.push_back(file);
        }
    }

    fn look_at_inode(&mut self, lane: usize) -> Looked {
        let Some(file) = self.lanes[lane].inodes.pop_front() else {
            return Looked::Empty;
        };
        let known = self.get(file).expect("a listed file is known");
        if core::mem::take(&mut known.inode_used) {
            self.lanes[lane].inodes.push_back(file);
            return Looked::Stays;
        }
        if known.pages > 0 {
            let pages = (0_u32..).zip(&known.heads);
            let pages = pages.filter(|(_, head)| head.is_some());
            let pages = pages.map(|(page, _)| page).collect();
            return Looked::Held(Arc::clone(&known.file), pages);
        }
        let known = self.files[file as usize].take();
        known.map_or(Looked::Stays, |known| Looked::Gone(known.inode))
    }

    /// The pages of a held inode were dropped.
    fn looked_at(&mut self, file: u32) {
        if let Some(known) = self.get(file) {
            known.inode_used = true;
            let lane = known.lanes[1];
            self.lanes[lane].inodes.push_front(file);
        }
    }

    fn drain(&mut self) -> Vec<Known> {
        self.waiting.clear();
        for lane in &mut self.lanes {
            *lane = Lane::default();
        }
        core::mem::take(&mut self.files)
            .into_iter()
            .flatten()
            .collect()
    }
}
