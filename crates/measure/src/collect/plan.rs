//! Facilities that a host with these facts has, and advice for its owner about the others. Pure: nothing here looks at
//! the machine.

mod rules;

use std::collections::BTreeMap;

use serde::Serialize;

use super::probes;
use crate::collect::check::HostCheck;
use crate::host::btf::Feature;
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::text::{hanging, words};

/// An action in words, with the command to type if one exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub say: String,
    pub command: Option<String>,
}

impl Advice {
    pub fn say(say: impl Into<String>) -> Advice {
        Advice { say: say.into(), command: None }
    }

    pub fn command(say: impl Into<String>, command: impl Into<String>) -> Advice {
        Advice { say: say.into(), command: Some(command.into()) }
    }

    /// The words wrapped at `width` after `indent`, and the command on a separate line, never wrapped.
    pub fn render(&self, indent: &str, width: usize) -> String {
        match &self.command {
            Some(command) => {
                hanging(indent, words(&format!("{}:", self.say)), width) + &format!("{indent}  {command}\n")
            }
            None => hanging(indent, words(&self.say), width),
        }
    }
}

/// Why something cannot be measured, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hindrance {
    pub missing: Missing,
    pub advice: Vec<Advice>,
}

impl Hindrance {
    fn new(missing: Missing, advice: impl Into<Vec<Advice>>) -> Hindrance {
        Hindrance { missing, advice: advice.into() }
    }
}

pub type Verdict = Result<(), Hindrance>;

/// The kernel features that a facility depends on.
pub fn features(facility: Facility) -> &'static [Feature] {
    use Feature::*;
    match facility {
        Facility::CpuTime => &[SchedSwitch, TaskStorage, CurrentTask, TracingStorage],
        Facility::TaskWalk => {
            &[TaskIterator, TaskStorage, TracingStorage, TaskState, ThreadInfoCpu, SchedInfo]
        }
        Facility::Exits => &[
            TaskNewtask,
            SchedProcessFree,
            RingBuffer,
            TaskStorage,
            TracingStorage,
            TaskState,
            ThreadInfoCpu,
            SchedInfo,
        ],
        _ => probes::of(facility).map_or(&[], |probe| probe.features),
    }
}

/// Facilities that rules know from facts about a host. The others work, or give their reason when they are
/// tried.
pub fn judged() -> impl Iterator<Item = Facility> {
    let probes = probes::PROBES.into_iter().filter(|probe| !probe.features.is_empty());
    Facility::JUDGED.into_iter().chain(probes.map(|probe| probe.facility))
}

/// Something that works, but not as one might think.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caveat {
    pub about: &'static str,
    pub say: String,
    pub advice: Vec<Advice>,
}

/// Verdicts on the facilities of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    verdicts: BTreeMap<Facility, Verdict>,
    pub caveats: Vec<Caveat>,
}

impl Plan {
    /// The verdict on `facility`: one that no rule judges is taken to be there until it is tried.
    pub fn verdict(&self, facility: Facility) -> &Verdict {
        self.verdicts.get(&facility).unwrap_or(&Ok(()))
    }

    /// Replaces the rule's verdict by the result of a trial of the facility.
    pub fn observe(&mut self, facility: Facility, verdict: Verdict) {
        self.verdicts.insert(facility, verdict);
    }

    /// The first reason why a live view cannot start.
    pub fn obstacle_to_start(&self) -> Option<&Hindrance> {
        self.obstacle(&[])
    }

    /// The first reason why a live view cannot show something that needs these. It comes before the reason of the
    /// whole view, because it would stay when that is gone.
    pub fn obstacle(&self, needs: &[Facility]) -> Option<&Hindrance> {
        needs.iter().chain(&Facility::ESSENTIAL).find_map(|facility| self.verdict(*facility).as_ref().err())
    }
}

/// Applies the rules to the facts of one host.
pub fn plan(check: &HostCheck) -> Plan {
    Plan {
        verdicts: judged().map(|facility| (facility, rules::verdict(check, facility))).collect(),
        caveats: rules::caveats(check),
    }
}
