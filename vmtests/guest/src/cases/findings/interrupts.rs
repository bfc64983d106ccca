//! A disk whose interrupts are handled on the other node, where a program reads it: `interrupts-off-node`.

use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::{Watch, row};
use super::{LIVES, Loop, SLACK, say_nodes, shell, two_nodes, undo};
use crate::affinity;
use crate::disk::{Disk, RQ_AFFINITY};
use crate::report::Report;
use crate::setting::Setting;
use crate::sysfs::{self, show_list};
use crate::tool::seen_at;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_interrupts",
    about: "the other node handles the interrupts of a disk: their numbers are those of /proc/interrupts, the finding comes, the \
            printed loop sends them home, the finding ends, and the way back sends them away again",
    run,
};

/// The file that the printed line keeps the lists in.
const KEPT: &str = "/root/irq-before.txt";
/// The time that the rules' conditions must hold.
const HELD: Duration = Duration::from_secs(60);
/// Seconds of an interval: in each the tool counts the interrupts of the only device again.
const EVERY: &str = "5";
/// Intervals in which interrupts are counted, by the tool and by the kernel.
const COUNTED: usize = 6;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let disk = Disk::find(plan)?;
    let away = 1 - disk.node;
    let (home_cpus, away_cpus) = (sysfs::node_cpus(disk.node)?, sysfs::node_cpus(away)?);
    // Otherwise the CPU of the interrupt sends the end of a request to the CPU that issued it.
    let _finishes = Setting::begin(RQ_AFFINITY, "0")?;
    let list = Setting::begin(disk.irq_file("smp_affinity_list"), &show_list(&away_cpus))?;
    // The last CPU of the disk's own node is for the tool.
    affinity::pin(&home_cpus[home_cpus.len() - 1..])
        .map_err(|error| format!("staying on a CPU of node {}: {error}", disk.node))?;
    let mut watch = Watch::every(EVERY)?;
    let work = Work::start_now("reads", &[&show_list(&away_cpus), "4", "8"])?;
    // Requests that always wait keep the CPU of the interrupt busy: a kernel that samples sees no interrupts of an idle one.
    let handles = settled(&disk, &away_cpus)?;
    shell::pin_all(work.pid(), &[handles])?;
    report.say(format_args!("interrupt {} of {} goes to CPU {handles}", disk.irq, disk.address));
    let off = Loop { severity: "info", ..Loop::of("interrupts-off-node") };
    let came = off.comes(report, &mut watch, HELD + SLACK + SLACK);
    say_nodes(report, &watch);
    came?;
    counted(report, &mut watch, &disk, plan)?;
    // On amd64 interrupts take 5 to 8 % of the node, and the rule asks for 10.
    let busy = Loop { severity: "info", ..Loop::of("interrupts-on-busy-node") };
    let on_busy = match std::env::consts::ARCH {
        "aarch64" => Some(busy.comes(report, &mut watch, LIVES + HELD + SLACK)?),
        _ => None,
    };
    let finding = off.close(report, &mut watch, SLACK)?;
    if let Some(on_busy) = &on_busy {
        // Its check is not asked: the readers stay where they are, and what wakes them is an interrupt there.
        busy.ends_too(report, &mut watch, [&finding, on_busy], HELD + SLACK)?;
    }
    say_nodes(report, &watch);
    report.equal("CPUs after the command", show_list(&home_cpus), list.get()?);
    report.check(
        std::fs::metadata(KEPT).is_ok_and(|kept| kept.len() > 0),
        format_args!("{KEPT}, which the first line keeps"),
        "lists",
        sysfs::read(KEPT).map_or_else(|why| why, |lists| format!("{} lists", lists.lines().count())),
    );
    undo(report, &finding)?;
    report.equal("CPUs after the way back", show_list(&away_cpus), list.get()?);
    watch.stop()?;
    let done = work.stop()?;
    report.say(format_args!("the program read {} times", done.truth["requests"]));
    Ok(())
}

/// The CPU among these that handles the interrupt of the disk. A list takes effect with the next interrupt.
fn settled(disk: &Disk, cpus: &[u32]) -> Result<u32, Stop> {
    let began = Instant::now();
    loop {
        let now = sysfs::list(disk.irq_file("effective_affinity_list"))?;
        match now[..] {
            [cpu] if cpus.contains(&cpu) => return Ok(cpu),
            _ if began.elapsed() > SLACK => {
                return Err(Stop::fail(format!("interrupt {} stays with CPUs {now:?}", disk.irq)));
            }
            _ => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Compares the rates of some intervals with /proc/interrupts before and after them. The case reads a moment after the tool.
fn counted(report: &mut Report, watch: &mut Watch, disk: &Disk, plan: &Plan) -> Result<(), Stop> {
    let mut late = 0.0;
    let mut next = |sums: &mut [f64], late: &mut f64| -> Result<Vec<u64>, Stop> {
        let interval = watch.next_interval()?;
        let seconds = interval["interval_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
        for (node, sum) in sums.iter_mut().enumerate() {
            *sum += number(interval, node as u32, "irqs_per_s") * seconds;
        }
        let found = disk.interrupts_by_node(plan)?;
        *late = Timestamp::now().duration_since(seen_at(interval)?).as_secs_f64();
        Ok(found)
    };
    let before = next(&mut [], &mut late)?;
    let (began, first_late) = (Instant::now(), late);
    let mut shown = vec![0.0; plan.machine.nodes.len()];
    let mut after = before.clone();
    for _ in 0..COUNTED {
        after = next(&mut shown, &mut late)?;
    }
    let took = began.elapsed().as_secs_f64();
    let late = first_late + late;
    for (node, shown) in shown.iter().enumerate() {
        let truth = (after[node] - before[node]) as f64;
        let slack = truth * (0.02 + late / took);
        report.check(
            (shown - truth).abs() <= slack + 5.0,
            format_args!("interrupts that node {node} handled in {COUNTED} intervals"),
            format_args!("{truth} ± {slack:.0}, for 2 % and {late:.2} s"),
            format_args!("{shown:.0}"),
        );
    }
    let all: f64 = (0..2).map(|node| number(watch.last(), node, "irqs_per_s")).sum();
    let of_node = number(watch.last(), disk.node, "device_irqs_per_s");
    report.close("interrupts of devices on its node", all, of_node, 0.001);
    Ok(())
}

fn number(interval: &Value, node: u32, metric: &str) -> f64 {
    row(interval, &format!("node {node}")).and_then(|row| row[metric].as_f64()).unwrap_or(f64::NAN)
}
