//! Rows as columns of small numbers, and back. The columns are in `tables.rs`.
//!
//! Each number is written as its difference from the same field of a base: the row of the keyframe, or
//! without one the row before it. A column without differences takes one byte. So some columns are
//! differences of two fields (`a-b`) that change together.

mod tables;

use super::format::{self, ColumnInfo, MAX_CELLS, MAX_PAYLOAD};
use super::payload::Room;
use super::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::model::facility::Facility;
use crate::model::sample::{CpuRaw, NodeRaw, TaskRaw};

pub use tables::{cpu, node, task};

/// Cells of a field in a row.
enum Width<R> {
    Fixed(usize),
    Of(fn(&R) -> usize),
}

impl<R> Width<R> {
    /// Cells in the widest of `rows`.
    fn of<'a>(&self, mut rows: impl Iterator<Item = &'a R>) -> usize
    where
        R: 'a,
    {
        match self {
            Width::Fixed(cells) => rows.next().map_or(0, |_| *cells),
            Width::Of(cells) => rows.map(cells).max().unwrap_or(0),
        }
    }

    /// Cells in each of `count` rows that are written in `cells`.
    fn written(&self, cells: &Bytes<'_>, count: usize) -> Result<usize, Malformed> {
        match self {
            Width::Fixed(width) => Ok(*width),
            Width::Of(_) => {
                let cells = cells.numbers();
                let width = cells.checked_div(count).filter(|width| width * count == cells);
                width.ok_or(Malformed("a column has cells for only some of its rows"))
            }
        }
    }
}

/// One field of rows of type `R`.
pub struct Column<R> {
    name: &'static str,
    unit: &'static str,
    width: Width<R>,
    /// The index of `get` and `set` for the first value; the others follow.
    first: usize,
    get: fn(&R, usize) -> u64,
    /// Takes a value back. Bytes of memory it took beside the row, or `None` when no such value can be.
    set: fn(&mut R, usize, u64) -> Option<usize>,
    /// No other column changes its cells: a row that equals its base there is complete.
    own: bool,
    /// The facility without which recordings lack it. `None`: every recording has this column.
    added_for: Option<Facility>,
}

impl<R> Column<R> {
    /// Marks a column that older recordings lack. They are still read: its numbers stay zero, and the metrics
    /// that need the facility have no value.
    #[must_use]
    pub fn added_for(self, facility: Facility) -> Column<R> {
        Column { added_for: Some(facility), ..self }
    }
}

/// Rows that can start from nothing.
pub trait Row: Clone {
    fn zero() -> Self;

    /// Bytes on the heap that a copy takes beside its lists.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Row for CpuRaw {
    fn zero() -> CpuRaw {
        CpuRaw::default()
    }
}

impl Row for NodeRaw {
    fn zero() -> NodeRaw {
        NodeRaw::default()
    }
}

impl Row for TaskRaw {
    fn zero() -> TaskRaw {
        TaskRaw::default()
    }

    fn heap_bytes(&self) -> usize {
        self.counts.slots.heap_bytes()
    }
}

/// The column table of a head.
pub fn describe<R>(columns: &[Column<R>]) -> Vec<ColumnInfo> {
    let info = |column: &Column<R>| ColumnInfo { name: column.name.into(), unit: column.unit.into() };
    columns.iter().map(info).collect()
}

/// The columns that a head names, in its order; `None` for one that is unknown.
pub struct Layout<R: 'static> {
    columns: Vec<Option<&'static Column<R>>>,
    without: Vec<Facility>,
}

impl<R> Layout<R> {
    /// # Errors
    /// A column that all recordings have is missing, or one appears twice.
    pub fn of(recorded: &[ColumnInfo], known: &'static [Column<R>]) -> Result<Layout<R>, String> {
        let mut without = Vec::new();
        for column in known.iter().filter(|column| !recorded.iter().any(|info| info.name == column.name)) {
            let Some(facility) = column.added_for else {
                return Err(format!("the table has no column {}", column.name));
            };
            without.push(facility);
        }
        for (at, info) in recorded.iter().enumerate() {
            // Rows are gone through once for each.
            if known.iter().any(|column| column.name == info.name)
                && recorded[..at].iter().any(|other| other.name == info.name)
            {
                return Err(format!("the table has the column {} twice", info.name));
            }
        }
        let find = |info: &ColumnInfo| known.iter().find(|column| column.name == info.name);
        Ok(Layout { columns: recorded.iter().map(find).collect(), without })
    }

    /// All columns that are known, as this version writes them.
    pub fn own(known: &'static [Column<R>]) -> Layout<R> {
        Layout { columns: known.iter().map(Some).collect(), without: Vec::new() }
    }

    /// Facilities that it has not kept, because columns are not there.
    pub fn without(&self) -> &[Facility] {
        &self.without
    }
}

/// Rows that all columns take from, or give to, before the next ones come: they stay in the cache meanwhile.
const BLOCK: usize = 32;

/// Writes `rows`, each with the row it is encoded against.
pub fn encode<R: Row>(out: &mut Vec<u8>, columns: &[Column<R>], rows: &[(&R, Option<&R>)]) {
    let zero = R::zero();
    let widths = columns.iter().map(|column| column.width.of(rows.iter().map(|(row, _)| *row)));
    let widths: Vec<usize> = widths.collect();
    // One row of cells for each field and place in it; true once a cell differs.
    let mut cells: Vec<(Vec<u8>, bool)> =
        vec![(Vec::with_capacity(rows.len() * 2), false); widths.iter().sum()];
    for (block, first) in rows.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
        let mut lanes = cells.iter_mut();
        for (column, width) in columns.iter().zip(&widths) {
            for (at, (bytes, differs)) in lanes.by_ref().take(*width).enumerate() {
                let mut before = if first == 0 { &zero } else { rows[first - 1].0 };
                for (row, base) in block {
                    let at = column.first + at;
                    let coded = difference((column.get)(row, at), (column.get)(base.unwrap_or(before), at));
                    *differs |= coded != 0;
                    put(bytes, coded);
                    before = row;
                }
            }
        }
    }
    let mut lanes = &cells[..];
    for width in widths {
        let (column, rest) = lanes.split_at(width);
        lanes = rest;
        let differs = column.iter().any(|(_, differs)| *differs);
        let written = if differs { column } else { &[] };
        put(out, written.iter().map(|(bytes, _)| bytes.len() as u64).sum());
        written.iter().for_each(|(bytes, _)| out.extend_from_slice(bytes));
    }
}

/// The cells of rows that are read one after the other, in the order in which they were written.
pub struct Cells<'a, R: 'static> {
    /// The known columns of the layout, in its order.
    parts: Vec<Part<R>>,
    /// Places of the columns that are set in each row.
    always: Vec<usize>,
    /// One for each value of a column in which something differs: the place of the value, and its cells.
    lanes: Vec<(u32, Bytes<'a>)>,
    /// Rows whose cells were not read yet.
    left: usize,
    /// Differences of a block of rows, each with room for one in each lane, and their numbers.
    block: Vec<Differs>,
    counts: Vec<usize>,
    /// The place behind the row that is read in its block.
    at: usize,
}

/// A column of the layout.
struct Part<R: 'static> {
    column: &'static Column<R>,
    /// The place of its first value; those of its others follow.
    first: u32,
    /// Its values; 0 where nothing differs in any of them.
    width: u32,
}

/// Places of the values of one column.
const PLACES: u32 = 1 << 16;

/// A value in which a row differs from its base: its place, which is the same in all samples of a layout, and the difference.
pub type Differs = (u32, u64);

impl<'a, R: Row> Cells<'a, R> {
    /// Of `count` rows.
    ///
    /// # Errors
    /// The bytes are not such cells, or there are more than can be.
    pub fn of(input: &mut Bytes<'a>, layout: &Layout<R>, count: usize) -> Result<Cells<'a, R>, Malformed> {
        let mut cells = Cells {
            parts: Vec::new(),
            always: Vec::new(),
            lanes: Vec::new(),
            left: count,
            block: Vec::new(),
            counts: Vec::new(),
            at: 0,
        };
        for column in &layout.columns {
            let len = input.count(MAX_PAYLOAD)?;
            let mut written = Bytes(input.take(len)?);
            let Some(column) = *column else { continue };
            let width = if len == 0 { 0 } else { column.width.written(&written, count)? };
            if count.saturating_mul(width) > MAX_CELLS || width >= PLACES as usize {
                return Err(Malformed("a column has more cells than the format allows"));
            }
            // A head may name any number of columns; few are known, each once.
            let (at, width) = (cells.parts.len(), width as u32);
            let first = at as u32 * PLACES;
            for value in 0..width {
                let lane = if value + 1 < width { written.take_numbers(count)? } else { written };
                cells.lanes.push((first + value, lane));
            }
            cells.parts.push(Part { column, first, width });
            cells.always.extend((!column.own).then_some(at));
        }
        Ok(cells)
    }

    /// Goes to the next row: [`Cells::differs`] and [`Cells::make`] are about it.
    ///
    /// # Errors
    /// There are no such cells.
    pub fn advance(&mut self) -> Result<(), Malformed> {
        if self.at == self.counts.len() {
            self.read_block()?;
        }
        if self.counts.is_empty() {
            return Err(Malformed("a column has too few rows"));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads the cells of the next rows, lane by lane.
    fn read_block(&mut self) -> Result<(), Malformed> {
        let (rows, lanes) = (self.left.min(BLOCK), self.lanes.len());
        (self.at, self.left) = (0, self.left - rows);
        self.block.resize(rows * lanes, Differs::default());
        self.counts.clear();
        self.counts.resize(rows, 0);
        for (place, cells) in &mut self.lanes {
            let mut row = 0;
            while row < rows {
                // Most cells are as in the base.
                let zeros = cells.zeros().min(rows - row);
                if zeros > 0 {
                    cells.0 = &cells.0[zeros..];
                    row += zeros;
                    continue;
                }
                let coded = cells.number()?;
                if coded != 0 {
                    self.block[row * lanes + self.counts[row]] = (*place, coded);
                    self.counts[row] += 1;
                }
                row += 1;
            }
        }
        Ok(())
    }

    /// The values in which the row differs from its base, in the order of places.
    pub fn differs(&self) -> &[Differs] {
        let row = self.at - 1;
        &self.block[row * self.lanes.len()..][..self.counts[row]]
    }

    /// The row, decoded against its base, or without one against the row `before` it.
    ///
    /// # Errors
    /// The row does not exist, or its extra data exceeds `room`.
    pub fn make(&self, base: Option<&R>, before: &R, room: &mut Room) -> Result<R, Malformed> {
        let from = base.unwrap_or(before);
        let mut row = from.clone();
        self.change(&mut row, from, base.is_none(), room)?;
        Ok(row)
    }

    /// The same for a copy of the row that it is encoded against, in place: rows are large. `is_new`: it has
    /// no base.
    ///
    /// # Errors
    /// As [`Cells::make`].
    pub fn change(&self, row: &mut R, from: &R, is_new: bool, room: &mut Room) -> Result<(), Malformed> {
        if is_new {
            room.take(1, from.heap_bytes())?;
        }
        let mut set = |row: &mut R, part: &Part<R>, place: u32, coded: u64| {
            let at = part.column.first + (place - part.first) as usize;
            match (part.column.set)(row, at, undo_difference(coded, (part.column.get)(from, at))) {
                Some(0) => Ok(()),
                Some(took) => room.take(1, took),
                None => Err(Malformed("a value is out of range")),
            }
        };
        let part_of = |place: u32| &self.parts[(place / PLACES) as usize];
        let mut rest = self.differs();
        // The others are as in the base, unless they differ.
        for part in self.always.iter().map(|at| &self.parts[*at]) {
            while let [(place, coded), others @ ..] = rest
                && *place < part.first
            {
                set(row, part_of(*place), *place, *coded)?;
                rest = others;
            }
            let width =
                if part.width == 0 { part.column.width.of([&*row].into_iter()) as u32 } else { part.width };
            for place in part.first..part.first + width {
                let coded = match rest {
                    [(next, coded), others @ ..] if *next == place => {
                        rest = others;
                        *coded
                    }
                    _ => 0,
                };
                set(row, part, place, coded)?;
            }
        }
        rest.iter().try_for_each(|(place, coded)| set(row, part_of(*place), *place, *coded))
    }

    /// # Errors
    /// Cells are left.
    pub fn finish(self) -> Result<(), Malformed> {
        self.lanes.iter().try_for_each(|(_, cells)| cells.finish())
    }
}

/// Reads `count` rows, for which there must be `room`; `base` returns the row that row `i` was encoded
/// against.
///
/// # Errors
/// The bytes are not such rows, or they would take more room.
pub fn decode<'a, R: Row + 'a>(
    input: &mut Bytes<'_>,
    layout: &Layout<R>,
    count: usize,
    base: impl Fn(usize) -> Option<&'a R>,
    room: &mut Room,
) -> Result<Vec<R>, Malformed> {
    format::take_rows::<R>(room, count)?;
    let mut cells = Cells::of(input, layout, count)?;
    let (mut rows, zero) = (Vec::with_capacity(count), R::zero());
    for i in 0..count {
        cells.advance()?;
        let row = cells.make(base(i), rows.last().unwrap_or(&zero), room)?;
        rows.push(row);
    }
    cells.finish()?;
    Ok(rows)
}

/// Adds the rows that wanted rows are encoded against: without a base, this is the row before.
pub fn with_needed(wanted: &mut [bool], bases: &[Option<usize>]) {
    for i in (1..wanted.len()).rev() {
        wanted[i - 1] |= wanted[i] && bases[i].is_none();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::tables::{Cell, field};
    use super::*;

    static OLD: LazyLock<Vec<Column<NodeRaw>>> = LazyLock::new(|| {
        vec![field!(NodeRaw, "id", "id", id), field!(NodeRaw, "numa_hit", "pages, counter", numa_hit)]
    });

    static NEW: LazyLock<Vec<Column<NodeRaw>>> = LazyLock::new(|| {
        vec![
            field!(NodeRaw, "id", "id", id),
            field!(NodeRaw, "numa_hit", "pages, counter", numa_hit),
            field!(NodeRaw, "numa_miss", "pages, counter", numa_miss).added_for(Facility::NodePages),
        ]
    });

    fn written(columns: &[Column<NodeRaw>]) -> (Vec<ColumnInfo>, Vec<u8>) {
        let row = NodeRaw { id: 3, numa_hit: 40, numa_miss: 50, ..NodeRaw::default() };
        let mut bytes = Vec::new();
        encode(&mut bytes, columns, &[(&row, None)]);
        (describe(columns), bytes)
    }

    fn read((recorded, bytes): (Vec<ColumnInfo>, Vec<u8>), known: &'static [Column<NodeRaw>]) -> NodeRaw {
        let layout = Layout::of(&recorded, known).unwrap();
        let mut input = Bytes(&bytes);
        let rows = decode(&mut input, &layout, 1, |_| None, &mut Room::endless()).unwrap();
        input.finish().unwrap();
        rows[0].clone()
    }

    #[test]
    fn a_column_that_was_added_later_is_missing_with_its_metrics() {
        let old = written(&OLD);
        assert_eq!(Layout::of(&old.0, &NEW).unwrap().without(), [Facility::NodePages]);
        assert_eq!(read(old, &NEW), NodeRaw { id: 3, numa_hit: 40, ..NodeRaw::default() });
    }

    #[test]
    fn a_column_of_a_later_version_is_skipped() {
        let new = written(&NEW);
        assert!(Layout::of(&new.0, &OLD).unwrap().without().is_empty());
        assert_eq!(read(new, &OLD), NodeRaw { id: 3, numa_hit: 40, ..NodeRaw::default() });
    }

    #[test]
    fn columns_that_are_not_known_may_be_as_many_as_a_head_can_name() {
        let (recorded, bytes) = written(&NEW);
        let unknown =
            (0..70_000).map(|at| ColumnInfo { name: format!("unknown-{at}"), unit: "counter".into() });
        let recorded = unknown.chain(recorded).collect();
        let bytes = [vec![0; 70_000], bytes].concat();
        assert_eq!(
            read((recorded, bytes), &NEW),
            NodeRaw { id: 3, numa_hit: 40, numa_miss: 50, ..NodeRaw::default() }
        );
    }

    #[test]
    fn a_column_that_all_recordings_have_must_be_there() {
        let (mut recorded, _) = written(&NEW);
        recorded.remove(1);
        assert_eq!(Layout::of(&recorded, &NEW).err().unwrap(), "the table has no column numa_hit");
    }
}
