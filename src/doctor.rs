//! `numatop-ng doctor`: everything that works on this host or does not, the reasons, and advice.
//!
//! The rules predict what should work ([`crate::collect::plan`]). Then the probes are tried, and the result
//! counts more than the prediction.

mod findings;
mod render;
mod trial;

use std::path::Path;

use serde::Serialize;

use crate::calibrate::store::{self, Wanted};
use crate::collect::check::HostCheck;
use crate::collect::plan::{Advice, Caveat, Hindrance, Plan, Verdict, plan};
use crate::error::{self, Exit, Refusal};
use crate::host::roots::Roots;
use crate::list::measured;
use crate::metric::node::NODE_METRICS;
use crate::metric::task::TASK_METRICS;
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::{options, selftest};

pub use self::findings::{Line, Mark};
pub use self::render::{render_json, render_text};
pub use self::trial::Trial;

/// Version of the JSON: changes only when a key changes its meaning or goes.
const SCHEMA: u32 = 1;

/// The facts of this machine, whose files are below `host_root` where a container sees them there. Tries to open and count what a
/// live view counts when nothing else is asked for.
pub fn check(host_root: Option<&Path>) -> HostCheck {
    let root = Path::new("/");
    let catalog = options::marked_catalog(root, None).map_err(anyhow::Error::from);
    let choice = catalog.and_then(|catalog| options::choose(root, &catalog, "auto"));
    HostCheck::read(Roots::new(root, host_root.unwrap_or(root)), &choice.unwrap_or_default(), None)
}

/// All that doctor has to say.
#[derive(Clone, Debug)]
pub struct Report {
    pub schema: u32,
    pub version: &'static str,
    /// Whether a live view would start; if not, why.
    pub live: Live,
    /// The findings as lines for people, by section.
    pub sections: Vec<Section>,
    pub probes: Vec<Probe>,
    pub task_metrics: Vec<MetricLine>,
    pub node_metrics: Vec<MetricLine>,
    pub caveats: Vec<Caveat>,
    /// The facts that all this follows from.
    pub facts: HostCheck,
}

#[derive(Clone, Debug, Serialize)]
pub struct Live {
    pub works: bool,
    /// The exit code of the live view, and of doctor.
    pub exit: Exit,
    pub refusal: Option<Refusal>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Section {
    pub title: &'static str,
    pub findings: Vec<Line>,
}

/// The result of one probe when it was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    pub probe: &'static str,
    pub works: bool,
    /// The observation, or the whole chain of causes with the errno.
    pub detail: String,
    /// The last lines of libbpf and of the kernel's verifier; empty when it works.
    pub log: Vec<String>,
}

/// Whether one metric can be measured.
#[derive(Clone, Debug)]
pub struct MetricLine {
    pub id: &'static str,
    pub available: bool,
    /// Why not.
    pub missing: Option<Missing>,
    /// The remedy.
    pub advice: Vec<Advice>,
}

impl Report {
    /// Gathers the facts of this machine and tries the probes.
    pub fn gather(host_root: Option<&Path>) -> Report {
        let check = check(host_root);
        let trials = trial::run(&check);
        let measured = check
            .topology
            .known()
            .map(|topology| measured::line(store::find(&Wanted::Stored, topology).0.as_ref()));
        let mut report = Report::new(check, trials);
        let machine = report.sections.iter_mut().find(|section| section.title == findings::MACHINE);
        machine.into_iter().for_each(|section| section.findings.extend(measured.clone().map(findings::ok)));
        let tested = findings::tested(&selftest::trust(Path::new("/")));
        let counters = report.sections.iter_mut().find(|section| section.title == findings::COUNTERS);
        counters.into_iter().for_each(|section| section.findings.extend(tested.clone()));
        report
    }

    /// The report on a host with these facts on which the probes did so. Without trials the rules decide.
    pub fn new(check: HostCheck, trials: Vec<Trial>) -> Report {
        let mut plan = plan(&check);
        let essential =
            trials.iter().filter(|trial| trial.parts.iter().any(|part| Facility::ESSENTIAL.contains(part)));
        let failed = essential.filter_map(|trial| trial.outcome.as_ref().err()).next();
        let refusal = match failed {
            Some(error) => Some(error::explain(error, &check)),
            // Probes load without /proc, but facts read there are missing.
            None if trials.is_empty() || !check.proc_mounted => error::preflight(&check).err(),
            None => None,
        };
        observe(&mut plan, &trials);
        let exit = refusal.as_ref().map_or(Exit::Ok, |refusal| refusal.exit);
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            live: Live { works: refusal.is_none(), exit, refusal },
            sections: findings::sections(&check),
            probes: trials.into_iter().map(probe).collect(),
            task_metrics: TASK_METRICS
                .iter()
                .map(|metric| line(metric.id, plan.obstacle(metric.traits.needs)))
                .collect(),
            node_metrics: NODE_METRICS
                .iter()
                .map(|metric| line(metric.id, plan.obstacle(metric.traits.needs)))
                .collect(),
            caveats: plan.caveats,
            facts: check,
        }
    }

    /// The exit code of `numatop-ng doctor`: 0 when the live view would work, else the code it would exit with.
    pub fn exit(&self) -> Exit {
        self.live.exit
    }
}

/// A trial overrules the rules. If both fail, the words of the rules are better. A rule that said no is
/// proved wrong only when everything has started: an early step may get further than the next.
fn observe(plan: &mut Plan, trials: &[Trial]) {
    let failed: Vec<(Facility, &anyhow::Error)> = trials
        .iter()
        .filter_map(|trial| Some((trial.parts, trial.outcome.as_ref().err()?)))
        .flat_map(|(parts, error)| parts.iter().map(move |part| (*part, error)))
        .collect();
    for (part, error) in &failed {
        if plan.verdict(*part).is_ok() {
            plan.observe(*part, failure(error));
        }
    }
    // Nothing else builds on samples of memory use, which an emulator does not have, on those of a PMU, or on controllers, which
    // virtual machines lack.
    let alone = [Facility::MemoryUse, Facility::MemoryEvents, Facility::MemoryControllers];
    if failed.iter().all(|(part, _)| alone.contains(part)) {
        trials
            .iter()
            .filter(|trial| trial.outcome.is_ok())
            .flat_map(|trial| trial.parts)
            .for_each(|part| plan.observe(*part, Ok(())));
    }
}

fn failure(error: &anyhow::Error) -> Verdict {
    let missing = Missing::Unsupported(error::chain(error));
    Err(Hindrance { missing, advice: Vec::new() })
}

fn probe(trial: Trial) -> Probe {
    let Trial { name, outcome, log, .. } = trial;
    match outcome {
        Ok(detail) => Probe { probe: name, works: true, detail, log: Vec::new() },
        Err(error) => Probe { probe: name, works: false, detail: error::chain(&error), log },
    }
}

fn line(id: &'static str, obstacle: Option<&Hindrance>) -> MetricLine {
    MetricLine {
        id,
        available: obstacle.is_none(),
        missing: obstacle.map(|obstacle| obstacle.missing.clone()),
        advice: obstacle.map(|obstacle| obstacle.advice.clone()).unwrap_or_default(),
    }
}
