//! A sample of a trace's pages says what the whole trace does, and how sure that is.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::path::PathBuf;

use replay::trace::{Reading, Trace};
use replay::{Asked, Size, Stop, Table};

#[path = "../examples/own_rule.rs"]
#[allow(dead_code, reason = "an example has a `main`")]
mod own_rule;

fn stored(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces");
    folder.join(name)
}

fn read(name: &str, reading: &Reading) -> Trace {
    Trace::read(&stored(name), reading, |_| true).unwrap()
}

fn table(asked: Asked) -> Table {
    let tables = replay::tables(&asked, false, &Stop::default()).unwrap();
    tables.into_iter().next().unwrap()
}

/// Accesses of a trace, by their pages' addresses.
fn accesses(trace: &Trace) -> Vec<(u64, bool)> {
    let address = |(page, write): (u32, bool)| (trace.addresses()[page as usize], write);
    trace.accesses().map(address).collect()
}

#[test]
fn a_sample_has_all_accesses_of_its_pages_and_no_others() {
    let name = "multi2.u64.xz";
    let whole = read(name, &Reading::default());
    let part = read(
        name,
        &Reading {
            rate: 0.25,
            ..Reading::default()
        },
    );
    let is_here = |address: &u64| part.addresses().binary_search(address).is_ok();
    let mut wanted = accesses(&whole);
    wanted.retain(|(address, _)| is_here(address));
    assert!(accesses(&part) == wanted);
    assert_eq!(part.all(), whole.all());
    // A quarter, by chance.
    let quarter = f64::from(whole.distinct()) / 4.0;
    assert!((f64::from(part.distinct()) - quarter).abs() < 0.1 * quarter);
}

#[test]
fn a_trace_that_has_no_room_ends_as_the_sample_that_has() {
    let name = "cloudphysics.u64.xz";
    let [thinned, sampled] = [(1.0, 2 << 20), (0.125, u64::MAX)].map(|(rate, memory)| {
        let reading = Reading {
            rate,
            memory,
            ..Reading::default()
        };
        read(name, &reading)
    });
    assert_eq!(thinned.rate().to_bits(), 0.125_f64.to_bits());
    assert!(accesses(&thinned) == accesses(&sampled));
    assert_eq!(thinned.all(), sampled.all());
    // As little as this holds no page.
    let reading = Reading {
        memory: 0,
        ..Reading::default()
    };
    let error = Trace::read(&stored(name), &reading, |_| true).unwrap_err();
    assert!(error.to_string().contains("--trace-memory"), "{error}");
}

/// Of one trace, by many samples of it: they lie about the whole, and as far apart as each of them
/// says.
#[test]
fn samples_are_as_near_to_the_whole_as_they_say() {
    const DRAWS: u32 = 40;
    let rules = ["lru", "s3-fifo", "reuse", "belady"].map(str::to_owned);
    let of = |sample, draw, sizes| {
        table(Asked {
            traces: vec![stored("multi2.u64.xz")],
            rules: rules.to_vec(),
            sizes,
            sample,
            draw,
            ..Asked::default()
        })
    };
    let sizes = [568, 1137, 2274].map(Size::Pages).to_vec();
    let whole = of(None, 0, sizes.clone());
    let samples: Vec<Table> = (0..DRAWS)
        .map(|draw| of(Some(0.25), draw.into(), sizes.clone()))
        .collect();
    let (mut within, mut all) = (0, 0);
    for (at, row) in whole.rows.iter().enumerate() {
        let exact = row.counts.unwrap().hit_ratio();
        assert_eq!(row.error, None);
        let (mut sum, mut squares, mut said) = (0.0, 0.0, 0.0);
        for sample in &samples {
            let found = &sample.rows[at];
            assert_eq!((&found.rule, found.pages), (&row.rule, row.pages));
            let (off, error) = (
                found.counts.unwrap().hit_ratio() - exact,
                found.error.unwrap(),
            );
            sum += off / f64::from(DRAWS);
            squares += off * off / f64::from(DRAWS);
            said += error / f64::from(DRAWS);
            within += i32::from(off.abs() <= 2.0 * error);
            all += 1;
        }
        let found = squares.sqrt();
        // At the edge of the loop, where LRU has all or nothing, it is 1.5 times what is said.
        let place = format!(
            "{} {}: off {sum:+.4}, {found:.4}, said {said:.4}",
            row.rule, row.pages
        );
        assert!(sum.abs() < 3.0 * found / f64::from(DRAWS).sqrt(), "{place}");
        assert!(found < 2.0 * said && found > said / 2.0, "{place}");
    }
    // 91 of 100 by Student's t with the seven degrees of freedom of eight parts.
    assert!(within * 100 >= all * 85, "{within} of {all}");
}

/// A page with half of all accesses is in a sample or it is not: it hits in either case.
#[test]
fn a_hot_page_that_the_sample_lacks_is_made_up_for() {
    let pages = (0..40_000_u64).map(|at| at % 2 * (1 + at / 2 % 1000));
    let bytes: Vec<u8> = pages.flat_map(u64::to_le_bytes).collect();
    let file = std::env::temp_dir().join(format!("tidegate-hot-{}.u64", std::process::id()));
    std::fs::write(&file, bytes).unwrap();
    let mut has_it = [0, 0];
    for draw in 0..16 {
        let table = table(Asked {
            traces: vec![file.clone()],
            rules: vec!["lru".to_owned()],
            sizes: vec![Size::Pages(400)],
            sample: Some(0.25),
            draw,
            ..Asked::default()
        });
        let ratio = table.rows[0].counts.unwrap().hit_ratio();
        assert!((ratio - 0.5).abs() < 0.08, "{draw}: {ratio}");
        let reading = Reading {
            rate: 0.25,
            draw,
            ..Reading::default()
        };
        let trace = Trace::read(&file, &reading, |_| true).unwrap();
        has_it[usize::from(trace.addresses()[0] == 0)] += 1;
    }
    assert!(has_it.iter().all(|times| *times > 0), "{has_it:?}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_asks_for_all_pages_is_refused_of_a_sample() {
    for (readahead, device) in [(true, None), (false, Some("slow:latency=1ms".to_owned()))] {
        let asked = Asked {
            traces: vec![stored("cs.u64.xz")],
            rules: vec!["tidegate".to_owned()],
            sample: Some(0.5),
            readahead,
            device,
            ..Asked::default()
        };
        let error = replay::tables(&asked, false, &Stop::default())
            .err()
            .unwrap();
        let said = error.to_string();
        assert!(
            said.contains("needs every page") && said.contains("0.5"),
            "{said}"
        );
    }
}

#[test]
fn a_rule_of_ones_own_is_replayed_beside_the_others() {
    let example = include_str!("../examples/own_rule.rs");
    let page = include_str!("../../../docs/study/replay.md");
    let shown = example
        .split("\n\n")
        .filter(|part| page.contains(part.trim()));
    assert!(shown.count() > 4, "docs/study/replay.md shows another rule");
    let table = table(own_rule::asked(stored("loop.u64.xz").to_str().unwrap()));
    let (rules, sizes) = table.heads();
    assert_eq!(rules, ["random", "lru", "reuse", "belady"]);
    for pages in sizes {
        let ratio = |rule| table.counts(rule, pages).unwrap().hit_ratio();
        assert!(ratio("random") <= ratio("belady"), "{pages}");
    }
    // Of a loop that has half of its pages in memory LRU hits none; any page is better.
    let half = table.heads().1[5];
    let ratio = |rule| table.counts(rule, half).unwrap().hit_ratio();
    assert!(ratio("lru") < 0.01 && ratio("random") > 0.05);
}

#[test]
fn no_rule_fails_in_the_smallest_memories_nor_beats_the_bound() {
    let pages: Vec<u64> = (0..4000_u64).map(|at| at * at % 61 + at % 7).collect();
    let trace = Trace::of_reads(&pages);
    for capacity in 1..=20 {
        let hits = |build: replay::rules::Build| {
            let mut rule = build(&trace, capacity);
            let counts = replay::run::replay(&trace, &mut *rule, capacity, &|_| true);
            counts.unwrap().hits
        };
        let all = replay::rules::ALL.iter();
        let all: Vec<_> = all.map(|(name, build)| (*name, hits(*build))).collect();
        let (_, bound) = *all.last().unwrap();
        for (name, hits) in all {
            assert!(hits <= bound, "{name}, {capacity} pages: {hits} of {bound}");
        }
    }
}
