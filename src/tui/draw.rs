//! The whole screen: the header, the view on top, and the layers over it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::theme::Role;
use super::update::App;
use super::widgets::header::Rows;
use super::widgets::pen::Pen;
use super::widgets::{footer, header, timebar};

/// Draws everything into an empty buffer.
pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let (parts, state) = (app.parts(), &app.state);
    let body = parts.body.intersection(area);
    let Some(snapshot) = state.snapshot() else {
        let text = "numatop-ng: loading the probes and taking the first sample";
        Pen::new(buf, area, 0, state.theme.glyphs.ellipsis).write(text, state.theme.style(Role::Dim));
        return;
    };
    let tasks = &app.screens.tasks;
    let rows = Rows { facts: tasks.facts(snapshot, parts.title.width), shown: tasks.list.rows().len() };
    header::render(snapshot, state, &rows, &parts, buf);
    if let Some(timeline) = state.timeline() {
        timebar::render(
            timeline,
            &state.curve,
            &state.zone,
            &state.theme,
            parts.time.intersection(area),
            buf,
        );
    }
    app.visible().draw(state, body, buf);
    if let Some(picker) = &app.picker {
        picker.draw(&state.theme, body, buf);
    }
    let footer = parts.footer.intersection(area);
    let keys = footer::Keys { context: app.contexts(), offers: &|action| app.offers(action) };
    footer::render(app.prompt.as_ref(), state.message.as_deref(), &keys, &state.theme, footer, buf);
}
