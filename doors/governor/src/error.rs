//! The refusals of a governor, and the ways out.

use std::fmt;
use std::time::Duration;

use figures::shown;

/// Why something was refused. Each names the thing, the value and the way out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A limit of nothing.
    #[error("a limit of 0 bytes: nothing could be held; give one above")]
    NoLimit,
    /// A floor alone is above the limit.
    #[error("{}: a floor of {} is above the limit of {}; lower the floor or raise the limit", shown(member), Size(*floor), Size(*limit))]
    FloorAboveLimit {
        /// The member.
        member: String,
        /// Its floor, in bytes.
        floor: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The floors of all members do not fit.
    #[error("{}: a floor of {} with {} of the others is above the limit of {}; lower a floor or raise the limit", shown(member), Size(*floor), Size(*others), Size(*limit))]
    FloorsAboveLimit {
        /// The member that was to join, or to have another floor.
        member: String,
        /// Its floor, in bytes.
        floor: u64,
        /// The floors of the others, in bytes.
        others: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A ceiling below the floor.
    #[error("{}: a ceiling of {} is below its floor of {}; swap or drop one of them", shown(member), Size(*ceiling), Size(*floor))]
    CeilingBelowFloor {
        /// The member.
        member: String,
        /// Its ceiling, in bytes.
        ceiling: u64,
        /// Its floor, in bytes.
        floor: u64,
    },
    /// A weight outside 1/16 to 16, or no number.
    #[error(
        "{}: a weight of {weight}; weights are 0.0625 to 16, 1 unless set (to keep a member small, use a ceiling)",
        shown(member)
    )]
    Weight {
        /// The member.
        member: String,
        /// The weight asked for.
        weight: f64,
    },
    /// A member has this name already.
    #[error(
        "{}: there is a member of that name; drop it first, or give this one another",
        shown(member)
    )]
    Registered {
        /// The name.
        member: String,
    },
    /// A name of nothing, which no message could show.
    #[error("a member needs a name: messages and reports show it")]
    NoName,
    /// There are as many members as can be.
    #[error("there are {members} members already; register a group of caches as one")]
    TooManyMembers {
        /// Their number.
        members: usize,
    },
    /// The limit was to be lowered below what the floors come to.
    #[error("a limit of {} is below the floors, {} together; lower one first ({} has the highest)", Size(*limit), Size(*floors), shown(highest))]
    LimitBelowFloors {
        /// The limit that was refused, in bytes.
        limit: u64,
        /// The sum of the floors, in bytes.
        floors: u64,
        /// The member with the highest floor.
        highest: String,
    },
    /// No memory came in time.
    #[error("{}: no {} in {waited:?}: {} holds {} and has {} of its own; try again, or see Governor::report", shown(member), Size(*bytes), shown(by), Size(*held), Size(*target))]
    Full {
        /// The member that asked.
        member: String,
        /// For how many bytes.
        bytes: u64,
        /// The time it waited.
        waited: Duration,
        /// The member in the way: it holds most above its target, or does not give back what it
        /// should.
        by: String,
        /// Bytes of it that are held.
        held: u64,
        /// Bytes of it that are its own.
        target: u64,
    },
    /// More than the whole limit.
    #[error("{}: {} at once is more than the limit of {}; ask for less at a time", shown(member), Size(*bytes), Size(*limit))]
    LargerThanLimit {
        /// The member that asked.
        member: String,
        /// For how many bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Memory was asked for inside a scan, which is there to give some back.
    #[error(
        "{}: memory was asked for inside a scan; a scan gives back, reserve before or after it",
        shown(member)
    )]
    InScan {
        /// The member that asked.
        member: String,
    },
    /// The governor's thread could not be started.
    #[error(
        "the governor's thread could not be started: {}; drive it yourself (Builder::driven_by_caller)",
        shown(why)
    )]
    NoThread {
        /// The system's reason.
        why: String,
    },
}

/// Bytes as people read them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", policy::units::Bytes(self.0).shown())
    }
}
