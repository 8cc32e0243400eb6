//! The part of scenarios about small files and the caches of their objects.

use toml::Spanned;
use workload::Role;

use super::Machine;
use crate::keys::{keys, range, words};
use crate::stats::whole;

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

/// A cache of objects: (role, bytes, order, reclaimable).
pub(crate) type Row = (Role, u64, u32, bool);

/// The objects of a file on xfs of 5.3 on p3's machine of 16 CPUs.
///
/// PUBLISHED are the sums a file: 2083 bytes that can be reclaimed and 1593 that cannot (3,727,612
/// and 2,851,772 kB of slabs at 1.83 million files). Sizes and orders of inode, entry and log item
/// are SLUB's for 16 CPUs (kernel-facts 14). The rest of both sums is split by a GUESS, in sizes
/// that fill slabs; a test holds the sums.
pub(crate) const P3: [Row; 6] = [
    (Role::Entry, 192, 1, true),
    (Role::Inode, 1024, 3, true),
    (Role::Beside, 816, 3, true),
    (Role::Beside, 168, 0, false),
    (Role::Beside, 1024, 3, false),
    (Role::Beside, 400, 1, false),
];

/// Bytes of objects that a file has in memory, of a machine whose caches may not be checked yet.
pub(crate) fn bytes_a_file(machine: &Machine) -> f64 {
    let bytes: u64 = rows(machine).iter().map(|(_, bytes, ..)| *bytes).sum();
    whole(bytes.max(1))
}

/// The caches of a machine: those that it names, or those of the paper.
pub(crate) fn rows(machine: &Machine) -> Vec<Row> {
    let Some(caches) = &machine.object_cache else {
        return P3.to_vec();
    };
    let caches = caches.get_ref().iter().map(|cache| {
        let role = match cache.role.get_ref() {
            RoleKind::Entry => Role::Entry,
            RoleKind::Inode => Role::Inode,
            RoleKind::Beside => Role::Beside,
        };
        let bytes = u64::from(*cache.bytes.get_ref());
        (role, bytes, *cache.order.get_ref(), cache.reclaimable)
    });
    caches.collect()
}
