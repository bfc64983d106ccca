//! Rows of a table while they are collected, column by column.
//!
//! A file of columns is written in groups of a hundred thousand rows, and the rows of all tables wait for
//! that at once. So numbers are kept as differences from the previous row, in as few bytes as they need, and
//! a text of many rows once.

use std::collections::HashMap;
use std::sync::Arc;

use super::column::{Column, ColumnKind, Get, STAMP, Stamp};
use crate::record::varint::{self, Bytes};

/// Rows of a group: engines read one at a time, and skip those whose least and most values do not fit.
pub const ROWS: usize = 131_072;

/// Maximum bytes of the rows of a group while they are collected, except for one interval: for rows with
/// texts that are all different.
pub const BYTES: usize = 24 << 20;

/// Numbers; some may be missing.
#[derive(Debug, Default)]
pub struct Ints {
    present: Vec<bool>,
    bytes: Vec<u8>,
    last: u64,
}

impl Ints {
    fn push(&mut self, value: Option<i64>) {
        self.present.push(value.is_some());
        if let Some(value) = value {
            varint::put(&mut self.bytes, varint::difference(value as u64, self.last));
            self.last = value as u64;
        }
    }

    /// Whether a row has a value.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// The values that there are.
    pub fn values(&self) -> Vec<i64> {
        let (mut bytes, mut last) = (Bytes(&self.bytes), 0);
        let present = self.present.iter().filter(|present| **present);
        present
            .map(|_| {
                let coded = bytes.number().expect("it was put there by push");
                last = varint::undo_difference(coded, last);
                last as i64
            })
            .collect()
    }
}

/// Values of a fixed size; some may be missing.
#[derive(Debug)]
pub struct Fixed<T> {
    present: Vec<bool>,
    values: Vec<T>,
}

impl<T: Copy> Fixed<T> {
    fn new() -> Fixed<T> {
        Fixed { present: Vec::new(), values: Vec::new() }
    }

    fn push(&mut self, value: Option<T>) {
        self.present.push(value.is_some());
        self.values.extend(value);
    }

    /// Whether a row has a value.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// The values that there are.
    pub fn values(&self) -> &[T] {
        &self.values
    }
}

/// Different texts, each once.
#[derive(Debug, Default)]
struct Names {
    at: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(at) = self.at.get(text) {
            return *at;
        }
        let (at, text): (u32, Arc<str>) = (self.texts.len() as u32, text.into());
        // Twice the pointer, the number, and the room of the table.
        self.bytes += text.len() + 64;
        self.at.insert(Arc::clone(&text), at);
        self.texts.push(text);
        at
    }
}

/// Texts; some may be missing.
#[derive(Debug, Default)]
pub struct Texts {
    names: Names,
    numbers: Vec<Option<u32>>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        // Most rows have the text of the row before.
        let last = self.numbers.last().copied().flatten();
        let same = last.filter(|last| text == Some(&*self.names.texts[*last as usize]));
        let number = same.or_else(|| text.map(|text| self.names.number(text)));
        self.numbers.push(number);
    }

    /// The different texts.
    pub fn texts(&self) -> &[Arc<str>] {
        &self.names.texts
    }

    /// The place of its text among them, by row.
    pub fn numbers(&self) -> &[Option<u32>] {
        &self.numbers
    }
}

/// Lists of texts.
#[derive(Debug, Default)]
pub struct Lists {
    names: Names,
    items: Vec<u32>,
    /// End of the list of each row in `items`.
    ends: Vec<usize>,
}

impl Lists {
    fn push(&mut self, list: &[Arc<str>]) {
        for text in list {
            let number = self.names.number(text);
            self.items.push(number);
        }
        self.ends.push(self.items.len());
    }

    /// The different texts.
    pub fn texts(&self) -> &[Arc<str>] {
        &self.names.texts
    }

    /// The places of the texts of each row among them.
    pub fn rows(&self) -> impl Iterator<Item = &[u32]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.items[begin..*end])
    }
}

/// The values of one column.
#[derive(Debug)]
pub enum Cells {
    /// Of [`ColumnKind::Int`] and [`ColumnKind::Time`].
    Ints(Ints),
    /// Of [`ColumnKind::Float`].
    Floats(Fixed<f64>),
    /// Of [`ColumnKind::Flag`].
    Flags(Fixed<bool>),
    /// Of [`ColumnKind::Text`].
    Texts(Texts),
    /// Of [`ColumnKind::List`].
    Lists(Lists),
}

impl Cells {
    fn new(kind: ColumnKind) -> Cells {
        match kind {
            ColumnKind::Int | ColumnKind::Time => Cells::Ints(Ints::default()),
            ColumnKind::Float => Cells::Floats(Fixed::new()),
            ColumnKind::Flag => Cells::Flags(Fixed::new()),
            ColumnKind::Text => Cells::Texts(Texts::default()),
            ColumnKind::List => Cells::Lists(Lists::default()),
        }
    }

    fn push<R>(&mut self, get: &Get<R>, row: &R) {
        match (self, get) {
            (Cells::Ints(cells), Get::Int(get) | Get::Time(get)) => cells.push(get(row)),
            (Cells::Ints(cells), Get::Listed(get, at)) => cells.push(get(row, *at)),
            (Cells::Floats(cells), Get::Float(get)) => cells.push(get(row)),
            (Cells::Flags(cells), Get::Flag(get)) => cells.push(get(row)),
            (Cells::Texts(cells), Get::Text(get)) => cells.push(get(row).as_deref()),
            (Cells::Lists(cells), Get::List(get)) => cells.push(get(row)),
            _ => unreachable!("they are made for the kinds of these columns"),
        }
    }

    /// Memory that they take, bytes.
    fn bytes(&self) -> usize {
        match self {
            Cells::Ints(cells) => cells.present.len() + cells.bytes.len(),
            Cells::Floats(cells) => cells.present.len() + 8 * cells.values.len(),
            Cells::Flags(cells) => cells.present.len() + cells.values.len(),
            Cells::Texts(cells) => cells.names.bytes + 8 * cells.numbers.len(),
            Cells::Lists(cells) => cells.names.bytes + 4 * cells.items.len() + 8 * cells.ends.len(),
        }
    }
}

/// Rows of one table that are written together.
#[derive(Debug)]
pub struct RowGroup {
    kinds: Vec<ColumnKind>,
    cells: Vec<Cells>,
    rows: usize,
}

impl RowGroup {
    pub(super) fn new(kinds: impl IntoIterator<Item = ColumnKind>) -> RowGroup {
        let kinds: Vec<ColumnKind> = kinds.into_iter().collect();
        RowGroup { cells: kinds.iter().copied().map(Cells::new).collect(), kinds, rows: 0 }
    }

    /// Adds a row with these columns behind those of `stamp`.
    pub(super) fn push<R>(&mut self, stamp: &Stamp, columns: &[Column<R>], row: &R) {
        debug_assert_eq!(self.cells.len(), STAMP.len() + columns.len(), "columns of another table");
        let (of_stamp, own) = self.cells.split_at_mut(STAMP.len());
        for (cells, column) in of_stamp.iter_mut().zip(STAMP) {
            cells.push(&column.get, stamp);
        }
        for (cells, column) in own.iter_mut().zip(columns) {
            cells.push(&column.get, row);
        }
        self.rows += 1;
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, in their order.
    pub fn cells(&self) -> &[Cells] {
        &self.cells
    }

    /// Whether it is to be written before more is added.
    pub fn is_full(&self) -> bool {
        self.rows >= ROWS || self.cells.iter().map(Cells::bytes).sum::<usize>() >= BYTES
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.cells = self.kinds.iter().copied().map(Cells::new).collect();
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::column::columns;
    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back_as_they_were(values in prop::collection::vec(prop::option::of(any::<i64>()), 0..50)) {
            let mut ints = Ints::default();
            values.iter().for_each(|value| ints.push(*value));
            let mut left = ints.values().into_iter();
            let back: Vec<Option<i64>> = ints.present().iter().map(|present| present.then(|| left.next().unwrap())).collect();
            prop_assert_eq!(back, values);
            prop_assert!(left.next().is_none());
        }
    }

    #[derive(Default)]
    struct Row {
        text: Option<String>,
        list: Vec<Arc<str>>,
    }

    columns! {
        ROW of Row: row => {
            "text" Text row.text.as_deref();
            "list" List &row.list[..];
        }
    }

    fn group() -> RowGroup {
        RowGroup::new(
            STAMP.iter().map(|column| column.get.kind()).chain(ROW.iter().map(|column| column.get.kind())),
        )
    }

    fn stamp() -> Stamp {
        Stamp { time_us: 5, interval_ns: None, hostname: "a".into(), boot_id: "b".into() }
    }

    #[test]
    fn a_text_is_kept_once() {
        let mut group = group();
        for text in [Some("x"), Some("x"), None, Some("y"), Some("x")] {
            let list = text.into_iter().map(Into::into).chain(["z".into()]).collect();
            group.push(&stamp(), ROW, &Row { text: text.map(Into::into), list });
        }
        let [.., Cells::Texts(texts), Cells::Lists(lists)] = group.cells() else { panic!("two columns") };
        assert_eq!(texts.numbers(), [Some(0), Some(0), None, Some(1), Some(0)]);
        assert_eq!(texts.texts().iter().map(|text| &**text).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(lists.rows().collect::<Vec<_>>(), [&[0, 1][..], &[0, 1], &[1], &[2, 1], &[0, 1]]);
        let Cells::Ints(lengths) = &group.cells()[1] else { panic!("numbers") };
        assert_eq!((group.rows(), lengths.values()), (5, vec![]));
    }

    #[test]
    fn rows_with_texts_of_their_own_fill_a_group_sooner() {
        let mut group = group();
        let mut rows = 0_u32;
        while !group.is_full() {
            let text = Some(format!("{rows:01000}"));
            group.push(&stamp(), ROW, &Row { text, ..Row::default() });
            rows += 1;
        }
        assert!((20_000..30_000).contains(&rows), "{rows}");
        group.clear();
        assert_eq!((group.rows(), group.is_full()), (0, false));
    }
}
