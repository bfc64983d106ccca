//! The help: keys from the keymap, metrics from their registry, and what this host cannot measure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::{Screen, Subject};
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::host::HOST_METRICS;
use crate::metric::matrix::PAIR_METRICS;
use crate::metric::node::NODE_METRICS;
use crate::metric::task::{self, TASK_METRICS};
use crate::metric::{Group, Metric};
use crate::model::event::Tested;
use crate::snapshot::{Node, Snapshot};
use crate::text::clean_str;
use crate::tui::input::action::{Effect, Motion};
use crate::tui::input::keymap::{KEYS, context};
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// Cells before the text of an entry.
const INDENT: usize = 18;
/// Longer lines are hard to read.
const WIDTH_MAX: usize = 110;

/// One line: what stands at the left, the text, and how it looks.
struct Line {
    left: String,
    text: String,
    role: Role,
}

/// Lines that one turn of the wheel moves.
const WHEEL: usize = 3;

#[derive(Default)]
pub struct Help {
    /// First line in view.
    first: usize,
}

impl Screen for Help {
    fn context(&self) -> u16 {
        context::HELP
    }

    fn contexts_of_time(&self) -> u16 {
        0
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        if let Some(snapshot) = state.snapshot() {
            render(snapshot, self.first, &state.theme, area, buf);
        }
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn open(&mut self, _subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        self.first = 0;
        Ok(None)
    }

    fn go(&mut self, motion: Motion, height: usize, state: &State) {
        let lines = lines(state.area.width, state.snapshot()).len();
        let turns = if matches!(motion, Motion::WheelUp | Motion::WheelDown) { WHEEL } else { 1 };
        for _ in 0..turns {
            self.first = motion.of_view(self.first, lines, height);
        }
    }
}

/// The lines from `first` on.
fn render(snapshot: &Snapshot, first: usize, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let lines = lines(area.width, Some(snapshot));
    for (row, line) in (0..area.height).zip(lines.iter().skip(first)) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        pen.gap(1).write(&line.left, theme.style(Role::Key));
        pen.column(area.x, INDENT as u16 * u16::from(!line.left.is_empty() || line.role != Role::Title));
        pen.write(&line.text, theme.style(line.role));
    }
    let last = first + usize::from(area.height);
    if last < lines.len() && area.height > 1 {
        let more = format!(" {} more lines ", lines.len() - last);
        let mut pen = Pen::new(buf, area, area.height - 1, theme.glyphs.ellipsis);
        pen.gap(area.width.saturating_sub(more.len() as u16)).write(&more, theme.style(Role::Selected));
    }
}

fn lines(width: u16, snapshot: Option<&Snapshot>) -> Vec<Line> {
    let width = usize::from(width).min(WIDTH_MAX);
    let mut lines = Vec::new();
    heading(&mut lines, "Keys");
    for binding in KEYS.iter().filter(|binding| !binding.help.is_empty()) {
        entry(&mut lines, &binding.names(), binding.help, Role::Plain, width);
    }
    entry(
        &mut lines,
        "mouse",
        "Selects rows and lines, sorts by titles; the wheel scrolls",
        Role::Plain,
        width,
    );
    heading(&mut lines, "The header");
    for (left, text) in [
        ("CPU", "Busy time of the node's CPUs; full is all of them."),
        (
            "MEM",
            "Memory of the node in two shades: programs and kernel first, then page cache; the rest is free.",
        ),
        (
            "SWAP/s",
            "Pages that come from swap and go to it, only while there are any: somebody lacks memory.",
        ),
        ("self", "CPU time and memory of numatop-ng; 100% is one CPU."),
        (
            "lost",
            "Events that could not be counted, by cause, since the start. 0 means that nothing is missing.",
        ),
        ("-", "There is no value; sort by that column, or look below, to see why. 0 always was measured."),
    ] {
        entry(&mut lines, left, text, Role::Plain, width);
    }
    for group in [Group::Identity, Group::Running, Group::Efficiency, Group::Memory] {
        heading(&mut lines, group.title());
        for metric in TASK_METRICS.iter().filter(|metric| metric.group == group) {
            describe(&mut lines, metric, snapshot, width);
        }
    }
    counters(&mut lines, snapshot, width);
    heading(&mut lines, "Nodes");
    let as_of_tasks =
        |metric: &Metric<Node>| task::by_id(metric.id).is_some_and(|task| task.help == metric.help);
    for metric in NODE_METRICS.iter().filter(|metric| !as_of_tasks(metric)) {
        describe(&mut lines, metric, snapshot, width);
    }
    heading(&mut lines, "From node to node");
    for metric in PAIR_METRICS {
        entry(&mut lines, metric.title, &format!("{} [{}]", metric.help, metric.id), Role::Plain, width);
        if let Some(said) = snapshot.and_then(|snapshot| metric.sources(snapshot)) {
            entry(&mut lines, "", &said, Role::Plain, width);
        }
        if let Some(why) = snapshot.and_then(|snapshot| snapshot.host_missing(metric.id)) {
            entry(&mut lines, "", &format!("not here: {}", clean_str(&why.to_string())), Role::Warn, width);
        }
    }
    heading(&mut lines, "The host");
    for metric in &HOST_METRICS {
        entry(&mut lines, metric.title, &format!("{} [{}]", metric.help, metric.id), Role::Plain, width);
        if let Some(why) = snapshot.and_then(|snapshot| snapshot.host_missing(metric.id)) {
            entry(&mut lines, "", &format!("not here: {}", clean_str(&why.to_string())), Role::Warn, width);
        }
    }
    heading(&mut lines, "Containers");
    // Sums over tasks are described with those.
    for metric in CONTAINER_METRICS.iter().filter(|metric| task::by_id(metric.id).is_none()) {
        describe(&mut lines, metric, snapshot, width);
    }
    lines
}

fn describe<R>(lines: &mut Vec<Line>, metric: &Metric<R>, snapshot: Option<&Snapshot>, width: usize) {
    entry(lines, metric.title, &format!("{} [{}]", metric.help, metric.id), Role::Plain, width);
    if let Some(why) = snapshot.and_then(|snapshot| snapshot.host_missing(metric.id)) {
        entry(lines, "", &format!("not here: {}", clean_str(&why.to_string())), Role::Warn, width);
    }
}

/// The events behind the counters of now, each with its meaning and the word of self-tests on it.
fn counters(lines: &mut Vec<Line>, snapshot: Option<&Snapshot>, width: usize) {
    let events = snapshot.map(|snapshot| &snapshot.host.events);
    let Some(events) = events.filter(|events| !events.is_empty()) else { return };
    heading(lines, "Counters");
    for event in events {
        let meaning = if event.counts.is_empty() { String::new() } else { format!(": {}", event.counts) };
        let text = clean_str(&format!("{}{meaning}", event.name));
        entry(lines, event.role.id(), &text, Role::Plain, width);
        let role = match event.tested {
            Tested::Unsaid => continue,
            Tested::Here(_) | Tested::Elsewhere(_) | Tested::Nowhere => Role::Plain,
            Tested::Doubtful(_) | Tested::Wrong(_) => Role::Warn,
        };
        entry(lines, "", &clean_str(event.tested.words()), role, width);
    }
}

fn heading(lines: &mut Vec<Line>, text: &str) {
    if !lines.is_empty() {
        lines.push(Line { left: String::new(), text: String::new(), role: Role::Title });
    }
    lines.push(Line { left: String::new(), text: text.into(), role: Role::Title });
}

/// An entry whose text is broken into lines at spaces.
fn entry(lines: &mut Vec<Line>, left: &str, text: &str, role: Role, width: usize) {
    let room = width.saturating_sub(INDENT + 1).max(10);
    let mut left = left.to_string();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            let full = std::mem::take(&mut line);
            lines.push(Line { left: std::mem::take(&mut left), text: full, role });
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(Line { left, text: line, role });
}
