//! A part that was measured, put into a profile of the same machine. Pure.

use crate::model::profile::{Matrix, Profile, State};

/// `new`, with the numbers of `old` where it has none. Both are of the same machine, in a run of the kernel in which they
/// hold. The whole is as good as the worse of the two; it is no part any more once `old` was whole.
pub fn merge(old: &Profile, new: Profile) -> Profile {
    let matrix = |old: &Matrix, new: Matrix| -> Matrix {
        let cell = |from: usize, to: usize| old.get(from).and_then(|row| row.get(to)).copied().flatten();
        let rows = new.into_iter().enumerate();
        rows.map(|(from, row)| {
            row.into_iter().enumerate().map(|(to, value)| value.or(cell(from, to))).collect()
        })
        .collect()
    };
    let has = |key: &str| {
        // The key of a cell: its row and its column are places, and the file has nodes.
        let mut words = key.rsplit('.');
        let mut place = || {
            let node: u32 = words.next()?.parse().ok()?;
            new.machine.nodes.iter().position(|known| known.node == node)
        };
        let (to, from) = (place(), place());
        let of = match key.split('.').next() {
            Some("latency_ns") => &old.latency_ns,
            Some("read_gbs") => &old.read_gbs,
            _ => return false,
        };
        from.zip(to).and_then(|(from, to)| *of.get(from)?.get(to)?).is_some()
    };
    let missing = new
        .missing
        .iter()
        .filter(|(key, _)| !has(key))
        .map(|(key, why)| (key.clone(), why.clone()))
        .collect();
    let state = match (old.state, new.state) {
        (_, State::Disturbed) | (State::Disturbed, _) => State::Disturbed,
        (_, State::Wandering) | (State::Wandering, _) => State::Wandering,
        (State::Good, State::Partial) => State::Good,
        (_, state) => state,
    };
    let mut lines_ns = old.lines_ns.clone();
    let newer = new.lines_ns.clone();
    lines_ns.core = newer.core.or(lines_ns.core);
    lines_ns.llc = newer.llc.or(lines_ns.llc);
    lines_ns.node = newer.node.or(lines_ns.node);
    lines_ns.two_lines = newer.two_lines.or(lines_ns.two_lines);
    if !newer.nodes.is_empty() {
        lines_ns.nodes = newer.nodes;
    }
    if !newer.pairs.is_empty() {
        lines_ns.pairs = newer.pairs;
    }
    let mut smt = old.smt.clone();
    smt.additions = new.smt.additions.or(smt.additions);
    smt.waiting = new.smt.waiting.or(smt.waiting);
    smt.branches = new.smt.branches.or(smt.branches);
    smt.memory = new.smt.memory.or(smt.memory);
    let mut local = new.local.clone();
    local.extend(old.local.iter().filter(|of| !new.local.iter().any(|newer| newer.node == of.node)).cloned());
    local.sort_by_key(|local| local.node);
    // Numbers that stay were measured then.
    let mut measured = old.measured.clone();
    measured.extend(new.measured.clone());
    Profile {
        state,
        measured,
        latency_ns: matrix(&old.latency_ns, new.latency_ns),
        latency_error: matrix(&old.latency_error, new.latency_error),
        latency_asleep_ns: matrix(&old.latency_asleep_ns, new.latency_asleep_ns),
        read_gbs: matrix(&old.read_gbs, new.read_gbs),
        read_error: matrix(&old.read_error, new.read_error),
        local,
        lines_ns,
        smt,
        walk_ns: new.walk_ns.or(old.walk_ns),
        loaded: if new.loaded.is_empty() { old.loaded.clone() } else { new.loaded },
        hidden_nodes: new.hidden_nodes.or_else(|| old.hidden_nodes.clone()),
        wandering: new.wandering.or_else(|| old.wandering.clone()),
        missing,
        ..new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{Local, MachineKey, NodeKey, Smt};

    fn profile(state: State, latency: [[Option<f64>; 2]; 2]) -> Profile {
        let node = |node| NodeKey { node, ..NodeKey::default() };
        Profile {
            state,
            machine: MachineKey { nodes: vec![node(0), node(4)], ..MachineKey::default() },
            latency_ns: latency.map(Vec::from).into(),
            ..Profile::default()
        }
    }

    #[test]
    fn new_cells_take_the_place_of_old_ones_and_others_stay() {
        let times = |stages: &[(&str, &str)]| {
            stages.iter().map(|(stage, time)| (stage.to_string(), time.to_string())).collect()
        };
        let old = Profile {
            measured: times(&[("latency", "then"), ("smt", "then")]),
            time: "then".into(),
            smt: Smt { additions: Some(1.0), memory: Some(1.9), ..Smt::default() },
            local: vec![Local { node: 0, ..Local::default() }],
            walk_ns: Some(20.0),
            ..profile(State::Good, [[Some(80.0), Some(140.0)], [Some(141.0), None]])
        };
        let why = |keys: [&str; 2]| keys.map(|key| (key.to_string(), "why".to_string())).into();
        let new = Profile {
            measured: times(&[("smt", "now")]),
            time: "now".into(),
            smt: Smt { memory: Some(1.8), ..Smt::default() },
            local: vec![Local { node: 4, ..Local::default() }],
            missing: why(["latency_ns.0.4", "latency_ns.4.4"]),
            ..profile(State::Partial, [[Some(85.0), None], [None, None]])
        };
        let merged = merge(&old, new);
        assert_eq!(merged.latency_ns, [[Some(85.0), Some(140.0)], [Some(141.0), None]]);
        assert_eq!((merged.smt.additions, merged.smt.memory), (Some(1.0), Some(1.8)));
        assert_eq!(merged.local.iter().map(|local| local.node).collect::<Vec<_>>(), [0, 4]);
        assert_eq!((merged.walk_ns, merged.state), (Some(20.0), State::Good));
        assert_eq!(merged.measured, times(&[("latency", "then"), ("smt", "now")]), "each part has its time");
        assert_eq!(merged.missing.keys().collect::<Vec<_>>(), ["latency_ns.4.4"]);
    }

    #[test]
    fn a_whole_is_as_good_as_its_worst_part() {
        let cells = [[Some(1.0); 2]; 2];
        let state = |old, new| merge(&profile(old, cells), profile(new, cells)).state;
        assert_eq!(state(State::Disturbed, State::Good), State::Disturbed);
        assert_eq!(state(State::Good, State::Disturbed), State::Disturbed);
        assert_eq!(state(State::Partial, State::Wandering), State::Wandering);
        assert_eq!(state(State::Partial, State::Partial), State::Partial);
        assert_eq!(state(State::Partial, State::Good), State::Good);
    }
}
