//! The parts of a machine in a recording of a scope.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use numatop_ng::host::cgroups;
use numatop_ng::model::sample::{Comm, Names, Sample};
use numatop_ng::record::frame::{FrameHead, HEAD_LEN};
use numatop_ng::record::recorder::Recorder;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::source::recording::Recording;

use crate::containers::{Cgroup, unique};
use crate::recording::{Place, numatop, options, text};
use crate::workload::Workload;

const TASK: &str = "it-is-ours";
const NEIGHBOUR: &str = "it-is-another's";

/// A hog with the name `comm`, in a separate cgroup.
struct Tenant {
    // Declared before the cgroup, so that it is gone before that is removed.
    hog: Workload,
    cgroup: Cgroup,
    name: String,
}

impl Tenant {
    fn start(comm: &str, name: &str) -> Result<Tenant> {
        let mount = cgroups::choose(Path::new("/")).mount.context("no cgroup filesystem is mounted")?;
        let name = unique(name);
        let cgroup = Cgroup::make(&mount, &name)?;
        let hog = Workload::start_with("hog", |command| {
            command.env("NUMATOP_NG_TEST_COMM", comm);
        })?;
        cgroup.adopt(hog.pid())?;
        Ok(Tenant { hog, cgroup, name })
    }
}

/// Everything that is in a file, as it was before it was compressed.
fn payloads(path: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    let (mut at, mut payload, mut all) = (0, Vec::new(), Vec::new());
    while let Some(head) = FrameHead::from_bytes(&bytes[at..]) {
        let end = at + head.len() as usize;
        head.open(&bytes[at + HEAD_LEN..end], &mut payload).map_err(anyhow::Error::msg)?;
        all.extend_from_slice(&payload);
        at = end;
    }
    ensure!(at == bytes.len(), "{} bytes are no frames", bytes.len() - at);
    Ok(all)
}

pub fn a_recording_of_a_scope_names_nobody_else() -> Result<()> {
    let place = Place::new("scope", None)?;
    let path = place.path.join("file");
    let ours = Tenant::start(TASK, "ours")?;
    let other = Tenant::start(NEIGHBOUR, "another")?;
    numatop(&["record", "-n", "5", "-d", "0.2", "--cgroup", &format!("/{}", ours.name), text(&path)?])?;

    let payloads = payloads(&path)?;
    let has = |what: &str| payloads.windows(what.len()).any(|bytes| bytes == what.as_bytes());
    ensure!(has(&ours.name), "the cgroup in scope is not found");
    ensure!(!has(&other.name) && !has(NEIGHBOUR), "the neighbour is in the file");
    let mut recording = Recording::open(&path)?;
    let (mut samples, mut rows) = (0, 0);
    while let Some(sample) = recording.next()? {
        for task in sample.tasks.iter().chain(&sample.exited) {
            ensure!(task.pid == ours.hog.pid() && task.comm == Comm::new(TASK), "a row of {}", task.pid);
            rows += 1;
        }
        let names: Vec<&String> = sample.names.cgroups.values().collect();
        ensure!(names == ["/", &format!("/{}", ours.name)], "cgroups {names:?}");
        let mut groups = sample.names.groups.keys().chain(sample.groups.keys());
        ensure!(groups.all(|id| sample.names.cgroups.contains_key(id)), "a group of a cgroup without a name");
        samples += 1;
    }
    // Five intervals lie between six samples.
    ensure!(samples == 6 && rows > 0, "{samples} samples, {rows} rows");

    let shown = numatop(&["replay", text(&path)?, "--format", "json", "--threads"])?;
    ensure!(shown.contains(&ours.name) && !shown.contains(&other.name), "the replay names the neighbour");
    Ok(())
}

/// Takes samples into a recording until one has names that `are` as wanted.
fn record(
    (source, recorder): (&mut LiveSource, &mut Recorder),
    taken: &mut Vec<Sample>,
    what: &str,
    are: impl Fn(&Names) -> bool,
) -> Result<()> {
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(50));
        let sample = source.next()?.context("no sample")?;
        recorder.record(&source.host(), &sample)?;
        let names = Arc::clone(&sample.names);
        taken.push(sample);
        if are(&names) {
            return Ok(());
        }
    }
    anyhow::bail!("{what}: never seen")
}

pub fn a_scope_that_is_chosen_meanwhile_narrows_what_is_named() -> Result<()> {
    let place = Place::new("narrowed", None)?;
    let path = place.path.join("file");
    let (ours, other) = (Tenant::start(TASK, "ours")?, Tenant::start(NEIGHBOUR, "another")?);
    let (own, others) = (ours.cgroup.id()?, other.cgroup.id()?);
    let mut source = LiveSource::start(LiveOptions::default())?;
    let mut recorder = Recorder::open(&path, options())?;
    let (both, mut taken) = ([own, others], Vec::new());
    let all = |names: &Names| both.iter().all(|id| names.cgroups.contains_key(id));
    let only = |names: &Names| names.cgroups.contains_key(&own) && !names.cgroups.contains_key(&others);
    record((&mut source, &mut recorder), &mut taken, "both are named", all)?;
    source.set_scope(Some(own))?;
    // A task that leaves has a row until the walk that finds it outside.
    record((&mut source, &mut recorder), &mut taken, "only ours is named", only)?;
    source.set_scope(None)?;
    record((&mut source, &mut recorder), &mut taken, "both are named again", all)?;
    recorder.finish()?;

    let mut recording = Recording::open(&path)?;
    for sample in taken {
        ensure!(recording.next()?.as_ref() == Some(&sample), "a sample differs");
    }
    ensure!(recording.next()?.is_none());
    Ok(())
}
