//! What scenarios say of small files and of the caches of their objects.

use serde::Deserialize;
use toml::Spanned;

/// A cache of objects of which each small file has one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectCacheEntry {
    /// What an object is to its file.
    pub role: Spanned<RoleKind>,
    /// Its size.
    pub bytes: Spanned<u32>,
    /// Pages of a slab, as a power of two; scaled down with the memory.
    pub order: Spanned<u32>,
    /// Whether its slabs lie with what can be freed again, or with what cannot be.
    pub reclaimable: bool,
}

/// What an object is to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleKind {
    /// Its entry in a directory.
    Entry,
    /// Its inode.
    Inode,
    /// Of its inode, and goes with it.
    Beside,
}
