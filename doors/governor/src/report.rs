//! The members' memory, the moves of targets with their reasons, and the waits.

use std::fmt;
use std::time::Duration;

use figures::shown;
use policy::units::Bytes;

/// The conduct of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It does what it should.
    #[default]
    Good,
    /// It evicts values that are larger than its bound lets it keep: a cache that splits its bound
    /// keeps none above its part, however much is free. Memory goes to it as to any that misses; a
    /// floor, or fewer shards, makes them fit sooner.
    TooLarge,
    /// A call took longer than 100 ms; it is not called for a while.
    Rests,
    /// It was asked several times and gave nothing; it is not asked for a while.
    GivesNothing,
    /// Three times it said that it freed something, and what it holds neither fell nor was filled
    /// meanwhile. Asked every 5 s only.
    Lies,
    /// It panicked, and is not called again.
    Panicked,
}

/// Why targets moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyMoved {
    /// A delta more saves the winner so much, and costs the loser so much, in an epoch; times their
    /// weights.
    Regret {
        /// The winner's.
        saves: Duration,
        /// The loser's.
        costs: Duration,
    },
    /// Neither regretted anything, and the one carries the other.
    Carried,
}

/// A transfer between two targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// When, since the governor began.
    pub at: Duration,
    /// The member whose target fell.
    pub from: String,
    /// The member whose target rose.
    pub to: String,
    /// By how many bytes.
    pub bytes: u64,
    /// Why.
    pub why: WhyMoved,
}

/// One member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its conduct.
    pub standing: Standing,
    /// Bytes it holds.
    pub held: u64,
    /// Bytes that are its own.
    pub target: u64,
    /// Bytes it may hold now, if it bounds itself: its target, with what it borrows or less what it
    /// lends.
    pub bound: Option<u64>,
    /// Bytes never taken from it.
    pub floor: u64,
    /// Bytes beyond which it gets nothing.
    pub ceiling: u64,
    /// Its weight.
    pub weight: f64,
    /// Time of misses that a delta more (a 64th of the limit) would save in an epoch.
    pub gain: Duration,
    /// Bytes ever evicted from it.
    pub evicted: u64,
    /// Times it was asked.
    pub scans: u64,
    /// Bytes it said it freed.
    pub freed: u64,
    /// Calls that took longer than 100 ms.
    pub late: u64,
}

/// The waits of reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Reservations that waited for memory, or were slowed down.
    pub waited: u64,
    /// Their time, in all.
    pub time: Duration,
    /// The longest.
    pub longest: Duration,
    /// Reservations that were refused.
    pub refused: u64,
}

/// All of it, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The limit, in bytes.
    pub limit: u64,
    /// Held by all members, in bytes.
    pub held: u64,
    /// Resident memory of the process, if it is looked at, in bytes.
    pub resident: Option<u64>,
    /// Resident memory beyond what is held, in bytes: comes off the limit.
    pub slack: u64,
    /// Bytes kept free for reservations.
    pub headroom: u64,
    /// Bytes that the ceilings keep from everybody.
    pub spare: u64,
    /// Memory of the governor's own tables, in bytes.
    pub tables: u64,
    /// Epochs that have ended.
    pub epochs: u64,
    /// Turns made.
    pub turns: u64,
    /// The members, in the order in which they came.
    pub members: Vec<MemberReport>,
    /// The last transfers, the newest last.
    pub moves: Vec<Move>,
    /// The waits of reservations.
    pub waits: Waits,
}

struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&Bytes(self.0).shown().to_string())
    }
}

/// Transfers that are shown.
const SHOWN: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}: held {}", Size(self.limit), Size(self.held))?;
        write!(f, ", slack {}", Size(self.slack))?;
        if let Some(resident) = self.resident {
            write!(f, ", resident {}", Size(resident))?;
        }
        writeln!(f, ", {} epochs", self.epochs)?;
        writeln!(
            f,
            "{:<16} {:>10} {:>10} {:>10} {:>12} {:>10}  standing",
            "member", "held", "target", "floor", "gain", "evicted"
        )?;
        for member in &self.members {
            write!(f, "{:<16} {:>10} ", shown(&member.name), Size(member.held))?;
            write!(f, "{:>10} {:>10} ", Size(member.target), Size(member.floor))?;
            write!(f, "{:>12} ", format!("{:.1?}", member.gain))?;
            writeln!(f, "{:>10}  {:?}", Size(member.evicted), member.standing)?;
        }
        for moved in self.moves.iter().rev().take(SHOWN) {
            write!(f, "{:>9.3} s: ", moved.at.as_secs_f64())?;
            write!(
                f,
                "{} from {} to {}",
                Size(moved.bytes),
                shown(&moved.from),
                shown(&moved.to)
            )?;
            match moved.why {
                WhyMoved::Regret { saves, costs } => {
                    writeln!(f, ": saves {saves:.1?} an epoch, costs {costs:.1?}")?;
                }
                WhyMoved::Carried => writeln!(f, ": it is carried, and neither is missed")?,
            }
        }
        let waits = self.waits;
        if waits.waited + waits.refused > 0 {
            writeln!(
                f,
                "{} reservations waited {:.1?} in all, {:.1?} at most; {} refused",
                waits.waited, waits.time, waits.longest, waits.refused
            )?;
        }
        Ok(())
    }
}
