//! The moments that are highlighted.

use std::sync::Arc;

use crate::common;
use common::World;
use numatop_ng::analysis::highlights::{Finder, Highlight, HighlightKind};
use numatop_ng::model::event::Role;
use numatop_ng::model::sample::Sample;

/// Seconds of a machine with counters; `change` makes one of them special.
fn found(change: impl Fn(&World, usize, &mut Sample)) -> (Vec<Highlight>, Vec<i64>) {
    let mut world = World::intel();
    world.counts_remote();
    let (mut finder, mut times) = (Finder::default(), Vec::new());
    for second in 0..10 {
        let mut sample = world.tick();
        change(&world, second, &mut sample);
        times.push(sample.wall_ns);
        finder.take(&world.host, sample, second == 7, second != 7);
    }
    (finder.marks().all(), times)
}

fn of(kind: HighlightKind, marks: &[Highlight]) -> Vec<i64> {
    marks.iter().filter(|mark| mark.kind == kind).map(|mark| mark.wall_ns).collect()
}

/// Adds to what the CPUs counted from `second` on.
fn more(world: &World, role: Role, count: u64, sample: &mut Sample) {
    for slot in world.host.slots(role).collect::<Vec<_>>() {
        sample.cpus[0].slots[slot].count += count;
    }
}

#[test]
fn the_interval_with_the_most_remote_accesses() {
    let (marks, times) = found(|world, second, sample| {
        if second >= 4 {
            more(world, Role::Rma, 1 << 50, sample);
        }
    });
    assert_eq!(of(HighlightKind::Remote, &marks), [times[4]]);
}

#[test]
fn the_interval_with_the_fewest_instructions_per_cycle() {
    let (marks, times) = found(|world, second, sample| {
        if second >= 5 {
            more(world, Role::Cycles, 1 << 50, sample);
        }
    });
    assert_eq!(of(HighlightKind::Ipc, &marks), [times[5]]);
}

#[test]
fn losses_and_gaps_are_all_kept() {
    let (marks, times) = found(|_, second, sample| {
        sample.lost.insert("exit".into(), if second >= 3 { 2 } else { 0 });
    });
    assert_eq!(of(HighlightKind::Loss, &marks), [times[3]]);
    assert_eq!(of(HighlightKind::Gap, &marks), [times[7]]);
    assert!(marks.is_sorted_by_key(|mark| mark.wall_ns));
}

#[test]
fn an_idle_machine_has_no_efficiency() {
    let mut world = World::new("intel-e5-2682v4", true, Vec::new());
    let mut finder = Finder::default();
    for _ in 0..4 {
        let mut sample = world.tick();
        more(&world, Role::Cycles, 1 << 40, &mut sample);
        finder.take(&Arc::clone(&world.host), sample, false, true);
    }
    assert_eq!(finder.marks().count(HighlightKind::Ipc), 0);
}
