//! Watching one process or one cgroup: the same numbers as when everything is watched.

use std::fs;

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::Totals;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;
use crate::{procfs, sysfs};

pub const CASE: Case = Case {
    name: "scope",
    about: "cgroup paths of tasks are right, and -p shows that process only, with all of its CPU time",
    run,
};

const GROUP: &str = "/shelf.slice/box";

fn run(report: &mut Report, _plan: &Plan) -> Result<(), Stop> {
    let directory = format!("/sys/fs/cgroup{GROUP}");
    fs::create_dir_all(&directory).map_err(|error| format!("creating {directory}: {error}"))?;
    let mut work = Work::start("spin", &["0"])?;
    let other = Work::start_now("spin", &["0"])?;
    let pid = work.pid();
    sysfs::write(format!("{directory}/cgroup.procs"), &pid.to_string())?;

    let mut batch = Batch::start(&["-d", "0.5"])?;
    let all = batch.next()?;
    let cgroup_of = |pid: i32| {
        let mut tasks = all["tasks"].as_array().into_iter().flatten();
        tasks
            .find(|task| task["pid"] == pid)
            .and_then(|task| task["cgroup"].as_str())
            .unwrap_or("none")
            .to_owned()
    };
    report.equal("cgroup of the process that was put into one", GROUP.to_owned(), cgroup_of(pid));
    report.equal("cgroup of the other", "/".to_owned(), cgroup_of(other.pid()));
    drop(batch);

    let mut batch = Batch::start(&["-d", "0.5", "-p", &pid.to_string()])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let before = procfs::process_run_ns(pid)?;
    work.go();
    batch.follow(&mut totals, 3)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    // Not a second time.
    batch.follow(&mut totals, 1)?;
    batch.stop()?;
    let strangers = totals.rows.keys().filter(|(row, ..)| *row != pid as u64).count();
    report.equal("rows of other processes", 0, strangers);
    let truth = done.cpu.as_secs_f64() - before as f64 / 1e9;
    report.cpu_seconds("CPU seconds of the process", truth, totals.process(pid)?.cpu_ns / 1e9);
    report.equal(
        "times it is shown as ended",
        1,
        totals.tasks().filter(|task| task["exited"] == true).count(),
    );
    no_losses(report, &totals);
    other.stop()?;
    let _ = fs::remove_dir(&directory);
    Ok(())
}
