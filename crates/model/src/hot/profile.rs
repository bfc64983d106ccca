//! Functions and their numbers of samples, on top of a stack or anywhere in it, with the error; and the stacks as a tree of
//! calls, from the outermost function down or from the hot one up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use super::frame_names::KnownNames;
use crate::model::process::ProcessId;
use crate::model::sample::Comm;
use crate::model::share::wilson;
use crate::model::stacks::{CodePlace, Function, Stack, StackBatch};

/// Different stacks that are kept whole. Later ones keep only the innermost frame: shares of functions stay
/// right, callers are lost.
const STACKS_MAX: usize = 50_000;

/// Frames of the stacks that are kept whole, beyond which it is as beyond [`STACKS_MAX`]: some 10 MB.
const FRAMES_MAX: usize = 300_000;

/// Stacks beyond which the innermost frame is not kept either.
const TOPS_MAX: usize = 2 * STACKS_MAX;

/// The samples of one process.
#[derive(Clone, Debug)]
pub struct Process {
    pub comm: Comm,
    pub cgroup_id: u64,
    pub samples: u64,
    /// Innermost first.
    stacks: HashMap<Box<[CodePlace]>, u64>,
}

/// All samples since the start, or since it was last [restarted](Profile::restart).
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub event: String,
    pub hz: u32,
    pub samples: u64,
    /// Samples missing or not whole since sampling began, by cause.
    pub lost: BTreeMap<String, u64>,
    processes: BTreeMap<ProcessId, Process>,
    names: KnownNames,
    stacks: usize,
    frames: usize,
}

/// One function, and how many samples it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub function: Arc<Function>,
    /// Samples with it on top of the stack.
    pub own: u64,
    /// Samples with it anywhere in the stack.
    pub total: u64,
}

/// A place whose name is still looked for.
static UNNAMED: LazyLock<Arc<Function>> =
    LazyLock::new(|| Arc::new(Function { name: None, module: "[not yet named]".into(), kernel: false }));

/// A sample without a known frame.
static NOWHERE: LazyLock<Arc<Function>> =
    LazyLock::new(|| Arc::new(Function { name: None, module: "[no stack]".into(), kernel: false }));

impl Profile {
    /// Adds what came.
    pub fn add(&mut self, news: StackBatch) {
        (self.event, self.hz, self.lost) = (news.event, news.hz, news.lost);
        self.names.extend(news.names);
        for stack in &news.stacks {
            self.count(stack);
        }
    }

    fn count(&mut self, stack: &Stack) {
        let process = self.processes.entry(stack.process).or_insert_with(|| Process {
            comm: stack.comm,
            cgroup_id: stack.cgroup_id,
            samples: 0,
            stacks: HashMap::new(),
        });
        (process.comm, process.cgroup_id) = (stack.comm, stack.cgroup_id);
        // A recording may say anything.
        process.samples = process.samples.saturating_add(stack.samples);
        self.samples = self.samples.saturating_add(stack.samples);
        let mut places: Box<[CodePlace]> = stack.places().collect();
        let is_full = self.stacks >= STACKS_MAX || self.frames + places.len() > FRAMES_MAX;
        if is_full && !process.stacks.contains_key(&places) {
            places = places.first().copied().into_iter().collect();
            if self.stacks >= TOPS_MAX && !process.stacks.contains_key(&places) {
                places = Box::default();
            }
        }
        let (known, frames) = (process.stacks.len(), places.len());
        let count = process.stacks.entry(places).or_insert(0);
        *count = count.saturating_add(stack.samples);
        let new = process.stacks.len() - known;
        self.stacks += new;
        self.frames += new * frames;
    }

    /// Forgets all samples; names stay.
    pub fn restart(&mut self) {
        self.processes.clear();
        (self.samples, self.stacks, self.frames) = (0, 0, 0);
    }

    pub fn processes(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().map(|(id, process)| (*id, process))
    }

    /// Stacks of the processes that `wanted` chooses, named, innermost first, and the number of samples of
    /// each.
    pub fn stacks<'a>(
        &'a self,
        wanted: &'a dyn Fn(ProcessId, &Process) -> bool,
    ) -> impl Iterator<Item = (Vec<Arc<Function>>, u64)> + 'a {
        let chosen = self.processes.iter().filter(|(id, process)| wanted(**id, process));
        chosen.flat_map(|(_, process)| &process.stacks).map(|(places, count)| (self.name(places), *count))
    }

    fn name(&self, places: &[CodePlace]) -> Vec<Arc<Function>> {
        if places.is_empty() {
            return vec![Arc::clone(&NOWHERE)];
        }
        places.iter().map(|place| Arc::clone(self.names.get(place).unwrap_or(&UNNAMED))).collect()
    }

    /// The functions of the processes that `wanted` chooses, most samples first.
    pub fn spots(&self, wanted: &dyn Fn(ProcessId, &Process) -> bool) -> Vec<Spot> {
        let mut counts: BTreeMap<Arc<Function>, (u64, u64)> = BTreeMap::new();
        for (stack, count) in self.stacks(wanted) {
            if let Some(top) = stack.first() {
                counts.entry(Arc::clone(top)).or_default().0 += count;
            }
            // One that calls itself is in the sample once.
            for function in stack.into_iter().collect::<BTreeSet<_>>() {
                counts.entry(function).or_default().1 += count;
            }
        }
        let mut spots: Vec<Spot> =
            counts.into_iter().map(|(function, (own, total))| Spot { function, own, total }).collect();
        spots.sort_by_key(|spot| std::cmp::Reverse((spot.own, spot.total)));
        spots
    }
}

/// Share of `part` in `whole` samples in percent, and half the width of its 95 % interval after Wilson
/// (1927). That interval is right for few samples too. `None` without samples.
pub fn share(part: u64, whole: u64) -> Option<(f64, f64)> {
    wilson(part as f64, whole as f64)
}

/// The end of the stacks that is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Below a function is what it calls.
    Callees,
    /// Below a function is who calls it.
    Callers,
}

/// A function in the context of the path that leads to it.
#[derive(Clone, Debug)]
pub struct Node {
    pub function: Arc<Function>,
    /// Samples whose stack has this path.
    pub samples: u64,
    /// Indexes into [`Tree::nodes`], most samples first.
    pub children: Vec<usize>,
}

/// Nodes by index, and which of them are roots, most samples first.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<Node>,
    pub roots: Vec<usize>,
}

impl Tree {
    /// The tree of `stacks`: innermost first, with the number of samples of each.
    pub fn build(stacks: impl Iterator<Item = (Vec<Arc<Function>>, u64)>, direction: Direction) -> Tree {
        let mut tree = Tree::default();
        let mut index: HashMap<(Option<usize>, Arc<Function>), usize> = HashMap::new();
        for (mut stack, count) in stacks {
            if direction == Direction::Callees {
                stack.reverse();
            }
            let mut parent = None;
            for function in stack {
                let at = *index.entry((parent, Arc::clone(&function))).or_insert_with(|| {
                    tree.nodes.push(Node { function, samples: 0, children: Vec::new() });
                    let at = tree.nodes.len() - 1;
                    match parent {
                        Some(parent) => tree.nodes[parent].children.push(at),
                        None => tree.roots.push(at),
                    }
                    at
                });
                tree.nodes[at].samples += count;
                parent = Some(at);
            }
        }
        let key =
            |nodes: &[Node], at: &usize| (std::cmp::Reverse(nodes[*at].samples), nodes[*at].function.clone());
        let mut roots = std::mem::take(&mut tree.roots);
        roots.sort_by_cached_key(|at| key(&tree.nodes, at));
        tree.roots = roots;
        for at in 0..tree.nodes.len() {
            let mut children = std::mem::take(&mut tree.nodes[at].children);
            children.sort_by_cached_key(|child| key(&tree.nodes, child));
            tree.nodes[at].children = children;
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::Frame;

    fn stack(pid: u32, frames: &[u64]) -> Stack {
        let frames = frames.iter().map(|address| Frame::Kernel(*address)).collect();
        Stack { process: (pid, 1), tid: pid, cgroup_id: 5, comm: Comm::new("x"), samples: 1, frames }
    }

    fn name(address: u64, name: &str) -> (CodePlace, Arc<Function>) {
        let function = Function { name: Some(name.into()), module: "kernel".into(), kernel: true };
        (CodePlace::Kernel(address), Arc::new(function))
    }

    #[test]
    fn a_function_that_calls_itself_is_in_a_sample_once() {
        let mut profile = Profile::default();
        let names = vec![name(1, "f"), name(2, "f"), name(9, "main")];
        profile.add(StackBatch { stacks: vec![stack(7, &[1, 3, 10])], names, ..StackBatch::default() });
        let spots = profile.spots(&|_, _| true);
        let of = |name: &str| spots.iter().find(|spot| spot.function.to_string() == name).unwrap();
        assert_eq!((of("f").own, of("f").total), (1, 1));
        assert_eq!((of("main").own, of("main").total), (0, 1));
    }

    #[test]
    fn names_may_come_later() {
        let mut profile = Profile::default();
        profile.add(StackBatch { stacks: vec![stack(7, &[1])], ..StackBatch::default() });
        assert_eq!(profile.spots(&|_, _| true)[0].function.name, None);
        profile.add(StackBatch { names: vec![name(1, "f")], ..StackBatch::default() });
        assert_eq!(profile.spots(&|_, _| true)[0].function.to_string(), "f");
    }

    #[test]
    fn too_many_different_stacks_keep_their_tops() {
        let mut profile = Profile::default();
        let many = (0..STACKS_MAX as u64 + 500).map(|caller| stack(7, &[1, caller + 10])).collect();
        profile.add(StackBatch { stacks: many, names: vec![name(1, "f")], ..StackBatch::default() });
        let spots = profile.spots(&|_, _| true);
        assert_eq!((spots[0].own, profile.samples), (STACKS_MAX as u64 + 500, STACKS_MAX as u64 + 500));
        assert!(profile.stacks <= STACKS_MAX + 1);
    }

    #[test]
    fn stacks_of_random_frames_take_bounded_memory() {
        let mut profile = Profile::default();
        let random = |at: u64| (0..64).map(|frame| (at << 8) + frame).collect::<Vec<u64>>();
        let all = TOPS_MAX as u64 + 1000;
        let many = (0..all).map(|at| stack(7, &random(at)));
        many.for_each(|stack| profile.count(&stack));
        let kept: usize = profile
            .processes
            .values()
            .flat_map(|process| process.stacks.keys())
            .map(|places| places.len())
            .sum();
        assert!(kept <= FRAMES_MAX + TOPS_MAX, "{kept} frames");
        assert_eq!((profile.stacks, profile.samples), (TOPS_MAX + 1, all));
    }

    #[test]
    fn processes_are_told_apart_and_a_restart_forgets_them() {
        let mut profile = Profile::default();
        let stacks = vec![stack(7, &[1]), stack(8, &[1]), stack(8, &[])];
        profile.add(StackBatch { stacks, names: vec![name(1, "f")], ..StackBatch::default() });
        assert_eq!(profile.spots(&|id, _| id.0 == 7).len(), 1);
        let of_8 = profile.spots(&|id, _| id.0 == 8);
        assert!(of_8.iter().any(|spot| spot.function.module == "[no stack]" && spot.own == 1), "{of_8:?}");
        profile.restart();
        assert!(profile.spots(&|_, _| true).is_empty());
    }

    #[test]
    fn shares_have_an_error_that_shrinks() {
        assert_eq!(share(0, 0), None);
        let (few, wide) = share(6, 10).unwrap();
        let (many, narrow) = share(6000, 10000).unwrap();
        assert_eq!((few, many), (60.0, 60.0));
        assert!((25.0..28.0).contains(&wide) && (0.9..1.0).contains(&narrow), "{wide} {narrow}");
        assert!(share(0, 10).unwrap().1 > 10.0, "none of ten is not never");
    }

    fn stack_of_tree(names: &[&str], count: u64) -> (Vec<Arc<Function>>, u64) {
        let function = |name: &&str| {
            Arc::new(Function { name: Some(name.to_string()), module: "m".into(), kernel: false })
        };
        (names.iter().map(function).collect(), count)
    }

    fn text(tree: &Tree, at: usize) -> String {
        let node = &tree.nodes[at];
        let below: Vec<String> = node.children.iter().map(|child| text(tree, *child)).collect();
        format!("{}:{}[{}]", node.function, node.samples, below.join(" "))
    }

    #[test]
    fn callees_hang_below_main_and_callers_below_the_hot_one() {
        let stacks = || {
            [
                stack_of_tree(&["hot", "a", "main"], 6),
                stack_of_tree(&["hot", "b", "main"], 3),
                stack_of_tree(&["b", "main"], 1),
            ]
        };
        let tree = Tree::build(stacks().into_iter(), Direction::Callees);
        assert_eq!(text(&tree, tree.roots[0]), "main:10[a:6[hot:6[]] b:4[hot:3[]]]");
        let tree = Tree::build(stacks().into_iter(), Direction::Callers);
        let roots: Vec<String> = tree.roots.iter().map(|root| text(&tree, *root)).collect();
        assert_eq!(roots, ["hot:9[a:6[main:6[]] b:3[main:3[]]]", "b:1[main:1[]]"]);
    }
}
