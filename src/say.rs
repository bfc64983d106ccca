//! Text that leaves the process. Messages, reports and batch output go through here, and nothing in them is more than
//! text to a terminal.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use crate::text::{is_harmless, printable};

/// Writes a message to standard error, as lines of their own. An error of that write has no reader and is dropped: a
/// terminal may be gone.
pub fn message(text: impl Display) {
    let text = printable(&text.to_string());
    // In one piece, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{}\n", text.trim_end_matches('\n')).as_bytes());
}

/// Writes a report to standard output. A reader that has gone away is no error.
///
/// # Errors
/// The errno of write(2).
pub fn report(text: &str, form: Form) -> io::Result<()> {
    let mut out = Cleaned::new(io::stdout().lock(), form);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A descriptor of standard error, for what is written to it through [`Notes`].
///
/// # Errors
/// The errno of dup(2): there are too many descriptors.
pub fn descriptor() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}

/// A place for notes that are written one after the other. A write never fails: what writes them has more to do than to
/// be read.
pub struct Notes<W>(Cleaned<W>);

impl<W: Write> Notes<W> {
    /// `out` is standard error, as a rule.
    pub fn new(out: W) -> Notes<W> {
        Notes(Cleaned::new(out, Form::Text))
    }
}

impl<W: Write> Write for Notes<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// How a character that is more than text is written instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As `\x1b` or `\u{202e}`.
    Text,
    /// As in text, but lines end with CR LF.
    Csv,
    /// As `\u202e`: outside of strings JSON has no such characters.
    Json,
}

/// Output in which every character is harmless to a terminal. Line breaks pass.
pub struct Cleaned<W> {
    out: W,
    form: Form,
    /// The beginning of a character whose other bytes have not been written yet.
    begun: Vec<u8>,
}

impl<W: Write> Cleaned<W> {
    /// `form` says how other characters are written.
    pub fn new(out: W, form: Form) -> Cleaned<W> {
        Cleaned { out, form, begun: Vec::new() }
    }

    fn passes(&self, c: char) -> bool {
        c == '\n' || c == ' ' || (c == '\r' && self.form == Form::Csv) || is_harmless(c)
    }

    fn escape(&mut self, c: char) -> io::Result<()> {
        match (self.form, c as u32) {
            (Form::Json, _) => {
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.out, "\\u{unit:04x}"))
            }
            (_, code @ ..0x80) => write!(self.out, "\\x{code:02x}"),
            (_, code) => write!(self.out, "\\u{{{code:x}}}"),
        }
    }

    fn clean(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let mut rest = chunk.valid();
            while let Some((at, bad)) = rest.char_indices().find(|(_, c)| !self.passes(*c)) {
                self.out.write_all(&rest.as_bytes()[..at])?;
                self.escape(bad)?;
                rest = &rest[at + bad.len_utf8()..];
            }
            self.out.write_all(rest.as_bytes())?;
            let invalid = chunk.invalid();
            let unfinished = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && unfinished {
                self.begun = invalid.to_vec();
            } else {
                invalid.iter().try_for_each(|byte| self.byte(*byte))?;
            }
        }
        Ok(())
    }

    /// A byte that is part of no character.
    fn byte(&mut self, byte: u8) -> io::Result<()> {
        match self.form {
            // JSON has no bytes, only characters: the one that stands for what is none.
            Form::Json => self.out.write_all("\u{fffd}".as_bytes()),
            _ => write!(self.out, "\\x{byte:02x}"),
        }
    }
}

impl<W: Write> Write for Cleaned<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nearly all output: no character of it has to be looked at twice.
        if self.begun.is_empty() && bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
            self.out.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        self.clean(&all)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cleaned(form: Form, pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut cleaned = Cleaned::new(&mut out, form);
        pieces.iter().for_each(|piece| cleaned.write_all(piece).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_follow_the_form() {
        let hostile = "ä\x1b[2J\u{9b}\u{202e}\u{e0001}\r\n".as_bytes();
        assert_eq!(cleaned(Form::Text, &[hostile]), "ä\\x1b[2J\\u{9b}\\u{202e}\\u{e0001}\\x0d\n");
        assert_eq!(cleaned(Form::Csv, &[hostile]), "ä\\x1b[2J\\u{9b}\\u{202e}\\u{e0001}\r\n");
        let json = cleaned(Form::Json, &["\"\u{7f}\u{9b}\u{202e}\u{e0001}\"\n".as_bytes()]);
        assert_eq!(json, "\"\\u007f\\u009b\\u202e\\udb40\\udc01\"\n");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "\u{7f}\u{9b}\u{202e}\u{e0001}");
    }

    #[test]
    fn a_character_may_come_in_two_writes() {
        assert_eq!(cleaned(Form::Text, &[b"\xc3", b"\xa4\xe2\x80", b"\xaex\xff"]), "ä\\u{202e}x\\xff");
    }

    proptest! {
        #[test]
        fn nothing_but_text_is_left(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0..64usize) {
            let cut = cut.min(bytes.len());
            for form in [Form::Text, Form::Json] {
                let text = cleaned(form, &[&bytes[..cut], &bytes[cut..]]);
                prop_assert!(text.chars().all(|c| c == '\n' || c == ' ' || is_harmless(c)), "{text:?}");
            }
        }
    }
}
