//! `cargo xtask bench rules [--live] [FOLDER]...`: every trace in the folders at three sizes under
//! every rule, and ours against the best published one of each row.
//!
//! Without a folder, the traces that are stored here. `--live` has the cache itself replay them
//! too, by its lists and by our rule; sizes that are too small for it show `-`.

use std::path::PathBuf;
use std::process::ExitCode;

use replay::{Asked, Size, Stop};

mod folders;

/// Sizes, in hundredths of a trace's pages.
const SIZES: [u32; 3] = [5, 15, 40];
/// The published rules that ours is compared with, and the points by which it may be behind in a
/// row.
const PUBLISHED: [(&str, f64); 4] = [
    ("arc", 1.0),
    ("lirs", 2.0),
    ("s3-fifo", 1.0),
    ("w-tinylfu", 1.0),
];
const OURS: &str = "reuse";
const OTHERS: [&str; 2] = ["lru", "2q"];
const LIVE: [&str; 2] = ["tidegate", "tidegate+reuse"];
const BOUND: &str = "belady";
/// Least width of a trace's name.
const NAME: usize = 22;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let live = arguments.iter().any(|word| word == "--live");
    arguments.retain(|word| word != "--live");
    let traces = match folders::traces(arguments) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("rules: {error}");
            return ExitCode::FAILURE;
        }
    };
    match compare(traces, live) {
        Ok(holds) if holds => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rules: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the table; answers whether ours holds what is wanted of it.
fn compare(traces: Vec<PathBuf>, live: bool) -> Result<bool, replay::ReplayError> {
    let published = PUBLISHED.map(|(rule, _)| rule);
    let mut rules: Vec<&str> = OTHERS.into_iter().chain(published).collect();
    rules.push(OURS);
    if live {
        rules.extend(LIVE);
    }
    rules.push(BOUND);
    let asked = Asked {
        traces,
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        sizes: SIZES.map(Size::Percent).to_vec(),
        ..Asked::default()
    };
    let tables = replay::tables(&asked, false, &Stop::default())?;
    let width = tables
        .iter()
        .map(|table| folders::name(&table.file).chars().count());
    let width = width.max().unwrap_or(0).max(NAME);
    let columns: String = rules.iter().map(|rule| format!("{rule:>15}")).collect();
    println!(
        "{:<width$}{:>9}{columns}{:>8}{:>8}",
        "trace", "pages", "-best", "-bound"
    );
    let mut sums = vec![(0.0, 0_u32); rules.len()];
    let (mut sum_of_best, mut rows, mut behind) = (0.0, 0_u32, Vec::new());
    for table in &tables {
        let (_, sizes) = table.heads();
        for pages in sizes {
            let hits = |rule: &str| Some(100.0 * table.counts(rule, pages)?.hit_ratio());
            let ours = hits(OURS).unwrap_or_default();
            let best = published.into_iter().filter_map(hits).fold(0.0, f64::max);
            let bound = hits(BOUND).unwrap_or_default();
            let name = folders::name(&table.file);
            print!("{name:<width$}{pages:>9}");
            for (rule, (sum, count)) in rules.iter().zip(&mut sums) {
                match hits(rule) {
                    Some(hits) => {
                        *sum += hits;
                        *count += 1;
                        print!("{hits:>15.2}");
                    }
                    None => print!("{:>15}", "-"),
                }
            }
            println!("{:>8.2}{:>8.2}", ours - best, ours - bound);
            sum_of_best += best;
            rows += 1;
            for (rule, most) in PUBLISHED {
                let ahead = hits(rule).unwrap_or_default() - ours;
                if ahead > most {
                    behind.push(format!("{name}, {pages} pages: {rule} by {ahead:.2}"));
                }
            }
        }
    }
    print!("{:<width$}{:>9}", "mean", "");
    let means: Vec<f64> = sums
        .iter()
        .map(|(sum, count)| sum / f64::from((*count).max(1)))
        .collect();
    for mean in &means {
        print!("{mean:>15.2}");
    }
    println!();
    let mean_of = |name: &str| {
        let at = rules.iter().position(|rule| *rule == name);
        at.map_or(0.0, |at| means[at])
    };
    println!(
        "best of the published ones, row by row: {:.2}",
        sum_of_best / f64::from(rows.max(1))
    );
    let ahead = published.iter().all(|rule| mean_of(OURS) > mean_of(rule));
    let wanted =
        "wanted: a mean above each published rule's, no row more than 1 point behind (LIRS: 2)";
    println!(
        "{wanted}: {}",
        if ahead && behind.is_empty() {
            "holds"
        } else {
            "does not hold"
        }
    );
    for row in &behind {
        println!("  behind: {row}");
    }
    Ok(ahead && behind.is_empty())
}
