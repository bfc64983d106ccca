//! What the probes count, beside what the kernel says in /proc, getrusage(2) and cgroup files.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use numatop_ng::collect::records::{self, Layout};
use numatop_ng::collect::sched::SchedProbe;
use numatop_ng::collect::scope::Scope;
use numatop_ng::collect::table::parse;
use numatop_ng::collect::tasks::TaskProbe;
use numatop_ng::collect::wire::Scoped;
use numatop_ng::host::topology::Topology;
use numatop_ng::metric::counters;
use numatop_ng::pmu::event::{Event, Role};
use numatop_ng::pmu::sets::Choice;
use numatop_ng::sample::{Missing, Sample};
use numatop_ng::snapshot::{Grain, Snapshot, Task, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::units::CpuId;

use crate::workload::{ForEverybody, Workload};

fn watch(scope: Scope, events: &str) -> Result<LiveSource> {
    LiveSource::start(LiveOptions {
        scope,
        events: Event::parse_list(events)?.into(),
        ..LiveOptions::default()
    })
}

fn watch_everything() -> Result<LiveSource> {
    watch(Scope::default(), "")
}

fn sample(source: &mut LiveSource) -> Result<Sample> {
    source.next()?.context("a live source does not end")
}

fn between(source: &LiveSource, from: &Sample, to: &Sample) -> Snapshot {
    derive(&source.host(), Some(from), to, Grain::Processes)
}

fn row(snapshot: &Snapshot, pid: u32) -> Result<&Task> {
    snapshot
        .tasks
        .iter()
        .find(|task| task.raw.pid == pid)
        .with_context(|| format!("there is no row for process {pid}"))
}

/// On-CPU ns of all threads of a process, by /proc/PID/task/*/schedstat.
pub fn schedstat(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(entry?.path().join("schedstat"))?;
        sum += text.split(' ').next().context("schedstat is empty")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// One of the times in the first line of /proc/stat, over all CPUs, in ns (ticks of 10 ms).
fn proc_stat(columns: &[usize]) -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let cpu = stat.lines().next().context("/proc/stat is empty")?;
    let fields: Vec<u64> = cpu.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // SAFETY: sysconf has no preconditions.
    let tick = 1_000_000_000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Ok(columns.iter().map(|column| fields[*column]).sum::<u64>() * tick)
}

/// Time in which nothing of ours ran: idle, waiting for a disk, or taken by the hypervisor.
fn idle_ns() -> Result<u64> {
    proc_stat(&[3, 4, 7])
}

/// Time in interrupts and time that the hypervisor took: on CPU to a clock, but not to the scheduler.
fn stolen_ns() -> Result<u64> {
    proc_stat(&[5, 6, 7])
}

pub fn near(what: &str, got: u64, truth: u64, tolerance: f64, floor: u64) -> Result<()> {
    let allowed = (truth as f64 * tolerance) as u64 + floor;
    println!("{what}: {got}, truth {truth}, allowed ±{allowed}");
    ensure!(got.abs_diff(truth) <= allowed, "{what}: counted {got}, truth {truth}, allowed ±{allowed}");
    Ok(())
}

/// A tick of the slowest kernel: what `sum_exec_runtime` of a running task may lag behind.
pub const TICK_NS: u64 = 10_000_000;

pub fn cpu_time_of_hogs_and_sleepers_is_schedstat() -> Result<()> {
    let workloads = [Workload::start("hog")?, Workload::start("hog")?, Workload::start("sleeper")?];
    let mut source = watch_everything()?;
    let from = sample(&mut source)?;
    let before: Vec<u64> =
        workloads.iter().map(|workload| schedstat(workload.pid())).collect::<Result<_>>()?;
    thread::sleep(Duration::from_secs(5));
    let to = sample(&mut source)?;
    let after: Vec<u64> =
        workloads.iter().map(|workload| schedstat(workload.pid())).collect::<Result<_>>()?;
    let snapshot = between(&source, &from, &to);
    for ((workload, before), after) in workloads.iter().zip(before).zip(after) {
        let task = row(&snapshot, workload.pid())?;
        near("cpu_ns", task.run_ns(), after - before, 0.01, TICK_NS)?;
        ensure!(task.total.cpu_ns() >= task.run_ns());
    }
    Ok(())
}

pub fn alternating_tasks_are_not_billed_for_each_other() -> Result<()> {
    let workloads = [Workload::start("alternator")?, Workload::start("alternator")?];
    let mut source = watch_everything()?;
    let from = sample(&mut source)?;
    let before: Vec<u64> =
        workloads.iter().map(|workload| schedstat(workload.pid())).collect::<Result<_>>()?;
    thread::sleep(Duration::from_secs(5));
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    for (workload, before) in workloads.iter().zip(before) {
        let truth = schedstat(workload.pid())? - before;
        near("cpu_ns", row(&snapshot, workload.pid())?.run_ns(), truth, 0.01, TICK_NS)?;
    }
    Ok(())
}

/// A look at /proc/stat: idle time of all CPUs, and when that was.
fn look() -> Result<(u64, Instant)> {
    Ok((idle_ns()?, Instant::now()))
}

pub fn rows_add_up_to_the_busy_time_of_the_machine() -> Result<()> {
    let _workloads = [Workload::start("hog")?, Workload::start("alternator")?, Workload::start("sleeper")?];
    let mut source = watch_everything()?;
    // Looks before and after each sample: on a busy machine a sample may have to wait for its turn.
    let outer_from = look()?;
    let from = sample(&mut source)?;
    let inner_from = look()?;
    thread::sleep(Duration::from_secs(5));
    let inner_to = look()?;
    let to = sample(&mut source)?;
    let outer_to = look()?;
    let snapshot = between(&source, &from, &to);
    let rows: u64 = snapshot.tasks.iter().map(Task::run_ns).sum();
    let busy = |from: (u64, Instant), to: (u64, Instant)| {
        let elapsed = (to.1 - from.1).as_nanos() as u64 * u64::from(snapshot.online_cpus);
        elapsed.saturating_sub(to.0 - from.0)
    };
    let (least, most) = (busy(inner_from, inner_to), busy(outer_from, outer_to));
    println!("sum of all rows: {rows}, truth {least} to {most}");
    // Interrupts that find a CPU idle are busy time to /proc/stat, but belong to no task.
    let allowed = |truth: u64| truth / 200 + 2 * TICK_NS;
    ensure!(rows + allowed(least) >= least, "sum of all rows: counted {rows}, at least {least} were used");
    ensure!(rows <= most + allowed(most), "sum of all rows: counted {rows}, at most {most} were used");
    near("busy time of the CPUs", snapshot.busy_ns, rows, 0.005, TICK_NS)
}

pub fn a_fork_storm_is_accounted_for() -> Result<()> {
    let mut storm = Workload::start("storm")?;
    let mut source = watch_everything()?;
    let mut from = sample(&mut source)?;
    let began = Instant::now();
    storm.go()?;
    let (mut rows, mut ended) = (0, 0);
    // Several samples, so that processes end in each part of an interval.
    while began.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(500));
        let to = sample(&mut source)?;
        let snapshot = between(&source, &from, &to);
        for task in &snapshot.tasks {
            let child = task.raw.ppid == storm.pid();
            rows += if child || task.raw.pid == storm.pid() { task.run_ns() } else { 0 };
            ended += u64::from(child && task.exited);
        }
        from = to;
    }
    let line = storm.line()?;
    let (forks, truth) = line.split_once(' ').context("the storm prints forks and CPU time")?;
    let (forks, truth): (u64, u64) = (forks.parse()?, truth.parse()?);
    ensure!(forks > 400, "only {forks} forks in four seconds: no storm");
    ensure!(ended == forks, "{ended} ended children were reported, {forks} were forked");
    let lost: u64 = from.lost.values().sum();
    ensure!(lost == 0, "{lost} losses: {:?}", from.lost);
    // Children are added to their parent's usage when they are reaped, before their last moments on CPU;
    // the parent's own usage is read before it says so.
    near("CPU time of the storm", rows, truth, 0.005, TICK_NS)
}

pub fn a_process_is_reported_once_when_it_ends() -> Result<()> {
    let mut source = watch_everything()?;
    let mut brief = Workload::start("brief")?;
    let from = sample(&mut source)?;
    brief.go()?;
    brief.finish()?;
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    let rows: Vec<&Task> = snapshot.tasks.iter().filter(|task| task.raw.pid == brief.pid()).collect();
    ensure!(
        rows.len() == 1 && rows[0].exited,
        "{} rows, exited {:?}",
        rows.len(),
        rows.first().map(|row| row.exited)
    );
    ensure!(rows[0].run_ns() >= 190_000_000, "burnt 200 ms, counted {} ns", rows[0].run_ns());
    let later = sample(&mut source)?;
    let snapshot = between(&source, &to, &later);
    ensure!(row(&snapshot, brief.pid()).is_err(), "an ended process is reported again");
    Ok(())
}

pub fn threads_fold_into_their_process() -> Result<()> {
    let mut source = watch_everything()?;
    let mut threads = Workload::start("threads")?;
    let from = sample(&mut source)?;
    threads.go()?;
    threads.line()?;
    // The last switch of a joined thread may be a moment away.
    thread::sleep(Duration::from_millis(50));
    let to = sample(&mut source)?;
    let processes = between(&source, &from, &to);
    let process = row(&processes, threads.pid())?;
    ensure!(process.threads == 1, "{} threads are left", process.threads);
    ensure!(process.run_ns() >= 290_000_000, "burnt 300 ms, counted {} ns", process.run_ns());
    let rows = derive(&source.host(), Some(&from), &to, Grain::ThreadsOf(threads.pid())).tasks;
    let sum: u64 = rows.iter().map(Task::run_ns).sum();
    ensure!(sum == process.run_ns(), "threads sum to {sum} ns, the process to {} ns", process.run_ns());
    ensure!(rows.iter().any(|row| row.tid == Some(0) && row.exited), "there is no row for the ended threads");
    Ok(())
}

pub fn exec_by_a_thread_keeps_the_process() -> Result<()> {
    let mut source = watch_everything()?;
    let mut workload = Workload::start("exec-by-thread")?;
    let from = sample(&mut source)?;
    workload.go()?;
    let (comm, end) = (format!("/proc/{}/comm", workload.pid()), Instant::now() + Duration::from_secs(20));
    while fs::read_to_string(&comm)?.trim() != "sleep" {
        ensure!(Instant::now() < end, "the workload does not get to its exec");
        thread::sleep(Duration::from_millis(10));
    }
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    let task = row(&snapshot, workload.pid())?;
    ensure!(!task.exited && task.raw.comm.bytes() == b"sleep", "{:?}, exited {}", task.raw.comm, task.exited);
    ensure!(task.run_ns() >= 140_000_000, "burnt 150 ms, counted {} ns", task.run_ns());
    Ok(())
}

/// Runs workload `name` once to warm up and once between two samples; returns slot 0 of it, its row and
/// its own count. Some kernels hide switches, and what counters counted across one is nobody's: tries
/// again until there was none.
fn count_once(event: &str, name: &str) -> Result<(u64, Task, u64)> {
    for _ in 0..10 {
        let mut workload = Workload::start(name)?;
        workload.go()?;
        workload.line()?;
        let mut source = watch(Scope { pids: [workload.pid()].into(), ..Scope::default() }, event)?;
        let from = sample(&mut source)?;
        workload.go()?;
        let truth: u64 = workload.line()?.parse()?;
        let to = sample(&mut source)?;
        let snapshot = between(&source, &from, &to);
        let task = row(&snapshot, workload.pid())?.clone();
        let slot = task.delta.slots[0].count;
        println!("{event}: {slot} in the slot, truth {truth}, lost {:?}", to.lost);
        if to.lost.values().all(|lost| *lost == 0) {
            return Ok((slot, task, truth));
        }
    }
    anyhow::bail!("in ten attempts a switch was always hidden")
}

pub fn page_faults_in_a_slot_are_exact() -> Result<()> {
    let (slot, task, truth) = count_once("page-faults", "faults")?;
    ensure!(truth >= 4096);
    // Outside the two getrusage calls the process reads a word and prints a number: a page or two.
    ensure!(slot.abs_diff(truth) <= 2, "slot {slot}, truth {truth}");
    ensure!(task.delta.min_flt.abs_diff(truth) <= 2, "min_flt {}, truth {truth}", task.delta.min_flt);
    Ok(())
}

/// One task of two that take turns on a CPU faults, and the other does not. The kernel counts faults by task as well.
/// The faulter rests while a sample is taken: its slot and the kernel's count are not read in the same moment.
pub fn events_stay_with_the_task_they_happened_to() -> Result<()> {
    let [faulter, other] = [Workload::start("alternating-faulter")?, Workload::start("alternator")?];
    let mut source = watch(Scope::default(), "page-faults")?;
    faulter.pause()?;
    let from = sample(&mut source)?;
    faulter.resume()?;
    thread::sleep(Duration::from_secs(2));
    faulter.pause()?;
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    let counts = |workload: &Workload| {
        let task = row(&snapshot, workload.pid())?;
        Ok::<_, anyhow::Error>((task.delta.slots[0].count, task.delta.min_flt))
    };
    let ((slot, truth), (of_other, truth_of_other)) = (counts(&faulter)?, counts(&other)?);
    // Some kernels hide switches, several in a row too. What was counted across them is nobody's.
    let lost = to.lost["counters_of_unseen_switches"];
    println!("{slot} of {truth}, other {of_other} of {truth_of_other}, {lost} switches not seen");
    ensure!(truth > 5_000 && truth_of_other < 100, "the workloads do what they are for");
    ensure!(slot <= truth + 2 && of_other <= truth_of_other + 2, "billed for the other");
    let enough = if lost == 0 { truth } else { truth - truth / 20 };
    ensure!(slot + 2 >= enough, "{slot} of {truth}, {lost} switches not seen");
    Ok(())
}

pub fn switches_in_a_slot_are_those_of_getrusage() -> Result<()> {
    let (slot, task, truth) = count_once("context-switches", "switches")?;
    ensure!(truth >= 500);
    let kernel = task.delta.nvcsw + task.delta.nivcsw;
    ensure!(slot.abs_diff(kernel) <= 1, "slot {slot}, nvcsw and nivcsw {kernel}");
    // Waiting for the words, and whoever takes the CPU meanwhile, are outside the two getrusage calls.
    ensure!((truth..truth + 50).contains(&slot), "slot {slot}, truth {truth}");
    Ok(())
}

pub fn cpu_clock_in_a_slot_is_time_on_cpu() -> Result<()> {
    let hog = Workload::start("hog")?;
    let mut source = watch(Scope::default(), "cpu-clock")?;
    let from = sample(&mut source)?;
    let stolen = stolen_ns()?;
    thread::sleep(Duration::from_secs(3));
    let to = sample(&mut source)?;
    let stolen = stolen_ns()? - stolen;
    let snapshot = between(&source, &from, &to);
    let task = row(&snapshot, hog.pid())?;
    clock_is_near(task.delta.slots[0].count, task.run_ns(), stolen, &to)
}

/// A clock in a slot never shows more than the time on CPU, and what interrupts and the hypervisor took of
/// it. It shows no less either, unless stretches were nobody's: then the loss must have been counted.
fn clock_is_near(slot: u64, truth: u64, stolen: u64, sample: &Sample) -> Result<()> {
    let allowed = truth / 100 * 3 + TICK_NS + stolen;
    let lost = sample.lost["counters_of_unseen_switches"];
    println!("cpu-clock: {slot}, truth {truth}, allowed ±{allowed}, {lost} switches not seen");
    ensure!(slot <= truth + allowed, "cpu-clock: {slot} counted, {truth} used, allowed {allowed} more");
    ensure!(
        slot + allowed >= truth || lost > 0,
        "cpu-clock: {slot} counted, {truth} used, and nothing was lost"
    );
    Ok(())
}

/// On a machine that could have four nodes, with two events in the roles of cycles and instructions.
pub fn counts_by_node_add_up_to_the_slots() -> Result<()> {
    let hog = Workload::start("hog")?;
    let mut topology = Topology::read(Path::new("/"))?;
    topology.possible_nodes = 4;
    let role = |name: &str, role: Role| Ok::<Event, anyhow::Error>(Event { role, ..Event::named(name)? });
    let events = vec![
        Event::named("page-faults")?,
        role("cpu-clock", Role::Cycles)?,
        role("task-clock", Role::Instructions)?,
    ];
    let layout = Layout::new(4, topology.smt(), &events);
    let store = records::create(layout)?;
    let mut sched = SchedProbe::start(&topology, (&store, layout), events, Scoped::Not, None)?;
    let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
    for cpu in &online {
        sched.online(&topology, *cpu)?;
    }
    let mut tasks = TaskProbe::start(&sched, &store, 4, &Scope::default(), None, false)?;
    tasks.walk(|_| {})?;
    thread::sleep(Duration::from_secs(1));
    for cpu in &online {
        sched.flush(*cpu)?;
    }

    let mut rows = Vec::new();
    tasks.walk(|row| rows.push(parse(&row, 4096)))?;

    let counts =
        &rows.iter().find(|row| row.task.tid == hog.pid()).context("the hog has no row")?.task.counts;
    ensure!(counts.run_ns.len() == 4 && counts.by_node.len() == 4, "{counts:?}");
    ensure!(counts.slots[1].count > 100_000_000, "{counts:?}");
    let sum =
        counts.by_node.iter().fold((0, 0), |sum, node| (sum.0 + node.cycles, sum.1 + node.instructions));
    ensure!(sum == (counts.slots[1].count, counts.slots[2].count), "{counts:?}");
    for (ran, node) in counts.run_ns.iter().zip(&counts.by_node) {
        ensure!((*ran > 0) == (node.cycles > 0), "{counts:?}");
    }
    Ok(())
}

pub fn a_scope_of_one_process_is_only_that() -> Result<()> {
    let (inside, _outside) = (Workload::start("hog")?, Workload::start("hog")?);
    let mut source = watch(Scope { pids: [inside.pid()].into(), ..Scope::default() }, "cpu-clock")?;
    let from = sample(&mut source)?;
    let (before, stolen) = (schedstat(inside.pid())?, stolen_ns()?);
    thread::sleep(Duration::from_secs(3));
    let to = sample(&mut source)?;
    let (truth, stolen) = (schedstat(inside.pid())? - before, stolen_ns()? - stolen);
    let snapshot = between(&source, &from, &to);
    ensure!(snapshot.tasks.len() == 1, "{} rows", snapshot.tasks.len());
    let task = row(&snapshot, inside.pid())?;
    near("cpu_ns", task.run_ns(), truth, 0.01, TICK_NS)?;
    clock_is_near(task.delta.slots[0].count, truth, stolen, &to)?;
    // The CPUs are busy with what is outside too.
    ensure!(
        snapshot.busy_ns > task.run_ns() * 5 / 4,
        "busy {} ns, inside {} ns",
        snapshot.busy_ns,
        task.run_ns()
    );
    Ok(())
}

pub fn a_scope_of_a_user_is_only_his() -> Result<()> {
    const NOBODY: u32 = 65534;
    let copy = ForEverybody::copy(&std::env::current_exe()?)?;
    let his = Workload::start_program(&copy.program, "hog", |command| {
        command.uid(NOBODY);
    })?;
    let _mine = Workload::start("hog")?;
    let mut source = watch(Scope { uids: [NOBODY].into(), ..Scope::default() }, "")?;
    let from = sample(&mut source)?;
    thread::sleep(Duration::from_secs(1));
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    ensure!(snapshot.tasks.iter().all(|task| task.raw.uid == NOBODY), "a task of another user is listed");
    ensure!(row(&snapshot, his.pid())?.run_ns() > 0);
    Ok(())
}

pub fn a_full_exit_ring_is_a_counted_loss() -> Result<()> {
    let mut source = watch_everything()?;
    let from = sample(&mut source)?;
    let ring = 1024 * 1024;
    // Nobody empties the ring in this interval: more ends than it can hold.
    let ends = ring / 400;
    let began = Instant::now();
    for _ in 0..ends {
        thread::spawn(|| {}).join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    }
    let to = sample(&mut source)?;
    let lost = to.lost["exits_not_itemised"];
    println!("{ends} threads ended in {:?}, {lost} without a row", began.elapsed());
    ensure!(lost > 0, "the ring did not overflow: the test must end more threads");
    ensure!(to.exit_lost_ns.iter().sum::<u64>() > 0, "the time of lost exits was not kept");
    ensure!(from.lost["exits_not_itemised"] == 0);
    Ok(())
}

pub fn another_set_of_events_keeps_what_was_counted() -> Result<()> {
    let set = |names: &str| Ok::<_, anyhow::Error>(Choice::from(Event::parse_list(names)?));
    let hog = Workload::start("hog")?;
    let mut faults = Workload::start("faults")?;
    let mut source = LiveSource::start(LiveOptions {
        events: set("cpu-clock,context-switches")?,
        sets: vec![("auto", set("cpu-clock,context-switches")?), ("tlb", set("cpu-clock,page-faults")?)],
        ..LiveOptions::default()
    })?;
    let count = |source: &LiveSource, from: &Sample, to: &Sample, pid: u32, slot: usize| {
        let snapshot = between(source, from, to);
        counters::slot(&row(&snapshot, pid)?.total.slots, &snapshot, slot)
            .map_err(|why| anyhow::anyhow!("{why}"))
    };
    let first = sample(&mut source)?;
    thread::sleep(Duration::from_millis(500));
    let before = sample(&mut source)?;
    let clock_before = count(&source, &first, &before, hog.pid(), 0)?;

    source.set_events("tlb")?;
    let opened = sample(&mut source)?;
    let host = source.host();
    ensure!(host.events.len() == 3 && host.events[2].name == "page-faults", "{:?}", host.events);
    ensure!(host.missing.get("page-faults") == Some(&Missing::FirstInterval), "{:?}", host.missing);
    let closed = host.missing.get("context-switches").context("closed and not missing")?;
    ensure!(closed.to_string().contains("another set"), "{closed}");
    // Some kernels hide switches, and what was counted across one is nobody's: again until there was none.
    let mut from = opened.clone();
    let mut after = opened.clone();
    for attempt in 0.. {
        ensure!(attempt < 10, "in ten attempts a switch was always hidden");
        faults.go()?;
        let touched: u64 = faults.line()?.parse()?;
        after = sample(&mut source)?;
        ensure!(!source.host().missing.contains_key("page-faults"));
        if after.lost == from.lost {
            let counted = count(&source, &from, &after, faults.pid(), 2)?;
            // A few more for talking to the test.
            near("page-faults", counted as u64, touched, 0.0, 16)?;
            break;
        }
        from = after.clone();
    }
    let clock_after = count(&source, &opened, &after, hog.pid(), 0)?;
    ensure!(clock_after > clock_before, "the total of cpu-clock fell from {clock_before} to {clock_after}");

    source.set_events("auto")?;
    ensure!(source.host().events.len() == 3, "a slot was taken twice");
    ensure!(source.host().missing.contains_key("page-faults"));
    let error = source.set_events("nosuch").err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("no such set"), "{error}");
    Ok(())
}

pub fn counts_by_sibling_follow_what_it_does() -> Result<()> {
    // Two CPUs are threads of one core here, whatever they are: the probe believes what it is told.
    let mut topology = Topology::read(Path::new("/"))?;
    let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
    ensure!(online.len() >= 2, "needs two CPUs");
    for cpu in &mut topology.cpus {
        cpu.core = 0;
        cpu.siblings = online.clone();
    }
    let pinned =
        |cpu: &str| Workload::start_with("pinned", |command| _ = command.env("NUMATOP_NG_TEST_CPU", cpu));
    let hogs = [pinned("0")?, pinned("1")?];
    let role = |name: &str, role: Role| Ok::<Event, anyhow::Error>(Event { role, ..Event::named(name)? });
    let events = vec![role("cpu-clock", Role::Cycles)?, role("task-clock", Role::Instructions)?];
    let nodes = topology.possible_nodes;
    let layout = Layout::new(nodes, true, &events);
    let store = records::create(layout)?;
    let mut sched = SchedProbe::start(&topology, (&store, layout), events, Scoped::Not, None)?;
    for cpu in &online {
        sched.online(&topology, *cpu)?;
    }
    let mut tasks = TaskProbe::start(&sched, &store, nodes, &Scope::default(), None, false)?;
    tasks.walk(|_| {})?;
    thread::sleep(Duration::from_secs(2));
    for cpu in &online {
        sched.flush(*cpu)?;
    }

    let mut rows = Vec::new();
    tasks.walk(|row| rows.push(parse(&row, 4096)))?;

    for hog in &hogs {
        let row = rows.iter().find(|row| row.task.tid == hog.pid()).context("a hog has no row")?;
        let [idle, busy] = row.task.counts.by_sibling;
        let whole = row.task.counts.slots[0].count;
        println!("idle {}, busy {}, of {whole}", idle.cycles, busy.cycles);
        ensure!(idle.cycles + busy.cycles <= whole, "the parts are more than the whole");
        // The other one always runs, but for the moments in which its CPU was somebody else's.
        ensure!(busy.cycles * 10 > whole * 9 && idle.cycles * 20 < whole, "{idle:?} {busy:?} of {whole}");
        ensure!(busy.instructions.abs_diff(busy.cycles) * 20 < whole, "two clocks differ: {busy:?}");
    }
    Ok(())
}
