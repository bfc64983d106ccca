//! The table of tasks: rows, columns, the followed task, and the search.

mod choice;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::choice::{matches, words};
use super::{Answer, Screen, Subject, is_below, untagged};
use crate::analysis::filter::RowFilter;
use crate::finding;
use crate::metric::Metric;
use crate::metric::identity::{self, COMM, PID, TID, user};
use crate::metric::placement::{MEM_BYTES_BY_NODE, MEM_PCT_BY_NODE};
use crate::metric::task::{self, TASK_METRICS};
use crate::model::process::ProcessId;
use crate::snapshot::{RowKind, Snapshot, Task, Tie};
use crate::source::Focus;
use crate::text::{clean, clean_str};
use crate::tui::history::Want;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, Effect, Rows, ScreenId};
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::columns;
use crate::tui::widgets::layout::below;
use crate::tui::widgets::list::{List, ListRow, Tabular};
use crate::tui::widgets::pen::Pen;
use crate::tui::widgets::picker::{Line, Pickable, Picker, Prompt, Purpose};
use crate::tui::widgets::table::{Look, Sort};

pub use self::choice::{Choice, Hidden};

/// The look at a task's memory is dim when it is older, ns.
const AGED_NS: u64 = 15_000_000_000;

pub struct Tasks {
    pub list: List<Task>,
    pub choice: Choice,
    pub threads: bool,
    pub follow: bool,
    /// The text that is searched for; empty for none.
    pub search: String,
}

impl Default for Tasks {
    fn default() -> Tasks {
        Tasks::new(Sort { metric: &task::CPU_PCT, reversed: false }, RowFilter::default(), None, false)
    }
}

impl Tasks {
    pub fn new(
        sort: Sort<Task>,
        filter: RowFilter,
        columns: Option<Vec<&'static Metric<Task>>>,
        threads: bool,
    ) -> Tasks {
        let mut list = List::new(sort);
        list.columns = columns;
        let choice = Choice { filter, ..Choice::default() };
        Tasks { list, choice, threads, follow: false, search: String::new() }
    }

    /// The selected task.
    pub fn selected<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Task> {
        self.list.selected(snapshot)
    }

    /// Filters in the words of the header, and the order unless a column shows it.
    pub fn facts(&self, snapshot: &Snapshot, width: u16) -> Vec<String> {
        let (choice, sorted) = (&self.choice, self.list.sort.metric);
        let columns = self.list.columns_at(width, snapshot);
        let is_hidden = !columns.placed.iter().any(|column| column.metric.id == sorted.id);
        let container = choice.container.map(|id| {
            let group = snapshot.names.groups.get(&id);
            group.map_or_else(|| id.to_string(), |group| group.name.clone())
        });
        let facts = [
            is_hidden.then(|| format!("by {}", sorted.title)),
            choice.filter.comm.as_ref().map(|comm| format!("name ~ {}", clean_str(comm.as_str()))),
            (!choice.text.is_empty()).then(|| format!("filter '{}'", choice.text)),
            choice.uid.map(|uid| format!("user {}", user(uid, snapshot))),
            container.map(|name| format!("in {name}")),
            choice.node.or(choice.filter.node).map(|node| format!("node {node} only")),
            (self.list.tags() > 0).then(|| format!("{} tagged", self.list.tags())),
        ];
        facts.into_iter().flatten().chain(choice.hidden.facts()).collect()
    }

    /// Processes in view, after those of `first`, and what their columns need.
    pub fn focus(&self, first: Option<ProcessId>, snapshot: &Snapshot, height: usize) -> Focus {
        let first = first.or_else(|| self.selected(snapshot).map(|task| task.raw.process()));
        let mut processes: Vec<ProcessId> = first.into_iter().collect();
        for key in self.list.in_view(height) {
            if !processes.contains(&key.process) {
                processes.push(key.process);
            }
        }
        let shown = self.list.columns.iter().flatten();
        let columns = shown.chain([&self.list.sort.metric]).chain(&self.list.name);
        Focus { processes: Some(processes), asked: identity::asked(columns), ..Focus::default() }
    }

    /// Drops search, filter and user, and returns whether there was any of them.
    pub fn drop_filters(&mut self) -> bool {
        let choice = &mut self.choice;
        let any = !choice.text.is_empty() || choice.uid.is_some() || !self.search.is_empty();
        choice.text.clear();
        choice.uid = None;
        self.search.clear();
        any
    }

    /// Shows tasks of all containers, or of all nodes, again. Returns where the one was chosen.
    pub fn leave(&mut self) -> Option<ScreenId> {
        if self.choice.container.take().is_some() {
            return Some(ScreenId::Containers);
        }
        self.choice.node.take().map(|_| ScreenId::Nodes)
    }

    /// Follows the selected task, or stops following.
    fn toggle_follow(&mut self, height: usize) {
        self.follow = !self.follow;
        if self.follow {
            self.list.select(self.list.cursor.at(), height);
        }
    }

    /// Selects the next match (`step` 1), the one before (-1), or the first from the selected row on (0).
    fn find(&mut self, step: isize, height: usize, state: &mut State) {
        let Some(snapshot) = state.snapshot.as_deref() else { return };
        if self.search.is_empty() {
            state.message = Some("no search yet: / starts one".into());
            return;
        }
        let rows = self.list.rows();
        let is_match = |at: &usize| matches(&snapshot.tasks[rows[*at].at], snapshot, &self.search);
        let found: Vec<usize> = (0..rows.len()).filter(is_match).collect();
        let here = self.list.cursor.at();
        // Ascending: the first at or after the selected row, or the last before it.
        let ahead = found.partition_point(|at| if step == 0 { *at < here } else { *at <= here });
        let next = match step {
            -1 => found.partition_point(|at| *at < here).checked_sub(1).or(found.len().checked_sub(1)),
            _ => (ahead < found.len()).then_some(ahead).or((!found.is_empty()).then_some(0)),
        };
        match next {
            Some(next) => {
                state.message = Some(format!("{} of {}", next + 1, found.len()));
                self.list.select(found[next], height);
            }
            None => state.message = Some(format!("nothing matches '{}'", self.search)),
        }
    }

    /// Shows command lines in place of names, or names again.
    fn toggle_command_lines(&mut self, state: &mut State) {
        let has_lines = |snapshot: &Snapshot| snapshot.tasks.iter().any(|task| task.about().is_some());
        if state.replay.is_some() && !state.snapshot().is_some_and(has_lines) {
            state.message = Some("this recording has no command lines (record --record-cmdline)".into());
            return;
        }
        self.list.name = match self.list.name {
            Some(_) => None,
            None => Some(&identity::CMDLINE),
        };
    }

    /// Hides rows of a kind, or shows them again.
    fn toggle(&mut self, rows: Rows, state: &mut State) {
        let hidden = self.choice.hidden.toggle(rows);
        state.message = Some(format!("{} are {}", words(rows), if hidden { "hidden" } else { "shown" }));
    }

    /// Users with rows, by name of who has most.
    fn users(&self, snapshot: &Snapshot) -> Picker {
        let mut rows: BTreeMap<u32, usize> = BTreeMap::new();
        for task in &snapshot.tasks {
            *rows.entry(task.raw.uid).or_default() += 1;
        }
        let mut users: Vec<(u32, usize)> = rows.into_iter().collect();
        users.sort_by_key(|(uid, rows)| (Reverse(*rows), *uid));
        let line = |uid: Option<u32>, rows: usize| Line {
            checked: None,
            is_available: true,
            name: uid.map_or_else(|| "everybody".into(), |uid| user(uid, snapshot)),
            note: format!("{rows} {}", if rows == 1 { "row" } else { "rows" }),
            what: Pickable::User(uid),
        };
        let everybody = line(None, snapshot.tasks.len());
        let lines = users.into_iter().map(|(uid, rows)| line(Some(uid), rows));
        let lines = std::iter::once(everybody).chain(lines).collect();
        Picker::new("Tasks of", lines, Some(Pickable::User(self.choice.uid)))
    }
}

impl Screen for Tasks {
    fn context(&self) -> u16 {
        context::TASKS
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        let (Some(snapshot), theme) = (state.snapshot(), &state.theme) else { return };
        let followed = self.list.cursor.selected().filter(|_| self.follow);
        self.list.draw(snapshot, theme, area, buf, |task| Look {
            ended: task.exited,
            aged: task.memory_age_ns(snapshot.mono_ns).is_some_and(|age| age > AGED_NS),
            followed: followed == Some(task.key()),
            severity: state
                .marks
                .get(&finding::Subject::Process(task.raw.pid, task.raw.leader_start_ns))
                .copied(),
            found: !self.search.is_empty() && matches(task, snapshot, &self.search),
            ..Look::default()
        });
        if self.list.rows().is_empty() {
            let text = match (snapshot.tasks.is_empty(), snapshot.host.scope.as_str()) {
                (false, _) => "no task matches: Esc clears filters; K, i and X show hidden rows".into(),
                (true, "") => "no task is in scope".to_owned(),
                (true, scope) => {
                    format!("no task is in scope: {} has ended, or has not started", clean_str(scope))
                }
            };
            Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(&text, theme.style(Role::Dim));
        }
    }

    fn list(&self, body: Rect, _state: &State) -> Rect {
        below(body, 1)
    }

    fn want(&self, want: &mut Want) {
        want.threads = self.threads;
    }

    fn arrange(&mut self, state: &State, height: usize) {
        let Some(snapshot) = state.snapshot() else { return };
        let wanted = self.list.cursor.selected();
        let (choice, top) = (&self.choice, self.choice.filter.top.unwrap_or(usize::MAX));
        self.list.arrange(snapshot, height, |task| choice.keeps(task, snapshot), top);
        // A followed task may have ended or be filtered out: no other one is followed in its place.
        self.follow &= self.list.cursor.selected() == wanted;
        if self.follow {
            self.list.cursor.reveal(height);
        }
    }

    /// The tasks of the row selected elsewhere.
    fn open(&mut self, subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        match subject {
            Some(Subject::Node(node)) => self.choice.node = Some(node),
            Some(Subject::Container(id, _)) => self.choice.container = Some(id),
            Some(Subject::Process(..) | Subject::Thread(..) | Subject::Socket(_)) | None => {}
        }
        Ok(None)
    }

    fn subject(&self, state: &State) -> Option<Subject> {
        let task = self.selected(state.snapshot()?)?;
        let (raw, name) = (&task.raw, clean(task.raw.comm.bytes()));
        Some(match task.tid {
            // The main thread's row leads to its process; so does that of threads that have ended.
            Some(tid) if tid != 0 && !task.leads() => {
                Subject::Thread(raw.process(), (tid, raw.start_ns), format!("{tid} {name}"))
            }
            _ => Subject::Process(raw.process(), format!("{} {name}", raw.pid)),
        })
    }

    fn leads_to(&self) -> Option<ScreenId> {
        Some(ScreenId::Detail)
    }

    fn table(&self) -> Option<&dyn Tabular> {
        Some(&self.list)
    }

    fn table_mut(&mut self) -> Option<&mut dyn Tabular> {
        Some(&mut self.list)
    }

    fn act(&mut self, action: Action, height: usize, state: &mut State) -> Answer {
        match action {
            Action::Threads => self.threads = !self.threads,
            Action::Tree => self.list.tree = !self.list.tree,
            Action::Fold => state.message = self.list.fold().err().map(String::from),
            Action::Follow => self.toggle_follow(height),
            Action::Tag => self.list.tag(height),
            Action::Untag => state.message = Some(untagged(self.list.untag())),
            Action::Hide(rows) => self.toggle(rows, state),
            Action::Bytes => {
                let is_on = self.list.instead_of.take().is_some();
                self.list.instead_of = (!is_on).then_some([&MEM_PCT_BY_NODE, &MEM_BYTES_BY_NODE]);
                let ids = [MEM_PCT_BY_NODE.id, MEM_BYTES_BY_NODE.id];
                let places = state.snapshot().map(|snapshot| self.list.places(state.area.width, snapshot).0);
                if places.is_some_and(|places| !places.iter().any(|place| ids.contains(&place.id))) {
                    let way = "Right scrolls to MEM BY NODE, F2 adds this column";
                    state.message = Some(format!("memory by node is not visible: {way}"));
                }
            }
            Action::CommandLine => self.toggle_command_lines(state),
            Action::Search => return Answer::Ask(Prompt::new(Purpose::Search, "")),
            Action::Filter => return Answer::Ask(Prompt::new(Purpose::Filter, &self.choice.text)),
            Action::SearchNext => self.find(1, height, state),
            Action::SearchPrevious => self.find(-1, height, state),
            Action::PickUser => {
                let users = state.snapshot().map(|snapshot| self.users(snapshot));
                return users.map_or(Answer::Done, Answer::Pick);
            }
            _ => return Answer::Ignored,
        }
        Answer::Done
    }

    /// Searching and filtering happen with every character.
    fn typed(&mut self, purpose: Purpose, text: &str, height: usize, state: &mut State) {
        match purpose {
            Purpose::Filter => self.choice.text = text.to_string(),
            Purpose::Search => {
                self.search = text.to_string();
                if !text.is_empty() {
                    self.find(0, height, state);
                }
            }
            Purpose::Interval | Purpose::Forward | Purpose::Backward | Purpose::Report | Purpose::Keep => {}
        }
    }

    fn picked(&mut self, what: Pickable) {
        if let Pickable::User(uid) = what {
            self.choice.uid = uid;
        }
    }
}

/// The identity of a row, for as long as the task lives and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    pub process: ProcessId,
    pub tid: Option<u32>,
}

impl ListRow for Task {
    type Key = RowKey;
    type Tie = Tie;
    const NAME: &'static str = COMM.id;
    const FIXED: &'static [&'static str] = &[PID.id, TID.id];

    fn metrics() -> &'static [Metric<Task>] {
        TASK_METRICS
    }

    fn all(snapshot: &Snapshot) -> &[Task] {
        &snapshot.tasks
    }

    fn key(&self) -> RowKey {
        RowKey { process: self.raw.process(), tid: self.tid }
    }

    fn tie(&self) -> Tie {
        Task::tie(self)
    }

    fn columns(width: u16, snapshot: &Snapshot, sorted: &str) -> Vec<&'static Metric<Task>> {
        columns::tasks_for(width, &snapshot.host, snapshot.grain != RowKind::Processes, sorted)
    }

    /// Threads are below their process, and a process is below its parent. A process whose parent is not
    /// shown is a root.
    fn parents(snapshot: &Snapshot, order: &[usize]) -> HashMap<usize, usize> {
        // Live tasks win over an ended one with the same id.
        let mut leaders: HashMap<u32, usize> = HashMap::with_capacity(order.len());
        for at in order {
            let task = &snapshot.tasks[*at];
            if task.leads() && (!task.exited || !leaders.contains_key(&task.raw.pid)) {
                leaders.insert(task.raw.pid, *at);
            }
        }
        let parent = |at: &usize| {
            let task = &snapshot.tasks[*at];
            let id = if task.leads() { task.raw.ppid } else { task.raw.pid };
            Some((*at, leaders.get(&id).copied().filter(|parent| parent != at)?))
        };
        order.iter().filter_map(parent).collect()
    }
}
