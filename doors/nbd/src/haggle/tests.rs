use super::*;
use crate::wire::{Info, OPTION_REPLY_HEAD, OptionReplyHead};

struct Two;

impl Exports for Two {
    fn find(&self, name: &str) -> Result<ExportInfo, Missing> {
        let (name, description) = match name {
            "" | "disk" => ("disk", "the first"),
            "plain" => ("plain", ""),
            "late" => return Err(Missing::ShuttingDown),
            "busy" => return Err(Missing::NotNow("it has all the connections it may have")),
            _ => return Err(Missing::Unknown),
        };
        Ok(ExportInfo {
            name: name.to_owned(),
            description: description.to_owned(),
            size: 1 << 30,
            flags: ExportFlags::SEND_FLUSH.with(ExportFlags::SEND_DF),
            blocks: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: 1 << 25,
            },
        })
    }

    fn list(&self, each: &mut dyn FnMut(&str, &str)) {
        each("disk", "the first");
        each("plain", "");
    }
}

const FIXED: [u8; 4] = [0, 0, 0, 3];

/// An option with its data.
fn option(kind: OptionKind, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    let mut bytes = OptionHead { kind, len }.encode().to_vec();
    bytes.extend(data);
    bytes
}

fn named(name: &str) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data
}

fn go(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = named(name);
    data.extend(u16::try_from(infos.len()).unwrap().to_be_bytes());
    data.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    data
}

fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = named(name);
    data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    data.extend(queries.iter().flat_map(|query| named(query)));
    data
}

/// Replies as (kind, data).
fn replies(mut out: &[u8]) -> Vec<(ReplyKind, Vec<u8>)> {
    let mut replies = Vec::new();
    while let Some((head, rest)) = out.split_first_chunk::<OPTION_REPLY_HEAD>() {
        let head = OptionReplyHead::parse(head).unwrap();
        let (data, rest) = rest.split_at(head.len as usize);
        replies.push((head.kind, data.to_vec()));
        out = rest;
    }
    assert!(out.is_empty(), "half a reply");
    replies
}

fn kinds(out: &[u8]) -> Vec<ReplyKind> {
    replies(out).into_iter().map(|(kind, _)| kind).collect()
}

/// A client and a server that is fed all that is there, one byte at a time or at once.
struct Talk {
    haggle: Haggle,
    piece: usize,
}

impl Talk {
    fn with(encryption: Encryption, flags: [u8; 4], piece: usize) -> Self {
        let rules = Rules {
            encryption,
            ..Rules::default()
        };
        let mut talk = Self {
            haggle: Haggle::new(rules),
            piece,
        };
        assert_eq!(talk.say(&flags), Ok((Vec::new(), Step::More)));
        talk
    }

    fn new() -> Self {
        Self::with(Encryption::None, FIXED, usize::MAX)
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, Step), HaggleError> {
        let mut out = Vec::new();
        let mut step = Step::More;
        for mut piece in bytes.chunks(self.piece) {
            while !piece.is_empty() {
                assert_eq!(step, Step::More, "bytes are left");
                let (consumed, next) = self.haggle.feed(piece, &Two, &mut out)?;
                piece = &piece[consumed..];
                step = next;
            }
        }
        Ok((out, step))
    }

    /// One option, and the replies to it.
    fn ask(&mut self, kind: OptionKind, data: &[u8]) -> Vec<(ReplyKind, Vec<u8>)> {
        let (out, step) = self.say(&option(kind, data)).unwrap();
        assert_eq!(step, Step::More);
        replies(&out)
    }

    /// One option that has a single reply.
    fn one(&mut self, kind: OptionKind, data: &[u8]) -> ReplyKind {
        let replies = self.ask(kind, data);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies[0].0
    }

    fn go(&mut self, name: &str) -> Agreed {
        let (_, step) = self.say(&option(OptionKind::Go, &go(name, &[]))).unwrap();
        match step {
            Step::Transmit(agreed) => *agreed,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_like_libnbd_in_pieces_of_any_size() {
    for piece in [1, 2, 3, 7, 15, 16, 17, usize::MAX] {
        let mut talk = Talk::with(Encryption::None, FIXED, piece);
        assert_eq!(talk.one(OptionKind::StructuredReply, &[]), ReplyKind::Ack);
        let contexts = talk.ask(OptionKind::SetMetaContext, &queries("", &[ALLOCATION]));
        assert_eq!(contexts.len(), 2);
        assert_eq!(
            contexts[0],
            (
                ReplyKind::MetaContext,
                b"\0\0\0\x01base:allocation".to_vec()
            )
        );
        assert_eq!(contexts[1], (ReplyKind::Ack, Vec::new()));
        let (out, step) = talk
            .say(&option(OptionKind::Go, &go("disk", &[1, 2, 3, 77])))
            .unwrap();
        let infos = replies(&out);
        let Step::Transmit(agreed) = step else {
            panic!("{step:?}")
        };
        assert!(agreed.structured && agreed.blocks_promised);
        assert_eq!(agreed.allocation, Some(1), "the default export is this one");
        assert_eq!(agreed.flags.bits(), 0b1000_0101);
        let expected = [
            (ReplyKind::Info, b"\0\0\0\0\0\0\x40\0\0\0\0\x85".to_vec()),
            (ReplyKind::Info, b"\0\x01disk".to_vec()),
            (ReplyKind::Info, b"\0\x02the first".to_vec()),
            (
                ReplyKind::Info,
                b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec(),
            ),
            (ReplyKind::Ack, Vec::new()),
        ];
        assert_eq!(infos, expected);
        assert_eq!(Info::from_number(3), Info::BlockSize);
        assert_eq!(talk.say(&[0]), Err(HaggleError::Over));
    }
}

#[test]
fn an_old_client_asks_with_export_name() {
    for (flags, zeroes) in [(0, 124), (1, 124), (2, 0), (3, 0)] {
        let mut talk = Talk::with(Encryption::None, [0, 0, 0, flags], 5);
        let (out, step) = talk.say(&option(OptionKind::ExportName, b"plain")).unwrap();
        assert_eq!(out.len(), 10 + zeroes);
        assert_eq!(
            out[..10],
            *b"\0\0\0\0\x40\0\0\0\0\x05",
            "no DF without structured replies"
        );
        assert!(out[10..].iter().all(|byte| *byte == 0));
        let Step::Transmit(agreed) = step else {
            panic!("{step:?}")
        };
        assert_eq!(agreed.export.name, "plain");
        assert!(!agreed.structured && !agreed.blocks_promised && agreed.allocation.is_none());
    }
    let mut talk = Talk::with(Encryption::None, [0; 4], 100);
    let error = talk.say(&option(OptionKind::List, &[]));
    let option = OptionKind::List;
    assert_eq!(error, Err(HaggleError::NotFixed { option }));
}

#[test]
fn export_name_without_an_export_ends_the_connection() {
    let say = |data: &[u8]| {
        Talk::new()
            .say(&option(OptionKind::ExportName, data))
            .unwrap_err()
    };
    let error = say(b"none");
    assert_eq!(error.to_string(), "there is no export \"none\"");
    assert_eq!(say(b"a\0b"), HaggleError::NoName { len: 3 });
    assert_eq!(say(b"\xff"), HaggleError::NoName { len: 1 });
    assert_eq!(
        say(&[b'x'; STRING_MAX + 1]),
        HaggleError::NoName { len: 4097 }
    );
    assert!(matches!(
        say(&[b'x'; STRING_MAX]),
        HaggleError::NoExport {
            why: Missing::Unknown,
            ..
        }
    ));
}

#[test]
fn what_follows_the_last_option_is_left_to_the_requests() {
    let mut bytes = option(OptionKind::Go, &go("", &[]));
    let len = bytes.len();
    bytes.extend([1, 2, 3]);
    let mut haggle = Haggle::new(Rules::default());
    let mut out = Vec::new();
    assert_eq!(haggle.feed(&FIXED, &Two, &mut out), Ok((4, Step::More)));
    let (consumed, step) = haggle.feed(&bytes, &Two, &mut out).unwrap();
    assert_eq!(consumed, len);
    assert!(matches!(step, Step::Transmit(_)));
}

#[test]
fn one_call_answers_one_option() {
    let mut bytes = FIXED.to_vec();
    for _ in 0..3 {
        bytes.extend(option(OptionKind::List, &[]));
    }
    let mut haggle = Haggle::new(Rules::default());
    let mut out = Vec::new();
    let (consumed, step) = haggle.feed(&bytes, &Two, &mut out).unwrap();
    assert_eq!((consumed, step), (4 + OPTION_HEAD, Step::More));
    assert_eq!(
        kinds(&out),
        [ReplyKind::Server, ReplyKind::Server, ReplyKind::Ack]
    );
}

#[test]
fn the_list_has_names_and_descriptions() {
    let list = Talk::new().ask(OptionKind::List, &[]);
    assert_eq!(list[0].1, b"\0\0\0\x04diskthe first");
    assert_eq!(list[1].1, b"\0\0\0\x05plain");
    assert_eq!(list[2], (ReplyKind::Ack, Vec::new()));
    assert_eq!(Talk::new().one(OptionKind::List, b"x"), ReplyKind::Invalid);
}

#[test]
fn what_cannot_be_is_refused_and_the_next_option_is_read() {
    let mut talk = Talk::with(Encryption::None, FIXED, 11);
    let long = "x".repeat(STRING_MAX + 1);
    let mut short = go("disk", &[1, 2]);
    short.pop();
    let mut longer = go("disk", &[1, 2]);
    longer.push(0);
    let cases: Vec<(OptionKind, Vec<u8>, ReplyKind)> = vec![
        (OptionKind::Info, go("none", &[]), ReplyKind::Unknown),
        (OptionKind::Go, go("none", &[]), ReplyKind::Unknown),
        (OptionKind::Go, go("late", &[]), ReplyKind::Shutdown),
        (OptionKind::Go, go("busy", &[]), ReplyKind::Policy),
        (OptionKind::Go, go("a\0b", &[]), ReplyKind::Invalid),
        (OptionKind::Go, go(&long, &[]), ReplyKind::Invalid),
        (OptionKind::Go, short, ReplyKind::Invalid),
        (OptionKind::Go, longer, ReplyKind::Invalid),
        (OptionKind::Go, vec![], ReplyKind::Invalid),
        (OptionKind::Go, vec![0xff; 6], ReplyKind::Invalid),
        (
            OptionKind::Go,
            vec![0, 0, 0, 1, 0xff, 0, 0],
            ReplyKind::Invalid,
        ),
        (
            OptionKind::Go,
            vec![0; OPTION_MAX as usize + 1],
            ReplyKind::TooBig,
        ),
        (OptionKind::StructuredReply, vec![1], ReplyKind::Invalid),
        (
            OptionKind::ListMetaContext,
            queries("", &[]),
            ReplyKind::Invalid,
        ),
        (
            OptionKind::SetMetaContext,
            queries("", &[]),
            ReplyKind::Invalid,
        ),
        (OptionKind::StartTls, vec![], ReplyKind::Policy),
        (OptionKind::Other(4), vec![], ReplyKind::Unsupported),
        (OptionKind::Other(11), vec![], ReplyKind::Unsupported),
        (
            OptionKind::Other(77),
            vec![9; OPTION_SKIP_MAX as usize],
            ReplyKind::Unsupported,
        ),
    ];
    for (kind, data, expected) in cases {
        assert_eq!(
            talk.one(kind, &data),
            expected,
            "{kind:?} with {} bytes",
            data.len()
        );
        assert!(talk.haggle.held.capacity() <= 2 * OPTION_MAX as usize);
    }
    assert_eq!(talk.go("disk").export.name, "disk");
}

#[test]
fn an_info_is_no_go() {
    let mut talk = Talk::new();
    let infos = talk.ask(OptionKind::Info, &go("plain", &[2, 3]));
    let kinds: Vec<_> = infos.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(
        kinds,
        [ReplyKind::Info, ReplyKind::Info, ReplyKind::Ack],
        "no description, no info of it"
    );
    assert!(
        !talk.go("plain").blocks_promised,
        "the promise was for another question"
    );
}

#[test]
fn contexts_are_listed_and_selected() {
    let structured = || {
        let mut talk = Talk::new();
        assert_eq!(talk.one(OptionKind::StructuredReply, &[]), ReplyKind::Ack);
        talk
    };
    let listed = |asked: &[&str]| {
        structured()
            .ask(OptionKind::ListMetaContext, &queries("disk", asked))
            .len()
            == 2
    };
    assert!(listed(&[]) && listed(&["base:"]) && listed(&["qemu:x", ALLOCATION, ALLOCATION]));
    assert!(!listed(&["qemu:"]) && !listed(&["base:other"]) && !listed(&["base"]));
    let list = structured().ask(OptionKind::ListMetaContext, &queries("disk", &[]));
    assert_eq!(list[0].1, b"\0\0\0\0base:allocation");

    let mut talk = structured();
    for (asked, selected) in [
        (&[][..], false),
        (&["base:"], false),
        (&["qemu:dirty-bitmap:a", ALLOCATION], true),
        (&["x-me:y"], false),
        (&[ALLOCATION], true),
    ] {
        let replies = talk.ask(OptionKind::SetMetaContext, &queries("disk", asked));
        assert_eq!(replies.len(), if selected { 2 } else { 1 }, "{asked:?}");
        assert_eq!(
            talk.haggle.settled.allocation_of.is_some(),
            selected,
            "{asked:?}"
        );
    }
    assert_eq!(talk.go("").allocation, Some(ALLOCATION_ID));
}

#[test]
fn a_selection_is_void_when_it_fails_or_is_of_another_export() {
    let set = queries("disk", &[ALLOCATION]);
    let selected = || {
        let mut talk = Talk::new();
        talk.one(OptionKind::StructuredReply, &[]);
        assert_eq!(talk.ask(OptionKind::SetMetaContext, &set).len(), 2);
        talk
    };
    assert_eq!(selected().go("plain").allocation, None);
    let many = vec!["base:allocation"; QUERIES_MAX as usize + 1];
    let mut cut = set.clone();
    cut.pop();
    let failures = [
        (queries("none", &[ALLOCATION]), ReplyKind::Unknown),
        (queries("disk", &many), ReplyKind::TooBig),
        (cut, ReplyKind::Invalid),
        (vec![0; OPTION_MAX as usize + 1], ReplyKind::TooBig),
    ];
    for (data, expected) in failures {
        let mut talk = selected();
        assert_eq!(talk.one(OptionKind::SetMetaContext, &data), expected);
        assert_eq!(talk.go("disk").allocation, None, "{expected:?}");
    }
}

#[test]
fn abort_is_acknowledged_whatever_comes_with_it() {
    for data in [&b""[..], b"goodbye", &[0; OPTION_MAX as usize + 1]] {
        let mut talk = Talk::new();
        let (out, step) = talk.say(&option(OptionKind::Abort, data)).unwrap();
        assert_eq!(
            (kinds(&out), step),
            (vec![ReplyKind::Ack], Step::Disconnect)
        );
        assert_eq!(talk.say(&[0]), Err(HaggleError::Over));
    }
}

#[test]
fn without_encryption_nothing_is_told_where_it_is_required() {
    for piece in [1, usize::MAX] {
        let mut talk = Talk::with(Encryption::Required, FIXED, piece);
        let options = [
            (OptionKind::List, vec![]),
            (OptionKind::List, vec![1, 2, 3]),
            (OptionKind::Info, go("disk", &[])),
            (OptionKind::Go, go("disk", &[])),
            (OptionKind::Go, go("none", &[])),
            (OptionKind::Go, vec![0; 50_000]),
            (OptionKind::StructuredReply, vec![]),
            (OptionKind::ListMetaContext, queries("disk", &[])),
            (OptionKind::SetMetaContext, queries("none", &[])),
            (OptionKind::Other(99), vec![]),
        ];
        for (kind, data) in options {
            let replies = talk.ask(kind, &data);
            let message = b"TLS is required here: STARTTLS first".to_vec();
            assert_eq!(replies, [(ReplyKind::TlsRequired, message)], "{kind:?}");
        }
        let error = talk.say(&option(OptionKind::ExportName, b"disk"));
        assert_eq!(error, Err(HaggleError::EncryptionRequired));
    }
    let mut talk = Talk::with(Encryption::Required, FIXED, 1);
    let (out, step) = talk.say(&option(OptionKind::Abort, &[])).unwrap();
    assert_eq!(
        (kinds(&out), step),
        (vec![ReplyKind::Ack], Step::Disconnect)
    );
    let mut talk = Talk::with(Encryption::Required, [0; 4], 1);
    assert!(
        talk.say(&option(OptionKind::StartTls, &[])).is_err(),
        "TLS needs fixed newstyle"
    );
}

#[test]
fn encryption_forgets_what_was_agreed_on_before() {
    for encryption in [Encryption::Offered, Encryption::Required] {
        let mut talk = Talk::with(encryption, FIXED, usize::MAX);
        if encryption == Encryption::Offered {
            assert_eq!(talk.one(OptionKind::StructuredReply, &[]), ReplyKind::Ack);
            assert_eq!(
                talk.ask(OptionKind::SetMetaContext, &queries("", &[ALLOCATION]))
                    .len(),
                2
            );
        }
        assert_eq!(talk.one(OptionKind::StartTls, b"x"), ReplyKind::Invalid);
        let (out, step) = talk.say(&option(OptionKind::StartTls, &[])).unwrap();
        assert_eq!((kinds(&out), step), (vec![ReplyKind::Ack], Step::StartTls));
        talk.haggle.encrypted();
        assert!(talk.haggle.is_encrypted());
        assert_eq!(talk.one(OptionKind::StartTls, &[]), ReplyKind::Invalid);
        assert_eq!(
            talk.one(OptionKind::SetMetaContext, &queries("", &[])),
            ReplyKind::Invalid
        );
        let agreed = talk.go("disk");
        assert!(!agreed.structured && agreed.allocation.is_none());
    }
}

#[test]
fn bytes_in_the_clear_behind_starttls_are_not_looked_at() {
    let go = option(OptionKind::Go, &go("disk", &[]));
    let mut both = option(OptionKind::StartTls, &[]);
    both.extend(&go);
    let mut talk = Talk::with(Encryption::Offered, FIXED, usize::MAX);
    let bytes = go.len();
    assert_eq!(talk.say(&both), Err(HaggleError::ClearText { bytes }));
    assert_eq!(talk.say(&go), Err(HaggleError::Over));

    let mut talk = Talk::with(Encryption::Offered, FIXED, usize::MAX);
    talk.say(&option(OptionKind::StartTls, &[])).unwrap();
    assert_eq!(talk.say(&go), Err(HaggleError::ClearText { bytes }));
}

#[test]
#[should_panic(expected = "only STARTTLS leads to encryption")]
fn encryption_without_starttls_is_a_callers_bug() {
    Haggle::new(Rules::default()).encrypted();
}

#[test]
fn what_is_no_handshake_ends_the_connection() {
    let first = |bytes: [u8; 4]| {
        Haggle::new(Rules::default())
            .feed(&bytes, &Two, &mut Vec::new())
            .unwrap_err()
    };
    assert_eq!(first([0, 0, 0, 4]), HaggleError::ClientFlags { flags: 4 });
    let oldstyle = first(crate::wire::REQUEST_MAGIC.to_be_bytes());
    assert!(oldstyle.to_string().contains("oldstyle"), "{oldstyle}");
    let http = Talk::new().say(b"GET / HTTP/1.1\r\n").unwrap_err();
    assert!(matches!(http, HaggleError::NoOption { .. }), "{http}");
    let head = OptionHead {
        kind: OptionKind::Other(50),
        len: OPTION_SKIP_MAX + 1,
    };
    let error = Talk::new().say(&head.encode()).unwrap_err();
    assert!(
        matches!(error, HaggleError::OptionTooLong { .. }),
        "{error}"
    );
}

#[test]
fn options_are_counted() {
    let mut haggle = Haggle::new(Rules {
        encryption: Encryption::None,
        options_max: 3,
    });
    let mut out = Vec::new();
    haggle.feed(&FIXED, &Two, &mut out).unwrap();
    for _ in 0..3 {
        haggle
            .feed(&option(OptionKind::List, &[]), &Two, &mut out)
            .unwrap();
    }
    let error = haggle.feed(&option(OptionKind::List, &[]), &Two, &mut out);
    assert_eq!(error, Err(HaggleError::TooManyOptions { max: 3 }));
}
