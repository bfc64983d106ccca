//! The table of containers.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::metric::container::CONTAINER;
use crate::snapshot::Snapshot;
use crate::tui::app::containers::ContainerList;
use crate::tui::theme::{Role, Theme};
use crate::tui::widget::pen::Pen;
use crate::tui::widget::table::{Look, Table};

/// Levels of the tree whose branches are drawn; deeper ones are drawn as if they were this deep.
const TREE_LEVELS: u16 = 8;

/// Titles and the rows in view.
pub fn render(snapshot: &Snapshot, list: &ContainerList, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let columns = list.columns_at(area.width, snapshot);
    let table = Table { columns: &columns, sort: Some(list.sort), snapshot, theme, name: CONTAINER.id };
    table.titles(area, 0, buf);
    let offset = list.cursor.offset();
    for (line, row) in (1..area.height).zip(list.rows().iter().skip(offset)) {
        // A snapshot for another screen has none; the next one will.
        let Some(container) = snapshot.containers.get(row.task) else { break };
        let look = Look {
            selected: offset + usize::from(line) - 1 == list.cursor.at(),
            prefix: row.prefix(theme.glyphs, TREE_LEVELS),
            ..Look::default()
        };
        table.row(container, &look, area, line, buf);
    }
    if list.rows().is_empty() {
        let text = "no task is in scope: C clears the scope";
        Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(text, theme.style(Role::Dim));
    }
}
