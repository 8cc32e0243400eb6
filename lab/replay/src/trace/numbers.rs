//! A page number a line, decimal or `0x..`, and perhaps `r` or `w` behind it. Empty lines and those
//! that begin with `#` are passed over.

use super::{Fault, Sink, quoted};

pub(super) fn read(words: &str, sink: &mut Sink) -> Result<(), Fault> {
    let words = words.trim();
    if words.is_empty() || words.starts_with('#') {
        return Ok(());
    }
    let (number, way) =
        match words.split_once(|letter: char| letter == ',' || letter.is_whitespace()) {
            Some((number, way)) => (number, way.trim()),
            None => (words, "r"),
        };
    let page = match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => number.parse(),
    };
    let (Ok(page), "r" | "R" | "w" | "W") = (page, way) else {
        let words = quoted(words);
        let wrong = format!("{words} is no page number, alone or with `r` or `w` behind it");
        return Err(Fault::line(sink.line, wrong));
    };
    sink.access(page, way.eq_ignore_ascii_case("w"));
    Ok(())
}
