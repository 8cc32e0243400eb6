//! `qemu-io` as a client that is killed with its server: it says of each command that it was
//! carried out.
//!
//! A block (4 KiB) of its own part of the volume holds one byte over and over. After a kill it may
//! hold any byte sent since the last of its flushes, and the byte that was there before that.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::{Client, Random, Server, command};

const BLOCK: u64 = 4096;
/// Blocks of the longest request.
const LONGEST: u64 = 16;

/// The contents that each block may have, oldest first; the writes answered; the durable ones.
struct Block {
    bytes: Vec<u8>,
    done: usize,
    durable: usize,
}

/// A part of a volume that qemu-io writes.
pub(crate) struct QemuIo {
    range: Range<u64>,
    blocks: Vec<Block>,
    /// Commands that it said it had carried out.
    pub(crate) done: u64,
}

/// The words said to a running qemu-io, and its answers.
pub(crate) struct Talk {
    input: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl QemuIo {
    /// It will write these bytes, which are zeroes now.
    pub(crate) fn new(range: Range<u64>) -> Self {
        let blocks = (range.end - range.start) / BLOCK;
        let block = || Block {
            bytes: vec![0],
            done: 0,
            durable: 0,
        };
        Self {
            range,
            blocks: (0..blocks).map(|_| block()).collect(),
            done: 0,
        }
    }

    /// Connects. A test that kills the server kills it after that: with its server gone it may wait
    /// for ever.
    pub(crate) fn start(server: &Server) -> (Child, Talk) {
        // Failures are said on the other stream: they are heard in the same order.
        let line = format!("exec qemu-io -f raw -t none '{}' 2>&1", server.uri("disk"));
        let mut command = command("sh", &["-c", &line]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("qemu-io starts");
        let input = child.stdin.take().expect("its input");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        (child, Talk { input, said })
    }

    /// Writes, zeroes, discards and flushes until it is killed.
    pub(crate) fn work(&mut self, mut talk: Talk, seed: u64) {
        let mut random = Random(seed);
        loop {
            let choice = random.below(20);
            if choice == 0 {
                // It has no words for a flush, failed or not. Here none fails but for want of a
                // server, and then nothing that is asked after it goes well.
                let line = format!("flush\nread {} 512", self.range.start);
                if !talk.carry_out(&line, "read 512/512") {
                    break;
                }
                for block in &mut self.blocks {
                    block.durable = block.done;
                }
                self.done += 1;
                continue;
            }
            let len = 1 + random.below(LONGEST);
            let first = random.below(self.blocks.len() as u64 - len + 1);
            let byte = match choice {
                1..=3 => 0,
                _ => 1 + u8::try_from(random.below(255)).expect("a byte"),
            };
            let (offset, bytes) = (self.range.start + first * BLOCK, len * BLOCK);
            let (line, words) = match choice {
                1 => (format!("write -z -u {offset} {bytes}"), "wrote"),
                2 => (format!("write -z {offset} {bytes}"), "wrote"),
                3 => (format!("discard {offset} {bytes}"), "discard"),
                4 => (format!("write -f -P {byte} {offset} {bytes}"), "wrote"),
                _ => (format!("write -P {byte} {offset} {bytes}"), "wrote"),
            };
            let first = usize::try_from(first).expect("few");
            let blocks = &mut self.blocks[first..][..usize::try_from(len).expect("few")];
            for block in blocks.iter_mut() {
                block.bytes.push(byte);
            }
            if !talk.carry_out(&line, words) {
                break;
            }
            for block in blocks {
                // Advice may be taken or not, so what was there before may stay.
                if choice != 3 {
                    block.done = block.bytes.len() - 1;
                }
                if choice == 4 {
                    block.durable = block.done;
                }
            }
            self.done += 1;
        }
    }

    /// Reads everything and compares; what is there is what may be there from now on.
    pub(crate) fn check(&mut self, client: &mut Client, round: u64) {
        let mut data = vec![0; usize::try_from(self.range.end - self.range.start).expect("small")];
        client.read(self.range.start, &mut data).expect("a read");
        for (number, block) in self.blocks.iter_mut().enumerate() {
            let there = &data[number * 4096..][..4096];
            let byte = there[0];
            assert!(
                there.iter().all(|other| *other == byte),
                "round {round}: block {number} of qemu-io is torn"
            );
            let may_be = &block.bytes[block.durable..];
            assert!(
                may_be.contains(&byte),
                "round {round}: block {number} of qemu-io has {byte}, not one of {may_be:?}"
            );
            *block = Block {
                bytes: vec![byte],
                done: 0,
                durable: 0,
            };
        }
    }
}

impl Talk {
    /// True if it says that it did so.
    fn carry_out(&mut self, line: &str, words: &str) -> bool {
        if writeln!(self.input, "{line}").is_err() {
            return false;
        }
        let mut said = String::new();
        loop {
            said.clear();
            match self.said.read_line(&mut said) {
                Ok(count) if count > 0 => {}
                _ => return false,
            }
            if said.contains("failed") {
                return false;
            }
            if said.contains(words) {
                return true;
            }
        }
    }
}
