//! Stacks as a recording keeps them: each interval on its own, with all names that are known of its places. Names that came
//! once and may be needed again are kept in a bounded number of bytes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::model::stacks::{CodePlace, Function, Stack, StackBatch};

/// The cause under which stacks are counted that were too many for one interval.
const TOO_MANY: &str = "stacks_not_recorded";

/// The cause under which places are counted whose names were too many for one interval.
const TOO_MANY_NAMES: &str = "names_not_recorded";

/// Frames that a recording has of one interval, half a megabyte of addresses: three thousand different stacks of twenty
/// frames have fewer.
pub const FRAMES_MAX: usize = 1 << 16;

/// Bytes of names that a recording has of one interval: some 3,000 functions. A process that makes up functions as it
/// runs would fill a ring with them.
const NAME_BYTES_MAX: usize = 256 << 10;

/// Remembers names, because they come once, and maybe later than the stacks they belong to.
#[derive(Debug, Default)]
pub struct FrameNames {
    names: KnownNames,
    dropped: u64,
    unnamed: u64,
}

impl FrameNames {
    /// `news` with equal stacks counted and at most `most` frames, and the names of their places as far as
    /// they are known and fit. Stacks and functions with more samples come first.
    pub fn complete(&mut self, news: &StackBatch, most: usize) -> StackBatch {
        self.names.extend(news.names.iter().cloned());
        let mut stacks = counted(news.stacks.clone());
        if stacks.iter().map(|stack| stack.frames.len()).sum::<usize>() > most {
            let mut room = most;
            stacks.sort_by_key(|stack| std::cmp::Reverse(stack.samples));
            stacks.retain(|stack| {
                let fits = stack.frames.len() <= room;
                room -= if fits { stack.frames.len() } else { 0 };
                self.dropped += if fits { 0 } else { stack.samples };
                fits
            });
            stacks.sort();
        }
        let places = stacks.iter().flat_map(Stack::places).chain(news.names.iter().map(|(place, _)| *place));
        let named = places.filter_map(|place| Some((place, self.names.get(&place)?)));
        let mut names: BTreeMap<CodePlace, &Arc<Function>> = named.collect();
        let all = names.len();
        let chosen = seen_most(&stacks, &names);
        names.retain(|_, function| chosen.contains(*function));
        self.unnamed += (all - names.len()) as u64;
        let mut lost = news.lost.clone();
        if self.dropped > 0 {
            lost.insert(TOO_MANY.into(), self.dropped);
        }
        if self.unnamed > 0 {
            lost.insert(TOO_MANY_NAMES.into(), self.unnamed);
        }
        let names = names.into_iter().map(|(place, function)| (place, Arc::clone(function))).collect();
        StackBatch { event: news.event.clone(), hz: news.hz, stacks, names, lost }
    }
}

/// The functions with most samples whose names have room.
fn seen_most(stacks: &[Stack], names: &BTreeMap<CodePlace, &Arc<Function>>) -> HashSet<Arc<Function>> {
    let mut samples: HashMap<&Arc<Function>, u64> = names.values().map(|function| (*function, 0)).collect();
    for stack in stacks {
        for function in stack.places().filter_map(|place| names.get(&place)) {
            let count = samples.entry(function).or_default();
            *count = count.saturating_add(stack.samples);
        }
    }
    let mut functions: Vec<(&Arc<Function>, u64)> = samples.into_iter().collect();
    functions.sort_by_key(|(function, samples)| (std::cmp::Reverse(*samples), *function));
    let mut room = NAME_BYTES_MAX;
    let mut fits = |function: &Function| {
        let bytes = function.name.as_ref().map_or(0, String::len) + function.module.len();
        room.checked_sub(bytes).map(|left| room = left).is_some()
    };
    functions
        .into_iter()
        .map(|(function, _)| Arc::clone(function))
        .filter(|function| fits(function))
        .collect()
}

/// Equal stacks of a task once, with their number.
fn counted(mut stacks: Vec<Stack>) -> Vec<Stack> {
    let key = |stack: &Stack| (stack.process, stack.tid, stack.cgroup_id, stack.comm);
    stacks.sort_by(|a, b| (key(a), &a.frames).cmp(&(key(b), &b.frames)));
    stacks.dedup_by(|later, first| {
        let same = (key(later), &later.frames) == (key(first), &first.frames);
        first.samples += if same { later.samples } else { 0 };
        same
    });
    stacks
}

/// Places whose names are kept, by the part that shows them and by the part that records them.
const PLACES_MAX: usize = 100_000;

/// Bytes of their names: twice the `ALL_MAX` of `symbolize/ledger.rs`, so that only a recording may have
/// more. Two sets of names may be in use when places are asked for again.
const BYTES_MAX: usize = 32 << 20;

/// Names by place. Places of one function share it. When room runs out all are forgotten; a recording repeats
/// names.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    names: HashMap<CodePlace, Arc<Function>>,
    functions: HashSet<Arc<Function>>,
    bytes: usize,
}

impl KnownNames {
    /// Adds names; for a place that has one already, the new one counts.
    pub fn extend(&mut self, names: impl IntoIterator<Item = (CodePlace, Arc<Function>)>) {
        for (place, function) in names {
            let shared = self.functions.get(&function).cloned();
            let more = if shared.is_some() { 0 } else { function.bytes() };
            if self.names.len() >= PLACES_MAX || self.bytes + more > BYTES_MAX {
                *self = KnownNames::default();
            }
            let function = shared.unwrap_or(function);
            if self.functions.insert(Arc::clone(&function)) {
                self.bytes += function.bytes();
            }
            self.names.insert(place, function);
        }
    }

    /// The name of a place.
    pub fn get(&self, place: &CodePlace) -> Option<&Arc<Function>> {
        self.names.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Comm;
    use crate::model::stacks::Frame;

    fn stack(tid: u32, frames: &[u64]) -> Stack {
        let frames = frames.iter().map(|address| Frame::Kernel(*address)).collect();
        Stack { process: (1, 2), tid, cgroup_id: 3, comm: Comm::new("x"), samples: 1, frames }
    }

    fn function(name: &str) -> Arc<Function> {
        Arc::new(Function { name: Some(name.into()), module: "kernel".into(), kernel: true })
    }

    #[test]
    fn names_that_are_too_many_are_those_with_few_samples() {
        let mut book = FrameNames::default();
        let long = |at: u64| (CodePlace::Kernel(at), function(&format!("{at:0390}")));
        let mut stacks: Vec<Stack> = (0..1000).map(|at| stack(1, &[at])).collect();
        stacks.push(Stack { samples: 50, ..stack(2, &[9999]) });
        let names = (0..1000).chain([9999]).map(long).collect();
        let kept = book.complete(&StackBatch { stacks, names, ..StackBatch::default() }, FRAMES_MAX);
        let bytes: usize = kept.names.iter().map(|(_, function)| function.to_string().len()).sum();
        assert!(bytes <= NAME_BYTES_MAX && bytes > NAME_BYTES_MAX / 2, "{bytes} bytes");
        assert!(kept.names.iter().any(|(place, _)| *place == CodePlace::Kernel(9999)));
        assert_eq!(kept.lost[TOO_MANY_NAMES], 1001 - kept.names.len() as u64);
        assert_eq!(kept.stacks.len(), 1001);
    }

    #[test]
    fn equal_stacks_are_counted_and_named_in_each_interval() {
        let mut book = FrameNames::default();
        let first = StackBatch {
            stacks: vec![stack(1, &[5]), stack(2, &[5]), stack(1, &[5])],
            names: vec![(CodePlace::Kernel(5), function("five")), (CodePlace::Kernel(9), function("nine"))],
            ..StackBatch::default()
        };
        let kept = book.complete(&first, 100);
        assert_eq!(kept.stacks, [Stack { samples: 2, ..stack(1, &[5]) }, stack(2, &[5])]);
        assert_eq!(kept.names, first.names);
        let second = StackBatch { stacks: vec![stack(1, &[5])], ..StackBatch::default() };
        assert_eq!(book.complete(&second, 100).names, [(CodePlace::Kernel(5), function("five"))]);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut book = FrameNames::default();
        let news = StackBatch { stacks: vec![stack(1, &[1, 2, 3]), stack(1, &[4])], ..StackBatch::default() };
        let kept = book.complete(&news, 2);
        assert_eq!(kept.stacks, [stack(1, &[4])]);
        assert_eq!(kept.lost, [(TOO_MANY.to_string(), 1)].into());
    }

    fn known_function(name: String) -> Arc<Function> {
        Arc::new(Function { name: Some(name), module: "[jit]".into(), kernel: false })
    }

    #[test]
    fn names_of_many_places_take_bounded_memory() {
        let mut known = KnownNames::default();
        for at in 0..50_000_u64 {
            known.extend([(CodePlace::Address((1, 1), at), known_function(format!("{at:04000}")))]);
            assert!(known.bytes <= BYTES_MAX);
        }
        let bytes: usize = known.names.values().map(|function| function.bytes()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn places_of_one_function_share_it() {
        let mut known = KnownNames::default();
        known.extend((0..1000).map(|at| (CodePlace::Kernel(at), known_function("f".repeat(4000)))));
        assert_eq!(known.bytes, known_function("f".repeat(4000)).bytes());
        assert!(Arc::ptr_eq(
            known.get(&CodePlace::Kernel(1)).unwrap(),
            known.get(&CodePlace::Kernel(999)).unwrap()
        ));
    }
}
