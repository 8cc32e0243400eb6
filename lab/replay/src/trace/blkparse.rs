//! Text of `blkparse`: `major,minor cpu number time pid action rwbs sector + sectors [process]`.
//! Requests count when they are queued (action `Q`); the summary at the end is passed over.
//!
//! Source: blktrace, blkparse(1), "default output".

use super::{Fault, Sink, bytes_of, quoted};

/// The words of a line with an action.
fn event(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_device = |word: &str| {
        let numbers = word.split_once(',');
        numbers.is_some_and(|(major, minor)| {
            major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok()
        })
    };
    let is_event = words.len() >= 6 && is_device(words[0]) && words[3].contains('.');
    is_event.then_some(words)
}

pub(super) fn is_line(line: &str) -> bool {
    event(line).is_some()
}

pub(super) fn read(words: &str, sink: &mut Sink) -> Result<(), Fault> {
    let Some(event) = event(words) else {
        return Ok(());
    };
    if event[5] != "Q" {
        return Ok(());
    }
    let sectors = match event[6..] {
        [rwbs, sector, "+", sectors, ..] => {
            let range = sector.parse::<u64>().ok().zip(sectors.parse::<u64>().ok());
            range.map(|(sector, sectors)| (rwbs, sector, sectors))
        }
        // A flush has no sectors.
        _ => return Ok(()),
    };
    let Some((rwbs, sector, sectors)) = sectors else {
        let wrong = format!(
            "{} has no `sector + sectors` behind its action",
            quoted(words)
        );
        return Err(Fault::line(sink.line, wrong));
    };
    // A discard is no access.
    if rwbs.contains('D') || sectors == 0 {
        return Ok(());
    }
    let (offset, len) = (bytes_of(sector), bytes_of(sectors));
    sink.bytes(event[0], offset, len, rwbs.contains('W'))
}
