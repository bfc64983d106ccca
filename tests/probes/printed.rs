//! Command lines that are printed about a container, typed as they are printed: podman carries them out, and the kernel's own
//! files say so.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use numatop_ng::finding::{self, Engine, Finding, Options, When, env};
use numatop_ng::host::cgroups::{self, Mount};
use numatop_ng::metric::{container, task};
use numatop_ng::model::sample::{CgroupMode, Sample};
use numatop_ng::model::units::NodeId;
use numatop_ng::snapshot::{RowKind, Snapshot, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::engine::{self, podman};
use crate::workload::Workload;

/// A fraction of a CPU, so that what undoes the command must name one. Less than a container gets on a busy machine: there
/// it is its quota that stops it, too.
const QUOTA: &str = "0.3";
/// Two loops; each would use a CPU.
const LOOPS: [&str; 3] = ["sh", "-c", "while :; do :; done & while :; do :; done"];
/// Conditions hold for a twentieth of their time here; a busy host needs a while until they do.
const SCALE: f64 = 0.05;
const PATIENCE: Duration = Duration::from_secs(90);

/// A container of podman that runs, and the files of its cgroups.
struct Container {
    id: String,
    /// Lines of `/proc/PID/cgroup`.
    cgroups: String,
}

impl Container {
    fn of(name: &str) -> Result<Container> {
        let id = podman(&["inspect", "--format", "{{.Id}}", name])?;
        let pid = podman(&["inspect", "--format", "{{.State.Pid}}", name])?;
        let cgroups =
            fs::read_to_string(format!("/proc/{pid}/cgroup")).context("cgroups of the container")?;
        Ok(Container { id, cgroups })
    }

    /// A file of a controller: its name in cgroup v1, and that in cgroup v2.
    fn file(&self, controller: &str, v1: &str, v2: &str) -> Result<String> {
        let mounts = cgroups::mounts(std::path::Path::new("/"));
        let has = |mount: &&Mount| {
            mount.controllers.as_ref().is_some_and(|all| all.iter().any(|one| one == controller))
        };
        let path = |is: &dyn Fn(&str) -> bool| {
            let line = self.cgroups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            line.into_iter().find(|(controllers, _)| is(controllers)).map(|(_, path)| path.to_owned())
        };
        let (mount, path, name) = match mounts.iter().find(has) {
            Some(mount) => (mount, path(&|all| all.split(',').any(|one| one == controller)), v1),
            None => {
                let unified = mounts.iter().find(|mount| mount.controllers.is_none());
                (unified.context("no hierarchy has the controller")?, path(&str::is_empty), v2)
            }
        };
        let path = path.context("the container is not in the hierarchy")?;
        let file = mount.at.join(path.trim_start_matches('/')).join(name);
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        Ok(text.trim().to_owned())
    }

    /// Its quota in CPUs, by the kernel.
    fn quota(&self) -> Result<f64> {
        let quota = self.file("cpu", "cpu.cfs_quota_us", "cpu.max")?;
        let (quota, period) = match quota.split_once(' ') {
            Some((quota, period)) => (quota.to_owned(), period.to_owned()),
            None => (quota, self.file("cpu", "cpu.cfs_period_us", "cpu.max")?),
        };
        Ok(quota.parse::<f64>()? / period.parse::<f64>()?)
    }

    /// Its lists of CPUs and of nodes, by the kernel.
    fn lists(&self) -> Result<(String, String)> {
        let list = |name: &str| self.file("cpuset", name, name);
        Ok((list("cpuset.cpus")?, list("cpuset.mems")?))
    }
}

/// Live samples with an engine that sees no other task of this machine: tests run beside builds, and a quota
/// on a busy machine is not its concern.
struct Watch {
    source: LiveSource,
    last: Sample,
    engine: Engine,
}

impl Watch {
    fn start() -> Result<Watch> {
        let options = LiveOptions { group_limits: true, ..LiveOptions::default() };
        let mut source = LiveSource::start(options)?;
        let last = source.next()?.context("a live source does not end")?;
        let engine = Engine::new(Options { scale: SCALE, ..Options::default() });
        Ok(Watch { source, last, engine })
    }

    fn next(&mut self) -> Result<Snapshot> {
        thread::sleep(Duration::from_millis(500));
        let sample = self.source.next()?.context("a live source does not end")?;
        let mut snapshot = derive(&self.source.host(), Some(&self.last), &sample, RowKind::Processes);
        self.last = sample;
        snapshot.cpus.iter_mut().for_each(|cpu| cpu.busy_ns = 0);
        // Old enough to be judged.
        for task in &mut snapshot.tasks {
            std::sync::Arc::make_mut(&mut task.raw).leader_start_ns = 0;
        }
        self.engine.take(&snapshot);
        Ok(snapshot)
    }

    /// Waits until this gives something.
    fn until<T>(&mut self, what: &str, mut get: impl FnMut(&Watch, &Snapshot) -> Option<T>) -> Result<T> {
        let limit = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.next()?;
            if let Some(got) = get(self, &snapshot) {
                return Ok(got);
            }
            let findings: Vec<String> =
                self.engine.findings().iter().map(|finding| finding.advice.sentence.clone()).collect();
            ensure!(Instant::now() < limit, "waited {} s in vain: {what}; {findings:?}", PATIENCE.as_secs());
        }
    }

    fn finding(&self, cgroup: u64) -> Option<Finding> {
        let about = finding::Subject::Container(cgroup);
        let mut all = self.engine.findings().iter();
        all.find(|finding| finding.key.id == "quota-throttled" && finding.key.subject == about).cloned()
    }

    fn bound(&self, pid: u32) -> Option<Finding> {
        let is_it =
            |finding: &&Finding| matches!(finding.key.subject, finding::Subject::Process(of, _) if of == pid);
        self.engine
            .findings()
            .iter()
            .filter(is_it)
            .find(|finding| finding.key.id == "bound-to-busy-cpus")
            .cloned()
    }
}

/// The id of the cgroup of a container, from samples.
fn cgroup_of(snapshot: &Snapshot, id: &str) -> Option<u64> {
    snapshot.names.groups.iter().find(|(_, group)| group.id.as_deref() == Some(id)).map(|(cgroup, _)| *cgroup)
}

/// The lines of commands that work at once.
fn lines(commands: &[finding::Command]) -> Vec<String> {
    let now = commands.iter().filter(|command| command.when == When::Now);
    now.filter_map(|command| Some(command.line.as_ref()?.to_string())).collect()
}

/// Types the one line of these commands into a shell, exactly as printed.
fn type_line(commands: &[finding::Command]) -> Result<String> {
    let all = lines(commands);
    let [line] = all.as_slice() else { anyhow::bail!("one line was expected: {all:?}") };
    let output = Command::new("sh").args(["-c", line]).output().context("starting sh")?;
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(line.clone())
}

pub fn podman_does_what_is_printed_about_a_quota() -> Result<()> {
    let engine = engine::Engine::start()?;
    let container = Container::of(&engine.run("quota", &[&format!("--cpus={QUOTA}")], &LOOPS)?)?;
    ensure!(container.quota()? == QUOTA.parse::<f64>()?, "it starts with {} CPUs", container.quota()?);
    let mut watch = Watch::start()?;
    let cgroup = watch.until("the container is known", |_, snapshot| cgroup_of(snapshot, &container.id))?;
    let finding = watch.until("quota-throttled", |watch, _| watch.finding(cgroup))?;

    let line = type_line(&finding.advice.commands)?;
    ensure!(line.starts_with("podman update --cpus ") && line.ends_with(&container.id), "{line}");
    let more = container.quota()?;
    ensure!(more > 1.0, "{line}: the kernel has {more} CPUs");
    let check = &finding.advice.check[0];
    let metric = container::by_id(check.metric).context("the metric of the check")?;
    let value = |snapshot: &Snapshot| {
        let row = snapshot.containers.iter().find(|row| row.id == cgroup)?;
        metric.read(row, snapshot).ok()?.number()
    };
    watch.until("the check comes true", |_, snapshot| value(snapshot).filter(|value| *value <= check.to))?;
    watch.until("the finding ends", |watch, _| watch.finding(cgroup).is_none().then_some(()))?;

    let line = type_line(&finding.advice.undo)?;
    ensure!(
        container.quota()? == QUOTA.parse::<f64>()?,
        "{line}: the kernel has {} CPUs",
        container.quota()?
    );
    watch.until("the finding comes again", |watch, _| watch.finding(cgroup))?;
    Ok(())
}

/// Four loops may use CPU 0 alone. One of them is freed by the printed command, and bound again.
pub fn a_bound_process_is_freed_as_it_is_printed() -> Result<()> {
    let loops: Vec<Workload> = (0..4).map(|_| Workload::start("hog")).collect::<Result<_>>()?;
    let bind = |pid: u32| -> Result<()> {
        let mut first = rustix::thread::CpuSet::new();
        first.set(0);
        let pid = rustix::process::Pid::from_raw(pid as i32);
        Ok(rustix::thread::sched_setaffinity(pid, &first)?)
    };
    loops.iter().try_for_each(|one| bind(one.pid()))?;
    let pid = loops[0].pid();
    let mut watch = Watch::start()?;
    let finding = watch.until("bound-to-busy-cpus", |watch, _| watch.bound(pid))?;
    let line = type_line(&finding.advice.commands)?;
    ensure!(line.starts_with("taskset -acp 0") && line.ends_with(&pid.to_string()), "{line}");
    let check = &finding.advice.check[0];
    let waits = |snapshot: &Snapshot| {
        let row = snapshot.tasks.iter().find(|task| task.raw.pid == pid)?;
        task::by_id(check.metric)?.read(row, snapshot).ok()?.number()
    };
    watch.until("the check comes true", |_, snapshot| waits(snapshot).filter(|value| *value <= check.to))?;
    watch.until("the finding ends", |watch, _| watch.bound(pid).is_none().then_some(()))?;
    ensure!(type_line(&finding.advice.undo)? == format!("taskset -acp 0 {pid}"));
    watch.until("the finding comes again", |watch, _| watch.bound(pid))?;
    Ok(())
}

/// The rules that bind a container need several nodes, or CPUs that only it has. The test makes the line for
/// this container in the same way.
pub fn podman_does_what_is_printed_about_lists() -> Result<()> {
    let engine = engine::Engine::start()?;
    let container = Container::of(&engine.run("lists", &["--cpuset-cpus=0", "--cpuset-mems=0"], &LOOPS)?)?;
    let mut watch = Watch::start()?;
    let mut find = |_: &Watch, snapshot: &Snapshot| {
        let cgroup = cgroup_of(snapshot, &container.id)?;
        let path = snapshot.names.cgroups.get(&cgroup).map(String::as_str);
        Some(env::env(snapshot.names.groups.get(&cgroup).map(std::sync::Arc::as_ref), path))
    };
    let environment = watch.until("the container is known", &mut find)?;
    ensure!(environment == env::Env::Podman(container.id.clone()), "{environment:?}");
    let unified = watch.source.host().cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let last = watch.source.host().topology.online_cpus().last().context("CPUs")?.id.0;
    let bind = |cpus: &[u32]| env::bind(&environment, cpus, &[NodeId(0)], None, unified);
    for cpus in [vec![0, last], vec![last], vec![0]] {
        let line = type_line(&bind(&cpus))?;
        let wanted = (finding::command::cpu_list(&cpus), "0".to_owned());
        ensure!(container.lists()? == wanted, "{line}: the kernel has {:?}", container.lists()?);
    }
    Ok(())
}
