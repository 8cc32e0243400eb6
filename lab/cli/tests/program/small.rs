//! A scenario that ends in no time, for tests of the program from outside.

/// Two repetitions of a sequential writer beside a light one, under two laws; one band.
pub(crate) const SMALL: &str = r#"schema = "tidegate-exp/1"
name = "small"

[run]
replicas = 2
seed = 7

[machine]
cpus = 2
memory_mib = 32

[[device]]
id = "disk"
model = "sata2010"
fs = "ext4"

[[task]]
id = "dd"
kind = "dd"
device = "disk"
file_mib = 64
sync = "everything"

[[task]]
id = "light"
kind = "light_writer"
device = "disk"
every_ms = 10
run_s = 1

[[column]]
name = "linux-2.6.36"

[[column]]
name = "tidegate"

[[expect]]
id = "all-written"
source = "64 MiB and a little"
metric = "written_mb"
policy = "tidegate"
op = "value"
min = 67
max = 68
"#;
