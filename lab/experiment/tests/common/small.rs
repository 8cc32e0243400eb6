//! Small files that come and go: the scenario of runs in the lab and live.

use experiment::outcome::Outcome;
use experiment::run::{Cell, Column};
use experiment::scenario::{Scenario, Source};

/// Two tasks make files whose pages and objects are several times the memory; afterwards some
/// are looked at again.
const SMALL: &str = r#"
    schema = "tidegate-exp/1"
    name = "small"
    [machine]
    cpus = 2
    memory_mib = 48
    costs = "p3"
    [[device]]
    id = "disk"
    model = "ssd"
    params = { gc_per_tib = 0 }
    fs = "xfs"
    [[task]]
    id = "make"
    kind = "make_small"
    device = "disk"
    count = 2
    files_per_loop = 2000
    loops = 5
    file_kib = 4
    [[task]]
    id = "stat"
    kind = "stat_small"
    device = "disk"
    memory_part = 0.9
    after = true
    [[task]]
    id = "read"
    kind = "read_small"
    device = "disk"
    memory_part = 0.02
    after = true
    [[column]]
    name = "linux-5.15"
    [[column]]
    name = "linux-6.12"
    [[column]]
    name = "tidegate"
    [[column]]
    name = "linux-5.0"
    [[column]]
    name = "linux-5.0+p3"
    [[column]]
    name = "linux-5.3"
    [[column]]
    name = "patched-by-a-key"
    preset = "linux-5.0"
    boost = "linux-5.0+p3"
"#;

pub(crate) fn cell(policy: usize) -> Cell {
    let source = Source {
        origin: "test".into(),
        text: SMALL.into(),
    };
    let (scenario, _) = Scenario::load(source, &[]).unwrap();
    let column = Column::of(&scenario.columns[policy]);
    Cell::resolve(&scenario, &scenario.rows()[0], &column)
}

pub(crate) fn check(run: &Outcome) {
    let makers: Vec<_> = run.jobs.iter().filter(|job| job.makes_small).collect();
    assert_eq!(makers.len(), 2);
    for maker in makers {
        assert!((maker.bytes - 10_000.0 * 4096.0).abs() < 0.5, "{maker:?}");
        assert!((maker.files_a_round - 4_000.0).abs() < 0.5);
    }
    let of = |name: &str| run.jobs.iter().find(|job| job.name == name).unwrap();
    let (stat, read) = (of("stat"), of("read"));
    assert!(
        (stat.calls, stat.misses > 0.0) == (12_500, true),
        "{stat:?}"
    );
    assert!(read.bytes >= 270.0 * 4096.0, "{read:?}");
    let keeper = of("keeper");
    assert!(keeper.bytes > 16_384.0 * 100.0, "{keeper:?}");
}
