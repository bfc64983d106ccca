//! Findings: conclusions from measured values, with evidence, a gain, and commands. Nothing here acts.

#![warn(missing_docs)]

mod cache_owner;
pub mod causes;
pub mod command;
pub mod cores;
pub mod details;
pub mod diagnosis;
pub mod engine;
pub mod env;
pub mod fit;
pub mod gain;
pub mod guards;
pub mod history;
mod hold;
pub mod json;
pub mod moves;
pub mod redact;
pub mod rule;
pub mod rules;
pub mod text;
pub mod verdict;
pub mod view;

use std::fmt;

pub use command::{Command, Scope, ShellLine, When};
pub use engine::{Change, Engine, Options, Summary};
pub use gain::{Arithmetic, Assumption, Gain};
pub use rule::{Blindness, Conclusion, Condition, Hold, Judge, Limit, Reason, Rule, Seen, Unmet};

use crate::model::process::ProcessId;
use crate::model::units::NodeId;
use crate::snapshot::GroupObject;

/// The object that a finding is about. The order is that of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The machine.
    Host,
    /// A NUMA node.
    Node(NodeId),
    /// A socket of a machine that hides its nodes, by its `physical_package_id`.
    Socket(u32),
    /// A process for ever: its id, and the start of its leader in ns since boot.
    Process(u32, u64),
    /// Processes that share memory, by the id and the start of their leader.
    Group(u32, u64),
    /// A container or another cgroup, by the id of the cgroup at its top.
    Container(u64),
    /// A device by its name in the topology.
    Device(String),
}

impl Subject {
    /// The kind of the subject.
    pub fn kind(&self) -> SubjectKind {
        match self {
            Subject::Host => SubjectKind::Host,
            Subject::Node(_) => SubjectKind::Node,
            Subject::Socket(_) => SubjectKind::Socket,
            Subject::Process(..) => SubjectKind::Process,
            Subject::Group(..) => SubjectKind::Group,
            Subject::Container(_) => SubjectKind::Container,
            Subject::Device(_) => SubjectKind::Device,
        }
    }

    /// The process, where it is one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Subject::Process(pid, start_ns) => Some((*pid, *start_ns)),
            _ => None,
        }
    }

    /// The container that it is.
    pub fn container(&self) -> Option<u64> {
        match self {
            Subject::Container(id) => Some(*id),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    /// As in keys and in `of` of JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Host => f.write_str("host"),
            Subject::Node(node) => write!(f, "node {node}"),
            Subject::Socket(socket) => write!(f, "socket {socket}"),
            Subject::Process(pid, start_ns) => write!(f, "{pid}@{start_ns}"),
            Subject::Group(pid, start_ns) => write!(f, "group {pid}@{start_ns}"),
            Subject::Container(id) => write!(f, "cgroup {id}"),
            Subject::Device(name) => write!(f, "device {}", crate::text::clean_str(name)),
        }
    }
}

/// Kinds of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// The machine.
    Host,
    /// A NUMA node.
    Node,
    /// A socket of a machine that hides its nodes.
    Socket,
    /// A process.
    Process,
    /// Processes that share memory.
    Group,
    /// A container, pod, unit or another cgroup.
    Container,
    /// A device.
    Device,
}

impl SubjectKind {
    /// The word in lists and JSON.
    pub fn name(self) -> &'static str {
        match self {
            SubjectKind::Host => "host",
            SubjectKind::Node => "node",
            SubjectKind::Socket => "socket",
            SubjectKind::Process => "process",
            SubjectKind::Group => "group",
            SubjectKind::Container => "container",
            SubjectKind::Device => "device",
        }
    }
}

/// The rule and the subject: at most one finding has a key at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingKey {
    /// Id of the rule.
    pub id: &'static str,
    /// The object that it is about.
    pub subject: Subject,
}

impl fmt::Display for FindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id, self.subject)
    }
}

/// The gravity of a finding. It never rises because something lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// True and worth knowing, but not urgent.
    Info,
    /// It costs now, and something can be done about it.
    Warning,
    /// Work may stop or die.
    Critical,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

    /// The word in text, JSON and `--fail-on`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }

    /// The mark in front of a row: by form, not only by colour.
    pub fn mark(self) -> char {
        match self {
            Severity::Info => ' ',
            Severity::Warning => '*',
            Severity::Critical => '!',
        }
    }
}

/// The certainty of a finding, from the errors of the values that the condition used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// A value passes its limit and its lower end does not, or a guard could not be decided.
    Suspected,
    /// The lower ends of all intervals pass, and at least one value is an estimate.
    Estimated,
    /// Every value is a count or an exact time.
    Measured,
}

impl Confidence {
    /// The word in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Suspected => "suspected",
            Confidence::Estimated => "estimated",
            Confidence::Measured => "measured",
        }
    }
}

/// The place of a finding in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its condition holds, but not for long enough. Not shown.
    Pending,
    /// It is so now.
    Active,
    /// Its condition has ended, but not for long enough.
    Clearing,
    /// It was so.
    Ended,
}

impl State {
    /// The word in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Active => "active",
            State::Clearing => "clearing",
            State::Ended => "ended",
        }
    }
}

/// Why a finding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its condition has ended.
    Cleared,
    /// An input is missing for too long.
    Unseen,
    /// Its subject has ended.
    Gone,
}

impl End {
    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            End::Cleared => "its condition no longer holds",
            End::Unseen => "its data has been missing too long",
            End::Gone => "its subject has ended",
        }
    }
}

/// The meaning of a value beside its metric. Its text is in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// From where it ran and where its memory is.
    Placement,
    /// Room for the memory to move.
    Room,
    /// Measured time.
    Measured,
    /// An estimate of a measured time.
    Estimated,
    /// Free memory above the low watermark on other nodes.
    FreeElsewhere,
    /// The value of a setting.
    Setting,
    /// A witness that the memory is used from afar.
    Witness,
    /// The same of another node, to compare with.
    Compare,
    /// The limit is an upper one.
    AtMost,
    /// One of several subjects with the same finding.
    OneOfSeveral,
}

impl Note {
    /// The word in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Note::Placement => "placement",
            Note::Room => "room",
            Note::Measured => "measured",
            Note::Estimated => "estimated",
            Note::FreeElsewhere => "free_elsewhere",
            Note::Setting => "setting",
            Note::Witness => "witness",
            Note::Compare => "compare",
            Note::AtMost => "at_most",
            Note::OneOfSeveral => "one_of_several",
        }
    }

    /// The same for people.
    pub fn words(self) -> &'static str {
        match self {
            Note::Placement => "computed from its CPU time and memory by node",
            Note::Room => "room for the memory that moves",
            Note::Measured => "measured time",
            Note::Estimated => "an estimate",
            Note::FreeElsewhere => "free memory above the low watermarks of other nodes",
            Note::Setting => "setting",
            Note::Witness => "shows that this memory is used",
            Note::Compare => "for comparison",
            Note::AtMost => "or less",
            Note::OneOfSeveral => "one of several subjects",
        }
    }
}

/// A value that the condition used.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Metric id, from `numatop-ng list metrics`.
    pub metric: &'static str,
    /// The object that the value is of.
    pub of: Subject,
    /// For metrics by node.
    pub node: Option<NodeId>,
    /// Nodes that the value is a sum over, in ascending order; empty for a value of one node or of none.
    pub nodes: Vec<NodeId>,
    /// In the metric's unit.
    pub value: f64,
    /// Half of the 95 % interval in the metric's unit, 0 for counts.
    pub error: f64,
    /// Time that the value is over, ns.
    pub over_ns: u64,
    /// The limit that it passed, if it is for comparison with one.
    pub limit: Option<f64>,
    /// Its meaning beside the metric.
    pub note: Option<Note>,
}

/// A number that must change when the command has been typed, or must not.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Metric id.
    pub metric: &'static str,
    /// The object that it is of.
    pub of: Subject,
    /// The value now.
    pub from: f64,
    /// The value to come to.
    pub to: f64,
    /// Whether it must be at most `to`; at least otherwise.
    pub below: bool,
    /// Seconds that it may take.
    pub within_s: f64,
}

/// The text and the numbers of a finding, made for findings that are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// At most 160 characters, present tense, subject first, one number, one cause.
    pub sentence: String,
    /// CPU time that can be won.
    pub gain: Gain,
    /// Commands with a place in time.
    pub commands: Vec<Command>,
    /// Commands that undo them.
    pub undo: Vec<Command>,
    /// Numbers that must change.
    pub check: Vec<Check>,
    /// Numbers that say to undo it.
    pub stop: Vec<Check>,
    /// One or two sentences on effects of the commands that are not wanted.
    pub risk: String,
    /// Other explanations, each with the number that decides.
    pub or_else: Vec<String>,
}

/// Identity of a subject in words. All text is clean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// As lists show it: `4242 mysqld`, `node 0`, `cart`.
    pub label: String,
    /// Name of the process.
    pub comm: Option<String>,
    /// Name of its container, pod or unit.
    pub container: Option<String>,
    /// Full id of the container.
    pub container_id: Option<String>,
    /// Path of the cgroup.
    pub cgroup: Option<String>,
    /// CPUs that it may use, as a list, where it is known and these are not all.
    pub cpus: Option<String>,
    /// Of processes that share memory: all of them, and what they share.
    pub members: Vec<ProcessId>,
    /// See [`Identity::members`].
    pub objects: Vec<GroupObject>,
}

/// A conclusion about a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Rule and subject.
    pub key: FindingKey,
    /// Name of the rule, at most 40 columns.
    pub title: &'static str,
    /// The subject in words.
    pub identity: Identity,
    /// Its gravity.
    pub severity: Severity,
    /// Its certainty.
    pub confidence: Confidence,
    /// Its place in its life.
    pub state: State,
    /// When the episode began, wall clock in ns since 1970.
    pub since_wall_ns: i64,
    /// The same in CLOCK_MONOTONIC, ns.
    pub since_mono_ns: u64,
    /// When it ended, wall clock in ns since 1970.
    pub until_wall_ns: Option<i64>,
    /// The same in CLOCK_MONOTONIC, ns.
    pub until_mono_ns: Option<u64>,
    /// Time that it has held, ns.
    pub held_ns: u64,
    /// Episodes that became this one: the pauses between them were short.
    pub times: u32,
    /// Values that the condition used.
    pub evidence: Vec<Evidence>,
    /// Text and numbers.
    pub advice: Advice,
    /// The finding that explains this one.
    pub because_of: Option<FindingKey>,
    /// Place among the causes, from 1; `None` for symptoms and ended findings.
    pub rank: Option<usize>,
    /// The worst first value of the evidence.
    pub peak: Option<f64>,
    /// Why it ended, and the value of its check then.
    pub end: Option<(End, Option<f64>)>,
}

impl Finding {
    /// Whether another finding explains it.
    pub fn is_symptom(&self) -> bool {
        self.because_of.is_some()
    }

    /// Whether it counts in headers and exit codes: a cause, and more than an info.
    pub fn counts(&self) -> bool {
        !self.is_symptom() && self.severity > Severity::Info && self.state != State::Pending
    }
}

/// A rule that could not look, or not at all of its subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// Id of the rule.
    pub id: &'static str,
    /// The kind of reason.
    pub reason: Reason,
    /// The reason, and the remedy where one is known.
    pub words: String,
    /// Subjects that it could not look at; `None`: all.
    pub subjects: Option<usize>,
}

#[cfg(test)]
impl Finding {
    /// A finding for tests of lists.
    pub(crate) fn example(key: FindingKey, severity: Severity) -> Finding {
        Finding {
            key,
            title: "An example",
            identity: Identity::default(),
            severity,
            confidence: Confidence::Measured,
            state: State::Active,
            since_wall_ns: 0,
            since_mono_ns: 0,
            until_wall_ns: None,
            until_mono_ns: None,
            held_ns: 0,
            times: 1,
            evidence: Vec::new(),
            advice: Advice::default(),
            because_of: None,
            rank: None,
            peak: None,
            end: None,
        }
    }
}
