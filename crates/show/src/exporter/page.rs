//! The page: families of series in the two forms that Prometheus reads. Pure.
//!
//! Sources: "Exposition formats" of the Prometheus documentation (text 0.0.4), and OpenMetrics 1.0.0. In the
//! latter, counters have `_total` in the name of the sample only, and the page ends with `# EOF`.

use std::fmt::Write;

use super::labels::Labels;

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub kind: Kind,
    pub help: &'static str,
    pub series: Vec<(Labels, f64)>,
}

impl Family {
    /// A family of sums.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: Kind::Counter, help, series: Vec::new() }
    }

    /// A family of values as of now.
    pub(super) fn gauge(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: Kind::Gauge, help, series: Vec::new() }
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
    let own = Family::gauge(DROPPED, "Series that --max-series left out.").of(dropped as f64);
    for family in families.iter().chain([&own]).filter(|family| !family.series.is_empty()) {
        let (name, total) = (family.name, if family.kind == Kind::Counter { "_total" } else { "" });
        let head = if form == Form::Text { total } else { "" };
        let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
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
        let own = "# HELP numatop_series_dropped Series that --max-series left out.\n# TYPE numatop_series_dropped gauge\nnumatop_series_dropped 3\n";
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
}
