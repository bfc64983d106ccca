//! Matrices of nodes: numbers where they fit, ratios where machines are large; two profiles, cell by cell; and conclusions in
//! words: what distance costs at most.

use crate::calibrate::classes::{Class, Slit, classes, slit};
use crate::calibrate::stats::SURE;
use crate::model::profile::{Matrix, Profile, State};
use crate::text::shade::Shade;
use crate::text::{hanging, words};

/// Nodes up to which cells are ns and GB/s.
const ROOMY: usize = 4;

fn at(matrix: &Matrix, from: usize, to: usize) -> Option<f64> {
    matrix.get(from).and_then(|row| row.get(to)).copied().flatten()
}

/// The colour of a cell, by its cost relative to the nearest, as in the live view.
fn shade(times: f64, at_home: bool) -> Option<Shade> {
    match times {
        _ if at_home => Some(Shade::Local),
        2.0.. => Some(Shade::Far),
        1.3.. => Some(Shade::Remote),
        _ => None,
    }
}

/// A cell in its colour.
fn painted(cell: String, shade: Option<Shade>, colour: bool) -> String {
    match shade.filter(|_| colour) {
        Some(shade) => shade.paint(&cell),
        None => cell,
    }
}

/// The latencies, with the SLIT beside them if it fits.
pub(super) fn latency(profile: &Profile, classes: &[Class], width: usize, colour: bool) -> String {
    if !profile.latency_ns.iter().flatten().any(Option::is_some) {
        return String::new();
    }
    let mut text = match profile.machine.nodes.len() {
        ..=ROOMY => roomy(profile, colour),
        _ => ratios(profile, width, colour),
    };
    if classes.len() > 1 {
        let each = classes
            .iter()
            .map(|class| format!("{:.0} ns {:.1}x ({})", class.ns, class.ratio, class.cells.len()));
        let line = format!("{} distances: {}", classes.len(), each.collect::<Vec<_>>().join(" . "));
        text += &hanging("  ", words(&line), width);
    }
    text
}

/// Latencies as `topology` shows them under the SLIT.
pub fn latency_matrix(profile: &Profile, width: usize) -> String {
    latency(profile, &classes(profile), width, false)
}

fn is_sure(profile: &Profile, from: usize, to: usize) -> bool {
    let value = at(&profile.latency_ns, from, to);
    let error = at(&profile.latency_error, from, to);
    value.zip(error).is_none_or(|(value, error)| error <= SURE * value)
}

fn roomy(profile: &Profile, colour: bool) -> String {
    let nodes = &profile.machine.nodes;
    let mut text = format!("{:<16}", "read latency, ns");
    nodes.iter().for_each(|node| text += &format!("  {:>14}", format!("memory of {}", node.node)));
    text += "   SLIT\n";
    for (from, node) in nodes.iter().enumerate() {
        if nodes[from].cpus.is_empty() {
            continue;
        }
        text += &format!("{:<16}", format!("  CPUs of {}", node.node));
        for to in 0..nodes.len() {
            let ratio = row_ratio(profile, from, to);
            let shown = match at(&profile.latency_ns, from, to) {
                None => "-".to_string(),
                Some(ns) => {
                    let mark = if is_sure(profile, from, to) { "" } else { "~" };
                    let times = ratio.filter(|times| *times > 1.0);
                    let times = times.map_or(String::new(), |times| format!(" {times:.2}x"));
                    format!("{ns:.1}{mark}{times}")
                }
            };
            text += "  ";
            let shade = ratio.and_then(|times| shade(times, from == to));
            text += &painted(format!("{shown:>14}"), shade, colour);
        }
        let slit: Vec<String> = node.slit.iter().map(|distance| format!("{distance:>3}")).collect();
        text += &format!("  {}\n", slit.join(" "));
    }
    text
}

/// A cell in parts of the least of its row.
fn row_ratio(profile: &Profile, from: usize, to: usize) -> Option<f64> {
    let row = profile.latency_ns.get(from)?;
    let least = row.iter().flatten().copied().min_by(f64::total_cmp)?;
    Some(at(&profile.latency_ns, from, to)? / least)
}

/// Ratios to local, times ten: three characters a column, because 256 numbers are not read.
fn ratios(profile: &Profile, width: usize, colour: bool) -> String {
    let nodes = &profile.machine.nodes;
    let mut text =
        hanging("", words("read latency, in tenths of local latency; row = CPUs, column = memory"), width);
    // Four columns for the number of the row.
    let per_block = (width.saturating_sub(6) / 4).max(1);
    let all: Vec<usize> = (0..nodes.len()).collect();
    for block in all.chunks(per_block) {
        text += &format!("{:>5}", "");
        block.iter().for_each(|to| text += &format!("{:>4}", nodes[*to].node));
        text.push('\n');
        for (from, node) in nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty()) {
            text += &format!("{:>5}", node.node);
            for to in block {
                let ratio = row_ratio(profile, from, *to);
                let shown = ratio.map_or("-".to_string(), |times| {
                    let mark = if is_sure(profile, from, *to) { "" } else { "~" };
                    format!("{:.0}{mark}", 10.0 * times)
                });
                let shade = ratio.and_then(|times| shade(times, from == *to));
                text += &painted(format!("{shown:>4}"), shade, colour);
            }
            text.push('\n');
        }
    }
    text
}

/// Reads between nodes, and remote ones in percent of local.
pub(super) fn bandwidth(profile: &Profile, classes: &[Class], colour: bool) -> String {
    let nodes = &profile.machine.nodes;
    if !profile.read_gbs.iter().flatten().any(Option::is_some) || nodes.len() > ROOMY {
        return large_bandwidth(profile, classes);
    }
    let mut text = format!("{:<16}", "reads, GB/s");
    nodes.iter().for_each(|node| text += &format!("  {:>14}", format!("memory of {}", node.node)));
    text.push('\n');
    for (from, node) in nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty()) {
        text += &format!("{:<16}", format!("  CPUs of {}", node.node));
        let own = at(&profile.read_gbs, from, from);
        for to in 0..nodes.len() {
            let gbs = at(&profile.read_gbs, from, to);
            let shown = match gbs {
                None => "-".to_string(),
                Some(gbs) => {
                    let error = at(&profile.read_error, from, to).unwrap_or(0.0);
                    let mark = if error <= SURE * gbs { "" } else { "~" };
                    let share = own.filter(|_| to != from).map(|own| format!(" {:.0}%", 100.0 * gbs / own));
                    format!("{gbs:.1}{mark}{}", share.unwrap_or_default())
                }
            };
            text += "  ";
            let times = own.zip(gbs).map(|(own, gbs)| own / gbs);
            let shade = times.and_then(|times| shade(times, from == to));
            text += &painted(format!("{shown:>14}"), shade, colour);
        }
        text.push('\n');
    }
    text
}

/// Reads of each class of distance on a machine with many nodes.
fn large_bandwidth(profile: &Profile, classes: &[Class]) -> String {
    let of = |class: &Class| {
        let gbs: Vec<f64> =
            class.cells.iter().filter_map(|(from, to)| at(&profile.read_gbs, *from, *to)).collect();
        crate::calibrate::stats::median(&gbs)
            .map(|gbs| format!("  distance {:.1}x: {gbs:.1} GB/s\n", class.ratio))
    };
    let rows: String = classes.iter().filter_map(of).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("bandwidth of reads by all cores of a node, by distance\n{rows}")
    }
}

/// Differences below these percents are what a measurement repeats within.
const LATENCY: f64 = 3.0;

const BANDWIDTH: f64 = 10.0;

/// The differences of `new` from `old` as text. If they are of different machines, the text warns of it.
pub fn compare(old: &Profile, new: &Profile, width: usize) -> String {
    let mut text = hanging("", words(&format!("measured {} and {}", old.time, new.time)), width);
    if let Some(difference) = old.machine.difference(&new.machine) {
        text += &hanging("another machine: ", words(&difference), width);
    }
    text += &compared_matrix("latency, ns", (&old.latency_ns, &new.latency_ns), LATENCY, old);
    text += &compared_matrix("reads, GB/s", (&old.read_gbs, &new.read_gbs), BANDWIDTH, old);
    let single = [
        ("cache line transfer between threads of a core, ns", old.lines_ns.core, new.lines_ns.core),
        ("cache line transfer between cores that share a cache, ns", old.lines_ns.llc, new.lines_ns.llc),
        ("page walk, ns", old.walk_ns, new.walk_ns),
        ("SMT throughput, additions", old.smt.additions, new.smt.additions),
        ("SMT throughput, memory", old.smt.memory, new.smt.memory),
    ];
    for (name, then, now) in single {
        text += &compared_line(&format!("  {name}"), then, now, BANDWIDTH);
    }
    text
}

fn compared_matrix(name: &str, (old, new): (&Matrix, &Matrix), least: f64, profile: &Profile) -> String {
    let mut text = format!("{name}\n");
    let node = |at: usize| profile.machine.nodes.get(at).map_or(at as u32, |node| node.node);
    let cell = |matrix: &Matrix, from: usize, to: usize| {
        matrix.get(from).and_then(|row| row.get(to)).copied().flatten()
    };
    let (rows, columns) = (old.len().max(new.len()), old.iter().chain(new).map(Vec::len).max().unwrap_or(0));
    for from in 0..rows {
        for to in 0..columns {
            let name = format!("  CPUs of node {}, memory of node {}", node(from), node(to));
            text += &compared_line(&name, cell(old, from, to), cell(new, from, to), least);
        }
    }
    text
}

/// A line with both numbers; nothing without any.
fn compared_line(name: &str, old: Option<f64>, new: Option<f64>, least: f64) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.1}"));
    let change = match (old, new) {
        (None, None) => return String::new(),
        (Some(old), Some(new)) if old > 0.0 => {
            let percent = 100.0 * (new / old - 1.0);
            let word = if percent.abs() < least { "  (the same)" } else { "" };
            format!("{percent:+.1} %{word}")
        }
        _ => String::new(),
    };
    format!("{}\n", format!("{name:<36}{:>9}{:>9}  {change}", number(old), number(new)).trim_end())
}

/// The conclusions; nothing where numbers may not be used.
pub(super) fn meaning(profile: &Profile, classes: &[Class], width: usize) -> String {
    if profile.state == State::Disturbed {
        return String::new();
    }
    let mut lines = Vec::new();
    if let Some(far) = classes.last().filter(|far| far.ratio > 1.03) {
        let saved = 100.0 * (1.0 - 1.0 / far.ratio);
        lines.push(format!(
            "a task limited by the farthest memory takes at most {saved:.0} % less time with local memory"
        ));
    }
    if let (Some(cores), Some(pair)) = (cores_of_link(profile), slowest_pair(profile)) {
        lines.push(format!("{cores} cores of node {} saturate the link to node {}", pair.0, pair.1));
    }
    let node = |at: usize| profile.machine.nodes.get(at).map_or(0, |node| node.node);
    for found in slit(profile) {
        lines.push(match found {
            Slit::NoDifference { distances: (near, far), percent } => {
                format!(
                    "SLIT distances are {near} and {far}, but measured latencies differ by only \
                         {percent:.0} %"
                )
            }
            Slit::WrongOrder { nearer, farther } => format!(
                "SLIT: memory of {} is nearer to CPUs of {} than memory of {} to CPUs of {}. Measured: the \
                 first pair has the higher latency",
                node(nearer.1),
                node(nearer.0),
                node(farther.1),
                node(farther.0)
            ),
        });
    }
    if let Some([near, far]) = profile.hidden_nodes.as_deref() {
        lines.push(format!(
            "pages of one node have two latencies ({near:.0} % and {far:.0} % of the pages): the firmware \
             may be hiding nodes"
        ));
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| hanging("  ", words(line), width)).collect();
    format!("what the numbers mean\n{lines}")
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
