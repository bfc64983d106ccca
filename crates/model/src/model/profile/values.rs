//! The numbers of a profile by their keys: `latency_ns.0.4`, `smt.memory`.

use std::collections::BTreeMap;

use super::{Loaded, Local, Matrix, Profile};
use crate::model::topology::parse_cpulist;

/// Numbers by key. The first is the number named by the key; its error and related numbers follow.
pub type Values = BTreeMap<String, Vec<Option<f64>>>;

/// Parts of a measurement by their words on the command line, with the beginnings of the keys of their numbers.
const PARTS: [(&str, &[&str]); 6] = [
    ("latency", &["latency_ns", "latency_asleep_ns"]),
    ("bandwidth", &["read_gbs", "local"]),
    ("cores", &["lines_ns"]),
    ("smt", &["smt"]),
    ("pages", &["walk_ns", "hidden_nodes"]),
    ("loaded", &["loaded"]),
];

/// The part that measures a number, by its key; the word of a part is a key of all its numbers. `None` for other keys.
pub fn part(key: &str) -> Option<&'static str> {
    let first = key.split('.').next().unwrap_or_default();
    let found = PARTS.iter().find(|(part, keys)| *part == first || keys.contains(&first));
    found.map(|(part, _)| *part)
}

/// The key of the number that a reason is about: that of a line's way names CPUs, and its number nodes.
pub fn number(profile: &Profile, key: &str) -> String {
    let Some(cpus) = key.strip_prefix("lines_ns.nodes.") else { return key.to_owned() };
    let node = |cpu: &str| {
        let cpu: u32 = cpu.parse().ok()?;
        let has = |cpus: &str| parse_cpulist(cpus).is_ok_and(|cpus| cpus.contains(&cpu));
        profile.machine.nodes.iter().find(|node| has(&node.cpus)).map(|node| node.node)
    };
    let nodes = cpus.split_once('.').and_then(|(first, second)| node(first).zip(node(second)));
    nodes.map_or_else(|| key.to_owned(), |(from, to)| format!("lines_ns.nodes.{from}.{to}"))
}

/// The fields of a [`Local`] that are numbers of their own.
fn of_local(local: &mut Local) -> [(&'static str, &mut Option<f64>); 5] {
    [
        ("one_core_gbs", &mut local.one_core_gbs),
        ("write_gbs", &mut local.write_gbs),
        ("write_nt_gbs", &mut local.write_nt_gbs),
        ("copy_gbs", &mut local.copy_gbs),
        ("triad_gbs", &mut local.triad_gbs),
    ]
}

/// A matrix, and its companion if any.
type Matrices<'a> = [(&'static str, &'a mut Matrix, Option<&'a mut Matrix>); 4];

/// Single numbers and matrices.
fn fields(profile: &mut Profile) -> (Matrices<'_>, [(&'static str, &mut Option<f64>); 9]) {
    let (lines, smt) = (&mut profile.lines_ns, &mut profile.smt);
    let matrices = [
        ("latency_ns", &mut profile.latency_ns, Some(&mut profile.latency_error)),
        ("latency_asleep_ns", &mut profile.latency_asleep_ns, None),
        ("read_gbs", &mut profile.read_gbs, Some(&mut profile.read_error)),
        ("lines_ns.nodes", &mut lines.nodes, None),
    ];
    let single = [
        ("lines_ns.core", &mut lines.core),
        ("lines_ns.llc", &mut lines.llc),
        ("lines_ns.node", &mut lines.node),
        ("lines_ns.two_lines", &mut lines.two_lines),
        ("smt.additions", &mut smt.additions),
        ("smt.waiting", &mut smt.waiting),
        ("smt.branches", &mut smt.branches),
        ("smt.memory", &mut smt.memory),
        ("walk_ns", &mut profile.walk_ns),
    ];
    (matrices, single)
}

/// The numbers that a profile has.
pub fn values(profile: &Profile) -> Values {
    let mut profile = profile.clone();
    let nodes: Vec<u32> = profile.machine.nodes.iter().map(|node| node.node).collect();
    let mut values = Values::new();
    for local in &mut profile.local {
        let node = local.node;
        if let Some(cores) = local.cores_to_fill {
            values.insert(format!("local.{node}.cores_to_fill"), vec![Some(f64::from(cores))]);
        }
        for (name, value) in of_local(local) {
            values.extend(value.map(|value| (format!("local.{node}.{name}"), vec![Some(value)])));
        }
    }
    for (first, second, ns) in &profile.lines_ns.pairs {
        values.insert(format!("lines_ns.pairs.{first}.{second}"), vec![Some(*ns)]);
    }
    for loaded in &profile.loaded {
        let points = loaded.points.iter().flat_map(|(gbs, ns)| [Some(*gbs), Some(*ns)]).collect();
        values.insert(format!("loaded.{}.{}", loaded.from, loaded.to), points);
    }
    if let Some(pages) = &profile.hidden_nodes {
        values.insert("hidden_nodes".into(), pages.iter().copied().map(Some).collect());
    }
    let (matrices, single) = fields(&mut profile);
    for (key, value) in single {
        values.extend(value.map(|value| (key.to_owned(), vec![Some(value)])));
    }
    for (name, matrix, beside) in matrices {
        let (matrix, beside): (&Matrix, Option<&Matrix>) = (matrix, beside.as_deref());
        let cell = |matrix: &Matrix, from: usize, to: usize| *matrix.get(from)?.get(to)?;
        for (row, from) in nodes.iter().enumerate() {
            for (column, to) in nodes.iter().enumerate() {
                let Some(value) = cell(matrix, row, column) else { continue };
                let beside = beside.map(|beside| cell(beside, row, column));
                let all = [Some(value)].into_iter().chain(beside).collect();
                values.insert(format!("{name}.{from}.{to}"), all);
            }
        }
    }
    values
}

/// The same profile with only these numbers. Unknown keys are left out.
pub fn with_values(mut profile: Profile, values: &Values) -> Profile {
    let nodes: Vec<u32> = profile.machine.nodes.iter().map(|node| node.node).collect();
    let get = |key: &str| values.get(key);
    let ids = |key: &str| {
        let (first, second) = key.split_once('.')?;
        Some((first.parse::<u32>().ok()?, second.parse::<u32>().ok()?))
    };
    let below = |begin: &'static str| {
        values.iter().filter_map(move |(key, value)| Some((key.strip_prefix(begin)?, value)))
    };
    let mut local: BTreeMap<u32, Local> = BTreeMap::new();
    for (key, value) in below("local.") {
        let Some((node, name)) = key.split_once('.') else { continue };
        let (Ok(node), Some(value)) = (node.parse(), value.first().copied().flatten()) else { continue };
        let of = local.entry(node).or_insert_with(|| Local { node, ..Local::default() });
        if name == "cores_to_fill" {
            of.cores_to_fill = Some(value as u32);
        }
        of_local(of).into_iter().filter(|(known, _)| *known == name).for_each(|(_, to)| *to = Some(value));
    }
    profile.local = local.into_values().collect();
    let mut pairs: Vec<(u32, u32, f64)> = below("lines_ns.pairs.")
        .filter_map(|(key, value)| ids(key).zip(value.first().copied().flatten()))
        .map(|((first, second), ns)| (first, second, ns))
        .collect();
    pairs.sort_by_key(|(first, second, _)| (*first, *second));
    profile.lines_ns.pairs = pairs;
    profile.loaded = below("loaded.")
        .filter_map(|(key, value)| {
            let (from, to) = ids(key)?;
            let points = value.chunks_exact(2).filter_map(|point| point[0].zip(point[1])).collect();
            Some(Loaded { from, to, points })
        })
        .collect();
    profile.loaded.sort_by_key(|loaded| (loaded.from, loaded.to));
    profile.hidden_nodes = get("hidden_nodes").map(|pages| pages.iter().copied().flatten().collect());
    let (matrices, single) = fields(&mut profile);
    for (key, to) in single {
        *to = get(key).and_then(|value| value.first().copied().flatten());
    }
    for (name, matrix, beside) in matrices {
        let fill = |matrix: &mut Matrix, at: usize| {
            let cell = |from: &u32, to: &u32| get(&format!("{name}.{from}.{to}"))?.get(at).copied().flatten();
            let cells: Matrix =
                nodes.iter().map(|from| nodes.iter().map(|to| cell(from, to)).collect()).collect();
            // A matrix that was not measured has no rows.
            if !matrix.is_empty() || cells.iter().flatten().any(Option::is_some) {
                *matrix = cells;
            }
        };
        fill(matrix, 0);
        beside.into_iter().for_each(|beside| fill(beside, 1));
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{Lines, MachineKey, NodeKey, Smt};

    /// A profile with every number.
    fn full() -> Profile {
        let node = |node, cpus: &str| NodeKey { node, cpus: cpus.into(), ..NodeKey::default() };
        let matrix = |first: f64| -> Matrix {
            vec![vec![Some(first), Some(first + 1.0)], vec![Some(first + 2.0), Some(first + 3.0)]]
        };
        let local = |node| Local {
            node,
            one_core_gbs: Some(1.0),
            cores_to_fill: Some(2),
            write_gbs: Some(3.0),
            write_nt_gbs: Some(4.0),
            copy_gbs: Some(5.0),
            triad_gbs: Some(6.0),
        };
        Profile {
            machine: MachineKey { nodes: vec![node(0, "0-1"), node(4, "2-3")], ..MachineKey::default() },
            latency_ns: matrix(10.0),
            latency_error: matrix(20.0),
            latency_asleep_ns: matrix(30.0),
            read_gbs: matrix(40.0),
            read_error: matrix(50.0),
            local: vec![local(0), local(4)],
            lines_ns: Lines {
                core: Some(1.0),
                llc: Some(2.0),
                node: Some(3.0),
                two_lines: Some(4.0),
                nodes: matrix(60.0),
                pairs: vec![(0, 2, 5.0), (0, 10, 6.0)],
            },
            smt: Smt { additions: Some(1.0), waiting: Some(2.0), branches: Some(1.5), memory: Some(1.9) },
            walk_ns: Some(20.0),
            loaded: vec![Loaded { from: 0, to: 4, points: vec![(1.0, 90.0), (50.0, 300.0)] }],
            hidden_nodes: Some(vec![80.0, 20.0]),
            ..Profile::default()
        }
    }

    #[test]
    fn every_number_has_a_key_and_a_part() {
        let full = full();
        let values = values(&full);
        let empty = Profile { machine: full.machine.clone(), ..Profile::default() };
        assert_eq!(with_values(empty, &values), full);
        let nothing = with_values(full.clone(), &Values::new());
        assert_eq!(super::values(&nothing), Values::new());
        assert!(values.keys().all(|key| part(key).is_some()), "{:?}", values.keys());
        assert_eq!(values["latency_ns.0.4"], [Some(11.0), Some(21.0)]);
        assert_eq!(values["loaded.0.4"].len(), 4);
    }

    #[test]
    fn a_reason_of_a_lines_way_is_about_two_nodes() {
        let full = full();
        let of = |key: &str| number(&full, key);
        assert_eq!(of("lines_ns.nodes.1.2"), "lines_ns.nodes.0.4");
        assert_eq!(of("lines_ns.nodes.1.9"), "lines_ns.nodes.1.9", "there is no CPU 9");
        assert_eq!(of("smt.memory"), "smt.memory");
        assert_eq!(["wandering", "latency", "local.0"].map(part), [None, Some("latency"), Some("bandwidth")]);
    }
}
