//! The made-up machine with many tasks that come, run and go by chance; the same numbers every time.

use std::collections::BTreeMap;
use std::path::Path;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::Event;
use numatop_ng::model::sample::{Counts, HostFacts, Missing, Names, Sample};
use numatop_ng::source::synthetic::{self, Actor};

/// 2026-01-02T03:04:05Z.
pub const BEGAN: i64 = synthetic::WALL_NS;

const COMMS: [&str; 6] = ["java", "postgres", "kworker/3:1", "nginx", "redis-server", "Ünïcödé"];

pub fn host() -> HostFacts {
    HostFacts {
        hostname: "imagined".into(),
        kernel: "6.12.0".into(),
        arch: "x86_64".into(),
        cpu_model: "Imagined CPU".into(),
        boot_id: "00000000-0000-0000-0000-000000000001".into(),
        events: Event::parse_list("basic,page-faults").unwrap(),
        missing: [("smt_busy_pct".to_string(), Missing::Unsupported("one thread each".into()))].into(),
        scope: "user web".into(),
        ..HostFacts::of(numatop_ng::host::topology::read(&crate::fixture::tree("hosts/no-cache")).unwrap())
    }
}

fn names() -> Names {
    let cgroups = BTreeMap::from([(1, "/".to_string()), (7, "/system.slice/web.service".to_string())]);
    Names {
        users: [(0, "root".to_string()), (33, "web".to_string())].into(),
        groups: describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent"))),
        cgroups,
    }
}

/// Makes one sample after the other.
pub struct Machine {
    seed: u64,
    /// Tasks of a hundred that run in an interval, and of a thousand that end and are followed by others.
    pub active: u64,
    pub churn: u64,
    forked: u32,
    second: u64,
    machine: synthetic::Machine,
}

impl Machine {
    pub fn new(tasks: usize) -> Machine {
        let mut machine = synthetic::Machine::new(host(), names(), vec![]);
        machine.lost = BTreeMap::from([("exits_not_itemised".to_string(), 0)]);
        let mut machine = Machine { seed: 42, active: 16, churn: 10, forked: 0, second: 0, machine };
        for _ in 0..tasks {
            machine.fork();
        }
        machine.machine.tick();
        machine
    }

    fn random(&mut self, below: u64) -> u64 {
        // xorshift64: good enough to be uneven.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn fork(&mut self) {
        self.forked += 1;
        let pid = 100 + self.forked;
        let comm = COMMS[self.random(COMMS.len() as u64) as usize];
        let asleep = self.random(100) >= self.active;
        self.machine.actors.push(Actor {
            uid: if self.forked.is_multiple_of(3) { 33 } else { 0 },
            cgroup: 7,
            rss: 4096 * u64::from(self.forked),
            nice: -5,
            ipc: 0.67,
            scan_period_ms: 1000,
            smt_busy: Some(0.0),
            last_cpu: Some(3),
            start_ns: Some(synthetic::BOOT_NS + self.second * 1_000_000_000),
            asleep,
            ..Actor::new(pid, comm)
        });
    }

    /// Chooses what a task does in the next second.
    fn choose(&mut self, at: usize) {
        let pct = self.random(20_000_000) as f64 / 1e7;
        let (node, switches, cpu) = (self.random(2) as u32, self.random(500), self.random(8) as u32);
        let noise = self.random(1000);
        let actor = &mut self.machine.actors[at];
        actor.runs = vec![(node, pct)];
        actor.switches = switches;
        actor.last_cpu = Some(cpu);
        actor.wait_pct = 1.0;
        actor.rss += if noise < 100 { noise * 4096 } else { 0 };
        actor.preferred_node = (noise < 900).then_some(node);
        actor.per_second = Counts::from([(Counter::MinFlt, noise), (Counter::Nivcsw, switches / 10)]);
    }

    /// One second passes.
    pub fn tick(&mut self) -> Sample {
        self.second += 1;
        for at in 0..self.machine.actors.len() {
            // A running task keeps running, mostly.
            if self.random(20) == 0 {
                let asleep = self.random(100) >= self.active;
                self.machine.actors[at].asleep = asleep;
            }
            if !self.machine.actors[at].asleep {
                self.choose(at);
            }
        }
        let mut alive: Vec<usize> = (0..self.machine.actors.len()).collect();
        let ends = alive.len() as u64 * self.churn / 1000;
        for _ in 0..ends {
            let at = self.random(alive.len() as u64 - ends) as usize;
            self.machine.actors[alive.remove(at)].ends = Some(self.second);
            alive.push(self.machine.actors.len());
            self.fork();
        }
        let (second, busy) = (self.second, self.seed);
        for node in &mut self.machine.nodes {
            (node.numa_hit, node.local_node) = ((1000 + u64::from(node.id)) * second, 900 * second);
        }
        for cpu in &mut self.machine.cpus {
            // Its first counter takes turns with others.
            cpu.slots[0].enabled_ns = cpu.busy_ns;
            cpu.slots[0].running_ns = cpu.busy_ns / 2;
        }
        let mut sample = self.machine.tick();
        sample.own.sample_ns += busy % 1000;
        sample
    }

    pub fn ticks(&mut self, count: usize) -> Vec<Sample> {
        (0..count).map(|_| self.tick()).collect()
    }
}
