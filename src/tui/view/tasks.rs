//! The table of tasks.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::metric::identity::COMM;
use crate::snapshot::Snapshot;
use crate::tui::app::tasks::TaskList;
use crate::tui::rows::{self, RowKey};
use crate::tui::theme::{Role, Theme};
use crate::tui::widget::pen::Pen;
use crate::tui::widget::table::{Look, Table};

/// What is known of a task's memory is dim when it is older.
const AGED_NS: u64 = 15_000_000_000;

/// Titles and the rows in view.
pub fn render(snapshot: &Snapshot, list: &TaskList, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let columns = list.columns_at(area.width, snapshot);
    let table = Table { columns: &columns, sort: Some(list.choice.sort), snapshot, theme, name: COMM.id };
    table.titles(area, 0, buf);
    // Branches, of two cells each, leave half of the column to the name: of deep rows the last levels show.
    let name = columns.placed.iter().find(|column| column.metric.id == COMM.id);
    let levels = name.map_or(0, |column| column.width / 4);
    let offset = list.cursor.offset();
    for (line, row) in (1..area.height).zip(list.rows().iter().skip(offset)) {
        let task = &snapshot.tasks[row.task];
        let selected = offset + usize::from(line) - 1 == list.cursor.at();
        let look = Look {
            selected,
            ended: task.exited,
            aged: task.memory_age_ns(snapshot.mono_ns).is_some_and(|age| age > AGED_NS),
            followed: list.follow && list.cursor.selected() == Some(RowKey::of(task)),
            found: !list.search.is_empty() && rows::matches(task, snapshot, &list.search),
            prefix: row.prefix(theme.glyphs, levels),
        };
        table.row(task, &look, area, line, buf);
    }
    if list.rows().is_empty() {
        let text = if snapshot.tasks.is_empty() {
            "no task is in scope"
        } else {
            "no task matches the filters: Esc drops them"
        };
        Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(text, theme.style(Role::Dim));
    }
}
