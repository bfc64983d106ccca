//! The rules themselves: one function for each thing that may be in the way, with what to do about it.

use super::{Advice, Caveat, Hindrance, Verdict, features};
use crate::collect::check::HostCheck;
use crate::host::btf::{BtfFacts, Feature};
use crate::host::cgroups::Mode;
use crate::host::fact::Fact;
use crate::host::kernel::Lockdown;
use crate::host::privileges::Capability;
use crate::model::event::Role;
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::model::topology::{NumaSupport, Topology};
use crate::pmu::sets::SETS;

/// The verdict of the rules on one facility of one host.
pub(super) fn verdict(check: &HostCheck, facility: Facility) -> Verdict {
    match facility {
        Facility::SmtTime => smt_time(&check.topology),
        Facility::Counters => any_counter(check),
        Facility::Counter(role) => counter(check, role),
        Facility::NumaFields => numa_fields(check),
        Facility::DeviceIrqs => device_irqs(&check.topology),
        Facility::CacheUse => cache_use(check),
        Facility::NodeMemory => topology(&check.topology).map(|_| ()),
        Facility::NodePages => node_pages(&check.topology),
        Facility::NewPages => new_pages(check),
        Facility::Watermarks => topology(&check.topology).map(|_| ()),
        // move_pages(2) has no feature to test: permission is decided for each process.
        Facility::Placement => topology(&check.topology).map(|_| ()),
        // The others are found out by trying them.
        _ if features(facility).is_empty() => Ok(()),
        _ => probe(check, facility),
    }
}

/// The kernel first: privileges do not help on a kernel that cannot do it.
fn probe(check: &HostCheck, facility: Facility) -> Verdict {
    if !check.proc_mounted {
        let missing = Missing::Lost("/proc is not mounted here: there is no /proc/self".into());
        return Err(Hindrance::new(missing, [Advice::command("mount it", "mount -t proc proc /proc")]));
    }
    kernel_has(check, features(facility))?;
    topology(&check.topology)?;
    privileges(check)?;
    // All of them call bpf_probe_read_kernel, which LOCKDOWN_BPF_READ_KERNEL takes away
    // (security/lockdown, 5.4).
    if check.kernel.lockdown.is(&Lockdown::Confidentiality) {
        return Err(Hindrance::new(
            Missing::NotPermitted(
                "kernel lockdown is 'confidentiality': no BPF program may read kernel memory, whatever its \
                 capabilities"
                    .into(),
            ),
            [Advice::say("boot without lockdown=confidentiality (lockdown=integrity works)")],
        ));
    }
    Ok(())
}

fn kernel_has(check: &HostCheck, features: &[Feature]) -> Verdict {
    let release = check.kernel.release.known().map_or("this kernel", String::as_str);
    let enough =
        Advice::say(format!("use Linux 6.1 or newer, which has all of these features; {release} is running"));
    let present = match &check.kernel.btf {
        BtfFacts::Has(present) => present,
        BtfFacts::Absent(why) => {
            let missing = format!("the kernel shows no type information (BTF): {why}");
            let rebuild = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, like those of current distributions; \
                           in a container, mount /sys";
            return Err(Hindrance::new(Missing::Unsupported(missing), [Advice::say(rebuild)]));
        }
        BtfFacts::Denied(why) => {
            let missing = format!("permission to read the kernel's type information (BTF) is denied: {why}");
            let advice =
                "every user can read this file on an ordinary host: a sandbox or a mount forbids it here";
            return Err(Hindrance::new(Missing::NotPermitted(missing), [Advice::say(advice)]));
        }
        BtfFacts::Damaged(why) => {
            let missing = format!("the kernel's type information (BTF) cannot be parsed: {why}");
            return Err(Hindrance::new(Missing::Lost(missing), []));
        }
    };
    let lacking: Vec<Feature> = features.iter().copied().filter(|one| !present.contains(one)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = lacking.iter().map(|one| format!("{} ({})", one.name(), one.origin())).collect();
    let missing = format!("the kernel lacks {}", names.join(", "));
    if lacking.iter().any(|one| one.comes_with_version()) {
        Err(Hindrance::new(Missing::KernelTooOld(missing), [enough]))
    } else {
        let options: Vec<&str> = lacking.iter().map(|one| one.origin()).collect();
        let advice = Advice::say(format!("use a kernel built with {}", options.join(", ")));
        Err(Hindrance::new(Missing::Unsupported(missing), [advice]))
    }
}

fn topology(topology: &Fact<Topology>) -> Result<&Topology, Hindrance> {
    match topology {
        Fact::Known(topology) => Ok(topology),
        Fact::Unknown { unknown } => {
            let missing = Missing::Lost(format!("the topology cannot be read: {unknown}"));
            Err(Hindrance::new(missing, []))
        }
    }
}

fn privileges(check: &HostCheck) -> Verdict {
    let own = &check.privileges;
    if own.host_user_namespace.is(&false) {
        let missing = "this process is in its own user namespace (a rootless container): its capabilities \
                       have no effect on the host";
        let advice =
            Advice::say("run it on the host, or in a container started by root without user namespaces");
        return Err(Hindrance::new(Missing::NotPermitted(missing.into()), [advice]));
    }
    let lacking = own.lacking();
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = lacking.iter().map(Capability::to_string).collect();
    let verb = if lacking.len() == 1 { "is" } else { "are" };
    let who = own.uid.known().map_or(String::new(), |uid| format!(" (uid {uid})"));
    let missing = Missing::NotPermitted(format!("{} {verb} missing{who}", names.join(" and ")));
    Err(Hindrance::new(missing, how_to_get(check, &lacking)))
}

/// The way for a process like this one to get the capabilities it lacks.
fn how_to_get(check: &HostCheck, lacking: &[Capability]) -> Vec<Advice> {
    let own = &check.privileges;
    if !own.could_get(lacking) {
        let adds: Vec<String> =
            lacking.iter().map(|one| format!("--cap-add {}", one.to_string().replace("CAP_", ""))).collect();
        return vec![Advice::command(
            "the bounding set of this container or service excludes these capabilities, even for root. For a \
             container, use",
            format!("docker run {} --pid host IMAGE", adds.join(" ")),
        )];
    }
    if own.no_new_privs.is(&true) {
        return vec![Advice::say(
            "no_new_privs is set: sudo and file capabilities have no effect here; start numatop-ng outside \
             this sandbox or service",
        )];
    }
    let granted: Vec<String> = Capability::GRANTED.iter().map(|one| one.to_string().to_lowercase()).collect();
    vec![
        Advice::command("run it as root", "sudo numatop-ng"),
        Advice::command(
            "or grant the capabilities to the program once (every user who can run it then sees all tasks)",
            format!("sudo setcap {}+ep $(command -v numatop-ng)", granted.join(",")),
        ),
    ]
}

fn smt_time(facts: &Fact<Topology>) -> Verdict {
    let topology = topology(facts)?;
    if topology.cpus.iter().any(|cpu| cpu.siblings.len() > 1) {
        return Ok(());
    }
    Err(Hindrance::new(Missing::Unsupported("the cores of this machine have one thread each".into()), []))
}

fn device_irqs(facts: &Fact<Topology>) -> Verdict {
    if topology(facts)?.nodes.len() > 1 {
        return Ok(());
    }
    let missing =
        "the machine has one node: every device is on the node of the CPUs that handle its interrupts";
    Err(Hindrance::new(Missing::Unsupported(missing.into()), []))
}

fn cache_use(check: &HostCheck) -> Verdict {
    let Err(missing) = check.resctrl.clone() else { return Ok(()) };
    if !matches!(missing, Missing::NotCollected(_)) {
        return Err(Hindrance::new(missing, []));
    }
    let mount = "mount it, if /proc/cpuinfo lists cqm_llc or cqm_mbm_total, or on arm64 with MPAM";
    Err(Hindrance::new(missing, [Advice::command(mount, "mount -t resctrl resctrl /sys/fs/resctrl")]))
}

fn any_counter(check: &HostCheck) -> Verdict {
    if check.pmu.trials.iter().any(|trial| trial.outcome.is_ok()) {
        return Ok(());
    }
    let refused = check.pmu.trials.iter().find_map(|trial| trial.outcome.as_ref().err());
    match refused.or(check.pmu.absent.values().next()) {
        Some(missing) => Err(Hindrance::new(missing.clone(), counter_advice(check, missing))),
        None => Err(Hindrance::new(
            Missing::NotCollected("hardware counters were not requested (--events)".into()),
            [],
        )),
    }
}

fn counter(check: &HostCheck, role: Role) -> Verdict {
    let trials = check.pmu.trials_of(role);
    if let Some(missing) = trials.iter().find_map(|trial| trial.outcome.as_ref().err()) {
        return Err(Hindrance::new(missing.clone(), counter_advice(check, missing)));
    }
    if !trials.is_empty() {
        return Ok(());
    }
    if let Some(missing) = check.pmu.absent.get(&role) {
        return Err(Hindrance::new(missing.clone(), counter_advice(check, missing)));
    }
    // No set of events counts what no counter of this machine can.
    if !check.pmu.trials.is_empty() || check.pmu.absent.contains_key(&Role::Cycles) {
        any_counter(check)?;
    }
    let set = SETS.iter().find(|(name, roles, _)| *name != "auto" && roles.contains(&role));
    let advice =
        set.map(|(name, ..)| Advice::command("to count this event", format!("numatop-ng --events {name}")));
    let missing = Missing::NotCollected("its counter was not requested (--events)".into());
    Err(Hindrance::new(missing, advice.into_iter().collect::<Vec<_>>()))
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
        return vec![Advice::say(format!(
            "the kernel found no PMU of the CPU (/sys/bus/event_source/devices). In a virtual machine the \
             hypervisor must provide a PMU: {}",
            cloud_pmu(check).unwrap_or("with QEMU and KVM, -cpu host,pmu=on")
        ))];
    }
    match (missing, cloud_pmu(check)) {
        (Missing::Unsupported(_), Some(how)) => {
            let say = format!("the hypervisor may be hiding CPU counters: {how}");
            vec![Advice::say(say)]
        }
        _ => Vec::new(),
    }
}

/// Machines of this cloud and the counters that they have; `None` for other makers of machines.
fn cloud_pmu(check: &HostCheck) -> Option<&'static str> {
    match check.pmu.platform.known()?.as_str() {
        // cloud.google.com/compute/docs/pmu-overview
        "Google" => Some(
            "on Compute Engine (C4 and C4A) the PMU is off unless enabled for the VM. The setting 'architectural' \
             counts cycles and instructions, 'standard' also core events, 'enhanced' (large C4) also memory \
             accesses",
        ),
        vendor if vendor.starts_with("Amazon") => Some(
            "on EC2, bare-metal and whole-socket instances usually have all counters; smaller ones have some \
             or none",
        ),
        _ => None,
    }
}

fn numa_fields(check: &HostCheck) -> Verdict {
    if matches!(check.kernel.btf, BtfFacts::Has(_)) {
        kernel_has(check, &[Feature::NumaBalancing])?;
    }
    let off = |why: &str, advice: Vec<Advice>| Err(Hindrance::new(Missing::NotCollected(why.into()), advice));
    if check.topology.known().is_some_and(|topology| topology.nodes.len() == 1) {
        return off("the machine has one node: NUMA balancing has no effect", Vec::new());
    }
    if check.kernel.numa_balancing.is(&0) {
        let on = Advice::command(
            "to get these values, switch NUMA balancing on",
            "sudo sysctl kernel.numa_balancing=1",
        );
        return off("NUMA balancing is off (kernel.numa_balancing is 0)", vec![on]);
    }
    Ok(())
}

fn new_pages(check: &HostCheck) -> Verdict {
    if check.topology.known().is_some_and(|topology| topology.nodes.len() == 1) {
        let missing = Missing::NotCollected("the machine has one node: all pages are on this node".into());
        return Err(Hindrance::new(missing, Vec::new()));
    }
    probe(check, Facility::NewPages)
}

fn node_pages(facts: &Fact<Topology>) -> Verdict {
    if topology(facts)?.numa == NumaSupport::NotBuilt {
        let missing = Missing::Unsupported(
            "a kernel without CONFIG_NUMA has no numastat files and no memory policies".into(),
        );
        return Err(Hindrance::new(missing, [Advice::say("use a kernel built with CONFIG_NUMA=y")]));
    }
    Ok(())
}

/// A user without the capabilities that probes need reads about this one there.
fn others_memory(check: &HostCheck) -> Option<Caveat> {
    let own = &check.privileges;
    let one_node = check.topology.known().is_some_and(|topology| topology.nodes.len() == 1);
    let traces = own.effective.known().is_none_or(|own| own.has(Capability::SysPtrace));
    if one_node || traces || !own.lacking().is_empty() {
        return None;
    }
    let say = "CAP_SYS_PTRACE is missing: memory is located only for processes of the same user";
    let advice = how_to_get(check, &[Capability::SysPtrace]);
    Some(Caveat { about: "location of memory by node", say: say.into(), advice })
}

/// Facilities that work here, but show less or something else than one would expect.
pub(super) fn caveats(check: &HostCheck) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if check.privileges.host_pid_namespace.is(&false) {
        caveats.push(Caveat {
            about: "pid namespace",
            say:
                "numatop-ng runs in a container with its own pid namespace: only that container's tasks are \
                 listed, with host ids"
                    .into(),
            advice: vec![Advice::command(
                "to see all tasks, share the host's pid namespace: start the container with",
                "--pid=host",
            )],
        });
    }
    let counting = check.pmu.working().iter().any(|event| !event.is_software());
    if counting && check.kernel.nmi_watchdog.is(&1) {
        caveats.push(Caveat {
            about: "NMI watchdog",
            say: "the NMI watchdog uses one hardware counter of each CPU, so large sets of events are \
                  multiplexed"
                .into(),
            advice: vec![Advice::command("to free the counter", "sudo sysctl kernel.nmi_watchdog=0")],
        });
    }
    caveats.extend(others_memory(check));
    if check.cgroups.mode == Mode::None {
        caveats.push(Caveat {
            about: "cgroups",
            say: "no cgroup file system is mounted: cgroup paths are unknown".into(),
            advice: Vec::new(),
        });
    }
    let warnings = check.topology.known().map(Topology::warnings).unwrap_or_default();
    caveats.extend(warnings.into_iter().map(|say| Caveat { about: "topology", say, advice: Vec::new() }));
    caveats
}
