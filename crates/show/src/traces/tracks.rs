//! Tracks of a trace: groups and lines with their names, units and places, and the values that lines have in an
//! interval. Programs and containers with the most CPU time have separate tracks.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use regex_lite::Regex;

use crate::entity::{Who, program_of};
use crate::metric::over::Quotient;
use crate::metric::{Metric, container, node, placement, task};
use crate::model::group::{self, GroupKind};
use crate::model::sample::OTHERS_PID;
use crate::snapshot::{Container, Node, Snapshot};

/// A group of tracks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// All of them.
    Host,
    Findings,
    /// A node, by its id.
    Node(u32),
    Containers,
    /// A container, by the id of its cgroup.
    Container(u64),
    Programs,
    Program(Program),
}

/// A line in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    Cpu,
    Remote,
    Ipc,
    Free,
}

impl Line {
    /// Its name, which is the name of a track.
    pub fn name(self) -> &'static str {
        match self {
            Line::Cpu => "CPU",
            Line::Remote => "remote memory",
            Line::Ipc => "IPC",
            Line::Free => "free memory",
        }
    }

    /// The unit of its values in words; `None` for bytes, which have a number.
    pub fn unit(self, group: &Group) -> Option<&'static str> {
        match (self, group) {
            (Line::Cpu, Group::Node(_)) => Some("% of its CPUs"),
            (Line::Cpu, _) => Some("% of a CPU"),
            (Line::Remote, _) => Some("%"),
            (Line::Ipc, _) => Some("instructions per cycle"),
            (Line::Free, _) => None,
        }
    }
}

impl Group {
    /// The group that it is in.
    pub fn parent(&self) -> Option<Group> {
        match self {
            Group::Host => None,
            Group::Findings | Group::Node(_) | Group::Containers | Group::Programs => Some(Group::Host),
            Group::Container(_) => Some(Group::Containers),
            Group::Program(_) => Some(Group::Programs),
        }
    }

    /// Name and place of a group that holds others; the host, nodes and rows have names of their own.
    pub fn holds(&self) -> (&'static str, u64) {
        match self {
            Group::Findings => ("findings", rank::FINDINGS),
            Group::Containers => ("containers", rank::CONTAINERS),
            Group::Programs => ("programs", rank::PROGRAMS),
            Group::Host | Group::Node(_) | Group::Container(_) | Group::Program(_) => ("", 0),
        }
    }
}

/// Places of groups and tracks among those of the same group.
pub mod rank {
    pub const FINDINGS: u64 = 0;
    pub const GAPS: u64 = 1;
    pub const NOTES: u64 = 2;
    /// The first node; others follow by id.
    pub const NODES: u64 = 3;
    pub const CONTAINERS: u64 = NODES + (1 << 20);
    pub const PROGRAMS: u64 = CONTAINERS + 1;
}

/// The values of a group in an interval.
#[derive(Clone, Debug)]
pub struct TrackRow {
    pub group: Group,
    /// Clean.
    pub name: String,
    pub rank: u64,
    /// Lines with a value; those without one have none in this interval.
    pub values: Vec<(Line, f64)>,
}

/// Nodes that have tracks at most: a recording may name any.
const NODES_MAX: usize = 1024;

/// The rows of an interval: nodes, then the chosen containers and programs, as far as they have a row.
pub fn rows(snapshot: &Snapshot, chosen: &Chosen) -> Vec<TrackRow> {
    let mut rows = nodes(snapshot);
    rows.extend(containers(snapshot, chosen));
    rows.extend(programs(snapshot, chosen));
    rows
}

/// Whether all running tasks have a row: a recording may have left rows out, and missing ones may have run.
pub fn has_all_rows(snapshot: &Snapshot) -> bool {
    snapshot.tasks.iter().all(|task| task.raw.pid != OTHERS_PID)
}

/// Metrics of nodes, and the lines that they are.
const OF_NODES: [(Line, &Metric<Node>); 4] = [
    (Line::Cpu, &node::CPU_PCT),
    (Line::Remote, &placement::NODE_REMOTE_PCT),
    (Line::Ipc, &node::IPC),
    (Line::Free, &node::MEM_FREE_BYTES),
];

fn nodes(snapshot: &Snapshot) -> Vec<TrackRow> {
    let of_node = |row: &Node| TrackRow {
        group: Group::Node(row.raw.id),
        name: format!("node {}", row.raw.id),
        rank: rank::NODES + u64::from(row.raw.id),
        values: values(&OF_NODES, row, snapshot),
    };
    snapshot.nodes.iter().take(NODES_MAX).map(of_node).collect()
}

/// Metrics of containers, and the lines that they are.
const OF_CONTAINERS: [(Line, &str); 3] = [
    (Line::Cpu, task::CPU_PCT.id),
    (Line::Remote, placement::CONTAINER_REMOTE_PCT.id),
    (Line::Ipc, task::IPC.id),
];

fn containers(snapshot: &Snapshot, chosen: &Chosen) -> Vec<TrackRow> {
    let metrics: Vec<(Line, &Metric<Container>)> =
        OF_CONTAINERS.iter().filter_map(|(line, id)| Some((*line, container::by_id(id)?))).collect();
    let of_container = |row: &Container| {
        Some(TrackRow {
            group: Group::Container(row.id),
            name: container_name(row, snapshot),
            rank: *chosen.containers.get(&row.id)? as u64,
            values: values(&metrics, row, snapshot),
        })
    };
    snapshot.containers.iter().filter(|row| is_own(row)).filter_map(of_container).collect()
}

/// Namespace, pod and name; the path of a cgroup that is nothing else. Two pods of one set are two.
fn container_name(row: &Container, snapshot: &Snapshot) -> String {
    let path = || snapshot.names.cgroups.get(&row.id).map(|path| group::show(path));
    let name = row.group.as_ref().and_then(|group| {
        if group.kind == GroupKind::Group {
            return path();
        }
        let pod = group.pod.as_deref().filter(|_| group.kind != GroupKind::Pod);
        let parts = [group.namespace.as_deref(), pod, Some(group.name.as_str())];
        let words: Vec<&str> = parts.into_iter().flatten().filter(|word| !word.is_empty()).collect();
        Some(words.join("/"))
    });
    name.unwrap_or_else(|| format!("cgroup {}", row.id))
}

fn values<R>(metrics: &[(Line, &Metric<R>)], row: &R, snapshot: &Snapshot) -> Vec<(Line, f64)> {
    let value = |(line, metric): &(Line, &Metric<R>)| {
        let value = metric.read(row, snapshot).ok()?.number()?;
        value.is_finite().then_some((*line, value))
    };
    metrics.iter().filter_map(value).collect()
}

/// Sums of a program in an interval.
#[derive(Default)]
struct Sums {
    /// Time on CPUs, ns.
    run_ns: u64,
    remote: Quotient,
    ipc: Quotient,
}

/// Processes of one name in one container, added up: a quotient of sums, as for their container.
fn programs(snapshot: &Snapshot, chosen: &Chosen) -> Vec<TrackRow> {
    let mut sums: HashMap<Program, Sums> = HashMap::new();
    for task in &snapshot.tasks {
        let program = program_of(task, snapshot);
        if !chosen.programs.contains_key(&program) {
            continue;
        }
        let sums = sums.entry(program).or_default();
        sums.run_ns = sums.run_ns.saturating_add(task.run_ns());
        for (sum, metric) in [(&mut sums.remote, &placement::REMOTE_PCT), (&mut sums.ipc, &task::IPC)] {
            if let Some(Ok(found)) = metric.quotient(task, snapshot)
                && found.den > 0.0
            {
                sum.add(found);
            }
        }
    }
    let of_program = |(program, sums): (Program, Sums)| of_program(program, &sums, snapshot, chosen);
    let mut rows: Vec<TrackRow> = sums.into_iter().map(of_program).collect();
    rows.sort_by_key(|row| row.rank);
    rows
}

fn of_program(program: Program, sums: &Sums, snapshot: &Snapshot, chosen: &Chosen) -> TrackRow {
    let mut values: Vec<(Line, f64)> =
        snapshot.share(sums.run_ns).ok().map(|pct| (Line::Cpu, pct)).into_iter().collect();
    for (line, sums) in [(Line::Remote, sums.remote), (Line::Ipc, sums.ipc)] {
        if sums.den > 0.0 && sums.value().is_finite() {
            values.push((line, sums.value()));
        }
    }
    let rank = chosen.programs.get(&program).copied().unwrap_or_default() as u64;
    let name = Who::program(program.0.as_deref(), &program.1).name;
    TrackRow { group: Group::Program(program), name, rank, values }
}

/// Maximum separate rows of one kind: anyone can choose names.
const ROWS_MAX: usize = 100_000;

/// Rows that are kept where there are more: those with the most time so far.
const KEPT: usize = ROWS_MAX / 2;

/// A program: the container that it is in, and its name. Clean.
pub type Program = (Option<String>, String);

/// CPU time of programs and containers so far, ns.
#[derive(Debug, Default)]
pub struct Busiest {
    programs: HashMap<Program, u64>,
    /// By the id of their cgroup.
    containers: HashMap<u64, u64>,
}

/// The rows with tracks, by rank from 0, and the number of those without.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub programs: BTreeMap<Program, usize>,
    /// By the id of their cgroup.
    pub containers: BTreeMap<u64, usize>,
    pub programs_left_out: usize,
    pub containers_left_out: usize,
}

/// Whether a row is of something by itself: a cgroup that only holds others is not.
pub fn is_own(row: &Container) -> bool {
    row.group.as_ref().is_some_and(|group| group.kind != GroupKind::Group || row.own_tasks)
}

impl Busiest {
    /// Adds an interval, whose rows are processes.
    pub fn take(&mut self, snapshot: &Snapshot) {
        for task in snapshot.tasks.iter().filter(|task| task.run_ns() > 0) {
            add(&mut self.programs, program_of(task, snapshot), task.run_ns());
        }
        for row in snapshot.containers.iter().filter(|row| is_own(row) && row.sum.run_ns() > 0) {
            add(&mut self.containers, row.id, row.sum.run_ns());
        }
    }

    /// The first programs whose name `comm` matches, and the first containers, this many of each.
    pub fn choose(self, programs: usize, containers: usize, comm: Option<&Regex>) -> Chosen {
        let mut matching = self.programs;
        matching.retain(|(_, name), _| comm.is_none_or(|comm| comm.is_match(name)));
        Chosen {
            programs_left_out: matching.len().saturating_sub(programs),
            containers_left_out: self.containers.len().saturating_sub(containers),
            programs: most(matching, programs),
            containers: most(self.containers, containers),
        }
    }
}

fn add<K: Eq + Hash + Ord + Clone>(rows: &mut HashMap<K, u64>, key: K, ns: u64) {
    let sum = rows.entry(key).or_default();
    *sum = sum.saturating_add(ns);
    if rows.len() > ROWS_MAX {
        let kept = most(rows.clone(), KEPT);
        rows.retain(|key, _| kept.contains_key(key));
    }
}

/// The rows with the most time, by rank. Rows with the same time are in the order of their keys.
fn most<K: Eq + Hash + Ord>(rows: HashMap<K, u64>, count: usize) -> BTreeMap<K, usize> {
    let mut rows: Vec<(K, u64)> = rows.into_iter().collect();
    rows.sort_by(|(a, a_ns), (b, b_ns)| b_ns.cmp(a_ns).then_with(|| a.cmp(b)));
    rows.into_iter().take(count).enumerate().map(|(rank, (key, _))| (key, rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_chosen_and_memory_is_bounded() {
        let mut busiest = Busiest::default();
        let program = |name: &str| (None, name.to_owned());
        for at in 0..ROWS_MAX as u64 + 10 {
            add(&mut busiest.programs, program(&format!("p{at}")), 1);
        }
        assert!(busiest.programs.len() <= ROWS_MAX);
        for (name, ns) in [("b", 50), ("a", 50), ("c", 70), ("c", 1)] {
            add(&mut busiest.programs, program(name), ns);
        }
        let all = busiest.programs.len();
        let chosen = busiest.choose(3, 1, None);
        let ranks: Vec<(&str, usize)> =
            chosen.programs.iter().map(|((_, name), rank)| (&**name, *rank)).collect();
        assert_eq!(ranks, [("a", 1), ("b", 2), ("c", 0)]);
        assert_eq!((chosen.programs_left_out, chosen.containers_left_out), (all - 3, 0));
    }

    #[test]
    fn only_programs_that_match_are_chosen() {
        let mut busiest = Busiest::default();
        for name in ["java", "javac", "nginx"] {
            add(&mut busiest.programs, (None, name.to_owned()), 1);
        }
        let chosen = busiest.choose(20, 20, Some(&Regex::new("^java").unwrap()));
        assert_eq!((chosen.programs.len(), chosen.programs_left_out), (2, 0));
    }
}
