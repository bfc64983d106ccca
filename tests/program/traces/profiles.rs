//! Profiles of hot spots: folded stacks and pprof against the stacks of JSON, and those against its functions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use numatop_ng::model::stacks::{BuildId, CodePlace, Frame, Function, Stack, StackBatch};
use numatop_ng::source::synthetic::demo_machine;
use serde_json::Value as Json;

use super::pages::{SECOND, numatop, record, stdout, text};
use super::wire::Fields;
use super::{exported, json, with_stacks};
use crate::scratch::Scratch;

/// Samples by process and stack: id, name, functions from the outermost to the innermost.
type Counts = BTreeMap<(u64, String, Vec<String>), u64>;

/// The name of a function on screen.
fn shown(function: &Json) -> String {
    match function["function"].as_str() {
        Some(name) => name.to_owned(),
        None => format!("? in {}", function["module"].as_str().unwrap()),
    }
}

/// Stacks of JSON, added up over the intervals. `name` writes a function.
fn counts(intervals: &[Json], name: fn(&Json) -> String) -> Counts {
    let mut counts = Counts::new();
    for interval in intervals {
        for process in interval["hot"]["processes"].as_array().unwrap() {
            let frames: Vec<String> = process["frames"].as_array().unwrap().iter().map(name).collect();
            let (pid, comm) = (process["pid"].as_u64().unwrap(), process["comm"].as_str().unwrap());
            for stack in process["stacks"].as_array().unwrap() {
                let places = stack["frames"].as_array().unwrap().iter().rev();
                let names = places.map(|place| frames[place.as_u64().unwrap() as usize].clone()).collect();
                *counts.entry((pid, comm.to_owned(), names)).or_default() +=
                    stack["samples"].as_u64().unwrap();
            }
        }
    }
    counts
}

/// The same as folded lines have it: without processes, functions of the kernel with their mark.
fn lines(intervals: &[Json]) -> BTreeMap<String, u64> {
    let mark = |function: &Json| {
        let mark = if function["kernel"] == true { "_[k]" } else { "" };
        format!("{}{mark}", shown(function).replace(';', ":"))
    };
    let mut lines = BTreeMap::new();
    for ((_, comm, names), samples) in counts(intervals, mark) {
        let line = [vec![comm], names].concat().join(";");
        *lines.entry(line).or_default() += samples;
    }
    lines
}

fn folded(bytes: &[u8]) -> BTreeMap<String, u64> {
    let text = std::str::from_utf8(bytes).unwrap();
    let pair = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), count.parse().unwrap())
    };
    let lines: Vec<(String, u64)> = text.lines().map(pair).collect();
    let all: BTreeMap<String, u64> = lines.iter().cloned().collect();
    assert_eq!(all.len(), lines.len(), "a stack has one line");
    all
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings").join(name)
}

#[test]
fn stacks_of_json_are_what_its_functions_are_made_of() {
    let scratch = Scratch::new();
    for path in [with_stacks(&scratch, "5"), fixture("hot.nrec")] {
        let mut compared = 0;
        for interval in json(&path, &[]) {
            for process in interval["hot"]["processes"].as_array().unwrap() {
                let all = process["samples"].as_u64().unwrap();
                let (mut own, mut total) = (BTreeMap::new(), BTreeMap::new());
                let frames = process["frames"].as_array().unwrap();
                let mut sum = 0;
                for stack in process["stacks"].as_array().unwrap() {
                    let samples = stack["samples"].as_u64().unwrap();
                    sum += samples;
                    let places: Vec<u64> =
                        stack["frames"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect();
                    *own.entry(places[0]).or_insert(0) += samples;
                    let once: BTreeSet<u64> = places.into_iter().collect();
                    once.into_iter().for_each(|place| *total.entry(place).or_insert(0) += samples);
                }
                assert_eq!(sum, all, "{process}");
                assert_eq!(process["functions_left_out"], 0);
                for function in process["functions"].as_array().unwrap() {
                    let same = |frame: &&Json| {
                        ["function", "module", "kernel"].iter().all(|key| frame[key] == function[key])
                    };
                    let at = frames.iter().position(|frame| same(&frame)).unwrap() as u64;
                    for (key, counts) in [("own_pct", &own), ("total_pct", &total)] {
                        let pct = counts.get(&at).copied().unwrap_or(0) as f64 * 100.0 / all as f64;
                        assert!((pct - function[key].as_f64().unwrap()).abs() < 1e-6, "{function}: {pct}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 10, "{compared}");
    }
}

#[test]
fn folded_stacks_are_those_of_json() {
    let scratch = Scratch::new();
    let demo = with_stacks(&scratch, "20");
    for (path, flags) in [
        (&demo, &[][..]),
        (&demo, &["--comm", "^(java|solver)$"][..]),
        (&demo, &["--from", "+5s", "--to", "+9s"][..]),
    ] {
        let found = folded(&exported(path, "folded", flags));
        let wanted = lines(&json(path, flags));
        assert!(found.len() > 3 && found == wanted, "{flags:?}: {found:#?}\n{wanted:#?}");
        assert!(flags.contains(&"--comm") || found.keys().any(|line| line.ends_with("_[k]")), "{found:#?}");
    }
    let text = exported(&demo, "folded", &[]);
    let mut sorted: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    sorted.dedup();
    assert_eq!(sorted.concat(), text, "the same recording makes the same text");
}

/// A profile as its messages say.
struct Profile {
    texts: Vec<String>,
    samples: Vec<Sample>,
    mappings: Vec<Mapping>,
    /// Mapping, address and function of each location.
    locations: BTreeMap<u64, (Option<u64>, Option<u64>, String)>,
    types: Vec<(String, String)>,
    time_ns: u64,
    length_ns: u64,
    period: Option<u64>,
    comments: Vec<String>,
}

struct Sample {
    locations: Vec<u64>,
    values: Vec<u64>,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Mapping {
    start: u64,
    limit: u64,
    file: String,
    build_id: String,
    has_functions: bool,
}

impl Profile {
    fn read(bytes: &[u8]) -> Profile {
        let mut raw = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut raw).unwrap();
        let profile = Fields::read(&raw);
        profile.only(&[1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13]);
        let texts: Vec<String> = profile.texts(6).into_iter().map(str::to_owned).collect();
        assert_eq!(texts[0], "");
        assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), texts.len(), "texts are there once");
        let text = |number: Option<u64>| texts[number.unwrap_or(0) as usize].clone();
        let ids = |of: u64| {
            let ids: Vec<u64> = profile.messages(of).iter().map(|one| one.number(1).unwrap()).collect();
            assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
        };
        [3, 4, 5].into_iter().for_each(ids);
        let functions: Vec<String> =
            profile.messages(5).iter().map(|function| text(function.only(&[1, 2]).number(2))).collect();
        let location = |location: &Fields<'_>| {
            location.only(&[1, 2, 3, 4]);
            let line = location.message(4).unwrap();
            let function = functions[line.only(&[1]).number(1).unwrap() as usize - 1].clone();
            (location.number(1).unwrap(), (location.number(2), location.number(3), function))
        };
        let mapping = |mapping: &Fields<'_>| {
            mapping.only(&[1, 2, 3, 5, 6, 7]);
            Mapping {
                start: mapping.number(2).unwrap_or(0),
                limit: mapping.number(3).unwrap_or(0),
                file: text(mapping.number(5)),
                build_id: text(mapping.number(6)),
                has_functions: mapping.number(7) == Some(1),
            }
        };
        let label = |label: &Fields<'_>| {
            let value = label
                .only(&[1, 2, 3])
                .number(3)
                .map_or_else(|| text(label.number(2)), |number| number.to_string());
            (text(label.number(1)), value)
        };
        let sample = |sample: &Fields<'_>| Sample {
            locations: sample.only(&[1, 2, 3]).packed(1),
            values: sample.packed(2),
            labels: sample.messages(3).iter().map(label).collect(),
        };
        Profile {
            samples: profile.messages(2).iter().map(sample).collect(),
            mappings: profile.messages(3).iter().map(mapping).collect(),
            locations: profile.messages(4).iter().map(location).collect(),
            types: profile
                .messages(1)
                .iter()
                .map(|kind| (text(kind.number(1)), text(kind.number(2))))
                .collect(),
            time_ns: profile.number(9).unwrap(),
            length_ns: profile.number(10).unwrap(),
            period: profile.number(12),
            comments: profile
                .all(13)
                .map(|value| match value {
                    super::wire::Value::Number(number) => text(Some(*number)),
                    other => panic!("{other:?}"),
                })
                .collect(),
            texts,
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for sample in &self.samples {
            let pid = sample.labels["pid"].parse().unwrap();
            let names = sample.locations.iter().rev().map(|at| self.locations[at].2.clone()).collect();
            *counts.entry((pid, sample.labels["comm"].clone(), names)).or_default() += sample.values[0];
        }
        counts
    }
}

#[test]
fn a_profile_has_the_stacks_of_json_and_their_time() {
    let scratch = Scratch::new();
    let demo = with_stacks(&scratch, "20");
    let intervals = json(&demo, &[]);
    let bytes = exported(&demo, "pprof", &[]);
    let profile = Profile::read(&bytes);
    assert_eq!(profile.counts(), counts(&intervals, shown));
    let types = [("samples", "count"), ("cpu", "nanoseconds")];
    assert_eq!(profile.types, types.map(|(kind, unit)| (kind.to_owned(), unit.to_owned())));
    let hz = intervals[0]["hot"]["rate_hz"].as_u64().unwrap();
    assert_eq!(profile.period, Some(1_000_000_000 / hz));
    for sample in &profile.samples {
        // Less than a nanosecond is lost for each stack of an interval.
        let exact = sample.values[0] as f64 * 1e9 / hz as f64;
        let lost = exact - sample.values[1] as f64;
        assert!((0.0..sample.values[0] as f64).contains(&lost), "{:?}: {exact}", sample.values);
    }
    let first: jiff::Timestamp = intervals[0]["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(i128::from(profile.time_ns), first.as_nanosecond() - i128::from(SECOND));
    assert_eq!(profile.length_ns, 20 * SECOND);
    assert!(profile.comments[1].contains("cycles, 97 times a second"), "{:?}", profile.comments);
    assert!(bytes == exported(&demo, "pprof", &[]), "the same recording makes the same bytes");
    // Containers are labels, as JSON has them beside the process.
    let container = |pid: &str| {
        let mut tasks = intervals.iter().flat_map(|interval| interval["tasks"].as_array().unwrap());
        tasks.find(|task| task["pid"] == pid.parse::<u32>().unwrap()).map(|task| task["container"].clone())
    };
    let mut labelled = 0;
    for sample in &profile.samples {
        let found = sample.labels.get("container").map(String::as_str);
        let wanted = container(&sample.labels["pid"]).unwrap();
        if let Some(found) = found {
            assert_eq!(wanted.as_str().and_then(|name| name.rsplit('/').next()), Some(found));
            labelled += 1;
        }
    }
    assert!(labelled > 3, "no container is named");
    let some = Profile::read(&exported(&demo, "pprof", &["--comm", "^java$", "--to", "+5s"]));
    assert_eq!(some.counts(), counts(&json(&demo, &["--comm", "^java$", "--to", "+5s"]), shown));
}

/// Stacks with files, the kernel and code that was made as the program ran, on the demo machine.
fn recorded(path: &Path, event: &str) {
    let (long, short) =
        (BuildId([0xab; 20]), BuildId(std::array::from_fn(|at| if at < 8 { 0xcd } else { 0 })));
    let mut machine = demo_machine();
    let samples: Vec<_> = (0..3)
        .map(|at| {
            let mut sample = machine.step(SECOND);
            let task = Arc::clone(&sample.tasks[3]);
            let stack = |samples, frames: &[Frame]| Stack {
                process: task.process(),
                tid: task.pid,
                cgroup_id: task.cgroup_id,
                comm: task.comm,
                samples,
                frames: frames.to_vec(),
            };
            let function = |name: &str, module: &str| {
                let name = (!name.is_empty()).then(|| name.into());
                Arc::new(Function { name, module: module.into(), kernel: module == "kernel" })
            };
            let main = Frame::File(long, 0x1235);
            let stacks = vec![
                stack(5, &[Frame::Kernel(0xffff_ffff_8123_4567), Frame::File(long, 0x2000), main]),
                stack(4, &[Frame::Kernel(0xffff_ffff_8123_4999), Frame::File(long, 0x2000), main]),
                stack(3, &[Frame::Address(0x7f00_1234_5678), main]),
                stack(2, &[Frame::File(short, 0x40), main]),
            ];
            let names = vec![
                (CodePlace::Kernel(0xffff_ffff_8123_4567), function("schedule", "kernel")),
                (CodePlace::Kernel(0xffff_ffff_8123_4999), function("schedule", "kernel")),
                (CodePlace::File(long, 0x2000), function("read", "app")),
                (CodePlace::File(long, 0x1234), function("main", "app")),
                (CodePlace::Address(task.process(), 0x7f00_1234_5678), function("Order.price", "[jit]")),
                (CodePlace::File(short, 0x40), function("", "libssl.so.3")),
            ];
            let lost = [("stacks_ring_full".to_string(), 10 * (at + 1))].into();
            let batch = StackBatch { event: event.into(), hz: 100, stacks, names, lost };
            sample.hot = Some(Arc::new(batch));
            (Arc::clone(&machine.host), sample)
        })
        .collect();
    record(path, &samples);
}

#[test]
fn locations_are_offsets_into_files_and_addresses_stay_out() {
    let scratch = Scratch::new();
    let path = scratch.join("stacks.nrec");
    recorded(&path, "cpu-clock");
    let profile = Profile::read(&exported(&path, "pprof", &[]));
    let of = |file: &str| profile.mappings.iter().position(|mapping| mapping.file == file).unwrap();
    let mapping = |file: &str| &profile.mappings[of(file)];
    assert_eq!(profile.mappings.len(), 4, "{:?}", profile.mappings);
    assert_eq!(mapping("app").build_id, "ab".repeat(20));
    assert!(
        mapping("app").has_functions && mapping("[kernel]").has_functions && mapping("[jit]").has_functions
    );
    // The file without names: a reader that has this file may find them.
    let unnamed = profile.mappings.iter().find(|mapping| mapping.build_id == "cd".repeat(8)).unwrap();
    assert!(!unnamed.has_functions, "{unnamed:?}");
    let places: BTreeMap<&str, (Option<u64>, Option<u64>)> =
        profile.locations.values().map(|(mapping, address, name)| (&**name, (*mapping, *address))).collect();
    for (name, file, offset) in [("main", "app", 0x1234), ("read", "app", 0x2000)] {
        assert_eq!(places[name], (Some(of(file) as u64 + 1), Some(mapping(file).start + offset)), "{name}");
    }
    assert_eq!(places["schedule"], (Some(of("[kernel]") as u64 + 1), None));
    assert_eq!(places["Order.price"], (Some(of("[jit]") as u64 + 1), None));
    assert_eq!(places["? in libssl.so.3"].1, Some(unnamed.start + 0x40));
    for (at, one) in profile.mappings.iter().enumerate() {
        let apart = |other: &Mapping| one.limit <= other.start || other.limit <= one.start;
        assert!(profile.mappings[at + 1..].iter().all(apart), "{:?}", profile.mappings);
    }
    for (mapping, address, name) in profile.locations.values() {
        let Some(address) = address else { continue };
        let mapping = &profile.mappings[mapping.unwrap() as usize - 1];
        assert!((mapping.start..mapping.limit).contains(address), "{name}: {address:#x} {mapping:?}");
    }
    // Losses of the first sample are from before; there are two intervals.
    let missing = "samples missing: 20, stacks_ring_full";
    assert!(profile.comments.iter().any(|comment| comment == missing), "{:?}", profile.comments);
    let said = numatop(&["export", text(&path), "--format", "folded"]).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("20 samples missing or incomplete: stacks_ring_full"), "{said}");
    assert!(profile.texts.iter().all(|text| !text.contains("ffffffff")));
}

#[test]
fn samples_of_misses_stand_for_no_time() {
    let scratch = Scratch::new();
    let path = scratch.join("misses.nrec");
    recorded(&path, "ls_any_fills_from_sys.dram_io_far");
    let profile = Profile::read(&exported(&path, "pprof", &[]));
    assert_eq!(profile.types, [("samples".to_owned(), "count".to_owned())]);
    assert_eq!(profile.period, None);
    assert!(profile.samples.iter().all(|sample| sample.values.len() == 1));
    assert_eq!(profile.samples.iter().map(|sample| sample.values[0]).sum::<u64>(), 2 * 14);
}

#[test]
fn without_hot_spots_there_is_no_profile_and_a_reason() {
    let scratch = Scratch::new();
    let (hot, out) = (with_stacks(&scratch, "3"), scratch.join("out"));
    let (plain, hot) = (fixture("plain.nrec"), text(&hot));
    for format in ["folded", "pprof"] {
        for (path, flags, why) in [
            (text(&plain), &[][..], "has no hot spots in this period: stacks are recorded only with --hot"),
            (hot, &["--comm", "nothing-is-called-so"][..], "that matches --comm"),
        ] {
            let words = [&["export", path, "--format", format, "-o", text(&out)], flags].concat();
            let written = numatop(&words);
            let said = String::from_utf8(written.stderr).unwrap();
            assert!(written.status.code() == Some(1) && said.contains(why), "{said}");
            assert!(!out.exists() && written.stdout.is_empty());
        }
    }
    // The recording of an earlier version has them.
    let old = stdout(&["export", text(&fixture("hot.nrec")), "--format", "folded"]);
    assert!(old.contains(";PyLong_FromLong ") || old.contains(";PyLong_FromLong;"), "{old}");
}
