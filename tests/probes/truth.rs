//! Counts of the probes beside those of the kernel in /proc, getrusage(2) and cgroup files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::sample;
use numatop_ng::container::scope::Scope;
use numatop_ng::metric::counters;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::sample::{Missing, Sample};
use numatop_ng::pmu::sets::Choice;
use numatop_ng::snapshot::{RowKind, Snapshot, Task, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::sys::process_cpu_ns;

use crate::bounds::{Bounds, around};
use crate::raw_probes::{ByHand, in_role};
use crate::until::{A_MOMENT, PATIENCE, until};
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

fn between(source: &LiveSource, from: &Sample, to: &Sample) -> Snapshot {
    derive(&source.host(), Some(from), to, RowKind::Processes)
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

/// Time in which CPUs were idle or waited for a disk, and the same plus the time that the hypervisor took.
///
/// Time taken from an idle CPU can be in both of its columns, and time taken from a task can be charged to
/// it: the truth is between the two.
fn idle_ns() -> Result<[u64; 2]> {
    Ok([proc_stat(&[3, 4])?, proc_stat(&[3, 4, 7])?])
}

/// Time in interrupts and time that the hypervisor took: on CPU to a clock, but not to the scheduler.
fn stolen_ns() -> Result<u64> {
    proc_stat(&[5, 6, 7])
}

/// A tick of the slowest kernel: what `sum_exec_runtime` of a running task may lag behind.
pub const TICK_NS: u64 = 10_000_000;

pub fn cpu_time_of_hogs_and_sleepers_is_schedstat() -> Result<()> {
    let workloads = [Workload::start("hog")?, Workload::start("hog")?, Workload::start("sleeper")?];
    cpu_time_is_schedstat(&workloads)
}

pub fn alternating_tasks_are_not_billed_for_each_other() -> Result<()> {
    cpu_time_is_schedstat(&[Workload::start("alternator")?, Workload::start("alternator")?])
}

/// Waits until a process has been on CPU for this much longer. On a busy machine that takes time, and the
/// compared amount must exceed the possible error.
pub fn until_it_ran(pid: u32, time: Duration) -> Result<()> {
    let enough = schedstat(pid)? + time.as_nanos() as u64;
    until("the workload runs", || Ok(schedstat(pid)? >= enough))
}

/// Page faults without a disk so far: the tenth field of its stat, the eighth behind its name.
fn min_flt(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("stat has no name")?;
    Ok(fields.split(' ').nth(7).context("stat is short")?.parse()?)
}

/// Watches the workloads for a second of the first one.
fn cpu_time_is_schedstat(workloads: &[Workload]) -> Result<()> {
    let truths = || workloads.iter().map(|workload| schedstat(workload.pid())).collect();
    let mut source = watch_everything()?;
    let (from, begin) = around(truths, || sample(&mut source))?;
    until_it_ran(workloads[0].pid(), Duration::from_secs(1))?;
    let (to, end) = around(truths, || sample(&mut source))?;
    let snapshot = between(&source, &from, &to);
    for (workload, truth) in workloads.iter().zip(begin.to(&end)) {
        let task = row(&snapshot, workload.pid())?;
        truth.hold("cpu_ns", task.run_ns(), 0.01, TICK_NS)?;
        ensure!(task.total.cpu_ns() >= task.run_ns());
    }
    Ok(())
}

pub fn rows_add_up_to_the_busy_time_of_the_machine() -> Result<()> {
    let _workloads = [Workload::start("hog")?, Workload::start("alternator")?, Workload::start("sleeper")?];
    let mut source = watch_everything()?;
    let since = (Instant::now(), idle_ns()?);
    let truth = || Ok(busy_ns(since)?.to_vec());
    let (from, begin) = around(truth, || sample(&mut source))?;
    // Two ticks are little compared with three seconds of two CPUs.
    let enough = busy_ns(since)?[0] + 6_000_000_000;
    until("the CPUs are busy", || Ok(busy_ns(since)?[0] >= enough))?;
    let (to, end) = around(truth, || sample(&mut source))?;
    let snapshot = between(&source, &from, &to);
    // Others may end more processes meanwhile than can have a row.
    let lost = |sample: &Sample| sample.exit_lost_ns.iter().sum::<u64>();
    let rows = snapshot.tasks.iter().map(Task::run_ns).sum::<u64>() + lost(&to) - lost(&from);
    let [least, most] = begin.to(&end)[..] else { anyhow::bail!("two truths") };
    let busy = Bounds { least: least.least, most: most.most };
    // Interrupts that find a CPU idle are busy time to /proc/stat, but belong to no task.
    busy.hold("sum of all rows", rows, 0.005, 2 * TICK_NS)?;
    busy.hold("busy time of the CPUs", snapshot.on_cpus.busy_ns, 0.005, 2 * TICK_NS)
}

/// Time in which the CPUs were not idle since a moment and the idle times of then, at least and at most. The clock and /proc/stat
/// are two readings: those of five pairs that were closest to each other.
fn busy_ns(since: (Instant, [u64; 2])) -> Result<[u64; 2]> {
    // SAFETY: sysconf has no preconditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as u64;
    let read = || {
        let before = since.0.elapsed();
        let idle = idle_ns()?;
        Ok::<_, anyhow::Error>((since.0.elapsed() - before, before.as_nanos() as u64 * cpus, idle))
    };
    let pairs = (0..5).map(|_| read()).collect::<Result<Vec<_>>>()?;
    let (_, all, idle) = pairs.into_iter().min().context("there are five")?;
    let busy = |which: usize| all.saturating_sub(idle[which] - since.1[which]);
    Ok([busy(1), busy(0)])
}

pub fn a_fork_storm_is_accounted_for() -> Result<()> {
    let mut storm = Workload::start("storm")?;
    let mut source = watch_everything()?;
    let mut from = sample(&mut source)?;
    storm.go()?;
    let (mut rows, mut ended) = (0, 0);
    let mut truth = None;
    let limit = Instant::now() + PATIENCE;
    // One sample after the other, so that processes are born and end in each part of a walk. The last child may say
    // that it ended a moment before its last switch.
    while truth.is_none_or(|(forks, _)| ended < forks) {
        ensure!(Instant::now() < limit, "{ended} ended children were reported, the storm said {truth:?}");
        if storm.says_something_within(Duration::ZERO)? {
            let line = storm.line()?;
            let (forks, cpu_ns) = line.split_once(' ').context("the storm prints forks and CPU time")?;
            truth = Some((forks.parse::<u64>()?, cpu_ns.parse::<u64>()?));
        }
        let to = sample(&mut source)?;
        let snapshot = between(&source, &from, &to);
        for task in &snapshot.tasks {
            let child = task.raw.ppid == storm.pid();
            rows += if child || task.raw.pid == storm.pid() { task.run_ns() } else { 0 };
            ended += u64::from(child && task.exited);
        }
        from = to;
        let lost: u64 = from.lost.values().sum();
        ensure!(lost == 0, "{lost} losses: {:?}", from.lost);
        let mut known = BTreeSet::new();
        let twice = from.tasks.iter().find(|task| !known.insert((task.pid, task.tid, task.start_ns)));
        ensure!(twice.is_none(), "two records of one task: {twice:?}");
    }
    let left = from.tasks.iter().find(|task| task.ppid == storm.pid());
    ensure!(left.is_none(), "all children have ended, and this one is still listed: {left:?}");
    let (forks, truth) = truth.context("the storm ended")?;
    ensure!(ended == forks, "{ended} ended children were reported, {forks} were forked");
    // Children are added to their parent's usage when they are reaped, before their last moments on CPU. The
    // parent's own usage is read before it reports.
    Bounds::exactly(truth).hold("CPU time of the storm", rows, 0.005, TICK_NS)
}

pub fn a_process_is_reported_once_when_it_ends() -> Result<()> {
    let mut source = watch_everything()?;
    let mut brief = Workload::start("brief")?;
    let from = sample(&mut source)?;
    brief.go()?;
    brief.finish()?;
    // It was waited for, but may be a moment away from its last switch.
    thread::sleep(A_MOMENT);
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
    // A thread that was joined is on its way out, and then a moment away from its last switch.
    let left = format!("/proc/{}/task", threads.pid());
    until("the joined threads end", || Ok(fs::read_dir(&left)?.count() == 1))?;
    thread::sleep(A_MOMENT);
    let to = sample(&mut source)?;
    let processes = between(&source, &from, &to);
    let process = row(&processes, threads.pid())?;
    ensure!(process.threads == 1, "{} threads are left", process.threads);
    ensure!(process.run_ns() >= 290_000_000, "burnt 300 ms, counted {} ns", process.run_ns());
    let rows = derive(&source.host(), Some(&from), &to, RowKind::ThreadsOf(threads.pid())).tasks;
    let sum: u64 = rows.iter().map(Task::run_ns).sum();
    ensure!(sum == process.run_ns(), "threads sum to {sum} ns, the process to {} ns", process.run_ns());
    ensure!(rows.iter().any(|row| row.tid == Some(0) && row.exited), "there is no row for the ended threads");
    Ok(())
}

pub fn a_process_keeps_its_name_when_its_first_thread_ends() -> Result<()> {
    let mut source = watch_everything()?;
    let mut workload = Workload::start("headless")?;
    let from = sample(&mut source)?;
    let (pid, before) = (workload.pid(), between(&source, &from, &from));
    let before = row(&before, pid)?;
    let start = |task: &Task| (task.raw.comm, task.raw.start_ns);
    workload.go()?;
    let state = format!("/proc/{pid}/stat");
    until("the first thread ends", || Ok(fs::read_to_string(&state)?.contains(") Z ")))?;
    thread::sleep(A_MOMENT);
    let between_them = sample(&mut source)?;
    until_it_ran(pid, Duration::from_millis(200))?;
    let to = sample(&mut source)?;
    for (from, to) in [(&from, &between_them), (&between_them, &to)] {
        let snapshot = between(&source, from, to);
        let task = row(&snapshot, pid)?;
        ensure!(start(task) == start(before), "{:?} was {:?}", start(task), start(before));
        ensure!(!task.exited && task.run_ns() > 0, "exited {}, ran {} ns", task.exited, task.run_ns());
    }
    Ok(())
}

pub fn exec_by_a_thread_keeps_the_process() -> Result<()> {
    let mut source = watch_everything()?;
    let mut workload = Workload::start("exec-by-thread")?;
    let from = sample(&mut source)?;
    workload.go()?;
    let comm = format!("/proc/{}/comm", workload.pid());
    until("the workload gets to its exec", || Ok(fs::read_to_string(&comm)?.trim() == "sleep"))?;
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    let task = row(&snapshot, workload.pid())?;
    ensure!(!task.exited && task.raw.comm.bytes() == b"sleep", "{:?}, exited {}", task.raw.comm, task.exited);
    ensure!(task.run_ns() >= 140_000_000, "burnt 150 ms, counted {} ns", task.run_ns());
    Ok(())
}

/// Runs workload `name` once to warm up and once between two samples. Returns slot 0 of it, its row and its
/// own count. Some kernels hide switches, and counts across one are charged to no task: repeats until there
/// was none.
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
    ensure!(
        task.delta[Counter::MinFlt].abs_diff(truth) <= 2,
        "min_flt {}, truth {truth}",
        task.delta[Counter::MinFlt]
    );
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
    let before = min_flt(faulter.pid())?;
    until("it faults", || Ok(min_flt(faulter.pid())? >= before + 10_000))?;
    until_it_ran(other.pid(), Duration::from_millis(500))?;
    faulter.pause()?;
    let to = sample(&mut source)?;
    let snapshot = between(&source, &from, &to);
    let counts = |workload: &Workload| {
        let task = row(&snapshot, workload.pid())?;
        Ok::<_, anyhow::Error>((task.delta.slots[0].count, task.delta[Counter::MinFlt]))
    };
    let ((slot, truth), (of_other, truth_of_other)) = (counts(&faulter)?, counts(&other)?);
    // Some kernels hide switches, several in a row too. Counts across them belong to no task.
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
    // One of 500 waits: a wake-up that comes before its sleep makes no switch.
    ensure!(truth >= 450, "{truth} switches");
    let kernel = task.delta[Counter::Nvcsw] + task.delta[Counter::Nivcsw];
    ensure!(slot.abs_diff(kernel) <= 1, "slot {slot}, nvcsw and nivcsw {kernel}");
    // Waiting for the words, and other tasks on the CPU meanwhile, are outside the two getrusage calls.
    ensure!((truth..truth + 50).contains(&slot), "slot {slot}, truth {truth}");
    Ok(())
}

pub fn cpu_clock_in_a_slot_is_time_on_cpu() -> Result<()> {
    let hog = Workload::start("hog")?;
    let mut source = watch(Scope::default(), "cpu-clock")?;
    let stolen = stolen_ns()?;
    let from = sample(&mut source)?;
    until_it_ran(hog.pid(), Duration::from_secs(1))?;
    let to = sample(&mut source)?;
    let stolen = stolen_ns()? - stolen;
    let snapshot = between(&source, &from, &to);
    let task = row(&snapshot, hog.pid())?;
    clock_is_near(task.delta.slots[0].count, task.run_ns(), stolen, &to)
}

/// A clock in a slot never shows more than the time on CPU, plus the part that interrupts and the hypervisor
/// took. Nor does it show less, unless stretches were charged to no task: then the loss must have been
/// counted.
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
    let mut topology = numatop_ng::host::topology::read(Path::new("/"))?;
    topology.possible_nodes = 4;
    let events = vec![
        Event::named("page-faults")?,
        in_role("cpu-clock", Role::Cycles)?,
        in_role("task-clock", Role::Instructions)?,
    ];
    let mut probes = ByHand::start(&topology, events)?;

    let counts = probes.counts(&[hog.pid()], 1, 100_000_000)?.remove(0);

    ensure!(counts.run_ns.len() == 4 && counts.by_node.len() == 4, "{counts:?}");
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
    let truth = || Ok(vec![schedstat(inside.pid())?]);
    let stolen = stolen_ns()?;
    let (from, begin) = around(truth, || sample(&mut source))?;
    until_it_ran(inside.pid(), Duration::from_secs(1))?;
    let (to, end) = around(truth, || sample(&mut source))?;
    let stolen = stolen_ns()? - stolen;
    let snapshot = between(&source, &from, &to);
    ensure!(snapshot.tasks.len() == 1, "{} rows", snapshot.tasks.len());
    let task = row(&snapshot, inside.pid())?;
    for truth in begin.to(&end) {
        truth.hold("cpu_ns", task.run_ns(), 0.01, TICK_NS)?;
    }
    clock_is_near(task.delta.slots[0].count, task.run_ns(), stolen, &to)?;
    // The CPUs are busy with tasks outside, too.
    ensure!(
        snapshot.on_cpus.busy_ns > task.run_ns() * 5 / 4,
        "busy {} ns, inside {} ns",
        snapshot.on_cpus.busy_ns,
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
    let mine = Workload::start("hog")?;
    let mut source = watch(Scope { uids: [NOBODY].into(), ..Scope::default() }, "")?;
    let from = sample(&mut source)?;
    until_it_ran(his.pid(), Duration::from_millis(100))?;
    until_it_ran(mine.pid(), Duration::from_millis(100))?;
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
    // The ring is not emptied in this interval: more ends than it can hold.
    let ends = ring / 400;
    let began = Instant::now();
    for _ in 0..ends {
        thread::spawn(|| {}).join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    }
    // The part of that time that rows still have is known after the next one.
    sample(&mut source)?;
    let to = sample(&mut source)?;
    let lost = to.lost["exits_not_itemised"];
    println!("{ends} threads ended in {:?}, {lost} without a row", began.elapsed());
    ensure!(lost > 0, "the ring did not overflow: the test must end more threads");
    ensure!(to.exit_lost_ns.iter().sum::<u64>() > 0, "the time of lost exits was not kept");
    ensure!(from.lost["exits_not_itemised"] == 0);
    Ok(())
}

pub fn threads_whose_end_was_lost_do_not_stay() -> Result<()> {
    let me = std::process::id();
    // Of this process alone: the time of lost ends is then its own, however many threads end elsewhere.
    let mut source = watch(Scope { pids: [me].into(), ..Scope::default() }, "")?;
    let listed = |sample: &Sample| sample.tasks.iter().filter(|task| task.pid == me && task.tid != 0).count();
    let before = listed(&sample(&mut source)?);
    // All end between two samples: more than the ring can hold.
    let many = 8_000;
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let begin = |_| {
        let wait = Arc::clone(&wait);
        thread::Builder::new().stack_size(64 << 10).spawn(move || drop(wait.lock().map(|wait| wait.recv())))
    };
    let threads: Vec<_> = (0..many).map(begin).collect::<std::io::Result<_>>()?;
    let from = sample(&mut source)?;
    let ran_before = process_cpu_ns(me).context("no clock of this process")?;
    ensure!(listed(&from) >= many, "{} of {many} threads are listed", listed(&from));
    drop(stop);
    threads.into_iter().try_for_each(|thread| thread.join().ok().context("a thread panicked"))?;
    let first = sample(&mut source)?;
    let lost = first.lost["exits_not_itemised"];
    ensure!(lost > 0, "the ring did not overflow: the test must end more threads");
    let to = sample(&mut source)?;
    let ran = process_cpu_ns(me).context("no clock of this process")? - ran_before;
    println!("{lost} ends were lost; {} rows, then {}", listed(&first), listed(&to));
    ensure!(listed(&to) < before + 10, "{} rows of {before} threads", listed(&to));
    // The known part is in the row of their process, and the rest in no row.
    let in_rows = row(&between(&source, &from, &to), me)?.run_ns();
    let in_none: u64 = to.exit_lost_ns.iter().sum();
    let share = (in_rows + in_none) as f64 / ran as f64;
    println!("{in_rows} ns in rows and {in_none} in none, of {ran}");
    ensure!((0.8..1.2).contains(&share), "{share} of the time of the process");
    Ok(())
}

pub fn events_that_have_turns_are_counted_in_them_and_nowhere_else() -> Result<()> {
    let events = |names: &str| Event::parse_list(names);
    let turns = vec![events("cpu-clock,context-switches")?, events("cpu-clock,page-faults")?];
    let events = events("cpu-clock,context-switches,page-faults")?;
    const CLOCK: usize = 0;
    const SWITCHES: usize = 1;
    const FAULTS: usize = 2;
    let hog = Workload::start("hog")?;
    let mut faults = Workload::start("faults")?;
    let mut source = LiveSource::start(LiveOptions {
        events: Choice { turns, ..Choice::from(events) },
        // Shorter than any interval: a turn ends with each.
        event_turn: Some(Duration::from_millis(1)),
        ..LiveOptions::default()
    })?;
    ensure!(source.host().event_turns == [vec![CLOCK, SWITCHES], vec![CLOCK, FAULTS]]);
    let mut from = sample(&mut source)?;
    let mut exact = [0; 2];
    for interval in 0..40 {
        // The first group was open until the first sample.
        let is_turn_of_faults = interval % 2 == 0;
        let touched: u64 = {
            faults.go()?;
            faults.line()?.parse()?
        };
        until_it_ran(hog.pid(), Duration::from_millis(300))?;
        let to = sample(&mut source)?;
        let snapshot = between(&source, &from, &to);
        let is_whole = to.lost == from.lost;
        from = to;
        let of = |pid: u32, slot: usize| -> Result<_> {
            Ok(counters::slot(&row(&snapshot, pid)?.delta.slots, &snapshot, slot))
        };
        let told = (of(faults.pid(), FAULTS)?, of(faults.pid(), SWITCHES)?);
        let (has_turn, waits) =
            if is_turn_of_faults { told.clone() } else { (told.1.clone(), told.0.clone()) };
        let why = waits.err().with_context(|| format!("{told:?} in interval {interval}"))?.to_string();
        ensure!(why.contains("not the turn of"), "{why}");
        let counted = has_turn.map_err(|why| anyhow::anyhow!("interval {interval}: {why}"))?;
        // Some kernels hide switches, and counts across one are charged to no task.
        if !is_whole {
            continue;
        }
        if is_turn_of_faults {
            Bounds::exactly(touched).hold("page-faults", counted as u64, 0.01, 16)?;
        } else {
            ensure!(counted < touched as f64 / 4.0, "{counted} switches, and {touched} pages were touched");
        }
        let task = row(&snapshot, hog.pid())?;
        let clock = of(hog.pid(), CLOCK)?.map_err(|why| anyhow::anyhow!("{why}"))?;
        let share = clock / task.run_ns() as f64;
        ensure!((0.9..1.1).contains(&share), "the clock of all turns has {share} of the CPU time");
        exact[usize::from(is_turn_of_faults)] += 1;
        if exact.iter().all(|count| *count >= 3) {
            return Ok(());
        }
    }
    bail!("in 40 intervals some switch was nearly always hidden: {exact:?}")
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
    until_it_ran(hog.pid(), Duration::from_millis(500))?;
    let before = sample(&mut source)?;
    let clock_before = count(&source, &first, &before, hog.pid(), 0)?;

    source.set_events("tlb")?;
    let opened = sample(&mut source)?;
    let host = source.host();
    ensure!(host.events.len() == 3 && host.events[2].name == "page-faults", "{:?}", host.events);
    ensure!(host.missing.get("page-faults") == Some(&Missing::FirstInterval), "{:?}", host.missing);
    let closed = host.missing.get("context-switches").context("closed and not missing")?;
    ensure!(closed.to_string().contains("different set"), "{closed}");
    // Some kernels hide switches, and counts across one are charged to no task: repeats until there was none.
    let (mut from, mut already) = (opened.clone(), 0.0);
    let mut after = opened.clone();
    for attempt in 0.. {
        ensure!(attempt < 10, "in ten attempts a switch was always hidden");
        faults.go()?;
        let touched: u64 = faults.line()?.parse()?;
        after = sample(&mut source)?;
        ensure!(!source.host().missing.contains_key("page-faults"));
        let counted = count(&source, &from, &after, faults.pid(), 2)?;
        if after.lost == from.lost {
            // A few more for talking to the test.
            Bounds::exactly(touched).hold("page-faults", (counted - already) as u64, 0.0, 16)?;
            break;
        }
        (from, already) = (after.clone(), counted);
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
