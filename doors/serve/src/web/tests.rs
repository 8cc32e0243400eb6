use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Instant;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};

use super::answers::refusal;
use super::*;
use crate::log::{Format, Level, Log};
use crate::snapshot::tests::Example;
use crate::snapshot::{Snapshot, State};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Longer than anything here takes on a machine that does much else.
const LONG: Duration = Duration::from_secs(120);

fn started(state: State) -> Handle {
    let config = WebConfig {
        address: LOOPBACK,
        insisted: true,
    };
    start(&config, Arc::new(Example::new(state))).unwrap()
}

fn connected(handle: &Handle) -> TcpStream {
    let stream = TcpStream::connect(handle.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// The whole answer to a request that closes, as text.
fn asked(handle: &Handle, request: &str) -> String {
    let mut stream = connected(handle);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A refused request may be answered by a reset after the answer.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn got(handle: &Handle, path: &str) -> (u16, String, String) {
    let address = handle.address();
    let answer = asked(
        handle,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
    );
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer:?}"));
    let status = head[9..12].parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

/// Lines of the log that `made` writes.
fn logged<T>(made: impl FnOnce() -> T) -> (T, String) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&lines);
    let sink = move |line: &[u8]| {
        into.lock().unwrap().extend_from_slice(line);
        true
    };
    let log = Log::new(Format::Logfmt, Level::Info, Box::new(sink));
    let result = tracing::subscriber::with_default(log, made);
    let bytes = lines.lock().unwrap().clone();
    (result, String::from_utf8(bytes).unwrap())
}

#[test]
fn every_path_is_answered_with_what_it_is() {
    let handle = started(State::Ok);
    let (status, head, body) = got(&handle, "/");
    assert_eq!((status, body.as_str()), (200, answers::PAGE));
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "text/html",
    ] {
        assert!(head.contains(header), "{head}");
    }
    let (status, head, body) = got(&handle, "/snapshot.json");
    assert_eq!(status, 200);
    assert!(head.contains("application/json"), "{head}");
    let snapshot: Snapshot = serde_json::from_str(&body).unwrap();
    assert_eq!(snapshot.volumes[0].name, "root");
    let (status, head, body) = got(&handle, "/top");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain"), "{head}");
    let first = format!(
        "tidegate {} at {}: ",
        env!("CARGO_PKG_VERSION"),
        handle.address()
    );
    assert!(
        body.starts_with(&first) && body.contains("\nvolume root  ok"),
        "{body}"
    );
    let (status, head, body) = got(&handle, "/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let (status, _, body) = got(&handle, "/history.json");
    assert_eq!(status, 200);
    assert!(
        serde_json::from_str::<serde_json::Value>(&body)
            .unwrap()
            .is_array()
    );
    assert_eq!(got(&handle, "/healthz").2, "ok\n");
    assert_eq!(got(&handle, "/nothing").0, 404);
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_is_small() {
    let page = answers::PAGE;
    assert!(page.len() < 60_000, "{}", page.len());
    for outside in [
        "http://",
        "https://",
        "src=",
        "@import",
        "url(",
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    ] {
        // The name space of SVG is a name, not an address that is asked.
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(outside), "{outside}");
    }
}

#[test]
fn an_unhealthy_volume_is_told_with_503() {
    let handle = started(State::FlushFailed);
    let (status, _, body) = got(&handle, "/healthz");
    assert_eq!(status, 503);
    assert_eq!(
        body,
        "not ok\nvolume \"data/backup\": a flush of the backing failed\n"
    );
    let retrying = started(State::Retrying);
    let (status, _, body) = got(&retrying, "/healthz");
    assert_eq!(status, 200);
    assert!(
        body.starts_with("ok\nvolume \"data/backup\": writes"),
        "{body}"
    );
}

/// Reads chunks of an answer that does not end, until `count` events were seen.
fn events(stream: TcpStream, count: usize) -> Vec<Snapshot> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/event-stream"), "{head}");
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).unwrap();
        text.push_str(core::str::from_utf8(&chunk[..size]).unwrap());
    }
    let events = text.split_terminator("\n\n");
    events
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

const EVENTS: &str = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn events_come_once_a_second_and_the_first_at_once() {
    let handle = started(State::Ok);
    let mut stream = connected(&handle);
    let began = Instant::now();
    stream.write_all(EVENTS.as_bytes()).unwrap();
    let events = events(stream, 3);
    let took = began.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    assert_eq!(events.len(), 3);
    assert!(events[0].at_ms < events[1].at_ms && events[1].at_ms < events[2].at_ms);
    let write = &events[2].volumes[0].commands[1];
    assert_eq!(write.request_rate, 2000);
}

#[test]
fn listeners_are_bounded_and_a_gone_one_makes_room() {
    let handle = started(State::Ok);
    let mut listening = Vec::new();
    for _ in 0..LISTENERS {
        let mut stream = connected(&handle);
        stream.write_all(EVENTS.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        listening.push(stream);
    }
    let (status, head, _) = got(&handle, "/events");
    assert_eq!(status, 503);
    assert!(head.contains("retry-after"), "{head}");
    assert_eq!(got(&handle, "/snapshot.json").0, 200);
    listening.pop();
    let deadline = Instant::now() + LONG;
    loop {
        let mut stream = connected(&handle);
        stream.write_all(EVENTS.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        if &first == b"HTTP/1.1 200" {
            break;
        }
        assert!(Instant::now() < deadline, "no room was made");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_thousand_silent_clients_keep_nobody_out() {
    // Else until the time of those that are silent is up. A busy machine may need more than one
    // try.
    let took: Vec<Duration> = (0..5)
        .map(|_| asked_beside_a_thousand_silent_clients())
        .take_while(|took| *took >= door::REQUEST_TIME / 2)
        .collect();
    assert!(took.len() < 5, "{took:?}");
}

/// Time that somebody waits for an answer.
fn asked_beside_a_thousand_silent_clients() -> Duration {
    let handle = started(State::Ok);
    let mut listener = connected(&handle);
    listener.write_all(EVENTS.as_bytes()).unwrap();
    let mut first = [0; 12];
    listener.read_exact(&mut first).unwrap();
    let mut silent = Vec::new();
    for number in 0..1000 {
        let mut stream = connected(&handle);
        if number % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
        }
        silent.push(stream);
    }
    let began = Instant::now();
    assert_eq!(got(&handle, "/healthz").0, 200);
    let took = began.elapsed();
    // Most of them were sent away; listeners were not.
    let mut open = 0;
    for stream in &mut silent {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0; 1]);
        open += usize::from(read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    }
    assert!(open < door::SEATS, "{open}");
    let mut more = [0; 2000];
    listener.read_exact(&mut more).unwrap();
    took
}

#[test]
fn a_slow_request_is_cut_off_and_a_long_one_too() {
    let handle = started(State::Ok);
    let mut slow = connected(&handle);
    slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut long = connected(&handle);
    let _ = long.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    let _ = long.write_all(&vec![b'x'; 4 * door::REQUEST_MAX]);
    let mut answer = Vec::new();
    let _ = long.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    let began = Instant::now();
    // A byte now and then does not buy time.
    let ended = loop {
        std::thread::sleep(Duration::from_millis(500));
        if slow.write_all(b"X").is_err() {
            break true;
        }
        if began.elapsed() > door::REQUEST_TIME + LONG {
            break false;
        }
    };
    assert!(ended);
}

#[test]
fn only_loopback_hosts_are_answered_on_loopback() {
    let handle = started(State::Ok);
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:9321", 200),
        ("127.0.0.1:9321", 200),
        ("127.9.9.9", 200),
        ("[::1]:9321", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost:9321@evil.example", 421),
        ("10.0.0.1", 421),
        ("", 421),
        ("[::1", 421),
        ("localhost:x", 421),
    ] {
        let answer = asked(
            &handle,
            &format!("GET /snapshot.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        );
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {answer}"
        );
    }
    // Two of them, or none.
    let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(!asked(&handle, two).starts_with("HTTP/1.1 200"));
    assert!(!asked(&handle, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"));
}

#[test]
fn bodies_other_methods_and_pages_from_elsewhere_are_refused() {
    let handle = started(State::Ok);
    let ask = |rest: &str| {
        asked(
            &handle,
            &format!("{rest}Host: localhost\r\nConnection: close\r\n\r\n"),
        )
    };
    assert!(ask("POST /metrics HTTP/1.1\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask("GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n").starts_with("HTTP/1.1 413"));
    assert!(
        ask("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n").starts_with("HTTP/1.1 413")
    );
    assert!(
        ask("GET /events HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n").starts_with("HTTP/1.1 403")
    );
    assert!(ask("HEAD /metrics HTTP/1.1\r\n").starts_with("HTTP/1.1 200"));
    let link = "GET / HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert!(ask(link).starts_with("HTTP/1.1 200"));
    let answer = ask("GET /snapshot.json HTTP/1.1\r\nOrigin: http://evil.example\r\n");
    assert!(
        !answer.to_lowercase().contains("access-control-allow"),
        "{answer}"
    );
}

#[test]
fn elsewhere_than_on_loopback_any_host_is_answered() {
    let mut headers = HeaderMap::new();
    headers.insert("host", "metrics.internal:9321".parse().unwrap());
    assert_eq!(refusal(&headers, false), None);
    assert_eq!(
        refusal(&headers, true).unwrap().0,
        StatusCode::MISDIRECTED_REQUEST
    );
}

#[test]
fn an_address_for_everybody_is_warned_of() {
    let config = WebConfig {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        insisted: true,
    };
    let source = || Arc::new(Example::new(State::Ok));
    let (handle, lines) = logged(|| start(&config, source()).unwrap());
    assert!(lines.contains("level=warn"), "{lines}");
    assert!(lines.contains("no password"), "{lines}");
    assert_eq!(got(&handle, "/healthz").0, 200);
    let loopback = WebConfig {
        address: LOOPBACK,
        ..config
    };
    let (_, lines) = logged(|| start(&loopback, source()).unwrap());
    assert!(!lines.contains("level=warn"), "{lines}");
}

#[test]
fn a_taken_address_is_an_error_only_if_it_was_insisted_on() {
    let taken = TcpListener::bind(LOOPBACK).unwrap();
    let address = taken.local_addr().unwrap();
    let source = || Arc::new(Example::new(State::Ok));
    let asked = WebConfig {
        address,
        insisted: true,
    };
    let error = start(&asked, source()).unwrap_err();
    assert!(matches!(error, WebError::Taken { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let default = WebConfig {
        address,
        insisted: false,
    };
    let (handle, lines) = logged(|| start(&default, source()).unwrap());
    assert!(
        lines.contains("level=warn") && lines.contains("taken"),
        "{lines}"
    );
    assert_ne!(handle.address(), address);
    assert!(handle.address().ip().is_loopback());
    assert_eq!(got(&handle, "/healthz").0, 200);
}

#[test]
fn it_ends_at_once_with_listeners_left() {
    let handle = started(State::Ok);
    let mut stream = connected(&handle);
    stream.write_all(EVENTS.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    let address = handle.address();
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(handle);
        let _ = told.send(());
    });
    // This one goes on to listen.
    let waited = ended.recv_timeout(LONG);
    waited.expect("it does not wait for its listeners");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(TcpStream::connect(address).is_err());
}

/// A browser of this machine.
fn chromium() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let asked = std::process::Command::new(name).arg("--version").output();
            asked.is_ok_and(|answer| answer.status.success())
        })
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(chromium) = chromium() else {
        eprintln!("SKIPPED: there is no chromium: the live page was not tried in a browser");
        return;
    };
    let handle = started(State::Stalled);
    let folder = std::env::temp_dir().join(format!("tidegate-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // The page has some seconds to draw.
    std::thread::sleep(Duration::from_secs(3));
    let output = std::process::Command::new("timeout")
        .args([
            "240",
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=8000",
            "--window-size=1280,1500",
        ])
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!(
            "--screenshot={}",
            folder.join("page.png").display()
        ))
        .arg("--dump-dom")
        // Events never end, and virtual time waits for what was asked to end.
        .arg(format!("http://{}/?poll", handle.address()))
        .output()
        .unwrap();
    let (page, log) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if let Some(keep) = std::env::var_os("KEEP_SCREENSHOT") {
        std::fs::copy(folder.join("page.png"), keep).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let trouble: Vec<_> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(trouble.is_empty(), "{trouble:#?}");
    for text in [
        "not ok",
        "root",
        "data/backup (read-only)",
        "the backing has not answered",
        "dirty pause",
        "write",
        "36 MiB of 48 MiB",
    ] {
        assert!(
            page.contains(text),
            "{text} is not on the page:\n{page}\n{log}"
        );
    }
}

/// Both ends of a connection, both with a small buffer, so that what is taken is what was read: the
/// server's as the door gives it, the client's because the system would let a slow client have up
/// to tens of megabytes.
async fn pair(door: &mut Door) -> (tokio::net::TcpStream, door::Connection) {
    use axum::serve::Listener;
    let address = door.local_addr().unwrap();
    let client = tokio::net::TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(256 << 10).unwrap();
    let (client, (server, _)) = tokio::join!(client.connect(address), door.accept());
    (client.unwrap(), server)
}

#[test]
fn who_takes_nothing_is_cut_off_and_who_takes_slowly_is_not() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind(LOOPBACK).await.unwrap();
        let mut door = Door::new(listener, Router::new(), SystemTime::now);
        let data = vec![7; 64 << 20];
        let (client, mut server) = pair(&mut door).await;
        let began = Instant::now();
        let error = tokio::time::timeout(LONG, server.write_all(&data)).await;
        let error = error.expect("it is cut off").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= door::ANSWER_TIME);
        drop(client);
        // A megabyte at a time with a rest: longer altogether than one may be silent.
        let (mut client, mut server) = pair(&mut door).await;
        let taken = tokio::spawn(async move {
            let mut piece = vec![0; 8 << 20];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(1200)).await;
                client.read_exact(&mut piece).await.unwrap();
            }
        });
        let began = Instant::now();
        server.write_all(&data).await.unwrap();
        assert!(began.elapsed() > door::ANSWER_TIME, "{:?}", began.elapsed());
        taken.await.unwrap();
    });
}

#[test]
fn a_clock_that_http_has_no_date_for_ends_no_answer() {
    for clock in [
        || SystemTime::UNIX_EPOCH - Duration::from_secs(4 * 3600),
        || SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800),
    ] {
        let config = WebConfig {
            address: LOOPBACK,
            insisted: true,
        };
        let source = Arc::new(Example::new(State::Ok));
        let handle = start_by(clock, &config, source).unwrap();
        // Each of them would panic in hyper, by a clock of the system that stands there.
        for (path, part) in [
            ("/healthz", "ok\n"),
            ("/metrics", "# EOF\n"),
            ("/", "<!DOCTYPE html>"),
            ("/top", "tidegate "),
        ] {
            let (status, head, body) = got(&handle, path);
            assert_eq!(status, 200, "{head}");
            assert!(!head.to_lowercase().contains("\r\ndate:"), "{head}");
            assert!(body.contains(part), "{path}: {body}");
        }
        let (status, _, _) = got(&handle, "/nothing");
        assert_eq!(status, 404);
        let refused = asked(&handle, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 421"), "{refused}");
        let head = asked(&handle, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        let mut stream = connected(&handle);
        stream.write_all(EVENTS.as_bytes()).unwrap();
        let mut first = vec![0; 2000];
        stream.read_exact(&mut first).unwrap();
        assert!(String::from_utf8_lossy(&first).contains("\r\n\r\ndata: {"));
    }
    // By a clock that stands right, hyper answers.
    let (_, head, _) = got(&started(State::Ok), "/healthz");
    assert!(head.to_lowercase().contains("\r\ndate:"), "{head}");
}
