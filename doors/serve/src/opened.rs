//! A volume whose backing is open, and the abilities of that.

use std::any::Any;
use std::io;
use std::sync::Arc;

use tidegate::Volume;

use crate::backend::error::BackendError;
use crate::pool::Pool;

/// The map of a backing's data and holes.
pub trait Extents: Send + Sync {
    /// The extent at `offset`: the bytes from there (at least one, at most `len`) that are kept
    /// alike, and true if they are a hole, which reads as zeros. May wait for the backing.
    ///
    /// # Errors
    /// The backing cannot say.
    fn next(&self, offset: u64, len: u64) -> io::Result<(u64, bool)>;
}

/// A backing that is lost until it is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why, for people.
    pub why: String,
    /// Its content is there for as long as this process has it open, and can be saved by somebody
    /// meanwhile.
    pub goes_with_us: bool,
}

/// Says whether a backing is lost. Waits for nobody.
pub type Lost = Box<dyn Fn() -> Option<Loss> + Send + Sync>;

/// Room of a backing that is a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that its file system has left.
    pub free: u64,
    /// Bytes of that file system that the file has: fewer than its size where it is sparse.
    pub taken: u64,
}

/// Says how much room a backing has, as far as that is known. Waits for nobody.
pub type Space = Box<dyn Fn() -> Option<Room> + Send + Sync>;

/// Re-reads the size of a backing, or grows it to the given size; returns the size in whole pages.
/// May wait for the backing.
pub type Grow = Box<dyn Fn(Option<u64>) -> Result<u64, BackendError> + Send + Sync>;

/// A volume whose backing is open.
pub struct Opened {
    /// The volume in the cache.
    pub volume: Volume,
    /// The holes of its backing, if it can say.
    pub extents: Option<Arc<dyn Extents>>,
    /// The backing gives space back, and such a range reads as zeros.
    pub can_punch: bool,
    /// The backing gives space back; without `can_punch` such a range may read as anything.
    pub can_trim: bool,
    /// Why its backing is lost, if it can say more than its errors do.
    pub lost: Option<Lost>,
    /// The room of its file system, if it can be short of it.
    pub space: Option<Space>,
    /// Has it grow; none: it cannot, while it is open.
    pub grow: Option<Grow>,
    /// Things that have to live as long as the volume: its lock, handles to the layers of its
    /// device.
    pub keep: Box<dyn Any + Send + Sync>,
    /// Threads that wait for the cache where nobody else can; the first is there from the start.
    pub pool: Pool,
}
