//! A cgroup with the CPUs of node 0 and the memory of node 1: `cpus-and-memory-apart`.

use std::fs;
use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, memory_is_on, two_nodes, undo};
use crate::report::Report;
use crate::rest::Balancing;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_apart",
    about: "a cgroup may run on node 0 and take memory from node 1: the finding comes, its commands bring the memory, the finding \
            ends, and the way back restores both lists",
    run,
};

const CGROUP: &str = "/sys/fs/cgroup/apart";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(10);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _balancing = Balancing::off()?;
    let cpus = show_list(&sysfs::node_cpus(0)?);
    let cgroup = Cgroup::make(&cpus, "1")?;
    let mut watch = Watch::start()?;
    let mut work = Work::start("numa_truth", &["free:2", "0,100", MIB, "touched", "uniform"])?;
    let pid = work.pid();
    cgroup.put(pid)?;
    work.go();
    let finding = Loop::of("cpus-and-memory-apart").close(report, &mut watch, LIVES + HELD + SLACK);
    let row = watch.process(pid);
    report.say(format_args!("at the end remote {} by {}", row["remote_pct"], row["remote_source"]));
    let finding = finding?;
    report.equal("CPUs after the commands", cpus.clone(), Cgroup::list("cpuset.cpus")?);
    report.equal("nodes after the commands", "0".to_owned(), Cgroup::list("cpuset.mems")?);
    memory_is_on(0, report, pid, "after the commands")?;
    undo(report, &finding)?;
    report.equal("CPUs after the way back", cpus, Cgroup::list("cpuset.cpus")?);
    report.equal("nodes after the way back", "1".to_owned(), Cgroup::list("cpuset.mems")?);
    watch.stop()?;
    work.stop()?;
    Ok(())
}

/// The cgroup, removed at the end.
struct Cgroup;

impl Cgroup {
    fn make(cpus: &str, mems: &str) -> Result<Cgroup, Stop> {
        sysfs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")?;
        fs::create_dir_all(CGROUP).map_err(|error| format!("creating {CGROUP}: {error}"))?;
        let cgroup = Cgroup;
        sysfs::write(format!("{CGROUP}/cpuset.cpus"), cpus)?;
        sysfs::write(format!("{CGROUP}/cpuset.mems"), mems)?;
        Ok(cgroup)
    }

    fn put(&self, pid: i32) -> Result<(), String> {
        sysfs::write(format!("{CGROUP}/cgroup.procs"), &pid.to_string())
    }

    fn list(file: &str) -> Result<String, String> {
        sysfs::read(format!("{CGROUP}/{file}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that still end keep it: nothing else looks at it.
        let _ = fs::remove_dir(CGROUP);
    }
}
