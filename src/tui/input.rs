//! Actions that input asks for, and effects that an update asks the loop for. Keys are in `keymap`.

pub mod keymap;
pub mod unbound;

use std::time::Duration;

/// One thing a user can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    /// Close the open view; without one, drop search and filters.
    Back,
    Move(Motion),
    Show(ScreenId),
    NextScreen,
    /// Have the kernel watch the selected container only.
    Scope,
    /// Back to the scope of the command line.
    Unscope,
    /// Hot spots of the selected row.
    Hot,
    /// The next way to show them: functions, callees, callers.
    HotShape,
    /// Forget the samples so far.
    HotRestart,
    /// The cost of numatop-ng itself.
    Overhead,
    /// Findings, at the first one of the selected row.
    Findings,
    /// Rules that could not look.
    BlindSpots,
    /// Commands of the selected finding, to the clipboard of the terminal.
    CopyCommands,
    /// The selected finding is not shown until it is twice as bad.
    PutAside,
    /// To the row that the selected finding is about.
    GoTo,
    /// Go into the selected row.
    Open,
    Threads,
    /// Mappings of the process instead of its threads.
    Mappings,
    /// Count every page of them.
    WalkMappings,
    /// Contended cache lines of the process instead of its threads.
    ContendedLines,
    /// Memory of the process by the code that touched it first instead of its threads.
    Objects,
    MemoryUse,
    /// Turn sampling accesses of processes that matter on the screen on or off.
    Sampling,
    Tree,
    /// Hide rows of a kind, or show them again.
    Hide(Rows),
    /// Command lines in place of names, or names again.
    CommandLine,
    /// Memory by node in bytes in place of shares, or shares again.
    Bytes,
    /// Columns to the left or to the right of those on the screen.
    ScrollLeft,
    ScrollRight,
    /// The table of nodes, or the matrix from node to node.
    Matrix,
    /// Shades of nodes over time, or the table of nodes.
    OverTime,
    Fold,
    Follow,
    /// Tag the selected row, or remove its tag.
    Tag,
    /// Remove all tags.
    Untag,
    Pause,
    /// Pause at the previous interval.
    Rewind,
    /// Past the newest interval.
    Latest,
    /// In a recording, or in the kept samples while paused.
    Seek(Seek),
    /// To the next moment that is worth a look, or to the one before.
    NextMark,
    PreviousMark,
    PlayPause,
    AskForward,
    AskBackward,
    Slower,
    Faster,
    AskInterval,
    /// Ask for the name of a new file, for a report of the samples that are kept.
    WritePage,
    Search,
    SearchNext,
    SearchPrevious,
    Filter,
    PickUser,
    PickEvents,
    PickColumns,
    PickSort,
    /// Ask whether to keep the choices as settings of the user.
    Keep,
    SortBy(&'static str),
    SortLeft,
    SortRight,
    Invert,
    /// In a prompt or a picker.
    Accept,
    Toggle,
    Earlier,
    Later,
    Reset,
    Erase,
    EraseAll,
    Type(char),
    /// At this column and row of the screen.
    Click(u16, u16),
}

/// Rows of tasks that can be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Kernel threads.
    Kernel,
    /// Tasks that did not run in the interval.
    Idle,
    /// Tasks that ended.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    WheelUp,
    WheelDown,
}

impl Motion {
    /// Where a view of `height` lines over `rows` begins after it, if it began at `offset`.
    pub fn of_view(self, offset: usize, rows: usize, height: usize) -> usize {
        let last = rows.saturating_sub(height.max(1));
        let page = height.saturating_sub(1).max(1);
        let moved = match self {
            Motion::Up | Motion::WheelUp => offset.saturating_sub(1),
            Motion::Down | Motion::WheelDown => offset + 1,
            Motion::PageUp => offset.saturating_sub(page),
            Motion::PageDown => offset + page,
            Motion::First => 0,
            Motion::Last => last,
        };
        moved.min(last)
    }
}

/// Where to go in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    Next,
    Previous,
    Start,
    End,
    /// The last sample at or before this wall clock, ns since 1970.
    To(i64),
    /// Play at this many times the original speed, or stop.
    Play(Option<u32>),
}

/// All views; the list of them is in `screens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenId {
    Tasks,
    Nodes,
    Containers,
    Findings,
    Detail,
    Hot,
    Overhead,
    Summary,
    Help,
}

/// Something for the loop to do after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    /// Give the terminal back and stop, as Ctrl-Z does.
    Suspend,
    /// Draw every cell again.
    Redraw,
    /// Write the choices to the file of settings.
    Keep,
    /// Hand the text for the clipboard to the terminal.
    Copy,
    SetInterval(Duration),
    /// Watch the cgroup of this id only; `None`: what the command line asked for.
    SetScope(Option<u64>),
    Seek(Seek),
    /// Read the facts of this process from /proc: id and start time in ns since boot.
    Inspect(u32, u64),
    /// Count this set of events.
    SetEvents(&'static str),
    /// Find out where the mappings of a process are, from a sample of its pages or from all.
    Map {
        process: (u32, u64),
        rss_bytes: u64,
        exact: bool,
    },
    /// Begin to sample stacks, or end it.
    SetHot(bool),
    /// Begin to sample which memory is used, or end it.
    SetAccess(bool),
    /// Begin to keep statistics on our own programs, or end it.
    SetStatistics(bool),
    /// Write a report of the samples that are kept, into the file that the state names.
    WritePage,
}
