//! Protocol Buffers as far as a trace needs them: whole numbers, text, and messages in messages.
//!
//! Source: protobuf.dev/programming-guides/encoding.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A whole number.
    pub(super) fn number(mut self, field: u32, value: u64) -> Self {
        varint(&mut self.0, u64::from(field) << 3 | VARINT);
        varint(&mut self.0, value);
        self
    }

    /// A floating-point number.
    pub(super) fn real(mut self, field: u32, value: f64) -> Self {
        varint(&mut self.0, u64::from(field) << 3 | FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        varint(&mut self.0, u64::from(field) << 3 | BYTES);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Its encoding, behind `field` and its length: as part of a message of repeated ones.
    pub(super) fn append_to(&self, out: &mut Vec<u8>, field: u32) {
        varint(out, u64::from(field) << 3 | BYTES);
        varint(out, self.0.len() as u64);
        out.extend_from_slice(&self.0);
    }
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}

/// A field that was read.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Number(u64),
    Real(f64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
#[cfg(test)]
pub(super) fn fields(mut bytes: &[u8]) -> Vec<(u32, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes);
        let field = match key & 7 {
            VARINT => Field::Number(read_varint(&mut bytes)),
            FIXED64 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Real(f64::from_le_bytes(value.try_into().unwrap()))
            }
            BYTES => {
                let length = usize::try_from(read_varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((u32::try_from(key >> 3).unwrap(), field));
    }
    fields
}

#[cfg(test)]
fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint has at most ten bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        let mut out = Vec::new();
        varint(&mut out, 150);
        assert_eq!(out, [0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").0, b"\x12\x07testing");
        let inner = Message::new().number(1, 150);
        assert_eq!(Message::new().message(3, &inner).0, b"\x1a\x03\x08\x96\x01");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let message = Message::new()
            .number(1, u64::MAX)
            .real(2, 0.5)
            .text(3, "kswapd");
        let read = fields(&message.0);
        assert!(matches!(read[0], (1, Field::Number(u64::MAX))));
        assert!(matches!(read[1], (2, Field::Real(0.5))));
        assert!(matches!(read[2], (3, Field::Bytes(b"kswapd"))));
    }
}
