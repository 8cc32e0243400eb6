#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use history::files::{Objects, WithPages};
use mm::NodeId;

use super::table::{FileId, Found, Looked, Own, Table, Taken};
use super::{CACHES_MAX, INODES_A_CLUSTER};

const NODE: NodeId = NodeId(0);

fn objects(number: u32) -> Taken<u32> {
    let mut all = [None; CACHES_MAX];
    all[0] = Some(number);
    all
}

/// A table with one directory and `files` closed files, whose entries are the objects 100 + number.
fn table(files: u32, pages: WithPages) -> Table<u32> {
    let mut table = Table::new(64, 2, pages);
    let directory = table.add_directory();
    for number in 0..files {
        let id = table.make(directory, objects(number), NODE).unwrap();
        assert_eq!(id, file(number));
        assert!(table.enter(id, 100 + number, NODE));
    }
    table
}

const fn file(file: u32) -> FileId {
    FileId { directory: 0, file }
}

fn prune(table: &mut Table<u32>, most: u64) -> Vec<u32> {
    let mut gone = Vec::new();
    let freed = table.prune_entries(NODE, most, &mut gone);
    assert_eq!(freed, gone.len() as u64);
    gone
}

/// The next inode of the node is looked at; a `cached` one has pages.
fn look(table: &mut Table<u32>, cached: bool) -> Looked {
    let looked = table.look_at_inode(NODE);
    if let Looked::Held(id) = looked {
        table.looked_at(id, cached);
    }
    looked
}

#[test]
fn an_entry_that_was_used_goes_round_once_more() {
    let mut table = table(3, WithPages::Stolen);
    table.data_written(0, 3);
    assert_eq!(table.look_up(file(0)), Found::Entry);
    assert_eq!(prune(&mut table, 1), []);
    assert_eq!(prune(&mut table, 3), [101, 102, 100]);
    assert_eq!(table.freeable(NODE).inodes, 3);
    assert_eq!(table.freeable(NodeId(1)), Objects::default());
}

#[test]
fn an_unused_inode_whose_page_is_dirty_is_not_counted_before_it_is_written() {
    let mut table = table(3, WithPages::Stolen);
    table.data_written(0, 1);
    assert_eq!(prune(&mut table, 9).len(), 3);
    assert_eq!(table.freeable(NODE).inodes, 1);
    table.data_written(0, 3);
    assert_eq!(table.freeable(NODE).inodes, 3);
    assert_eq!(table.fronts(0), (3, 0));
}

#[test]
fn an_inode_with_pages_takes_three_looks_and_one_without_a_single_one() {
    let mut table = table(2, WithPages::Stolen);
    table.data_written(0, 2);
    prune(&mut table, 2);
    // Stolen; at once again, as it counts as used; then the other one.
    assert_eq!(look(&mut table, true), Looked::Held(file(0)));
    assert_eq!(look(&mut table, false), Looked::Stays);
    assert_eq!(look(&mut table, false), Looked::Held(file(1)));
    assert_eq!(
        table.freeable(NODE),
        Objects {
            entries: 0,
            inodes: 1,
            own: 1
        }
    );
    assert_eq!(look(&mut table, false), Looked::Held(file(0)));
    assert_eq!(look(&mut table, false), Looked::Empty);
}

#[test]
fn pages_go_first_where_they_are_to() {
    let mut table = table(3, WithPages::PagesFirst);
    table.data_written(0, 3);
    prune(&mut table, 3);
    assert_eq!(table.freeable(NODE).inodes, 0);
    table.sweep(|id| id.file == 1);
    assert_eq!(table.freeable(NODE).inodes, 2);
    // In use again before its page has gone: nothing happens when it does.
    assert_eq!(table.look_up(file(1)), Found::Inode);
    assert!(table.enter(file(1), 7, NODE));
    table.sweep(|_| false);
    assert_eq!(table.freeable(NODE).inodes, 2);
    assert_eq!(prune(&mut table, 1), [7]);
    table.sweep(|_| false);
    assert_eq!(table.freeable(NODE).inodes, 3);
}

#[test]
fn what_is_left_goes_when_its_inode_is_written_and_is_found_until_then() {
    let mut table = table(2, WithPages::Stolen);
    table.data_written(0, 2);
    prune(&mut table, 2);
    look(&mut table, false);
    look(&mut table, false);
    assert_eq!(table.freeable(NODE).own, 2);
    assert_eq!(table.look_at_own(), Own::Dirty(file(0)));
    table.inodes_written(0, 2);
    assert_eq!(table.look_at_own(), Own::Gone(file(1), objects(1)));
    // The other one is used again.
    assert_eq!(table.look_up(file(0)), Found::Inode);
    assert!(table.enter(file(0), 5, NODE));
    assert_eq!(table.look_at_own(), Own::Empty);
    assert_eq!(table.look_up(file(1)), Found::Nothing);
    assert!(table.read(file(1), objects(9), NODE));
    assert!(!table.read(file(1), objects(8), NODE));
    assert_eq!(table.len(), 2);
}

#[test]
fn one_that_is_looked_at_and_used_meanwhile_stays_with_its_entry() {
    let mut table = table(1, WithPages::Stolen);
    table.data_written(0, 1);
    prune(&mut table, 1);
    let Looked::Held(id) = table.look_at_inode(NODE) else {
        panic!("it is there")
    };
    assert!(table.enter(id, 5, NODE));
    assert!(!table.enter(id, 6, NODE));
    // The new entry is freed, too, before the look has ended.
    assert_eq!(prune(&mut table, 1), [5]);
    assert_eq!(table.freeable(NODE), Objects::default());
    assert!(table.looked_at(id, false));
    assert_eq!(table.freeable(NODE).own, 1);
}

#[test]
fn clusters_are_written_whole_unless_somebody_waits() {
    let mut table = table(40, WithPages::Stolen);
    table.data_written(0, 35);
    assert_eq!(table.clusters(0, false), (0, INODES_A_CLUSTER));
    table.inodes_written(0, INODES_A_CLUSTER);
    assert_eq!(table.clusters(0, false), (32, 32));
    assert_eq!(table.clusters(0, true), (32, 35));
}

#[test]
fn an_open_file_is_not_among_those_that_may_be_written() {
    let mut table = table(2, WithPages::Stolen);
    table.make(0, objects(2), NODE).unwrap();
    assert_eq!(table.unwritten(0), (0, 2));
    assert!(table.enter(file(2), 1, NODE));
    assert_eq!(table.unwritten(0), (0, 3));
}

#[test]
fn everything_is_given_back_once() {
    let mut table = table(3, WithPages::PagesFirst);
    table.data_written(0, 3);
    prune(&mut table, 1);
    let mut all = table.drain();
    all.sort_by_key(|(taken, _)| taken[0]);
    let entries: Vec<_> = all.iter().map(|(_, entry)| *entry).collect();
    assert_eq!(entries, [None, Some(101), Some(102)]);
    assert_eq!(table.len(), 0);
    assert!(table.drain().is_empty());
}

#[test]
fn no_more_inodes_than_fit() {
    let mut table = table(64, WithPages::Stolen);
    assert_eq!(table.make(0, objects(1), NODE), None);
}
