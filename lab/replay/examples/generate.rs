//! `cargo run --release -p tidegate-replay --example generate -- ACCESSES`: a trace of that many
//! page numbers on standard output, 8 bytes each (`--format u64`), always the same one.
//!
//! Of sixteen accesses eleven are of ten million pages after Zipf (exponent 1), four go round a
//! million pages, and one is of a page that never comes again.

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

/// Pages that are accessed after Zipf, pages of the loop, and the numbers at which the others
/// begin.
const ZIPF: f64 = 10e6;
const LOOP: u64 = 1_000_000;
const LOOP_FROM: u64 = 1 << 32;
const ONCE_FROM: u64 = 1 << 40;

/// SplitMix64, Steele et al., OOPSLA 2014.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.0;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }
}

/// The page of that rank is hit as often as `ln((rank + 1) / rank)` says, nearly `1 / rank`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "53 bits of a number from 0 to 1, and a rank"
)]
fn zipf(random: u64) -> u64 {
    let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
    (part * ZIPF.ln()).exp() as u64
}

fn write(accesses: u64) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, std::io::stdout().lock());
    let (mut random, mut looped) = (Random(1), 0);
    for at in 0..accesses {
        let number = random.next();
        let page = match number % 16 {
            0..11 => zipf(number),
            11..15 => {
                looped = (looped + 1) % LOOP;
                LOOP_FROM + looped
            }
            _ => ONCE_FROM + at,
        };
        out.write_all(&page.to_le_bytes())?;
    }
    out.flush()
}

fn main() -> ExitCode {
    let word = std::env::args().nth(1).unwrap_or_default();
    let Ok(accesses) = word.replace('_', "").parse() else {
        eprintln!("generate: `{word}` is no number of accesses");
        return ExitCode::FAILURE;
    };
    match write(accesses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}
