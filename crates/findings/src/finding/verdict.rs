//! The verdict on the watched time: what was found, what is suspected, and what was not decided. One function
//! holds its words.

use super::{Engine, Finding, Identity, Severity, Summary, text};
use crate::text::{one_line, plural};

/// Why a rule, or a subject, was not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The longest stretch without a gap is shorter than the time that the condition must hold.
    TooShort,
    /// The condition holds, and has not held for long enough.
    Suspected,
    /// Accesses leave the node, and no finding names the subject: a guard excuses it.
    Excused,
    /// The same, and an input is missing.
    InDoubt,
}

impl Why {
    /// The word in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Why::TooShort => "too_short",
            Why::Suspected => "suspected",
            Why::Excused => "excused",
            Why::InDoubt => "in_doubt",
        }
    }
}

/// A rule that came to no decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecided {
    /// The rule.
    pub id: &'static str,
    /// Why not.
    pub why: Why,
    /// The highest severity that it could have.
    pub gravest: Severity,
    /// Time that the condition must hold, ns.
    pub needs_ns: u64,
    /// Time that it could be watched for, or has held for, ns.
    pub had_ns: u64,
    /// Names of subjects; none where the time was too short for any.
    pub subjects: Vec<String>,
}

/// Accesses that leave the node, of a subject that no finding names.
#[derive(Clone, Debug, PartialEq)]
pub struct Doubt {
    /// Its names.
    pub identity: Identity,
    /// The rule that would have named it.
    pub rule: &'static str,
    /// Remote share of its accesses, in percent.
    pub remote_pct: f64,
    /// The error of that share, in points.
    pub error: f64,
    /// `counted` or `sampled`.
    pub source: String,
    /// CPUs that it used.
    pub cpus: f64,
    /// The node where it ran most.
    pub home: Option<u32>,
    /// The guard that excuses it, or the input that is missing, in words.
    pub because: String,
    /// An input is missing.
    pub is_blind: bool,
}

/// Everything that the last sentence of a report is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Numbers of findings and rules.
    pub summary: Summary,
    /// Time that was watched, ns.
    pub watched_ns: u64,
    /// Warnings and graver that have ended.
    pub ended: usize,
    /// Conditions that hold and have not held for long enough, as findings.
    pub suspected: Vec<Finding>,
    /// Rules and subjects that were not decided.
    pub undecided: Vec<Undecided>,
    /// Subjects whose accesses leave their node without a finding, the busiest first.
    pub doubts: Vec<Doubt>,
    /// Titles of infos with a gain, the largest first.
    pub gains: Vec<String>,
}

/// Infos that the last sentence names.
const GAINS: usize = 2;

impl Verdict {
    /// The verdict of an engine on all its input.
    pub fn of(engine: &Engine) -> Verdict {
        let suspected = engine.pending();
        let mut infos: Vec<&Finding> = engine
            .findings()
            .iter()
            .filter(|finding| finding.severity == Severity::Info && !finding.is_symptom())
            .filter(|finding| finding.advice.gain.weight() > 0.0)
            .collect();
        infos.sort_by(|a, b| b.advice.gain.weight().total_cmp(&a.advice.gain.weight()));
        Verdict {
            summary: engine.summary(),
            watched_ns: engine.watched_ns(),
            ended: engine.ended().filter(|finding| finding.severity > Severity::Info).count(),
            undecided: engine.undecided(),
            doubts: engine.doubts().to_vec(),
            gains: infos.iter().map(|info| info.advice.sentence.clone()).collect(),
            suspected,
        }
    }

    /// Suspected findings that would be warnings or graver.
    pub fn suspected(&self) -> impl Iterator<Item = &Finding> {
        self.suspected.iter().filter(|finding| finding.severity > Severity::Info && !finding.is_symptom())
    }

    /// Rules that can warn and were watched for too short a time.
    pub fn too_short(&self) -> impl Iterator<Item = &Undecided> {
        let short = |rule: &&Undecided| rule.why == Why::TooShort && rule.gravest > Severity::Info;
        self.undecided.iter().filter(short)
    }

    /// Whether all was decided that could be a finding of this severity or a graver one.
    pub fn decides(&self, least: Severity) -> bool {
        let open = |rule: &Undecided| match rule.why {
            Why::TooShort => rule.gravest >= least,
            Why::Suspected => false,
            Why::Excused => false,
            Why::InDoubt => Severity::Warning >= least,
        };
        !self.undecided.iter().any(open)
            && !self.suspected.iter().any(|finding| !finding.is_symptom() && finding.severity >= least)
    }

    /// The verdict in one or two sentences.
    pub fn words(&self) -> String {
        let Summary { critical, warning, explained, .. } = self.summary;
        let watched = text::duration(self.watched_ns);
        let mut words = match critical + warning {
            0 => self.nothing(&watched),
            found if explained > 0 => {
                format!("{}, {} of them explained by another finding.", plural(found, "finding"), explained)
            }
            found => format!("{}.", plural(found, "finding")),
        };
        if self.ended > 0 {
            words += &format!(" {} ended before.", plural(self.ended, "finding"));
        }
        if !self.gains.is_empty() && critical + warning == 0 {
            let more = match self.gains.len().saturating_sub(GAINS) {
                0 => String::new(),
                more => format!(" And {more} more."),
            };
            let named: Vec<String> = self.gains.iter().take(GAINS).map(|gain| one_line(gain)).collect();
            words += &format!(" Possible gain: {}{more}", named.join(" "));
        }
        words
    }

    /// The words where nothing is found at the end.
    fn nothing(&self, watched: &str) -> String {
        if let Some(first) = self.suspected().next() {
            let held = text::duration(first.held_ns);
            let others = match self.suspected().count() - 1 {
                0 => String::new(),
                others => format!(" {} more suspected.", plural(others, "finding")),
            };
            return format!(
                "Suspected: {} The condition has held for {held}.{others}",
                one_line(&first.advice.sentence)
            );
        }
        let short = self.too_short().count();
        if short > 0 {
            let need = if short == 1 { "rule needs" } else { "rules need" };
            return format!("Not decided: {short} {need} more than {watched} of data.");
        }
        if let Some(doubt) = self.doubts.first() {
            let node = doubt.home.map_or("its node".to_owned(), |node| format!("node {node}"));
            return format!(
                "No cause was found, but {:.0} % of the accesses of {} leave {node} ({}, {:.1} CPUs): {}.",
                doubt.remote_pct,
                one_line(&doubt.identity.label),
                doubt.source,
                doubt.cpus,
                doubt.because
            );
        }
        match self.ended {
            0 if self.summary.info > 0 => {
                format!("No warnings in {watched}; {}.", plural(self.summary.info, "note"))
            }
            0 => format!("No finding in {watched}."),
            _ => format!("No finding at the end of {watched}."),
        }
    }

    /// The number of rules that ran, and of rules that lack data.
    pub fn rules(&self) -> String {
        let Summary { could_look, rules, .. } = self.summary;
        match rules.saturating_sub(could_look) {
            0 if rules == 1 => "The rule ran.".into(),
            0 => format!("All {rules} rules ran."),
            1 => format!("{could_look} of {rules} rules ran; 1 lacked data."),
            lacking => format!("{could_look} of {rules} rules ran; {lacking} lacked data."),
        }
    }
}
