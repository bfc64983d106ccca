//! Conclusions of numatop-ng in worlds that are known to be sick or healthy, and the effect of the commands that it prints.

mod apart;
mod balancing;
mod bound;
mod cache;
mod far_device;
mod few_cpus;
mod gpu_away;
mod healthy;
mod hidden;
mod hugetlb;
mod interleaved;
mod interrupts;
mod lopsided;
mod one_node;
mod other_node;
mod pinned;
mod quota;
mod reclaim;
mod segment;
mod shared;
mod shell;
mod short;
mod siblings;
mod spread;
mod tiered;
mod watch;

use std::time::{Duration, Instant};

use serde_json::Value;
use vmtests_protocol::Plan;

use self::watch::{Watch, holds, is_loud, label};
use super::Stop;
use crate::report::Report;
use crate::rest::Balancing;
use crate::{capabilities, procfs};

pub use self::apart::CASE as APART;
pub use self::balancing::{COST as BALANCING_COST, OFF as BALANCING_OFF, PING_PONG};
pub use self::bound::CASE as BOUND;
pub use self::cache::CASE as CACHE;
pub use self::far_device::CASE as FAR_DEVICE;
pub use self::few_cpus::CASE as FEW_CPUS;
pub use self::gpu_away::CASE as GPU_AWAY;
pub use self::healthy::CASE as HEALTHY;
pub use self::hidden::CASE as HIDDEN;
pub use self::hugetlb::CASE as HUGETLB;
pub use self::interleaved::CASE as INTERLEAVED;
pub use self::interrupts::CASE as INTERRUPTS;
pub use self::lopsided::CASE as LOPSIDED;
pub use self::one_node::CASE as ONE_NODE;
pub use self::other_node::CASE as OTHER_NODE;
pub use self::pinned::CASE as PINNED;
pub use self::quota::CASE as QUOTA;
pub use self::reclaim::CASE as RECLAIM;
pub use self::segment::{CASE as SEGMENT, QUIET as SEGMENT_QUIET};
pub use self::shared::CASE as SHARED;
pub use self::short::{SHORT, SWAPS};
pub use self::siblings::CASE as SIBLINGS;
pub use self::spread::CASE as SPREAD;
pub use self::tiered::CASE as TIERS;

/// Time beside that of a rule, for intervals, a first look at memory, and a host that is busy.
const SLACK: Duration = Duration::from_secs(20);

/// The age from which on processes and containers are judged.
const LIVES: Duration = Duration::from_secs(60);

/// Intervals in a row for which a check must be true: in a pause of a bursty load it holds without a cure.
const STAYS: usize = 5;

/// The least time for which a condition must not hold until its finding ends.
const ENDS: Duration = Duration::from_secs(30);

/// Metrics of nodes in the log of a case.
const NODE_NUMBERS: [&str; 11] = [
    "node",
    "cpu_pct",
    "mem_free_bytes",
    "watermark_distance_pct",
    "mem_inactive_file_bytes",
    "kswapd_pages_per_s",
    "direct_reclaim_pages_per_s",
    "irq_pct",
    "irqs_per_s",
    "device_irqs_per_s",
    "device_irqs_away_pct",
];

/// Metrics of the machine there.
const HOST_NUMBERS: [&str; 3] = ["swap_out_pages_per_s", "swap_in_pages_per_s", "pressure_memory_full_pct"];

/// Skips a case where the machine has not two nodes.
fn two_nodes(plan: &Plan) -> Result<(), Stop> {
    if plan.machine.nodes.len() == 2 { Ok(()) } else { Err(Stop::skip("needs two nodes")) }
}

/// Two nodes without NUMA balancing, which would move memory before anything is typed, and a watch of them.
fn unbalanced(plan: &Plan) -> Result<(Balancing, Watch), Stop> {
    two_nodes(plan)?;
    Ok((Balancing::off()?, Watch::start()?))
}

/// Checks that nearly all memory of a process is on one of two nodes, according to the kernel.
fn memory_is_on(home: u32, report: &mut Report, pid: i32, when: &str) -> Result<(), Stop> {
    let bytes = procfs::bytes_by_node(pid)?;
    let [here, away] = [home, 1 - home].map(|node| bytes.get(&node).copied().unwrap_or(0.0));
    report.check(
        away < here / 20.0,
        format_args!("bytes that the kernel has on node {}, of those on node {home}, {when}", 1 - home),
        "less than a twentieth",
        format_args!("{away} of {here}"),
    );
    Ok(())
}

/// A finding that is expected to be closed by its commands.
#[derive(Clone, Copy)]
struct Loop<'a> {
    id: &'a str,
    /// The cgroup that it is about, where several may have one.
    of: Option<&'a str>,
    severity: &'a str,
    /// Rules that are right to have a warning in the same world.
    beside: &'a [&'a str],
    /// The time that the condition must hold, and then must not.
    held: Duration,
}

impl<'a> Loop<'a> {
    /// A warning that is the only one.
    const fn of(id: &'a str) -> Loop<'a> {
        Loop { id, of: None, severity: "warning", beside: &[], held: ENDS }
    }

    /// The finding in an interval.
    fn find<'i>(&self, interval: &'i Value) -> Option<&'i Value> {
        let is_it = |finding: &&Value| {
            finding["id"] == self.id && self.of.is_none_or(|path| finding["subject"]["cgroup"] == path)
        };
        watch::findings(interval).find(is_it)
    }

    /// Waits for the finding and looks at its severity.
    ///
    /// # Errors
    /// It does not come within `within`.
    fn comes(&self, report: &mut Report, watch: &mut Watch, within: Duration) -> Result<Value, Stop> {
        let (id, began) = (self.id, Instant::now());
        let Some(interval) = watch.until(within, |interval| self.find(interval).is_some())? else {
            report.check(
                false,
                format_args!("{id} comes"),
                format_args!("within {} s", within.as_secs()),
                "nothing",
            );
            return Err(Stop::fail(format!("no finding {id}; {}", watch.why_not(id))));
        };
        let finding = self.find(&interval).cloned().unwrap_or_default();
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        report.say(format_args!("after {} s: {}", began.elapsed().as_secs(), text("sentence")));
        report.equal(format_args!("severity of {id}"), self.severity.to_owned(), text("severity"));
        Ok(finding)
    }

    /// Waits for the finding, executes its commands as printed, and waits until its check is true and until it ends.
    /// Gives the finding as it was before the command.
    ///
    /// # Errors
    /// The finding does not come within `within`, or names no command that can be executed.
    fn close(&self, report: &mut Report, watch: &mut Watch, within: Duration) -> Result<Value, Stop> {
        let finding = self.comes(report, watch, within)?;
        let (id, check) = (self.id, &finding["check"][0]);
        let is_open = |interval: &Value| holds(interval, check) == Some(false);
        // In a pause of a bursty load it is true.
        let open = is_open(watch.last()) || watch.until(SLACK, is_open)?.is_some();
        report.check(open, format_args!("the check of {id} before the command"), "not true", check);

        let typed = Instant::now();
        if execute(report, &finding["commands"], &["now"]) == 0 {
            return Err(Stop::fail(format!("{id} prints no command: {}", finding["commands"])));
        }

        let limit = Duration::from_secs_f64(check["within_s"].as_f64().unwrap_or(0.0));
        let limit = limit + Duration::from_secs(2);
        let cured = watch.until_stays(limit, STAYS, |interval| holds(interval, check) == Some(true))?;
        let took = format!("{} s", cured.unwrap_or_else(Instant::now).duration_since(typed).as_secs());
        report.say(format_args!("the check is true after {took}, and stays so"));
        report.check(cured.is_some(), format_args!("the check of {id}: {check}"), "true in its time", &took);
        let ended = watch.until(self.held + SLACK, |interval| self.find(interval).is_none())?;
        let took = format!("{} s", typed.elapsed().as_secs());
        report.say(format_args!("it has ended after {took}"));
        report.check(ended.is_some(), format_args!("{id} ends"), "by itself", &took);
        let is_other = |other: &&Value| {
            let expected = other["id"] == id || self.beside.iter().any(|beside| other["id"] == *beside);
            is_loud(other) && !expected && other["because_of"].is_null()
        };
        let others: Vec<String> = watch.seen().iter().filter(is_other).map(label).collect();
        report.equal("other causes in all of that time", String::new(), others.join("; "));
        Ok(finding)
    }

    /// Checks that the commands of this finding are those of another one, which were typed, and that it ends within `within`.
    fn ends_too(
        &self,
        report: &mut Report,
        watch: &mut Watch,
        [typed, finding]: [&Value; 2],
        within: Duration,
    ) -> Result<(), Stop> {
        report.equal(format_args!("commands of {}", self.id), commands_now(typed), commands_now(finding));
        let ended = watch.until(within, |interval| self.find(interval).is_none())?;
        report.check(ended.is_some(), format_args!("{} ends", self.id), "by itself", ended.is_some());
        Ok(())
    }
}

/// The lines of a finding for now.
fn commands_now(finding: &Value) -> String {
    let commands = finding["commands"].as_array().into_iter().flatten();
    let now = commands.filter(|command| command["when"] == "now");
    now.map(|command| command["line"].to_string()).collect::<Vec<_>>().join("; ")
}

/// Numbers that rules about nodes look at, of the last interval.
fn say_nodes(report: &Report, watch: &Watch) {
    for node in watch.last()["nodes"].as_array().into_iter().flatten() {
        let part = |key: &str| format!("{key} {}", node[key]);
        let parts = NODE_NUMBERS.map(part);
        report.say(parts.join(", "));
    }
    let part = |key: &str| format!("{key} {}", watch.last()["host"][key]);
    report.say(HOST_NUMBERS.map(part).join(", "));
}

/// Executes the commands of these times, as they are printed; gives their number.
fn execute(report: &mut Report, commands: &Value, when: &[&str]) -> usize {
    let is_then = |command: &&Value| when.iter().any(|when| command["when"] == *when);
    let lines = commands.as_array().into_iter().flatten().filter(is_then);
    let lines: Vec<&str> = lines.filter_map(|command| command["line"].as_str()).collect();
    for line in &lines {
        let done = shell::execute(line).map_or_else(|why| why, |()| "done".to_owned());
        report.equal(format_args!("executing {line:?}"), "done".to_owned(), done);
    }
    lines.len()
}

/// Executes the commands for now without CAP_SYS_NICE.
///
/// # Errors
/// The kernel does not take the capability away.
fn execute_without_nice(report: &mut Report, commands: &Value) -> Result<(), Stop> {
    // Capabilities are those of a thread.
    let done = std::thread::scope(|scope| {
        let typed = scope.spawn(|| {
            capabilities::give_up(capabilities::SYS_NICE)?;
            execute(report, commands, &["now"]);
            Ok(())
        });
        typed.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")))
    });
    Ok(done.map_err(|error| format!("without CAP_SYS_NICE: {error}"))?)
}

/// Executes what undoes a finding, as printed.
///
/// # Errors
/// Nothing is printed.
fn undo(report: &mut Report, finding: &Value) -> Result<(), Stop> {
    match execute(report, &finding["undo"], &["now"]) {
        0 => Err(Stop::fail(format!("{} prints nothing that undoes it", finding["id"]))),
        _ => Ok(()),
    }
}
