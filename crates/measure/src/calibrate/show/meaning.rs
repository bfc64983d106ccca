//! Conclusions from a profile, in words: what distance costs at most.

use crate::calibrate::classes::{Class, Slit, slit};
use crate::model::profile::{Profile, State};
use crate::text::{hanging, words};

/// The conclusions; nothing where numbers may not be used.
pub(super) fn render(profile: &Profile, classes: &[Class], width: usize) -> String {
    if profile.state == State::Disturbed {
        return String::new();
    }
    let mut lines = Vec::new();
    if let Some(far) = classes.last().filter(|far| far.ratio > 1.03) {
        let saved = 100.0 * (1.0 - 1.0 / far.ratio);
        lines.push(format!(
            "a task limited by the farthest memory would take at most {saved:.0} % less time with local \
             memory"
        ));
    }
    if let (Some(cores), Some(pair)) = (cores_of_link(profile), slowest_pair(profile)) {
        lines.push(format!("{cores} cores of node {} saturate the link to node {}", pair.0, pair.1));
    }
    let node = |at: usize| profile.machine.nodes.get(at).map_or(0, |node| node.node);
    for found in slit(profile) {
        lines.push(match found {
            Slit::NoDifference { distances: (near, far), percent } => {
                format!("SLIT has distances {near} and {far} where measured latencies differ by {percent:.0} % only")
            }
            Slit::WrongOrder { nearer, farther } => format!(
                "SLIT calls memory of {} nearer to CPUs of {} than memory of {} to CPUs of {}, but it is farther",
                node(nearer.1),
                node(nearer.0),
                node(farther.1),
                node(farther.0)
            ),
        });
    }
    if let Some([near, far]) = profile.hidden_nodes.as_deref() {
        lines.push(format!(
            "pages of one node have two latencies ({near:.0} and {far:.0} % of them): the firmware may hide nodes"
        ));
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| hanging("  ", words(line), width)).collect();
    format!("what it means\n{lines}")
}

/// The pair of nodes with the least bandwidth between them, by id.
fn slowest_pair(profile: &Profile) -> Option<(u32, u32)> {
    let nodes = &profile.machine.nodes;
    let rows = profile.read_gbs.iter().enumerate();
    let cells = rows.flat_map(|(from, row)| {
        row.iter()
            .enumerate()
            .filter(move |(to, _)| *to != from)
            .filter_map(move |(to, gbs)| Some((from, to, (*gbs)?)))
    });
    let (from, to, _) = cells.min_by(|a, b| a.2.total_cmp(&b.2))?;
    Some((nodes.get(from)?.node, nodes.get(to)?.node))
}

/// Cores whose reads are as much as the slowest link carries.
fn cores_of_link(profile: &Profile) -> Option<u32> {
    let (from, to) = slowest_pair(profile)?;
    let link = profile.bandwidth(crate::model::units::NodeId(from), crate::model::units::NodeId(to))?;
    let local = profile.local.iter().find(|local| local.node == from)?;
    let cores = (link / local.one_core_gbs?).ceil();
    (cores >= 1.0 && cores < f64::from(profile.machine.cores)).then_some(cores as u32)
}
