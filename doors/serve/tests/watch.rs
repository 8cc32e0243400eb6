//! The figures that a real server shows of itself while clients use it: counted right, and told
//! when a volume is in trouble.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::common::{Folder, LONG, PAGE, Server, Setup, bytes, until};
use nbd::client::Wishes;
use serve::config::{BackendConfig, WebConfig};
use serve::export::ExportOptions;
use serve::log::{Format, Level, Log};
use serve::snapshot::{Sampler, Snapshot, Source, State, Watched};

/// The server's HTTP side.
struct Page(serve::web::Handle);

impl Page {
    fn of(server: &Server) -> Self {
        let config = WebConfig {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            insisted: true,
        };
        let watched = Watched::new(&server.hub, server.cache.clone());
        Self(serve::web::start(&config, Arc::new(watched)).unwrap())
    }

    /// Status and body.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.0.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    fn snapshot(&self) -> Snapshot {
        serde_json::from_str(&self.get("/snapshot.json").1).unwrap()
    }
}

/// The value of a metric.
fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.trim().parse().unwrap()
}

/// Clients get an error; its cause is said where an operator looks.
#[test]
fn an_object_that_somebody_else_wrote_is_named() {
    let folder = Folder::new();
    let path = folder.0.join("objects");
    let server = Server::start(Setup {
        backend: Some(BackendConfig::Objects {
            url: format!("dir:{}", path.display()),
            size: Some(4 << 20),
            object_size: None,
            parallel: None,
            force: false,
        }),
        ..Setup::default()
    });
    let mut client = server.client();
    client.write(1 << 20, &bytes(1, PAGE)).unwrap();
    client.flush().unwrap();
    let object = "0000000000000001";
    std::fs::write(path.join(object), vec![9; 1 << 20]).unwrap();
    client.write(1 << 20, &bytes(2, PAGE)).unwrap();
    client.flush().unwrap_err();
    let watched = Watched::new(&server.hub, server.cache.clone());
    let said = watched.read().volumes[0].last_error.clone().unwrap();
    assert!(said.contains("somebody else changed the object"), "{said}");
    assert!(said.contains(object), "{said}");
}

#[test]
fn what_clients_do_is_counted() {
    let server = Server::start(Setup {
        options: ExportOptions {
            name: "v".to_owned(),
            ..ExportOptions::default()
        },
        ..Setup::default()
    });
    let page = Page::of(&server);
    let mut client = server.client_of(&Wishes::export("v"));
    let data = bytes(1, 16 * PAGE);
    for at in 0..10 {
        client.write(at << 20, &data).unwrap();
    }
    let mut back = vec![0; data.len()];
    for at in 0..5 {
        client.read(at << 20, &mut back).unwrap();
    }
    // Refused: beyond the end.
    assert!(client.read(server.export.size(), &mut back).is_err());
    let reading = Watched::new(&server.hub, server.cache.clone()).read();
    assert_eq!(
        reading.stats.dirty + reading.stats.writeback,
        reading.volumes[0].numbers.dirty + reading.volumes[0].numbers.writeback
    );
    // They are about ranges, and move nothing.
    let range = 1_u32 << 20;
    client.trim(32 << 20, range).unwrap();
    client
        .zero(33 << 20, range, nbd::wire::CommandFlags::NONE)
        .unwrap();
    client.cache(0, range).unwrap();
    client.flush().unwrap();
    // Counted when the connection has run, which may be after its reply is here.
    until("the flush is counted", || {
        let text = page.get("/metrics").1;
        metric(
            &text,
            "tidegate_requests_total{volume=\"v\",command=\"flush\"}",
        ) == 1.0
    });
    let text = page.get("/metrics").1;
    let of = |name: &str, command: &str| {
        metric(
            &text,
            &format!("{name}{{volume=\"v\",command=\"{command}\"}}"),
        )
    };
    assert_eq!(of("tidegate_requests_total", "write"), 10.0);
    assert_eq!(of("tidegate_request_bytes_total", "write"), 655_360.0);
    assert_eq!(of("tidegate_requests_total", "read"), 6.0);
    assert_eq!(of("tidegate_request_errors_total", "read"), 1.0);
    assert_eq!(of("tidegate_request_bytes_total", "read"), 327_680.0);
    for command in ["trim", "write_zeroes", "cache"] {
        assert_eq!(of("tidegate_requests_total", command), 1.0, "{command}");
        assert_eq!(of("tidegate_request_bytes_total", command), 0.0);
    }
    assert_eq!(of("tidegate_request_duration_seconds_count", "write"), 10.0);
    assert_eq!(
        metric(&text, "tidegate_volume_connections{volume=\"v\"}"),
        1.0
    );
    assert_eq!(
        metric(&text, "tidegate_volume_written_bytes_total{volume=\"v\"}"),
        655_360.0
    );
    assert_eq!(
        metric(&text, "tidegate_volume_dirty_bytes{volume=\"v\"}"),
        0.0
    );
    assert_eq!(
        metric(&text, "tidegate_memory_limit_bytes"),
        f64::from(64 << 20)
    );
    let listed = Sampler::default().next(reading);
    assert_eq!(listed.volumes[0].name, "v");
    assert_eq!(page.get("/healthz"), (200, "ok\n".to_owned()));
    until("the snapshot says the same", || {
        let snapshot = page.snapshot();
        let write = snapshot.volumes[0]
            .commands
            .iter()
            .find(|command| command.command == "write");
        write.is_some_and(|write| write.numbers.requests == 10 && write.latency.count == 10)
    });
}

#[test]
fn held_replies_are_pauses() {
    let server = Server::start(Setup {
        layers: "slow:rate=4MiB,depth=1",
        ..Setup::default()
    });
    let mut client = server.client();
    let data = bytes(2, 64 << 10);
    let watched = Watched::new(&server.hub, server.cache.clone());
    let mut is_above = false;
    for round in 0..600_u64 {
        client.write((round % 900) << 16, &data).unwrap();
        if round % 50 == 49 {
            let level = Sampler::default().next(watched.read()).volumes[0].level;
            is_above |= level.limit > 0 && level.level > level.background;
        }
    }
    assert!(is_above, "it is written faster than the device takes it");
    // Counted when the connection has run, which may be after its reply is here.
    let written = |snapshot: &Snapshot| snapshot.volumes[0].commands[0].numbers.bytes;
    until("all of it is counted", || {
        written(&Sampler::default().next(watched.read())) == 600 << 16
    });
    let snapshot = Sampler::default().next(watched.read());
    let volume = &snapshot.volumes[0];
    assert!(volume.numbers.held_total > 0, "{volume:?}");
    assert_eq!(volume.pauses.count, volume.numbers.held_total);
    assert!(volume.pauses.max_us > 0 && volume.pauses.p50_us <= volume.pauses.max_us);
    // They are the waits of the client that wrote, and of no other; so is its flush.
    let mut other = server.client();
    other.read(0, &mut [0; PAGE]).unwrap();
    client.flush().unwrap();
    let waits = |of: usize, cause: &str| {
        let clients = &watched.read().volumes[0].clients;
        let wait = clients[of].waits.iter().find(|wait| wait.cause == cause);
        wait.map_or(0, |wait| wait.count)
    };
    assert_eq!(waits(0, "held reply"), volume.numbers.held_total);
    until("the flush is a wait", || waits(0, "flush") == 1);
    assert_eq!((waits(1, "held reply"), waits(1, "flush")), (0, 0));
}

#[test]
fn a_client_waits_for_its_own_reads() {
    let server = Server::start(Setup {
        layers: "slow:latency=5ms,depth=1",
        ..Setup::default()
    });
    let (mut reader, mut other) = (server.client(), server.client());
    let mut page = vec![0; PAGE];
    reader.read(16 << 20, &mut page).unwrap();
    // A page in memory is not waited for.
    other.read(16 << 20, &mut page).unwrap();
    let watched = Watched::new(&server.hub, server.cache.clone());
    let volume = &watched.read().volumes[0];
    let read = |of: &[tidegate::CallWait]| {
        let wait = of.iter().find(|wait| wait.cause == "read");
        wait.map_or(0, |wait| wait.count)
    };
    assert!(read(&volume.clients[0].waits) > 0, "{volume:?}");
    assert_eq!(read(&volume.clients[0].waits), read(&volume.waits));
    assert!(volume.clients[1].waits.is_empty(), "{volume:?}");
}

/// A disk that fails some reads and takes all writes.
#[test]
fn reads_that_fail_are_a_state() {
    let server = Server::start(Setup {
        layers: "faulty:eio_reads=0.3,seed=1",
        ..Setup::default()
    });
    let page = Page::of(&server);
    let mut client = server.client();
    let mut into = vec![0; PAGE];
    let failed = (0..100).filter(|at| client.read(at * 64 * PAGE as u64, &mut into).is_err());
    assert!((1..100).contains(&failed.count()));
    until("the state is told", || {
        page.snapshot().volumes[0].state == State::ReadsFail
    });
    let volume = page.snapshot().volumes.remove(0);
    assert!(volume.numbers.read_failed_total > 0, "{volume:?}");
    assert!(
        volume
            .last_read_error
            .unwrap()
            .starts_with("reading at byte")
    );
    let (status, body) = page.get("/healthz");
    assert_eq!(status, 200, "clients get on: {body}");
    assert!(body.contains("reads from the backing "), "{body}");
    assert!(body.contains(": reading at byte "), "{body}");
    let text = page.get("/metrics").1;
    let state = "tidegate_volume_state{volume=\"\",state=\"reads_fail\"}";
    assert_eq!(metric(&text, state), 1.0);
    let bytes = metric(
        &text,
        "tidegate_volume_read_failed_bytes_total{volume=\"\"}",
    );
    assert!(bytes > 0.0 && page.get("/top").1.contains("last read error: "));
}

fn said(lines: &Mutex<Vec<u8>>) -> String {
    String::from_utf8(lines.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_backing_that_hangs_is_told_and_watching_goes_on() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&lines);
    let sink = move |line: &[u8]| {
        into.lock().unwrap().extend_from_slice(line);
        true
    };
    let log = Log::new(Format::Logfmt, Level::Info, Box::new(sink));
    let server = Server::start(Setup {
        layers: "faulty:seed=1",
        ..Setup::default()
    });
    let page = Page::of(&server);
    let hold = &server.layers.stack().unwrap().faulty[0];
    hold.hold();
    let mut client = server.client();
    client.write(0, &bytes(3, 4 * PAGE)).unwrap();
    // Its flush waits for as long as the backing hangs.
    let flush = std::thread::spawn(move || client.flush());
    // Watched from this thread, whose log is kept.
    let watching = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let watched = Arc::new(Watched::new(&server.hub, server.cache.clone()));
    tracing::subscriber::with_default(log, || {
        watching.block_on(async {
            let stalled = async {
                let began = std::time::Instant::now();
                while page.snapshot().volumes[0].state != State::Stalled {
                    assert!(began.elapsed() < LONG, "{:?}", page.snapshot().volumes[0]);
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
                while !said(&lines).contains("state=stalled") {
                    assert!(began.elapsed() < LONG, "{}", said(&lines));
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
            };
            tokio::select! {
                () = serve::snapshot::watch(watched) => {}
                () = stalled => {}
            }
        });
    });
    let (status, body) = page.get("/healthz");
    assert_eq!(status, 503);
    assert!(body.contains("the backing has not answered for"), "{body}");
    let text = page.get("/metrics").1;
    assert_eq!(
        metric(
            &text,
            "tidegate_volume_state{volume=\"\",state=\"stalled\"}"
        ),
        1.0
    );
    assert!(!flush.is_finished());
    hold.release();
    flush.join().unwrap().unwrap();
    until("the volume works again", || page.get("/healthz").0 == 200);
}
