use super::*;

#[test]
fn a_request_as_the_specification_lays_it_out() {
    let bytes: [u8; REQUEST] = [
        0x25, 0x60, 0x95, 0x13, // magic
        0x00, 0x01, // FUA
        0x00, 0x01, // write
        1, 2, 3, 4, 5, 6, 7, 8, // cookie
        0, 0, 0, 1, 0, 0, 0x10, 0, // offset
        0, 0, 0x20, 0, // length
    ];
    let request = Request::parse(&bytes).unwrap();
    assert_eq!(
        request,
        Request {
            flags: CommandFlags::FUA,
            command: Command::Write,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1_0000_1000,
            len: 0x2000,
        }
    );
    assert_eq!(request.payload(), 0x2000);
    assert_eq!(request.encode(), bytes);
}

#[test]
fn what_is_no_request_is_told_with_its_number() {
    let mut bytes = [0; REQUEST];
    bytes[..4].copy_from_slice(&0x6744_6698_u32.to_be_bytes());
    let error = Request::parse(&bytes).unwrap_err();
    assert_eq!(error, NoRequest { magic: 0x6744_6698 });
    assert_eq!(
        error.to_string(),
        "a request begins with 0x25609513, and the client sent 0x67446698"
    );
}

#[test]
fn every_command_and_errno_has_the_number_of_the_specification() {
    let commands = [
        Command::Read,
        Command::Write,
        Command::Disconnect,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
        Command::BlockStatus,
    ];
    for (number, command) in (0..).zip(commands) {
        assert_eq!(Command::from_number(number), command);
    }
    for number in 0..=u16::MAX {
        assert_eq!(Command::from_number(number).number(), number);
        assert_eq!(ChunkKind::from_number(number).number(), number);
        assert_eq!(Info::from_number(number).number(), number);
    }
    for number in (0..20).chain((0..20).map(|n| n | 1 << 31)) {
        assert_eq!(OptionKind::from_number(number).number(), number);
        assert_eq!(ReplyKind::from_number(number).number(), number);
    }
    for number in [1, 5, 12, 22, 28, 75, 95, 108] {
        assert_eq!(Errno::from_number(number).number(), number);
    }
    assert_eq!(Errno::from_number(2), Errno::Invalid);
}

#[test]
fn only_a_write_has_a_payload() {
    for number in 0..20 {
        let request = Request {
            flags: CommandFlags::NONE,
            command: Command::from_number(number),
            cookie: 0,
            offset: 0,
            len: 512,
        };
        assert_eq!(
            request.payload(),
            if number == 1 { 512 } else { 0 },
            "{number}"
        );
    }
}

#[test]
fn simple_replies() {
    let bytes = simple_reply(0x11, Some(Errno::NoSpace));
    assert_eq!(
        bytes,
        [
            0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0x11
        ]
    );
    let reply = SimpleReply::parse(&bytes).unwrap();
    assert_eq!((reply.cookie, reply.error), (0x11, Some(Errno::NoSpace)));
    let reply = SimpleReply::parse(&simple_reply(7, None)).unwrap();
    assert_eq!((reply.cookie, reply.error), (7, None));
    assert_eq!(SimpleReply::parse(&[0; SIMPLE_REPLY]), None);
}

#[test]
fn chunks_as_the_specification_lays_them_out() {
    let head = |flags: u8, kind: [u8; 2], len: u8| {
        let mut head = vec![0x66, 0x8e, 0x33, 0xef, 0, flags];
        head.extend(kind);
        head.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, len]);
        head
    };
    assert_eq!(done(9).to_vec(), head(1, [0, 0], 0));

    let mut expected = head(0, [0, 1], 8 + 5);
    expected.extend([0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(offset_data(9, 256, 5, false).to_vec(), expected);

    let mut expected = head(1, [0, 2], 12);
    expected.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0]);
    assert_eq!(offset_hole(9, 256, 512, true).to_vec(), expected);

    let mut expected = head(1, [0, 5], 4 + 16);
    expected.extend([0, 0, 0, 3]);
    assert_eq!(block_status(9, 3, 2, true).to_vec(), expected);
    let state = State::HOLE.with(State::ZERO);
    assert_eq!(descriptor(4096, state), [0, 0, 0x10, 0, 0, 0, 0, 3]);

    let mut expected = head(1, [0x80, 1], 6 + 4);
    expected.extend([0, 0, 0, 5, 0, 4]);
    expected.extend(b"gone");
    assert_eq!(error(9, Errno::Io, "gone").as_bytes(), expected);

    let mut expected = head(1, [0x80, 2], 14 + 4);
    expected.extend([0, 0, 0, 5, 0, 4]);
    expected.extend(b"gone");
    expected.extend([0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(error_at(9, Errno::Io, "gone", 512).as_bytes(), expected);
}

#[test]
fn a_failure_in_the_form_that_was_agreed_on() {
    let simple = failure(false, 9, Errno::Io, "gone");
    assert_eq!(simple.as_bytes(), simple_reply(9, Some(Errno::Io)));
    let chunk = failure(true, 9, Errno::Io, "gone");
    assert_eq!(chunk.as_bytes(), error(9, Errno::Io, "gone").as_bytes());
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let long = "ä".repeat(ERROR_MESSAGE_MAX);
    for message in [long.clone(), format!("x{long}")] {
        let chunk = error_at(1, Errno::Io, &message, 77);
        let bytes = chunk.as_bytes();
        let head = ChunkHead::parse(bytes[..CHUNK_HEAD].try_into().unwrap()).unwrap();
        assert_eq!(head.len as usize, bytes.len() - CHUNK_HEAD);
        let len = usize::from(be16(bytes, CHUNK_HEAD + 4));
        assert!((ERROR_MESSAGE_MAX - 1..=ERROR_MESSAGE_MAX).contains(&len));
        let text = std::str::from_utf8(&bytes[CHUNK_HEAD + 6..CHUNK_HEAD + 6 + len]).unwrap();
        assert!(message.starts_with(text));
        assert_eq!(bytes[bytes.len() - 8..], 77_u64.to_be_bytes());
    }
}

#[test]
fn options_and_their_replies() {
    assert_eq!(
        greeting(HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES)),
        *b"NBDMAGICIHAVEOPT\0\x03"
    );
    let head = OptionHead {
        kind: OptionKind::Go,
        len: 6,
    };
    assert_eq!(head.encode(), *b"IHAVEOPT\0\0\0\x07\0\0\0\x06");
    assert_eq!(OptionHead::parse(&head.encode()), Ok(head));
    assert_eq!(OptionHead::parse(&[0; OPTION_HEAD]), Err(0));
    let bytes = option_reply(OptionKind::List, ReplyKind::TlsRequired, 0);
    assert_eq!(
        bytes,
        [
            0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9, 0, 0, 0, 3, 0x80, 0, 0, 5, 0, 0, 0, 0
        ]
    );
    let reply = OptionReplyHead::parse(&bytes).unwrap();
    assert_eq!(
        (reply.option, reply.kind, reply.len),
        (OptionKind::List, ReplyKind::TlsRequired, 0)
    );
    assert!(reply.kind.is_error() && !ReplyKind::Ack.is_error());
}

#[test]
fn flags_print_their_names_and_what_has_none() {
    let flags = ExportFlags::HAS_FLAGS.with(ExportFlags::READ_ONLY);
    assert_eq!(format!("{flags:?}"), "HAS_FLAGS|READ_ONLY");
    assert_eq!(
        format!("{:?}", CommandFlags::from_bits(0x8001)),
        "FUA|0x8000"
    );
    assert_eq!(format!("{:?}", CommandFlags::NONE), "0x0");
    assert_eq!(ExportFlags::SEND_FAST_ZERO.bits(), 1 << 11);
    assert_eq!(CommandFlags::FAST_ZERO.bits(), 1 << 4);
}

#[test]
fn block_sizes_within_the_rules() {
    let valid = |minimum, preferred, maximum, size| {
        let sizes = BlockSizes {
            minimum,
            preferred,
            maximum,
        };
        sizes.are_valid(size)
    };
    assert!(BlockSizes::DEFAULT.are_valid(1 << 30));
    assert!(valid(512, 4096, 1 << 25, 1 << 30));
    assert!(
        valid(1, 512, 100, 100),
        "a small export may have a small maximum"
    );
    assert!(!valid(0, 4096, 1 << 25, 1 << 30));
    assert!(!valid(3, 4096, 1 << 25, 1 << 30));
    assert!(!valid(1 << 17, 1 << 17, 1 << 25, 1 << 30));
    assert!(!valid(4096, 512, 1 << 25, 1 << 30));
    assert!(!valid(1, 256, 1 << 25, 1 << 30));
    assert!(!valid(4096, 4096, 5000, 1 << 30));
    assert!(!valid(1, 4096, 100, 1 << 30));
    assert!(!valid(1, 4096, 0, 0));
}
