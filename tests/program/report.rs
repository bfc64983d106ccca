//! Reports of recordings: numbers against those of export, hostile names, holes, and what a page may load.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numatop_ng::model::sample::{HostFacts, Names, Sample};
use numatop_ng::model::topology::{Calibration, Cost, Cpu, Llc, Node};
use numatop_ng::model::units::{CpuId, NodeId};
use numatop_ng::record::format::{Gap, Head};
use numatop_ng::record::writer::Writer;
use numatop_ng::report::shell::SCRIPT_HASH;
use numatop_ng::source::synthetic::{Actor, Machine, demo_machine};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::pages;
use crate::scratch::Scratch;
use pages::{SECOND, demo, elements, hostile, numatop, record, seconds, stdout, text};

fn report(path: &Path, flags: &[&str]) -> Json {
    serde_json::from_str(&stdout(&[&["report", text(path), "--format", "json"], flags].concat())).unwrap()
}

fn page(path: &Path, flags: &[&str]) -> String {
    stdout(&[&["report", text(path), "-o", "-"], flags].concat())
}

/// The numbers of export, added up over a stretch: amounts are value × time.
#[derive(Default)]
struct Sums {
    ns: f64,
    intervals: usize,
    /// By node: busy, free memory, local and remote accesses, instructions and cycles.
    nodes: BTreeMap<String, [f64; 6]>,
    /// By name: CPU time, waits, moves, remote and all accesses.
    programs: BTreeMap<String, [f64; 3]>,
    containers: BTreeMap<String, [f64; 3]>,
    tasks_moved: f64,
    pages_moved: f64,
}

fn number(row: &Json, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(0.0)
}

fn sums(path: &Path, flags: &[&str]) -> Sums {
    let lines = stdout(&[&["export", text(path), "--format", "json", "--json-full"], flags].concat());
    let mut sums = Sums::default();
    for line in lines.lines() {
        let interval: Json = serde_json::from_str(line).unwrap();
        let ns = number(&interval, "interval_ns");
        sums.ns += ns;
        sums.intervals += 1;
        for node in interval["nodes"].as_array().unwrap() {
            let cycles = number(node, "ghz") * number(node, "cpu_pct") / 100.0 * number(node, "cpus") * ns;
            let amounts = [
                number(node, "cpu_pct") * ns,
                number(node, "mem_free_bytes") * ns,
                number(node, "lma_per_s") * ns,
                number(node, "rma_per_s") * ns,
                number(node, "ipc") * cycles,
                cycles,
            ];
            let of = sums.nodes.entry(node["node"].to_string()).or_default();
            of.iter_mut().zip(amounts).for_each(|(sum, more)| *sum += more);
        }
        let add = |rows: &str, key: &str, to: &mut BTreeMap<String, [f64; 3]>| {
            for row in interval[rows].as_array().unwrap() {
                let amounts =
                    ["cpu_pct", "runq_wait_pct", "node_migrations_per_s"].map(|id| number(row, id) * ns);
                let of = to.entry(row[key].as_str().unwrap_or_default().to_owned()).or_default();
                of.iter_mut().zip(amounts).for_each(|(sum, more)| *sum += more);
            }
        };
        add("tasks", "comm", &mut sums.programs);
        add("containers", "container", &mut sums.containers);
        for (key, sum) in [
            ("task_migrations_per_s", &mut sums.tasks_moved),
            ("pages_migrated_per_s", &mut sums.pages_moved),
        ] {
            let Some(rows) = interval["matrix"][key].as_object() else { continue };
            let all = rows.values().flat_map(|row| row.as_object().unwrap().values());
            *sum += all.map(|value| value.as_f64().unwrap_or(0.0)).sum::<f64>() * ns / 1e9;
        }
    }
    sums
}

#[track_caller]
fn near(what: &str, found: f64, wanted: f64) {
    // Export has six decimals.
    assert!((found - wanted).abs() <= wanted.abs() * 1e-5 + 1e-6, "{what}: {found}, {wanted} by export");
}

#[track_caller]
fn compare(found: &Json, wanted: &Sums) {
    near("time", number(found, "measured_ns"), wanted.ns);
    assert_eq!(found["intervals"].as_u64().unwrap() as usize, wanted.intervals);
    let lane = |id: &str| {
        let lanes = found["lanes"].as_array().unwrap();
        lanes.iter().find(|lane| lane["id"] == id).unwrap()
    };
    for (node, [busy, free, local, remote, instructions, cycles]) in &wanted.nodes {
        near("busy", number(&lane("cpu")["nodes"][node], "num"), *busy);
        near("free", number(&lane("free")["nodes"][node], "num"), *free);
        near("remote", number(&lane("remote")["nodes"][node], "value"), remote * 100.0 / (local + remote));
        near("ipc", number(&lane("ipc")["nodes"][node], "value"), instructions / cycles);
    }
    let sum = |rows: &[Json], id: &str| rows.iter().map(|row| number(&row[id], "num")).sum::<f64>();
    let programs = found["programs"]["rows"].as_array().unwrap();
    let ids = ["cpu_pct", "runq_wait_pct", "node_migrations_per_s"];
    let mut compared = 0;
    for (name, amounts) in &wanted.programs {
        let rows: Vec<Json> = programs.iter().filter(|row| row["name"] == **name).cloned().collect();
        for (id, amount) in ids.iter().zip(amounts).filter(|_| !rows.is_empty()) {
            near(&format!("{id} of {name}"), sum(&rows, id), *amount);
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
    let mut all = programs.clone();
    all.push(found["programs"]["rest"].clone());
    for (at, id) in ids.iter().enumerate() {
        let wanted: f64 = wanted.programs.values().map(|amounts| amounts[at]).sum();
        near(&format!("{id} of all programs"), sum(&all, id), wanted);
    }
    let containers = found["containers"]["rows"].as_array().unwrap();
    let mut compared = 0;
    for row in containers {
        if let Some(amounts) = row["name"].as_str().and_then(|name| wanted.containers.get(name)) {
            for (id, amount) in ids.iter().zip(amounts) {
                near(&format!("{id} of {}", row["name"]), number(&row[id], "num"), *amount);
                compared += 1;
            }
        }
    }
    assert!(compared > 10, "{compared}");
    let cells = |key: &str| -> f64 {
        let rows = found["matrix"][key].as_array().unwrap();
        rows.iter().flat_map(|row| row.as_array().unwrap()).map(|cell| cell.as_f64().unwrap()).sum()
    };
    near("tasks moved", cells("tasks_moved"), wanted.tasks_moved);
    near("pages moved", cells("pages_moved"), wanted.pages_moved);
}

#[test]
fn sums_are_those_of_export() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    compare(&report(&path, &[]), &sums(&path, &[]));
}

#[test]
fn a_part_has_the_sums_of_that_part() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let part = ["--from", "+30s", "--to", "+70s"];
    let (found, wanted) = (report(&path, &part), sums(&path, &part));
    assert!(wanted.intervals < 50, "{}", wanted.intervals);
    compare(&found, &wanted);
}

#[test]
fn few_points_and_few_rows_have_the_same_sums() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let few = report(&path, &["--points", "100", "--top", "12"]);
    assert!(few["buckets"]["count"].as_u64().unwrap() <= 100);
    compare(&few, &sums(&path, &[]));
    // One program has a separate row, and all others are one row.
    let one = report(&path, &["--comm", "^postgres$"]);
    let rows = one["programs"]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["name"] == "postgres") && !rows.is_empty());
    let cpu = |report: &Json| {
        let rows = report["programs"]["rows"].as_array().unwrap().iter();
        rows.chain([&report["programs"]["rest"]]).map(|row| number(&row["cpu_pct"], "num")).sum::<f64>()
    };
    near("all", cpu(&one), cpu(&few));
}

#[test]
fn accesses_by_pair_of_nodes_are_not_called_counted() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let found = report(&path, &[]);
    // Counters show which accesses are remote, but not the node of the memory.
    assert_eq!(
        (&found["lanes"][1]["id"], &found["lanes"][1]["source"]),
        (&"remote".into(), &"counted".into())
    );
    assert_eq!(found["matrix"]["accesses_sampled_pct"], 0.0);
    let page = page(&path, &[]);
    let nodes = page.split("id=\"between\"").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(nodes.contains("go to another node (estimated from placement)."), "{nodes}");
}

#[test]
fn programs_without_rows_have_their_part_of_the_remote_accesses() {
    let scratch = Scratch::new();
    let path = scratch.join("rest.nrec");
    // All memory is on another node. One program runs on 0.8 CPUs, 30 others on 0.2 each.
    let remote = |pid, comm: &str, pct| Actor {
        rss: 4 << 30,
        memory: vec![0, 1024, 0, 0],
        accesses: 20.0,
        ..Actor::new(pid, comm).runs(&[(0, pct)])
    };
    let others = (0..30).map(|at| remote(200 + at, &format!("small-{at}"), 20.0));
    let actors = others.chain([remote(100, "large", 80.0)]).collect();
    let mut machine = Machine::new(HostFacts::clone(&demo_machine().host), Names::default(), actors);
    record(&path, &seconds(&mut machine, 20));
    let lede = |flags: &[&str]| report(&path, flags)["lede"].as_str().unwrap().to_owned();
    for flags in [&["--top", "1"][..], &["--top", "3"], &["--comm", "^large$"]] {
        let lede = lede(flags);
        assert!(
            lede.contains("left their node") && !lede.contains("of these accesses:"),
            "{flags:?}: {lede}"
        );
    }
    // Without the small ones it has the total.
    machine.actors.retain(|actor| actor.pid == 100);
    let path = scratch.join("alone.nrec");
    record(&path, &seconds(&mut machine, 20));
    let lede = report(&path, &[])["lede"].as_str().unwrap().to_owned();
    assert!(lede.contains("large made most of these"), "{lede}");
}

#[test]
fn intervals_longer_than_a_bucket_make_no_hole() {
    let scratch = Scratch::new();
    let found = report(&demo(&scratch), &[]);
    assert_eq!(found["buckets"]["gaps"], serde_json::json!([]));
    let lane = &found["lanes"][0]["machine"]["mean"];
    let holes = lane.as_array().unwrap().iter().filter(|value| value.is_null()).count();
    assert_eq!(holes, 0);
}

/// A recording with a pause of a minute in it, for this reason.
fn paused(path: &Path, reason: &str) {
    let lengths = [vec![SECOND; 30], vec![60 * SECOND], vec![SECOND; 30]].concat();
    with_pauses(path, &mut demo_machine(), &lengths, reason);
}

/// A recording of intervals of these lengths in ns; those longer than a second are pauses for this reason.
fn with_pauses(path: &Path, machine: &mut Machine, lengths: &[u64], reason: &str) {
    let samples: Vec<Sample> = lengths.iter().map(|length| machine.step(*length)).collect();
    let mut writer = Writer::new(File::create_new(path).unwrap(), 7).unwrap();
    writer.head(&head(&machine.host)).unwrap();
    for (sample, length) in samples.iter().zip(lengths) {
        let gap = Gap {
            reason: reason.into(),
            from_wall_ns: sample.wall_ns - *length as i64,
            samples: length / SECOND - 1,
        };
        writer.sample(sample, (*length > SECOND).then_some(&gap)).unwrap();
    }
}

fn head(host: &HostFacts) -> Head {
    Head::new(host, "a session", 0)
}

#[test]
fn a_pause_is_a_hole_with_its_reason() {
    let scratch = Scratch::new();
    let path = scratch.join("paused.nrec");
    paused(&path, "no space left on device");
    let found = report(&path, &[]);
    let gaps = found["missing"]["gaps"].as_array().unwrap();
    assert_eq!(gaps.len(), 1);
    assert!(gaps[0]["why"][0].as_str().unwrap().contains("no space left on device"), "{}", gaps[0]);
    let runs = found["buckets"]["gaps"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let length = runs[0][1].as_u64().unwrap() - runs[0][0].as_u64().unwrap() + 1;
    assert!((58..=61).contains(&length), "{length}");
    // Counters continued: counts during the pause are in the sums.
    compare(&found, &sums(&path, &[]));
    let page = page(&path, &[]);
    assert!(page.contains("no space left on device") && page.contains("class=\"hole\""));
    assert!(
        page.contains("Included in the totals, but not in the curves: 60 s at")
            && !page.contains("Not included"),
        "the caveat"
    );
}

#[test]
fn more_gaps_than_are_kept_are_holes_too() {
    const GAPS: usize = 230;
    let scratch = Scratch::new();
    let path = scratch.join("gaps.nrec");
    let lengths = [vec![SECOND], [SECOND, SECOND, 10 * SECOND].repeat(GAPS), vec![SECOND]].concat();
    let actor = Actor { rss: 1 << 30, ..Actor::new(100, "worker").runs(&[(0, 50.0)]) };
    let mut machine = Machine::new(HostFacts::clone(&demo_machine().host), Names::default(), vec![actor]);
    with_pauses(&path, &mut machine, &lengths, "no space left on device");
    let found = report(&path, &[]);
    let runs = found["buckets"]["gaps"].as_array().unwrap();
    assert_eq!(runs.len(), GAPS, "each has buckets of its own");
    let missing = &found["missing"];
    let gaps = missing["gaps"].as_array().unwrap();
    assert_eq!((gaps.len(), missing["more_gaps"].as_u64()), (200, Some(30)));
    let count: f64 = gaps.iter().map(|gap| number(gap, "gaps")).sum();
    let ns: f64 = gaps.iter().map(|gap| number(gap, "missing_ns")).sum();
    assert_eq!((count, ns), (GAPS as f64, (GAPS as u64 * 10 * SECOND) as f64));
    let page = page(&path, &[]);
    assert!(
        page.contains("There are 230 gaps")
            && page.contains("Included in the totals, but not in the curves: 38 min in 230 gaps")
    );
}

#[test]
fn a_restart_is_a_hole_and_no_interval() {
    let scratch = Scratch::new();
    let path = scratch.join("ring/");
    for boot in 0..2 {
        let mut machine = demo_machine();
        let host = HostFacts { boot_id: format!("boot-{boot}"), ..HostFacts::clone(&machine.host) };
        let host = Arc::new(host);
        let samples: Vec<_> = (0..20)
            .map(|_| {
                let mut sample = machine.step(SECOND);
                sample.wall_ns += boot * 100 * SECOND as i64;
                (Arc::clone(&host), sample)
            })
            .collect();
        record(&path, &samples);
    }
    let found = report(&path, &[]);
    assert_eq!((found["intervals"].as_u64(), found["host"]["boots"].as_u64()), (Some(38), Some(2)));
    let gap = &found["missing"]["gaps"][0];
    assert_eq!((gap["restarted"].as_bool(), gap["new_run"].as_bool()), (Some(true), Some(true)));
    compare(&found, &sums(&path, &[]));
    let page = page(&path, &[]);
    assert!(
        page.contains("Not included: 81 s at") && page.contains("the machine was restarted"),
        "the caveat"
    );
}

#[test]
fn damage_is_said_where_it_is() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3000].fill(0x5a);
    let broken = scratch.join("broken.nrec");
    std::fs::write(&broken, &bytes).unwrap();
    let found = report(&broken, &[]);
    assert!(!found["missing"]["gaps"].as_array().unwrap().is_empty());
    assert!(page(&broken, &[]).contains("damaged and omitted"));
    let torn = scratch.join("torn.nrec");
    std::fs::write(&torn, &std::fs::read(&path).unwrap()[..middle]).unwrap();
    assert!(number(&report(&torn, &[])["missing"], "torn_bytes") > 0.0);
    // Every byte may be wrong: the report ends, with everything that could be read.
    for seed in 0..5u64 {
        let mut bytes = std::fs::read(&path).unwrap();
        for at in 0..20u64 {
            let place = (seed * 7919 + at * 104_729 + 4096) as usize % bytes.len();
            bytes[place] ^= (seed + at) as u8 | 1;
        }
        std::fs::write(&broken, &bytes).unwrap();
        let code = numatop(&["report", text(&broken), "-o", "-"]).status.code();
        assert!(matches!(code, Some(0 | 1)), "{seed}: {code:?}");
    }
}

#[test]
fn names_of_strangers_are_text() {
    let scratch = Scratch::new();
    let plain = elements(&page(&demo(&scratch), &[]));
    let page = page(&hostile(&scratch), &["--title", "<script>alert(1)</script>"]);
    let (tags, attributes) = elements(&page);
    let foreign: Vec<_> = tags.difference(&plain.0).filter(|tag| *tag != "ul" && *tag != "li").collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(attributes.iter().all(|name| !name.starts_with("on")), "{attributes:?}");
    assert_eq!(page.matches("<script").count(), 2);
    assert!(page.contains("&lt;img src=x"), "they are shown");
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str::<Json>(data).unwrap();
}

#[test]
fn a_page_loads_nothing_and_runs_one_script() {
    let scratch = Scratch::new();
    let page = page(&demo(&scratch), &[]);
    let script = include_str!("../../crates/show/src/report/script.js");
    assert!(script.len() < 12_000, "{}", script.len());
    assert!(include_str!("../../crates/show/src/report/style.css").len() + script.len() < 30_000);
    // RFC 4648.
    let digest = Sha256::digest(script.as_bytes());
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut hash = String::new();
    for three in digest.chunks(3) {
        let word =
            three.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        let of = |at: usize| char::from(digits[(word >> (18 - 6 * at) & 63) as usize]);
        (0..4).for_each(|at| hash.push(if at <= three.len() { of(at) } else { '=' }));
    }
    assert_eq!(
        SCRIPT_HASH.trim(),
        format!("sha256-{hash}"),
        "crates/show/src/report/script.sha256 is that of script.js"
    );
    assert!(page.contains(&format!("script-src 'sha256-{hash}'")) && page.contains("default-src 'none'"));
    for address in ["http:", "https:", "url(", "@import", "<link", "<iframe", "<object", "srcset"] {
        assert!(!page.contains(address), "{address}");
    }
    let outside: Vec<&str> =
        page.split("href=\"").skip(1).filter(|rest| !rest.starts_with(['#', 'd'])).collect();
    assert!(outside.is_empty());
}

/// The demo machine with a process that is bound to a node that is full.
fn sick(scratch: &Scratch) -> PathBuf {
    const GIB: u64 = 1 << 30;
    let path = scratch.join("sick.nrec");
    let mut machine = demo_machine();
    let mut bound = Actor {
        rss: 20 * GIB,
        memory: vec![0, 1024, 0, 0],
        swapped: 4 * GIB,
        per_second: numatop_ng::model::sample::Counts::default()
            .with([(numatop_ng::model::counters::Counter::MajFlt, 400)]),
        ..Actor::new(900_002, "pg_restore").runs(&[(1, 90.0)])
    };
    (bound.mempolicy.mode, bound.mempolicy.nodes) = (2, 0b10);
    machine.actors.push(bound);
    let mut before = machine.plan.take().unwrap();
    machine.plan = Some(Box::new(move |machine, second| {
        before(machine, second);
        machine.nodes[1].mem_free_bytes = 2 * GIB;
        machine.vm.swapped_out += 3584;
    }));
    record(&path, &seconds(&mut machine, 90));
    path
}

#[test]
fn findings_are_those_of_diagnose() {
    let scratch = Scratch::new();
    let path = sick(&scratch);
    let found = report(&path, &[]);
    let output = numatop(&["diagnose", text(&path), "--all", "--format", "json"]);
    let diagnosed: Json = serde_json::from_slice(&output.stdout).unwrap();
    let keys = |findings: &Json| -> BTreeSet<String> {
        findings.as_array().unwrap().iter().map(|finding| finding["key"].to_string()).collect()
    };
    let mut wanted = keys(&diagnosed["ended"]);
    let now =
        diagnosed["findings"].as_array().unwrap().iter().filter(|finding| finding["state"] != "pending");
    wanted.extend(now.map(|finding| finding["key"].to_string()));
    assert!(!wanted.is_empty());
    assert_eq!(keys(&found["findings"]), wanted);
    let page = page(&path, &[]);
    assert!(page.contains("id=\"f1\"") && page.contains("migratepages 900002 1 "), "the command is there");
    let text = stdout(&["report", text(&path), "--format", "text"]);
    assert!(text.contains("migratepages") && text.lines().count() <= 60, "{text}");
}

#[test]
fn diagnose_makes_the_page_of_report() {
    let scratch = Scratch::new();
    let (path, out) = (sick(&scratch), scratch.join("page.html"));
    let diagnosed = numatop(&["diagnose", text(&path), "--report", text(&out)]);
    assert_eq!(diagnosed.status.code(), Some(5), "{}", String::from_utf8_lossy(&diagnosed.stderr));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), page(&path, &[]));
    let again = numatop(&["diagnose", text(&path), "--report", text(&out)]);
    assert!(again.stdout.is_empty() && String::from_utf8_lossy(&again.stderr).contains("name a new file"));
    let redacted = scratch.join("redacted.html");
    numatop(&["diagnose", text(&path), "--redact", "--report", text(&redacted)]);
    let redacted = std::fs::read_to_string(redacted).unwrap();
    assert!(
        redacted.contains("Findings") && !redacted.contains("pg_restore") && !redacted.contains("sick.nrec")
    );
}

#[test]
fn an_anonymous_report_names_nobody() {
    let scratch = Scratch::new();
    let path = sick(&scratch);
    let names =
        ["postgres", "pg_restore", "solver", "java", "orders", "redis", "memcached", "nginx", "demo.nrec"];
    let plain = page(&path, &[]);
    assert!(names.iter().filter(|name| plain.contains(**name)).count() > 6, "names are there without it");
    for format in ["html", "json", "text"] {
        let said = stdout(&["report", text(&path), "-o", "-", "--format", format, "--anonymous"]);
        for name in names {
            assert!(!said.contains(name), "{format}: {name}");
        }
        assert!(said.contains("program-") && said.contains("host-1"), "{format}");
    }
    // Numbers stay.
    let (named, nameless) = (report(&path, &[]), report(&path, &["--anonymous"]));
    let cpu = |report: &Json| report["lanes"][0].clone();
    assert_eq!(cpu(&named), cpu(&nameless));
    let times = |report: &Json| -> Vec<String> {
        report["programs"]["rows"].as_array().unwrap().iter().map(|row| row["cpu_pct"].to_string()).collect()
    };
    assert_eq!(times(&named), times(&nameless));
}

#[test]
fn an_anonymous_report_has_rows_of_the_programs_that_were_named() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let rows = |flags: &[&str]| {
        let found = report(&path, flags);
        let rows = found["programs"]["rows"].as_array().unwrap().iter();
        let of = |row: &Json| (row["name"].as_str().unwrap().to_owned(), row["cpu_pct"].to_string());
        rows.map(of).unzip::<String, String, Vec<_>, Vec<_>>()
    };
    // Kernel threads keep their names.
    for name in ["^postgres$", "^kcompactd2$"] {
        let (named, nameless) = (rows(&["--comm", name]), rows(&["--comm", name, "--anonymous"]));
        assert!(!named.1.is_empty());
        assert_eq!(nameless.1, named.1, "{name}");
    }
    let (names, _) = rows(&["--comm", "^postgres$", "--anonymous"]);
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("program-")), "{names:?}");
    // The words are no names.
    assert_eq!(rows(&["--comm", "^program-", "--anonymous"]).0, Vec::<String>::new());
}

#[test]
fn an_anonymous_gap_has_no_reason() {
    let scratch = Scratch::new();
    let path = scratch.join("paused.nrec");
    paused(&path, "writing /home/somebody/secret");
    let said = page(&path, &["--anonymous"]);
    assert!(!said.contains("somebody") && said.contains("it can contain file names"));
}

#[test]
fn a_report_is_a_new_file_and_there_when_it_is_whole() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let out = scratch.join("out.html");
    let write = || numatop(&["report", text(&path), "-o", text(&out)]);
    assert!(write().status.success());
    let made = std::fs::metadata(&out).unwrap();
    assert!(made.len() > 10_000);
    // By umask, not for its owner only as recordings are.
    assert_ne!(made.mode() & 0o044, 0, "{:o}", made.mode());
    let again = write();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("name a new file"));
    assert_eq!(std::fs::metadata(&out).unwrap().ino(), made.ino());
    let left: Vec<_> =
        std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    let nowhere = numatop(&["report", text(&path), "-o", text(&scratch.join("no/such/out.html"))]);
    assert_eq!(nowhere.status.code(), Some(1));
    std::os::unix::fs::symlink(scratch.join("target"), scratch.join("link")).unwrap();
    assert!(!numatop(&["report", text(&path), "-o", text(&scratch.join("link"))]).status.success());
    assert!(!scratch.join("target").exists());
}

#[test]
fn recordings_of_two_hosts_make_no_report() {
    let scratch = Scratch::new();
    let ring = scratch.join("ring/");
    for (at, name) in ["alpha", "beta"].iter().enumerate() {
        let mut machine = demo_machine();
        let host = Arc::new(HostFacts { hostname: (*name).into(), ..HostFacts::clone(&machine.host) });
        let samples: Vec<_> = (0..3)
            .map(|_| {
                let mut sample = machine.step(SECOND);
                sample.wall_ns += at as i64 * 100 * SECOND as i64;
                (Arc::clone(&host), sample)
            })
            .collect();
        record(&ring, &samples);
    }
    let refused = numatop(&["report", text(&ring), "-o", "-"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(message.contains("alpha") && message.contains("beta"), "{message}");
}

#[test]
fn a_time_without_intervals_is_said() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let none = numatop(&["report", text(&path), "-o", "-", "--from", "2030-01-01 00:00"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&none.stderr).contains("its samples are from"));
}

#[test]
fn one_node_has_no_columns_of_nodes() {
    let scratch = Scratch::new();
    let path = scratch.join("one.nrec");
    let base = demo_machine();
    let mut host = HostFacts::clone(&base.host);
    host.topology.nodes.truncate(1);
    host.topology.cpus.retain(|cpu| cpu.node.is_some_and(|node| node.0 == 0));
    let actor = Actor { rss: 1 << 30, ..Actor::new(100, "worker").runs(&[(0, 50.0)]) };
    let mut machine = Machine::new(host, Names::default(), vec![actor]);
    record(&path, &seconds(&mut machine, 20));
    let page = page(&path, &[]);
    for word in ["Remote %", "Node to node", "runs / memory", "Moves/s"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("With one node all memory is local"));
}

#[test]
fn measured_latencies_stand_beside_the_word_of_the_firmware() {
    let scratch = Scratch::new();
    for (only_ratios, cell, caption) in [
        (false, ">164</td>", "in ns, measured by numatop-ng calibrate"),
        (true, ">2.00</td>", "relative to local memory"),
    ] {
        let path = scratch.join(&format!("measured-{only_ratios}.nrec"));
        let mut machine = demo_machine();
        let topology = &mut Arc::make_mut(&mut machine.host).topology;
        let ids: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
        for node in &mut topology.nodes {
            let cost = |to: &NodeId| Cost {
                node: *to,
                latency_ps: Some(if *to == node.id { 82_000 } else { 164_000 }),
                read_bytes_per_s: None,
                latency_error_ps: None,
                read_error_bytes_per_s: None,
            };
            node.measured = ids.iter().map(cost).collect();
        }
        topology.calibration =
            Some(Calibration { time: "2026-11-22T10:03:00Z".into(), only_ratios, ..Calibration::default() });
        let samples: Vec<_> = (0..12)
            .map(|_| {
                let sample = machine.step(SECOND);
                (Arc::clone(&machine.host), sample)
            })
            .collect();
        record(&path, &samples);
        let page = page(&path, &[]);
        assert!(page.contains(cell) && page.contains(caption), "{only_ratios}");
        assert!(page.contains("numatop-ng calibrate on 2026-11-22"), "{only_ratios}");
    }
}

/// A machine of `nodes` nodes of two CPUs, and a process that runs and has memory on all of them.
fn wide(nodes: u32) -> Machine {
    let base = demo_machine();
    let mut host = HostFacts::clone(&base.host);
    let (first, cpu) = (host.topology.nodes[0].clone(), host.topology.cpus[0].clone());
    let topology = &mut host.topology;
    let cpus_of = |node: u32| [2 * node, 2 * node + 1].map(CpuId);
    let node = |id: u32| Node {
        id: NodeId(id),
        cpus: cpus_of(id).to_vec(),
        distances: (0..nodes).map(|to| (NodeId(to), if to == id { 10 } else { 20 })).collect(),
        ..first.clone()
    };
    topology.nodes = (0..nodes).map(node).collect();
    topology.cpus = (0..2 * nodes)
        .map(|id| Cpu {
            id: CpuId(id),
            node: Some(NodeId(id / 2)),
            core: id,
            llc: id / 2,
            siblings: vec![CpuId(id)],
            ..cpu.clone()
        })
        .collect();
    topology.llcs =
        (0..nodes).map(|id| Llc { cpus: cpus_of(id).to_vec(), level: Some(3), size_bytes: None }).collect();
    topology.places.clear();
    (topology.cores, topology.sockets) = (2 * nodes, 1);
    (topology.possible_cpus, topology.possible_nodes) = (2 * nodes, nodes);
    let runs: Vec<(u32, f64)> = (0..nodes).map(|node| (node, 50.0 + f64::from(node))).collect();
    let actor = Actor { rss: 8 << 30, memory: vec![16; nodes as usize], ..Actor::new(100, "wide") };
    Machine::new(host, Names::default(), vec![actor.runs(&runs)])
}

#[test]
fn many_nodes_are_pictures_with_the_sums_of_all_rows() {
    let scratch = Scratch::new();
    for (nodes, has_cells) in [(8, true), (16, true), (64, false)] {
        let path = scratch.join(&format!("wide-{nodes}.nrec"));
        let mut machine = wide(nodes);
        record(&path, &seconds(&mut machine, 12));
        // scripts/pages/run looks at these in a browser.
        if let Some(kept) = std::env::var_os("NUMATOP_KEEP_RECORDINGS") {
            std::fs::copy(&path, Path::new(&kept).join(format!("wide-{nodes}.nrec"))).unwrap();
        }
        let page = page(&path, &[]);
        assert_eq!(page.contains("data:image/png;base64,"), nodes > 8, "{nodes}");
        assert_eq!(page.contains("data-matrix=\"accesses\""), has_cells, "{nodes}");
        assert!(page.len() < 1_500_000, "{nodes}: {}", page.len());
        let (found, wanted) = (report(&path, &[]), sums(&path, &[]));
        assert_eq!(wanted.nodes.len(), nodes as usize);
        for (node, [busy, free, ..]) in &wanted.nodes {
            let lane = |at: usize| number(&found["lanes"][at]["nodes"][node], "num");
            near("busy", lane(0), *busy);
            near("free", lane(3), *free);
        }
    }
}
