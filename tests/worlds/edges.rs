//! A month of uptime: sums, serials and times near the ends of their types, injected into samples of made-up machines.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::common;
use common::World;
use numatop_ng::model::sample::{HostFacts, Sample, TaskRaw};
use numatop_ng::snapshot::{RowKind, derive};

/// The first whole number that a double does not have: readers in JavaScript have no other numbers.
const BEYOND_DOUBLES: u64 = (1 << 53) + 1;

/// A made-up machine at two moments.
#[derive(Clone)]
struct Interval {
    host: Arc<HostFacts>,
    samples: [Sample; 2],
}

impl Interval {
    fn of(mut world: World) -> Interval {
        world.tick();
        let samples = [world.tick(), world.tick()];
        Interval { host: world.host.clone(), samples }
    }

    fn json(&self, kind: RowKind) -> Value {
        let [before, after] = &self.samples;
        common::json(&derive(&self.host, Some(before), after, kind))
    }

    /// Changes the tasks that are in both samples, ended ones in the second.
    fn each_task(mut self, change: impl Fn(&mut TaskRaw)) -> Interval {
        let of_both: BTreeSet<u64> = self.samples[0].tasks.iter().map(|task| task.serial).collect();
        for sample in &mut self.samples {
            let Sample { tasks, exited, .. } = sample;
            for task in tasks.iter_mut().chain(exited).filter(|task| of_both.contains(&task.serial)) {
                change(Arc::make_mut(task));
            }
        }
        self
    }
}

/// Takes out of a tree all fields of these names.
fn without(mut tree: Value, names: &[&str]) -> Value {
    match &mut tree {
        Value::Object(fields) => {
            fields.retain(|name, _| !names.contains(&name.as_str()));
            fields.values_mut().for_each(|value| *value = without(value.take(), names));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without(value.take(), names)),
        _ => {}
    }
    tree
}

/// The places at which two trees differ, with both values.
fn differences(place: &str, one: &Value, other: &Value) -> Vec<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let both = |name: &String| [one, other].map(|fields| fields.get(name).unwrap_or(&Value::Null));
            let fields = names.into_iter().map(|name| (format!("{place}.{name}"), both(name)));
            fields.flat_map(|(place, [one, other])| differences(&place, one, other)).collect()
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let values = one.iter().zip(other).enumerate();
            values.flat_map(|(at, (one, other))| differences(&format!("{place}[{at}]"), one, other)).collect()
        }
        _ if one == other => vec![],
        _ => vec![format!("{place}: {one}, {other}")],
    }
}

/// Fields that are sums since the task's first sample, and fields derived from such sums.
const SUMS: &[&str] =
    &["cpu_ns", "cycles_total", "instructions_total", "counters", "home_node", "disk_far_pct"];

#[test]
fn sums_that_wrap_change_no_rate() {
    for make in [World::intel, World::ft_2500, World::containers] {
        let plain = Interval::of(make());
        let numbers = |sample: &Sample| -> BTreeSet<u64> {
            let all = std::cell::RefCell::new(BTreeSet::new());
            for task in &**sample.tasks {
                task.counts.map(|number| {
                    all.borrow_mut().insert(number);
                    number
                });
            }
            all.into_inner()
        };
        let [before, after] = &plain.samples;
        let grown: Vec<u64> = numbers(after).difference(&numbers(before)).copied().collect();
        assert!(grown.len() >= 10, "{} numbers grew", grown.len());
        for kind in [RowKind::Processes, RowKind::Threads] {
            let wanted = without(plain.json(kind), SUMS);
            // Each of the increased numbers has just wrapped once.
            for number in &grown {
                let wrapped = plain
                    .clone()
                    .each_task(|task| task.counts = task.counts.map(|now| now.wrapping_sub(*number)));
                let found = without(wrapped.json(kind), SUMS);
                assert_eq!(differences("", &found, &wanted), Vec::<String>::new(), "{number}");
            }
        }
    }
}

#[test]
fn serials_at_their_end_change_nothing() {
    let plain = Interval::of(World::intel());
    let most = plain.samples[1].tasks.iter().map(|task| task.serial).max().unwrap();
    // The last number of all is that of the row in which recordings sum up others.
    let moved = plain.clone().each_task(|task| task.serial += u64::MAX - 1 - most);
    for kind in [RowKind::Processes, RowKind::Threads] {
        assert_eq!(differences("", &moved.json(kind), &plain.json(kind)), Vec::<String>::new());
    }
}

#[test]
fn numbers_beyond_those_of_doubles_are_written_to_the_last_digit() {
    let plain = Interval::of(World::containers());
    // 104 days after the boot.
    let mut late = plain.clone().each_task(|task| {
        task.start_ns += BEYOND_DOUBLES;
        task.leader_start_ns += BEYOND_DOUBLES;
        task.rss_bytes += BEYOND_DOUBLES;
        task.counts.run_ns[0] += BEYOND_DOUBLES;
    });
    for sample in &mut late.samples {
        sample.boot_ns += BEYOND_DOUBLES;
        sample.mono_ns += BEYOND_DOUBLES;
        for group in sample.groups.values_mut().map(Arc::make_mut) {
            group.read_ns += BEYOND_DOUBLES;
            group.counters_before.as_mut().unwrap().read_ns += BEYOND_DOUBLES;
            let (read_ns, _) = group.throttled_before.as_mut().unwrap();
            *read_ns += BEYOND_DOUBLES;
        }
    }
    let [plain, late] = [plain, late].map(|interval| interval.json(RowKind::Processes));
    let row = |tree: &Value| {
        tree["tasks"].as_array().unwrap().iter().find(|row| row["pid"] == 300).unwrap().clone()
    };
    for id in ["start_ns", "rss_bytes", "cpu_ns"] {
        let exact = row(&plain)[id].as_u64().unwrap() + BEYOND_DOUBLES;
        assert_eq!(row(&late)[id], json!(exact), "{id}");
    }
    for id in ["cpu_pct", "switches_per_s", "ipc", "throttled_pct", "pressure_cpu_some_pct"] {
        let of = |tree: &Value| -> Vec<Value> {
            let rows = ["tasks", "containers"].into_iter().flat_map(|list| tree[list].as_array().unwrap());
            rows.map(|row| row[id].clone()).collect()
        };
        assert_eq!(of(&late), of(&plain), "{id}");
    }
}
