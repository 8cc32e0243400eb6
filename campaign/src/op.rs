//! The steps of a task of a plan, and their form in a scenario file.
//!
//! | in the file | what it does |
//! |---|---|
//! | `write F A+N` | writes N sectors of file F from sector A |
//! | `read F A+N` | reads them, and has the checker judge what it got |
//! | `truncate F N` | sets the length to N sectors |
//! | `cut F N` | makes the file N sectors shorter than it is |
//! | `grow F N` | makes it N sectors longer, up to its bound |
//! | `punch F P+N` | punches a hole of N pages from page P |
//! | `leave F P+N after US` | a client punches that hole (from an odd page on: writes there), and is gone after US microseconds; the task then syncs, writes there and reads |
//! | `sync F`, `sync-range F A+N`, `sync-all` | as they say |
//! | `close F` | closes the file, when nobody is inside, and opens it again |
//! | `load F P+N` | loads N pages of file F from page P through its map, which it gets if it has none, and has the checker judge them |
//! | `store F P+N` | stores to them |
//! | `let-go F P+N` | says of N pages of the map from page P on that they are not needed: the clean ones are dropped |
//! | `unmap F` | ends the map |
//! | `hold F P+N for K` | pins N pages from page P while it takes the next K steps; in one piece, if P is a multiple of four |
//! | `trim` | gives free memory back |
//! | `touch R P+N` | touches N pages of region R from page P |
//! | `put R A+N` | writes N sectors of region R from sector A |
//! | `get R A+N` | reads them, and has the checker judge what it got |
//! | `discard R P+N` | gives N pages of region R from page P back |
//! | `limit N` | sets the limit to N frames, where that may be |
//! | `think US` | does nothing for US microseconds |

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Sectors of a page.
pub(crate) const SECTORS: u64 = 8;
/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// One step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[allow(missing_docs, reason = "the fields are those of the table above")]
pub enum Op {
    /// `write F A+N`
    Write { file: usize, at: u64, len: u64 },
    /// `read F A+N`
    Read { file: usize, at: u64, len: u64 },
    /// `truncate F N`
    Truncate { file: usize, len: u64 },
    /// `cut F N`
    Cut { file: usize, by: u64 },
    /// `grow F N`
    Grow { file: usize, by: u64 },
    /// `punch F P+N`
    Punch { file: usize, page: u64, pages: u64 },
    /// `leave F P+N after US`
    Leave {
        file: usize,
        page: u64,
        pages: u64,
        us: u64,
    },
    /// `sync F`
    Sync { file: usize },
    /// `sync-range F A+N`
    SyncRange { file: usize, at: u64, len: u64 },
    /// `sync-all`
    SyncAll,
    /// `close F`
    Close { file: usize },
    /// `hold F P+N for K`
    Hold {
        file: usize,
        page: u64,
        pages: u64,
        steps: usize,
    },
    /// `load F P+N`
    Load { file: usize, page: u64, pages: u64 },
    /// `store F P+N`
    Store { file: usize, page: u64, pages: u64 },
    /// `let-go F P+N`
    LetGo { file: usize, page: u64, pages: u64 },
    /// `unmap F`
    Unmap { file: usize },
    /// `touch R P+N`
    Touch {
        region: usize,
        page: u64,
        pages: u64,
    },
    /// `put R A+N`
    Put { region: usize, at: u64, len: u64 },
    /// `get R A+N`
    Get { region: usize, at: u64, len: u64 },
    /// `discard R P+N`
    Discard {
        region: usize,
        page: u64,
        pages: u64,
    },
    /// `renew R`: another region takes its place; the task that is in the old one ends there.
    Renew { region: usize },
    /// `limit N`
    Limit { frames: u64 },
    /// `trim`
    Trim,
    /// `think US`
    Think { us: u64 },
}

impl Op {
    /// The word that begins it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Write { .. } => "write",
            Self::Read { .. } => "read",
            Self::Truncate { .. } => "truncate",
            Self::Cut { .. } => "cut",
            Self::Grow { .. } => "grow",
            Self::Punch { .. } => "punch",
            Self::Leave { .. } => "leave",
            Self::Sync { .. } => "sync",
            Self::SyncRange { .. } => "sync-range",
            Self::SyncAll => "sync-all",
            Self::Close { .. } => "close",
            Self::Hold { .. } => "hold",
            Self::Load { .. } => "load",
            Self::Store { .. } => "store",
            Self::LetGo { .. } => "let-go",
            Self::Unmap { .. } => "unmap",
            Self::Touch { .. } => "touch",
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Discard { .. } => "discard",
            Self::Renew { .. } => "renew",
            Self::Limit { .. } => "limit",
            Self::Trim => "trim",
            Self::Think { .. } => "think",
        }
    }

    /// Pages that one call of it may have to get memory for, at most.
    pub(crate) const fn pages(&self) -> u64 {
        match self {
            Self::Write { len, .. }
            | Self::Read { len, .. }
            | Self::Put { len, .. }
            | Self::Get { len, .. } => len.div_ceil(SECTORS) + 1,
            Self::Touch { pages, .. } => *pages,
            // Written by the client and after it, and read.
            Self::Leave { pages, .. } => 3 * (*pages + 1),
            // In one piece, for which a block as large may have to be emptied first.
            Self::Hold { pages, .. } => 3 * *pages,
            // One that goes before it was used faults again.
            Self::Load { pages, .. } | Self::Store { pages, .. } => 3 * *pages,
            // Both ends of what is cut off or out.
            Self::Truncate { .. } | Self::Cut { .. } | Self::Grow { .. } | Self::Punch { .. } => 2,
            // A cut that was owed.
            Self::Sync { .. } | Self::SyncRange { .. } | Self::SyncAll => 1,
            Self::Close { .. }
            | Self::LetGo { .. }
            | Self::Unmap { .. }
            | Self::Discard { .. }
            | Self::Renew { .. }
            | Self::Limit { .. }
            | Self::Trim
            | Self::Think { .. } => 0,
        }
    }

    /// The file that it is about.
    #[must_use]
    pub fn file(mut self) -> Option<usize> {
        self.file_mut().copied()
    }

    /// The file that it is about, to be changed.
    pub(crate) const fn file_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Write { file, .. }
            | Self::Read { file, .. }
            | Self::Truncate { file, .. }
            | Self::Cut { file, .. }
            | Self::Grow { file, .. }
            | Self::Punch { file, .. }
            | Self::Leave { file, .. }
            | Self::Sync { file }
            | Self::SyncRange { file, .. }
            | Self::Close { file }
            | Self::Load { file, .. }
            | Self::Store { file, .. }
            | Self::LetGo { file, .. }
            | Self::Unmap { file }
            | Self::Hold { file, .. } => Some(file),
            Self::Touch { .. }
            | Self::Put { .. }
            | Self::Get { .. }
            | Self::Discard { .. }
            | Self::Renew { .. }
            | Self::Limit { .. }
            | Self::SyncAll
            | Self::Trim
            | Self::Think { .. } => None,
        }
    }

    /// The region of anonymous memory that it is about.
    #[must_use]
    pub fn region(mut self) -> Option<usize> {
        self.region_mut().copied()
    }

    /// The region that it is about, to be changed.
    pub(crate) const fn region_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Touch { region, .. }
            | Self::Put { region, .. }
            | Self::Get { region, .. }
            | Self::Discard { region, .. }
            | Self::Renew { region } => Some(region),
            _ => None,
        }
    }

    /// The numbers that shrinking may make smaller, lengths first.
    pub(crate) fn numbers_mut(&mut self) -> Vec<&mut u64> {
        match self {
            Self::Write { at, len, .. }
            | Self::Read { at, len, .. }
            | Self::SyncRange { at, len, .. }
            | Self::Put { at, len, .. }
            | Self::Get { at, len, .. } => vec![len, at],
            Self::Truncate { len, .. } => vec![len],
            // A smaller limit is no simpler one.
            Self::Limit { .. } => Vec::new(),
            Self::Cut { by, .. } | Self::Grow { by, .. } => vec![by],
            Self::Hold { page, pages, .. }
            | Self::Punch { page, pages, .. }
            | Self::Load { page, pages, .. }
            | Self::Store { page, pages, .. }
            | Self::LetGo { page, pages, .. }
            | Self::Touch { page, pages, .. }
            | Self::Discard { page, pages, .. } => vec![pages, page],
            Self::Leave {
                page, pages, us, ..
            } => vec![pages, us, page],
            Self::Think { us } => vec![us],
            Self::Sync { .. }
            | Self::SyncAll
            | Self::Close { .. }
            | Self::Unmap { .. }
            | Self::Renew { .. }
            | Self::Trim => Vec::new(),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Self::Write { file, at, len }
            | Self::Read { file, at, len }
            | Self::SyncRange { file, at, len } => write!(f, " {file} {at}+{len}"),
            Self::Put { region, at, len } | Self::Get { region, at, len } => {
                write!(f, " {region} {at}+{len}")
            }
            Self::Touch {
                region,
                page,
                pages,
            }
            | Self::Discard {
                region,
                page,
                pages,
            } => write!(f, " {region} {page}+{pages}"),
            Self::Punch { file, page, pages }
            | Self::Load { file, page, pages }
            | Self::Store { file, page, pages }
            | Self::LetGo { file, page, pages } => write!(f, " {file} {page}+{pages}"),
            Self::Leave {
                file,
                page,
                pages,
                us,
            } => write!(f, " {file} {page}+{pages} after {us}"),
            Self::Truncate { file, len } => write!(f, " {file} {len}"),
            Self::Cut { file, by } | Self::Grow { file, by } => write!(f, " {file} {by}"),
            Self::Sync { file } | Self::Close { file } | Self::Unmap { file } => {
                write!(f, " {file}")
            }
            Self::Renew { region } => write!(f, " {region}"),
            Self::Hold {
                file,
                page,
                pages,
                steps,
            } => write!(f, " {file} {page}+{pages} for {steps}"),
            Self::Think { us } => write!(f, " {us}"),
            Self::Limit { frames } => write!(f, " {frames}"),
            Self::SyncAll | Self::Trim => Ok(()),
        }
    }
}

impl From<Op> for String {
    fn from(op: Op) -> Self {
        op.to_string()
    }
}

impl TryFrom<String> for Op {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = |shape: &str| format!("`{text}` is no step; it is written `{shape}`");
        let number = |word: &str, shape: &str| word.parse::<u64>().map_err(|_| wrong(shape));
        let place = |word: &str, shape: &str| word.parse::<usize>().map_err(|_| wrong(shape));
        let range = |word: &str, shape: &str| {
            let (at, len) = word.split_once('+').ok_or_else(|| wrong(shape))?;
            Ok::<_, String>((number(at, shape)?, number(len, shape)?))
        };
        match words[..] {
            ["write", file, part] => {
                let (at, len) = range(part, "write FILE FIRST+SECTORS")?;
                let file = place(file, "write FILE FIRST+SECTORS")?;
                Ok(Self::Write { file, at, len })
            }
            ["read", file, part] => {
                let (at, len) = range(part, "read FILE FIRST+SECTORS")?;
                let file = place(file, "read FILE FIRST+SECTORS")?;
                Ok(Self::Read { file, at, len })
            }
            ["sync-range", file, part] => {
                let (at, len) = range(part, "sync-range FILE FIRST+SECTORS")?;
                let file = place(file, "sync-range FILE FIRST+SECTORS")?;
                Ok(Self::SyncRange { file, at, len })
            }
            [word @ ("put" | "get"), region, part] => {
                let shape = format!("{word} REGION FIRST+SECTORS");
                let (at, len) = range(part, &shape)?;
                let region = place(region, &shape)?;
                Ok(if word == "put" {
                    Self::Put { region, at, len }
                } else {
                    Self::Get { region, at, len }
                })
            }
            [word @ ("touch" | "discard"), region, part] => {
                let shape = format!("{word} REGION PAGE+PAGES");
                let (page, pages) = range(part, &shape)?;
                let region = place(region, &shape)?;
                Ok(if word == "touch" {
                    Self::Touch {
                        region,
                        page,
                        pages,
                    }
                } else {
                    Self::Discard {
                        region,
                        page,
                        pages,
                    }
                })
            }
            [word @ ("punch" | "load" | "store" | "let-go"), file, part] => {
                let shape = format!("{word} FILE PAGE+PAGES");
                let (page, pages) = range(part, &shape)?;
                let file = place(file, &shape)?;
                Ok(match word {
                    "punch" => Self::Punch { file, page, pages },
                    "load" => Self::Load { file, page, pages },
                    "let-go" => Self::LetGo { file, page, pages },
                    _ => Self::Store { file, page, pages },
                })
            }
            ["unmap", file] => Ok(Self::Unmap {
                file: place(file, "unmap FILE")?,
            }),
            ["leave", file, part, "after", us] => {
                let shape = "leave FILE PAGE+PAGES after MICROSECONDS";
                let (page, pages) = range(part, shape)?;
                Ok(Self::Leave {
                    file: place(file, shape)?,
                    page,
                    pages,
                    us: number(us, shape)?,
                })
            }
            ["truncate", file, len] => Ok(Self::Truncate {
                file: place(file, "truncate FILE SECTORS")?,
                len: number(len, "truncate FILE SECTORS")?,
            }),
            ["cut", file, by] => Ok(Self::Cut {
                file: place(file, "cut FILE SECTORS")?,
                by: number(by, "cut FILE SECTORS")?,
            }),
            ["grow", file, by] => Ok(Self::Grow {
                file: place(file, "grow FILE SECTORS")?,
                by: number(by, "grow FILE SECTORS")?,
            }),
            ["sync", file] => Ok(Self::Sync {
                file: place(file, "sync FILE")?,
            }),
            ["close", file] => Ok(Self::Close {
                file: place(file, "close FILE")?,
            }),
            ["hold", file, part, "for", steps] => {
                let (page, pages) = range(part, "hold FILE PAGE+PAGES for STEPS")?;
                Ok(Self::Hold {
                    file: place(file, "hold FILE PAGE+PAGES for STEPS")?,
                    page,
                    pages,
                    steps: place(steps, "hold FILE PAGE+PAGES for STEPS")?,
                })
            }
            ["renew", region] => Ok(Self::Renew {
                region: place(region, "renew REGION")?,
            }),
            ["limit", frames] => Ok(Self::Limit {
                frames: number(frames, "limit FRAMES")?,
            }),
            ["think", us] => Ok(Self::Think {
                us: number(us, "think MICROSECONDS")?,
            }),
            ["sync-all"] => Ok(Self::SyncAll),
            ["trim"] => Ok(Self::Trim),
            _ => Err(format!(
                "`{text}` is no step; steps are write, read, truncate, cut, grow, punch, leave, sync, \
                 sync-range, sync-all, close, hold, load, store, let-go, unmap, touch, put, get, discard, renew, limit, trim, think, with their numbers"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_reads_as_it_is_written() {
        for text in [
            "write 0 12+8",
            "read 1 0+1",
            "truncate 2 100",
            "cut 0 20",
            "grow 0 30",
            "punch 1 3+40",
            "leave 1 3+40 after 700",
            "sync 0",
            "sync-range 0 3+4",
            "sync-all",
            "close 3",
            "hold 0 3+2 for 5",
            "load 0 3+40",
            "store 1 0+1",
            "let-go 1 3+4",
            "unmap 2",
            "touch 0 0+700",
            "put 1 12+8",
            "get 1 9+1",
            "discard 0 3+4",
            "renew 1",
            "limit 512",
            "trim",
            "think 300",
        ] {
            let op: Op = text.parse().unwrap();
            assert_eq!(op.to_string(), text);
            assert!(text.starts_with(op.name()));
        }
    }

    #[test]
    fn a_mistake_names_the_text_and_the_right_form() {
        let error = "write 0 12-8".parse::<Op>().unwrap_err();
        assert_eq!(
            error,
            "`write 0 12-8` is no step; it is written `write FILE FIRST+SECTORS`"
        );
        assert!(
            "wriet 0 1+1"
                .parse::<Op>()
                .unwrap_err()
                .contains("steps are write")
        );
    }
}
