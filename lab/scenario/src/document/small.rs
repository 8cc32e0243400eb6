//! The part of scenarios about small files and the caches of their objects.

use toml::Spanned;

use super::Machine;
use crate::keys::{keys, range, words};

keys! {
    /// A cache of objects of which each small file has one.
    ObjectCacheEntry:
        role: Spanned<RoleKind>, "The role of an object beside its file.";
        bytes: Spanned<u32>, "Its size.", range(8.0, 4096.0, " bytes: an object is on one page");
        order: Spanned<u32>, "Pages of a slab, as a power of two; scaled down with the memory.", range(0.0, 3.0, "");
        reclaimable: bool, "Its slabs lie with memory that can be freed again, or with memory that cannot.";
}

words! {
    /// The part of an object in its file.
    RoleKind:
        Entry = "entry", "Its entry in a directory.";
        Inode = "inode", "Its inode.";
        Beside = "beside", "Of its inode, and goes with it.";
}

/// Most caches of objects.
pub const CACHES_MOST: usize = 8;

/// A cache of objects: (role, bytes, order, reclaimable).
pub type Row = (RoleKind, u64, u32, bool);

/// The objects of a file on xfs of 5.3 on p3's machine of 16 CPUs.
///
/// PUBLISHED are the sums a file: 2083 bytes that can be reclaimed and 1593 that cannot (3,727,612
/// and 2,851,772 kB of slabs at 1.83 million files). Sizes and orders of inode, entry and log item
/// are SLUB's for 16 CPUs (kernel-facts 14). The rest of both sums is split by a GUESS, in sizes
/// that fill slabs; a test holds the sums.
pub const P3: [Row; 6] = [
    (RoleKind::Entry, 192, 1, true),
    (RoleKind::Inode, 1024, 3, true),
    (RoleKind::Beside, 816, 3, true),
    (RoleKind::Beside, 168, 0, false),
    (RoleKind::Beside, 1024, 3, false),
    (RoleKind::Beside, 400, 1, false),
];

/// Bytes of objects that a file has in memory, of a machine whose caches may not be checked yet.
pub fn bytes_a_file(machine: &Machine) -> f64 {
    let bytes = rows(machine).into_iter().map(|(_, bytes, ..)| bytes);
    number(bytes.sum::<u64>().max(1))
}

/// The caches of a machine: those that it names, or those of the paper.
pub fn rows(machine: &Machine) -> Vec<Row> {
    let Some(caches) = &machine.object_cache else {
        return P3.to_vec();
    };
    let caches = caches.get_ref().iter().map(|cache| {
        let bytes = u64::from(*cache.bytes.get_ref());
        (
            *cache.role.get_ref(),
            bytes,
            *cache.order.get_ref(),
            cache.reclaimable,
        )
    });
    caches.collect()
}

#[expect(clippy::cast_precision_loss, reason = "objects of a file are few")]
fn number(bytes: u64) -> f64 {
    bytes as f64
}
