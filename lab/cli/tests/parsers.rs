//! Every parser: from bytes to a checked value or a typed error, never a panic.
//!
//! `PARSERS` lists them, one a line, with good inputs; to add one is to add a line. Each input is a
//! good one with a few edits, which proptest shrinks when a parser fails. The shrunk input is
//! written to `corpus/NAME/`, where it stays as a case of its own.
//!
//! Without more, as many inputs are tried as take a moment, the same each time.
//! `TIDEGATE_FUZZ_SECONDS=60` tries each parser for so long, `TIDEGATE_FUZZ_FROM=7` with other
//! inputs; `TIDEGATE_FUZZ=NAME` tries one alone.

mod good;
/// Properties of the NBD protocol; the corpus of `nbd` is tried over there.
#[path = "../../../doors/nbd/fuzz/checks.rs"]
mod protocol;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// A parser, and good inputs for it.
struct Parser {
    name: &'static str,
    parse: fn(&[u8]),
    good: fn() -> Vec<Vec<u8>>,
}

const PARSERS: &[Parser] = &[
    parser("arguments", good::arguments, good::command_lines),
    parser("scenario", good::scenario, good::scenarios),
    parser("override", good::set, good::sets),
    parser("tables", good::tables, good::recordings),
    parser("pressure", good::pressure, good::recordings_of_pressure),
    parser("trace", good::trace, good::traces),
    parser("change", good::change, good::changes),
    parser("server", good::server, good::configurations),
    parser("volume", good::volume, good::volumes),
    parser("wrapper", good::wrapper, good::wrappers),
    parser("figure", good::figure, good::figures),
    parser("member", good::member, good::members),
    parser("handshake", protocol::handshake, || {
        good::corpus_of_nbd("handshake")
    }),
    parser("requests", protocol::requests, || {
        good::corpus_of_nbd("requests")
    }),
    parser("client", protocol::client, || good::corpus_of_nbd("client")),
];

const fn parser(name: &'static str, parse: fn(&[u8]), good: fn() -> Vec<Vec<u8>>) -> Parser {
    Parser { name, parse, good }
}

/// Inputs tried of each parser, unless a time is given.
const INPUTS: u32 = 250;

/// The inputs: numbers at their ends, and words with a meaning somewhere.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "64",
    "1000",
    "0.5",
    "-0.0",
    "1e308",
    "1e-308",
    "nan",
    "inf",
    "-inf",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "0x",
    "1/8",
    "1/0",
    "64MiB",
    "1TB",
    "-64MiB",
    "10s",
    "999h",
    "=",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "(",
    ")",
    "\"",
    "'",
    ":",
    "::",
    "/",
    ",",
    ",,",
    ".",
    "..",
    "+",
    "-",
    "--",
    "#",
    "@",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "\u{e4}",
    "\u{1f600}",
    "\u{feff}",
    "true",
];

/// One change of an input. Places are parts of its length, in 65536ths.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Flip {
        at: u16,
        bit: u8,
    },
    Cut {
        at: u16,
        bytes: u8,
    },
    Put {
        at: u16,
        word: usize,
    },
    /// In place of the next number.
    Number {
        at: u16,
        word: usize,
    },
    DropLine {
        at: u16,
    },
    /// A line again, elsewhere.
    CopyLine {
        from: u16,
        to: u16,
    },
    End {
        at: u16,
    },
    /// One word, very often.
    Fill {
        at: u16,
        word: usize,
        times: u16,
    },
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<u16>;
    let word = || 0..WORDS.len();
    let edit = prop_oneof![
        1 => (at(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip { at, bit }),
        1 => (at(), 1..9_u8).prop_map(|(at, bytes)| Edit::Cut { at, bytes }),
        1 => (at(), word()).prop_map(|(at, word)| Edit::Put { at, word }),
        4 => (at(), word()).prop_map(|(at, word)| Edit::Number { at, word }),
        1 => at().prop_map(|at| Edit::DropLine { at }),
        1 => (at(), at()).prop_map(|(from, to)| Edit::CopyLine { from, to }),
        1 => at().prop_map(|at| Edit::End { at }),
        1 => (at(), word(), 1..300_u16).prop_map(|(at, word, times)| Edit::Fill { at, word, times }),
    ];
    prop::collection::vec(edit, 1..=5)
}

fn place(at: u16, bytes: &[u8]) -> usize {
    bytes.len() * usize::from(at) / 65_536
}

/// The line at a place, with its end.
fn line(at: u16, bytes: &[u8]) -> core::ops::Range<usize> {
    let at = place(at, bytes);
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n');
    let end = bytes[at..].iter().position(|byte| *byte == b'\n');
    start.map_or(0, |start| start + 1)..end.map_or(bytes.len(), |end| at + end + 1)
}

fn number(at: u16, bytes: &[u8]) -> Option<core::ops::Range<usize>> {
    let at = place(at, bytes);
    let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
    let is_more = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = bytes[start..].iter().position(|byte| !is_more(byte));
    Some(start..end.map_or(bytes.len(), |end| start + end))
}

fn edited(good: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let word = |word: usize| WORDS[word].bytes();
    for edit in edits {
        match *edit {
            Edit::Flip { at, bit } => {
                let at = place(at, &bytes);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Edit::Cut { at, bytes: count } => {
                let at = place(at, &bytes);
                let end = bytes.len().min(at + usize::from(count));
                bytes.drain(at..end);
            }
            Edit::Put { at, word: put } => {
                let at = place(at, &bytes);
                bytes.splice(at..at, word(put));
            }
            Edit::Number { at, word: put } => {
                if let Some(range) = number(at, &bytes) {
                    bytes.splice(range, word(put));
                }
            }
            Edit::DropLine { at } => drop(bytes.drain(line(at, &bytes))),
            Edit::CopyLine { from, to } => {
                let copied = bytes[line(from, &bytes)].to_vec();
                let to = line(to, &bytes).start;
                bytes.splice(to..to, copied);
            }
            Edit::End { at } => bytes.truncate(place(at, &bytes)),
            Edit::Fill {
                at,
                word: put,
                times,
            } => {
                let at = place(at, &bytes);
                bytes.splice(at..at, WORDS[put].repeat(usize::from(times)).bytes());
            }
        }
    }
    bytes
}

fn corpus(parser: &Parser) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parsers/corpus");
    folder.join(parser.name)
}

fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

/// Tries inputs from `seed` on; how many.
fn try_some(parser: &Parser, good: &[Vec<u8>], seed: u64) -> u32 {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: INPUTS,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let inputs = (0..good.len(), edits());
    let tried = TestRunner::new_with_rng(config, random).run(&inputs, |(at, edits)| {
        (parser.parse)(&edited(&good[at], &edits));
        Ok(())
    });
    match tried {
        Ok(()) => INPUTS,
        Err(TestError::Fail(why, (at, edits))) => {
            let input = edited(&good[at], &edits);
            let mut hasher = DefaultHasher::new();
            input.hash(&mut hasher);
            let kept = corpus(parser);
            std::fs::create_dir_all(&kept).unwrap();
            let kept = kept.join(format!("found-{:016x}", hasher.finish()));
            std::fs::write(&kept, &input).unwrap();
            panic!("{}: {why}: {}", parser.name, kept.display());
        }
        Err(TestError::Abort(why)) => panic!("{}: {why}", parser.name),
    }
}

fn all(what: impl Fn(&Parser)) {
    let one = std::env::var("TIDEGATE_FUZZ").ok();
    let wanted = |parser: &&Parser| one.as_deref().is_none_or(|one| one == parser.name);
    let mut failed = Vec::new();
    for parser in PARSERS.iter().filter(wanted) {
        // All of them are tried, whatever comes of the others.
        if catch_unwind(AssertUnwindSafe(|| what(parser))).is_err() {
            failed.push(parser.name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn what_failed_once_does_not_again() {
    all(|parser| {
        let Ok(files) = std::fs::read_dir(corpus(parser)) else {
            return;
        };
        for file in files {
            let path = file.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            if let Err(panic) = catch_unwind(|| (parser.parse)(&input)) {
                eprintln!("failed for {}", path.display());
                resume_unwind(panic);
            }
        }
    });
}

#[test]
fn any_bytes_are_parsed_or_refused() {
    let seconds = asked("TIDEGATE_FUZZ_SECONDS").map(Duration::from_secs);
    let from = asked("TIDEGATE_FUZZ_FROM").unwrap_or(0);
    all(|parser| {
        let good = (parser.good)();
        assert!(!good.is_empty(), "{}", parser.name);
        good.iter().for_each(|input| (parser.parse)(input));
        let (began, mut tried) = (Instant::now(), 0);
        for seed in from.. {
            tried += try_some(parser, &good, seed);
            if seconds.is_none_or(|seconds| began.elapsed() >= seconds) {
                break;
            }
        }
        println!(
            "{:<10} {tried:>8} inputs in {:.1?}",
            parser.name,
            began.elapsed()
        );
    });
}
