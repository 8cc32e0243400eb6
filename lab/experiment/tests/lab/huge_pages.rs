//! Memory is touched beside copies, with huge pages and without.

use experiment::Stop;
use experiment::outcome::Outcome;
use experiment::run::{self, Cell, Column, World};
use experiment::scenario::{Scenario, Source};

/// Two iterations on 64 MiB at full size, whose huge pages are those of a real machine.
const SMALL: &str = r#"
    schema = "tidegate-exp/1"
    name = "small"
    [machine]
    cpus = 2
    memory_mib = 64
    min_free_kib = 1024
    readahead_kib = 128
    costs = "p4"
    scale_costs = true
    thp = true
    swap = { device = "sda", mib = 128 }
    node = [{ mib = 64, dma32_mib = 8, cpus = 2 }]
    [[device]]
    id = "sda"
    model = "sata2010"
    fs = "raw"
    placed_files = true
    params = { slice_sync_us = 100000, write_buffer_us = 0 }
    [[device]]
    id = "usb"
    model = "usb_stick"
    fs = "vfat"
    params = { queue_requests = 16 }
    [[task]]
    id = "test"
    kind = "thpavail"
    device = "usb"
    from = "sda"
    file_mib = 1024
    total_mib = 16
    loops = 2
    [[row]]
    name = "on"
    [[row]]
    name = "off"
    thp = false
    min_free_kib = 512
    file_systems = { usb = "ext4" }
    [[column]]
    name = "linux-3.1"
    [[column]]
    name = "linux-3.2-rc5"
    [[column]]
    name = "tidegate"
    [[column]]
    name = "linux-6.12"
    defrag = "always"
"#;

fn cell(row: usize, policy: usize) -> Cell {
    let source = Source {
        origin: "test".into(),
        text: SMALL.into(),
    };
    let (scenario, _) = Scenario::load(source, &[]).unwrap();
    let column = Column::of(&scenario.columns[policy]);
    Cell::resolve(&scenario, &scenario.rows()[row], &column)
}

fn run(cell: &Cell) -> Outcome {
    let orders = run::orders(core::slice::from_ref(cell), 1, 1);
    run::run_one(&orders[0], &World::Lab, &Stop::default()).unwrap()
}

#[test]
fn all_memory_is_touched_in_each_iteration_beside_two_copies() {
    // On so small a machine a pass at the gentlest priority looks at a page or two: reclaim for
    // a run ends all the same.
    for policy in 0..4 {
        let cell = cell(0, policy);
        let ended = run(&cell);
        let [job] = &ended.jobs[..] else {
            panic!("there is one job")
        };
        assert_eq!(job.iterations.len(), 2);
        assert!((job.touched - 2.0 * 16_384.0).abs() < 0.5, "{job:?}");
        for one in &job.iterations {
            let asked = one.counter("thp_fault_alloc") + one.counter("thp_fault_fallback");
            assert!((31.0..=32.0).contains(&asked), "{}: {one:?}", cell.policy);
            assert!(one.took_s > 0.0 && one.read > 0.0 && one.dirty > 0.0);
            assert!(one.free <= 16_384.0 / 6.0, "{one:?}");
            assert!(one.counter("pswpout") > 0.0, "{one:?}");
            let tasks = ended.tasks.iter();
            assert_eq!(tasks.filter(|task| task.name == one.alloc).count(), 1);
        }
        assert_eq!(ended.trace_hash, run(&cell).trace_hash, "{}", cell.policy);
    }
}

#[test]
fn a_row_without_huge_pages_asks_for_none() {
    let cell = cell(1, 1);
    assert_eq!(cell.devices[1].fs.as_deref(), Some("ext4"));
    assert_eq!(cell.devices[0].fs.as_deref(), Some("raw"));
    assert_eq!(cell.marks.unwrap().min.0, 256, "two zones at least");
    for one in &run(&cell).jobs[0].iterations {
        assert!(one.counter("thp_fault_fallback").abs() < 0.5, "{one:?}");
    }
}
