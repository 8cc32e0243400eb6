//! The conversion of a stream, on a small one with the lines of a real guest.

use std::env;
use std::path::PathBuf;

use super::*;
use crate::guest::scenarios::all;

const TRACE: &str = "\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
    guest-writer-246     [000] .....     4.649691: tracing_mark_write: tidegate zero
              w0-249     [000] .....     5.794986: balance_dirty_pages: bdi 254:0: limit=16384 setpoint=14336 dirty=12353 bdi_setpoint=14335 bdi_dirty=12360 dirty_ratelimit=102400 task_ratelimit=197000 dirtied=64 dirtied_pause=64 paused=0 pause=0 period=0 think=0 cgroup_ino=1
   kworker/u4:1-12     [000] d..1.     5.800000: balance_dirty_pages: bdi 254:0: limit=1 setpoint=1 dirty=1 bdi_setpoint=1 bdi_dirty=1 dirty_ratelimit=1 task_ratelimit=1 dirtied=1 dirtied_pause=1 paused=0 pause=9 period=0 think=0 cgroup_ino=1
             w12-260     [000] .....     5.900000: balance_dirty_pages: bdi 254:0: limit=16384 setpoint=14336 dirty=15257 bdi_setpoint=14335 bdi_dirty=15264 dirty_ratelimit=15500 task_ratelimit=13668 dirtied=32 dirtied_pause=32 paused=0 pause=12 period=8 think=-4 cgroup_ino=1
              w0-249     [000] .....     5.955588: bdi_dirty_ratelimit: bdi 254:0: write_bw=102400 awrite_bw=102400 dirty_rate=166368 dirty_ratelimit=102400 task_ratelimit=21004 balanced_dirty_ratelimit=12924 cgroup_ino=1
";
const LOST: &str = "entries: 5\noverrun: 0\ncommit overrun: 0\nbytes: 9\ndropped events: 0\n";

/// A stream in which `name` has another content.
fn stream(name: &str, content: &str) -> Vec<u8> {
    let files = [
        ("mark", "42292"),
        (
            "writes",
            "writer,began_ns,took_ns,bytes\n12,1200000000,400,4096\n0,1000061804,2845069,1048576\n",
        ),
        (
            "vmstat",
            "nanos,nr_dirty,nr_writeback\n100000000,3,0\n11000062804,256,512\n11100062804,256,0\n",
        ),
        ("device", "nanos,device,BdiWriteback\n100000000,0,8\n"),
        ("trace", TRACE),
        ("lost", LOST),
        ("facts", "kernel=6.12.117\nnullb0.dev=254:0\n"),
        ("mbps0", "16\n"),
    ];
    let mut bytes = Vec::new();
    for (file, usual) in files {
        let content = if file == name { content } else { usual };
        bytes.extend(format!("FILE {file} {}\n{content}", content.len()).bytes());
    }
    bytes.extend(b"END\n");
    bytes
}

fn record(name: &str, content: &str) -> Result<Recording> {
    let all = all();
    let scenario = all.iter().find(|one| one.name == "one-dd").unwrap();
    let stream = Stream::parse(&stream(name, content))?;
    make(scenario, 250, &stream).map(|(recording, _)| recording)
}

#[test]
fn the_writers_events_become_rows_and_the_others_do_not() {
    let recording = record("", "").unwrap();
    let lines: Vec<_> = recording.files["pauses.csv"].lines().collect();
    assert!(lines[0].starts_with("t,writer,bdi,limit,setpoint,dirty,wb_setpoint,wb_dirty,"));
    // 5.794986 - 4.649691 of the trace, plus the mark, less the first write.
    assert_eq!(
        lines[1],
        "0.145275,0,254:0,16384,14336,12353,14335,12360,102400,197000,64,64,0,0,0,0,1"
    );
    assert!(lines[2].starts_with("0.250289,12,254:0,") && lines[2].ends_with(",12,8,-4,1"));
    assert_eq!(lines.len(), 3);
    let ratelimit: Vec<_> = recording.files["ratelimit.csv"].lines().collect();
    assert_eq!(
        ratelimit[1],
        "0.305877,0,254:0,102400,102400,166368,102400,21004,12924,1"
    );
}

#[test]
fn times_count_from_the_first_write() {
    let recording = record("", "").unwrap();
    assert_eq!(
        recording.files["writes.csv"],
        "writer,t,seconds,bytes\n0,0.000000,0.002845,1048576\n12,0.199938,0.000000,4096\n"
    );
    assert!(recording.files["vmstat.csv"].starts_with("t,nr_dirty,nr_writeback\n-0.9001,3,0\n"));
    assert!(recording.files["device.csv"].contains("-0.9001,0,8\n"));
    let summary = &recording.summary;
    // 768 and 256 pages; one pause above 0.
    assert!(
        summary.contains("dirty + writeback 2.0 MiB, 1 pauses of 12 ms"),
        "{summary}"
    );
}

#[test]
fn a_scenario_says_what_ran_and_on_what() {
    let recording = record("", "").unwrap();
    let scenario = &recording.files["scenario.toml"];
    assert!(scenario.contains("Linux 6.12.117, HZ 250, 1 CPU, 16 MiB/s, limits 64/32 MiB"));
    assert!(scenario.contains("block_kib = 1024\n") && scenario.contains("hz = 250\n"));
    let facts: Value = serde_json::from_str(&recording.files["facts.json"]).unwrap();
    assert_eq!(facts["first_writes.median_us"], 2845);
}

#[test]
fn a_recording_gets_the_scenario_that_it_has() {
    let mut seen = 0;
    for (name, file) in recorded(|name| !name.starts_with('r') || name.starts_with("rate")) {
        let scenario = all().into_iter().find(|one| one.name == name);
        let scenario = scenario.unwrap_or_else(|| panic!("there is no {name}"));
        let facts: Value = serde_json::from_str(&file("facts.json").unwrap()).unwrap();
        let text = described(&scenario, 250, facts["kernel"].as_str().unwrap());
        assert_eq!(text, file("scenario.toml").unwrap(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 19);
}

#[test]
fn what_is_lost_or_torn_is_an_error() {
    let problem = |name: &str, content: &str| record(name, content).unwrap_err();
    assert!(problem("lost", &LOST.replace("overrun: 0", "overrun: 7")).contains("lost entries"));
    assert!(problem("lost", "entries: 5\n").contains("overrun"));
    assert!(problem("mbps0", "8\n").contains("instead of 16"));
    assert!(problem("writes", "writer,began_ns,took_ns,bytes\n").contains("nobody wrote"));
    assert!(problem("writes", "x\n0,1,2\n").contains("0,1,2"));
    assert!(problem("trace", &TRACE.replace("zero", "one")).contains("mark"));
    let torn = TRACE.replace("period=8 think=-4 cgroup_ino=1", "period=8 thi");
    assert!(problem("trace", &torn).contains("thi"));
    let renamed = TRACE.replace("dirtied_pause=32", "dirtied_sleep=32");
    assert!(problem("trace", &renamed).contains("another form"));
    let more = TRACE.replace("think=0 cgroup_ino=1", "think=0 cgroup_ino=1 more=1");
    assert!(problem("trace", &more).contains("another form"));
    assert!(problem("trace", &TRACE.replace("5.900000", "5.9")).contains("none"));
}

#[test]
fn a_line_has_a_task_a_number_and_a_text() {
    let line = "    kworker/u4:1-ev-12      [000] d..1.     5.800001: wbt_step: 254:0: a=1";
    let line = Line::parse(line).unwrap();
    assert_eq!((line.command, line.pid), ("kworker/u4:1-ev", "12"));
    assert_eq!((line.event, line.text), ("wbt_step", "254:0: a=1"));
    assert_eq!(line.time_ns, 5_800_001_000);
    assert!(Line::parse("m0-3 [000] 5.800001").is_err());
}

#[test]
fn a_stream_without_its_end_is_none() {
    let whole = stream("", "");
    assert!(Stream::parse(&whole).is_ok());
    assert!(Stream::parse(&whole[..whole.len() - 4]).is_err());
    assert!(Stream::parse(&whole[..whole.len() / 2]).is_err());
    assert!(Stream::parse(&[]).is_err());
    assert!(Stream::parse(b"FILE a 9\nEND\n").is_err());
}

#[test]
fn two_recordings_differ_where_they_differ() {
    let one = record("", "").unwrap();
    assert_eq!(one.difference(&record("", "").unwrap()), None);
    let other = record("trace", &TRACE.replace("pause=12", "pause=13")).unwrap();
    let difference = one.difference(&other).unwrap();
    assert!(difference.starts_with("pauses.csv:3:"), "{difference}");
    assert_eq!(
        one.difference(&record("facts", "kernel=6.12.117\nnullb0.dev=254:0\nx=1\n").unwrap())
            .map(|d| d.starts_with("facts.json")),
        Some(true)
    );
}

#[test]
fn seconds_are_rounded_to_the_nearest() {
    assert_eq!(seconds(1_999_999_999, 1_000_000_000, 6), "1.000000");
    assert_eq!(seconds(1_000_000_000, 1_022_100_000, 4), "-0.0221");
    assert_eq!(seconds(1_000_000_000, 1_000_000_100, 6), "0.000000");
    assert_eq!(seconds(61_234_567_890, 0, 6), "61.234568");
}

/// A folder of this test alone.
fn place(name: &str) -> PathBuf {
    let place = env::temp_dir().join(format!("tidegate-record-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    place
}

#[test]
fn a_recording_replaces_one_of_its_own_kind_only() {
    let place = place("save");
    let recording = record("", "").unwrap();
    recording.save(&place.join("one-dd")).unwrap();
    recording.save(&place.join("one-dd")).unwrap();
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&place), ["one-dd"]);
    assert_eq!(names(&place.join("one-dd")).len(), 7);
    let other = place.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("precious"), "x").unwrap();
    assert!(
        recording
            .save(&other)
            .is_err_and(|problem| problem.contains("--out"))
    );
    assert_eq!(names(&other), ["precious"]);
    assert!(replaceable(&other.join("precious")).is_err());
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_long_table_is_packed_and_comes_back() {
    let place = place("pack");
    fs::create_dir_all(&place).unwrap();
    let text = "t,writer\n".repeat(20_000);
    let path = place.join("pauses.csv.gz");
    pack(&text, &path).unwrap();
    let first = fs::read(&path).unwrap();
    assert!(first.len() < text.len() / 50);
    pack(&text, &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
    let back = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
    assert_eq!(back.stdout, text.as_bytes());
    fs::remove_dir_all(&place).unwrap();
}
