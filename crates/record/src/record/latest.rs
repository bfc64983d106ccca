//! Rows of the sample that a delta builds on, after a jump, when no sample near it was read. A jump goes through the deltas behind
//! it from the last one back to the keyframe, and reads the latest version of each row only. Pure.

use std::cmp::Ordering;
use std::sync::Arc;

use super::columns::{self, Cells, Layout};
use super::limits;
use super::payload::Base;
use super::payload::Room;
use super::rows::{self, Listed};
use super::varint::{Bytes, Malformed};
use crate::model::sample::TaskRaw;

/// Rows of tasks by serial; `None` for a task that is gone, or whose row is elsewhere.
type Decided = Vec<(u64, Option<Arc<TaskRaw>>)>;

/// Rows whose latest version is known.
pub struct Latest(Decided);

impl Latest {
    /// Nothing is needed of the tasks that `listed` has something about: a delta that is read by itself.
    pub(super) fn before(listed: &Listed) -> Latest {
        let mut decided: Decided =
            listed.serials.iter().chain(&listed.gone).map(|serial| (*serial, None)).collect();
        decided.sort_unstable_by_key(|(serial, _)| *serial);
        decided.dedup_by_key(|(serial, _)| *serial);
        Latest(decided)
    }

    /// With the rows of a delta further back, which are the rest of `input`, unless a later one has them.
    ///
    /// # Errors
    /// The bytes are not rows, or they need more memory than `room`.
    pub(super) fn add(
        &mut self,
        listed: &Listed,
        mut input: Bytes<'_>,
        layout: &Layout<TaskRaw>,
        key: &[Arc<TaskRaw>],
        room: &mut Room,
    ) -> Result<(), Malformed> {
        let bases = rows::bases(key, &listed.serials);
        limits::take_rows::<TaskRaw>(room, listed.serials.len())?;
        let news = self.unknown(&listed.serials);
        let mut wanted = news.clone();
        columns::with_needed(&mut wanted, &bases);
        let mut cells = Cells::of(&mut input, layout, listed.serials.len())?;
        input.finish()?;
        let (mut found, mut before) = (Vec::new(), Arc::default());
        for (i, serial) in listed.serials.iter().enumerate() {
            cells.advance()?;
            if !wanted[i] {
                continue;
            }
            before = Arc::new(cells.make(bases[i].map(|at| &*key[at]), &before, room)?);
            if before.serial != *serial {
                return Err(Malformed("a row does not match its id"));
            }
            if news[i] {
                found.push((*serial, Some(Arc::clone(&before))));
            }
        }
        cells.finish()?;
        let gone = listed.gone.iter().zip(self.unknown(&listed.gone)).filter(|(_, new)| *new);
        let gone = gone.map(|(serial, _)| (*serial, None)).collect();
        let before = std::mem::take(&mut self.0);
        // A task with a row is not gone.
        self.0 = merged(merged(before, found), gone);
        // All of them are in the sample that is built.
        rows::check_count(self.0.iter().filter(|(_, row)| row.is_some()).count())
    }

    /// The serials about which nothing is known yet; both are in their order.
    fn unknown(&self, serials: &[u64]) -> Vec<bool> {
        let mut known = self.0.iter().map(|(serial, _)| *serial).peekable();
        let is_new = |serial: &u64| {
            while known.next_if(|known| known < serial).is_some() {}
            known.peek() != Some(serial)
        };
        serials.iter().map(is_new).collect()
    }

    /// All rows: the known ones, and for the rest those of the sample that the deltas build on.
    pub(super) fn over(self, base: Base<'_>) -> Vec<Arc<TaskRaw>> {
        let base = base.tasks.iter().map(|task| (task.serial, Some(Arc::clone(task)))).collect();
        merged(self.0, base).into_iter().filter_map(|(_, row)| row).collect()
    }
}

/// Both, in the order of serials; `first` wins.
fn merged(first: Decided, second: Decided) -> Decided {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    loop {
        let next = match (first.peek(), second.peek()) {
            (Some((one, _)), Some((other, _))) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return all,
        };
        if next == Ordering::Equal {
            second.next();
        }
        all.extend(if next == Ordering::Greater { second.next() } else { first.next() });
    }
}
