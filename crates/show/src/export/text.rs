//! A plain table per interval, for pipes and for people without a terminal.

use std::io::{self, Write};

use super::{Export, Format, Rows};
use crate::finding::{Change, Engine};
use crate::metric::events::{self, EventAges, Held};
use crate::metric::needs::Demand;
use crate::metric::{Metric, Unit, format};
use crate::model::process::{Asked, ProcessId};
use crate::model::topology::format_cpulist;
use crate::program::output::Form;
use crate::snapshot::{Node, SetKind, Snapshot};
use crate::text::quantity::{bytes, percent};
use crate::text::{one_line, plural, rfc3339};

/// `--format text`.
pub static FORMAT: Format = Format {
    name: "text",
    parts: &[],
    machine_readable: false,
    form: Form::Text,
    tasks: |selection| Box::new(Text::new(selection)),
    containers: Some(|selection| Box::new(Text::new(selection))),
    places: Some(|selection| Box::new(Text::new(selection))),
};

/// A column is at most this wide for long names; longer ones shift the columns to their right.
const WIDEST: usize = 64;

/// The CPUs of a node and their busy share; for a node with memory only, that it has none.
fn busy(snapshot: &Snapshot, node: &Node) -> String {
    if node.cpus == 0 {
        return "no CPUs".into();
    }
    let share = snapshot.share(node.on_cpus.busy_ns);
    let pct = share.map_or_else(|_| format::ABSENT.into(), |pct| percent(pct / f64::from(node.cpus)));
    format!("{} {pct}% busy", plural(node.cpus as usize, "CPU"))
}

/// Writes a heading, the nodes in a line each, and a table of tasks.
pub struct Text<S> {
    selection: S,
    written: bool,
    shown: Option<Vec<ProcessId>>,
    engine: Engine,
    changes: Vec<Change>,
    ages: EventAges,
    held: Held<u64>,
}

impl<S: Rows> Text<S> {
    pub fn new(selection: S) -> Text<S> {
        Text {
            selection,
            written: false,
            shown: None,
            engine: Engine::default(),
            changes: Vec::new(),
            ages: EventAges::default(),
            held: Held::default(),
        }
    }
}

impl<S: Rows> Export for Text<S> {
    fn wants_containers(&self) -> bool {
        S::CONTAINERS
    }

    fn engine(&mut self) -> Option<&mut Engine> {
        Some(&mut self.engine)
    }

    fn diagnose(&mut self, processes: &Snapshot) {
        self.changes = self.engine.take(processes);
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        self.selection.settle(&snapshot.host);
        if self.written {
            writeln!(out)?;
        }
        self.written = true;
        writeln!(out, "{}", heading(snapshot))?;
        // Machines with HBM or GPUs reserve dozens of nodes that have nothing.
        let is_empty = |node: &&Node| node.cpus == 0 && node.raw.mem_total_bytes == 0;
        let empty = format_cpulist(snapshot.nodes.iter().filter(is_empty).map(|node| node.raw.id));
        if !empty.is_empty() {
            writeln!(out, "nodes with neither CPUs nor memory: {empty}")?;
        }
        for node in snapshot.nodes.iter().filter(|node| !is_empty(node)) {
            writeln!(
                out,
                "node {}: {}, {} of {} free",
                node.raw.id,
                busy(snapshot, node),
                bytes(node.raw.mem_free_bytes as f64),
                bytes(node.raw.mem_total_bytes as f64),
            )?;
        }
        let ages = self.ages.take(snapshot);
        if !ages.is_empty() {
            writeln!(out, "events: {}", one_line(&events::words(&ages)))?;
        }
        for (cause, count) in snapshot.lost.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "lost: {} {count}", one_line(cause))?;
        }
        for note in &snapshot.notes {
            writeln!(out, "note: {}", one_line(note))?;
        }
        writeln!(out)?;
        let columns = self.selection.columns();
        let rows = self.selection.rows(snapshot);
        let texts: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                let held = &mut self.held;
                let mut read = |metric: &Metric<S::Row>| {
                    held.keep(S::key(row), metric, row, snapshot);
                    held.read(S::key(row), metric, row, snapshot)
                };
                let text = |metric: &&Metric<S::Row>| match read(metric) {
                    Ok((value, age)) => one_line(&(format::short(&value, metric.unit) + &events::mark(age))),
                    Err(_) => metric.traits.absent.to_string(),
                };
                columns.iter().map(text).collect()
            })
            .collect();
        self.held.forget(snapshot);
        // Nothing is cut off, so that a program can parse it; a long value widens its column.
        let widest =
            |at: usize| texts.iter().map(|row| row[at].chars().count().min(WIDEST)).max().unwrap_or(0);
        let columns: Vec<(&Metric<S::Row>, usize)> = columns
            .iter()
            .enumerate()
            .map(|(at, metric)| (*metric, usize::from(metric.width).max(widest(at))))
            .collect();
        writeln!(out, "{}", line(&columns, columns.iter().map(|(metric, _)| metric.title)))?;
        for (row, texts) in rows.iter().zip(&texts) {
            let mark = match S::ended(row) {
                (_, true) => "  (left the scope)",
                (true, false) => "  (exited)",
                _ => "",
            };
            writeln!(out, "{}{mark}", line(&columns, texts.iter().map(String::as_str)))?;
        }
        if let Some(why) = self.selection.why_empty(&snapshot.host).filter(|_| rows.is_empty()) {
            writeln!(out, "no rows: {why}")?;
        }
        self.shown = self.selection.shown(&rows);
        for change in self.changes.drain(..) {
            let (mark, finding) = match &change {
                Change::Began(finding) => ('+', finding),
                Change::Ended(finding) => ('-', finding),
            };
            let words = one_line(&finding.advice.sentence);
            writeln!(out, "{mark} {} {}: {words}", finding.key.id, one_line(&finding.identity.label))?;
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

/// Nodes, and the sockets and L3 domains that are not the nodes.
fn places(snapshot: &Snapshot) -> String {
    let of = |kind| snapshot.sets(kind).count();
    let kinds = [(of(SetKind::Socket), "socket"), (of(SetKind::Llc), "L3 domain")];
    let more = kinds.into_iter().filter(|(count, _)| *count > 0).map(|(count, noun)| plural(count, noun));
    let all: Vec<String> = [plural(snapshot.nodes.len(), "node")].into_iter().chain(more).collect();
    all.join(", ")
}

fn heading(snapshot: &Snapshot) -> String {
    let interval =
        snapshot.interval_ns.map_or_else(|| "since start".into(), |ns| format!("{:.1} s", ns as f64 / 1e9));
    let scope = match snapshot.host.scope.as_str() {
        "" => String::new(),
        scope => format!(" · only {}", crate::text::clean_str(scope)),
    };
    let scheduler =
        snapshot.scheduler().map_or_else(String::new, |(name, _)| format!(" · scheduler {}", one_line(name)));
    let own = snapshot.share(snapshot.own.cpu_ns).map_or_else(|_| format::ABSENT.into(), percent);
    format!(
        "{} {} {} · {}, {}{scheduler}{scope} · interval {interval} · numatop-ng itself {own}% CPU, {}",
        rfc3339(snapshot.wall_ns),
        crate::text::clean_str(&snapshot.host.hostname),
        one_line(&snapshot.host.kernel),
        plural(snapshot.online_cpus as usize, "CPU"),
        places(snapshot),
        bytes(snapshot.own.raw.rss_bytes as f64),
    )
}

/// One cell after the other, each as wide as its column: words to the left, numbers to the right.
fn line<'a, R>(columns: &[(&Metric<R>, usize)], cells: impl Iterator<Item = &'a str>) -> String {
    let cell = |((metric, width), text): (&(&Metric<R>, usize), &str)| match metric.unit {
        Unit::Text => format!("{text:<width$}"),
        _ => format!("{text:>width$}"),
    };
    let line: Vec<String> = columns.iter().zip(cells).map(cell).collect();
    line.join(" ").trim_end().to_string()
}
