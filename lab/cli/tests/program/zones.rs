//! Runs under the reclaim of Linux 3.0: they come to their end, and what was written and what
//! reclaim did add up.

use std::process::Command;

#[test]
fn a_dd_of_more_than_the_memory_ends_and_adds_up() {
    let folder = std::env::temp_dir().join(format!("tidegate-zones-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    // 160 MiB through 64 MiB. A run whose counters do not add up has failed, and so has the
    // program.
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "dd", "--column", "linux-3.0", "--out", "out"])
        .args(["--replicas", "1", "--scale", "0.015625"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let counters = std::fs::read_to_string(folder.join("out/counters.csv")).unwrap();
    let counter = |name: &str| -> u64 {
        let start = format!("ext4/linux-3.0/0,run,global,{name},");
        let mut lines = counters.lines();
        let value = lines.find_map(|line| line.strip_prefix(&start)).unwrap();
        value.parse().unwrap()
    };
    assert!(counter("pgsteal_kswapd") > 10_000);
    assert!(counter("pageoutrun") > 1);
    assert_eq!(
        counter("pgscan"),
        counter("pgscan_kswapd") + counter("pgscan_direct")
    );
    std::fs::remove_dir_all(folder).unwrap();
}
