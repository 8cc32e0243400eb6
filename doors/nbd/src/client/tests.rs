use std::io;

use super::*;
use crate::wire::{self, Errno, State};

/// A server that says what it was told to, and takes everything.
struct Script {
    replies: io::Cursor<Vec<u8>>,
    sent: Vec<u8>,
}

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.replies.read(into)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn script(replies: &[&[u8]]) -> Script {
    Script {
        replies: io::Cursor::new(replies.concat()),
        sent: Vec::new(),
    }
}

/// A client in its transmission phase; its first cookie is 1.
fn client(structured: bool, replies: &[&[u8]]) -> Client<Script> {
    let export = Export {
        size: 1 << 20,
        flags: ExportFlags::ALL,
        blocks: None,
        name: None,
        description: None,
        structured,
        allocation: structured.then_some(1),
    };
    Client::new(BufReader::new(script(replies)), export)
}

fn protocol_error(result: Result<Completion, ClientError>) -> String {
    match result {
        Err(ClientError::Protocol(what)) => what,
        other => panic!("{other:?}"),
    }
}

const READ: Ask<'_> = Ask {
    command: Command::Read,
    flags: CommandFlags::NONE,
    offset: 4096,
    len: 12,
    data: &[],
};

#[test]
fn a_read_in_pieces_in_any_order() {
    let replies: [&[u8]; 6] = [
        &wire::offset_data(1, 4104, 4, false),
        b"tail",
        &wire::offset_hole(1, 4100, 4, false),
        &wire::offset_data(1, 4096, 4, false),
        b"head",
        &wire::done(1),
    ];
    let mut into = [9; 12];
    client(true, &replies).read(4096, &mut into).unwrap();
    assert_eq!(into, *b"head\0\0\0\0tail");
}

#[test]
fn a_read_that_is_not_whole_or_too_much_is_noticed() {
    let data = |offset, len: u32| {
        let mut bytes = wire::offset_data(1, offset, len, false).to_vec();
        bytes.resize(bytes.len() + len as usize, 7);
        bytes
    };
    let cases: [(Vec<Vec<u8>>, &str); 9] = [
        (vec![data(4096, 8)], "8 of 12 bytes of a read, and no error"),
        (vec![], "0 of 12 bytes"),
        (vec![data(4096, 8), data(4100, 8)], "for the second time"),
        (vec![data(4100, 8), data(4096, 8)], "for the second time"),
        (
            vec![data(4096, 4), data(4104, 4), data(4096, 12)],
            "for the second time",
        ),
        (vec![data(4096, 13)], "outside its request"),
        (vec![data(4095, 1)], "before its request"),
        (vec![data(4108, 1)], "outside its request"),
        (
            vec![wire::block_status(1, 1, 1, false).to_vec()],
            "a chunk BlockStatus of 12 bytes",
        ),
    ];
    for (chunks, expected) in cases {
        let mut replies: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let done = wire::done(1);
        replies.push(&done);
        let what = protocol_error(client(true, &replies).call(READ));
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn one_piece_where_one_was_asked_for() {
    let (head, tail) = (
        wire::offset_data(1, 4096, 4, false),
        wire::offset_data(1, 4100, 8, true),
    );
    let replies: [&[u8]; 4] = [&head, b"head", &tail, b"thetail!"];
    assert_eq!(
        client(true, &replies).call(READ).unwrap().data,
        b"headthetail!"
    );
    let what = protocol_error(client(true, &replies).call(READ.with(CommandFlags::DF)));
    assert!(what.contains("second piece"), "{what}");
}

#[test]
fn failures_carry_what_the_server_said() {
    let at = wire::error_at(1, Errno::Io, "block 17 is gone", 4100);
    let error = client(true, &[at.as_bytes()]).call(READ).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::Io));
    assert_eq!(
        error.to_string(),
        "the request failed: input/output error (EIO): block 17 is gone (at 4100)"
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Other);

    let simple = wire::simple_reply(1, Some(Errno::NoSpace));
    for structured in [false, true] {
        let error = client(structured, &[&simple]).write(0, b"x").unwrap_err();
        assert_eq!(error.errno(), Some(Errno::NoSpace));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
    }
    let outside = wire::error_at(1, Errno::Io, "", 4108);
    let what = protocol_error(client(true, &[outside.as_bytes()]).call(READ));
    assert!(what.contains("outside"), "{what}");
    // An error of a later specification is one too.
    let mut later = wire::error(1, Errno::Io, "?").as_bytes().to_vec();
    later[6..8].copy_from_slice(&[0x80, 0x77]);
    assert_eq!(
        client(true, &[&later]).call(READ).unwrap_err().errno(),
        Some(Errno::Io)
    );
}

#[test]
fn replies_of_the_wrong_form() {
    let simple = wire::simple_reply(1, None);
    let failed = wire::simple_reply(1, Some(Errno::Io));
    let foreign = wire::simple_reply(2, None);
    let cases: [(bool, Ask<'_>, &[u8], &str); 6] = [
        (
            false,
            Ask::new(Command::BlockStatus, 0, 512),
            &simple,
            "a simple reply to BlockStatus",
        ),
        (true, READ, &simple, "a simple reply to Read"),
        (true, READ, &failed, "a simple reply to Read"),
        (false, READ, &wire::done(1), "not agreed on"),
        (
            true,
            Ask::flush(),
            &foreign,
            "request 0x2, which is not under way",
        ),
        (true, Ask::flush(), &[1; 16], "begins with 0x01010101"),
    ];
    for (structured, ask, reply, expected) in cases {
        let what = protocol_error(client(structured, &[reply]).call(ask));
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn extents_are_put_together_and_checked() {
    let hole = State::HOLE.with(State::ZERO);
    let status = |extents: &[(u32, State)], cookie, context| {
        let count = u32::try_from(extents.len()).unwrap();
        let mut bytes = wire::block_status(cookie, context, count, true).to_vec();
        bytes.extend(
            extents
                .iter()
                .flat_map(|(len, state)| wire::descriptor(*len, *state)),
        );
        bytes
    };
    let first = status(&[(4096, hole), (4096, State::NONE)], 1, 1);
    let second = status(&[(4096, State::NONE), (1 << 20, hole)], 2, 1);
    let extents = client(true, &[&first, &second])
        .block_status(0, 16384)
        .unwrap();
    let expected = [(4096, hole), (8192, State::NONE), (4096, hole)];
    assert_eq!(extents, expected.map(|(len, state)| Extent { len, state }));

    let ask = Ask::new(Command::BlockStatus, 0, 8192);
    let cases = [
        (status(&[(4096, hole)], 1, 2), ask, "was not selected"),
        (status(&[(0, hole)], 1, 1), ask, "no bytes"),
        (
            status(&[(8192, hole), (1, hole)], 1, 1),
            ask,
            "behind the end",
        ),
        (
            status(&[(4096, hole), (1, hole)], 1, 1),
            ask.with(CommandFlags::REQ_ONE),
            "more than the one",
        ),
        (
            status(&[(8193, hole)], 1, 1),
            ask.with(CommandFlags::REQ_ONE),
            "more than the one",
        ),
        (wire::done(1).to_vec(), ask, "without an extent"),
    ];
    for (reply, ask, expected) in cases {
        let what = protocol_error(client(true, &[&reply]).call(ask));
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn many_under_way_are_told_apart() {
    let (second, first, third) = (
        wire::offset_data(2, 0, 2, false),
        wire::offset_data(1, 4, 2, false),
        wire::done(3),
    );
    let replies: [&[u8]; 7] = [
        &second,
        b"bb",
        &first,
        b"aa",
        &third,
        &wire::done(1),
        &wire::done(2),
    ];
    let mut client = client(true, &replies);
    assert_eq!(client.submit(Ask::read(4, 2)).unwrap(), 1);
    assert_eq!(client.submit(Ask::read(0, 2)).unwrap(), 2);
    assert_eq!(client.submit(Ask::write(9, b"w")).unwrap(), 3);
    assert_eq!(client.under_way(), 3);
    let order: Vec<_> = (0..3)
        .map(|_| client.receive().unwrap())
        .map(|done| (done.cookie, done.data))
        .collect();
    assert_eq!(
        order,
        [(3, vec![]), (1, b"aa".to_vec()), (2, b"bb".to_vec())]
    );
    assert!(matches!(
        client.receive(),
        Err(ClientError::NothingSubmitted)
    ));
}

#[test]
fn a_call_leaves_what_others_wait_for() {
    let replies: [&[u8]; 2] = [&wire::simple_reply(1, None), &wire::simple_reply(2, None)];
    let mut client = client(true, &replies);
    client.submit(Ask::write(0, b"x")).unwrap();
    client.flush().unwrap();
    assert_eq!(client.under_way(), 1);
    assert_eq!(client.receive().unwrap().cookie, 1);
    let end = client.flush().unwrap_err();
    assert!(matches!(end, ClientError::Closed), "{end}");
}

#[test]
fn greetings_that_are_none() {
    let begin = |greeting: &[u8]| {
        Handshake::begin(script(&[greeting]))
            .err()
            .unwrap()
            .to_string()
    };
    assert!(begin(&[b'x'; 18]).contains("not that of a newstyle server"));
    assert!(begin(b"NBDMAGICIHAVEOPT\0\0").contains("fixed newstyle"));
    assert!(begin(b"NBDMAGIC").contains("closed"));
    let fixed = Handshake::begin(script(&[b"NBDMAGICIHAVEOPT\0\x01"]));
    assert!(fixed.is_ok());
}

#[test]
fn bytes_in_the_clear_behind_the_answer_to_starttls_are_refused() {
    let ack = wire::option_reply(wire::OptionKind::StartTls, wire::ReplyKind::Ack, 0);
    let more = script(&[b"NBDMAGICIHAVEOPT\0\x03", &ack, b"x"]);
    let error = Handshake::begin(more).unwrap().start_tls().err().unwrap();
    assert!(error.to_string().contains("in the clear"), "{error}");
    let exact = script(&[b"NBDMAGICIHAVEOPT\0\x03", &ack]);
    assert!(Handshake::begin(exact).unwrap().start_tls().is_ok());
}
