//! Labels of a series: which names stand in them, and how.

use crate::text::one_line;

/// Bytes of a value at most: names come from strangers.
const VALUE_MAX: usize = 128;

/// Labels as the page has them, `{a="b",c="d"}`; empty values are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(String);

impl Labels {
    /// Labels of these names and values, in this order.
    pub(super) fn of<'a>(pairs: impl IntoIterator<Item = (&'static str, &'a str)>) -> Labels {
        let mut text = String::new();
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(name);
            text.push_str("=\"");
            push_escaped(&mut text, short(&one_line(value)));
            text.push('"');
        }
        if !text.is_empty() {
            text.push('}');
        }
        Labels(text)
    }

    /// These, and one more behind them.
    #[must_use]
    pub(super) fn and(&self, name: &'static str, value: &str) -> Labels {
        let last = Labels::of([(name, value)]).0;
        match (self.0.strip_suffix('}'), last.strip_prefix('{')) {
            (Some(front), Some(last)) => Labels(format!("{front},{last}")),
            (None, _) => Labels(last),
            (_, None) => self.clone(),
        }
    }

    /// As the page has them.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// The front of a value, cut between two characters.
fn short(value: &str) -> &str {
    let mut end = value.len().min(VALUE_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

/// Adds clean text, in which a backslash of the name is doubled and other characters may be escaped.
/// Backslash, quote and line feed have escapes in both forms of the page (Prometheus exposition formats;
/// OpenMetrics 1.0). So a reader gets each backslash of the name once.
fn push_escaped(text: &mut String, value: &str) {
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                letters.next_if_eq(&'\\');
                text.push_str("\\\\");
            }
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_cut_and_left_out_when_empty() {
        let labels = Labels::of([("a", "x\"y\\z"), ("b", ""), ("c", "ü")]);
        assert_eq!(labels.text(), "{a=\"x\\\"y\\\\z\",c=\"ü\"}");
        assert_eq!(Labels::of([]).text(), "");
        let long = "ä".repeat(200);
        assert_eq!(Labels::of([("a", long.as_str())]).text().len(), "{a=\"\"}".len() + VALUE_MAX);
    }

    #[test]
    fn a_backslash_of_a_name_is_one_in_the_value() {
        // A unit of systemd: other exporters have the same value.
        let name = crate::text::clean_str("dev-disk-by\\x2duuid.mount");
        assert_eq!(
            Labels::of([("container", name.as_str())]).text(),
            "{container=\"dev-disk-by\\\\x2duuid.mount\"}"
        );
    }

    #[test]
    fn a_line_feed_ends_no_line() {
        assert!(!Labels::of([("a", "x\ny\r\u{1b}[2J")]).text().contains(['\n', '\r', '\u{1b}']));
    }
}
