//! Whether a machine is idle enough to be measured, and how much of its memory may be used. Pure, except for
//! the reading of files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Ticks of CPU time (`USER_HZ`) in a second, as the kernel shows them on every architecture we run on.
const TICKS: f64 = 100.0;

/// Parts of the CPUs that others may use: of all of them, and of any one.
const ALL_MAX: f64 = 0.03;

const ONE_MAX: f64 = 0.20;

/// Percent of the time in which some task waited for memory (`avg10` of /proc/pressure/memory).
const PRESSURE_MAX: f64 = 0.5;

/// Facts about the use of a machine at one moment. Facts that a kernel does not show are left out, and not judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Ticks in which each CPU was not idle, since boot.
    pub busy: BTreeMap<u32, u64>,
    /// The part of them in which a task with a nice value above 0 ran in user space.
    pub niced: BTreeMap<u32, u64>,
    /// Ticks of CPU time that processes of ours took.
    pub own: u64,
    /// The part of them that is not in `niced`.
    pub own_not_niced: u64,
    /// Pages that went to swap or came from it, since boot.
    pub swapped: u64,
    /// Percent.
    pub memory_pressure: Option<f64>,
    /// Free pages and the high watermark of each node.
    pub nodes: BTreeMap<u32, Room>,
}

/// Room of a node, in pages of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Pages that nothing uses.
    pub free: u64,
    /// Free memory below which the kernel continues to reclaim.
    pub high: u64,
}

impl Usage {
    /// Reads `proc/` below `root`, with the CPU time of these processes as ours.
    pub fn read(root: &Path, own: &[u32]) -> Usage {
        let text = |name: &str| fs::read_to_string(root.join("proc").join(name)).unwrap_or_default();
        let (stat, own) = (text("stat"), own.iter().map(|pid| text(&format!("{pid}/stat"))));
        let own: Vec<Own> = own.filter_map(|stat| cpu_ticks(&stat)).collect();
        Usage {
            busy: busy(&stat),
            niced: niced(&stat),
            own: own.iter().map(|own| own.user + own.system).sum(),
            own_not_niced: own.iter().map(|own| own.system + if own.niced { 0 } else { own.user }).sum(),
            swapped: swapped(&text("vmstat")),
            memory_pressure: pressure(&text("pressure/memory")),
            nodes: rooms(&text("zoneinfo")),
        }
    }
}

/// Use by others between two looks, each a part of 0..=1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// Of all CPUs.
    pub all: f64,
    /// Of the CPU that they used most, with its number. Our own time is not subtracted, so it is meaningful
    /// only while this process is idle.
    pub most: Option<(u32, f64)>,
    /// The same while this process works with a nice value above 0. Time of niced tasks is left out. All of
    /// our own time that is not niced is subtracted from each CPU, because no file has its CPU. Never more
    /// than the real use.
    pub most_not_niced: Option<(u32, f64)>,
}

/// The use by others between two looks that are `seconds` apart.
pub fn others(before: &Usage, after: &Usage, seconds: f64) -> Others {
    let of_cpu = |cpu: &u32, now: &u64| {
        let ticks = now.saturating_sub(*before.busy.get(cpu)?);
        Some((*cpu, (ticks as f64 / TICKS / seconds).min(1.0)))
    };
    let each: Vec<(u32, f64)> = after.busy.iter().filter_map(|(cpu, now)| of_cpu(cpu, now)).collect();
    let own = after.own.saturating_sub(before.own) as f64 / TICKS / seconds;
    let rest = after.own_not_niced.saturating_sub(before.own_not_niced) as f64 / TICKS / seconds;
    let of_niced = |cpu: u32| {
        let of = |usage: &Usage| usage.niced.get(&cpu).copied().unwrap_or(0);
        of(after).saturating_sub(of(before)) as f64 / TICKS / seconds
    };
    let not_niced: Vec<(u32, f64)> =
        each.iter().map(|(cpu, part)| (*cpu, (part - of_niced(*cpu) - rest).max(0.0))).collect();
    let sum: f64 = each.iter().map(|(_, part)| part).sum();
    Others {
        all: ((sum - own) / each.len().max(1) as f64).max(0.0),
        most: each.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)),
        most_not_niced: not_niced.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

/// Why a machine on which we do nothing is too busy to begin, in words; `None` if it is quiet.
pub fn too_busy(before: &Usage, after: &Usage, seconds: f64) -> Option<String> {
    let others = others(before, after, seconds);
    if let Some((cpu, part)) = others.most.filter(|(_, part)| *part > ONE_MAX) {
        return Some(format!("other tasks use {:.0} % of CPU {cpu}", part * 100.0));
    }
    if others.all > ALL_MAX {
        return Some(format!("other tasks use {:.0} % of all CPUs", others.all * 100.0));
    }
    short_of_memory(before, after)
}

/// Why a second in which we worked does not count, in words; `None` if it was quiet.
pub fn disturbed(before: &Usage, after: &Usage, seconds: f64) -> Option<String> {
    let others = others(before, after, seconds);
    // Ours is read a moment earlier than the others', and both in steps of 10 ms.
    let slack = 2.0 / (TICKS * seconds);
    if let Some((cpu, part)) = others.most_not_niced.filter(|(_, part)| *part > ONE_MAX + slack) {
        return Some(format!("other tasks use {:.0} % of CPU {cpu}", part * 100.0));
    }
    if others.all > ALL_MAX + slack {
        return Some(format!("other tasks use {:.0} % of all CPUs", others.all * 100.0));
    }
    short_of_memory(before, after)
}

fn short_of_memory(before: &Usage, after: &Usage) -> Option<String> {
    if after.memory_pressure.is_some_and(|percent| percent > PRESSURE_MAX) {
        let percent = after.memory_pressure.unwrap_or_default();
        return Some(format!("tasks wait for memory {percent:.1} % of the time"));
    }
    if after.swapped > before.swapped {
        return Some("the machine is swapping".into());
    }
    let full = after.nodes.iter().find(|(_, room)| room.free < room.high);
    full.map(|(node, _)| format!("the kernel reclaims memory of node {node}"))
}

/// Bytes of a node that may be taken: `percent` of its free memory and 2 GiB at most, and never so much that less than twice
/// the high watermark stays.
pub fn may_take(room: Room, page_bytes: u64, percent: f64) -> u64 {
    const MOST: u64 = 2 << 30;
    let free = room.free.saturating_mul(page_bytes);
    let keep = room.high.saturating_mul(page_bytes).saturating_mul(2);
    ((free as f64 * percent / 100.0) as u64).min(MOST).min(free.saturating_sub(keep))
}

/// Bytes that the cgroup of this process may still use, by the files of `sys/fs/cgroup` and
/// `proc/self/cgroup` below `root`: the least of it and its parents. `None` without a limit.
pub fn cgroup_room(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    // v1 writes an impossibly large number where no limit is set.
    let real = |limit: &u64| *limit < 1 << 60;
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, limit, used) = match controllers {
            "" => ("", "memory.max", "memory.current"),
            "memory" => ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => continue,
        };
        let mount = root.join("sys/fs/cgroup").join(mount);
        let mut group = Path::new(path.trim_start_matches('/'));
        loop {
            let at = mount.join(group);
            if let (Some(limit), Some(used)) = (number(&at.join(limit)).filter(real), number(&at.join(used)))
            {
                let left = limit.saturating_sub(used);
                least = Some(least.map_or(left, |least: u64| least.min(left)));
            }
            match group.parent() {
                Some(parent) => group = parent,
                None => break,
            }
        }
    }
    least
}

/// Ticks in which each CPU did something, by /proc/stat: user, nice, system, irq, softirq and steal.
fn busy(stat: &str) -> BTreeMap<u32, u64> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let of = |at: usize| ticks.get(at).copied().unwrap_or(0);
        Some((cpu, [0, 1, 2, 5, 6, 7].map(of).iter().sum()))
    };
    stat.lines().filter_map(of_line).collect()
}

/// Ticks in which niced tasks ran in user space on each CPU.
fn niced(stat: &str) -> BTreeMap<u32, u64> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        Some((cpu, words.nth(1)?.parse().ok()?))
    };
    stat.lines().filter_map(of_line).collect()
}

/// CPU time of a process, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    user: u64,
    system: u64,
    niced: bool,
}

/// utime, stime and nice of /proc/PID/stat; the name of the process may have spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<Own> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let nice: i64 = words.nth(3)?.parse().ok()?;
    Some(Own { user, system, niced: nice > 0 })
}

fn swapped(vmstat: &str) -> u64 {
    let count = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        matches!(name, "pswpin" | "pswpout").then(|| value.trim().parse::<u64>().ok())?
    };
    vmstat.lines().filter_map(count).sum()
}

fn pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
}

/// Free pages and high watermarks by node, all zones together.
fn rooms(zoneinfo: &str) -> BTreeMap<u32, Room> {
    let mut rooms: BTreeMap<u32, Room> = BTreeMap::new();
    let mut node = None;
    for line in zoneinfo.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            node = rest.split(',').next().and_then(|id| id.trim().parse::<u32>().ok());
            continue;
        }
        let Some(room) = node.map(|node| rooms.entry(node).or_default()) else { continue };
        let mut words = line.split_whitespace();
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match (words.next(), words.next()) {
            (Some("pages"), Some("free")) => room.free += number(words.next()),
            // Limits of the lists of each CPU are called `high:`.
            (Some("high"), value) => room.high += number(value),
            _ => {}
        }
    }
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn usage(busy: &[u64], own: u64) -> Usage {
        Usage { busy: (0..).zip(busy.iter().copied()).collect(), own, ..Usage::default() }
    }

    #[test]
    fn others_are_what_is_busy_less_our_own() {
        let found = others(&usage(&[0; 4], 50), &usage(&[100, 100, 10, 0], 240), 1.0);
        assert!((found.all - 0.05).abs() < 1e-9, "{found:?}");
        assert_eq!(found.most.map(|(_, part)| part), Some(1.0));
        assert_eq!(others(&usage(&[], 0), &usage(&[], 9), 1.0), Others::default());
    }

    #[test]
    fn a_machine_is_quiet_or_says_why_it_is_not() {
        let before = usage(&[100; 10], 0);
        let quiet = usage(&[105, 100, 115, 100, 100, 100, 100, 100, 100, 105], 0);
        assert_eq!(too_busy(&before, &quiet, 1.0), None);
        let one = usage(&[100, 125, 100, 100, 100, 100, 100, 100, 100, 100], 0);
        assert_eq!(too_busy(&before, &one, 1.0).unwrap(), "other tasks use 25 % of CPU 1");
        let all = usage(&[104; 10], 0);
        assert_eq!(too_busy(&before, &all, 1.0).unwrap(), "other tasks use 4 % of all CPUs");
        let waiting = Usage { memory_pressure: Some(0.6), ..before.clone() };
        assert_eq!(too_busy(&before, &waiting, 1.0).unwrap(), "tasks wait for memory 0.6 % of the time");
        let swapping = Usage { swapped: 1, ..before.clone() };
        assert_eq!(too_busy(&before, &swapping, 1.0).unwrap(), "the machine is swapping");
        let full = Usage {
            nodes: [(0, Room { free: 9, high: 9 }), (1, Room { free: 8, high: 9 })].into(),
            ..before.clone()
        };
        assert_eq!(too_busy(&before, &full, 1.0).unwrap(), "the kernel reclaims memory of node 1");
    }

    #[test]
    fn our_own_work_disturbs_nothing() {
        let before = usage(&[0; 2], 0);
        let all = Usage { niced: [(0, 100), (1, 99)].into(), ..usage(&[100, 100], 199) };
        assert_eq!(disturbed(&before, &all, 1.0), None);
        let ours = |own| Usage { niced: [(0, 100), (1, 50)].into(), ..usage(&[100, 100], own) };
        assert!(disturbed(&before, &ours(150), 1.0).unwrap().starts_with("other tasks use 50 % of CPU 1"));
        let niced = Usage { niced: [(0, 100), (1, 100)].into(), ..usage(&[100, 100], 150) };
        assert!(disturbed(&before, &niced, 1.0).unwrap().starts_with("other tasks use 25 % of all"));
    }

    #[test]
    fn one_cpu_that_others_use_disturbs_a_large_machine() {
        // 64 CPUs: two work for us, niced, and one for others. That is half a percent of all.
        let at = |other: u64, own: u64| {
            let mut busy = vec![0; 64];
            (busy[0], busy[1], busy[2]) = (own, own, other);
            Usage { niced: [(0, own - 5), (1, own - 5)].into(), own_not_niced: 10, ..usage(&busy, 2 * own) }
        };
        let why = disturbed(&usage(&[0; 64], 0), &at(40, 90), 1.0).unwrap();
        assert_eq!(why, "other tasks use 30 % of CPU 2", "what is ours and not niced is taken off");
        assert_eq!(disturbed(&usage(&[0; 64], 0), &at(20, 90), 1.0), None);
    }

    #[test]
    fn memory_that_may_be_taken_has_three_limits() {
        let page = 4096;
        let gib = (1u64 << 30) / page;
        assert_eq!(may_take(Room { free: 10 * gib, high: gib / 8 }, page, 10.0), 1 << 30);
        assert_eq!(may_take(Room { free: 100 * gib, high: gib / 8 }, page, 10.0), 2 << 30);
        assert_eq!(
            may_take(Room { free: gib, high: gib / 2 - 1 }, page, 10.0),
            2 * page,
            "twice the watermark stays"
        );
        assert_eq!(may_take(Room { free: gib, high: gib }, page, 10.0), 0);
    }

    #[test]
    fn files_of_proc_are_read() {
        let stat = "cpu  9 9 9 9\ncpu0 10 1 5 1000 7 2 3 4 0 0\ncpu2 1 1 1 1\nintr 5\n";
        assert_eq!(busy(stat), [(0, 25), (2, 3)].into());
        assert_eq!(niced(stat), [(0, 1), (2, 1)].into());
        let own = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 39 19 5";
        assert_eq!(cpu_ticks(own), Some(Own { user: 30, system: 12, niced: true }));
        assert!(!cpu_ticks(&own.replace(" 19 5", " 0 5")).unwrap().niced);
        assert_eq!(cpu_ticks("7 (x"), None);
        assert_eq!(swapped("pswpin 3\npgpgin 9\npswpout 4\n"), 7);
        assert_eq!(
            pressure("some avg10=1.25 avg60=0.1 avg300=0 total=3\nfull avg10=9 total=1\n"),
            Some(1.25)
        );
        let zones = "\
Node 0, zone      DMA
  pages free     100
        boost    0
        high     16
  pagesets
    cpu: 0
              high:  77
Node 0, zone   Normal
  pages free     1000
        high     160
Node 1, zone   Normal
  pages free     5
        high     6
";
        let room = |free, high| Room { free, high };
        assert_eq!(rooms(zones), [(0, room(1100, 176)), (1, room(5, 6))].into());
    }

    #[test]
    fn this_machine_has_been_used() {
        let usage = Usage::read(Path::new("/"), &[std::process::id()]);
        assert!(usage.busy.values().any(|ticks| *ticks > 0));
        assert!(usage.nodes.is_empty() || usage.nodes.values().any(|room| room.free > 0));
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let tree = Tree::new("quiet");
        tree.write("proc/self/cgroup", "0::/a/b\n");
        tree.write("sys/fs/cgroup/a/memory.max", "1000\n");
        tree.write("sys/fs/cgroup/a/memory.current", "400\n");
        tree.write("sys/fs/cgroup/a/b/memory.max", "max\n");
        tree.write("sys/fs/cgroup/a/b/memory.current", "300\n");
        assert_eq!(cgroup_room(tree.root()), Some(600));
        tree.write("proc/self/cgroup", "4:memory:/c\n0::/\n");
        tree.write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        tree.write("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "5\n");
        assert_eq!(cgroup_room(tree.root()), None);
    }
}
