//! `cargo xtask bench sample [FOLDER]...`: every trace in the folders whole, and by samples of its
//! pages: how far their hits are from those of the whole, and how far they say that they may be.
//!
//! Without a folder, the traces that are stored here.

use std::path::Path;
use std::process::ExitCode;

use replay::{Asked, ReplayError, Size, Stop, Table};

mod folders;

/// Parts of the pages that are sampled, and how often each.
const RATES: [f64; 3] = [0.1, 0.01, 0.001];
const DRAWS: u8 = 8;
const RULES: [&str; 6] = ["lru", "arc", "s3-fifo", "w-tinylfu", "reuse", "belady"];
/// Sizes, in hundredths of a trace's pages.
const SIZES: [u32; 3] = [5, 15, 40];
/// Fewer pages of a sample say nothing.
const LEAST: f64 = 500.0;

fn table(
    trace: &Path,
    sizes: Vec<Size>,
    sample: Option<f64>,
    draw: u8,
) -> Result<Option<Table>, ReplayError> {
    let asked = Asked {
        traces: vec![trace.to_owned()],
        rules: RULES.map(str::to_owned).to_vec(),
        sizes,
        sample,
        draw: draw.into(),
        ..Asked::default()
    };
    Ok(replay::tables(&asked, false, &Stop::default())?.pop())
}

/// Prints a line for each rate.
fn compare(trace: &Path) -> Result<(), ReplayError> {
    let Some(whole) = table(trace, SIZES.map(Size::Percent).to_vec(), None, 0)? else {
        return Ok(());
    };
    let sizes: Vec<Size> = whole.heads().1.into_iter().map(Size::Pages).collect();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 pages")]
    let pages = whole.pages as f64;
    for rate in RATES.into_iter().filter(|rate| rate * pages >= LEAST) {
        let mut sums = [(0.0, 0.0); RULES.len()];
        let (mut within, mut rows) = (0.0, 0.0);
        for draw in 0..DRAWS {
            let Some(sample) = table(trace, sizes.clone(), Some(rate), draw)? else {
                return Ok(());
            };
            for (exact, found) in whole.rows.iter().zip(&sample.rows) {
                let ratios = [exact, found].map(|row| row.counts.map(|counts| counts.hit_ratio()));
                let ([Some(exact), Some(ratio)], Some(error)) = (ratios, found.error) else {
                    continue;
                };
                let at = RULES.iter().position(|rule| *rule == found.rule);
                let (off, said) = &mut sums[at.unwrap_or(0)];
                *off += (ratio - exact).powi(2);
                *said += error.powi(2);
                within += f64::from(u8::from((ratio - exact).abs() <= 2.0 * error));
                rows += 1.0;
            }
        }
        print!(
            "{:<14}{:>10.0}{rate:>7}",
            folders::name(&whole.file),
            rate * pages
        );
        for (off, said) in sums {
            let each = rows / 6.0;
            let points = |sum: f64| 100.0 * (sum / each).sqrt();
            print!(
                "{:>14}",
                format!("{:.2} ({:.2})", points(off), points(said))
            );
        }
        println!("{:>6.0} %", 100.0 * within / rows);
    }
    Ok(())
}

fn main() -> ExitCode {
    let rules: String = RULES.iter().map(|rule| format!("{rule:>14}")).collect();
    println!(
        "{DRAWS} samples each: by how many points their hits are off, and by how many they say;"
    );
    println!(
        "root mean squares over {SIZES:?} % of the pages. Last: off by two standard errors at most.\n"
    );
    println!("{:<14}{:>10}{:>7}{rules}", "trace", "pages", "rate");
    let traces = folders::traces(std::env::args().skip(1).collect());
    let compared = traces.and_then(|traces| {
        let mut all = traces.iter();
        all.try_for_each(|trace| compare(trace).map_err(|error| error.to_string()))
    });
    match compared {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sample: {error}");
            ExitCode::FAILURE
        }
    }
}
