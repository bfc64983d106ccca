//! The tool's test of itself: no number is wrong, and none is left untested that this machine could test.

use std::fs;

use serde_json::Value;
use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop};
use crate::intervals::number;
use crate::report::Report;
use crate::tool;

pub const CASE: Case = Case {
    name: "selftest",
    about: "numatop-ng selftest finds no software number wrong, counts the instructions of a loop, and finds tables that lie",
    run,
};

/// Checks that need memory on two nodes with CPUs.
const OF_TWO_NODES: [&str; 5] = ["node_moves", "other_node_pages", "moved_pages", "placement", "remote"];

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let output = tool::run(&["selftest", "software", "--format", "json"])?;
    let said: Value = serde_json::from_str(&output.stdout)
        .map_err(|error| Stop::fail(format!("selftest printed no JSON: {error}; {}", output.brief())))?;
    report.equal("exit code", "0".to_owned(), output.code.map_or("none".to_owned(), |code| code.to_string()));
    let comparisons = said["comparisons"].as_array().cloned().unwrap_or_default();
    report.check(comparisons.len() >= 9, "checks", "9 or more", comparisons.len());
    let with_cpus = plan.machine.cpu_nodes().count();
    for comparison in &comparisons {
        let check = comparison["check"].as_str().unwrap_or("?").to_owned();
        let verdict = comparison["verdict"].as_str().unwrap_or("?").to_owned();
        let possible = match check.as_str() {
            "cpu_moves" => plan.machine.cpus() > 1,
            check if OF_TWO_NODES.contains(&check) => with_cpus > 1,
            _ => true,
        };
        let want = if possible { "ok" } else { "untested" };
        report.say(format_args!(
            "{check}: {} by the tool, {} in truth",
            comparison["tool"], comparison["truth"]
        ));
        if verdict != want {
            report.say(format_args!("{check}: {}", comparison["reason"]));
        }
        report.equal(check, want.to_owned(), verdict);
    }
    match plan.machine.pmu {
        Pmu::Icount { shift } => counters(report, shift),
        _ => Ok(()),
    }
}

/// Instructions of the loop, and cycles of the chain of additions: an emulator takes one cycle for each
/// instruction.
fn counters(report: &mut Report, shift: u32) -> Result<(), Stop> {
    let roles = [
        "selftest",
        "counters",
        "--no-save",
        "--force",
        "--events",
        "instructions,cycles",
        "--format",
        "json",
    ];
    let said = said(&roles)?;
    let instructions = measured(&said, "instructions")?;
    let amount = number(instructions, "amount")?;
    report.close("instructions of the loop", 2.0 * amount, median(instructions), 1e-4);
    report.equal("instructions", "ok".to_owned(), word(instructions, "verdict"));
    report
        .say(format_args!("a job: {} by itself, {} by the tool", instructions["own"], instructions["tool"]));
    report.equal("instructions by the tool", "ok".to_owned(), word(instructions, "tool_verdict"));
    let cycles = measured(&said, "cycles")?;
    let taken = 66.0 * number(cycles, "amount")? * 2_f64.powi(shift as i32);
    report.close("cycles of the additions", taken, median(cycles), 0.01);
    report.equal("cycles of an emulator", "wrong".to_owned(), word(cycles, "verdict"));
    report.say(format_args!("cycles: {}", cycles["reason"]));
    lies(report, shift)
}

/// A table whose instructions are cycles: the truth is the loop's, so that the lie is found where the two differ.
fn lies(report: &mut Report, shift: u32) -> Result<(), Stop> {
    const FOLDER: &str = "/tmp/lies";
    let midr = fs::read_to_string("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1")
        .map_err(|error| Stop::fail(format!("midr_el1: {error}")))?;
    let midr = u64::from_str_radix(midr.trim().trim_start_matches("0x"), 16)
        .map_err(|error| Stop::fail(format!("midr_el1: {error}")))?;
    let absent: String =
        ["lma", "rma", "remote_cache", "stall_frontend", "stall_backend", "llc", "dtlb", "itlb", "branch"]
            .map(|role| format!("{role} = \"left out\"\n"))
            .concat();
    let event = |role: &str, name: &str, code: u32| {
        format!(
            "[[event]]\nrole = \"{role}\"\nname = \"{name}\"\nencoding = \"event={code:#x}\"\ncounts = \"x\"\nsource = \"x\"\n"
        )
    };
    let table = format!(
        "name = \"lies\"\nproducts = []\n[[cpu]]\nimplementer = {}\npart = {}\n[absent]\n{absent}{}{}",
        midr >> 24 & 0xff,
        midr >> 4 & 0xfff,
        // CPU_CYCLES and INST_RETIRED of the Arm architecture, the wrong way round.
        event("instructions", "CPU_CYCLES", 0x11),
        event("cycles", "INST_RETIRED", 0x08),
    );
    fs::create_dir_all(FOLDER)
        .and_then(|()| fs::write(format!("{FOLDER}/lies.toml"), table))
        .map_err(|error| Stop::fail(format!("{FOLDER}: {error}")))?;
    let said =
        said(&["selftest", "counters", "--no-save", "--force", "--pmu-dir", FOLDER, "--format", "json"])?;
    let instructions = measured(&said, "instructions")?;
    report.say(format_args!("instructions of a table that lies: {}", instructions["reason"]));
    let times = 2_f64.powi(shift as i32);
    let wanted = if times == 1.0 { "ok" } else { "wrong" };
    report.close(
        "cycles in the place of instructions",
        2.0 * number(instructions, "amount")? * times,
        median(instructions),
        0.01,
    );
    report.equal("a table that lies", wanted.to_owned(), word(instructions, "verdict"));
    Ok(())
}

fn said(words: &[&str]) -> Result<Value, Stop> {
    let output = tool::run(words)?;
    serde_json::from_str(&output.stdout)
        .map_err(|error| Stop::fail(format!("selftest printed no JSON: {error}; {}", output.brief())))
}

/// The first count of a role.
fn measured<'a>(said: &'a Value, role: &str) -> Result<&'a Value, Stop> {
    let mut all = said["counters"]["measured"].as_array().into_iter().flatten();
    all.find(|measured| measured["role"] == role).ok_or_else(|| Stop::fail(format!("no count of {role}")))
}

fn word(measured: &Value, key: &str) -> String {
    measured[key].as_str().unwrap_or("none").to_owned()
}

/// The median of the counts in user space.
fn median(measured: &Value) -> f64 {
    let counts = measured["user"].as_array().into_iter().flatten();
    let mut counts: Vec<f64> = counts.filter_map(Value::as_f64).collect();
    counts.sort_by(f64::total_cmp);
    counts.get(counts.len() / 2).copied().unwrap_or(0.0)
}
