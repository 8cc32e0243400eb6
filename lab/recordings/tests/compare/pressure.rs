//! Recordings of memory pressure: what is taken, and what is refused with what to do about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use recordings::change::{Change, turn};
use recordings::differ::differences;
use recordings::kind::PRESSURE;
use recordings::{Recording, Setting, figures, lab, measure};

use super::fixture::unpacked;

static COPIES: AtomicU32 = AtomicU32::new(0);

fn recording(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/held");
    all.join(name)
}

/// A copy of a recording, with one file changed.
fn changed(file: &str, change: impl Fn(&str) -> String) -> PathBuf {
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let name = format!("tidegate-pressure-{}-{number}", std::process::id());
    let copy = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(recording("r1-calm")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let path = copy.join(file);
    let packed = copy.join(format!("{file}.gz"));
    if packed.exists() {
        fs::write(&path, unpacked(&packed)).unwrap();
        fs::remove_file(packed).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let new = change(&text);
    assert_ne!(text, new, "the change found nothing to change");
    fs::write(&path, new).unwrap();
    copy
}

fn refusal(file: &str, change: impl Fn(&str) -> String) -> String {
    said_of(&changed(file, change))
}

fn said_of(copy: &Path) -> String {
    let said = Recording::load(copy).unwrap_err().to_string();
    fs::remove_dir_all(copy).unwrap();
    said
}

#[test]
fn what_the_lab_does_not_have_is_refused_by_name() {
    let of = |file, from: &'static str, to: &'static str| {
        refusal(file, move |text: &str| text.replacen(from, to, 1))
    };
    let said = of("scenario.toml", "\"mapper\"", "\"pig\"");
    assert!(
        said.contains("cannot make a scenario of this recording: unknown kind of task `pig`"),
        "{said}"
    );
    assert!(
        said.contains("scenario.toml:") && said.contains("mapper"),
        "{said}"
    );
    let said = of(
        "scenario.toml",
        "overhead = true",
        "node = [{ mib = 256, cpus = 1 }, { mib = 256, cpus = 1 }]",
    );
    assert!(said.contains("has no `node0.csv`"), "{said}");
    let said = of("scenario.toml", "swappiness", "swapiness");
    assert!(said.contains("did you mean `swappiness`"), "{said}");
    let said = of("summary.json", "kthread_cpu_s", "cpu_s");
    assert!(said.contains("is not a recording's summary"), "{said}");
}

#[test]
fn a_kernel_without_a_young_counter_is_read_and_the_counter_is_named() {
    let of = |counter: &'static str| {
        changed("vmstat.csv", move |text| text.replacen(counter, "gone", 1))
    };
    let young = of("zone_reclaim_success");
    let notes = Recording::load(&young).unwrap().notes;
    fs::remove_dir_all(young).unwrap();
    assert_eq!(notes, ["this kernel does not count `zone_reclaim_success`"]);
    let said = said_of(&of("pswpin"));
    assert!(said.contains("has no column `pswpin`"), "{said}");
}

#[test]
fn a_table_that_is_missing_is_named() {
    let copy = changed("scenario.toml", |text| format!("{text}\n"));
    fs::remove_file(copy.join("samples.csv")).unwrap();
    let said = said_of(&copy);
    assert!(said.contains("has no `samples.csv`"), "{said}");
}

#[test]
fn what_is_measured_of_a_recording_is_what_its_tables_say() {
    let recording = Recording::load(&recording("r1-4")).unwrap();
    let values = measure(&recording.setting, &recording.outcome);
    let value = |name: &str| values[figures::by_name(&PRESSURE, name).unwrap()].unwrap();
    assert_eq!(figures::of_kind(&PRESSURE).len(), values.len());
    assert_eq!(value("pgscan_direct"), 527_433.0);
    assert_eq!(value("allocstall_normal"), 1_537.0 + 827.0);
    assert_eq!(value("throttled: ISOLATED"), 44.0);
    assert_eq!(value("cpu: kswapd"), 2.14);
    assert_eq!(value("rounds"), 690.0);
    // A call took 26.6 ms; that it was late after its rest counts too.
    let p50 = value("latency: p50");
    assert!((26.5..29.0).contains(&p50), "{p50}");
}

/// A recording's setting under a change.
fn under(name: &str, set: &str) -> (Setting, Setting) {
    let before = Recording::load(&recording(name)).unwrap().setting;
    let mut after = before.clone();
    let change = Change::parse(&PRESSURE, set).unwrap();
    turn(&mut after, "--set", &[&change]).unwrap();
    (before, after)
}

#[test]
fn a_change_is_one_difference_and_is_in_the_scenario() {
    for (name, set, said, written) in [
        ("r1-4", "hogs=4", "hog 2 -> 4", "region_mib = 122\n"),
        ("r1-4", "writers=0", "rand_write 1 -> 0", "kind = \"hog\""),
        (
            "r1-4",
            "swap_rate=64",
            "rate_mib 16 + 16 -> 16 + 64",
            "rate_mib = 64\n",
        ),
        (
            "r1-4",
            "memory_mib=600",
            "memory_mib 512 -> 600",
            "memory_mib = 600\n",
        ),
        (
            "r1-4",
            "vm.swappiness=100",
            "swappiness 60 -> 100",
            "swappiness = 100\n",
        ),
        (
            "r1-4",
            "vm.dirty_ratio=15",
            "dirty_percent 20 -> 15",
            "dirty_percent = 15\n",
        ),
        (
            "r1-4",
            "vm.dirty_background_bytes=16MiB",
            "background_percent 10 -> none, background_mib none -> 16",
            "background_mib = 16\n",
        ),
        (
            "r1-4",
            "vm.watermark_scale_factor=200",
            "watermark_scale_factor none -> 200",
            "watermark_scale_factor = 200\n",
        ),
        (
            "r2-mode0",
            "vm.zone_reclaim_mode=1",
            "place none -> linux-6.12-mode1",
            "place = \"linux-6.12-mode1\"\n",
        ),
        (
            "r1-4",
            "vm.watermark_boost_factor=0",
            "boost_factor 15000 -> 0",
            "boost_factor = 0\n",
        ),
        (
            "r3-boost0",
            "vm.watermark_boost_factor=15000",
            "boost_factor 0 -> 15000",
            "boost_factor = 15000\n",
        ),
        (
            "r4-vfat",
            "device.0.fs=ext4",
            "fs vfat -> ext4",
            "fs = \"ext4\"\n",
        ),
        (
            "r4-vfat",
            "device.0.fs=ext4",
            "fs vfat -> ext4",
            "blocks_a_page = 4\n",
        ),
    ] {
        let (before, after) = under(name, set);
        assert_eq!(differences(&before, &after), [said], "{name} {set}");
        let plan = lab::plan(&after, &["linux-6.12"], 1).unwrap();
        assert!(plan.source.text.contains(written), "{}", plan.source.text);
    }
}

#[test]
fn what_is_kept_of_pages_takes_memory_but_where_heads_are_told_as_objects() {
    for (name, takes, blocks) in [
        ("r1-4", true, ""),
        ("r4-vfat", true, "blocks_a_page = 8\n"),
        ("r3-boost0", false, ""),
    ] {
        let setting = Recording::load(&recording(name)).unwrap().setting;
        let text = lab::plan(&setting, &["linux-6.12"], 1).unwrap().source.text;
        assert_eq!(text.contains("overhead = true\n"), takes, "{text}");
        assert!(text.contains(blocks), "{text}");
    }
}

#[test]
fn recordings_of_a_pair_differ_in_what_was_turned() {
    let setting = |name: &str| Recording::load(&recording(name)).unwrap().setting;
    for (one, other, said) in [
        ("r2-mode0", "r2-mode1", "place none -> linux-6.12-mode1"),
        ("r3-boost0", "r3-boost15000", "boost_factor 0 -> 15000"),
        ("r4-vfat", "r4-ext4", "fs vfat -> ext4"),
        (
            "r1-4",
            "../turned/r1-4+vm.watermark_boost_factor=0",
            "boost_factor 15000 -> 0",
        ),
        (
            "r1-anon",
            "../turned/r1-anon+swap_rate=64",
            "rate_mib 16 -> 64",
        ),
    ] {
        assert_eq!(differences(&setting(one), &setting(other)), [said]);
    }
}

#[test]
fn what_a_shape_has_of_its_own_is_measured() {
    let value = |name: &str, figure: &str| {
        let recording = Recording::load(&recording(name)).unwrap();
        let values = measure(&recording.setting, &recording.outcome);
        let index = figures::by_name(&PRESSURE, figure).unwrap();
        values[index].unwrap()
    };
    assert_eq!(value("r2-mode1", "numa_foreign"), 106_168.0);
    assert_eq!(value("r2-mode1", "zone_reclaim_success"), 1_840.0);
    let first = value("r2-mode0", "pass 1");
    assert!((13.5..14.2).contains(&first), "{first}");
    assert!(value("r2-mode0", "node 1: files") > 300.0);
    assert_eq!(value("r3-boost0", "extfrag_events"), 35_927.0);
    assert_eq!(value("r3-boost0", "slabs_scanned"), 403_456.0);
    let files = value("r3-boost0", "files before memory is full");
    // The mean of 500 files over the length of each call: between calls nothing is counted.
    assert!((2_460.0..2_470.0).contains(&files), "{files}");
    assert_eq!(value("r4-vfat", "round 1: huge pages"), 35.0);
    assert_eq!(value("r4-vfat", "compact_success"), 18.0);
    let round = value("r4-vfat", "round 3");
    assert!((8.4..8.5).contains(&round), "{round}");
}
