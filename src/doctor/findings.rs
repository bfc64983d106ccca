//! The facts of a host as lines: each with its value, and whether that is good.

use serde::Serialize;

use super::Section;
use crate::collect::check::HostCheck;
use crate::collect::plan::features;
use crate::host::btf::{BtfFacts, Feature};
use crate::host::cgroups::{Hierarchy, Mode};
use crate::host::fact::Fact;
use crate::host::kernel::{KernelFacts, Lockdown};
use crate::host::privileges::{Capability, Privileges};
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::model::topology::Topology;
use crate::pmu::facts::PmuFacts;
use crate::selftest::judge::Verdict;
use crate::selftest::verdicts::{EventVerdict, EventVerdicts};

/// The quality of a finding, as a word: colours may add to it, not replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    Ok,
    /// Works, but less than it could; or it is unknown.
    Warn,
    No,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub mark: Mark,
    pub text: String,
}

/// The title of the section on counters.
pub(super) const COUNTERS: &str = "counters";

/// The title of the section on nodes and CPUs.
pub(super) const MACHINE: &str = "machine";

pub(super) fn ok(text: impl Into<String>) -> Line {
    Line { mark: Mark::Ok, text: text.into() }
}

fn warn(text: impl Into<String>) -> Line {
    Line { mark: Mark::Warn, text: text.into() }
}

fn no(text: impl Into<String>) -> Line {
    Line { mark: Mark::No, text: text.into() }
}

/// Facts about the host, section by section.
pub(super) fn sections(check: &HostCheck) -> Vec<Section> {
    vec![
        Section { title: "kernel", findings: kernel(&check.kernel) },
        Section { title: "privileges", findings: privileges(&check.privileges, &check.kernel) },
        Section { title: COUNTERS, findings: counters(&check.pmu, &check.kernel) },
        Section { title: MACHINE, findings: vec![machine(&check.topology)] },
        Section { title: "cgroups", findings: vec![cgroups(&check.cgroups)] },
    ]
}

fn kernel(facts: &KernelFacts) -> Vec<Line> {
    let release = match &facts.release {
        Fact::Known(release) => ok(format!("Linux {release} ({})", facts.arch)),
        Fact::Unknown { unknown } => warn(format!("release unknown: {unknown}")),
    };
    let balancing = match &facts.numa_balancing {
        Fact::Known(0) => ok("NUMA balancing: off (kernel.numa_balancing is 0)"),
        Fact::Known(mode) => ok(format!("NUMA balancing: on (kernel.numa_balancing is {mode})")),
        Fact::Unknown { unknown } => ok(format!("NUMA balancing: unknown: {unknown}")),
    };
    let lockdown = match &facts.lockdown {
        Fact::Known(Lockdown::None) => ok("lockdown: none"),
        Fact::Known(Lockdown::Integrity) => ok("lockdown: integrity (no effect on numatop-ng)"),
        Fact::Known(Lockdown::Confidentiality) => no("lockdown: confidentiality (BPF cannot read kernel \
                                                      memory)"),
        Fact::Unknown { unknown } => warn(format!("lockdown unknown: {unknown}")),
    };
    let mut findings = vec![release];
    findings.extend(btf(&facts.btf));
    findings.extend([lockdown, balancing]);
    findings
}

fn btf(facts: &BtfFacts) -> Vec<Line> {
    match facts {
        BtfFacts::Has(present) => {
            let lacking: Vec<Feature> = Feature::all().filter(|one| !present.contains(one)).collect();
            let count = Feature::all().count();
            if lacking.is_empty() {
                return vec![ok(format!("type information (BTF): all {count} items found"))];
            }
            let found = format!("type information (BTF): {} of {count} items found", present.len());
            let lacks = |one: &Feature| {
                let essential = Facility::ESSENTIAL.iter().any(|part| features(*part).contains(one));
                let mark = if essential { Mark::No } else { Mark::Warn };
                Line { mark, text: format!("missing: {} ({})", one.name(), one.origin()) }
            };
            std::iter::once(warn(found)).chain(lacking.iter().map(lacks)).collect()
        }
        BtfFacts::Absent(why) => vec![no(format!("type information (BTF) is missing: {why}"))],
        BtfFacts::Denied(why) | BtfFacts::Damaged(why) => {
            vec![no(format!("type information (BTF) is unreadable: {why}"))]
        }
    }
}

fn privileges(own: &Privileges, kernel: &KernelFacts) -> Vec<Line> {
    let who = own.uid.known().map_or("uid unknown".into(), |uid| format!("uid {uid}"));
    let mut findings = match &own.effective {
        Fact::Known(effective) => {
            let held: Vec<String> = effective.iter().map(|one| one.to_string()).collect();
            let held =
                if held.is_empty() { "none of the needed capabilities".into() } else { held.join(" ") };
            vec![ok(format!("{who}, capabilities: {held}"))]
        }
        Fact::Unknown { unknown } => vec![warn(format!("{who}, capabilities unknown: {unknown}"))],
    };
    findings.extend(own.lacking().iter().map(|one| {
        no(format!(
            "{one} is missing: {}",
            match one {
                Capability::Bpf => "needed to create maps and load programs",
                _ => "needed to trace the kernel and to count on all CPUs",
            }
        ))
    }));
    if own.no_new_privs.is(&true) {
        findings.push(warn("no_new_privs is set: sudo and file capabilities have no effect here"));
    }
    if own.seccomp_filter.is(&true) {
        findings.push(warn("a seccomp filter limits the system calls"));
    }
    findings.push(match own.host_user_namespace {
        Fact::Known(true) => ok("user namespace: the host's"),
        Fact::Known(false) => {
            no("user namespace: a container's; its capabilities have no effect on the host")
        }
        Fact::Unknown { ref unknown } => warn(format!("user namespace unknown: {unknown}")),
    });
    findings.push(match own.host_pid_namespace {
        Fact::Known(true) => ok("pid namespace: the host's"),
        Fact::Known(false) => warn("pid namespace: a container's; only its tasks are listed"),
        Fact::Unknown { ref unknown } => warn(format!("pid namespace unknown: {unknown}")),
    });
    findings.push(sysctl("kernel.unprivileged_bpf_disabled", &kernel.unprivileged_bpf_disabled));
    findings
}

/// Events that self-tests found right, and each that one found wrong.
pub(super) fn tested(trust: &EventVerdicts) -> Vec<Line> {
    let of = |verdict: Verdict| trust.events.iter().filter(move |event| event.verdict == verdict);
    let is_hybrid = trust.events.iter().any(|event| event.pmu != trust.events[0].pmu);
    let name = |event: &EventVerdict| match is_hybrid {
        true => format!("{} ({})", event.event, event.pmu),
        false => event.event.clone(),
    };
    let right: Vec<String> = of(Verdict::Ok).map(name).collect();
    let mut lines = Vec::new();
    if !right.is_empty() {
        lines.push(ok(format!("verified here: {}", right.join(", "))));
    }
    let wrong = of(Verdict::Wrong).chain(of(Verdict::Known));
    lines.extend(wrong.map(|event| warn(format!("{}: {}", name(event), event.words()))));
    lines
}

fn counters(pmu: &PmuFacts, kernel: &KernelFacts) -> Vec<Line> {
    let mut findings = vec![match &pmu.sources {
        Fact::Known(names) => ok(format!("event sources: {}", names.join(" "))),
        Fact::Unknown { unknown } => no(format!("the existing event sources are unknown: {unknown}")),
    }];
    findings.extend(pmu.tables.iter().map(|table| {
        let text = format!("event table: {} ({}) for {}", table.id, table.name, table.cpu);
        if table.verified_on.is_empty() {
            warn(format!("{text}; not verified on hardware"))
        } else {
            ok(text)
        }
    }));
    findings.extend(pmu.trials.iter().map(|trial| match &trial.outcome {
        Ok(()) => {
            let tested = trial.event.tested.words();
            let tested = if tested.is_empty() { String::new() } else { format!("; {tested}") };
            ok(format!("{}: counts{tested}", trial.event.name))
        }
        Err(why) => no(format!("{}: {why}", trial.event.name)),
    }));
    // One reason often holds for several.
    let mut reasons: Vec<(&Missing, Vec<&str>)> = Vec::new();
    for (role, why) in &pmu.absent {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, roles)) => roles.push(role.id()),
            None => reasons.push((why, vec![role.id()])),
        }
    }
    findings.extend(reasons.iter().map(|(why, roles)| no(format!("{}: {why}", roles.join(", ")))));
    findings.push(sysctl("kernel.perf_event_paranoid", &kernel.perf_event_paranoid));
    findings.push(sysctl("kernel.nmi_watchdog", &kernel.nmi_watchdog));
    findings
}

/// A value that is neither good nor bad by itself: the rules draw the conclusion.
fn sysctl(name: &str, value: &Fact<i64>) -> Line {
    match value {
        Fact::Known(value) => ok(format!("{name} is {value}")),
        Fact::Unknown { unknown } => warn(format!("{name} unknown: {unknown}")),
    }
}

fn machine(topology: &Fact<Topology>) -> Line {
    let topology = match topology {
        Fact::Known(topology) => topology,
        Fact::Unknown { unknown } => return no(format!("topology: {unknown}")),
    };
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let sockets = match topology.sockets {
        0 => "unknown sockets".into(),
        sockets => count(sockets as usize, "socket"),
    };
    ok(format!(
        "{}, {sockets}, {}, {} online",
        count(topology.nodes.len(), "node"),
        count(topology.cores as usize, "core"),
        count(topology.online_cpus().count(), "CPU"),
    ))
}

fn cgroups(hierarchy: &Hierarchy) -> Line {
    let mode = match hierarchy.mode {
        Mode::Unified => "unified (v2)",
        Mode::Hybrid => "hybrid (v1 controllers and v2)",
        Mode::Legacy => "legacy (v1)",
        Mode::None => return warn("no cgroup file system is mounted"),
    };
    let used = match &hierarchy.controller {
        Some(controller) => format!("the cgroup v1 controller '{controller}'"),
        None => "the cgroup v2 tree".into(),
    };
    let mount = hierarchy.mount.as_ref().map_or(String::new(), |mount| format!(" at {}", mount.display()));
    ok(format!("{mode}; names of containers come from {used}{mount}"))
}
