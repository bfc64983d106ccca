//! What can be measured on a host with these facts, and what its owner can do about the rest.
//! Rules only: nothing here looks at the machine.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::host::btf::{BtfFacts, Feature};
use crate::host::cgroups::Mode;
use crate::host::check::HostCheck;
use crate::host::fact::Fact;
use crate::host::kernel::Lockdown;
use crate::host::privileges::Capability;
use crate::host::topology::{NumaSupport, Topology};
use crate::metric::{node::NODE_METRICS, task::TASK_METRICS};
use crate::pmu::event::Role;
use crate::sample::Missing;
use crate::text::{hanging, words};

/// A thing to do, in words, and the command to type where there is one.
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

    /// The words wrapped at `width` behind `indent`, and the command on a line of its own, never wrapped.
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
pub struct Obstacle {
    pub missing: Missing,
    pub advice: Vec<Advice>,
}

impl Obstacle {
    fn new(missing: Missing, advice: impl Into<Vec<Advice>>) -> Obstacle {
        Obstacle { missing, advice: advice.into() }
    }
}

pub type Verdict = Result<(), Obstacle>;

/// What the tool measures with: probes, counters, files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// CPU time by node, charged at each context switch.
    CpuTime,
    /// The list of tasks, from the kernel's task iterator.
    TaskWalk,
    /// Births and final totals of tasks.
    Exits,
    /// Time with a busy SMT sibling.
    SmtTime,
    /// At least one of the wanted counters.
    Counters,
    Cycles,
    Instructions,
    /// What NUMA balancing keeps in the task structure.
    NumaFields,
    /// Memory of each node.
    NodeMemory,
    /// Allocations of each node, as numastat(8) shows them.
    NodePages,
}

impl Part {
    pub const ALL: [Part; 10] = [
        Part::CpuTime,
        Part::TaskWalk,
        Part::Exits,
        Part::SmtTime,
        Part::Counters,
        Part::Cycles,
        Part::Instructions,
        Part::NumaFields,
        Part::NodeMemory,
        Part::NodePages,
    ];

    /// A live view has all of these or does not start.
    pub const ESSENTIAL: [Part; 3] = [Part::CpuTime, Part::TaskWalk, Part::Exits];

    /// What a part stands on in the kernel.
    pub fn features(self) -> &'static [Feature] {
        use Feature::*;
        match self {
            Part::CpuTime => &[SchedSwitch, TaskStorage, CurrentTask, TracingStorage],
            Part::TaskWalk => {
                &[TaskIterator, TaskStorage, TracingStorage, TaskState, ThreadInfoCpu, SchedInfo]
            }
            Part::Exits => &[
                TaskNewtask,
                SchedProcessFree,
                RingBuffer,
                TaskStorage,
                TracingStorage,
                TaskState,
                ThreadInfoCpu,
                SchedInfo,
            ],
            _ => &[],
        }
    }
}

/// What metrics need besides [`Part::ESSENTIAL`].
const NEEDS: [(&[&str], &[Part]); 8] = [
    (&["smt_busy_pct"], &[Part::SmtTime]),
    (&["cycles_total", "ghz"], &[Part::Cycles]),
    (&["instructions_total"], &[Part::Instructions]),
    (&["ipc", "cpi"], &[Part::Cycles, Part::Instructions]),
    (&["counters_running_pct"], &[Part::Counters]),
    (&["preferred_node", "scan_period_ms"], &[Part::NumaFields]),
    (
        &[
            "mem_total_bytes",
            "mem_free_bytes",
            "mem_file_bytes",
            "mem_anon_bytes",
            "mem_slab_bytes",
            "huge_total",
            "huge_free",
        ],
        &[Part::NodeMemory],
    ),
    (
        &[
            "numa_hit_per_s",
            "numa_miss_per_s",
            "numa_foreign_per_s",
            "interleave_hit_per_s",
            "local_node_per_s",
            "other_node_per_s",
        ],
        &[Part::NodePages],
    ),
];

fn parts_of(id: &str) -> impl Iterator<Item = &'static Part> {
    NEEDS.iter().filter(move |(ids, _)| ids.contains(&id)).flat_map(|(_, parts)| *parts)
}

/// Something that works, but not as one might think.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caveat {
    pub about: &'static str,
    pub say: String,
    pub advice: Vec<Advice>,
}

/// What can be measured here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    verdicts: BTreeMap<Part, Verdict>,
    pub caveats: Vec<Caveat>,
}

impl Plan {
    pub fn part(&self, part: Part) -> &Verdict {
        &self.verdicts[&part]
    }

    /// Replaces the rule's verdict by what happened when the part was tried.
    pub fn observe(&mut self, part: Part, verdict: Verdict) {
        self.verdicts.insert(part, verdict);
    }

    /// The first reason why a live view cannot start.
    pub fn obstacle_to_start(&self) -> Option<&Obstacle> {
        Part::ESSENTIAL.iter().find_map(|part| self.part(*part).as_ref().err())
    }

    /// Whether the metric called `id` can be measured in a live view. Its own reason comes before that of
    /// the whole view: it would stay when the other is gone.
    pub fn metric(&self, id: &str) -> Result<(), &Obstacle> {
        let mut needed = parts_of(id).chain(&Part::ESSENTIAL);
        needed.find_map(|part| self.part(*part).as_ref().err()).map_or(Ok(()), Err)
    }

    /// Metric id → why it cannot be measured: what [`crate::sample::HostFacts::missing`] holds.
    pub fn missing(&self) -> BTreeMap<String, Missing> {
        let tasks = TASK_METRICS.iter().map(|metric| metric.id);
        let nodes = NODE_METRICS.iter().map(|metric| metric.id);
        let missing = |id: &str| Some((id.to_string(), self.metric(id).err()?.missing.clone()));
        tasks.chain(nodes).filter_map(missing).collect()
    }
}

/// Applies the rules to the facts of one host.
pub fn plan(check: &HostCheck) -> Plan {
    let verdict = |part: Part| match part {
        Part::CpuTime | Part::TaskWalk | Part::Exits => probe(check, part),
        Part::SmtTime => smt_time(&check.topology),
        Part::Counters => any_counter(check),
        Part::Cycles => counter(check, Role::Cycles),
        Part::Instructions => counter(check, Role::Instructions),
        Part::NumaFields => numa_fields(check),
        Part::NodeMemory => topology(&check.topology).map(|_| ()),
        Part::NodePages => node_pages(&check.topology),
    };
    Plan { verdicts: Part::ALL.map(|part| (part, verdict(part))).into(), caveats: caveats(check) }
}

/// The kernel first: nobody should look for privileges on a kernel that cannot do it.
fn probe(check: &HostCheck, part: Part) -> Verdict {
    kernel_has(check, part.features())?;
    topology(&check.topology)?;
    privileges(check)?;
    // The scheduler probe follows trusted pointers only; the others call bpf_probe_read_kernel, which
    // LOCKDOWN_BPF_READ_KERNEL takes away (security/lockdown, 5.4).
    if part != Part::CpuTime && check.kernel.lockdown.is(&Lockdown::Confidentiality) {
        return Err(Obstacle::new(
            Missing::NotPermitted(
                "kernel lockdown is 'confidentiality': no BPF program may read kernel memory, whatever its \
                 capabilities"
                    .into(),
            ),
            [Advice::say("boot without lockdown=confidentiality ('integrity' is fine)")],
        ));
    }
    Ok(())
}

fn kernel_has(check: &HostCheck, features: &[Feature]) -> Verdict {
    let release = check.kernel.release.known().map_or("this kernel", String::as_str);
    let enough = Advice::say(format!("use Linux 6.1 or newer: it has all of this; {release} is running"));
    let present = match &check.kernel.btf {
        BtfFacts::Has(present) => present,
        BtfFacts::Absent(why) => {
            let missing = format!("the kernel shows no type information (BTF): {why}");
            let rebuild = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of current \
                           distributions are; in a container, mount /sys";
            return Err(Obstacle::new(Missing::Unsupported(missing), [Advice::say(rebuild)]));
        }
        BtfFacts::Denied(why) => {
            let missing = format!("the kernel's type information (BTF) may not be read: {why}");
            let advice = "every user may read this file on an ordinary host: look for a sandbox or mount that forbids it";
            return Err(Obstacle::new(Missing::NotPermitted(missing), [Advice::say(advice)]));
        }
        BtfFacts::Damaged(why) => {
            let missing = format!("the kernel's type information (BTF) cannot be understood: {why}");
            return Err(Obstacle::new(Missing::Lost(missing), []));
        }
    };
    let lacking: Vec<Feature> = features.iter().copied().filter(|one| !present.contains(one)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = lacking.iter().map(|one| format!("{} ({})", one.name(), one.origin())).collect();
    let missing = format!("the kernel lacks {}", names.join(", "));
    if lacking.iter().any(|one| one.comes_with_version()) {
        Err(Obstacle::new(Missing::KernelTooOld(missing), [enough]))
    } else {
        let options: Vec<&str> = lacking.iter().map(|one| one.origin()).collect();
        let advice = Advice::say(format!("use a kernel built with {}", options.join(", ")));
        Err(Obstacle::new(Missing::Unsupported(missing), [advice]))
    }
}

fn topology(topology: &Fact<Topology>) -> Result<&Topology, Obstacle> {
    match topology {
        Fact::Known(topology) => Ok(topology),
        Fact::Unknown { unknown } => {
            let missing = Missing::Lost(format!("the topology cannot be read: {unknown}"));
            Err(Obstacle::new(missing, []))
        }
    }
}

fn privileges(check: &HostCheck) -> Verdict {
    let own = &check.privileges;
    if own.host_user_namespace.is(&false) {
        let missing = "this process is in a user namespace of its own, as in a rootless container: its \
                       capabilities do not count for the host's kernel";
        let advice =
            Advice::say("run it on the host, or in a container started by root without user namespaces");
        return Err(Obstacle::new(Missing::NotPermitted(missing.into()), [advice]));
    }
    let lacking = own.lacking();
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = lacking.iter().map(Capability::to_string).collect();
    let verb = if lacking.len() == 1 { "is" } else { "are" };
    let who = own.uid.known().map_or(String::new(), |uid| format!(" (uid {uid})"));
    let missing = Missing::NotPermitted(format!("{} {verb} missing{who}", names.join(" and ")));
    Err(Obstacle::new(missing, how_to_get(check, &lacking)))
}

/// How a process like this one gets the capabilities it lacks.
fn how_to_get(check: &HostCheck, lacking: &[Capability]) -> Vec<Advice> {
    let own = &check.privileges;
    if !own.could_get(lacking) {
        let adds: Vec<String> =
            lacking.iter().map(|one| format!("--cap-add {}", one.to_string().replace("CAP_", ""))).collect();
        return vec![Advice::command(
            "not even root gets them here: the bounding set of this container or service leaves them out. A container \
             gets them with",
            format!("docker run {} --pid host IMAGE", adds.join(" ")),
        )];
    }
    if own.no_new_privs.is(&true) {
        return vec![Advice::say(
            "no_new_privs is set here, so neither sudo nor file capabilities have an effect: start it from outside \
             of this sandbox or service",
        )];
    }
    let granted: Vec<String> = Capability::GRANTED.iter().map(|one| one.to_string().to_lowercase()).collect();
    vec![
        Advice::command("run it as root", "sudo numatop-ng"),
        Advice::command(
            "or give the program what it needs, once (whoever may run it then sees all tasks)",
            format!("sudo setcap {}+ep $(command -v numatop-ng)", granted.join(",")),
        ),
    ]
}

fn smt_time(facts: &Fact<Topology>) -> Verdict {
    let topology = topology(facts)?;
    if topology.cpus.iter().any(|cpu| cpu.siblings.len() > 1) {
        return Ok(());
    }
    Err(Obstacle::new(Missing::Unsupported("the cores of this machine have one thread each".into()), []))
}

fn any_counter(check: &HostCheck) -> Verdict {
    if check.pmu.trials.iter().any(|trial| trial.outcome.is_ok()) {
        return Ok(());
    }
    match check.pmu.trials.iter().find_map(|trial| trial.outcome.as_ref().err()) {
        Some(missing) => Err(Obstacle::new(missing.clone(), counter_advice(check, missing))),
        None => Err(Obstacle::new(Missing::NotCollected("no counter was asked for (--events)".into()), [])),
    }
}

fn counter(check: &HostCheck, role: Role) -> Verdict {
    match check.pmu.trials.iter().find(|trial| trial.event.role == role).map(|trial| &trial.outcome) {
        Some(Ok(())) => Ok(()),
        Some(Err(missing)) => Err(Obstacle::new(missing.clone(), counter_advice(check, missing))),
        None => {
            let missing = Missing::NotCollected("its counter was not asked for (--events)".into());
            Err(Obstacle::new(missing, []))
        }
    }
}

fn counter_advice(check: &HostCheck, missing: &Missing) -> Vec<Advice> {
    if matches!(missing, Missing::NotPermitted(_)) {
        return match check.kernel.perf_event_paranoid.known() {
            Some(level) => vec![Advice::say(format!("kernel.perf_event_paranoid is {level} now"))],
            None => Vec::new(),
        };
    }
    // x86 and most others call it cpu (cpu_core, cpu_atom, cpum_cf), Arm armv8_….
    let of_a_cpu = |name: &String| name.starts_with("cpu") || name.starts_with("arm");
    if check.pmu.sources.known().is_some_and(|names| !names.iter().any(of_a_cpu)) {
        return vec![Advice::say(
            "the kernel has found no PMU of the CPU (/sys/bus/event_source/devices). A virtual machine has one only \
             when its hypervisor gives it one: with QEMU and KVM, -cpu host,pmu=on",
        )];
    }
    Vec::new()
}

fn numa_fields(check: &HostCheck) -> Verdict {
    if matches!(check.kernel.btf, BtfFacts::Has(_)) {
        kernel_has(check, &[Feature::NumaBalancing])?;
    }
    let off = |why: &str, advice: Vec<Advice>| Err(Obstacle::new(Missing::NotCollected(why.into()), advice));
    if check.topology.known().is_some_and(|topology| topology.nodes.len() == 1) {
        return off("the machine has one node: NUMA balancing has nothing to choose", Vec::new());
    }
    if check.kernel.numa_balancing.is(&0) {
        let on = Advice::command("to see them, switch it on", "sudo sysctl kernel.numa_balancing=1");
        return off("NUMA balancing is off (kernel.numa_balancing is 0)", vec![on]);
    }
    Ok(())
}

fn node_pages(facts: &Fact<Topology>) -> Verdict {
    if topology(facts)?.numa == NumaSupport::NotBuilt {
        let missing = Missing::Unsupported("a kernel without CONFIG_NUMA keeps no numastat".into());
        return Err(Obstacle::new(missing, [Advice::say("use a kernel built with CONFIG_NUMA=y")]));
    }
    Ok(())
}

/// What works here, but shows less or something else than one would expect.
fn caveats(check: &HostCheck) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if check.privileges.host_pid_namespace.is(&false) {
        caveats.push(Caveat {
            about: "pid namespace",
            say: "this process is in a container with a pid namespace of its own: only its tasks are listed, by \
                  their ids on the host"
                .into(),
            advice: vec![Advice::command("to list all tasks, start the container with", "--pid host")],
        });
    }
    let counting = check.pmu.working().iter().any(|event| !event.is_software());
    if counting && check.kernel.nmi_watchdog.is(&1) {
        caveats.push(Caveat {
            about: "NMI watchdog",
            say: "it holds one hardware counter of each CPU: with many events counters have to take turns"
                .into(),
            advice: vec![Advice::command("to free the counter", "sudo sysctl kernel.nmi_watchdog=0")],
        });
    }
    if check.cgroups.mode == Mode::None {
        caveats.push(Caveat {
            about: "cgroups",
            say: "no cgroup file system is mounted: cgroups have no names".into(),
            advice: Vec::new(),
        });
    }
    let warnings = check.topology.known().map(Topology::warnings).unwrap_or_default();
    caveats.extend(warnings.into_iter().map(|say| Caveat { about: "topology", say, advice: Vec::new() }));
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_needs_names_metrics_that_exist() {
        let known = |id: &str| {
            TASK_METRICS.iter().any(|metric| metric.id == id)
                || NODE_METRICS.iter().any(|metric| metric.id == id)
        };
        for id in NEEDS.iter().flat_map(|(ids, _)| *ids) {
            assert!(known(id), "{id} is no metric");
        }
    }
}
