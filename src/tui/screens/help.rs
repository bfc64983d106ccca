//! The help: keys from the keymap, metrics from their registry, and what this host cannot measure.

use std::collections::{HashMap, HashSet};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::{Answer, Screen, Subject};
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::host::HOST_METRICS;
use crate::metric::matrix::PAIR_METRICS;
use crate::metric::node::NODE_METRICS;
use crate::metric::task::{self, TASK_METRICS};
use crate::metric::{Group, Metric};
use crate::model::event::Tested;
use crate::snapshot::{Node, Snapshot};
use crate::text::{clean_str, without_attempt, without_codes};
use crate::tui::input::keymap::{Binding, KEYS, context};
use crate::tui::input::{Action, Effect, Motion};
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;
use crate::tui::widgets::picker::{Prompt, Purpose};

/// Cells before the text of an entry.
const INDENT: usize = 18;
/// Longer lines are hard to read.
const WIDTH_MAX: usize = 110;

/// One line: the text at the left, the text beside it, and how it looks.
struct Line {
    left: String,
    text: String,
    role: Role,
    /// Lines of one entry have the same number, as do headings the number 0: a filter shows an entry as a whole.
    entry: usize,
}

/// Lines that one turn of the wheel moves.
const WHEEL: usize = 3;

#[derive(Default)]
pub struct Help {
    /// First line in view.
    first: usize,
    /// Bits of [`context`] of the view below, whose keys come first.
    context: u16,
    /// Typed: only entries that contain it are shown.
    filter: String,
}

impl Help {
    /// Help is asked for where these bits of [`context`] hold.
    pub fn about(&mut self, context: u16) {
        self.context = context;
    }

    /// The lines that the filter leaves.
    fn lines(&self, width: u16, snapshot: Option<&Snapshot>) -> Vec<Line> {
        filtered(lines(self.context, width, snapshot), &self.filter)
    }
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
            let lines = self.lines(area.width, Some(snapshot));
            render(&lines, self.first, &state.theme, area, buf);
        }
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn open(&mut self, _subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        self.first = 0;
        self.filter.clear();
        Ok(None)
    }

    /// Clears the filter.
    fn step_out(&mut self) -> bool {
        let was_filtered = !self.filter.is_empty();
        self.filter.clear();
        was_filtered
    }

    fn act(&mut self, action: Action, _height: usize, _state: &mut State) -> Answer {
        match action {
            Action::Filter => Answer::Ask(Prompt::new(Purpose::Filter, &self.filter)),
            _ => Answer::Ignored,
        }
    }

    fn typed(&mut self, _purpose: Purpose, text: &str, _height: usize, _state: &mut State) {
        (self.first, self.filter) = (0, text.to_string());
    }

    fn go(&mut self, motion: Motion, height: usize, state: &State) {
        let lines = self.lines(state.area.width, state.snapshot()).len();
        let turns = if matches!(motion, Motion::WheelUp | Motion::WheelDown) { WHEEL } else { 1 };
        for _ in 0..turns {
            self.first = motion.of_view(self.first, lines, height);
        }
    }
}

/// The lines from `first` on.
fn render(lines: &[Line], first: usize, theme: &Theme, area: Rect, buf: &mut Buffer) {
    if lines.is_empty() {
        let text = "nothing matches";
        Pen::new(buf, area, 0, theme.glyphs.ellipsis).gap(1).write(text, theme.style(Role::Dim));
    }
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

/// Entries that contain `filter`, whose case does not count, without headings; all lines where nothing is typed.
fn filtered(lines: Vec<Line>, filter: &str) -> Vec<Line> {
    if filter.is_empty() {
        return lines;
    }
    let wanted = filter.to_lowercase();
    let matches: HashSet<usize> = lines
        .chunk_by(|one, next| one.entry == next.entry)
        .filter(|lines| {
            let text: Vec<String> =
                lines.iter().map(|line| format!("{} {}", line.left, line.text).to_lowercase()).collect();
            text.join(" ").contains(&wanted)
        })
        .map(|lines| lines[0].entry)
        .filter(|entry| *entry > 0)
        .collect();
    lines.into_iter().filter(|line| matches.contains(&line.entry)).collect()
}

/// All lines: the keys of the view in `context` first.
fn lines(context: u16, width: u16, snapshot: Option<&Snapshot>) -> Vec<Line> {
    let width = usize::from(width).min(WIDTH_MAX);
    let mut lines = Vec::new();
    let is_here = |binding: &&Binding| binding.contexts & context != 0;
    let keys = || KEYS.iter().filter(|binding| !binding.help.is_empty());
    heading(&mut lines, "Keys here");
    for binding in keys().filter(is_here) {
        entry(&mut lines, &binding.names(), binding.help, Role::Plain, width);
    }
    heading(&mut lines, "Keys elsewhere");
    for binding in keys().filter(|binding| !is_here(binding)) {
        entry(&mut lines, &binding.names(), binding.help, Role::Plain, width);
    }
    entry(
        &mut lines,
        "mouse",
        "Selects rows and lines, sorts by titles, presses keys of the last line; the wheel scrolls",
        Role::Plain,
        width,
    );
    heading(&mut lines, "The header");
    for (left, text) in [
        ("CPU", "Busy time of the node's CPUs; a full bar means that all are busy."),
        (
            "MEM",
            "Memory of the node in two shades: used by programs and the kernel, then page cache; the rest is \
             free.",
        ),
        (
            "FINDINGS",
            "Critical (!), warnings (*), suspected (?) and notes of the last few minutes; f shows the \
             findings.",
        ),
        (
            "time bar",
            "Marks of a paused screen or a recording. R: 20 % of accesses are remote (r: 20 % of memory). F: a \
             finding begins. I: the lowest IPC. L: something was lost. G: samples are missing.",
        ),
        (
            "load",
            "Tasks that ran, waited for a CPU or slept uninterruptibly: means of 1, 5 and 15 minutes. Tasks wait \
             if their number exceeds the number of CPUs.",
        ),
        (
            "SWAP/s",
            "Pages read from and written to swap. Shown only while the machine swaps, which means that \
             memory is short.",
        ),
        ("self", "CPU time and memory of numatop-ng; 100% is one CPU."),
        (
            "lost",
            "Events that could not be counted, by cause, since the start. 0 means that nothing is missing.",
        ),
        ("-", "No value; the reason is shown below, or when sorting by the column. A 0 means measured zero."),
    ] {
        entry(&mut lines, left, text, Role::Plain, width);
    }
    let mut reasons = HashMap::new();
    for group in [Group::Identity, Group::Running, Group::Efficiency, Group::Memory] {
        heading(&mut lines, group.title());
        for metric in TASK_METRICS.iter().filter(|metric| metric.group == group) {
            describe(&mut lines, metric, snapshot, &mut reasons, width);
        }
    }
    counters(&mut lines, snapshot, width);
    heading(&mut lines, "Nodes");
    let as_of_tasks =
        |metric: &Metric<Node>| task::by_id(metric.id).is_some_and(|task| task.help == metric.help);
    for metric in NODE_METRICS.iter().filter(|metric| !as_of_tasks(metric)) {
        describe(&mut lines, metric, snapshot, &mut reasons, width);
    }
    heading(&mut lines, "Node to node");
    for metric in PAIR_METRICS {
        entry(&mut lines, metric.title, &format!("{} [{}]", metric.help, metric.id), Role::Plain, width);
        if let Some(said) = snapshot.and_then(|snapshot| metric.sources(snapshot)) {
            more(&mut lines, &said, Role::Plain, width);
        }
        unavailable(&mut lines, (metric.id, metric.title), snapshot, &mut reasons, width);
    }
    heading(&mut lines, "The host");
    for metric in &HOST_METRICS {
        entry(&mut lines, metric.title, &format!("{} [{}]", metric.help, metric.id), Role::Plain, width);
        unavailable(&mut lines, (metric.id, metric.title), snapshot, &mut reasons, width);
    }
    heading(&mut lines, "Containers");
    // Sums over tasks are described with those.
    for metric in CONTAINER_METRICS.iter().filter(|metric| task::by_id(metric.id).is_none()) {
        describe(&mut lines, metric, snapshot, &mut reasons, width);
    }
    lines
}

/// Titles of the first metrics that are unavailable, by reason.
type Reasons = HashMap<String, &'static str>;

fn describe<R>(
    lines: &mut Vec<Line>,
    metric: &'static Metric<R>,
    snapshot: Option<&Snapshot>,
    reasons: &mut Reasons,
    width: usize,
) {
    entry(lines, metric.title, &format!("{} [{}]", metric.help, metric.id), Role::Plain, width);
    unavailable(lines, (metric.id, metric.title), snapshot, reasons, width);
}

/// The reason why a metric has no value here: the first time in full, then as a reference to the first
/// metric.
fn unavailable(
    lines: &mut Vec<Line>,
    (id, title): (&str, &'static str),
    snapshot: Option<&Snapshot>,
    reasons: &mut Reasons,
    width: usize,
) {
    let Some(why) = snapshot.and_then(|snapshot| snapshot.host_missing(id)) else { return };
    let why = without_codes(without_attempt(&clean_str(&why.to_string())));
    let text = match reasons.get(&why) {
        Some(first) => format!("unavailable, as {first}"),
        None => format!("unavailable: {why}"),
    };
    reasons.entry(why).or_insert(title);
    more(lines, &text, Role::Warn, width);
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
        more(lines, &clean_str(event.tested.words()), role, width);
    }
}

fn heading(lines: &mut Vec<Line>, text: &str) {
    if !lines.is_empty() {
        lines.push(Line { left: String::new(), text: String::new(), role: Role::Title, entry: 0 });
    }
    lines.push(Line { left: String::new(), text: text.into(), role: Role::Title, entry: 0 });
}

/// An entry whose text is broken into lines at spaces.
fn entry(lines: &mut Vec<Line>, left: &str, text: &str, role: Role, width: usize) {
    let last = lines.iter().map(|line| line.entry).max().unwrap_or(0);
    broken(lines, left, (text, role), last + 1, width);
}

/// More text of the last entry.
fn more(lines: &mut Vec<Line>, text: &str, role: Role, width: usize) {
    let last = lines.iter().map(|line| line.entry).max().unwrap_or(0);
    broken(lines, "", (text, role), last, width);
}

fn broken(lines: &mut Vec<Line>, left: &str, (text, role): (&str, Role), entry: usize, width: usize) {
    let room = width.saturating_sub(INDENT + 1).max(10);
    let mut left = left.to_string();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            let full = std::mem::take(&mut line);
            lines.push(Line { left: std::mem::take(&mut left), text: full, role, entry });
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(Line { left, text: line, role, entry });
}
