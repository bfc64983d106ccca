//! The parts of the screen, one file each, and how they make a whole.

pub mod balancing;
pub mod containers;
pub mod detail;
pub mod footer;
pub mod header;
pub mod help;
pub mod hot;
pub mod maps;
pub mod matrix;
pub mod moved;
pub mod node_facts;
pub mod nodes;
pub mod overhead;
pub mod picker;
pub mod tasks;
pub mod timebar;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::action::Screen;
use super::app::App;
use super::theme::Role;
use super::widget::pen::Pen;

/// Draws everything into an empty buffer.
pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let parts = app.parts();
    let body = parts.body.intersection(area);
    let Some(snapshot) = app.snapshot() else {
        let text = "numatop-ng: loading the probes and taking the first sample";
        Pen::new(buf, area, 0, app.theme.glyphs.ellipsis).write(text, app.theme.style(Role::Dim));
        return;
    };
    header::render(snapshot, app, &parts, buf);
    if let Some(timeline) = app.timeline() {
        timebar::render(timeline, &app.zone, &app.theme, parts.time.intersection(area), buf);
    }
    if let Some(first) = app.help {
        help::render(snapshot, first, &app.theme, body, buf);
    } else if let Some(overhead) = &app.overhead {
        overhead::render(snapshot, overhead, &app.theme, body, buf);
    } else if let Some(hot) = &app.hot {
        hot::render(hot, &app.theme, body, buf);
    } else if let (Some(detail), Some(seen)) = (&app.detail, app.process()) {
        detail::render(snapshot, detail, seen, &app.theme, body, buf);
    } else if app.screen == Screen::Tasks {
        tasks::render(snapshot, &app.tasks, &app.theme, body, buf);
    } else if app.screen == Screen::Containers {
        containers::render(snapshot, &app.containers, &app.theme, body, buf);
    } else {
        nodes::render(snapshot, &app.nodes, &app.theme, body, buf);
    }
    if let Some(picker) = &app.picker {
        picker::render(snapshot, picker, &app.theme, body, buf);
    }
    footer::render(app, parts.footer.intersection(area), buf);
}
