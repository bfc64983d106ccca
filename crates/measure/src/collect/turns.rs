//! Parts of the machine that are read in turns, each at its own pace: one line for each.

pub mod dram;
mod free_blocks;
mod interrupts;
pub mod resctrl;
mod scheduler;
pub mod tiers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::dram::Dram;
use self::free_blocks::Buddies;
use self::interrupts::Devices;
use self::resctrl::Monitors;
use self::scheduler::Scheduler;
use self::tiers::Tiers;
use super::probes::Reasons;
use crate::metric::needs::Demand;
use crate::model::facility::Facility;
use crate::model::inputs::Inputs;
use crate::model::sample::{HostFacts, Missing};

/// All of them.
fn all() -> Vec<Turn> {
    const SECOND: Duration = Duration::from_secs(1);
    vec![
        // A network card has two files for each of its queues. Their lists are part of the topology.
        Turn { always: true, ..turn(Facility::DeviceIrqs, SECOND, 499, Devices::default()) },
        // Headers name it.
        Turn { always: true, ..turn(Facility::SchedExt, Duration::ZERO, 99, Scheduler) },
        turn(Facility::FreeBlocks, Duration::ZERO, 99, Buddies::default()),
        // Rates are over the interval, so that counts are read with each sample.
        turn(Facility::MemoryTiers, Duration::ZERO, 0, Tiers::default()),
        turn(Facility::MemoryControllers, Duration::ZERO, 0, Dram::default()),
        turn(Facility::CacheUse, Duration::ZERO, 99, Monitors::default()),
    ]
}

/// A part of the machine.
pub trait Part: Send {
    /// Reads it again, or a piece.
    ///
    /// # Errors
    /// Why it cannot be read, for good.
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing>;

    /// Forgets what it has read: CPUs have come, gone, or changed their node.
    fn begin_again(&mut self) {}
}

/// Context of a reading.
pub struct Now<'a> {
    /// "/" for this machine.
    pub root: &'a Path,
    /// The facts of the machine, which may turn out to be others.
    pub host: &'a mut Arc<HostFacts>,
    /// CLOCK_MONOTONIC.
    pub mono_ns: u64,
    /// The last reading of all parts.
    pub inputs: &'a mut Inputs,
    /// Notes of the next sample.
    pub notes: &'a mut Vec<String>,
}

struct Turn {
    /// Missing where the part cannot be read.
    facility: Facility,
    part: Box<dyn Part>,
    /// Pause after a reading: the longer of this time and this multiple of the time that the reading took.
    rest: (Duration, u32),
    /// It is read even if none of its metrics is requested.
    always: bool,
    due: Option<Instant>,
}

fn turn(facility: Facility, least: Duration, times: u32, part: impl Part + 'static) -> Turn {
    Turn { facility, part: Box::new(part), rest: (least, times), always: false, due: None }
}

/// All parts, as they were read last.
pub struct Turns {
    turns: Vec<Turn>,
    inputs: Inputs,
    reasons: Reasons,
}

impl Turns {
    /// The parts that are asked for; nothing is read yet.
    pub fn new(demand: &Demand) -> Turns {
        let mut turns = all();
        turns.retain(|turn| turn.always || demand.includes(turn.facility));
        Turns { turns, inputs: Inputs::default(), reasons: Reasons::default() }
    }

    /// Reads the parts that are due below `root`. One that cannot be read is missing from then on.
    pub fn follow(&mut self, root: &Path, host: &mut Arc<HostFacts>, mono_ns: u64, notes: &mut Vec<String>) {
        let Turns { turns, inputs, reasons } = self;
        turns.retain_mut(|turn| {
            let began = Instant::now();
            if turn.due.is_some_and(|due| began < due) {
                return true;
            }
            let read = turn.part.read(Now { root, host, mono_ns, inputs, notes });
            turn.due = Some(Instant::now() + turn.rest.0.max(began.elapsed() * turn.rest.1));
            read.map_err(|why| reasons.add(turn.facility, &why)).is_ok()
        });
    }

    /// The last reading of all parts.
    pub fn inputs(&self) -> Inputs {
        self.inputs.clone()
    }

    /// Forgets all readings: CPUs have come, gone, or changed their node.
    pub fn begin_again(&mut self) {
        self.turns.iter_mut().for_each(|turn| turn.part.begin_again());
    }

    /// Facilities that could not be read, and why.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::demo;
    use crate::tree::Tree;

    /// One reading of a part below a tree, on the demo machine, and its notes.
    pub(super) fn read(part: &mut dyn Part, tree: &Tree) -> Result<(Inputs, Vec<String>), Missing> {
        read_at(part, tree, &mut Arc::new(demo::facts()), 1)
    }

    /// The same at a time, on a machine.
    pub(super) fn read_at(
        part: &mut dyn Part,
        tree: &Tree,
        host: &mut Arc<HostFacts>,
        mono_ns: u64,
    ) -> Result<(Inputs, Vec<String>), Missing> {
        let (mut inputs, mut notes) = (Inputs::default(), Vec::new());
        part.read(Now { root: tree.root(), host, mono_ns, inputs: &mut inputs, notes: &mut notes })?;
        Ok((inputs, notes))
    }

    /// Can be read once.
    #[derive(Default)]
    struct Once(u32);

    impl Part for Once {
        fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
            self.0 += 1;
            now.notes.push(format!("reading {}", self.0));
            if self.0 > 1 { Err(Missing::Lost("it is gone".into())) } else { Ok(()) }
        }
    }

    #[test]
    fn a_part_rests_between_readings_and_is_missing_once_it_cannot_be_read() {
        let mut host = Arc::new(demo::facts());
        let rests = [
            turn(Facility::Irq, Duration::ZERO, 0, Once(0)),
            turn(Facility::Steal, Duration::from_secs(1000), 0, Once(0)),
        ];
        let mut turns = Turns { turns: rests.into(), inputs: Inputs::default(), reasons: Reasons::default() };
        let mut notes = Vec::new();
        for _ in 0..3 {
            turns.follow(Path::new("/"), &mut host, 1, &mut notes);
        }
        assert_eq!(
            notes,
            ["reading 1", "reading 1", "reading 2"],
            "the second one rests, the first one has failed"
        );
        assert_eq!(
            turns.missing().iter().collect::<Vec<_>>(),
            [(&Facility::Irq, &Missing::Lost("it is gone".into()))]
        );
    }
}
