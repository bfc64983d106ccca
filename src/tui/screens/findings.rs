//! Findings: what is wrong here, what it costs, what to type, and which rules lack data.

mod draw;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Answer, Screen, Subject};
use crate::finding::{self, Finding, Severity, When};
use crate::model::process::ProcessId;
use crate::tui::history::conclusions::Conclusions;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, Effect, Motion, ScreenId};
use crate::tui::state::State;
use crate::tui::widgets::cursor::Cursor;

/// The part of the view that is on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    /// The list, and the selected finding in short.
    #[default]
    List,
    /// The selected finding in full.
    Details,
    /// Rules that could not look.
    BlindSpots,
}

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    /// The worst first, symptoms below their causes.
    #[default]
    Rank,
    /// The latest first.
    Since,
    /// By the subject.
    Subject,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Rank => Order::Since,
            Order::Since => Order::Subject,
            Order::Subject => Order::Rank,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Order::Rank => "worst first",
            Order::Since => "latest first",
            Order::Subject => "by subject",
        }
    }
}

/// A snoozed finding comes back when its first value is this many times as large.
const TWICE: f64 = 2.0;

#[derive(Default)]
pub struct Findings {
    shape: Shape,
    order: Order,
    /// Findings in the order of the list; a clone, because marks and order are those of an interval.
    rows: Vec<Finding>,
    keys: Vec<u64>,
    cursor: Cursor<u64>,
    /// First line in view of the details or of the blind spots.
    first: usize,
    /// Findings that were put aside, with the peak of each at the time.
    aside: BTreeMap<String, f64>,
    /// Asked for before there was an interval: the subject whose finding is to be selected.
    wanted: Option<finding::Subject>,
}

impl Findings {
    fn selected(&self) -> Option<&Finding> {
        self.rows.get(self.cursor.at())
    }

    /// Puts the findings of an interval in order.
    fn list_of(&self, now: &Conclusions) -> Vec<Finding> {
        let is_aside = |finding: &&Finding| {
            let peak = self.aside.get(&finding.key.to_string());
            peak.is_some_and(|then| finding.peak.unwrap_or(0.0) < then * TWICE)
        };
        let mut rows: Vec<Finding> = now.findings.iter().filter(|row| !is_aside(row)).cloned().collect();
        match self.order {
            Order::Rank => {}
            Order::Since => rows.sort_by_key(|row| std::cmp::Reverse(row.since_mono_ns)),
            Order::Subject => rows.sort_by(|a, b| a.key.subject.cmp(&b.key.subject)),
        }
        rows.extend(now.verdict.suspected().filter(|row| !is_aside(row)).cloned());
        rows.extend(now.ended.iter().cloned());
        rows
    }

    /// Commands of the selected finding that are for now, one a line.
    fn commands(&self) -> Option<String> {
        let commands = &self.selected()?.advice.commands;
        let now = commands.iter().filter(|command| command.when == When::Now);
        let lines: Vec<String> =
            now.filter_map(|command| command.line.as_ref()).map(ToString::to_string).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn copy(&self, state: &mut State) -> Option<Effect> {
        let Some(lines) = self.commands() else {
            state.message = Some("this finding has no command to copy".into());
            return None;
        };
        state.clipboard = Some(lines);
        state.message = Some("copied, if the terminal allows copying (OSC 52)".into());
        Some(Effect::Copy)
    }

    fn put_aside(&mut self, state: &mut State) {
        let Some(finding) = self.selected() else { return };
        if finding.severity == Severity::Critical {
            state.message = Some("a critical finding cannot be snoozed".into());
            return;
        }
        let (key, peak) = (finding.key.to_string(), finding.peak.unwrap_or(0.0));
        self.aside.insert(key, peak);
        state.message = Some("snoozed until its value doubles".into());
    }
}

/// A number for a key, the same in each interval.
fn key_of(finding: &Finding) -> u64 {
    let mut hasher = DefaultHasher::new();
    (finding.key.to_string(), finding.since_mono_ns).hash(&mut hasher);
    hasher.finish()
}

/// The subject as other views name it; `None` for the machine and its devices.
fn subject_of(finding: &Finding) -> Option<Subject> {
    let name = finding.identity.label.clone();
    match &finding.key.subject {
        finding::Subject::Process(pid, start_ns) => Some(Subject::Process((*pid, *start_ns), name)),
        // Its leader has the details.
        finding::Subject::Group(pid, start_ns) => Some(Subject::Process((*pid, *start_ns), name)),
        finding::Subject::Container(id) => Some(Subject::Container(*id, name)),
        finding::Subject::Node(node) => Some(Subject::Node(*node)),
        finding::Subject::Socket(id) => Some(Subject::Socket(*id)),
        finding::Subject::Host | finding::Subject::Device(_) => None,
    }
}

impl Screen for Findings {
    fn context(&self) -> u16 {
        let covered = if self.shape == Shape::List { 0 } else { context::COVERED };
        context::FINDINGS | covered
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        match (self.shape, self.selected()) {
            (Shape::Details, Some(finding)) => draw::whole(finding, self.first, &state.theme, area, buf),
            (Shape::BlindSpots, _) => {
                draw::blind_spots(&state.conclusions, self.first, &state.theme, area, buf);
            }
            _ => draw::list(&self.rows, &self.cursor, state, area, buf),
        }
    }

    fn is_compact(&self) -> bool {
        self.shape != Shape::List
    }

    fn list(&self, body: Rect, _state: &State) -> Rect {
        match self.shape {
            Shape::List => draw::rows_of(body, self.rows.len()),
            Shape::Details | Shape::BlindSpots => body,
        }
    }

    fn arrange(&mut self, state: &State, height: usize) {
        self.rows = self.list_of(&state.conclusions);
        self.keys = self.rows.iter().map(key_of).collect();
        self.cursor.settle(&self.keys, height);
        if let Some(wanted) = &self.wanted {
            let Some(at) = self.rows.iter().position(|row| row.key.subject == *wanted) else { return };
            self.cursor.select(at, &self.keys, height);
            self.wanted = None;
        }
    }

    /// At the first finding of the row selected elsewhere.
    fn open(&mut self, subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        self.shape = Shape::List;
        self.wanted = match subject {
            Some(Subject::Process((pid, start_ns), _)) => Some(finding::Subject::Process(pid, start_ns)),
            Some(Subject::Thread((pid, start_ns), ..)) => Some(finding::Subject::Process(pid, start_ns)),
            Some(Subject::Container(id, _)) => Some(finding::Subject::Container(id)),
            Some(Subject::Node(node)) => Some(finding::Subject::Node(node)),
            Some(Subject::Socket(id)) => Some(finding::Subject::Socket(id)),
            None => None,
        };
        Ok(None)
    }

    fn step_out(&mut self) -> bool {
        let was_open = self.shape != Shape::List;
        (self.shape, self.first) = (Shape::List, 0);
        was_open
    }

    fn subject(&self, _state: &State) -> Option<Subject> {
        subject_of(self.selected()?)
    }

    fn leads_to(&self) -> Option<ScreenId> {
        match subject_of(self.selected()?)? {
            Subject::Process(..) | Subject::Thread(..) => Some(ScreenId::Detail),
            Subject::Container(..) | Subject::Node(_) => Some(ScreenId::Tasks),
            Subject::Socket(_) => Some(ScreenId::Nodes),
        }
    }

    fn process(&self) -> Option<ProcessId> {
        match &self.selected()?.key.subject {
            finding::Subject::Process(pid, start_ns) | finding::Subject::Group(pid, start_ns) => {
                Some((*pid, *start_ns))
            }
            _ => None,
        }
    }

    fn go(&mut self, motion: Motion, height: usize, state: &State) {
        let lines = match (self.shape, self.selected()) {
            (Shape::List, _) => return self.cursor.go(motion, &self.keys, height),
            (Shape::Details, Some(finding)) => draw::lines_of(finding, state.area.width).len(),
            (Shape::Details, None) => 0,
            (Shape::BlindSpots, _) => draw::lines_of_blind_spots(&state.conclusions, state.area.width).len(),
        };
        self.first = motion.of_view(self.first, lines, height);
    }

    fn select(&mut self, line: usize, height: usize) {
        if self.shape == Shape::List {
            self.cursor.select(self.cursor.offset() + line, &self.keys, height);
        }
    }

    fn act(&mut self, action: Action, _height: usize, state: &mut State) -> Answer {
        let toggled = |shape: Shape, to: Shape| if shape == to { Shape::List } else { to };
        match action {
            Action::Open if self.rows.is_empty() => {}
            Action::Open => (self.shape, self.first) = (toggled(self.shape, Shape::Details), 0),
            Action::BlindSpots => (self.shape, self.first) = (toggled(self.shape, Shape::BlindSpots), 0),
            Action::CopyCommands => return Answer::Effect(self.copy(state)),
            Action::PutAside => self.put_aside(state),
            Action::PickSort => {
                self.order = self.order.next();
                state.message = Some(format!("sorted: {}", self.order.words()));
            }
            Action::GoTo if self.selected().is_some_and(|finding| subject_of(finding).is_none()) => {
                state.message = Some("the finding is about the whole machine".into());
            }
            Action::SortLeft | Action::SortRight | Action::Invert | Action::PickEvents => {}
            _ => return Answer::Ignored,
        }
        Answer::Done
    }
}
