//! Pages that NUMA balancing moves: from which node to which, for whom and what for, compared with /proc/vmstat.

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::Totals;
use crate::procfs::vmstat;
use crate::report::Report;
use crate::rest::Balancing;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "page_moves",
    about: "pages that balancing moves, from node to node, by node and by task, are as many as /proc/vmstat counts",
    run,
};

const MIB: &str = "48";

/// Pages that balancing moved, that were moved at all, and that could not be.
fn counters() -> Result<[u64; 3], String> {
    Ok([vmstat("numa_pages_migrated")?, vmstat("pgmigrate_success")?, vmstat("pgmigrate_fail")?])
}

/// The sum of a rate over all rows of one kind.
fn of_rows(totals: &Totals, rows: &str, id: &str) -> u64 {
    totals.sum_of_rates(|interval| {
        let rows = interval[rows].as_array().into_iter().flatten();
        rows.map(|row| row[id].as_f64().unwrap_or(0.0)).sum()
    })
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let nodes = plan.machine.nodes.len();
    let Some((home, first)) = plan.machine.cpu_nodes().next().filter(|_| nodes > 1) else {
        return Err(Stop::skip("one node: there is nowhere to move pages to"));
    };
    let balancing = Balancing::on()?;
    let batch = Batch::start(&["-d", "0.5"])?;
    // Some on each node but the one from which all is used.
    let each = 100 / (nodes - 1);
    let share = |node: usize| if node == home { 100 - each * (nodes - 1) } else { each };
    let shares: Vec<String> = (0..nodes).map(|node| share(node).to_string()).collect();
    let cpu = first.cpus[0].to_string();
    let work = Work::start("numa_truth", &[&cpu, &shares.join(","), MIB, "touched", "uniform"])?;
    let ([balanced, moved, failed], totals) =
        balancing.work_on(work, batch, Some("pages_in_per_s"), counters)?;
    report.check(balanced > 0, "balancing was at work", "more than 0 pages moved", balanced);
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    let all: u64 = pairs.map(|(from, to)| totals.between("pages_migrated_per_s", from, to)).sum();
    report.equal("pages from node to node", balanced, all);
    for id in ["pages_in_per_s", "pages_out_per_s"] {
        report.equal(format_args!("{id} of all nodes"), balanced, of_rows(&totals, "nodes", id));
    }
    for (id, truth) in [
        ("pages_migrated_balancing_per_s", balanced),
        ("pages_migrated_per_s", moved),
        ("pages_migrate_failed_per_s", failed),
    ] {
        report.equal(format_args!("{id} of all tasks"), truth, of_rows(&totals, "tasks", id));
    }
    let host = totals
        .sum_of_rates(|interval| interval["host"]["pages_migrated_balancing_per_s"].as_f64().unwrap_or(0.0));
    report.equal("pages_migrated_balancing_per_s of the host", balanced, host);
    for node in (0..nodes).filter(|node| *node != home) {
        let came = totals.between("pages_migrated_per_s", node, home);
        report.check(came > 0, format_args!("pages from node {node} to node {home}"), "more than 0", came);
    }
    no_losses(report, &totals);
    Ok(())
}
