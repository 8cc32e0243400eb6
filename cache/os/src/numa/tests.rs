use std::fs;

use super::*;
use crate::TestDir;

/// A machine as the system would tell of it: nodes with CPUs, KiB and a row of distances.
struct Told {
    dir: TestDir,
}

impl Told {
    fn new(
        name: &str,
        nodes: &[(u32, &str, u64, &str)],
        online: &str,
        status: (&str, &str),
    ) -> Self {
        let dir = TestDir::new(name);
        fs::write(dir.join("online"), format!("{online}\n")).unwrap();
        for (number, cpus, kib, row) in nodes {
            let folder = dir.join(format!("node{number}"));
            fs::create_dir_all(&folder).unwrap();
            let meminfo = format!(
                "Node {number} MemTotal:       {kib} kB\nNode {number} MemFree:        17 kB\n"
            );
            fs::write(folder.join("meminfo"), meminfo).unwrap();
            fs::write(folder.join("cpulist"), format!("{cpus}\n")).unwrap();
            fs::write(folder.join("distance"), format!("{row}\n")).unwrap();
        }
        let (cpus, mems) = status;
        let status = format!("Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n");
        fs::write(dir.join("status"), status).unwrap();
        Self { dir }
    }

    fn read(&self) -> Result<Topology, TopologyError> {
        Topology::of(&self.dir.0, &self.dir.join("status"))
    }
}

fn seen(topology: &Topology) -> Vec<(u32, u64, Vec<u32>, Vec<u8>)> {
    let nodes = topology.nodes.iter();
    nodes
        .map(|node| {
            (
                node.number,
                node.memory.0 >> 10,
                node.cpus.clone(),
                node.distances.clone(),
            )
        })
        .collect()
}

#[test]
fn two_sockets_whose_cpus_alternate() {
    let nodes = [(0, "0,2", 1000, "10 21"), (1, "1,3", 3000, "21 10")];
    let told = Told::new("numa-two", &nodes, "0-1", ("0-3", "0-1"));
    let topology = told.read().unwrap();
    assert_eq!(
        seen(&topology),
        [
            (0, 1000, vec![0, 2], vec![10, 21]),
            (1, 3000, vec![1, 3], vec![21, 10])
        ]
    );
}

#[test]
fn what_this_process_may_not_use_is_left_out() {
    let row = "10 20 20 20";
    let nodes = [
        (0, "0-3", 1000, "10 20 20 30"),
        (1, "4-7", 1000, row),
        (2, "", 1000, row),
        (5, "8-11", 1000, "30 20 20 10"),
    ];
    // Memory of 0 and 5 alone; CPUs of 0 and 1 alone. Nothing is left of node 2.
    let told = Told::new("numa-cpuset", &nodes, "0-2,5", ("0-1,5", "0,5"));
    let topology = told.read().unwrap();
    assert_eq!(
        seen(&topology),
        [
            (0, 1000, vec![0, 1], vec![10, 20, 30]),
            (1, 0, vec![5], vec![10, 20, 20]),
            (5, 1000, vec![], vec![30, 20, 10]),
        ]
    );
}

#[test]
fn a_machine_of_eight_nodes_is_read() {
    let rows: Vec<String> = (0..8)
        .map(|from| {
            let row = (0..8).map(|to| if from == to { "10" } else { "20" });
            row.collect::<Vec<_>>().join(" ")
        })
        .collect();
    let cpus: Vec<String> = (0..8).map(|node| format!("{node},{}", node + 8)).collect();
    let nodes: Vec<_> = (0u32..8)
        .map(|node| {
            (
                node,
                cpus[node as usize].as_str(),
                7,
                rows[node as usize].as_str(),
            )
        })
        .collect();
    let told = Told::new("numa-eight", &nodes, "0-7", ("0-15", "0-7"));
    let topology = told.read().unwrap();
    assert_eq!(topology.nodes.len(), 8);
    assert_eq!(topology.nodes[7].cpus, [7, 15]);
    assert_eq!(
        topology.nodes[3].distances,
        [20, 20, 20, 10, 20, 20, 20, 20]
    );
}

#[test]
fn what_is_not_there_or_not_understood_is_named() {
    let dir = TestDir::new("numa-none");
    fs::write(
        dir.join("status"),
        "Cpus_allowed_list: 0\nMems_allowed_list: 0\n",
    )
    .unwrap();
    let none = Topology::of(&dir.join("absent"), &dir.join("status")).unwrap_err();
    let path = dir.join("absent/online");
    assert_eq!(
        none,
        TopologyError::Unread {
            path,
            errno: libc::ENOENT
        }
    );

    let nodes = [(0, "0-1", 1000, "10")];
    let told = Told::new("numa-wrong", &nodes, "0", ("0-1", "0"));
    for (file, text, says) in [
        ("node0/cpulist", "0-x", "0-x"),
        ("node0/cpulist", "3-1", "3-1"),
        ("node0/cpulist", "0-4294967295", "0-4294967295"),
        ("node0/distance", "10 20", "10 20"),
        ("node0/distance", "ten", "ten"),
        (
            "node0/meminfo",
            "Node 0 MemTotal: much kB",
            "Node 0 MemTotal: much kB",
        ),
        ("node0/meminfo", "", "nothing of MemTotal:"),
        (
            "status",
            "Cpus_allowed_list: 0",
            "nothing of Mems_allowed_list:",
        ),
    ] {
        let path = told.dir.join(file);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, text).unwrap();
        let text = says.to_owned();
        assert_eq!(
            told.read().unwrap_err(),
            TopologyError::Unknown {
                path: path.clone(),
                text
            }
        );
        fs::write(&path, before).unwrap();
    }
    assert!(told.read().is_ok());
}

#[test]
fn the_nodes_of_this_machine_can_be_read_or_are_not_there() {
    match Topology::read() {
        Ok(topology) => {
            let cpus: usize = topology.nodes.iter().map(|node| node.cpus.len()).sum();
            assert!(cpus > 0, "this test runs on a CPU: {topology:?}");
            let memory: u64 = topology.nodes.iter().map(|node| node.memory.0).sum();
            assert!(memory > 0, "{topology:?}");
        }
        Err(why) => assert!(matches!(why, TopologyError::Unread { .. }), "{why}"),
    }
}

#[test]
fn cpus_are_counted_node_by_node() {
    let binding = Binding {
        parts: Vec::new(),
        cpus: vec![0, 2, 1],
    };
    assert_eq!(*binding.cpu_numbers(5), [0, 2, 1, 3, 4]);
    // A CPU that the system does not have, and one named twice.
    let binding = Binding {
        parts: Vec::new(),
        cpus: vec![9, 1, 1],
    };
    assert_eq!(*binding.cpu_numbers(3), [1, 0, 2]);
    assert_eq!(*Binding::default().cpu_numbers(2), [0, 1]);
}
