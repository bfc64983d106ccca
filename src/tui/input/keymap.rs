//! The table of keys. Help and footer are printed from it.

use context::*;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Action, Motion, Rows, ScreenId, Seek};
use crate::metric::task;

/// Where a key works; bits, because most keys work in several places.
pub mod context {
    /// While paused; what keys mean there comes before what they mean elsewhere.
    pub const PAUSED: u16 = 1;
    pub const TASKS: u16 = 2;
    pub const NODES: u16 = 4;
    pub const DETAIL: u16 = 8;
    pub const HELP: u16 = 16;
    pub const PICKER: u16 = 32;
    pub const PROMPT: u16 = 64;
    /// The picker of columns, in which more can be done than choosing.
    pub const COLUMNS: u16 = 128;
    /// While a recording is shown; what keys mean there comes before what they mean elsewhere, too.
    pub const REPLAY: u16 = 256;
    pub const CONTAINERS: u16 = 512;
    /// Contexts with a time bar.
    pub const TIMELINE: u16 = PAUSED | REPLAY;
    /// The hot spots of something.
    pub const HOT: u16 = 1024;
    /// The cost of numatop-ng itself.
    pub const OVERHEAD: u16 = 2048;
    pub const FINDINGS: u16 = 4096;
    /// Numbers over many intervals.
    pub const SUMMARY: u16 = 8192;
    /// Where one finding, or the rules without data, cover the table; what keys mean there comes first.
    pub const COVERED: u16 = 16384;
    /// Where rows of the table are tagged; what keys mean there comes before what they mean elsewhere.
    pub const TAGGED: u16 = 32768;
    /// The screens with a table of their own.
    pub const TABLES: u16 = TASKS | NODES | CONTAINERS | FINDINGS;
    pub const SCREENS: u16 = TABLES | DETAIL;
    /// Where letters move; in a list to choose from they are typed.
    pub const LISTS: u16 = SCREENS | HELP | HOT | SUMMARY;
    pub const ALL: u16 = LISTS | PICKER | PROMPT | OVERHEAD;
}

/// A key with its modifiers. A character contains Shift already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub KeyCode, pub KeyModifiers);

const fn ch(c: char) -> Key {
    key(KeyCode::Char(c))
}

const fn ctrl(c: char) -> Key {
    Key(KeyCode::Char(c), KeyModifiers::CONTROL)
}

const fn shift(code: KeyCode) -> Key {
    Key(code, KeyModifiers::SHIFT)
}

const fn key(code: KeyCode) -> Key {
    Key(code, KeyModifiers::NONE)
}

/// One line of the table.
pub struct Binding {
    /// Bits of [`context`].
    pub contexts: u16,
    /// Help and footer name the first key first.
    pub keys: &'static [Key],
    pub action: Action,
    /// One word for the footer; empty when it is not worth the room.
    pub label: &'static str,
    /// For the help; empty when the line before describes both.
    pub help: &'static str,
}

const fn bind(
    contexts: u16,
    keys: &'static [Key],
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    Binding { contexts, keys, action, label, help }
}

/// All keys, in the order of help and footer.
pub static KEYS: &[Binding] = &[
    bind(
        SCREENS | HOT | OVERHEAD,
        &[key(KeyCode::F(1)), ch('?'), ch('h')],
        Action::Help,
        "Help",
        "This help",
    ),
    bind(
        TABLES,
        &[key(KeyCode::Enter)],
        Action::Open,
        "Open",
        "Details of the task; on Nodes and Containers: their tasks",
    ),
    bind(
        TASKS,
        &[key(KeyCode::Tab)],
        Action::NextScreen,
        "Nodes",
        "The next screen: tasks, nodes, containers, findings",
    ),
    bind(NODES, &[key(KeyCode::Tab)], Action::NextScreen, "Containers", ""),
    bind(CONTAINERS, &[key(KeyCode::Tab)], Action::NextScreen, "Findings", "Containers: go to findings"),
    bind(TABLES | DETAIL, &[ch('1')], Action::Show(ScreenId::Tasks), "", "Tasks"),
    bind(TABLES | DETAIL, &[ch('2')], Action::Show(ScreenId::Nodes), "", "Nodes"),
    bind(TABLES | DETAIL, &[ch('3')], Action::Show(ScreenId::Containers), "", "Containers"),
    bind(TABLES | DETAIL, &[ch('4')], Action::Show(ScreenId::Findings), "", "Findings"),
    bind(
        TASKS | NODES | CONTAINERS | DETAIL,
        &[ch('f')],
        Action::Findings,
        "Findings",
        "Findings, at the first finding of the selected row",
    ),
    bind(FINDINGS, &[ch('y')], Action::CopyCommands, "Copy", "Findings: copy the commands to the clipboard"),
    bind(FINDINGS, &[ch('w')], Action::GoTo, "Go to row", "Findings: go to the row of the finding"),
    bind(FINDINGS, &[ch('a')], Action::PutAside, "Snooze", "Findings: snooze until its value doubles"),
    bind(FINDINGS, &[ch('v')], Action::BlindSpots, "No data", "Findings: rules without data, and why"),
    bind(FINDINGS, &[key(KeyCode::Tab)], Action::NextScreen, "Tasks", "Findings: back to tasks"),
    bind(
        NODES,
        &[ch('x')],
        Action::Matrix,
        "Matrix",
        "Nodes: the next node-to-node matrix; then sockets and L3 domains; then the table",
    ),
    bind(
        NODES,
        &[ch('v')],
        Action::OverTime,
        "Over time",
        "Nodes: CPU and remote share of each node over time; then each CPU (like 1 in top); then the table",
    ),
    bind(CONTAINERS, &[ch('c')], Action::Scope, "Scope", "Watch only the selected container, or all again"),
    bind(SCREENS, &[ch('C')], Action::Unscope, "", "Clear the scope set with c"),
    bind(
        TASKS,
        &[ch('/'), key(KeyCode::F(3))],
        Action::Search,
        "Search",
        "Search names, cgroups, pids as you type",
    ),
    bind(
        HELP,
        &[ch('/'), key(KeyCode::F(3)), ch('\\'), key(KeyCode::F(4))],
        Action::Filter,
        "Filter",
        "Help: filter the lines; other letters start the filter at once",
    ),
    bind(TASKS, &[ch('n')], Action::SearchNext, "", "Next match (N: previous match)"),
    bind(TASKS, &[ch('N')], Action::SearchPrevious, "", ""),
    bind(
        TASKS,
        &[ch('\\'), key(KeyCode::F(4))],
        Action::Filter,
        "Filter",
        "Show only rows that match: names, user:ada, node:2, ipc<0.5",
    ),
    bind(TASKS, &[ch('u')], Action::PickUser, "", "Show only one user's tasks"),
    bind(
        TASKS | CONTAINERS,
        &[ch(' '), key(KeyCode::Insert)],
        Action::Tag,
        "Tag",
        "Tag or untag the row (in a recording only with Insert); filters do not hide tagged rows",
    ),
    bind(TAGGED, &[ch('U')], Action::Untag, "Untag", "With tags: untag all rows"),
    bind(TASKS, &[ch('K')], Action::Hide(Rows::Kernel), "", "Hide or show kernel threads"),
    bind(
        TASKS,
        &[ch('i')],
        Action::Hide(Rows::Idle),
        "",
        "Hide or show tasks that did not run in the interval",
    ),
    bind(TASKS, &[ch('X')], Action::Hide(Rows::Ended), "", "Hide or show tasks that ended"),
    bind(TABLES, &[key(KeyCode::F(6)), ch('s')], Action::PickSort, "Sort", "Sort by any metric"),
    bind(
        TABLES,
        &[ch('<'), ch(',')],
        Action::SortLeft,
        "",
        "Sort by the column to the left, or scroll a matrix left (>: to the right)",
    ),
    bind(TABLES, &[ch('>'), ch('.')], Action::SortRight, "", ""),
    bind(TABLES, &[ch('I')], Action::Invert, "", "Reverse the order"),
    bind(TASKS, &[ch('P')], Action::SortBy(task::CPU_PCT.id), "", "Sort by CPU%"),
    bind(TASKS, &[ch('M')], Action::SortBy(task::RSS_BYTES.id), "", "Sort by resident memory"),
    bind(TASKS, &[ch('T')], Action::SortBy(task::CPU_NS.id), "", "Sort by CPU time"),
    bind(TASKS, &[ch('c')], Action::CommandLine, "", "Show command lines in place of names, or names again"),
    bind(TASKS, &[ch('b')], Action::Bytes, "", "Show memory by node in bytes, or as shares again"),
    bind(
        TASKS | NODES,
        &[key(KeyCode::F(2)), ch('|')],
        Action::PickColumns,
        "",
        "Tasks, nodes: select columns and their order",
    ),
    bind(
        TASKS | NODES | CONTAINERS,
        &[key(KeyCode::Right)],
        Action::ScrollRight,
        "",
        "Scroll columns right (Left: scroll left); in a recording, go to the next or previous sample",
    ),
    bind(TASKS | NODES | CONTAINERS, &[key(KeyCode::Left)], Action::ScrollLeft, "", ""),
    bind(
        TABLES,
        &[ch('W')],
        Action::Keep,
        "",
        "Save columns, order, rows, interval and screen as defaults, after confirmation",
    ),
    bind(TABLES, &[ch('E')], Action::PickEvents, "", "Select CPU counters"),
    bind(
        DETAIL,
        &[ch('m')],
        Action::Mappings,
        "Mappings",
        "Details: mappings and their nodes; again: threads",
    ),
    bind(
        DETAIL,
        &[ch('M')],
        Action::WalkMappings,
        "",
        "Mappings: count every page and read policies, after confirmation",
    ),
    bind(
        DETAIL,
        &[ch('l')],
        Action::ContendedLines,
        "",
        "Details: contended cache lines, with the code of both sides",
    ),
    bind(
        DETAIL,
        &[ch('a')],
        Action::Objects,
        "",
        "Details: memory in use, by the code that touched it first",
    ),
    bind(
        DETAIL,
        &[ch('u')],
        Action::MemoryUse,
        "Use",
        "Details: sample memory use by mapping until the view is closed",
    ),
    bind(
        SCREENS,
        &[ch('U')],
        Action::Sampling,
        "",
        "Start or stop sampling accesses of processes on the screen; costs at most 1% of a CPU",
    ),
    bind(TASKS, &[ch('H')], Action::Threads, "Threads", "Show threads, or processes again"),
    bind(
        TASKS | CONTAINERS,
        &[key(KeyCode::F(5)), ch('t'), ch('e')],
        Action::Tree,
        "Tree",
        "Tree by parent, or by cgroup with totals",
    ),
    bind(TASKS | CONTAINERS, &[ch('z')], Action::Fold, "", "Tree: fold or unfold the selected branch"),
    bind(TASKS, &[ch('F')], Action::Follow, "", "Follow: keep the selected task in view"),
    bind(
        SCREENS,
        &[ch('p')],
        Action::Hot,
        "Hot",
        "Hot spots (profile) of the task or container; on Nodes: of all tasks",
    ),
    bind(
        HOT,
        &[key(KeyCode::Tab), ch('v')],
        Action::HotShape,
        "View",
        "Hot spots: view as flat, callees, callers",
    ),
    bind(
        HOT,
        &[key(KeyCode::Enter), ch('z')],
        Action::Fold,
        "Fold",
        "Hot spots: fold or unfold the callees of a function",
    ),
    bind(HOT, &[ch('r')], Action::HotRestart, "Restart", "Hot spots: restart"),
    bind(
        SCREENS,
        &[ch('S')],
        Action::Show(ScreenId::Summary),
        "",
        "Median, P95 (P5 where less is worse) and worst value of the machine and its nodes, over the recording or since the start",
    ),
    bind(
        SUMMARY,
        &[key(KeyCode::Enter)],
        Action::Open,
        "Go to it",
        "Summary: go to the worst interval of the selected number",
    ),
    bind(SCREENS, &[ch('o')], Action::Overhead, "", "The cost of numatop-ng itself, by BPF program"),
    bind(
        SCREENS,
        &[ch('R')],
        Action::WritePage,
        "",
        "Save an HTML report of the last 10 min in this directory; asks for a name",
    ),
    bind(
        SCREENS,
        &[ch('Z')],
        Action::Pause,
        "Pause",
        "Pause the screen, not the measurement; again: back to now",
    ),
    bind(PAUSED, &[ch('Z')], Action::Pause, "Now", ""),
    bind(
        SCREENS,
        &[ch('['), shift(KeyCode::Left)],
        Action::Rewind,
        "",
        "History: pause at the previous interval; ] or Shift-Right: the next",
    ),
    bind(SCREENS, &[ch(']'), shift(KeyCode::Right)], Action::Latest, "", ""),
    bind(
        TIMELINE,
        &[ch(']'), shift(KeyCode::Right), ch('t')],
        Action::Seek(Seek::Next),
        "Next",
        "Paused or in a recording: go to the next sample ([, Shift-Left or T: to the previous)",
    ),
    bind(TIMELINE, &[ch('['), shift(KeyCode::Left), ch('T')], Action::Seek(Seek::Previous), "", ""),
    bind(
        REPLAY,
        &[key(KeyCode::Right)],
        Action::Seek(Seek::Next),
        "",
        "In a recording: go to the next sample (Left: to the previous)",
    ),
    bind(REPLAY, &[key(KeyCode::Left)], Action::Seek(Seek::Previous), "", ""),
    bind(
        TIMELINE,
        &[ch('j')],
        Action::AskForward,
        "Jump",
        "Paused or in a recording: jump to a time, or ahead by a duration such as 5m or 1h (J: back)",
    ),
    bind(TIMELINE, &[ch('J')], Action::AskBackward, "", ""),
    bind(
        TIMELINE,
        &[ch('}')],
        Action::NextMark,
        "Mark",
        "Paused or in a recording: go to the next mark of the time bar ({: to the previous)",
    ),
    bind(TIMELINE, &[ch('{')], Action::PreviousMark, "", ""),
    bind(
        TIMELINE,
        &[key(KeyCode::Home)],
        Action::Seek(Seek::Start),
        "",
        "Paused or in a recording: go to the first sample (End: to the last)",
    ),
    bind(TIMELINE, &[key(KeyCode::End)], Action::Seek(Seek::End), "", ""),
    bind(REPLAY, &[ch(' ')], Action::PlayPause, "Play", "Recording: play or pause"),
    bind(
        REPLAY,
        &[ch('+'), ch('=')],
        Action::Faster,
        "",
        "Recording: play faster, 1 to 60 times; '-' plays slower",
    ),
    bind(REPLAY, &[ch('-')], Action::Slower, "", ""),
    bind(SCREENS, &[ch('+'), ch('=')], Action::Slower, "", "Longer interval; -: shorter"),
    bind(SCREENS, &[ch('-')], Action::Faster, "", ""),
    bind(SCREENS, &[ch('d')], Action::AskInterval, "", "Type an interval, 0.1 to 60 seconds"),
    bind(
        LISTS | PICKER | PROMPT,
        &[key(KeyCode::Up)],
        Action::Move(Motion::Up),
        "",
        "Move up (Down: move down); k and j do the same, except in text fields",
    ),
    bind(LISTS | PICKER | PROMPT, &[key(KeyCode::Down)], Action::Move(Motion::Down), "", ""),
    bind(LISTS, &[ch('k')], Action::Move(Motion::Up), "", "Up; j: down"),
    bind(LISTS, &[ch('j')], Action::Move(Motion::Down), "", ""),
    bind(
        LISTS | PICKER | PROMPT,
        &[key(KeyCode::PageUp), ctrl('b')],
        Action::Move(Motion::PageUp),
        "",
        "A page up; PgDn: down",
    ),
    bind(
        LISTS | PICKER | PROMPT,
        &[key(KeyCode::PageDown), ctrl('f')],
        Action::Move(Motion::PageDown),
        "",
        "",
    ),
    bind(HELP, &[ch(' ')], Action::Move(Motion::PageDown), "", "Help: a page down"),
    bind(LISTS | PICKER, &[key(KeyCode::Home)], Action::Move(Motion::First), "", "First row; End: last"),
    bind(LISTS | PICKER, &[key(KeyCode::End)], Action::Move(Motion::Last), "", ""),
    bind(LISTS, &[ch('g')], Action::Move(Motion::First), "", "First row; G: last"),
    bind(LISTS, &[ch('G')], Action::Move(Motion::Last), "", ""),
    bind(COLUMNS, &[key(KeyCode::Enter)], Action::Accept, "Done", "Columns: close"),
    bind(PICKER, &[key(KeyCode::Enter)], Action::Accept, "Select", "Picker: type to filter, Enter selects"),
    bind(COLUMNS, &[ch(' ')], Action::Toggle, "Toggle", "Columns: show or hide"),
    bind(COLUMNS, &[ch('[')], Action::Earlier, "Left", "Columns: move the column left (]: right)"),
    bind(COLUMNS, &[ch(']')], Action::Later, "Right", ""),
    bind(COLUMNS, &[ctrl('r')], Action::Reset, "Automatic", "Columns: restore automatic columns"),
    bind(PROMPT, &[key(KeyCode::Enter)], Action::Accept, "Confirm", "Prompt: confirm"),
    bind(
        PROMPT | PICKER,
        &[key(KeyCode::Backspace), ctrl('h')],
        Action::Erase,
        "",
        "Prompt, picker: erase a character; Ctrl-U: all",
    ),
    bind(PROMPT | PICKER, &[ctrl('u')], Action::EraseAll, "", ""),
    bind(ALL, &[ctrl('l')], Action::Redraw, "", "Redraw the screen"),
    bind(ALL, &[ctrl('z')], Action::Suspend, "", "Suspend; fg resumes"),
    bind(
        DETAIL | HELP | HOT | OVERHEAD | SUMMARY,
        &[key(KeyCode::Esc), ch('q')],
        Action::Back,
        "Back",
        "Close the open window or view",
    ),
    bind(COVERED, &[key(KeyCode::Esc), ch('q')], Action::Back, "Back", ""),
    bind(HELP, &[key(KeyCode::F(1)), ch('?'), ch('h')], Action::Back, "", "Help: close"),
    bind(PICKER | PROMPT, &[key(KeyCode::Esc)], Action::Back, "Cancel", ""),
    bind(TABLES, &[key(KeyCode::Esc)], Action::Back, "", "On a table: clear search and filters"),
    bind(TABLES, &[ch('q')], Action::Quit, "Quit", "Quit"),
    bind(ALL, &[key(KeyCode::F(10)), ctrl('c')], Action::Quit, "", "Quit from anywhere"),
];

/// The meaning of a key where these bits of [`context`] hold.
pub fn action(event: KeyEvent, contexts: u16) -> Option<Action> {
    if event.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    let pressed = Key::of(event);
    let find = |bits| KEYS.iter().find(|line| line.contexts & bits != 0 && line.keys.contains(&pressed));
    // Keys of the list of columns come before those of all lists.
    let special = [COVERED, TAGGED, REPLAY, PAUSED, COLUMNS].into_iter().find_map(|bit| find(contexts & bit));
    match (special.or_else(|| find(contexts)), event.code) {
        (Some(line), _) => Some(line.action),
        (None, KeyCode::Char(c)) if contexts & (PROMPT | PICKER | HELP) != 0 && pressed.1.is_empty() => {
            Some(Action::Type(c))
        }
        _ => None,
    }
}

impl Key {
    /// The key of an event.
    pub fn of(event: KeyEvent) -> Key {
        let shift = match event.code {
            KeyCode::Char(_) => KeyModifiers::NONE,
            _ => KeyModifiers::SHIFT,
        };
        Key(event.code, event.modifiers & (KeyModifiers::CONTROL | shift))
    }

    /// As the key is labelled.
    pub fn name(self) -> String {
        let name = match self.0 {
            KeyCode::Char(' ') => "Space".into(),
            KeyCode::Char(c) if !self.1.is_empty() => c.to_ascii_uppercase().to_string(),
            KeyCode::Char(c) => c.to_string(),
            KeyCode::F(n) => format!("F{n}"),
            KeyCode::PageUp => "PgUp".into(),
            KeyCode::PageDown => "PgDn".into(),
            KeyCode::BackTab => "Shift-Tab".into(),
            code => format!("{code:?}"),
        };
        match self.1 {
            KeyModifiers::CONTROL => format!("Ctrl-{name}"),
            KeyModifiers::SHIFT if self.0 != KeyCode::BackTab => format!("Shift-{name}"),
            _ => name,
        }
    }
}

impl Binding {
    /// Its keys as help shows them.
    pub fn names(&self) -> String {
        self.keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_one_thing_in_one_place() {
        for bit in (0..16).map(|shift| 1u16 << shift) {
            let here: Vec<&Key> =
                KEYS.iter().filter(|line| line.contexts & bit != 0).flat_map(|line| line.keys).collect();
            for (i, key) in here.iter().enumerate() {
                assert!(!here[..i].contains(key), "{} is bound twice where {bit}", key.name());
            }
        }
    }

    #[test]
    fn capital_t_sorts_by_time_except_while_paused() {
        let press = |contexts| action(KeyEvent::new(KeyCode::Char('T'), KeyModifiers::SHIFT), contexts);
        assert_eq!(press(TASKS), Some(Action::SortBy(task::CPU_NS.id)));
        assert_eq!(press(TASKS | PAUSED), Some(Action::Seek(Seek::Previous)));
    }

    #[test]
    fn q_closes_what_covers_the_findings_and_quits_from_the_table() {
        let press = |contexts| action(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE), contexts);
        assert_eq!(press(FINDINGS), Some(Action::Quit));
        assert_eq!(press(FINDINGS | COVERED), Some(Action::Back));
    }

    #[test]
    fn a_prompt_takes_characters_but_ctrl_c_still_quits() {
        let press = |code, modifiers| action(KeyEvent::new(code, modifiers), PROMPT);
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Action::Type('q')));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
    }

    #[test]
    fn help_describes_every_line_or_the_one_before_does() {
        assert!(!KEYS[0].help.is_empty());
        for pair in KEYS.windows(2) {
            assert!(!(pair[0].help.is_empty() && pair[1].help.is_empty()), "{}", pair[1].names());
        }
    }
}
