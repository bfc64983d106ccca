//! The table of nodes, and below it what the selected node is made of; or a matrix in place of both.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::host::topology::{Device, Node, Topology, format_cpulist};
use crate::metric::format::bytes;
use crate::sample::NodeRaw;
use crate::snapshot::Snapshot;
use crate::text::clean_str;
use crate::tui::app::nodes::NodeList;
use crate::tui::theme::{Role, Theme};
use crate::tui::widget::pen::Pen;
use crate::tui::widget::table::{Look, Table};
use crate::units::Nid;

/// Rows that the part below the table needs to be worth drawing.
const FACTS_MIN: u16 = 4;

/// Divides `area` between the table and the facts below it.
pub fn split(area: Rect, snapshot: Option<&Snapshot>) -> (Rect, Rect) {
    let rows = snapshot.map_or(0, |snapshot| snapshot.nodes.len()).min(1 << 15) as u16 + 1;
    let left = area.height.saturating_sub(rows);
    let table = Rect { height: if left < FACTS_MIN { area.height } else { rows }, ..area };
    (table, Rect { y: table.bottom(), height: area.height - table.height, ..area })
}

/// Titles, nodes, facts.
pub fn render(snapshot: &Snapshot, list: &NodeList, theme: &Theme, area: Rect, buf: &mut Buffer) {
    if let Some(metric) = list.matrix() {
        return super::matrix::render(snapshot, list, metric, theme, area, buf);
    }
    let (table_area, facts_area) = split(area, Some(snapshot));
    let columns = list.columns_at(area.width, snapshot);
    let table = Table { columns: &columns, sort: Some(list.sort), snapshot, theme, name: "" };
    table.titles(table_area, 0, buf);
    let offset = list.cursor.offset();
    for (line, at) in (1..table_area.height).zip(list.rows().iter().skip(offset)) {
        let selected = offset + usize::from(line) - 1 == list.cursor.at();
        table.row(&snapshot.nodes[*at], &Look { selected, ..Look::default() }, table_area, line, buf);
    }
    if let Some(node) = list.selected(snapshot) {
        facts(snapshot, &node.raw, theme, facts_area, buf);
    }
}

/// What one node is made of. The machine may have changed since: then less is known.
fn facts(snapshot: &Snapshot, raw: &NodeRaw, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let (topology, id) = (&snapshot.host.topology, Nid(raw.id));
    let Some(node) = topology.node(id) else { return };
    let lines = [
        ("CPUs", cpus(node)),
        ("caches", caches(topology, node)),
        ("distance", distances(node)),
        ("reclaim", reclaim(snapshot, raw)),
        ("devices", devices(&node.devices)),
        ("unplaced", devices(&topology.unplaced_devices)),
        ("offline", offline(topology)),
    ];
    let title = format!("Node {id}");
    Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(&title, theme.style(Role::Title));
    for (row, (label, text)) in (2..).zip(lines.iter().filter(|(_, text)| !text.is_empty())) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        pen.gap(1)
            .write(&format!("{label:9} "), theme.style(Role::Dim))
            .write(text, theme.style(Role::Plain));
    }
}

fn cpus(node: &Node) -> String {
    match format_cpulist(node.cpus.iter().map(|cpu| cpu.0)) {
        list if list.is_empty() && node.memory_only() => {
            "none: memory only (CXL, persistent memory, or all its CPUs are offline)".into()
        }
        list if list.is_empty() => "none".into(),
        list => list,
    }
}

fn caches(topology: &Topology, node: &Node) -> String {
    let here = topology.llcs.iter().filter(|llc| llc.cpus.iter().any(|cpu| node.cpus.contains(cpu)));
    let caches: Vec<String> = here
        .map(|llc| {
            let size = llc.size_bytes.map_or("size unknown".into(), |size| bytes(size as f64));
            let list = format_cpulist(llc.cpus.iter().map(|cpu| cpu.0));
            format!("L{} {size} of {list}", llc.level.map_or("?".into(), |level| level.to_string()))
        })
        .collect();
    caches.join(", ")
}

fn distances(node: &Node) -> String {
    let mut near: Vec<_> = node.distances.iter().filter(|(other, _)| *other != node.id).collect();
    near.sort_by_key(|(other, distance)| (*distance, *other));
    let near: Vec<String> = near.iter().map(|(other, distance)| format!("{other}:{distance}")).collect();
    if near.is_empty() { String::new() } else { format!("to node:  {}", near.join("  ")) }
}

/// When the node begins to reclaim, and whether an allocation waits for that or goes to another node.
fn reclaim(snapshot: &Snapshot, raw: &NodeRaw) -> String {
    let mut parts = Vec::new();
    if raw.managed_bytes > 0 {
        parts.push(format!("kswapd works below {} free", bytes(raw.low_watermark_bytes as f64)));
    }
    match snapshot.zone_reclaim_mode {
        Some(0) => parts.push("a full node passes allocations on (zone_reclaim_mode 0)".into()),
        Some(mode) => {
            parts.push(format!("a full node reclaims before it passes on (zone_reclaim_mode {mode})"));
        }
        None => {}
    }
    parts.join(", ")
}

fn devices(devices: &[Device]) -> String {
    let device = |device: &Device| {
        let nodes = format_cpulist(device.irq_nodes.iter().map(|node| node.0));
        let interrupts =
            if nodes.is_empty() { String::new() } else { format!(", interrupts on node {nodes}") };
        format!("{} ({}{interrupts})", clean_str(&device.name), device.class.name())
    };
    devices.iter().map(device).collect::<Vec<_>>().join(", ")
}

/// Nodes that could come, for instance when memory is plugged in.
fn offline(topology: &Topology) -> String {
    match format_cpulist(topology.offline_nodes.iter().map(|node| node.0)) {
        list if list.is_empty() => list,
        list => format!("nodes {list} are possible but not there"),
    }
}
