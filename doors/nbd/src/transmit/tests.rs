use super::*;
use crate::haggle::ExportInfo;
use crate::wire::BlockSizes;

const SIZE: u64 = 1 << 30;
const MAX: u32 = 1 << 25;

fn agreed(flags: ExportFlags) -> Agreed {
    Agreed {
        export: ExportInfo {
            name: "disk".to_owned(),
            description: String::new(),
            size: SIZE,
            flags,
            blocks: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: MAX,
            },
        },
        flags,
        structured: true,
        allocation: Some(1),
        blocks_promised: false,
    }
}

fn all() -> ExportFlags {
    ExportFlags::ALL.without(ExportFlags::READ_ONLY)
}

fn request(command: Command, flags: CommandFlags, offset: u64, len: u32) -> Request {
    Request {
        flags,
        command,
        cookie: 1,
        offset,
        len,
    }
}

fn errno(request: Request, agreed: &Agreed) -> Option<Errno> {
    let verdict = judge(&request, agreed, &Limits::default());
    if let Err(refusal) = &verdict {
        let expected = match request.payload() {
            0 => Payload::None,
            len if len > 64 << 20 => Payload::HangUp,
            len => Payload::Discard(len),
        };
        assert_eq!(refusal.payload, expected, "{request:?}: {refusal}");
    }
    verdict.err().map(|refusal| refusal.errno)
}

const READ: Command = Command::Read;
const WRITE: Command = Command::Write;
const ZERO: Command = Command::WriteZeroes;
const STATUS: Command = Command::BlockStatus;
const COMMANDS: [Command; 9] = [
    READ,
    WRITE,
    Command::Disconnect,
    Command::Flush,
    Command::Trim,
    Command::Cache,
    ZERO,
    STATUS,
    Command::Other(8),
];

#[test]
fn work_carries_what_the_flags_say() {
    let agreed = agreed(all());
    let judge = |command, flags| {
        judge(
            &request(command, flags, 4096, 512),
            &agreed,
            &Limits::default(),
        )
        .unwrap()
    };
    let range = Range {
        offset: 4096,
        len: 512,
    };
    let fua = CommandFlags::FUA;
    let none = CommandFlags::NONE;
    let read = |unfragmented| Work::Read {
        range,
        unfragmented,
    };
    assert_eq!(judge(READ, none), read(false));
    assert_eq!(judge(READ, CommandFlags::DF), read(true));
    assert_eq!(judge(READ, fua), read(false));
    assert_eq!(
        judge(WRITE, none),
        Work::Write {
            range,
            durable: false
        }
    );
    assert_eq!(
        judge(WRITE, fua),
        Work::Write {
            range,
            durable: true
        }
    );
    assert_eq!(
        judge(Command::Trim, fua),
        Work::Trim {
            range,
            durable: true
        }
    );
    assert_eq!(judge(Command::Cache, none), Work::Cache { range });
    assert_eq!(
        judge(STATUS, CommandFlags::REQ_ONE),
        Work::Status { range, one: true }
    );
    assert_eq!(judge(STATUS, none), Work::Status { range, one: false });
    for bits in 0..8 {
        let [durable, keep, fast] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
        let flags = none
            .with_if(durable, fua)
            .with_if(keep, CommandFlags::NO_HOLE)
            .with_if(fast, CommandFlags::FAST_ZERO);
        let zero = Work::Zero {
            range,
            durable,
            keep,
            fast,
        };
        assert_eq!(judge(ZERO, flags), zero);
    }
}

#[test]
fn a_flag_belongs_to_its_command_and_has_to_be_offered() {
    let own = |command: Command| match command {
        Command::Read => (CommandFlags::DF, Some(ExportFlags::SEND_DF)),
        Command::WriteZeroes => (CommandFlags::FAST_ZERO, Some(ExportFlags::SEND_FAST_ZERO)),
        Command::BlockStatus => (CommandFlags::REQ_ONE, None),
        _ => (CommandFlags::NONE, None),
    };
    for command in COMMANDS {
        for bit in 0..16 {
            let flag = CommandFlags::from_bits(1 << bit);
            let (len, offset) = if command == Command::Flush {
                (0, 0)
            } else {
                (512, 0)
            };
            let request = request(command, flag, offset, len);
            let known = !matches!(command, Command::Other(_));
            let belongs = flag == CommandFlags::FUA
                || own(command).0 == flag
                || (command == ZERO && flag == CommandFlags::NO_HOLE)
                || command == Command::Disconnect;
            let expected = (!(known && belongs)).then_some(Errno::Invalid);
            assert_eq!(
                errno(request, &agreed(all())),
                expected,
                "{command:?} {flag:?}"
            );
            if known && belongs && command != Command::Disconnect {
                let needed = match flag {
                    CommandFlags::FUA => Some(ExportFlags::SEND_FUA),
                    CommandFlags::NO_HOLE => None,
                    _ => own(command).1,
                };
                let without = agreed(all().without(needed.unwrap_or(ExportFlags::NONE)));
                let expected = needed.map(|_| Errno::Invalid);
                assert_eq!(
                    errno(request, &without),
                    expected,
                    "{command:?} {flag:?} not offered"
                );
            }
        }
    }
}

#[test]
fn a_command_has_to_be_offered() {
    let cases = [
        (Command::Trim, ExportFlags::SEND_TRIM),
        (Command::Cache, ExportFlags::SEND_CACHE),
        (ZERO, ExportFlags::SEND_WRITE_ZEROES),
        (Command::Flush, ExportFlags::SEND_FLUSH),
    ];
    for (command, flag) in cases {
        let len = if command == Command::Flush { 0 } else { 512 };
        let request = request(command, CommandFlags::NONE, 0, len);
        assert_eq!(errno(request, &agreed(all())), None, "{command:?}");
        assert_eq!(
            errno(request, &agreed(all().without(flag))),
            Some(Errno::Invalid),
            "{command:?}"
        );
    }
    let mut unselected = agreed(all());
    unselected.allocation = None;
    let status = request(STATUS, CommandFlags::NONE, 0, 512);
    assert_eq!(errno(status, &unselected), Some(Errno::Invalid));
}

#[test]
fn a_read_only_export_is_not_changed() {
    let agreed = agreed(ExportFlags::ALL);
    for command in COMMANDS {
        let len = if command == Command::Flush { 0 } else { 512 };
        let expected = match command {
            WRITE | ZERO | Command::Trim => Some(Errno::NotPermitted),
            Command::Other(_) => Some(Errno::Invalid),
            _ => None,
        };
        assert_eq!(
            errno(request(command, CommandFlags::NONE, 0, len), &agreed),
            expected,
            "{command:?}"
        );
    }
}

#[test]
fn a_range_ends_where_the_export_does() {
    let agreed = agreed(all());
    let ranges = [
        (SIZE - 512, 512, true),
        (SIZE - 512, 513, false),
        (SIZE, 0, true),
        (SIZE, 1, false),
        (SIZE + 1, 0, false),
        (u64::MAX, 1, false),
        (u64::MAX - 511, 512, false),
        (u64::MAX, u32::MAX, false),
    ];
    for command in [READ, WRITE, Command::Trim, Command::Cache, ZERO, STATUS] {
        let beyond = match command {
            WRITE | ZERO => Errno::NoSpace,
            _ => Errno::Invalid,
        };
        for (offset, len, inside) in ranges {
            let expected = match (inside, command, len) {
                (true, STATUS, 0) => Some(Errno::Invalid),
                (true, ..) => None,
                (false, ..) => Some(beyond),
            };
            let request = request(command, CommandFlags::NONE, offset, len);
            assert_eq!(
                errno(request, &agreed),
                expected,
                "{command:?} {offset} {len}"
            );
        }
    }
}

#[test]
fn nothing_is_asked_for_and_nothing_done() {
    let agreed = agreed(all());
    for command in [READ, WRITE, Command::Trim, Command::Cache, ZERO] {
        let verdict = judge(
            &request(command, CommandFlags::NONE, 7, 0),
            &agreed,
            &Limits::default(),
        );
        assert_eq!(verdict, Ok(Work::Nothing), "{command:?}");
    }
}

#[test]
fn ranges_are_cut_at_blocks() {
    let mut agreed = agreed(all());
    agreed.export.blocks.minimum = 512;
    for command in [READ, WRITE, Command::Trim, Command::Cache, ZERO, STATUS] {
        for (offset, len, good) in [
            (512, 1024, true),
            (511, 512, false),
            (512, 511, false),
            (0, 1, false),
        ] {
            let expected = (!good).then_some(Errno::Invalid);
            let request = request(command, CommandFlags::NONE, offset, len);
            assert_eq!(
                errno(request, &agreed),
                expected,
                "{command:?} {offset} {len}"
            );
        }
    }
}

#[test]
fn lengths_are_bounded_where_it_says() {
    let mut agreed = agreed(all());
    agreed.export.size = 1 << 40;
    let none = CommandFlags::NONE;
    let fast = CommandFlags::FAST_ZERO;
    let cases = [
        (READ, none, true),
        (WRITE, none, true),
        (Command::Cache, none, true),
        // As clients do, whatever the specification asks of them.
        (ZERO, none, false),
        (ZERO, fast, false),
        (Command::Trim, none, false),
        (STATUS, none, false),
    ];
    for (command, flags, bounded) in cases {
        assert_eq!(
            errno(request(command, flags, 0, MAX), &agreed),
            None,
            "{command:?}"
        );
        let over = bounded.then_some(Errno::Invalid);
        assert_eq!(
            errno(request(command, flags, 0, MAX + 1), &agreed),
            over,
            "{command:?}"
        );
        assert_eq!(
            errno(request(command, flags, 0, u32::MAX), &agreed),
            over,
            "{command:?}"
        );
    }
    agreed.export.blocks.maximum = u32::MAX;
    assert_eq!(errno(request(READ, none, 0, u32::MAX - 8), &agreed), None);
    assert_eq!(
        errno(request(READ, none, 0, u32::MAX - 7), &agreed),
        Some(Errno::Invalid)
    );
}

#[test]
fn a_long_read_in_one_piece_may_be_refused() {
    let limits = Limits {
        unfragmented_max: 1 << 20,
        ..Limits::default()
    };
    let read = |flags, len| judge(&request(READ, flags, 0, len), &agreed(all()), &limits);
    assert!(read(CommandFlags::DF, 1 << 20).is_ok());
    assert!(read(CommandFlags::NONE, 2 << 20).is_ok());
    assert_eq!(
        read(CommandFlags::DF, (1 << 20) + 1).unwrap_err().errno,
        Errno::Overflow
    );
}

#[test]
fn a_flush_has_no_range_and_a_disconnect_no_refusal() {
    let agreed = agreed(all());
    for (offset, len) in [(0, 1), (1, 0), (u64::MAX, u32::MAX)] {
        let flush = request(Command::Flush, CommandFlags::NONE, offset, len);
        assert_eq!(errno(flush, &agreed), Some(Errno::Invalid));
        let end = request(
            Command::Disconnect,
            CommandFlags::from_bits(0xffff),
            offset,
            len,
        );
        assert_eq!(
            judge(&end, &agreed, &Limits::default()),
            Ok(Work::Disconnect)
        );
    }
}

#[test]
fn the_payload_of_a_refused_write_is_accounted_for() {
    let agreed = agreed(all());
    let limits = Limits::default();
    let refusal =
        |len| judge(&request(WRITE, CommandFlags::DF, 0, len), &agreed, &limits).unwrap_err();
    assert_eq!(refusal(0).payload, Payload::None);
    assert_eq!(refusal(1).payload, Payload::Discard(1));
    assert_eq!(
        refusal(limits.discard_max).payload,
        Payload::Discard(64 << 20)
    );
    assert_eq!(refusal(limits.discard_max + 1).payload, Payload::HangUp);
    assert_eq!(
        refusal(1).to_string(),
        "invalid request (EINVAL): a command flag is not one of this command's, or was not offered"
    );
}
