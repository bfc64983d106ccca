//! One process: who it is, what it may use, where it ran, what it did lately, and its threads.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::metric::Value;
use crate::metric::format::{bytes, duration, percent};
use crate::metric::task::{by_id, policy, state, user};
use crate::snapshot::{Snapshot, Task};
use crate::text::clean;
use crate::tui::app::detail::{Detail, Point};
use crate::tui::columns;
use crate::tui::theme::{Role, Theme};
use crate::tui::view::{balancing, maps};
use crate::tui::widget::bar::{bar, sparkline};
use crate::tui::widget::pen::Pen;
use crate::tui::widget::table::{Look, Table};
use crate::units::Nid;

/// Lines about identity and limits, and lines of history.
const FACTS: u16 = 5;
const HISTORY: u16 = 3;
/// Nodes with a line of their own.
const NODE_LINES: usize = 4;
/// Cells for the memory on a node, as in `mem 1023M 99.9%`.
const MEMORY: u16 = 16;
/// Cells before the content of a line.
const LABEL: u16 = 9;
/// Divides `area` between what is said about the process and its threads.
pub fn split(area: Rect, snapshot: Option<&Snapshot>) -> (Rect, Rect) {
    let nodes = snapshot.map_or(1, |snapshot| snapshot.host.topology.nodes.len());
    let lines = FACTS + HISTORY + node_lines(nodes) + balancing_lines(nodes);
    // At least titles and two threads stay in view.
    let height = lines.min(area.height.saturating_sub(3));
    let facts = Rect { height, ..area };
    (facts, Rect { y: facts.bottom(), height: area.height - height, ..area })
}

/// Lines for nodes: one each, or the busiest and one for all others.
fn node_lines(nodes: usize) -> u16 {
    nodes.min(NODE_LINES) as u16
}

/// A line on NUMA balancing, where there is something to balance.
fn balancing_lines(nodes: usize) -> u16 {
    u16::from(nodes > 1)
}

pub fn render(
    snapshot: &Snapshot,
    detail: &Detail,
    history: &[Point],
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let (facts_area, threads_area) = split(area, Some(snapshot));
    let ellipsis = theme.glyphs.ellipsis;
    let Some(task) = &detail.task else {
        let text = format!("process {} was not there in this interval", detail.process.0);
        Pen::new(buf, area, 0, ellipsis).gap(1).write(&text, theme.style(Role::Warn));
        return;
    };
    identity(snapshot, task, theme, &mut Pen::new(buf, facts_area, 0, ellipsis));
    for (row, (label, text, role)) in (1..FACTS).zip(said(detail, task, snapshot)) {
        let mut pen = Pen::new(buf, facts_area, row, ellipsis);
        label_of(&mut pen, label, theme);
        pen.write(&text, theme.style(role));
    }
    shares(snapshot, task, theme, facts_area, FACTS, buf);
    let nodes = snapshot.host.topology.nodes.len();
    if let Some(text) = balancing::words(task, snapshot) {
        let mut pen = Pen::new(buf, facts_area, FACTS + node_lines(nodes), ellipsis);
        label_of(&mut pen, "balance", theme);
        pen.write(&text, theme.style(Role::Plain));
    }
    let first = FACTS + node_lines(nodes) + balancing_lines(nodes);
    for (row, series) in (first..).zip(SERIES) {
        let mut pen = Pen::new(buf, facts_area, row, ellipsis);
        line_of_history(series, snapshot, task, history, theme, &mut pen);
    }
    match &detail.maps {
        Some(maps) => maps::render(maps, theme, threads_area, buf),
        None => threads(detail, theme, threads_area, buf),
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
    pen.gap(1).write(&format!("{} ", raw.pid), theme.style(Role::Title));
    pen.write(&clean(raw.comm.bytes()), theme.style(Role::Title));
    if task.exited {
        pen.gap(2).write("ENDED", theme.style(Role::Alert));
    }
    for (label, text) in [
        ("user", user(raw.uid, snapshot)),
        ("state", state(task).to_string()),
        ("policy", policy(raw.policy)),
        ("nice", raw.nice.to_string()),
        ("threads", task.threads.to_string()),
        ("rss", if task.exited { "-".into() } else { bytes(task.rss_bytes as f64) }),
        ("parent", raw.ppid.to_string()),
    ] {
        pen.gap(2).write(label, dim).gap(1).write(&text, plain);
    }
}

/// What /proc said, as label, text and role.
fn said(detail: &Detail, task: &Task, snapshot: &Snapshot) -> [(&'static str, String, Role); 4] {
    let cgroup = by_id("cgroup").and_then(|metric| match metric.read(task, snapshot) {
        Ok(Value::Text(path)) => Some(path),
        _ => None,
    });
    let details = match &detail.details {
        Some(Ok(details)) => details,
        other => {
            let why = match other {
                Some(Err(why)) => why.clone(),
                _ if task.raw.kthread => "a kernel thread".into(),
                _ => "asking /proc".into(),
            };
            let cgroup = cgroup.unwrap_or_else(|| "-".into());
            return [
                ("command", why, Role::Dim),
                ("cgroup", cgroup, Role::Plain),
                ("may use", format!("{} CPUs", task.raw.cpus_allowed), Role::Plain),
                ("so far", "-".into(), Role::Dim),
            ];
        }
    };
    let command = if details.cmdline.is_empty() {
        ("command", "none: a kernel thread, or it erased its arguments".to_string(), Role::Dim)
    } else {
        ("command", details.cmdline.clone(), Role::Plain)
    };
    let cgroups =
        if details.cgroups.is_empty() { cgroup.unwrap_or_default() } else { details.cgroups.join(" ") };
    let may_use = format!(
        "CPUs {} ({} of {}), memory of nodes {}",
        details.cpus_allowed, task.raw.cpus_allowed, snapshot.online_cpus, details.mems_allowed
    );
    let mut since = Vec::new();
    if let Some([ran, waited]) = details.schedstat {
        since.push(format!("main thread: ran {}, waited {}", duration(ran), duration(waited)));
    }
    if let Some([anon, file, shared]) = details.rss {
        let [anon, file, shared] = [anon, file, shared].map(|amount| bytes(amount as f64));
        since.push(format!("rss: anon {anon}, file {file}, shm {shared}"));
    }
    [
        command,
        ("cgroup", cgroups, Role::Plain),
        ("may use", may_use, Role::Plain),
        ("so far", since.join("; "), Role::Plain),
    ]
}

/// Where it ran: a bar for each node, home first; what has no line is summed up in the last.
fn shares(snapshot: &Snapshot, task: &Task, theme: &Theme, area: Rect, first: u16, buf: &mut Buffer) {
    let nodes = &snapshot.host.topology.nodes;
    let ran = task.run_pct_by_node().unwrap_or_default();
    let memory = memory_words(task, snapshot);
    let share_of = |id| ran.iter().find(|(node, _)| *node == id).map_or(0.0, |(_, share)| *share);
    let home = task.home_node();
    let mut lines: Vec<(String, f64, bool, String)> = nodes
        .iter()
        .map(|node| {
            let memory = memory.get(&node.id).cloned().unwrap_or_default();
            (format!("node {}", node.id), share_of(node.id), home == Some(node.id), memory)
        })
        .collect();
    if lines.len() > NODE_LINES {
        lines.sort_by(|a, b| b.1.total_cmp(&a.1));
        let rest: f64 = lines[NODE_LINES - 1..].iter().map(|line| line.1).sum();
        let others = lines.len() - (NODE_LINES - 1);
        lines.truncate(NODE_LINES - 1);
        lines.push((format!("{others} more"), rest, false, String::new()));
    }
    for (row, (name, share, is_home, memory)) in (first..).zip(lines) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        label_of(&mut pen, &name, theme);
        let width = pen.room().saturating_sub(16 + MEMORY).min(60);
        let role = if is_home { Role::Local } else { Role::Remote };
        bar(&mut pen, width, &[(share / 100.0, role)], theme);
        let text = if ran.is_empty() { "-".into() } else { format!("{}%", percent(share)) };
        pen.write_right(&text, 7, theme.style(Role::Plain));
        pen.write(if is_home { " home" } else { "     " }, theme.style(Role::Local));
        pen.gap(1).write(&memory, theme.style(Role::Dim));
    }
}

/// What is known of the memory on each node, in a few words.
fn memory_words(task: &Task, snapshot: &Snapshot) -> BTreeMap<Nid, String> {
    let read = |id: &str| match by_id(id).map(|metric| metric.read(task, snapshot)) {
        Some(Ok(Value::ByNode(values))) => values,
        _ => Vec::new(),
    };
    let shares: BTreeMap<Nid, f64> = read("mem_pct_by_node").into_iter().collect();
    let words = |(node, on): (Nid, f64)| {
        let share = shares.get(&node).map_or(String::new(), |share| format!(" {}%", percent(*share)));
        (node, format!("mem {}{share}", bytes(on)))
    };
    read("mem_bytes_by_node").into_iter().map(words).collect()
}

/// A metric with its history.
type Series = (&'static str, &'static str, fn(&Point) -> Option<f64>);

const SERIES: [Series; HISTORY as usize] = [
    ("CPU%", "cpu_pct", |point| point.cpu_pct),
    ("IPC", "ipc", |point| point.ipc),
    ("NODMIG/s", "node_migrations_per_s", |point| point.node_migrations),
];

fn line_of_history(
    (label, id, value): Series,
    snapshot: &Snapshot,
    task: &Task,
    history: &[Point],
    theme: &Theme,
    pen: &mut Pen<'_>,
) {
    label_of(pen, label, theme);
    let Some(metric) = by_id(id) else { return };
    if let Some(why) = snapshot.host_missing(id) {
        let why = crate::text::clean_str(&why.to_string());
        pen.write("n/a: ", theme.style(Role::Dim)).write(&why, theme.style(Role::Dim));
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
        &format!(" top {}", crate::metric::format::short(&Value::F64(top), metric.unit)),
        theme.style(Role::Dim),
    );
}

fn threads(detail: &Detail, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let Some(threads) = &detail.threads else { return };
    let columns = columns::place(&columns::threads_for(area.width, &threads.host), area.width, "comm");
    let table = Table { columns: &columns, sort: None, snapshot: threads, theme, name: "comm" };
    table.titles(area, 0, buf);
    for (row, at) in (1..area.height).zip(detail.order.iter().skip(detail.offset)) {
        let task = &threads.tasks[*at];
        table.row(task, &Look { ended: task.exited, ..Look::default() }, area, row, buf);
    }
}
