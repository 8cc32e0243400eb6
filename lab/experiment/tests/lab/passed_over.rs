//! Where programs want more than memory and swap hold, and files are written all the time: hogs of
//! whom none gets a page stand still until one of them gives way. It has to, within seconds: what
//! is freed goes to the writers for ever.

use experiment::metrics;
use experiment::trial::Trial;

/// A run in which all of them stood still to its end, as the machine was when it was found; 75 s of
/// it.
const MACHINE: [&str; 12] = [
    "run.replicas=1",
    "run.seed=4",
    "run.scale=0.03125",
    "machine.memory_mib=16384",
    "machine.swap.mib=256",
    "machine.reserved_percent=6.2",
    "device.disk.params.write_bytes_per_sec=130000000",
    "device.disk.params.slow_bytes_per_sec=130000000",
    "task.hog.run_s=75",
    "task.mmap.run_s=75",
    "task.writer.run_s=111",
    "machine.nodes=1",
];

#[test]
fn hogs_whom_everybody_passes_over_do_not_stand_still_for_ever() {
    let trial = Trial::load("stutterp-oom", &["tidegate"], &MACHINE).unwrap();
    let outcomes = trial.rows(&["48"]).run(|_| {}).unwrap();
    let metric = |name| metrics::by_name(name).unwrap().value(&outcomes[0]).unwrap();
    let (hogs, killed, longest) = (metric("hog_gib"), metric("oom"), metric("lat_max_ms"));
    println!("hogs {hogs:.0} GiB, {killed} killed, longest sample {longest:.0} ms");
    // Each of 24 hogs wants 655 MiB: once through is 15 GiB.
    assert!(hogs > 1000.0, "{hogs} GiB");
    assert!((1.0..=3.0).contains(&killed), "{killed} killed");
    assert!(longest < 1000.0, "the mapper: {longest} ms");
}
