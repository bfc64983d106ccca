//! A CPU goes away and comes back while everything is busy.

use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop, all_cpus, no_losses};
use crate::intervals::{Totals, number};
use crate::procfs;
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "hotplug",
    about: "a CPU taken offline and back under load: no CPU time is lost, and counters count on it again",
    run,
};

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let last = plan.machine.cpus() - 1;
    if last == 0 {
        return Err(Stop::skip("there is one CPU only"));
    }
    let mut batch = Batch::start(&["-d", "0.5", "-n", "16"])?;
    let mut totals = Totals::default();
    let work = Work::start("spin", &[&show_list(&all_cpus(plan))])?;
    let pid = work.pid();
    batch.interval()?;
    totals.add(&batch.interval()?)?;
    let ran = procfs::ran_ns()?;
    let mut notes = Vec::new();
    let mut follow = |totals: &mut Totals, batch: &mut Batch, count: usize| -> Result<(), Stop> {
        for _ in 0..count {
            let interval = batch.interval()?;
            notes.extend(
                interval["notes"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|note| note.as_str().map(str::to_owned)),
            );
            totals.add(&interval)?;
        }
        Ok(())
    };
    follow(&mut totals, &mut batch, 1)?;
    sysfs::set_online(last, false)?;
    follow(&mut totals, &mut batch, 3)?;
    sysfs::set_online(last, true)?;
    follow(&mut totals, &mut batch, 2)?;
    report.say(format_args!("CPU {last} is back; a thread is pinned to it"));
    let back = Work::start("spin", &[&last.to_string()])?;
    let back_pid = back.pid();
    follow(&mut totals, &mut batch, 3)?;
    let ran_after = procfs::ran_ns()?;
    report.close(
        "rows add up to what the CPUs ran, s",
        (ran_after - ran) as f64 / 1e9,
        totals.cpu_ns() / 1e9,
        0.02,
    );
    let done = work.stop()?;
    let back_done = back.stop()?;
    totals.add_all(&batch.rest()?)?;
    report.say(format_args!("notes: {notes:?}"));
    for word in ["offline", "online"] {
        let told = notes.iter().any(|note| note.contains(&format!("CPU {last}")) && note.contains(word));
        report.check(told, format_args!("a note says that CPU {last} went {word}"), true, told);
    }
    let whole = totals.process(pid)?;
    // It had worked before the mark was set.
    let fits = whole.cpu_ns / 1e9 < done.cpu.as_secs_f64() && whole.cpu_ns > 0.0;
    report.check(
        fits,
        "CPU seconds of the load",
        format_args!("below {:.3}", done.cpu.as_secs_f64()),
        whole.cpu_ns / 1e9,
    );
    let row = totals.process(back_pid)?;
    report.close(
        "CPU seconds of the thread on the CPU that came back",
        back_done.cpu.as_secs_f64(),
        row.cpu_ns / 1e9,
        0.01,
    );
    let node = plan.machine.node_of_cpu(last).unwrap_or(usize::MAX) as u32;
    let on_node = row.cpu_ns_by_node.get(&node).copied().unwrap_or(0.0) / row.cpu_ns;
    report.close(format_args!("its share on node {node}"), 1.0, on_node, 0.02);
    if plan.machine.pmu != Pmu::Absent {
        report.close("cycles a nanosecond on it", 1.0, number(&row.last, "cycles_total")? / row.cpu_ns, 0.05);
    }
    no_losses(report, &totals);
    Ok(())
}
