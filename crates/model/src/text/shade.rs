//! Colours in reports: marks in the text, which become colours at the very end or are never there.

/// The colour of a piece of a report. The palette is the terminal's; blue and yellow are the pair that the colour-blind tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shade {
    /// On the node where it belongs.
    Local,
    /// Away from it.
    Remote,
    /// Far away from it.
    Far,
}

/// The mark behind a piece that has a colour.
const END: char = '\u{4}';

impl Shade {
    const ALL: [Shade; 3] = [Shade::Local, Shade::Remote, Shade::Far];

    /// The mark before a piece: a control character that text which is clean never has.
    fn mark(self) -> char {
        match self {
            Shade::Local => '\u{1}',
            Shade::Remote => '\u{2}',
            Shade::Far => '\u{3}',
        }
    }

    /// The sequence that a terminal wants for it (ECMA-48, SGR).
    fn sequence(self) -> &'static str {
        match self {
            Shade::Local => "\x1b[94m",
            Shade::Remote => "\x1b[1;33m",
            Shade::Far => "\x1b[1;7;33m",
        }
    }

    /// `text`, marked. Blanks around it have no colour.
    pub fn paint(self, text: &str) -> String {
        let word = text.trim();
        let before = text.len() - text.trim_start().len();
        let (before, rest) = text.split_at(before);
        format!("{before}{}{word}{END}{}", self.mark(), &rest[word.len()..])
    }
}

/// The terminal sequence of a mark.
pub fn sequence(mark: char) -> Option<&'static str> {
    if mark == END {
        return Some("\x1b[0m");
    }
    Shade::ALL.into_iter().find(|shade| shade.mark() == mark).map(Shade::sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_stay_where_they_are_and_marks_are_no_text() {
        let painted = Shade::Remote.paint("  12~ ");
        assert_eq!(painted, "  \u{2}12~\u{4} ");
        assert!(!crate::text::is_clean(&painted));
        let shown: String =
            painted.chars().map(|c| sequence(c).map_or(c.to_string(), str::to_owned)).collect();
        assert_eq!(shown, "  \x1b[1;33m12~\x1b[0m ");
        assert_eq!(sequence('\x1b'), None);
        assert_eq!(Shade::Far.paint(" "), " \u{3}\u{4}");
    }
}
