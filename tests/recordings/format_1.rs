//! Recordings of format 1 open for ever: these were made once and are never made again.

use std::path::PathBuf;

use numatop_ng::model::sample::Missing;
use numatop_ng::record::verify::verify;
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::machine::{self, Machine};
use crate::recorder::samples;

fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec"))
}

#[test]
fn it_opens_and_says_what_it_said() {
    let report = verify(&fixture()).unwrap();
    assert!(report.is_intact());
    assert_eq!((report.format, report.samples), (1, 65));
    let recording = Recording::open(&fixture()).unwrap();
    let host = recording.host();
    assert_eq!(
        (host.hostname.as_str(), host.topology.cpus.len(), host.scope.as_str()),
        ("imagined", 8, "user web")
    );
    assert_eq!(host.missing["smt_busy_pct"].to_string(), "one thread each");

    let samples = samples(&fixture());
    assert_eq!(samples.len(), 65);
    let last = &samples[64];
    let busy: u64 = last.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let total: u64 = last.tasks.iter().map(|task| task.counts.cpu_ns()).sum();
    assert_eq!((last.tasks.len(), last.exited.len(), busy, total), FACTS);
    assert_eq!(last.names.cgroups[&7], "/system.slice/web.service");
    assert_eq!(last.own.cpu_ns, 65 * 3_000_000);
}

#[test]
fn what_it_did_not_keep_is_missing_and_not_zero() {
    let recording = Recording::open(&fixture()).unwrap();
    let why = "not recorded by numatop-ng 0.1.0";
    for metric in ["container", "pod", "mem_bytes_by_node", "throttled_pct"] {
        assert_eq!(recording.host().missing[metric], Missing::NotCollected(why.into()), "{metric}");
    }
    let samples = samples(&fixture());
    let last = &samples[64];
    assert_eq!(last.machine, None);
    assert!(last.tasks.iter().all(|task| task.resident.is_none() && task.cpu_nodes.is_none()));
    assert!(last.nodes.iter().all(|node| node.file_pages.is_none()));
    assert!(last.cpus.iter().all(|cpu| cpu.steal_ns.is_none()));
    assert_eq!((&recording.host().managers, &recording.host().cgroups), (&None, &None));
    // Reasons in its own head come first, and metrics that it has are not missing.
    assert_eq!(recording.host().missing["smt_busy_pct"], Missing::Unsupported("one thread each".into()));
    assert!(!recording.host().missing.contains_key("cpu_pct"));
}

/// Tasks, ended processes, time of the CPUs and of the tasks in the last sample, when it was made.
const FACTS: (usize, usize, u64, u64) = (25, 1, 2_006_518_376, 700_136_317);

#[test]
#[ignore = "made the fixture; run it only to begin a new format"]
fn make_the_fixture() {
    let mut machine = Machine::new(25);
    machine.churn = 40;
    let mut recorder =
        numatop_ng::record::recorder::Recorder::open(&fixture(), crate::recorder::options()).unwrap();
    for sample in machine.ticks(65) {
        recorder.record(&std::sync::Arc::new(machine::host()), &sample).unwrap();
    }
    recorder.finish().unwrap();
}
