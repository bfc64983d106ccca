//! Values of Parquet files beside those of JSON: the same recording, another way.

use std::collections::{BTreeMap, BTreeSet};

use parquet::record::Field;
use serde_json::Value as Json;

use numatop_ng::tables::Table;

use super::scratch::Scratch;
use super::{Row, demo, export, fixture, int, json, rows, sum, word};

/// Rows of a table by the end of their interval, and the intervals of JSON beside them.
struct Both {
    intervals: Vec<Json>,
    /// Times, µs since 1970.
    times: Vec<i64>,
}

impl Both {
    fn of(nodes: &[Row], intervals: Vec<Json>) -> Both {
        let times: BTreeSet<i64> = nodes.iter().map(|row| int(row, "time").unwrap()).collect();
        let times: Vec<i64> = times.into_iter().collect();
        assert_eq!(times.len(), intervals.len(), "intervals");
        Both { intervals, times }
    }

    /// The interval that a row is of.
    fn interval(&self, row: &Row) -> &Json {
        &self.intervals[self.times.binary_search(&int(row, "time").unwrap()).unwrap()]
    }
}

/// JSON has six decimals of shares and rates: amounts agree to that precision.
fn is_near(amount: i64, share: &Json, whole: f64) -> bool {
    let expected = share.as_f64().unwrap() * whole;
    (amount as f64 - expected).abs() <= 1e-6 * whole.abs() + 1.0
}

/// A number that is `null` in JSON is missing here, and one with a value there has the same here.
fn check(row: &Row, column: &str, json: &Json, key: &str, whole: f64) {
    let expected = json.get(key).unwrap_or_else(|| panic!("no key {key}"));
    match int(row, column) {
        Some(amount) => {
            assert!(is_near(amount, expected, whole), "{column}: {amount}, {key} {expected} of {whole}");
        }
        None => assert!(expected.is_null(), "{column} is null, {key} is {expected}"),
    }
}

fn check_tasks(tasks: &[Row], both: &Both) {
    let mut seen = 0;
    for row in tasks {
        let interval = both.interval(row);
        let ns = interval["interval_ns"].as_f64().unwrap();
        assert_eq!(int(row, "interval_ns").map(|ns| ns as f64), Some(ns));
        let pid = int(row, "pid").unwrap();
        let all = interval["tasks"].as_array().unwrap();
        let comm = word(row, "comm").unwrap();
        let is_same = |task: &&Json| task["pid"] == pid && task["comm"] == *comm;
        let task = all.iter().find(is_same).unwrap_or_else(|| panic!("{pid} {comm} is not in JSON"));
        seen += 1;
        let (pct, rate) = (ns / 100.0, ns / 1e9);
        for (column, key, whole) in [
            ("cpu_ns", "cpu_pct", pct),
            ("wait_ns", "runq_wait_pct", pct),
            ("involuntary", "involuntary_per_s", rate),
            ("cpu_moves", "cpu_migrations_per_s", rate),
            ("llc_moves", "llc_migrations_per_s", rate),
            ("node_moves", "node_migrations_per_s", rate),
            ("minor_faults", "minor_faults_per_s", rate),
            ("major_faults", "major_faults_per_s", rate),
            ("cross_allocs", "cross_node_faults_per_s", rate),
            ("pages_migrated", "pages_migrated_per_s", rate),
            ("hint_faults", "hint_faults_per_s", rate),
            ("lma", "lma_per_s", rate),
            ("rma", "rma_per_s", rate),
            ("rss_bytes", "rss_bytes", 1.0),
            ("home_node", "home_node", 1.0),
        ] {
            check(row, column, task, key, whole);
        }
        // Quotients of sums are the shares that JSON has.
        let quotient = |num: &str, den: &str| {
            let (num, den) = (int(row, num)? as f64, int(row, den)? as f64);
            (den > 1e6).then_some(num / den)
        };
        for (num, den, key, scale) in [
            ("instructions", "cycles", "ipc", 1.0),
            ("remote_ns", "located_ns", "remote_pct", 100.0),
            ("remote_best_ns", "located_ns", "remote_best_pct", 100.0),
        ] {
            if let (Some(quotient), Some(mut expected)) = (quotient(num, den), task[key].as_f64()) {
                if key == "remote_best_pct" {
                    // Placement may leave more than was counted, but never more than the total.
                    expected = expected.min(task["remote_pct"].as_f64().unwrap());
                }
                assert!(
                    (quotient * scale - expected).abs() < 1e-4,
                    "{comm} {key}: {quotient} and {expected}"
                );
            }
        }
        for key in ["user", "cgroup", "container", "pod", "remote_source"] {
            if key != "remote_source" || int(row, "located_ns").is_some() {
                assert_eq!(word(row, key).as_deref(), task[key].as_str(), "{comm} {key}");
            }
        }
        assert_eq!(row["exited"], Field::Bool(task["exited"].as_bool().unwrap()));
    }
    assert!(seen > 0);
    // Rows that are left out rested.
    for (time, interval) in both.times.iter().zip(&both.intervals) {
        let of_time = |row: &&Row| int(row, "time") == Some(*time);
        let pids: BTreeSet<i64> = tasks.iter().filter(of_time).map(|row| int(row, "pid").unwrap()).collect();
        for task in interval["tasks"].as_array().unwrap() {
            let rested = task["cpu_pct"] == 0.0 && task["runq_wait_pct"] == 0.0 && task["exited"] == false;
            assert!(rested || pids.contains(&task["pid"].as_i64().unwrap()), "{task}");
        }
    }
}

fn check_nodes(nodes: &[Row], both: &Both) {
    for row in nodes {
        let interval = both.interval(row);
        let ns = interval["interval_ns"].as_f64().unwrap();
        let id = int(row, "node").unwrap();
        let node = interval["nodes"].as_array().unwrap().iter().find(|node| node["node"] == id).unwrap();
        let rate = ns / 1e9;
        for (column, key, whole) in [
            ("cpus", "cpus", 1.0),
            ("mem_total_bytes", "mem_total_bytes", 1.0),
            ("mem_free_bytes", "mem_free_bytes", 1.0),
            ("mem_file_bytes", "mem_file_bytes", 1.0),
            ("mem_anon_bytes", "mem_anon_bytes", 1.0),
            ("mem_slab_bytes", "mem_slab_bytes", 1.0),
            ("numa_hit", "numa_hit_per_s", rate),
            ("numa_miss", "numa_miss_per_s", rate),
            ("numa_foreign", "numa_foreign_per_s", rate),
            ("interleave_hit", "interleave_hit_per_s", rate),
            ("local_node", "local_node_per_s", rate),
            ("other_node", "other_node_per_s", rate),
            ("kswapd_pages", "kswapd_pages_per_s", rate),
            ("direct_pages", "direct_reclaim_pages_per_s", rate),
            ("node_reclaims", "node_reclaim_per_s", rate),
        ] {
            check(row, column, node, key, whole);
        }
    }
}

fn check_containers(containers: &[Row], by_node: &[Row], both: &Both) {
    let mut seen = 0;
    for row in containers {
        let interval = both.interval(row);
        let ns = interval["interval_ns"].as_f64().unwrap();
        let name = word(row, "container").unwrap();
        let cgroup = word(row, "cgroup");
        let is_same =
            |other: &&Json| other["container"] == *name && other["cgroup"].as_str() == cgroup.as_deref();
        let all = interval["containers"].as_array().unwrap();
        let container = all.iter().find(is_same).unwrap_or_else(|| panic!("{name} is not in JSON"));
        seen += 1;
        for (column, key, whole) in [
            ("cpu_ns", "cpu_pct", ns / 100.0),
            ("wait_ns", "runq_wait_pct", ns / 100.0),
            ("processes", "processes", 1.0),
            ("threads", "threads", 1.0),
            ("mem_bytes", "mem_bytes", 1.0),
            ("mem_limit_bytes", "mem_limit_bytes", 1.0),
            ("cpu_quota_milli", "cpu_quota_pct", 10.0),
            ("throttled_ns", "throttled_pct", ns / 100.0),
            ("pages_migrated", "pages_migrated_per_s", ns / 1e9),
        ] {
            check(row, column, container, key, whole);
        }
        for key in ["kind", "pod", "namespace", "container_id", "parent", "accelerators", "accelerator_nodes"]
        {
            assert_eq!(word(row, key).as_deref(), container[key].as_str(), "{name} {key}");
        }
        // By node, where it is known.
        if let Some(bytes) = container["mem_bytes_by_node"].as_object() {
            let here =
                |other: &&Row| int(other, "time") == int(row, "time") && word(other, "cgroup") == cgroup;
            let of_nodes = by_node.iter().filter(here).filter(|row| int(row, "mem_bytes") != Some(0));
            let of_nodes: BTreeMap<String, i64> = of_nodes
                .filter_map(|row| Some((int(row, "node")?.to_string(), int(row, "mem_bytes")?)))
                .collect();
            let expected: BTreeMap<String, i64> =
                bytes.iter().map(|(node, bytes)| (node.clone(), bytes.as_f64().unwrap() as i64)).collect();
            assert_eq!(of_nodes, expected, "{name}");
        }
    }
    assert!(seen > 0);
}

/// Tasks by node add up to tasks.
fn check_task_nodes(tasks: &[Row], by_node: &[Row], both: &Both) {
    let key = |row: &Row| (int(row, "time"), int(row, "pid"), int(row, "start_ns"), int(row, "tid"));
    for (column, of_node, slack) in
        [("cpu_ns", "run_ns", 0), ("cycles", "cycles", 8), ("instructions", "instructions", 8)]
    {
        let mut sums: BTreeMap<_, i64> = BTreeMap::new();
        for row in by_node {
            *sums.entry(key(row)).or_default() += int(row, of_node).unwrap_or(0);
        }
        for row in tasks.iter().filter(|row| int(row, column).is_some()) {
            let (expected, found) = (int(row, column).unwrap(), sums.get(&key(row)).copied().unwrap_or(0));
            assert!((expected - found).abs() <= slack, "{column} {:?}: {found} of {expected}", key(row));
        }
    }
    let mut by_process: BTreeMap<_, BTreeMap<String, i64>> = BTreeMap::new();
    for row in by_node {
        let bytes = int(row, "mem_bytes").filter(|bytes| *bytes > 0);
        let of_process = by_process.entry((int(row, "time"), int(row, "pid"))).or_default();
        of_process.extend(bytes.map(|bytes| (int(row, "node").unwrap().to_string(), bytes)));
    }
    for row in tasks {
        let (interval, pid) = (both.interval(row), int(row, "pid").unwrap());
        let comm = word(row, "comm").unwrap();
        let mut all = interval["tasks"].as_array().unwrap().iter();
        let task = all.find(|task| task["pid"] == pid && task["comm"] == *comm).unwrap();
        let Some(bytes) = task["mem_bytes_by_node"].as_object() else { continue };
        let expected: BTreeMap<String, i64> =
            bytes.iter().map(|(node, bytes)| (node.clone(), bytes.as_f64().unwrap() as i64)).collect();
        let found = by_process.get(&(int(row, "time"), Some(pid))).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{comm}");
    }
}

fn check_matrix(matrix: &[Row], both: &Both) {
    for row in matrix {
        let interval = both.interval(row);
        let seconds = interval["interval_ns"].as_f64().unwrap() / 1e9;
        let (from, to) = (int(row, "from_node").unwrap(), int(row, "to_node").unwrap());
        let value = |metric: &str| &interval["matrix"][metric][from.to_string()][to.to_string()];
        if from != to {
            for (column, metric) in [("tasks", "task_migrations_per_s"), ("pages", "pages_migrated_per_s")] {
                match int(row, column) {
                    Some(count) => assert!(is_near(count, value(metric), seconds), "{column}: {count}"),
                    None => assert!(value(metric).is_null(), "{column}"),
                }
            }
        }
        assert_eq!(int(row, "distance"), value("distance").as_f64().map(|slit| slit as i64));
        let here = |other: &&Row| int(other, "time") == int(row, "time");
        let all: i64 = matrix.iter().filter(here).filter_map(|row| int(row, "access_ns")).sum();
        if let Some(pct) = value("accesses_pct").as_f64() {
            let found = 100.0 * int(row, "access_ns").unwrap() as f64 / all as f64;
            assert!((found - pct).abs() < 1e-3, "{from} to {to}: {found} of {pct}");
        }
    }
}

#[test]
fn tables_have_the_amounts_of_json() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "90", "1");
    let fixtures = ["plain", "containers", "hot", "top", "demo"].map(|name| fixture(&format!("{name}.nrec")));
    for (at, path) in fixtures.iter().chain([&machine]).enumerate() {
        let out = scratch.join(&format!("out{at}"));
        export(path, &out, &[]);
        let [tasks, nodes, containers] =
            [Table::Tasks, Table::Nodes, Table::Containers].map(|table| rows(&out, table));
        let both = Both::of(&nodes, json(path, &[]));
        check_tasks(&tasks, &both);
        check_nodes(&nodes, &both);
        check_containers(&containers, &rows(&out, Table::ContainerNodes), &both);
        check_task_nodes(&tasks, &rows(&out, Table::TaskNodes), &both);
        check_matrix(&rows(&out, Table::Matrix), &both);
        check_hot(&rows(&out, Table::Hot), &both);
    }
}

fn check_hot(stacks: &[Row], both: &Both) {
    let mut found: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for row in stacks {
        *found.entry((int(row, "time").unwrap(), int(row, "pid").unwrap())).or_default() +=
            int(row, "samples").unwrap();
        let Field::ListInternal(stack) = &row["stack"] else { panic!("{row:?}") };
        assert!(!stack.elements().is_empty());
    }
    let mut expected = BTreeMap::new();
    for (time, interval) in both.times.iter().zip(&both.intervals) {
        for process in interval["hot"]["processes"].as_array().into_iter().flatten() {
            expected.insert((*time, process["pid"].as_i64().unwrap()), process["samples"].as_i64().unwrap());
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn the_made_up_machine_adds_up() {
    let scratch = Scratch::new();
    let (machine, out) = (demo(&scratch, "120", "1"), scratch.join("out"));
    export(&machine, &out, &[]);
    let [tasks, nodes, sockets, llcs] =
        [Table::Tasks, Table::Nodes, Table::Sockets, Table::Llcs].map(|table| rows(&out, table));
    for amount in ["busy_ns", "irq_ns", "cycles", "lma", "rma"] {
        assert_eq!(sum(&sockets, amount), sum(&nodes, amount), "{amount}");
        assert_eq!(sum(&llcs, amount), sum(&nodes, amount), "{amount}");
    }
    // One process holds a GPU of node 1, and runs on other nodes.
    let holders: Vec<&Row> = tasks.iter().filter(|row| word(row, "accelerators").is_some()).collect();
    assert!(!holders.is_empty());
    for row in holders {
        assert_eq!(word(row, "accelerator_nodes").as_deref(), Some("1"));
        assert_eq!(int(row, "accelerator_far_ns"), int(row, "cpu_ns"));
    }
    // All moves of the made-up machine are between nodes, and each node has its own L3 domains.
    let matrix = rows(&out, Table::Matrix);
    let moves = sum(&matrix, "tasks");
    assert!(moves > 0);
    for (sets, all) in [(&llcs, true), (&sockets, false)] {
        let [into, out] = ["moves_in", "moves_out"].map(|amount| sum(sets, amount));
        assert_eq!(into, out);
        assert!(if all { into == moves } else { (1..moves).contains(&into) }, "{into} of {moves}");
    }
    assert_eq!(word(&sockets[1], "cpu_list").as_deref(), Some("8-15,24-31"));
    assert_eq!(word(&llcs[1], "cpu_list").as_deref(), Some("2-3,18-19"));
    assert!(sum(&tasks, "cpu_ns") > 60_000_000_000);
    let (of_tasks, of_nodes) = (sum(&tasks, "cpu_ns"), sum(&nodes, "busy_ns"));
    // The made-up machine rounds the time of each of its CPUs.
    assert!((of_tasks - of_nodes).abs() < 10_000, "{of_tasks} and {of_nodes}");
    assert_eq!(sum(&tasks, "located_ns"), sum(&nodes, "located_ns"));
    let (of_tasks, of_nodes) = (sum(&tasks, "remote_ns"), sum(&nodes, "remote_ns"));
    // Each row is rounded to a nanosecond.
    assert!(of_tasks > 1_000_000_000 && (of_tasks - of_nodes).abs() < 10_000, "{of_tasks} and {of_nodes}");
    assert!(sum(&tasks, "remote_best_ns") <= of_tasks);
    // Tops of the tree include everything below them.
    let containers = rows(&out, Table::Containers);
    let tops: Vec<Row> = containers.into_iter().filter(|row| word(row, "parent").is_none()).collect();
    assert_eq!(sum(&tops, "cpu_ns"), sum(&tasks, "cpu_ns"));
    assert_eq!(sum(&tops, "located_ns"), sum(&tasks, "located_ns"));
    assert!((sum(&tops, "remote_ns") - of_tasks).abs() < 10_000);
    let stacks = rows(&out, Table::Hot);
    assert!(
        stacks.iter().any(|row| format!("{:?}", row["stack"]).contains("_[k]")),
        "no function of the kernel"
    );
    let findings = rows(&out, Table::Findings);
    let ids: BTreeSet<Option<String>> = findings.iter().map(|row| word(row, "id")).collect();
    let lines = json(&machine, &[]);
    let active = |line: &Json| {
        line["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let expected: BTreeSet<Option<String>> = lines.iter().flat_map(active).collect();
    assert!(!expected.is_empty());
    assert_eq!(ids, expected, "findings that were active");
    for row in &findings {
        assert!(int(row, "since") < int(row, "time") && int(row, "interval_ns") > Some(0), "{row:?}");
        let commands: Json = serde_json::from_str(&word(row, "commands").unwrap()).unwrap();
        assert!(commands.is_array());
    }
}

#[test]
fn threads_add_up_to_their_processes() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "20", "1");
    let [processes, threads] = [&[][..], &["-H"]].map(|flags| {
        let out = scratch.join(&format!("out{}", flags.len()));
        export(&machine, &out, flags);
        (rows(&out, Table::Tasks), rows(&out, Table::Findings).len(), rows(&out, Table::Containers))
    });
    assert!(threads.0.len() > processes.0.len());
    assert!(threads.0.iter().all(|row| int(row, "tid").is_some()));
    assert!(processes.0.iter().all(|row| int(row, "tid").is_none()));
    for column in ["cpu_ns", "wait_ns", "cycles", "minor_faults"] {
        assert_eq!(sum(&threads.0, column), sum(&processes.0, column), "{column}");
    }
    assert_eq!(threads.1, processes.1, "rules look at processes, whatever rows are written");
    assert_eq!(sum(&threads.2, "cpu_ns"), sum(&processes.2, "cpu_ns"));
}

#[test]
fn tasks_that_rest_have_rows_with_all() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "10", "1");
    let [busy, all] = [&[][..], &["--all"]].map(|flags| {
        let out = scratch.join(&format!("out{}", flags.len()));
        export(&machine, &out, &[flags, &["--tables", "tasks"]].concat());
        rows(&out, Table::Tasks)
    });
    assert!(all.len() > busy.len(), "{} and {}", all.len(), busy.len());
    let expected: usize =
        json(&machine, &[]).iter().map(|line| line["tasks"].as_array().unwrap().len()).sum();
    assert_eq!(all.len(), expected);
    assert_eq!(sum(&all, "cpu_ns"), sum(&busy, "cpu_ns"));
}

#[test]
fn the_host_is_one_row() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    export(&fixture("demo.nrec"), &out, &[]);
    let hosts = rows(&out, Table::Host);
    let [host] = &hosts[..] else { panic!("{} rows", hosts.len()) };
    let lines = json(&fixture("demo.nrec"), &[]);
    let of_json = &lines[0]["host"];
    for key in ["kernel", "arch", "cpu_model", "scope"] {
        assert_eq!(word(host, key).as_deref(), of_json[key].as_str(), "{key}");
    }
    for key in ["cpus", "nodes"] {
        assert_eq!(int(host, key), of_json[key].as_i64(), "{key}");
    }
    for key in ["topology", "events", "missing"] {
        let parsed: Json = serde_json::from_str(&word(host, key).unwrap()).unwrap();
        assert!(parsed.is_object() || parsed.is_array(), "{key}");
    }
    assert!(word(host, "version").is_some());
}
