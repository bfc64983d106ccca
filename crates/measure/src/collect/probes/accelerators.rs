//! Accelerators that processes hold: an iterator over open files (`open_files.bpf.c`) finds their device files.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytemuck::{bytes_of, pod_read_unaligned};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapCore, MapFlags, Object};

use super::{Probe, Readings, Running, Shared};
use crate::collect::object;
use crate::collect::skel::open_files::{OpenFilesSkel, OpenFilesSkelBuilder};
use crate::host::accelerators::Accelerators;
use crate::host::btf::Feature;
use crate::model::accelerators::{Held, sort};
use crate::model::facility::Facility;
use crate::model::inputs::shared_with;
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::model::topology::Topology;
use crate::model::wire::{Majors, OpenFile};
use crate::text::plural;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::FileIterator],
    ..Probe::new("accelerators by process", Facility::Accelerators, start)
};

/// Rest after a look: the longer of this time and this multiple of the time that the look took.
const REST: Duration = Duration::from_secs(10);
const REST_TIMES: u32 = 99;

/// Rest where the machine has no accelerator: a driver may be loaded later.
const REST_WITHOUT: Duration = Duration::from_secs(60);

/// Bytes per read of the iterator. The kernel hands out at most 32 KiB at a time.
const BUFFER: usize = 32 * 1024;

/// `/dev/kfd` serves all GPUs of AMD; a process that uses one has its render node open, too.
const KFD: &str = "kfd";
const RENDER_NODE: &str = "renderD";

/// The iterator over open files, loaded.
pub struct FileScan {
    // The link goes before the object it belongs to.
    link: Link,
    skel: OpenFilesSkel<'static>,
}

impl FileScan {
    /// Loads and attaches it. Nothing runs until it is read.
    ///
    /// # Errors
    /// The kernel refused it; the errno is in the chain.
    pub fn start() -> Result<FileScan> {
        let skel = object::load("open_files", object::open("open_files", OpenFilesSkelBuilder::default())?)?;
        let link = skel.progs.on_open_file.attach().context("attaching the iterator over open files")?;
        Ok(FileScan { link, skel })
    }

    /// Device files of these drivers that processes have open, each once.
    ///
    /// # Errors
    /// The iterator could not be read to its end.
    pub fn files(&self, majors: &BTreeSet<u32>) -> Result<BTreeSet<OpenFile>> {
        let mut wanted = Majors { words: [0; 64] };
        for major in majors.iter().map(|major| *major as usize) {
            if let Some(word) = wanted.words.get_mut(major / 64) {
                *word |= 1 << (major % 64);
            }
        }
        let map = &self.skel.maps.majors;
        map.update(&0u32.to_ne_bytes(), bytes_of(&wanted), MapFlags::ANY).context("choosing drivers")?;
        let mut files = BTreeSet::new();
        let each = |rows: &[u8]| {
            files.extend(rows.chunks_exact(size_of::<OpenFile>()).map(pod_read_unaligned::<OpenFile>));
            Ok(())
        };
        object::read_iterator(&self.link, &mut vec![0; BUFFER], each)
            .context("reading the iterator over open files")?;
        Ok(files)
    }
}

struct AcceleratorProbe {
    root: PathBuf,
    /// Loaded once the machine has an accelerator.
    scan: OnceCell<FileScan>,
    state: RefCell<State>,
    words: String,
}

#[derive(Default)]
struct State {
    /// CLOCK_MONOTONIC of the next look.
    due_ns: u64,
    held: Arc<BTreeMap<ProcessId, Arc<Held>>>,
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let root = shared.root.to_owned();
    let devices = Accelerators::read(&root, &|_| true);
    let (scan, words) = if devices.is_empty() {
        (OnceCell::new(), "not loaded: the machine has no GPU, accelerator, VFIO or RDMA device".to_owned())
    } else {
        let words =
            format!("loaded as an iterator over open files; {}", plural(devices.len(), "device file"));
        (OnceCell::from(FileScan::start()?), words)
    };
    Ok(Box::new(AcceleratorProbe { root, scan, state: RefCell::default(), words }))
}

impl AcceleratorProbe {
    /// Looks at the devices and at open files. Returns how long it is enough.
    fn look(&self, state: &mut State, topology: &Topology) -> Result<Duration> {
        let began = Instant::now();
        let devices = Accelerators::read(&self.root, &|node| topology.node(node).is_some());
        if devices.is_empty() {
            state.held = Arc::default();
            return Ok(REST_WITHOUT);
        }
        let scan = match self.scan.get() {
            Some(scan) => scan,
            None => {
                let started = FileScan::start()?;
                self.scan.get_or_init(|| started)
            }
        };
        let files = scan.files(&devices.majors())?;
        state.held = Arc::new(by_process(files, &devices, &state.held));
        Ok(REST.max(began.elapsed() * REST_TIMES))
    }
}

impl Running for AcceleratorProbe {
    fn object(&self) -> Option<&Object> {
        self.scan.get().map(|scan| scan.skel.object())
    }

    fn words(&self) -> String {
        self.words.clone()
    }

    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        let mut state = self.state.borrow_mut();
        if state.due_ns <= readings.mono_ns {
            let rest = self.look(&mut state, readings.topology);
            let rest_ns = rest.as_ref().unwrap_or(&REST_WITHOUT).as_nanos() as u64;
            state.due_ns = readings.mono_ns.saturating_add(rest_ns);
            rest.map_err(|error| {
                state.held = Arc::default();
                Missing::Lost(format!("{error:#}"))
            })?;
        }
        readings.inputs.accelerators = Arc::clone(&state.held);
        Ok(())
    }
}

/// Accelerators by process; a process that holds the same as before shares them with the look before.
fn by_process(
    files: BTreeSet<OpenFile>,
    devices: &Accelerators,
    before: &BTreeMap<ProcessId, Arc<Held>>,
) -> BTreeMap<ProcessId, Arc<Held>> {
    let mut all: BTreeMap<ProcessId, Held> = BTreeMap::new();
    for file in files {
        if let Some(device) = devices.device(file.device) {
            all.entry((file.pid, file.start_ns)).or_default().push(device);
        }
    }
    for held in all.values_mut() {
        let renders = held.iter().any(|device| device.name.starts_with(RENDER_NODE));
        held.iter_mut().filter(|device| device.name == KFD).for_each(|kfd| kfd.is_nodeless = !renders);
        sort(held);
    }
    shared_with(before, all)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tree::Tree;

    fn file(pid: u32, major: u32, minor: u32) -> OpenFile {
        OpenFile { start_ns: 1, pid, device: major << 20 | minor }
    }

    /// A GPU of AMD on node 1.
    fn tree(name: &str) -> Tree {
        let tree = Tree::new(name);
        tree.write("proc/devices", "Character devices:\n226 drm\n240 kfd\n");
        tree.write("sys/bus/pci/devices/0000:03:00.0/numa_node", "1\n");
        fs::create_dir_all(tree.root().join("sys/dev/char")).unwrap();
        let device = |number: &str, link: &str| {
            symlink(format!("../../devices/{link}"), tree.root().join("sys/dev/char").join(number)).unwrap();
        };
        device("226:0", "pci0000:00/0000:03:00.0/drm/card0");
        device("226:128", "pci0000:00/0000:03:00.0/drm/renderD128");
        device("240:0", "virtual/kfd/kfd");
        tree
    }

    #[test]
    fn kfd_is_of_the_gpus_whose_render_nodes_are_open() {
        let tree = tree("kfd");
        let devices = Accelerators::read(tree.root(), &|_| true);
        let files =
            [file(7, 240, 0), file(7, 226, 128), file(8, 240, 0), file(9, 226, 128), file(9, 226, 5)].into();
        let all = by_process(files, &devices, &BTreeMap::new());
        let held = |pid| {
            let held = all[&(pid, 1)].iter();
            held.map(|one| (one.name.as_str(), one.is_nodeless)).collect::<Vec<_>>()
        };
        assert_eq!(held(7), [("kfd", false), ("renderD128", false)]);
        assert_eq!(held(8), [("kfd", true)]);
        assert_eq!(held(9), [("renderD128", false)], "226:5 is no device");
    }

    #[test]
    fn a_process_that_holds_the_same_shares_it() {
        let tree = tree("same");
        let devices = Accelerators::read(tree.root(), &|_| true);
        let look =
            |files: &[OpenFile], before: &_| by_process(files.iter().copied().collect(), &devices, before);
        let first = look(&[file(7, 226, 128), file(8, 226, 128)], &BTreeMap::new());
        let second = look(&[file(7, 226, 128), file(8, 226, 0)], &first);
        assert!(Arc::ptr_eq(&first[&(7, 1)], &second[&(7, 1)]));
        assert_eq!(second[&(8, 1)][0].name, "card0");
    }
}
