//! The workers: what each kind does, and the log that it leaves.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering};

use guest::Result;

use crate::system;

mod blocks;
mod files;
mod huge;
mod memory;

/// A way to use memory.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Argument],
    /// Opens and allocates all that it needs but what it touches.
    pub(crate) prepare: fn(&Arguments) -> Result<Box<dyn Work>>,
}

/// All there are.
pub(crate) const KINDS: [&Kind; 8] = [
    &memory::HOG,
    &memory::MAPPER,
    &memory::MAPWRITE,
    &blocks::RANDWRITE,
    &blocks::RANDREAD,
    &blocks::SEQ,
    &files::FSMARK,
    &huge::ALLOC,
];

/// An argument of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    Number(&'static str),
    Word(&'static str),
}

/// The end of a worker that did not run on to the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// With all it had to do.
    All = 1,
    /// With the disk: it is full.
    Full = 2,
}

/// A worker that is ready.
pub(crate) trait Work {
    /// Does its work until it is done, or for ever. From here on nothing is allocated but what is
    /// touched.
    ///
    /// # Errors
    /// A call to the kernel fails.
    fn run(&mut self, log: &Log) -> Result<Done>;
}

/// The kind of this name.
///
/// # Errors
/// There is none; the message names those there are.
pub(crate) fn kind(name: &str) -> Result<&'static Kind> {
    let found = KINDS.into_iter().find(|kind| kind.name == name);
    found.ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        format!("no kind '{name}'; there are {}", known.join(", "))
    })
}

impl Debug for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name)
    }
}

/// The arguments of a worker, as its kind wants them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments(Vec<(&'static str, Value)>);

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Number(usize),
    Word(String),
}

impl Arguments {
    /// Takes `words` for what `wanted` says.
    ///
    /// # Errors
    /// One is missing, left over or no number; the message names it.
    pub(crate) fn parse(wanted: &[Argument], words: &[&str]) -> Result<Self> {
        let mut given = words.iter();
        let mut arguments = Vec::new();
        for argument in wanted {
            let (Argument::Number(name) | Argument::Word(name)) = *argument;
            let word = given.next().ok_or_else(|| format!("{name} is missing"))?;
            let value = match argument {
                Argument::Word(_) => Value::Word((*word).to_owned()),
                Argument::Number(_) => Value::Number(
                    word.parse()
                        .map_err(|_| format!("{name} is a number, not '{word}'"))?,
                ),
            };
            arguments.push((name, value));
        }
        match given.next() {
            Some(word) => Err(format!("'{word}' is one argument too many")),
            None => Ok(Self(arguments)),
        }
    }

    /// # Panics
    /// The kind has no number of this name.
    pub(crate) fn number(&self, name: &str) -> usize {
        match self.value(name) {
            Value::Number(number) => *number,
            Value::Word(_) => panic!("{name} is a word"),
        }
    }

    /// # Panics
    /// The kind has no word of this name.
    pub(crate) fn word(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Word(word) => word,
            Value::Number(_) => panic!("{name} is a number"),
        }
    }

    fn value(&self, name: &str) -> &Value {
        let found = self.0.iter().find(|(one, _)| *one == name);
        &found.expect("a kind asks for its own arguments").1
    }
}

/// A worker's work so far, and each of its calls: memory that process 1 reads.
#[derive(Clone, Copy)]
pub(crate) struct Log {
    /// Pages touched, bytes written or read, files made.
    work: &'static AtomicU64,
    /// Start of the call that runs now; 0: none.
    begun: &'static AtomicU64,
    /// Calls that are kept.
    count: &'static AtomicU64,
    /// Calls for which there was no room.
    lost: &'static AtomicU64,
    /// `Done`; 0: not yet.
    done: &'static AtomicU64,
    /// `CALL` words each.
    calls: &'static [AtomicU64],
}

const HEAD: usize = 5;
/// Start, length (ns), count, another number.
const CALL: usize = 4;

impl Log {
    /// A log with room for `calls_max` calls.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn new(calls_max: usize) -> Result<Self> {
        let words = system::shared_words(HEAD + CALL * calls_max)?;
        let (head, calls) = words.split_at(HEAD);
        let [work, begun, count, lost, done] = head else {
            unreachable!("split at its length");
        };
        Ok(Self {
            work,
            begun,
            count,
            lost,
            done,
            calls,
        })
    }

    /// Adds to what is done. One process writes, so a load and a store are enough.
    pub(crate) fn did(&self, amount: u64) {
        let work = self.work.load(Ordering::Relaxed);
        self.work.store(work + amount, Ordering::Relaxed);
    }

    /// A call begins; answers when.
    pub(crate) fn begin(&self) -> u64 {
        let now = system::now();
        self.begun.store(now, Ordering::Relaxed);
        now
    }

    /// The call has ended.
    pub(crate) fn end(&self, began: u64, count: u64, extra: u64) {
        let took = system::now() - began;
        self.note([began, took, count, extra]);
        self.begun.store(0, Ordering::Relaxed);
    }

    /// Keeps four numbers as those of a call.
    pub(crate) fn note(&self, call: [u64; CALL]) {
        let count = self.count();
        let at = CALL * usize::try_from(count).unwrap_or(usize::MAX / CALL);
        match self.calls.get(at..at + CALL) {
            Some(room) => {
                for (word, number) in room.iter().zip(call) {
                    word.store(number, Ordering::Relaxed);
                }
                self.count.store(count + 1, Ordering::Relaxed);
            }
            None => {
                let lost = self.lost.load(Ordering::Relaxed);
                self.lost.store(lost + 1, Ordering::Relaxed);
            }
        }
    }

    /// The worker is done.
    pub(crate) fn finish(&self, done: Done) {
        self.done.store(done as u64, Ordering::Relaxed);
    }

    pub(crate) fn work(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Work, start of the call under way, calls lost, how it was done.
    pub(crate) fn state(&self) -> [u64; 4] {
        [self.work, self.begun, self.lost, self.done].map(|word| word.load(Ordering::Relaxed))
    }

    /// The calls that were kept, the oldest first.
    pub(crate) fn calls(&self) -> impl Iterator<Item = [u64; CALL]> {
        let count = usize::try_from(self.count()).unwrap_or(usize::MAX);
        self.calls.chunks_exact(CALL).take(count).map(|call| {
            let mut numbers = [0; CALL];
            for (number, word) in numbers.iter_mut().zip(call) {
                *number = word.load(Ordering::Relaxed);
            }
            numbers
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_calls_in_order_and_counts_what_has_no_room() {
        let log = Log::new(2).unwrap();
        for n in 1..=3 {
            let began = log.begin();
            assert_eq!(log.state()[1], began);
            log.did(n);
            log.end(began, n, 10 * n);
        }
        log.finish(Done::Full);
        assert_eq!(log.state(), [6, 0, 1, 2]);
        let calls: Vec<_> = log.calls().collect();
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0][2], calls[1][2], calls[1][3]), (1, 2, 20));
        assert!(calls[0][0] + calls[0][1] <= calls[1][0]);
    }

    #[test]
    fn every_kind_has_its_own_name() {
        for one in KINDS {
            let same = KINDS.iter().filter(|kind| kind.name == one.name).count();
            assert_eq!(same, 1, "{}", one.name);
        }
        assert!(kind("pig").unwrap_err().contains("fsmark"));
    }
}
