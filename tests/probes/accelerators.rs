//! Device files that processes have open are those of /proc, and a scan of many is cheap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio, id};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};

use crate::sample;
use crate::scratch::Scratch;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::probes::accelerators::FileScan;
use numatop_ng::collect::probes::{Probes, Readings, Shared};
use numatop_ng::metric::accelerators::{ACCELERATOR_FAR_PCT, ACCELERATOR_NODES, ACCELERATORS};
use numatop_ng::model::accelerators::{Accelerator, Held};
use numatop_ng::model::facility::Facility;
use numatop_ng::model::inputs::Inputs;
use numatop_ng::model::sample::VmStat;
use numatop_ng::model::units::NodeId;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

/// Driver of /dev/null, /dev/zero and /dev/full: these take the place of accelerators.
const MEM: u32 = 1;

/// Device files of a driver that a process has open, as /proc shows them.
fn by_proc(pid: u32, major: u32) -> BTreeSet<(u32, u32)> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let opened = files.filter_map(|file| fs::metadata(file.path()).ok());
    let devices = opened.filter(|data| data.file_type().is_char_device()).map(|data| data.rdev());
    let of_driver = devices.filter(|device| libc::major(*device) == major);
    of_driver.map(|device| (pid, major << 20 | libc::minor(device))).collect()
}

/// Processes that have this number of files open, without any of this process's.
struct Holders(Vec<Child>);

impl Holders {
    fn new(processes: usize, files: usize) -> Result<Holders> {
        let mut holders = Holders(Vec::new());
        let open: Vec<String> = (10..10 + files).map(|fd| format!("exec {fd}</dev/null")).collect();
        let script = format!("exec 9</dev/zero; {}; echo ready; read line", open.join("; "));
        for _ in 0..processes {
            let mut command = Command::new("bash");
            command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            holders.0.push(command.spawn()?);
        }
        for child in &mut holders.0 {
            let mut ready = [0; 5];
            std::io::Read::read_exact(child.stdout.as_mut().context("no output")?, &mut ready)?;
        }
        Ok(holders)
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn cpu_time() -> Result<Duration> {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32))
}

/// The scan finds the same device files as /proc, also of other processes, and forgets processes that end.
pub fn open_device_files_are_those_of_proc() -> Result<()> {
    let scan = FileScan::start()?;
    let _own = [File::open("/dev/full")?, File::open("/dev/zero")?];
    let holders = Holders::new(20, 3)?;
    let pids: Vec<u32> = holders.0.iter().map(Child::id).chain([id()]).collect();
    let found = scan.files(&[MEM].into())?;
    let found: BTreeSet<(u32, u32)> = found.iter().map(|file| (file.pid, file.device)).collect();
    for pid in &pids {
        let of_pid: BTreeSet<(u32, u32)> = found.iter().filter(|(of, _)| of == pid).copied().collect();
        ensure!(of_pid == by_proc(*pid, MEM), "{pid}: {of_pid:?}, {:?}", by_proc(*pid, MEM));
        ensure!(of_pid.contains(&(*pid, MEM << 20 | 5)), "{pid} has /dev/zero open");
    }
    ensure!(scan.files(&BTreeSet::new())?.is_empty(), "no driver is asked for");
    ensure!(scan.files(&[4095].into())?.is_empty(), "no driver has the highest number");
    let ended: Vec<u32> = holders.0.iter().map(Child::id).collect();
    drop(holders);
    let after = scan.files(&[MEM].into())?;
    ensure!(after.iter().all(|file| !ended.contains(&file.pid)), "a process that has ended is found");
    Ok(())
}

/// The goal is 25 ms of CPU time for 1,000 processes of 20 files.
pub fn a_scan_of_many_files_is_cheap() -> Result<()> {
    let scan = FileScan::start()?;
    let holders = Holders::new(1000, 20)?;
    let mut times = Vec::new();
    let mut found = BTreeSet::new();
    for _ in 0..5 {
        let before = cpu_time()?;
        found = scan.files(&[MEM].into())?;
        times.push(cpu_time()? - before);
    }
    println!("CPU time of scans: {times:?}");
    let held: BTreeSet<(u32, u32)> = found.iter().map(|file| (file.pid, file.device)).collect();
    for child in &holders.0 {
        let of_pid: BTreeSet<(u32, u32)> =
            held.iter().filter(|(pid, _)| *pid == child.id()).copied().collect();
        ensure!(of_pid == by_proc(child.id(), MEM), "{}: {of_pid:?}", child.id());
    }
    Ok(())
}

/// Processes that start and end meanwhile do not keep it from its end.
pub fn a_scan_beside_short_processes_ends() -> Result<()> {
    let scan = FileScan::start()?;
    let mut child = Command::new("bash").args(["-c", "while :; do (exec 9</dev/zero; :); done"]).spawn()?;
    let mut looks = 0;
    for _ in 0..200 {
        looks += usize::from(!scan.files(&[MEM].into())?.is_empty());
    }
    child.kill()?;
    child.wait()?;
    ensure!(looks == 200, "{looks} of 200 scans found anything");
    Ok(())
}

/// A machine whose /dev/zero is a VFIO group with two functions, on nodes 0 and 1. The probe reads files below `root` alone.
fn made_up(root: &Path) -> Result<()> {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, text).map_err(Error::new)
    };
    write("proc/devices", "Character devices:\n  1 vfio\n")?;
    for (address, node) in [("0000:03:00.0", "0"), ("0000:83:00.0", "7")] {
        write(&format!("sys/bus/pci/devices/{address}/numa_node"), node)?;
        write(&format!("sys/kernel/iommu_groups/12/devices/{address}/vendor"), "")?;
    }
    fs::create_dir_all(root.join("sys/dev/char"))?;
    symlink("../../devices/virtual/vfio/12", root.join("sys/dev/char/1:5"))?;
    Ok(())
}

/// From open files to rows: a process that has the device open holds it, and its threads do.
pub fn a_process_holds_what_it_has_open() -> Result<()> {
    let root = Scratch::new();
    made_up(root.path())?;
    let machine = Path::new("/");
    let topology = numatop_ng::host::topology::read(machine)?;
    let layout = RecordLayout::new(topology.possible_nodes, topology.smt(), &[]);
    let store = maps::create(layout)?;
    let mut probes = Probes::default();
    probes.start(&Shared::new(root.path(), &store, layout), |facility| facility == Facility::Accelerators);
    ensure!(probes.runs(Facility::Accelerators), "{:?}", probes.missing());
    ensure!(probes.programs().count() == 1, "one program is loaded");
    let holders = Holders::new(1, 1)?;
    let pid = holders.0[0].id();
    let mut inputs = Inputs::default();
    let mut look = |mono_ns: u64| {
        probes.read(&mut Readings {
            mono_ns,
            topology: &topology,
            vm: &VmStat::default(),
            nodes: &mut [],
            hints: Vec::new(),
            page_flows: Vec::new(),
            inputs: &mut inputs,
            lost: &mut BTreeMap::new(),
            notes: &mut Vec::new(),
        });
        let held = inputs.accelerators.iter().find(|(process, _)| process.0 == pid);
        held.map(|(_, held)| Held::clone(held))
    };
    let first = look(1).context("the holder is not found")?;
    let expected = Accelerator {
        name: "vfio/12".into(),
        functions: vec!["0000:03:00.0".into(), "0000:83:00.0".into()],
        nodes: vec![NodeId(0)],
        is_nodeless: true,
    };
    ensure!(first == [expected], "{first:?}");
    drop(holders);
    ensure!(look(2).is_some(), "it looks again after 10 s only");
    ensure!(look(10_000_000_002).is_none(), "a process that has ended is found");
    Ok(())
}

/// A machine without accelerators loads no program, and rows say that they hold none.
pub fn rows_that_hold_none_say_so() -> Result<()> {
    let mut source = LiveSource::start(LiveOptions::default())?;
    let before = sample(&mut source)?;
    let after = sample(&mut source)?;
    let snapshot = derive(&source.host(), Some(&before), &after, RowKind::Processes);
    let own = snapshot.tasks.iter().find(|task| task.raw.pid == id()).context("no row of the test")?;
    for metric in [&ACCELERATORS, &ACCELERATOR_NODES, &ACCELERATOR_FAR_PCT] {
        let value = metric.read(own, &snapshot);
        let why = value.err().with_context(|| format!("the test has {}", metric.id))?.to_string();
        ensure!(why.contains("holds no accelerator"), "{}: {why}", metric.id);
    }
    Ok(())
}
