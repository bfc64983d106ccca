//! The table of nodes, above the facts of the selected one; or a matrix in place of both.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::snapshot::Snapshot;
use crate::tui::app::nodes::NodeList;
use crate::tui::theme::Theme;
use crate::tui::widget::table::{Look, Table};

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
        super::node_facts::render(snapshot, node, theme, facts_area, buf);
    }
}
