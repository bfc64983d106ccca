//! A rule: its condition, limits, and text. The table of them is in rules.rs.

use std::borrow::Cow;

use super::hold::MOST;
use super::view::{SubjectRef, View};
use super::{Advice, Confidence, Evidence, Identity, Severity, SubjectKind};
use crate::model::sample::Missing;

/// Why a condition is not met by a subject in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// An input is missing: which, and why.
    Blind(Blindness),
    /// The inputs are available and the condition does not hold.
    Quiet,
    /// The condition would hold, but this guard of the rule applies.
    Excused(&'static str),
}

/// The reason why a rule cannot look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blindness {
    /// The kind of reason.
    pub reason: Reason,
    /// The reason in words.
    pub words: Cow<'static, str>,
}

impl Blindness {
    /// With this reason, in these words.
    pub fn new(reason: Reason, words: impl Into<Cow<'static, str>>) -> Blindness {
        Blindness { reason, words: words.into() }
    }
}

impl From<Missing> for Blindness {
    fn from(missing: Missing) -> Blindness {
        let reason = match &missing {
            Missing::Unsupported(_) | Missing::KernelTooOld(_) => Reason::NotSupported,
            Missing::NotPermitted(_) => Reason::NotPermitted,
            Missing::Lost(_) => Reason::Lost,
            Missing::FirstInterval | Missing::NotCollected(_) => Reason::NotCollected,
        };
        Blindness::new(reason, missing.to_string())
    }
}

/// Kinds of reasons for blindness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Not asked for, or not for this subject.
    NotCollected,
    /// The hardware or the kernel does not have it.
    NotSupported,
    /// A capability or a setting is missing.
    NotPermitted,
    /// No hardware counters.
    NoPmu,
    /// Where its memory is has not been looked at, or too long ago, or too roughly.
    PlacementUnknown,
    /// numatop-ng does not measure it, or this recording does not have it.
    NoInput,
    /// The machine hides its nodes.
    HiddenNodes,
    /// The measurement was lost.
    Lost,
    /// Memory that nothing uses, so that where it is costs nothing.
    Cold,
}

impl Reason {
    /// The word in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Reason::NotCollected => "not_collected",
            Reason::NotSupported => "not_supported",
            Reason::NotPermitted => "not_permitted",
            Reason::NoPmu => "no_pmu",
            Reason::PlacementUnknown => "placement_unknown",
            Reason::NoInput => "no_input",
            Reason::HiddenNodes => "hidden_nodes",
            Reason::Lost => "lost",
            Reason::Cold => "cold",
        }
    }
}

/// A condition that is met.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen<F> {
    /// Its gravity.
    pub severity: Severity,
    /// Its certainty.
    pub confidence: Confidence,
    /// Every value that the condition used, the most important first.
    pub evidence: Vec<Evidence>,
    /// Values for the advice beyond the evidence.
    pub facts: F,
}

/// A condition, and the advice for those that meet it. `F` holds the facts from the one for the other.
pub struct Condition<F> {
    /// The condition. Cheap comparisons come first: most subjects leave in the first one.
    pub look: fn(&View<'_>, &SubjectRef<'_>) -> Result<Seen<F>, Unmet>,
    /// Text, gain and commands where the condition is met.
    pub advise: fn(&View<'_>, &SubjectRef<'_>, &Seen<F>) -> Advice,
}

/// The conclusion of a rule about a subject that meets its condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// Its gravity.
    pub severity: Severity,
    /// Its certainty.
    pub confidence: Confidence,
    /// Every value that the condition used, the most important first.
    pub evidence: Vec<Evidence>,
    /// Text, gain and commands.
    pub advice: Advice,
    /// The subject in words.
    pub identity: Identity,
}

/// A condition without the type of its facts.
pub trait Judge: Sync {
    /// The certainty with which a subject meets the condition.
    ///
    /// # Errors
    /// The condition is not met, or cannot be tested.
    fn look(&self, view: &View<'_>, of: &SubjectRef<'_>) -> Result<Confidence, Unmet>;

    /// The conclusion about a subject that meets the condition.
    ///
    /// # Errors
    /// The condition is not met, or cannot be tested.
    fn conclude(&self, view: &View<'_>, of: &SubjectRef<'_>) -> Result<Conclusion, Unmet>;
}

impl<F> Judge for Condition<F> {
    fn look(&self, view: &View<'_>, of: &SubjectRef<'_>) -> Result<Confidence, Unmet> {
        (self.look)(view, of).map(|seen| seen.confidence)
    }

    fn conclude(&self, view: &View<'_>, of: &SubjectRef<'_>) -> Result<Conclusion, Unmet> {
        let seen = (self.look)(view, of)?;
        let advice = (self.advise)(view, of, &seen);
        let Seen { severity, confidence, evidence, .. } = seen;
        Ok(Conclusion { severity, confidence, evidence, advice, identity: view.identity(of) })
    }
}

/// Time that a condition must hold and must not hold, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// Until it is active; 0: at once.
    pub on_s: f64,
    /// Until it has ended.
    pub off_s: f64,
    /// Share of the measured time, from 0 to 1, in which the condition must hold until it is active.
    pub share: f64,
}

impl Hold {
    /// It begins and ends with the condition.
    pub const AT_ONCE: Hold = Hold { on_s: 0.0, off_s: 0.0, share: MOST };

    /// So long to begin, and as long to end, but at least 30 s.
    pub const fn s(on_s: f64) -> Hold {
        Hold { on_s, off_s: if on_s < 30.0 { 30.0 } else { on_s }, share: MOST }
    }

    /// The same for bursts as long as an interval or longer. Over the whole time it must hold in any case.
    pub const fn in_bursts(on_s: f64) -> Hold {
        Hold { share: 0.6, ..Hold::s(on_s) }
    }
}

/// A limit of a condition, where it is from, and when the condition is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Name within the rule.
    pub name: &'static str,
    /// From where on the condition holds, in the unit of its metric.
    pub on: f64,
    /// The limit beyond which it ends.
    pub off: f64,
    /// Unit of both numbers, percent unless stated.
    pub unit: &'static str,
    /// `[S2]` of the sources in docs/rules.md, or `estimate: …`.
    pub source: &'static str,
}

impl Limit {
    /// A lower limit: the condition ends at three quarters of the limit.
    pub const fn least(name: &'static str, on: f64, source: &'static str) -> Limit {
        Limit { name, on, off: on * 0.75, unit: "%", source }
    }

    /// A limit with no gap: the condition ends as soon as it does not hold.
    pub const fn sharp(name: &'static str, on: f64, source: &'static str) -> Limit {
        Limit { name, on, off: on, unit: "%", source }
    }

    /// With another value where the condition is over.
    pub const fn until(name: &'static str, on: f64, off: f64, source: &'static str) -> Limit {
        Limit { name, on, off, unit: "%", source }
    }

    /// The same limit in another unit than percent.
    pub const fn counted_in(self, unit: &'static str) -> Limit {
        Limit { unit, ..self }
    }
}

/// The parts of the list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Placement of memory and threads.
    Placement,
    /// Memory of nodes.
    NodeMemory,
    /// NUMA balancing.
    Balancing,
    /// CPU time, cores, quotas.
    Cpus,
    /// Disturbance by others.
    Neighbours,
    /// Interrupts and devices.
    Devices,
    /// Sizes of pages.
    Pages,
    /// The machine about itself.
    Machine,
}

impl Group {
    /// The heading in lists.
    pub fn title(self) -> &'static str {
        match self {
            Group::Placement => "Placement of memory and threads",
            Group::NodeMemory => "Memory of nodes",
            Group::Balancing => "NUMA balancing",
            Group::Cpus => "CPU time, cores and quotas",
            Group::Neighbours => "Neighbours",
            Group::Devices => "Interrupts and devices",
            Group::Pages => "Pages",
            Group::Machine => "The machine as a whole",
        }
    }

    /// Whether its rules say nothing on a machine with one node.
    pub fn needs_nodes(self) -> bool {
        matches!(self, Group::Placement | Group::Balancing)
    }
}

/// A guard of a rule: its word, as tests are named after it, and its meaning.
pub type Guard = (&'static str, &'static str);

/// One row of the table of rules.
pub struct Rule {
    /// Kebab-case; never renamed, never used again for another rule.
    pub id: &'static str,
    /// At most 40 columns.
    pub title: &'static str,
    /// Its condition, for lists and `--explain`: one sentence.
    pub about: &'static str,
    /// Guards beside those of all rules.
    pub not_when: &'static [Guard],
    /// Kinds of its subjects.
    pub of: &'static [SubjectKind],
    /// The part of the list that it is in.
    pub group: Group,
    /// The gravest severity that it may have.
    pub gravest: Severity,
    /// Ids of metrics without which it cannot look.
    pub needs: &'static [&'static str],
    /// Time that its condition must hold.
    pub hold: Hold,
    /// Limits of its condition.
    pub limits: &'static [Limit],
    /// It looks at subjects that use less than half a CPU, too: waiting takes no CPU time.
    pub idle_too: bool,
    /// The condition and its advice.
    pub judge: &'static dyn Judge,
}

impl Rule {
    /// Whether it is about processes whose memory is on other nodes than they run on.
    pub fn of_places(&self) -> bool {
        matches!(self.id, "memory-on-other-node" | "spread-over-nodes" | "remote-after-pin")
    }

    /// A guard of this name in words.
    pub fn guard(&self, name: &str) -> Option<&'static str> {
        self.not_when.iter().find(|(guard, _)| *guard == name).map(|(_, words)| *words)
    }

    /// The limit with this name, from where on the condition holds or, with `over`, is not over yet. Infinite where the
    /// rule has no such limit, so that its condition never holds; a test looks for that.
    pub fn limit(&self, name: &str, over: bool) -> f64 {
        let limit = self.limits.iter().find(|limit| limit.name == name);
        limit.map_or(f64::INFINITY, |limit| if over { limit.off } else { limit.on })
    }
}
