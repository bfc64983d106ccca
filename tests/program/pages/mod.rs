//! Recordings that pages are made of, the command that makes them, and the elements of a page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::model::sample::{Comm, HostFacts, Missing, Names, Sample};
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::source::synthetic::{Actor, Machine, demo_machine};

use crate::program;
use crate::scratch;
use scratch::Scratch;

pub const SECOND: u64 = 1_000_000_000;

pub fn numatop(words: &[&str]) -> Output {
    Command::new(program::path()).args(words).env("TZ", "UTC").output().unwrap()
}

/// Standard output of a command that succeeds.
pub fn stdout(words: &[&str]) -> String {
    let Output { status, stdout, stderr } = numatop(words);
    assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn record(path: &Path, samples: &[(Arc<HostFacts>, Sample)]) {
    let options = RecordOptions::every(Duration::from_secs(1));
    let mut recorder = Recorder::open(path, options).unwrap();
    for (host, sample) in samples {
        recorder.record(host, sample).unwrap();
    }
    recorder.finish().unwrap();
}

/// A recording of the demo machine: 60 intervals of other lengths, some longer than a bucket.
pub fn demo(scratch: &Scratch) -> PathBuf {
    let path = scratch.join("demo.nrec");
    let mut machine = demo_machine();
    let lengths = [SECOND, 1_000_800_000, 2 * SECOND, 700_000_000, 3 * SECOND];
    let samples: Vec<_> = (0..61)
        .map(|at| {
            let sample = machine.step(lengths[at % lengths.len()]);
            (Arc::clone(&machine.host), sample)
        })
        .collect();
    record(&path, &samples);
    path
}

/// Text that would be more than text in a page: markup, the end of a script, an attribute.
pub const HOSTILE: [&str; 4] =
    ["</script><b>x", "<img src=x onerror=alert(1)>", "\" onmouseover=\"alert(1)", "<!--'&lt;&#60;"];

/// The names of all elements of a page, and of their attributes.
pub fn elements(page: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut elements, mut attributes) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "/!-".contains(*c)).collect();
        if name.is_empty() {
            continue;
        }
        // Attributes of ours are quoted, or have no value.
        let mut quoted = false;
        let end = rest.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let tag = &rest[..end.unwrap()];
        for (at, part) in tag.split('"').enumerate().filter(|(at, _)| at % 2 == 0) {
            let words = part.split([' ', '\n']).map(|word| word.trim_end_matches('='));
            let skip = usize::from(at == 0);
            attributes.extend(words.skip(skip).filter(|word| !word.is_empty()).map(str::to_owned));
        }
        elements.insert(name.trim_start_matches('/').to_owned());
        rest = &rest[tag.len()..];
        // Style and script are no markup.
        if ["style", "script"].contains(&name.as_str()) {
            let close = format!("</{name}");
            rest = &rest[rest.find(&close).unwrap()..];
        }
    }
    (elements, attributes)
}

pub fn hostile(scratch: &Scratch) -> PathBuf {
    let path = scratch.join("hostile.nrec");
    let cgroups: BTreeMap<u64, String> = (0..4)
        .map(|at| {
            (10 + at, format!("/kubepods.slice/{}/{}.service", HOSTILE[at as usize], HOSTILE[at as usize]))
        })
        .collect();
    let names = Names {
        users: BTreeMap::new(),
        groups: describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent"))),
        cgroups,
    };
    let base = demo_machine();
    let mut host = HostFacts::clone(&base.host);
    for text in [&mut host.hostname, &mut host.kernel, &mut host.cpu_model, &mut host.scope] {
        *text = HOSTILE.concat();
    }
    host.topology.nodes[0].devices.iter_mut().for_each(|device| device.name = HOSTILE[1].into());
    host.missing.insert(HOSTILE[0].into(), Missing::Unsupported(HOSTILE[1].into()));
    let actor = |at: u32| Actor {
        comm: Comm::new(HOSTILE[at as usize % 4]),
        cgroup: 10 + u64::from(at) % 4,
        rss: 1 << 30,
        memory: vec![512, 512],
        ..Actor::new(100 + at, "x").runs(&[(0, 20.0), (1, 10.0)])
    };
    let mut machine = Machine::new(host, names, (0..4).map(actor).collect());
    machine.lost = BTreeMap::from([(HOSTILE[0].to_string(), 0)]);
    machine.plan = Some(Box::new(|machine, second| {
        machine.notes = vec![HOSTILE[1].into()];
        machine.lost = BTreeMap::from([(HOSTILE[0].to_string(), second)]);
    }));
    record(&path, &seconds(&mut machine, 10));
    path
}

/// Samples of a machine, one a second.
pub fn seconds(machine: &mut Machine, count: usize) -> Vec<(Arc<HostFacts>, Sample)> {
    (0..count)
        .map(|_| {
            let sample = machine.step(SECOND);
            (Arc::clone(&machine.host), sample)
        })
        .collect()
}
