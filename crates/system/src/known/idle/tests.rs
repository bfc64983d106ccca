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
    assert_eq!(pressure("some avg10=1.25 avg60=0.1 avg300=0 total=3\nfull avg10=9 total=1\n"), Some(1.25));
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
