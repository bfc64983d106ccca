//! The laboratory itself: user space is whole enough for everything else.

use std::path::Path;

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::report::Report;
use crate::{affinity, procfs, sysfs};

pub const CASE: Case =
    Case { name: "boot", about: "the guest is up with BTF, cgroup v2 and every CPU that QEMU was told", run };

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    report.say(format_args!("Linux {}", sysfs::read("/proc/sys/kernel/osrelease")?));
    let online = sysfs::online_cpus()?;
    report.equal("online CPUs", plan.machine.cpus() as usize, online.len());
    for (what, path) in [
        ("BTF of the kernel", "/sys/kernel/btf/vmlinux"),
        ("cgroup v2", "/sys/fs/cgroup/cgroup.controllers"),
        ("tracepoints", "/sys/kernel/tracing/events/sched/sched_switch/id"),
    ] {
        // tracefs is closed in confidentiality lockdown.
        if what == "tracepoints" && plan.machine.lockdown.as_deref() == Some("confidentiality") {
            continue;
        }
        let found = Path::new(path).exists();
        report.check(found, what, path, if found { "there" } else { "missing" });
    }
    if let Ok(lockdown) = sysfs::read("/sys/kernel/security/lockdown") {
        report.say(format_args!("lockdown: {lockdown}"));
    }
    for &cpu in &online {
        affinity::pin(&[cpu]).map_err(|error| format!("going to CPU {cpu}: {error}"))?;
        report.equal(format_args!("after going to CPU {cpu}, we are on"), cpu, affinity::current_cpu());
    }
    let stat = procfs::stat()?;
    report.check(stat.switches > 0, "context switches since boot", "some", stat.switches);
    Ok(())
}
