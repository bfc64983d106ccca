//! The profile of a machine: what its nodes, caches and sibling threads cost each other, as `calibrate` measured it.

#![warn(missing_docs)]

pub mod values;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::topology::{Calibration, Cost, Topology};
use super::units::NodeId;

/// Version of the JSON: changes only when a key changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// The relative error of a number that is sure.
pub const SURE: f64 = 0.03;

/// A row for each node with CPUs or none, in the order of [`MachineKey::nodes`]; `None` for a missing number.
pub type Matrix = Vec<Vec<Option<f64>>>;

/// All that is known of a machine. GB are 10^9 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the tool that measured.
    pub tool: String,
    /// The end of the measurement, RFC 3339.
    pub time: String,
    /// The time of the last measurement of each part, by its word (`latency`, `smt`): later measurements are
    /// merged in.
    pub measured: BTreeMap<String, String>,
    /// Runs of numbers and reasons that are not of the last run of their part, or of one that was disturbed or wandering, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<String, Origin>,
    /// Length of the measurement, s.
    pub took_s: f64,
    /// The machine that it is about.
    pub machine: MachineKey,
    /// The boot id of the kernel at the measurement.
    pub boot_id: String,
    /// Release of that kernel.
    pub kernel: String,
    /// Whether it may be used.
    pub state: State,
    /// The method.
    pub method: Method,
    /// Use of the CPUs by others during the measurement, percent of all.
    pub others_pct: f64,
    /// Latency of a load from memory of the column's node on a CPU of the row's, ns.
    pub latency_ns: Matrix,
    /// Half the range of the middle rounds, ns.
    pub latency_error: Matrix,
    /// The same while no CPU of the memory's node worked, ns.
    pub latency_asleep_ns: Matrix,
    /// Reads by all cores of the row's node from memory of the column's, GB/s.
    pub read_gbs: Matrix,
    /// Half the range of the middle rounds, GB/s.
    pub read_error: Matrix,
    /// Bandwidth inside of nodes.
    pub local: Vec<Local>,
    /// Time that a line takes from one core to another, one way, ns.
    pub lines_ns: Lines,
    /// Work of both threads of a core in parts of that of one.
    pub smt: Smt,
    /// A page walk, ns: small pages at random, less huge pages.
    pub walk_ns: Option<f64>,
    /// Latency beside traffic.
    pub loaded: Vec<Loaded>,
    /// Groups of pages with distinct latencies, percent of pages, if such groups were looked for and found.
    pub hidden_nodes: Option<Vec<f64>>,
    /// The places of two CPUs at moments of the measurement, in a virtual machine.
    pub wandering: Option<Wandering>,
    /// Why a number is missing, by its key: `latency_ns.0.1`.
    pub missing: BTreeMap<String, String>,
    /// Words on the measurement.
    pub notes: Vec<String>,
}

/// Whether a profile may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Measured on a quiet machine.
    Good,
    /// Others worked meanwhile (`--force`): shown, used by nothing.
    Disturbed,
    /// The hypervisor moves CPUs: nothing but ratios of nodes is used.
    Wandering,
    /// A part was asked for, or could be measured.
    #[default]
    Partial,
}

impl State {
    /// Numbers of such a run may be used as they are.
    pub fn is_clean(self) -> bool {
        matches!(self, State::Good | State::Partial)
    }
}

/// The run that a number is of, or the reason for its lack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// Its end, RFC 3339.
    pub time: String,
    /// Whether others disturbed it, or CPUs wandered.
    pub state: State,
}

/// Facts that match a profile to a machine. Not memory sizes (balloons change them), not the host's name
/// (images are cloned).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineKey {
    /// `GenuineIntel 6/106/6`, `Arm 0x41/0xd0c`.
    pub cpu: String,
    /// CPUID reports a virtual machine; `None` where CPUs do not report it.
    pub hypervisor: Option<bool>,
    /// Cores.
    pub cores: u32,
    /// Most threads of a core.
    pub threads: u32,
    /// Bytes of a cache line.
    pub line_bytes: u32,
    /// Online nodes, ascending.
    pub nodes: Vec<NodeKey>,
    /// Last-level caches, in the order of their first CPUs.
    pub caches: Vec<CacheKey>,
}

/// A node of a [`MachineKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKey {
    /// Its id.
    pub node: u32,
    /// Its CPUs as a list.
    pub cpus: String,
    /// Its row of the SLIT.
    pub slit: Vec<u32>,
}

/// A cache of a [`MachineKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheKey {
    /// 1 and up; `None` where sysfs does not say.
    pub level: Option<u32>,
    /// Its size.
    pub bytes: Option<u64>,
    /// CPUs that share it, as a list.
    pub cpus: String,
}

/// The method of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// `flushed`: every line is taken out of all caches before each pass; `evicted`: the walk is larger than they are.
    pub latency: String,
    /// Bytes of the walk.
    pub buffer_bytes: u64,
    /// Part of them in huge pages; `None` where the kernel does not say.
    pub huge_share: Option<f64>,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Length of a round, ms.
    pub round_ms: u32,
}

/// Bandwidth inside of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Local {
    /// Its id.
    pub node: u32,
    /// Reads by one core, GB/s.
    pub one_core_gbs: Option<f64>,
    /// Cores beyond which reads gain less than 3 %.
    pub cores_to_fill: Option<u32>,
    /// Writes by all cores.
    pub write_gbs: Option<f64>,
    /// Writes past the caches.
    pub write_nt_gbs: Option<f64>,
    /// Copies; bytes read and written.
    pub copy_gbs: Option<f64>,
    /// STREAM's a = b + 3c; bytes of all three.
    pub triad_gbs: Option<f64>,
}

/// Time that a line takes between two cores of each kind of pair, one way, ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    /// Two threads of a core.
    pub core: Option<f64>,
    /// Two cores of a last-level cache.
    pub llc: Option<f64>,
    /// Two last-level caches of a node.
    pub node: Option<f64>,
    /// Two lines with a flag each, between the nearest cores.
    pub two_lines: Option<f64>,
    /// A core of the row's node and one of the column's.
    pub nodes: Matrix,
    /// Every pair of cores (`--cores`): first CPU, second CPU, ns.
    pub pairs: Vec<(u32, u32, f64)>,
}

/// Work of both threads of a core together, in parts of that of one: 1.0 no gain, 2.0 twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Smt {
    /// Independent additions.
    pub additions: Option<f64>,
    /// Additions that wait for each other: 2 unless something else runs there.
    pub waiting: Option<f64>,
    /// Jumps that no predictor knows.
    pub branches: Option<f64>,
    /// Loads from memory that wait for each other.
    pub memory: Option<f64>,
}

/// Latency beside traffic: CPUs of a node, memory of one, and pairs of GB/s and ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Node of the CPUs.
    pub from: u32,
    /// Node of the memory.
    pub to: u32,
    /// Traffic in GB/s and latency in ns.
    pub points: Vec<(f64, f64)>,
}

/// Looks at how far two CPUs are from each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wandering {
    /// The CPUs.
    pub cpus: (u32, u32),
    /// Time that a line took in each look, ns.
    pub looks_ns: Vec<f64>,
    /// Looks in each class, nearest first; classes are a factor of 1.7 apart. One class: they stay.
    pub classes: Vec<u32>,
}

impl Profile {
    /// The time of the measurement of a number, by its key: see [`values`].
    pub fn when(&self, key: &str) -> &str {
        let part = || values::part(key).and_then(|part| self.measured.get(part));
        self.origins.get(key).map(|origin| &origin.time).or_else(part).unwrap_or(&self.time)
    }

    /// The state of the run that measured a number, by its key, where that was disturbed or wandering; `None` for a clean one.
    pub fn taint(&self, key: &str) -> Option<State> {
        // Of a profile that nothing was merged into all numbers are of one run.
        let own = || self.origins.is_empty().then_some(self.state);
        let state = self.origins.get(key).map(|origin| origin.state).or_else(own);
        state.filter(|state| !state.is_clean())
    }

    /// The place of a node in the matrices.
    fn at(&self, node: NodeId) -> Option<usize> {
        self.machine.nodes.iter().position(|known| known.node == node.0)
    }

    fn cell(&self, matrix: &Matrix, from: NodeId, to: NodeId) -> Option<f64> {
        *matrix.get(self.at(from)?)?.get(self.at(to)?)?
    }

    /// Latency of memory of `to` on CPUs of `from`, ns.
    pub fn latency(&self, from: NodeId, to: NodeId) -> Option<f64> {
        self.cell(&self.latency_ns, from, to)
    }

    /// Reads by CPUs of `from` from memory of `to`, GB/s.
    pub fn bandwidth(&self, from: NodeId, to: NodeId) -> Option<f64> {
        self.cell(&self.read_gbs, from, to)
    }

    /// Latency of `to` on `from` in parts of the least that `from` has.
    pub fn ratio(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let row = self.latency_ns.get(self.at(from)?)?;
        let least = row.iter().flatten().copied().min_by(f64::total_cmp)?;
        Some(self.latency(from, to)? / least)
    }

    /// The error of latencies, percent: that of the worst cell. `None` without one.
    pub fn error_pct(&self) -> Option<f64> {
        let cells = self.latency_ns.iter().flatten().zip(self.latency_error.iter().flatten());
        let errors = cells.filter_map(|(value, error)| Some(100.0 * (*error)? / (*value)?));
        errors.filter(|error| error.is_finite()).max_by(f64::total_cmp)
    }

    /// Why no cost may be used of a profile that is about the machine; `None` if some may.
    pub fn unusable(&self) -> Option<&'static str> {
        (self.state == State::Disturbed).then_some("other tasks disturbed the measurement")
    }

    /// Gives a topology of the same machine the costs of its nodes. A disturbed profile gives nothing. If
    /// CPUs migrated during the measurement of a cost, only latencies are used, since their ratios remain
    /// valid. The time is that of the oldest cost.
    pub fn measure(&self, topology: &mut Topology) {
        let unused = self.unusable().map(String::from);
        let ids: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
        let mut costs = Vec::new();
        for name in ["latency_ns", "read_gbs"] {
            let keys = ids.iter().flat_map(|from| ids.iter().map(move |to| format!("{name}.{from}.{to}")));
            costs.extend(keys);
        }
        let known = values::values(self);
        costs.retain(|key| known.contains_key(key));
        let only_ratios = match costs.is_empty() {
            true => self.state == State::Wandering,
            false => costs.iter().any(|key| self.taint(key) == Some(State::Wandering)),
        };
        let oldest = costs.iter().map(|key| self.when(key)).min().unwrap_or(&self.time);
        let usable = unused.is_none();
        let smt_work = self.smt_work().filter(|_| usable);
        topology.calibration = Some(Calibration { time: oldest.to_owned(), only_ratios, unused, smt_work });
        let scaled = |value: Option<f64>, factor: f64| {
            let value = value.filter(|value| value.is_finite() && *value > 0.0)?;
            Some((value * factor).round() as u64)
        };
        for node in &mut topology.nodes {
            let reads = |matrix: &Matrix, to: NodeId| self.cell(matrix, node.id, to).filter(|_| !only_ratios);
            let costs = ids.iter().map(|to| Cost {
                node: *to,
                latency_ps: scaled(self.latency(node.id, *to), 1e3),
                read_bytes_per_s: scaled(reads(&self.read_gbs, *to), 1e9),
                latency_error_ps: scaled(self.cell(&self.latency_error, node.id, *to), 1e3),
                read_error_bytes_per_s: scaled(reads(&self.read_error, *to), 1e9),
            });
            let known = |cost: &Cost| cost.latency_ps.is_some() || cost.read_bytes_per_s.is_some();
            node.measured = costs.filter(|cost| usable && known(cost)).collect();
        }
    }

    /// See [`Calibration::smt_work`]. Numbers of CPUs that wandered are none of a core.
    fn smt_work(&self) -> Option<(u32, u32)> {
        let Smt { additions, waiting, branches, memory } = &self.smt;
        let named =
            [("additions", additions), ("waiting", waiting), ("branches", branches), ("memory", memory)];
        let clean = named.iter().filter(|(name, _)| self.taint(&format!("smt.{name}")).is_none());
        let work = clean.filter_map(|(_, times)| **times).filter(|times| (0.1..=10.0).contains(times));
        let work: Vec<u32> = work.map(|times| (times * 1e3).round() as u32).collect();
        work.iter().copied().min().zip(work.iter().copied().max())
    }

    /// The reason why it does not apply to a machine with these facts in this run of the kernel; `None` if it
    /// does.
    pub fn inapplicable(&self, machine: &MachineKey, boot_id: &str) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!("its schema {} is unknown", self.schema));
        }
        if let Some(difference) = self.machine.difference(machine) {
            return Some(difference);
        }
        let may_move = self.machine.hypervisor != Some(false);
        match may_move && self.boot_id != boot_id {
            true if self.machine.hypervisor == Some(true) => Some(
                "the profile is from another boot of this virtual machine, which may have moved to \
                      another host"
                    .into(),
            ),
            true => Some(
                "the profile is from another boot; this may be a virtual machine that moved to \
                          another host"
                    .into(),
            ),
            false => None,
        }
    }
}

impl MachineKey {
    /// The first difference between the measured machine (`self`) and `now`, in words.
    pub fn difference(&self, now: &MachineKey) -> Option<String> {
        if self.cpu != now.cpu {
            return Some(format!(
                "the profile is from {}; this machine is {}",
                named(&self.cpu),
                named(&now.cpu)
            ));
        }
        if self.hypervisor != now.hypervisor {
            return Some("one of the two machines is virtual, the other is not".into());
        }
        if self.nodes.len() != now.nodes.len() {
            return Some(format!(
                "the profile has {} nodes, this machine has {}",
                self.nodes.len(),
                now.nodes.len()
            ));
        }
        for (then, now) in self.nodes.iter().zip(&now.nodes) {
            if then.node != now.node {
                return Some(format!(
                    "the profile has node {} where this machine has node {}",
                    then.node, now.node
                ));
            }
            if then.cpus != now.cpus {
                let (then, now_has) = (list(&then.cpus), list(&now.cpus));
                return Some(format!("node {} has CPUs {now_has}; the profile has {then}", now.node));
            }
            if then.slit != now.slit {
                return Some(format!("the firmware's distances of node {} have changed", now.node));
            }
        }
        let rest = [
            (self.cores == now.cores && self.threads == now.threads, "cores"),
            (self.line_bytes == now.line_bytes, "cache lines"),
            (self.caches == now.caches, "last-level caches"),
        ];
        let other = rest.iter().find(|(same, _)| !same);
        other.map(|(_, what)| format!("the machine's {what} have changed since the measurement"))
    }
}

fn named(cpu: &str) -> &str {
    if cpu.is_empty() { "an unknown CPU" } else { cpu }
}

fn list(cpus: &str) -> &str {
    if cpus.is_empty() { "none" } else { cpus }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let node = |node, cpus: &str, slit: [u32; 2]| NodeKey { node, cpus: cpus.into(), slit: slit.into() };
        Profile {
            schema: SCHEMA,
            boot_id: "one".into(),
            machine: MachineKey {
                cpu: "GenuineIntel 6/106/6".into(),
                hypervisor: Some(false),
                cores: 48,
                threads: 2,
                line_bytes: 64,
                nodes: vec![node(0, "0-23", [10, 21]), node(2, "24-47", [21, 10])],
                caches: vec![CacheKey { level: Some(3), bytes: Some(56 << 20), cpus: "0-23".into() }],
            },
            latency_ns: vec![vec![Some(80.0), Some(140.0)], vec![None, Some(100.0)]],
            latency_error: vec![vec![Some(0.8), Some(2.8)], vec![None, Some(1.0)]],
            ..Profile::default()
        }
    }

    #[test]
    fn cells_are_found_by_node() {
        let profile = profile();
        let (first, second) = (NodeId(0), NodeId(2));
        assert_eq!(profile.latency(first, second), Some(140.0));
        assert_eq!(profile.ratio(first, second), Some(1.75));
        assert_eq!(profile.latency(second, first), None);
        assert_eq!(profile.latency(NodeId(1), first), None);
        assert_eq!(profile.bandwidth(first, second), None);
        assert_eq!(profile.error_pct(), Some(2.0));
    }

    #[test]
    fn a_topology_gets_the_costs_of_its_nodes() {
        let mut topology = crate::model::demo::facts().topology;
        let (near, far) = (topology.nodes[0].id, topology.nodes[1].id);
        let mut profile = profile();
        profile.machine.nodes[1].node = far.0;
        profile.read_gbs = vec![vec![Some(60.0), None], vec![None, None]];
        profile.state = State::Good;
        profile.measure(&mut topology);
        assert_eq!(topology.measured_ratio(near, far), Some(1.75));
        let own = Cost {
            node: near,
            latency_ps: Some(80_000),
            read_bytes_per_s: Some(60_000_000_000),
            latency_error_ps: Some(800),
            read_error_bytes_per_s: None,
        };
        assert_eq!(topology.measured(near, near), Some(&own));
        assert_eq!(topology.measured_ratio(far, near), None, "a cell without a number");
        assert_eq!(topology.calibration, Some(Calibration::default()));
        profile.smt = Smt { additions: Some(1.0), memory: Some(1.94), ..Smt::default() };
        profile.measure(&mut topology);
        assert_eq!(topology.calibration.as_ref().unwrap().smt_work, Some((1000, 1940)));
        profile.state = State::Disturbed;
        profile.measure(&mut topology);
        assert_eq!(topology.measured(near, near), None);
        assert!(topology.calibration.as_ref().unwrap().unused.as_ref().unwrap().contains("disturbed"));
        assert_eq!(topology.calibration.as_ref().unwrap().smt_work, None);
        profile.state = State::Wandering;
        profile.measure(&mut topology);
        assert_eq!(topology.measured_ratio(near, far), Some(1.75), "nothing but ratios is used");
        assert_eq!(topology.measured(near, near).unwrap().read_bytes_per_s, None);
        assert!(topology.calibration.as_ref().unwrap().only_ratios);
        assert_eq!(topology.calibration.as_ref().unwrap().smt_work, None);
    }

    #[test]
    fn costs_have_the_day_and_the_state_of_their_own_run() {
        let mut topology = crate::model::demo::facts().topology;
        let mut profile = profile();
        profile.machine.nodes[1].node = topology.nodes[1].id.0;
        (profile.state, profile.time) = (State::Wandering, "2026-11-23T10:00:00Z".into());
        let run = |day: u32, state| Origin { time: format!("2026-11-{day}T10:00:00Z"), state };
        // Latencies have a newer run, and the run with wandering CPUs measured another part.
        profile.measured = [("latency".to_owned(), profile.time.clone())].into();
        profile.origins = [
            ("smt.memory".to_owned(), run(20, State::Wandering)),
            ("latency_ns.0.0".to_owned(), run(22, State::Good)),
        ]
        .into();
        assert_eq!(profile.when("latency_ns.0.2"), "2026-11-23T10:00:00Z");
        profile.measure(&mut topology);
        let calibration = topology.calibration.clone().unwrap();
        assert_eq!((calibration.day(), calibration.only_ratios), ("2026-11-22", false));
        profile.origins.insert("latency_ns.0.0".into(), run(22, State::Wandering));
        profile.measure(&mut topology);
        assert!(topology.calibration.unwrap().only_ratios);
    }

    #[test]
    fn a_profile_of_another_machine_says_what_differs() {
        let measured = profile();
        let why = |change: &dyn Fn(&mut MachineKey)| {
            let mut now = measured.machine.clone();
            change(&mut now);
            measured.inapplicable(&now, "two")
        };
        assert_eq!(why(&|_| ()), None, "another boot of real hardware is the same machine");
        let told = |change: &dyn Fn(&mut MachineKey)| why(change).unwrap();
        assert!(told(&|now| now.cpu = "x".into()).contains("this machine is x"));
        assert!(told(&|now| now.hypervisor = Some(true)).contains("virtual"));
        assert!(told(&|now| drop(now.nodes.pop())).contains("2 nodes, this machine has 1"));
        assert!(told(&|now| now.nodes[1].node = 1).contains("node 1"));
        assert_eq!(
            told(&|now| now.nodes[1].cpus = "24-51".into()),
            "node 2 has CPUs 24-51; the profile has 24-47"
        );
        assert!(told(&|now| now.nodes[0].slit[1] = 20).contains("distances of node"));
        assert!(told(&|now| now.cores = 3).contains("cores"));
        assert!(told(&|now| now.line_bytes = 128).contains("lines"));
        assert!(told(&|now| now.caches.clear()).contains("caches"));
    }

    #[test]
    fn a_virtual_machine_may_have_moved() {
        for hypervisor in [Some(true), None] {
            let mut measured = profile();
            measured.machine.hypervisor = hypervisor;
            assert_eq!(measured.inapplicable(&measured.machine, "one"), None);
            assert!(measured.inapplicable(&measured.machine, "two").unwrap().contains("another boot"));
        }
    }

    #[test]
    fn a_profile_survives_its_own_json() {
        let before = profile();
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), before);
        let older: Profile = serde_json::from_str(r#"{"schema": 1, "later": [1]}"#).unwrap();
        assert_eq!(older, Profile { schema: 1, ..Profile::default() });
    }
}
