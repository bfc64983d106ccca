//! How rows become columns of small numbers: one entry per field, and the coding of them all.
//!
//! Each number is written as its difference from the same field of a base: the row of the keyframe, or
//! without one the row before it. A column in which nothing differs takes one byte, and so some columns are
//! differences of two fields (`a-b`) that go together.

use std::sync::LazyLock;

use super::format::{ColumnInfo, MAX_CELLS, MAX_NODES, MAX_PAYLOAD};
use super::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::collect::wire::{SIBLINGS, SLOTS};
use crate::metric::balancing::{CHOICES, GROUP, HINTS};
use crate::metric::node::{IRQ, RECLAIM, WATERMARKS};
use crate::metric::pages::{MIGRATED, PAGES};
use crate::metric::smt::IPC_BY_SIBLING;
use crate::sample::{Comm, Counts, CpuRaw, NodeCounts, NodeRaw, Slot, TaskRaw};
use crate::units::Nid;

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
}

/// One field of rows of type `R`.
pub struct Column<R> {
    name: &'static str,
    unit: &'static str,
    width: Width<R>,
    get: fn(&R, usize) -> u64,
    /// Takes a value back. Bytes of memory it took beside the row, or `None` when no such value can be.
    set: fn(&mut R, usize, u64) -> Option<usize>,
    /// Metrics that have no value in recordings without it. Empty: every recording has it.
    added_for: &'static [&'static str],
}

impl<R> Column<R> {
    /// Says of a column that older recordings do not have it. They are read all the same: its numbers stay
    /// zero, and the metrics that are made of them have no value.
    #[must_use]
    pub fn added_for(self, metrics: &'static [&'static str]) -> Column<R> {
        Column { added_for: metrics, ..self }
    }
}

/// A field that is one number.
trait Cell: Copy {
    fn pack(self) -> u64;
    fn unpack(value: u64) -> Option<Self>;
}

impl Cell for u64 {
    fn pack(self) -> u64 {
        self
    }
    fn unpack(value: u64) -> Option<u64> {
        Some(value)
    }
}

impl Cell for u32 {
    fn pack(self) -> u64 {
        self.into()
    }
    fn unpack(value: u64) -> Option<u32> {
        value.try_into().ok()
    }
}

impl Cell for i32 {
    fn pack(self) -> u64 {
        i64::from(self) as u64
    }
    fn unpack(value: u64) -> Option<i32> {
        (value as i64).try_into().ok()
    }
}

impl Cell for bool {
    fn pack(self) -> u64 {
        self.into()
    }
    fn unpack(value: u64) -> Option<bool> {
        (value < 2).then_some(value == 1)
    }
}

/// Zero is none.
impl Cell for Option<Nid> {
    fn pack(self) -> u64 {
        self.map_or(0, |node| u64::from(node.0) + 1)
    }
    fn unpack(value: u64) -> Option<Option<Nid>> {
        match value {
            0 => Some(None),
            _ => u32::unpack(value - 1).map(|node| Some(Nid(node))),
        }
    }
}

macro_rules! field {
    ($row:ty, $name:literal, $unit:literal, $($field:ident).+) => {
        Column::<$row> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(1),
            get: |row, _| Cell::pack(row.$($field).+),
            set: |row, _, value| {
                row.$($field).+ = Cell::unpack(value)?;
                Some(0)
            },
            added_for: &[],
        }
    };
}

macro_rules! slots {
    ($row:ty, $name:literal, $unit:literal, $($slots:ident).+, $field:ident) => {
        Column::<$row> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(SLOTS),
            get: |row, at| row.$($slots).+[at].$field,
            set: |row, at, value| {
                row.$($slots).+[at].$field = value;
                Some(0)
            },
            added_for: &[],
        }
    };
}

macro_rules! by_node {
    ($name:literal, $field:ident) => {
        Column::<TaskRaw> {
            name: $name,
            unit: "by node, counter",
            width: Width::Of(|row| row.counts.by_node.len()),
            get: |row, at| row.counts.by_node.get(at).map_or(0, |node| node.$field),
            set: |row, at, value| match row.counts.by_node.get_mut(at) {
                Some(node) => {
                    node.$field = value;
                    Some(0)
                }
                // Another row has more nodes; this one has none here.
                None => (value == 0).then_some(0),
            },
            added_for: &[],
        }
    };
}

macro_rules! by_sibling {
    ($name:literal, $field:ident) => {
        Column::<TaskRaw> {
            name: $name,
            unit: "siblings idle and busy, counter",
            width: Width::Fixed(SIBLINGS),
            get: |row, at| row.counts.by_sibling[at].$field,
            set: |row, at, value| {
                row.counts.by_sibling[at].$field = value;
                Some(0)
            },
            added_for: &[],
        }
    };
}

/// Columns of [`TaskRaw`]. Names and meanings stay for ever. New ones go at the end and say which metrics
/// they were added for ([`Column::added_for`]); readers that do not know them skip them.
pub fn task() -> &'static [Column<TaskRaw>] {
    static COLUMNS: LazyLock<Vec<Column<TaskRaw>>> = LazyLock::new(|| {
        vec![
            field!(TaskRaw, "serial", "id", serial),
            field!(TaskRaw, "pid", "id", pid),
            field!(TaskRaw, "tid", "id", tid),
            field!(TaskRaw, "ppid", "id", ppid),
            field!(TaskRaw, "uid", "id", uid),
            field!(TaskRaw, "start_ns", "ns", start_ns),
            // Most tasks are the leader of their process.
            Column {
                name: "start_ns-leader_start_ns",
                unit: "ns",
                width: Width::Fixed(1),
                get: |row, _| row.start_ns.wrapping_sub(row.leader_start_ns),
                set: |row, _, value| {
                    row.leader_start_ns = row.start_ns.wrapping_sub(value);
                    Some(0)
                },
                added_for: &[],
            },
            field!(TaskRaw, "cgroup_id", "id", cgroup_id),
            // A name as two numbers of eight bytes, the first letter in the lowest byte.
            Column {
                name: "comm",
                unit: "text",
                width: Width::Fixed(2),
                get: |row, at| {
                    u64::from_le_bytes(row.comm.0[at * 8..][..8].try_into().expect("eight of sixteen"))
                },
                set: |row, at, value| {
                    row.comm.0[at * 8..][..8].copy_from_slice(&value.to_le_bytes());
                    Some(0)
                },
                added_for: &[],
            },
            field!(TaskRaw, "state", "bits", state),
            field!(TaskRaw, "exit_state", "bits", exit_state),
            field!(TaskRaw, "policy", "enum", policy),
            field!(TaskRaw, "nice", "level", nice),
            field!(TaskRaw, "cpu", "id", cpu),
            field!(TaskRaw, "cpus_allowed", "CPUs", cpus_allowed),
            field!(TaskRaw, "kthread", "bool", kthread),
            field!(TaskRaw, "rss_bytes", "bytes", rss_bytes),
            field!(TaskRaw, "preferred_node", "id + 1", preferred_node),
            field!(TaskRaw, "scan_period_ms", "ms", scan_period_ms),
            Column {
                name: "run_ns_len",
                unit: "nodes",
                width: Width::Fixed(1),
                get: |row, _| row.counts.run_ns.len() as u64,
                set: |row, _, value| {
                    let len = usize::try_from(value).ok().filter(|len| *len <= MAX_NODES)?;
                    row.counts.run_ns = vec![0; len];
                    Some(len * size_of::<u64>())
                },
                added_for: &[],
            },
            Column {
                name: "run_ns",
                unit: "ns by node, counter",
                width: Width::Of(|row| row.counts.run_ns.len()),
                get: |row, at| row.counts.run_ns.get(at).copied().unwrap_or(0),
                set: |row, at, value| match row.counts.run_ns.get_mut(at) {
                    Some(cell) => {
                        *cell = value;
                        Some(0)
                    }
                    // Another row has more nodes; this one has none here.
                    None => (value == 0).then_some(0),
                },
                added_for: &[],
            },
            // What it ran before it was first seen, which stays as it is.
            Column {
                name: "exec_ns-run_ns",
                unit: "ns",
                width: Width::Fixed(1),
                get: |row, _| row.exec_ns.wrapping_sub(row.counts.cpu_ns()),
                set: |row, _, value| {
                    row.exec_ns = value.wrapping_add(row.counts.cpu_ns());
                    Some(0)
                },
                added_for: &[],
            },
            field!(TaskRaw, "smt_busy_ns", "ns, counter", counts.smt_busy_ns),
            field!(TaskRaw, "llc_moves", "counter", counts.llc_moves),
            field!(TaskRaw, "node_moves", "counter", counts.node_moves),
            slots!(TaskRaw, "slot_count", "by event, counter", counts.slots, count),
            slots!(TaskRaw, "slot_enabled_ns", "ns by event, counter", counts.slots, enabled_ns),
            slots!(TaskRaw, "slot_running_ns", "ns by event, counter", counts.slots, running_ns),
            field!(TaskRaw, "run_delay_ns", "ns, counter", counts.run_delay_ns),
            field!(TaskRaw, "nvcsw", "counter", counts.nvcsw),
            field!(TaskRaw, "nivcsw", "counter", counts.nivcsw),
            // Each run ends with a switch.
            Column {
                name: "run_count-nvcsw-nivcsw",
                unit: "counter",
                width: Width::Fixed(1),
                get: |row, _| row.counts.run_count.wrapping_sub(switches(row)),
                set: |row, _, value| {
                    row.counts.run_count = value.wrapping_add(switches(row));
                    Some(0)
                },
                added_for: &[],
            },
            field!(TaskRaw, "min_flt", "counter", counts.min_flt),
            field!(TaskRaw, "maj_flt", "counter", counts.maj_flt),
            field!(TaskRaw, "cpu_migrations", "counter", counts.cpu_migrations),
            field!(TaskRaw, "numa_pages_migrated", "pages, counter", counts.numa_pages_migrated),
            Column {
                name: "by_node_len",
                unit: "nodes",
                width: Width::Fixed(1),
                get: |row, _| row.counts.by_node.len() as u64,
                set: |row, _, value| {
                    let len = usize::try_from(value).ok().filter(|len| *len <= MAX_NODES)?;
                    row.counts.by_node = vec![NodeCounts::default(); len];
                    Some(len * size_of::<NodeCounts>())
                },
                added_for: &[],
            },
            by_node!("by_node_cycles", cycles),
            by_node!("by_node_instructions", instructions),
            field!(TaskRaw, "user_allocs", "counter", counts.user_allocs).added_for(&PAGES),
            field!(TaskRaw, "cross_allocs", "counter", counts.cross_allocs).added_for(&PAGES),
            field!(TaskRaw, "migrated_pages", "pages, counter", counts.migrated_pages).added_for(&MIGRATED),
            field!(TaskRaw, "migrate_failed_pages", "pages, counter", counts.migrate_failed_pages)
                .added_for(&MIGRATED),
            Column {
                name: "pages_len",
                unit: "nodes",
                width: Width::Fixed(1),
                get: |row, _| row.counts.pages.len() as u64,
                set: |row, _, value| {
                    let len = usize::try_from(value).ok().filter(|len| *len <= MAX_NODES)?;
                    row.counts.pages = vec![0; len];
                    Some(len * size_of::<u64>())
                },
                added_for: &PAGES,
            },
            Column {
                name: "pages",
                unit: "pages by node, counter",
                width: Width::Of(|row| row.counts.pages.len()),
                get: |row, at| row.counts.pages.get(at).copied().unwrap_or(0),
                set: |row, at, value| match row.counts.pages.get_mut(at) {
                    Some(pages) => {
                        *pages = value;
                        Some(0)
                    }
                    // Another row has more nodes; this one has none here.
                    None => (value == 0).then_some(0),
                },
                added_for: &PAGES,
            },
            by_sibling!("by_sibling_cycles", cycles).added_for(&IPC_BY_SIBLING),
            by_sibling!("by_sibling_instructions", instructions).added_for(&IPC_BY_SIBLING),
            field!(TaskRaw, "numa_moves", "counter", counts.numa_moves).added_for(&CHOICES),
            field!(TaskRaw, "numa_swaps", "counter", counts.numa_swaps).added_for(&CHOICES),
            field!(TaskRaw, "numa_stuck", "counter", counts.numa_stuck).added_for(&CHOICES),
            field!(TaskRaw, "hint_faults", "counter", counts.hint_faults).added_for(&HINTS),
            field!(TaskRaw, "hint_remote", "counter", counts.hint_remote).added_for(&HINTS),
            field!(TaskRaw, "numa_group", "id", numa_group).added_for(&GROUP),
        ]
    });
    &COLUMNS
}

fn switches(row: &TaskRaw) -> u64 {
    row.counts.nvcsw.wrapping_add(row.counts.nivcsw)
}

/// Columns of [`CpuRaw`].
pub fn cpu() -> &'static [Column<CpuRaw>] {
    static COLUMNS: LazyLock<Vec<Column<CpuRaw>>> = LazyLock::new(|| {
        vec![
            field!(CpuRaw, "id", "id", id),
            field!(CpuRaw, "node", "id", node),
            field!(CpuRaw, "online", "bool", online),
            field!(CpuRaw, "busy_ns", "ns, counter", busy_ns),
            field!(CpuRaw, "switches", "counter", switches),
            slots!(CpuRaw, "slot_count", "by event, counter", slots, count),
            slots!(CpuRaw, "slot_enabled_ns", "ns by event, counter", slots, enabled_ns),
            slots!(CpuRaw, "slot_running_ns", "ns by event, counter", slots, running_ns),
            field!(CpuRaw, "irq_ns", "ns, counter", irq_ns).added_for(&IRQ),
        ]
    });
    &COLUMNS
}

/// Columns of [`NodeRaw`].
pub fn node() -> &'static [Column<NodeRaw>] {
    static COLUMNS: LazyLock<Vec<Column<NodeRaw>>> = LazyLock::new(|| {
        vec![
            field!(NodeRaw, "id", "id", id),
            field!(NodeRaw, "mem_total_bytes", "bytes", mem_total_bytes),
            field!(NodeRaw, "mem_free_bytes", "bytes", mem_free_bytes),
            field!(NodeRaw, "mem_file_bytes", "bytes", mem_file_bytes),
            field!(NodeRaw, "mem_anon_bytes", "bytes", mem_anon_bytes),
            field!(NodeRaw, "mem_slab_bytes", "bytes", mem_slab_bytes),
            field!(NodeRaw, "huge_total", "pages", huge_total),
            field!(NodeRaw, "huge_free", "pages", huge_free),
            field!(NodeRaw, "numa_hit", "pages, counter", numa_hit),
            field!(NodeRaw, "numa_miss", "pages, counter", numa_miss),
            field!(NodeRaw, "numa_foreign", "pages, counter", numa_foreign),
            field!(NodeRaw, "interleave_hit", "pages, counter", interleave_hit),
            field!(NodeRaw, "local_node", "pages, counter", local_node),
            field!(NodeRaw, "other_node", "pages, counter", other_node),
            field!(NodeRaw, "low_watermark_bytes", "bytes", low_watermark_bytes).added_for(&WATERMARKS),
            field!(NodeRaw, "managed_bytes", "bytes", managed_bytes).added_for(&WATERMARKS),
            field!(NodeRaw, "kswapd_pages", "pages, counter", kswapd_pages).added_for(&RECLAIM),
            field!(NodeRaw, "direct_pages", "pages, counter", direct_pages).added_for(&RECLAIM),
            field!(NodeRaw, "node_reclaims", "counter", node_reclaims).added_for(&RECLAIM),
        ]
    });
    &COLUMNS
}

/// Rows that can start from nothing.
pub trait Row: Clone {
    fn zero() -> Self;
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
        TaskRaw {
            serial: 0,
            pid: 0,
            tid: 0,
            ppid: 0,
            uid: 0,
            start_ns: 0,
            leader_start_ns: 0,
            cgroup_id: 0,
            comm: Comm::default(),
            state: 0,
            exit_state: 0,
            policy: 0,
            nice: 0,
            cpu: 0,
            cpus_allowed: 0,
            kthread: false,
            rss_bytes: 0,
            exec_ns: 0,
            preferred_node: None,
            scan_period_ms: 0,
            numa_group: 0,
            counts: Counts { slots: [Slot::default(); SLOTS], ..Counts::default() },
        }
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
    without: Vec<&'static str>,
}

impl<R> Layout<R> {
    /// # Errors
    /// One of the columns that all recordings have is not there.
    pub fn of(recorded: &[ColumnInfo], known: &'static [Column<R>]) -> Result<Layout<R>, String> {
        let mut without = Vec::new();
        for column in known.iter().filter(|column| !recorded.iter().any(|info| info.name == column.name)) {
            if column.added_for.is_empty() {
                return Err(format!("it has no column {}", column.name));
            }
            without.extend(column.added_for);
        }
        let find = |info: &ColumnInfo| known.iter().find(|column| column.name == info.name);
        Ok(Layout { columns: recorded.iter().map(find).collect(), without })
    }

    /// Metrics that have no value, because columns are not there.
    pub fn without(&self) -> &[&'static str] {
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

/// Reads `count` rows; `base` says what row `i` was told apart from. `room` is how many bytes they may
/// take beside themselves, and what is left of that afterwards.
///
/// # Errors
/// The bytes are not such rows, or they would take more room.
pub fn decode<'a, R: Row + 'a>(
    input: &mut Bytes<'_>,
    layout: &Layout<R>,
    count: usize,
    base: impl Fn(usize) -> Option<&'a R>,
    room: &mut usize,
) -> Result<Vec<R>, Malformed> {
    let zero = R::zero();
    let mut rows = vec![zero.clone(); count];
    for column in &layout.columns {
        let len = input.count(MAX_PAYLOAD)?;
        let mut cells = Bytes(input.take(len)?);
        let Some(column) = column else { continue };
        let width = column.width.of(rows.iter());
        if count.saturating_mul(width) > MAX_CELLS {
            return Err(Malformed("a column has more cells than can be"));
        }
        for at in 0..width {
            for i in 0..count {
                let before = base(i).unwrap_or(if i > 0 { &rows[i - 1] } else { &zero });
                let coded = if len == 0 { 0 } else { cells.number()? };
                let value = undo_difference(coded, (column.get)(before, at));
                let took = (column.set)(&mut rows[i], at, value).ok_or(Malformed("a value cannot be"))?;
                *room = room.checked_sub(took).ok_or(Malformed("its rows are beyond their limit"))?;
            }
        }
        cells.finish()?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    static OLD: LazyLock<Vec<Column<NodeRaw>>> = LazyLock::new(|| {
        vec![field!(NodeRaw, "id", "id", id), field!(NodeRaw, "numa_hit", "pages, counter", numa_hit)]
    });

    static NEW: LazyLock<Vec<Column<NodeRaw>>> = LazyLock::new(|| {
        vec![
            field!(NodeRaw, "id", "id", id),
            field!(NodeRaw, "numa_hit", "pages, counter", numa_hit),
            field!(NodeRaw, "numa_miss", "pages, counter", numa_miss).added_for(&["numa_miss_per_s"]),
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
        let rows = decode(&mut input, &layout, 1, |_| None, &mut 0).unwrap();
        input.finish().unwrap();
        rows[0].clone()
    }

    #[test]
    fn a_column_that_was_added_later_is_missing_with_its_metrics() {
        let old = written(&OLD);
        assert_eq!(Layout::of(&old.0, &NEW).unwrap().without(), ["numa_miss_per_s"]);
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
