//! Classes of distances: cells whose latencies are alike, and the SLIT beside them. Pure.

use crate::model::profile::Profile;

/// Values of a class are no further apart than this factor from its least one.
const ALIKE: f64 = 1.10;

/// Cells of like latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Median of its cells, ns.
    pub ns: f64,
    /// Times the nearest class.
    pub ratio: f64,
    /// Rows and columns, by place.
    pub cells: Vec<(usize, usize)>,
}

/// The classes of a profile, nearest first; none without latencies.
pub fn classes(profile: &Profile) -> Vec<Class> {
    let rows = profile.latency_ns.iter().enumerate();
    let mut cells: Vec<(f64, (usize, usize))> = rows
        .flat_map(|(from, row)| row.iter().enumerate().filter_map(move |(to, ns)| Some(((*ns)?, (from, to)))))
        .collect();
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut classes: Vec<Vec<(f64, (usize, usize))>> = Vec::new();
    for cell in cells {
        match classes.last_mut() {
            Some(class) if cell.0 <= ALIKE * class[0].0 => class.push(cell),
            _ => classes.push(vec![cell]),
        }
    }
    let nearest = classes.first().map(|class| class[class.len() / 2].0);
    classes
        .into_iter()
        .map(|class| {
            let ns = class[class.len() / 2].0;
            let ratio = nearest.map_or(1.0, |nearest| ns / nearest);
            Class { ns, ratio, cells: class.into_iter().map(|(_, cell)| cell).collect() }
        })
        .collect()
}

/// A disagreement of the SLIT with the measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum Slit {
    /// It calls the first pair nearer than the second, which is nearer by more than a tenth: rows and columns by place.
    WrongOrder { nearer: (usize, usize), farther: (usize, usize) },
    /// Its distances differ by a factor of 1.5 or more, while latencies differ by less than a tenth: the
    /// distances, and percent.
    NoDifference { distances: (u32, u32), percent: f64 },
}

/// Disagreements with the SLIT: the worst of each kind.
pub fn slit(profile: &Profile) -> Vec<Slit> {
    const FARTHER: f64 = 1.10;
    const TOLD_APART: f64 = 1.5;
    let distance = |(from, to): (usize, usize)| profile.machine.nodes.get(from)?.slit.get(to).copied();
    let rows = profile.latency_ns.iter().enumerate();
    let cells: Vec<((usize, usize), u32, f64)> = rows
        .flat_map(|(from, row)| row.iter().enumerate().map(move |(to, ns)| ((from, to), *ns)))
        .filter_map(|(cell, ns)| Some((cell, distance(cell)?, ns?)))
        .collect();
    let pairs = || cells.iter().flat_map(|a| cells.iter().map(move |b| (a, b)));
    let wrong = pairs()
        .filter(|(a, b)| a.1 < b.1 && a.2 > FARTHER * b.2)
        .max_by(|x, y| (x.0.2 / x.1.2).total_cmp(&(y.0.2 / y.1.2)));
    let wrong = wrong.map(|(a, b)| Slit::WrongOrder { nearer: a.0, farther: b.0 });
    let mean = |distance: u32| {
        let of: Vec<f64> = cells.iter().filter(|cell| cell.1 == distance).map(|cell| cell.2).collect();
        super::stats::median(&of).unwrap_or(0.0)
    };
    let apart = pairs()
        .filter(|(a, b)| f64::from(b.1) >= TOLD_APART * f64::from(a.1))
        .map(|(a, b)| ((a.1, b.1), (mean(b.1) / mean(a.1) - 1.0).abs() * 100.0))
        .filter(|(_, percent)| *percent < 10.0)
        .max_by_key(|((near, far), _)| (far * 1000 / (*near).max(1), *near));
    let apart = apart.map(|(distances, percent)| Slit::NoDifference { distances, percent });
    wrong.into_iter().chain(apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{MachineKey, NodeKey};

    fn profile(latency: &[&[f64]], slit: &[&[u32]]) -> Profile {
        let nodes =
            (0..).zip(slit).map(|(node, slit)| NodeKey { node, slit: slit.to_vec(), ..NodeKey::default() });
        Profile {
            machine: MachineKey { nodes: nodes.collect(), ..MachineKey::default() },
            latency_ns: latency.iter().map(|row| row.iter().map(|ns| Some(*ns)).collect()).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn like_cells_are_a_class() {
        let found = classes(&profile(&[&[82.0, 140.0], &[139.0, 83.0]], &[&[10, 21], &[21, 10]]));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].cells, [(0, 0), (1, 1)]);
        assert!((found[1].ratio - 140.0 / 83.0).abs() < 1e-9);
        assert_eq!(classes(&Profile::default()), []);
    }

    #[test]
    fn a_slit_that_is_right_is_not_mentioned() {
        let right = profile(&[&[82.0, 160.0], &[160.0, 82.0]], &[&[10, 20], &[20, 10]]);
        assert_eq!(slit(&right), []);
    }

    #[test]
    fn a_slit_that_misleads_is_told() {
        let far = profile(&[&[82.0, 84.0], &[84.0, 82.0]], &[&[10, 40], &[40, 10]]);
        assert!(
            matches!(slit(&far)[..], [Slit::NoDifference { distances: (10, 40), percent }] if percent < 3.0)
        );
        let wrong = profile(
            &[&[80.0, 200.0, 150.0], &[200.0, 80.0, 150.0], &[150.0, 150.0, 80.0]],
            &[&[10, 20, 30], &[20, 10, 30], &[30, 30, 10]],
        );
        assert!(
            slit(&wrong).iter().any(|found| matches!(found, Slit::WrongOrder { nearer: (0 | 1, 1 | 0), .. }))
        );
    }
}
