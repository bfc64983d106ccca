//! The QEMU command line for a machine. Pure: nothing is started here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vmtests_protocol::{Machine, Pmu};

use crate::kernels::Arch;

/// Where the two serial lines of the guest lead.
pub enum Lines<'a> {
    /// Console to stdout, results to a socket on which the runner listens.
    Test { results: &'a Path },
    /// Console to the terminal of a person; there are no results.
    Shell,
}

/// A start: a kernel on a machine.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    pub arch: Arch,
    pub machine: &'a Machine,
    pub kernel: &'a Path,
    /// Further options of `-cpu`, from KERNELS.
    pub processor: &'a str,
}

pub fn program(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "qemu-system-x86_64",
        Arch::Arm64 => "qemu-system-aarch64",
    }
}

/// The device that the kernel's console is.
pub fn console(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "ttyS0",
        Arch::Arm64 => "ttyAMA0",
    }
}

/// The device at which the result socket is seen in the guest.
pub fn results(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "/dev/ttyS1",
        // The board has one PL011 only; the second line is a PCI 8250.
        Arch::Arm64 => "/dev/ttyS0",
    }
}

pub fn arguments(start: &Start, initrd: &Path, lines: &Lines) -> Vec<OsString> {
    let &Start { arch, machine, kernel, processor: extra } = start;
    let mut words = Words(Vec::new());
    words.option("-accel", ACCELERATOR);
    if let Pmu::Icount { shift } = machine.pmu {
        // sleep=off: an idle guest does not wait for host time.
        words.option("-icount", format!("shift={shift},sleep=off"));
    }
    words.option("-machine", board(arch));
    words.option("-cpu", processor(arch, machine, extra));
    words.option("-smp", processors(machine));
    let memory: u64 = machine.nodes.iter().map(|node| node.mem_mib).sum();
    words.option("-m", format!("{memory}M"));
    if machine.nodes.len() > 1 {
        numa(&mut words, machine);
    }
    for word in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        words.flag(word);
    }
    words.option("-display", "none");
    serial(&mut words, arch, lines);
    if let Some(node) = machine.disk_node {
        disk(&mut words, arch, node);
    }
    words.option("-kernel", kernel);
    words.option("-initrd", initrd);
    let quiet = matches!(lines, Lines::Shell).then_some(" loglevel=1").unwrap_or(" quiet");
    let lockdown = machine.lockdown.as_ref().map(|mode| format!(" lockdown={mode}")).unwrap_or_default();
    let boot = machine.boot.as_ref().map(|boot| format!(" {boot}")).unwrap_or_default();
    words.option("-append", format!("console={} panic=-1{quiet}{lockdown}{boot}", console(arch)));
    words.0
}

struct Words(Vec<OsString>);

impl Words {
    fn flag(&mut self, name: &str) {
        self.0.push(name.into());
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.push(name.into());
        self.0.push(value.into());
    }
}

/// Never KVM: a nested /dev/kvm opens and then hangs in the first kernel it is given.
///
/// One thread for all virtual CPUs. With a thread each, x86 guests sometimes die of a stale translation while
/// the kernel patches its own text ("Oops: int3"). CPUs of an arm64 guest may also ignore a newly enabled
/// tracepoint for seconds. Icount needs one thread in any case.
const ACCELERATOR: &str = "tcg,thread=single";

fn board(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "q35",
        Arch::Arm64 => "virt,gic-version=3",
    }
}

fn processor(arch: Arch, machine: &Machine, extra: &str) -> String {
    let comma = if extra.is_empty() { "" } else { "," };
    match arch {
        Arch::Amd64 => {
            // The vendor of `max` is AMD, whose guests see hardware threads with a CPUID leaf
            // that TCG does not have; Intel's way of telling them works.
            let vendor = if machine.threads_per_core > 1 { ",vendor=GenuineIntel" } else { "" };
            format!("max{vendor}{comma}{extra}")
        }
        Arch::Arm64 => {
            let pmu = if machine.pmu == Pmu::Absent { ",pmu=off" } else { "" };
            // Pointer authentication by the book makes the guest 2.3 times slower.
            format!("max,pauth-impdef=on{pmu}{comma}{extra}")
        }
    }
}

fn processors(machine: &Machine) -> String {
    let (cpus, sockets, threads) = (machine.cpus(), machine.sockets, machine.threads_per_core);
    let cores = cpus / (sockets * threads);
    format!("{cpus},sockets={sockets},cores={cores},threads={threads}")
}

fn numa(words: &mut Words, machine: &Machine) {
    for (id, node) in machine.nodes.iter().enumerate() {
        words.option("-object", format!("memory-backend-ram,id=m{id},size={}M", node.mem_mib));
        let mut value = format!("node,nodeid={id},memdev=m{id}");
        if let (Some(first), Some(last)) = (node.cpus.first(), node.cpus.last()) {
            value.push_str(&format!(",cpus={first}-{last}"));
        }
        words.option("-numa", value);
    }
    for (from, row) in machine.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|&(to, _)| to != from) {
            words.option("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
    }
}

fn serial(words: &mut Words, arch: Arch, lines: &Lines) {
    match lines {
        Lines::Shell => {
            // Ctrl-C goes to the guest; Ctrl-A X leaves QEMU.
            words.option("-chardev", "stdio,id=console,mux=on,signal=off");
            words.option("-serial", "chardev:console");
            words.option("-mon", "chardev=console");
        }
        Lines::Test { results } => {
            words.option("-monitor", "none");
            words.option("-serial", "stdio");
            // A comma in a value is written twice.
            let path = results.as_os_str().as_bytes();
            let path = path.split(|&byte| byte == b',').collect::<Vec<_>>().join(&b",,"[..]);
            let mut socket = OsString::from("socket,id=results,path=");
            socket.push(OsStr::from_bytes(&path));
            words.option("-chardev", socket);
            match arch {
                Arch::Amd64 => words.option("-serial", "chardev:results"),
                Arch::Arm64 => words.option("-device", "pci-serial,chardev=results"),
            }
        }
    }
}

/// An NVMe disk, whose driver is in the kernel image: guests have no modules. It begins with zeros and keeps
/// its content until the guest ends. QEMU makes a temporary file for it, and unlinks that as soon as it is
/// open.
///
/// One vector for all of its queues: the kernel manages those of I/O queues that have their own, and refuses other CPUs for them.
fn disk(words: &mut Words, arch: Arch, node: u32) {
    // The disk goes with its guest, so that no write has to be synced: cache=unsafe.
    words.option(
        "-drive",
        "driver=null-co,size=1073741824,read-zeroes=on,if=none,id=disk,snapshot=on,cache=unsafe",
    );
    let bus = match arch {
        Arch::Amd64 => {
            words.option("-device", format!("pxb-pcie,id=far,bus=pcie.0,bus_nr=128,numa_node={node}"));
            words.option("-device", "pcie-root-port,id=far-disk,bus=far,chassis=1");
            "far-disk"
        }
        // ACPI describes an expander bus, and this board boots with a device tree: the guest itself sets the
        // node.
        Arch::Arm64 => "pcie.0",
    };
    words.option("-device", format!("nvme,bus={bus},drive=disk,serial=1,max_ioqpairs=1,msix_qsize=1"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology;

    fn line(arch: Arch, topology: &str, pmu: Pmu) -> String {
        let topologies = topology::parse(include_str!("../topologies.toml")).unwrap();
        let topology = topologies.iter().find(|found| found.name == topology).unwrap();
        let machine = topology.machine(pmu, None);
        let lines = Lines::Test { results: Path::new("/run/a,b/results") };
        let start = Start { arch, machine: &machine, kernel: Path::new("/vmlinuz"), processor: "cx16=off" };
        let words = arguments(&start, Path::new("/initrd"), &lines);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_memory_only_node_has_memory_a_distance_and_no_cpus() {
        let line = line(Arch::Amd64, "2+1", Pmu::Absent);
        assert!(line.contains("-cpu max,cx16=off "), "{line}");
        assert!(line.contains("-smp 4,sockets=2,cores=2,threads=1"), "{line}");
        assert!(line.contains("-m 1536M"), "{line}");
        assert!(line.contains("-numa node,nodeid=1,memdev=m1,cpus=2-3 "), "{line}");
        assert!(line.contains("-numa node,nodeid=2,memdev=m2 "), "{line}");
        assert!(line.contains("-numa dist,src=2,dst=1,val=34"), "{line}");
    }

    #[test]
    fn one_node_is_told_nothing_of_numa() {
        assert!(!line(Arch::Arm64, "1", Pmu::CyclesOnly).contains("-numa"));
    }

    #[test]
    fn counting_needs_one_thread_and_icount() {
        let line = line(Arch::Arm64, "1cpu", Pmu::Icount { shift: 2 });
        assert!(line.contains("tcg,thread=single -icount shift=2,sleep=off"), "{line}");
        assert!(!line.contains("pmu=off"), "{line}");
    }

    #[test]
    fn no_pmu_is_said_to_arm_only() {
        assert!(line(Arch::Arm64, "2", Pmu::Absent).contains("pauth-impdef=on,pmu=off"));
        assert!(!line(Arch::Amd64, "2", Pmu::Absent).contains("pmu"));
    }

    #[test]
    fn a_disk_hangs_on_a_bus_of_its_node_where_there_is_acpi() {
        let amd64 = line(Arch::Amd64, "2disk", Pmu::Absent);
        assert!(amd64.contains("-device pxb-pcie,id=far,bus=pcie.0,bus_nr=128,numa_node=1 "), "{amd64}");
        assert!(amd64.contains("-device nvme,bus=far-disk,"), "{amd64}");
        let arm64 = line(Arch::Arm64, "2disk", Pmu::Absent);
        assert!(arm64.contains("-device nvme,bus=pcie.0,") && !arm64.contains("pxb"), "{arm64}");
        assert!(arm64.contains(",if=none,id=disk,snapshot=on,"), "what is written has to be kept: {arm64}");
        assert!(!line(Arch::Amd64, "2", Pmu::Absent).contains("nvme"));
    }

    #[test]
    fn results_never_share_the_console() {
        assert!(line(Arch::Amd64, "2", Pmu::Absent).contains(
            "-serial stdio -chardev socket,id=results,path=/run/a,,b/results -serial chardev:results"
        ));
        assert!(line(Arch::Arm64, "2", Pmu::Absent).contains("-device pci-serial,chardev=results"));
    }
}
