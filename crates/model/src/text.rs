//! Text that is fit to be shown: cleaned when it comes from outside, wrapped when it is long.

pub mod json;
pub mod nearest;
pub mod prose;
pub mod quantity;
pub mod shade;

use unicode_width::UnicodeWidthChar;

/// `bytes` with everything escaped that a terminal, a log or a spreadsheet could take for more than text.
/// These are control characters (C0, C1, DEL), bidirectional overrides and isolates, characters without a
/// width, bytes that are not UTF-8 (`\xNN`), and the backslash itself. Names of tasks, users, cgroups and
/// files can be chosen freely.
///
/// Reversible: two different inputs never look the same.
pub fn clean(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_clean(&mut out, c);
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// True for text that is safe to show, such as the result of [`clean`].
pub fn is_clean(text: &str) -> bool {
    text.chars().all(|c| c == ' ' || is_harmless(c))
}

/// [`clean`] for text that is UTF-8 already.
pub fn clean_str(text: &str) -> String {
    clean(text.as_bytes())
}

/// A sort key that puts nvme2 before nvme10.
pub fn natural(name: &str) -> (&str, u64) {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0))
}

/// A reason without the attempt behind it in parentheses, ` (opening cycles: ENOENT)`: doctor has that, and screens have no room.
pub fn without_attempt(why: &str) -> &str {
    match why.find(" (opening ") {
        Some(at) if why.ends_with(')') => &why[..at],
        _ => why,
    }
}

/// A text without the numbers of error codes, ` (os error 2)`: their words say the same.
pub fn without_codes(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((code, rest)) if code.bytes().all(|byte| byte.is_ascii_digit()) => out += rest,
            _ => out.extend([" (os error ", part]),
        }
    }
    out
}

/// A message of this program that may contain text from outside. It is escaped as by [`clean`], but line ends
/// and backslashes stay, so that clean text is not escaped twice.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || c == '\\' { out.push(c) } else { push_clean(&mut out, c) }
    }
    out
}

/// The same, in one line.
pub fn one_line(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_string();
    }
    printable(text).replace('\n', "\\x0a")
}

fn push_clean(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        ' '..='~' => out.push(c),
        c if (c as u32) < 0x80 => out.push_str(&format!("\\x{:02x}", c as u32)),
        c if is_harmless(c) => out.push(c),
        c => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
    }
}

/// True for a character that a terminal shows as itself and nothing else. A space is excluded.
pub fn is_harmless(c: char) -> bool {
    let no_width = c.width().unwrap_or(0) == 0;
    // The characters of Bidi_Control (Unicode PropList.txt), and the line and paragraph separators.
    let direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !no_width && !direction && !c.is_control()
}

/// The places where a sentence may wrap: after each space.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive(' ').map(str::to_owned)
}

/// `prefix` and the pieces, wrapped at `width` with later lines indented below the first piece; ends with a
/// newline.
pub fn hanging(prefix: &str, pieces: impl IntoIterator<Item = String>, width: usize) -> String {
    let mut text = String::new();
    let mut line = prefix.to_owned();
    for piece in pieces {
        if line.len() > prefix.len() && line.len() + piece.trim_end().len() > width {
            text += line.trim_end();
            text.push('\n');
            line = " ".repeat(prefix.len());
        }
        line += &piece;
    }
    text += line.trim_end();
    text.push('\n');
    text
}

/// `1 node`, `2 nodes`: for nouns whose plural is an s.
pub fn plural(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Wall-clock time as RFC 3339 in UTC with milliseconds.
pub fn rfc3339(wall_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(wall_ns)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reason_loses_its_attempt_and_nothing_else() {
        let whole = "no such counter on this CPU (opening cycles: No such file or directory (os error 2))";
        assert_eq!(without_attempt(whole), "no such counter on this CPU");
        assert_eq!(without_attempt("no PMU (opening is not tried): no"), "no PMU (opening is not tried): no");
    }

    #[test]
    fn an_error_keeps_its_words_and_loses_its_number() {
        let twice = "a: Permission denied (os error 13); b (os error 2)";
        assert_eq!(without_codes(twice), "a: Permission denied; b");
        assert_eq!(without_codes("no (os error x) here"), "no (os error x) here");
    }

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in ["kworker/0:1-events", "java", "Ünïcödé", "数据库", "(sd-pam)"] {
            assert_eq!(clean(name.as_bytes()), name);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(clean(b"\x1b]0;PWN\x07\x9bx"), "\\x1b]0;PWN\\x07\\x9bx");
        assert_eq!(clean("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(clean("a\u{200d}b\u{85}".as_bytes()), "a\\u{200d}b\\u{85}");
        assert_eq!(clean(b"tab\there\\"), "tab\\x09here\\\\");
    }

    #[test]
    fn messages_keep_their_lines_and_are_escaped_once() {
        let cleaned = clean(b"\x1b]0;\xff\\");
        assert_eq!(printable(&cleaned), cleaned);
        assert_eq!(printable("in \x1b[2J\u{9b}:\n  a\tb"), "in \\x1b[2J\\u{9b}:\n  a\\x09b");
        assert_eq!(one_line("a\nb"), "a\\x0ab");
    }

    #[test]
    fn wrapped_lines_hang_below_the_first_piece() {
        let list = |text: &'static str| text.split_inclusive(',').map(str::to_owned);
        assert_eq!(hanging("CPUs ", list("0,2,4,6"), 10), "CPUs 0,2,\n     4,6\n");
        assert_eq!(hanging("CPUs ", list("0-7"), 3), "CPUs 0-7\n");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_is_left(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = clean(&bytes);
            prop_assert!(text.chars().all(|c| c == ' ' || is_harmless(c)));
        }

        #[test]
        fn different_inputs_look_different(a in proptest::collection::vec(any::<u8>(), 0..6), b in proptest::collection::vec(any::<u8>(), 0..6)) {
            prop_assert_eq!(a == b, clean(&a) == clean(&b));
        }
    }

    #[test]
    fn time_is_rfc3339_utc() {
        assert_eq!(rfc3339(1_763_683_199_123_456_789), "2025-11-20T23:59:59.123Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
    }
}
