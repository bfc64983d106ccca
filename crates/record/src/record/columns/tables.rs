//! Fields of rows in a recording: one entry per field.

use std::sync::LazyLock;

use super::{Column, Width};
use crate::model::counters::{COUNTERS, Counter, CounterInfo};
use crate::model::facility::Facility;
use crate::model::sample::{CpuRaw, FilePages, Hints, NodeCounts, NodeRaw, Resident, TaskRaw};
use crate::model::units::NodeId;
use crate::model::wire::{SIBLINGS, SLOTS};
use crate::record::format::MAX_NODES;

/// A field that is one number.
pub(super) trait Cell: Copy {
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

impl Cell for u16 {
    fn pack(self) -> u64 {
        self.into()
    }
    fn unpack(value: u64) -> Option<u16> {
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
impl Cell for Option<NodeId> {
    fn pack(self) -> u64 {
        self.map_or(0, |node| u64::from(node.0) + 1)
    }
    fn unpack(value: u64) -> Option<Option<NodeId>> {
        match value {
            0 => Some(None),
            _ => u32::unpack(value - 1).map(|node| Some(NodeId(node))),
        }
    }
}

/// Bits of nodes; at least one is set, so zero is none.
impl Cell for Option<u64> {
    fn pack(self) -> u64 {
        self.unwrap_or(0)
    }
    fn unpack(value: u64) -> Option<Option<u64>> {
        Some((value != 0).then_some(value))
    }
}

macro_rules! field {
    ($row:ty, $name:literal, $unit:literal, $($field:ident).+) => {
        Column::<$row> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(1),
            first: 0,
            get: |row, _| Cell::pack(row.$($field).+),
            set: |row, _, value| {
                row.$($field).+ = Cell::unpack(value)?;
                Some(0)
            },
            own: true,
            added_for: None,
        }
    };
}

#[cfg(test)]
pub(super) use field;

/// The first field of an optional part of a row: zero means it is missing.
macro_rules! first_of {
    ($row:ty, $name:literal, $unit:literal, $part:ident: $type:ident, $field:ident) => {
        Column::<$row> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(1),
            first: 0,
            get: |row, _| row.$part.map_or(0, |part| part.$field.wrapping_add(1)),
            set: |row, _, value| {
                let first = value.checked_sub(1);
                row.$part = first.map(|$field| $type { $field, ..$type::default() });
                Some(0)
            },
            own: false,
            added_for: None,
        }
    };
}

/// A further field of such a part.
macro_rules! other_of {
    ($row:ty, $name:literal, $unit:literal, $part:ident, $field:ident) => {
        Column::<$row> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(1),
            first: 0,
            get: |row, _| row.$part.map_or(0, |part| part.$field),
            set: |row, _, value| match &mut row.$part {
                Some(part) => {
                    part.$field = value;
                    Some(0)
                }
                None => (value == 0).then_some(0),
            },
            own: false,
            added_for: None,
        }
    };
}

macro_rules! cpu_slots {
    ($name:literal, $unit:literal, $field:ident) => {
        Column::<CpuRaw> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(SLOTS),
            first: 0,
            get: |row, at| row.slots[at].$field,
            set: |row, at, value| {
                row.slots[at].$field = value;
                Some(0)
            },
            own: true,
            added_for: None,
        }
    };
}

macro_rules! task_slots {
    ($name:literal, $unit:literal, $field:ident) => {
        Column::<TaskRaw> {
            name: $name,
            unit: $unit,
            width: Width::Fixed(SLOTS),
            first: 0,
            get: |row, at| row.counts.slots[at].$field,
            set: |row, at, value| Some(row.counts.slots.set(at, |slot| &mut slot.$field, value)),
            own: true,
            added_for: None,
        }
    };
}

/// For how many nodes a task has values in a list: makes room for them. Values of its base stay.
macro_rules! nodes {
    ($name:literal, $list:ident, $cell:ty) => {
        Column::<TaskRaw> {
            name: $name,
            unit: "nodes",
            width: Width::Fixed(1),
            first: 0,
            get: |row, _| row.counts.$list.len() as u64,
            set: |row, _, value| {
                let len = usize::try_from(value).ok().filter(|len| *len <= MAX_NODES)?;
                row.counts.$list.resize(len, <$cell>::default());
                Some(len * size_of::<$cell>())
            },
            own: false,
            added_for: None,
        }
    };
}

/// The values in such a list, or one field of each.
macro_rules! by_node {
    ($name:literal, $unit:literal, $list:ident $(, $field:ident)?) => {
        Column::<TaskRaw> {
            name: $name,
            unit: $unit,
            width: Width::Of(|row| row.counts.$list.len()),
            first: 0,
            get: |row, at| row.counts.$list.get(at).map_or(0, |cell| (*cell)$(.$field)?),
            set: |row, at, value| match row.counts.$list.get_mut(at) {
                Some(cell) => {
                    (*cell)$(.$field)? = value;
                    Some(0)
                }
                // Another row has more nodes; this one has none here.
                None => (value == 0).then_some(0),
            },
            own: true,
            added_for: None,
        }
    };
}

macro_rules! by_sibling {
    ($name:literal, $field:ident) => {
        Column::<TaskRaw> {
            name: $name,
            unit: "counts by counter, with siblings idle and busy",
            width: Width::Fixed(SIBLINGS),
            first: 0,
            get: |row, at| row.counts.by_sibling[at].$field,
            set: |row, at, value| {
                row.counts.by_sibling[at].$field = value;
                Some(0)
            },
            own: true,
            added_for: None,
        }
    };
}

/// Columns of [`TaskRaw`]. Names and meanings stay for ever. New ones go at the end and say what
/// they were added for ([`Column::added_for`]); readers that do not know them skip them.
pub fn task() -> &'static [Column<TaskRaw>] {
    static COLUMNS: LazyLock<Vec<Column<TaskRaw>>> = LazyLock::new(|| {
        let counters = COUNTERS.iter().map(counter);
        let others = vec![
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
                first: 0,
                get: |row, _| row.start_ns.wrapping_sub(row.leader_start_ns),
                set: |row, _, value| {
                    row.leader_start_ns = row.start_ns.wrapping_sub(value);
                    Some(0)
                },
                own: false,
                added_for: None,
            },
            field!(TaskRaw, "cgroup_id", "id", cgroup_id),
            // A name as two numbers of eight bytes, the first letter in the lowest byte.
            Column {
                name: "comm",
                unit: "text",
                width: Width::Fixed(2),
                first: 0,
                get: |row, at| {
                    u64::from_le_bytes(row.comm.0[at * 8..][..8].try_into().expect("eight of sixteen"))
                },
                set: |row, at, value| {
                    row.comm.0[at * 8..][..8].copy_from_slice(&value.to_le_bytes());
                    Some(0)
                },
                own: true,
                added_for: None,
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
            nodes!("run_ns_len", run_ns, u64),
            by_node!("run_ns", "times by node and counter", run_ns),
            // Its time before its first sample, which never changes.
            Column {
                name: "exec_ns-run_ns",
                unit: "ns",
                width: Width::Fixed(1),
                first: 0,
                get: |row, _| row.exec_ns.wrapping_sub(row.counts.cpu_ns()),
                set: |row, _, value| {
                    row.exec_ns = value.wrapping_add(row.counts.cpu_ns());
                    Some(0)
                },
                own: false,
                added_for: None,
            },
            task_slots!("slot_count", "counts by event and counter", count),
            task_slots!("slot_enabled_ns", "times by event and counter", enabled_ns),
            task_slots!("slot_running_ns", "times by event and counter", running_ns),
            nodes!("by_node_len", by_node, NodeCounts),
            by_node!("by_node_cycles", "counts by node and counter", by_node, cycles),
            by_node!("by_node_instructions", "counts by node and counter", by_node, instructions),
            nodes!("pages_len", pages, u64).added_for(Facility::NewPages),
            by_node!("pages", "pages by node and counter", pages).added_for(Facility::NewPages),
            by_sibling!("by_sibling_cycles", cycles).added_for(Facility::CountersBySibling),
            by_sibling!("by_sibling_instructions", instructions).added_for(Facility::CountersBySibling),
            field!(TaskRaw, "numa_group", "id", numa_group).added_for(Facility::NumaGroup),
            field!(TaskRaw, "mempolicy_mode", "enum", mempolicy.mode).added_for(Facility::MemPolicy),
            field!(TaskRaw, "mempolicy_flags", "bits", mempolicy.flags).added_for(Facility::MemPolicy),
            field!(TaskRaw, "mempolicy_nodes", "bits", mempolicy.nodes).added_for(Facility::MemPolicy),
            field!(TaskRaw, "cpu_nodes", "bits", cpu_nodes).added_for(Facility::AllowedNodes),
            field!(TaskRaw, "mem_nodes", "bits", mem_nodes).added_for(Facility::AllowedNodes),
            first_of!(TaskRaw, "resident_file_bytes", "bytes + 1", resident: Resident, file_bytes)
                .added_for(Facility::ResidentKinds),
            other_of!(TaskRaw, "resident_shmem_bytes", "bytes", resident, shmem_bytes)
                .added_for(Facility::ResidentKinds),
            other_of!(TaskRaw, "resident_swap_bytes", "bytes", resident, swap_bytes)
                .added_for(Facility::ResidentKinds),
            // Anonymous memory changes most. As the rest of resident memory it costs nothing.
            Column {
                name: "rss_bytes-resident_bytes",
                unit: "bytes",
                width: Width::Fixed(1),
                first: 0,
                get: |row, _| {
                    let Some(resident) = row.resident else { return 0 };
                    not_of_files(row.rss_bytes, &resident).wrapping_sub(resident.anon_bytes)
                },
                set: |row, _, value| {
                    let rss_bytes = row.rss_bytes;
                    match &mut row.resident {
                        Some(resident) => {
                            resident.anon_bytes = not_of_files(rss_bytes, resident).wrapping_sub(value);
                            Some(0)
                        }
                        None => (value == 0).then_some(0),
                    }
                },
                own: false,
                added_for: Some(Facility::ResidentKinds),
            },
        ];
        let places = [
            nodes!("by_place_len", by_place, u64).added_for(Facility::Places),
            by_node!("by_place", "times by place and counter", by_place).added_for(Facility::Places),
        ];
        others.into_iter().chain(counters).chain(places).collect()
    });
    &COLUMNS
}

/// The column of a counter.
fn counter(info: &CounterInfo) -> Column<TaskRaw> {
    let CounterInfo { counter, name, unit, added_for } = *info;
    if counter == Counter::RunCount {
        return Column {
            name: "run_count-nvcsw-nivcsw",
            unit,
            width: Width::Fixed(1),
            first: 0,
            // Each run ends with a switch.
            get: |row, _| row.counts[Counter::RunCount].wrapping_sub(switches(row)),
            set: |row, _, value| {
                row.counts[Counter::RunCount] = value.wrapping_add(switches(row));
                Some(0)
            },
            own: false,
            added_for,
        };
    }
    Column {
        name,
        unit,
        width: Width::Fixed(1),
        first: counter as usize,
        get: |row, at| row.counts.scalars.values()[at],
        set: |row, at, value| {
            row.counts.scalars.values_mut()[at] = value;
            Some(0)
        },
        own: true,
        added_for,
    }
}

/// Resident memory that is neither of files nor shared.
fn not_of_files(rss_bytes: u64, resident: &Resident) -> u64 {
    rss_bytes.wrapping_sub(resident.file_bytes).wrapping_sub(resident.shmem_bytes)
}

fn switches(row: &TaskRaw) -> u64 {
    row.counts[Counter::Nvcsw].wrapping_add(row.counts[Counter::Nivcsw])
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
            cpu_slots!("slot_count", "counts by event and counter", count),
            cpu_slots!("slot_enabled_ns", "times by event and counter", enabled_ns),
            cpu_slots!("slot_running_ns", "times by event and counter", running_ns),
            // All ones are none: recordings store known times unchanged.
            Column {
                name: "irq_ns",
                unit: "ns, counter",
                width: Width::Fixed(1),
                first: 0,
                get: |row, _| row.irq_ns.unwrap_or(u64::MAX),
                set: |row, _, value| {
                    row.irq_ns = (value != u64::MAX).then_some(value);
                    Some(0)
                },
                own: true,
                added_for: Some(Facility::Irq),
            },
            // Zero is none. The metrics have their reasons from the tasks.
            Column {
                name: "hint_faults",
                unit: "counter + 1",
                width: Width::Fixed(1),
                first: 0,
                get: |row, _| row.hints.map_or(0, |hints| hints.faults.wrapping_add(1)),
                set: |row, _, value| {
                    let faults = value.checked_sub(1);
                    row.hints = faults.map(|faults| Hints { faults, remote: 0 });
                    Some(0)
                },
                own: false,
                added_for: Some(Facility::HintFaults),
            },
            Column {
                name: "hint_remote",
                unit: "counter",
                width: Width::Fixed(1),
                first: 0,
                get: |row, _| row.hints.map_or(0, |hints| hints.remote),
                set: |row, _, value| match &mut row.hints {
                    Some(hints) => {
                        hints.remote = value;
                        Some(0)
                    }
                    None => (value == 0).then_some(0),
                },
                own: false,
                added_for: Some(Facility::HintFaults),
            },
            Column {
                name: "steal_ns",
                unit: "ns + 1, counter",
                width: Width::Fixed(1),
                first: 0,
                get: |row, _| row.steal_ns.map_or(0, |ns| ns.wrapping_add(1)),
                set: |row, _, value| {
                    row.steal_ns = value.checked_sub(1);
                    Some(0)
                },
                own: true,
                added_for: Some(Facility::Steal),
            },
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
            field!(NodeRaw, "low_watermark_bytes", "bytes", low_watermark_bytes)
                .added_for(Facility::Watermarks),
            field!(NodeRaw, "managed_bytes", "bytes", managed_bytes).added_for(Facility::Watermarks),
            field!(NodeRaw, "kswapd_pages", "pages, counter", kswapd_pages).added_for(Facility::Reclaim),
            field!(NodeRaw, "direct_pages", "pages, counter", direct_pages).added_for(Facility::Reclaim),
            field!(NodeRaw, "node_reclaims", "counter", node_reclaims).added_for(Facility::Reclaim),
            first_of!(NodeRaw, "file_active_bytes", "bytes + 1", file_pages: FilePages, active_bytes)
                .added_for(Facility::FilePages),
            other_of!(NodeRaw, "file_inactive_bytes", "bytes", file_pages, inactive_bytes)
                .added_for(Facility::FilePages),
            other_of!(NodeRaw, "shmem_bytes", "bytes", file_pages, shmem_bytes)
                .added_for(Facility::FilePages),
            other_of!(NodeRaw, "dirty_bytes", "bytes", file_pages, dirty_bytes)
                .added_for(Facility::FilePages),
        ]
    });
    &COLUMNS
}
