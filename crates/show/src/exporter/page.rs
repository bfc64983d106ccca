//! The page: families of series in the two forms that Prometheus reads. Pure.
//!
//! Sources: "Exposition formats" of the Prometheus documentation (text 0.0.4), and OpenMetrics 1.0.0. In the
//! latter, counters have `_total` in the name of the sample only, and the page ends with `# EOF`.

use std::fmt::Write;

use crate::text::one_line;

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Counter,
    Gauge,
}

/// The form of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    OpenMetrics,
}

impl Form {
    /// The value of Content-Type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All series of one name.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Without `_total`.
    pub name: &'static str,
    pub kind: FamilyKind,
    pub help: &'static str,
    pub series: Vec<(Labels, f64)>,
}

impl Family {
    /// A family of sums.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: FamilyKind::Counter, help, series: Vec::new() }
    }

    /// A family of values as of now.
    pub(super) fn gauge(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: FamilyKind::Gauge, help, series: Vec::new() }
    }

    /// The same with these series.
    #[must_use]
    pub(super) fn with(mut self, series: impl IntoIterator<Item = (Labels, f64)>) -> Family {
        self.series.extend(series);
        self
    }

    /// The same with one series without labels.
    #[must_use]
    pub(super) fn of(self, value: f64) -> Family {
        self.with([(Labels::default(), value)])
    }
}

/// The page shows the number of series that were left out.
const DROPPED: &str = "numatop_series_dropped";

/// The page of these families; those without series are left out.
pub(super) fn render(families: &[Family], dropped: usize, form: Form) -> String {
    let mut page = String::with_capacity(64 << 10);
    let own = Family::gauge(DROPPED, "Number of series that --max-series excluded.").of(dropped as f64);
    for family in families.iter().chain([&own]).filter(|family| !family.series.is_empty()) {
        let (name, total) = (family.name, if family.kind == FamilyKind::Counter { "_total" } else { "" });
        let head = if form == Form::Text { total } else { "" };
        let kind = if family.kind == FamilyKind::Counter { "counter" } else { "gauge" };
        // Writing to a string does not fail.
        let _ = writeln!(page, "# HELP {name}{head} {}\n# TYPE {name}{head} {kind}", family.help);
        for (labels, value) in &family.series {
            let _ = writeln!(page, "{name}{total}{} {value}", labels.text());
        }
    }
    if form == Form::OpenMetrics {
        page.push_str("# EOF\n");
    }
    page
}

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
    fn both_forms_of_a_counter() {
        let node = Labels::of([("node", "1")]);
        let families = [
            Family::counter("numatop_node_cpu_seconds", "Time.").with([(node, 1.5)]),
            Family::gauge("numatop_empty", "Nothing."),
        ];
        let own = "# HELP numatop_series_dropped Number of series that --max-series excluded.\n# TYPE numatop_series_dropped gauge\nnumatop_series_dropped 3\n";
        assert_eq!(
            render(&families, 3, Form::Text),
            format!(
                "# HELP numatop_node_cpu_seconds_total Time.\n# TYPE numatop_node_cpu_seconds_total counter\nnumatop_node_cpu_seconds_total{{node=\"1\"}} 1.5\n{own}"
            )
        );
        assert_eq!(
            render(&families, 3, Form::OpenMetrics),
            format!(
                "# HELP numatop_node_cpu_seconds Time.\n# TYPE numatop_node_cpu_seconds counter\nnumatop_node_cpu_seconds_total{{node=\"1\"}} 1.5\n{own}# EOF\n"
            )
        );
    }

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
