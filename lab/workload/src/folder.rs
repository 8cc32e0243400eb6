//! Files that a job makes while it runs.
//!
//! Most jobs are given their files, open, before the run. A job with a `Folder` makes its own: an
//! object of the folder's device, which is a number in the lab and a path live (`Objects`), opened
//! in the cache as an empty file.
//!
//! A file stays in the cache for as long as it has pages there, whether or not its maker still has
//! it; the folder keeps the handles of all that it has not removed, so that a run that is
//! interrupted can throw them away.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use env::{Context, Lock, LockClass, ObjectId, Task};
use mm::{Cache, File};
use policy::dirty::DeviceIndex;
use policy::units::Bytes;

use crate::Failure;

/// Makes and removes the objects of a device.
pub trait Objects: Send + Sync {
    /// Makes an empty object.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn make(&self) -> Result<ObjectId, String>;

    /// An object is wanted no more; nothing of it is in the cache, nor on its way.
    fn remove(&self, object: ObjectId);
}

/// Objects that need nothing but a number, which none had before: those of the lab.
#[derive(Debug)]
pub struct Numbered {
    next: AtomicU32,
}

impl Numbered {
    /// Numbers from `first` on.
    #[must_use]
    pub const fn from(first: ObjectId) -> Self {
        Self {
            next: AtomicU32::new(first.0),
        }
    }
}

impl Objects for Numbered {
    fn make(&self) -> Result<ObjectId, String> {
        let object = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(ObjectId(object))
    }

    fn remove(&self, _: ObjectId) {}
}

/// The folder in which jobs make files: on one device of a cache.
pub struct Folder {
    cache: Arc<Cache>,
    device: DeviceIndex,
    objects: Arc<dyn Objects>,
    /// All that were made and not removed.
    made: Lock<Vec<Arc<File>>>,
}

/// A file that a job made.
pub struct Made {
    /// The file.
    pub file: Arc<File>,
    object: ObjectId,
}

impl Folder {
    /// An empty folder on a device of `cache`.
    #[must_use]
    pub fn new(cache: &Arc<Cache>, device: DeviceIndex, objects: Arc<dyn Objects>) -> Self {
        Self {
            cache: Arc::clone(cache),
            device,
            objects,
            made: Lock::new(LockClass::Leaf, Vec::new()),
        }
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// `NoFile`: the device gives none. `Cache`: the cache has no room for another, or its device
    /// has failed.
    pub fn make(&self, task: &mut Task<'_>) -> Result<Made, Failure> {
        let object = self.objects.make().map_err(Failure::NoFile)?;
        let opened = self.cache.open(task, self.device, object, Bytes::ZERO);
        let file = opened.inspect_err(|_| self.objects.remove(object))?;
        // It is of this run, and goes with it: nobody asks whether its emptiness is durable.
        file.assume_durable();
        self.made.lock(task).push(Arc::clone(&file));
        Ok(Made { file, object })
    }

    /// Removes a file: its pages leave the cache, what is dirty unwritten, and its device gets the
    /// space back.
    ///
    /// # Errors
    /// `Cache`: the device refused; the file is still there then.
    pub fn remove(&self, task: &mut Task<'_>, made: &Made) -> Result<(), Failure> {
        made.file.truncate(task, Bytes::ZERO)?;
        made.file.discard(task)?;
        self.made
            .lock(task)
            .retain(|own| !Arc::ptr_eq(own, &made.file));
        self.objects.remove(made.object);
        Ok(())
    }

    /// Files that were made and not removed.
    #[must_use]
    pub fn count(&self, context: &impl Context) -> usize {
        self.made.lock(context).len()
    }

    /// Takes all files out of the cache without writing what is dirty: for a run that was
    /// interrupted.
    ///
    /// # Errors
    /// `Cache`: the first that could not be taken out.
    pub fn discard_all(&self, task: &mut Task<'_>) -> Result<(), Failure> {
        let made = core::mem::take(&mut *self.made.lock(task));
        for file in made {
            file.discard(task)?;
        }
        Ok(())
    }
}
