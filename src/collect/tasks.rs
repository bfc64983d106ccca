//! The task probe: loads `tasks.bpf.c`, walks all tasks for rows that changed, empties the exit ring.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, Skel};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Program, RingBuffer, RingBufferBuilder};

use super::cpu_masks::CpuMasks;
use super::object;
use super::sched::SchedProbe;
use super::skel::tasks::{TasksSkel, TasksSkelBuilder};
use crate::container::scope::Scope;
use crate::model::topology::Topology;
use crate::model::wire::{Row, Wire};
use crate::sys;

/// Bytes per read of the walk. The kernel hands out at most 32 KiB at a time.
const WALK_BUFFER: usize = 64 * 1024;

/// Ids that a scope has at most; the kernel takes memory for those in use only.
const SCOPE_IDS: u32 = 65_536;

/// The loaded and attached probe. Dropping it detaches everything.
pub struct TaskProbe {
    _newtask: Link,
    _free: Link,
    _cgroup: Vec<Link>,
    walk: Link,
    ring: RingBuffer<'static>,
    pending: Arc<Mutex<Vec<u8>>>,
    buffer: Vec<u8>,
    nodes: u32,
    skel: TasksSkel<'static>,
}

impl TaskProbe {
    /// Loads and attaches. `cgroup_subsys` is the v1 controller that names cgroups (its index in
    /// `enum cgroup_subsys_id`), or `None` for cgroup v2; `cgroups` says that the kernel has any.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain.
    pub fn start(
        sched: &SchedProbe,
        records: &OwnedFd,
        topology: &Topology,
        scope: &Scope,
        cgroup_subsys: Option<u32>,
        cgroups: bool,
    ) -> Result<TaskProbe> {
        let mut open = object::open("tasks", TasksSkelBuilder::default())?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("tasks.bpf.o has no .rodata")?;
        rodata.rec_size = sched.layout().size();
        rodata.by_sibling = sched.layout().by_sibling();
        rodata.nr_nodes = topology.possible_nodes;
        rodata.nr_cpus = topology.possible_cpus;
        rodata.hints_from_task = sched.layout().hints_from_task;
        rodata.cgroup_subsys = cgroup_subsys.map_or(-1, |index| index as i32);
        let shared = sched.shared_maps();
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        open.maps.cpus.reuse_fd(shared.cpus).context("sharing the per-CPU state")?;
        open.maps.cpu_topo.reuse_fd(shared.cpu_topo).context("sharing the places of CPUs")?;
        open.maps
            .dirty_tasks
            .reuse_fd(shared.dirty_tasks)
            .context("sharing the table of threads that ran")?;
        open.maps.exits.reuse_fd(shared.exits).context("sharing the exit ring")?;
        open.maps.exit_lost_ns.reuse_fd(shared.exit_lost_ns).context("sharing the times of lost exits")?;
        open.maps.scope_ids.set_max_entries(SCOPE_IDS)?;
        // Kernels without CONFIG_CGROUPS have none of these.
        for program in [
            &mut open.progs.on_cgroup_attach_task,
            &mut open.progs.on_cgroup_mkdir,
            &mut open.progs.on_cgroup_rmdir,
            &mut open.progs.on_cgroup_rename,
        ] {
            program.set_autoload(cgroups);
        }
        let mut skel = open.load().context("loading tasks.bpf.o")?;

        set_scope(&mut skel, &Scope::default(), scope)?;
        set_masks(&mut skel, &CpuMasks::of(topology))?;

        let pending: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = Arc::clone(&pending);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&skel.maps.exits, move |row| {
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(row);
                0
            })
            .context("mapping the exit ring")?;
        let ring = builder.build().context("mapping the exit ring")?;

        // Ends before births: a task must not be born with a record and go without a last row.
        let free = skel.progs.on_sched_process_free.attach().context("attaching to sched_process_free")?;
        let mut links = Vec::new();
        if cgroups {
            let progs = &skel.progs;
            links.push(progs.on_cgroup_attach_task.attach().context("attaching to cgroup_attach_task")?);
            links.push(progs.on_cgroup_mkdir.attach().context("attaching to cgroup_mkdir")?);
            links.push(progs.on_cgroup_rmdir.attach().context("attaching to cgroup_rmdir")?);
            links.push(progs.on_cgroup_rename.attach().context("attaching to cgroup_rename")?);
        }
        let newtask = skel.progs.on_task_newtask.attach().context("attaching to task_newtask")?;
        let walk = skel.progs.on_task_walk.attach().context("attaching the task walk")?;
        Ok(TaskProbe {
            _newtask: newtask,
            _free: free,
            _cgroup: links,
            walk,
            ring,
            pending,
            buffer: vec![0; WALK_BUFFER],
            nodes: topology.possible_nodes,
            skel,
        })
    }

    /// Calls `row` for each live task that changed since the walk before, in no promised order. A change
    /// of a task that did not run is seen at once if it was moved to another cgroup, and within eight walks
    /// if it was reniced or adopted. With `all` also for those in which nothing changed.
    ///
    /// # Errors
    /// The walk could not be read to its end.
    pub fn walk(&mut self, all: bool, row: impl FnMut(Row<'_>)) -> Result<()> {
        let bss = self.skel.maps.bss_data.as_deref_mut().context("tasks.bpf.o has no .bss")?;
        // Taken back before the walk: what happens meanwhile is for the next one.
        if std::mem::take(&mut bss.look_at_all) != 0 || all {
            bss.walks = 0;
        }
        bss.tell_all = u32::from(all);
        self.read_walk(row)?;
        let bss = self.skel.maps.bss_data.as_deref_mut().context("tasks.bpf.o has no .bss")?;
        // Never zero again: that would be a first walk.
        bss.walks = bss.walks.wrapping_add(1).max(1);
        Ok(())
    }

    fn read_walk(&mut self, mut row: impl FnMut(Row<'_>)) -> Result<()> {
        let mut walk = Iter::new(&self.walk).context("starting the task walk")?;
        loop {
            let got = match walk.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => continue,
                Err(error) => return Err(error).context("reading the task walk"),
            };
            for_each_row(&self.buffer[..got], &mut row)?;
        }
    }

    /// Calls `row` with the final row of each task that was freed since the call before.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn exits(&mut self, mut row: impl FnMut(Row<'_>)) -> Result<()> {
        self.gather_exits()?;
        let rows = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        for_each_row(&rows, &mut row)
    }

    /// Moves what is in the ring to our own memory, so that it cannot overflow before the next sample.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn gather_exits(&self) -> Result<()> {
        self.ring.consume().context("reading the exit ring")
    }

    /// The programs that are attached.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        object::programs(self.skel.object())
    }

    /// Becomes readable when the ring is half full.
    pub fn exit_fd(&self) -> BorrowedFd<'_> {
        sys::ring_fd(&self.ring)
    }

    /// Replaces the scope `from` by `to`. Tasks are judged anew at the next walk.
    ///
    /// # Errors
    /// The kernel refused an id: E2BIG when there are more than [`SCOPE_IDS`].
    pub fn set_scope(&mut self, from: &Scope, to: &Scope) -> Result<()> {
        set_scope(&mut self.skel, from, to)
    }

    /// Takes over the places of CPUs that came, so that the nodes tasks may use are told right.
    ///
    /// # Errors
    /// The object has no variables.
    pub fn follow(&mut self, topology: &Topology) -> Result<()> {
        set_masks(&mut self.skel, &CpuMasks::of(topology))
    }

    /// Goes up whenever a cgroup is made, removed or renamed.
    pub fn cgroup_changes(&self) -> u32 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| sys::read_variable(&bss.cgroup_changes))
    }

    /// CPU time of exited tasks whose row was lost, by node, ns.
    ///
    /// # Errors
    /// The kernel refused the look-up.
    pub fn exit_lost_ns(&self) -> Result<Vec<u64>> {
        (0..self.nodes)
            .map(|node| {
                let value = self.skel.maps.exit_lost_ns.lookup(&node.to_ne_bytes(), MapFlags::ANY)?;
                let value = value.context("array maps have every element")?;
                Ok(u64::from_ne_bytes(value.as_slice().try_into().context("exit_lost_ns holds u64")?))
            })
            .collect::<Result<_>>()
            .context("reading the CPU time of lost exits")
    }
}

/// Adds before it removes, so that what stays wanted is never unwanted in between.
fn set_scope(skel: &mut TasksSkel<'static>, from: &Scope, to: &Scope) -> Result<()> {
    let (old, new) = (from.keys(), to.keys());
    let ids = &skel.maps.scope_ids;
    for key in new.iter().filter(|key| !old.contains(key)) {
        ids.update(key.as_bytes(), &[1], MapFlags::ANY).context("adding to the scope")?;
    }
    for key in old.iter().filter(|key| !new.contains(key)) {
        ids.delete(key.as_bytes()).context("removing from the scope")?;
    }
    let bss = skel.maps.bss_data.as_deref_mut().context("tasks.bpf.o has no .bss")?;
    bss.scope_kinds = to.kinds();
    if from != to {
        // As the first walk: it looks at every task, also at those that rest.
        bss.walks = 0;
    }
    Ok(())
}

/// Between walks only: nothing else reads them.
fn set_masks(skel: &mut TasksSkel<'static>, masks: &CpuMasks) -> Result<()> {
    let bss = skel.maps.bss_data.as_deref_mut().context("tasks.bpf.o has no .bss")?;
    for (places, parts) in
        [(&mut bss.first_parts[..], &masks.first), (&mut bss.other_parts[..], &masks.others)]
    {
        for (place, part) in places.iter_mut().zip(parts) {
            (place.word, place.node, place.cpus) = (part.word, part.node, part.cpus);
        }
    }
    (bss.nr_first_parts, bss.nr_other_parts) = (masks.first.len() as u32, masks.others.len() as u32);
    bss.all_nodes = masks.all;
    Ok(())
}

fn for_each_row(mut bytes: &[u8], row: &mut impl FnMut(Row<'_>)) -> Result<()> {
    while !bytes.is_empty() {
        let (first, rest) = Row::split(bytes).context("the kernel handed out half a row")?;
        ensure!(rest.len() < bytes.len(), "a row of no length");
        row(first);
        bytes = rest;
    }
    Ok(())
}
