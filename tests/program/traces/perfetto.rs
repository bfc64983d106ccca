//! A trace for Perfetto: values, times, names and places of its tracks, slices of findings and gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use numatop_ng::model::sample::HostFacts;
use numatop_ng::record::format::{Gap, Head};
use numatop_ng::record::writer::Writer;
use numatop_ng::source::synthetic::demo_machine;
use serde_json::Value as Json;

use super::pages::{HOSTILE, SECOND, demo, hostile, numatop, record, seconds, text};
use super::wire::Fields;
use super::{exported, json};
use crate::scratch::Scratch;

/// A slice or an instant.
#[derive(Clone, Debug, Default, PartialEq)]
struct Slice {
    from_ns: u64,
    /// `None`: an instant.
    to_ns: Option<u64>,
    name: String,
}

/// A track by its path of names.
#[derive(Clone, Debug, Default)]
struct Track {
    parent: Option<u64>,
    name: String,
    rank: u64,
    unit: String,
    values: Vec<(u64, f64)>,
    slices: Vec<Slice>,
}

#[derive(Debug)]
struct Trace {
    bytes: usize,
    tracks: BTreeMap<u64, Track>,
    clocks: BTreeMap<u64, u64>,
}

impl Trace {
    fn read(bytes: &[u8]) -> Trace {
        let mut trace = Trace { bytes: bytes.len(), tracks: BTreeMap::new(), clocks: BTreeMap::new() };
        let mut sequences = BTreeSet::new();
        for packet in Fields::read(bytes).only(&[1]).messages(1) {
            packet.only(&[6, 8, 10, 11, 60]);
            let at_ns = packet.number(8).unwrap();
            sequences.insert(packet.number(10).unwrap());
            if let Some(snapshot) = packet.message(6) {
                let clocks = snapshot.only(&[1]).messages(1);
                trace
                    .clocks
                    .extend(clocks.iter().map(|clock| (clock.number(1).unwrap(), clock.number(2).unwrap())));
            }
            if let Some(descriptor) = packet.message(60) {
                trace.describe(&descriptor);
            }
            if let Some(event) = packet.message(11) {
                trace.event(at_ns, &event);
            }
        }
        assert_eq!(sequences.len(), 1);
        trace
    }

    fn describe(&mut self, descriptor: &Fields<'_>) {
        descriptor.only(&[1, 2, 5, 8, 11, 12]);
        let parent = descriptor.number(5);
        assert!(parent.is_none_or(|parent| self.tracks.contains_key(&parent)), "a parent comes first");
        assert!(matches!(descriptor.number(11), None | Some(3)));
        let unit = descriptor.message(8).map(|counter| {
            let bytes = counter.only(&[3, 6]).number(3).map(|unit| format!("unit {unit}"));
            bytes.unwrap_or_else(|| counter.text(6).unwrap().to_owned())
        });
        let track = Track {
            parent,
            name: descriptor.text(2).unwrap().to_owned(),
            rank: descriptor.number(12).unwrap_or(0),
            unit: unit.unwrap_or_default(),
            ..Track::default()
        };
        assert!(self.tracks.insert(descriptor.number(1).unwrap(), track).is_none(), "described twice");
    }

    fn event(&mut self, at_ns: u64, event: &Fields<'_>) {
        event.only(&[9, 11, 23, 44]);
        let track = self.tracks.get_mut(&event.number(11).unwrap()).expect("a track is described first");
        let name = event.text(23).unwrap_or_default().to_owned();
        match event.number(9).unwrap() {
            1 => track.slices.push(Slice { from_ns: at_ns, to_ns: Some(u64::MAX), name }),
            2 => {
                let open = track.slices.last_mut().filter(|open| open.to_ns == Some(u64::MAX));
                open.expect("an end behind a beginning").to_ns = Some(at_ns);
            }
            3 => track.slices.push(Slice { from_ns: at_ns, to_ns: None, name }),
            4 => track.values.push((at_ns, event.double(44).unwrap())),
            kind => panic!("an event of type {kind}"),
        }
    }

    fn path<'a>(&'a self, track: &'a Track) -> Vec<&'a str> {
        let mut path = vec![track.name.as_str()];
        let mut above = track.parent;
        while let Some(parent) = above {
            path.push(&self.tracks[&parent].name);
            above = self.tracks[&parent].parent;
        }
        path.reverse();
        path
    }

    /// The tracks below a group, by their path from there.
    fn below(&self, group: &str) -> BTreeMap<Vec<String>, &Track> {
        let found = self.tracks.values().filter_map(|track| {
            let path = self.path(track);
            let rest = path.get(1..).filter(|rest| rest.len() > 1 && rest[0] == group)?;
            Some((rest[1..].iter().map(|name| name.to_string()).collect(), track))
        });
        found.collect()
    }

    fn track(&self, path: &[&str]) -> Option<&Track> {
        self.tracks.values().find(|track| self.path(track)[1..] == *path)
    }

    fn slices(&self, track: &str) -> Vec<Slice> {
        self.track(&[track]).map(|track| track.slices.clone()).unwrap_or_default()
    }

    fn values(&self) -> usize {
        self.tracks.values().map(|track| track.values.len()).sum()
    }
}

/// Beginnings of the intervals, and the end of the last one, ns of the trace.
fn times(trace: &Trace, intervals: &[Json]) -> Vec<u64> {
    let mut times = vec![trace.clocks[&6]];
    times.extend(intervals.iter().scan(trace.clocks[&6], |at, interval| {
        *at += interval["interval_ns"].as_u64().unwrap();
        Some(*at)
    }));
    times
}

/// Compares a line with the values in JSON for each interval: a value at its beginning, or none. Where a
/// stretch of values ends, the last one is repeated.
#[track_caller]
fn compare(what: &str, found: Option<&Track>, times: &[u64], wanted: &[Option<f64>]) -> usize {
    let mut expected: Vec<(u64, f64)> = Vec::new();
    let mut last = None;
    for (at, value) in times.iter().zip(wanted.iter().chain([&None])) {
        expected.extend(value.or(last).map(|value| (*at, value)));
        last = *value;
    }
    let found = found.map(|track| track.values.clone()).unwrap_or_default();
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}, {expected:?}");
    for ((at, value), (wanted_at, wanted)) in found.iter().zip(&expected) {
        assert_eq!(at, wanted_at, "{what}");
        // JSON has six decimals.
        assert!((value - wanted).abs() <= wanted.abs() * 1e-6 + 1e-6, "{what}: {value}, {wanted} by export");
    }
    expected.len()
}

fn rows<'a>(interval: &'a Json, key: &str) -> &'a [Json] {
    interval[key].as_array().unwrap()
}

const LINES: [(&str, &str); 4] =
    [("CPU", "cpu_pct"), ("remote memory", "remote_pct"), ("IPC", "ipc"), ("free memory", "mem_free_bytes")];

#[test]
fn values_of_nodes_and_containers_are_those_of_json() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let intervals = json(&path, &[]);
    let trace = Trace::read(&exported(&path, "perfetto", &[]));
    let times = times(&trace, &intervals);
    let wall_ns = trace.clocks[&1];
    let first: jiff::Timestamp = intervals[0]["time"].as_str().unwrap().parse().unwrap();
    let began = first.as_nanosecond() - i128::from(intervals[0]["interval_ns"].as_u64().unwrap());
    assert!((i128::from(wall_ns) - began).abs() < 1_000_000, "{wall_ns} {began}");
    let mut values = 0;
    let nodes = rows(&intervals[0], "nodes").len();
    assert_eq!(nodes, 4);
    for node in 0..nodes {
        for (line, id) in LINES {
            let wanted: Vec<Option<f64>> =
                intervals.iter().map(|interval| rows(interval, "nodes")[node][id].as_f64()).collect();
            let group = format!("node {node}");
            values += compare(&format!("{group} {id}"), trace.track(&[&group, line]), &times, &wanted);
        }
    }
    let name = |row: &Json| {
        let words = match row["kind"].as_str().unwrap() {
            "group" => return row["cgroup"].as_str().unwrap().to_owned(),
            "pod" => [&row["namespace"], &row["container"], &Json::Null],
            _ => [&row["namespace"], &row["pod"], &row["container"]],
        };
        words.iter().filter_map(|word| word.as_str()).collect::<Vec<&str>>().join("/")
    };
    let mut ran: BTreeMap<String, BTreeMap<usize, &Json>> = BTreeMap::new();
    for (at, interval) in intervals.iter().enumerate() {
        let own = |row: &&Json| row["kind"] != "group" || row["own_tasks"] == true;
        for row in rows(interval, "containers").iter().filter(own) {
            ran.entry(name(row)).or_default().insert(at, row);
        }
    }
    ran.retain(|_, rows| rows.values().any(|row| row["cpu_pct"].as_f64().is_some_and(|pct| pct > 0.0)));
    assert!(ran.len() > 5, "{ran:?}");
    for (container, rows) in &ran {
        for (line, id) in LINES.iter().take(3) {
            let wanted: Vec<Option<f64>> =
                (0..intervals.len()).map(|at| rows.get(&at)?[id].as_f64()).collect();
            let track = trace.track(&["containers", container, line]);
            values += compare(&format!("{container} {id}"), track, &times, &wanted);
        }
    }
    let groups: BTreeSet<String> = trace.below("containers").keys().map(|path| path[0].clone()).collect();
    assert_eq!(groups, ran.keys().cloned().collect(), "containers that ran");
    let of_programs: usize = trace.below("programs").values().map(|track| track.values.len()).sum();
    assert_eq!(trace.values(), values + of_programs, "no line is left out of the comparison");
}

/// CPU time of programs in each interval, by container and name.
fn programs(intervals: &[Json]) -> BTreeMap<String, Vec<f64>> {
    let mut programs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (at, interval) in intervals.iter().enumerate() {
        for task in rows(interval, "tasks") {
            let values = programs
                .entry(task["comm"].as_str().unwrap().to_owned())
                .or_insert_with(|| vec![0.0; intervals.len()]);
            values[at] += task["cpu_pct"].as_f64().unwrap_or(0.0);
        }
    }
    programs
}

#[test]
fn the_busiest_programs_have_lines_and_rest_at_zero() {
    let scratch = Scratch::new();
    let path = demo(&scratch);
    let intervals = json(&path, &[]);
    let lengths: Vec<f64> =
        intervals.iter().map(|interval| interval["interval_ns"].as_f64().unwrap()).collect();
    let wanted = programs(&intervals);
    let written = numatop(&["export", text(&path), "--format", "perfetto", "--top", "5"]);
    let said = String::from_utf8(written.stderr).unwrap();
    assert!(said.contains("have no tracks (--top)"), "{said}");
    let trace = Trace::read(&written.stdout);
    let times = times(&trace, &intervals);
    let tracks = trace.below("programs");
    let groups: BTreeSet<&String> = tracks.keys().map(|path| &path[0]).collect();
    assert_eq!(groups.len(), 5);
    let comm = |group: &str| group.rsplit(" · ").next().unwrap().to_owned();
    let time = |values: &[f64]| values.iter().zip(&lengths).map(|(value, ns)| value * ns).sum::<f64>();
    let mut by_time: Vec<(&String, f64)> = wanted.iter().map(|(name, values)| (name, time(values))).collect();
    by_time.sort_by(|a, b| b.1.total_cmp(&a.1));
    let most: BTreeSet<String> = by_time.iter().take(5).map(|(name, _)| (*name).clone()).collect();
    assert_eq!(groups.iter().map(|group| comm(group)).collect::<BTreeSet<_>>(), most);
    for group in groups {
        let found = &tracks[&vec![group.clone(), "CPU".to_owned()]].values;
        let values = &wanted[&comm(group)];
        // A value holds until the next; one without rows is 0, once.
        let mut at = 0;
        for (number, begin) in times.iter().take(values.len()).enumerate() {
            while at < found.len() && found[at].0 <= *begin {
                at += 1;
            }
            let drawn = at.checked_sub(1).map_or(0.0, |at| found[at].1);
            let value = values[number];
            assert!((drawn - value).abs() < 1e-4, "{group} in interval {number}: {drawn}, {value} by export");
        }
        assert_eq!(found.last().unwrap().0, *times.last().unwrap(), "the last value stands at the end, too");
    }
    let one = Trace::read(&exported(&path, "perfetto", &["--comm", "^postgres$"]));
    let groups: BTreeSet<String> = one.below("programs").keys().map(|path| comm(&path[0])).collect();
    assert_eq!(groups, ["postgres".to_owned()].into());
}

#[test]
fn findings_are_slices_from_the_beginning_of_their_episode() {
    let scratch = Scratch::new();
    let path = scratch.join("long.nrec");
    record(&path, &seconds(&mut demo_machine(), 120));
    let intervals = json(&path, &[]);
    let trace = Trace::read(&exported(&path, "perfetto", &[]));
    let offset = i128::from(trace.clocks[&1]) - i128::from(trace.clocks[&6]);
    // By key: title, and beginning and sentence when it was first shown.
    let mut wanted: BTreeMap<&str, &Json> = BTreeMap::new();
    for finding in intervals.iter().flat_map(|interval| rows(interval, "findings")) {
        wanted.entry(finding["key"].as_str().unwrap()).or_insert(finding);
    }
    assert!(wanted.len() > 3, "{wanted:?}");
    let end_ns = *times(&trace, &intervals).last().unwrap();
    let mut found: Vec<(String, i128, String)> = Vec::new();
    for (path, track) in trace.below("findings") {
        for slice in &track.slices {
            let to_ns = slice.to_ns.unwrap();
            assert!(slice.from_ns <= to_ns && to_ns <= end_ns, "{path:?}: {slice:?}");
            found.push((
                path[0].clone(),
                (i128::from(slice.from_ns) + offset) / 1_000_000,
                slice.name.clone(),
            ));
        }
        let apart = track.slices.windows(2).all(|two| two[0].to_ns.unwrap() <= two[1].from_ns);
        assert!(apart, "{:?}", track.slices);
    }
    for finding in wanted.values() {
        let since: jiff::Timestamp = finding["since"].as_str().unwrap().parse().unwrap();
        let (title, words) = (finding["title"].as_str().unwrap(), finding["sentence"].as_str().unwrap());
        let is_it = |(name, from_ms, sentence): &(String, i128, String)| {
            name.starts_with(title)
                && (from_ms - i128::from(since.as_millisecond())).abs() <= 1
                && sentence == words
        };
        assert!(found.iter().any(is_it), "{finding}\nis none of {found:#?}");
    }
}

#[test]
fn a_pause_is_a_slice_with_its_reason_and_lines_go_on() {
    let scratch = Scratch::new();
    let path = scratch.join("paused.nrec");
    let mut machine = demo_machine();
    let mut writer = Writer::new(File::create_new(&path).unwrap(), 7).unwrap();
    writer.head(&Head::new(&machine.host, "a session", 0)).unwrap();
    for at in 0..60 {
        let sample = machine.step(if at == 30 { 60 * SECOND } else { SECOND });
        let from_wall_ns = sample.wall_ns - 60 * SECOND as i64;
        let gap = Gap { reason: "no space left on device".into(), from_wall_ns, samples: 59 };
        writer.sample(&sample, (at == 30).then_some(&gap)).unwrap();
    }
    drop(writer);
    let trace = Trace::read(&exported(&path, "perfetto", &[]));
    let gaps = trace.slices("gaps");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].to_ns.unwrap() - gaps[0].from_ns, 60 * SECOND);
    assert!(gaps[0].name.contains("no space left on device"), "{gaps:?}");
    assert_eq!(trace.track(&["node 0", "CPU"]).unwrap().values.len(), 60, "59 intervals, and the end");
}

#[test]
fn another_boot_goes_on_by_the_wall_clock() {
    let scratch = Scratch::new();
    let path = scratch.join("ring/");
    for boot in 0..2 {
        let mut machine = demo_machine();
        let host = HostFacts { boot_id: format!("boot-{boot}"), ..HostFacts::clone(&machine.host) };
        let host = Arc::new(host);
        let sample = |_| {
            let mut sample = machine.step(SECOND);
            sample.wall_ns += boot * 100 * SECOND as i64;
            (Arc::clone(&host), sample)
        };
        record(&path, &(0..20).map(sample).collect::<Vec<_>>());
    }
    let trace = Trace::read(&exported(&path, "perfetto", &[]));
    let gaps = trace.slices("gaps");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].name.starts_with("the machine was restarted"), "{gaps:?}");
    assert_eq!(gaps[0].to_ns.unwrap() - gaps[0].from_ns, 81 * SECOND);
    let cpu = &trace.track(&["node 0", "CPU"]).unwrap().values;
    assert_eq!(cpu.len(), 2 * 20, "19 intervals each, and both ends");
    assert!(cpu.windows(2).all(|two| two[0].0 <= two[1].0), "time goes back: {cpu:?}");
    let ends = [cpu[19].0, cpu[20].0];
    assert_eq!(ends, [gaps[0].from_ns, gaps[0].to_ns.unwrap()], "no line is drawn as if it were measured");
}

#[test]
fn losses_and_notes_are_instants_and_names_are_clean() {
    let scratch = Scratch::new();
    let path = hostile(&scratch);
    let trace = Trace::read(&exported(&path, "perfetto", &[]));
    let notes = trace.slices("notes");
    let of = |words: &str| notes.iter().filter(|note| note.name.contains(words)).count();
    assert!(notes.iter().all(|note| note.to_ns.is_none()));
    assert_eq!(of(&format!("lost: 1 {}", HOSTILE[0])), 9, "{notes:?}");
    assert_eq!(of(HOSTILE[1]), 1, "the same note again is none: {notes:?}");
}

/// Tracks are in the order of their places: conclusions, then nodes, containers, programs; and of a group CPU
/// first.
#[test]
fn tracks_have_their_places_and_units() {
    let scratch = Scratch::new();
    let trace = Trace::read(&exported(&demo(&scratch), "perfetto", &[]));
    let children = |path: &[&str]| {
        let mut all: Vec<&Track> = trace
            .tracks
            .values()
            .filter(|track| {
                let own = trace.path(track);
                own.len() == path.len() + 2 && own[1..].starts_with(path)
            })
            .collect();
        all.sort_by_key(|track| track.rank);
        all.iter().map(|track| track.name.as_str()).collect::<Vec<_>>()
    };
    let top = children(&[]);
    let wanted = ["node 0", "node 1", "node 2", "node 3", "containers", "programs"];
    assert!(top.ends_with(&wanted), "{top:?}");
    assert_eq!(children(&["node 0"]), ["CPU", "remote memory", "IPC", "free memory"]);
    assert_eq!(children(&["programs"]).first(), Some(&"solver"), "the busiest first");
    let unit = |path: &[&str]| trace.track(path).unwrap().unit.clone();
    assert_eq!(unit(&["node 0", "CPU"]), "% of its CPUs");
    assert_eq!(unit(&["programs", "solver", "CPU"]), "% of a CPU");
    // CounterDescriptor.UNIT_SIZE_BYTES.
    assert_eq!(unit(&["node 0", "free memory"]), "unit 3");
    let roots: Vec<&Track> = trace.tracks.values().filter(|track| track.parent.is_none()).collect();
    assert_eq!(roots.len(), 1);
    assert!(roots[0].name.starts_with("numatop-ng "), "{roots:?}");
}

fn long(path: &Path) {
    let mut machine = demo_machine();
    // A year and a half after boot: the widest times that there are in practice.
    let samples: Vec<_> = seconds(&mut machine, 301)
        .into_iter()
        .map(|(host, mut sample)| {
            sample.boot_ns += 500 * 86_400 * SECOND;
            (host, sample)
        })
        .collect();
    record(path, &samples);
}

#[test]
fn a_value_takes_35_bytes_at_most() {
    let scratch = Scratch::new();
    let path = scratch.join("long.nrec");
    long(&path);
    let trace = Trace::read(&exported(&path, "perfetto", &[]));
    let per_value = trace.bytes as f64 / trace.values() as f64;
    assert!(trace.values() > 10_000 && per_value <= 35.0, "{per_value} bytes for each of {}", trace.values());
}
