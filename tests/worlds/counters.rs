//! Counts on their way to JSON and to the screen: injected, so that the truth is known.

use std::sync::Arc;

use common::{Actor, App, World, all_rows, screen};
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::common;
use numatop_ng::export::csv::Csv;
use numatop_ng::export::json::JsonLines;
use numatop_ng::export::text::Text;
use numatop_ng::export::{Export, Selection};
use numatop_ng::metric::events;
use numatop_ng::metric::task::by_id;
use numatop_ng::model::event::{Event, Role, ShareOf, TableInUse};
use numatop_ng::model::sample::{HostFacts, Missing, Sample, Slot, TaskRaw};
use numatop_ng::model::units::CpuId;
use numatop_ng::model::wire::NodeCounts;
use numatop_ng::snapshot::{RowKind, Snapshot, derive};
use numatop_ng::tui::input::Action;
use numatop_ng::tui::theme::Theme;
use numatop_ng::tui::update::Settings;

/// A process that counts for one second on a machine with these events.
struct Bench {
    host: HostFacts,
    before: Vec<Slot>,
    after: Vec<Slot>,
    /// Before and after.
    by_node: [Vec<NodeCounts>; 2],
    /// Before and after: while the SMT siblings were idle, and while one was busy.
    by_sibling: [[NodeCounts; 2]; 2],
}

/// An event that is named like its role.
fn event(role: Role) -> Event {
    Event { name: role.id().into(), role, kind: 4, ..Event::default() }
}

fn slot(count: u64) -> Slot {
    Slot { count, ..Slot::default() }
}

impl Bench {
    /// Each role with its count in the interval.
    fn counts(counts: &[(Role, u64)]) -> Bench {
        let world = World::new("intel-e5-2682v4", true, vec![]);
        let mut host = HostFacts::clone(&world.host);
        host.events = counts.iter().map(|(role, _)| event(*role)).collect();
        // The machine supports them, even if its world does not request them.
        host.missing.retain(|id, _| !["lma_per_s", "rma_per_s"].contains(&id.as_str()));
        Bench {
            host,
            before: vec![Slot::default(); counts.len()],
            after: counts.iter().map(|(_, count)| slot(*count)).collect(),
            by_node: Default::default(),
            by_sibling: Default::default(),
        }
    }

    fn samples(&self) -> [Sample; 2] {
        let mut world = World::new("intel-e5-2682v4", true, vec![Actor::new(42, "work").runs(&[(0, 100.0)])]);
        let [before, after] = &self.by_node;
        let [sibling_before, sibling_after] = self.by_sibling;
        let both = [(&self.before, before, sibling_before), (&self.after, after, sibling_after)];
        both.map(|(slots, by_node, by_sibling)| {
            let mut sample = world.tick();
            let mut task = TaskRaw::clone(&sample.tasks[0]);
            task.counts.by_node = by_node.clone();
            task.counts.by_sibling = by_sibling;
            task.counts.slots = Default::default();
            task.counts.slots[..slots.len()].copy_from_slice(slots);
            sample.tasks[0] = Arc::new(task);
            for cpu in &mut sample.cpus {
                cpu.slots = Default::default();
            }
            sample.cpus[0].slots[..slots.len()].copy_from_slice(slots);
            sample
        })
    }

    fn snapshot(&self) -> Snapshot {
        let [before, after] = self.samples();
        derive(&Arc::new(self.host.clone()), Some(&before), &after, RowKind::Processes)
    }

    fn export(&self, export: &mut dyn FnMut(Selection) -> Box<dyn Export>) -> String {
        let mut out = Vec::new();
        export(all_rows()).write(&mut out, &self.snapshot()).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.export(&mut |selection| Box::new(JsonLines::full(selection)))).unwrap()
    }

    fn app(&self, id: &str) -> App {
        let columns = Some(vec![by_id("pid").unwrap(), by_id(id).unwrap()]);
        let mut app = App::new(Settings { columns, ..Settings::default() }, Theme::new(false, true));
        app.resize(Rect::new(0, 0, 80, 24));
        for sample in self.samples() {
            app.sample(Arc::new(self.host.clone()), sample);
        }
        app
    }

    /// The screen with this metric as a column.
    fn screen(&self, id: &str) -> String {
        screen::text(&screen::draw(&self.app(id), 80, 24))
    }

    /// The word of the screen when rows are sorted by this metric.
    fn said(&self, id: &'static str) -> String {
        let mut app = self.app(id);
        app.update(Action::SortBy(id));
        screen::text(&screen::draw(&app, 80, 24)).lines().last().unwrap().trim_end().to_string()
    }

    /// The cell of a metric on the screen.
    fn cell(&self, id: &str) -> String {
        let text = self.screen(id);
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with("42 "))
            .unwrap_or_else(|| panic!("{text}"));
        row.split_whitespace().nth(1).unwrap().to_string()
    }
}

/// The value of a metric of the process, and the reason for a missing one.
fn value<'a>(json: &'a Value, id: &str) -> (&'a Value, &'a str) {
    (&json["tasks"][0][id], json["missing"][id].as_str().unwrap_or(""))
}

/// The row of the container that the process is in.
fn container(json: &Value) -> &Value {
    let mut rows = json["containers"].as_array().unwrap().iter();
    rows.find(|row| row["own_tasks"] == true).unwrap_or_else(|| panic!("{}", json["containers"]))
}

#[test]
fn each_metric_is_the_quotient_that_its_name_says() {
    let bench = Bench::counts(&[
        (Role::Cycles, 4_000_000),
        (Role::Instructions, 2_000_000),
        (Role::Lma, 3_000),
        (Role::Rma, 9_000),
        (Role::StallFrontend, 400_000),
        (Role::StallBackend, 3_000_000),
        (Role::Dtlb, 5_000),
        (Role::Itlb, 250),
    ]);

    let json = bench.json();

    for (id, expected) in [
        ("ipc", 0.5),
        ("cpi", 2.0),
        ("lma_per_s", 3000.0),
        ("rma_per_s", 9000.0),
        ("rma_lma", 3.0),
        ("lpi", 1.5),
        ("rpi", 4.5),
        ("stall_frontend_pct", 10.0),
        ("stall_backend_pct", 75.0),
        ("dtlb_mpki", 2.5),
        ("itlb_mpki", 0.125),
        ("counters_running_pct", 100.0),
    ] {
        assert_eq!(*value(&json, id).0, json!(expected), "{id}");
    }
    assert_eq!(json["nodes"][0]["rma_per_s"], 9000.0);
    assert_eq!(json["nodes"][1]["rma_per_s"], 0.0, "what ran on node 0 is not node 1's");
    assert_eq!((bench.cell("rma_lma"), bench.cell("stall_backend_pct")), ("3.00".into(), "75.0".into()));
    let not_asked = value(&json, "llc_mpki");
    assert!(not_asked.0.is_null() && not_asked.1.contains("--events"), "{not_asked:?}");
}

/// Events that a user named, with their counts in the interval.
fn named(counts: &[(&str, u64)]) -> Bench {
    let mut bench = Bench::counts(&counts.iter().map(|(_, count)| (Role::Other, *count)).collect::<Vec<_>>());
    bench.host.events = counts.iter().map(|(name, _)| Event::named(name).unwrap()).collect();
    bench.host.asked = counts.iter().map(|(name, _)| (*name).to_owned()).collect();
    bench
}

#[test]
fn miss_ratios_are_those_of_the_two_events() {
    for (id, events, expected) in [
        ("l1d_miss_pct", ["L1-dcache-loads", "L1-dcache-load-misses"], 12.5),
        ("l1i_miss_pct", ["L1-icache-loads", "L1-icache-load-misses"], 12.5),
        ("llc_miss_pct", ["LLC-loads", "LLC-load-misses"], 12.5),
        ("llc_miss_pct", ["cache-references", "cache-misses"], 12.5),
        ("dtlb_miss_pct", ["dTLB-loads", "dTLB-load-misses"], 12.5),
        ("itlb_miss_pct", ["iTLB-loads", "iTLB-load-misses"], 12.5),
        ("branch_miss_pct", ["branches", "branch-misses"], 12.5),
        ("branch_miss_pct", ["branch-loads", "branch-load-misses"], 12.5),
    ] {
        let json = named(&[(events[0], 8_000), (events[1], 1_000)]).json();
        assert_eq!(*value(&json, id).0, json!(expected), "{id} {events:?}");
        let one = named(&[(events[0], 8_000)]).json();
        let (value, why) = value(&one, id);
        assert!(value.is_null() && why.contains("--events"), "{id}: {why}");
    }
}

const S: u64 = 1_000_000_000;

fn timed(count: u64, enabled_ns: u64, running_ns: u64) -> Slot {
    Slot { count, enabled_ns, running_ns }
}

/// A process on a machine where these two events are open in turns, with the first of them open.
fn in_turns(events: [&str; 2]) -> Bench {
    let mut bench = named(&events.map(|event| (event, 0)));
    bench.host.event_turns = vec![vec![0], vec![1]];
    bench.after = vec![timed(8_000, S, S), timed(0, S, 0)];
    bench
}

#[test]
fn an_event_without_its_turn_has_a_reason_and_in_text_the_value_of_its_last_turn() {
    let first = in_turns(["LLC-loads", "dTLB-loads"]);
    let mut second = in_turns(["LLC-loads", "dTLB-loads"]);
    second.before = first.after.clone();
    // The turns changed while rows were read.
    second.after = vec![timed(8_001, 2 * S, S + S / 1000), timed(500, 2 * S, S)];
    let [one, mut other] = [first.snapshot(), second.snapshot()];
    other.mono_ns += 5 * S;
    let columns = ["LLC-loads", "dTLB-loads"].map(|name| events::column(name).unwrap());
    let selection = Selection { columns: columns.into(), ..all_rows() };
    let mut json = JsonLines::full(selection.clone());
    let mut text = Text::new(selection);
    let mut write = |snapshot: &Snapshot| {
        let (mut lines, mut page) = (Vec::new(), Vec::new());
        json.write(&mut lines, snapshot).unwrap();
        text.write(&mut page, snapshot).unwrap();
        (serde_json::from_slice::<Value>(&lines).unwrap(), String::from_utf8(page).unwrap())
    };

    let [(began, begins), (went, goes)] = [write(&one), write(&other)];

    assert_eq!(*value(&began, "LLC-loads").0, json!(8000.0));
    assert_eq!(began["host"]["event_turns"], json!([["LLC-loads"], ["dTLB-loads"]]));
    assert_eq!(began["host"]["event_ages_s"], json!({"LLC-loads": 0.0, "dTLB-loads": null}));
    let (waits, why) = value(&went, "LLC-loads");
    assert!(waits.is_null() && why.contains("not the turn of LLC-loads"), "{waits} {why}");
    assert_eq!(*value(&went, "dTLB-loads").0, json!(500.0));
    assert_eq!(went["host"]["event_ages_s"], json!({"LLC-loads": 5.0, "dTLB-loads": 0.0}));
    assert!(begins.contains("events: LLC-loads; not yet: dTLB-loads\n"), "{begins}");
    assert!(goes.contains("events: dTLB-loads; 5.0 s ago: LLC-loads\n"), "{goes}");
    let cells =
        |page: &str| page.lines().last().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!([cells(&begins), cells(&goes)], [["8.0k", "-"], ["8.0k@5s", "500"]], "{goes}");
}

#[test]
fn a_row_on_the_screen_keeps_the_value_of_the_last_turn_with_its_age() {
    let mut bench = in_turns(["LLC-loads", "dTLB-loads"]);
    let [begin, first] = bench.samples();
    bench.after = vec![timed(8_000, 2 * S, S), timed(500, 2 * S, S)];
    let [_, mut second] = bench.samples();
    second.mono_ns += S;
    second.wall_ns += S as i64;
    let columns = ["LLC-loads", "dTLB-loads"].map(|name| events::column(name).unwrap());
    let settings = Settings { columns: Some(columns.into()), ..Settings::default() };
    let mut app = App::new(settings, Theme::new(false, true));
    app.resize(Rect::new(0, 0, 80, 24));
    let mut shown = |sample| {
        app.sample(Arc::new(bench.host.clone()), sample);
        screen::text(&screen::draw(&app, 80, 24))
    };
    shown(begin);

    let [begins, goes] = [shown(first), shown(second)];

    assert!(begins.contains("8.0k") && !begins.contains('@'), "{begins}");
    assert!(goes.contains("8.0k@1s") && goes.contains("500"), "{goes}");
    app.update(Action::Rewind);
    let back = screen::text(&screen::draw(&app, 80, 24));
    assert!(back.contains("8.0k") && !back.contains("500") && !back.contains('@'), "{back}");
}

#[test]
fn an_event_that_was_asked_for_is_a_column_everywhere() {
    let bench = named(&[("page-faults", 1_234), ("LLC-stores", 5_000)]);
    let text = {
        let settings = Settings::default();
        let mut app = App::new(settings, Theme::new(false, true));
        app.resize(Rect::new(0, 0, 120, 24));
        for sample in bench.samples() {
            app.sample(Arc::new(bench.host.clone()), sample);
        }
        screen::text(&screen::draw(&app, 120, 24))
    };
    assert!(text.contains("page-faults") && text.contains("LLC-stores") && text.contains("1.2k"), "{text}");
    let csv = bench.export(&mut |selection| Box::new(Csv::new(Selection { with_events: true, ..selection })));
    let header = csv.lines().next().unwrap();
    assert!(header.ends_with("page-faults,LLC-stores,exited"), "{header}");
    assert!(csv.lines().nth(1).unwrap().ends_with(",1234.000000,5000.000000,false"), "{csv}");
    assert_eq!(bench.json()["tasks"][0]["counters"]["LLC-stores"], 5_000);
}

#[test]
fn containers_nodes_and_the_host_have_the_quotients_of_their_sums() {
    let bench = Bench::counts(&[
        (Role::Cycles, 4_000_000),
        (Role::Instructions, 2_000_000),
        (Role::Lma, 0),
        (Role::Rma, 9_000),
        (Role::StallBackend, 3_000_000),
        (Role::Dtlb, 5_000),
    ]);

    let json = bench.json();

    for row in [container(&json), &json["nodes"][0], &json["host"]] {
        for (id, expected) in [
            ("ipc", json!(0.5)),
            ("cpi", json!(2.0)),
            ("rma_per_s", json!(9000.0)),
            ("rma_lma", json!("inf")),
            ("lpi", json!(0.0)),
            ("rpi", json!(4.5)),
            ("stall_backend_pct", json!(75.0)),
            ("dtlb_mpki", json!(2.5)),
            ("itlb_mpki", Value::Null),
            ("counters_running_pct", json!(100.0)),
        ] {
            assert_eq!(row[id], expected, "{id}");
        }
    }
    // Nothing ran on the other node: no quotient, and no access.
    for (id, expected) in [("cpi", Value::Null), ("rma_lma", Value::Null), ("rma_per_s", json!(0.0))] {
        assert_eq!(json["nodes"][1][id], expected, "{id}");
    }
}

#[test]
fn misses_of_caches_and_branches_are_per_thousand_instructions() {
    let bench = Bench::counts(&[(Role::Instructions, 50_000), (Role::Llc, 100), (Role::Branch, 25)]);
    let json = bench.json();
    assert_eq!((value(&json, "llc_mpki").0, value(&json, "branch_mpki").0), (&json!(2.0), &json!(0.5)));
}

#[test]
fn shared_counters_are_scaled_and_said_to_be() {
    let mut bench = Bench::counts(&[(Role::Lma, 0), (Role::Rma, 0)]);
    bench.after[0] = Slot { count: 300, enabled_ns: 1_000_000, running_ns: 250_000 };
    bench.after[1] = Slot { count: 300, enabled_ns: 1_000_000, running_ns: 1_000_000 };

    let json = bench.json();

    assert_eq!(*value(&json, "lma_per_s").0, json!(1200.0));
    assert_eq!(*value(&json, "rma_lma").0, json!(0.25));
    assert_eq!(*value(&json, "counters_running_pct").0, json!(25.0));
    assert_eq!(bench.cell("counters_running_pct"), "25.0");
}

#[test]
fn the_screen_says_when_counters_took_turns() {
    let mut bench = Bench::counts(&[(Role::Cycles, 100), (Role::Instructions, 150)]);
    assert!(!bench.screen("ipc").contains("counted"), "{}", bench.screen("ipc"));
    bench.after[1] = Slot { count: 150, enabled_ns: 1_000_000, running_ns: 500_000 };
    assert!(bench.screen("ipc").contains("IPC 3.00 counted 50.0%"), "{}", bench.screen("ipc"));
}

#[test]
fn a_counter_that_others_held_all_the_time_is_no_zero() {
    let mut bench = Bench::counts(&[(Role::Lma, 10), (Role::Rma, 0)]);
    bench.after[1] = Slot { count: 0, enabled_ns: 1_000_000, running_ns: 0 };

    let json = bench.json();

    for id in ["rma_per_s", "rma_lma"] {
        let (value, why) = value(&json, id);
        assert!(value.is_null() && why.contains("was not counted"), "{id}: {value} {why}");
    }
    assert_eq!(json["tasks"][0]["counters"], json!({"lma": 10, "rma": null}));
    assert_eq!(bench.cell("rma_per_s"), "-");
    assert_eq!(
        bench.said("rma_per_s"),
        "RMA/s is -: rma was not counted: its counter is in use, or the CPU is isolated"
    );
}

#[test]
fn a_counter_that_is_not_open_on_every_cpu_is_no_number() {
    let mut bench = Bench::counts(&[(Role::Cycles, 100), (Role::Instructions, 700)]);
    let why = "opening a counter on CPU 3 instructions: Device or resource busy (os error 16); another tool uses the counter";
    for id in ["instructions", "ipc", "cpi", "instructions_total"] {
        bench.host.missing.insert(id.into(), Missing::Unsupported(why.into()));
    }

    let json = bench.json();

    assert_eq!(value(&json, "ipc"), (&Value::Null, why));
    for row in [container(&json), &json["nodes"][0], &json["host"]] {
        assert_eq!(row["ipc"], Value::Null);
    }
    assert_eq!(json["tasks"][0]["counters"], json!({"cycles": 100, "instructions": null}));
    assert_eq!(*value(&json, "cycles_total").0, json!(100));
    assert_eq!(bench.cell("ipc"), "-");
    assert!(
        bench
            .said("ipc")
            .starts_with("IPC is -: opening a counter on CPU 3 instructions: Device or resource busy")
    );
}

#[test]
fn all_remote_is_infinite_and_nothing_at_all_is_not() {
    let all_remote = Bench::counts(&[(Role::Lma, 0), (Role::Rma, 7)]);
    let json = all_remote.json();
    assert_eq!(*value(&json, "rma_lma").0, json!("inf"));
    assert_eq!(*value(&json, "lma_per_s").0, json!(0.0), "measured, and zero");
    assert_eq!(all_remote.cell("rma_lma"), "inf");
    assert!(all_remote.export(&mut |selection| Box::new(Csv::new(selection))).contains(",inf,"));

    let mut nothing = Bench::counts(&[(Role::Lma, 3), (Role::Rma, 7)]);
    nothing.before.clone_from(&nothing.after);
    let json = nothing.json();
    let (value, why) = value(&json, "rma_lma");
    assert!(value.is_null() && why.contains("no memory access"), "{value} {why}");
    assert_eq!(nothing.cell("rma_lma"), "-");
}

#[test]
fn a_counter_that_has_never_counted_is_no_zero() {
    let rest = [(Role::Cycles, 4_000), (Role::Instructions, 2_000), (Role::Branch, 0)];
    let json = Bench::counts(&[&rest[..], &[(Role::Lma, 0), (Role::Rma, 0)]].concat()).json();
    for id in ["branch_mpki", "lma_per_s", "rma_per_s", "rma_lma", "lpi", "rpi"] {
        let (value, why) = value(&json, id);
        assert!(
            value.is_null() && why.contains("was opened, but has not counted anything yet"),
            "{id}: {value} {why}"
        );
        assert_eq!((&json["host"][id], &container(&json)[id]), (&Value::Null, &Value::Null), "{id}");
    }
    assert_eq!(json["tasks"][0]["counters"]["branch"], Value::Null);
    assert_eq!(*value(&json, "ipc").0, json!(0.5));

    // With one access anywhere the others are known to be none; so are misses once there was one.
    let mut bench = Bench::counts(&[&rest[..], &[(Role::Lma, 1), (Role::Rma, 0)]].concat());
    (bench.before[2], bench.after[2]) = (slot(1), slot(1));
    let json = bench.json();
    assert_eq!((value(&json, "rma_per_s").0, value(&json, "branch_mpki").0), (&json!(0.0), &json!(0.0)));
}

#[test]
fn memory_accesses_from_misses_of_the_cache_are_none_while_nothing_was_counted() {
    let mut bench = Bench::counts(&[(Role::Llc, 0), (Role::Rma, 0)]);
    bench.host.tables = vec![TableInUse { lma_is_llc_less_rma: true, ..TableInUse::default() }];
    let json = bench.json();
    for id in ["lma_per_s", "rma_per_s"] {
        let (value, why) = value(&json, id);
        assert!(value.is_null() && why.contains("has not counted anything"), "{id}: {value} {why}");
    }
    bench.after[0] = slot(9);
    let json = bench.json();
    assert_eq!((value(&json, "lma_per_s").0, value(&json, "rma_per_s").0), (&json!(9.0), &json!(0.0)));
}

#[test]
fn a_sum_that_wraps_goes_on_counting() {
    let mut bench = Bench::counts(&[(Role::Cycles, 0), (Role::Instructions, 0)]);
    bench.before = vec![slot(u64::MAX - 99), slot(u64::MAX - 9)];
    bench.after = vec![slot(300), slot(190)];
    assert_eq!(*value(&bench.json(), "ipc").0, json!(0.5));
}

#[test]
fn a_count_that_went_backwards_is_no_huge_number() {
    let mut bench = Bench::counts(&[(Role::Cycles, 0), (Role::Instructions, 0)]);
    bench.before = vec![slot(5_000), slot(5_000)];
    bench.after = vec![slot(4_000), slot(6_000)];

    let json = bench.json();

    let (value, why) = value(&json, "ipc");
    assert!(value.is_null() && why.contains("no cycle was counted"), "{value} {why}");
    assert_eq!(json["nodes"][0]["ipc"], Value::Null);
    assert_eq!(bench.cell("ipc"), "-");
    assert!(bench.said("ipc").contains("no cycle was counted"));
}

#[test]
fn where_local_is_what_is_not_remote_it_never_goes_below_zero() {
    let derived = |llc, rma| {
        let mut bench = Bench::counts(&[(Role::Instructions, 1_000), (Role::Llc, llc), (Role::Rma, rma)]);
        bench.host.tables = vec![TableInUse {
            id: "arm/neoverse-n1".into(),
            name: "Arm Neoverse N1".into(),
            origin: "built in".into(),
            cpu: "Arm implementer 0x41 part 0xd0c".into(),
            pmu: "armv8_pmuv3_0".into(),
            verified_on: vec![],
            lma_is_llc_less_rma: true,
        }];
        bench.json()
    };
    let usual = derived(100, 30);
    assert_eq!(usual["host"]["event_tables"], json!(["arm/neoverse-n1"]));
    assert_eq!((value(&usual, "lma_per_s").0, value(&usual, "lpi").0), (&json!(70.0), &json!(70.0)));
    assert_eq!(*value(&usual, "llc_mpki").0, json!(100.0));
    let odd = derived(10, 30);
    assert_eq!((value(&odd, "lma_per_s").0, value(&odd, "rma_lma").0), (&json!(0.0), &json!("inf")));
}

#[test]
fn each_node_has_an_ipc_of_its_own() {
    let mut bench = Bench::counts(&[(Role::Cycles, 4_000), (Role::Instructions, 5_000)]);
    let on = |cycles, instructions| NodeCounts { cycles, instructions };
    bench.by_node = [vec![on(500, 100), on(0, 0)], vec![on(1_500, 2_100), on(3_000, 3_000)]];

    let json = bench.json();

    assert_eq!(*value(&json, "ipc_by_node").0, json!({"0": 2.0, "1": 1.0}));
    assert_eq!(container(&json)["ipc_by_node"], json!({"0": 2.0, "1": 1.0}));
    assert_eq!(bench.cell("ipc_by_node"), "0:2.00");
    bench.by_node = Default::default();
    let json = bench.json();
    let (value, why) = value(&json, "ipc_by_node");
    assert!(value.is_null() && why.contains("not recorded by node"), "{value} {why}");
}

#[test]
fn a_busy_sibling_has_an_ipc_of_its_own() {
    let mut bench = Bench::counts(&[(Role::Cycles, 4_000), (Role::Instructions, 5_000)]);
    let on = |cycles, instructions| NodeCounts { cycles, instructions };
    // A thousand cycles were neither: they are in the whole only.
    bench.by_sibling = [[on(100, 100), on(7, 7)], [on(1_100, 1_900), on(2_007, 1_007)]];

    let json = bench.json();

    assert_eq!(*value(&json, "ipc").0, json!(1.25));
    assert_eq!(*value(&json, "ipc_smt_idle").0, json!(1.8));
    assert_eq!(*value(&json, "ipc_smt_busy").0, json!(0.5));
    assert_eq!(
        (&container(&json)["ipc_smt_idle"], &container(&json)["ipc_smt_busy"]),
        (&json!(1.8), &json!(0.5))
    );
    assert_eq!((bench.cell("ipc_smt_idle"), bench.cell("ipc_smt_busy")), ("1.80".into(), "0.50".into()));
    // Instructions were on a counter half of the time: the true number is twice the count.
    bench.after[1] = Slot { count: 5_000, enabled_ns: 1_000_000, running_ns: 500_000 };
    assert_eq!(*value(&bench.json(), "ipc_smt_busy").0, json!(1.0));
    bench.by_sibling[1][1] = bench.by_sibling[0][1];
    let json = bench.json();
    let (value, why) = value(&json, "ipc_smt_busy");
    assert!(value.is_null() && why.contains("never busy for a whole time slice"), "{value} {why}");
    assert_eq!(bench.cell("ipc_smt_busy"), "-");
}

#[test]
fn stalls_in_slots_are_a_share_of_slots() {
    let mut per_cycle = Bench::counts(&[(Role::Cycles, 1_000), (Role::StallBackend, 3_000)]);
    per_cycle.host.events[1].share_of = ShareOf::SlotsPerCycle(6);
    assert_eq!(*value(&per_cycle.json(), "stall_backend_pct").0, json!(50.0));

    let mut counted =
        Bench::counts(&[(Role::Cycles, 1_000), (Role::StallBackend, 600), (Role::Slots, 2_400)]);
    counted.host.events[1].share_of = ShareOf::Slots;
    assert_eq!(*value(&counted.json(), "stall_backend_pct").0, json!(25.0));
}

#[test]
fn cores_of_two_kinds_add_up_and_the_same_cores_do_not() {
    let mut bench = Bench::counts(&[(Role::Rma, 10), (Role::Rma, 32)]);
    bench.host.events[1].name = "rma of the others".into();
    bench.host.events[0].cpus = Some(vec![CpuId(0), CpuId(1)]);
    bench.host.events[1].cpus = Some(vec![CpuId(2), CpuId(3)]);
    let json = bench.json();
    assert_eq!(*value(&json, "rma_per_s").0, json!(42.0));
    assert_eq!(json["tasks"][0]["counters"], json!({"rma": 10, "rma of the others": 32}));

    bench.host.events[1].cpus = None;
    assert_eq!(*value(&bench.json(), "rma_per_s").0, json!(10.0), "the first of two events on the same CPUs");
}

#[test]
fn a_counter_that_opens_and_counts_nothing_is_no_zero() {
    let mut bench = Bench::counts(&[(Role::Cycles, 100)]);
    let why = "INST_RETIRED can be opened but does not count on this CPU";
    for id in ["ipc", "cpi", "instructions_total"] {
        bench.host.missing.insert(id.into(), Missing::Unsupported(why.into()));
    }

    let json = bench.json();

    assert_eq!(value(&json, "ipc"), (&Value::Null, why));
    assert_eq!((&json["host"]["ipc"], &json["nodes"][0]["ipc"]), (&Value::Null, &Value::Null));
    assert_eq!((bench.cell("ipc"), bench.said("ipc")), ("-".into(), format!("IPC is -: {why}")));
    assert!(bench.screen("ipc").contains("IPC -"));
}

#[test]
fn a_cpu_that_was_offline_starts_its_counters_again() {
    let mut bench = Bench::counts(&[(Role::Cycles, 0), (Role::Instructions, 0)]);
    let slot = |count, enabled_ns, running_ns| Slot { count, enabled_ns, running_ns };
    // Counts of a CPU stay; the times are those of its new events.
    bench.before = vec![slot(1_000, 9_000_000, 9_000_000), slot(1_000, 9_000_000, 9_000_000)];
    bench.after = vec![slot(3_000, 400_000, 400_000), slot(2_000, 400_000, 200_000)];

    let json = bench.json();

    assert_eq!(json["nodes"][0]["ipc"], json!(1.0), "1000 instructions in half of the time");
    assert_eq!(json["host"]["counters_running_pct"], json!(50.0));
}
