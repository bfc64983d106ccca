//! A line that is being typed at the bottom of the screen.

/// Characters taken at most.
const MAX: usize = 64;

/// The purpose of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Search,
    Filter,
    Interval,
    /// Where to go in a recording: by this time, or ahead by this long.
    Forward,
    /// The same, but back.
    Backward,
    /// The name of a new file for a report.
    Report,
    /// Whether to keep the choices as defaults. No text is typed.
    Keep,
}

pub struct Prompt {
    pub purpose: Purpose,
    pub text: String,
    /// The text that Esc brings back.
    pub before: String,
}

impl Prompt {
    /// Starts with `text`, which Esc brings back.
    pub fn new(purpose: Purpose, text: &str) -> Prompt {
        Prompt { purpose, text: text.to_string(), before: text.to_string() }
    }

    /// The question.
    pub fn question(&self) -> &'static str {
        match self.purpose {
            Purpose::Search => "Search: ",
            Purpose::Filter => "Show only: ",
            Purpose::Interval => "Interval in seconds (0.1 to 60): ",
            Purpose::Forward => "Go to a time, or ahead by (03:12, 90s, 5m): ",
            Purpose::Backward => "Go to a time, or back by (03:12, 90s, 5m): ",
            Purpose::Report => "Save an HTML report of the last 10 min as: ",
            Purpose::Keep => "Save columns, order, rows, interval and screen as defaults?",
        }
    }

    /// The keys that answer it.
    pub fn answers(&self) -> &'static str {
        match self.purpose {
            Purpose::Report => "Enter saves, Esc cancels",
            Purpose::Keep => "Enter or y saves, Esc or n cancels",
            _ => "Enter confirms, Esc cancels",
        }
    }

    /// Takes a character that can be shown.
    pub fn push(&mut self, c: char) {
        let mut bytes = [0; 4];
        let text: &str = c.encode_utf8(&mut bytes);
        // A backslash is harmless here: nothing of this line is an escape.
        let harmless = c == '\\' || crate::text::clean_str(text) == text;
        if harmless && self.purpose != Purpose::Keep && self.text.chars().count() < MAX {
            self.text.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_can_be_typed() {
        let mut prompt = Prompt::new(Purpose::Search, "");
        for c in ['a', '\u{1b}', '\u{202e}', '\\', '界', '\u{200d}'] {
            prompt.push(c);
        }
        assert_eq!(prompt.text, "a\\界");
    }
}
