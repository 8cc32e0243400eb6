//! The shapes of recordings: one file each, and one line of `SHAPES`.
//!
//! A shape has workers, figures, and what it reads beside `vmstat.csv`. All workers may be in one
//! recording, and every figure is measured of every recording: what is nowhere in it is not shown.

mod crowd;
mod huge;
mod nodes;
pub(super) mod small;

use super::super::fault::Fault;
use super::figures::Figure;
use super::recording::Tables;
use super::setting::Setting;
use super::worker::Work;
use experiment::outcome::Outcome;

/// The part of its own of a shape.
pub struct Shape {
    /// The kinds of its workers.
    pub works: &'static [Work],
    /// True of a setting that has the subject of its figures.
    pub has: fn(&Setting) -> bool,
    /// Its figures, in the order of the tables.
    pub figures: &'static [Figure],
    /// Reads tables of its own into what a recording shows.
    pub read: fn(&Tables<'_>, &mut Outcome) -> Result<(), Fault>,
}

/// All of them.
pub const SHAPES: [&Shape; 4] = [&crowd::SHAPE, &nodes::SHAPE, &small::SHAPE, &huge::SHAPE];

/// Nothing is read.
const NOTHING: fn(&Tables<'_>, &mut Outcome) -> Result<(), Fault> = |_, _| Ok(());

/// All kinds of workers.
pub(super) fn works() -> impl Iterator<Item = &'static Work> {
    SHAPES.into_iter().flat_map(|shape| shape.works)
}
