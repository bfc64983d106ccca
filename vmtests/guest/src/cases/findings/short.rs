//! A node that is full while another one is free, of processes that cannot leave it and of one whose memory can:
//! `swap-while-memory-free`, and `node-short-of-memory` where the kernel cannot free pages as quickly as they are wanted.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::{Watch, holds};
use super::{Loop, SLACK, STAYS, memory_is_on, say_nodes, shell, two_nodes, undo};
use crate::affinity;
use crate::disk::{Disk, Swap};
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::rest::Balancing;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const SWAPS: Case = Case {
    name: "findings_swaps",
    about: "node 0 is full and kswapd swaps while node 1 is free: the finding comes, its command sends memory that is used from node 1 \
            there, the finding ends, and the way back brings it to node 0 again",
    run: swaps,
};

pub const SHORT: Case = Case {
    name: "findings_short",
    about: "the same with a process that takes new memory more quickly than kswapd frees it: another finding comes, which explains that \
            about swapping; its command is the same, and both end",
    run: short,
};

/// A cgroup without a limit, so that none explains the swapping.
const GROUP: &str = "/stay";
/// The time that the conditions of both rules must hold.
const HELD: Duration = Duration::from_secs(20);
/// The memory that can go, and how much less than it does not fit.
const MOVES_MIB: u64 = 200;
const OVER_MIB: u64 = 140;
const SWAP: Loop<'static> = Loop { severity: "critical", ..Loop::of("swap-while-memory-free") };

fn swaps(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let mut world = World::begin(report, plan, "cycles")?;
    let finding = SWAP.close(report, &mut world.watch, HELD + SLACK + SLACK);
    say_nodes(report, &world.watch);
    world.end(report, &finding?)
}

fn short(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let mut world = World::begin(report, plan, "renews")?;
    let watch = &mut world.watch;
    let below = watch.until(HELD + SLACK + SLACK, |interval| SWAP.find(interval).is_some())?;
    let below = below.as_ref().and_then(|interval| SWAP.find(interval)).cloned();
    let beside = &[SWAP.id][..];
    let expected = Loop { severity: "critical", beside, ..Loop::of("node-short-of-memory") };
    let finding = expected.close(report, watch, HELD + SLACK);
    say_nodes(report, watch);
    let finding = finding?;
    let below = below.ok_or_else(|| Stop::fail(format!("no finding {}", SWAP.id)))?;
    let check = &below["check"][0];
    let cured = watch.until_stays(SLACK, STAYS, |interval| holds(interval, check) == Some(true))?;
    report.check(cured.is_some(), format_args!("the check of {}: {check}", SWAP.id), "true", cured.is_some());
    SWAP.ends_too(report, watch, [&finding, &below], HELD + SLACK)?;
    world.end(report, &finding)
}

struct World {
    watch: Watch,
    /// Its mapping is bound to node 0.
    stay: Work,
    /// All of its memory is there, too; it runs on node 1.
    moves: Work,
    _balancing: Balancing,
    _groups: Groups,
    // The last: swapped-out memory is read back when this ends, and has to be freed by then.
    _swap: Swap,
}

impl World {
    /// Two processes need more than node 0 has: one whose memory on it may leave, and one that uses more than
    /// the rest.
    fn begin(report: &mut Report, plan: &Plan, program: &str) -> Result<World, Stop> {
        two_nodes(plan)?;
        Disk::find(plan)?;
        let (_swap, _balancing) = (Swap::on()?, Balancing::off()?);
        let _groups = Groups::make(&["memory"], &[GROUP])?;
        let away = sysfs::node_cpus(1)?;
        affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
        // Locked: memory that is swapped in again comes to the node where it is used, which cures the problem
        // under test.
        let (cpu, mib) = (away[0].to_string(), MOVES_MIB.to_string());
        let moves = Work::start_now("numa_truth", &[&cpu, "100,0", &mib, "locked", "uniform"])?;
        let mut watch = Watch::start()?;
        watch.next_interval()?;
        let free = sysfs::node_memory_kib(0, "MemFree")? / 1024;
        report.say(format_args!("{free} MiB are free on node 0, and the program uses {OVER_MIB} more"));
        let home = sysfs::node_cpus(0)?;
        let mut stay = Work::start(program, &[&(free + OVER_MIB).to_string(), "0"])?;
        shell::pin_all(stay.pid(), &home)?;
        groups::write(GROUP, "cgroup.procs", &stay.pid().to_string())?;
        stay.go();
        Ok(World { watch, stay, moves, _balancing, _groups, _swap })
    }

    /// Looks where the memory is, and undoes the finding.
    fn end(self, report: &mut Report, finding: &serde_json::Value) -> Result<(), Stop> {
        memory_is_on(1, report, self.moves.pid(), "after the command")?;
        undo(report, finding)?;
        memory_is_on(0, report, self.moves.pid(), "after the way back")?;
        self.watch.stop()?;
        self.stay.stop()?;
        self.moves.stop()?;
        Ok(())
    }
}
