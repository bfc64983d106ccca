//! Frames over the sectors of a disk: how far back each looks, and where copies are due of frames that others
//! depend on. The loss of any one sector costs few samples, unreadable ones included. Pure.

use std::collections::VecDeque;
use std::ops::Range;

use super::format::{APART, LOSS, SECTOR};

/// Where the sector begins that has this byte.
fn sector(at: u64) -> u64 {
    at / SECTOR * SECTOR
}

/// The copy of a frame that is yet to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The sector after those of the frame itself.
    from: u64,
    /// Samples written since, and how many more may be. All of them are lost with the frame, and with the
    /// rest of its sector.
    since: u32,
    left: u32,
}

impl Due {
    /// With the next sample.
    pub(super) fn at_once() -> Due {
        Due { from: 0, since: APART, left: 0 }
    }

    /// Whether it may be written with a sample at `at`.
    pub(super) fn is_ready(&self, at: u64) -> bool {
        self.since >= APART && at >= self.from
    }

    /// Bytes that a sample at `at` must take, so that the copy can be written with the next one if it must.
    pub(super) fn least(&self, at: u64) -> usize {
        if self.left > 1 { 0 } else { self.from.saturating_sub(at) as usize }
    }

    /// One more sample was written.
    pub(super) fn count(&mut self) {
        self.since += 1;
        self.left = self.left.saturating_sub(1);
    }
}

/// Where the last frames with a sample are.
#[derive(Default)]
pub(super) struct Spread(VecDeque<Range<u64>>);

impl Spread {
    /// A frame with a sample was written.
    pub(super) fn push(&mut self, frame: Range<u64>) {
        // At most this many have a part in one sector.
        if self.0.len() > LOSS as usize {
            self.0.pop_front();
        }
        self.0.push_back(frame);
    }

    /// The number of them that end after `at`.
    fn after(&self, at: u64) -> u32 {
        self.0.iter().filter(|frame| frame.end > at).count() as u32
    }

    /// The due time of the copy of a frame that is written at `at` and ends at `end`, including a second
    /// frame right behind it.
    pub(super) fn due(&self, at: u64, end: u64) -> Due {
        let before = self.after(sector(at));
        let left = (LOSS - 1).saturating_sub(before).max(APART);
        Due { from: end.next_multiple_of(SECTOR), since: 0, left }
    }

    /// Samples that a delta at `at` looks back: more than may be lost while it is intact.
    pub(super) fn reach(&self, at: u64) -> u32 {
        match self.0.back() {
            Some(last) if last.start < sector(at) => 1 + self.after(sector(last.start)),
            _ => 1,
        }
    }

    /// The minimum length of the frame from `at` to `end` before a keyframe, so that not too many samples on
    /// both sides of the keyframe are lost with it.
    pub(super) fn least_before_key(&self, at: u64, end: u64) -> Option<usize> {
        let before = self.after(sector(end)) + u32::from(end > sector(end));
        (before + APART >= LOSS).then(|| (end.next_multiple_of(SECTOR) - at) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lens: &[u64]) -> (Spread, u64) {
        let (mut spread, mut at) = (Spread::default(), 0);
        for len in lens {
            spread.push(at..at + len);
            at += len;
        }
        (spread, at)
    }

    #[test]
    fn the_first_frame_of_a_sector_looks_back_beyond_the_one_before() {
        let (spread, at) = frames(&[600; 7]);
        // The seventh ends at 4200.
        assert_eq!(spread.reach(at), 8);
        assert_eq!(spread.reach(4000), 1);
        let (spread, at) = frames(&[3000, 3000, 3000]);
        assert_eq!(spread.reach(at), 3);
    }

    #[test]
    fn a_copy_is_in_another_sector_and_some_samples_later() {
        let (spread, at) = frames(&[600; 3]);
        let mut due = spread.due(at, at + 1000);
        assert!(!due.is_ready(5000));
        for _ in 0..APART {
            assert_eq!(due.least(at), 0);
            due.count();
        }
        assert!(due.is_ready(SECTOR) && !due.is_ready(SECTOR - 1));
        // Three samples before it in its sector, three after it.
        assert_eq!(due.least(SECTOR - 100), 100);
    }

    #[test]
    fn a_keyframe_begins_a_sector_where_too_much_would_be_before_it() {
        let (spread, at) = frames(&[600; 5]);
        assert_eq!(spread.least_before_key(at, at + 600), Some(SECTOR as usize - 3000));
        let (spread, at) = frames(&[1500; 1]);
        assert_eq!(spread.least_before_key(at, at + 1500), None);
    }
}
