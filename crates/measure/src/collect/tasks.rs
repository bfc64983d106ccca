//! The task probe: loads `tasks.bpf.c`, walks over tasks for rows that changed, empties the exit ring.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapCore, MapFlags, Program, RingBuffer, RingBufferBuilder};

use super::cpu_masks::CpuMasks;
use super::round::{Round, Rounds, Walk, marked};
use super::sched::SchedProbe;
use super::skel::tasks::{TasksSkel, TasksSkelBuilder, types};
use super::{maps, object};
use crate::container::scope::Scope;
use crate::host::privileges::Privileges;
use crate::host::types::Types;
use crate::model::topology::Topology;
use crate::model::wire::{LIST_MAX, MARKS, TREE_WORDS, Wire, WireRow};
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
    whole_walk: Link,
    /// The walk over a list, or the reason why it is unavailable.
    short_walk: Result<ShortWalk, String>,
    ring: RingBuffer<'static>,
    pending: Arc<Mutex<Vec<u8>>>,
    buffer: Vec<u8>,
    /// A row of the short walk.
    row: Vec<u8>,
    rounds: Rounds,
    /// The next walk must look at every task: the scope was changed.
    look_at_all: bool,
    /// Room for a piece of the table of marks.
    marks: Vec<u8>,
    nodes: u32,
    skel: TasksSkel<'static>,
}

/// The walk over listed threads, and the place of its rows.
struct ShortWalk {
    link: Link,
    rows: sys::Mapping,
    /// Bytes from one row to the next.
    stride: usize,
}

impl ShortWalk {
    fn attach(skel: &TasksSkel<'static>) -> Result<ShortWalk> {
        // Of all threads of this process, the one that lives as long as the process.
        let link = sys::attach_to_thread(&skel.progs.on_list_walk, std::process::id())?;
        let map = &skel.maps.listed_rows;
        let stride = (map.value_size() as usize).next_multiple_of(8);
        let rows = sys::Mapping::new(map, stride * LIST_MAX).context("mapping the rows of listed threads")?;
        Ok(ShortWalk { link, rows, stride })
    }
}

/// Cgroups as the programs find those of tasks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CgroupView {
    /// The v1 controller that names cgroups (its index in `enum cgroup_subsys_id`), or `None` for cgroup v2.
    pub subsys: Option<u32>,
    /// The kernel has any.
    pub exist: bool,
}

/// Whether tasks can be found by their ids, or why not: then each walk goes over all of them.
///
/// # Errors
/// The reason in words.
pub fn can_find(types: Result<&Types, String>, privileges: &Privileges) -> Result<(), String> {
    let types = types?;
    if !["bpf_task_from_pid", "bpf_task_release"].iter().all(|name| types.of_function(name).is_some()) {
        return Err("this kernel has no bpf_task_from_pid (needs Linux 6.2 or newer)".into());
    }
    // It finds tasks of the whole machine, and a walk over all those of our pid namespace only.
    if !privileges.host_pid_namespace.is(&true) {
        return Err("this process's place in the machine's pid namespace is unknown".into());
    }
    Ok(())
}

impl TaskProbe {
    /// Loads and attaches. `findable`: tasks can be found by their ids ([`can_find`]).
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain.
    pub fn start(
        sched: &SchedProbe,
        records: &OwnedFd,
        topology: &Topology,
        scope: &Scope,
        cgroups: CgroupView,
        findable: Result<(), String>,
    ) -> Result<TaskProbe> {
        // A kernel that is kept from calling functions refuses the program, and with it the object.
        let (mut skel, findable) = match findable {
            Err(why) => (load(sched, records, topology, scope, cgroups, false)?, Err(why)),
            Ok(()) => match load(sched, records, topology, scope, cgroups, true) {
                Ok(skel) => (skel, Ok(())),
                Err(error) => {
                    (load(sched, records, topology, scope, cgroups, false)?, Err(format!("{error:#}")))
                }
            },
        };
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
        if cgroups.exist {
            let progs = &skel.progs;
            links.push(progs.on_cgroup_attach_task.attach().context("attaching to cgroup_attach_task")?);
            links.push(progs.on_cgroup_mkdir.attach().context("attaching to cgroup_mkdir")?);
            links.push(progs.on_cgroup_rmdir.attach().context("attaching to cgroup_rmdir")?);
            links.push(progs.on_cgroup_rename.attach().context("attaching to cgroup_rename")?);
        }
        let newtask = skel.progs.on_task_newtask.attach().context("attaching to task_newtask")?;
        if !scope.trees.is_empty() {
            enrol_trees(&mut skel)?;
        }
        let whole_walk = skel.progs.on_task_walk.attach().context("attaching the iterator over tasks")?;
        let short_walk = findable.and_then(|()| {
            let walk = ShortWalk::attach(&skel);
            walk.map_err(|error| format!("attaching the iterator over listed tasks: {error:#}"))
        });
        Ok(TaskProbe {
            _newtask: newtask,
            _free: free,
            _cgroup: links,
            whole_walk,
            short_walk,
            ring,
            pending,
            buffer: vec![0; WALK_BUFFER],
            row: Vec::new(),
            rounds: Rounds::default(),
            look_at_all: false,
            marks: vec![0; MARKS as usize],
            nodes: topology.possible_nodes,
            skel,
        })
    }

    /// Calls `row` for each live task that changed since the previous walk, in no promised order. A change of
    /// a task that did not run is found at once if it was moved to another cgroup, and within eight walks if
    /// it was reniced or adopted. With `all`, unchanged tasks are included.
    ///
    /// # Errors
    /// The walk could not be read to its end.
    pub fn walk(&mut self, round: &Round<'_>, mut row: impl FnMut(WireRow<'_>)) -> Result<()> {
        let bss = bss_of(&mut self.skel)?;
        // Taken back before the walk: what happens meanwhile is for the next one.
        let whole =
            (std::mem::take(&mut bss.look_at_all) != 0) | std::mem::take(&mut self.look_at_all) | round.all;
        let can_list = self.short_walk.is_ok() && sys::read_variable(&bss.is_above_marks) == 0;
        let walk = self.rounds.next(sys::read_variable(&bss.nr_walked), whole, can_list);
        bss.walks = if walk == Walk::Whole { 0 } else { self.rounds.count() };
        bss.tell_all = u32::from(round.all);
        match &self.short_walk {
            Ok(short) if walk == Walk::Short => {
                // First: they run on meanwhile.
                let mut listed = list_marked(&self.skel, &mut self.marks)?;
                listed.extend((round.beside)(self.rounds.turn()));
                for piece in listed.chunks(LIST_MAX) {
                    let bss = bss_of(&mut self.skel)?;
                    bss.listed[..piece.len()].copy_from_slice(piece);
                    bss.nr_listed = piece.len() as u32;
                    bss.nr_listed_rows = 0;
                    read_walk(&short.link, &mut self.buffer, &mut row)?;
                    let bss = bss_of(&mut self.skel)?;
                    ensure!(
                        sys::read_variable(&bss.nr_listed) == 0,
                        "the iterator over listed tasks did not run"
                    );
                    for at in 0..sys::read_variable(&bss.nr_listed_rows) as usize {
                        short.rows.copy_to(&mut self.row, at * short.stride, short.stride);
                        row(WireRow::split(&self.row)
                            .context("the iterator over listed tasks wrote an incomplete row")?
                            .0);
                    }
                }
                Ok(())
            }
            _ => {
                // It notes them again, as births do.
                bss.used_marks.fill(0);
                bss.is_above_marks = 0;
                bss.nr_walked = 0;
                read_walk(&self.whole_walk, &mut self.buffer, &mut row)
            }
        }
    }

    /// Why each walk goes over all tasks, where that is so.
    pub fn no_short_walk(&self) -> Option<&str> {
        self.short_walk.as_ref().err().map(String::as_str)
    }

    /// Calls `row` with the final row of each task that was freed since the call before.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn exits(&mut self, mut row: impl FnMut(WireRow<'_>)) -> Result<()> {
        self.gather_exits()?;
        let rows = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        for_each_row(&rows, &mut row)
    }

    /// Moves the content of the ring to our own memory, so that it cannot overflow before the next sample.
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

    /// Replaces the scope `from` by `to`. The next walk decides about each task again.
    ///
    /// # Errors
    /// The kernel refused an id: E2BIG when there are more than [`SCOPE_IDS`].
    pub fn set_scope(&mut self, from: &Scope, to: &Scope) -> Result<()> {
        self.look_at_all |= from != to;
        set_scope(&mut self.skel, from, to)
    }

    /// Takes over the places of new CPUs, so that the allowed nodes of tasks are right.
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

    /// Threads that were born into the trees of the scope since the start.
    pub fn tree_births(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| sys::read_variable(&bss.tree_births))
    }

    /// Records made since the start, and ends of their tasks that were noticed only when they were freed.
    pub fn records_and_ends(&self) -> (u64, u64) {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or((0, 0), |bss| (sys::read_variable(&bss.next_serial), sys::read_variable(&bss.nr_ended)))
    }

    /// CPU time of exited tasks whose row was lost, by node, ns. `nodes` has the node of each place; it is empty where places are
    /// the nodes.
    ///
    /// # Errors
    /// The kernel refused the look-up.
    pub fn exit_lost_ns(&self, nodes: &[u32]) -> Result<Vec<u64>> {
        let lost_at = |place: u32| -> Result<u64> {
            let value = self.skel.maps.exit_lost_ns.lookup(&place.to_ne_bytes(), MapFlags::ANY)?;
            let value = value.context("every index of an array map has an element")?;
            Ok(u64::from_ne_bytes(value.as_slice().try_into().context("exit_lost_ns holds u64")?))
        };
        let mut by_node = vec![0; self.nodes as usize];
        let places = if nodes.is_empty() { self.nodes } else { nodes.len() as u32 };
        for place in 0..places {
            let lost_ns =
                lost_at(place).context("reading the CPU time of exited tasks whose rows were lost")?;
            let node = nodes.get(place as usize).copied().unwrap_or(place);
            if let Some(sum) = by_node.get_mut(node as usize) {
                *sum += lost_ns;
            }
        }
        Ok(by_node)
    }
}

/// Loads the programs, with the one of the short walk or without.
fn load(
    sched: &SchedProbe,
    records: &OwnedFd,
    topology: &Topology,
    scope: &Scope,
    cgroups: CgroupView,
    short_walk: bool,
) -> Result<TasksSkel<'static>> {
    let mut open = object::open("tasks", TasksSkelBuilder::default())?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("tasks.bpf.o has no .rodata")?;
    rodata.rec_size = sched.layout().size();
    rodata.by_sibling = sched.layout().by_sibling();
    (rodata.nr_nodes, rodata.nr_places) = (topology.possible_nodes, topology.possible_places());
    rodata.nr_cpus = topology.possible_cpus;
    rodata.hints_from_task = sched.layout().hints_from_task;
    rodata.cgroup_subsys = cgroups.subsys.map_or(-1, |index| index as i32);
    let has_trees = !scope.trees.is_empty();
    rodata.follow_trees = has_trees;
    open.progs.on_tree_walk.set_autoload(has_trees);
    open.maps.tree_members.set_max_entries(if has_trees { TREE_WORDS } else { 1 })?;
    let shared = sched.shared_maps();
    maps::share(&mut open.maps.task_recs, records)?;
    open.maps.cpus.reuse_fd(shared.cpus).context("sharing the per-CPU state")?;
    open.maps.cpu_topo.reuse_fd(shared.cpu_topo).context("sharing the table of places of CPUs")?;
    open.maps.dirty_tasks.reuse_fd(shared.dirty_tasks).context("sharing the table of threads that ran")?;
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
        program.set_autoload(cgroups.exist);
    }
    open.progs.on_list_walk.set_autoload(short_walk);
    open.maps.listed_rows.set_autocreate(short_walk)?;
    let row_size = size_of::<types::nt_task>() as u32 + sched.layout().size();
    open.maps.listed_rows.set_value_size(row_size)?;
    object::load("tasks", open)
}

/// Finds the members that trees have already. Births are followed by now: a child of a member is one.
fn enrol_trees(skel: &mut TasksSkel<'static>) -> Result<()> {
    let walk = skel.progs.on_tree_walk.attach().context("attaching the iterator over process trees")?;
    let mut buffer = [0; 64];
    loop {
        bss_of(skel)?.nr_enrolled = 0;
        read_walk(&walk, &mut buffer, &mut |_| {})?;
        if sys::read_variable(&bss_of(skel)?.nr_enrolled) == 0 {
            return Ok(());
        }
    }
}

fn bss_of<'a>(skel: &'a mut TasksSkel<'static>) -> Result<&'a mut types::bss> {
    skel.maps.bss_data.as_deref_mut().context("tasks.bpf.o has no .bss")
}

/// Ids of the marked threads. `piece` has room for an element of the table, which is copied. Mapped, a table
/// of 4 MiB would count as memory of this process, and few of its elements are in use.
fn list_marked(skel: &TasksSkel<'static>, piece: &mut [u8]) -> Result<Vec<u32>> {
    let bss = skel.maps.bss_data.as_deref().context("tasks.bpf.o has no .bss")?;
    let used = sys::read_variable(&bss.used_marks);
    let mut ids = Vec::new();
    for at in (0u32..).zip(used).filter(|(_, used)| *used != 0).map(|(at, _)| at) {
        let found = skel.maps.dirty_tasks.lookup_into(&at.to_ne_bytes(), piece, MapFlags::ANY);
        ensure!(found.context("reading the marks of threads")?, "the table of thread marks ends early");
        ids.extend(marked(piece, at * MARKS));
    }
    Ok(ids)
}

fn read_walk(link: &Link, buffer: &mut [u8], row: &mut impl FnMut(WireRow<'_>)) -> Result<()> {
    object::read_iterator(link, buffer, |rows| for_each_row(rows, row)).context("iterating over tasks")
}

/// Adds before it removes, so that what stays wanted is never unwanted in between.
fn set_scope(skel: &mut TasksSkel<'static>, from: &Scope, to: &Scope) -> Result<()> {
    let (old, new) = (from.keys(), to.keys());
    let ids = &skel.maps.scope_ids;
    for key in new.iter().filter(|key| !old.contains(key)) {
        ids.update(key.as_bytes(), &[1], MapFlags::ANY).context("adding a task to the scope")?;
    }
    for key in old.iter().filter(|key| !new.contains(key)) {
        ids.delete(key.as_bytes()).context("removing a task from the scope")?;
    }
    let bss = bss_of(skel)?;
    bss.scope_kinds = to.kinds();
    Ok(())
}

/// Between walks only: nothing else reads them.
fn set_masks(skel: &mut TasksSkel<'static>, masks: &CpuMasks) -> Result<()> {
    let bss = bss_of(skel)?;
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

fn for_each_row(mut bytes: &[u8], row: &mut impl FnMut(WireRow<'_>)) -> Result<()> {
    while !bytes.is_empty() {
        let (first, rest) = WireRow::split(bytes).context("the kernel returned an incomplete row")?;
        ensure!(rest.len() < bytes.len(), "the kernel returned an empty row");
        row(first);
        bytes = rest;
    }
    Ok(())
}
