use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::config::WebConfig;
use crate::snapshot::example::{Example, reading};
use crate::snapshot::{Sampler, Snapshot, State};

fn example(state: State) -> Box<Snapshot> {
    let began = Instant::now();
    let mut sampler = Sampler::default();
    sampler.next(reading(began, 4, state));
    Box::new(sampler.next(reading(began, 5, state)))
}

fn model(state: State) -> Model {
    let mut model = Model::new("127.0.0.1:9321".to_owned());
    for level in [0, 3, 9, 5, 2, 8] {
        let mut snapshot = example(state);
        snapshot.volumes[0].commands[1].byte_rate = level << 20;
        model.hear(News::Snapshot(snapshot));
    }
    model.hear(News::Snapshot(example(state)));
    model
}

/// The frame as text, without blanks at the ends of lines.
fn frame(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        for x in 0..width {
            line.push_str(buffer[(x, y)].symbol());
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Compares with the stored text; `UPDATE_FRAMES=1` stores it.
fn assert_stored(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/top/frames")
        .join(name);
    if std::env::var_os("UPDATE_FRAMES").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} differs; UPDATE_FRAMES=1 stores what it is now:\n{text}",
        path.display()
    );
}

#[test]
fn a_working_server_looks_like_this() {
    assert_stored("working.txt", &frame(&model(State::Ok), 100, 26));
}

#[test]
fn trouble_is_told_at_the_top() {
    let mut model = model(State::Stalled);
    model.hear(News::Gone("Connection refused (os error 111)".to_owned()));
    assert_stored("trouble.txt", &frame(&model, 80, 24));
}

#[test]
fn any_size_can_be_drawn() {
    let model = model(State::FlushFailed);
    for (width, height) in [(1, 1), (3, 50), (200, 3), (20, 10), (500, 100)] {
        frame(&model, width, height);
    }
}

#[test]
fn before_the_first_answer_it_says_whom_it_asks() {
    let mut model = Model::new("127.0.0.1:9321".to_owned());
    assert_eq!(frame(&model, 60, 1), "asking 127.0.0.1:9321 ...\n");
    model.hear(News::Gone("refused".to_owned()));
    assert_eq!(
        frame(&model, 80, 1),
        "no answer from 127.0.0.1:9321: refused; trying again (q quits)\n"
    );
}

#[test]
fn the_list_of_volumes_scrolls_and_stops_at_its_ends() {
    let mut model = model(State::Ok);
    model.scroll(-1);
    assert_eq!(model.first, 0);
    model.scroll(9);
    assert_eq!(model.first, 1);
    let text = frame(&model, 100, 26);
    assert!(
        text.contains("data/backup") && !text.contains("root"),
        "{text}"
    );
    // Fewer volumes than before.
    let mut snapshot = example(State::Ok);
    snapshot.volumes.clear();
    model.hear(News::Snapshot(snapshot));
    assert_eq!(model.first, 0);
}

#[test]
fn a_name_cannot_draw() {
    let mut snapshot = example(State::Ok);
    let bad = "a\u{1b}[2J\nb\u{202e}\u{9b}31m";
    snapshot.volumes[0].name = bad.to_owned();
    snapshot.health.reasons.push(bad.to_owned());
    let plain = plain::show("x", &snapshot);
    let mut model = Model::new("x".to_owned());
    model.hear(News::Snapshot(snapshot));
    for text in [plain, frame(&model, 100, 26)] {
        let is_bad = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!text.contains(is_bad), "{text:?}");
        assert!(text.contains("a?[2J?b??31m"), "{text}");
    }
}

#[test]
fn plain_text_has_all_of_it() {
    assert_stored(
        "plain.txt",
        &plain::show("127.0.0.1:9321", &example(State::Retrying)),
    );
}

#[test]
fn numbers_are_short() {
    let all = [0, 1023, 1024, 102_400, 1 << 20, (1 << 30) - 1, u64::MAX].map(text::bytes);
    assert_eq!(all, ["0", "1023", "1.0K", "100K", "1.0M", "1023M", "15.9E"]);
    let all = [
        9,
        1_234,
        99_999,
        250_000,
        1_500_000,
        99_900_000,
        3_700_000_000,
    ]
    .map(text::time);
    assert_eq!(
        all,
        ["9us", "1.2ms", "99.9ms", "250ms", "1.5s", "99.9s", "1h01m"]
    );
    let all = [9_999, 10_000, 12_345_678, 98_765_432_100].map(text::count);
    assert_eq!(all, ["9999", "10k", "12M", "98G"]);
    assert_eq!(text::percent(u64::MAX, u64::MAX), 100);
    assert_eq!(text::percent(1, 0), 0);
    assert_eq!(text::name("", 5), "(default)");
    assert_eq!(text::name("abcdefgh", 5), "abcd…");
}

#[test]
fn addresses_are_taken_as_people_write_them() {
    for (written, asked) in [
        ("127.0.0.1:9321", "127.0.0.1:9321"),
        ("http://127.0.0.1:9321/", "127.0.0.1:9321"),
        (" http://box:80/metrics", "box:80"),
        ("box", "box:9321"),
        ("[::1]", "[::1]:9321"),
        ("[::1]:7", "[::1]:7"),
    ] {
        assert_eq!(client::host_and_port(written), asked);
    }
}

fn web() -> crate::web::Handle {
    let config = WebConfig {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        insisted: true,
    };
    crate::web::start(&config, Arc::new(Example::new(State::Ok))).unwrap()
}

#[test]
fn it_reads_a_real_server_and_hears_that_it_ends() {
    let handle = web();
    let address = handle.address().to_string();
    assert_eq!(client::snapshot(&address).unwrap().volumes[0].name, "root");
    let mut events = client::Events::open(&address).unwrap();
    let first = events.next().unwrap();
    let second = events.next().unwrap();
    assert!(second.at_ms > first.at_ms);
    drop(handle);
    assert!(events.next().is_err());
    assert!(matches!(
        client::Events::open(&address),
        Err(ClientError::Connection(_))
    ));
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (send, news) = sync_channel(4);
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let text = address.to_string();
    let reader = std::thread::spawn(move || follow(&text, &send, &stop));
    // It ends in the middle of its answer, then answers, then is silent for good.
    let (mut stream, _) = listener.accept().unwrap();
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata")
        .unwrap();
    drop(stream);
    assert!(matches!(news.recv().unwrap(), News::Gone(_)));
    let (mut stream, _) = listener.accept().unwrap();
    let json = serde_json::to_string(&example(State::Ok)).unwrap();
    let event = format!("data: {json}\n\n");
    let (left, right) = event.split_at(100);
    let chunks = format!(
        "{:x}\r\n{left}\r\n{:x};x=y\r\n{right}\r\n0\r\n\r\n",
        left.len(),
        right.len()
    );
    stream
        .write_all(
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes(),
        )
        .unwrap();
    assert!(matches!(news.recv().unwrap(), News::Snapshot(_)));
    assert!(matches!(news.recv().unwrap(), News::Gone(_)));
    is_over.store(true, Ordering::Relaxed);
    drop((news, listener));
    reader.join().unwrap();
}

/// What the client makes of an answer.
fn answered(answer: &[u8]) -> Result<Snapshot, ClientError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = answer.to_vec();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(&answer);
    });
    let got = client::snapshot(&address);
    server.join().unwrap();
    got
}

#[test]
fn what_is_no_server_of_ours_is_an_error() {
    let long = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &vec![b'x'; 20_000]].concat();
    for answer in [
        b"".as_slice(),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\xff\xff\r\n\r\n{}",
        &long,
    ] {
        assert!(
            answered(answer).is_err(),
            "{}",
            String::from_utf8_lossy(answer)
        );
    }
    let refused = answered(b"HTTP/1.1 421 Misdirected\x1b[2J\r\n\r\n").unwrap_err();
    assert_eq!(refused.to_string(), "it answered \"421 Misdirected[2J\"");
    let fine = answered(b"HTTP/1.0 200 OK\r\n\r\n{\"format\": 1}");
    assert_eq!(fine.unwrap().format, 1);
}

#[test]
fn nobody_there_is_told_with_a_way_out() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let options = TopOptions {
        address: free.to_string(),
        once: true,
    };
    let error = run(&options, &Arc::default()).unwrap_err().to_string();
    assert!(
        error.contains("tidegate serve") && error.contains(&free.to_string()),
        "{error}"
    );
}
