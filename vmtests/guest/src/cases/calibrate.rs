//! A calibration: every page of every cell is where it should be; and where an instruction takes a known time, every
//! number is known before.

use serde_json::Value;
use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop};
use crate::intervals::number;
use crate::report::Report;
use crate::tool;

pub const CASE: Case = Case {
    name: "calibrate",
    about: "numatop-ng calibrate measures every pair of nodes; with an instruction a nanosecond, what its loops must take",
    run,
};

/// Instructions of a round of the walk (16 loads), and bytes and instructions of a round of each stream, on arm64.
const WALK: (f64, f64) = (16.0, 18.0);
const READ: (f64, f64) = (128.0, 7.0);
const COPY: (f64, f64) = (128.0, 8.0);
const TRIAD: (f64, f64) = (192.0, 15.0);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let words = [
        "calibrate",
        "--force",
        "--no-save",
        "--only",
        "latency,bandwidth",
        "--format",
        "json",
        "--memory",
        "20",
    ];
    let output = tool::run(&words)?;
    let said: Value = serde_json::from_str(&output.stdout)
        .map_err(|error| Stop::fail(format!("calibrate printed no JSON: {error}; {}", output.brief())))?;
    let nodes: Vec<u64> = said["machine"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|node| node["node"].as_u64())
        .collect();
    report.equal("nodes", plan.machine.nodes.len(), nodes.len());
    report.say(format_args!("missing: {}", said["missing"]));
    for (from, row) in plan.machine.cpu_nodes() {
        report.say(format_args!("CPUs {:?}: {} ns", row.cpus, said["latency_ns"][from]));
        for to in 0..nodes.len() {
            for matrix in ["latency_ns", "read_gbs"] {
                let cell = said[matrix][from][to].as_f64().unwrap_or(0.0);
                report.check(cell > 0.0, format_args!("{matrix} from {from} to {to}"), "more than 0", cell);
            }
        }
    }
    let Pmu::Icount { shift } = plan.machine.pmu else { return Ok(()) };
    let instruction_ns = 2_f64.powi(shift as i32);
    let walk = WALK.1 / WALK.0 * instruction_ns;
    report.close("ns of a load", walk, cell(&said, "latency_ns")?, 0.01);
    let gbs = |(bytes, instructions): (f64, f64)| bytes / instructions / instruction_ns;
    report.close("reads, GB/s", gbs(READ), cell(&said, "read_gbs")?, 0.01);
    let local = &said["local"][0];
    report.close("copies, GB/s", gbs(COPY), number(local, "copy_gbs")?, 0.01);
    report.close("triads, GB/s", gbs(TRIAD), number(local, "triad_gbs")?, 0.01);
    Ok(())
}

/// The cell of the only node.
fn cell(said: &Value, matrix: &str) -> Result<f64, Stop> {
    said[matrix][0][0].as_f64().ok_or_else(|| Stop::fail(format!("{matrix} has no number")))
}
