//! Paths of cgroups as text. Their names are bytes that need not be UTF-8.
//!
//! A byte that is not part of a character is kept as a NUL and its two digits. No file name has a NUL, so
//! different paths stay different, and a path in UTF-8 is its own text.

use crate::text;

const MARK: char = '\0';

/// `bytes` as text.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut path = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        path.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| path.push_str(&format!("{MARK}{byte:02x}")));
    }
    path
}

/// The bytes that `path` was made of.
pub fn to_bytes(path: &str) -> Vec<u8> {
    let mut pieces = path.split(MARK);
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte @ 0x80..) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            // Not ours: a recording may say anything.
            _ => {
                bytes.push(MARK as u8);
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    bytes
}

/// Makes `path` safe to show: [`text::clean`].
pub fn show(path: &str) -> String {
    text::clean(&to_bytes(path))
}

/// The path that is shown as `typed`; `None` when that is the path itself, or no path is shown so.
pub fn shown_as(typed: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = typed;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let code = &rest[at + 1..];
        if let Some(after) = code.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
        } else if let Some(hex) = code.strip_prefix('x') {
            let digits =
                hex.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &hex[2..];
        } else {
            let (hex, after) = code.strip_prefix("u{")?.split_once('}')?;
            let c = char::from_u32(u32::from_str_radix(hex, 16).ok()?)?;
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    (bytes != typed.as_bytes()).then(|| from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_that_are_no_text_stay_apart() {
        assert_eq!(from_bytes("/ä/x".as_bytes()), "/ä/x");
        assert_eq!(show(&from_bytes(b"/x/\xff")), "/x/\\xff");
        assert_eq!(show(&from_bytes(b"/x/\xfe")), "/x/\\xfe");
        assert_eq!(show(&from_bytes(br"/x/\xff")), r"/x/\\xff");
        assert_eq!(show("a\0zz\0"), "a\\x00zz\\x00");
    }

    #[test]
    fn other_escapes_are_no_path() {
        for typed in [r"/a\", r"/a\x2", r"/a\x+f", r"/a\u{zz}", r"/a\q", "/plain"] {
            assert_eq!(shown_as(typed), None, "{typed}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_leads_back(bytes in proptest::collection::vec(1..=255u8, 0..40)) {
            let path = from_bytes(&bytes);
            prop_assert_eq!(&to_bytes(&path), &bytes);
            let shown = show(&path);
            prop_assert_eq!(shown_as(&shown).unwrap_or(shown), path);
        }

        #[test]
        fn no_text_makes_trouble(text in ".{0,40}") {
            let _ = (to_bytes(&text), show(&text), shown_as(&text));
        }
    }
}
