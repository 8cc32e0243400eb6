//! Each paper's tables of runs made by hand, as they are stored in `golden/`, byte for byte.

use super::*;
use experiment::experiments;
use experiment::outcome::{Iteration, Outcome, TaskCpu, ThrottleCount, ThrottleEnd, VmSeries};
use experiment::pool;
use experiment::scenario::Scenario;
use policy::reclaim::Reason;

#[track_caller]
fn is(experiment: &str, runs: &[Outcome], columns: &[&str], golden: &str) {
    let source = experiments::by_name(experiment).unwrap();
    let (scenario, _) = Scenario::load(source, &[]).unwrap();
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    let text = Report::new(&scenario, runs, columns).papers();
    let text = text.expect("tables of a paper");
    for (at, (own, stored)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(own, stored, "line {}", at + 1);
    }
    assert_eq!(text, golden);
}

#[test]
fn p0_has_latencies_totals_and_delays() {
    let run = |case: &str, policy: &str, lengths: [f64; 2]| {
        let throttle = |delayed_ms, count| ThrottleCount {
            background: false,
            reason: Reason::NoProgress,
            timeout_ms: 500.0,
            delayed_ms,
            ended: ThrottleEnd::Timeout,
            count,
        };
        Outcome {
            case: case.into(),
            policy: policy.into(),
            scale: 0.5,
            cpu_scale: 1.0,
            virtual_s: 100.0,
            jobs: vec![Job {
                is_mapper: true,
                samples: lengths.iter().map(|length| (0.0, *length)).collect(),
                ..Job::default()
            }],
            throttles: vec![throttle(500.0, 3), throttle(0.0, 1)],
            counters: vec![("pgscan_direct", 50.0), ("pgscan_kswapd", 150.0)],
            ..Outcome::default()
        }
    };
    let columns = ["linux-5.15", "linux-5.16-rc1", "tidegate"];
    let mut runs = vec![
        run("4", columns[0], [30.0, 34.0]),
        run("7", columns[0], [40.0, 40.0]),
        run("4", columns[1], [64.0, 64.0]),
        run("7", columns[1], [20.0, 20.0]),
    ];
    let together = pool::rows_together(&runs, &["4", "7"].map(str::to_owned));
    runs.extend(together);
    is("stutterp", &runs, &columns, include_str!("golden/p0.txt"));
}

const ZONES: [&str; 3] = ["linux-3.0", "linux-3.0+zlcfirst", "linux-3.0+zlc"];

/// A run of `jobs` in the first column alone.
fn zoned(case: &str, job: Job) -> Outcome {
    Outcome {
        case: case.into(),
        policy: ZONES[0].into(),
        scale: 0.5,
        cpu_scale: 1.0,
        virtual_s: 100.0,
        jobs: vec![job],
        counters: vec![
            ("pgscan_direct", 3_000.0),
            ("pgsteal_direct", 1_999.0),
            ("pgscan_kswapd", 0.0),
            ("pgsteal_kswapd", 0.0),
            ("pgpgin", 10.0),
        ],
        ..Outcome::default()
    }
}

#[test]
fn p2_has_a_copy_with_changes_of_2011() {
    let run = zoned(
        "zone-dd",
        Job {
            fills_memory: true,
            parts: vec![("download", 58.6), ("copy", 300.4), ("delete", 0.2)],
            ..Job::default()
        },
    );
    is("zone-dd", &[run], &ZONES, include_str!("golden/p2-dd.txt"));
}

#[test]
fn p2_has_rounds_of_files_in_each_row() {
    let job = Job {
        fills_memory: true,
        files_a_round: 100.0,
        samples: vec![(1.0, 1_000.0), (3.0, 2_000.0)],
        ..Job::default()
    };
    let runs = [zoned("zone-fsmark", job.clone()), zoned("another", job)];
    is(
        "zone-fsmark",
        &runs,
        &ZONES,
        include_str!("golden/p2-fsmark.txt"),
    );
}

/// At half size: rounds of 80 000 files in four seconds; file pages are half gone at 6 s.
#[test]
fn p3_has_files_a_second_composition_and_the_merged_fix() {
    let names = [
        "nr_free_pages",
        "nr_active_file",
        "nr_inactive_file",
        "nr_dirty",
        "nr_writeback",
        "nr_slab_reclaimable",
        "nr_slab_unreclaimable",
        "pgsteal_kswapd",
        "pgsteal_direct",
        "slab_freed",
        "pginodesteal",
        "kswapd_inodesteal",
    ];
    let row = |at: f64, file: f64, slab: f64, freed: f64| {
        let values = [
            100.0, 0.0, file, 1.0, 0.0, slab, slab, freed, 0.0, 0.0, 0.0, 0.0,
        ];
        (at, values.to_vec())
    };
    let run = |policy: &str| Outcome {
        case: "row".into(),
        policy: policy.into(),
        scale: 0.5,
        cpu_scale: 1.0,
        virtual_s: 8.0,
        jobs: vec![Job {
            makes_small: true,
            files_a_round: 80_000.0,
            moved_s: 8.0,
            samples: (1..=27).map(|round| (f64::from(round), 2_000.0)).collect(),
            ..Job::default()
        }],
        vmstat: VmSeries {
            names: names.to_vec(),
            rows: vec![
                row(2.0, 50.0, 10.0, 0.0),
                row(4.0, 100.0, 25.0, 5.0),
                row(6.0, 50.0, 50.0, 9.0),
                row(8.0, 10.0, 95.0, 9.0),
            ],
        },
        counters: vec![("kswapd_inodesteal", 3.0), ("pginodesteal", 0.0)],
        ..Outcome::default()
    };
    let columns = ["linux-5.0", "linux-5.0+p3"];
    let runs = columns.map(run);
    is(
        "fsmark-small",
        &runs,
        &columns,
        include_str!("golden/p3.txt"),
    );
}

#[test]
fn p4_has_times_with_their_deviations_and_every_iteration() {
    let one = |number: u8, took_s: f64, huge: f64| Iteration {
        alloc: format!("alloc-{number}"),
        took_s,
        huge,
        runs_free: 20.0,
        dirty: 51_200.0,
        read: 40e6,
        counters: vec![("thp_fault_alloc", huge), ("thp_fault_fallback", 90.0)],
        ..Iteration::default()
    };
    let cpu = |name: &str, system_s: f64| TaskCpu {
        name: name.into(),
        system_s,
        ..TaskCpu::default()
    };
    let source = experiments::by_name("thpavail").unwrap();
    let (scenario, _) = Scenario::load(source, &[]).unwrap();
    let entry = scenario.published.first().expect("published values");
    let case = entry.row.get_ref().clone();
    let base = entry.column.get_ref().clone();
    let run = |policy: &str, slower: f64| Outcome {
        case: case.clone(),
        policy: policy.into(),
        scale: 0.5,
        cpu_scale: 1.0,
        jobs: vec![Job {
            kind: "thpavail",
            ended_s: 60.0,
            iterations: vec![
                one(1, 2.0 * slower, 10.0),
                one(2, 4.0, 20.0),
                one(3, 12.0, 0.0),
            ],
            ..Job::default()
        }],
        tasks: vec![
            cpu("alloc-1", 1.0),
            cpu("alloc-2", 2.0 * slower),
            cpu("alloc-3", 3.0),
        ],
        counters: vec![
            ("swap_total", 1.0),
            ("pgscan_direct", 900.0),
            ("pgscan_kswapd", 100.0),
            ("compact_stall", 9.0),
        ],
        ..Outcome::default()
    };
    let columns = [base.as_str(), "another-column-with-a-long-name", "tidegate"];
    let runs = [run(columns[0], 1.0), run(columns[1], 3.5)];
    is("thpavail", &runs, &columns, include_str!("golden/p4.txt"));
}
