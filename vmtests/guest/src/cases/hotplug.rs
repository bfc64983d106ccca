//! A CPU goes away and comes back while everything is busy.

use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop, all_cpus, no_losses};
use crate::cpuacct::Cpuacct;
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "hotplug",
    about: "a CPU taken offline and back under load: no CPU time is lost, and counters count on it again",
    run,
};

/// A CPU that is offline, and online again when this is dropped: also when the case breaks off.
struct Offline(u32);

impl Offline {
    fn take(cpu: u32) -> Result<Offline, String> {
        sysfs::set_online(cpu, false)?;
        Ok(Offline(cpu))
    }

    fn give_back(self) -> Result<(), String> {
        sysfs::set_online(self.0, true)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = sysfs::set_online(self.0, true);
    }
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let last = plan.machine.cpus() - 1;
    if last == 0 {
        return Err(Stop::skip("there is one CPU only"));
    }
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    let watchers = [batch.pid(), std::process::id() as i32];
    let cpuacct = Cpuacct::mount(&mut batch)?;
    let begin = cpuacct.around(&mut batch, &mut totals, &watchers)?;
    let work = Work::start_now("spin", &[&show_list(&all_cpus(plan))])?;
    let pid = work.pid();
    batch.follow(&mut totals, 2)?;
    let offline = Offline::take(last)?;
    batch.follow(&mut totals, 3)?;
    offline.give_back()?;
    batch.follow(&mut totals, 2)?;
    let done = work.stop()?;
    report.say(format_args!("CPU {last} is back; a thread is pinned to it"));
    let mut back = Work::start("spin", &[&last.to_string()])?;
    let back_pid = back.pid();
    batch.follow(&mut totals, 1)?;
    back.go();
    batch.follow(&mut totals, 3)?;
    let settled = totals.process(back_pid)?.last.clone();
    let back_done = back.stop()?;
    batch.follow_to_end(&mut totals, back_pid)?;
    let end = cpuacct.around(&mut batch, &mut totals, &watchers)?;
    batch.stop()?;
    let notes: Vec<&str> = totals
        .intervals
        .iter()
        .flat_map(|interval| interval["notes"].as_array().into_iter().flatten())
        .filter_map(|note| note.as_str())
        .collect();
    report.say(format_args!("notes: {notes:?}"));
    for word in ["offline", "online"] {
        let told = notes.iter().any(|note| note.contains(&format!("CPU {last}")) && note.contains(word));
        report.check(told, format_args!("a note says that CPU {last} went {word}"), true, told);
    }
    report.cpu_seconds_between(
        "rows add up to what all tasks ran (cpuacct)",
        begin.until(end),
        totals.cpu_ns_without(&watchers) / 1e9,
    );
    report.cpu_seconds("CPU seconds of the load", done.cpu.as_secs_f64(), totals.process(pid)?.cpu_ns / 1e9);
    let row = totals.process(back_pid)?;
    report.cpu_seconds(
        "CPU seconds of the thread on the CPU that came back",
        back_done.cpu.as_secs_f64(),
        row.cpu_ns / 1e9,
    );
    let node = plan.machine.node_of_cpu(last).unwrap_or(usize::MAX) as u32;
    let on_node = settled["run_pct_by_node"][node.to_string()].as_f64().unwrap_or(0.0);
    report.close(format_args!("its share on node {node}, once it is there"), 100.0, on_node, 0.01);
    if plan.machine.pmu != Pmu::Absent {
        report.close("cycles a nanosecond on it", 1.0, number(&row.last, "cycles_total")? / row.cpu_ns, 0.05);
    }
    no_losses(report, &totals);
    Ok(())
}
