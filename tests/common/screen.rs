//! A screen as text: the content and the look of each cell.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use numatop_ng::tui;
use numatop_ng::tui::update::App;

/// The screen of `app`.
pub fn draw(app: &App, width: u16, height: u16) -> Buffer {
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    let area = buf.area;
    tui::draw(app, area, &mut buf);
    buf
}

/// The rows of `buf`. Below each row that is not plain, a line that starts with `~` has a letter for the look
/// of each cell. The meaning of the letters is at the end.
pub fn dump(buf: &Buffer) -> String {
    let mut looks: Vec<String> = Vec::new();
    let mut out = String::new();
    for row in buf.content().chunks(usize::from(buf.area.width)) {
        let text: String = row.iter().map(|cell| cell.symbol()).collect();
        writeln!(out, "|{}", text.trim_end()).unwrap();
        let mut line = String::new();
        for cell in row {
            let look = look(cell.fg, cell.bg, cell.modifier);
            line.push(match look.as_str() {
                "" => ' ',
                look => {
                    let at = looks.iter().position(|known| known == look).unwrap_or_else(|| {
                        looks.push(look.to_string());
                        looks.len() - 1
                    });
                    char::from(b'a' + at as u8)
                }
            });
        }
        if !line.trim().is_empty() {
            writeln!(out, "~{}", line.trim_end()).unwrap();
        }
    }
    for (at, look) in looks.iter().enumerate() {
        writeln!(out, "{} = {look}", char::from(b'a' + at as u8)).unwrap();
    }
    out
}

fn look(fg: Color, bg: Color, modifier: Modifier) -> String {
    let mut words = Vec::new();
    if fg != Color::Reset {
        words.push(fg.to_string());
    }
    if bg != Color::Reset {
        words.push(format!("on {bg}"));
    }
    if !modifier.is_empty() {
        words.extend(modifier.iter_names().map(|(name, _)| name.to_lowercase()));
    }
    words.join(" ")
}

/// The rows of `buf` without looks.
pub fn text(buf: &Buffer) -> String {
    let rows = buf.content().chunks(usize::from(buf.area.width).max(1));
    let rows: Vec<String> =
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect();
    rows.join("\n")
}
