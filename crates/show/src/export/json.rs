//! JSON Lines: one object per interval. docs/json.md has the rule by which a reader of the short form makes the full one.

mod columns;
mod facts;
mod kept;
mod machine;
mod table;
mod text;

use std::io::{self, Write};
use std::sync::Arc;

use facts::Facts;
use table::Table;
use text::Style;

use self::facts::Reasons;
use super::{Export, Format, Part, Rows, Selection};
use crate::finding::{self, Engine};
use crate::metric::events::EventAges;
use crate::metric::matrix::sampled_pct;
use crate::model::process::{Asked, ProcessId};
use crate::model::sample::HostFacts;
use crate::program::output::Form;
use crate::snapshot::{Container, CpuSet, Node, SetKind, Snapshot, Task};
use crate::text::rfc3339;

/// `--format json`.
pub static FORMAT: Format = Format { tasks: |selection| Box::new(JsonLines::new(selection)), ..FULL };

/// The same with `--json-full`.
pub static FULL: Format = Format {
    name: "json",
    parts: &[Part::HotSpots, Part::Overhead],
    machine_readable: true,
    form: Form::Json,
    tasks: |selection| Box::new(JsonLines::full(selection)),
    containers: None,
    places: None,
};

/// Version of the shape of full objects. Keys may be added to a schema, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Version of the shape of objects that depend on those before.
pub const SHORT_SCHEMA: u32 = 2;

/// Bytes of an interval that are put together before they are written: ten thousand rows are never in memory at once.
const BUFFER: usize = 32 << 10;

/// Writes one object per interval, each on a separate line.
pub struct JsonLines {
    style: Style,
    selection: Selection,
    shown: Option<Vec<ProcessId>>,
    engine: Engine,
    ages: EventAges,
    /// Facts that the tables are settled for.
    settled: Option<Arc<HostFacts>>,
    rows: RowTables,
    facts: FactTables,
    buffer: Vec<u8>,
}

/// Tables with many rows.
struct RowTables {
    tasks: Table<Task>,
    nodes: Table<Node>,
    sets: [(SetKind, Table<CpuSet>); 2],
    containers: Table<Container>,
}

/// Objects that occur once or a few times per line.
struct FactTables {
    host: Facts,
    matrix: Facts,
    lost: Facts,
    missing: Facts,
    findings: Facts,
    blind: Facts,
    devices: Facts,
}

impl JsonLines {
    /// Each line has what it adds to those before.
    pub fn new(selection: Selection) -> JsonLines {
        JsonLines::styled(selection, Style::Short)
    }

    /// Each line has everything.
    pub fn full(selection: Selection) -> JsonLines {
        JsonLines::styled(selection, Style::Full)
    }

    fn styled(selection: Selection, style: Style) -> JsonLines {
        let sets = |name, kind| (kind, Table::new(name, columns::of_sets(kind), style));
        JsonLines {
            rows: RowTables {
                tasks: Table::new(
                    "tasks",
                    columns::of_tasks(&selection.columns, style == Style::Short),
                    style,
                ),
                nodes: Table::new("nodes", columns::of_nodes(), style),
                sets: [sets("sockets", SetKind::Socket), sets("llcs", SetKind::Llc)],
                containers: Table::new("containers", columns::of_containers(), style),
            },
            facts: FactTables {
                host: Facts::one(),
                matrix: Facts::one(),
                lost: Facts::one(),
                missing: Facts::one(),
                findings: Facts::named("key"),
                blind: Facts::named("id"),
                devices: Facts::named("name"),
            },
            style,
            selection,
            shown: None,
            engine: Engine::default(),
            ages: EventAges::default(),
            settled: None,
            buffer: Vec::new(),
        }
    }
}

impl Export for JsonLines {
    fn wants_hot(&self) -> bool {
        FORMAT.carries(Part::HotSpots)
    }

    fn wants_containers(&self) -> bool {
        FORMAT.has_both()
    }

    fn engine(&mut self) -> Option<&mut Engine> {
        Some(&mut self.engine)
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        let style = self.style;
        let is_short = style == Style::Short;
        let mut reasons = Reasons::of_host(snapshot);
        let mut text = std::mem::take(&mut self.buffer);
        text.clear();
        let rows = self.selection.rows(snapshot);
        self.shown = self.selection.shown(&rows);
        let schema = if is_short { SHORT_SCHEMA } else { SCHEMA };
        write!(text, "{{\"schema\":{schema},\"time\":\"{}\"", rfc3339(snapshot.wall_ns))?;
        write!(text, ",\"interval_ns\":{}", snapshot.interval_ns.unwrap_or(0))?;
        let ages = self.ages.take(snapshot);
        let host = machine::host(snapshot, &ages, &mut reasons);
        if !self.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &snapshot.host)) {
            let is_same =
                self.settled.as_ref().is_some_and(|settled| settled.missing == snapshot.host.missing);
            self.settled = Some(Arc::clone(&snapshot.host));
            if !is_same {
                self.rows.settle(snapshot, &rows);
                if is_short {
                    self.facts.settle(snapshot, &host);
                    text.extend(b",\"tables\":{");
                    self.rows.head(&mut text);
                    self.facts.head(&mut text);
                    text.push(b'}');
                }
            }
        }
        text.extend(b",\"host\":");
        if is_short {
            self.facts.host.object(&mut text, &host);
        } else {
            text::plain(&mut text, &host);
        }
        self.rows.write(&mut text, out, (&rows, snapshot), &mut reasons)?;
        let devices = machine::devices(snapshot);
        if !devices.is_empty() {
            text.extend(b",\"devices\":");
            if is_short {
                self.facts.devices.list(&mut text, devices);
            } else {
                text::plain(&mut text, &devices);
            }
        }
        let matrix = machine::matrix(snapshot, &mut reasons);
        text.extend(b",\"matrix\":");
        if is_short {
            self.facts.matrix.object(&mut text, &matrix);
        } else {
            text::plain(&mut text, &matrix);
        }
        if let Some(pct) = sampled_pct(snapshot) {
            text.extend(b",\"accesses_sampled_pct\":");
            text::plain(&mut text, &pct);
        }
        if let Some(profile) = &snapshot.hot {
            text.extend(b",\"hot\":");
            let hot = super::hot::object(profile, &self.selection.filter, &snapshot.tasks);
            text::json(&mut text, &hot, style);
        }
        if is_short {
            self.facts.write(&mut text, &self.engine, snapshot, reasons);
        } else {
            write!(text, ",\"findings\":{}", finding::json::findings(&self.engine))?;
            write!(text, ",\"findings_blind\":{}", finding::json::blinds(&self.engine))?;
            text.extend(b",\"self\":");
            text::plain(&mut text, &machine::own(snapshot));
            text.extend(b",\"lost\":");
            text::plain(&mut text, &machine::lost(snapshot));
            text.extend(b",\"notes\":");
            text::plain(&mut text, &snapshot.notes);
            text.extend(b",\"missing\":");
            text::plain(&mut text, &reasons.all());
        }
        text.extend(b"}\n");
        out.write_all(&text)?;
        self.buffer = text;
        out.flush()
    }

    fn asked(&self) -> Asked {
        self.selection.asked()
    }

    fn shown(&self) -> Option<&[ProcessId]> {
        self.shown.as_deref()
    }
}

impl RowTables {
    fn settle(&mut self, snapshot: &Snapshot, tasks: &[&Task]) {
        self.tasks.settle(snapshot, tasks.iter().copied());
        self.nodes.settle(snapshot, snapshot.nodes.iter());
        for (kind, table) in &mut self.sets {
            table.settle(snapshot, snapshot.sets(*kind));
        }
        self.containers.settle(snapshot, snapshot.containers.iter());
    }

    fn head(&self, text: &mut Vec<u8>) {
        text.extend(b"\"tasks\":");
        self.tasks.head(text);
        text.extend(b",\"nodes\":");
        self.nodes.head(text);
        for (_, table) in &self.sets {
            text.extend(format!(",\"{}\":", table.name).bytes());
            table.head(text);
        }
        text.extend(b",\"containers\":");
        self.containers.head(text);
    }

    /// Reasons are noted in the order of the tables.
    fn write(
        &mut self,
        text: &mut Vec<u8>,
        out: &mut dyn Write,
        (tasks, snapshot): (&[&Task], &Snapshot),
        reasons: &mut Reasons<'_>,
    ) -> io::Result<()> {
        let key = |task: &Task| u64::from(task.raw.pid) << 32 | u64::from(task.tid.unwrap_or(u32::MAX));
        let rows = tasks.iter().map(|task| (*task, key(task)));
        list(&mut self.tasks, rows, (text, out), snapshot, reasons)?;
        let rows = snapshot.nodes.iter().map(|node| (node, node.raw.id.into()));
        list(&mut self.nodes, rows, (text, out), snapshot, reasons)?;
        for (kind, table) in &mut self.sets {
            if snapshot.sets(*kind).next().is_some() {
                let rows = snapshot.sets(*kind).map(|set| (set, set.id.into()));
                list(table, rows, (text, out), snapshot, reasons)?;
            }
        }
        let rows = snapshot.containers.iter().map(|row| (row, row.id));
        list(&mut self.containers, rows, (text, out), snapshot, reasons)
    }
}

/// Writes all rows of a table. Full buffers go out.
fn list<'a, R: 'static>(
    table: &mut Table<R>,
    rows: impl Iterator<Item = (&'a R, u64)>,
    (text, out): (&mut Vec<u8>, &mut dyn Write),
    snapshot: &Snapshot,
    reasons: &mut Reasons<'_>,
) -> io::Result<()> {
    table.begin();
    write!(text, ",\"{}\":[", table.name)?;
    for (i, row) in rows.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        table.row(text, row, snapshot, reasons);
        if text.len() >= BUFFER {
            out.write_all(text)?;
            text.clear();
        }
    }
    text.push(b']');
    Ok(())
}

impl FactTables {
    fn settle(&mut self, snapshot: &Snapshot, host: &serde_json::Map<String, serde_json::Value>) {
        let of_interval = machine::of_interval(snapshot);
        self.host.settle(host, |key| of_interval.contains(key));
        let pairs = machine::pairs_of_interval(snapshot);
        self.matrix
            .settle(&machine::matrix(snapshot, &mut Reasons::of_host(snapshot)), |key| pairs.contains(key));
        let FactTables { lost, missing, findings, blind, devices, .. } = self;
        for facts in [lost, missing, findings, blind, devices] {
            facts.forget();
        }
    }

    fn head(&self, text: &mut Vec<u8>) {
        let FactTables { host, matrix, lost, missing, findings, blind, devices } = self;
        for (name, facts) in [
            ("host", host),
            ("matrix", matrix),
            ("lost", lost),
            ("missing", missing),
            ("findings", findings),
            ("findings_blind", blind),
            ("devices", devices),
        ] {
            text.extend(format!(",\"{name}\":").bytes());
            facts.head(text);
        }
    }

    /// The parts behind the rows.
    fn write(&mut self, text: &mut Vec<u8>, engine: &Engine, snapshot: &Snapshot, reasons: Reasons<'_>) {
        text.extend(b",\"findings\":");
        self.findings.list(text, engine.findings().iter().map(finding::json::finding));
        text.extend(b",\"findings_blind\":");
        self.blind.list(text, engine.blind().iter().map(finding::json::blind));
        text.extend(b",\"self\":");
        text::json(text, &machine::own(snapshot), Style::Short);
        text.extend(b",\"lost\":");
        self.lost.object(text, &machine::lost(snapshot));
        if !snapshot.notes.is_empty() {
            text.extend(b",\"notes\":");
            text::plain(text, &snapshot.notes);
        }
        text.extend(b",\"missing\":");
        self.missing.object(text, &reasons.of_rows());
    }
}
