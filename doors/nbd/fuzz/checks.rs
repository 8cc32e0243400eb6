//! Properties that hold for any input: checked by the fuzzing targets, over their corpus, and on
//! random input by a test.
//!
//! Each takes bytes whose first ones are settings, so that one corpus covers them all.
#![allow(dead_code, reason = "each target uses a part of it")]

use std::io::{Cursor, Read, Write};

use nbd::client::{Ask, Handshake, Wishes};
use nbd::haggle::{
    Agreed, Encryption, ExportInfo, Exports, Haggle, HaggleError, Missing, OPTION_MAX, Rules, Step,
};
use nbd::transmit::{Limits, Payload, Range, Work, judge};
use nbd::wire::{
    self, BlockSizes, Command, CommandFlags, ExportFlags, OPTION_REPLY_HEAD, OptionKind,
    OptionReplyHead, REQUEST, ReplyKind, Request,
};

/// A few bytes that say how a check is set up; zeroes where there are none.
fn settings<const N: usize>(data: &[u8]) -> ([u8; N], &[u8]) {
    let mut settings = [0; N];
    let count = data.len().min(N);
    settings[..count].copy_from_slice(&data[..count]);
    (settings, &data[count..])
}

/// Requests are parsed and judged: those let through are safe to carry out, and no byte of payload
/// is lost.
pub(crate) fn requests(data: &[u8]) {
    let ([flags_high, flags_low, minimum, maximum, size, agreed], rest) = settings(data);
    let flags = ExportFlags::from_bits(u16::from_be_bytes([flags_high, flags_low]));
    let structured = agreed & 1 != 0;
    let agreed = Agreed {
        export: ExportInfo {
            name: String::new(),
            description: String::new(),
            size: (1 << (size % 64)) + u64::from(size >> 6),
            flags,
            blocks: BlockSizes {
                minimum: 1 << (minimum % 17),
                preferred: 1 << 16,
                maximum: if maximum == 0 {
                    u32::MAX
                } else {
                    u32::from(maximum) << 16
                },
            },
        },
        flags,
        structured,
        allocation: (agreed & 2 != 0).then_some(1),
        blocks_promised: agreed & 4 != 0,
    };
    for bytes in rest.as_chunks::<REQUEST>().0 {
        let Ok(request) = Request::parse(bytes) else {
            assert_ne!(bytes[..4], wire::REQUEST_MAGIC.to_be_bytes());
            continue;
        };
        assert_eq!(request.encode(), *bytes);
        judged(&request, &agreed);
    }
}

fn judged(request: &Request, agreed: &Agreed) {
    let limits = Limits::default();
    let (size, minimum) = (agreed.export.size, u64::from(agreed.export.blocks.minimum));
    let inside = |range: Range| {
        assert_eq!((range.offset, range.len), (request.offset, request.len));
        assert!(range.len > 0);
        assert!(
            range
                .offset
                .checked_add(u64::from(range.len))
                .is_some_and(|end| end <= size)
        );
        assert!(
            range.offset.is_multiple_of(minimum) && u64::from(range.len).is_multiple_of(minimum)
        );
    };
    let bounded = |range: Range| assert!(range.len <= agreed.export.blocks.maximum);
    let changes = || assert!(!agreed.flags.has(ExportFlags::READ_ONLY));
    match judge(request, agreed, &limits) {
        Ok(Work::Read { range, .. }) => {
            inside(range);
            bounded(range);
            // Encoding its reply has to work.
            let _ = wire::offset_data(request.cookie, range.offset, range.len, true);
        }
        Ok(Work::Write { range, .. }) => {
            inside(range);
            bounded(range);
            changes();
            assert_eq!(request.payload(), range.len);
        }
        Ok(Work::Zero { range, .. }) => {
            inside(range);
            changes();
        }
        Ok(Work::Trim { range, .. }) => {
            inside(range);
            changes();
        }
        Ok(Work::Cache { range }) => {
            inside(range);
            bounded(range);
        }
        Ok(Work::Status { range, .. }) => {
            inside(range);
            assert!(agreed.allocation.is_some());
        }
        Ok(Work::Flush) => assert_eq!((request.offset, request.len), (0, 0)),
        Ok(Work::Nothing) => assert_eq!((request.len, request.payload()), (0, 0)),
        Ok(Work::Disconnect) => assert_eq!(request.command, Command::Disconnect),
        Err(refusal) => {
            match refusal.payload {
                Payload::None => assert_eq!(request.payload(), 0),
                Payload::Discard(len) => assert_eq!(request.payload(), len),
                Payload::HangUp => assert!(request.payload() > limits.discard_max),
            }
            let reply = wire::failure(
                agreed.structured,
                request.cookie,
                refusal.errno,
                refusal.why,
            );
            assert!(!reply.as_bytes().is_empty());
        }
    }
}

struct Two;

impl Exports for Two {
    fn find(&self, name: &str) -> Result<ExportInfo, Missing> {
        let name = match name {
            "" | "a" => "a",
            "b" => "b",
            "c" => return Err(Missing::NotNow("full")),
            "d" => return Err(Missing::ShuttingDown),
            _ => return Err(Missing::Unknown),
        };
        Ok(ExportInfo {
            name: name.to_owned(),
            description: "secret".to_owned(),
            size: 1 << 30,
            flags: ExportFlags::ALL,
            blocks: BlockSizes::DEFAULT,
        })
    }

    fn list(&self, each: &mut dyn FnMut(&str, &str)) {
        each("a", "secret");
        each("b", "secret");
    }
}

/// The outcome of a handshake.
#[derive(Debug, PartialEq)]
struct Outcome {
    out: Vec<u8>,
    end: Result<Step, HaggleError>,
    consumed: usize,
}

/// A handshake in pieces of the given size, to its end, or to STARTTLS.
fn haggle(haggle: &mut Haggle, stream: &[u8], piece: usize) -> Outcome {
    let mut out = Vec::new();
    let mut consumed = 0;
    let mut end = Ok(Step::More);
    'pieces: for mut bytes in stream.chunks(piece) {
        while !bytes.is_empty() {
            let before = out.len();
            end = haggle.feed(bytes, &Two, &mut out).map(|(count, step)| {
                assert!(
                    count > 0 || step != Step::More,
                    "no byte is taken and nothing happens"
                );
                bytes = &bytes[count..];
                consumed += count;
                step
            });
            // The longest answer to one option: two exports and their descriptions, or the infos of
            // one.
            assert!(
                out.len() - before <= 1024,
                "{} bytes in one answer",
                out.len() - before
            );
            assert!(haggle.held() <= OPTION_MAX as usize);
            match &end {
                Ok(Step::More) => {}
                // Bytes that follow in the same piece are in the clear; that is an error of its
                // own, tested elsewhere.
                Err(HaggleError::ClearText { .. }) => {
                    end = Ok(Step::StartTls);
                    break 'pieces;
                }
                Ok(_) | Err(_) => break 'pieces,
            }
        }
    }
    Outcome { out, end, consumed }
}

/// Replies have their form, and where encryption is required nothing else is said before it.
fn replies(mut out: &[u8], closed: bool) {
    let mut tail = None;
    while let Some((head, rest)) = out.split_first_chunk::<OPTION_REPLY_HEAD>() {
        let Ok(head) = OptionReplyHead::parse(head) else {
            tail = Some(out);
            break;
        };
        let (data, rest) = rest.split_at(head.len as usize);
        if head.kind.is_error() {
            assert!(!data.is_empty() && core::str::from_utf8(data).is_ok());
        }
        if closed {
            let plain = match head.option {
                OptionKind::StartTls => [ReplyKind::Ack, ReplyKind::Invalid].contains(&head.kind),
                OptionKind::Abort => head.kind == ReplyKind::Ack,
                _ => head.kind == ReplyKind::TlsRequired,
            };
            assert!(plain, "{head:?} in the clear");
        }
        out = rest;
    }
    // The answer to EXPORT_NAME has no head.
    let tail = tail.unwrap_or(out);
    assert!(!closed || tail.is_empty());
    assert!([0, 10, 134].contains(&tail.len()), "{tail:?}");
}

/// A handshake, however it is cut into pieces: it ends the same, its answers are well-formed, and
/// it leaks nothing.
pub(crate) fn handshake(data: &[u8]) {
    let ([rule, piece], mut stream) = settings(data);
    let rules = Rules {
        encryption: match rule % 3 {
            0 => Encryption::None,
            1 => Encryption::Offered,
            _ => Encryption::Required,
        },
        options_max: 1 + u32::from(rule / 3),
    };
    let piece = 1 + usize::from(piece);
    let start = || Haggle::new(rules);
    let mut ways = [start(), start(), start()];
    loop {
        let [whole, pieces, bytes] = &mut ways;
        let whole = haggle(whole, stream, usize::MAX);
        let pieces = haggle(pieces, stream, piece);
        // Byte for byte, nothing is fed that is not consumed: this one knows where STARTTLS ends.
        let bytes = haggle(bytes, stream, 1);
        let closed = rules.encryption == Encryption::Required && !ways[2].is_encrypted();
        assert_eq!(
            (&whole.out, &whole.end),
            (&bytes.out, &bytes.end),
            "at once"
        );
        assert_eq!(
            (&pieces.out, &pieces.end),
            (&bytes.out, &bytes.end),
            "pieces of {piece}"
        );
        replies(&bytes.out, closed);
        match bytes.end {
            Ok(Step::Transmit(agreed)) => {
                assert!(!closed);
                assert_eq!(
                    (whole.consumed, pieces.consumed),
                    (bytes.consumed, bytes.consumed)
                );
                assert_eq!(agreed.flags.has(ExportFlags::SEND_DF), agreed.structured);
                assert!(agreed.allocation.is_none() || agreed.structured);
                return;
            }
            Ok(Step::StartTls) => {
                assert_ne!(rules.encryption, Encryption::None);
                assert!(!ways[2].is_encrypted(), "TLS in TLS");
                let clear = ways[2].feed(b"x", &Two, &mut Vec::new());
                assert!(
                    matches!(clear, Err(HaggleError::ClearText { .. })),
                    "{clear:?}"
                );
                // They may have failed for what was behind STARTTLS in one piece; three others go
                // on.
                stream = &stream[bytes.consumed..];
                let taken = pieces_before(data, stream);
                ways = [start(), start(), start()];
                ways.iter_mut().for_each(|way| encrypt(way, taken));
            }
            Ok(Step::More | Step::Disconnect) | Err(_) => return,
        }
    }
}

/// The part of the stream that was taken already.
fn pieces_before<'a>(data: &'a [u8], rest: &[u8]) -> &'a [u8] {
    let (_, stream) = settings::<2>(data);
    &stream[..stream.len() - rest.len()]
}

/// Brings a handshake to where STARTTLS was acknowledged, and into TLS.
fn encrypt(haggle: &mut Haggle, mut taken: &[u8]) {
    while !taken.is_empty() {
        // To the end of its option and no further: later bytes come encrypted.
        let (count, step) = haggle
            .feed(taken, &Two, &mut Vec::new())
            .expect("it went well before");
        taken = &taken[count..];
        if step == Step::StartTls {
            haggle.encrypted();
        }
    }
}

/// A stream of which one end is what a server says, whatever that is.
struct Said<'a>(Cursor<&'a [u8]>);

impl Read for Said<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A client whose server says anything: it ends with an error or has what it asked for.
pub(crate) fn client(data: &[u8]) {
    let ([wish], said) = settings(data);
    let wishes = Wishes {
        export: "a".to_owned(),
        structured: wish & 1 != 0,
        allocation: wish & 2 != 0,
        export_name: wish & 4 != 0,
    };
    let Ok(handshake) = Handshake::begin(Said(Cursor::new(said))) else {
        return;
    };
    let Ok(mut client) = handshake.go(&wishes) else {
        return;
    };
    let payload = [7; 16];
    let asks = [
        Ask::read(0, 64),
        Ask::read(4096, 64).with(CommandFlags::DF),
        Ask::write(0, &payload),
        Ask::flush(),
        Ask::new(Command::BlockStatus, 0, 65536),
        Ask::new(Command::BlockStatus, 0, 65536).with(CommandFlags::REQ_ONE),
    ];
    for ask in asks {
        client.submit(ask).expect("this stream takes everything");
    }
    while client.under_way() > 0 {
        let Ok(done) = client.receive() else { return };
        let ask = asks[usize::try_from(done.cookie).expect("small") - 1];
        assert_eq!(done.command, ask.command);
        if done.failure.is_none() {
            let expected = if ask.command == Command::Read {
                ask.len as usize
            } else {
                0
            };
            assert_eq!(done.data.len(), expected);
            assert_eq!(done.extents.is_empty(), ask.command != Command::BlockStatus);
        }
    }
}
