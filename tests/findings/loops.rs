//! Closed loops of made-up machines. The printed command is carried out in the world, the check comes true in
//! time, the finding ends by itself, and the undo command brings it back. Guests test real kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numatop_ng::finding::{Check, Engine, Finding, Options, Severity};
use numatop_ng::model::group::Group;
use numatop_ng::model::sample::{CgroupFacts, CgroupMode, FilePages, Sample, VmStat};
use numatop_ng::model::topology::parse_cpulist;
use numatop_ng::model::units::NodeId;
use numatop_ng::snapshot::{RowKind, Snapshot, derive};

use crate::sick_worlds as worlds;
use crate::world::{
    Actor, BOOT_NS, DOCKER, GIB, Machine, PLAIN, S, SERVICE, TWO, each_second, files, lines, machine, pages,
    value_of,
};

/// A machine with its engine, one second after the other.
struct Loop {
    machine: Machine,
    engine: Engine,
    last: Sample,
    snapshot: Option<Snapshot>,
}

impl Loop {
    fn new(mut machine: Machine) -> Loop {
        let last = machine.tick();
        Loop { machine, engine: Engine::new(Options::default()), last, snapshot: None }
    }

    /// Watches for `seconds` seconds.
    fn watch(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let sample = self.machine.tick();
            let snapshot = derive(&self.machine.host, Some(&self.last), &sample, RowKind::Processes);
            self.engine.take(&snapshot);
            (self.last, self.snapshot) = (sample, Some(snapshot));
        }
    }

    fn finding(&self, id: &str) -> Option<&Finding> {
        self.engine.findings().iter().find(|finding| finding.key.id == id)
    }

    /// The value of a check's metric in the last interval.
    fn value(&self, check: &Check) -> f64 {
        let read = value_of(check, self.snapshot.as_ref().unwrap()).unwrap();
        read.unwrap().number().unwrap()
    }

    /// Whether a check has come true.
    fn is_true(&self, check: &Check) -> bool {
        let value = self.value(check);
        if check.below { value <= check.to } else { value >= check.to }
    }
}

/// Carries out a command line on the machine as the kernel and container engines would: memory moves and CPUs
/// change, whatever else the line contains.
fn carry_out(machine: &mut Machine, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let list = |text: &str| parse_cpulist(text).unwrap();
    match words[..] {
        ["migratepages", pid, from, to] => {
            let (pid, from, to): (u32, Vec<u32>, Vec<u32>) = (pid.parse().unwrap(), list(from), list(to));
            assert!(!from.iter().any(|node| to.contains(node)), "{line}");
            for actor in machine.actors.iter_mut().filter(|actor| actor.pid == pid) {
                let mut moved = 0;
                for node in &from {
                    moved += std::mem::take(&mut actor.memory[*node as usize]);
                }
                for node in &to {
                    actor.memory[*node as usize] += moved / to.len() as u32;
                }
            }
        }
        ["taskset", "-acp", cpus, pid] => {
            bind(machine, &list(cpus), |actor| actor == pid.parse::<u32>().unwrap());
        }
        ["sysctl", "-w", setting] => match setting.split_once('=').unwrap() {
            ("vm.zone_reclaim_mode", mode) => machine.vm.zone_reclaim_mode = Some(mode.parse().unwrap()),
            ("kernel.numa_balancing_promote_rate_limit_MBps", limit) => {
                machine.tier_switches.insert("promote_rate_limit_mbs".to_owned(), limit.parse().unwrap());
            }
            ("kernel.numa_balancing", mode) => machine.state.numa_balancing = Some(mode.parse().unwrap()),
            other => panic!("{other:?}"),
        },
        ["docker", "update", "--cpuset-cpus", cpus, "--cpuset-mems", mems, id] => {
            let names = Arc::clone(&machine.names);
            let cgroup = *names.groups.iter().find(|(_, group)| group.id.as_deref() == Some(id)).unwrap().0;
            let mut raw = (*machine.groups[&cgroup]).clone();
            (raw.cpus, raw.mems) = (Ok(cpus.into()), Ok(mems.into()));
            machine.groups.insert(cgroup, Arc::new(raw));
            let pids: BTreeSet<u32> =
                machine.actors.iter().filter(|actor| actor.cgroup == cgroup).map(|actor| actor.pid).collect();
            bind(machine, &list(cpus), |pid| pids.contains(&pid));
            // cpuset.mems of cgroup v2 moves the memory on other nodes.
            let mems = list(mems);
            for actor in machine.actors.iter_mut().filter(|actor| pids.contains(&actor.pid)) {
                let away: u32 =
                    (0..).zip(&actor.memory).filter(|(node, _)| !mems.contains(node)).map(|(_, n)| n).sum();
                for (node, parts) in (0..).zip(&mut actor.memory) {
                    *parts = if mems.contains(&node) { *parts + away / mems.len() as u32 } else { 0 };
                }
            }
        }
        ["docker", "update", "--cpus", cpus, id] => {
            let group = |group: &Group| group.id.as_deref() == Some(id);
            let cgroup = *machine.names.groups.iter().find(|(_, its)| group(its)).unwrap().0;
            set_quota(machine, cgroup, cpus.parse::<f64>().unwrap() * 1000.0);
        }
        ["echo", quota, period, ">", file] if file.ends_with("/cpu.max") => {
            let path = file.strip_prefix("/sys/fs/cgroup").unwrap().strip_suffix("/cpu.max").unwrap();
            let cgroup = *machine.names.cgroups.iter().find(|(_, its)| *its == path).unwrap().0;
            let us = |word: &str| word.trim_matches('"').parse::<f64>().unwrap();
            set_quota(machine, cgroup, us(quota) * 1000.0 / us(period));
        }
        // Saves the current state.
        ["grep", ".", "/proc/irq/*/smp_affinity_list", ">", _] => {}
        [
            "for",
            "i",
            "in",
            irqs,
            "do",
            "echo",
            cpus,
            ">",
            "/proc/irq/${i##*/}/smp_affinity_list;",
            "done",
        ] => {
            let address = irqs.strip_prefix("/sys/bus/pci/devices/").unwrap().strip_suffix("/msi_irqs/*;");
            let nodes: BTreeSet<_> =
                list(cpus).into_iter().filter_map(|cpu| machine.host.node_of(cpu)).collect();
            let topology = &mut Arc::make_mut(&mut machine.host).topology;
            let mut devices = topology.nodes.iter_mut().flat_map(|node| &mut node.devices);
            let device = devices.find(|device| device.pci.as_deref() == address).unwrap();
            device.irq_nodes = nodes.iter().copied().collect();
            let rates = machine.irq_rates.iter().filter(|((of, _), _)| Some(of.as_str()) == address);
            let rate: u64 = rates.map(|(_, rate)| rate).sum();
            machine.irq_rates.retain(|(of, _), _| Some(of.as_str()) != address);
            for node in &nodes {
                let at = (address.unwrap().to_owned(), node.0);
                machine.irq_rates.insert(at, rate / nodes.len() as u64);
            }
        }
        ["echo", amount, "swappiness=0\"", ">", file] if file.ends_with("/memory.reclaim") => {
            let path = file.strip_prefix("/sys/fs/cgroup").unwrap().strip_suffix("/memory.reclaim").unwrap();
            let cgroup = *machine.names.cgroups.iter().find(|(_, its)| *its == path).unwrap().0;
            let mib: u64 = amount.trim_start_matches('"').trim_end_matches('M').parse().unwrap();
            let cache =
                Arc::make_mut(machine.groups.get_mut(&cgroup).unwrap()).cache_by_node.as_mut().unwrap();
            let all: u64 = cache.values().sum();
            // The kernel answers EAGAIN.
            assert!(mib << 20 < all, "{line}: more than there is");
            for (node, bytes) in cache {
                let freed = ((mib << 20) as f64 * *bytes as f64 / all as f64) as u64;
                *bytes -= freed;
                let of_node = &mut machine.nodes[*node as usize];
                of_node.mem_free_bytes += freed;
                if let Some(pages) = &mut of_node.file_pages {
                    pages.inactive_bytes = pages.inactive_bytes.saturating_sub(freed);
                }
            }
        }
        ["echo", "1", ">", "/proc/sys/vm/drop_caches"] => {
            for node in &mut machine.nodes {
                node.mem_free_bytes += std::mem::take(&mut node.mem_file_bytes);
                node.file_pages = None;
            }
        }
        _ => panic!("nothing carries out {line}"),
    }
}

fn set_quota(machine: &mut Machine, cgroup: u64, milli: f64) {
    Arc::make_mut(machine.groups.get_mut(&cgroup).unwrap()).cpu_quota_milli = Ok(Some(milli as u64));
}

/// Binds threads to CPUs: threads bound one by one take one CPU each, others the nodes of the CPUs.
fn bind(machine: &mut Machine, cpus: &[u32], is_one: impl Fn(u32) -> bool) {
    let cores = machine.host.topology.cores;
    let nodes: BTreeSet<u32> =
        cpus.iter().filter_map(|cpu| machine.host.node_of(*cpu)).map(|node| node.0).collect();
    let mut next = cpus.iter().cycle();
    for actor in machine.actors.iter_mut().filter(|actor| is_one(actor.pid)) {
        actor.cpu_nodes = Some(nodes.iter().fold(0, |mask, node| mask | 1 << node));
        if actor.pinned.is_some() {
            actor.pinned = next.next().copied();
        } else {
            let all: f64 = actor.runs.iter().map(|(_, pct)| pct).sum();
            actor.runs = nodes.iter().map(|node| (*node, all / nodes.len() as f64)).collect();
        }
    }
    // A thread whose core is its own has an idle sibling; the worlds say what a busy one is.
    let taken: Vec<u32> =
        machine.actors.iter().filter_map(|actor| actor.pinned).map(|cpu| cpu % cores).collect();
    for actor in machine.actors.iter_mut().filter(|actor| actor.smt_busy.is_some()) {
        let core = actor.pinned.map(|cpu| cpu % cores);
        let shared = taken.iter().filter(|other| Some(**other) == core).count() > 1;
        actor.smt_busy = Some(if shared { 0.9 } else { 0.0 });
    }
}

fn command_lines(commands: &[numatop_ng::finding::Command]) -> Vec<String> {
    use numatop_ng::finding::When;
    let now = commands.iter().filter(|command| command.when == When::Now);
    now.filter_map(|command| Some(command.line.as_ref()?.to_string())).collect()
}

/// Carries out the lines of a finding in this order; its checks come true and the finding ends.
fn closes(id: &str, world: Machine, seconds: u64) -> (Loop, Finding) {
    let mut closed = Loop::new(world);
    closed.watch(seconds);
    let finding = closed.finding(id).unwrap_or_else(|| panic!("{id}: {:?}", lines(&closed.engine))).clone();
    let commands = command_lines(&finding.advice.commands);
    assert!(!commands.is_empty(), "{id} prints nothing to do now");
    let grave = |engine: &Engine| -> BTreeMap<String, Severity> {
        let all = engine.findings().iter().chain(engine.ended());
        all.filter(|finding| finding.severity > Severity::Info)
            .map(|finding| (format!("{:?}", finding.key), finding.severity))
            .collect()
    };
    let before = grave(&closed.engine);
    commands.iter().for_each(|line| carry_out(&mut closed.machine, line));
    assert!(!finding.advice.check.is_empty(), "{id} has nothing to check");
    let within = finding.advice.check.iter().map(|check| check.within_s as u64).max().unwrap();
    closed.watch(within);
    for check in &finding.advice.check {
        assert!(closed.is_true(check), "{id}: {check:?} is {}", closed.value(check));
    }
    let off = numatop_ng::finding::rules::by_id(id).unwrap().hold.off_s as u64;
    closed.watch(off + 5);
    assert!(closed.finding(id).is_none(), "{id} goes on: {:?}", lines(&closed.engine));
    let ended = closed.engine.ended().any(|ended| ended.key == finding.key);
    assert!(ended, "{id} did not end");
    // Nor does a cure make a finding, in this minute or the next.
    closed.watch(60);
    assert_eq!(grave(&closed.engine), before, "{id}: what its cure makes");
    // The stop condition, which asks for the undo, has not come true.
    for stop in &finding.advice.stop {
        let gone = !closed.snapshot.as_ref().unwrap().tasks.is_empty() && closed.is_true(stop);
        assert!(!gone, "{id}: {stop:?} says to undo it");
    }
    (closed, finding)
}

/// The same, and what undoes it brings it back.
fn closes_and_opens(id: &str, world: Machine, seconds: u64) {
    let (mut closed, finding) = closes(id, world, seconds);
    let undo = command_lines(&finding.advice.undo);
    assert!(!undo.is_empty(), "{id} cannot be undone");
    undo.iter().for_each(|line| carry_out(&mut closed.machine, line));
    closed.watch(seconds + 5);
    assert!(closed.finding(id).is_some(), "{id} is not restored: {:?}", lines(&closed.engine));
}

#[test]
fn remote_after_pin() {
    // A part of its memory was on node 0 from the start: no line could separate it from the moved part.
    let (_, finding) = closes("remote-after-pin", worlds::pinned_late(), 40);
    assert!(command_lines(&finding.advice.undo).is_empty() && !finding.advice.undo.is_empty());
}

#[test]
fn memory_on_other_node() {
    let (_, finding) = closes("memory-on-other-node", worlds::other_node(), 70);
    assert!(command_lines(&finding.advice.undo).is_empty() && !finding.advice.undo.is_empty());
}

#[test]
fn a_container_that_is_spread_over_nodes() {
    closes_and_opens("spread-over-nodes", worlds::backends("0-31", true), 40);
    closes_and_opens("spread-over-nodes", worlds::backends("0,8,16,24", true), 40);
}

#[test]
fn tier_ping_pong() {
    closes_and_opens("tier-ping-pong", crate::tiers::tier_ping_pong::world(), 70);
}

#[test]
fn cpus_and_memory_apart() {
    closes_and_opens("cpus-and-memory-apart", worlds::apart("0-3", "1"), 20);
}

#[test]
fn spread_over_nodes() {
    // A process that is bound to two nodes moves less between nodes.
    let mut world = worlds::spread();
    each_second(&mut world, |machine, _| {
        let few = machine.actors[0].runs.len() <= 2;
        machine.actors[0].node_moves = if few { 2 } else { 40 };
    });
    closes("spread-over-nodes", world, 40);
}

#[test]
fn page_cache_fills_node() {
    closes("page-cache-fills-node", worlds::page_cache(), 40);
}

#[test]
fn page_cache_of_one_owner() {
    let (last, found) = closes("page-cache-fills-node", worlds::owned_page_cache(), 40);
    assert!(found.advice.sentence.contains("(94 % 3c0f6a4c2b9f)"), "{}", found.advice.sentence);
    let cache = |id: u64| last.machine.groups[&id].cache_by_node.clone().unwrap();
    assert!(cache(worlds::BACKUP)[&0] < 32 * GIB && cache(SERVICE)[&0] == GIB);
}

#[test]
fn zone_reclaim() {
    let mut world = worlds::zone_reclaim();
    each_second(&mut world, |machine, _| {
        let on = machine.vm.zone_reclaim_mode != Some(0);
        machine.nodes[1].node_reclaims += if on { 240 } else { 0 };
    });
    closes_and_opens("zone-reclaim", world, 20);
}

#[test]
fn balancing_cost() {
    let mut world = worlds::balancing();
    // Scans take their time while balancing is on.
    let scans = world.actors[0].per_second.clone();
    each_second(&mut world, move |machine, _| {
        let on = machine.state.numa_balancing != Some(0);
        machine.actors[0].per_second = if on { scans.clone() } else { Default::default() };
    });
    closes_and_opens("balancing-cost", world, 70);
}

#[test]
fn balancing_ping_pong() {
    let mut world = crate::balancing::balancing_ping_pong::world(2000, 2000);
    let (moves, flows) = (world.actors[0].per_second.clone(), world.page_flow_rates.clone());
    each_second(&mut world, move |machine, _| {
        let on = machine.state.numa_balancing != Some(0);
        machine.actors[0].per_second = if on { moves.clone() } else { Default::default() };
        machine.page_flow_rates = if on { flows.clone() } else { Default::default() };
    });
    closes_and_opens("balancing-ping-pong", world, 100);
}

#[test]
fn sibling_contention() {
    let mut world = worlds::siblings(0.9);
    // The synthetic machine gives the cost of a sibling in its two states; here its speed follows, too.
    each_second(&mut world, |machine, _| {
        for actor in &mut machine.actors {
            actor.ipc = if actor.smt_busy > Some(0.5) { 1.0 } else { 1.6 };
        }
    });
    closes("sibling-contention", world, 70);
}

#[test]
fn shared_cores() {
    let mut world = worlds::shared_siblings();
    world.actors.iter_mut().for_each(|actor| actor.smt_busy = Some(0.9));
    closes_and_opens("shared-cores", world, 70);
}

/// A group that its quota of 1.5 CPUs stops in bursts, which one of 3 CPUs has room for.
fn bursts(cgroup: u64) -> Machine {
    let mut world = machine(TWO, vec![Actor { cgroup, ..Actor::new(600, "ads").runs(&[(0, 110.0)]) }]);
    let mut raw = files("0-31", "0-1");
    raw.cpu_quota_milli = Ok(Some(1500));
    world.groups = [(cgroup, Arc::new(raw))].into();
    Arc::make_mut(&mut world.host).cgroups = Some(CgroupFacts {
        mode: CgroupMode::V2,
        memory_migrate: None,
        memory_spread_page: None,
        memory_spread_slab: None,
    });
    let mut throttled_ns = 0;
    each_second(&mut world, move |machine, second| {
        let raw = Arc::make_mut(machine.groups.get_mut(&cgroup).unwrap());
        let before = second.checked_sub(1).map(|before| (BOOT_NS + before * S, throttled_ns));
        throttled_ns += if raw.cpu_quota_milli.as_ref().unwrap() < &Some(3000) { 800_000_000 } else { 0 };
        (raw.read_ns, raw.throttled_ns, raw.throttled_before) =
            (BOOT_NS + second * S, Ok(throttled_ns), before);
    });
    world
}

#[test]
fn quota_throttled() {
    closes_and_opens("quota-throttled", bursts(DOCKER), 70);
    // A cgroup of cgroup v2 that no manager writes has a file for it.
    closes_and_opens("quota-throttled", bursts(PLAIN), 70);
}

#[test]
fn slow_tier_memory() {
    closes("slow-tier-memory", crate::tiers::slow_tier_memory::world(), 130);
}

#[test]
fn lopsided_nodes() {
    closes_and_opens("lopsided-nodes", crate::nodes::lopsided_nodes::world(), 70);
}

/// Case 4, in its first form: the machine swaps as long as the node has something.
#[test]
fn bound_to_full_node() {
    let mut world = worlds::bound_and_full();
    world.actors[0].rss = 40 << 30;
    each_second(&mut world, |machine, _| node_1_is_full(machine, true));
    closes_and_opens("bound-to-full-node", world, 20);
}

/// A process that runs on node 0, and whose memory fills node 1.
fn elsewhere() -> Actor {
    Actor { rss: 40 << 30, memory: pages(100), ..Actor::new(500, "cache").runs(&[(0, 100.0)]) }
}

/// Node 1 is full while the first process has its memory there, and its pages are swapped or only reclaimed.
fn node_1_is_full(machine: &mut Machine, swaps: bool) {
    let full = machine.actors[0].memory[1] > 0;
    machine.nodes[1].mem_free_bytes = if full { 2 } else { 42 } << 30;
    machine.nodes[0].mem_free_bytes = if full { 60 } else { 20 } << 30;
    machine.nodes[1].direct_pages += if full { 1000 } else { 0 };
    machine.vm.swapped_out += if full && swaps { 3584 } else { 0 };
}

#[test]
fn node_short_of_memory() {
    let mut world = machine(TWO, vec![elsewhere()]);
    let [active_bytes, inactive_bytes] = [1 << 29, 1 << 30];
    let file_pages = FilePages { active_bytes, inactive_bytes, shmem_bytes: 0, dirty_bytes: 0 };
    world.nodes[1].file_pages = Some(file_pages);
    world.groups = [(1, Arc::new(files("0-31", "0-1")))].into();
    each_second(&mut world, |machine, _| node_1_is_full(machine, false));
    closes_and_opens("node-short-of-memory", world, 20);
}

#[test]
fn swap_while_memory_free() {
    let mut world = machine(TWO, vec![elsewhere()]);
    world.groups = [(1, Arc::new(files("0-31", "0-1")))].into();
    each_second(&mut world, |machine, _| node_1_is_full(machine, true));
    closes_and_opens("swap-while-memory-free", world, 20);
}

#[test]
fn idle_elsewhere() {
    let waits = Actor { switches: 160, rss: 8 << 30, memory: pages(0), ..Actor::new(600, "nginx") };
    let spin = Actor::new(601, "spin").runs(&[(0, 1150.0)]);
    let mut world = machine(TWO, vec![waits.runs(&[(0, 400.0)]), spin]);
    each_second(&mut world, |machine, _| {
        let beside = machine.actors[0].runs.iter().any(|(node, pct)| *node == 0 && *pct > 300.0);
        machine.actors[0].wait_pct = if beside { 80.0 } else { 0.0 };
    });
    closes("idle-elsewhere", world, 40);
}

#[test]
fn far_network() {
    let mut world = crate::sockets::far_network::world();
    each_second(&mut world, |machine, _| {
        let on =
            machine.actors[0].runs.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(node, _)| *node);
        machine.socket_rates.iter_mut().for_each(|(_, route, _)| route.to = NodeId(on));
    });
    closes("far-network", world, 70);
}

#[test]
fn gpu_away() {
    closes("gpu-away", crate::devices::gpu_away::world(), 70);
}

#[test]
fn interrupts_on_busy_node() {
    let mut world = worlds::interrupts();
    each_second(&mut world, |machine, _| {
        let device = &machine.host.topology.nodes[0].devices[0];
        let there = u32::from(device.irq_nodes != [numatop_ng::model::units::NodeId(0)]);
        for cpu in &mut machine.cpus {
            *cpu.irq_ns.get_or_insert_default() += if cpu.node == there { 142 } else { 11 } * 1_000_000;
        }
    });
    closes_and_opens("interrupts-on-busy-node", world, 70);
}

#[test]
fn interrupts_off_node() {
    let mut world = worlds::interrupts();
    let address = "0000:3b:00.0".to_owned();
    world.irq_rates = [((address, 1), 40_000)].into();
    let topology = &mut Arc::make_mut(&mut world.host).topology;
    topology.nodes[0].devices[0].irq_nodes = vec![numatop_ng::model::units::NodeId(1)];
    each_second(&mut world, |machine, _| {
        let rates = machine.irq_rates.clone();
        for cpu in &mut machine.cpus {
            let of_node: u64 =
                rates.iter().filter(|((_, node), _)| *node == cpu.node).map(|(_, rate)| rate).sum();
            *cpu.irq_ns.get_or_insert_default() += of_node * 1_000;
        }
    });
    closes_and_opens("interrupts-off-node", world, 70);
}

#[test]
fn a_wrong_command_does_not_close_the_loop() {
    let mut open = Loop::new(worlds::pinned_late());
    open.watch(40);
    let finding = open.finding("remote-after-pin").unwrap().clone();
    carry_out(&mut open.machine, "migratepages 4242 0 1");
    open.watch(60);
    assert!(finding.advice.check.iter().any(|check| !open.is_true(check)));
    assert!(open.finding("remote-after-pin").is_some());
}

#[test]
fn a_world_without_a_finding_has_nothing_to_do() {
    let actor = Actor { memory: pages(0), rss: 4 << 30, ..Actor::new(500, "work") };
    let mut quiet = Loop::new(machine(TWO, vec![actor.runs(&[(0, 200.0)])]));
    quiet.watch(100);
    assert!(quiet.engine.findings().is_empty(), "{:?}", lines(&quiet.engine));
    assert!(quiet.engine.watched_ns() >= 99 * S && quiet.last.vm != Some(VmStat::default()));
}
