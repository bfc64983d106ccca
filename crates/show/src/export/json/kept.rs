//! Values of the last interval that a reader of the short form holds. The writer keeps the same.

use std::collections::HashMap;

use crate::snapshot::IdHash;

/// Values by row, of the last interval and of the one that is being written. A row has texts, of columns that hold, and marks, of
/// columns whose value is `null`.
#[derive(Debug, Default)]
pub(super) struct Kept {
    before: Generation,
    now: Generation,
    /// Texts and words of marks of a row.
    texts: usize,
    words: usize,
}

#[derive(Debug, Default)]
struct Generation {
    rows: HashMap<u64, At, IdHash>,
    bytes: Vec<u8>,
    /// Of each text of each row: an empty one is not held.
    lengths: Vec<u32>,
    nulls: Vec<u64>,
}

/// The place of a row.
#[derive(Clone, Copy, Debug)]
struct At {
    number: usize,
    byte: usize,
}

/// A row of the last interval, whose texts are read in the order in which they were kept.
#[derive(Debug, Default)]
pub(super) struct Before<'a> {
    bytes: &'a [u8],
    lengths: &'a [u32],
    nulls: &'a [u64],
}

/// A row of this interval.
#[derive(Debug)]
pub(super) struct Now<'a>(&'a mut Generation, usize);

impl Kept {
    /// Of rows with so many texts and marks.
    pub(super) fn new(texts: usize, marks: usize) -> Kept {
        Kept { texts, words: marks.div_ceil(64), ..Kept::default() }
    }

    /// Forgets all rows but those written since the last turn, which are those of the last interval from now on.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
    }

    /// Begins a row: as it was, if there was such a row, and as it will be. Of several with one key the last remains.
    pub(super) fn row(&mut self, key: u64) -> (Before<'_>, Now<'_>) {
        let before = match self.before.rows.get(&key) {
            None => Before::default(),
            Some(At { number, byte }) => Before {
                bytes: &self.before.bytes[*byte..],
                lengths: &self.before.lengths[number * self.texts..][..self.texts],
                nulls: &self.before.nulls[number * self.words..][..self.words],
            },
        };
        let number = self.now.nulls.len().checked_div(self.words).unwrap_or(0);
        self.now.rows.insert(key, At { number, byte: self.now.bytes.len() });
        let begin = self.now.nulls.len();
        self.now.nulls.resize(begin + self.words, 0);
        (before, Now(&mut self.now, begin))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.before.clear();
        self.now.clear();
    }
}

impl Generation {
    fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
        self.lengths.clear();
        self.nulls.clear();
    }
}

impl<'a> Before<'a> {
    /// The next text; `None` where none is held.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let (length, lengths) = self.lengths.split_first()?;
        let (text, bytes) = self.bytes.split_at(*length as usize);
        (self.lengths, self.bytes) = (lengths, bytes);
        (!text.is_empty()).then_some(text)
    }

    /// Whether the value of this column is held as `null`.
    pub(super) fn is_null(&self, column: usize) -> bool {
        self.nulls.get(column / 64).is_some_and(|word| word >> (column % 64) & 1 == 1)
    }
}

impl Now<'_> {
    /// Keeps the next text; an empty one is not held.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.0.bytes.extend(text);
        self.0.lengths.push(text.len() as u32);
    }

    /// Marks the value of this column as `null`.
    pub(super) fn null(&mut self, column: usize) {
        self.0.nulls[self.1 + column / 64] |= 1 << (column % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_held_for_one_interval() {
        let mut kept = Kept::new(2, 70);
        let (mut before, mut now) = kept.row(7);
        assert_eq!((before.text(), before.is_null(69)), (None, false));
        now.text(b"a");
        now.text(b"");
        now.null(69);
        let (_, mut now) = kept.row(8);
        now.text(b"b");
        now.text(b"c");
        kept.turn();
        let (mut before, _) = kept.row(8);
        assert_eq!(
            (before.text(), before.text(), before.is_null(69)),
            (Some(&b"b"[..]), Some(&b"c"[..]), false)
        );
        let (mut before, _) = kept.row(7);
        assert_eq!((before.text(), before.text()), (Some(&b"a"[..]), None));
        assert!(before.is_null(69) && !before.is_null(5));
        kept.turn();
        kept.turn();
        assert_eq!(kept.row(7).0.text(), None);
    }
}
