//! The pictures of screens in the README and in docs/tour.md, drawn by the code that draws the screen. Also
//! the page of a report in docs/. All are of the demo machine.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::press;
use common::screen::draw;
use jiff::tz::TimeZone;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use crate::common;
use numatop_ng::source::synthetic::demo_machine;
use numatop_ng::tui::history::{History, Want, page};
use numatop_ng::tui::theme::Theme;

/// Set to rewrite the picture instead of comparing with it.
const ACCEPT: &str = "NUMATOP_ACCEPT_GOLDENS";

/// Columns and lines of the terminal in the picture.
const SIZE: (u16, u16) = (132, 26);

/// Pixels of a character, and around all of them.
const CELL: (u16, u16) = (8, 17);
const MARGIN: u16 = 12;

const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d5d8de";

/// The colours of a terminal with a dark theme.
fn hex(colour: Color, otherwise: &str) -> String {
    let named = match colour {
        Color::Black => "#16181d",
        Color::Red => "#e5717a",
        Color::Green => "#7fc387",
        Color::Yellow => "#dcb866",
        Color::Blue => "#6aa5ee",
        Color::Magenta => "#c48ce0",
        Color::Cyan => "#5fbfc4",
        Color::Gray => "#b3b8c2",
        Color::DarkGray => "#767d8a",
        Color::LightRed => "#f59aa1",
        Color::LightGreen => "#a2dba9",
        Color::LightYellow => "#efd392",
        Color::LightBlue => "#97c3f7",
        Color::LightMagenta => "#dcb0f2",
        Color::LightCyan => "#8fdade",
        Color::White => "#ffffff",
        Color::Rgb(red, green, blue) => return format!("#{red:02x}{green:02x}{blue:02x}"),
        _ => otherwise,
    };
    named.to_owned()
}

/// Text and background of a cell.
fn colours(cell: &Cell) -> (String, String) {
    let dim = cell.modifier.contains(Modifier::DIM);
    let text = hex(cell.fg, if dim { "#767d8a" } else { FOREGROUND });
    let back = hex(cell.bg, BACKGROUND);
    if cell.modifier.contains(Modifier::REVERSED) { (back, text) } else { (text, back) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Neighbours that look alike are one piece of text.
fn svg(buf: &Buffer) -> String {
    let (width, height) = (buf.area.width * CELL.0 + 2 * MARGIN, buf.area.height * CELL.1 + 2 * MARGIN);
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\">"
    )
    .unwrap();
    writeln!(out, "<title>numatop-ng --demo</title>").unwrap();
    writeln!(out, "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>").unwrap();
    for (line, row) in (0u16..).zip(buf.content().chunks(usize::from(buf.area.width))) {
        let mut from = 0;
        while from < row.len() {
            let look = |cell: &Cell| (colours(cell), cell.modifier & (Modifier::BOLD | Modifier::UNDERLINED));
            let alike = row[from..].iter().take_while(|cell| look(cell) == look(&row[from])).count();
            let piece: String = row[from..from + alike].iter().map(Cell::symbol).collect();
            let (x, y) = (MARGIN + from as u16 * CELL.0, MARGIN + line * CELL.1);
            let ((text, back), modifier) = look(&row[from]);
            let length = alike as u16 * CELL.0;
            if back != BACKGROUND {
                writeln!(
                    out,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{}\" fill=\"{back}\"/>",
                    CELL.1
                )
                .unwrap();
            }
            if !piece.trim().is_empty() {
                let bold = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
                let base = y + 13;
                writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{base}\" fill=\"{text}\"{bold} textLength=\"{length}\" xml:space=\"preserve\">{}</text>",
                    escaped(&piece)
                )
                .unwrap();
            }
            from += alike;
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Compares a file in docs/ with the current output, or rewrites it.
fn compare(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os(ACCEPT).is_some() {
        fs::write(&path, made).unwrap();
    }
    let shown = fs::read_to_string(&path).unwrap_or_default();
    let other = shown.lines().zip(made.lines()).position(|(shown, made)| shown != made);
    assert!(
        shown == made,
        "{file} is not what is made now: line {other:?}\nif this is meant: {ACCEPT}=1 cargo test --test worlds picture, then look at it"
    );
}

#[test]
fn the_page_in_docs_is_a_report() {
    let mut machine = demo_machine();
    let mut history = History::new(Want::default());
    for _ in 0..=90 {
        history.sample(Arc::clone(&machine.host), machine.step(10_000_000_000), 1);
        history.tidy();
    }
    compare("docs/report-example.html", &page(history.kept().unwrap(), TimeZone::UTC).unwrap());
}

#[test]
fn the_picture_in_the_readme_is_the_screen() {
    let mut app = common::app(&mut demo_machine(), 8, SIZE, Theme::new(true, false));
    app.state.demo = true;
    let drawn = svg(&draw(&app, SIZE.0, SIZE.1));
    compare("docs/screen.svg", &drawn);
}

/// The frames of docs/tour.md, by the keys that lead there from the first screen after `ticks` seconds of the demo.
const TOUR: [(&str, usize, &[&str]); 3] = [
    ("docs/tour-details.svg", 40, &["Down", "Enter"]),
    ("docs/tour-nodes.svg", 8, &["2", "x"]),
    ("docs/tour-findings.svg", 130, &["f"]),
];

#[test]
fn the_frames_of_the_tour_are_screens() {
    for (file, ticks, keys) in TOUR {
        let mut app = common::app(&mut demo_machine(), ticks, SIZE, Theme::new(true, false));
        app.state.demo = true;
        for key in keys {
            press(&mut app, key);
        }
        compare(file, &svg(&draw(&app, SIZE.0, SIZE.1)));
    }
}
