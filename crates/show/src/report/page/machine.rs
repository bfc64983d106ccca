//! The machine: sockets, nodes, last-level caches with a square a CPU, memory, devices.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::View;
use super::parts::opacity;
use crate::model::topology::Node;
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
            span.key.runs {} span { "a square is a CPU, the darker the busier; a block is a last-level cache" }
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
