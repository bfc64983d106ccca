//! Imagined hosts: a good one, and changes to it for each of the others.

use numatop_ng::collect::check::HostCheck;
use numatop_ng::host::btf::{BtfFacts, Feature};
use numatop_ng::host::cgroups::{Hierarchy, Mode};
use numatop_ng::host::fact::Fact;
use numatop_ng::host::kernel::{KernelFacts, Lockdown};
use numatop_ng::host::privileges::{CapSet, Privileges};
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::sample::Missing;
use numatop_ng::model::topology::Topology;
use numatop_ng::pmu::facts::{PmuFacts, Trial};

/// Root on a two-socket Xeon with everything: what the others differ from.
pub fn bare_metal() -> HostCheck {
    HostCheck {
        kernel: KernelFacts {
            release: Fact::Known("6.12.9".into()),
            arch: "x86_64",
            btf: BtfFacts::Has(Feature::all().collect()),
            lockdown: Fact::Known(Lockdown::None),
            perf_event_paranoid: Fact::Known(2),
            unprivileged_bpf_disabled: Fact::Known(2),
            nmi_watchdog: Fact::Known(0),
            numa_balancing: Fact::Known(1),
        },
        privileges: Privileges {
            uid: Fact::Known(0),
            effective: Fact::Known(CapSet::FULL),
            bounding: Fact::Known(CapSet::FULL),
            no_new_privs: Fact::Known(false),
            seccomp_filter: Fact::Known(false),
            host_pid_namespace: Fact::Known(true),
            host_user_namespace: Fact::Known(true),
        },
        pmu: PmuFacts {
            sources: Fact::Known(vec!["cpu".into(), "software".into(), "tracepoint".into()]),
            trials: events().into_iter().map(|event| Trial { event, outcome: Ok(()) }).collect(),
            ..no_counters()
        },
        cgroups: Hierarchy { mode: Mode::Unified, controller: None, mount: Some("/sys/fs/cgroup".into()) },
        topology: Fact::Known(fixture("intel-e5-2682v4")),
        proc_mounted: true,
        resctrl: Ok(()),
    }
}

/// Nothing was asked for.
fn no_counters() -> PmuFacts {
    PmuFacts {
        sources: Fact::Known(vec![]),
        platform: Fact::Known("Dell Inc.".into()),
        tables: vec![],
        trials: vec![],
        absent: Default::default(),
        unknown: Default::default(),
    }
}

/// A machine of tests/fixtures/hosts.
pub fn fixture(name: &str) -> Topology {
    let root = crate::fixture::tree(&format!("hosts/{name}"));
    numatop_ng::host::topology::read(&root).expect("the fixture is a whole machine")
}

/// A virtual machine without a PMU.
pub fn without_pmu() -> HostCheck {
    let refused = |event: Event| {
        let why = format!("opening {}: No such file or directory (os error 2)", event.name);
        Trial { event, outcome: Err(Missing::Unsupported(why)) }
    };
    let sources = Fact::Known(vec!["msr".into(), "software".into()]);
    let trials = events().into_iter().map(refused).collect();
    HostCheck { pmu: PmuFacts { sources, trials, ..no_counters() }, ..bare_metal() }
}

pub fn without_btf() -> HostCheck {
    let mut host = bare_metal();
    let why = "/sys/kernel/btf/vmlinux: No such file or directory (os error 2)";
    host.kernel.btf = BtfFacts::Absent(why.into());
    host
}

/// Debian 11.
pub fn linux_5_10() -> HostCheck {
    let mut host = bare_metal();
    host.kernel.release = Fact::Known("5.10.0-32-amd64".into());
    without(
        host,
        &[
            Feature::TaskStorage,
            Feature::CurrentTask,
            Feature::TracingStorage,
            Feature::TaskState,
            Feature::ThreadInfoCpu,
            Feature::BioDevice,
        ],
    )
}

/// `host` with a kernel that lacks `features`.
pub fn without(mut host: HostCheck, features: &[Feature]) -> HostCheck {
    if let BtfFacts::Has(present) = &mut host.kernel.btf {
        present.retain(|feature| !features.contains(feature));
    }
    host
}

/// An ordinary user with these capabilities.
pub fn user_with(effective: CapSet) -> HostCheck {
    let mut host = bare_metal();
    host.privileges.uid = Fact::Known(1000);
    host.privileges.effective = Fact::Known(effective);
    host
}

/// Root in a container with the capabilities that engines give by default.
pub fn default_container() -> HostCheck {
    let mut host = bare_metal();
    host.privileges.effective = Fact::Known(CapSet(0xa804_25fb));
    host.privileges.bounding = Fact::Known(CapSet(0xa804_25fb));
    host.privileges.seccomp_filter = Fact::Known(true);
    host.privileges.host_pid_namespace = Fact::Known(false);
    host
}

/// One event for each thing that metrics are made of.
fn events() -> Vec<Event> {
    Role::MEASURED
        .iter()
        .map(|role| Event { name: role.id().into(), role: *role, ..Event::default() })
        .collect()
}
