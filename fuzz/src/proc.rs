//! Files of /proc and /sys of any content: facts read from them are sound and clean.
//!
//! An input is a tree. Process 7 is looked at, as one that has run since boot.

use std::path::Path;

use super::tree::{Content, Entry, Tree, entries};
use numatop_ng::collect::host_state::{CpuTimesReader, HostStateReader, VmStatReader, ZoneReader};
use numatop_ng::collect::nodes::NodeReader;
use numatop_ng::collect::{mappings, proc_details, proc_fields};
use numatop_ng::container::limits::LimitReader;
use numatop_ng::host::cgroups::{self, Hierarchy, Mode};
use numatop_ng::host::privileges::Privileges;
use numatop_ng::host::{isolation, kernel, processes, users};
use numatop_ng::list::topology::{render_json, render_text};
use numatop_ng::model::process::Asked;
use numatop_ng::model::sample::GroupRaw;
use numatop_ng::model::topology::{MAX_ID, Topology, format_cpulist, parse_cpulist, parse_cpumask};
use numatop_ng::model::units::CpuId;
use numatop_ng::pmu::facts::CpuKind;
use numatop_ng::symbolize::process::Mapping;
use numatop_ng::text;

const PID: u32 = 7;
/// A process that has run since boot.
const STAT: &[u8] = b"7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 0 0 0\n";
/// CPUs of a machine that is looked at: an input with 65,536 only takes long, and finds nothing more.
const CPUS_MAX: usize = 300;
const PAGE: u64 = 4096;

/// Reads the machine described by `input`. Returns the number of its readable parts.
pub fn read(input: &[u8]) -> usize {
    let (before, mut entries) = entries(input);
    lists(before);
    for entry in &entries {
        if let Content::File(content) = entry.content {
            lists(content);
            if entry.path.ends_with("maps") {
                maps(content);
            }
        }
    }
    let mount = mountinfo(&mut entries);
    let tree = Tree::new(&entries);
    let root = tree.root.as_path();
    [topology(root), counters(root), process(root), host(root), limits(root, mount)].into_iter().sum()
}

/// Texts as lists and masks of CPUs.
fn lists(content: &[u8]) {
    let Some(text) = std::str::from_utf8(content).ok().filter(|text| text.len() <= 512) else { return };
    for ids in [parse_cpulist(text).ok(), parse_cpumask(text).ok()].into_iter().flatten() {
        assert!(ids.is_sorted_by(|a, b| a < b) && ids.last().is_none_or(|last| *last <= MAX_ID));
        let printed = format_cpulist(ids.iter().copied());
        assert_eq!(parse_cpulist(&printed), Ok(ids), "{printed:?}");
    }
}

/// Lines of maps, as two readers take them apart.
fn maps(content: &[u8]) {
    use numatop_ng::collect::placement::target::{Lines, parse_line};
    let mut lines = Lines::new(content);
    while let Ok(Some(line)) = lines.next_line() {
        let (memory, code) = (parse_line(line), Mapping::parse(line));
        if let Some(memory) = memory {
            assert!(memory.start < memory.end);
        }
        if let (Some(memory), Some(code)) = (memory, code) {
            assert_eq!((memory.start, memory.end), (code.start, code.end), "{line:?}");
            assert!(!code.file_name().contains('/'));
        }
    }
}

/// The mounts of a tree must lead back into it. Returns whether it has a file for them.
fn mountinfo(entries: &mut Vec<Entry<'_>>) -> bool {
    let place = entries.iter().position(|entry| entry.path == Path::new("proc/self/mountinfo"));
    let Some(place) = place else { return false };
    if let Content::File(content) = entries[place].content {
        // Mount points are only compared here: files below them are read by `limits`.
        let tree = Tree::new(&entries[place..=place]);
        let mounts = cgroups::mounts(&tree.root);
        let chosen = cgroups::choose(&tree.root);
        assert_eq!(chosen.mode == Mode::None, chosen.mount.is_none());
        assert!(chosen.mount.iter().all(|at| mounts.iter().any(|mount| mount.at == *at)));
        for mount in &mounts {
            let path = mount.at.join("x");
            if let Some((hierarchy, rest)) = cgroups::containing(&tree.root, &path) {
                assert_eq!(hierarchy.mount.map(|at| at.join(rest)), Some(path));
            }
        }
        assert!(mounts.len() <= content.split(|byte| *byte == b'\n').count());
    }
    entries.remove(place);
    true
}

fn topology(root: &Path) -> usize {
    let cpus = |name: &str| {
        let text = std::fs::read_to_string(root.join("sys/devices/system").join(name)).unwrap_or_default();
        parse_cpulist(&text).map_or(0, |ids| ids.len())
    };
    let many = ["cpu/online", "cpu/present", "node/online"].into_iter().any(|name| cpus(name) > CPUS_MAX);
    if many {
        return 0;
    }
    let Ok(topology) = numatop_ng::host::topology::read(root) else { return 0 };
    let Topology { nodes, cpus, llcs, .. } = &topology;
    assert!(!nodes.is_empty() && nodes.is_sorted_by(|a, b| a.id < b.id));
    assert!(cpus.is_sorted_by(|a, b| a.id < b.id));
    for cpu in cpus.iter().filter(|cpu| cpu.online) {
        assert!(cpu.core < topology.cores && llcs[cpu.llc as usize].cpus.contains(&cpu.id));
        assert!(cpu.siblings.contains(&cpu.id) && cpu.siblings.is_sorted());
        assert!(
            cpu.node.is_none_or(|node| topology.node(node).is_some_and(|node| node.cpus.contains(&cpu.id)))
        );
    }
    assert!(cpus.last().is_none_or(|cpu| cpu.id.0 < topology.possible_cpus));
    for node in nodes {
        assert_eq!(
            topology.distance(node.id, node.id),
            node.distances.iter().find(|to| to.0 == node.id).map(|to| to.1)
        );
        assert_eq!(node.distances.len(), nodes.len());
        assert!(node.cpus.iter().all(|cpu| topology.cpu(*cpu).is_some_and(|cpu| cpu.node == Some(node.id))));
    }
    // Recordings have it.
    let json = serde_json::to_string(&topology).expect("it is plain data");
    assert_eq!(serde_json::from_str::<Topology>(&json).expect("it was just written"), topology);
    for width in [0, 40, 80] {
        let text = render_text(&topology, width);
        assert!(text.lines().all(text::is_clean), "{text:?}");
    }
    render_json(&topology);
    if let Ok(mut reader) = NodeReader::open(root, &topology)
        && let Ok(raw) = reader.read()
    {
        assert!(raw.iter().map(|raw| raw.id).eq(nodes.iter().map(|node| node.id.0)));
    }
    1
}

/// Files that are read again with each sample.
fn counters(root: &Path) -> usize {
    let times = CpuTimesReader::open(root).ok().and_then(|mut reader| {
        let first = reader.read().ok()?;
        assert_eq!(reader.read().ok(), Some(first), "the same file says the same");
        Some(())
    });
    let vmstat = VmStatReader::open(root).ok().and_then(|mut reader| {
        let hints = reader.read().ok()?.hints;
        assert!(hints.is_none_or(|hints| hints.remote <= hints.faults));
        Some(())
    });
    let zones = ZoneReader::new(root).marks().is_ok();
    let mut state = HostStateReader::new(root);
    assert_eq!(state.read(), state.read());
    usize::from(times.is_some()) + usize::from(vmstat.is_some()) + usize::from(zones)
}

fn process(root: &Path) -> usize {
    let dir = root.join(format!("proc/{PID}"));
    if !dir.is_dir() {
        return 0;
    }
    if proc_details::read(root, PID, 0).is_err() {
        let _ = std::fs::write(dir.join("stat"), STAT);
    }
    let texts = proc_details::texts(root, PID);
    for text in [&texts.cmdline, &texts.cpus_allowed, &texts.mems_allowed].into_iter().flatten() {
        assert!(text::is_clean(text), "{text:?}");
    }
    if let Ok(pct) = proc_details::huge_pct(root, PID) {
        assert!(pct.is_finite() && pct >= 0.0, "{pct}");
    }
    let _ = proc_fields::read(root, Asked { texts: true, huge: true }, (PID, 0));
    let _ = processes::process_of(root, PID);
    let found = mappings::exact(root, (PID, 0)).is_ok_and(|mappings| {
        for row in &mappings.rows {
            assert!(
                text::is_clean(&row.name) && row.policy.as_ref().is_none_or(|policy| text::is_clean(policy))
            );
            assert!(row.bytes > 0 && row.by_node.iter().all(|bytes| *bytes >= 0.0), "{row:?}");
        }
        assert!(mappings.rows.len() <= mappings.count);
        true
    });
    let Ok(details) = proc_details::read(root, PID, 0) else { return usize::from(found) };
    assert!(details.cgroups.iter().all(|path| text::is_clean(path)), "{:?}", details.cgroups);
    assert_eq!(details.texts, texts);
    1 + usize::from(found)
}

fn host(root: &Path) -> usize {
    let all = users::read(root);
    for (uid, name) in &all {
        assert!(users::resolve(&uid.to_string(), &all) == Some(*uid));
        assert!(users::resolve(name, &all).is_some());
    }
    users::homes(root);
    let privileges = Privileges::read(root);
    let lacking = privileges.lacking();
    assert!(lacking.is_empty() || privileges.effective.known().is_some());
    privileges.could_get(&lacking);
    let kind = CpuKind::read(root, CpuId(0)).map(|kind| kind.to_string());
    kernel::cpu_model(root);
    kernel::numa_balancing(root);
    for cpus in [isolation::isolated_cpus(root), isolation::nohz_full_cpus(root)] {
        assert!(cpus.is_sorted_by(|a, b| a < b));
    }
    cgroups::managers(root);
    usize::from(!all.is_empty()) + usize::from(kind.is_ok())
}

/// The files of one cgroup, `sys/fs/cgroup/x`, as both versions have them.
fn limits(root: &Path, v1: bool) -> usize {
    let mount = root.join("sys/fs/cgroup");
    if !mount.is_dir() {
        return 0;
    }
    let check = |reader: &LimitReader| {
        let first = reader.read("/x", 1, None, false);
        let again: GroupRaw = reader.read("/x", 2, Some(&first), true);
        assert_eq!(again.mem_bytes, first.mem_bytes);
        assert_eq!((&again.cpus, &again.mem_limit_bytes), (&first.cpus, &first.mem_limit_bytes));
        assert_eq!(again.counters_before, Some(first.counters()));
        assert_eq!(
            again.throttled_before.map(|before| before.0),
            first.throttled_ns.as_ref().ok().map(|_| 1)
        );
        usize::from(first.mem_bytes.is_ok()) + usize::from(first.mem_bytes_by_node.is_ok())
    };
    let v2 = Hierarchy { mode: Mode::Unified, controller: None, mount: Some(mount.clone()) };
    let mut found = check(&LimitReader::new(root, &v2, PAGE));
    if v1 {
        let line = |controller: &str| {
            format!("1 1 0:1 / {} rw - cgroup cgroup rw,{controller}\n", mount.join(controller).display())
        };
        let text: String = ["memory", "cpu", "cpuset"].map(line).concat();
        let _ = std::fs::create_dir_all(root.join("proc/self"));
        if std::fs::write(root.join("proc/self/mountinfo"), text).is_ok() {
            let v1 = Hierarchy { mode: Mode::Legacy, controller: Some("memory".into()), mount: Some(mount) };
            found += check(&LimitReader::new(root, &v1, PAGE));
        }
    }
    found
}
