//! Stacks as a recording keeps them: each interval on its own, with all names that are known of its places.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::NAMES_MAX;
use crate::model::stacks::{Function, Place, Stack, StackBatch};

/// The cause under which stacks are counted that were too many for one interval.
const TOO_MANY: &str = "stacks_not_recorded";

/// Remembers names, because they come once, and maybe later than the stacks they belong to.
#[derive(Debug, Default)]
pub struct FrameNames {
    names: HashMap<Place, Arc<Function>>,
    dropped: u64,
}

impl FrameNames {
    /// `news` with equal stacks counted, the names of all of their places as far as they are known, and no more
    /// than `most` frames.
    pub fn complete(&mut self, news: &StackBatch, most: usize) -> StackBatch {
        if self.names.len() + news.names.len() > NAMES_MAX {
            self.names.clear();
        }
        self.names.extend(news.names.iter().map(|(place, function)| (*place, Arc::new(function.clone()))));
        let mut stacks = counted(news.stacks.clone());
        let mut room = most;
        stacks.retain(|stack| {
            let fits = stack.frames.len() <= room;
            room -= if fits { stack.frames.len() } else { 0 };
            self.dropped += if fits { 0 } else { stack.samples };
            fits
        });
        let places = stacks.iter().flat_map(Stack::places).chain(news.names.iter().map(|(place, _)| *place));
        let named = places.filter_map(|place| Some((place, self.names.get(&place)?)));
        let names: BTreeMap<Place, &Arc<Function>> = named.collect();
        let mut lost = news.lost.clone();
        if self.dropped > 0 {
            lost.insert(TOO_MANY.into(), self.dropped);
        }
        let names = names.into_iter().map(|(place, function)| (place, Function::clone(function))).collect();
        StackBatch { event: news.event.clone(), hz: news.hz, stacks, names, lost }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Comm;
    use crate::model::stacks::Frame;

    fn stack(tid: u32, frames: &[u64]) -> Stack {
        let frames = frames.iter().map(|address| Frame::Kernel(*address)).collect();
        Stack { process: (1, 2), tid, cgroup_id: 3, comm: Comm::new("x"), samples: 1, frames }
    }

    fn function(name: &str) -> Function {
        Function { name: Some(name.into()), module: "kernel".into(), kernel: true }
    }

    #[test]
    fn equal_stacks_are_counted_and_named_in_each_interval() {
        let mut book = FrameNames::default();
        let first = StackBatch {
            stacks: vec![stack(1, &[5]), stack(2, &[5]), stack(1, &[5])],
            names: vec![(Place::Kernel(5), function("five")), (Place::Kernel(9), function("nine"))],
            ..StackBatch::default()
        };
        let kept = book.complete(&first, 100);
        assert_eq!(kept.stacks, [Stack { samples: 2, ..stack(1, &[5]) }, stack(2, &[5])]);
        assert_eq!(kept.names, first.names);
        let second = StackBatch { stacks: vec![stack(1, &[5])], ..StackBatch::default() };
        assert_eq!(book.complete(&second, 100).names, [(Place::Kernel(5), function("five"))]);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut book = FrameNames::default();
        let news = StackBatch { stacks: vec![stack(1, &[1, 2, 3]), stack(1, &[4])], ..StackBatch::default() };
        let kept = book.complete(&news, 2);
        assert_eq!(kept.stacks, [stack(1, &[4])]);
        assert_eq!(kept.lost, [(TOO_MANY.to_string(), 1)].into());
    }
}
