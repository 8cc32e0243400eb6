//! Page numbers of 8 bytes, little-endian, each an access that reads.

use super::{Fault, Sink};

pub(super) fn read(bytes: &[u8], sink: &mut Sink) -> Result<(), Fault> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    for number in numbers {
        sink.access(u64::from_le_bytes(*number), false)?;
    }
    if rest.is_empty() {
        return Ok(());
    }
    let at = format!("byte {}", numbers.len() * 8);
    let wrong = format!("{} bytes at the end, not the 8 of a number", rest.len());
    Err(Fault::At(at, wrong))
}
