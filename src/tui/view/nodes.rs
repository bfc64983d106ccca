//! The table of nodes, and below it what the selected node is made of.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::host::topology::format_cpulist;
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
    let (table_area, facts_area) = split(area, Some(snapshot));
    let columns = list.columns_at(area.width, snapshot);
    let table = Table { columns: &columns, sort: Some(list.sort), snapshot, theme };
    table.titles(table_area, 0, buf);
    let offset = list.cursor.offset();
    for (line, at) in (1..table_area.height).zip(list.rows().iter().skip(offset)) {
        let selected = offset + usize::from(line) - 1 == list.cursor.at();
        table.row(&snapshot.nodes[*at], &Look { selected, ..Look::default() }, table_area, line, buf);
    }
    if let Some(node) = list.selected(snapshot) {
        facts(snapshot, Nid(node.raw.id), theme, facts_area, buf);
    }
}

/// CPUs, caches, distances and devices of one node. The machine may have changed since: then less is known.
fn facts(snapshot: &Snapshot, id: Nid, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let topology = &snapshot.host.topology;
    let Some(node) = topology.node(id) else { return };
    let mut lines = vec![(
        "CPUs",
        match format_cpulist(node.cpus.iter().map(|cpu| cpu.0)) {
            list if list.is_empty() => "none".to_string(),
            list => list,
        },
    )];
    let caches = topology.llcs.iter().filter(|llc| llc.cpus.iter().any(|cpu| node.cpus.contains(cpu)));
    let caches: Vec<String> = caches
        .map(|llc| {
            let size = llc
                .size_bytes
                .map_or("size unknown".into(), |size| crate::metric::format::bytes(size as f64));
            let list = format_cpulist(llc.cpus.iter().map(|cpu| cpu.0));
            format!("L{} {size} of {list}", llc.level.map_or("?".into(), |level| level.to_string()))
        })
        .collect();
    lines.push(("caches", caches.join(", ")));
    let mut near: Vec<_> = node.distances.iter().filter(|(other, _)| *other != id).collect();
    near.sort_by_key(|(other, distance)| (*distance, *other));
    let near: Vec<String> = near.iter().map(|(other, distance)| format!("{other}:{distance}")).collect();
    if !near.is_empty() {
        lines.push(("distance", format!("to node:  {}", near.join("  "))));
    }
    let devices: Vec<String> = node
        .devices
        .iter()
        .map(|device| format!("{} ({})", clean_str(&device.name), device.class.name()))
        .collect();
    if !devices.is_empty() {
        lines.push(("devices", devices.join(", ")));
    }
    let title = format!("Node {id}");
    Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(&title, theme.style(Role::Title));
    for (row, (label, text)) in (2..).zip(lines.iter().filter(|(_, text)| !text.is_empty())) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        pen.gap(1)
            .write(&format!("{label:9} "), theme.style(Role::Dim))
            .write(text, theme.style(Role::Plain));
    }
}
