//! Hot spots of a report: the tree of calls without its common root, and the functions with the most samples.

use crate::hot::profile::{Direction, Profile, Tree, share};

/// Frames of the picture at most.
const FRAMES_MAX: usize = 5000;
/// Functions of the table at most.
const FUNCTIONS_MAX: usize = 25;
/// Frames with a smaller share of all samples are left out, in per cent.
const LEAST_PCT: f64 = 0.05;
/// Frames on top of each other at most.
const DEPTH_MAX: usize = 32;
/// Frames at this depth or above are drawn only with at least this share in percent: one deep stack would be
/// most of the page.
const DEEP: (usize, f64) = (12, 1.0);

/// A function in the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    pub function: String,
    pub module: String,
    pub kernel: bool,
    /// Share of the samples with it on top, half of its 95 % interval, and share with it anywhere, in per cent.
    pub own_pct: f64,
    pub error_pct: f64,
    pub total_pct: f64,
}

/// A frame of the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub function: String,
    pub kernel: bool,
    /// Callers above it, and its left edge and width in per cent of the picture.
    pub depth: usize,
    pub left: f64,
    pub width: f64,
    /// Share of all samples, in per cent.
    pub pct: f64,
}

/// Stacks of a report.
#[derive(Clone, Debug, Default)]
pub struct Hot {
    pub event: String,
    pub hz: u32,
    pub samples: u64,
    /// Samples that are missing, by cause.
    pub lost: u64,
    /// Functions on top of all stacks, the outermost first.
    pub stem: Vec<String>,
    pub frames: Vec<Frame>,
    pub frames_left_out: usize,
    pub spots: Vec<Spot>,
    pub spots_left_out: usize,
}

impl Hot {
    /// Of a profile; `None` without samples.
    pub fn of(profile: &Profile) -> Option<Hot> {
        if profile.samples == 0 {
            return None;
        }
        let mut hot = Hot {
            event: crate::text::one_line(&profile.event),
            hz: profile.hz,
            samples: profile.samples,
            lost: profile.lost.values().fold(0, |sum, lost| sum.saturating_add(*lost)),
            ..Hot::default()
        };
        let spots = profile.spots(&|_, _| true);
        for spot in &spots {
            let (own_pct, error_pct) = share(spot.own, profile.samples).unwrap_or_default();
            if hot.spots.len() >= FUNCTIONS_MAX || own_pct < LEAST_PCT {
                hot.spots_left_out += 1;
                continue;
            }
            let (total_pct, _) = share(spot.total, profile.samples).unwrap_or_default();
            let function = spot.function.to_string();
            let (module, kernel) = (spot.function.module.clone(), spot.function.kernel);
            hot.spots.push(Spot { function, module, kernel, own_pct, error_pct, total_pct });
        }
        let tree = Tree::build(profile.stacks(&|_, _| true), Direction::Callees);
        hot.picture(&tree);
        Some(hot)
    }

    fn picture(&mut self, tree: &Tree) {
        let mut roots = tree.roots.clone();
        // A function at the root of all stacks is uninformative.
        while let [only] = roots[..]
            && tree.nodes[only].samples == self.samples
            && !tree.nodes[only].children.is_empty()
        {
            self.stem.push(tree.nodes[only].function.to_string());
            roots.clone_from(&tree.nodes[only].children);
        }
        let mut waiting = vec![(roots, 0, 0.0)];
        while let Some((nodes, depth, mut left)) = waiting.pop() {
            for at in nodes {
                let node = &tree.nodes[at];
                let pct = node.samples as f64 * 100.0 / self.samples as f64;
                let least = if depth >= DEEP.0 { DEEP.1 } else { LEAST_PCT };
                if pct < least || depth >= DEPTH_MAX || self.frames.len() >= FRAMES_MAX {
                    self.frames_left_out += 1;
                    continue;
                }
                let function = node.function.to_string();
                let kernel = node.function.kernel;
                self.frames.push(Frame { function, kernel, depth, left, width: pct, pct });
                waiting.push((node.children.clone(), depth + 1, left));
                left += pct;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Comm;
    use crate::model::stacks::{CodePlace, Frame as Raw, Function, Stack, StackBatch};
    use std::sync::Arc;

    fn profile(stacks: &[(&[u64], u64)]) -> Profile {
        let name = |address: u64| {
            let function = Function { name: Some(format!("f{address}")), module: "m".into(), kernel: false };
            (CodePlace::Kernel(address), Arc::new(function))
        };
        let stack = |(frames, samples): &(&[u64], u64)| Stack {
            process: (7, 1),
            tid: 7,
            cgroup_id: 5,
            comm: Comm::new("x"),
            samples: *samples,
            frames: frames.iter().map(|address| Raw::Kernel(*address)).collect(),
        };
        let mut profile = Profile::default();
        // The place of a caller is that of its call: one before.
        let names = (0..10).map(name).collect();
        profile.add(StackBatch {
            stacks: stacks.iter().map(stack).collect(),
            names,
            ..StackBatch::default()
        });
        profile
    }

    #[test]
    fn the_stem_is_folded_and_widths_are_shares() {
        let hot = Hot::of(&profile(&[(&[3, 2], 30), (&[4, 2], 70)])).unwrap();
        assert_eq!(hot.stem.len(), 1);
        let shapes: Vec<(usize, f64, f64)> =
            hot.frames.iter().map(|frame| (frame.depth, frame.left, frame.width)).collect();
        assert_eq!(shapes, [(0, 0.0, 70.0), (0, 70.0, 30.0)]);
        assert_eq!(hot.spots[0].own_pct.round(), 70.0);
        assert!(Hot::of(&Profile::default()).is_none());
    }
}
