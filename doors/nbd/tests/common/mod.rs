//! A server of one export in memory, as small as can be, made of what the crate has: for tests of
//! the crate itself.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use nbd::haggle::{Agreed, Encryption, ExportInfo, Exports, Haggle, Missing, Rules, Step};
use nbd::transmit::{Limits, Payload, Range, Work, judge};
use nbd::wire::{self, BlockSizes, Errno, ExportFlags, REQUEST, Request, State};

/// Bytes of the export.
pub(crate) const SIZE: usize = 1 << 20;
/// Bytes of its blocks, for its status.
pub(crate) const BLOCK: usize = 4096;

/// The export: its bytes, and how it is offered.
pub(crate) struct Memory {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) flags: ExportFlags,
}

impl Memory {
    pub(crate) fn new(flags: ExportFlags) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; SIZE]),
            flags,
        })
    }
}

impl Exports for Memory {
    fn find(&self, name: &str) -> Result<ExportInfo, Missing> {
        if !["", "memory"].contains(&name) {
            return Err(Missing::Unknown);
        }
        Ok(ExportInfo {
            name: "memory".to_owned(),
            description: "bytes of a test".to_owned(),
            size: SIZE as u64,
            flags: self.flags,
            blocks: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: 1 << 25,
            },
        })
    }

    fn list(&self, each: &mut dyn FnMut(&str, &str)) {
        each("memory", "bytes of a test");
    }
}

/// A connected client's end; a thread serves the other one.
pub(crate) fn connect(memory: &Arc<Memory>) -> UnixStream {
    let (client, server) = UnixStream::pair().unwrap();
    let memory = Arc::clone(memory);
    std::thread::spawn(move || serve(server, &memory));
    client
}

/// Serves one connection until its end.
pub(crate) fn serve(mut stream: UnixStream, memory: &Memory) {
    if let Some(agreed) = handshake(&mut stream, memory) {
        requests(&mut stream, memory, &agreed);
    }
}

fn handshake(stream: &mut UnixStream, memory: &Memory) -> Option<Agreed> {
    let mut haggle = Haggle::new(Rules {
        encryption: Encryption::None,
        ..Rules::default()
    });
    stream.write_all(&Haggle::greeting()).ok()?;
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        let mut out = Vec::new();
        let (_, step) = haggle.feed(&byte, memory, &mut out).ok()?;
        stream.write_all(&out).ok()?;
        match step {
            Step::More => {}
            Step::Transmit(agreed) => return Some(*agreed),
            Step::StartTls | Step::Disconnect => return None,
        }
    }
}

fn requests(stream: &mut UnixStream, memory: &Memory, agreed: &Agreed) -> Option<()> {
    loop {
        let mut head = [0; REQUEST];
        stream.read_exact(&mut head).ok()?;
        let request = Request::parse(&head).ok()?;
        let cookie = request.cookie;
        let work = match judge(&request, agreed, &Limits::default()) {
            Ok(work) => work,
            Err(refusal) => {
                match refusal.payload {
                    Payload::None => {}
                    Payload::Discard(len) => stream.read_exact(&mut vec![0; len as usize]).ok()?,
                    Payload::HangUp => return None,
                }
                let reply = wire::failure(agreed.structured, cookie, refusal.errno, refusal.why);
                stream.write_all(reply.as_bytes()).ok()?;
                continue;
            }
        };
        if work == Work::Disconnect {
            return None;
        }
        let reply = carry_out(stream, memory, agreed, cookie, work)?;
        stream.write_all(&reply).ok()?;
    }
}

fn carry_out(
    stream: &mut UnixStream,
    memory: &Memory,
    agreed: &Agreed,
    cookie: u64,
    work: Work,
) -> Option<Vec<u8>> {
    let place = |range: Range| {
        let from = usize::try_from(range.offset).unwrap();
        from..from + range.len as usize
    };
    let done = match agreed.structured {
        true => wire::done(cookie).to_vec(),
        false => wire::simple_reply(cookie, None).to_vec(),
    };
    let mut reply = Vec::new();
    match work {
        Work::Read { range, .. } if agreed.structured => {
            reply.extend(wire::offset_data(cookie, range.offset, range.len, true));
            reply.extend(&memory.bytes.lock().unwrap()[place(range)]);
            return Some(reply);
        }
        Work::Read { range, .. } => {
            reply.extend(done);
            reply.extend(&memory.bytes.lock().unwrap()[place(range)]);
            return Some(reply);
        }
        Work::Write { range, .. } => {
            let mut data = vec![0; range.len as usize];
            stream.read_exact(&mut data).ok()?;
            memory.bytes.lock().unwrap()[place(range)].copy_from_slice(&data);
        }
        Work::Zero { fast: true, .. } => {
            let failure = wire::failure(
                agreed.structured,
                cookie,
                Errno::NotSupported,
                "memory is never fast",
            );
            return Some(failure.as_bytes().to_vec());
        }
        Work::Zero { range, .. } | Work::Trim { range, .. } => {
            memory.bytes.lock().unwrap()[place(range)].fill(0);
        }
        Work::Status { range, one } => {
            let bytes = memory.bytes.lock().unwrap();
            let states = bytes[place(range)].chunks(BLOCK).map(|block| {
                let zero = block.iter().all(|byte| *byte == 0);
                (
                    block.len(),
                    State::NONE.with_if(zero, State::HOLE.with(State::ZERO)),
                )
            });
            let descriptors: Vec<_> = states
                .take(if one { 1 } else { usize::MAX })
                .flat_map(|(len, state)| wire::descriptor(u32::try_from(len).unwrap(), state))
                .collect();
            let count = u32::try_from(descriptors.len() / 8).unwrap();
            reply.extend(wire::block_status(cookie, agreed.allocation?, count, true));
            reply.extend(descriptors);
            return Some(reply);
        }
        Work::Flush | Work::Cache { .. } | Work::Nothing => {}
        Work::Disconnect => return None,
    }
    Some(done)
}
