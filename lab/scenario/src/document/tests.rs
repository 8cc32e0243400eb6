//! One mistake of each kind, and what is shown for it.

use super::*;

/// A scenario without mistakes; `from` and `to` put one in.
fn mistaken(from: &str, to: &str) -> String {
    let text = GOOD.replace(from, to);
    assert_ne!(text, GOOD, "`{from}` is in the scenario");
    shown(&text, &[])
}

fn shown(text: &str, overrides: &[&str]) -> String {
    let source = Source {
        origin: "my.toml".into(),
        text: text.into(),
    };
    let overrides: Vec<Override> = overrides
        .iter()
        .map(|set| Override::parse(set).unwrap())
        .collect();
    match Scenario::load(source, &overrides) {
        Ok(_) => "no mistake".into(),
        Err(error) => format!("\n{error}\n"),
    }
}

const GOOD: &str = r#"schema = "tidegate-exp/1"
name = "mine"

[machine]
cpus = 2
memory_mib = 256
dirty_mib = 64
background_mib = 32

[[device]]
id = "disk"
model = "sata2010"

[[task]]
id = "dd"
kind = "dd"
device = "disk"
file_mib = 512

[[column]]
name = "tidegate"
"#;

#[test]
fn the_scenario_without_a_mistake_has_none() {
    assert_eq!(shown(GOOD, &[]), "no mistake");
}

#[test]
fn a_wrong_key_is_shown_with_the_allowed_ones() {
    assert_eq!(
        mistaken("cpus = 2", "cpu = 2"),
        "
error: unknown key `cpu`
 --> my.toml:5:1
  |
5 | cpu = 2
  | ^^^ not a key of this table
  |
  = help: did you mean `cpus`? Allowed: cpus, memory_mib, dirty_percent, background_percent, dirty_mib, background_mib, swap, swappiness, min_free_kib, watermark_scale_factor, reserved_percent, costs, scale_costs, scale_clusters, scale_requests, thp, used_before, oom_kills, readahead_kib, preempt_hz, node, distance, zonelist, nodes, object_cache, overhead, vfs_cache_pressure
"
    );
}

#[test]
fn a_key_with_another_unit_names_the_unit() {
    assert_eq!(
        mistaken("memory_mib = 256", "memory_gb = 1"),
        "
error: unknown key `memory_gb`
 --> my.toml:6:1
  |
6 | memory_gb = 1
  | ^^^^^^^^^ not a key of this table
  |
  = help: the unit here is mebibytes: write `memory_mib`. Allowed: cpus, memory_mib, dirty_percent, background_percent, dirty_mib, background_mib, swap, swappiness, min_free_kib, watermark_scale_factor, reserved_percent, costs, scale_costs, scale_clusters, scale_requests, thp, used_before, oom_kills, readahead_kib, preempt_hz, node, distance, zonelist, nodes, object_cache, overhead, vfs_cache_pressure
"
    );
}

#[test]
fn a_unit_in_the_value_is_refused() {
    assert_eq!(
        mistaken("memory_mib = 256", "memory_mib = \"256MB\""),
        "
error: wrong type of value for `memory_mib`
 --> my.toml:6:14
  |
6 | memory_mib = \"256MB\"
  |              ^^^^^^^ this is a string; a number belongs here
  |
  = help: write a bare number of mebibytes: the unit is in the key's name, `memory_mib`
"
    );
}

#[test]
fn a_value_out_of_range_shows_the_range() {
    assert_eq!(
        mistaken("cpus = 2", "cpus = 129"),
        "
error: `cpus` is out of range: 129
 --> my.toml:5:8
  |
5 | cpus = 129
  |        ^^^ must be 1 to 128
  |
  = help: write a number from 1 to 128
"
    );
}

#[test]
fn a_whole_number_that_its_key_cannot_hold_shows_the_range() {
    assert_eq!(
        mistaken("cpus = 2", "cpus = -1"),
        "
error: `cpus` is out of range: -1
 --> my.toml:5:8
  |
5 | cpus = -1
  |        ^^ must be a whole number from 0 to 4294967295
"
    );
    let percent = mistaken("dirty_mib = 64", "dirty_percent = 300");
    assert!(
        percent.contains("must be a whole number from 0 to 255"),
        "{percent}"
    );
    let seed = mistaken("[machine]", "[run]\nseed = 18446744073709551616\n[machine]");
    assert!(
        seed.contains("must be a whole number from 0 to 9223372036854775807"),
        "{seed}"
    );
}

#[test]
fn overrides_of_a_text_that_cannot_take_them_are_not_dropped() {
    let text = GOOD.replace("[machine]", "[run]\nseed = 9223372036854775808\n[machine]");
    let said = shown(&text, &["run.replicas=1"]);
    assert!(said.contains("--> my.toml:5:8"), "{said}");
}

#[test]
fn a_table_in_the_wrong_brackets_shows_the_right_ones() {
    assert_eq!(
        mistaken("[machine]", "[[machine]]"),
        "
error: `machine` is one table
 --> my.toml:4:1
  |
4 | [[machine]]
  | ^^^^^^^^^^^ the wrong brackets
  |
  = help: write `[machine]`
"
    );
    let device = mistaken("[[device]]", "[device]");
    assert!(device.contains("`device` is a list of tables"), "{device}");
    assert!(device.contains("help: write `[[device]]`"), "{device}");
}

#[test]
fn unknown_names_show_the_nearest_and_all() {
    assert_eq!(
        mistaken("name = \"tidegate\"", "name = \"linux-2.6.35\""),
        "
error: unknown preset `linux-2.6.35`
  --> my.toml:21:8
   |
21 | name = \"linux-2.6.35\"
   |        ^^^^^^^^^^^^^^ not known
   |
   = help: did you mean `linux-2.6.36`? Allowed: linux-2.6.36, linux-3.0-off, linux-3.0, linux-3.0+zlcfirst, linux-3.0+zlc, linux-3.1, linux-3.2-rc5, linux-3.2-rc5+aa, p1, p1-measured, linux-4.20, linux-5.0, linux-5.0+p3, linux-5.3, linux-5.15, linux-5.15+patch1, linux-5.16-rc1, linux-6.12, linux-6.12-mode1, linux-6.12-mglru, linux-6.12-mglru-walks, tidegate, tidegate-170s
"
    );
    let device = mistaken(
        "model = \"sata2010\"",
        "model = \"stata2010\"\nfs = \"ext5\"",
    );
    assert!(
        device.contains("unknown device model `stata2010`"),
        "{device}"
    );
    assert!(
        device.contains("did you mean `sata2010`? Allowed: null, sata2010"),
        "{device}"
    );
    assert!(device.contains("unknown file system `ext5`"), "{device}");
    let task = mistaken("kind = \"dd\"", "kind = \"dt\"");
    assert!(
        task.contains("unknown kind of task `dt`")
            && task.contains("did you mean `dd`?")
            && task.contains("light_writer"),
        "{task}"
    );
}

#[test]
fn limits_that_do_not_fit_show_both_places() {
    assert_eq!(
        mistaken("dirty_mib = 64\n", "dirty_mib = 512\n"),
        "
error: `dirty_mib` exceeds the memory: 512 > 256 MiB
 --> my.toml:7:13
  |
6 | memory_mib = 256
  |              --- the memory
7 | dirty_mib = 512
  |             ^^^ more than there is
  |
  = help: lower the limit, or raise memory_mib
"
    );
    assert_eq!(
        mistaken("background_mib = 32", "background_mib = 64"),
        "
error: the background limit (64 MiB) is not below the dirty limit (64 MiB)
 --> my.toml:8:18
  |
7 | dirty_mib = 64
  |             -- the dirty limit
8 | background_mib = 64
  |                  ^^ writers would be held before the flusher starts
  |
  = help: the background limit is usually half of the dirty limit (defaults: 10 % and 20 %)
"
    );
}

#[test]
fn keys_that_a_kind_needs_or_cannot_use() {
    let text = mistaken("file_mib = 512", "order = \"random\"");
    assert!(text.contains("a dd needs `file_mib`"), "{text}");
    assert!(text.contains("`order` means nothing to a dd"), "{text}");
}

#[test]
fn a_key_of_another_kind_names_those_that_take_it() {
    assert_eq!(
        mistaken("file_mib = 512", "file_mib = 512\nfile_kib = 4"),
        "
error: `file_kib` means nothing to a dd
  --> my.toml:19:1
   |
16 | kind = \"dd\"
   |        ---- the kind
...
19 | file_kib = 4
   | ^^^^^^^^ not used
   |
   = help: did you mean `file_mib`? `file_kib` is a key of fs_mark, make_small
"
    );
    let order = mistaken("file_mib = 512", "file_mib = 512\norder = \"random\"");
    assert!(
        order.contains("leave `order` out: it is a key of reader"),
        "{order}"
    );
}

#[test]
fn a_misspelt_key_of_a_task_names_the_nearest_one() {
    let own = mistaken("file_mib = 512", "file_mib = 512\nevry_ms = 4");
    assert!(own.contains("unknown key `evry_ms`"), "{own}");
    assert!(own.contains("did you mean `every_ms`?"), "{own}");
    let unit = mistaken("file_mib = 512", "file_gb = 1");
    assert!(
        unit.contains("the unit here is mebibytes: write `file_mib`")
            && unit.contains("a dd needs `file_mib`"),
        "{unit}"
    );
    let other = mistaken("file_mib = 512", "file_mib = 512\nswitch_evry = 4");
    assert!(
        other.contains("did you mean `switch_every`? It is a key of rand_read"),
        "{other}"
    );
}

#[test]
fn a_wrong_value_of_a_kinds_own_key_is_shown_in_its_place() {
    let text = mistaken("file_mib = 512", "file_mib = \"512MB\"");
    assert!(
        text.contains("wrong type of value for `file_mib`") && text.contains("my.toml:18:12"),
        "{text}"
    );
    let sync = mistaken("file_mib = 512", "file_mib = 512\nsync = \"files\"");
    assert!(
        sync.contains("unknown value `files`") && sync.contains("did you mean `file`?"),
        "{sync}"
    );
    let kind = mistaken("kind = \"dd\"", "kind = 5");
    assert!(
        kind.contains("wrong type of value for `kind`") && kind.contains("light_writer"),
        "{kind}"
    );
    let none = mistaken("kind = \"dd\"\n", "");
    assert!(none.contains("the key `kind` is missing"), "{none}");
    assert_eq!(shown(GOOD, &["task.dd.sync=file"]), "no mistake");
    let set = shown(GOOD, &["task.dd.file_mib=0"]);
    assert!(set.contains("`file_mib` is out of range: 0"), "{set}");
}

#[test]
fn a_missing_key_and_broken_toml() {
    let text = mistaken("cpus = 2\n", "");
    assert!(text.contains("the key `cpus` is missing"), "{text}");
    let text = mistaken("cpus = 2", "cpus = = 2");
    assert!(
        text.contains("this is not valid TOML") && text.contains("my.toml:5:8"),
        "{text}"
    );
    assert!(shown("", &[]).contains("is missing"));
}

#[test]
fn a_missing_table_is_named_as_it_is_written() {
    for (table, end, written) in [
        ("[machine]", "[[device]]", "[machine]"),
        ("[[device]]", "[[task]]", "[[device]]"),
        ("[[task]]", "[[column]]", "[[task]]"),
        ("[[column]]", "", "[[column]]"),
    ] {
        let from = GOOD.find(table).unwrap();
        let rest = GOOD[from..].find(end).filter(|at| *at > 0);
        let to = rest.map_or(GOOD.len(), |length| from + length);
        let text = shown(&[&GOOD[..from], &GOOD[to..]].concat(), &[]);
        assert!(
            text.contains(&format!("error: the table `{written}` is missing"))
                && text.contains(&format!("add a table that begins with `{written}`")),
            "{text}"
        );
    }
    // A key of the same name in a table.
    let swap = mistaken_memory("device = \"disk\", mib = 512", "mib = 512");
    assert!(
        swap.contains("the key `device` is missing") && swap.contains("add `device = ...`"),
        "{swap}"
    );
}

#[test]
fn what_is_wrong_without_an_override_is_shown_without_it() {
    assert_eq!(
        shown("", &["run.replicas=1"]),
        "
error: the key `schema` is missing
 --> my.toml:1:1
  |
1 |
  | ^ in this table
  |
  = help: add `schema = ...`
"
    );
}

#[test]
fn names_that_tables_and_files_cannot_have_are_refused() {
    let text = mistaken("id = \"dd\"", "id = \"d/d,e\"");
    assert!(
        text.contains("the task id `d/d,e` cannot stand in tables and names of files"),
        "{text}"
    );
    assert_eq!(mistaken("id = \"dd\"", "id = \"12+1_a.b-c\""), "no mistake");
    let never = mistaken_memory(
        "memory_part = 1.5\nrun_s = 10",
        "memory_part = 1.5\nrun_s = 0",
    );
    assert!(never.contains("`run_s` is out of range: 0"), "{never}");
}

#[test]
fn a_band_that_is_held_elsewhere_is_held_there() {
    let loaded = |from: &str, to: &str| {
        let source = crate::experiments::by_name("stutterp-oom").unwrap();
        assert_eq!(source.text.matches(from).count(), 1, "{from}");
        let text = source.text.replace(from, to);
        match Scenario::load(Source { text, ..source }, &[]) {
            Ok(_) => "no mistake".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    let held = "max = 1\nheld_in = \"stutterp\"";
    assert_eq!(loaded(held, held), "no mistake");
    let nowhere = loaded(held, "max = 1\nheld_in = \"stuterp\"");
    assert!(
        nowhere.contains("unknown experiment `stuterp`"),
        "{nowhere}"
    );
    // Not this very band, not this band at all, and a band that is not held there either.
    for other in [
        "max = 1.01\nheld_in = \"stutterp\"",
        "max = 1\nheld_in = \"dd\"",
        "max = 1\nheld_in = \"stutterp-oom\"",
    ] {
        let text = loaded(held, other);
        assert!(text.contains("does not hold this band"), "{text}");
    }
}

#[test]
fn a_knock_out_is_another_run_that_is_there() {
    let loaded = |out: &str| {
        let source = crate::experiments::by_name("cp-pauses").unwrap();
        let from = "knock_out = { column = \"linux-2.6.36\" }\nmin = 0.01";
        assert_eq!(source.text.matches(from).count(), 1, "{from}");
        let text = source
            .text
            .replace(from, &format!("knock_out = {out}\nmin = 0.01"));
        match Scenario::load(Source { text, ..source }, &[]) {
            Ok(_) => "no mistake".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(loaded("{ column = \"linux-6.12\" }"), "no mistake");
    for (out, says) in [
        (
            "{ column = \"p1-measured\" }",
            "a `knock_out` that changes nothing",
        ),
        ("{}", "a `knock_out` that changes nothing"),
        ("{ column = \"p1-mesured\" }", "unknown column `p1-mesured`"),
        ("{ row = \"dd\" }", "unknown row `dd`"),
    ] {
        let text = loaded(out);
        assert!(text.contains(says), "{out}: {text}");
    }
}

#[test]
fn a_band_that_nothing_meets_and_one_without_its_other_column() {
    let expect = "name = \"tidegate\"\n\n[[expect]]\nid = \"e\"\nsource = \"s\"\nmetric = \"real\"\ncolumn = \"tidegate\"\nop = \"ratio\"\nmin = 2\nmax = 1";
    let text = mistaken("name = \"tidegate\"", expect);
    assert!(text.contains("a band that nothing can meet"), "{text}");
    assert!(
        text.contains("`change_percent` and `chance` need `vs = "),
        "{text}"
    );
    for bound in ["nan", "inf"] {
        let expect = expect.replace("max = 1", &format!("max = {bound}"));
        let text = mistaken("name = \"tidegate\"", &expect);
        assert!(text.contains("`max` is no finite number"), "{text}");
    }
}

#[test]
fn several_mistakes_are_shown_in_order() {
    let text = mistaken("cpus = 2\nmemory_mib = 256", "cpus = 0\nmemory_mib = 1");
    let (first, second) = (
        text.find("`cpus`").unwrap(),
        text.find("`memory_mib`").unwrap(),
    );
    assert!(first < second);
}

#[test]
fn an_override_is_checked_like_the_file_and_shown_with_its_origin() {
    let text = shown(GOOD, &["machine.cpus=300"]);
    assert!(
        text.contains("my.toml --set machine.cpus=300:5:8"),
        "{text}"
    );
    let text = shown(GOOD, &["machine.cpu=2"]);
    assert!(text.contains("did you mean `cpus`?"), "{text}");
    assert_eq!(
        shown(GOOD, &["device.disk.model=ssd", "column.tidegate.hz=100"]),
        "no mistake"
    );
    assert_eq!(
        shown(GOOD, &["column.p9.hz=100"]),
        "\n--set column.p9.hz=100: there is no column called `p9`; allowed: tidegate\n"
    );
}

#[test]
fn an_override_reaches_into_an_inline_table() {
    let good = GOOD.replace(
        "[machine]\n",
        "[machine]\nswap = { device = \"disk\", mib = 64 }\n",
    );
    assert_eq!(shown(&good, &["machine.swap.mib=32"]), "no mistake");
    let text = shown(&good, &["machine.swap.mib=0"]);
    assert!(text.contains("must be 1 to"), "{text}");
    let text = shown(&good, &["machine.swap.mib.x=0"]);
    assert!(text.contains("`swap` has no tables in it"), "{text}");
}

#[test]
fn an_override_reaches_the_entry_whose_name_has_dots() {
    let text = GOOD.replace("\"tidegate\"", "\"linux-2.6.36\"");
    let source = Source {
        origin: "my.toml".into(),
        text,
    };
    let set = Override::parse("column.linux-2.6.36.hz=100").unwrap();
    let (scenario, _) = Scenario::load(source, &[set]).unwrap();
    assert_eq!(
        scenario.columns[0].hz.as_ref().map(|hz| *hz.get_ref()),
        Some(100)
    );
}

#[test]
fn what_is_not_an_override_is_refused() {
    assert!(
        Override::parse("machine.cpus")
            .unwrap_err()
            .to_string()
            .contains("no `=`")
    );
    assert!(Override::parse("machine..cpus=1").is_err());
}

#[test]
fn rates_and_their_changes() {
    let device = "model = \"null\"\nrate_mib = 16\nchange = [{ at_s = 20, rate_mib = 0 }, { at_s = 50, rate_mib = 8 }]\n";
    let good = GOOD.replace("model = \"sata2010\"\n", device);
    assert_eq!(shown(&good, &[]), "no mistake");
    for (from, to, part) in [
        (
            "rate_mib = 16\n",
            "",
            "a change of a rate that is not given",
        ),
        (
            "at_s = 50",
            "at_s = 20",
            "a change at 20 s, not after the one before it",
        ),
        (
            "rate_mib = 8 }",
            "rate_mib = 0 }",
            "the device stands still for ever",
        ),
        (
            "\"null\"",
            "\"sata2010\"",
            "the model `sata2010` does not take this",
        ),
        (
            "rate_mib = 8 }",
            "rate_mib = \"8MB\" }",
            "a bare number of mebibytes",
        ),
        ("at_s = 50", "at_ms = 50", "write `at_s`"),
    ] {
        let text = good.replace(from, to);
        assert_ne!(text, good, "`{from}` is in the scenario");
        assert!(
            shown(&text, &[]).contains(part),
            "{part}: {}",
            shown(&text, &[])
        );
    }
}

#[test]
fn limits_said_twice_or_contradicting_each_other_in_a_row() {
    let text = mistaken("dirty_mib = 64\n", "dirty_mib = 64\ndirty_percent = 20\n");
    assert!(
        text.contains("`dirty_mib` and `dirty_percent` are both given"),
        "{text}"
    );
    let row = "name = \"tidegate\"\n\n[[row]]\nname = \"low\"\ndirty_mib = 20";
    let text = mistaken("name = \"tidegate\"", row);
    assert!(
        text.contains("the background limit (32 MiB) is not below the dirty limit (20 MiB)"),
        "{text}"
    );
}

/// As the kernel does, and `compare --set vm.dirty_ratio` with it.
#[test]
fn a_dirty_limit_that_is_set_alone_halves_the_background_limit() {
    let of = |sets: &[&str]| {
        let sets: Vec<Override> = sets
            .iter()
            .map(|set| Override::parse(set).unwrap())
            .collect();
        let source = crate::experiments::by_name("burst").unwrap();
        Scenario::load(source, &sets).map(|(scenario, _)| scenario.machine)
    };
    let memory = *of(&[]).unwrap().memory_mib.get_ref();
    let machine = of(&["machine.dirty_percent=10", "machine.background_percent=10"]);
    assert!(machine.is_err(), "both are given");
    for (set, dirty) in [
        ("machine.dirty_percent=1", memory / 100.0),
        ("machine.dirty_mib=8", 8.0),
        ("machine.dirty_mib=32", 32.0),
    ] {
        let background = of(&[set]).unwrap().background_mib;
        assert_eq!(
            background.map(|mib| mib.into_inner()),
            Some(dirty / 2.0),
            "{set}"
        );
    }
}

#[test]
fn a_misspelt_boost_or_shrink_names_those_that_there_are() {
    for (key, known) in [("boost", "linux-5.0+p3"), ("shrink", "linux-4.20")] {
        let text = mistaken(
            "name = \"tidegate\"",
            &format!("name = \"tidegate\"\n{key} = \"linux-9\""),
        );
        assert_eq!(text.matches("error:").count(), 1, "{text}");
        assert!(text.contains("linux-9") && text.contains(known), "{text}");
    }
}

#[test]
fn a_misspelt_column_is_one_mistake() {
    let expect = "name = \"tidgate\"\n\n[[expect]]\nid = \"e\"\nsource = \"s\"\nmetric = \"real\"\ncolumn = \"tidegate\"\nop = \"value\"\nmax = 1";
    let text = mistaken("name = \"tidegate\"", expect);
    assert_eq!(text.matches("error:").count(), 1, "{text}");
}

/// A scenario of memory without mistakes; `from` and `to` put one in.
fn mistaken_memory(from: &str, to: &str) -> String {
    let text = MEMORY.replace(from, to);
    assert_ne!(text, MEMORY, "`{from}` is in the scenario");
    shown(&text, &[])
}

const MEMORY: &str = r#"schema = "tidegate-exp/1"
name = "mine"

[machine]
cpus = 2
memory_mib = 256
swap = { device = "disk", mib = 512 }
costs = "p0"

[[device]]
id = "disk"
model = "p0_ssd"

[[task]]
id = "hog"
kind = "hog"
memory_part = 1.5
run_s = 10

[[task]]
id = "writer"
kind = "rand_write"
device = "disk"
memory_part_each = 0.24
run_s = 10

[[row]]
name = "one"
counts = { hog = 2 }

[[column]]
name = "linux-5.16-rc1"
reclaim_off = ["noprogress"]
"#;

#[test]
fn the_scenario_of_memory_without_a_mistake_has_none() {
    assert_eq!(shown(MEMORY, &[]), "no mistake");
}

#[test]
fn more_memory_than_there_is_needs_a_swap_file() {
    assert_eq!(
        mistaken_memory("swap = { device = \"disk\", mib = 512 }\n", ""),
        "
error: more anonymous memory than there is, and no swap file
  --> my.toml:14:6
   |
 6 | memory_mib = 256
   |              --- the memory
...
14 | id = \"hog\"
   |      ^^^^^ it would run out of memory
   |
   = help: add `swap = { device = \"...\", mib = ... }` to the machine
"
    );
}

#[test]
fn a_size_said_twice_and_keys_of_another_kind_are_shown() {
    let twice = mistaken_memory("memory_part = 1.5", "memory_part = 1.5\nregion_mib = 3");
    assert!(
        twice.contains("`region_mib` and `memory_part` are both given"),
        "{twice}"
    );
    let of_files = mistaken_memory("memory_part = 1.5", "region_mib = 3\nfile_mib = 3");
    assert!(
        of_files.contains("`file_mib` means nothing to a hog")
            && !of_files.contains("are both given"),
        "{of_files}"
    );
    let device = mistaken_memory("kind = \"hog\"", "kind = \"hog\"\ndevice = \"disk\"");
    assert!(
        device.contains("`device` means nothing to a hog"),
        "{device}"
    );
    let none = mistaken_memory("device = \"disk\"\nmemory_part_each", "memory_part_each");
    assert!(none.contains("a rand_write needs `device`"), "{none}");
    let size = mistaken_memory("memory_part_each = 0.24\n", "");
    assert!(size.contains("a rand_write needs `file_mib`"), "{size}");
}

#[test]
fn names_of_reclaim_are_known_ones() {
    let reason = mistaken_memory("\"noprogress\"", "\"no-progress\"");
    assert!(
        reason.contains("unknown reason to throttle `no-progress`")
            && reason.contains("did you mean `noprogress`?"),
        "{reason}"
    );
    let law = mistaken_memory("reclaim_off = [\"noprogress\"]", "reclaim = \"reason\"");
    assert!(law.contains("did you mean `reasons`?"), "{law}");
    let task = mistaken_memory("counts = { hog = 2 }", "counts = { hogs = 2 }");
    assert!(task.contains("unknown task `hogs`"), "{task}");
    let swap = mistaken_memory("swap = { device = \"disk\"", "swap = { device = \"disc\"");
    assert!(swap.contains("unknown device `disc`"), "{swap}");
    for mistake in [
        "costs = \"p0\"\nswappiness = 300",
        "costs = \"p0\"\nswappiness = 201",
    ] {
        let swappiness = mistaken_memory("costs = \"p0\"", mistake);
        assert!(swappiness.contains("must be 0 to 200"), "{swappiness}");
        assert!(
            swappiness.contains("`swappiness` is out of range"),
            "{swappiness}"
        );
    }
    let costs = mistaken_memory("costs = \"p0\"", "costs = \"p9\"");
    assert!(costs.contains("unknown machine `p9`"), "{costs}");
}

#[test]
fn more_pins_than_a_cache_lets_are_refused() {
    let held = |mib: &str, count: &str| {
        format!(
            "costs = \"p0\"\n\n[[task]]\nid = \"held\"\nkind = \"pinner\"\ndevice = \"disk\"\nrun_s = 5\n\
             pinned_mib = {mib}\ncount = {count}"
        )
    };
    assert_eq!(
        mistaken_memory("costs = \"p0\"", &held("32", "2")),
        "no mistake"
    );
    let text = mistaken_memory("costs = \"p0\"", &held("32.5", "2"));
    assert!(
        text.contains("row `one`: its tasks pin 65 MiB, and a quarter of the memory is 64 MiB"),
        "{text}"
    );
}

#[test]
fn what_has_to_fit_has_to_without_a_row_too() {
    let plain = MEMORY.replace("[[row]]\nname = \"one\"\ncounts = { hog = 2 }\n\n", "");
    assert_eq!(shown(&plain, &[]), "no mistake");
    let held = "costs = \"p0\"\n\n[[task]]\nid = \"held\"\nkind = \"pinner\"\ndevice = \"disk\"\nrun_s = 5\n\
                pinned_mib = 200";
    let pins = shown(&plain.replace("costs = \"p0\"", held), &[]);
    assert!(
        pins.contains("error: the tasks pin 200 MiB, and a quarter of the memory is 64 MiB"),
        "{pins}"
    );
    let hogs = shown(
        &plain.replace("memory_part = 1.5", "memory_part = 3.1"),
        &[],
    );
    assert!(
        hogs.contains("error: the hogs keep 794 MiB, and memory and swap have 768 MiB"),
        "{hogs}"
    );
}

#[test]
fn hogs_of_several_entries_have_to_fit_together() {
    let second = |times: &str| {
        let hog = format!("[[task]]\nid = \"second\"\nkind = \"hog\"\nregion_mib = 400\n{times}\n");
        mistaken_memory("[[row]]", &format!("{hog}\n[[row]]"))
    };
    let both = second("run_s = 10");
    assert!(both.contains("its hogs keep 784 MiB"), "{both}");
    let begins_while_the_other_runs = second("start_s = 9\nrun_s = 10");
    assert!(
        begins_while_the_other_runs.contains("its hogs keep 784 MiB"),
        "{begins_while_the_other_runs}"
    );
    assert_eq!(second("start_s = 10\nrun_s = 10"), "no mistake");
    assert_eq!(
        mistaken_memory(
            "[[row]]",
            "[[task]]\nid = \"second\"\nkind = \"hog\"\nregion_mib = 384\nrun_s = 10\n\n[[row]]"
        ),
        "no mistake",
        "as much as there is"
    );
}

#[test]
fn files_that_a_row_gives_to_a_task_without_them_are_refused() {
    let text = mistaken_memory("name = \"one\"", "name = \"one\"\nfiles = { hog = 2 }");
    assert!(text.contains("`files` means nothing to a hog"), "{text}");
}

#[test]
fn hogs_that_memory_and_swap_do_not_hold_are_refused() {
    let many = mistaken_memory("memory_part = 1.5", "memory_part = 3.1");
    assert!(
        many.contains("row `one`: its hogs keep 794 MiB, and memory and swap have 768 MiB"),
        "{many}"
    );
    assert!(many.contains("at least 538 MiB"), "{many}");
    // By the row's count, and after what is reserved.
    let each = mistaken_memory("memory_part = 1.5", "memory_part_each = 1.49");
    assert_eq!(each, "no mistake");
    let reserved = MEMORY
        .replace("memory_part = 1.5", "memory_part_each = 1.49")
        .replace("costs = \"p0\"", "costs = \"p0\"\nreserved_percent = 5.0");
    let shown_reserved = shown(&reserved, &[]);
    assert!(
        shown_reserved.contains("its hogs keep 763 MiB"),
        "{shown_reserved}"
    );
    let three = mistaken_memory("counts = { hog = 2 }", "counts = { hog = 3 }");
    assert_eq!(three, "no mistake", "a part of the memory is shared");
}

#[test]
fn regions_without_room_for_their_tables_are_refused() {
    // Swap for all of it, and for 30 times the memory there are tables.
    let swap = "swap = { device = \"disk\", mib = 65536 }";
    let text = |part: &str| {
        let text = MEMORY.replace("swap = { device = \"disk\", mib = 512 }", swap);
        shown(&text.replace("memory_part = 1.5", part), &[])
    };
    assert_eq!(text("memory_part = 30"), "no mistake");
    let all = text("memory_part = 30.5");
    assert!(
        all.contains(
            "row `one`: its tasks have 7808 MiB of anonymous memory, and the cache has tables for 7680 MiB"
        ) && all.contains("my.toml:17:15")
            && all.contains("at least 261 MiB (`memory_mib`)"),
        "{all}"
    );
    let each = text("region_mib = 3841");
    assert!(each.contains("its tasks have 7682 MiB"), "{each}");
    // Of a machine of a 64th of the memory, what is not scaled is the 64-fold.
    let bystander = "[run]\nscale = 0.015625\n\n[[task]]\nid = \"beside\"\nkind = \"bystander\"\nregion_mib = 121\n\
                     every_ms = 100\nrun_s = 10\n\n[[device]]";
    let bystander = mistaken_memory("[[device]]", bystander);
    assert!(bystander.contains("its tasks have 8128 MiB"), "{bystander}");
}

#[test]
fn what_lasts_longer_than_a_run_may_is_refused() {
    let limited = |max_s: &str| format!("[run]\nmax_s = {max_s}\n\n[machine]");
    assert_eq!(mistaken_memory("[machine]", &limited("10")), "no mistake");
    let text = mistaken_memory("[machine]", &limited("9"));
    assert!(
        text.starts_with(
            "
error: `run_s` is above `max_s`: 10 > 9 s
  --> my.toml:21:9
"
        ) && text.contains("--set run.max_s=40"),
        "{text}"
    );
    let late = MEMORY
        .replace("[machine]", &limited("12"))
        .replace("kind = \"hog\"", "kind = \"hog\"\nstart_s = 2.5");
    let late = shown(&late, &[]);
    assert!(
        late.contains("`start_s` and `run_s` together are above `max_s`: 12.5 > 12 s"),
        "{late}"
    );
    // A task that has an amount to do may be done with it, unless it does not even begin.
    let finite = GOOD.replace("[machine]", &limited("9"));
    let file = "file_mib = 512";
    let until = finite.replace(file, "file_mib = 512\nrun_s = 10");
    assert_eq!(shown(&until, &[]), "no mistake");
    let after = shown(&finite.replace(file, "file_mib = 512\nstart_s = 10"), &[]);
    assert!(
        after.contains("`start_s` is above `max_s`: 10 > 9 s"),
        "{after}"
    );
    // Without a limit of its own a scenario has that of a day.
    let day = mistaken_memory(
        "memory_part = 1.5\nrun_s = 10",
        "memory_part = 1.5\nrun_s = 1e6",
    );
    assert!(
        day.contains("`run_s` is above `max_s`: 1000000 > 86400 s"),
        "{day}"
    );
}

#[test]
fn no_row_is_called_as_that_of_all_rows() {
    let row = |name: &str| format!("\n[[row]]\nname = \"{name}\"\n");
    let two = format!("{GOOD}{}{}", row("all"), row("other"));
    let text = shown(&two, &[]);
    assert!(
        text.contains("a row of several cannot be called `all`"),
        "{text}"
    );
    let one = format!("{GOOD}{}", row("all"));
    assert_eq!(shown(&one, &[]), "no mistake");
}

const FS_MARK: &str =
    "kind = \"fs_mark\"\ndevice = \"disk\"\nfiles_per_loop = 10\nloops = 2\nfile_kib = 64";

/// `GOOD` with a task that makes its files.
fn making(task: &str) -> String {
    let text = GOOD.replace("kind = \"dd\"\ndevice = \"disk\"\nfile_mib = 512", task);
    assert_ne!(text, GOOD);
    shown(&text, &[])
}

#[test]
fn a_task_that_makes_its_files_needs_their_sizes_and_numbers() {
    assert_eq!(making(FS_MARK), "no mistake");
    for key in ["files_per_loop = 10", "loops = 2", "file_kib = 64"] {
        let said = making(&FS_MARK.replace(key, ""));
        let name = key.split(' ').next().unwrap();
        assert!(
            said.contains(&format!("a fs_mark needs `{name}`")),
            "{said}"
        );
    }
    let large = "kind = \"large_dd\"\ndevice = \"disk\"\nfile_mib = 4\ntotal_mib = 12";
    assert_eq!(making(large), "no mistake");
    let said = making(&large.replace("total_mib = 12", ""));
    assert!(said.contains("a large_dd needs `total_mib`"), "{said}");
    let said = making(&large.replace("file_mib = 4", "file_mib = 0.001"));
    assert!(
        said.contains("12000 copies are more than a run keeps"),
        "{said}"
    );
    // They end when they are done.
    for task in [FS_MARK, large] {
        let said = making(&format!("{task}\nrun_s = 5"));
        assert!(said.contains("`run_s` means nothing to a"), "{said}");
    }
}

#[test]
fn a_mapped_writer_needs_a_file_that_can_be_mapped() {
    let task = "kind = \"mapped_writer\"\ndevice = \"disk\"\nfile_mib = 512";
    assert_eq!(making(task), "no mistake");
    let said = making(&task.replace("file_mib = 512", ""));
    assert!(said.contains("a mapped_writer needs `file_mib`"), "{said}");
    for key in ["region_mib = 4", "every_ms = 1"] {
        let said = making(&format!("{task}\n{key}"));
        assert!(said.contains("means nothing to a mapped_writer"), "{said}");
    }
    let said = making(&task.replace("512", "500000"));
    assert!(
        said.contains("map 500000 MiB of files, and the cache has tables for"),
        "{said}"
    );
    assert!(said.contains("240 times the memory") && said.contains("map less"));
}

#[test]
fn more_files_than_a_run_keeps_are_refused() {
    let said = making(&FS_MARK.replace("loops = 2", "loops = 200000"));
    assert!(
        said.contains("2000000 files are more than a run keeps"),
        "{said}"
    );
    let said = making(&FS_MARK.replace("file_kib = 64", "file_kib = 64.25"));
    assert!(
        said.contains("a file of 64.25 KiB is not whole sectors"),
        "{said}"
    );
}

#[test]
fn ticks_of_the_machine_have_a_range() {
    let said = mistaken("cpus = 2", "cpus = 2\npreempt_hz = 99");
    assert!(said.contains("`preempt_hz` is out of range"), "{said}");
    assert!(said.contains("must be 100 to 1000"), "{said}");
}

#[test]
fn blocks_of_a_page_have_a_range() {
    let model = "model = \"sata2010\"";
    let said = mistaken(model, &format!("{model}\nblocks_a_page = 9"));
    assert!(said.contains("`blocks_a_page` is out of range"), "{said}");
    assert!(said.contains("must be 1 to 8"), "{said}");
}

#[test]
fn a_read_ahead_window_has_a_range() {
    let said = mistaken("cpus = 2", "cpus = 2\nreadahead_kib = 70000");
    assert!(said.contains("must be 0 to 65536 KiB"), "{said}");
    let said = mistaken(
        "name = \"tidegate\"",
        "name = \"tidegate\"\nreadahead_kib = -4",
    );
    assert!(said.contains("`readahead_kib` is out of range"), "{said}");
}

/// `GOOD` on two nodes of 160 and 96 MiB.
const NODES: &str =
    "cpus = 2\nnode = [{ mib = 160, dma32_mib = 64, cpus = 2 }, { mib = 96, cpus = 2 }]";

fn on_nodes(from: &str, to: &str) -> String {
    let text = GOOD.replace("cpus = 2", NODES);
    let changed = text.replace(from, to);
    assert_ne!(changed, text, "`{from}` is in the scenario");
    shown(&changed, &[])
}

#[test]
fn nodes_that_are_all_of_the_machine_are_no_mistake() {
    let key = "dirty_mib = 64";
    for more in [
        "",
        "zonelist = \"zone\"\n",
        "distance = [[10, 20], [20, 10]]\n",
    ] {
        assert_eq!(on_nodes(key, &format!("{more}{key}\n\n")), "no mistake");
    }
}

#[test]
fn nodes_that_do_not_add_up_are_refused() {
    assert_eq!(
        on_nodes("mib = 96", "mib = 90"),
        "
error: the nodes have 250 MiB together, and the machine 256 MiB
 --> my.toml:7:14
  |
6 | node = [{ mib = 160, dma32_mib = 64, cpus = 2 }, { mib = 90, cpus = 2 }]
  |                 --- the nodes
7 | memory_mib = 256
  |              ^^^ the memory
  |
  = help: write memory_mib = 250, or change `mib` of a node
"
    );
}

#[test]
fn a_node_with_more_low_memory_than_it_has_is_refused() {
    let said = on_nodes("dma32_mib = 64", "dma32_mib = 161");
    assert!(
        said.contains("`dma32_mib` is out of range: 161") && said.contains("must be 0 to 160 MiB"),
        "{said}"
    );
}

#[test]
fn cpus_of_no_node_are_refused() {
    let said = on_nodes("cpus = 2\nnode", "cpus = 5\nnode");
    assert!(
        said.contains("5 CPUs, of which the nodes have 4") && said.contains("CPUs of no node"),
        "{said}"
    );
    let said = on_nodes("cpus = 2 }", "cpus = 0 }");
    assert!(said.contains("2 CPUs, of which the nodes have 0"), "{said}");
}

#[test]
fn distances_that_are_none_are_refused() {
    for (table, words) in [
        (
            "[[10, 20], [21, 10]]",
            "node 1 is 20 from node 0, but 21 back",
        ),
        ("[[10, 9], [9, 10]]", "node 1 is 9 from node 0"),
        ("[[11, 20], [20, 10]]", "node 0 is 11 from itself"),
        ("[[10, 20]]", "node 0 has 2 distances"),
        ("[[10]]", "distances of 1 nodes for a machine of 2"),
        (
            "[[10, 300], [300, 10]]",
            "a distance of 300; the largest is 255",
        ),
    ] {
        let said = on_nodes("[[device]]", &format!("distance = {table}\n[[device]]"));
        assert!(said.contains(words), "{table}: {said}");
        assert!(said.contains("[[10, 20], [20, 10]]"), "{table}: {said}");
    }
}

#[test]
fn a_zone_below_its_marks_is_refused() {
    let said = on_nodes("dirty_mib = 64", "min_free_kib = 65536\ndirty_mib = 64");
    assert_eq!(said, "no mistake");
    // A reserve that is shared out by size leaves something of each zone; what low memory keeps
    // back for high does not.
    let small = "node = [{ mib = 4096, dma32_mib = 8, cpus = 2 }]\nmemory_mib = 4096\n#";
    let text = GOOD.replace("memory_mib = 256", small);
    let said = shown(&text, &[]);
    assert!(
        said.contains("the zone Dma32 of node 0 is below its marks: it has 2048 pages"),
        "{said}"
    );
    let said = on_nodes("dma32_mib = 64", "dma32_mib = 0.5");
    assert!(
        said.contains("0.5 MiB of low memory are too few for a zone"),
        "{said}"
    );
}

#[test]
fn more_nodes_than_fit_are_refused() {
    let nodes = ["{ mib = 16, cpus = 1 }"; 16].join(", ");
    let text = GOOD.replace("cpus = 2", &format!("cpus = 2\nnode = [{nodes}]"));
    let said = shown(&text, &[]);
    assert!(
        said.contains("a machine of 16 nodes; it may have 1 to 8"),
        "{said}"
    );
    let said = on_nodes("cpus = 2\nnode", "cpus = 2\nnodes = 2\nnode");
    assert!(said.contains("`nodes` and `node` are both given"), "{said}");
}

#[test]
fn a_row_of_another_size_needs_equal_nodes() {
    let row = "[[row]]\nname = \"more\"\nmemory_mib = 512\n[[column]]";
    let said = on_nodes("[[column]]", row);
    assert!(
        said.contains("a row of another size on a machine whose nodes have theirs"),
        "{said}"
    );
}

const MAKE_SMALL: &str =
    "kind = \"make_small\"\ndevice = \"disk\"\nfiles_per_loop = 1000\nloops = 2\nfile_kib = 4";
const STAT_SMALL: &str = "\n[[task]]\nid = \"stat\"\nkind = \"stat_small\"\ndevice = \"disk\"\nmemory_part = 0.001\nafter = true\n";

#[test]
fn small_files_need_a_maker_that_makes_as_many_as_are_looked_at() {
    assert_eq!(making(MAKE_SMALL), "no mistake");
    assert_eq!(making(&format!("{MAKE_SMALL}\n{STAT_SMALL}")), "no mistake");
    let said = making(&format!("{FS_MARK}\n{STAT_SMALL}"));
    assert!(
        said.contains("a stat_small without a task that makes small files"),
        "{said}"
    );
    let said = making(&format!(
        "{MAKE_SMALL}\n{}",
        STAT_SMALL.replace("0.001", "0.9")
    ));
    assert!(
        said.contains("files are to be looked at, and 2000 are made"),
        "{said}"
    );
    let said = making(&format!(
        "{MAKE_SMALL}\n{}",
        STAT_SMALL.replace("memory_part = 0.001", "")
    ));
    assert!(said.contains("a stat_small needs `memory_part`"), "{said}");
    for (size, wrong) in [
        ("0", "a small file of 0 KiB"),
        ("6", "a small file of 6 KiB"),
    ] {
        let said = making(&MAKE_SMALL.replace("file_kib = 4", &format!("file_kib = {size}")));
        assert!(said.contains(wrong), "{said}");
    }
    let said = making(&MAKE_SMALL.replace("loops = 2", "loops = 1000000"));
    assert!(
        said.contains("pages of small files in one directory"),
        "{said}"
    );
}

#[test]
fn caches_of_objects_have_sizes_that_make_slabs_and_roles_that_make_files() {
    let with = |caches: &str| {
        let text = GOOD.replace(
            "[machine]\n",
            &format!("[machine]\nobject_cache = [{caches}]\n"),
        );
        assert_ne!(text, GOOD);
        shown(&text, &[])
    };
    let entry = "{ role = \"entry\", bytes = 192, order = 1, reclaimable = true }";
    let inode = "{ role = \"inode\", bytes = 1024, order = 3, reclaimable = true }";
    assert_eq!(with(&format!("{entry}, {inode}")), "no mistake");
    for (from, to, wrong) in [
        ("bytes = 192", "bytes = 0", "`bytes` is out of range: 0"),
        (
            "bytes = 192",
            "bytes = 4097",
            "`bytes` is out of range: 4097",
        ),
        ("order = 1", "order = 4", "`order` is out of range: 4"),
        (
            "\"entry\"",
            "\"beside\"",
            "0 caches of objects have the role `entry`",
        ),
        (
            "\"entry\"",
            "\"inode\"",
            "2 caches of objects have the role `inode`",
        ),
    ] {
        let said = with(&format!("{}, {inode}", entry.replace(from, to)));
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    let nine = vec![entry.replace("\"entry\"", "\"beside\""); 7].join(", ");
    let said = with(&format!("{entry}, {inode}, {nine}"));
    assert!(said.contains("9 caches of objects"), "{said}");
}

#[test]
fn a_scale_that_is_no_part_is_told_its_range_and_what_it_may_mean() {
    let told = shown(GOOD, &["run.scale=8"]);
    assert!(told.contains("must be 0.015625 to 1"), "{told}");
    assert!(told.contains("did you mean 0.125 (1/8)?"), "{told}");
    for (set, range) in [
        ("run.scale=0", "must be 0.015625 to 1"),
        ("run.scale=65", "must be 0.015625 to 1"),
        ("machine.memory_mib=0", "must be 4 to"),
        ("machine.cpus=0", "must be 1 to"),
        ("machine.nodes=0", "must be 1 to 8"),
        ("machine.nodes=1000", "must be 1 to 8"),
    ] {
        // And of huge pages only where their scale is one.
        let told = shown(GOOD, &["machine.thp=true", set]);
        assert_eq!(told.matches(range).count(), 1, "{told}");
        assert!(!told.contains("no machine"), "{told}");
        assert!(!told.contains("huge pages"), "{told}");
    }
}

const DOCUMENT: &str = include_str!("../../../../docs/study/write-a-scenario.md");

/// The part of the page that is made of the declarations.
fn pages_keys() -> String {
    let line = |text: &mut String, key: &Key, indent: &str| {
        let mark = if key.needed { "*" } else { "" };
        let (name, value) = (key.name, key.value());
        let about = key.about.replace('|', "\\|");
        text.push_str(&format!("| {indent}`{name}`{mark} | {value} | {about} |\n"));
    };
    let mut text = String::new();
    for table in TABLES {
        let about = table.about.trim();
        text.push_str(&format!("\n### `{}`\n\n{about}\n\n", table.header));
        text.push_str("| key | value | meaning |\n|---|---|---|\n");
        for key in table.keys {
            line(&mut text, key, "");
            if table.name != "top" {
                let inner = key.takes.keys().iter();
                inner.for_each(|inner| line(&mut text, inner, "- "));
            }
        }
        if table.name == "task" {
            text.push_str("\n| kind | its load | its own keys |\n|---|---|---|\n");
            for kind in crate::kinds::ALL {
                let mark = |key: &Key| if key.needed { "*" } else { "" };
                let keys = kind.keys.iter();
                let keys = keys.map(|key| format!("`{}`{}", key.name, mark(key)));
                let keys = keys.collect::<Vec<_>>().join(", ");
                let about = kind.about.trim();
                text.push_str(&format!("| `{}` | {about} | {keys} |\n", kind.name));
            }
        }
    }
    text
}

#[test]
fn the_page_has_the_keys_as_they_are_declared() {
    let made = pages_keys();
    let (_, rest) = DOCUMENT.split_once("<!-- keys -->\n").unwrap();
    let (page, _) = rest.split_once("\n<!-- end -->").unwrap();
    if page.trim() != made.trim() {
        let path = std::env::temp_dir().join("tidegate-keys.md");
        std::fs::write(&path, &made).unwrap();
        let path = path.display();
        panic!("docs/study/write-a-scenario.md: put {path} between its marks `keys` and `end`");
    }
}

#[test]
fn old_names_of_columns_and_rows_are_read() {
    let new = GOOD.replace("name = \"tidegate\"", "name = \"tidegate\"\nhz = 100")
        + "\n[[row]]\nname = \"one\"\n\n[[expect]]\nid = \"e\"\nsource = \"s\"\nmetric = \"real\"\n\
           column = \"tidegate\"\nrows = [\"one\"]\nvs_row = \"one\"\nop = \"ratio\"\nmax = 1\n\
           \n[reproduce]\ncolumns = [\"tidegate\"]\nrows = [\"one\"]\n";
    let mut old = new.clone();
    for (from, to) in crate::keys::OLD_NAMES {
        let table = format!("[[{to}]]");
        old = old.replace(&table, &format!("[[{from}]]"));
        old = old.replace(&format!("\n{to} ="), &format!("\n{from} ="));
    }
    assert_ne!(old, new);
    for text in [new, old] {
        for set in ["column.tidegate.hz=250", "policy.tidegate.hz=250"] {
            let source = Source {
                origin: "a.toml".into(),
                text: text.clone(),
            };
            let set = Override::parse(set).unwrap();
            let (scenario, _) = Scenario::load(source, &[set]).unwrap();
            let expect = &scenario.expects[0];
            let hz = crate::keys::value(&scenario.columns[0].hz);
            let vs = expect.vs_row.as_ref().map(|row| row.get_ref().as_str());
            let section = &scenario.reproduce;
            let lengths = [&expect.rows, &section.rows, &section.columns].map(Vec::len);
            assert_eq!((hz, vs, lengths), (Some(250), Some("one"), [1; 3]));
        }
    }
}
