//! Table of stacks that were sampled.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::cells::RowGroup;
use super::column::{Stamp, columns};
use crate::model::process::ProcessId;
use crate::model::stacks::{CodePlace, Function, Stack, StackBatch};
use crate::text::{clean, clean_str};

/// A stack of a process, and its number of samples in the interval.
pub(super) struct HotRow {
    process: ProcessId,
    comm: String,
    event: Arc<str>,
    hz: u32,
    samples: u64,
    /// Outermost first.
    stack: Vec<Arc<str>>,
}

columns! {
    pub(super) HOT of HotRow: row => {
        "pid" Int row.process.0;
        "start_ns" Int row.process.1;
        "comm" Text row.comm.as_str();
        "event" Text &*row.event;
        "hz" Int row.hz;
        "samples" Int row.samples;
        "stack" List &row.stack[..];
    }
}

/// Adds the stacks of an interval, threads of a process together.
pub(super) fn add(stamp: &Stamp, batch: &StackBatch, rows: &mut RowGroup) {
    let mut frames = Frames {
        names: batch.names.iter().map(|(place, name)| (*place, name)).collect(),
        texts: HashMap::new(),
    };
    // In the order of processes and stacks, whatever the order of samples was.
    let mut sums: BTreeMap<(ProcessId, FrameTexts), (String, u64)> = BTreeMap::new();
    for stack in &batch.stacks {
        let (_, samples) =
            sums.entry((stack.process, frames.of(stack))).or_insert_with(|| (clean(stack.comm.bytes()), 0));
        *samples = samples.saturating_add(stack.samples);
    }
    let event: Arc<str> = clean_str(&batch.event).into();
    for ((process, stack), (comm, samples)) in sums {
        let row = HotRow { process, comm, event: Arc::clone(&event), hz: batch.hz, samples, stack };
        rows.push(stamp, HOT, &row);
    }
}

/// The frames of a stack, outermost first.
type FrameTexts = Vec<Arc<str>>;

/// Texts of frames, each made once.
struct Frames<'a> {
    names: HashMap<CodePlace, &'a Arc<Function>>,
    texts: HashMap<CodePlace, Arc<str>>,
}

impl Frames<'_> {
    fn of(&mut self, stack: &Stack) -> FrameTexts {
        let mut texts: FrameTexts = stack.places().map(|place| self.text(place)).collect();
        if texts.is_empty() {
            texts.push("? in [no stack]".into());
        }
        texts.reverse();
        texts
    }

    /// The function, with `_[k]` behind those of the kernel as flame graphs have it.
    fn text(&mut self, place: CodePlace) -> Arc<str> {
        let name = self.names.get(&place);
        let text = self.texts.entry(place).or_insert_with(|| match name {
            Some(function) if function.kernel => format!("{function}_[k]").into(),
            Some(function) => function.to_string().into(),
            None => "? in [not named]".into(),
        });
        Arc::clone(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::super::cells::Cells;
    use super::*;
    use crate::model::sample::Comm;
    use crate::model::stacks::Frame;

    #[test]
    fn stacks_of_a_process_are_added_up_and_begin_with_the_outermost() {
        let function =
            |name: &str, kernel| Arc::new(Function { name: Some(name.into()), module: "m".into(), kernel });
        let stack = |tid, frames: Vec<Frame>| Stack {
            process: (7, 1),
            tid,
            cgroup_id: 0,
            comm: Comm::new("x"),
            samples: 2,
            frames,
        };
        let both = || vec![Frame::Kernel(9), Frame::Address(5)];
        let batch = StackBatch {
            event: "cycles".into(),
            hz: 99,
            stacks: vec![
                stack(7, both()),
                stack(8, vec![Frame::Address(6)]),
                stack(8, both()),
                stack(9, vec![]),
            ],
            names: vec![
                (CodePlace::Kernel(9), function("read", true)),
                (CodePlace::Address((7, 1), 5), function("main", false)),
            ],
            ..StackBatch::default()
        };
        let stamp = Stamp { time_us: 0, interval_ns: None, hostname: "h".into(), boot_id: "b".into() };
        let mut rows = Table::Hot.rows();
        add(&stamp, &batch, &mut rows);
        let [.., Cells::Ints(samples), Cells::Lists(stacks)] = rows.cells() else { panic!("as above") };
        let texts = stacks.texts();
        let lists: Vec<Vec<&str>> =
            stacks.rows().map(|row| row.iter().map(|at| &*texts[*at as usize]).collect()).collect();
        assert_eq!(lists, [vec!["? in [no stack]"], vec!["? in [not named]"], vec!["main", "read_[k]"]]);
        assert_eq!(samples.values(), [2, 2, 4]);
    }
}
