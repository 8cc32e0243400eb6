//! The loads of the kinds of task: a file each, and one line of the list below.
//!
//! A kind's keys are in `scenario::kinds`, in a file of the same name; here it has its numbers at a
//! scale and the work of its tasks (`task::Load`).

mod alloc;
mod bystander;
mod cp;
mod dd;
mod engine;
mod fs_mark;
mod hog;
mod large_dd;
mod light_writer;
mod make_small;
mod mapped_access;
mod mapped_writer;
mod mapper;
mod passes;
mod phases;
mod pinner;
mod rand_read;
mod rand_write;
mod read_small;
mod reader;
mod stat_small;
mod thpavail;
mod ycsb;

use scenario::kinds::Task;

use crate::task::Load;

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// The load of a task.
        pub(crate) fn of(task: &Task) -> &dyn Load {
            match task { $(Task::$kind(keys) => keys),* }
        }
    };
}

// `kinds! { bystander cp .. }`: made of the list above by build.rs, as rustfmt does not find
// modules in a macro.
include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
