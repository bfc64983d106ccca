//! Accesses that Arm's SPE samples, on their way to the sums of processes: the task comes from their packets.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::access::lines::LineSample;
use crate::access::window::EventAt;
use crate::collect::access::spe::{SpeProbe, thin};
use crate::model::access::{AccessSource, SampledEvent};
use crate::model::process::ProcessId;
use crate::model::sample::{Missing, TaskRaw};
use crate::model::topology::format_cpulist;
use crate::model::units::{CpuId, NodeId};
use crate::pmu::spe::SpeAccess;
use crate::pmu::spe::event::{SpeEvent, find};

/// Accesses of tasks that have no row: they have ended, or their packets name none.
const NO_TASK: &str = "spe_no_task";
/// After this many accesses without a task, the kernel is reported as naming none: packets of other kernels
/// have one each.
const WITHOUT_CONTEXT: u64 = 100;

/// The sampler, and what it has lost.
pub(super) struct Spe {
    probe: SpeProbe,
    events: Vec<SpeEvent>,
    lost: BTreeMap<&'static str, u64>,
    with_context: u64,
    without_context: u64,
    /// Why a CPU is not sampled, if so.
    refused: Option<Missing>,
    /// The last reported reason.
    said: Option<Missing>,
}

/// An access of a process, by its page and maybe as a side of a contended line.
pub(super) struct Sampled {
    pub(super) process: ProcessId,
    pub(super) event: EventAt,
    pub(super) side: Option<LineSample>,
}

impl Spe {
    /// Samples on these CPUs of the machine below `root`; `None` where none of them has an SPE PMU.
    ///
    /// # Errors
    /// They have one that cannot be sampled.
    pub(super) fn start(root: &Path, cpus: &[CpuId]) -> Result<Option<Spe>, Missing> {
        let events = find(root);
        if events.is_empty() {
            return Ok(None);
        }
        Ok(Some(Spe::new(SpeProbe::start(root, cpus, &events)?, events)))
    }

    fn new(probe: SpeProbe, events: Vec<SpeEvent>) -> Spe {
        let lost = BTreeMap::new();
        Spe { probe, events, lost, with_context: 0, without_context: 0, refused: None, said: None }
    }

    /// Samples on the CPUs that are online now.
    ///
    /// # Errors
    /// One of them cannot be sampled.
    pub(super) fn follow(&mut self, root: &Path, cpus: &[CpuId]) -> Result<(), Missing> {
        self.probe.follow(root, cpus, &self.events)
    }

    /// Accesses since the previous call of processes that have a row, at most `room` of them, of all CPUs
    /// alike. `nodes` returns the node of a CPU and of a physical address. If more is written than taken, it
    /// samples less often from then on.
    pub(super) fn take(
        &mut self,
        root: &Path,
        cpus: &[CpuId],
        tasks: &[Arc<TaskRaw>],
        nodes: (impl Fn(CpuId) -> Option<NodeId>, impl Fn(u64) -> Option<NodeId>),
        (page_shift, room): (u32, usize),
    ) -> Vec<Sampled> {
        let before = self.probe.overwhelmed();
        let accesses = self.probe.take();
        if self.probe.overwhelmed() > before {
            self.probe.slow_down(&self.events);
        }
        // CPUs that did not resume are opened again, too, and refused ones are tried with each sample.
        self.refused = self.probe.follow(root, cpus, &self.events).err();
        let rows: HashMap<u32, ProcessId> = tasks.iter().map(|task| (task.tid, task.process())).collect();
        let all = accesses.len();
        let with = accesses.iter().filter(|(_, access)| access.tid.is_some()).count();
        self.with_context += with as u64;
        self.without_context += (all - with) as u64;
        let mut found = of_processes(accesses, &rows, nodes, page_shift);
        *self.lost.entry(NO_TASK).or_default() += (all - found.len()) as u64;
        self.probe.leave_out(thin(&mut found, room));
        found
    }

    /// Losses since the start, by cause.
    pub(super) fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.probe.lost().iter().chain(&self.lost).map(|(cause, count)| (*cause, *count))
    }

    /// Why its samples say nothing, if so: they belong to no process, or are not of all CPUs.
    pub(super) fn missing(&self) -> Option<Missing> {
        let is_blind = self.with_context == 0 && self.without_context >= WITHOUT_CONTEXT;
        let blind = is_blind.then(|| {
            let why = "SPE does not report which task it samples: the kernel is built without \
                       CONFIG_PID_IN_CONTEXTIDR, or CAP_PERFMON is missing";
            Missing::Unsupported(why.into())
        });
        blind.or_else(|| self.refused.clone())
    }

    /// Why lines that threads take from each other are not seen on some CPUs, if so.
    pub(super) fn no_lines(&self) -> Option<Missing> {
        let mut cpus = self.probe.without_transfers().map(|cpu| cpu.0).peekable();
        cpus.peek()?;
        let cpus = format_cpulist(cpus);
        let why = format!("SPE on CPU {cpus} has no known code for cache lines from another core");
        Some(Missing::Unsupported(why))
    }

    /// Whether that is something else than at the call before.
    pub(super) fn has_news(&mut self) -> bool {
        let missing = self.missing();
        let is_new = missing != self.said;
        self.said = missing;
        is_new
    }

    /// The way of sampling.
    pub(super) fn sampled_event(&self) -> SampledEvent {
        let threshold = self.events.first().and_then(|event| event.threshold);
        SampledEvent { source: AccessSource::Spe, threshold }
    }
}

/// The accesses whose task has a row; `rows` has its process.
fn of_processes(
    accesses: Vec<(CpuId, SpeAccess)>,
    rows: &HashMap<u32, ProcessId>,
    (of_cpu, of_physical): (impl Fn(CpuId) -> Option<NodeId>, impl Fn(u64) -> Option<NodeId>),
    page_shift: u32,
) -> Vec<Sampled> {
    let sampled = |(cpu, access): (CpuId, SpeAccess)| {
        let process = *rows.get(&access.tid?)?;
        let (cpu_node, page_node) = (of_cpu(cpu), access.physical.and_then(&of_physical));
        let SpeAccess { code, class, transfer, cycles, store, .. } = access;
        let page = access.address.map(|address| address >> page_shift);
        let event = EventAt { page, page_node, cpu_node, class, cycles };
        let address = access.address.filter(|_| store || transfer.is_some());
        let side = address.map(|address| LineSample { address, code, cpu_node, page_node, transfer });
        Some(Sampled { process, event, side })
    };
    accesses.into_iter().filter_map(sampled).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::collect::access::spe::Area;
    use crate::model::access::answers::AccessClass;
    use crate::model::access::lines::Transfer;
    use crate::model::event::Event;

    /// An area that is full each time.
    struct Full;

    impl Area for Full {
        fn stop(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn resume(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn take(&mut self) -> Vec<u8> {
            // PERF_RECORD_AUX without bytes, with PERF_AUX_FLAG_TRUNCATED.
            let head = [11_u32.to_ne_bytes().to_vec(), vec![0, 0], 32_u16.to_ne_bytes().to_vec()].concat();
            let words = [0_u64, 0, 1].map(u64::to_ne_bytes).concat();
            [head, words].concat()
        }

        fn copy(&self, _: u64, _: u64) -> Vec<u8> {
            Vec::new()
        }

        fn head(&self) -> u64 {
            0
        }

        fn release(&mut self, _: u64) {}
    }

    #[test]
    fn a_cpu_that_cannot_be_opened_again_is_said_with_its_errno_and_tried_with_each_sample() {
        let (event, without_physical) = (Event::default(), Event::default());
        let events = vec![SpeEvent { event, without_physical, period: 1, threshold: None }];
        let (root, cpus) = (Path::new("/nonexistent"), [0, 1].map(CpuId));
        let mut opened = Vec::new();
        let mut probe = SpeProbe::opened_by(Box::new(move |_, cpu, _| {
            opened.push(cpu);
            // CPU 0 is refused twice when it is opened for the second time.
            let times = opened.iter().filter(|one| **one == cpu).count();
            match (cpu, times) {
                (CpuId(0), 2 | 3) => Err(Missing::Unsupported(io::Error::from_raw_os_error(24).to_string())),
                _ => Ok(Box::new(Full) as Box<dyn Area>),
            }
        }));
        probe.follow(root, &cpus, &events).unwrap();
        let mut spe = Spe::new(probe, events);
        let mut turn = || {
            spe.take(root, &cpus, &[], (|_| None, |_| None), (12, 100));
            (spe.has_news(), spe.missing().map(|why| why.to_string()))
        };
        let why = "Too many open files (os error 24)";
        assert_eq!(turn(), (true, Some(why.into())));
        assert_eq!(turn(), (false, Some(why.into())));
        assert_eq!(turn(), (true, None));
        assert_eq!(turn(), (false, None));
    }

    #[test]
    fn cpus_that_do_not_tell_where_a_line_came_from_are_named() {
        let root = std::env::temp_dir().join(format!("numatop-spe-lines-{}", std::process::id()));
        // Neoverse N1, AmpereOne, and one without a file.
        for (cpu, midr) in [(0, "0x00000000413fd0c1\n"), (1, "0x00000000c00fac40\n")] {
            let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}/regs/identification"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("midr_el1"), midr).unwrap();
        }
        let (event, without_physical) = (Event::default(), Event::default());
        let events = vec![SpeEvent { event, without_physical, period: 1, threshold: None }];
        let no_lines = |cpus: &[CpuId]| {
            let mut probe = SpeProbe::opened_by(Box::new(|_, _, _| Ok(Box::new(Full) as Box<dyn Area>)));
            probe.follow(&root, cpus, &events).unwrap();
            Spe::new(probe, events.clone()).no_lines().map(|why| why.to_string())
        };
        assert_eq!(no_lines(&[CpuId(0)]), None);
        let why = no_lines(&[0, 1, 2].map(CpuId)).unwrap();
        assert!(why.contains("CPU 1-2 "), "{why}");
        let _ = std::fs::remove_dir_all(&root);
    }

    #[test]
    fn accesses_go_to_the_process_of_their_task() {
        let access = |tid, physical, transfer, store| SpeAccess {
            tid,
            address: Some(0x7f00_1048),
            physical,
            code: 0x40_1000,
            class: AccessClass::Dram { remote: false },
            transfer,
            store,
            cycles: Some(300),
        };
        let accesses = vec![
            (CpuId(1), access(Some(8), Some(0x9000), Some(Transfer::Far), false)),
            (CpuId(0), access(Some(9), None, None, true)),
            (CpuId(0), access(Some(7), None, None, false)),
            // A task without a row, and a packet without one.
            (CpuId(0), access(Some(99), None, None, false)),
            (CpuId(0), access(None, None, None, false)),
        ];
        let rows = [(7, (7, 1)), (8, (7, 1)), (9, (9, 2))].into();
        let nodes = (|cpu: CpuId| Some(NodeId(cpu.0)), |physical| (physical == 0x9000).then_some(NodeId(3)));
        let found = of_processes(accesses, &rows, nodes, 12);
        let of: Vec<_> =
            found.iter().map(|one| (one.process, one.event.cpu_node, one.event.page_node)).collect();
        let node = |id| Some(NodeId(id));
        assert_eq!(of, [((7, 1), node(1), node(3)), ((9, 2), node(0), None), ((7, 1), node(0), None)]);
        assert!(found.iter().all(|one| one.event.page == Some(0x7f001) && one.event.cycles == Some(300)));
        let sides: Vec<_> =
            found.iter().map(|one| one.side.map(|side| (side.address, side.transfer))).collect();
        assert_eq!(sides, [Some((0x7f00_1048, Some(Transfer::Far))), Some((0x7f00_1048, None)), None]);
    }

    #[test]
    fn a_machine_without_the_pmu_has_none() {
        let empty = std::env::temp_dir().join(format!("numatop-no-spe-{}", std::process::id()));
        assert!(Spe::start(&empty, &[CpuId(0)]).unwrap().is_none());
    }
}
