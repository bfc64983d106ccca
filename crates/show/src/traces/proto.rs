//! Messages of protocol buffers, written field by field (protobuf.dev/programming-guides/encoding).

use crate::record::varint::put;

/// Kinds of fields on the wire.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// A message in the making. Fields are in the order in which they are added.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A field with a number that is not negative.
    pub(super) fn uint(mut self, field: u64, value: u64) -> Message {
        self.tag(field, VARINT);
        put(&mut self.0, value);
        self
    }

    /// A field with a number of 64 bits: a negative one takes ten bytes.
    pub(super) fn int(self, field: u64, value: i64) -> Message {
        self.uint(field, value as u64)
    }

    /// A field with a floating-point number of 64 bits.
    pub(super) fn double(mut self, field: u64, value: f64) -> Message {
        self.tag(field, FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A field with text.
    pub(super) fn text(mut self, field: u64, value: &str) -> Message {
        self.length(field, value.as_bytes());
        self
    }

    /// A field with another message.
    pub(super) fn message(mut self, field: u64, value: &Message) -> Message {
        self.length(field, &value.0);
        self
    }

    /// A repeated field of numbers, in one piece. None leave no trace.
    pub(super) fn packed(mut self, field: u64, values: impl IntoIterator<Item = u64>) -> Message {
        let mut all = Message::default();
        values.into_iter().for_each(|value| put(&mut all.0, value));
        if !all.0.is_empty() {
            self.length(field, &all.0);
        }
        self
    }

    /// The message without its own length.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn tag(&mut self, field: u64, kind: u64) {
        put(&mut self.0, field << 3 | kind);
    }

    fn length(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, LENGTH);
        put(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the page on the encoding, and the widest numbers.
    #[test]
    fn fields_are_as_the_specification_has_them() {
        let bytes = |message: Message| message.bytes().to_vec();
        assert_eq!(bytes(Message::default().uint(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(bytes(Message::default().text(2, "testing")), b"\x12\x07testing");
        let inner = Message::default().uint(1, 150);
        assert_eq!(bytes(Message::default().message(3, &inner)), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let packed = Message::default().packed(6, [3, 270, 86942]);
        assert_eq!(bytes(packed), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        assert!(bytes(Message::default().packed(6, [])).is_empty());
        let minus_two = [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(bytes(Message::default().int(1, -2)), minus_two);
        assert_eq!(bytes(Message::default().double(1, 1.0)), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(bytes(Message::default().uint(44, 0)), [0xe0, 0x02, 0x00], "a tag of two bytes");
    }
}
