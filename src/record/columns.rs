//! Rows as columns of small numbers, and back. The columns are in `tables.rs`.
//!
//! Each number is written as its difference from the same field of a base: the row of the keyframe, or
//! without one the row before it. A column in which nothing differs takes one byte, and so some columns are
//! differences of two fields (`a-b`) that go together.

mod tables;

use std::mem::take;

use super::format::{ColumnInfo, MAX_CELLS, MAX_PAYLOAD};
use super::room::Room;
use super::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::model::facility::Facility;
use crate::model::sample::{Counts, CpuRaw, NodeRaw, TaskRaw};

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

    /// Cells in each of `count` rows that are written in `cells`, without a look at the rows.
    fn written(&self, cells: &Bytes<'_>, count: usize) -> Result<usize, Malformed> {
        match self {
            Width::Fixed(width) => Ok(*width),
            Width::Of(_) => {
                let cells = cells.numbers();
                let width = cells.checked_div(count).filter(|width| width * count == cells);
                width.ok_or(Malformed("a column has cells for a part of its rows"))
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
    /// No other column sets its cells to anything but what they are in the base: a row that is like its base there is done.
    own: bool,
    /// The facility that recordings without it have not kept. `None`: every recording has it.
    added_for: Option<Facility>,
}

impl<R> Column<R> {
    /// Says of a column that older recordings do not have it. They are read all the same: its numbers stay
    /// zero, and the metrics that need the facility have no value.
    #[must_use]
    pub fn added_for(self, facility: Facility) -> Column<R> {
        Column { added_for: Some(facility), ..self }
    }
}

/// Rows that can start from nothing.
pub trait Row: Clone {
    fn zero() -> Self;

    /// Becomes the same as `other`, in the memory that its lists have.
    fn become_like(&mut self, other: &Self) {
        self.clone_from(other);
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

    fn become_like(&mut self, other: &TaskRaw) {
        // All fields by name: one that is added and forgotten here does not compile.
        let Counts { run_ns, scalars: _, slots, by_node, pages, by_sibling: _ } = &mut self.counts;
        run_ns.clone_from(&other.counts.run_ns);
        by_node.clone_from(&other.counts.by_node);
        pages.clone_from(&other.counts.pages);
        slots.clone_from(&other.counts.slots);
        let Counts { scalars, by_sibling, .. } = other.counts;
        let (run_ns, by_node, pages, slots) = (take(run_ns), take(by_node), take(pages), take(slots));
        let counts = Counts { run_ns, scalars, slots, by_node, pages, by_sibling };
        *self = TaskRaw { counts, ..*other };
    }
}

/// The column table of a head.
pub fn describe<R>(columns: &[Column<R>]) -> Vec<ColumnInfo> {
    let info = |column: &Column<R>| ColumnInfo { name: column.name.into(), unit: column.unit.into() };
    columns.iter().map(info).collect()
}

/// The columns that a head names, in its order; `None` for one that is not known any more or not yet.
pub struct Layout<R: 'static> {
    columns: Vec<Option<&'static Column<R>>>,
    without: Vec<Facility>,
}

impl<R> Layout<R> {
    /// # Errors
    /// One of the columns that all recordings have is not there, or one is there twice.
    pub fn of(recorded: &[ColumnInfo], known: &'static [Column<R>]) -> Result<Layout<R>, String> {
        let mut without = Vec::new();
        for column in known.iter().filter(|column| !recorded.iter().any(|info| info.name == column.name)) {
            let Some(facility) = column.added_for else {
                return Err(format!("it has no column {}", column.name));
            };
            without.push(facility);
        }
        for (at, info) in recorded.iter().enumerate() {
            // Rows are gone through once for each.
            if known.iter().any(|column| column.name == info.name)
                && recorded[..at].iter().any(|other| other.name == info.name)
            {
                return Err(format!("it has the column {} twice", info.name));
            }
        }
        let find = |info: &ColumnInfo| known.iter().find(|column| column.name == info.name);
        Ok(Layout { columns: recorded.iter().map(find).collect(), without })
    }

    /// Facilities that it has not kept, because columns are not there.
    pub fn without(&self) -> &[Facility] {
        &self.without
    }
}

/// Rows that all columns take from before the next ones come: they stay in the cache meanwhile.
const BLOCK: usize = 32;

/// Writes `rows`, each with the row it is told apart from.
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

/// Reads `count` rows, for which there must be `room`; `base` says what row `i` was told apart from.
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
    let mut rows = Vec::new();
    room.take_rows::<R>(count)?;
    let bases: Vec<Option<&R>> = (0..count).map(base).collect();
    decode_into(&mut rows, input, layout, &bases, None, room)?;
    Ok(rows)
}

/// The same into `rows`, whose memory is used again. `room` for the rows themselves is taken already; `bases` has what each was
/// told apart from. Rows that are not `wanted` are read over, and hold anything afterwards: a row without a base needs the one
/// in front of it ([`with_needed`]).
///
/// Most cells are as in the base, so rows begin as it is, and a column in which nothing differs is read for rows without one
/// only.
///
/// # Errors
/// As above.
pub fn decode_into<R: Row>(
    rows: &mut Vec<R>,
    input: &mut Bytes<'_>,
    layout: &Layout<R>,
    bases: &[Option<&R>],
    wanted: Option<&[bool]>,
    room: &mut Room,
) -> Result<(), Malformed> {
    let (zero, count) = (R::zero(), bases.len());
    let is_wanted = |i: usize| wanted.is_none_or(|wanted| wanted[i]);
    rows.truncate(count);
    let used = rows.len();
    let base_of = |i: usize| bases[i].filter(|_| is_wanted(i)).unwrap_or(&zero);
    rows.iter_mut()
        .enumerate()
        .filter(|(i, _)| is_wanted(*i))
        .for_each(|(i, row)| row.become_like(base_of(i)));
    rows.extend((used..count).map(|i| base_of(i).clone()));
    let all: Vec<usize> = (0..count).filter(|i| is_wanted(*i)).collect();
    let alone: Vec<usize> = all.iter().copied().filter(|i| bases[*i].is_none()).collect();
    for column in &layout.columns {
        let len = input.count(MAX_PAYLOAD)?;
        let mut cells = Bytes(input.take(len)?);
        let Some(column) = column else { continue };
        let width = match len {
            0 => column.width.of(all.iter().map(|i| &rows[*i])),
            _ => column.width.written(&cells, count)?,
        };
        if count.saturating_mul(width) > MAX_CELLS {
            return Err(Malformed("a column has more cells than can be"));
        }
        for at in (0..width).map(|at| column.first + at) {
            let mut set = |i: usize, coded: u64| {
                let before = bases[i].unwrap_or(if i > 0 { &rows[i - 1] } else { &zero });
                let value = undo_difference(coded, (column.get)(before, at));
                let took = (column.set)(&mut rows[i], at, value).ok_or(Malformed("a value cannot be"))?;
                room.take(1, took)
            };
            match (len, column.own) {
                (0, true) => alone.iter().try_for_each(|i| set(*i, 0))?,
                (0, false) => all.iter().try_for_each(|i| set(*i, 0))?,
                (_, own) => {
                    for (i, base) in bases.iter().enumerate() {
                        let coded = cells.number()?;
                        if (coded != 0 || !own || base.is_none()) && is_wanted(i) {
                            set(i, coded)?;
                        }
                    }
                }
            }
        }
        cells.finish()?;
    }
    Ok(())
}

/// Adds what rows that are wanted are told apart from: those without a base, from the row in front of them.
pub fn with_needed<R>(wanted: &mut [bool], bases: &[Option<&R>]) {
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
    fn a_column_that_all_recordings_have_must_be_there() {
        let (mut recorded, _) = written(&NEW);
        recorded.remove(1);
        assert_eq!(Layout::of(&recorded, &NEW).err().unwrap(), "it has no column numa_hit");
    }
}
