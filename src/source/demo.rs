//! The demo machine as a source: in steps of the intervals that are asked for.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::synthetic::{Actor, Machine, demo_machine as machine, events, memory, stacks};
use crate::collect::mappings::Mappings;
use crate::container::scope::Scope;
use crate::container::select::{Tree, Wants};
use crate::error;
use crate::model::counters::Counter;
use crate::model::event::Event;
use crate::model::process::{Asked, Details, ProcFields, ProcFieldsOf, ProcessId, Texts};
use crate::model::sample::{HostFacts, Missing, Sample};
use crate::model::stacks::StackBatch;
use crate::model::topology::format_cpulist;
use crate::overhead::Statistics;
use crate::pmu::sets::SETS;
use crate::source::{Focus, Source, poll};

/// The part of the demo machine that is shown, and its counters.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// Containers and other cgroups whose tasks are watched; none: all.
    pub wants: Wants,
    /// Events that are counted; none: those of the usual set.
    pub sets: Vec<&'static str>,
    /// Time between samples, which need not be waited for; `None`: real time.
    pub every: Option<Duration>,
}

/// Steps are whole multiples of this, so that the same keys make the same samples whatever the clock does.
const GRAIN: Duration = Duration::from_millis(10);

/// Samples of the demo machine.
pub struct Demo {
    machine: Machine,
    /// The time that the machine is at, and the time that the next sample is for.
    at: Option<Instant>,
    due: Option<Instant>,
    asked: Asked,
    /// The last sample, for stacks sampled since.
    last: Option<Sample>,
    hot: bool,
    access: bool,
    /// Accesses are sampled because the screen asks for them.
    focused: bool,
    news: Option<StackBatch>,
    /// The scope of the start, with its name.
    scope: (Scope, String),
    /// Time between samples on the machine, whenever they are asked for.
    every: Option<Duration>,
}

impl Demo {
    /// The machine before its first sample, in real time.
    pub fn new() -> Demo {
        Demo {
            machine: machine(),
            every: None,
            at: None,
            due: None,
            asked: Asked::default(),
            last: None,
            hot: false,
            access: false,
            focused: false,
            news: None,
            scope: (Scope::default(), String::new()),
        }
    }

    /// The part of the machine that was asked for, in real time unless an interval is given.
    ///
    /// # Errors
    /// The machine has nothing of that name.
    pub fn of(options: &DemoOptions) -> Result<Demo> {
        let mut demo = Demo { every: options.every, ..Demo::new() };
        let names = Arc::clone(&demo.machine.names);
        let tree = Tree { paths: &names.cgroups, groups: &names.groups };
        let (scope, unmatched) = options.wants.resolve(&tree, &Scope::default());
        if let Some(first) = unmatched.first() {
            bail!(error::unmatched(first, "the demo", &[], false));
        }
        demo.scope = (scope, options.wants.describe());
        demo.watch(demo.scope.clone());
        if !options.sets.is_empty() {
            demo.count(&options.sets);
        }
        Ok(demo)
    }

    /// Watches the tasks of a scope from now on.
    fn watch(&mut self, (scope, name): (Scope, String)) {
        self.machine.scope = scope;
        Arc::make_mut(&mut self.machine.host).scope = name;
    }

    /// Counts the events of these sets from now on.
    fn count(&mut self, sets: &[&str]) {
        let mut wanted: Vec<Event> = Vec::new();
        for event in sets.iter().flat_map(|set| events::set_of(set)) {
            if !wanted.contains(&event) {
                wanted.push(event);
            }
        }
        events::count(Arc::make_mut(&mut self.machine.host), &wanted);
    }

    /// The same in intervals of this length, which need not be waited for.
    pub fn at_once(interval: Duration) -> Demo {
        Demo { every: Some(interval), ..Demo::new() }
    }

    /// The sample after `interval` more; the first one is of the beginning.
    fn step(&mut self, interval: Duration) -> Sample {
        let mut sample = self.machine.step(interval.as_nanos() as u64);
        if self.hot {
            self.news = Some(stacks::news(&self.machine.actors, self.last.as_ref(), &sample));
        }
        if self.access || self.focused {
            let watched = self.machine.actors.iter().filter(|actor| self.machine.watches(actor.cgroup));
            sample.memory_use = Some(Arc::new(memory::uses(&watched.cloned().collect::<Vec<_>>())));
        }
        if self.asked != Asked::default() {
            sample.about = Arc::new(self.abouts());
        }
        self.last = Some(sample.clone());
        sample
    }

    fn abouts(&self) -> ProcFieldsOf {
        let about = |actor: &Actor| {
            let huge_pct = match actor.memory.is_empty() {
                true => Err(Missing::NotCollected("a kernel thread has no memory of its own".into())),
                false => Ok(if actor.rss >> 30 > 0 { 62.0 } else { 0.0 }),
            };
            let about = ProcFields { texts: Ok(Arc::new(self.texts(actor))), huge_pct };
            ((actor.pid, actor.leader_start_ns()), Ok(Arc::new(about)))
        };
        self.machine.actors.iter().filter(|actor| actor.pid == actor.tid).map(about).collect()
    }

    fn texts(&self, actor: &Actor) -> Texts {
        let topology = &self.machine.host.topology;
        let cpus = match actor.pinned {
            Some(cpu) => cpu.to_string(),
            None => format_cpulist(topology.cpus.iter().map(|cpu| cpu.id.0)),
        };
        let nodes = format_cpulist(topology.nodes.iter().map(|node| node.id.0));
        Texts { cmdline: Ok(actor.cmdline.clone()), cpus_allowed: Ok(cpus), mems_allowed: Ok(nodes) }
    }
}

impl Default for Demo {
    fn default() -> Demo {
        Demo::new()
    }
}

/// Anonymous, file and shared memory.
fn kinds(actor: &Actor) -> [u64; 3] {
    let resident = actor.resident();
    [resident.anon_bytes, resident.file_bytes, resident.shmem_bytes]
}

impl Demo {
    fn details(&self, pid: u32, start_ns: u64) -> Result<Details> {
        let of = |actor: &&Actor| actor.tid == pid && actor.leader_start_ns() == start_ns;
        let actor =
            self.machine.actors.iter().find(of).with_context(|| format!("process {pid} has ended"))?;
        let path = self.machine.names.cgroups.get(&actor.cgroup).map(|path| format!("0::{path}"));
        let main = self.last.iter().flat_map(|sample| &sample.tasks).find(|task| task.tid == pid);
        Ok(Details {
            pid,
            start_ns,
            texts: self.texts(actor),
            cgroups: path.into_iter().collect(),
            rss: (!actor.memory.is_empty()).then(|| kinds(actor)),
            schedstat: main.map(|task| [task.exec_ns, task.counts[Counter::RunDelayNs]]),
        })
    }
}

impl Source for Demo {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.machine.host)
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        if let Some(interval) = self.every {
            return Ok(Some(self.step(interval)));
        }
        let at = *self.at.get_or_insert_with(Instant::now);
        let passed = self.due.take().map_or(Duration::ZERO, |due| due.saturating_duration_since(at));
        let steps = (passed + GRAIN / 2).as_millis() / GRAIN.as_millis();
        let step = GRAIN * steps as u32;
        self.at = Some(at + step);
        Ok(Some(self.step(step)))
    }

    fn inspect(&mut self, pid: u32, start_ns: u64) -> Option<Result<Details>> {
        Some(self.details(pid, start_ns))
    }

    fn mappings(&mut self, (pid, start_ns): ProcessId, exact: bool) -> Option<Result<Mappings, String>> {
        let of = |actor: &&Actor| actor.tid == pid && actor.leader_start_ns() == start_ns;
        let actor = self.machine.actors.iter().find(of).filter(|actor| !actor.memory.is_empty());
        Some(actor.map(|actor| memory::mappings(actor, exact)).ok_or_else(|| "the process has ended".into()))
    }

    fn set_scope(&mut self, cgroup: Option<u64>) -> Result<()> {
        let scope = match cgroup {
            None => self.scope.clone(),
            Some(id) => {
                let group = self.machine.names.groups.get(&id).context("the cgroup has been removed")?;
                let scope = Scope { cgroups: [id].into(), by_cgroup: true, ..Scope::default() };
                (scope, group.name.clone())
            }
        };
        self.watch(scope);
        Ok(())
    }

    fn set_events(&mut self, set: &str) -> Result<()> {
        let (known, ..) =
            SETS.iter().find(|(name, ..)| *name == set).context("there is no such set of events")?;
        self.count(&[known]);
        Ok(())
    }

    fn set_access(&mut self, on: bool) -> Result<()> {
        self.access = on;
        Ok(())
    }

    fn set_hot(&mut self, on: bool) -> Result<()> {
        (self.hot, self.news) = (on, None);
        Ok(())
    }

    fn hot_news(&mut self, _patience: Duration) -> Result<Option<StackBatch>> {
        Ok(if self.hot { Some(self.news.take().unwrap_or_default()) } else { None })
    }

    fn set_statistics(&mut self, _on: bool) -> Result<()> {
        bail!("no BPF program runs in the demo")
    }

    fn statistics(&mut self) -> Result<Option<Statistics>> {
        Ok(None)
    }

    fn focus(&mut self, focus: Focus) {
        self.asked = focus.asked;
        self.focused = focus.accesses.is_some();
    }

    fn wait(&mut self, due: Instant, stop: BorrowedFd<'_>) -> Result<bool> {
        self.due = Some(due);
        poll(&[stop], due).map(|readable| readable == Some(0)).context("waiting for the next sample")
    }
}
