//! Scopes made of cgroups, compared with the kernel's own charges to those cgroups.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use numatop_ng::container::scope::Scope;
use numatop_ng::container::select::{Want, Wants};
use numatop_ng::error::{Exit, Refusal};
use numatop_ng::host::cgroups::{self, Hierarchy};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::Sample;
use numatop_ng::snapshot::{RowKind, Snapshot, Task, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::bounds::around;
use crate::program;
use crate::truth::{TICK_NS, schedstat, until_it_ran};
use crate::until::{A_MOMENT, until};
use crate::workload::Workload;

/// A cgroup that is removed when dropped.
pub struct Cgroup(pub PathBuf);

impl Cgroup {
    pub fn make(parent: &Path, name: impl AsRef<Path>) -> Result<Cgroup> {
        let path = parent.join(name);
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Cgroup(path))
    }

    pub fn id(&self) -> Result<u64> {
        Ok(fs::metadata(&self.0)?.ino())
    }

    pub fn adopt(&self, pid: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("moving a process into the cgroup")
    }

    /// CPU time that the kernel charged to it and all below, ns.
    fn usage_ns(&self) -> Result<u64> {
        if let Ok(text) = fs::read_to_string(self.0.join("cpuacct.usage")) {
            return Ok(text.trim().parse()?);
        }
        let stat = fs::read_to_string(self.0.join("cpu.stat"))?;
        let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).context("cpu.stat")?;
        Ok(line.parse::<u64>()? * 1000)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The hierarchy that accounts CPU time here, and a name for a cgroup of this test run.
fn place(name: &str) -> Result<(Hierarchy, PathBuf, String)> {
    let root = Path::new("/");
    let accounts = |mount: &cgroups::Mount| {
        mount.controllers.as_ref().is_some_and(|all| all.iter().any(|one| one == "cpuacct"))
    };
    let mounts = cgroups::mounts(root);
    let mount = mounts.iter().find(|mount| accounts(mount)).map(|mount| mount.at.clone());
    let mount = mount.or(cgroups::choose(root).mount).context("no cgroup filesystem is mounted")?;
    let (hierarchy, _) = cgroups::containing(root, &mount).context("the hierarchy has no controller")?;
    Ok((hierarchy, mount, unique(name)))
}

/// A name that no other cgroup has, nor one that an attempt before has left.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("numatop-ng-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn wants(pattern: &str, wait: bool) -> Wants {
    Wants { wants: vec![Want::Cgroup(pattern.into())], wait, ..Wants::default() }
}

/// Watches what matches `pattern`, and adds up what its rows say.
struct Watch {
    source: LiveSource,
    last: Sample,
    /// CPU time of all rows since [`Watch::begin`].
    pub total_ns: u64,
}

impl Watch {
    fn start(hierarchy: &Hierarchy, pattern: &str, wait: bool) -> Result<Watch> {
        let mut source = LiveSource::start(LiveOptions {
            wants: wants(pattern, wait),
            hierarchy: Some(hierarchy.clone()),
            ..LiveOptions::default()
        })?;
        let last = source.next()?.context("a live source does not end")?;
        Ok(Watch { source, last, total_ns: 0 })
    }

    /// Adds up from here on.
    fn begin(&mut self) -> Result<()> {
        self.step()?;
        self.total_ns = 0;
        Ok(())
    }

    fn step(&mut self) -> Result<Snapshot> {
        let next = self.source.next()?.context("a live source does not end")?;
        let snapshot = derive(&self.source.host(), Some(&self.last), &next, RowKind::Processes);
        self.total_ns += snapshot.tasks.iter().map(Task::run_ns).sum::<u64>();
        self.last = next;
        Ok(snapshot)
    }

    /// Samples until the tree was read with this cgroup in it: it is not read all the time.
    fn until_known(&mut self, cgroup: u64) -> Result<()> {
        until("the new cgroup has a name", || Ok(self.step()?.names.cgroups.contains_key(&cgroup)))
    }

    /// Samples twice a second.
    fn run(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            thread::sleep(Duration::from_millis(500));
            self.step()?;
        }
        Ok(())
    }
}

fn pids(snapshot: &Snapshot) -> Vec<u32> {
    snapshot.tasks.iter().map(|task| task.raw.pid).collect()
}

pub fn a_scope_of_a_cgroup_has_its_children() -> Result<()> {
    let hierarchy = cgroups::choose(Path::new("/"));
    let mount = hierarchy.mount.context("no cgroup filesystem is mounted")?;
    let parent = Cgroup::make(&mount, unique("test"))?;
    let child = Cgroup::make(&parent.0, "child")?;
    // Declared after the cgroups, so that they are gone before those are removed.
    let (inside, nested, outside) =
        (Workload::start("hog")?, Workload::start("hog")?, Workload::start("hog")?);
    parent.adopt(inside.pid())?;
    child.adopt(nested.pid())?;
    let scope = Scope { cgroups: [parent.id()?].into(), ..Scope::default() };
    let mut source = LiveSource::start(LiveOptions { scope, ..LiveOptions::default() })?;
    let from = source.next()?.context("no sample")?;
    until_it_ran(inside.pid(), Duration::from_millis(100))?;
    until_it_ran(outside.pid(), Duration::from_millis(100))?;
    let to = source.next()?.context("no sample")?;
    let snapshot = derive(&source.host(), Some(&from), &to, RowKind::Processes);
    let mut rows = pids(&snapshot);
    rows.sort_unstable();
    let mut wanted = vec![inside.pid(), nested.pid()];
    wanted.sort_unstable();
    ensure!(rows == wanted, "rows {rows:?}, wanted {wanted:?}, outside {}", outside.pid());
    let path = &snapshot.names.cgroups[&child.id()?];
    ensure!(path.ends_with("/child"), "the nested cgroup is called {path}");
    drop((inside, nested, outside));
    Ok(())
}

pub fn a_scoped_total_is_the_usage_of_its_cgroup() -> Result<()> {
    let (hierarchy, mount, name) = place("usage")?;
    let group = Cgroup::make(&mount, &name)?;
    // Before the workloads, so that they are gone when it is removed, whatever fails.
    let child: Cgroup;
    let _neighbours = [Workload::start("hog")?, Workload::start("alternator")?];
    let (inside, mut storm, nested) =
        (Workload::start("hog")?, Workload::start("storm")?, Workload::start("hog")?);
    group.adopt(inside.pid())?;
    group.adopt(storm.pid())?;
    let usage = || Ok(vec![group.usage_ns()?]);
    let mut watch = Watch::start(&hierarchy, &format!("/{name}"), false)?;
    let (_, begin) = around(usage, || watch.begin())?;
    storm.go()?;
    watch.run(Duration::from_secs(1))?;
    // A child that is made while we watch.
    child = Cgroup::make(&group.0, "child")?;
    child.adopt(nested.pid())?;
    watch.run(Duration::from_secs(4))?;
    let (_, end) = around(usage, || watch.step())?;
    let lost: u64 = watch.last.exit_lost_ns.iter().sum();
    for truth in begin.to(&end) {
        truth.hold("CPU time of the cgroup", watch.total_ns + lost, 0.01, 2 * TICK_NS)?;
    }
    ensure!(watch.total_ns > 200_000_000, "too little ran: {} ns", watch.total_ns);
    drop((inside, storm, nested));
    Ok(())
}

pub fn a_moved_task_is_charged_to_each_side_its_part() -> Result<()> {
    let (hierarchy, mount, name) = place("move")?;
    let group = Cgroup::make(&mount, &name)?;
    let neighbour = Workload::start("hog")?;
    let (comes, goes, crowd) = (Workload::start("hog")?, Workload::start("hog")?, Workload::start("crowd")?);
    group.adopt(goes.pid())?;
    let truths = || Ok(vec![group.usage_ns()?, schedstat(comes.pid())?, schedstat(goes.pid())?]);
    let mut watch = Watch::start(&hierarchy, &format!("/{name}"), false)?;
    let (_, begin) = around(truths, || watch.begin())?;
    // In the middle of an interval: the moves themselves decide, not the samples.
    until_it_ran(goes.pid(), Duration::from_secs(1))?;
    let (_, moved) = around(truths, || {
        group.adopt(comes.pid())?;
        group.adopt(crowd.pid())?;
        fs::write(mount.join("cgroup.procs"), goes.pid().to_string()).context("moving a process out")
    })?;
    until_it_ran(comes.pid(), Duration::from_secs(1))?;
    let (snapshot, end) = around(truths, || watch.step())?;
    let of = |pid: u32| snapshot.tasks.iter().find(|task| task.raw.pid == pid).context("no row");
    begin.to(&end)[0].hold("CPU time of the cgroup", watch.total_ns, 0.01, 4 * TICK_NS)?;
    moved.to(&end)[1].hold("moved in", of(comes.pid())?.run_ns(), 0.01, 2 * TICK_NS)?;
    begin.to(&moved)[2].hold("moved out", of(goes.pid())?.run_ns(), 0.01, 2 * TICK_NS)?;
    ensure!(of(goes.pid())?.left() && !of(comes.pid())?.exited, "who left is said to have left");
    let threads = of(crowd.pid())?.threads;
    ensure!(threads == 4, "{threads} of 4 threads came with their process");
    ensure!(!pids(&watch.step()?).contains(&goes.pid()), "a task that left is still listed");
    drop((comes, goes, crowd, neighbour));
    Ok(())
}

pub fn out_and_back_between_two_samples_leaves_a_gap() -> Result<()> {
    let (hierarchy, mount, name) = place("gap")?;
    let group = Cgroup::make(&mount, &name)?;
    let hog = Workload::start("hog")?;
    group.adopt(hog.pid())?;
    let usage = || Ok(vec![group.usage_ns()?]);
    let mut watch = Watch::start(&hierarchy, &format!("/{name}"), false)?;
    let (_, begin) = around(usage, || watch.begin())?;
    until_it_ran(hog.pid(), Duration::from_millis(700))?;
    fs::write(mount.join("cgroup.procs"), hog.pid().to_string())?;
    until_it_ran(hog.pid(), Duration::from_millis(700))?;
    group.adopt(hog.pid())?;
    until_it_ran(hog.pid(), Duration::from_millis(700))?;
    let (_, end) = around(usage, || watch.step())?;
    for truth in begin.to(&end) {
        truth.hold("CPU time of the cgroup", watch.total_ns, 0.01, 3 * TICK_NS)?;
    }
    drop(hog);
    Ok(())
}

/// Switches of a process with one thread, as the kernel counts them.
fn switches(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    lines.map(|(_, count)| Ok(count.trim().parse::<u64>()?)).sum()
}

pub fn totals_of_a_task_that_leaves_and_comes_back_never_fall() -> Result<()> {
    let (hierarchy, mount, name) = place("back")?;
    let group = Cgroup::make(&mount, &name)?;
    let hog = Workload::start("hog")?;
    let pid = hog.pid();
    let leave = || fs::write(mount.join("cgroup.procs"), pid.to_string()).context("moving a process out");
    group.adopt(pid)?;
    let usage = || Ok(vec![group.usage_ns()?]);
    let mut watch = Watch::start(&hierarchy, &format!("/{name}"), false)?;
    let switched = switches(pid)?;
    let (_, begin) = around(usage, || watch.begin())?;
    let (mut last_ns, mut rows, mut left, mut all_switches) = (0, 0, 0, 0);
    let mut look = |snapshot: &Snapshot| -> Result<bool> {
        let mut found = snapshot.tasks.iter().filter(|task| task.raw.pid == pid);
        let Some(row) = found.next() else { return Ok(false) };
        ensure!(found.next().is_none(), "it is listed twice");
        let total_ns = row.total.cpu_ns();
        ensure!(total_ns >= last_ns, "CPU time fell from {last_ns} to {total_ns} ns");
        ensure!(!row.ended(), "it is said to have ended");
        last_ns = total_ns;
        rows += 1;
        left += u32::from(row.left());
        all_switches += row.delta[Counter::Nvcsw] + row.delta[Counter::Nivcsw];
        Ok(true)
    };
    for round in 0..4 {
        until_it_ran(pid, Duration::from_millis(50))?;
        ensure!(look(&watch.step()?)?, "round {round}: it is in the cgroup and not listed");
        leave()?;
        ensure!(look(&watch.step()?)?, "round {round}: that it left is not said");
        // It may first have to be seen on its CPU.
        look(&watch.step()?)?;
        until_it_ran(pid, Duration::from_millis(20))?;
        ensure!(!look(&watch.step()?)?, "round {round}: it is outside and listed");
        group.adopt(pid)?;
    }
    // Many times in each interval, and wherever it is when the sample is taken.
    for round in 0..20 {
        for _ in 0..10 {
            leave()?;
            thread::sleep(Duration::from_millis(1));
            group.adopt(pid)?;
            thread::sleep(Duration::from_millis(1));
        }
        if round % 2 == 0 {
            leave()?;
        }
        look(&watch.step()?)?;
        if round % 3 == 0 {
            look(&watch.step()?)?;
        }
        group.adopt(pid)?;
    }
    let (last, end) = around(usage, || watch.step())?;
    look(&last)?;
    ensure!(rows > 20 && left >= 4, "{rows} rows, of which {left} say that it left");
    let switched = switches(pid)? - switched;
    ensure!(all_switches <= switched, "{all_switches} switches inside, {switched} of all");
    for truth in begin.to(&end) {
        truth.hold("CPU time of the cgroup", watch.total_ns, 0.02, 4 * TICK_NS)?;
    }
    drop(hog);
    Ok(())
}

pub fn a_resting_task_that_is_moved_shows_at_once() -> Result<()> {
    let (hierarchy, mount, name) = place("rest")?;
    let group = Cgroup::make(&mount, &name)?;
    let crowd = Workload::start("sleepers")?;
    let mut watch = Watch::start(&hierarchy, &format!("/{name}"), false)?;
    // More than once: each task is looked at now and then anyway.
    for round in 0..3 {
        group.adopt(crowd.pid())?;
        let snapshot = watch.step()?;
        let row = snapshot.tasks.iter().find(|task| task.raw.pid == crowd.pid());
        let threads = row.with_context(|| format!("round {round}: moved in and not listed"))?.threads;
        ensure!(threads == 16, "round {round}: {threads} of 16 threads");
        fs::write(mount.join("cgroup.procs"), crowd.pid().to_string())?;
        watch.step()?;
        ensure!(pids(&watch.step()?).is_empty(), "round {round}: moved out and still listed");
    }
    drop(crowd);
    Ok(())
}

pub fn a_resting_task_shows_with_the_sample_after_the_scope_changed() -> Result<()> {
    let (hierarchy, mount, name) = place("turn")?;
    let (one, other) = (Cgroup::make(&mount, &name)?, Cgroup::make(&mount, format!("{name}-other"))?);
    let (here, there) = (Workload::start("sleepers")?, Workload::start("sleepers")?);
    one.adopt(here.pid())?;
    other.adopt(there.pid())?;
    let mut watch = Watch::start(&hierarchy, &format!("/{name}"), false)?;
    ensure!(pids(&watch.step()?) == [here.pid()]);
    for (group, wanted) in [(&other, there.pid()), (&one, here.pid()), (&other, there.pid())] {
        watch.source.set_scope(Some(group.id()?))?;
        let shown = pids(&watch.step()?);
        ensure!(shown == [wanted], "{shown:?} instead of {wanted}");
    }
    drop((here, there));
    Ok(())
}

pub fn a_cgroup_is_waited_for_and_may_go() -> Result<()> {
    let (hierarchy, mount, name) = place("wait")?;
    let pattern = format!("/{name}*");
    let mut watch = Watch::start(&hierarchy, &pattern, true)?;
    ensure!(watch.step()?.tasks.is_empty(), "something is listed before its cgroup exists");
    let group = Cgroup::make(&mount, &name)?;
    watch.until_known(group.id()?)?;
    let mut brief = Workload::start("brief")?;
    group.adopt(brief.pid())?;
    brief.go()?;
    brief.finish()?;
    // It was waited for, but may be a moment away from its last switch.
    thread::sleep(A_MOMENT);
    drop(group);
    let rows = watch.step()?;
    let row = rows.tasks.iter().find(|task| task.raw.pid == brief.pid()).context("its task has no row")?;
    ensure!(row.exited && row.run_ns() >= 190_000_000, "burnt 200 ms, counted {} ns", row.run_ns());
    ensure!(rows.names.cgroups.contains_key(&row.raw.cgroup_id), "the removed cgroup has no name");
    ensure!(watch.step()?.tasks.is_empty());
    // Another one of that name.
    let again = Cgroup::make(&mount, &name)?;
    watch.until_known(again.id()?)?;
    let hog = Workload::start("hog")?;
    again.adopt(hog.pid())?;
    watch.step()?;
    ensure!(pids(&watch.step()?) == [hog.pid()]);
    drop(hog);
    Ok(())
}

pub fn cgroups_whose_names_are_no_text_stay_apart() -> Result<()> {
    let mount = cgroups::choose(Path::new("/")).mount.context("no cgroup filesystem is mounted")?;
    let parent = unique("bytes");
    let top = Cgroup::make(&mount, &parent)?;
    let names = [&b"\xff"[..], b"\xfe", br"\xff"];
    let groups: Vec<Cgroup> =
        names.iter().map(|name| Cgroup::make(&top.0, OsStr::from_bytes(name))).collect::<Result<_>>()?;
    // Declared after the cgroups, so that they are gone before those are removed.
    let hogs: Vec<Workload> = names.iter().map(|_| Workload::start("hog")).collect::<Result<_>>()?;
    for (group, hog) in groups.iter().zip(&hogs) {
        group.adopt(hog.pid())?;
    }
    let shown = [r"\xff", r"\xfe", r"\\xff"];
    let rows = |scope: &OsStr| -> Result<Vec<(u64, String, i64)>> {
        let output = Command::new(program::path())
            .args(["-b", "-n", "1", "-d", "0.1", "--json-full", "--cgroup"])
            .arg(scope)
            .output()?;
        ensure!(output.status.success(), "{scope:?}: {}", String::from_utf8_lossy(&output.stderr));
        let line: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let processes = |cgroup: &serde_json::Value| {
            let containers = line["containers"].as_array().into_iter().flatten();
            let row = containers.into_iter().find(|row| row["cgroup"] == *cgroup);
            row.map_or(-1, |row| row["processes"].as_i64().unwrap_or(-1))
        };
        let tasks = line["tasks"].as_array().context("tasks")?.iter();
        let row = |task: &serde_json::Value| {
            let cgroup = task["cgroup"].as_str().unwrap_or_default().to_string();
            (task["pid"].as_u64().unwrap_or(0), cgroup, processes(&task["cgroup"]))
        };
        let mut rows: Vec<_> = tasks.map(row).collect();
        rows.sort();
        Ok(rows)
    };
    let row = |at: usize| (u64::from(hogs[at].pid()), format!("/{parent}/{}", shown[at]), 1);
    let mut all = vec![row(0), row(1), row(2)];
    all.sort();
    let found = rows(OsStr::new(&format!("/{parent}")))?;
    ensure!(found == all, "{found:?} instead of {all:?}");
    // The raw path, below the root of the hierarchy and in the file system, and the form on screen.
    let path = |at: usize| [b"/", parent.as_bytes(), b"/", names[at]].concat();
    let escaped = |name: &str| format!("/{parent}/{name}").into_bytes();
    for (typed, at) in [
        (path(0), 0),
        ([mount.as_os_str().as_bytes(), &path(1)].concat(), 1),
        (escaped(r"\xfe"), 1),
        // The third is called what the first is shown as.
        (escaped(r"\xff"), 2),
        (escaped(r"\\xff"), 2),
    ] {
        let found = rows(OsStr::from_bytes(&typed))?;
        ensure!(found == [row(at)], "{}: {found:?}", typed.escape_ascii());
    }
    drop(hogs);
    Ok(())
}

const V1_MEMORY: &str = "/sys/fs/cgroup/memory";
/// Kernel memory in excess of normal fluctuation while the test below looks.
const ENOUGH_KERNEL: u64 = 16 << 20;

fn v1_memory(file: &str) -> Result<u64> {
    Ok(fs::read_to_string(Path::new(V1_MEMORY).join(file))?.trim().parse()?)
}

/// Why the memory of the root of cgroup v1 cannot be looked at here.
pub fn no_memory_of_v1() -> Option<&'static str> {
    let kernel = v1_memory("memory.kmem.usage_in_bytes").unwrap_or(0);
    (kernel < ENOUGH_KERNEL)
        .then_some("there is no memory controller of cgroup v1, or too little kernel memory in it")
}

pub fn the_root_of_v1_has_the_memory_of_the_kernel() -> Result<()> {
    let words = ["-b", "-n", "1", "-d", "0.2", "--json-full"];
    let lines = crate::command::intervals(&words)?;
    let containers = lines[0]["containers"].as_array().context("containers")?;
    let root = containers.iter().find(|row| row["cgroup"] == "/").context("no row of the root")?;
    let found = root["mem_bytes"].as_u64().context("mem_bytes")?;
    let without = v1_memory("memory.usage_in_bytes")?;
    let with = without + v1_memory("memory.kmem.usage_in_bytes")?;
    ensure!(found.abs_diff(with) < found.abs_diff(without), "{found} is nearer to {without} than to {with}");
    Ok(())
}

pub fn an_unknown_cgroup_is_wrong_usage() -> Result<()> {
    let (hierarchy, mount, name) = place("known")?;
    let _group = Cgroup::make(&mount, &name)?;
    let error = Watch::start(&hierarchy, &format!("/{name}x"), false).err().context("it started")?;
    let refusal = error.downcast_ref::<Refusal>().context("not a refusal")?;
    ensure!(refusal.exit == Exit::Usage, "{refusal:?}");
    ensure!(refusal.to_string().contains(&name), "the closest name is not offered: {refusal}");
    Ok(())
}
