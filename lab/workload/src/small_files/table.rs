//! Which files have an inode in memory, and on which list it is. Plain data: no lock, no clock, no
//! page.
//!
//! ```text
//!   made, open --close--> with an entry ----------prune an entry----------.
//!                             ^  the entry's list                         |
//!                             |                      page is dirty: waiting for the front
//!             looked up again |                      pages go first: paged, until they are gone
//!                             |                                           v
//!                             '------------------------------ unused: the inodes' list
//!                             |                                           |  prune an inode
//!                             '------------------------------ left: the file system's own list --written, reclaimed--> gone
//! ```
//!
//! Vocabulary: an *entry* (dentry) pins its inode; *unused*, an inode without one; *left*, an inode
//! that is off the inodes' list and still has its memory; *front* of a directory: all files before
//! it are written (`data`), or their inodes are (`inodes`). Files are written in the order in which
//! they were made, so two numbers a directory stand for the state of each.
//!
//! Invariants
//!   1. An inode is on at most one list: its node's, or the file system's own.
//!   2. One with an entry is on neither.
//!   3. An inode that is being looked at outside the lock (`held`) is on neither, and the task that
//!      holds it puts it back.
//!   4. An inode that is left and not behind its directory's front of inodes is not taken.
//!
//! Source: kernel-facts 18; Linux 5.0 fs/dcache.c, dentry_lru_isolate(); fs/inode.c,
//! inode_lru_isolate(); fs/xfs/xfs_icache.c, xfs_reclaim_inodes_count() (one count for all nodes).

use std::collections::VecDeque;

use frames::{FrameId, Lists};
use history::files::{Objects, WithPages};
use mm::NodeId;

use super::{CACHES_MAX, INODES_A_CLUSTER};

/// No inode in memory.
const NONE: u32 = u32::MAX;
/// Paged inodes that are looked at in a row without finding one whose pages were evicted.
const SWEEP_MISSES: usize = 64;

/// A file: of which directory, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    pub(super) directory: u16,
    pub(super) file: u32,
}

/// Objects of an inode, of each cache one, in the order of the caches; none: of its entry's, or of
/// none.
pub(super) type Taken<O> = [Option<O>; CACHES_MAX];

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// It has an entry.
    entry: bool,
    /// Its entry was used since it was looked at last.
    entry_used: bool,
    /// The inode was.
    inode_used: bool,
    /// Its maker, or the task that has read it, has yet to give it its first entry.
    open: bool,
    /// Somebody looks at it.
    held: bool,
    /// Off the list as its page is dirty.
    waiting: bool,
    /// Off the list as it has pages.
    paged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Inode<O> {
    id: FileId,
    objects: Taken<O>,
    entry: Option<O>,
    /// Of its own memory, and of its entry's.
    node: u8,
    entry_node: u8,
    flags: Flags,
}

#[derive(Debug, Default)]
struct Directory {
    /// The place of each file's inode.
    places: Vec<u32>,
    /// The age of the cache of objects when each file's inode was freed; as long as the last inode
    /// that was.
    gone: Vec<u32>,
    /// Files before it have been written.
    data: u32,
    /// Inodes before it have been written.
    inodes: u32,
    /// Its paged inodes, the oldest first.
    paged: VecDeque<u32>,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// An entry: nothing to do.
    Entry,
    /// An inode, which is to be given an entry (`Table::enter`).
    Inode,
    /// Nothing: it has to be read.
    Nothing,
}

/// The result of a look at the oldest inode of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It stays, for this round.
    Stays,
    /// It is held now: its pages are to be dropped, and then `Table::looked_at`.
    Held(FileId),
    /// The list is empty.
    Empty,
}

/// The result of a look at the file system's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own<O> {
    /// One is gone; its objects are the caller's to give back.
    Gone(FileId, Taken<O>),
    /// It is not written; it stays.
    Dirty(FileId),
    /// There is none.
    Empty,
}

/// See the module. An object is an `O`.
pub(super) struct Table<O> {
    directories: Vec<Directory>,
    inodes: Vec<Inode<O>>,
    free: Vec<u32>,
    entry_lists: Lists,
    /// A list a node, then the file system's own.
    lists: Lists,
    nodes: u8,
    most: u32,
    pages: WithPages,
}

impl<O: Copy> Table<O> {
    /// For at most `most` inodes in memory, on `nodes` nodes.
    pub(super) fn new(most: u32, nodes: u8, pages: WithPages) -> Self {
        Self {
            directories: Vec::new(),
            inodes: Vec::new(),
            free: Vec::new(),
            entry_lists: Lists::new(most, nodes),
            lists: Lists::new(most, nodes + 1),
            nodes,
            most,
            pages,
        }
    }

    pub(super) fn add_directory(&mut self) -> u16 {
        self.directories.push(Directory::default());
        u16::try_from(self.directories.len() - 1).expect("directories are few")
    }

    pub(super) fn directories(&self) -> u16 {
        u16::try_from(self.directories.len()).expect("directories are few")
    }

    /// Files made in a directory.
    pub(super) fn made(&self, directory: u16) -> u32 {
        let made = self.directory(directory).places.len();
        u32::try_from(made).expect("a directory's files can be counted")
    }

    /// Inodes in memory.
    pub(super) fn len(&self) -> usize {
        self.inodes.len() - self.free.len()
    }

    /// A new file of a directory, open: it is on no list. Answers its number; nothing if no more
    /// fit.
    pub(super) fn make(
        &mut self,
        directory: u16,
        objects: Taken<O>,
        node: NodeId,
    ) -> Option<FileId> {
        let id = FileId {
            directory,
            file: self.made(directory),
        };
        let place = self.place(id, objects, node)?;
        self.inodes[place as usize].flags.open = true;
        self.directories[usize::from(directory)].places.push(place);
        Some(id)
    }

    /// An inode that was read: it is open until it has an entry. False: another was quicker, or no
    /// more fit, and the objects are the caller's to give back.
    pub(super) fn read(&mut self, id: FileId, objects: Taken<O>, node: NodeId) -> bool {
        if self.place_of(id) != NONE {
            return false;
        }
        let Some(place) = self.place(id, objects, node) else {
            return false;
        };
        self.inodes[place as usize].flags.open = true;
        *self.place_mut(id) = place;
        true
    }

    /// Gives an inode an entry. False: it has one, or it is gone, and the
    /// object is the caller's to give back.
    pub(super) fn enter(&mut self, id: FileId, entry: O, node: NodeId) -> bool {
        let place = self.place_of(id);
        if place == NONE || self.inodes[place as usize].entry.is_some() {
            return false;
        }
        self.lists.remove(FrameId(place));
        let inode = &mut self.inodes[place as usize];
        inode.entry = Some(entry);
        inode.entry_node = node.0;
        inode.flags = Flags {
            entry: true,
            inode_used: inode.flags.inode_used,
            // A task that looks at it finds the entry when done.
            held: inode.flags.held,
            paged: inode.flags.paged,
            ..Flags::default()
        };
        self.entry_lists.push_head(node.0, FrameId(place));
        true
    }

    /// Looks a file up, and notes the use.
    pub(super) fn look_up(&mut self, id: FileId) -> Found {
        let place = self.place_of(id);
        if place == NONE {
            return Found::Nothing;
        }
        let flags = &mut self.inodes[place as usize].flags;
        if flags.entry {
            flags.entry_used = true;
            return Found::Entry;
        }
        Found::Inode
    }

    /// Looks at the oldest `most` entries of a node and frees those that were not used since the
    /// last look. Their objects are added to `gone`. Returns their number.
    pub(super) fn prune_entries(&mut self, node: NodeId, most: u64, gone: &mut Vec<O>) -> u64 {
        let mut pruned = 0;
        for _ in 0..most {
            let Some(at) = self.entry_lists.pop_tail(node.0) else {
                break;
            };
            let inode = &mut self.inodes[at.0 as usize];
            if core::mem::take(&mut inode.flags.entry_used) {
                self.entry_lists.push_head(node.0, at);
                continue;
            }
            gone.push(inode.entry.take().expect("it is on the list of entries"));
            inode.flags.entry = false;
            pruned += 1;
            if !inode.flags.held {
                self.let_go(at.0);
            }
        }
        pruned
    }

    /// Looks at the oldest inode of a node.
    pub(super) fn look_at_inode(&mut self, node: NodeId) -> Looked {
        let Some(at) = self.lists.pop_tail(node.0) else {
            return Looked::Empty;
        };
        let inode = &mut self.inodes[at.0 as usize];
        if core::mem::take(&mut inode.flags.inode_used) {
            self.lists.push_head(node.0, at);
            return Looked::Stays;
        }
        inode.flags.held = true;
        Looked::Held(inode.id)
    }

    /// The look at a held inode has ended. If its file had pages, it counts as used, and is looked
    /// at again at once; else it leaves the list. Answers whether it left.
    pub(super) fn looked_at(&mut self, id: FileId, had_pages: bool) -> bool {
        let place = self.place_of(id);
        let inode = &mut self.inodes[place as usize];
        inode.flags.held = false;
        if inode.flags.entry {
            return false;
        }
        if had_pages {
            inode.flags.inode_used = true;
            self.lists.push_tail(inode.node, FrameId(place));
            return false;
        }
        self.lists.push_head(self.nodes, FrameId(place));
        true
    }

    /// Looks at the oldest of the file system's own.
    pub(super) fn look_at_own(&mut self) -> Own<O> {
        let Some(at) = self.lists.tail(self.nodes) else {
            return Own::Empty;
        };
        let inode = &self.inodes[at.0 as usize];
        if inode.id.file >= self.directory(inode.id.directory).inodes {
            let id = inode.id;
            // The next one may be of a directory that is further.
            self.lists.remove(at);
            self.lists.push_head(self.nodes, at);
            return Own::Dirty(id);
        }
        let (id, objects) = (inode.id, inode.objects);
        self.remove(at.0);
        Own::Gone(id, objects)
    }

    /// All files of a directory before `front` are written: their inodes may be unused from now on.
    pub(super) fn data_written(&mut self, directory: u16, front: u32) {
        let own = &mut self.directories[usize::from(directory)];
        let passed = own.data..front.max(own.data);
        own.data = passed.end;
        for file in passed {
            let place = self.directories[usize::from(directory)].places[file as usize];
            if place != NONE && self.inodes[place as usize].flags.waiting {
                self.inodes[place as usize].flags.waiting = false;
                self.let_go(place);
            }
        }
    }

    /// The front of a directory's files, and that of its inodes.
    pub(super) fn fronts(&self, directory: u16) -> (u32, u32) {
        let own = self.directory(directory);
        (own.data, own.inodes)
    }

    /// The first of the files that are made and closed which may be dirty, and the one behind the
    /// last.
    pub(super) fn unwritten(&self, directory: u16) -> (u32, u32) {
        let own = self.directory(directory);
        let open = own.places.iter().rev().take_while(|place| {
            let at = **place;
            at != NONE && self.inodes[at as usize].flags.open
        });
        let closed = own.places.len() - open.count();
        (own.data, u32::try_from(closed).expect("counted already"))
    }

    /// Whole clusters of a directory whose files are written and whose inodes are not: the first
    /// inode, and the one behind the last.
    pub(super) fn clusters(&self, directory: u16, all: bool) -> (u32, u32) {
        let (data, inodes) = self.fronts(directory);
        let end = if all {
            data
        } else {
            data / INODES_A_CLUSTER * INODES_A_CLUSTER
        };
        (inodes, end.max(inodes))
    }

    /// All inodes of a directory before `front` are written.
    pub(super) fn inodes_written(&mut self, directory: u16, front: u32) {
        let own = &mut self.directories[usize::from(directory)];
        own.inodes = own.inodes.max(front);
    }

    /// Puts inodes on their lists whose pages were evicted, `cached` tells of which not. Looks at
    /// the oldest of each directory.
    pub(super) fn sweep(&mut self, mut cached: impl FnMut(FileId) -> bool) {
        for directory in 0..self.directories.len() {
            let mut kept = Vec::new();
            while kept.len() < SWEEP_MISSES {
                let Some(place) = self.directories[directory].paged.pop_front() else {
                    break;
                };
                let id = self.inodes[place as usize].id;
                if self.inodes[place as usize].flags.entry {
                    // In use again; its entry will bring it back.
                    self.inodes[place as usize].flags.paged = false;
                } else if cached(id) {
                    kept.push(place);
                } else {
                    self.inodes[place as usize].flags.paged = false;
                    let node = self.inodes[place as usize].node;
                    self.lists.push_head(node, FrameId(place));
                }
            }
            for place in kept.into_iter().rev() {
                self.directories[directory].paged.push_front(place);
            }
        }
    }

    /// An inode was freed at that age of the cache of objects.
    pub(super) fn set_gone(&mut self, id: FileId, age: u32) {
        let gone = &mut self.directories[usize::from(id.directory)].gone;
        let at = id.file as usize;
        if gone.len() <= at {
            gone.resize(at + 1, 0);
        }
        gone[at] = age;
    }

    /// The age at which the inode was freed, if it ever was.
    pub(super) fn gone(&self, id: FileId) -> Option<u32> {
        let own = self.directory(id.directory);
        own.gone.get(id.file as usize).copied()
    }

    /// The objects that a node could free.
    pub(super) fn freeable(&self, node: NodeId) -> Objects {
        Objects {
            entries: u64::from(self.entry_lists.len(node.0)),
            inodes: u64::from(self.lists.len(node.0)),
            own: u64::from(self.lists.len(self.nodes)),
        }
    }

    /// Lets go of everything; the objects are the caller's to give back.
    pub(super) fn drain(&mut self) -> Vec<(Taken<O>, Option<O>)> {
        let all = (0..self.inodes.len()).filter(|at| {
            let id = self.inodes[*at].id;
            self.place_of(id) as usize == *at
        });
        let all: Vec<usize> = all.collect();
        for directory in &mut self.directories {
            directory.paged.clear();
        }
        let mut objects = Vec::with_capacity(all.len());
        for at in all {
            let entry = self.inodes[at].entry.take();
            objects.push((self.inodes[at].objects, entry));
            self.remove(u32::try_from(at).expect("places are counted by u32"));
        }
        objects
    }

    /// An inode has lost its entry.
    fn let_go(&mut self, place: u32) {
        let inode = &mut self.inodes[place as usize];
        let directory = &mut self.directories[usize::from(inode.id.directory)];
        match self.pages {
            WithPages::PagesFirst if inode.flags.paged => {}
            WithPages::PagesFirst => {
                inode.flags.paged = true;
                directory.paged.push_back(place);
            }
            WithPages::Stolen | WithPages::StolenUnlessSeveral => {
                if inode.id.file >= directory.data {
                    inode.flags.waiting = true;
                } else {
                    self.lists.push_head(inode.node, FrameId(place));
                }
            }
        }
    }

    fn place(&mut self, id: FileId, objects: Taken<O>, node: NodeId) -> Option<u32> {
        let inode = Inode {
            id,
            objects,
            entry: None,
            node: node.0,
            entry_node: 0,
            flags: Flags::default(),
        };
        if let Some(place) = self.free.pop() {
            self.inodes[place as usize] = inode;
            return Some(place);
        }
        let place = u32::try_from(self.inodes.len()).ok()?;
        if place >= self.most {
            return None;
        }
        self.inodes.push(inode);
        Some(place)
    }

    fn remove(&mut self, place: u32) {
        self.lists.remove(FrameId(place));
        self.entry_lists.remove(FrameId(place));
        let id = self.inodes[place as usize].id;
        *self.place_mut(id) = NONE;
        self.free.push(place);
    }

    fn directory(&self, directory: u16) -> &Directory {
        &self.directories[usize::from(directory)]
    }

    fn place_of(&self, id: FileId) -> u32 {
        let places = &self.directory(id.directory).places;
        places.get(id.file as usize).copied().unwrap_or(NONE)
    }

    fn place_mut(&mut self, id: FileId) -> &mut u32 {
        &mut self.directories[usize::from(id.directory)].places[id.file as usize]
    }
}
