//! The content of frames: bytes live, a version per 512-byte sector in the lab.

use core::ops::Range;

use crate::{Busy, FrameId, Pin};

/// Bytes one stamp stands for.
pub const SECTOR_SIZE: usize = 512;

/// The content of 512 bytes in the lab: a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u32);

impl Sector {
    /// Bytes that are all zero.
    pub const ZERO: Self = Self(0);
    /// A version that nobody has written: a checker never accepts it.
    pub const JUNK: Self = Self(u32::MAX);
}

/// A caller's data, of the kind that the contents hold. Lengths and places are bytes.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Live.
    Bytes(&'a [u8]),
    /// In the lab.
    Sectors(&'a [Sector]),
}

/// A caller's memory to copy into, of the kind that the contents hold.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Live.
    Bytes(&'a mut [u8]),
    /// In the lab.
    Sectors(&'a mut [Sector]),
}

/// A buffer of the kind that the contents hold, for callers who know none (`Content::buffer`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Live.
    Bytes(Box<[u8]>),
    /// In the lab.
    Sectors(Box<[Sector]>),
}

impl<'a> Data<'a> {
    /// Length in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Sectors(sectors) => sectors.len() * SECTOR_SIZE,
        }
    }

    /// True if it has no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    ///
    /// # Panics
    /// On sectors: contents that are bytes are given bytes.
    #[must_use]
    #[inline]
    #[track_caller]
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Sectors(_) => panic!("contents that are bytes are given bytes, not sectors"),
        }
    }

    /// The sectors.
    ///
    /// # Panics
    /// On bytes: contents that are sectors are given sectors.
    #[must_use]
    #[inline]
    #[track_caller]
    pub const fn sectors(self) -> &'a [Sector] {
        match self {
            Self::Sectors(sectors) => sectors,
            Self::Bytes(_) => panic!("contents that are sectors are given sectors, not bytes"),
        }
    }
}

impl DataMut<'_> {
    /// The same, to be read.
    #[must_use]
    #[inline]
    pub const fn as_data(&self) -> Data<'_> {
        match self {
            Self::Bytes(bytes) => Data::Bytes(bytes),
            Self::Sectors(sectors) => Data::Sectors(sectors),
        }
    }

    /// Length in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.as_data().len()
    }

    /// True if it has no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    ///
    /// # Panics
    /// As `Data::bytes`.
    #[must_use]
    #[inline]
    #[track_caller]
    pub const fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Sectors(_) => panic!("contents that are bytes are given bytes, not sectors"),
        }
    }

    /// The sectors.
    ///
    /// # Panics
    /// As `Data::sectors`.
    #[must_use]
    #[inline]
    #[track_caller]
    pub const fn sectors(&mut self) -> &mut [Sector] {
        match self {
            Self::Sectors(sectors) => sectors,
            Self::Bytes(_) => panic!("contents that are sectors are given sectors, not bytes"),
        }
    }
}

macro_rules! data_from {
    ($kind:ident: $element:ty) => {
        impl<'a> From<&'a [$element]> for Data<'a> {
            #[inline]
            fn from(data: &'a [$element]) -> Self {
                Self::$kind(data)
            }
        }
        impl<'a, const N: usize> From<&'a [$element; N]> for Data<'a> {
            #[inline]
            fn from(data: &'a [$element; N]) -> Self {
                Self::$kind(data)
            }
        }
        impl<'a> From<&'a Vec<$element>> for Data<'a> {
            #[inline]
            fn from(data: &'a Vec<$element>) -> Self {
                Self::$kind(data)
            }
        }
        impl<'a> From<&'a mut [$element]> for DataMut<'a> {
            #[inline]
            fn from(data: &'a mut [$element]) -> Self {
                Self::$kind(data)
            }
        }
        impl<'a, const N: usize> From<&'a mut [$element; N]> for DataMut<'a> {
            #[inline]
            fn from(data: &'a mut [$element; N]) -> Self {
                Self::$kind(data)
            }
        }
        impl<'a> From<&'a mut Vec<$element>> for DataMut<'a> {
            #[inline]
            fn from(data: &'a mut Vec<$element>) -> Self {
                Self::$kind(data)
            }
        }
    };
}
data_from!(Bytes: u8);
data_from!(Sectors: Sector);

impl<'a> From<&'a Buffer> for Data<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        match buffer {
            Buffer::Bytes(bytes) => Self::Bytes(bytes),
            Buffer::Sectors(sectors) => Self::Sectors(sectors),
        }
    }
}

impl<'a> From<&'a mut Buffer> for DataMut<'a> {
    fn from(buffer: &'a mut Buffer) -> Self {
        match buffer {
            Buffer::Bytes(bytes) => Self::Bytes(bytes),
            Buffer::Sectors(sectors) => Self::Sectors(sectors),
        }
    }
}

/// The system refused the memory for a chunk of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopulateError {
    /// The system's error number.
    pub errno: i32,
}

/// The contents of all frames. `mm` moves data only through this.
///
/// Offsets and lengths are bytes; the lab's content accepts multiples of 512 only and panics
/// otherwise (its workloads are written so). Data of the other kind are a caller's bug: a panic.
pub trait Content: Send + Sync + 'static {
    /// Frames that are populated and given back together; a power of two.
    fn chunk_frames(&self) -> u32;
    /// Makes the frames `first..first + chunk_frames` usable. Called before their first use.
    ///
    /// # Errors
    /// The system has no memory.
    fn populate(&self, first: FrameId) -> Result<(), PopulateError>;
    /// Gives the chunk's memory back to the system, or leaves it populated where the system does
    /// not take it. No I/O may be under way on it.
    fn release(&self, first: FrameId);
    /// A caller's buffer of `bytes` bytes, all zero.
    fn buffer(&self, bytes: usize) -> Buffer;
    /// Zeroes `len` bytes of the frame from `offset`.
    fn zero(&self, frame: &Busy, offset: usize, len: usize);
    /// Zeroes whole frames; those that lie together, up or down, perhaps at once.
    fn zero_all(&self, frames: &[Busy]);
    /// Copies `len` bytes of `data` from `from` into the frame at `offset`.
    fn copy_in(&self, frame: &Busy, offset: usize, data: Data<'_>, from: usize, len: usize);
    /// Copies `len` bytes of the frame at `offset` into `data` at `to`.
    fn copy_out(&self, frame: &Pin, offset: usize, data: &mut DataMut<'_>, to: usize, len: usize);
    /// Puts a number of the caller's at the frame's start: 8 bytes live, the low half as the first
    /// sector's version in the lab.
    fn mark(&self, frame: &Busy, word: u64);
    /// Copies a whole frame.
    fn copy_frame(&self, to: &Busy, from: &Pin);
    /// Copies a whole frame that nobody can read meanwhile into another one.
    fn move_frame(&self, to: &Busy, from: &Busy);

    // The rest is for files that a program has mapped, where the content has maps of its own.
    // Elsewhere there are none, and nothing is done.

    /// Where the frame is at home, if that is a page of a map that has not ended: the map's number,
    /// and the page.
    fn home(&self, _frame: FrameId) -> Option<(u32, u32)> {
        None
    }
    /// The memory of busy frames is the pages of a map from `first` on from now on; their bytes go
    /// there, unless they are `fresh` and have none. A frame whose memory it is already stays.
    ///
    /// # Errors
    /// The system has no memory. Some may be there, others not.
    fn settle(
        &self,
        _map: u32,
        _first: u32,
        _frames: &[&Busy],
        _fresh: bool,
    ) -> Result<(), PopulateError> {
        Ok(())
    }
    /// Frames that are held by the caller and about to be free have memory of their own again; the
    /// pages of maps that they were are gone.
    fn vacate(&self, _frames: &[FrameId]) {}
    /// The program may use the pages of a map, whose frames are at home there: load from them, or
    /// store to them, too.
    fn enter(&self, _map: u32, _pages: Range<u32>, _storable: bool) {}
    /// The next store of the program to each of the pages is a fault.
    fn protect(&self, _map: u32, _pages: Range<u32>) {}
    /// The next access of the program to each of the pages is one.
    fn leave(&self, _map: u32, _pages: &[u32]) {}
}
