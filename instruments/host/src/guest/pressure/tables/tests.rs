//! The conversion of a stream, on a small one with the lines of a real guest.

use super::super::scenarios::all;
use super::*;

const TRACE: &str = "\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
              m0-349     [000] .....    12.872270: mm_vmscan_wakeup_kswapd: nid=0 order=0 gfp_flags=GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO
              m0-349     [000] .....    12.872300: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_HIGHUSER_MOVABLE
    kworker/u4:1-12      [000] .....    12.872500: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_NOFS
              m0-349     [000] .....    12.874300: mm_vmscan_throttled: nid=0 usec_timeout=20000 usect_delayed=4000 reason=VMSCAN_THROTTLE_ISOLATED
         kswapd0-42      [000] .....    12.874400: mm_vmscan_throttled: nid=0 usec_timeout=100000 usect_delayed=100000 reason=VMSCAN_THROTTLE_WRITEBACK
              m0-349     [000] .....    12.874800: mm_vmscan_direct_reclaim_end: nr_reclaimed=32
    kworker/u4:1-12      [000] .....    12.875500: mm_vmscan_direct_reclaim_end: nr_reclaimed=0
";
/// An event whose text has a comma.
const COMMA: &str = "   kcompactd0-33      [000] .....    13.000000: mm_compaction_end: zone_start=0x1, status=complete\n";

/// Switches of the processor: a task sleeps in its reclaim for room among the writes, and once more
/// as it is throttled.
const SWITCHES: &str = "\
              m0-349     [000] d..2.    12.872000: sched_switch: prev_comm=h0 prev_pid=347 prev_prio=120 prev_state=R ==> next_comm=m0 next_pid=349 next_prio=120
              m0-349     [000] .....    12.873000: mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_HIGHUSER_MOVABLE
              m0-349     [000] d..2.    12.873200: sched_switch: prev_comm=m0 prev_pid=349 prev_prio=120 prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120
              m0-349     [000] d..2.    12.873200: <stack trace>
 => __schedule
 => schedule
 => io_schedule
 => rq_qos_wait
 => shrink_folio_list
          <idle>-0       [000] d.h1.    12.874200: sched_waking: comm=m0 pid=349 prio=120 target_cpu=000
          <idle>-0       [000] d..2.    12.874500: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=m0 next_pid=349 next_prio=120
              m0-349     [000] .....    12.874600: mm_vmscan_direct_reclaim_end: nr_reclaimed=32
              m0-349     [000] d..2.    12.874800: sched_switch: prev_comm=m0 prev_pid=349 prev_prio=120 prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120
              m0-349     [000] d..2.    12.874800: <stack trace>
 => schedule_timeout
 => reclaim_throttle
          <idle>-0       [000] d.h1.    12.874900: sched_waking: comm=m0 pid=349 prio=120 target_cpu=000
          <idle>-0       [000] d..2.    12.874950: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=m0 next_pid=349 next_prio=120
              m0-349     [000] .....    12.874960: mm_vmscan_throttled: nid=0 usec_timeout=20000 usect_delayed=4000 reason=VMSCAN_THROTTLE_ISOLATED
";

const FILES: [(&str, &str); 22] = [
    (
        "facts",
        "kernel=6.12.117\nswaps=Filename Type\nswaps=/dev/nullb1 partition\nvm.lowmem_reserve_ratio=256 32\nvm.min_free_kbytes=2752\nvm.swappiness=60\nnullb0.queue.nr_requests=64\nnullb1.queue.nr_requests=64\n",
    ),
    ("hist.mm_vmscan_write_folio", "Totals:\n"),
    (
        "lost",
        "entries: 5\noverrun: 0\ncommit overrun: 0\ndropped events: 0\n",
    ),
    (
        "meminfo",
        "MemTotal:         476036 kB\nHugePages_Total:       0\n",
    ),
    ("samples.h0", ""),
    ("samples.h1", "12900000000,1000000,256,1\n"),
    (
        "samples.m0",
        "12872000000,3000000,2048,0\n12890000000,1000000,2048,0\n",
    ),
    ("samples.w0", "7003064000,2578377,1048576,57671680\n"),
    (
        "series.buddyinfo",
        "@ 6000000000 49\nNode 0, zone      DMA      0      1   2 3 4 5 6 \n\n",
    ),
    (
        "series.vmstat",
        "@ 6000011000 83\nnr_free_pages 106406\nnr_inactive_file 1\nnr_active_file 2\npgscan_direct 5\npswpout 0\n\n@ 6100000000 16\n100000 1 2 65 7 \n",
    ),
    ("threads.after", "42,kswapd0,0,314\n50,kworker/u4:1,0,7\n"),
    ("threads.before", "42,kswapd0,0,100\n50,kworker/u4:1,0,7\n"),
    (
        "times",
        "base=6000000000\nzero=7000000000\nend=52000000000\nlate=5376097\n",
    ),
    ("trace.0000", TRACE),
    ("work", "6000011000,0,0,0,0\n6100000000,1048576,9,0,1\n"),
    ("worker.h0", "begun=12000000000"),
    ("worker.h1", ""),
    ("worker.m0", ""),
    ("worker.w0", ""),
    (
        "zoneinfo",
        "Node 0, zone    DMA32\n  per-node stats\n      nr_dirty 3\n  pages free     105542\n        boost    0\n        min      663\n        high:  378\n",
    ),
    ("zoneinfo.end", "Node 0, zone    DMA32\n"),
    (
        "series.slabinfo",
        "@ 6000000000 140\nslabinfo - version: 2.1\ndentry   21 42 192 21 1 : tunables 0 0 0 : slabdata 1 2 0\nother    21 42 192 21 1 : tunables 0 0 0 : slabdata 1 2 0\n\n",
    ),
];

/// A worker's state, in which the first keys are as given.
fn state(given: &str) -> String {
    let usual = "work=9\nbegun=0\nlost=0\ndone=0\nstatus=9\nearly=0\nuser_us=13776\nsystem_us=1650367\nminflt=1\nmajflt=2\nnvcsw=3\nnivcsw=4\nmaxrss_kib=5\n";
    let key = given.split('=').next().unwrap_or_default();
    let rest: Vec<_> = usual
        .lines()
        .filter(|line| key.is_empty() || !line.starts_with(&format!("{key}=")))
        .collect();
    format!("{given}\n{}", rest.join("\n"))
        .trim_start()
        .to_owned()
}

/// A recording, with another content of the file `name`.
fn record(name: &str, content: &str) -> Result<(Recording, Measures)> {
    record_with(&[], name, content)
}

/// The same, with settings turned.
fn record_with(settings: &[&str], name: &str, content: &str) -> Result<(Recording, Measures)> {
    let mut scenario = all().into_iter().find(|one| one.name == "r1-4").unwrap();
    for setting in settings {
        scenario.set(setting)?;
    }
    let mut bytes = Vec::new();
    for (file, usual) in FILES {
        let content = if file == name { content } else { usual };
        let content = if file.starts_with("worker.") {
            state(content)
        } else {
            content.to_owned()
        };
        bytes.extend(format!("FILE {file} {}\n{content}", content.len()).bytes());
    }
    bytes.extend(b"END\n");
    make(&scenario, 250, &Stream::parse(&bytes)?)
}

fn problem(name: &str, content: &str) -> String {
    match record(name, content) {
        Ok(_) => panic!("{name} was taken"),
        Err(problem) => problem,
    }
}

fn file(name: &str) -> String {
    let (recording, _) = record("", "").unwrap();
    recording.file(name).to_owned()
}

fn summary() -> Value {
    serde_json::from_str(&file("summary.json")).unwrap()
}

#[test]
fn lines_of_the_trace_become_rows() {
    let rows = file("events.csv");
    let rows: Vec<_> = rows.lines().collect();
    assert_eq!(rows[0], "t,task,pid,event,fields");
    assert_eq!(
        rows[1],
        "5.872270,m0,349,mm_vmscan_wakeup_kswapd,nid=0 order=0 gfp_flags=GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO"
    );
    assert!(rows[3].starts_with("5.872500,kworker/u4:1,12,mm_vmscan_direct_reclaim_begin,"));
    assert_eq!(rows.len(), 8);
    let (recording, _) = record("trace.0000", COMMA).unwrap();
    let wanted = "6.000000,kcompactd0,33,mm_compaction_end,\"zone_start=0x1, status=complete\"\n";
    assert!(recording.file("events.csv").ends_with(wanted));
}

#[test]
fn waits_and_stalls_are_summed_by_who() {
    let summary = summary();
    let isolated = &summary["throttled"]["direct ISOLATED"];
    assert_eq!((&isolated["n"], &isolated["full"]), (&json!(1), &json!(0)));
    assert_eq!(isolated["sum_ms"], json!(4.0));
    let kswapd = &summary["throttled"]["kswapd WRITEBACK"];
    assert_eq!(
        (&kswapd["full"], &kswapd["timeout_ms"]),
        (&json!(1), &json!(100.0))
    );
    // Two reclaims that overlap, each from its own begin.
    assert_eq!(summary["direct_reclaim_ms"]["m0"]["max"], json!(2.5));
    assert_eq!(
        summary["direct_reclaim_ms"]["kworker/u4:1"]["max"],
        json!(3.0)
    );
    assert_eq!(summary["kthread_cpu_s"], json!({"kswapd0": 2.14}));
    assert_eq!(summary["trace"]["events"]["mm_vmscan_throttled"], json!(2));
}

#[test]
fn the_time_of_a_call_goes_to_the_processor_the_queue_for_it_and_causes() {
    let (recording, _) = record_with(&["waits=8"], "trace.0000", SWITCHES).unwrap();
    let summary: Value = serde_json::from_str(recording.file("summary.json")).unwrap();
    let parts = json!({
        "processor": 1.125,
        "reclaim: processor": 0.15,
        "reclaim: room among writes": 0.5,
        "reclaim: waiting for it": 0.15,
        "throttled ISOLATED": 0.05,
        "waiting for it": 0.025,
    });
    assert_eq!(summary["waits_ms"]["m0"]["all"], parts);
    assert_eq!(
        summary["waits_s"]["m0"]["reclaim: room among writes"],
        json!(0.001)
    );
    let rows = recording.file("waits.csv");
    assert!(rows.starts_with("t,task,what,ms\n"), "{rows}");
    assert!(
        rows.contains("\n5.873200,m0,reclaim: room among writes,1.000\n"),
        "{rows}"
    );
    assert!(!recording.file("events.csv").contains("sched_"));
}

#[test]
fn calls_are_rows_and_one_under_way_is_not_finished() {
    let rows = file("samples.csv");
    let rows: Vec<_> = rows.lines().collect();
    assert_eq!(rows[1], "0.003064,w0,randwrite,2.578377,1048576,57671680,1");
    assert_eq!(rows[2], "5.000000,h0,hog,40000.000000,0,0,0");
    assert_eq!(rows[3], "5.872000,m0,mapper,3.000000,2048,0,1");
    let m0 = &summary()["workers"]["m0"];
    assert_eq!((&m0["calls"], &m0["ms_p50"]), (&json!(2), &json!(1.0)));
    assert_eq!(
        (&m0["ms_mean"], &m0["system_ms"]),
        (&json!(2.0), &json!(1650.367))
    );
    assert_eq!(summary()["workers"]["h0"]["unfinished_ms"], json!(40_000.0));
    assert!(file("work.csv").ends_with("-0.900000,1048576,9,0,1\n"));
}

#[test]
fn counters_are_tables_and_grow() {
    assert_eq!(
        file("vmstat.csv"),
        "t,nr_free_pages,nr_inactive_file,nr_active_file,pgscan_direct,pswpout\n-0.999989,106406,1,2,5,0\n-0.900000,100000,1,2,65,7\n"
    );
    let summary = summary();
    assert_eq!(
        summary["vmstat_delta"],
        json!({"pgscan_direct": 60, "pswpout": 7})
    );
    assert_eq!(
        summary["vmstat_last"],
        json!({"nr_free_pages": 100_000, "nr_inactive_file": 1, "nr_active_file": 2})
    );
    let (_, measures) = record("", "").unwrap();
    assert_eq!(
        (measures.scanned, measures.swapped_out, measures.calls),
        (60, 7, 4)
    );
    assert!(file("buddyinfo.csv").ends_with("\n-1.000000,0,DMA,0,1,2,3,4,5,6\n"));
    assert!(file("slabinfo.csv").ends_with("num_slabs\n-1.000000,dentry,21,42,192,21,1,1,2\n"));
}

#[test]
fn a_recording_says_what_ran_and_on_what() {
    let scenario = file("scenario.toml");
    assert!(scenario.contains("Linux 6.12.117, 1 CPU, "), "{scenario}");
    assert!(scenario.contains("preempt_hz = 250\n"), "{scenario}");
    let facts: Value = serde_json::from_str(&file("facts.json")).unwrap();
    assert_eq!(facts["swaps"], "Filename Type; /dev/nullb1 partition");
    assert_eq!(facts["meminfo_kib.MemTotal"], json!(476_036));
    let zone = json!({"pages free": 105_542, "boost": 0, "min": 663});
    assert_eq!(facts["zones_pages"]["node0.DMA32"], zone);
    assert_eq!(facts["sampler_latest_ms"], json!(5.376_097));
    assert_eq!(file("hist.mm_vmscan_write_folio.txt"), "Totals:\n");
}

#[test]
fn what_is_lost_or_torn_is_an_error() {
    let lost = "overrun: 7\ncommit overrun: 0\ndropped events: 0\n";
    assert!(problem("lost", lost).contains("lost entries"));
    assert!(problem("worker.m0", "lost=3").contains("3 calls of worker m0"));
    assert!(problem("worker.h1", "status=256").contains("h1 failed"));
    assert!(problem("samples.m0", "1,2,3\n").contains("1,2,3"));
    assert!(problem("trace.0000", "no line at all\n").contains("no line at all"));
    let torn = TRACE.replace("usect_delayed=4000 ", "");
    assert!(problem("trace.0000", &torn).contains("another form"));
    assert!(problem("series.vmstat", "@ 1 99\nx 1\n").contains("torn"));
    let fewer = "@ 1 8\na 1\nb 2\n\n@ 2 2\n1 \n";
    assert!(problem("series.vmstat", fewer).contains("1 counters"));
    assert!(problem("times", "base=1\n").contains("'zero'"));
    assert!(problem("facts", "a=b\n").contains("what kernel"));
}

#[test]
fn a_worker_that_the_kernel_ended_is_in_the_summary() {
    let (recording, _) = record("worker.h1", "early=1").unwrap();
    let summary: Value = serde_json::from_str(recording.file("summary.json")).unwrap();
    assert_eq!(summary["workers"]["h1"]["killed_by_kernel"], json!(true));
    assert_eq!(summary["workers"]["h0"]["killed_by_kernel"], json!(false));
}
