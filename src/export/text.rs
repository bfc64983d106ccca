//! A plain table per interval, for pipes and for people without a terminal.

use std::io::{self, Write};

use super::{Export, Rows, rfc3339};
use crate::collect::placement::Process;
use crate::metric::{Unit, format};
use crate::snapshot::Snapshot;
use crate::text::plural;

/// Writes a heading, the nodes in a line each, and a table of tasks.
pub struct Text<S> {
    selection: S,
    written: bool,
    shown: Vec<Process>,
}

impl<S: Rows> Text<S> {
    pub fn new(selection: S) -> Text<S> {
        Text { selection, written: false, shown: Vec::new() }
    }
}

impl<S: Rows> Export for Text<S> {
    fn wants_containers(&self) -> bool {
        S::CONTAINERS
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        if self.written {
            writeln!(out)?;
        }
        self.written = true;
        writeln!(out, "{}", heading(snapshot))?;
        for node in &snapshot.nodes {
            writeln!(
                out,
                "node {}: {} CPUs {}% busy, {} of {} free",
                node.raw.id,
                node.cpus,
                snapshot.share(node.busy_ns).map_or_else(
                    |_| format::ABSENT.into(),
                    |pct| format::percent(pct / f64::from(node.cpus.max(1)))
                ),
                format::bytes(node.raw.mem_free_bytes as f64),
                format::bytes(node.raw.mem_total_bytes as f64),
            )?;
        }
        for (cause, count) in snapshot.lost.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "lost: {cause} {count}")?;
        }
        for note in &snapshot.notes {
            writeln!(out, "note: {note}")?;
        }
        writeln!(out)?;
        let columns = self.selection.columns();
        let title: Vec<String> =
            columns.iter().map(|metric| pad(metric.title, metric.width, metric.unit == Unit::Text)).collect();
        writeln!(out, "{}", title.join(" ").trim_end())?;
        let rows = self.selection.rows(snapshot);
        self.shown = self.selection.shown(&rows);
        for task in rows {
            let cells: Vec<String> = columns
                .iter()
                .map(|metric| {
                    let text = metric.read(task, snapshot).map_or_else(
                        |_| format::absent(metric.id).to_string(),
                        |value| format::short(&value, metric.unit),
                    );
                    pad(&text, metric.width, metric.unit == Unit::Text)
                })
                .collect();
            let mark = match S::ended(task) {
                (_, true) => "  (left the scope)",
                (true, false) => "  (exited)",
                _ => "",
            };
            writeln!(out, "{}{mark}", cells.join(" ").trim_end())?;
        }
        out.flush()
    }

    fn shown(&self) -> &[Process] {
        &self.shown
    }
}

fn heading(snapshot: &Snapshot) -> String {
    let interval =
        snapshot.interval_ns.map_or_else(|| "since start".into(), |ns| format!("{:.1} s", ns as f64 / 1e9));
    let scope = match snapshot.host.scope.as_str() {
        "" => String::new(),
        scope => format!(" · only {}", crate::text::clean_str(scope)),
    };
    let own = snapshot.share(snapshot.own.cpu_ns).map_or_else(|_| format::ABSENT.into(), format::percent);
    format!(
        "{} {} {} · {}, {}{scope} · interval {interval} · numatop-ng itself {own}% CPU, {}",
        rfc3339(snapshot.wall_ns),
        crate::text::clean_str(&snapshot.host.hostname),
        snapshot.host.kernel,
        plural(snapshot.online_cpus as usize, "CPU"),
        plural(snapshot.nodes.len(), "node"),
        format::bytes(snapshot.own.raw.rss_bytes as f64),
    )
}

fn pad(text: &str, width: u16, left: bool) -> String {
    let width = usize::from(width);
    if left { format!("{text:<width$}") } else { format!("{text:>width$}") }
}
