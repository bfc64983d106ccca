//! Intervals that the time bar marks for their remote accesses.

use numatop_ng::analysis::curve::{Curve, Level};
use numatop_ng::model::event::Role;
use numatop_ng::snapshot::{RowKind, derive};

use crate::world::{Actor, GIB, Machine, TWO, count_also, machine, pages, sample_use, samples};

/// A database that runs on node 0, with this share of its memory on node 1.
fn world(elsewhere: u32) -> Machine {
    let actor = Actor { rss: 20 * GIB, memory: pages(elsewhere), ..Actor::new(4242, "mysqld") };
    machine(TWO, vec![actor.runs(&[(0, 400.0)])])
}

/// Levels of marks, each with the seconds that it lasts; samples at memory of its node, of the other, and without an address.
fn marks(world: Machine, at_memory: Option<[u64; 3]>) -> (Option<Level>, [i64; 2]) {
    const S: i64 = 1_000_000_000;
    let (host, mut samples) = samples(world, 10, 1000);
    if let Some(at_memory) = at_memory {
        sample_use(&mut samples, 4242, 1000, at_memory);
    }
    let mut curve = Curve::default();
    for pair in samples.windows(2) {
        curve.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
    }
    let levels: Vec<Level> = curve.beginnings().into_iter().map(|(_, level)| level).collect();
    assert!(levels.len() < 2, "{levels:?}");
    let (marked, all) = curve.marked_ns();
    assert_eq!(all, 10 * S);
    (levels.first().copied(), marked.map(|ns| ns / S))
}

/// The same where this share of its accesses is counted as remote.
fn counted(share: f64) -> Option<Level> {
    let mut world = world(96);
    count_also(&mut world, &[Role::Lma, Role::Rma]);
    (world.actors[0].accesses, world.actors[0].remote_share) = (1.0, Some(share));
    marks(world, None).0
}

#[test]
fn accesses_that_are_counted_say_more_than_places() {
    assert_eq!(counted(0.15), None, "96 % of its memory is elsewhere");
    assert_eq!(counted(0.3), Some(Level::Seen));
    assert_eq!(counted(0.7), Some(Level::SeenMost));
}

#[test]
fn places_are_marked_dim_beyond_their_error() {
    assert_eq!(marks(world(96), None), (Some(Level::Placed), [10, 0]));
    assert_eq!(marks(world(30), None).0, Some(Level::Placed));
    assert_eq!(marks(world(22), None).0, None, "the error reaches below 20 %");
}

#[test]
fn sampled_time_counts_as_seen_by_its_lower_end() {
    assert_eq!(marks(world(96), Some([300, 150, 0])), (Some(Level::Seen), [0, 10]));
    assert_eq!(marks(world(96), Some([100, 400, 0])).0, Some(Level::SeenMost));
    assert_eq!(marks(world(96), Some([475, 25, 0])).0, None);
    assert_eq!(
        marks(world(96), Some([150, 100, 200])).0,
        None,
        "a fifth at least only if all had an address"
    );
}

#[test]
fn less_than_half_a_cpu_of_work_is_not_marked() {
    let mut idle = world(96);
    idle.actors[0].runs = vec![(0, 40.0)];
    assert_eq!(marks(idle, None), (None, [0, 0]));
}
