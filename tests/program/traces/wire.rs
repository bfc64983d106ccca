//! A reader of protocol buffers that knows no message: fields by number, as they stand.

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message.
#[derive(Clone, Debug)]
pub struct Fields<'a>(Vec<(u64, Value<'a>)>);

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0u64;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        assert!(shift < 64, "a number of more than ten bytes");
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    unreachable!()
}

impl<'a> Fields<'a> {
    /// Reads a whole message; other bytes fail the test.
    pub fn read(bytes: &'a [u8]) -> Fields<'a> {
        let (mut fields, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let tag = varint(bytes, &mut at);
            let value = match tag & 7 {
                0 => Value::Number(varint(bytes, &mut at)),
                1 => {
                    at += 8;
                    Value::Fixed(u64::from_le_bytes(bytes[at - 8..at].try_into().unwrap()))
                }
                2 => {
                    let length = varint(bytes, &mut at) as usize;
                    at += length;
                    Value::Bytes(&bytes[at - length..at])
                }
                kind => panic!("a field of kind {kind} at byte {at}"),
            };
            fields.push((tag >> 3, value));
        }
        Fields(fields)
    }

    /// All values of a field.
    pub fn all(&self, field: u64) -> impl Iterator<Item = &Value<'a>> {
        self.0.iter().filter(move |(number, _)| *number == field).map(|(_, value)| value)
    }

    fn one(&self, field: u64) -> Option<&Value<'a>> {
        let mut all = self.all(field);
        let first = all.next();
        assert!(all.next().is_none(), "field {field} is there twice");
        first
    }

    pub fn number(&self, field: u64) -> Option<u64> {
        self.one(field).map(|value| match value {
            Value::Number(number) => *number,
            other => panic!("field {field} is {other:?}"),
        })
    }

    pub fn double(&self, field: u64) -> Option<f64> {
        self.one(field).map(|value| match value {
            Value::Fixed(bits) => f64::from_bits(*bits),
            other => panic!("field {field} is {other:?}"),
        })
    }

    pub fn text(&self, field: u64) -> Option<&'a str> {
        self.one(field).map(text)
    }

    pub fn texts(&self, field: u64) -> Vec<&'a str> {
        self.all(field).map(text).collect()
    }

    pub fn message(&self, field: u64) -> Option<Fields<'a>> {
        self.one(field).map(message)
    }

    pub fn messages(&self, field: u64) -> Vec<Fields<'a>> {
        self.all(field).map(message).collect()
    }

    /// The numbers of a packed field.
    pub fn packed(&self, field: u64) -> Vec<u64> {
        let Some(value) = self.one(field) else { return Vec::new() };
        let Value::Bytes(bytes) = value else { panic!("field {field} is {value:?}") };
        let (mut numbers, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            numbers.push(varint(bytes, &mut at));
        }
        numbers
    }

    /// Fails if there are others than these.
    pub fn only(&self, fields: &[u64]) -> &Fields<'a> {
        let other = self.0.iter().find(|(number, _)| !fields.contains(number));
        assert!(other.is_none(), "{other:?} is none of {fields:?}");
        self
    }
}

fn text<'a>(value: &Value<'a>) -> &'a str {
    let Value::Bytes(bytes) = value else { panic!("{value:?} is no text") };
    std::str::from_utf8(bytes).unwrap()
}

fn message<'a>(value: &Value<'a>) -> Fields<'a> {
    let Value::Bytes(bytes) = value else { panic!("{value:?} is no message") };
    Fields::read(bytes)
}
