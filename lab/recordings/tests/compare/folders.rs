//! Recordings that can be used, recordings that cannot, and what is said.

use std::path::{Path, PathBuf};

use experiment::scenario::{Scenario, Source};
use recordings::change::{Change, ChangeError, turn};
use recordings::differ::differences;
use recordings::kind::THROTTLING;
use recordings::{Asked, Recording, Setting, compare, figures, lab, measure};

use super::fixture::{changed, copy, fixture, folder, unpacked};

/// The complaint about a recording that cannot be used, without the folder's name.
fn fault(path: &Path) -> String {
    let said = Recording::load(path).expect_err("a fault").to_string();
    std::fs::remove_dir_all(path).unwrap();
    format!("\n{}\n", said.replace(&format!("{}/", path.display()), ""))
}

/// Line `number` of a text replaced.
fn line(text: &str, number: usize, new: &str) -> String {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, old)| if index + 1 == number { new } else { old });
    lines.map(|line| format!("{line}\n")).collect()
}

/// A recording that is checked in.
fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../recordings/held")
        .join(name)
}

fn change(set: &str) -> Result<Change, ChangeError> {
    Change::parse(&THROTTLING, set)
}

/// Turns one setting.
fn turned(setting: &mut Setting, set: &str) -> Result<(), String> {
    turn(setting, "--set", &[&change(set).unwrap()])
}

/// A figure of what was recorded.
fn figure(recording: &Recording, name: &str) -> Option<f64> {
    let at = figures::by_name(&THROTTLING, name).unwrap();
    measure(&recording.setting, &recording.outcome)[at]
}

#[test]
fn figures_of_a_recording_by_hand() {
    let recording = Recording::load(&fixture("guest")).unwrap();
    assert!(recording.notes.is_empty(), "{:?}", recording.notes);
    let of = |name| figure(&recording, name);
    // awk -F, 'NR>1{n+=$4} END{print n/1048576/8}' writes.csv
    close(of("throughput"), HAND.0);
    // awk -F, 'NR>1&&$1>=4&&$1<=8{d+=$2;w+=$3;n++} END{print d/n/256, w/n/256}' vmstat.csv
    close(of("level: dirty"), HAND.1);
    close(of("level: writeback"), HAND.2);
    close(of("level"), HAND.1 + HAND.2);
    // awk -F, '$1<=8{v=($2+$3)/256;if($1<=0)f=v;l=v} END{print 23.5-(l-f)/8}' vmstat.csv
    close(of("throughput: written back"), HAND_BACK);
    // zcat pauses.csv.gz | cut -d, -f14 | awk '$1>0' | sort -n
    let pauses = ["pauses: count", "pauses: median", "pauses: max"].map(|name| of(name).unwrap());
    assert_eq!(pauses, HAND_PAUSES);
    close(of("pauses: sum"), HAND.3);
}

fn close(value: Option<f64>, right: f64) {
    let value = value.unwrap();
    assert!((value / right - 1.0).abs() < 1e-4, "{value} is not {right}");
}

/// Throughput, dirty, writeback, sum of the pauses, as the commands above print them.
const HAND: (f64, f64, f64, f64) = (23.5, 61.071_875, 2.191_699, 7.088);
/// Throughput less what the last sample has more than the last one before the first write.
const HAND_BACK: f64 = 15.580078;
/// Count, median, longest.
const HAND_PAUSES: [f64; 3] = [187.0, 32.0, 112.0];

#[test]
fn the_lab_runs_a_recording_and_is_within_the_bands() {
    let recording = Recording::load(&fixture("guest")).unwrap();
    let plan = lab::plan(&recording.setting, &["linux-6.12"], 1).unwrap();
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let runs = lab::run(&[plan], &experiment::Stop::default(), &()).unwrap();
    let lab = measure(&recording.setting, &runs[0][0]);
    let recorded = measure(&recording.setting, &recording.outcome);
    for verdict in figures::judge(&recording.setting, "linux-6.12", &recorded, &lab) {
        assert!(verdict.holds(), "{}", verdict.line());
    }
}

/// Every change is in the scenario that is run.
#[test]
fn changes_are_in_the_scenario() {
    let mut setting = Recording::load(&fixture("guest")).unwrap().setting;
    let sets = [
        "writers=2",
        "hz=1000",
        "device.0.max_ratio=1",
        "device.0.rate=48.5",
        "writer.1.bytes=4KiB",
        "writer.1.sleep_ms=10",
        "writer.1.start_s=2.5",
    ];
    let changes = sets.map(|set| change(set).unwrap());
    turn(&mut setting, "--set", &changes.iter().collect::<Vec<_>>()).unwrap();
    let plan = lab::plan(&setting, &["linux-6.12", "tidegate", "p1"], 1).unwrap();
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let text = &plan.source.text;
    for part in [
        "hz = 1000",
        "max_percent = 1",
        "strict = true",
        "rate_mib = 48.5",
        "block_kib = 4",
        "every_ms = 10",
        "start_s = 2.5",
        "run_s = 5.5",
        "model = \"null_blk\"",
        "request_max_bytes = 65536",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!((plan.cells.len(), plan.cells[0].laws.dirty.hz), (3, 1000));
    let source = Source {
        origin: "again".into(),
        text: text.clone(),
    };
    assert!(Scenario::load(source, &[]).is_ok());
}

#[test]
fn a_missing_file_is_named_with_what_a_recording_is() {
    let path = copy("no-writes");
    std::fs::remove_file(path.join("writes.csv")).unwrap();
    let said = fault(&path);
    assert!(said.contains("has no `writes.csv`"), "{said}");
    assert!(
        said.contains("a recording is a folder with scenario.toml, pauses.csv"),
        "{said}"
    );
    let empty = folder("nothing");
    assert!(fault(&empty).contains("has no `scenario.toml`"));
    let said = Recording::load(Path::new("/nowhere/at/all"))
        .unwrap_err()
        .to_string();
    assert!(said.contains("cannot be read: No such file"), "{said}");
}

#[test]
fn a_missing_column_is_named_with_those_that_are_needed() {
    let path = changed("column", "vmstat.csv", |text| {
        text.replace("nr_writeback", "writeback")
    });
    assert_eq!(
        fault(&path),
        "
error: has no column `nr_writeback` (is it `writeback`)
 --> vmstat.csv:1:1
  |
1 | t,nr_dirty,writeback,nr_dirty_threshold,nr_dirty_background_threshold,nr_dirtied,nr_written
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: the first line must name the columns, among them t, nr_dirty, nr_writeback, nr_dirty_threshold, nr_dirty_background_threshold
"
    );
    // The column that 6.19 calls wb_dirty was bdi_dirty before.
    let path = changed("older", "pauses.csv", |text| {
        text.replace("wb_dirty", "bdi_dirty")
            .replace("wb_setpoint", "bdi_setpoint")
    });
    assert!(Recording::load(&path).is_ok());
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_word_where_a_number_belongs_is_shown() {
    let path = changed("word", "writes.csv", |text| {
        line(text, 5, "0,0.008,fast,1048576")
    });
    assert_eq!(
        fault(&path),
        "
error: `seconds` is not a number: `fast`
 --> writes.csv:5:9
  |
5 | 0,0.008,fast,1048576
  |         ^^^^
  |
  = help: `seconds` takes a number of seconds
"
    );
    for wrong in ["NaN", "inf", "", "1e999"] {
        let path = changed("odd", "vmstat.csv", |text| {
            line(text, 4, &format!("1,{wrong},0,1,1,0,0"))
        });
        let said = fault(&path);
        assert!(
            said.contains(&format!("`nr_dirty` is not a number: `{wrong}`")),
            "{said}"
        );
        assert!(said.contains("vmstat.csv:4:3"), "{said}");
    }
}

#[test]
fn time_that_goes_backwards_is_shown_with_both_lines() {
    let path = changed("back", "writes.csv", |text| {
        line(text, 5, "0,0.0001,0.002,1048576")
    });
    let said = fault(&path);
    assert!(
        said.contains("time goes backwards: 0.0001 after "),
        "{said}"
    );
    assert!(
        said.contains("in line 4") && said.contains("writes.csv:5:3"),
        "{said}"
    );
}

#[test]
fn writers_may_be_listed_one_after_the_other() {
    let path = changed("two", "writes.csv", |text| {
        format!("{text}1,0.5,0.1,4096\n1,0.7,0.1,4096\n")
    });
    let text = std::fs::read_to_string(path.join("scenario.toml")).unwrap();
    let light = "[[task]]\nid = \"writer-1\"\nkind = \"dd\"\ndevice = \"device-0\"\nfile_mib = 1\nblock_kib = 4\nevery_ms = 10\nrun_s = 8\n";
    let text = text.replace(
        "[[column]]\nname = \"linux",
        &format!("{light}\n[[column]]\nname = \"linux"),
    );
    std::fs::write(path.join("scenario.toml"), text).unwrap();
    let recording = Recording::load(&path).unwrap();
    // Of the two calls half the file was written in a second each.
    assert_eq!(figure(&recording, "light write: max"), Some(100.0));
    assert_eq!(recording.outcome.jobs.len(), 2);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn lines_cut_off_at_an_end_are_left_out_and_counted() {
    let path = changed("torn", "vmstat.csv", |text| {
        let text = line(text, 2, "73,0,0,163");
        text[..text.len() - 20].to_owned()
    });
    let recording = Recording::load(&path).unwrap();
    let note = recording.notes.join("\n");
    assert!(
        note.contains("vmstat.csv: 2 cut-off lines left out (line 2, "),
        "{note}"
    );
    std::fs::remove_dir_all(path).unwrap();
    let path = changed("broken", "vmstat.csv", |text| line(text, 7, "0.2,0,0"));
    let said = fault(&path);
    assert!(
        said.contains("has 3 fields where the header has 7"),
        "{said}"
    );
    assert!(said.contains("vmstat.csv:7:1"), "{said}");
    assert!(
        said.contains("only the first and the last line may be cut off"),
        "{said}"
    );
}

#[test]
fn a_scenario_with_a_mistake_is_refused_where_it_stands() {
    let of = |from: &str, to: &str| {
        fault(&changed("setting", "scenario.toml", |text| {
            text.replace(from, to)
        }))
    };
    assert_eq!(
        of("background_mib = 32", "background_mib = 64"),
        "
error: cannot make a scenario of this recording: the background limit (64 MiB) is not below the dirty limit (64 MiB)
  --> scenario.toml:16:18
   |
16 | background_mib = 64
   |                  ^^
   |
   = help: the background limit is usually half of the dirty limit (defaults: 10 % and 20 %)
"
    );
    for (from, to, said) in [
        (
            "rate_mib = 16",
            "rate_mib = 0",
            "`rate_mib` is out of range: 0",
        ),
        ("[[device]]", "[[devise]]", "unknown key `devise`"),
        (
            "block_kib = 1024",
            "block_kib = 0",
            "`block_kib` is out of range: 0",
        ),
        (
            "dirty_mib = 64",
            "dirty_mib = 6400",
            "`dirty_mib` exceeds the memory",
        ),
        ("hz = 250", "hz = 7", "`hz` is out of range: 7"),
        (
            "run_s = 8",
            "run_s = \"8\"",
            "wrong type of value for `run_s`",
        ),
        ("cpus = 1", "cpus = ", "this is not valid TOML"),
    ] {
        let shown = of(from, to);
        assert!(shown.contains(said), "{said} in {shown}");
        assert!(
            shown.contains("scenario.toml:") && shown.contains("help: "),
            "{shown}"
        );
    }
}

/// Pauses are whole ticks, limits are in the tables: a scenario that says otherwise is noticed.
#[test]
fn what_the_tables_contradict_is_said_with_its_place() {
    let with = |name: &str, from: &str, to: &str| {
        changed(name, "scenario.toml", |text| text.replace(from, to))
    };
    let path = with("clock", "hz = 250", "hz = 1000");
    let recording = Recording::load(&path).unwrap();
    let notes = recording.notes.join("\n");
    assert!(
        notes.contains("HZ is 1000: pauses are whole ticks of 1.000 ms"),
        "{notes}"
    );
    assert!(
        notes.contains("all pauses are whole ticks at HZ 250")
            && notes.contains("scenario.toml says 1000"),
        "{notes}"
    );
    let plan = lab::plan(&recording.setting, &["linux-6.12", "tidegate"], 1).unwrap();
    assert_eq!(plan.cells[0].laws.dirty.hz, 1000);
    std::fs::remove_dir_all(path).unwrap();

    let path = with("limit", "dirty_mib = 64", "dirty_mib = 256");
    let notes = Recording::load(&path).unwrap().notes.join("\n");
    assert!(
        notes.contains("vmstat.csv:")
            && notes.contains("a dirty limit of 64.0 MiB, but scenario.toml says 256 MiB"),
        "{notes}"
    );
    std::fs::remove_dir_all(path).unwrap();

    let path = with("wrong", "hz = 250", "hz = 100");
    let notes = Recording::load(&path).unwrap().notes.join("\n");
    for part in [
        "pauses.csv:",
        "is no whole number of ticks at HZ 100",
        "scenario.toml says",
        "--given hz=250",
    ] {
        assert!(notes.contains(part), "{part} in {notes}");
    }
    let given = [change("hz=250").unwrap()];
    let recording = Recording::load_with(&path, &given, &[]).unwrap();
    assert_eq!(recording.notes, ["given on the command line: hz=250"]);
    let given = [change("hz=7").unwrap()];
    let said = Recording::load_with(&path, &given, &[])
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("--given hz=7: `hz` is out of range"),
        "{said}"
    );
    std::fs::remove_dir_all(path).unwrap();
}

/// The trace as `perf script`, as `trace-cmd report`, and as `perf script` of one process would
/// print it.
fn other_forms(ftrace: &str) -> [String; 3] {
    let mut forms = [String::new(), "cpus=1\n".to_owned(), String::new()];
    for line in ftrace.lines().filter(|line| !line.starts_with('#')) {
        let (task, rest) = line.split_once('[').unwrap();
        let (comm, pid) = task.trim().rsplit_once('-').unwrap();
        let (cpu, rest) = rest.split_once(']').unwrap();
        let (_flags, rest) = rest.trim().split_once(' ').unwrap();
        let (time, event) = rest.trim().split_once(' ').unwrap();
        forms[0].push_str(&format!(
            "{comm:>16} {pid:>6} [{cpu}] {time}  writeback:{event}\n"
        ));
        forms[1].push_str(&format!("{task}[{cpu}] {time} {event}\n"));
        forms[2].push_str(&format!("{comm} {pid} {time} writeback:{event}\n"));
    }
    forms
}

#[test]
fn a_trace_tells_its_setting_and_its_forms_the_same() {
    let path = folder("trace");
    let ftrace = unpacked(&fixture("ftrace.txt.gz"));
    let recording = Recording::load(&fixture("ftrace.txt.gz")).unwrap();
    let setting = &recording.setting;
    assert_eq!(setting.limits_mib(), (64.0, 32.0));
    assert_eq!((setting.hz(), setting.scenario.tasks.len()), (Some(250), 1));
    assert_eq!(setting.name(), "ftrace");
    let values = measure(setting, &recording.outcome);
    // zcat ftrace.txt.gz | grep -c 'pause=[1-9]'
    assert_eq!(figure(&recording, "pauses: count"), Some(PAUSES_OF_TRACE));
    let notes = recording.notes.join("\n");
    assert!(
        notes.contains("inferred: ") && notes.contains("limits 64.0/32.0 MiB"),
        "{notes}"
    );
    for (index, text) in other_forms(&ftrace).iter().enumerate() {
        let file = path.join(format!("ftrace-{index}.txt"));
        std::fs::write(&file, text).unwrap();
        let other = Recording::load(&file).unwrap();
        assert_eq!(differences(&other.setting, setting), [""; 0]);
        assert_eq!(measure(&other.setting, &other.outcome), values);
    }
    std::fs::remove_dir_all(path).unwrap();
}

const PAUSES_OF_TRACE: f64 = 93.0;

#[test]
fn a_trace_with_losses_and_cut_ends_is_used_and_says_so() {
    let path = folder("losses");
    let ftrace = unpacked(&fixture("ftrace.txt.gz"));
    let body: Vec<&str> = ftrace
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let torn = format!(
        "dirty_ratelimit=102400 task_ratelimit=1 dirtied=64\n{}\nCPU:0 [LOST 42 EVENTS]\n{}",
        body[..60].join("\n"),
        body[60..].join("\n")
    );
    let file = path.join("torn.txt");
    std::fs::write(&file, &torn[..torn.len() - 30]).unwrap();
    let recording = Recording::load(&file).unwrap();
    let notes = recording.notes.join("\n");
    assert!(
        notes.contains("the tracer lost events 1 times (42 and more)"),
        "{notes}"
    );
    assert!(
        notes.contains("cut-off lines left out: 2 (line 1, "),
        "{notes}"
    );
    let middle = torn.replacen(body[30], &body[30][..150], 1);
    std::fs::write(&file, middle + "\n").unwrap();
    let said = Recording::load(&file).unwrap_err().to_string();
    assert!(said.contains("balance_dirty_pages without `"), "{said}");
    assert!(said.contains("torn.txt:32:1"), "{said}");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_trace_that_tells_too_little_asks_for_the_rest() {
    let path = folder("asks");
    let ftrace = unpacked(&fixture("ftrace.txt.gz"));
    let kept = ftrace
        .lines()
        .filter(|line| !line.contains("bdi_dirty_ratelimit"));
    let file = path.join("t.txt");
    std::fs::write(
        &file,
        kept.map(|line| format!("{line}\n")).collect::<String>(),
    )
    .unwrap();
    let said = Recording::load(&file).unwrap_err().to_string();
    assert!(said.contains("does not tell device.0.rate"), "{said}");
    assert!(said.contains("--given device.0.rate=..."), "{said}");
    let rate = [change("device.0.rate=16").unwrap()];
    let stated = Recording::load_with(&file, &rate, &[]).unwrap();
    assert_eq!(stated.setting.rates(), [16.0]);
    // A setting that it does not tell is no number.
    let notes = stated.notes.join("\n");
    assert!(
        notes.contains("at ? MiB/s") && !notes.contains("NaN"),
        "{notes}"
    );
    // --set completes what is missing, and says that it did.
    let filled = Recording::load_with(&file, &[], &rate).unwrap();
    assert_eq!(filled.filled, ["device.0.rate"]);
    assert!(
        filled
            .notes
            .join("\n")
            .contains("not in the trace, so taken from the command line: device.0.rate=16")
    );
    for (text, problem) in [
        ("", "is empty"),
        ("hello\nworld\n", "holds no line of a trace"),
        ("# tracer: nop\n", "holds no line of a trace"),
        (
            "dd-1 [000] ..... 1.5: sched_switch: prev=1\n",
            "has no balance_dirty_pages line",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = Recording::load(&file).unwrap_err().to_string();
        assert!(said.contains(problem), "{problem} in {said}");
        assert!(said.contains("= help: "), "{said}");
    }
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn keys_of_a_change_are_checked_like_those_of_run() {
    for (set, said) in [
        (
            "vm.dirty_byte=1M",
            "did you mean `vm.dirty_bytes`? Allowed: vm.dirty_ratio, ",
        ),
        ("device.0.speed=1", "unknown key `device.0.speed`"),
        ("vm.dirty_bytes", "no `=`; write it as KEY=VALUE"),
        (
            "vm.dirty_bytes=64X",
            "vm.dirty_bytes: `64X` is not a size: write a number",
        ),
        ("device.0.rate=-1", "it takes MiB/s"),
    ] {
        let error = change(set).unwrap_err().to_string();
        assert!(error.contains(said), "{said} in {error}");
    }
}

#[test]
fn a_recording_of_another_kernel_says_so_beside_a_column_of_a_kernel() {
    for (kernel, column, said) in [
        ("6.12.117+deb12-cloud-amd64", "linux-6.12", false),
        ("6.12.117+deb12-cloud-amd64", "linux-6.1", true),
        ("6.1.0-56-cloud-amd64", "linux-6.12", true),
        ("6.1.0-56-cloud-amd64", "linux-6.12-mglru", true),
        ("6.1.0-56-cloud-amd64", "linux-6.1", false),
        ("6.1.0-56-cloud-amd64", "tidegate", false),
    ] {
        let path = copy("guest");
        let facts = format!("{{ \"kernel\": \"{kernel}\" }}\n");
        std::fs::write(path.join("facts.json"), facts).unwrap();
        let setting = Recording::load(&path).unwrap().setting;
        let note = setting.another_kernel(&[column]).unwrap_or_default();
        std::fs::remove_dir_all(path).unwrap();
        let both = format!("Linux {kernel} was recorded; {column} stands for another");
        assert_eq!(note.starts_with(&both), said, "{kernel}, {column}: {note}");
    }
}

#[test]
fn a_part_of_the_memory_wants_a_recording_that_tells_it() {
    let mut guest = Recording::load(&recorded("one-dd")).unwrap().setting;
    // facts.json: 1400616 kB are available.
    turned(&mut guest, "vm.dirty_ratio=10").unwrap();
    close(
        Some(guest.limits_mib().0),
        (1_400_616.0_f64 / 40.0).floor() / 256.0,
    );
    let mut trace = Recording::load(&fixture("ftrace.txt.gz")).unwrap().setting;
    let refused = turned(&mut trace, "vm.dirty_ratio=10");
    assert!(refused.unwrap_err().contains("--given memory_mib="));
    turned(&mut trace, "memory_mib=2048").unwrap();
    turned(&mut trace, "vm.dirty_ratio=10").unwrap();
    close(
        Some(trace.limits_mib().0),
        (204.8_f64 * 256.0).floor() / 256.0,
    );
}

#[test]
fn lists_and_ranges_are_several_changes() {
    let all = |set| Change::parse_all(&THROTTLING, set);
    let texts = |set| {
        let changes = all(set).unwrap();
        let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
        texts.join(" ")
    };
    assert_eq!(texts("hz=100, 250"), "hz=100 hz=250");
    assert_eq!(texts("cpus=1..7:3"), "cpus=1 cpus=4 cpus=7");
    assert_eq!(
        texts("device.0.rate=0.1..0.3:0.1"),
        "device.0.rate=0.1 device.0.rate=0.2 device.0.rate=0.3"
    );
    assert_eq!(
        texts("vm.dirty_bytes=8M..16M:8M"),
        "vm.dirty_bytes=8388608B vm.dirty_bytes=16777216B"
    );
    for wrong in [
        "cpus=1..7",
        "cpus=7..1:1",
        "cpus=1..7:0",
        "cpus=1..99:1",
        "cpus=1,,2",
    ] {
        assert!(all(wrong).is_err(), "{wrong}");
    }
}

/// A recording as the text of ftrace, from one second to another.
fn cut(name: &str, seconds: std::ops::Range<f64>) -> String {
    let rows = |file: &str, at: usize| -> Vec<Vec<f64>> {
        let path = recorded(name).join(file);
        let text = if path.exists() {
            std::fs::read_to_string(&path).unwrap()
        } else {
            unpacked(&path.with_extension("csv.gz"))
        };
        let rows = text.lines().skip(1);
        let number = |field: &str| field.parse().unwrap_or(0.0);
        let rows = rows.map(|row| row.split(',').map(number).collect::<Vec<f64>>());
        rows.filter(|row| seconds.contains(&row[at])).collect()
    };
    let mut lines: Vec<(f64, String)> = Vec::new();
    for row in rows("vmstat.csv", 0) {
        let [_, dirty, writeback, limit, background, dirtied, written] = row[..7] else {
            unreachable!("seven columns")
        };
        lines.push((row[0], format!(
            "global_dirty_state: dirty={dirty} writeback={writeback} bg_thresh={background} thresh={limit} limit={limit} dirtied={dirtied} written={written}"
        )));
    }
    for row in rows("ratelimit.csv", 0) {
        // t, bdi, write_bw, awrite_bw, ...
        lines.push((
            row[0],
            format!("bdi_dirty_ratelimit: bdi 254:0: awrite_bw={}", row[4]),
        ));
    }
    for row in rows("pauses.csv", 0) {
        lines.push((row[0], format!(
            "balance_dirty_pages: bdi 254:0: limit={} setpoint={} dirty={} wb_setpoint={} wb_dirty={} dirty_ratelimit={} task_ratelimit={} dirtied={} dirtied_pause={} paused={} pause={} period={} think={}",
            row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11], row[12], row[13], row[14], row[15]
        )));
    }
    let whole = |value: f64| value.to_string().parse::<u64>().unwrap();
    for row in rows("writes.csv", 1) {
        lines.push((
            row[1],
            format!("sys_write(fd: 3, buf: 0, count: 0x{:x})", whole(row[3])),
        ));
        // The next call may begin in the same moment, by as much as the table rounds.
        lines.push((
            row[1] + row[2] - 5e-6,
            format!("sys_write -> 0x{:x}", whole(row[3])),
        ));
    }
    lines.sort_by(|one, other| one.0.total_cmp(&other.0));
    let line = |(at, event): &(f64, String)| {
        format!(
            "              dd-77      [000] .....  {:.6}: {event}\n",
            at + 100.0
        )
    };
    lines.iter().map(line).collect()
}

/// A machine that has been writing for long has dirty memory: the lab begins with as much.
#[test]
fn a_trace_that_begins_under_load_is_compared_with_a_lab_under_load() {
    let path = folder("under-load");
    let file = path.join("cut.txt");
    std::fs::write(&file, cut("one-dd", 15.0..45.0)).unwrap();
    let recording = Recording::load(&file).unwrap();
    let setting = &recording.setting;
    assert!(setting.begins_mib > 50.0, "{}", setting.begins_mib);
    let planned = lab::plan(setting, &["linux-6.12"], 1).unwrap();
    assert!(planned.notes.join(" ").contains("begins under load"));
    let runs = lab::run(&[planned], &experiment::Stop::default(), &()).unwrap();
    let lab = measure(setting, &runs[0][0]);
    let error = |name| {
        let at = figures::by_name(&THROTTLING, name).unwrap();
        lab[at].unwrap() / figure(&recording, name).unwrap() - 1.0
    };
    // With empty memory: +13.5 and -19 %.
    for (name, most) in [
        ("throughput", 0.03),
        ("pauses: count", 0.12),
        ("level", 0.03),
        // The queue of its device is told by what is under writeback.
        ("level: writeback", 0.3),
    ] {
        assert!(error(name).abs() < most, "{name} {}", error(name));
    }
    // A change of the limits is asked of a lab that has settled under the new ones.
    let asked = Asked {
        recordings: vec![file],
        set: vec!["vm.dirty_bytes=128MiB".into()],
        given: Vec::new(),
        against: None,
        column: vec!["linux-6.12".into()],
        seed: 1,
        out: None,
        check: false,
        version: "",
    };
    let made = compare(&asked, &experiment::Stop::default()).unwrap();
    let more = format!(
        "begins under load: {:.1} MiB",
        setting.begins_mib * 80.0 / 48.0
    );
    assert!(made[0].text.contains(&more), "{more} in {}", made[0].text);
    // Nothing that is told of the lab's run is of what it wrote before.
    let run = &runs[0][0];
    let written = experiment::metrics::by_name("written_mb").unwrap();
    let bytes: f64 = run.jobs.iter().map(|job| job.bytes).sum();
    close(written.value(run), bytes / 1e6);
    assert!(run.tasks.iter().all(|task| !task.name.starts_with("lead-")));
    let level = run.devices[0].levels.last().unwrap();
    // The last sample comes just behind the end.
    assert!(level.at_s < run.virtual_s + 1.0, "{}", level.at_s);
    std::fs::remove_dir_all(path).unwrap();
}

/// Without `global_dirty_state` nothing tells the queue of the device, and the level at the begin
/// is that of the first pause.
#[test]
fn a_trace_that_leaves_much_out_has_a_level_and_marks_all_that_hangs_on_the_rest() {
    let path = folder("without-state");
    let kept = |seconds| -> String {
        let text = cut("one-dd", seconds);
        let lines = text
            .lines()
            .filter(|line| !line.contains("global_dirty_state"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let late = path.join("late.txt");
    std::fs::write(&late, kept(15.0..45.0)).unwrap();
    let recording = Recording::load(&late).unwrap();
    let begins = recording.setting.begins_mib;
    assert!((50.0..64.0).contains(&begins), "{begins}");
    assert_eq!(recording.assumed, ["no bound on what a device is sent"]);
    // From the first write on, calls explain what is dirty at the first pause.
    let whole = path.join("whole.txt");
    std::fs::write(&whole, kept(0.0..60.0)).unwrap();
    let recording = Recording::load(&whole).unwrap();
    let begins = recording.setting.begins_mib;
    assert!(begins < 0.25 * 32.0, "{begins}");
    let asked = Asked {
        recordings: vec![whole],
        set: vec!["vm.dirty_ratio=20".into()],
        given: vec!["memory_mib=1536".into()],
        against: None,
        column: vec!["linux-6.12".into()],
        seed: 1,
        out: None,
        check: false,
        version: "",
    };
    let made = compare(&asked, &experiment::Stop::default()).unwrap();
    println!("{}", made[0].text);
    let text = &made[0].text;
    let answers = text.split_once("What if ").unwrap().1;
    let answers = answers.split("\n?: ").next().unwrap().lines().skip(2);
    let mut seen = 0;
    for line in answers {
        let marks = ["? ", "not answered: "];
        assert!(marks.iter().any(|mark| line.contains(mark)), "{line}");
        seen += 1;
    }
    assert!(seen > 10, "{text}");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_empty_table_is_no_table_and_one_without_pauses_is_a_finding() {
    let path = changed("empty", "pauses.csv", |_| String::new());
    let said = fault(&path);
    assert!(
        said.contains("is empty") && said.contains("among them t, writer"),
        "{said}"
    );
    let path = changed("none", "pauses.csv", |text| {
        format!("{}\n", text.lines().next().unwrap())
    });
    let recording = Recording::load(&path).unwrap();
    assert!(
        recording.notes[0].starts_with("no pauses: "),
        "{:?}",
        recording.notes
    );
    let of = |name| figure(&recording, name);
    assert!(of("pauses: median").is_none() && of("level").is_some());
    std::fs::remove_dir_all(path).unwrap();
}
