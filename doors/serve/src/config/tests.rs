//! Words into configurations, and what is said of wrong ones.

use std::path::{Path, PathBuf};
use std::time::Duration;

use device::{BytesPerSec, SlowOptions};
use policy::units::{Nanos, Pages};

use super::default::Surroundings;
use super::*;

fn surroundings() -> Surroundings {
    Surroundings {
        home: Some("/home/u".into()),
        state: None,
        runtime: Some("/run/user/7".into()),
        temp: "/tmp".into(),
        user: 7,
        sockets: false,
        group: None,
    }
}

fn asked(volumes: &[&str]) -> Asked {
    Asked {
        volumes: volumes.iter().map(|text| (*text).to_owned()).collect(),
        ..Asked::default()
    }
}

fn config(asked: &Asked) -> Config {
    match asked.config_in(&surroundings()) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn refused(asked: &Asked) -> String {
    let error = asked.config_in(&surroundings()).unwrap_err();
    error.to_string()
}

/// A file of a test, removed with it.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn asked(&self) -> Asked {
        Asked {
            file: Some(self.0.clone()),
            ..Asked::default()
        }
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn in_file(name: &str, text: &str) -> String {
    let file = TestFile::new(name, text);
    refused(&file.asked()).replace(&file.0.display().to_string(), "FILE")
}

#[test]
fn nothing_said() {
    let config = config(&Asked::default());
    assert_eq!(config.memory, 1 << 30);
    assert_eq!(config.dirty, Threshold::Percent(20));
    assert_eq!(config.background, Threshold::Percent(1));
    let socket = ListenConfig::Unix {
        path: "/run/user/7/tidegate.sock".into(),
        mode: 0o600,
    };
    assert_eq!(config.listen, [socket]);
    let [volume] = config.volumes.as_slice() else {
        panic!("{:?}", config.volumes);
    };
    assert_eq!(volume.name, "default");
    let embedded = BackendConfig::Embedded {
        path: "/home/u/.local/state/tidegate/default.img".into(),
        size: 10 << 30,
    };
    assert_eq!(volume.backend, embedded);
    assert!(
        config
            .web
            .is_some_and(|web| !web.insisted && web.address.ip().is_loopback())
    );
}

#[test]
fn what_may_be_dirty_is_a_flush_that_clients_wait_for() {
    let dirty = |memory: &str, more: Option<(&str, &str)>| {
        let values = [Some(("memory", memory)), more].into_iter().flatten();
        let values = values.map(|(key, text)| (key.to_owned(), text.to_owned()));
        let asked = Asked {
            values: values.collect(),
            ..asked(&["a=/x"])
        };
        let config = config(&asked);
        (config.dirty, config.background)
    };
    let percent = (Threshold::Percent(20), Threshold::Percent(1));
    assert_eq!(dirty("2GiB", None), percent);
    let most = Pages(450 << 8);
    let (limit, background) = dirty("64GiB", None);
    assert_eq!(limit, Threshold::Pages(most), "30 s at 16 MB/s");
    assert!(matches!(background, Threshold::Pages(pages) if pages.0 < most.0 / 10));
    assert_eq!(
        dirty("64GiB", Some(("dirty", "20%"))),
        percent,
        "as asked for"
    );
}

#[test]
fn the_control_group_bounds_the_memory() {
    let within = |mib: u64| Surroundings {
        group: Some(GroupLimit {
            bytes: mib << 20,
            file: "/sys/fs/cgroup/memory.max".into(),
        }),
        ..surroundings()
    };
    let limit = |mib: u64, named: Option<&str>| {
        let values = named.map(|text| ("memory".to_owned(), text.to_owned()));
        let asked = Asked {
            values: values.into_iter().collect(),
            ..asked(&["a=/x"])
        };
        let config = asked
            .config_in(&within(mib))
            .map_err(|error| error.to_string())?;
        Ok::<_, String>((config.memory >> 20, config.memory_of.is_some()))
    };
    assert_eq!(limit(200, None), Ok((150, true)), "three quarters of it");
    assert_eq!(
        limit(4096, None),
        Ok((1024, false)),
        "there is more than the usual"
    );
    assert_eq!(limit(200, Some("200MiB")), Ok((200, false)));
    let refused = limit(200, Some("512MiB")).unwrap_err();
    for text in [
        "--memory",
        "`512MiB` is no value for `memory`",
        "allows 200 MiB (/sys/fs/cgroup/memory.max)",
        "give 150MiB or less",
    ] {
        assert!(refused.contains(text), "{refused}");
    }
}

#[test]
fn where_nothing_is_known_of_the_user() {
    let bare = Surroundings {
        temp: "/tmp".into(),
        user: 7,
        ..Surroundings::default()
    };
    let error = Asked::default().config_in(&bare).unwrap_err();
    assert!(matches!(error, ConfigError::NoHome));
    let named = asked(&["a=/x"]).config_in(&bare).unwrap();
    let socket = ListenConfig::Unix {
        path: "/tmp/tidegate-7.sock".into(),
        mode: 0o600,
    };
    assert_eq!(named.listen, [socket]);
    let state = Surroundings {
        state: Some("/state".into()),
        sockets: true,
        ..bare
    };
    let passed = Asked::default().config_in(&state).unwrap();
    assert_eq!(passed.listen, [], "systemd has given it sockets");
    assert!(
        matches!(&passed.volumes[0].backend, BackendConfig::Embedded { path, .. }
        if path == Path::new("/state/tidegate/default.img"))
    );
}

#[test]
fn volumes_of_the_command_line() {
    let config = config(&asked(&[
        "data=/srv/data.img",
        "vm/disk=new:rel/disk.img,size=10GiB,on_error=stop,dirty_min=5%,dirty_max=12.5%",
        "iso=./a:b.iso,ro,description=the one",
        "far=dir:/srv/far,size=1TiB,object_size=4MiB,parallel=4,force=true",
        "slow=/dev/vdb,block_min=512B,policy=retry,device=slow:rate=16MB,latency=2ms+trace",
    ]));
    let volume = |place: usize| &config.volumes[place];
    let file = |path: &str| BackendConfig::File {
        path: path.into(),
        size: None,
    };
    assert_eq!(volume(0).backend, file("/srv/data.img"));
    assert_eq!(volume(0).on_error, ErrorPolicy::Report);
    assert_eq!(volume(1).name, "vm/disk");
    let new = BackendConfig::New {
        path: "rel/disk.img".into(),
        size: 10 << 30,
    };
    assert_eq!(volume(1).backend, new);
    assert_eq!(volume(1).on_error, ErrorPolicy::Stop);
    let share = ShareConfig {
        least: 500,
        most: 1250,
    };
    assert_eq!(volume(1).share, share);
    assert_eq!(volume(2).backend, file("./a:b.iso"));
    assert!(volume(2).read_only && !volume(1).read_only);
    assert_eq!(volume(2).description, "the one");
    let far = BackendConfig::Objects {
        url: "dir:/srv/far".into(),
        size: Some(1 << 40),
        object_size: Some(4 << 20),
        parallel: Some(4),
        force: true,
    };
    assert_eq!(volume(3).backend, far);
    assert_eq!(volume(4).blocks.minimum, 512);
    assert_eq!(volume(4).on_error, ErrorPolicy::Retry, "by its old name");
    let slow = Layer::Slow(SlowOptions {
        rate: Some(BytesPerSec(16_000_000)),
        latency: Nanos::millis(2),
        ..SlowOptions::default()
    });
    assert_eq!(volume(4).layers.len(), 2);
    assert_eq!(volume(4).layers[0], slow);
}

#[test]
fn a_file_with_everything() {
    let file = TestFile::new(
        "everything.toml",
        r#"
memory = "256MiB"
dirty = "64MiB"
background = "16MiB"
listen = ["unix:/run/t.sock", "tcp:[::1]:10809"]
socket_mode = "0660"
web = "off"
max_connections = 100
max_requests = 1_6
max_request_size = "4MiB"
handshake_timeout = "2s"
slow_request = "3s"
paced = false
io_uring = false
nodes = "system"
page_rule = "reuse"
record = "/var/tmp/requests.csv"
record_limit = "2MiB"
log = "debug"
log_format = "json"

[tls]
certificate = "/c.pem"
key = "/k.pem"
clients = "/ca.pem"
required = false

[volume."a b"]
backend = "s3://bucket/prefix"
read_only = true

[volume.data]
backend = "new:/srv/data, with a comma.img"
size = "1GiB"
policy = "retry"
device = "slow:rate=1MB,burst=64KiB"
"#,
    );
    let config = config(&file.asked());
    assert_eq!(config.memory, 256 << 20);
    assert_eq!(config.dirty, Threshold::Pages(Pages(16384)));
    assert_eq!(config.background, Threshold::Pages(Pages(4096)));
    let unix = ListenConfig::Unix {
        path: "/run/t.sock".into(),
        mode: 0o660,
    };
    let tcp = ListenConfig::Tcp("[::1]:10809".parse().unwrap());
    assert_eq!(config.listen, [unix, tcp]);
    assert_eq!(config.web, None);
    let limits = LimitsConfig {
        connections: 100,
        of_one_address: None,
        requests: 16,
        request_bytes: 4 << 20,
        handshake: Duration::from_secs(2),
        slow: Duration::from_secs(3),
    };
    assert_eq!(config.limits, limits);
    assert!(!config.paced && !config.io_uring);
    assert_eq!(config.nodes, Nodes::System);
    assert_eq!(config.page_rule, Some("reuse"));
    let record = RecordConfig {
        path: "/var/tmp/requests.csv".into(),
        limit: 2 << 20,
    };
    assert_eq!(config.record, Some(record));
    assert_eq!(
        (config.log, config.log_format),
        (Level::Debug, Format::Json)
    );
    let tls = TlsConfig {
        certificate: "/c.pem".into(),
        key: "/k.pem".into(),
        clients: Some("/ca.pem".into()),
        revoked: None,
        required: false,
    };
    assert_eq!(config.tls, Some(tls));
    let [one, two] = config.volumes.as_slice() else {
        panic!("{:?}", config.volumes);
    };
    assert_eq!((one.name.as_str(), one.read_only), ("a b", true));
    let new = BackendConfig::New {
        path: "/srv/data, with a comma.img".into(),
        size: 1 << 30,
    };
    assert_eq!(two.backend, new);
    assert_eq!(two.on_error, ErrorPolicy::Retry);
}

#[test]
fn the_command_line_goes_before_the_file() {
    let file = TestFile::new(
        "both.toml",
        "memory = \"1GiB\"\nlisten = [\"unix:/a\"]\n[volume.a]\nbackend = \"/a\"\n",
    );
    let mut both = Asked {
        volumes: vec!["b=/b".into()],
        listen: vec!["unix:/b".into()],
        ..file.asked()
    };
    both.values.insert("memory".into(), "2GiB".into());
    let config = config(&both);
    assert_eq!(config.memory, 2 << 30);
    let names: Vec<&str> = config
        .volumes
        .iter()
        .map(|volume| volume.name.as_str())
        .collect();
    assert_eq!(names, ["b", "a"]);
    let out = TestFile::new(
        "out.toml",
        "[volume.a]\nbackend = \"/a\"\ntake_out = true\n[volume.b]\nbackend = \"/b\"\n",
    );
    let out = self::config(&out.asked());
    assert_eq!((out.take_out, out.volumes.len()), (vec!["a".to_owned()], 1));
    let paths: Vec<String> = config
        .listen
        .iter()
        .map(|listen| format!("{listen:?}"))
        .collect();
    assert!(
        paths[0].contains("/b") && paths[1].contains("/a"),
        "{paths:?}"
    );
    // A file without volumes has none: the embedded one is for users that say nothing.
    let empty = TestFile::new("empty.toml", "");
    assert!(self::config(&empty.asked()).volumes.is_empty());
}

#[test]
fn a_mistake_in_a_file_is_shown_with_its_line() {
    let shown = in_file("typo.toml", "memory = \"1GiB\"\nmemry = \"2GiB\"\n");
    assert_eq!(
        shown,
        "error: unknown key `memry`
 --> FILE:2:1
  |
2 | memry = \"2GiB\"
  | ^^^^^ not a key of the server
  |
  = help: did you mean `memory`? Allowed: memory, dirty, background, web, socket_mode, max_connections, max_connections_per_address, clients, control, end_idle, max_requests, max_request_size, handshake_timeout, slow_request, paced, io_uring, nodes, page_rule, record, record_limit, log, log_format, take_out_all, listen, tls, volume"
    );
}

#[test]
fn a_mistake_on_the_command_line_is_shown_in_its_word() {
    assert_eq!(
        refused(&asked(&["data=/x,on_eror=stop"])),
        "error: unknown option `on_eror` of a volume
 --> volume:1:9
  |
1 | data=/x,on_eror=stop
  |         ^^^^^^^ not an option of a volume
  |
  = help: did you mean `on_error`? Allowed: ro, size, read_only, durable, unlocked, on_error, dirty_min, dirty_max, description, block_min, block_preferred, object_size, parallel, force, device, take_out, clients (a path with a comma belongs in a file: --config)"
    );
}

#[test]
fn every_mistake_has_a_way_out() {
    // A line of a file, a part of the title, a part of the help.
    for (text, title, help) in [
        (
            "memory = 5",
            "`5` is no value for `memory`",
            "`5` has no unit: write 5B, 5MiB or 5GiB",
        ),
        (
            "memory = \"5 potatoes\"",
            "`5 potatoes` is no value",
            "as in 512MiB",
        ),
        (
            "memory = [1]",
            "wrong kind of value for `memory`",
            "a text, a number",
        ),
        (
            "dirty = \"0%\"",
            "`0%` is no value for `dirty`",
            "from 1 to 100",
        ),
        (
            "dirty = \"10%\"\nbackground = \"11%\"",
            "`background` is above `dirty`",
            "lower than `dirty`, which is 10%",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\ndirty_min = \"60%\"\n[volume.b]\nbackend = \"/y\"\ndirty_min = \"60.5%\"",
            "`dirty_min` of all volumes together is 120.50%",
            "at most 100%",
        ),
        (
            "background = \"21%\"",
            "`background` is above `dirty`",
            "20%",
        ),
        (
            "web = \"localhost\"",
            "no value for `web`",
            "127.0.0.1:9321",
        ),
        (
            "socket_mode = \"999\"",
            "no value for `socket_mode`",
            "0660",
        ),
        (
            "socket_mode = \"0066\"",
            "no value for `socket_mode`",
            "owner",
        ),
        (
            "max_connections = 0",
            "no value for `max_connections`",
            "from 1 to 1048576",
        ),
        (
            "max_connections = -1",
            "no value for `max_connections`",
            "from 1 to 1048576",
        ),
        (
            "max_request_size = \"4KiB\"",
            "no value for",
            "from 64KiB to 64MiB",
        ),
        (
            "handshake_timeout = \"1ms\"",
            "no value for",
            "from 100ms to 1h",
        ),
        (
            "record = \"\"\nrecord_limit = \"1MiB\"",
            "`` is no value for `record`",
            "write the path of a file, as in /var/lib/tidegate/requests.csv, or leave `record` away",
        ),
        (
            "record = \"./a.img\"\n[volume.a]\nbackend = \"new:a.img\"\nsize = \"1MiB\"",
            "`record` is ./a.img, the file of the volume `a`",
            "name another file",
        ),
        (
            "record = \"/r.csv\"\nrecord_limit = \"59B\"",
            "`59B` is no value for `record_limit`",
            "at least 16 KiB",
        ),
        ("paced = \"maybe\"", "no value for `paced`", "true, false"),
        (
            "paced = \"no\"",
            "no value for `paced`",
            "did you mean `false`",
        ),
        (
            "log = \"infos\"",
            "no value for `log`",
            "did you mean `info`",
        ),
        (
            "listen = [\"/run/x\"]",
            "`/run/x` is no place to listen at",
            "unix:PATH or tcp:",
        ),
        (
            "listen = [\"unix:\"]",
            "no place to listen",
            "unix:/run/tidegate",
        ),
        (
            "listen = [\"tcp:10809\"]",
            "no place to listen",
            "tcp:127.0.0.1:10809",
        ),
        (
            "listen = [\"tcp:example.com:10809\"]",
            "no place to listen",
            "numeric",
        ),
        (
            "listen = [\"unix:/a\", \"unix:/a\"]",
            "named twice",
            "leave one out",
        ),
        ("tls = 5", "`tls` has to be a table", "certificate ="),
        (
            "[tls]\nkey = \"k\"",
            "`certificate` is missing",
            "--tls-certificate",
        ),
        (
            "[tls]\ncertificate = \"k\"",
            "`key` is missing",
            "--tls-key",
        ),
        (
            "[tls]\nkey = \"k\"\ncertificate = \"c\"\nca = \"x\"",
            "unknown key `ca`",
            "clients",
        ),
        ("volume = 5", "`volume` has to be a table", "[volume.NAME]"),
        (
            "[[volume]]\nbackend = \"/x\"",
            "this is a list",
            "[volume.NAME]",
        ),
        (
            "[volume]\na = \"/x\"",
            "`a` has to be a table",
            "write [volume.a] on",
        ),
        (
            "[volume]\n\"a b\" = \"/x\"",
            "`a b` has to be a table",
            "write [volume.\"a b\"] on",
        ),
        (
            "[volume.a]\nbackend = \"\"",
            "the volume `a` has no backend",
            "PATH, new:PATH",
        ),
        (
            "[volume.a]\nsize = \"1GiB\"",
            "the volume `a` has no backend",
            "PATH, new:PATH",
        ),
        (
            "[volume.\"\"]\nbackend = \"/x\"",
            "`` is no name for a volume",
            "letters",
        ),
        (
            "[volume.\"a\\u0007\"]\nbackend = \"/x\"",
            "`a\\u{7}` is no name",
            "letters",
        ),
        (
            "[volume.a]\nbackend = \"new:/x\"",
            "the new volume `a` has no size",
            "size=10GiB",
        ),
        (
            "[volume.a]\nbackend = \"mem:\"",
            "the new volume `a` has no size",
            "size=10GiB",
        ),
        (
            "[volume.a]\nbackend = \"new:\"\nsize = \"1GiB\"",
            "the path of the new file",
            "new:PATH",
        ),
        (
            "[volume.a]\nbackend = \"new:/x\"\nsize = \"1000B\"",
            "`1000B` is no value",
            "as in 1024B",
        ),
        (
            "[volume.a]\nbackend = \"new:/x\"\nsize = \"0B\"",
            "`0B` is no value",
            "512 bytes",
        ),
        (
            "[volume.a]\nbackend = \"dir:/x\"\nsize = \"16TiB\"",
            "is no value for `size`",
            "17592186040320B (16 TiB less 4 KiB)",
        ),
        (
            "[volume.a]\nbackend = \"new:/x\"\nsize = \"1M\"\nread_only = true",
            "cannot be read-only",
            "without",
        ),
        (
            "[volume.a]\nbackend = \"S3:/x\"",
            "unknown kind of backend `S3:`",
            "s3://BUCKET",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\nobject_size = \"1MiB\"",
            "`object_size` is for volumes",
            "dir:",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\non_error = \"ignore\"",
            "`ignore` is no value",
            "retry, report, stop",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\npolicy = \"stop\"\non_error = \"retry\"",
            "`on_error` is given twice",
            "leave one",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\ndirty_max = \"0%\"",
            "share of the dirty limit",
            "more than 0%",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\ndirty_min = \"5%\"\ndirty_max = \"4%\"",
            "share",
            "no less",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\nblock_min = \"8KiB\"\nblock_preferred = \"8KiB\"",
            "smallest block",
            "4KiB",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\nblock_min = \"3B\"",
            "no value for `block_min`",
            "power of two",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\ndevice = \"slow\"",
            "no value for `device`",
            "a rate or a latency",
        ),
        (
            "[volume.a]\nbackend = \"/x\"\ndevice = \"volatile\"",
            "no value for `device`",
            "slow, faulty or trace",
        ),
        ("memory = ", "this is not valid TOML", ""),
        (
            "memory = \"1GiB\"\nmemory = \"2GiB\"",
            "this is not valid TOML",
            "duplicate key",
        ),
    ] {
        let shown = in_file("wrong.toml", text);
        assert!(shown.starts_with("error: "), "{text}\n{shown}");
        assert!(
            shown.contains(title) && shown.contains(help),
            "{text}\n{shown}"
        );
        assert!(shown.contains(" --> FILE:"), "{text}\n{shown}");
    }
}

#[test]
fn mistakes_of_the_command_line_alone() {
    for (volume, title, help) in [
        (
            "/srv/data.img",
            "the volume `/srv/data.img` has no backend",
            "data=/srv/data.img",
        ),
        (
            "data",
            "the volume `data` has no backend",
            "write NAME=BACKEND",
        ),
        ("=/x", "`` is no name for a volume", "letters"),
        ("a=", "the volume `a` has no backend", "new:PATH"),
        ("a=/x,size", "`size` has no value", "write size=VALUE"),
        (
            "a=/x,ro,read_only=false",
            "`read_only` is given twice",
            "leave one",
        ),
        (
            "a=/x,policy=stop,on_error=stop",
            "`on_error` is given twice",
            "leave one",
        ),
        ("a=/x,backend=/y", "unknown option `backend`", "allowed"),
        ("a=/x,", "unknown option ``", "llowed"),
    ] {
        let shown = refused(&asked(&[volume]));
        assert!(
            shown.contains(title) && shown.contains(help),
            "{volume}\n{shown}"
        );
    }
    let twice = refused(&asked(&["a=/x", "a=/y"]));
    assert!(twice.contains("there are two volumes `a`"), "{twice}");
    let twice = refused(&asked(&["a=new:/x,size=1MiB", "b=/x"]));
    assert!(twice.contains("two volumes are the file /x"), "{twice}");
    let mut values = asked(&["a=/x"]);
    values.values.insert("memory".into(), "1".into());
    values.values.insert("tls.key".into(), "k".into());
    let shown = refused(&values);
    assert!(shown.contains(" --> --memory:1:1"), "{shown}");
    assert!(
        shown.contains("`certificate` is missing"),
        "all at once: {shown}"
    );
}

#[test]
fn a_file_that_is_not_there() {
    let missing = Asked {
        file: Some("/nonexistent/t.toml".into()),
        ..Asked::default()
    };
    assert_eq!(
        refused(&missing),
        "cannot read the configuration /nonexistent/t.toml: No such file or directory; check the path: it, or a folder on the way to it, is not there"
    );
}

#[test]
fn a_file_in_another_encoding_is_named_with_the_line() {
    let name = format!("tidegate-latin-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, b"memory = \"1GiB\"\n# Gr\xf6\xdfe\n").unwrap();
    let asked = Asked {
        file: Some(path.clone()),
        ..Asked::default()
    };
    let refused = asked.config().unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(
        refused.ends_with("line 2 is not UTF-8: save it as that"),
        "{refused}"
    );
}

#[test]
fn no_words_make_it_panic() {
    // A small generator: the same words every time.
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((state >> 33) % below as u64).unwrap()
    };
    let parts = [
        "a",
        "=",
        ",",
        "/x",
        "new:",
        "size",
        "1GiB",
        "device",
        "slow:rate=",
        "ro",
        "ä",
        "%",
        "\"",
        "[",
        "]",
        "\n",
        "volume",
        ".",
        "memory",
        "dir:",
        "s3://",
        "\u{0}",
        "tls",
        " ",
        "#",
    ];
    for _ in 0..20_000 {
        let text: String = (0..next(12)).map(|_| parts[next(parts.len())]).collect();
        let _ = asked(&[&text])
            .config_in(&surroundings())
            .map_err(|error| error.to_string());
        let mut draft = draft::Draft::default();
        file::read(&mut draft, "x".into(), text);
        let checked = check::check(draft, &Asked::default(), &surroundings());
        let _ = checked.map_err(|error| error.to_string());
    }
}

#[test]
fn the_example_and_the_keys_of_the_documentation() {
    let text = include_str!("../../../../docs/serve/serve-reference.md");
    let example = text
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let file = TestFile::new("documentation.toml", example.unwrap());
    let config = config(&file.asked());
    assert_eq!(config.volumes.len(), 3);
    assert!(
        config
            .tls
            .is_some_and(|tls| tls.required && tls.clients.is_some())
    );
    let keys = [
        options::SERVER_KEYS,
        options::TLS_KEYS,
        options::VOLUME_KEYS,
    ];
    for key in keys.concat() {
        assert!(text.contains(&format!("`{key}`")), "{key}");
    }
}
