//! The cases of the field. Each world has the finding that its engineers looked for with several tools,
//! within the time of its rule plus 5 s, and no other cause. The table in README.md beside this file is
//! generated from them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use numatop_ng::finding::rules::by_id;
use numatop_ng::finding::{Engine, Finding, Options, Severity};
use numatop_ng::model::sample::{HostFacts, Missing, Sample};
use numatop_ng::snapshot::{RowKind, derive};

use crate::properties::{check_less, each_task, keys};
use crate::sick_worlds as worlds;
use crate::world::{Machine, fold, lines, read_about, samples};

/// Set to rewrite the table instead of comparing with it.
const ACCEPT: &str = "NUMATOP_ACCEPT_GOLDENS";

/// A case: its number, its machine, its rule, and other infos that are allowed.
struct Case {
    number: &'static str,
    story: &'static str,
    world: fn() -> Machine,
    says: Says,
    also: &'static [&'static str],
}

/// The answer to a case.
enum Says {
    /// A finding of this rule.
    Finding(&'static str),
    /// Nothing, because it is healthy.
    Nothing,
}

use Says::{Finding as Found, Nothing};

const CASES: &[Case] = &[
    Case {
        number: "1",
        story: "16 services of 390 % each on 32 cores with two threads do half of the work together",
        world: worlds::full_of_containers,
        says: Found("cores-exhausted"),
        also: &[],
    },
    Case {
        number: "2",
        story: "A service all over 16 nodes has an IPC of 0.08, and of 0.27 on two nodes",
        world: worlds::spread,
        says: Found("spread-over-nodes"),
        also: &[],
    },
    Case {
        number: "3",
        story: "4.8 of 18.8 GB are on another node, because page cache had filled the own one",
        world: worlds::page_cache,
        says: Found("page-cache-fills-node"),
        also: &[],
    },
    Case {
        number: "4a",
        story: "A database swaps while another node has free memory: it is bound to a full one",
        world: worlds::bound_and_full,
        says: Found("bound-to-full-node"),
        also: &[],
    },
    Case {
        number: "4b",
        story: "A database stalls while another node has free memory: zone_reclaim_mode is 1",
        world: worlds::zone_reclaim,
        says: Found("zone-reclaim"),
        also: &[],
    },
    Case {
        number: "5",
        story: "With kernel.numa_balancing=1 a database does a fifth less",
        world: worlds::balancing,
        says: Found("balancing-cost"),
        also: &[],
    },
    Case {
        number: "6",
        story: "Two databases on one socket have an IPC of 0.04, a third one alone on the other 0.14",
        world: worlds::three_databases,
        says: Found("noisy-neighbour"),
        also: &[],
    },
    Case {
        number: "6 hidden",
        story: "The same where the BIOS hides NUMA: one node is shown",
        world: worlds::three_databases_hidden,
        says: Found("noisy-neighbour"),
        also: &["nodes-hidden"],
    },
    Case {
        number: "7",
        story: "Cores of the socket with the network interrupts are a quarter slower",
        world: worlds::interrupts,
        says: Found("interrupts-on-busy-node"),
        also: &[],
    },
    Case {
        number: "8",
        story: "A database whose disk is on the other socket waits for its log",
        world: worlds::far_disk,
        says: Found("far-device"),
        also: &[],
    },
    Case {
        number: "9",
        story: "The firmware says 10 times for another socket, where 3.3 times are measured",
        world: worlds::distances,
        says: Found("distances-wrong"),
        also: &[],
    },
    Case {
        number: "10",
        story: "The BIOS hides NUMA: one node is shown, and two sockets are real",
        world: worlds::hidden,
        says: Found("nodes-hidden"),
        also: &[],
    },
    Case {
        number: "11a",
        story: "Two threads on the two CPUs of one core take 58 s, on two cores 28 s",
        world: || worlds::siblings(0.9),
        says: Found("sibling-contention"),
        also: &[],
    },
    Case {
        number: "11b",
        story: "The same with memory on the other node takes 33 s",
        world: worlds::other_node,
        says: Found("memory-on-other-node"),
        also: &["balancing-off"],
    },
    Case {
        number: "12",
        story: "Loops have an IPC of 0.7 to 2.19, each its own",
        world: worlds::loops,
        says: Nothing,
        also: &[],
    },
    Case {
        number: "13",
        story: "With huge pages a virtual machine of Java misses the TLB for code in 14 % in place of 80 %",
        world: worlds::page_walks,
        says: Found("tlb-misses"),
        also: &[],
    },
    Case {
        number: "14",
        story: "perf stat with 28 events counts each in 7 to 28 % of the time",
        world: worlds::many_events,
        says: Found("counters-taken-turns"),
        also: &[],
    },
    Case {
        number: "15",
        story: "A process that was pinned after its start is not faster: its memory was spread already",
        world: worlds::pinned_late,
        says: Found("remote-after-pin"),
        also: &[],
    },
    Case {
        number: "16a",
        story: "A container engine pins two containers to each other's siblings",
        world: worlds::shared_siblings,
        says: Found("shared-cores"),
        also: &[],
    },
    Case {
        number: "16b",
        story: "A container has CPUs of one node and memory of another one",
        world: || worlds::apart("0-3", "1"),
        says: Found("cpus-and-memory-apart"),
        also: &[],
    },
    Case {
        number: "16c",
        story: "A container has CPUs of all nodes and fits on one",
        world: || worlds::backends("0,8,16,24", true),
        says: Found("spread-over-nodes"),
        also: &[],
    },
];

/// Samples of a case; data read on demand is available for processes that need it.
fn watched(case: &Case, seconds: u64) -> (Arc<HostFacts>, Vec<Sample>) {
    let (host, mut samples) = samples((case.world)(), seconds, 1000);
    if case.number == "13" {
        read_about(&mut samples, 900, "0-31", 0.0);
    }
    (host, samples)
}

/// The finding of a case at the end of its time. Nothing but it, its symptoms and what may stand beside it is a cause at any
/// time before.
fn finding_of(case: &Case) -> Option<Finding> {
    let id = match case.says {
        Found(id) => Some(id),
        _ => None,
    };
    let seconds = id.and_then(by_id).map_or(130, |rule| rule.hold.on_s as u64 + 5);
    let (host, samples) = watched(case, seconds);
    let mut engine = Engine::new(Options::default());
    for pair in samples.windows(2) {
        engine.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
        for finding in engine.findings().iter().filter(|finding| !finding.is_symptom()) {
            let expected = Some(finding.key.id) == id
                || case.also.contains(&finding.key.id) && finding.severity == Severity::Info;
            // One that comes before its cause is hung below it when that has held for long enough.
            let early = numatop_ng::finding::causes::CAUSES
                .iter()
                .any(|(cause, explained)| Some(*cause) == id && explained.contains(&finding.key.id));
            assert!(expected || early, "case {}: {:?}", case.number, lines(&engine));
        }
    }
    let found = engine.findings().iter().find(|finding| Some(finding.key.id) == id).cloned();
    for finding in engine.findings().iter().filter(|finding| !finding.is_symptom()) {
        let expected = Some(finding.key.id) == id || case.also.contains(&finding.key.id);
        assert!(expected, "case {}: {:?}", case.number, lines(&engine));
    }
    assert_eq!(found.is_some(), id.is_some(), "case {}: {:?}", case.number, lines(&engine));
    found
}

/// The table of cases in markdown.
fn render() -> String {
    let mut out =
        String::from("| case | what was seen | finding | severity | its sentence |\n|---|---|---|---|---|\n");
    for case in CASES {
        let (id, severity, text) = match finding_of(case) {
            Some(finding) => {
                (format!("`{}`", finding.key.id), finding.severity.name(), finding.advice.sentence)
            }
            None => ("none".to_owned(), "-", "It is healthy.".to_owned()),
        };
        out += &format!("| {} | {} | {id} | {severity} | {text} |\n", case.number, case.story);
    }
    out
}

const BEGIN: &str =
    "<!-- The table is made by tests/findings/field_cases.rs: NUMATOP_ACCEPT_GOLDENS=1 rewrites it -->\n\n";
const END: &str = "\n<!-- end of the table -->";

#[test]
fn each_case_has_its_finding_and_the_document_has_them_all() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings/README.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (table, tail) = rest.split_once(END).unwrap();
    let wanted = render();
    if std::env::var_os(ACCEPT).is_some() {
        fs::write(&path, format!("{head}{BEGIN}{wanted}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(table, wanted, "{ACCEPT}=1 rewrites it");
}

#[test]
fn a_value_that_is_taken_away_never_makes_a_finding() {
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 9] = [
        ("cpu_nodes", |sample| each_task(sample, |task| task.cpu_nodes = None)),
        ("mem_nodes", |sample| each_task(sample, |task| task.mem_nodes = None)),
        ("resident", |sample| each_task(sample, |task| task.resident = None)),
        ("counts by sibling", |sample| each_task(sample, |task| task.counts.by_sibling = Default::default())),
        ("machine", |sample| sample.machine = None),
        ("groups", |sample| sample.groups.clear()),
        ("placement", |sample| sample.placement = Arc::default()),
        ("about", |sample| sample.about = Arc::default()),
        ("vm", |sample| sample.vm = None),
    ];
    for case in CASES {
        let seconds = match case.says {
            Found(id) => by_id(id).map_or(70, |rule| rule.hold.on_s as u64 + 5),
            _ => 70,
        };
        let (host, samples) = watched(case, seconds);
        let before = keys(&fold(&host, &samples).0);
        for (name, change) in &changes {
            let mut samples = samples.clone();
            samples.iter_mut().for_each(change);
            let without = format!("{name} of case {}", case.number);
            check_less(&keys(&fold(&host, &samples).0), &before, &without);
        }
    }
}

#[test]
fn case_13_is_over_with_huge_pages() {
    let case = CASES.iter().find(|case| case.number == "13").unwrap();
    let (host, mut samples) = watched(case, 70);
    read_about(&mut samples, 900, "0-31", 90.0);
    assert!(crate::world::found_in(&host, &samples, "tlb-misses").is_empty());
}

#[test]
fn case_8_is_not_told_where_the_use_of_disks_is_not_known() {
    let case = CASES.iter().find(|case| case.number == "8").unwrap();
    let (host, mut samples) = watched(case, 70);
    assert_eq!(crate::world::found_in(&host, &samples, "far-device").len(), 1);
    for raw in samples.iter_mut().flat_map(|sample| sample.groups.values_mut()) {
        Arc::make_mut(raw).disks = Err(Missing::NotCollected("taken away".into()));
    }
    assert!(crate::world::found_in(&host, &samples, "far-device").is_empty());
}
