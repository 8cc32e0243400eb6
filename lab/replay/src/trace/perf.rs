//! Text of `perf script`: events `filemap:*` and `block:*`. Of these, one sort counts, the first of
//! the list that is in the file:
//!
//! 1. `mm_filemap_get_pages`, `mm_filemap_fault`, `mm_filemap_map_pages` (Linux 6.11 and later):
//!    all accesses of files, hits too
//! 2. `mm_filemap_add_to_page_cache`: pages that came in, so misses of the cache they were under
//! 3. `block_bio_queue`: requests as they are queued
//! 4. `block_rq_issue`: requests as they are sent
//!
//! Those of files do not say whether a page is written: they are taken for reads.
//!
//! Source: Linux 6.12 include/trace/events/filemap.h and block.h.

use super::{Fault, Sink, bytes_of, quoted};

/// One event: its sort, the place, bytes from and how many, whether it writes.
struct Event {
    sort: u8,
    place: String,
    offset: u64,
    bytes: u64,
    write: bool,
}

/// The value behind a key, be it `key=value` or `key value`.
fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == key)?;
    words.get(at + 1).copied()
}

fn file_event(sort: u8, rest: &str) -> Option<Event> {
    let words: Vec<&str> = rest
        .split(|letter: char| letter == '=' || letter.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    let place = format!("{} {}", value(&words, "dev")?, value(&words, "ino")?);
    let [from, last] = ["ofs", "max_ofs"].map(|key| value(&words, key));
    // `map_pages` prints a range: `ofs=0-8191`.
    let (from, dashed) = match from?.split_once('-') {
        Some((from, last)) => (from, Some(last)),
        None => (from?, None),
    };
    let offset: u64 = from.parse().ok()?;
    let last = match last.or(dashed) {
        Some(last) => last.parse().ok()?,
        None => offset,
    };
    let order = value(&words, "order").map_or(Some(0), |order| order.parse::<u32>().ok())?;
    let least = 4096_u64.checked_shl(order)?;
    let bytes = last.saturating_sub(offset).saturating_add(1).max(least);
    Some(Event {
        sort,
        place,
        offset,
        bytes,
        write: false,
    })
}

fn block_event(sort: u8, rest: &str) -> Option<Event> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [device, rwbs] = *words.first_chunk()?;
    let plus = words.iter().position(|word| *word == "+")?;
    let sector: u64 = words.get(plus.checked_sub(1)?)?.parse().ok()?;
    let sectors: u64 = words.get(plus + 1)?.parse().ok()?;
    Some(Event {
        sort,
        place: device.to_owned(),
        offset: bytes_of(sector),
        bytes: bytes_of(sectors),
        write: rwbs.contains('W'),
    })
}

/// The event of a line, `None` if it is none that counts; an error: its fields cannot be read.
fn event(line: &str) -> Option<Result<Event, ()>> {
    const SORTS: [(&str, u8); 6] = [
        ("filemap:mm_filemap_get_pages: ", 0),
        ("filemap:mm_filemap_fault: ", 0),
        ("filemap:mm_filemap_map_pages: ", 0),
        ("filemap:mm_filemap_add_to_page_cache: ", 1),
        ("block:block_bio_queue: ", 2),
        ("block:block_rq_issue: ", 3),
    ];
    let found = SORTS
        .iter()
        .find_map(|(name, sort)| Some((*sort, line.split_once(name)?.1)));
    let (sort, rest) = found?;
    let event = match sort {
        0 | 1 => file_event(sort, rest),
        _ => block_event(sort, rest),
    };
    Some(event.ok_or(()))
}

pub(super) fn read(words: &str, sink: &mut Sink) -> Result<(), Fault> {
    let event = match event(words) {
        None => return Ok(()),
        Some(Ok(event)) => event,
        Some(Err(())) => {
            let wrong = format!("cannot read the fields of {}", quoted(words));
            return Err(Fault::line(sink.line, wrong));
        }
    };
    if event.sort < sink.sort {
        sink.restart(event.sort);
    }
    if event.sort > sink.sort || event.bytes == 0 {
        return Ok(());
    }
    sink.bytes(&event.place, event.offset, event.bytes, event.write)
}
