//! One process or thread: who it is, what it may use, where it ran, what it did lately, and its threads.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Detail, List, lines, mappings, notes};
use crate::finding::Finding;
use crate::metric::access::{DRAM_REMOTE_PCT, MEM_TIME_PCT};
use crate::metric::format::short;
use crate::metric::identity::{CGROUP, CMDLINE, COMM, policy, state, user};
use crate::metric::interrupts::{
    IRQ_PCT, RUNQ_WAIT_BOUND_PCT, RUNQ_WAIT_IDLE_ELSEWHERE_PCT, RUNQ_WAIT_THROTTLED_PCT,
};
use crate::metric::placement::{MEM_BYTES_BY_NODE, MEM_PCT_BY_NODE};
use crate::metric::{Metric, Value, allowed, task};
use crate::model::access::lines::{CONTENDED_LINES, OBJECTS};
use crate::model::sample::Reading;
use crate::model::units::NodeId;
use crate::snapshot::{SmtNeighbour, Snapshot, Task};
use crate::text::clean;
use crate::text::quantity::{bytes, duration, percent};
use crate::tui::history::process::{Point, ProcessSnapshot};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::columns;
use crate::tui::widgets::layout::below;
use crate::tui::widgets::pen::{Pen, bar, sparkline};
use crate::tui::widgets::table::{Look, Table};

/// Lines about identity and limits, and lines of history.
const FACTS: u16 = 6;
const HISTORY: u16 = 3;
/// Nodes with a line of their own.
const NODE_LINES: usize = 4;
/// Cells for the memory on a node, as in `mem 1023M 99.9%`.
const MEMORY: u16 = 16;
/// Processes on SMT siblings that are named.
const BESIDE: usize = 3;
/// A reason of a wait is named from this share of a CPU on, percent.
const REASON_MIN: f64 = 0.05;
/// Cells before the content of a line.
const LABEL: u16 = 9;

/// Divides `area` between the facts of the process and its threads.
pub(super) fn split(area: Rect, snapshot: Option<&Snapshot>, findings: usize) -> (Rect, Rect) {
    let nodes = snapshot.map_or(1, |snapshot| snapshot.host.topology.nodes.len());
    let lines = findings as u16 + FACTS + HISTORY + node_lines(nodes) + balancing_lines(nodes);
    // At least titles and two threads stay in view.
    let height = lines.min(area.height.saturating_sub(3));
    let facts = Rect { height, ..area };
    (facts, Rect { y: facts.bottom(), height: area.height - height, ..area })
}

/// Lines for nodes: one each, or the busiest and one for all others.
fn node_lines(nodes: usize) -> u16 {
    nodes.min(NODE_LINES) as u16
}

/// Lines on remote memory, NUMA balancing and moved pages, where there are several nodes.
fn balancing_lines(nodes: usize) -> u16 {
    if nodes > 1 { 3 } else { 0 }
}

pub(super) fn render(
    snapshot: &Snapshot,
    detail: &Detail,
    seen: &ProcessSnapshot,
    findings: &[&Finding],
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let (mut facts_area, threads_area) = split(area, Some(snapshot), findings.len());
    let ellipsis = theme.glyphs.ellipsis;
    let (shown, what) = match detail.thread {
        None => (seen.task.as_ref(), format!("process {}", seen.process.0)),
        Some((tid, _)) => {
            let row = seen.threads.tasks.iter().find(|task| task.tid == Some(tid));
            (row, format!("thread {tid} of process {}", seen.process.0))
        }
    };
    let Some(task) = shown else {
        let text = format!("{what} did not exist in this interval");
        Pen::new(buf, area, 0, ellipsis).gap(1).write(&text, theme.style(Role::Warn));
        return;
    };
    identity(snapshot, task, theme, &mut Pen::new(buf, facts_area, 0, ellipsis));
    for finding in findings {
        facts_area = below(facts_area, 1);
        let mut pen = Pen::new(buf, facts_area, 0, ellipsis);
        pen.repeat(finding.severity.mark(), 1, theme.style(Role::of(finding.severity)));
        pen.write_within("finding  ", LABEL, theme.style(Role::Dim));
        pen.write(&finding.advice.sentence, theme.style(Role::Plain));
    }
    let said = said(detail, task, snapshot).into_iter().chain([delays(seen, task, snapshot)]);
    for (row, (label, text, role)) in (1..FACTS).zip(said) {
        let mut pen = Pen::new(buf, facts_area, row, ellipsis);
        label_of(&mut pen, label, theme);
        pen.write(&text, theme.style(role));
    }
    shares(snapshot, task, theme, facts_area, FACTS, buf);
    let nodes = snapshot.host.topology.nodes.len();
    let lines = [
        ("remote", notes::remote(task, snapshot)),
        ("balance", notes::balancing(task, snapshot)),
        ("moved", notes::moved(task, snapshot)),
    ];
    for (row, (label, text)) in (FACTS + node_lines(nodes)..).zip(lines) {
        let Some(text) = text else { continue };
        let mut pen = Pen::new(buf, facts_area, row, ellipsis);
        label_of(&mut pen, label, theme);
        pen.write(&text, theme.style(Role::Plain));
    }
    let first = FACTS + node_lines(nodes) + balancing_lines(nodes);
    for (row, series) in (first..).zip(SERIES) {
        let mut pen = Pen::new(buf, facts_area, row, ellipsis);
        // The history is that of the process.
        let history = if detail.thread.is_none() { &seen.history[..] } else { &[] };
        line_of_history(series, snapshot, task, history, theme, &mut pen);
    }
    match (&detail.list, &detail.maps) {
        (Some((List::Objects, first)), _) => {
            let refused = snapshot.host_missing(OBJECTS);
            let refused = refused.map(|why| crate::text::clean_str(&why.to_string()));
            lines::render_objects(task, refused.as_deref(), *first, theme, threads_area, buf);
        }
        (Some((List::Lines, first)), _) => {
            let no_lines = snapshot.host_missing(CONTENDED_LINES);
            let no_lines = no_lines.map(|why| crate::text::clean_str(&why.to_string()));
            let why = lines::Why { no_event: events_missing(detail, snapshot), no_lines };
            lines::render(task, &why, *first, theme, threads_area, buf);
        }
        (None, Some(maps)) => {
            let ghz = task::GHZ.read(task, snapshot).ok().and_then(|ghz| ghz.number());
            let about = mappings::About { use_missing: use_missing(detail, snapshot), ghz };
            mappings::render(maps, task, about, theme, threads_area, buf);
        }
        (None, None) => threads(seen, detail, theme, threads_area, buf),
    }
}

/// Why the mappings have no use, though it was asked for.
fn use_missing(detail: &Detail, snapshot: &Snapshot) -> Option<String> {
    let why = snapshot.host_missing(MEM_TIME_PCT.id).filter(|_| detail.samples)?;
    Some(crate::text::clean_str(&why.to_string()))
}

/// The reason why no PMU event shows contended lines.
fn events_missing(detail: &Detail, snapshot: &Snapshot) -> String {
    match snapshot.host_missing(DRAM_REMOTE_PCT.id) {
        Some(why) => crate::text::clean_str(&why.to_string()),
        None if detail.samples => "no sample yet".into(),
        None => "u samples accesses, if the PMU supports this".into(),
    }
}

fn label_of(pen: &mut Pen<'_>, label: &str, theme: &Theme) {
    pen.gap(1).write_within(
        &format!("{label:width$}", width = usize::from(LABEL)),
        LABEL,
        theme.style(Role::Dim),
    );
}

fn identity(snapshot: &Snapshot, task: &Task, theme: &Theme, pen: &mut Pen<'_>) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let raw = &task.raw;
    let thread = task.tid.filter(|_| !task.leads()).map_or(String::new(), |tid| format!("thread {tid} of "));
    pen.gap(1).write(&format!("{thread}{} ", raw.pid), theme.style(Role::Title));
    pen.write(&clean(raw.comm.bytes()), theme.style(Role::Title));
    if task.exited {
        pen.gap(2).write("ENDED", theme.style(Role::Alert));
    }
    for (label, text) in [
        ("user", user(raw.uid, snapshot)),
        ("state", state(task).to_string()),
        ("sched", policy(raw.policy)),
        ("nice", raw.nice.to_string()),
        ("threads", task.threads.to_string()),
        ("rss", if task.exited { "-".into() } else { bytes(task.rss_bytes as f64) }),
        ("parent", raw.ppid.to_string()),
    ] {
        pen.gap(2).write(label, dim).gap(1).write(&text, plain);
    }
}

/// Details from /proc as label, text and role.
fn said(detail: &Detail, task: &Task, snapshot: &Snapshot) -> [(&'static str, String, Role); 4] {
    let cgroup = match CGROUP.read(task, snapshot) {
        Ok(Value::Text(path)) => Some(path),
        _ => None,
    };
    let details = match &detail.details {
        Some(Ok(details)) => details,
        other => {
            let why = match other {
                Some(Err(why)) => why.clone(),
                _ if task.raw.kthread => "a kernel thread".into(),
                _ => "reading /proc".into(),
            };
            let cgroup = cgroup.unwrap_or_else(|| "-".into());
            // The details are of this moment; rows may have recorded values.
            let mut rows = snapshot.tasks.iter().filter(|row| row.raw.process() == task.raw.process());
            let command = match rows.find_map(|row| CMDLINE.read(row, snapshot).ok()) {
                Some(Value::Text(recorded)) => (recorded, Role::Plain),
                _ => (why, Role::Dim),
            };
            return [
                ("command", command.0, command.1),
                ("cgroup", cgroup, Role::Plain),
                ("affinity", may_use_as_sampled(task, snapshot), Role::Plain),
                ("total", resident_as_sampled(task), Role::Plain),
            ];
        }
    };
    let command = match &details.texts.cmdline {
        Err(why) => ("command", why.to_string(), Role::Dim),
        Ok(none) if none.is_empty() => {
            ("command", "empty: a kernel thread, or the task erased its arguments".to_string(), Role::Dim)
        }
        Ok(text) => ("command", text.clone(), Role::Plain),
    };
    let list = |list: &Reading<String>| list.clone().unwrap_or_else(|why| format!("unknown ({why})"));
    let cgroups =
        if details.cgroups.is_empty() { cgroup.unwrap_or_default() } else { details.cgroups.join(" ") };
    let may_use = format!(
        "CPUs {} ({} of {}), memory nodes {}, mempolicy {}",
        list(&details.texts.cpus_allowed),
        task.raw.cpus_allowed,
        snapshot.online_cpus,
        list(&details.texts.mems_allowed),
        allowed::policy_of(task).unwrap_or_else(|_| "gone".into())
    );
    let mut since = Vec::new();
    if let Some([ran, waited]) = details.schedstat {
        let whose = if task.leads() { "main thread: " } else { "" };
        since.push(format!("{whose}ran {}, waited {}", duration(ran), duration(waited)));
    }
    if let Some([anon, file, shared]) = details.rss {
        let [anon, file, shared] = [anon, file, shared].map(|amount| bytes(amount as f64));
        since.push(format!("rss: anon {anon}, file {file}, shm {shared}"));
    }
    [
        command,
        ("cgroup", cgroups, Role::Plain),
        ("affinity", may_use, Role::Plain),
        ("total", since.join("; "), Role::Plain),
    ]
}

/// Its limits as far as samples have them: a recording has nothing of /proc.
fn may_use_as_sampled(task: &Task, snapshot: &Snapshot) -> String {
    let nodes = |metric: &Metric<Task>| match metric.read(task, snapshot) {
        Ok(Value::Text(nodes)) => nodes,
        _ => "unknown".into(),
    };
    format!(
        "{} of {} CPUs on nodes {}, memory nodes {}, mempolicy {}",
        task.raw.cpus_allowed,
        snapshot.online_cpus,
        nodes(&allowed::NODES_ALLOWED),
        nodes(&allowed::MEMS_ALLOWED),
        allowed::policy_of(task).unwrap_or_else(|_| "unknown".into())
    )
}

fn resident_as_sampled(task: &Task) -> String {
    task.resident.map_or("-".into(), |resident| {
        let [anon, file, shared] = [resident.anon_bytes, resident.file_bytes, resident.shmem_bytes]
            .map(|amount| bytes(amount as f64));
        format!("rss: anon {anon}, file {file}, shm {shared}")
    })
}

/// Things in its way: waits, interrupts, and programs on the other threads of its cores.
fn delays(seen: &ProcessSnapshot, task: &Task, snapshot: &Snapshot) -> (&'static str, String, Role) {
    let read =
        |metric: &Metric<Task>| metric.read(task, snapshot).ok().map(|value| short(&value, metric.unit));
    let mut parts = Vec::new();
    if snapshot.host.topology.smt() {
        let busy = read(&task::SMT_BUSY_PCT).map_or(String::new(), |busy| format!(" busy {busy}%"));
        let name = |other: &SmtNeighbour| match other.process == seen.process {
            true => format!("itself ~{}%", percent(other.pct)),
            false => format!("{} {} ~{}%", clean(other.comm.bytes()), other.process.0, percent(other.pct)),
        };
        let named: Vec<String> = seen.beside.iter().take(BESIDE).map(name).collect();
        let who = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
        parts.push(format!("sibling{busy}{who}"));
    }
    if let Some(wait) = read(&task::RUNQ_WAIT_PCT) {
        parts.push(format!("waits {wait}%{}", reasons(task, snapshot)));
    }
    parts.extend(read(&IRQ_PCT).map(|irq| format!("interrupts {irq}%")));
    ("delays", parts.join("; "), Role::Plain)
}

/// The parts of its wait that have a reason, the rest being the usual turns of a busy CPU.
fn reasons(task: &Task, snapshot: &Snapshot) -> String {
    let parts = [
        (&RUNQ_WAIT_THROTTLED_PCT, "throttled by its quota"),
        (&RUNQ_WAIT_BOUND_PCT, "bound to busy CPUs while other CPUs were idle"),
        (&RUNQ_WAIT_IDLE_ELSEWHERE_PCT, "while another node had an idle CPU"),
    ];
    let words = parts.into_iter().filter_map(|(metric, words)| {
        let value = metric.read(task, snapshot).ok()?;
        (value.number()? >= REASON_MIN).then(|| format!("{}% {words}", short(&value, metric.unit)))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// A task's share of a node.
#[derive(Clone, Copy, Default)]
struct OnNode {
    /// Share of its on-CPU time, in per cent.
    ran: f64,
    memory: Option<f64>,
    memory_pct: Option<f64>,
}

impl OnNode {
    /// The order of nodes: memory of a task on a node matters as much as its time there.
    fn weight(&self) -> f64 {
        self.ran.max(self.memory_pct.unwrap_or(0.0))
    }

    fn add(self, other: OnNode) -> OnNode {
        let sum = |a: Option<f64>, b: Option<f64>| a.map_or(b, |a| Some(a + b.unwrap_or(0.0)));
        OnNode {
            ran: self.ran + other.ran,
            memory: sum(self.memory, other.memory),
            memory_pct: sum(self.memory_pct, other.memory_pct),
        }
    }

    /// Its memory there, in a few words.
    fn memory_words(&self) -> String {
        let share = self.memory_pct.map_or(String::new(), |share| format!(" {}%", percent(share)));
        self.memory.map_or(String::new(), |on| format!("mem {}{share}", bytes(on)))
    }
}

/// Where it ran and where its memory is. One bar for each node in their order, or for those with most of
/// either; the last line sums up the others.
fn shares(snapshot: &Snapshot, task: &Task, theme: &Theme, area: Rect, first: u16, buf: &mut Buffer) {
    let ran = task.run_pct_by_node().unwrap_or_default();
    let home = task.home_node();
    let mut lines = on_nodes(snapshot, task, &ran);
    let mut rest = None;
    if lines.len() > NODE_LINES {
        lines.sort_by(|(_, a), (_, b)| b.weight().total_cmp(&a.weight()));
        let others = lines.split_off(NODE_LINES - 1);
        let sum = others.iter().fold(OnNode::default(), |sum, (_, there)| sum.add(*there));
        rest = Some((format!("{} more", others.len()), false, sum));
    }
    let named = lines.into_iter().map(|(node, there)| (format!("node {node}"), home == Some(node), there));
    for (row, (name, is_home, there)) in (first..).zip(named.chain(rest)) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        label_of(&mut pen, &name, theme);
        let width = pen.room().saturating_sub(16 + MEMORY).min(60);
        let role = if is_home { Role::Local } else { Role::Remote };
        bar(&mut pen, width, &[(there.ran / 100.0, role)], theme);
        let text = if ran.is_empty() { "-".into() } else { format!("{}%", percent(there.ran)) };
        pen.write_right(&text, 7, theme.style(Role::Plain));
        pen.write(if is_home { " home" } else { "     " }, theme.style(Role::Local));
        pen.gap(1).write(&there.memory_words(), theme.style(Role::Dim));
    }
}

/// Its share of each node of the machine, in their order.
fn on_nodes(snapshot: &Snapshot, task: &Task, ran: &[(NodeId, f64)]) -> Vec<(NodeId, OnNode)> {
    let read = |metric: &Metric<Task>| match metric.read(task, snapshot) {
        Ok(Value::ByNode(values)) => values.into_iter().collect(),
        _ => BTreeMap::new(),
    };
    let (memory, memory_pct) = (read(&MEM_BYTES_BY_NODE), read(&MEM_PCT_BY_NODE));
    let ran: BTreeMap<NodeId, f64> = ran.iter().copied().collect();
    let there = |id: NodeId| OnNode {
        ran: ran.get(&id).copied().unwrap_or(0.0),
        memory: memory.get(&id).copied(),
        memory_pct: memory_pct.get(&id).copied(),
    };
    snapshot.host.topology.nodes.iter().map(|node| (node.id, there(node.id))).collect()
}

/// A metric with its history.
type Series = (&'static str, &'static Metric<Task>, fn(&Point) -> Option<f64>);

const SERIES: [Series; HISTORY as usize] = [
    ("CPU%", &task::CPU_PCT, |point| point.cpu_pct),
    ("IPC", &task::IPC, |point| point.ipc),
    ("NODMIG/s", &task::NODE_MIGRATIONS_PER_S, |point| point.node_migrations),
];

fn line_of_history(
    (label, metric, value): Series,
    snapshot: &Snapshot,
    task: &Task,
    history: &[Point],
    theme: &Theme,
    pen: &mut Pen<'_>,
) {
    label_of(pen, label, theme);
    if let Some(why) = snapshot.host_missing(metric.missing_as()) {
        let why = crate::text::clean_str(&why.to_string());
        let why = crate::text::without_codes(crate::text::without_attempt(&why));
        pen.write("unavailable: ", theme.style(Role::Dim)).write(&why, theme.style(Role::Dim));
        return;
    }
    let values: Vec<Option<f64>> = history.iter().map(value).collect();
    let width = pen.room().saturating_sub(16).min(60);
    sparkline(pen, width, &values, theme);
    let now = metric
        .read(task, snapshot)
        .map_or("-".into(), |value| crate::metric::format::short(&value, metric.unit));
    let top = values.iter().flatten().copied().fold(0.0, f64::max);
    pen.write_right(&now, 7, theme.style(Role::Plain));
    pen.write(
        &format!(" max {}", crate::metric::format::short(&Value::F64(top), metric.unit)),
        theme.style(Role::Dim),
    );
}

fn threads(seen: &ProcessSnapshot, detail: &Detail, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let threads = &seen.threads;
    let columns = columns::place(&columns::threads_for(area.width, &threads.host), area.width, COMM.id);
    let table = Table {
        columns: &columns,
        sort: None,
        snapshot: threads,
        theme,
        name: COMM.id,
        instead: None,
        held: None,
    };
    table.titles(area, 0, buf);
    for (row, at) in (1..area.height).zip(seen.order.iter().skip(detail.offset)) {
        let task = &threads.tasks[*at];
        let selected = detail.thread.is_some() && task.tid == detail.thread.map(|(tid, _)| tid);
        table.row(task, &Look { ended: task.exited, selected, ..Look::default() }, area, row, buf);
    }
}
