//! The selected row of a list, and the part of the list in view.

use crate::tui::input::Motion;

/// Rows that one turn of the wheel moves.
const WHEEL: usize = 3;

/// The selection follows the selected row, not its place. Before anything is selected by hand it is the row
/// at the top, whichever that is.
#[derive(Clone, Debug, Default)]
pub struct Cursor<K> {
    selected: Option<K>,
    at: usize,
    offset: usize,
}

impl<K: Copy + PartialEq> Cursor<K> {
    pub fn new() -> Cursor<K> {
        Cursor { selected: None, at: 0, offset: 0 }
    }

    /// Index of the selected row; meaningless in an empty list.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Index of the first row in view.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The selection by hand.
    pub fn selected(&self) -> Option<K> {
        self.selected
    }

    /// Finds the selected row again after the list changed. A row that is gone hands its place on.
    pub fn settle(&mut self, keys: &[K], height: usize) {
        let found = self.selected.and_then(|key| keys.iter().position(|other| *other == key));
        self.at = match (found, self.selected) {
            (Some(at), _) => at,
            (None, Some(_)) => self.at.min(keys.len().saturating_sub(1)),
            (None, None) => 0,
        };
        if self.selected.is_some() {
            self.selected = keys.get(self.at).copied().or(self.selected);
        }
        self.offset = self.offset.min(keys.len().saturating_sub(height));
    }

    /// Moves the selection, and the view with it; the wheel moves the view only.
    pub fn go(&mut self, motion: Motion, keys: &[K], height: usize) {
        let last = keys.len().saturating_sub(1);
        let page = height.saturating_sub(1).max(1);
        match motion {
            Motion::Up => self.select(self.at.saturating_sub(1), keys, height),
            Motion::Down => self.select((self.at + 1).min(last), keys, height),
            Motion::PageUp => self.select(self.at.saturating_sub(page), keys, height),
            Motion::PageDown => self.select((self.at + page).min(last), keys, height),
            Motion::First => self.select(0, keys, height),
            Motion::Last => self.select(last, keys, height),
            Motion::WheelUp => self.offset = self.offset.saturating_sub(WHEEL),
            Motion::WheelDown => {
                self.offset = (self.offset + WHEEL).min(keys.len().saturating_sub(height));
            }
        }
    }

    /// Selects the row at `at`, if it exists, and brings it into view.
    pub fn select(&mut self, at: usize, keys: &[K], height: usize) {
        if let Some(key) = keys.get(at) {
            self.at = at;
            self.selected = Some(*key);
        }
        self.reveal(height);
    }

    /// Brings the selected row into view.
    pub fn reveal(&mut self, height: usize) {
        self.offset = self.offset.clamp((self.at + 1).saturating_sub(height.max(1)), self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_follows_its_row() {
        let mut cursor = Cursor::new();
        cursor.go(Motion::Down, &['a', 'b', 'c'], 2);
        cursor.settle(&['b', 'c', 'a'], 2);
        assert_eq!((cursor.at(), cursor.selected()), (0, Some('b')));
    }

    #[test]
    fn a_row_that_ends_hands_its_place_on() {
        let mut cursor = Cursor::new();
        cursor.go(Motion::Last, &['a', 'b', 'c'], 2);
        cursor.settle(&['a', 'b'], 2);
        assert_eq!((cursor.at(), cursor.selected()), (1, Some('b')));
        cursor.settle(&[], 2);
        assert_eq!(cursor.at(), 0);
    }

    #[test]
    fn before_a_choice_the_top_row_is_selected() {
        let mut cursor = Cursor::new();
        cursor.settle(&['a', 'b'], 2);
        cursor.settle(&['b', 'a'], 2);
        assert_eq!((cursor.at(), cursor.selected()), (0, None));
    }

    #[test]
    fn the_view_goes_where_the_selection_goes() {
        let keys: Vec<u32> = (0..100).collect();
        let mut cursor = Cursor::new();
        cursor.go(Motion::PageDown, &keys, 10);
        cursor.go(Motion::PageDown, &keys, 10);
        assert_eq!((cursor.at(), cursor.offset()), (18, 9));
        cursor.go(Motion::Last, &keys, 10);
        assert_eq!((cursor.at(), cursor.offset()), (99, 90));
        cursor.go(Motion::WheelUp, &keys, 10);
        assert_eq!((cursor.at(), cursor.offset()), (99, 87));
    }
}
