//! Seeds; scenarios as cells: the checks of `scenario` leave nothing that a cell cannot be made of.

use policy::place::ZoneId;
use policy::place::machine;
use policy::place::order::Class;
use policy::units::Pages;

use super::{Cell, Column, seed};
use scenario::{Scenario, Source};

/// The machine of p2 as its counters tell it, and a job.
const OF_P2: &str = r#"
    schema = "tidegate-exp/1"
    name = "nodes"
    [run]
    scale = 0.125
    [machine]
    cpus = 12
    memory_mib = 11776
    min_free_kib = 90112
    node = [{ mib = 5632, dma32_mib = 3072, cpus = 12 }, { mib = 6144, cpus = 12 }]
    distance = [[10, 21], [21, 10]]
    [[device]]
    id = "disk"
    model = "sata2010"
    [[task]]
    id = "dd"
    kind = "dd"
    device = "disk"
    file_mib = 512
    [[column]]
    name = "linux-6.12"
    [[column]]
    name = "tidegate"
    one_node = true
"#;

fn cell(text: &str, policy: usize) -> Cell {
    let source = Source {
        origin: "test".into(),
        text: text.into(),
    };
    let (scenario, _) = Scenario::load(source, &[]).unwrap();
    let column = Column::of(&scenario.columns[policy]);
    Cell::resolve(&scenario, &scenario.rows()[0], &column)
}

#[test]
fn a_machine_has_the_nodes_zones_and_distances_it_says() {
    let cell = cell(OF_P2, 0);
    let machine = cell.machine.unwrap();
    let zones = machine.zones().iter();
    let zones: Vec<_> = zones.map(|z| (z.node, z.class, z.pages.0)).collect();
    assert_eq!(
        zones,
        [
            (0, Class::Dma32, 98_304),
            (0, Class::Normal, 81_920),
            (1, Class::Normal, 196_608)
        ]
    );
    assert_eq!(machine.pages(), cell.memory);
    // Twelve CPUs run, all of the first node; the other has as many.
    assert_eq!((machine.node_of_cpu(11), machine.node_of_cpu(12)), (0, 1));
    assert_eq!(machine.distances().between(0, 1), 21);
    // By zone, as Linux 3.0 chooses here.
    assert_eq!(machine.list(0), [ZoneId(1), ZoneId(2), ZoneId(0)]);
    let marks = cell.marks.unwrap();
    assert_eq!((marks.min, marks.low), (Pages(2_816), Pages(3_520)));
}

#[test]
fn the_order_of_the_zones_can_be_said() {
    let text = OF_P2.replace("distance", "zonelist = \"node\"\n        distance");
    let machine = cell(&text, 0).machine.unwrap();
    assert_eq!(machine.list(0), [ZoneId(1), ZoneId(0), ZoneId(2)]);
}

#[test]
fn a_small_zone_has_a_reserve_that_clusters_are_small_against() {
    let text = OF_P2.replace("min_free_kib = 90112", "");
    let cell = cell(&text.replace("scale = 0.125", "scale = 0.03125"), 0);
    assert_eq!(cell.marks.unwrap().min, Pages(3 * 128));
}

#[test]
fn a_column_may_take_all_memory_for_one_node() {
    assert_eq!(cell(OF_P2, 1).machine, None);
}

#[test]
fn equal_nodes_are_as_before() {
    let node = "node = [{ mib = 5632, dma32_mib = 3072, cpus = 12 }, { mib = 6144, cpus = 12 }]";
    let text = OF_P2.replace(node, "nodes = 2");
    let text = text.replace("distance = [[10, 21], [21, 10]]", "");
    let cell = cell(&text, 0);
    let even = machine::Machine::even(cell.memory, 2, 12).unwrap();
    assert_eq!(cell.machine, Some(even));
}

/// The tables that `mm` would build are refused here.
#[test]
fn thirty_times_the_memory_is_what_the_tables_of_a_cache_hold() {
    let frames = 1024_u32;
    let mut lab = world::Lab::new(world::Options {
        frames,
        ..world::Options::default()
    });
    let env = std::sync::Arc::clone(lab.env());
    let fits = lab.run(move |task| {
        let cache = mm::Cache::new(env, mm::Options::new(frames, 1)).unwrap();
        let pages = |times: u64| Pages(u64::from(frames) * times);
        let fits = |task: &mut _, times| cache.spill(task, pages(times)).is_ok();
        let all = (fits(task, 30), fits(task, 31));
        cache.shutdown(task).unwrap();
        all
    });
    assert_eq!(fits.unwrap(), (true, false));
}

/// Places of the numbers of a scenario.
fn numbers(value: &toml::Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let mut inside = |key: String, value: &toml::Value| {
        path.push(key);
        numbers(value, path, found);
        path.pop();
    };
    match value {
        toml::Value::Table(table) => {
            table
                .iter()
                .for_each(|(key, value)| inside(key.clone(), value));
        }
        toml::Value::Array(list) => {
            (list.iter().enumerate()).for_each(|(at, value)| inside(at.to_string(), value));
        }
        toml::Value::Integer(_) | toml::Value::Float(_) => found.push(path.clone()),
        _ => {}
    }
}

fn place<'a>(value: &'a mut toml::Value, path: &[String]) -> &'a mut toml::Value {
    let [key, rest @ ..] = path else { return value };
    let inner = match value {
        toml::Value::Array(list) => list.get_mut(key.parse::<usize>().unwrap()),
        other => other.get_mut(key),
    };
    place(inner.unwrap(), rest)
}

/// Each number of all experiments, wherever it first stands, at its ends and beyond them: it is
/// taken, and then its cells can be made, or told what is allowed.
#[test]
fn any_number_is_taken_or_refused_for_what_it_is() {
    let mut seen = std::collections::BTreeSet::new();
    for (name, text) in scenario::experiments::EXPERIMENTS {
        let whole: toml::Value = toml::from_str(text).unwrap();
        let mut found = Vec::new();
        numbers(&whole, &mut Vec::new(), &mut found);
        for path in found {
            let keys = path.iter().filter(|key| key.parse::<usize>().is_err());
            if !seen.insert(keys.cloned().collect::<Vec<_>>()) {
                continue;
            }
            let wholes = [0, 1, -1, 1000, i64::from(u32::MAX), i64::MAX, i64::MIN];
            let parts = [
                0.0,
                -0.0,
                0.3,
                -1.0,
                5.0,
                1e-9,
                1e308,
                f64::NAN,
                f64::INFINITY,
            ];
            let wholes = wholes.into_iter().map(toml::Value::Integer);
            for number in wholes.chain(parts.into_iter().map(toml::Value::Float)) {
                let mut changed = whole.clone();
                *place(&mut changed, &path) = number.clone();
                let source = Source {
                    origin: format!("{name}: {} = {number}", path.join(".")),
                    text: toml::to_string(&changed).unwrap(),
                };
                println!("{}", source.origin);
                match Scenario::load(source, &[]) {
                    Ok((scenario, _)) => {
                        for (row, policy) in scenario.rows().iter().flat_map(|row| {
                            scenario.columns.iter().map(move |policy| (row, policy))
                        }) {
                            let column = Column::of(policy);
                            let _ = Cell::resolve(&scenario, row, &column);
                        }
                    }
                    Err(told) => {
                        let told = told.to_string();
                        assert!(!told.contains("this is no machine"), "{told}");
                    }
                }
            }
        }
    }
}

#[test]
fn seeds_differ_by_row_and_repetition_and_not_by_column() {
    let all = [
        seed(1, "ext4", 0),
        seed(1, "ext4", 1),
        seed(1, "xfs", 0),
        seed(2, "ext4", 0),
    ];
    for (index, left) in all.iter().enumerate() {
        assert!(all[index + 1..].iter().all(|right| left != right));
    }
    assert_eq!(seed(7, "ext4", 3), seed(7, "ext4", 3));
}
