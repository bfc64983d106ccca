//! Two profiles, cell by cell.

use crate::model::profile::{Matrix, Profile};
use crate::text::{hanging, words};

/// Differences below these percents are what a measurement repeats within.
const LATENCY: f64 = 3.0;
const BANDWIDTH: f64 = 10.0;

/// The differences of `new` from `old` as text. If they are of different machines, the text warns of it.
pub fn compare(old: &Profile, new: &Profile, width: usize) -> String {
    let mut text = hanging("", words(&format!("measured {} and {}", old.time, new.time)), width);
    if let Some(difference) = old.machine.difference(&new.machine) {
        text += &hanging("another machine: ", words(&difference), width);
    }
    text += &matrix("latency, ns", (&old.latency_ns, &new.latency_ns), LATENCY, old);
    text += &matrix("reads, GB/s", (&old.read_gbs, &new.read_gbs), BANDWIDTH, old);
    let single = [
        ("line in a core, ns", old.lines_ns.core, new.lines_ns.core),
        ("line in a cache, ns", old.lines_ns.llc, new.lines_ns.llc),
        ("page walk, ns", old.walk_ns, new.walk_ns),
        ("both threads, additions", old.smt.additions, new.smt.additions),
        ("both threads, memory", old.smt.memory, new.smt.memory),
    ];
    for (name, then, now) in single {
        text += &line(&format!("  {name}"), then, now, BANDWIDTH);
    }
    text
}

fn matrix(name: &str, (old, new): (&Matrix, &Matrix), least: f64, profile: &Profile) -> String {
    let mut text = format!("{name}\n");
    let node = |at: usize| profile.machine.nodes.get(at).map_or(at as u32, |node| node.node);
    let cell = |matrix: &Matrix, from: usize, to: usize| {
        matrix.get(from).and_then(|row| row.get(to)).copied().flatten()
    };
    let (rows, columns) = (old.len().max(new.len()), old.iter().chain(new).map(Vec::len).max().unwrap_or(0));
    for from in 0..rows {
        for to in 0..columns {
            let name = format!("  CPUs of {}, memory of {}", node(from), node(to));
            text += &line(&name, cell(old, from, to), cell(new, from, to), least);
        }
    }
    text
}

/// A line with both numbers; nothing without any.
fn line(name: &str, old: Option<f64>, new: Option<f64>, least: f64) -> String {
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
    format!("{}\n", format!("{name:<32}{:>9}{:>9}  {change}", number(old), number(new)).trim_end())
}
