//! CSV (RFC 4180): one line per row and interval, with the time in front.

use std::io::{self, Write};

use super::{Export, Format, Rows};
use crate::metric::Value;
use crate::metric::needs::Demand;
use crate::model::process::Asked;
use crate::model::process::ProcessId;
use crate::program::output::Form;
use crate::snapshot::Snapshot;
use crate::text::one_line;
use crate::text::rfc3339;

/// `--format csv`.
pub static FORMAT: Format = Format {
    name: "csv",
    parts: &[],
    machine_readable: true,
    form: Form::Csv,
    tasks: |selection| Box::new(Csv::new(selection)),
    containers: Some(|selection| Box::new(Csv::new(selection))),
    places: Some(|selection| Box::new(Csv::new(selection))),
};

/// Writes a header line once, then rows. A value that could not be measured is an empty field.
pub struct Csv<S> {
    selection: S,
    header_written: bool,
    shown: Option<Vec<ProcessId>>,
}

impl<S: Rows> Csv<S> {
    pub fn new(selection: S) -> Csv<S> {
        Csv { selection, header_written: false, shown: None }
    }
}

impl<S: Rows> Export for Csv<S> {
    fn wants_containers(&self) -> bool {
        S::CONTAINERS
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        if !self.header_written {
            self.selection.settle(&snapshot.host);
            // The name of an event may have commas.
            let ids: Vec<String> =
                self.selection.columns().iter().map(|metric| quoted(&one_line(metric.id))).collect();
            write!(out, "time,interval_ns,{},exited\r\n", ids.join(","))?;
            self.header_written = true;
        }
        let time = rfc3339(snapshot.wall_ns);
        let rows = self.selection.rows(snapshot);
        self.shown = self.selection.shown(&rows);
        for task in rows {
            write!(out, "{time},{}", snapshot.interval_ns.unwrap_or(0))?;
            for metric in self.selection.columns() {
                let text = metric.read(task, snapshot).map_or_else(|_| String::new(), |value| field(&value));
                write!(out, ",{text}")?;
            }
            write!(out, ",{}\r\n", S::ended(task).0)?;
        }
        out.flush()
    }

    fn demand(&self) -> Demand {
        self.selection.demand()
    }

    fn asked(&self) -> Asked {
        self.selection.asked()
    }

    fn shown(&self) -> Option<&[ProcessId]> {
        self.shown.as_deref()
    }
}

/// One field. Text that a spreadsheet would run as a formula gets an apostrophe in front.
fn field(value: &Value) -> String {
    match value {
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F64(v) | Value::Share { pct: v, .. } => format!("{v:.6}"),
        Value::ByNode(shares) => {
            shares.iter().map(|(node, share)| format!("{node}:{share:.3}")).collect::<Vec<_>>().join(" ")
        }
        Value::Text(text) => quoted(&one_line(text)),
    }
}

fn quoted(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    if guard.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return text.to_string();
    }
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_formulas_disarmed() {
        assert_eq!(field(&Value::Text("java".into())), "java");
        assert_eq!(field(&Value::Text("a,\"b\"".into())), "\"a,\"\"b\"\"\"");
        assert_eq!(field(&Value::Text("=cmd()".into())), "\"'=cmd()\"");
    }
}
