//! The demo machine: its numbers agree, are the same every time, and show the examples that the README names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common;
use crate::pages;
use crate::program;
use crate::scratch::Scratch;
use crate::terminal::Terminal;
use common::Machine;
use common::screen::{draw, text};

use std::time::Duration;

use numatop_ng::collect::mappings::Mapping;
use numatop_ng::metric::Value;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::Role;
use numatop_ng::model::sample::{Counts, Flow, Sample, TaskRaw};
use numatop_ng::model::turns::DramTraffic;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::demo::Demo;
use numatop_ng::source::synthetic::demo_machine;
use numatop_ng::tui::theme::Theme;

const SECOND: u64 = 1_000_000_000;

/// Everything that tasks did until a sample, ended ones included.
fn all_of(sample: &Sample, ended: &mut Counts) -> Counts {
    sample.exited.iter().for_each(|task| *ended += &task.counts);
    let mut sum = ended.clone();
    sample.tasks.iter().for_each(|task| sum += &task.counts);
    sum
}

/// Samples over two minutes, in which the training job changes its node twice.
fn samples(machine: &mut Machine) -> Vec<Sample> {
    (0..130).map(|_| machine.tick()).collect()
}

#[test]
fn cpus_do_what_tasks_do() {
    let mut ended = Counts::default();
    for sample in samples(&mut demo_machine()) {
        let sum = all_of(&sample, &mut ended);
        let rounding = 1000 * sample.cpus.len() as u64 * (sample.mono_ns / SECOND);
        let busy: u64 = sample.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        assert!(sum.cpu_ns() - busy < rounding, "{} and {busy}", sum.cpu_ns());
        for slot in 0..4 {
            let counted: u64 = sample.cpus.iter().map(|cpu| cpu.slots[slot].count).sum();
            let of_tasks = sum.slots[slot].count;
            assert!(
                of_tasks.abs_diff(counted) <= of_tasks / 1_000_000 + rounding,
                "{of_tasks} and {counted}"
            );
        }
        let switches: u64 = sample.cpus.iter().map(|cpu| cpu.switches).sum();
        assert!(
            switches.abs_diff(sum[Counter::RunCount]) <= sum[Counter::RunCount] / 100 + 2000,
            "{switches}, {}",
            sum[Counter::RunCount]
        );
    }
}

#[test]
fn controllers_count_the_accesses_of_cpus() {
    for sample in samples(&mut demo_machine()) {
        let host = demo_machine().host;
        let slots: Vec<usize> = host.slots(Role::Lma).chain(host.slots(Role::Rma)).collect();
        let counted =
            sample.cpus.iter().flat_map(|cpu| slots.iter().map(|slot| cpu.slots[*slot].count)).sum::<u64>();
        let bytes = |traffic: &std::sync::Arc<DramTraffic>| traffic.read.bytes;
        let of_nodes: u64 = sample.inputs.node_dram.values().map(bytes).sum();
        let of_sockets: u64 = sample.inputs.socket_dram.values().map(bytes).sum();
        assert_eq!((of_nodes, of_sockets), (counted * 64, counted * 64));
        assert_eq!((sample.inputs.node_dram.len(), sample.inputs.socket_dram.len()), (4, 2));
    }
}

#[test]
fn no_cpu_is_busier_than_time_passes() {
    let samples = samples(&mut demo_machine());
    for pair in samples.windows(2) {
        for (before, cpu) in pair[0].cpus.iter().zip(&pair[1].cpus) {
            assert!(cpu.busy_ns - before.busy_ns <= SECOND, "CPU {}", cpu.id);
        }
    }
}

#[test]
fn one_compiler_works_after_the_other() {
    let samples = samples(&mut demo_machine());
    for sample in &samples[1..] {
        let compilers = sample.tasks.iter().chain(&sample.exited).filter(|task| task.ppid == 9000);
        assert_eq!(compilers.count(), 1);
    }
    let ended: Vec<u32> = samples.iter().flat_map(|sample| &sample.exited).map(|task| task.pid).collect();
    assert!(ended.len() > 40 && ended.is_sorted_by(|a, b| a < b), "{ended:?}");
}

#[test]
fn what_moves_between_nodes_is_what_tasks_moved() {
    let mut ended = Counts::default();
    for sample in samples(&mut demo_machine()) {
        let sum = all_of(&sample, &mut ended);
        let moved = |flows: &[Flow]| flows.iter().map(|flow| flow.count).sum::<u64>();
        assert_eq!(moved(&sample.flows), sum[Counter::NodeMoves]);
        assert_eq!(moved(&sample.page_flows), sum[Counter::BalancedPages]);
        assert_eq!(sample.vm.unwrap().hints.unwrap().faults, sum[Counter::HintFaults]);
    }
}

#[test]
fn memory_of_nodes_is_that_of_processes_and_the_kernel() {
    for sample in samples(&mut demo_machine()) {
        for node in &sample.nodes {
            let used = node.mem_anon_bytes + node.mem_file_bytes + node.mem_slab_bytes;
            assert_eq!(node.mem_total_bytes, node.mem_free_bytes + used, "node {}", node.id);
        }
        for raw in sample.placement.values() {
            let found = raw.found.as_ref().unwrap();
            assert_eq!(found.by_node.iter().sum::<u32>(), found.asked);
        }
    }
}

/// Bytes that processes have to themselves, and the largest shared memory of one: they all share the same.
fn memory_of(sample: &Sample, wanted: impl Fn(&TaskRaw) -> bool) -> [u64; 2] {
    let mut sums = [0, 0];
    for task in sample.tasks.iter().filter(|task| task.pid == task.tid && wanted(task)) {
        let resident = task.resident.unwrap();
        sums[0] += resident.anon_bytes + resident.file_bytes;
        sums[1] = resident.shmem_bytes.max(sums[1]);
    }
    sums
}

#[test]
fn shared_memory_counts_once_in_containers_and_nodes() {
    let is_near = |found: u64, wanted: u64| found.abs_diff(wanted) <= wanted / 50 + (1 << 20);
    for sample in samples(&mut demo_machine()) {
        // The memory of a compiler that ends now is still charged.
        let lasts = |id: &u64| sample.exited.iter().all(|task| task.cgroup_id != *id);
        for (id, group) in sample.groups.iter().filter(|(id, _)| lasts(id)) {
            let found = *group.mem_bytes.as_ref().unwrap();
            let [own, shared] = memory_of(&sample, |task| task.cgroup_id == *id);
            assert!(is_near(found, own + shared), "cgroup {id}: {found} instead of {}", own + shared);
        }
        let shared: u64 = sample.nodes.iter().map(|node| node.file_pages.unwrap().shmem_bytes).sum();
        let [own, wanted] = memory_of(&sample, |_| true);
        assert!(is_near(shared, wanted), "{shared} instead of {wanted} shared");
        let used: u64 = sample.nodes.iter().map(|node| node.mem_anon_bytes).sum();
        assert!(used < own && own < used + used / 8, "{used} is not anonymous of {own}");
    }
}

#[test]
fn accesses_are_as_remote_as_memory_is() {
    let mut machine = demo_machine();
    let mut before = machine.tick();
    for _ in 0..70 {
        let now = machine.tick();
        let snapshot = derive(&machine.host, Some(&before), &now, RowKind::Processes);
        for task in snapshot.tasks.iter().filter(|task| task.run_ns() > 0 && !task.exited) {
            let Some((_, Ok(memory))) = task.memory() else { continue };
            // Threads on slower nodes make fewer accesses in the same time.
            let share = |node: usize| memory.bytes_by_node[node] / memory.bytes();
            let ran = task.delta.run_ns.iter().map(|ns| *ns as f64).enumerate();
            let elsewhere: f64 = ran.map(|(node, ns)| ns * (1.0 - share(node))).sum();
            let estimate = elsewhere * 100.0 / task.run_ns() as f64;
            let [local, remote] = [2, 3].map(|slot| task.delta.slots[slot].count as f64);
            let counted = remote * 100.0 / (local + remote);
            assert!((estimate - counted).abs() < 3.0, "{}: {estimate} and {counted}", task.raw.pid);
        }
        before = now;
    }
}

#[test]
fn it_is_the_same_every_time_and_in_steps_of_any_length() {
    assert_eq!(samples(&mut demo_machine()), samples(&mut demo_machine()));
    let (mut whole, mut quarters) = (demo_machine(), demo_machine());
    let mut last = (whole.tick(), quarters.tick());
    for _ in 0..10 {
        last = (whole.tick(), (0..4).map(|_| quarters.step(SECOND / 4)).last().unwrap());
    }
    let (mut a, mut b) = (Counts::default(), Counts::default());
    let (whole, quarters) = (all_of(&last.0, &mut a), all_of(&last.1, &mut b));
    assert_eq!(last.0.mono_ns, last.1.mono_ns);
    assert_eq!(whole[Counter::HintFaults], quarters[Counter::HintFaults]);
    assert!(whole.cpu_ns().abs_diff(quarters.cpu_ns()) < 4 * SECOND, "a compiler that ended is not in both");
}

/// Examples that the README names.
#[test]
fn it_shows_what_it_is_there_to_show() {
    let mut machine = demo_machine();
    let (before, mut now) = (machine.tick(), machine.tick());
    let snapshot = derive(&machine.host, Some(&before), &now, RowKind::Processes);
    let read = |comm: &str, id: &str| {
        let task =
            snapshot.tasks.iter().find(|task| task.raw.comm.bytes() == comm.as_bytes() && task.run_ns() > 0);
        let metric = numatop_ng::metric::task::by_id(id).unwrap();
        match metric.read(task.unwrap(), &snapshot).unwrap() {
            Value::F64(value) | Value::Share { pct: value, .. } => value,
            other => panic!("{other:?}"),
        }
    };
    assert!(read("postgres", "remote_pct") > 90.0 && read("postgres", "ipc") < 0.6);
    assert!(read("java", "node_migrations_per_s") > 30.0);
    assert!(read("redis-server", "smt_busy_pct") > 90.0);
    assert!(read("redis-server", "ipc_smt_idle") > 1.5 * read("redis-server", "ipc_smt_busy"));
    assert!(read("train", "pages_migrated_balancing_per_s") > 10_000.0);
    assert!(read("solver", "remote_pct") == 0.0 && read("solver", "ipc") > 2.0);
    let report =
        snapshot.containers.iter().find(|row| row.group.as_ref().is_some_and(|group| group.name == "report"));
    let throttled = numatop_ng::metric::container::by_id("throttled_pct").unwrap();
    let value = throttled.read(report.unwrap(), &snapshot).unwrap();
    assert_eq!(format!("{value:?}"), "F64(64.0)");
    // Its memory follows the training job.
    let memory = |sample: &Sample| sample.placement[&6200].found.as_ref().unwrap().by_node[2];
    let first = memory(&now);
    (0..50).for_each(|_| now = machine.tick());
    assert!(first < 100 && memory(&now) > 900, "{first} {}", memory(&now));
}

#[test]
fn the_screen_says_that_it_is_a_demo() {
    for size in [(80, 24), (160, 50)] {
        let mut app = common::app(&mut demo_machine(), 4, size, Theme::new(false, false));
        app.state.demo = true;
        let shown = text(&draw(&app, size.0, size.1));
        assert!(shown.lines().next().unwrap().contains("DEMO"), "{shown}");
        assert!(shown.contains("postgres") && shown.contains("simulated machine"), "{shown}");
    }
}

/// No privilege, and nothing of BPF.
#[test]
fn everybody_may_run_it() {
    let mut command = Command::new(program::path());
    command.args(["--demo", "-b", "-n", "2"]).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        // The user "nobody" on all distributions.
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(shown.matches("solver").count(), 2, "{shown}");
}

#[test]
fn without_a_number_of_intervals_it_runs_in_real_time() {
    let mut command = Command::new(program::path());
    let mut child = command
        .args(["--demo", "-b", "-d", "0.1", "--format", "json", "--top", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let intervals: Vec<u64> = lines
        .take(5)
        .map(|line| {
            let object: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            object["interval_ns"].as_u64().unwrap()
        })
        .collect();
    let took = began.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    let told: u64 = intervals.iter().sum();
    assert!(took.as_nanos() as u64 >= told - SECOND / 50, "{took:?} {intervals:?}");
    assert!(intervals.iter().all(|ns| ns % 10_000_000 == 0), "{intervals:?}");
}

#[test]
fn command_lines_are_recorded_only_on_request() {
    let scratch = Scratch::new();
    let lines = |name: &str, flags: &[&str]| {
        let path = scratch.join(name);
        let path = pages::text(&path);
        let words = [&["record", path, "--demo", "-n", "2"], flags].concat();
        assert!(pages::numatop(&words).status.success());
        pages::stdout(&["export", path, "--format", "csv", "--columns", "comm,cmdline"])
    };
    assert!(lines("with.nrec", &["--record-cmdline"]).contains("solver,./solver --mesh"));
    assert!(!lines("without.nrec", &[]).contains("--mesh"));
    for (name, wanted) in [("with.nrec", "./solver --mesh"), ("without.nrec", "--record-cmdline")] {
        let path = scratch.join(name);
        let mut view = Terminal::start(&[OsStr::new("replay"), path.as_os_str()], 30, 120).unwrap();
        view.until("rows", |text| text.contains("solver")).unwrap();
        view.press("\r").unwrap();
        view.until(wanted, |text| text.contains("affinity") && text.contains(wanted)).unwrap();
    }
}

#[test]
fn mappings_and_their_use_agree_with_memory_by_node() {
    let mut demo = Demo::at_once(Duration::from_secs(1));
    demo.set_access(true).unwrap();
    let sample = demo.next().unwrap().unwrap();
    let uses = sample.memory_use.as_ref().unwrap();
    let mut seen = 0;
    for task in sample.tasks.iter().filter(|task| task.pid == task.tid) {
        let Some(found) = uses.processes.get(&task.process()) else { continue };
        let mappings = demo.mappings(task.process(), true).unwrap().unwrap();
        let bytes: f64 = mappings.rows.iter().map(Mapping::resident).sum();
        let rss = task.rss_bytes as f64;
        assert!((bytes - rss).abs() <= rss * 0.01, "{bytes} of {rss}");
        let of_use = found.mappings[0].remote();
        assert!(of_use.1 > 0.0 && found.mappings.len() == mappings.rows.len());
        seen += 1;
    }
    assert!(seen > 8, "{seen} processes");
    assert!(uses.processes.values().any(|found| !found.lines.listed.is_empty()));
}

#[test]
fn a_scope_by_container_leaves_the_rest_out() {
    let rows = |words: &[&str]| {
        let usual = ["--demo", "-b", "-n", "2", "--format", "csv", "--columns", "comm"];
        pages::stdout(&[&usual[..], words].concat())
    };
    let names = |text: &str| -> BTreeSet<String> {
        // The last column says whether it has ended.
        text.lines().skip(1).filter_map(|line| line.rsplit(',').nth(1).map(String::from)).collect()
    };
    assert_eq!(names(&rows(&["--container", "report"])), ["python3".to_owned()].into());
    assert_eq!(names(&rows(&["--pod", "shop/orders-5d9c7"])), ["java".to_owned()].into());
    assert_eq!(names(&rows(&["--unit", "postgresql"])), ["postgres".to_owned()].into());
    assert_eq!(names(&rows(&["--cgroup", "/docker"])), ["nginx".to_owned(), "python3".to_owned()].into());
    let host = names(&rows(&["--host"]));
    assert!(host.contains("postgres") && !host.contains("java"), "{host:?}");
    let refused = pages::numatop(&["--demo", "-b", "-n", "1", "--container", "repotr"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && why.contains("closest names: report"), "{why}");
}

#[test]
fn moves_between_nodes_are_those_of_tasks_in_scope() {
    let moves = |container: &str| -> f64 {
        let usual = ["--demo", "-b", "-n", "3", "--json-full", "--container", container];
        let text = pages::stdout(&usual);
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let rows = last["matrix"]["task_migrations_per_s"].as_object().unwrap().values();
        rows.flat_map(|row| row.as_object().unwrap().values()).filter_map(serde_json::Value::as_f64).sum()
    };
    assert_eq!((moves("report"), moves("orders")), (0.0, 36.0));
}

#[test]
fn sets_of_events_are_chosen_in_the_demo() {
    let column = |set: &str| {
        let words =
            ["--demo", "-b", "-n", "2", "--format", "csv", "--columns", "stall_backend_pct", "--events", set];
        pages::stdout(&[&words[..], &["--comm", "postgres", "--top", "1"]].concat())
    };
    let value =
        |text: &str| text.lines().last().and_then(|line| line.rsplit(',').nth(1)?.parse::<f64>().ok());
    assert!(value(&column("stalls,basic")).is_some_and(|pct| pct > 50.0), "{}", column("stalls"));
    assert_eq!(value(&column("auto")), None);
    let usual = ["--demo", "--container", "report", "--columns", "comm,ipc,stall_backend_pct"];
    let mut view = Terminal::start(&usual.map(OsStr::new), 30, 120).unwrap();
    view.until("the scope", |text| text.contains("only container report")).unwrap();
    view.press("E").unwrap();
    view.until("the sets", |text| text.contains("CPU counters") && text.contains("backend-stalls")).unwrap();
    view.press("stalls\r").unwrap();
    let is_counted = |line: &str| {
        let mut words = line.split_whitespace().rev();
        line.contains("python3") && words.next().is_some_and(|word| word.parse::<f64>().is_ok())
    };
    view.until("stalls", |text| text.lines().any(is_counted)).unwrap();
    // The scope of the command line is none that was chosen here.
    view.press("C").unwrap();
    view.until("the refusal", |text| text.contains("no scope is set")).unwrap();
}

#[test]
fn the_scope_of_the_screen_is_chosen_among_containers() {
    let mut view = Terminal::start(&["--demo"].map(OsStr::new), 30, 120).unwrap();
    view.until("rows", |text| text.contains("solver")).unwrap();
    view.press("3").unwrap();
    view.until("containers", |text| text.contains("ci-runner")).unwrap();
    view.press("j").unwrap();
    view.press("c").unwrap();
    view.until("the scope", |text| text.contains("· only ")).unwrap();
    view.press("C").unwrap();
    view.until("all", |text| !text.contains("· only ") && text.contains("ci-runner")).unwrap();
}
