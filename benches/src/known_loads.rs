//! Costs of the machine as `calibrate` measures them: ten runs beside each other, and beside other tools in turns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Plan;
use crate::numbers::median;
use crate::process::on_path;
use crate::report::{Cell, Report, Table};

/// Percent by which a latency may differ from run to run (half of the range), and from a peer.
const REPEATS_WITHIN: f64 = 3.0;
const LIKE_PEERS_WITHIN: f64 = 5.0;

/// A number of a profile, in ns, GB/s or times.
struct Figure {
    name: &'static str,
    /// Places in the JSON; the first that has a number counts.
    places: &'static [&'static str],
}

const LATENCY: Figure =
    Figure { name: "latency of memory of the own node, ns", places: &["/latency_ns/0/0"] };
const READS: Figure = Figure { name: "reads by all cores of a node, GB/s", places: &["/read_gbs/0/0"] };
const ONE_CORE: Figure = Figure { name: "reads by one core, GB/s", places: &["/local/0/one_core_gbs"] };
const COPY: Figure = Figure { name: "copies by all cores, GB/s", places: &["/local/0/copy_gbs"] };
const LINE: Figure = Figure {
    name: "a line between the nearest two CPUs, ns",
    places: &["/lines_ns/core", "/lines_ns/llc", "/lines_ns/node"],
};

const FIGURES: [Figure; 14] = [
    LATENCY,
    Figure { name: "latency of memory of the next node, ns", places: &["/latency_ns/0/1"] },
    READS,
    Figure { name: "reads from the next node, GB/s", places: &["/read_gbs/0/1"] },
    ONE_CORE,
    COPY,
    Figure { name: "triads, GB/s", places: &["/local/0/triad_gbs"] },
    Figure { name: "writes, GB/s", places: &["/local/0/write_gbs"] },
    Figure { name: "writes past the caches, GB/s", places: &["/local/0/write_nt_gbs"] },
    LINE,
    Figure { name: "SMT throughput, additions, times one", places: &["/smt/additions"] },
    Figure { name: "both threads of a core, branches, times one", places: &["/smt/branches"] },
    Figure { name: "SMT throughput, memory, times one", places: &["/smt/memory"] },
    Figure { name: "a page walk, ns", places: &["/walk_ns"] },
];

impl Figure {
    fn of(&self, profile: &Value) -> Option<f64> {
        self.places.iter().find_map(|place| profile.pointer(place)?.as_f64())
    }
}

/// A tool that measures one of these.
struct Peer {
    name: &'static str,
    program: &'static str,
    words: fn(cpus: usize) -> Vec<String>,
    /// Its number, from its output, in the unit of the figure.
    value: fn(&str) -> Option<f64>,
    figure: Figure,
    /// Whether it does the same work: then the two are compared.
    same_work: bool,
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

const PEERS: [Peer; 6] = [
    Peer {
        name: "multichase -H -m 256m, best of ten samples",
        program: "multichase",
        words: |_| words("-H -m 256m -n 10"),
        value: first_number,
        figure: LATENCY,
        same_work: true,
    },
    Peer {
        name: "multichase -H -a, average",
        program: "multichase",
        words: |_| words("-H -a -m 256m -n 10"),
        value: first_number,
        figure: LATENCY,
        same_work: true,
    },
    Peer {
        name: "multiload -H -l stream-sum, a thread for each CPU",
        program: "multiload",
        words: |cpus| words(&format!("-H -l stream-sum -t {cpus} -n 6 -m 256m")),
        value: multiload,
        figure: READS,
        same_work: true,
    },
    Peer {
        name: "sysbench memory, reads of 64 MiB blocks, a thread for each CPU",
        program: "sysbench",
        words: |cpus| {
            words(&format!(
                "memory --memory-block-size=64M --memory-total-size=10000G --memory-oper=read --threads={cpus} --time=3 run"
            ))
        },
        value: sysbench,
        figure: READS,
        same_work: false,
    },
    Peer {
        name: "mbw -t0, memcpy by one thread, bytes read and written",
        program: "mbw",
        words: |_| words("-q -n 10 -t0 512"),
        value: mbw,
        figure: COPY,
        same_work: false,
    },
    Peer {
        name: "core-to-core-latency, CPUs 0 and 1",
        program: "core-to-core-latency",
        words: |_| words("1000 300 --csv --cores 0,1"),
        value: first_number,
        figure: LINE,
        same_work: true,
    },
];

/// The first number above 0.
fn first_number(text: &str) -> Option<f64> {
    let numbers = text.split(|c: char| c.is_whitespace() || c == ',').filter_map(|word| word.parse().ok());
    numbers.into_iter().find(|number: &f64| number.is_finite() && *number > 0.0)
}

/// The column `LdAvgMibs` of the last line, in GB/s.
fn multiload(text: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.contains(','));
    let at = lines.next()?.split(',').position(|title| title.trim() == "LdAvgMibs")?;
    let mib: f64 = lines.next_back()?.split(',').nth(at)?.trim().parse().ok()?;
    Some(mib * 1_048_576.0 / 1e9)
}

/// `15424.00 MiB transferred (15308.26 MiB/sec)`, in GB/s.
fn sysbench(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("MiB transferred"))?;
    let mib: f64 = line.split_once('(')?.1.split_whitespace().next()?.parse().ok()?;
    Some(mib * 1_048_576.0 / 1e9)
}

/// The line `AVG`. It counts a copied byte once, while we count its read and its write.
fn mbw(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("AVG"))?;
    let mib: f64 = line.split_once("Copy:")?.1.split_whitespace().next()?.parse().ok()?;
    Some(2.0 * mib * 1_048_576.0 / 1e9)
}

/// The whole profile of a run. A busy machine is measured, too: the report has the use by others.
fn calibrated(plan: &Plan) -> Result<Value> {
    let mut command = Command::new(&plan.binary);
    command.args(["calibrate", "--force", "--no-save", "--format", "json"]).stderr(Stdio::null());
    let output = command.stdin(Stdio::null()).output().context("running numatop-ng calibrate")?;
    serde_json::from_slice(&output.stdout).context("numatop-ng calibrate printed no profile")
}

fn measured(peer: &Peer, program: &Path, cpus: usize) -> Result<f64> {
    let mut command = Command::new(program);
    command.args((peer.words)(cpus)).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().with_context(|| format!("running {}", peer.program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{} ended with {}", peer.program, output.status);
    (peer.value)(&text).with_context(|| format!("{} printed no number: {}", peer.program, text.trim()))
}

/// Half of the range in percent of the median.
fn half_range_pct(values: &[f64]) -> f64 {
    let (least, most) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
    50.0 * (most - least) / median(values)
}

fn spread(values: &[f64]) -> Vec<Cell> {
    match values {
        [] => vec![Cell::Nothing; 4],
        values => vec![
            Cell::Number(median(values), 2),
            Cell::Number(values.iter().copied().fold(f64::MAX, f64::min), 2),
            Cell::Number(values.iter().copied().fold(f64::MIN, f64::max), 2),
            Cell::Number(half_range_pct(values), 1),
        ],
    }
}

/// # Errors
/// `calibrate` or a peer that is here printed no number.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Known loads: costs of the machine");
    let rounds = if plan.quick { 2 } else { 10 };
    let cpus = available_parallelism().map_or(1, |cpus| cpus.get());
    let here: Vec<Option<PathBuf>> = PEERS.iter().map(|peer| on_path(peer.program)).collect();
    let mut profiles = Vec::new();
    let mut theirs = vec![Vec::new(); PEERS.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        profiles.push(calibrated(plan)?);
        for (at, peer) in PEERS.iter().enumerate() {
            if let Some(program) = &here[at] {
                theirs[at].push(measured(peer, program, cpus)?);
            }
        }
    }
    let ours = |figure: &Figure| -> Vec<f64> { profiles.iter().filter_map(|one| figure.of(one)).collect() };

    let mut table = Table::new(
        format!("{rounds} runs of `calibrate`, a run of each peer between two of them."),
        &["figure", "median", "least", "most", "half of the range, %", "runs that have it"],
    );
    for figure in &FIGURES {
        let values = ours(figure);
        let mut row = vec![Cell::text(figure.name)];
        row.extend(spread(&values));
        row.push(Cell::text(format!("{} of {rounds}", values.len())));
        table.rows.push(row);
    }
    report.tables.push(table);
    let latencies = ours(&LATENCY);
    ensure!(!latencies.is_empty(), "no run of calibrate has a latency");
    report.at_most("latency: half of the range, %", REPEATS_WITHIN, half_range_pct(&latencies), 1);

    let mut table = Table::new(
        "Peers in the same minutes, in turns.",
        &["peer", "figure", "median", "least", "most", "half of the range, %", "ours by theirs"],
    );
    for (peer, values) in PEERS.iter().zip(&theirs) {
        let own = ours(&peer.figure);
        let ratio = (!own.is_empty() && !values.is_empty()).then(|| median(&own) / median(values));
        let mut row = vec![Cell::text(peer.name), Cell::text(peer.figure.name)];
        row.extend(spread(values));
        row.push(match (ratio, values.is_empty()) {
            (Some(ratio), _) => Cell::Number(ratio, 3),
            (None, true) => Cell::text("not here"),
            (None, false) => Cell::text("ours has no number"),
        });
        table.rows.push(row);
        if let Some(ratio) = ratio.filter(|_| peer.same_work) {
            let apart = 100.0 * (ratio - 1.0).abs();
            report.at_most(format!("{}: percent apart", peer.name), LIKE_PEERS_WITHIN, apart, 1);
        }
    }
    report.tables.push(table);
    let others: Vec<f64> = profiles.iter().filter_map(|one| one["others_pct"].as_f64()).collect();
    let mut states: Vec<&str> = profiles.iter().filter_map(|one| one["state"].as_str()).collect();
    states.sort_unstable();
    states.dedup();
    report.note(format!(
        "others used {:.1} % of the CPUs during `calibrate` (median); its profiles are {}",
        if others.is_empty() { 0.0 } else { median(&others) },
        states.join(", ")
    ));
    report.note(
        "mbw copies with one thread and through the caches, sysbench adds up what it reads: other work than ours, shown and not judged",
    );
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_as_they_print() {
        assert_eq!(first_number(" 213.2\n"), Some(213.2));
        assert_eq!(first_number(",\n57.25,\n"), Some(57.25));
        assert_eq!(first_number("no number"), None);
        let text =
            "Samples\t, Byte/thd\t, LdAvgMibs\t, LdDeviate\n2     \t, 268435456\t, 15838   \t, 0.063\n";
        assert_eq!(multiload(text).map(|gbs| (gbs * 100.0).round()), Some(1661.0));
        let text = "Total operations: 241\n\n15424.00 MiB transferred (15308.26 MiB/sec)\n";
        assert_eq!(sysbench(text).map(|gbs| (gbs * 100.0).round()), Some(1605.0));
        let text = "0\tMethod: MEMCPY\tElapsed: 0.1\tCopy: 1.0 MiB/s\nAVG\tMethod: MEMCPY\tElapsed: 0.01540\tMiB: 128.00000\tCopy: 8311.418 MiB/s\n";
        assert_eq!(mbw(text).map(|gbs| (gbs * 100.0).round()), Some(1743.0));
    }

    #[test]
    fn the_nearest_pair_that_exists_is_the_line() {
        let profile = serde_json::json!({"lines_ns": {"core": null, "llc": 25.0, "node": 60.0}});
        assert_eq!(LINE.of(&profile), Some(25.0));
        assert_eq!(LATENCY.of(&profile), None);
    }

    #[test]
    fn a_spread_is_half_of_the_range() {
        assert!((half_range_pct(&[98.0, 100.0, 104.0]) - 3.0).abs() < 1e-9);
    }
}
