//! The checks of the fuzzing targets, over their corpus and over random input that is nearly right.
//!
//! A failure of the random part prints its seed; `NBD_SEED` takes one back, `NBD_ROUNDS` sets how
//! many there are.

#[path = "../fuzz/checks.rs"]
mod checks;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use nbd::haggle::Haggle;
use nbd::wire::{
    self, Command, CommandFlags, Errno, OptionHead, OptionKind, ReplyKind, Request, State,
};

fn corpus(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&data))) {
            eprintln!("failed for {}", path.display());
            resume_unwind(panic);
        }
        files += 1;
    }
    assert!(files >= 10, "{files} files in {}", folder.display());
}

#[test]
fn the_corpus_of_requests() {
    corpus("requests", checks::requests);
}

#[test]
fn the_corpus_of_handshakes() {
    corpus("handshake", checks::handshake);
}

#[test]
fn the_corpus_of_clients() {
    corpus("client", checks::client);
}

/// Xorshift: random enough to be wrong in many ways.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.byte()).collect()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// A few bytes changed, taken out or put in.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let at = usize::try_from(self.below(bytes.len() as u64)).unwrap();
            match self.below(4) {
                0 => bytes[at] = self.byte(),
                1 => bytes[at] ^= 1 << self.below(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, self.byte()),
            }
        }
    }
}

fn rounds(check: fn(&[u8]), make: fn(&mut Random) -> Vec<u8>) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let rounds = number("NBD_ROUNDS").unwrap_or(20_000);
    let seeds = match number("NBD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..rounds + 1,
    };
    for seed in seeds {
        // Neighbouring seeds begin alike; the first values are not used.
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.next();
        }
        let data = make(&mut random);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&data))) {
            eprintln!("failed with NBD_SEED={seed}: {data:02x?}");
            resume_unwind(panic);
        }
    }
}

fn string(random: &mut Random) -> Vec<u8> {
    let name = random.pick(&[
        "",
        "a",
        "b",
        "c",
        "d",
        "none",
        "base:",
        "base:allocation",
        "qemu:x",
        "a\0",
        "\u{e4}",
    ]);
    let mut text = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    text.extend(name.as_bytes());
    text
}

fn option(random: &mut Random) -> Vec<u8> {
    let kind = OptionKind::from_number(u32::try_from(random.below(12)).unwrap());
    let mut data = match kind {
        OptionKind::Info | OptionKind::Go => {
            let mut data = string(random);
            let count = u16::try_from(random.below(5)).unwrap();
            data.extend(count.to_be_bytes());
            (0..count).for_each(|_| data.extend([0, random.byte() % 5]));
            data
        }
        OptionKind::ListMetaContext | OptionKind::SetMetaContext => {
            let mut data = string(random);
            let count = u32::try_from(random.below(4)).unwrap();
            data.extend(count.to_be_bytes());
            (0..count).for_each(|_| data.extend(string(random)));
            data
        }
        OptionKind::ExportName => string(random).split_off(4),
        OptionKind::Other(_) | OptionKind::Abort => random.bytes(40),
        _ => Vec::new(),
    };
    if random.one_in(8) {
        random.spoil(&mut data);
    }
    let len = u32::try_from(data.len()).unwrap();
    let mut bytes = OptionHead { kind, len }.encode().to_vec();
    bytes.extend(data);
    if random.one_in(20) {
        random.spoil(&mut bytes);
    }
    bytes
}

#[test]
fn random_handshakes() {
    rounds(checks::handshake, |random| {
        let mut data = vec![random.byte(), random.byte() % 40];
        data.extend([
            0,
            0,
            0,
            if random.one_in(5) {
                random.byte() % 5
            } else {
                3
            },
        ]);
        for _ in 0..random.below(8) {
            data.extend(option(random));
        }
        data
    });
}

#[test]
fn random_requests() {
    rounds(checks::requests, |random| {
        let mut data = random.bytes(6);
        data.resize(6, 0);
        for _ in 0..random.below(6) {
            let near = [
                0,
                1,
                511,
                512,
                4096,
                1 << 25,
                (1 << 25) + 1,
                u64::from(u32::MAX),
                1 << 30,
                u64::MAX,
            ];
            let len = random
                .pick(&near)
                .wrapping_add(random.below(3))
                .wrapping_sub(1);
            let request = Request {
                flags: CommandFlags::from_bits(u16::from(random.byte() & random.byte())),
                command: Command::from_number(u16::from(random.byte() % 10)),
                cookie: random.next(),
                offset: random
                    .pick(&near)
                    .wrapping_add(random.below(3))
                    .wrapping_sub(1),
                len: u32::try_from(len & u64::from(u32::MAX)).unwrap(),
            };
            data.extend(request.encode());
        }
        if random.one_in(4) {
            random.spoil(&mut data);
        }
        data
    });
}

/// A server's answers to the client of the check: a handshake that succeeds, and replies that may.
fn server(random: &mut Random) -> Vec<u8> {
    let wish = random.byte() % 8;
    let mut data = vec![wish];
    data.extend(Haggle::greeting());
    let reply = |data: &mut Vec<u8>, option, kind, payload: &[u8]| {
        data.extend(wire::option_reply(
            option,
            kind,
            u32::try_from(payload.len()).unwrap(),
        ));
        data.extend(payload);
    };
    let structured = wish & 1 != 0;
    if structured {
        reply(&mut data, OptionKind::StructuredReply, ReplyKind::Ack, b"");
    }
    if structured && wish & 2 != 0 {
        let option = OptionKind::SetMetaContext;
        reply(
            &mut data,
            option,
            ReplyKind::MetaContext,
            b"\0\0\0\x01base:allocation",
        );
        reply(&mut data, option, ReplyKind::Ack, b"");
    }
    let export = b"\0\0\0\0\0\0\0\x01\0\0\0\x05";
    if wish & 4 == 0 {
        reply(&mut data, OptionKind::Go, ReplyKind::Info, export);
        reply(&mut data, OptionKind::Go, ReplyKind::Ack, b"");
    } else {
        data.extend(&export[2..]);
    }
    for _ in 0..random.below(12) {
        let cookie = 1 + random.below(6);
        let offset = random.pick(&[0, 16, 32, 4096, 4112, 4128, 5000]);
        let len = random.pick(&[16_u32, 32, 48, 64, 64, 65]);
        let last = random.one_in(2);
        match random.below(7) {
            0 => data.extend(wire::simple_reply(
                cookie,
                random.one_in(3).then_some(Errno::Io),
            )),
            1 => data.extend(wire::done(cookie)),
            2 => data.extend(wire::offset_hole(cookie, offset, len, last)),
            3 => data.extend(wire::error_at(cookie, Errno::NoSpace, "no", offset).as_bytes()),
            4 => {
                data.extend(wire::block_status(cookie, 1, 2, last));
                data.extend(wire::descriptor(len, State::HOLE));
                data.extend(wire::descriptor(len, State::NONE));
            }
            _ => {
                data.extend(wire::offset_data(cookie, offset, len, last));
                data.extend(vec![9; len as usize]);
            }
        }
    }
    if random.one_in(3) {
        random.spoil(&mut data);
    }
    data
}

#[test]
fn random_servers() {
    rounds(checks::client, server);
}

/// Writes a small corpus of what the generators make: `cargo test -p tidegate-nbd --test tests corpus:: --
/// --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn write_corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let write = |target: &str, data: &[Vec<u8>]| {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, data) in data.iter().enumerate() {
            std::fs::write(folder.join(format!("made-{number:02}")), data).unwrap();
        }
    };
    let mut random = Random(0x1234_5678_9abc_def1);
    let handshakes: Vec<_> = (0..24_u8)
        .map(|number| {
            let mut data = vec![number % 3 + 60, number, 0, 0, 0, 3];
            (0..5).for_each(|_| data.extend(option(&mut random)));
            data
        })
        .collect();
    write("handshake", &handshakes);
    let requests: Vec<_> = (0..16_u8)
        .map(|number| {
            let mut data = vec![0x0d, 0xfd - (number & 2), 0, 0, 30, number];
            for command in 0..9 {
                let request = Request {
                    flags: CommandFlags::from_bits(u16::from(number >> 2)),
                    command: Command::from_number(command),
                    cookie: 1,
                    offset: u64::from(number) << 9,
                    len: if command == 3 { 0 } else { 4096 },
                };
                data.extend(request.encode());
            }
            data
        })
        .collect();
    write("requests", &requests);
    let servers: Vec<_> = (0..24).map(|_| server(&mut random)).collect();
    write("client", &servers);
}
