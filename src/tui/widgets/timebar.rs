//! The line that shows where in time the screen is, and which moments are worth a look.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::pen;
use crate::analysis::curve::{Curve, Level};
use crate::analysis::highlights::{HighlightKind, Highlights};
use crate::text::quantity::{count, percent};
use crate::tui::state::Timeline;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// From this width on the legend is in full.
const WIDE: u16 = 120;

/// All kinds in the order of the legend.
const KINDS: [HighlightKind; 5] = [
    HighlightKind::Finding,
    HighlightKind::Remote,
    HighlightKind::Ipc,
    HighlightKind::Loss,
    HighlightKind::Gap,
];

/// `03:10:00 ---R-----#--I--- 04:10:00 R remote I IPC`. With three rows it is below curves of CPU time and
/// remote accesses; with one row, CPU time is the line.
pub fn render(
    timeline: Timeline<'_>,
    curve: &Curve,
    zone: &TimeZone,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let days = timeline.span.1.saturating_sub(timeline.span.0) / 86_400_000_000_000;
    let [from, to] = [timeline.span.0, timeline.span.1].map(|wall_ns| clock(wall_ns, days > 0, zone));
    let mut legend = legend(timeline, curve, theme, area.width >= WIDE);
    let room = usize::from(area.width).saturating_sub(from.width() + to.width() + 2);
    let words = |legend: &Legend| legend.iter().map(|(_, words)| words.width() + 4).sum::<usize>();
    // The bar keeps half of the room: help has every letter.
    while legend.len() > 1 && words(&legend) * 2 > room {
        legend.pop();
    }
    let width = room.saturating_sub(words(&legend));
    let cpu = curve.cells(timeline.span, width, |point| point.machine.cpu);
    let has_curves = area.height >= 3;
    if has_curves {
        let remote = curve.cells(timeline.span, width, |point| point.machine.remote);
        let here = (timeline.share(timeline.at) * width.saturating_sub(1) as f64).round() as usize;
        let curves = [("CPU", &cpu, Role::Local), ("remote", &remote, Role::Remote)];
        for (row, (label, shares, role)) in (0..).zip(curves) {
            let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
            pen.write_right(label, from.width() as u16, dim).gap(1);
            pen::curve(&mut pen, shares, role, theme);
            let now = shares.get(here).copied().flatten();
            pen.gap(1).write(&now.map_or("-".into(), |share| format!("{}%", percent(share * 100.0))), plain);
        }
    }
    let mut pen = Pen::new(buf, area, area.height.saturating_sub(1), theme.glyphs.ellipsis);
    pen.write(&from, plain).gap(1);
    let line = if has_curves { Vec::new() } else { cpu };
    let levels = curve.cells(timeline.span, width, |point| point.level);
    for (letter, role) in cells(timeline, &line, &levels, theme) {
        pen.write(letter.encode_utf8(&mut [0; 4]), theme.style(role));
    }
    pen.gap(1).write(&to, plain);
    for (mark, words) in legend {
        pen.gap(2);
        if let Some((letter, role)) = mark {
            pen.write(letter, theme.style(role)).gap(1);
        }
        pen.write(&words, dim);
    }
}

/// The content of each cell of the bar: the mark that weighs most, and above all the place that is shown. `line` has CPU time,
/// `levels` the marks of intervals in each cell.
fn cells(
    timeline: Timeline<'_>,
    line: &[Option<f64>],
    levels: &[Option<Level>],
    theme: &Theme,
) -> Vec<(char, Role)> {
    let Some(last) = levels.len().checked_sub(1) else { return Vec::new() };
    let cell = |wall_ns| (timeline.share(wall_ns) * last as f64).round() as usize;
    let ground = |at: usize| match line.get(at).copied().flatten() {
        Some(share) => pen::level(share, theme),
        None => theme.glyphs.horizontal,
    };
    let cell_of = |(at, level): (usize, &Option<Level>)| match level.map(of_level) {
        Some((letter, role)) => (first(letter), role),
        None => (ground(at), Role::Dim),
    };
    let mut cells: Vec<(char, Role)> = levels.iter().enumerate().map(cell_of).collect();
    let mut marks = timeline.marks.all();
    marks.sort_by_key(|mark| mark.kind);
    for mark in marks {
        cells[cell(mark.wall_ns)] = (first(letter(mark.kind)), role(mark.kind));
    }
    let here = &mut cells[cell(timeline.at)];
    let glyph = if here.1 == Role::Dim { theme.glyphs.here } else { here.0 };
    *here = (glyph, if here.1 == Role::Dim { Role::Alert } else { Role::Selected });
    cells
}

fn first(letter: &str) -> char {
    letter.chars().next().unwrap_or('?')
}

/// The letter of an interval with many remote accesses.
fn of_level(level: Level) -> (&'static str, Role) {
    match level {
        Level::Placed => ("r", Role::Dim),
        Level::Seen => ("R", Role::Remote),
        Level::SeenMost => ("R", Role::Alert),
    }
}

fn letter(kind: HighlightKind) -> &'static str {
    match kind {
        HighlightKind::Remote => "R",
        HighlightKind::Ipc => "I",
        HighlightKind::Loss => "L",
        HighlightKind::Gap => "G",
        HighlightKind::Finding => "F",
    }
}

fn role(kind: HighlightKind) -> Role {
    match kind {
        HighlightKind::Remote => Role::Remote,
        HighlightKind::Ipc | HighlightKind::Gap => Role::Warn,
        HighlightKind::Loss | HighlightKind::Finding => Role::Alert,
    }
}

/// Marks on the bar, with their letters.
type Legend = Vec<(Option<(&'static str, Role)>, String)>;

fn legend(timeline: Timeline<'_>, curve: &Curve, theme: &Theme, wide: bool) -> Legend {
    let marks = timeline.marks;
    let ([placed, seen], all) = curve.marked_ns();
    // On a narrow screen one letter has one meaning.
    let is_shown = |kind: &HighlightKind| {
        marks.count(*kind) > 0 && (wide || seen == 0 || *kind != HighlightKind::Remote)
    };
    let present = KINDS.into_iter().filter(is_shown);
    let mut legend: Legend = Vec::new();
    for (level, how, marked) in [(Level::Seen, "", seen), (Level::Placed, " by place", placed)] {
        if marked > 0 {
            let share = format!("remote {} 20 %", theme.glyphs.at_least);
            let words = if wide { format!("{share}{how}: {}", of_length(marked, all)) } else { share };
            legend.push((Some(of_level(level)), words));
        }
    }
    legend.extend(present.map(|kind| (Some((letter(kind), role(kind))), words(kind, marks, wide))));
    if timeline.looked < 1.0 {
        legend.push((None, format!("looking {:.0}%", timeline.looked * 100.0)));
    } else {
        let is_bare = legend.is_empty();
        match (curve.knows_remote(), is_bare) {
            (false, true) => legend.push((None, "remote not measured".into())),
            (true, true) => legend.push((None, "nothing marked".into())),
            (false, false) if wide => legend.push((None, "remote not measured".into())),
            _ => {}
        }
        if wide && !is_bare {
            legend.push((None, "{ } jump".into()));
        }
    }
    legend
}

/// `41 of 60 s`, and in minutes from ten of them on.
fn of_length(part_ns: i64, all_ns: i64) -> String {
    const S: f64 = 1e9;
    let (part, all) = (part_ns as f64 / S, all_ns as f64 / S);
    match all < 600.0 {
        true => format!("{part:.0} of {all:.0} s"),
        false => format!("{:.0} of {:.0} min", part / 60.0, all / 60.0),
    }
}

fn words(kind: HighlightKind, marks: &Highlights, wide: bool) -> String {
    let (value, many) = (marks.value(kind).unwrap_or(0.0), marks.count(kind));
    match (kind, wide) {
        (HighlightKind::Finding, false) => "findings".into(),
        (HighlightKind::Finding, true) => format!("findings: {many}"),
        (HighlightKind::Remote, false) => "remote".into(),
        (HighlightKind::Remote, true) => format!("most remote {}/s", count(value)),
        (HighlightKind::Ipc, false) => "low IPC".into(),
        (HighlightKind::Ipc, true) => format!("lowest IPC {value:.2}"),
        (HighlightKind::Loss, false) => "lost".into(),
        (HighlightKind::Loss, true) => format!("losses: {many}"),
        (HighlightKind::Gap, false) => "gap".into(),
        (HighlightKind::Gap, true) => format!("gaps: {many}"),
    }
}

/// Time of day, with the day where there are several.
pub fn clock(wall_ns: i64, with_day: bool, zone: &TimeZone) -> String {
    let form = if with_day { "%m-%d %H:%M" } else { "%H:%M:%S" };
    Timestamp::from_nanosecond(i128::from(wall_ns))
        .map_or("?".into(), |time| time.to_zoned(zone.clone()).strftime(form).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{RowKind, derive};
    use crate::source::synthetic::demo_machine;

    const SPAN: (i64, i64) = (0, 60_000_000_000);

    fn legend_of(curve: &Curve, span: (i64, i64), wide: bool, ascii: bool) -> Vec<String> {
        let marks = Highlights::default();
        let timeline = Timeline { span, at: span.1, marks: &marks, looked: 1.0 };
        let legend = legend(timeline, curve, &Theme::new(true, ascii), wide);
        legend.into_iter().map(|(mark, words)| format!("{}{words}", mark.map_or("", |(at, _)| at))).collect()
    }

    #[test]
    fn shares_that_are_not_known_are_not_called_low() {
        assert_eq!(legend_of(&Curve::default(), SPAN, true, false), ["remote not measured"]);
        let mut alone = demo_machine();
        std::sync::Arc::make_mut(&mut alone.host).topology.nodes.truncate(1);
        let (first, second) = (alone.tick(), alone.tick());
        let mut curve = Curve::default();
        curve.take(&derive(&alone.host, Some(&first), &second, RowKind::Processes));
        assert_eq!(legend_of(&curve, SPAN, true, false), ["nothing marked"]);
    }

    #[test]
    fn intervals_with_many_remote_accesses_are_marked() {
        // A quarter to a third of the accesses of the made-up machine leave their node, and they are counted.
        let mut machine = demo_machine();
        let mut before = machine.tick();
        let begin = before.wall_ns;
        let mut curve = Curve::default();
        for _ in 0..10 {
            let sample = machine.tick();
            curve.take(&derive(&machine.host, Some(&before), &sample, RowKind::Processes));
            before = sample;
        }
        let span = (begin, before.wall_ns);
        assert_eq!(legend_of(&curve, span, true, false), ["Rremote ≥ 20 %: 10 of 10 s", "{ } jump"]);
        assert_eq!(legend_of(&curve, span, false, true), ["Rremote >= 20 %"]);
        let marks = Highlights::default();
        let timeline = Timeline { span, at: span.1, marks: &marks, looked: 1.0 };
        let levels = curve.cells(span, 10, |point| point.level);
        let cells = cells(timeline, &[], &levels, &Theme::new(true, false));
        assert!(cells[..9].iter().all(|cell| *cell == ('R', Role::Remote)), "{cells:?}");
        assert_eq!(cells[9], ('R', Role::Selected), "the place that is shown");
    }

    #[test]
    fn lengths_have_one_unit() {
        const S: i64 = 1_000_000_000;
        assert_eq!(of_length(41 * S, 60 * S), "41 of 60 s");
        assert_eq!(of_length(1800 * S, 3600 * S), "30 of 60 min");
    }
}
