//! The programs that this kernel takes, their work for its verifier, and missing metrics.

use serde_json::{Map, Value, json};
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::bpf;
use crate::drivers;
use crate::report::Report;
use crate::sysfs;
use crate::tool::{self, Batch};

pub const CASE: Case = Case {
    name: "load",
    about: "every program loads, or the tool refuses with a clear reason; what is missing is a reviewed snapshot",
    run,
};

fn run(report: &mut Report, _plan: &Plan) -> Result<(), Stop> {
    // Nothing has one of these files open, and with them the machine has devices that a program looks for.
    drivers::rename("vcs", "vfio-dev")?;
    let before = bpf::program_ids()?;
    let output = tool::run(&["--batch", "--json-full", "-n", "1", "-d", "0.2"])?;
    // Refusing is an answer, according to the kernel and its boot options; the snapshot has which ones
    // refuse.
    if let Some(3 | 4) = output.code {
        report.say(format_args!("refused: {}", output.stderr.trim()));
        report.check(
            !output.stderr.trim().is_empty(),
            "the reason for refusing",
            "a sentence",
            output.stderr.trim(),
        );
        // A snapshot must outlive the next point release.
        let release = sysfs::read("/proc/sys/kernel/osrelease")?;
        report.data("load", json!({"refused": output.stderr.trim().replace(&release, "RELEASE")}));
        return Ok(());
    }
    report.equal(
        "exit code",
        "0".to_owned(),
        output.code.map_or("a signal".to_owned(), |code| code.to_string()),
    );
    if output.code != Some(0) {
        return Err(Stop::fail(output.brief()));
    }
    // Stacks are sampled only on request, by a separate program.
    let mut batch = Batch::start(&["-d", "0.3", "--hot"])?;
    let mut interval = batch.next()?;
    // Memory is looked at within a budget, which a slow host can have spent before the first row.
    for _ in 0..MOST_LOOKS {
        if !missing_everywhere(&interval).values().any(waits_for_a_look) {
            break;
        }
        interval = batch.next()?;
    }
    let mut programs = Map::new();
    for program in bpf::programs()?.into_iter().filter(|program| !before.contains(&program.id)) {
        report.say(format_args!("{program}"));
        let facts =
            json!({"type": program.kind, "verified": program.verified, "instructions": program.instructions});
        if programs.insert(program.name.clone(), facts).is_some() {
            return Err(Stop::fail(format!("two programs have the name {}", program.name)));
        }
    }
    batch.stop()?;
    report.check(!programs.is_empty(), "programs in the kernel while the tool runs", "some", programs.len());
    let missing = missing_everywhere(&interval);
    for (id, reason) in &missing {
        report.say(format_args!("no {id}: {}", reason.as_str().unwrap_or_default()));
        report.check(
            reason.as_str().is_some_and(|text| !text.is_empty()),
            format_args!("the reason for no {id}"),
            "a sentence",
            reason,
        );
    }
    report.data("load", json!({"programs": programs, "missing": missing}));
    Ok(())
}

/// Metrics that no row has because of the row and not of the host; such reasons come and go.
const OF_ROWS: [&str; 7] = [
    "preferred_node",
    "runq_wait_us",
    "home_node",
    "numa_group",
    "hint_remote_pct",
    "alloc_pct_by_node",
    "cross_node_fault_pct",
];

/// Intervals that the first look at memory may take.
const MOST_LOOKS: usize = 60;

/// Whether the reason is that memory has not been located in this interval.
fn waits_for_a_look(reason: &Value) -> bool {
    reason.as_str().is_some_and(|reason| reason.contains("not located"))
}

/// Metrics that no row has, with their reasons: what this host cannot do.
fn missing_everywhere(interval: &Value) -> Map<String, Value> {
    let tasks = || interval["tasks"].as_array().into_iter().flatten();
    let missing = interval["missing"].as_object().cloned().unwrap_or_default();
    missing
        .into_iter()
        .filter(|(id, _)| !OF_ROWS.contains(&id.as_str()) && tasks().all(|task| task[id].is_null()))
        .collect()
}
