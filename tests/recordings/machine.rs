//! An imagined machine whose tasks come, run and go; the same numbers every time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::Book;
use numatop_ng::host::topology::Topology;
use numatop_ng::pmu::event::Event;
use numatop_ng::sample::{
    Comm, Counts, CpuRaw, HostFacts, Missing, Names, NodeRaw, OwnRaw, Sample, Slot, TaskRaw,
};

const SECOND: u64 = 1_000_000_000;
/// 2026-01-02T03:04:05Z.
pub const BEGAN: i64 = 1_767_323_045 * SECOND as i64;

pub fn host() -> HostFacts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts/no-cache");
    HostFacts {
        hostname: "imagined".into(),
        kernel: "6.12.0".into(),
        arch: "x86_64".into(),
        cpu_model: "Imagined CPU".into(),
        boot_id: "00000000-0000-0000-0000-000000000001".into(),
        topology: Topology::read(&root).unwrap(),
        events: Event::parse_list("basic,page-faults").unwrap(),
        missing: [("smt_busy_pct".to_string(), Missing::Unsupported("one thread each".into()))].into(),
        scope: "user web".into(),
        tables: Vec::new(),
    }
}

/// Makes one sample after the other.
pub struct Machine {
    seed: u64,
    /// Tasks of a hundred that run in an interval, and of a thousand that end and are followed by others.
    pub active: u64,
    pub churn: u64,
    next: u64,
    sample: Sample,
    running: Vec<bool>,
}

fn names(cgroups: BTreeMap<u64, String>) -> Names {
    Names {
        users: [(0, "root".to_string()), (33, "web".to_string())].into(),
        groups: describe(&cgroups, &BTreeMap::new(), &mut Book::new(Path::new("/nonexistent"))),
        cgroups,
    }
}

impl Machine {
    pub fn new(tasks: usize) -> Machine {
        let cpu = |id| CpuRaw { id, node: id / 4, online: true, ..CpuRaw::default() };
        let node =
            |id| NodeRaw { id, mem_total_bytes: 64 << 30, mem_free_bytes: 8 << 30, ..Default::default() };
        let mut machine = Machine {
            seed: 42,
            active: 16,
            churn: 10,
            next: 0,
            sample: Sample {
                wall_ns: BEGAN,
                mono_ns: 1000 * SECOND,
                boot_ns: 1000 * SECOND,
                tasks: Vec::new(),
                exited: Vec::new(),
                cpus: (0..8).map(cpu).collect(),
                nodes: (0..2).map(node).collect(),
                vm: None,
                flows: Vec::new(),
                page_flows: Vec::new(),
                lost: BTreeMap::from([("exits_not_itemised".to_string(), 0)]),
                exit_lost_ns: vec![0, 0],
                own: OwnRaw::default(),
                groups: BTreeMap::new(),
                placement: Default::default(),
                about: Arc::default(),
                hot: None,
                names: Arc::new(names(
                    [(1, "/".to_string()), (7, "/system.slice/web.service".to_string())].into(),
                )),
                notes: Vec::new(),
            },
            running: Vec::new(),
        };
        for _ in 0..tasks {
            machine.fork();
        }
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
        self.next += 1;
        let serial = self.next;
        let pid = 100 + serial as u32;
        let names = ["java", "postgres", "kworker/3:1", "nginx", "redis-server", "Ünïcödé"];
        let comm = Comm::new(names[self.random(names.len() as u64) as usize]);
        let start_ns = self.sample.boot_ns;
        let active = self.active;
        let runs = self.random(100) < active;
        self.running.push(runs);
        self.sample.tasks.push(Arc::new(TaskRaw {
            serial,
            pid,
            tid: pid,
            ppid: 1,
            uid: if serial.is_multiple_of(3) { 33 } else { 0 },
            start_ns,
            leader_start_ns: start_ns,
            cgroup_id: 7,
            comm,
            state: 1,
            exit_state: 0,
            policy: 0,
            nice: -5,
            cpu: 3,
            cpus_allowed: 8,
            kthread: false,
            rss_bytes: 4096 * serial,
            exec_ns: 0,
            preferred_node: None,
            scan_period_ms: 1000,
            numa_group: 0,
            mempolicy: Default::default(),
            counts: Counts { run_ns: vec![0, 0], ..Counts::default() },
        }));
    }

    fn run(&mut self, at: usize) {
        let ns = self.random(SECOND / 50);
        let (node, switches, cpu) = (self.random(2) as usize, self.random(500), self.random(8));
        let noise = self.random(1000);
        let task = Arc::make_mut(&mut self.sample.tasks[at]);
        task.cpu = cpu as u32;
        task.exec_ns += ns;
        task.rss_bytes += if noise < 100 { noise * 4096 } else { 0 };
        task.preferred_node = (noise < 900).then_some(numatop_ng::units::Nid(node as u32));
        let counts = &mut task.counts;
        counts.run_ns[node] += ns;
        counts.run_count += switches;
        counts.nvcsw += switches - switches / 10;
        counts.nivcsw += switches / 10;
        counts.run_delay_ns += ns / 7;
        counts.min_flt += noise;
        counts.slots[0].count += ns * 3;
        counts.slots[1].count += ns * 2 + noise;
        counts.slots[2].count += noise;
        let cpu = &mut self.sample.cpus[cpu as usize];
        cpu.busy_ns += ns;
        cpu.switches += switches;
        cpu.slots[0] = Slot { count: cpu.busy_ns * 3, enabled_ns: cpu.busy_ns, running_ns: cpu.busy_ns / 2 };
    }

    /// One second passes.
    pub fn tick(&mut self) -> Sample {
        self.sample.wall_ns += SECOND as i64;
        self.sample.mono_ns += SECOND;
        self.sample.boot_ns += SECOND;
        self.sample.exited.clear();
        self.sample.notes.clear();
        for at in 0..self.sample.tasks.len() {
            // Who runs goes on running, mostly.
            if self.random(20) == 0 {
                let active = self.active;
                self.running[at] = self.random(100) < active;
            }
            if self.running[at] {
                self.run(at);
            }
        }
        let tasks = self.sample.tasks.len() as u64;
        let ends = tasks * self.churn / 1000;
        for _ in 0..ends {
            let at = self.random(tasks - ends) as usize;
            let ended = self.sample.tasks.remove(at);
            self.running.remove(at);
            self.sample.exited.push(ended);
            self.fork();
        }
        for node in &mut self.sample.nodes {
            node.numa_hit += 1000 + u64::from(node.id);
            node.local_node += 900;
        }
        self.sample.own.cpu_ns += 3_000_000;
        self.sample.own.sample_ns = 1_500_000 + self.seed % 1000;
        self.sample.clone()
    }

    pub fn ticks(&mut self, count: usize) -> Vec<Sample> {
        (0..count).map(|_| self.tick()).collect()
    }
}
