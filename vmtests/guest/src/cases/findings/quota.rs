//! Two cgroups that their quota of one CPU stops: one by bursts, below it on average, and one that uses all of it:
//! `quota-throttled`. The command is in words here, because only an engine or systemd has one, so none is executed.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::SLACK;
use super::watch::{self, Watch, label};
use crate::report::Report;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_quota",
    about: "a cgroup that its quota stops in bursts is a warning, one that uses all of its quota an info",
    run,
};

const MOUNT: &str = "/sys/fs/cgroup";
const SHELF: &str = "/quotas.slice";
const BURSTS: &str = "/quotas.slice/bursts";
const CONSTANT: &str = "/quotas.slice/constant";
/// The age from which on a container is judged, and the time that the rule's condition must hold.
const COMES: Duration = Duration::from_secs(120);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpus() != 4 {
        return Err(Stop::skip("needs four CPUs"));
    }
    let _cgroups = Cgroups::make()?;
    let mut watch = Watch::start()?;
    // 120 ms of CPU time in 200 ms, in which the quota gives 200, but only 100 at a time.
    let mut bursts = Work::start("bursts", &["4", "30", "200"])?;
    let mut constant = Work::start("spin", &["0-1"])?;
    for (work, path) in [(&mut bursts, BURSTS), (&mut constant, CONSTANT)] {
        sysfs::write(format!("{MOUNT}{path}/cgroup.procs"), &work.pid().to_string())?;
        work.go();
    }
    let both = |interval: &Value| [BURSTS, CONSTANT].iter().all(|path| of(interval, path).is_some());
    let found = watch.until(COMES + SLACK, both)?;
    let last = watch.last().clone();
    for (path, severity) in [(BURSTS, "warning"), (CONSTANT, "info")] {
        let finding = of(&last, path);
        report.say(finding.map_or_else(|| watch.why_not("quota-throttled"), label));
        let got = finding.map_or("none", |finding| finding["severity"].as_str().unwrap_or_default());
        report.equal(format_args!("severity of {path}"), severity, got);
    }
    report.check(found.is_some(), "both findings", "within two minutes", found.is_some());
    watch.stop()?;
    bursts.stop()?;
    constant.stop()?;
    Ok(())
}

/// The finding of a cgroup.
fn of<'a>(interval: &'a Value, path: &str) -> Option<&'a Value> {
    watch::findings(interval)
        .find(|finding| finding["id"] == "quota-throttled" && finding["subject"]["cgroup"] == path)
}

/// Cgroups with a quota of one CPU, removed at the end.
struct Cgroups;

impl Cgroups {
    fn make() -> Result<Cgroups, Stop> {
        let cgroups = Cgroups;
        sysfs::write(format!("{MOUNT}/cgroup.subtree_control"), "+cpu")?;
        for path in [SHELF, BURSTS, CONSTANT] {
            let directory = format!("{MOUNT}{path}");
            fs::create_dir_all(&directory).map_err(|error| format!("creating {directory}: {error}"))?;
            if path == SHELF {
                sysfs::write(format!("{directory}/cgroup.subtree_control"), "+cpu")?;
            } else {
                // A refill that comes late, as it does where CPUs are emulated in turns, is lost time of a short period.
                let period = if path == CONSTANT { 500_000 } else { 100_000 };
                sysfs::write(format!("{directory}/cpu.max"), &format!("{period} {period}"))?;
            }
        }
        Ok(cgroups)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for path in [CONSTANT, BURSTS, SHELF] {
            // Processes that still end keep one: nothing else looks at it.
            let _ = fs::remove_dir(format!("{MOUNT}{path}"));
        }
    }
}
