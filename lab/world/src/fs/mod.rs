//! File-system models: where files lie on a device, and what writing them costs in CPU time.
//!
//! A model is data: the parameters of a `Layout` (one algorithm for all), a table of CPU costs, and
//! the device it usually stands on. The columns of an experiment share a model; what differs
//! between them is the law, never a cost (`costs` says which shares are guesses).
//!
//! Source: experiments A2, E.

use core::fmt;

use env::ObjectId;
use policy::place::mobility::Migrates;
use policy::units::Pages;

use crate::cost::CostTable;
use crate::model::params::Unit;

pub mod costs;
pub mod journal;
mod layout;

pub use layout::{Extent, Layout, LayoutParams, Side};

/// A file system.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name in scenarios.
    pub name: &'static str,
    /// Its description, in a line.
    pub summary: &'static str,
    /// CPU time per unit of work.
    pub costs: CostTable,
    /// Its layout.
    pub layout: LayoutParams,
    /// The device model it stands on if a scenario names none.
    pub device: &'static str,
    /// It has a call by which reclaim writes a single page
    /// (`policy::reclaim::Tunables::writes_files`).
    pub writes_pages: bool,
    /// Pages of its files are asked for from within it
    /// (`policy::reclaim::Tunables::files_within_fs`).
    pub asks_within: bool,
    /// The treatment by kernels of 3.x of a dirty page of its files that was to be moved
    /// (kernel-facts A4).
    pub migrates: Migrates,
    /// Its pages are allocated as unmovable: the cache of a block device itself (kernel-facts A6;
    /// Linux 6.12 block/bdev.c, bdev_alloc(), `GFP_USER`).
    pub unmovable: bool,
}

impl Model {
    /// An empty file system over `span` pages (`model::Params::span`), on a machine smaller by
    /// `shrink` (experiments A6).
    ///
    /// # Panics
    /// If `shrink` is zero.
    #[must_use]
    pub fn layout(&self, span: Pages, shrink: u64) -> Layout {
        Layout::new(&self.layout.scaled_by(Unit::scaled, shrink), span)
    }

    /// True if there is none: everything on the device is one file to the flusher.
    #[must_use]
    pub fn is_device(&self) -> bool {
        matches!(self.name, "bare" | "raw")
    }

    /// The same under a `journal::Journal`, which commits by itself; its log is an object.
    ///
    /// # Panics
    /// If `shrink` is zero.
    #[must_use]
    pub fn layout_under(&self, log: ObjectId, span: Pages, shrink: u64) -> Layout {
        let mut params = self.layout.scaled_by(Unit::scaled, shrink);
        params.commit_us = 0;
        let mut layout = Layout::new(&params, span);
        layout.place_log(log);
        layout
    }
}

/// Names of all file systems.
pub const NAMES: [&str; 11] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "nfs", "bare", "p0", "p3", "vfat", "raw",
];

/// There is no such file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFs {
    /// The name asked for.
    pub name: String,
}

impl fmt::Display for UnknownFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no file-system model `{}`; there are {}",
            self.name,
            NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownFs {}

/// The file system of that name, as of Linux 2.6.36; `bare` as of 6.12, `p0` as of 5.15, `p3` as of
/// 5.3.
///
/// # Errors
/// There is none; the message lists those there are.
pub fn by_name(name: &str) -> Result<Model, UnknownFs> {
    let disk = "sata2010";
    Ok(match name {
        "ext2" => Model {
            name: "ext2",
            summary: "block groups, indirect blocks written in between",
            costs: costs::EXT2,
            layout: layout::EXT2,
            device: disk,
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "ext3" => Model {
            name: "ext3",
            summary: "ext2 with a journal, committed every 5 s",
            costs: costs::EXT3,
            layout: layout::EXT3,
            device: disk,
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "ext4" => Model {
            name: "ext4",
            summary: "delayed allocation, extents, one stream for all large files",
            costs: costs::EXT4,
            layout: layout::EXT4,
            device: disk,
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "xfs" => Model {
            name: "xfs",
            summary: "delayed allocation, large extents reserved per file",
            costs: costs::XFS,
            layout: layout::XFS,
            device: disk,
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "btrfs" => Model {
            name: "btrfs",
            summary: "copy on write, delayed allocation, a commit every 30 s",
            costs: costs::BTRFS,
            layout: layout::BTRFS,
            device: disk,
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "nfs" => Model {
            name: "nfs",
            summary: "a client; the server decides where things lie",
            costs: costs::NFS,
            layout: layout::NFS,
            device: "nfs",
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "bare" => Model {
            name: "bare",
            summary: "none: the block device itself, with the CPU of the guest of the recordings",
            costs: costs::GUEST,
            // Blocks are numbers only.
            layout: layout::NFS,
            device: "null_blk",
            // Nor has any file system of 6.12.
            writes_pages: false,
            asks_within: false,
            migrates: Migrates::Buffers,
            unmovable: true,
        },
        "p0" => Model {
            name: "p0",
            summary: "xfs of 5.15 on the machine of p0, with its CPU",
            costs: costs::P0,
            layout: layout::XFS,
            device: "p0_ssd",
            writes_pages: false,
            asks_within: true,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "p3" => Model {
            name: "p3",
            summary: "xfs of 5.3 on the machine of p3, with its CPU",
            costs: costs::P3,
            layout: layout::XFS,
            device: "ssd",
            writes_pages: true,
            asks_within: true,
            migrates: Migrates::Buffers,
            unmovable: false,
        },
        "vfat" => Model {
            name: "vfat",
            summary: "clusters of a table that is rewritten in place, no journal; no call to move a page",
            costs: costs::EXT2,
            layout: layout::VFAT,
            device: "usb_stick",
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::WritesPage,
            unmovable: false,
        },
        "raw" => Model {
            name: "raw",
            summary: "none: a disk read as it is, through the cache of its device",
            costs: costs::EXT4,
            layout: layout::RAW,
            device: disk,
            writes_pages: true,
            asks_within: false,
            migrates: Migrates::WritesPage,
            unmovable: true,
        },
        _ => return Err(UnknownFs { name: name.into() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_model_on_a_known_device() {
        for name in NAMES {
            let model = by_name(name).unwrap();
            assert_eq!(model.name, name);
            assert!(crate::model::by_name(model.device).is_ok());
        }
    }

    #[test]
    fn reclaim_leaves_pages_to_the_flusher_since_xfs_of_5_15_and_is_kept_out_of_that() {
        let without = NAMES
            .into_iter()
            .filter(|name| !by_name(name).unwrap().writes_pages);
        assert_eq!(without.collect::<Vec<_>>(), ["bare", "p0"]);
        let within = NAMES
            .into_iter()
            .filter(|name| by_name(name).unwrap().asks_within);
        assert_eq!(within.collect::<Vec<_>>(), ["p0", "p3"]);
    }

    #[test]
    fn two_have_no_call_to_move_a_page_and_the_cache_of_a_device_is_unmovable() {
        let of = |is: fn(&Model) -> bool| {
            let all = NAMES.into_iter();
            let found = all.filter(|name| is(&by_name(name).unwrap()));
            found.collect::<Vec<_>>()
        };
        assert_eq!(
            of(|fs| fs.migrates == Migrates::WritesPage),
            ["vfat", "raw"]
        );
        assert_eq!(of(|fs| fs.unmovable), ["bare", "raw"]);
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        let error = by_name("ext5").unwrap_err().to_string();
        assert_eq!(
            error,
            "no file-system model `ext5`; there are ext2, ext3, ext4, xfs, btrfs, nfs, bare, p0, p3, vfat, raw"
        );
    }
}
