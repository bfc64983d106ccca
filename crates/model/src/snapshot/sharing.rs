//! Processes that share much memory, as groups: shared memory counts once in a group, and for each of its processes elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::task::LookedUp;
use super::{Memory, Snapshot, Tally, Task};
use crate::model::memory::{ObjectId, ObjectNodes};
use crate::model::process::ProcessId;
use crate::model::sample::{PagesByPolicy, SharedObject, pages};
use crate::model::share::wilson_farther;
use crate::model::topology::Topology;

/// The least share of an object in the memory of each process that maps it.
const SHARE: f64 = 0.2;
/// Pages drawn from the page cache are used in any case if their error is at most this, in points. Pages from
/// page tables may be a small part, which their error does not reflect.
const DRAWN_ERROR: f64 = 10.0;
/// The share of mappings of an object that the members may not explain.
const UNKNOWN: f64 = 0.1;

/// Nodes of an object that were drawn longer ago are not used, ns: they are drawn each 30 s.
const DRAWN_OLD_NS: u64 = 90_000_000_000;

/// A large object that processes of a group share, with the nodes of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupObject {
    /// The object. `is_drawn`: its pages are drawn from the page cache.
    pub facts: SharedObject,
    /// All shares of nodes together are this near the truth in 95 of 100 cases, in hundredths of a percentage point.
    pub error_hundredths: u32,
    /// The pages were drawn from the page cache. Otherwise they are from the page tables of one process.
    pub is_drawn: bool,
}

/// Processes that map the same large objects.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    /// The member that others come from, or the oldest.
    pub leader: ProcessId,
    /// Places of its processes in the snapshot, ascending.
    pub members: Vec<usize>,
    /// Objects that make it a group, the largest first.
    pub objects: Vec<GroupObject>,
    /// The leader's row with the sum over all members, and with the memory of the group.
    pub row: Task,
    /// Memory by node id whose policy names that node, bytes.
    pub meant: Vec<f64>,
    /// Other processes map an object, too, which are not known.
    pub has_unknown_users: bool,
    /// All members may use the same nodes, and their own policy is the default.
    pub is_free: bool,
    /// The container or cgroup that all members are in, by the id of its top.
    pub container: Option<u64>,
}

impl ProcessGroup {
    /// Bytes in memory of the objects, each once.
    pub fn object_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.facts.resident_bytes).sum()
    }
}

/// An object with the places of the tasks that map it.
struct Mapped {
    facts: SharedObject,
    error_points: f64,
    is_drawn: bool,
    by: Vec<usize>,
}

/// Memory by node, bytes, that the sum over these processes has more than once: parts of objects that several of them map. An
/// object counts as its parts together, and never as more than it has in memory. Each process is one of the rows at most.
pub fn counted_twice<'a>(tasks: impl Iterator<Item = &'a Task>) -> Vec<f64> {
    struct Parts {
        resident: f64,
        largest: f64,
        by_node: Vec<f64>,
        count: u32,
    }
    let mut objects: BTreeMap<ObjectId, Parts> = BTreeMap::new();
    for task in tasks {
        let (Some(policies), Some((_, Ok(memory)))) = (task.by_policy(), task.memory()) else { continue };
        let member = Member { memory, policies };
        for object in &policies.objects {
            let none = || Parts { resident: 0.0, largest: 0.0, by_node: Vec::new(), count: 0 };
            let parts = objects.entry(object.id()).or_insert_with(none);
            let part = object.by_node.iter().map(|count| member.bytes_of(f64::from(*count)));
            parts.resident = parts.resident.max(object.resident_bytes as f64);
            parts.largest = parts.largest.max(part.clone().sum());
            add(&mut parts.by_node, part);
            parts.count += 1;
        }
    }
    let mut twice = Vec::new();
    for parts in objects.into_values().filter(|parts| parts.count > 1) {
        let all: f64 = parts.by_node.iter().sum();
        let once = parts.resident.max(parts.largest).min(all);
        if all > 0.0 {
            add(&mut twice, parts.by_node.iter().map(|bytes| bytes * (1.0 - once / all)));
        }
    }
    twice
}

/// A process that maps objects, with the known facts about its memory.
struct Member<'a> {
    memory: &'a Memory,
    policies: &'a PagesByPolicy,
}

impl Member<'_> {
    /// Memory that a number of its pages represents, bytes.
    fn bytes_of(&self, count: f64) -> f64 {
        count * self.memory.bytes() / pages(&self.policies.by_node).max(1.0)
    }

    /// Memory by node that is not in shared objects, bytes.
    fn private(&self) -> Vec<f64> {
        let shared = |node: usize| self.policies.shared.get(node).copied().unwrap_or(0);
        let all = self.policies.by_node.iter().enumerate();
        all.map(|(node, count)| self.bytes_of(f64::from(count.saturating_sub(shared(node))))).collect()
    }

    /// The part on nodes that its policy names.
    fn private_meant(&self) -> Vec<f64> {
        let of_objects = |node: usize| -> u32 {
            self.policies.objects.iter().filter_map(|object| object.meant.get(node)).sum()
        };
        let all = self.policies.meant.iter().enumerate();
        all.map(|(node, count)| self.bytes_of(f64::from(count.saturating_sub(of_objects(node))))).collect()
    }
}

fn add(sum: &mut Vec<f64>, part: impl IntoIterator<Item = f64>) {
    for (node, bytes) in part.into_iter().enumerate() {
        if sum.len() <= node {
            sum.push(0.0);
        }
        sum[node] += bytes;
    }
}

/// The least memory whose place matters, bytes: numad's threshold (S2 of docs/rules.md), or a twentieth of the smallest node.
pub fn large_bytes(topology: &Topology) -> f64 {
    const LARGE: f64 = (300u64 << 20) as f64;
    let sizes = topology.nodes.iter().map(|node| node.mem_total_bytes as f64);
    LARGE.min(sizes.filter(|bytes| *bytes > 0.0).fold(f64::INFINITY, f64::min) * 0.05)
}

/// Groups of a snapshot of processes, in the order of their leaders.
pub fn groups(snapshot: &Snapshot) -> Vec<ProcessGroup> {
    let mut members: HashMap<usize, Member<'_>> = HashMap::new();
    let mut objects: BTreeMap<ObjectId, Mapped> = BTreeMap::new();
    for (at, _) in snapshot.row_uses.iter().enumerate().filter(|(_, row)| row.rss_bytes > 0) {
        let task = &snapshot.tasks[at];
        let Some(policies) = task.by_policy().filter(|found| !task.exited && !found.objects.is_empty())
        else {
            continue;
        };
        let Some((_, Ok(memory))) = task.memory() else { continue };
        for object in &policies.objects {
            objects.entry(object.id()).or_insert_with(|| Mapped::new(object)).take(object, at);
        }
        members.insert(at, Member { memory, policies });
    }
    for (id, mapped) in &mut objects {
        let drawn = snapshot.inputs.object_nodes.get(id);
        let is_old = |nodes: &ObjectNodes| snapshot.mono_ns.saturating_sub(nodes.read_ns) > DRAWN_OLD_NS;
        mapped.settle(drawn.filter(|nodes| !is_old(nodes)).map(|nodes| &**nodes));
    }
    objects.retain(|_, mapped| mapped.by.len() > 1 && mapped.is_large(snapshot, &members));
    let mut groups: Vec<ProcessGroup> = joined(objects)
        .into_iter()
        .map(|(places, objects)| group(snapshot, &members, places, objects))
        .collect();
    groups.sort_by_key(|group| group.leader);
    groups
}

impl Mapped {
    fn new(object: &SharedObject) -> Mapped {
        Mapped { facts: object.clone(), error_points: 100.0, is_drawn: false, by: Vec::new() }
    }

    /// The error of the pages of page tables. Pages drawn from the page cache replace them unless they are
    /// less exact: few are found of an object with many holes.
    fn settle(&mut self, drawn: Option<&ObjectNodes>) {
        let most = self.facts.by_node.iter().copied().max().unwrap_or(0);
        let found = wilson_farther(most.into(), pages(&self.facts.by_node));
        self.error_points = found.map_or(100.0, |(_, error)| error);
        if let Some(drawn) = drawn.filter(|drawn| pages(&drawn.by_node) > 0.0)
            && f64::from(drawn.error_hundredths) / 100.0 <= self.error_points.max(DRAWN_ERROR)
        {
            (self.facts.by_node, self.facts.meant) = (drawn.by_node.clone(), drawn.meant.clone());
            (self.error_points, self.is_drawn) = (f64::from(drawn.error_hundredths) / 100.0, true);
        }
    }

    /// Adds the data of one more process about it. The pages are those of the process that knows most of
    /// them.
    fn take(&mut self, object: &SharedObject, at: usize) {
        if !self.by.is_empty() {
            self.facts.own_mappings = self.facts.own_mappings.saturating_add(object.own_mappings);
            self.facts.resident_bytes = self.facts.resident_bytes.max(object.resident_bytes);
            self.facts.mappings = self.facts.mappings.max(object.mappings);
            if pages(&object.by_node) > pages(&self.facts.by_node) {
                (self.facts.by_node, self.facts.meant) = (object.by_node.clone(), object.meant.clone());
            }
        }
        self.by.push(at);
    }

    fn is_large(&self, snapshot: &Snapshot, members: &HashMap<usize, Member<'_>>) -> bool {
        let bytes = self.facts.resident_bytes as f64;
        let private: f64 = self.by.iter().map(|at| members[at].private().iter().sum::<f64>()).sum();
        bytes >= large_bytes(&snapshot.host.topology)
            && bytes >= SHARE * (bytes + private)
            && pages(&self.facts.by_node) > 0.0
    }
}

/// Objects with a common process, together, and all processes that map them.
fn joined(objects: BTreeMap<ObjectId, Mapped>) -> Vec<(Vec<usize>, Vec<GroupObject>)> {
    let mut groups: Vec<(Vec<usize>, Vec<GroupObject>)> = Vec::new();
    for Mapped { facts, error_points, is_drawn, by } in objects.into_values() {
        let (mut places, mut together) = (
            by,
            vec![GroupObject { facts, error_hundredths: (error_points * 100.0).round() as u32, is_drawn }],
        );
        let (same, others): (Vec<_>, Vec<_>) = std::mem::take(&mut groups)
            .into_iter()
            .partition(|(known, _)| known.iter().any(|at| places.contains(at)));
        groups = others;
        for (known, objects) in same {
            places.extend(known);
            together.extend(objects);
        }
        places.sort_unstable();
        places.dedup();
        groups.push((places, together));
    }
    groups
}

fn group(
    snapshot: &Snapshot,
    members: &HashMap<usize, Member<'_>>,
    places: Vec<usize>,
    mut objects: Vec<GroupObject>,
) -> ProcessGroup {
    objects.sort_by_key(|object| (std::cmp::Reverse(object.facts.resident_bytes), object.facts.id()));
    let (mut bytes, mut meant, mut squares) = (Vec::new(), Vec::new(), 0.0);
    for GroupObject { facts: object, error_hundredths, .. } in &objects {
        let all = pages(&object.by_node);
        let per_page = object.resident_bytes as f64 / all;
        add(&mut bytes, object.by_node.iter().map(|pages| f64::from(*pages) * per_page));
        add(&mut meant, object.meant.iter().map(|pages| f64::from(*pages) * per_page));
        squares += (object.resident_bytes as f64 * f64::from(*error_hundredths) / 100.0).powi(2);
    }
    for member in places.iter().map(|at| &members[at]) {
        let private = member.private();
        squares += (private.iter().sum::<f64>() * member.memory.error_points).powi(2);
        add(&mut bytes, private);
        add(&mut meant, member.private_meant());
    }
    let all: f64 = bytes.iter().sum();
    let memory = Memory { error_points: squares.sqrt() / all.max(1.0), bytes_by_node: bytes };
    let tasks: Vec<&Task> = places.iter().map(|at| &snapshot.tasks[*at]).collect();
    let first = leader(&tasks);
    let nodes = |task: &&&Task| (task.cpu_nodes, task.mem_nodes) == (first.cpu_nodes, first.mem_nodes);
    let top = |task: &Task| snapshot.names.top(task.raw.cgroup_id);
    ProcessGroup {
        leader: first.raw.process(),
        has_unknown_users: objects.iter().any(|object| is_used_by_others(&object.facts)),
        is_free: tasks.iter().all(|task| nodes(&task) && task.raw.mempolicy.is_default()),
        container: tasks.iter().all(|task| top(task) == top(first)).then(|| top(first)),
        row: sum(first, &tasks, memory, snapshot.mono_ns),
        members: places,
        objects,
        meant,
    }
}

/// Whether more than a tenth of the mappings of an object are not those of the members.
fn is_used_by_others(object: &SharedObject) -> bool {
    let Some(all) = object.mappings else { return true };
    f64::from(all.saturating_sub(object.own_mappings)) > UNKNOWN * f64::from(all)
}

/// The member that all others come from, else the oldest.
fn leader<'a>(tasks: &[&'a Task]) -> &'a Task {
    let comes_from =
        |task: &Task, parent: &Task| task.raw.pid == parent.raw.pid || task.raw.ppid == parent.raw.pid;
    let parent = tasks.iter().find(|parent| tasks.iter().all(|task| comes_from(task, parent)));
    let oldest = || tasks.iter().min_by_key(|task| (task.raw.leader_start_ns, task.raw.pid));
    parent.or_else(oldest).expect("a group has two members at least")
}

/// One row for all: the leader's, with the sums over all, and this memory.
fn sum(leader: &Task, tasks: &[&Task], memory: Memory, mono_ns: u64) -> Task {
    let bytes = memory.bytes();
    let age = tasks.iter().filter_map(|task| task.memory()).map(|(read_ns, _)| *read_ns).min();
    let looked_up = LookedUp {
        memory: Some((age.unwrap_or(mono_ns), Ok(memory))),
        policies: None,
        by_policy: None,
        about: None,
        memory_use: None,
    };
    Task {
        threads: tasks.iter().map(|task| task.threads).sum(),
        rss_bytes: bytes as u64,
        resident: None,
        looked_up: Some(Arc::new(looked_up)),
        total: Tally::sum(tasks.iter().map(|task| task.total.clone()).collect()),
        delta: Tally::sum(tasks.iter().map(|task| task.delta.clone()).collect()),
        ..leader.clone()
    }
}
