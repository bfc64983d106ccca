//! The usual, the bad and the worst of each number, over the recording or since the view was opened.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Answer, Screen};
use crate::analysis::summary::SummaryRow;
use crate::metric::Value;
use crate::metric::format::short;
use crate::tui::history::Want;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, Motion, Seek};
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::cursor::Cursor;
use crate::tui::widgets::layout::below;
use crate::tui::widgets::pen::Pen;

/// Cells of the object, the title, each number, and the time of the worst.
const OBJECT: u16 = 10;
const TITLE: u16 = 10;
const NUMBER: u16 = 9;
const TIME: u16 = 15;

#[derive(Default)]
pub struct Summary {
    cursor: Cursor<usize>,
    keys: Vec<usize>,
    /// Wall clocks of the worst intervals, by row, ns since 1970.
    worst: Vec<i64>,
}

impl Screen for Summary {
    fn context(&self) -> u16 {
        context::SUMMARY
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        let theme = &state.theme;
        let header = theme.style(Role::Header);
        let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
        pen.repeat(' ', area.width, header).column(area.x, 1);
        pen.write_within("WHERE", OBJECT, header).column(area.x, 1 + OBJECT);
        pen.write_within("WHAT", TITLE, header).column(area.x, 1 + OBJECT + TITLE);
        for title in ["MEDIAN", "P95/P5", "WORST"] {
            pen.gap(1).write_right(title, NUMBER, header);
        }
        pen.gap(2).write("AT", header);
        let lines = below(area, 1);
        let (first, count) = (self.cursor.offset(), state.summary.len());
        if count > usize::from(lines.height) {
            let last = count.min(first + usize::from(lines.height));
            let shown = format!("{}-{last} of {count}", first + 1);
            let width = u16::try_from(shown.len()).unwrap_or(u16::MAX).saturating_add(1);
            pen.column(area.x, area.width.saturating_sub(width)).write(&shown, header);
        }
        let rows = state.summary.iter().enumerate().skip(self.cursor.offset());
        for (line, (at, row)) in (0..lines.height).zip(rows) {
            one(row, at == self.cursor.at(), state, lines, line, buf);
        }
        if state.summary.is_empty() {
            let text = if state.replay.is_some() { "searching the recording" } else { "no interval yet" };
            Pen::new(buf, lines, 0, theme.glyphs.ellipsis).gap(1).write(text, theme.style(Role::Dim));
        }
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn list(&self, body: Rect, _state: &State) -> Rect {
        below(body, 1)
    }

    fn want(&self, want: &mut Want) {
        want.summary = true;
    }

    fn arrange(&mut self, state: &State, height: usize) {
        self.worst = state.summary.iter().map(|row| row.worst_wall_ns).collect();
        self.keys = (0..self.worst.len()).collect();
        self.cursor.settle(&self.keys, height);
    }

    fn go(&mut self, motion: Motion, height: usize, _state: &State) {
        self.cursor.go(motion, &self.keys, height);
    }

    fn select(&mut self, line: usize, height: usize) {
        self.cursor.select(self.cursor.offset() + line, &self.keys, height);
    }

    /// Enter goes to the worst interval.
    fn act(&mut self, action: Action, _height: usize, state: &mut State) -> Answer {
        match action {
            Action::Open => {
                let worst = self.worst.get(self.cursor.at()).copied();
                let effect = worst.and_then(|wall_ns| state.seek(Seek::To(wall_ns)));
                state.message = Some("this is the worst interval; Esc shows its rows".into());
                Answer::Effect(effect)
            }
            _ => Answer::Ignored,
        }
    }
}

fn one(row: &SummaryRow, selected: bool, state: &State, area: Rect, line: u16, buf: &mut Buffer) {
    let theme = &state.theme;
    let style = |role| theme.style(if selected { Role::Selected } else { role });
    let mut pen = Pen::new(buf, area, line, theme.glyphs.ellipsis);
    if selected {
        pen.repeat(' ', area.width, style(Role::Plain)).column(area.x, 0);
    }
    let object = row.node.map_or("machine".into(), |node| format!("node {node}"));
    pen.gap(1).write_within(&object, OBJECT, style(Role::Dim)).column(area.x, 1 + OBJECT);
    pen.write_within(row.title, TITLE, style(Role::Plain)).column(area.x, 1 + OBJECT + TITLE);
    for value in [row.median, row.p95, row.worst] {
        pen.gap(1).write_right(&short(&Value::F64(value), row.unit), NUMBER, style(Role::Plain));
    }
    let time = Timestamp::from_nanosecond(i128::from(row.worst_wall_ns))
        .map_or("?".into(), |time| time.to_zoned(state.zone.clone()).strftime("%m-%d %H:%M:%S").to_string());
    pen.gap(2).write_within(&time, TIME, style(Role::Dim));
}
