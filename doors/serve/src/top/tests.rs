use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::config::WebConfig;
use crate::snapshot::tests::{Example, assert_stored, reading};
use crate::snapshot::{Sampler, Snapshot, State};

fn example(state: State) -> Box<Snapshot> {
    let began = Instant::now();
    let mut sampler = Sampler::default();
    sampler.next(reading(began, 4, state));
    Box::new(sampler.next(reading(began, 5, state)))
}

#[test]
fn a_frame_is_no_larger_than_the_terminal() {
    let text = "one\ntwo and more\nthree\n";
    assert_eq!(
        frame(text, 0, 0),
        "\x1b[Hone\x1b[K\r\ntwo and more\x1b[K\r\nthree\x1b[K\r\n\x1b[J"
    );
    assert_eq!(
        frame(text, 5, 5),
        "\x1b[Hone\x1b[K\r\ntwo a\x1b[K\r\nthree\x1b[K\r\n\x1b[J"
    );
    assert_eq!(
        frame(text, 4, 80),
        "\x1b[Hone\x1b[K\r\ntwo and more\x1b[K\r\n(1 more lines: --once prints all)\x1b[K\r\n\x1b[J"
    );
    assert_eq!(frame(text, 1, 1), "\x1b[H(\x1b[K\r\n\x1b[J");
}

#[test]
fn a_name_cannot_draw() {
    let mut snapshot = example(State::Ok);
    let bad = "a\u{1b}[2J\nb\u{202e}\u{9b}31m";
    snapshot.volumes[0].name = bad.to_owned();
    snapshot.health.reasons.push(bad.to_owned());
    let text = frame(&page(&"x", &snapshot), 0, 0);
    let is_bad = |c: char| c == '\u{202e}' || c == '\u{9b}';
    assert!(!text.contains(is_bad), "{text:?}");
    assert!(text.contains("a?[2J?b??31m"), "{text}");
}

#[test]
fn plain_text_has_all_of_it() {
    assert_stored(
        "top.txt",
        &page(&"127.0.0.1:9321", &example(State::Retrying)),
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
fn it_reads_a_real_server_and_says_when_it_is_gone() {
    let handle = web();
    let address = handle.address().to_string();
    let mut last = String::new();
    let first = current(&address, &mut last);
    assert!(first.contains("\nvolume root  ok"), "{first}");
    assert_eq!(first, last);
    drop(handle);
    let gone = current(&address, &mut last);
    let told = format!("no answer from {address}: Connection refused");
    assert!(gone.starts_with(&told) && gone.ends_with(&first), "{gone}");
    assert!(gone.contains("as it was last; trying again\n"), "{gone}");
}

/// The client's reading of an answer.
fn answered(answer: &[u8]) -> Result<String, ClientError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = answer.to_vec();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(&answer);
    });
    let got = client::page(&address);
    server.join().unwrap();
    got
}

#[test]
fn what_is_no_server_of_ours_is_an_error() {
    let long = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &vec![b'x'; 1 << 20]].concat();
    for answer in [
        b"".as_slice(),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ntidegate 1",
        b"HTTP/1.1 200 OK\r\n\r\ntidegate \xff",
        b"HTTP/1.1 200 OK\r\n\xff\xff\r\n\r\n{}",
        b"HTTP/1.1 421 Misdirected\x1b[2J\r\n\r\n",
        &long,
    ] {
        assert!(
            answered(answer).is_err(),
            "{}",
            String::from_utf8_lossy(answer)
        );
    }
    let refused = answered(b"HTTP/1.1 421 Somewhere Else\r\n\r\n").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "it answered \"421 Misdirected Request\""
    );
    let fine = answered("HTTP/1.0 200 OK\r\n\r\ntidegate \x1b[2J\u{202e}a\nb".as_bytes());
    assert_eq!(
        fine.unwrap(),
        "tidegate ?[2J?a\nb",
        "its text does not draw"
    );
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
    let error = run(&options).unwrap_err().to_string();
    assert!(
        error.contains("tidegate serve") && error.contains(&free.to_string()),
        "{error}"
    );
}
