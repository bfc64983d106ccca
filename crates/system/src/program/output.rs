//! Text that leaves the process. Messages, reports and batch output go through here, and nothing in them is more than
//! text to a terminal.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::interruptible::{self, Interruptible};
use super::signals;
use crate::text::{is_harmless, one_line, printable, shade, without_codes};

/// Writes a message to standard error, as one line: a word from outside makes no second one. An error of that write has no
/// reader and is dropped: a terminal may be gone.
pub fn message(text: impl Display) {
    lines(one_line(text.to_string().trim_end_matches('\n')));
}

/// As [`message`], for text of our own that has several lines.
pub fn lines(text: impl Display) {
    let text = printable(&without_codes(&text.to_string()));
    let erased = if IS_OVERWRITTEN.swap(false, Ordering::Relaxed) { "\r\x1b[K" } else { "" };
    // In one piece, so that lines of several processes do not mix.
    let _ = written(io::stderr(), format!("{erased}{}\n", text.trim_end_matches('\n')).as_bytes());
}

/// The line of the terminal has a text that was written over it.
static IS_OVERWRITTEN: AtomicBool = AtomicBool::new(false);

/// Whether messages go to a terminal.
pub fn is_on_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes a text over the line of the terminal that messages go to, without ending it; an empty text erases the line.
pub fn over(text: &str) {
    // In one piece. A terminal that is gone has no reader.
    IS_OVERWRITTEN.store(!text.is_empty(), Ordering::Relaxed);
    let _ = written(io::stderr(), format!("\r{}\x1b[K", one_line(text)).as_bytes());
}

/// Writes a report to standard output. A reader that has gone away is no error.
///
/// # Errors
/// The errno of write(2).
pub fn report(text: &str, form: Form) -> io::Result<()> {
    written(io::stdout(), &cleaned(text, form)?)
}

fn cleaned(text: &str, form: Form) -> io::Result<Vec<u8>> {
    let mut out = Cleaned::new(Vec::new(), form);
    out.write_all(text.as_bytes())?;
    Ok(out.out)
}

/// Descriptors below 8 whose readers took nothing in the end.
static UNREAD: AtomicU8 = AtomicU8::new(0);

/// Writes all of `bytes` to `out`. Once a signal asks the program to end, a reader that takes nothing has a
/// second, and is not waited for again.
fn written(mut out: impl Write + AsFd, bytes: &[u8]) -> io::Result<()> {
    let bit = 1_u8.checked_shl(out.as_fd().as_raw_fd().unsigned_abs()).unwrap_or(0);
    if UNREAD.load(Ordering::Relaxed) & bit != 0 {
        return Ok(());
    }
    out.flush()?;
    let whole = match (signals::stop(), interruptible::output(&out)) {
        (Some(stop), Ok(own)) => Interruptible::new(File::from(own), stop).write_all(bytes),
        _ => out.write_all(bytes).and_then(|()| out.flush()),
    };
    match whole {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            UNREAD.fetch_or(bit, Ordering::Relaxed);
            Ok(())
        }
        whole => whole,
    }
}

/// Writes a report to standard error, beside the output of a command. A reader that has gone away is no error.
///
/// # Errors
/// The errno of write(2).
pub fn aside(text: &str, form: Form) -> io::Result<()> {
    written(io::stderr(), &cleaned(text, form)?)
}

/// Writes binary data to standard output, which is not a terminal. A reader that has gone away is not an
/// error.
///
/// # Errors
/// The errno of write(2).
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    written(io::stdout(), bytes)
}

/// A descriptor of standard error, for output through [`Notes`].
///
/// # Errors
/// The errno of dup(2): there are too many descriptors.
pub fn descriptor() -> io::Result<OwnedFd> {
    interruptible::output(io::stderr())
}

/// A place for notes that are written one after the other. A write never fails and never waits: notes are dropped while
/// their reader is behind, and counted.
pub struct Notes<W> {
    out: W,
    /// Notes that are not written yet.
    new: Cleaned<Vec<u8>>,
    /// The rest of a line that was begun.
    begun: Vec<u8>,
    dropped: u64,
}

impl<W: Write + AsFd> Notes<W> {
    /// `out` is standard error, as a rule. It must not buffer.
    pub fn new(out: W) -> Notes<W> {
        Notes { out, new: Cleaned::new(Vec::new(), Form::Text), begun: Vec::new(), dropped: 0 }
    }

    /// Writes as much of the started line as fits. True when it is complete.
    fn go_on(&mut self) -> bool {
        while !self.begun.is_empty() && has_room(self.out.as_fd()) {
            // A pipe with any room takes this many bytes (pipe(7)).
            let some = self.begun.len().min(libc::PIPE_BUF);
            match self.out.write(&self.begun[..some]) {
                Ok(written) => drop(self.begun.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal has room, but not for the next character.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // A reader that is gone misses nothing.
                Err(_) => self.begun.clear(),
            }
        }
        self.begun.is_empty()
    }

    fn line(&mut self, line: &[u8]) {
        if !self.go_on() || !has_room(self.out.as_fd()) {
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            let dropped = std::mem::take(&mut self.dropped);
            let words = format!("numatop-ng: standard error was not read: {dropped} notes were dropped\n");
            self.begun.extend(words.into_bytes());
        }
        self.begun.extend(line);
        self.go_on();
    }
}

/// Whether a write to `fd` goes ahead at once; also when it will fail at once.
fn has_room(fd: BorrowedFd<'_>) -> bool {
    let mut room = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    rustix::event::poll(&mut room, Some(&Timespec::default())) == Ok(1)
}

impl<W: Write + AsFd> Write for Notes<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.new.write_all(bytes);
        Ok(bytes.len())
    }

    /// Writes the lines there are.
    fn flush(&mut self) -> io::Result<()> {
        let new = std::mem::take(&mut self.new.out);
        new.split_inclusive(|byte| *byte == b'\n').for_each(|line| self.line(line));
        Ok(())
    }
}

/// The way to write a character that is more than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As `\x1b` or `\u{202e}`.
    Text,
    /// As in text, but the marks of [`shade`] are colours.
    Coloured,
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
    /// `form`: the way in which other characters are written.
    pub fn new(out: W, form: Form) -> Cleaned<W> {
        Cleaned { out, form, begun: Vec::new() }
    }

    fn passes(&self, c: char) -> bool {
        c == '\n' || c == ' ' || (c == '\r' && self.form == Form::Csv) || is_harmless(c)
    }

    fn escape(&mut self, c: char) -> io::Result<()> {
        if let Some(colour) = shade::sequence(c).filter(|_| self.form == Form::Coloured) {
            return self.out.write_all(colour.as_bytes());
        }
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
            // JSON has no bytes, only characters: this one replaces invalid text.
            Form::Json => self.out.write_all("\u{fffd}".as_bytes()),
            _ => write!(self.out, "\\x{byte:02x}"),
        }
    }
}

impl<W: Write> Write for Cleaned<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The usual case: none of the characters needs another look.
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
    use std::io::Read;

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
    fn only_marks_of_our_own_become_colours() {
        let text = "\x1b[2J\u{3}41\u{4}\u{5}\n".as_bytes();
        assert_eq!(cleaned(Form::Coloured, &[text]), "\\x1b[2J\x1b[1;7;33m41\x1b[0m\\x05\n");
        assert_eq!(cleaned(Form::Text, &[text]), "\\x1b[2J\\x0341\\x04\\x05\n");
    }

    #[test]
    fn a_character_may_come_in_two_writes() {
        assert_eq!(cleaned(Form::Text, &[b"\xc3", b"\xa4\xe2\x80", b"\xaex\xff"]), "ä\\u{202e}x\\xff");
    }

    #[test]
    fn notes_that_have_no_reader_are_counted_and_never_waited_for() {
        let (mut reader, out) = io::pipe().unwrap();
        let mut notes = Notes::new(out);
        for at in 0..10_000 {
            writeln!(notes, "note {at}\x1b").unwrap();
            notes.flush().unwrap();
        }
        let mut all = vec![0; 1 << 20];
        let first = reader.read(&mut all).unwrap();
        writeln!(notes, "the last").unwrap();
        notes.flush().unwrap();
        drop(notes);
        let rest = reader.read(&mut all[first..]).unwrap();
        let text = String::from_utf8(all[..first + rest].to_vec()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [written @ .., left_out, last] = &lines[..] else { panic!("{text}") };
        for (at, line) in written.iter().enumerate() {
            assert_eq!(*line, format!("note {at}\\x1b"), "in order, and each is whole");
        }
        let dropped = 10_000 - written.len();
        assert!(dropped > 0 && left_out.ends_with(&format!("not read: {dropped} notes were dropped")));
        assert_eq!(*last, "the last");
    }

    #[test]
    fn a_note_that_is_longer_than_the_room_is_cut_by_nothing() {
        let (mut reader, out) = io::pipe().unwrap();
        let mut notes = Notes::new(out);
        let long = "x".repeat(100_000);
        let mut text = String::new();
        for note in [&long[..], "two", "three"] {
            writeln!(notes, "{note}").unwrap();
            notes.flush().unwrap();
            let mut some = vec![0; 1 << 20];
            let read = reader.read(&mut some).unwrap();
            text += str::from_utf8(&some[..read]).unwrap();
        }
        assert_eq!(text, format!("{long}\ntwo\nthree\n"));
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
