//! The QEMU command line for a machine. Pure: nothing is started here.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use vmtests_protocol::{Hmat, Machine, Pmu};

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

/// The files that a guest begins with.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    pub initrd: &'a Path,
    /// The content of the disk; without one it is all zeros.
    pub disk: Option<&'a Path>,
}

pub fn arguments(start: &Start, files: Files, lines: &Lines) -> Vec<OsString> {
    let &Start { arch, machine, kernel, processor: extra } = start;
    let mut words = Words(Vec::new());
    words.option("-accel", ACCELERATOR);
    if let Pmu::Icount { shift } = machine.pmu {
        // sleep=off: an idle guest does not wait for host time.
        words.option("-icount", format!("shift={shift},sleep=off"));
    }
    words.option("-machine", board(arch, !machine.hmat.is_empty()));
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
    disk(&mut words, arch, machine, files.disk);
    words.option("-kernel", kernel);
    words.option("-initrd", files.initrd);
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

fn board(arch: Arch, hmat: bool) -> &'static str {
    match arch {
        Arch::Amd64 if hmat => "q35,hmat=on",
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
            let model = machine.processor.as_deref().unwrap_or("max");
            format!("{model}{vendor}{comma}{extra}")
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
        } else if let Some(nearest) = nearest(machine, id as u32) {
            value.push_str(&format!(",initiator={nearest}"));
        }
        words.option("-numa", value);
    }
    for (from, row) in machine.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|&(to, _)| to != from) {
            words.option("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
    }
    let kinds = [("access-latency", "latency"), ("access-bandwidth", "bandwidth")];
    for (row, (kind, key)) in machine.hmat.iter().flat_map(|row| kinds.map(|kind| (row, kind))) {
        let Hmat { from, to, ns, gib_per_s } = row;
        let value = if key == "latency" { ns.to_string() } else { format!("{gib_per_s}G") };
        let place = format!("hmat-lb,initiator={from},target={to},hierarchy=memory,data-type={kind}");
        words.option("-numa", format!("{place},{key}={value}"));
    }
}

/// The node whose CPUs reach the memory of a node soonest, by the HMAT.
fn nearest(machine: &Machine, node: u32) -> Option<u32> {
    let rows = machine.hmat.iter().filter(|row| row.to == node);
    rows.min_by_key(|row| row.ns).map(|row| row.from)
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
            let mut socket = OsString::from("socket,id=results,path=");
            socket.push(escaped(results));
            words.option("-chardev", socket);
            match arch {
                Arch::Amd64 => words.option("-serial", "chardev:results"),
                Arch::Arm64 => words.option("-device", "pci-serial,chardev=results"),
            }
        }
    }
}

/// An NVMe disk, whose driver is in the kernel image: guests have no modules. It begins with zeros, or with a file system, and
/// keeps its content until the guest ends. QEMU writes to a temporary file, which it unlinks after opening it.
///
/// One vector for all of its queues: the kernel manages those of I/O queues that have their own, and refuses other CPUs for them.
fn disk(words: &mut Words, arch: Arch, machine: &Machine, content: Option<&Path>) {
    const QUEUES: &str = "max_ioqpairs=1,msix_qsize=1";
    if machine.disk_node.is_none() && machine.disk_paths.is_empty() {
        return;
    }
    // The disk goes with its guest, so that no write has to be synced: cache=unsafe.
    let kept = "if=none,id=disk,snapshot=on,cache=unsafe";
    match content {
        Some(path) => {
            let mut drive = OsString::from("format=raw,");
            drive.push(kept);
            drive.push(",file=");
            drive.push(escaped(path));
            words.option("-drive", drive);
        }
        None => words.option("-drive", format!("driver=null-co,size=1073741824,read-zeroes=on,{kept}")),
    }
    if let Some(node) = machine.disk_node {
        let bus = bus(words, arch, node, 1);
        words.option("-device", format!("nvme,bus={bus},drive=disk,serial=1,{QUEUES}"));
        return;
    }
    words.option("-device", "nvme-subsys,id=paths,nqn=disk");
    for (at, node) in (1..).zip(&machine.disk_paths) {
        let bus = bus(words, arch, *node, at);
        words.option("-device", format!("nvme,id=path{at},bus={bus},serial=1,subsys=paths,{QUEUES}"));
    }
    // Of all controllers of the subsystem.
    words.option("-device", "nvme-ns,drive=disk,nsid=1,bus=path1,shared=on");
}

/// A bus for one device on a node, with this number.
fn bus(words: &mut Words, arch: Arch, node: u32, number: u32) -> String {
    match arch {
        Arch::Amd64 => {
            let (bus, port) = (format!("bus{number}"), format!("port{number}"));
            let first = 256 - 64 * number;
            words.option("-device", format!("pxb-pcie,id={bus},bus=pcie.0,bus_nr={first},numa_node={node}"));
            words.option("-device", format!("pcie-root-port,id={port},bus={bus},chassis={number}"));
            port
        }
        // ACPI describes an expander bus, and this board boots with a device tree: the guest itself sets the
        // node.
        Arch::Arm64 => "pcie.0".to_owned(),
    }
}

/// A path as a value of an option: a comma in it is written twice.
fn escaped(path: &Path) -> OsString {
    let parts = path.as_os_str().as_bytes().split(|&byte| byte == b',').collect::<Vec<_>>();
    OsString::from_vec(parts.join(&b",,"[..]))
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
        let disk = machine.disk_format.as_ref().map(|_| Path::new("/run/a,b/disk"));
        let words = arguments(&start, Files { initrd: Path::new("/initrd"), disk }, &lines);
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
        assert!(amd64.contains("-device pxb-pcie,id=bus1,bus=pcie.0,bus_nr=192,numa_node=1 "), "{amd64}");
        assert!(amd64.contains("-device nvme,bus=port1,drive=disk,"), "{amd64}");
        let arm64 = line(Arch::Arm64, "2disk", Pmu::Absent);
        assert!(arm64.contains("-device nvme,bus=pcie.0,") && !arm64.contains("pxb"), "{arm64}");
        assert!(arm64.contains(",if=none,id=disk,snapshot=on,"), "what is written has to be kept: {arm64}");
        assert!(!line(Arch::Amd64, "2", Pmu::Absent).contains("nvme"));
    }

    #[test]
    fn a_disk_with_two_paths_is_one_namespace_of_two_controllers() {
        let line = line(Arch::Amd64, "2paths", Pmu::Absent);
        for (at, node) in [(1, 0), (2, 1)] {
            assert!(line.contains(&format!(
                "pxb-pcie,id=bus{at},bus=pcie.0,bus_nr={},numa_node={node} ",
                256 - 64 * at
            )));
            assert!(
                line.contains(&format!("-device nvme,id=path{at},bus=port{at},serial=1,subsys=paths,")),
                "{line}"
            );
        }
        assert_eq!(line.matches("nvme-ns,").count(), 1, "{line}");
    }

    #[test]
    fn a_processor_may_have_a_name() {
        assert!(line(Arch::Amd64, "sockets", Pmu::Absent).contains("-cpu Skylake-Server,cx16=off "));
    }

    #[test]
    fn a_file_system_is_in_a_file() {
        let line = line(Arch::Amd64, "2ext4", Pmu::Absent);
        assert!(
            line.contains("-drive format=raw,if=none,id=disk,snapshot=on,cache=unsafe,file=/run/a,,b/disk "),
            "{line}"
        );
    }

    #[test]
    fn tiers_have_a_description_by_the_firmware() {
        let line = line(Arch::Amd64, "tiers", Pmu::Absent);
        assert!(line.contains("-machine q35,hmat=on ") && line.contains("memdev=m2,initiator=0 "), "{line}");
        assert!(
            line.contains("initiator=0,target=2,hierarchy=memory,data-type=access-latency,latency=350 "),
            "{line}"
        );
        assert!(line.contains("data-type=access-bandwidth,bandwidth=5G "), "{line}");
        assert!(!self::line(Arch::Amd64, "2+1", Pmu::Absent).contains("initiator"));
    }

    #[test]
    fn results_never_share_the_console() {
        assert!(line(Arch::Amd64, "2", Pmu::Absent).contains(
            "-serial stdio -chardev socket,id=results,path=/run/a,,b/results -serial chardev:results"
        ));
        assert!(line(Arch::Arm64, "2", Pmu::Absent).contains("-device pci-serial,chardev=results"));
    }
}
