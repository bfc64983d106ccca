//! What works on this host, what does not, why, and what to do: `numatop-ng doctor`.
//!
//! The rules say what should work ([`crate::collect::plan`]); then the probes are tried, and what happened
//! counts more than what was expected.

mod findings;
mod render;
mod trial;

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::collect::plan::{Advice, Caveat, Obstacle, Part, Plan, Verdict, plan};
use crate::error::{self, Exit, Refusal};
use crate::host::check::HostCheck;
use crate::host::fact::Fact;
use crate::metric::{node::NODE_METRICS, task::TASK_METRICS};
use crate::pmu::event::Event;
use crate::sample::Missing;

pub use self::findings::{Finding, Mark};
pub use self::render::{render_json, render_text};
pub use self::trial::Trial;

/// Version of the JSON: changes only when a key changes its meaning or goes.
const SCHEMA: u32 = 1;

/// The facts of this machine. Tries to open and count cycles and instructions.
pub fn check() -> HostCheck {
    let basic = Event::parse_list("basic").unwrap_or_default();
    HostCheck::read(Path::new("/"), &basic)
}

/// All that doctor has to say.
#[derive(Clone, Debug, Serialize)]
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
    #[serde(serialize_with = "facts")]
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
    pub findings: Vec<Finding>,
}

/// How one probe did when it was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    pub probe: &'static str,
    pub works: bool,
    /// What was seen, or the whole chain of causes with the errno.
    pub detail: String,
    /// The last lines of libbpf and of the kernel's verifier; empty when it works.
    pub log: Vec<String>,
}

/// Whether one metric can be measured.
#[derive(Clone, Debug, Serialize)]
pub struct MetricLine {
    pub id: &'static str,
    pub available: bool,
    /// Why not.
    pub missing: Option<Missing>,
    /// What to do about it.
    pub advice: Vec<Advice>,
}

impl Report {
    /// Gathers the facts of this machine and tries the probes.
    pub fn gather() -> Report {
        let check = check();
        let trials = trial::run(&check);
        Report::new(check, trials)
    }

    /// The report on a host with these facts on which the probes did so. Without trials the rules decide.
    pub fn new(check: HostCheck, trials: Vec<Trial>) -> Report {
        let mut plan = plan(&check);
        let essential =
            trials.iter().filter(|trial| trial.parts.iter().any(|part| Part::ESSENTIAL.contains(part)));
        let failed = essential.filter_map(|trial| trial.outcome.as_ref().err()).next();
        let refusal = match failed {
            Some(error) => Some(error::explain(error, &check)),
            None if trials.is_empty() => error::preflight(&check).err(),
            None => None,
        };
        for trial in &trials {
            observe(&mut plan, trial);
        }
        let exit = refusal.as_ref().map_or(Exit::Ok, |refusal| refusal.exit);
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            live: Live { works: refusal.is_none(), exit, refusal },
            sections: findings::sections(&check),
            probes: trials.into_iter().map(probe).collect(),
            task_metrics: TASK_METRICS.iter().map(|metric| line(metric.id, plan.metric(metric.id))).collect(),
            node_metrics: NODE_METRICS.iter().map(|metric| line(metric.id, plan.metric(metric.id))).collect(),
            caveats: plan.caveats,
            facts: check,
        }
    }

    /// The exit code of `numatop-ng doctor`: 0 when the live view would work, else the code it would exit with.
    pub fn exit(&self) -> Exit {
        self.live.exit
    }
}

/// What was tried overrules the rules. Where both say no, the words of the rules are the better ones.
fn observe(plan: &mut Plan, trial: &Trial) {
    for part in trial.parts {
        match (&trial.outcome, plan.part(*part)) {
            (Ok(_), Err(_)) => plan.observe(*part, Ok(())),
            (Err(error), Ok(())) => plan.observe(*part, failure(error)),
            (Ok(_), Ok(())) | (Err(_), Err(_)) => {}
        }
    }
}

fn failure(error: &anyhow::Error) -> Verdict {
    let missing = Missing::Unsupported(error::chain(error));
    Err(Obstacle { missing, advice: Vec::new() })
}

fn probe(trial: Trial) -> Probe {
    let Trial { name, outcome, log, .. } = trial;
    match outcome {
        Ok(detail) => Probe { probe: name, works: true, detail, log: Vec::new() },
        Err(error) => Probe { probe: name, works: false, detail: error::chain(&error), log },
    }
}

fn line(id: &'static str, verdict: Result<(), &Obstacle>) -> MetricLine {
    let obstacle = verdict.err();
    MetricLine {
        id,
        available: obstacle.is_none(),
        missing: obstacle.map(|obstacle| obstacle.missing.clone()),
        advice: obstacle.map(|obstacle| obstacle.advice.clone()).unwrap_or_default(),
    }
}

/// The facts without the list of every CPU: `numatop-ng topology --format json` has that.
fn facts<S: serde::Serializer>(check: &HostCheck, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Machine {
        nodes: usize,
        sockets: u32,
        cores: u32,
        online_cpus: usize,
        warnings: Vec<String>,
    }
    let machine = match &check.topology {
        Fact::Known(topology) => Fact::Known(Machine {
            nodes: topology.nodes.len(),
            sockets: topology.sockets,
            cores: topology.cores,
            online_cpus: topology.online_cpus().count(),
            warnings: topology.warnings(),
        }),
        Fact::Unknown { unknown } => Fact::unknown(unknown.clone()),
    };
    #[derive(Serialize)]
    struct Facts<'a> {
        kernel: &'a crate::host::kernel::KernelFacts,
        privileges: &'a crate::host::privileges::Privileges,
        pmu: &'a crate::host::pmu::PmuFacts,
        cgroups: &'a crate::host::cgroups::Hierarchy,
        topology: Fact<Machine>,
    }
    let HostCheck { kernel, privileges, pmu, cgroups, .. } = check;
    Facts { kernel, privileges, pmu, cgroups, topology: machine }.serialize(serializer)
}

/// Writes the report: text of at most `width` columns, or JSON.
///
/// # Errors
/// The errno of the write, such as EPIPE.
pub fn write(report: &Report, json: bool, width: usize, out: &mut impl io::Write) -> io::Result<()> {
    if json {
        writeln!(out, "{:#}", render_json(report))
    } else {
        out.write_all(render_text(report, width).as_bytes())
    }
}
