//! More memory in use than the fast nodes have: pages go to slow memory and come back (`tier-ping-pong`).

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{Loop, SLACK, undo};
use crate::affinity;
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::tiers::{self, Tiers};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_tiers",
    about: "a process uses more memory than the first node has: the finding comes, its command lowers the limit of promotion, the \
            finding ends, and the way back sets the old limit",
    run,
};

const MIB: &str = "400";
/// The time that the rule's condition must hold, and the age of the machine from which on it is judged.
const HELD: Duration = Duration::from_secs(60);
const STARTED: f64 = 300.0;
const LIMIT: &str = "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    Tiers::of(plan)?;
    let _settings = tiers::fast("2")?;
    let limit = sysfs::read(LIMIT)?;
    let away = sysfs::node_cpus(1)?;
    affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
    let uptime = sysfs::read("/proc/uptime")?;
    let uptime: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(STARTED);
    let young = Duration::from_secs_f64((STARTED - uptime).max(0.0));
    std::thread::sleep(young.saturating_sub(HELD));
    let mut watch = Watch::every("2")?;
    let mut work = Work::start_now("sweeps", &["0", MIB, "0"])?;
    work.said()?;
    work.go();
    let beside = &["slow-tier-memory", "balancing-cost", "reclaim-beside-free", "memory-pressure"];
    let expected = Loop { held: HELD, beside, ..Loop::of("tier-ping-pong") };
    let closed = expected.close(report, &mut watch, HELD + HELD + SLACK + SLACK);
    for node in watch.last()["nodes"].as_array().into_iter().flatten() {
        let part = |key: &str| format!("{key} {}", node[key]);
        let keys = ["node", "cpu_pct", "promoted_pages_per_s", "demoted_pages_per_s", "mem_free_bytes"];
        report.say(keys.map(part).join(", "));
    }
    report.say(format_args!("balancing takes {} %", watch.process(work.pid())["balancing_pct"]));
    let finding = closed?;
    report.equal("the subject", "0".to_owned(), finding["subject"]["node"].to_string());
    undo(report, &finding)?;
    report.equal("the limit after the way back", limit, sysfs::read(LIMIT)?);
    watch.stop()?;
    work.stop()?;
    Ok(())
}
