//! The machine: sockets, nodes, last-level caches with a square a CPU, memory, devices; and what goes from node to node,
//! beside the distances of the firmware.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{View, opacity};
use crate::model::topology::Node;
use crate::model::units::NodeId;
use crate::report::matrix::Matrix;
use crate::report::{Report, words};
use crate::text::clean_str;
use crate::text::prose::bytes;

/// Nodes that are drawn at most.
const NODES: usize = 64;

/// Devices of a node that are named.
const DEVICES: usize = 6;

pub(super) fn content(view: &View<'_>) -> Markup {
    let report = view.report;
    let topology = &report.about.host.topology;
    let mut sockets: BTreeMap<Option<i32>, Vec<&Node>> = BTreeMap::new();
    for node in topology.nodes.iter().take(NODES) {
        let socket = node.cpus.iter().find_map(|id| topology.cpu(*id)?.socket);
        sockets.entry(socket).or_default().push(node);
    }
    let left_out = topology.nodes.len().saturating_sub(NODES);
    html! {
        div.sockets {
            @for (socket, nodes) in &sockets {
                div.socket {
                    p.muted {
                        @match socket {
                            Some(socket) => { "Socket " (socket) },
                            None => "Memory without CPUs, or in no known socket",
                        }
                    }
                    div.nodes { @for node in nodes { (one(report, node)) } }
                }
            }
        }
        @if left_out > 0 { p.muted { (words::thousands(left_out)) " more nodes are not drawn." } }
        p.muted.keys {
            span.key.runs {} span { "a square is a CPU (darker is busier); a block is a last-level cache" }
            span.key.memory {} span { "memory in use at the end" }
        }
    }
}

fn one(report: &Report, node: &Node) -> Markup {
    let (total, free) =
        report.memory.get(&node.id.0).copied().unwrap_or((node.mem_total_bytes, node.mem_free_bytes));
    let used = total.saturating_sub(free);
    let share = if total > 0 { used as f64 / total as f64 } else { 0.0 };
    let busy = busy(report, node);
    html! {
        div.node {
            p.head {
                b { "node " (node.id) }
                @if let Some(busy) = busy { span { (words::value(busy * 100.0, crate::metric::Unit::Percent)) } }
            }
            @if !node.cpus.is_empty() { (squares(report, node)) }
            @if total > 0 {
                svg.mem viewBox="0 0 100 8" preserveAspectRatio="none" width="100%" height="8" role="img"
                    aria-label=(format!("{:.0} % of its memory in use", share * 100.0)) {
                    rect.back width="100" height="8" fill="#d7dce1" {}
                    rect.memory width=(format!("{:.1}", share * 100.0)) height="8" fill="#be5c0a" {}
                }
                p.muted { (bytes(used as f64)) " of " (bytes(total as f64)) " in use" }
            }
            @if !node.devices.is_empty() { p.muted { (devices(node)) } }
        }
    }
}

fn devices(node: &Node) -> String {
    let mut names: Vec<String> =
        node.devices.iter().take(DEVICES).map(|device| clean_str(&device.name)).collect();
    if node.devices.len() > DEVICES {
        names.push(format!("and {} more", node.devices.len() - DEVICES));
    }
    names.join(", ")
}

/// The share of the time that CPUs of a node were busy, 0 to 1.
fn busy(report: &Report, node: &Node) -> Option<f64> {
    let sums = node.cpus.iter().filter_map(|id| report.cpus.get(&id.0));
    let (busy, all) = sums.fold((0.0, 0.0), |sum, cpu| (sum.0 + cpu.0, sum.1 + cpu.1));
    (all > 0.0).then(|| busy / all)
}

/// A square for each CPU, caches side by side.
fn squares(report: &Report, node: &Node) -> Markup {
    let topology = &report.about.host.topology;
    let mut caches: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for id in &node.cpus {
        caches.entry(topology.cpu(*id).map_or(0, |cpu| cpu.llc)).or_default().push(id.0);
    }
    html! {
        div.caches {
            @for cpus in caches.values() {
                @let columns = if cpus.len() > 64 { 16 } else if cpus.len() > 8 { 8 } else { 4.min(cpus.len()) };
                @let (width, height) = (columns * 12, cpus.len().div_ceil(columns) * 12);
                svg.cpus viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) role="img"
                    aria-label=(format!("{} CPUs that share a cache", cpus.len())) {
                    @for (at, id) in cpus.iter().enumerate() {
                        @let share = report.cpus.get(id).filter(|sums| sums.1 > 0.0).map_or(0.0, |sums| sums.0 / sums.1);
                        rect.runs x=(at % columns * 12) y=(at / columns * 12) width="11" height="11" fill="#1664b0"
                            fill-opacity=(opacity(share)) { title { (format!("CPU {id}: {:.0} %", share * 100.0)) } }
                    }
                }
            }
        }
    }
}

/// Nodes up to which each pair has a cell.
const CELLS: usize = 16;

/// Pairs that are listed where not all have one.
const PAIRS: usize = 20;

pub(super) fn between_nodes(view: &View<'_>) -> Markup {
    let report = view.report;
    let matrices = &report.matrices;
    let all = matrices.accesses.all();
    html! {
        @if all > 0.0 {
            p.muted {
                "Accesses in % of the machine: a " b { "row" } " is the node of the CPUs, a " b { "column" }
                " the node of the memory. " b id="between" { (percent(matrices.accesses.between(), all)) " %" }
                " go to another node (" (words::source_of_pairs(matrices.sampled_pct())) ")."
            }
        } @else {
            p.muted { "Memory was not located in this period, so accesses by pair of nodes are unknown." }
        }
        div.matrices {
            @if all > 0.0 { figure { figcaption { "Accesses, %" } (matrix(report, &matrices.accesses, ("CPUs", "mem"))) } }
            @if let Some(slit) = slit(report) {
                figure { figcaption { "Distance according to the firmware; 10 is local" } (slit) }
            }
            @if let Some((caption, measured)) = measured(report) {
                figure { figcaption { (caption) } (measured) }
            }
            @if matrices.tasks.all() > 0.0 {
                figure { figcaption { "Tasks moved, % of " (words::thousands(matrices.tasks.all() as usize)) } (matrix(report, &matrices.tasks, ("from", "to"))) }
            }
            @if matrices.pages.all() > 0.0 {
                figure { figcaption { "Pages moved, % of " (words::thousands(matrices.pages.all() as usize)) } (matrix(report, &matrices.pages, ("from", "to"))) }
            }
        }
    }
}

/// A share in per cent with one decimal; `0` and `<0.1` for little.
fn percent(part: f64, all: f64) -> String {
    match part * 100.0 / all {
        0.0 => "0".into(),
        pct if pct < 0.05 => "<0.1".into(),
        pct => format!("{pct:.1}"),
    }
}

/// A cell for each pair. `words`: those in front of the nodes of rows and of columns.
fn matrix(report: &Report, matrix: &Matrix, words: (&str, &str)) -> Markup {
    let is_accesses = words.0 == "CPUs";
    let nodes = &report.matrices.nodes;
    if nodes.len() > CELLS {
        return pairs(matrix, nodes);
    }
    let all = matrix.all();
    let most_own = (0..nodes.len()).map(|at| matrix.sum(at, at)).fold(0.0, f64::max);
    let most = matrix.most_between();
    let heat = |from: usize, to: usize| {
        let most = if from == to { most_own } else { most.max(all / 50.0) };
        if most > 0.0 { (matrix.sum(from, to) / most).min(1.0) } else { 0.0 }
    };
    let id = if is_accesses { "accesses" } else { "" };
    html! {
        div.scroll tabindex="0" role="group" aria-label="matrix of nodes" {
            table.matrix data-matrix=(id) {
                thead {
                    tr { td {} @for node in nodes { th scope="col" { (words.1) " " (node) } } }
                }
                tbody {
                    @for (from, node) in nodes.iter().enumerate() {
                        tr {
                            th scope="row" { (words.0) " " (node) }
                            @for to in 0..nodes.len() {
                                td.n.(if from == to { "own" } else { "far" }) style=(format!("--h:{:.2}", heat(from, to))) {
                                    @if from == to && !is_accesses { "–" } @else { (percent(matrix.sum(from, to), all)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The pairs with the most, where a cell for each would be too small to read.
fn pairs(matrix: &Matrix, nodes: &[u32]) -> Markup {
    let mut pairs: Vec<(u32, u32, f64)> = Vec::new();
    for (from, one) in nodes.iter().enumerate() {
        for (to, other) in nodes.iter().enumerate().filter(|(to, _)| *to != from) {
            pairs.push((*one, *other, matrix.sum(from, to)));
        }
    }
    pairs.retain(|(.., amount)| *amount > 0.0);
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    let left_out = pairs.len().saturating_sub(PAIRS);
    let all = matrix.all();
    html! {
        table.pairs {
            thead { tr { th scope="col" { "from node" } th scope="col" { "to node" } th.n scope="col" { "%" } } }
            tbody {
                @for (from, to, amount) in pairs.iter().take(PAIRS) {
                    tr { td { (from) } td { (to) } td.n { (percent(*amount, all)) } }
                }
            }
        }
        @if left_out > 0 { p.muted { (words::thousands(left_out)) " more pairs." } }
    }
}

/// Distances, where cells can be read; `None` where they say nothing.
fn slit(report: &Report) -> Option<Markup> {
    let topology = &report.about.host.topology;
    let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    if nodes.len() > CELLS || topology.nodes.iter().all(|node| node.distances.is_empty()) {
        return None;
    }
    let heat = |distance: u32| f64::from(distance.saturating_sub(10)).min(40.0) / 40.0;
    let cell = |from, to| topology.distance(from, to).map(|distance| (distance.to_string(), heat(distance)));
    Some(of_pairs("distances between nodes", &nodes, cell))
}

/// Latencies measured by `calibrate`, or their ratios if nothing else may be used, with a description. `None`
/// if cells cannot be read, or without a measurement.
fn measured(report: &Report) -> Option<(String, Markup)> {
    let topology = &report.about.host.topology;
    let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    let times = |from: NodeId, to: NodeId| topology.measured_ratio(from, to);
    let any = nodes.iter().any(|from| nodes.iter().any(|to| times(*from, *to).is_some()));
    if nodes.len() > CELLS || !any {
        return None;
    }
    let calibration = topology.calibration.as_ref();
    let only_ratios = calibration.is_some_and(|calibration| calibration.only_ratios);
    let day =
        calibration.map_or(String::new(), |calibration| format!(" on {}", clean_str(calibration.day())));
    let cell = |from, to| {
        let times = times(from, to)?;
        let ns = topology.measured(from, to)?.latency_ps? as f64 / 1e3;
        let text = if only_ratios { format!("{times:.2}") } else { format!("{ns:.0}") };
        Some((text, ((times - 1.0) / 3.0).clamp(0.0, 1.0)))
    };
    let unit = if only_ratios { "relative to local memory" } else { "in ns" };
    let caption = format!("Latency of memory, {unit}, measured by numatop-ng calibrate{day}");
    Some((caption, of_pairs("measured latencies", &nodes, cell)))
}

/// A cell for each pair of nodes: its text, and its heat from 0 to 1.
fn of_pairs(label: &str, nodes: &[NodeId], cell: impl Fn(NodeId, NodeId) -> Option<(String, f64)>) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label=(label) {
            table.matrix.slit {
                thead { tr { td {} @for node in nodes { th scope="col" { (node) } } } }
                tbody {
                    @for from in nodes {
                        tr {
                            th scope="row" { (from) }
                            @for to in nodes {
                                @match cell(*from, *to) {
                                    Some((text, heat)) => td.n.(if from == to { "own" } else { "apart" }) style=(format!("--h:{heat:.2}")) { (text) },
                                    None => td.n { "?" },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
