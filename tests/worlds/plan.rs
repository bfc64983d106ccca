//! Verdicts of the rules on imagined hosts: one row of the table for each.

use numatop_ng::collect::check::HostCheck;
use std::collections::{BTreeMap, BTreeSet};

use crate::fake_hosts;
use fake_hosts::{
    bare_metal, default_container, fixture, linux_5_10, user_with, without, without_btf, without_pmu,
};
use numatop_ng::collect::plan::{Hindrance, Plan, judged, plan};
use numatop_ng::error::{Exit, preflight};
use numatop_ng::host::btf::{BtfFacts, Feature};
use numatop_ng::host::fact::Fact;
use numatop_ng::host::kernel::Lockdown;
use numatop_ng::host::privileges::{CapSet, Capability};
use numatop_ng::metric::{needs, task};
use numatop_ng::model::event::Role;
use numatop_ng::model::event::TableInUse;
use numatop_ng::model::facility::Facility::{self, *};
use numatop_ng::model::sample::Missing;

/// Whether the task metric called `id` can be measured.
fn metric<'a>(plan: &'a Plan, id: &str) -> Result<(), &'a Hindrance> {
    let metric = task::by_id(id).expect("a metric of tasks");
    plan.obstacle(metric.traits.needs).map_or(Ok(()), Err)
}

fn missing(plan: &Plan) -> BTreeMap<String, Missing> {
    needs::missing(|needs| Some(plan.obstacle(needs)?.missing.clone()))
}

/// A host, what it cannot do, and the exit code of a live view on it.
struct Row {
    name: &'static str,
    host: HostCheck,
    lacks: &'static [Facility],
    exit: Exit,
    /// Words that the user must read, in the reason or in the advice of the first part that is missing.
    says: &'static str,
}

#[rustfmt::skip]
fn table() -> Vec<Row> {
    const PROBES: &[Facility] = &[CpuTime, TaskWalk, Exits, Reclaim, NewPages, MovedPages, SentTasks, PageFlows, DiskTraffic, SocketTraffic, Accelerators];
    const COUNTERS: &[Facility] = &[
        Counters, Counter(Role::Cycles), Counter(Role::Instructions), Counter(Role::Lma), Counter(Role::Rma),
        Counter(Role::StallFrontend), Counter(Role::StallBackend), Counter(Role::Llc), Counter(Role::Dtlb),
        Counter(Role::Itlb), Counter(Role::Branch),
    ];
    let row = |name, host, lacks, exit, says| Row { name, host, lacks, exit, says };
    let both = CapSet::of(&Capability::NEEDED);
    vec![
        row("bare metal, root", bare_metal(), &[], Exit::Ok, ""),
        row("VM without PMU", without_pmu(), COUNTERS, Exit::Ok, "pmu=on"),
        row("no BTF", without_btf(), PROBES, Exit::Kernel, "CONFIG_DEBUG_INFO_BTF"),
        row("BTF behind a sandbox", set(|host| {
            host.kernel.btf = BtfFacts::Denied("/sys/kernel/btf/vmlinux: Permission denied (os error 13)".into());
        }), PROBES, Exit::Privilege, "os error 13"),
        row("5.10 without task storage", linux_5_10(), &PROBES[..PROBES.len() - 1], Exit::Kernel, "Linux 6.1 or newer"),
        row("5.15: thread_info.cpu is elsewhere", without(bare_metal(), &[Feature::ThreadInfoCpu]), &[TaskWalk, Exits], Exit::Kernel, "thread_info.cpu (since Linux 5.16)"),
        row("no CONFIG_SCHED_INFO", without(bare_metal(), &[Feature::SchedInfo]), &[TaskWalk, Exits], Exit::Kernel, "built with CONFIG_SCHED_INFO"),
        row("user with both capabilities", user_with(both), &[], Exit::Ok, ""),
        row("user with CAP_SYS_ADMIN", user_with(CapSet::of(&[Capability::SysAdmin])), &[], Exit::Ok, ""),
        row("user with nothing", user_with(CapSet::default()), PROBES, Exit::Privilege, "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep $(command -v numatop-ng)"),
        row("CAP_BPF only", user_with(CapSet::of(&[Capability::Bpf])), PROBES, Exit::Privilege, "CAP_PERFMON is missing (uid 1000)"),
        row("CAP_PERFMON only", user_with(CapSet::of(&[Capability::Perfmon])), PROBES, Exit::Privilege, "CAP_BPF is missing (uid 1000)"),
        row("user with nothing on 5.10", set_on(linux_5_10(), |host| {
            host.privileges.effective = Fact::Known(CapSet::default());
        }), PROBES, Exit::Kernel, "task storage"),
        row("no_new_privs", set_on(user_with(CapSet::default()), |host| {
            host.privileges.no_new_privs = Fact::Known(true);
        }), PROBES, Exit::Privilege, "no_new_privs is set"),
        row("lockdown=integrity", set(|host| host.kernel.lockdown = Fact::Known(Lockdown::Integrity)), &[], Exit::Ok, ""),
        row("lockdown=confidentiality", set(|host| {
            host.kernel.lockdown = Fact::Known(Lockdown::Confidentiality);
        }), PROBES, Exit::Privilege, "without lockdown=confidentiality"),
        row("container, default capabilities", default_container(), PROBES, Exit::Privilege, "--cap-add BPF --cap-add PERFMON --pid host"),
        row("container with its own pid namespace", set(|host| {
            host.privileges.host_pid_namespace = Fact::Known(false);
        }), &[], Exit::Ok, ""),
        row("rootless container", set(|host| {
            host.privileges.host_user_namespace = Fact::Known(false);
        }), PROBES, Exit::Privilege, "own user namespace"),
        row("no CONFIG_NUMA_BALANCING", without(bare_metal(), &[Feature::NumaBalancing]), &[NumaFields], Exit::Ok, "built with CONFIG_NUMA_BALANCING"),
        row("NUMA balancing switched off", set(|host| host.kernel.numa_balancing = Fact::Known(0)), &[NumaFields], Exit::Ok, "sysctl kernel.numa_balancing=1"),
        row("NUMA hidden by the firmware", set(|host| {
            host.topology = Fact::Known(fixture("intel-8269cy-hidden"));
        }), &[NumaFields, NewPages, DeviceIrqs], Exit::Ok, "one node"),
        row("no CONFIG_NUMA", set(|host| host.topology = Fact::Known(fixture("no-numa"))), &[SmtTime, NumaFields, NodePages, NewPages, DeviceIrqs], Exit::Ok, "one thread each"),
        row("no SMT", set(|host| host.topology = Fact::Known(fixture("kunpeng-920-4826"))), &[SmtTime], Exit::Ok, "one thread each"),
        row("sysfs not mounted", set(|host| {
            host.topology = Fact::unknown("opening /sys/devices/system/cpu/online: no such file");
        }), &[CpuTime, TaskWalk, Exits, SmtTime, NodeMemory, NodePages, Reclaim, Watermarks, NewPages, MovedPages, Placement, SentTasks, PageFlows, DeviceIrqs, DiskTraffic, SocketTraffic, Accelerators], Exit::CouldNotMeasure, "cpu/online"),
        row("nothing known about privileges", set(|host| {
            host.privileges.effective = Fact::unknown("/proc is not mounted");
            host.privileges.host_user_namespace = Fact::unknown("/proc is not mounted");
        }), &[], Exit::Ok, ""),
        row("lockdown and release unknown", set(|host| {
            host.kernel.lockdown = Fact::unknown("securityfs is not mounted");
            host.kernel.release = Fact::unknown("?");
        }), &[], Exit::Ok, ""),
    ]
}

fn set(change: impl FnOnce(&mut HostCheck)) -> HostCheck {
    set_on(bare_metal(), change)
}

fn set_on(mut host: HostCheck, change: impl FnOnce(&mut HostCheck)) -> HostCheck {
    change(&mut host);
    host
}

#[test]
fn each_host_lacks_what_it_must_and_says_so() {
    for Row { name, host, lacks, exit, says } in table() {
        let plan = plan(&host);

        let missing: Vec<Facility> = judged().filter(|part| plan.verdict(*part).is_err()).collect();
        let set = |parts: &[Facility]| parts.iter().copied().collect::<BTreeSet<Facility>>();
        assert_eq!(set(&missing), set(lacks), "{name}");
        assert_eq!(preflight(&host).err().map_or(Exit::Ok, |refusal| refusal.exit), exit, "{name}");
        if let Some(Err(obstacle)) = missing.first().map(|part| plan.verdict(*part)) {
            let mut words = obstacle.missing.to_string();
            words.extend(obstacle.advice.iter().flat_map(|advice| {
                [" ".to_string(), advice.say.clone(), " ".into(), advice.command.clone().unwrap_or_default()]
            }));
            assert!(words.contains(says), "{name}: {says:?} is not in {words:?}");
        }
    }
}

#[test]
fn metrics_follow_from_the_parts_they_need() {
    let plan_without_pmu = plan(&without_pmu());
    assert!(metric(&plan_without_pmu, "cpu_pct").is_ok());
    for id in ["ipc", "cpi", "ghz", "cycles_total", "instructions_total", "counters_running_pct"] {
        let obstacle = metric(&plan_without_pmu, id).expect_err(id);
        assert!(matches!(obstacle.missing, Missing::Unsupported(_)), "{id}");
    }

    let missing = missing(&plan(&set(|host| host.kernel.numa_balancing = Fact::Known(0))));
    let balancing = [
        "balancing_pct",
        "hint_faults_per_s",
        "hint_remote_pct",
        "numa_group",
        "numa_moves_per_s",
        "numa_stuck_per_s",
        "numa_swaps_per_s",
        "pages_in_per_s",
        "pages_out_per_s",
        "preferred_node",
        "scan_period_ms",
    ];
    assert_eq!(missing.keys().collect::<Vec<_>>(), balancing);

    let nothing_works = plan(&user_with(CapSet::default()));
    assert!(
        matches!(metric(&nothing_works, "pid"), Err(obstacle) if matches!(obstacle.missing, Missing::NotPermitted(_)))
    );
}

#[test]
fn memory_of_other_users_needs_a_capability_that_the_probes_do_not_need() {
    let about = |host: &HostCheck| {
        plan(host).caveats.iter().any(|caveat| caveat.about == "location of memory by node")
    };
    let mut user = user_with(CapSet::of(&Capability::NEEDED));
    assert!(about(&user));
    user.privileges.effective = Fact::Known(CapSet::of(&Capability::GRANTED));
    assert!(!about(&user));
    // One node: nothing has to be asked.
    let mut user = user_with(CapSet::of(&Capability::NEEDED));
    user.topology = Fact::Known(fixture("no-numa"));
    assert!(!about(&user));
}

#[test]
fn a_counter_that_one_cpu_does_not_give_takes_its_metrics_along() {
    let mut host = bare_metal();
    let why = Missing::Unsupported(
        "opening a counter on CPU 3 instructions: Device or resource busy (os error 16)".into(),
    );

    assert!(host.pmu.refuse("instructions", &why), "news");
    assert!(!host.pmu.refuse("instructions", &why), "the second CPU is none");

    let missing = missing(&plan(&host));
    for id in ["instructions_total", "ipc", "cpi", "ipc_by_node", "llc_mpki", "dtlb_mpki", "lpi", "rpi"] {
        assert_eq!(missing.get(id), Some(&why), "{id}");
    }
    for id in ["cycles_total", "ghz", "lma_per_s", "rma_lma", "stall_backend_pct"] {
        assert!(!missing.contains_key(id), "{id}");
    }
    assert!(host.pmu.refused().any(|(name, reason)| name == "instructions" && reason == why));
}

#[test]
fn local_accesses_of_an_arm_core_stand_on_two_counters() {
    let mut host = bare_metal();
    host.pmu.trials.retain(|trial| trial.event.role != Role::Lma);
    assert!(metric(&plan(&host), "lma_per_s").is_err());
    host.pmu.tables = vec![TableInUse { lma_is_llc_less_rma: true, ..TableInUse::default() }];
    assert!(metric(&plan(&host), "lma_per_s").is_ok());
    host.pmu.refuse("llc", &Missing::Unsupported("busy".into()));
    assert!(metric(&plan(&host), "lma_per_s").is_err());
}

#[test]
fn each_cloud_has_its_own_way_to_counters() {
    for (platform, says) in [("Google", "enhanced"), ("Amazon EC2", "bare-metal"), ("QEMU", "pmu=on")] {
        let mut host = without_pmu();
        host.pmu.platform = Fact::Known(platform.into());
        let plan = plan(&host);
        let advice = &metric(&plan, "ipc").unwrap_err().advice;
        assert!(advice.iter().any(|one| one.say.contains(says)), "{platform}: {advice:?}");
    }
}

/// A virtual machine of `platform` whose PMU lacks everything outside the core.
fn with_a_small_pmu(platform: &str) -> HostCheck {
    set(|host| {
        host.pmu.platform = Fact::Known(platform.into());
        host.pmu.trials.retain(|trial| matches!(trial.event.role, Role::Cycles | Role::Instructions));
        let why = Missing::Unsupported("this CPU or hypervisor has no such counter".into());
        host.pmu.absent = [Role::Lma, Role::Rma, Role::Llc].map(|role| (role, why.clone())).into();
    })
}

#[test]
fn a_cloud_that_holds_back_some_counters_says_which_machines_have_them() {
    for (platform, says) in [("Google", "'enhanced' (large C4)"), ("Amazon EC2", "whole-socket")] {
        let plan = plan(&with_a_small_pmu(platform));
        assert!(metric(&plan, "ipc").is_ok(), "{platform}");
        for id in ["lma_per_s", "rma_per_s", "rma_lma", "llc_mpki"] {
            let advice = &metric(&plan, id).expect_err(id).advice;
            assert!(advice.iter().any(|one| one.say.contains(says)), "{platform}, {id}: {advice:?}");
        }
    }
    let elsewhere = plan(&with_a_small_pmu("Dell Inc."));
    assert!(metric(&elsewhere, "rma_per_s").unwrap_err().advice.is_empty());
}

#[test]
fn a_counter_that_a_cloud_lets_open_but_not_count_has_the_same_advice() {
    let mut host = with_a_small_pmu("Google");
    host.pmu.refuse(
        "cycles",
        &Missing::Unsupported("cycles can be opened but does not count on this CPU".into()),
    );
    let advice = &metric(&plan(&host), "ghz").unwrap_err().advice.clone();
    assert!(advice.iter().any(|one| one.say.contains("architectural")), "{advice:?}");
}

#[test]
fn a_cloud_is_not_blamed_for_counters_that_were_not_asked_for_or_not_permitted() {
    let mut host = with_a_small_pmu("Google");
    host.pmu.absent = [(Role::Rma, Missing::NotPermitted("needs CAP_PERFMON".into()))].into();
    for id in ["rma_per_s", "dtlb_mpki"] {
        let advice = &metric(&plan(&host), id).expect_err(id).advice.clone();
        assert!(!advice.iter().any(|one| one.say.contains("Compute Engine")), "{id}: {advice:?}");
    }
}

#[test]
fn a_counter_nobody_asked_for_is_not_called_unsupported() {
    let host = set(|host| host.pmu.trials.retain(|trial| trial.event.name == "cycles"));

    let plan = plan(&host);

    assert!(metric(&plan, "cycles_total").is_ok() && metric(&plan, "counters_running_pct").is_ok());
    assert!(
        matches!(&metric(&plan, "ipc").unwrap_err().missing, Missing::NotCollected(why) if why.contains("--events"))
    );
}

#[test]
fn other_events_are_no_advice_where_even_cycles_are_absent() {
    let mut host = without_pmu();
    let why = Missing::Unsupported("this CPU or hypervisor has no such counter".into());
    host.pmu.trials.clear();
    host.pmu.absent = [Role::Cycles, Role::Instructions].map(|role| (role, why.clone())).into();
    let found = plan(&host);
    let hindrance = metric(&found, "dtlb_mpki").unwrap_err();
    assert_eq!(hindrance.missing, why);
    assert!(
        hindrance.advice.iter().all(|one| !one.say.contains("to count this event")),
        "{:?}",
        hindrance.advice
    );
}

#[test]
fn what_works_differently_from_what_one_expects_is_told() {
    let caveats = |host: &HostCheck| -> Vec<&'static str> {
        plan(host).caveats.iter().map(|caveat| caveat.about).collect()
    };

    assert!(caveats(&bare_metal()).is_empty());
    assert_eq!(
        caveats(&set(|host| host.privileges.host_pid_namespace = Fact::Known(false))),
        ["pid namespace"]
    );
    assert_eq!(caveats(&set(|host| host.kernel.nmi_watchdog = Fact::Known(1))), ["NMI watchdog"]);
    let mut virtual_machine = without_pmu();
    virtual_machine.kernel.nmi_watchdog = Fact::Known(1);
    assert!(caveats(&virtual_machine).is_empty(), "without counters the watchdog takes none");
    let hidden = set(|host| host.topology = Fact::Known(fixture("intel-8269cy-hidden")));
    assert_eq!(caveats(&hidden), ["topology"]);
    assert!(plan(&hidden).caveats[0].say.starts_with("2 sockets but 1 node"));
}
