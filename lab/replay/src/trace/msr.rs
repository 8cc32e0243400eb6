//! Requests of the servers of Microsoft Research Cambridge, a line each:
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; offset and size in bytes.
//!
//! Source: Narayanan, Donnelly and Rowstron, Write Off-Loading, FAST 2008; SNIA IOTTA, MSR
//! Cambridge traces, their README.

use super::{Fault, Sink, quoted};

pub(super) fn read(words: &str, sink: &mut Sink) -> Result<(), Fault> {
    if words.trim().is_empty() || sink.line == 1 && words.starts_with("Timestamp") {
        return Ok(());
    }
    let fields: Vec<&str> = words.split(',').map(str::trim).collect();
    let request = match fields[..] {
        [_, host, disk, way, offset, size, ..] => {
            let write = match way {
                "Read" | "read" => Some(false),
                "Write" | "write" => Some(true),
                _ => None,
            };
            let bytes = offset.parse().ok().zip(size.parse().ok());
            write.zip(bytes).map(|how| (format!("{host} {disk}"), how))
        }
        _ => None,
    };
    let Some((disk, (write, (offset, size)))) = request else {
        let words = quoted(words);
        let wrong = format!("{words} is no time,host,disk,Read|Write,offset,size,...");
        return Err(Fault::line(sink.line, wrong));
    };
    sink.bytes(&disk, offset, size, write)
}
