//! Machines that do the same every time: samples of made-up work on the hosts of tests/fixtures.

#![allow(dead_code, reason = "each test target uses a part")]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent};
use ratatui::layout::Rect;

use numatop_ng::analysis::filter::RowFilter;
use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::export::json::JsonLines;
use numatop_ng::export::{Export, Selection, all_columns};
use numatop_ng::metric::task::by_id;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::sample::{
    Comm, GroupCounters, GroupRaw, HostFacts, Missing, Names, PagesFound, PlacementRaw, Pressure, Sample,
};
use numatop_ng::model::stacks::StackBatch;
use numatop_ng::model::turns::TierPages;
use numatop_ng::pmu::sets::Choice;
use numatop_ng::snapshot::Snapshot;
use numatop_ng::source::synthetic::BOOT_NS;
use numatop_ng::tui::history::History;
use numatop_ng::tui::input::keymap::{KEYS, Key};
use numatop_ng::tui::input::{Action, Effect};
use numatop_ng::tui::theme::Theme;
use numatop_ng::tui::update::{self, Settings};

pub use numatop_ng::source::synthetic::{Actor, Machine};

pub mod hot;
pub mod screen;

const MS: u64 = 1_000_000;
/// A made-up machine on a host of tests/fixtures.
pub struct World(Machine);

impl Deref for World {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.0
    }
}

/// All rows and columns.
pub fn all_rows() -> Selection {
    Selection {
        filter: RowFilter::default(),
        columns: all_columns(),
        sort: by_id("cpu_pct").unwrap(),
        reversed: false,
        asked: Default::default(),
        with_events: false,
    }
}

/// A snapshot as its complete line of JSON.
pub fn json(snapshot: &Snapshot) -> serde_json::Value {
    let mut out = Vec::new();
    JsonLines::full(all_rows()).write(&mut out, snapshot).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// The tree of every world.
const CGROUPS: [(u64, &str); 8] = [
    (1, "/init.scope"),
    (2, "/system.slice/mysql.service"),
    (3, "/kubepods/burstable/pod1/web"),
    (10, "/"),
    (11, "/system.slice"),
    (12, "/docker"),
    (13, "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f"),
    (14, "/lxc.payload.build"),
];

/// The common traits of the actors of every world.
fn names() -> Names {
    let cgroups: BTreeMap<u64, String> = CGROUPS.map(|(id, path)| (id, path.into())).into();
    Names {
        groups: describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent"))),
        cgroups,
        users: [(0, "root"), (33, "www-data"), (105, "mysql")].map(|(id, name)| (id, name.into())).into(),
    }
}

impl World {
    /// A further counter counts remote accesses from now on.
    pub fn counts_remote(&mut self) {
        let host = Arc::make_mut(&mut self.host);
        host.events.push(Event { role: Role::Rma, ..host.events[0].clone() });
        host.missing.remove("rma_per_s");
    }

    pub fn new(fixture: &str, pmu: bool, actors: Vec<Actor>) -> World {
        let root = crate::fixture::tree(&format!("hosts/{fixture}"));
        let topology = numatop_ng::host::topology::read(&root).unwrap();
        let not_asked = || Missing::NotCollected("its counter was not requested (--events)".into());
        let mut missing: BTreeMap<String, Missing> =
            ["lma_per_s", "rma_per_s"].map(|id| (id.to_string(), not_asked())).into();
        if !pmu {
            let why = Missing::Unsupported("no hardware counters in this virtual machine".into());
            for id in ["ipc", "cpi", "ghz", "cycles_total", "instructions_total", "counters_running_pct"] {
                missing.insert(id.to_string(), why.clone());
            }
        }
        if !topology.smt() {
            let why = Missing::Unsupported("the cores of this machine have one thread each".into());
            missing.insert("smt_busy_pct".into(), why);
        }
        let host = HostFacts {
            hostname: fixture.into(),
            kernel: "6.12.0".into(),
            arch: "x86_64".into(),
            cpu_model: fixture.into(),
            boot_id: "synthetic".into(),
            events: if pmu { Event::parse_list("basic").unwrap() } else { vec![] },
            missing,
            ..HostFacts::of(topology)
        };
        let mut machine = Machine::new(host, names(), actors.into_iter().map(as_here).collect());
        machine.lost = [("storage".to_string(), 0), ("exit".to_string(), 0)].into();
        machine.plan = Some(Box::new(background));
        let nodes = machine.nodes.len() as u32;
        for from in 0..if nodes > 1 { nodes } else { 0 } {
            let pair = (from, (from + 1) % nodes);
            machine.flow_rates.insert(pair, from.into());
            machine.page_flow_rates.insert(pair, u64::from(from) * 40);
        }
        World(machine)
    }

    /// A docker container and a machine on CPUs of their own, beside a service.
    pub fn containers() -> World {
        let work =
            |pid, comm, cgroup, runs: &[(u32, f64)]| Actor { cgroup, ..Actor::new(pid, comm) }.runs(runs);
        let mut world = World::new(
            "intel-e5-2682v4",
            true,
            vec![
                work(1, "systemd", 1, &[]),
                work(300, "mysqld", 2, &[(0, 40.0)]),
                Actor { ipc: 0.4, ..work(400, "nginx", 13, &[(0, 60.0), (1, 20.0)]) },
                Actor { ipc: 1.6, ..work(401, "nginx", 13, &[(1, 20.0)]) },
                Actor { ends: Some(4), ..work(500, "cc1plus", 14, &[(1, 180.0)]) },
                work(501, "make", 14, &[]),
            ],
        );
        let raw = |cpus: &str, mems: &str, quota, mem: [u64; 2]| GroupRaw {
            read_ns: 2_000_000_000,
            cpus: Ok(cpus.into()),
            mems: Ok(mems.into()),
            cpu_quota_milli: Ok(quota),
            throttled_ns: Ok(1_500_000_000),
            throttled_before: Some((1_000_000_000, 1_250_000_000)),
            mem_limit_bytes: Ok(quota.map(|_| 8 << 30)),
            mem_bytes: Ok(mem[0] + mem[1]),
            mem_bytes_by_node: Ok([(0, mem[0]), (1, mem[1])].into()),
            periods: Ok(40),
            throttled_periods: Ok(12),
            pressure: Ok(Pressure { cpu_some_us: 500_000, memory_some_us: 40_000, memory_full_us: 10_000 }),
            memory_max_events: Ok(3),
            oom_events: Ok(0),
            tier_pages: Ok(TierPages { promoted: Some(9), demoted: Some(8), ..TierPages::default() }),
            counters_before: Some(GroupCounters {
                read_ns: 1_000_000_000,
                periods: Some(30),
                throttled_periods: Some(10),
                pressure: Some(Pressure::default()),
                memory_max_events: Some(3),
                oom_events: Some(0),
                tier_pages: Some(TierPages::default()),
            }),
            ..GroupRaw::default()
        };
        world.groups = [
            (2, raw("0-63", "0-1", None, [12 << 30, 4 << 30])),
            (13, raw("0-7", "0-1", Some(1500), [1 << 30, 3 << 29])),
            (14, raw("32-39", "1", None, [0, 700 << 20])),
        ]
        .map(|(id, raw)| (id, Arc::new(raw)))
        .into();
        world
    }

    /// Two sockets, 64 CPUs, counters; a database spread over both nodes, web workers, a batch job.
    pub fn intel() -> World {
        let mut actors = vec![
            Actor::new(1, "systemd"),
            Actor { switches: 40, ..Actor::new(2, "kthreadd") },
            Actor { ppid: 2, switches: 900, ..Actor::new(91, "kswapd0") }.runs(&[(0, 3.2)]),
            Actor { uid: 105, cgroup: 2, rss: 19 << 30, ..Actor::new(4242, "mysqld") },
            Actor { ppid: 1, ..Actor::new(700, "sshd") },
            Actor { ppid: 700, ..Actor::new(9001, "bash") },
            Actor { ppid: 9001, ipc: 2.19, wait_pct: 31.0, ..Actor::new(9002, "bc") }.runs(&[(1, 99.7)]),
            Actor { ppid: 9001, ends: Some(4), ..Actor::new(9003, "cc1plus") }.runs(&[(0, 54.0)]),
            Actor { uid: 4711, cgroup: 3, ..Actor::new(5000, "nginx") },
        ];
        for i in 0..4 {
            let tid = 4243 + i;
            let runs = [(0, 80.0 - 15.0 * f64::from(i)), (1, 15.0 * f64::from(i))];
            let leader = actors[3].clone();
            actors.push(
                Actor {
                    tid,
                    ipc: 0.42,
                    node_moves: 12 * u64::from(i),
                    switches: 3000,
                    comm: Comm::new("connection"),
                    ..leader
                }
                .runs(&runs),
            );
        }
        for i in 0..3 {
            actors.push(
                Actor {
                    ppid: 5000,
                    uid: 33,
                    cgroup: 3,
                    ipc: 0.9,
                    switches: 12_000,
                    ..Actor::new(5001 + i, "nginx")
                }
                .runs(&[(i % 2, 17.5)]),
            );
        }
        let mut world = World::new("intel-e5-2682v4", true, actors);
        // The database was looked at long ago; one web worker not yet.
        world.placement = [
            (4242, memory(4242, 40, 19 << 30, [760, 264])),
            (5001, memory(5001, 1, 64 << 20, [1024, 0])),
            (5002, memory(5002, 1, 64 << 20, [0, 1024])),
            (9002, memory(9002, 2, 8 << 20, [700, 324])),
        ]
        .into();
        world
    }

    /// 16 nodes of 8 cores; one unbound service all over them.
    pub fn ft_2500() -> World {
        let mut actors = vec![Actor::new(1, "systemd")];
        for i in 0..24 {
            let (a, b) = (i % 16, (i * 7 + 3) % 16);
            let actor = Actor { rss: 6 << 30, comm: Comm::new("svc"), ..Actor::new(3000, "svc") };
            actors.push(
                Actor { tid: 3000 + i, ipc: 0.08, node_moves: 40, switches: 700, ..actor }
                    .runs(&[(a, 50.0), (b, 30.0)]),
            );
        }
        // Its last nodes are full, and memory goes to swap although others have room.
        let mut world = World::new("ft-2500", true, actors);
        world.plan = Some(Box::new(|machine, second| {
            background(machine, second);
            machine.vm.swapped_out += 24;
        }));
        world
    }

    /// The same service, with most of its memory on the first two nodes and the rest everywhere.
    pub fn ft_2500_placed() -> World {
        let mut world = World::ft_2500();
        let mut by_node = vec![16; 16];
        (by_node[0], by_node[1]) = (480, 320);
        let found = PagesFound { space_bytes: 6 << 30, asked: 1024, by_node, error_hundredths: 410 };
        let raw = PlacementRaw {
            start_ns: 3000 * MS,
            read_ns: BOOT_NS,
            found: Ok(found),
            policies: None,
            by_policy: None,
        };
        world.placement = [(3000, Arc::new(raw))].into();
        world
    }

    /// A virtual machine with one node and no counters.
    pub fn vm() -> World {
        let actors = vec![
            Actor::new(1, "init"),
            Actor::new(812, "postgres").runs(&[(0, 61.0)]),
            Actor { ppid: 812, wait_pct: 12.0, ..Actor::new(815, "postgres") }.runs(&[(0, 88.0)]),
        ];
        World::new("no-numa", false, actors)
    }
}

/// An actor as all worlds have it: its memory follows it, and a quarter of the time its sibling is busy.
fn as_here(actor: Actor) -> Actor {
    let moves = actor.node_moves;
    Actor {
        last_cpu: Some(actor.runs.first().map_or(0, |(node, _)| node * 8)),
        smt_busy: Some(0.25),
        cpu_switches: Some(7),
        per_second: actor.per_second.clone().with([
            (Counter::MigratedPages, moves * 50),
            (Counter::BalancedPages, moves * 40),
            (Counter::AskedPages, moves * 8),
            (Counter::MigrateFailedPages, moves),
        ]),
        ..actor
    }
}

/// Changes that every world has. Work comes in waves, so that histories have a shape.
fn background(machine: &mut Machine, second: u64) {
    machine.busy = 1.0 - 0.1 * ((second * 3) % 5) as f64;
    for actor in &mut machine.actors {
        actor.asleep = actor.runs.is_empty() && !second.is_multiple_of(3);
    }
    for node in &mut machine.nodes {
        node.numa_hit += 20_000;
        node.local_node += 19_000;
        node.other_node += 1_000 * u64::from(node.id % 2);
        node.numa_miss += 300 * u64::from(node.id % 2);
        node.kswapd_pages += 4_000 * u64::from(node.id % 2);
        node.direct_pages += 64 * u64::from(node.id % 2);
    }
    for cpu in &mut machine.cpus {
        *cpu.irq_ns.get_or_insert_default() += 10 * MS * u64::from(cpu.id % 8 == 0);
        let hints = cpu.hints.get_or_insert_default();
        hints.faults += 40;
        hints.remote += 10 * u64::from(cpu.node % 2);
    }
    machine.vm.hints.get_or_insert_default().faults += 40 * machine.cpus.len() as u64;
}

/// A process whose pages were read `seconds` seconds ago: pages found on two nodes, of 1,024 drawn.
fn memory(pid: u32, seconds: u64, space_bytes: u64, by_node: [u32; 2]) -> Arc<PlacementRaw> {
    let found = PagesFound { space_bytes, asked: 1024, by_node: by_node.to_vec(), error_hundredths: 310 };
    let start_ns = u64::from(pid) * MS;
    Arc::new(PlacementRaw {
        start_ns,
        read_ns: BOOT_NS - seconds * 1000 * MS,
        found: Ok(found),
        policies: None,
        by_policy: None,
    })
}

/// Three sets that may be counted: one whole, one without a part, one not at all.
pub fn sets() -> Vec<(&'static str, Choice)> {
    let events = |names: &[&str]| names.iter().map(|name| Event::named(name).unwrap()).collect();
    let no = |role: Role, why: &str| (role, Missing::Unsupported(why.into()));
    let basic = Choice { events: events(&["cycles", "instructions"]), ..Choice::default() };
    let absent = [no(Role::Llc, "no hardware counter is left for this event")].into();
    let cache =
        Choice { events: events(&["cycles", "instructions", "branch-misses"]), absent, ..Choice::default() };
    let absent =
        [no(Role::Cycles, "this CPU has no such counter"), no(Role::Dtlb, "this CPU has no such counter")];
    vec![("basic", basic), ("cache", cache), ("tlb", Choice { absent: absent.into(), ..Choice::default() })]
}

/// An app that has seen `ticks` samples of `world` on a screen of this size.
pub fn app(world: &mut Machine, ticks: usize, size: (u16, u16), theme: Theme) -> App {
    let mut app = App::new(Settings { sets: sets(), ..Settings::default() }, theme);
    app.resize(Rect::new(0, 0, size.0, size.1));
    for _ in 0..ticks {
        let sample = world.tick();
        app.sample(Arc::clone(&world.host), sample);
    }
    app
}

/// The state behind the screen, with the part of the deriver played at once: data requested by a key is
/// available when the key has been pressed.
pub struct App {
    inner: update::App,
    history: History,
}

impl App {
    /// Without samples; times of day are in UTC.
    pub fn new(settings: Settings, theme: Theme) -> App {
        let inner = update::App::new(settings, theme, TimeZone::UTC);
        let history = History::new(inner.want());
        App { inner, history }
    }

    /// Takes the next sample.
    pub fn sample(&mut self, host: Arc<HostFacts>, sample: Sample) -> Option<Effect> {
        self.history.sample(host, sample, 1);
        self.show()
    }

    /// Takes the sample that was gone to, and the one before it.
    pub fn moved(
        &mut self,
        host: Arc<HostFacts>,
        previous: Option<Sample>,
        sample: Sample,
    ) -> Option<Effect> {
        self.history.moved(host, previous, sample);
        self.show()
    }

    pub fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        let effect = self.inner.press(key);
        self.answer();
        effect
    }

    pub fn update(&mut self, action: Action) -> Option<Effect> {
        let effect = self.inner.update(action);
        self.answer();
        effect
    }

    pub fn hot_news(&mut self, news: Result<StackBatch, String>) {
        self.inner.hot_news(news);
    }

    pub fn mouse(&mut self, event: MouseEvent) -> Option<Effect> {
        let effect = self.inner.mouse(event);
        self.answer();
        effect
    }

    fn show(&mut self) -> Option<Effect> {
        let shown = self.history.show()?;
        let effect = self.inner.show(shown);
        self.history.tidy();
        self.answer();
        effect
    }

    /// Answers as the deriver does when something else is wanted.
    fn answer(&mut self) {
        let want = self.inner.want();
        if want == self.history.wanted() {
            return;
        }
        let pauses = self.history.want(want);
        if let Some(shown) = self.history.show() {
            self.inner.show(shown);
        }
        if pauses {
            self.inner.state.kept_marked(self.history.marks());
        }
    }
}

impl std::ops::Deref for App {
    type Target = update::App;

    fn deref(&self) -> &update::App {
        &self.inner
    }
}

impl std::ops::DerefMut for App {
    fn deref_mut(&mut self) -> &mut update::App {
        &mut self.inner
    }
}

/// Presses a key by the name that the help gives it.
pub fn press(app: &mut App, name: &str) -> Option<Effect> {
    let key = KEYS.iter().flat_map(|line| line.keys).find(|key| key.name() == name);
    let event = match key {
        Some(Key(code, modifiers)) => KeyEvent::new(*code, *modifiers),
        None => KeyEvent::new(KeyCode::Char(name.chars().next().unwrap()), KeyModifiers::NONE),
    };
    app.press(event)
}

/// Types characters.
pub fn type_text(app: &mut App, text: &str) {
    for c in text.chars() {
        app.press(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
}
