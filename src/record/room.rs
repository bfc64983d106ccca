//! Memory that a sample takes while it is read, in proportion to the bytes that it has in the file: two kilobytes cannot
//! become two gigabytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command_lines;
use super::format::{MEMORY_MAX, memory_limit};
use super::payload::Delta;
use super::varint::Malformed;
use crate::model::access::answers::Answers;
use crate::model::access::lines::{ContendedLine, LineSide};
use crate::model::access::objects::Object;
use crate::model::access::{MappingUse, MemoryUse, MemoryUses};
use crate::model::interrupts::{DeviceInterrupts, Interrupts};
use crate::model::sample::{Counts, CpuRaw, NodeRaw, Sample, TaskRaw};
use crate::model::stacks::{Function, Place, StackBatch};

/// Bytes that a byte of a payload becomes at most where nothing else is said: an empty text with its length in front
/// becomes an entry of a list.
const PER_BYTE: usize = 24;
/// An entry of a map or a list beside the text in it, and a row that is shared with another sample.
const ENTRY: usize = 64;
/// A map with an entry: it has room for eleven at once.
const MAP: usize = 512;
const SHARED: usize = 8;

/// Bytes that a sample may yet take.
#[derive(Debug)]
pub struct Room(usize);

impl Room {
    /// For a payload of `raw` bytes, of which `stored` are in the file.
    ///
    /// # Errors
    /// The payload alone takes more.
    pub fn new(stored: usize, raw: usize) -> Result<Room, Malformed> {
        let mut room = Room(memory_limit(stored));
        room.take(raw, PER_BYTE)?;
        room.0 = room.0.min(MEMORY_MAX);
        Ok(room)
    }

    /// As much as there is: for payloads that are not from a file.
    pub fn endless() -> Room {
        Room(usize::MAX)
    }

    /// Takes `count` times `bytes`.
    ///
    /// # Errors
    /// So many are not left.
    pub(super) fn take(&mut self, count: usize, bytes: usize) -> Result<(), Malformed> {
        let left = self.0.checked_sub(count.saturating_mul(bytes));
        self.0 = left.ok_or(Malformed("it would take more memory than its size allows"))?;
        Ok(())
    }

    /// For `count` rows of this type.
    pub(super) fn take_rows<R>(&mut self, count: usize) -> Result<(), Malformed> {
        self.take(count, of_row::<R>())
    }

    /// For rows that are those of another sample.
    pub(super) fn take_shared(&mut self, count: usize) -> Result<(), Malformed> {
        self.take(count, SHARED)
    }

    /// For a copy of a map of so many entries, whose texts are elsewhere.
    pub(super) fn take_entries(&mut self, count: usize) -> Result<(), Malformed> {
        self.take(count, ENTRY)
    }

    pub(super) fn take_names<K>(&mut self, names: &BTreeMap<K, String>) -> Result<(), Malformed> {
        self.take(1, of_names(names))
    }

    pub(super) fn take_losses(&mut self, lost: &BTreeMap<String, u64>) -> Result<(), Malformed> {
        self.take(1, of_losses(lost))
    }

    /// For a map of so many entries whose size is known beforehand.
    pub(super) fn take_map(&mut self, entries: usize) -> Result<(), Malformed> {
        self.take(1, of_map(entries))
    }

    /// For a device with so long an address whose interrupts are known by so many nodes.
    pub(super) fn take_device(&mut self, address: usize, nodes: usize) -> Result<(), Malformed> {
        self.take(1, of_device(address, nodes))
    }

    /// For a copy of devices whose interrupts are known.
    pub(super) fn take_devices(&mut self, devices: &Interrupts) -> Result<(), Malformed> {
        self.take(1, of_devices(devices))
    }

    /// For a process whose memory use is known, without its maps and mappings.
    pub(super) fn take_use(&mut self) -> Result<(), Malformed> {
        self.take(1, OF_USE)
    }

    /// For a mapping in use with so long a name, without its maps.
    pub(super) fn take_mapping(&mut self, name: usize) -> Result<(), Malformed> {
        self.take(1, size_of::<MappingUse>() + name)
    }

    /// For a contended line in a mapping with so long a name, without its sides.
    pub(super) fn take_line(&mut self, name: usize) -> Result<(), Malformed> {
        self.take(1, size_of::<ContendedLine>() + name)
    }

    /// For a side of it.
    pub(super) fn take_side(&mut self, side: &LineSide) -> Result<(), Malformed> {
        self.take(1, of_side(side))
    }

    /// For an object in a mapping with so long a name, without its functions and maps.
    pub(super) fn take_object(&mut self, name: usize) -> Result<(), Malformed> {
        self.take(1, size_of::<Object>() + name)
    }

    /// For a function of it.
    pub(super) fn take_function(&mut self, function: &Arc<Function>) -> Result<(), Malformed> {
        self.take(1, of_function(function))
    }

    pub(super) fn take_named(&mut self, function: &Function) -> Result<(), Malformed> {
        self.take(1, of_named(function))
    }
}

const OF_USE: usize = size_of::<MemoryUse>() + 2 * ENTRY;

fn of_device(address: usize, nodes: usize) -> usize {
    address + size_of::<(String, DeviceInterrupts)>() + ENTRY + of_map(nodes)
}

fn of_devices(devices: &Interrupts) -> usize {
    devices.iter().map(|(address, device)| of_device(address.len(), device.by_node.len())).sum()
}

fn of_map(entries: usize) -> usize {
    if entries == 0 { 0 } else { MAP + entries * ENTRY }
}

/// Never less than what a reader takes of [`Room`].
fn of_uses(uses: &MemoryUses) -> usize {
    let of_nodes = |maps: [usize; 2]| maps.into_iter().map(of_map).sum::<usize>();
    let of_mapping = |mapping: &MappingUse| {
        let maps = [mapping.by_node.len(), mapping.next_by_node.len()];
        size_of::<MappingUse>() + mapping.name.len() + of_nodes(maps) + of_answers(&mapping.answers)
    };
    let of_process = |found: &MemoryUse| {
        let runs = [found.next_runs.by_remote.len(), found.next_runs.by_mapping.len()];
        OF_USE
            + of_losses(&found.lost)
            + of_map(found.lost.len())
            + found.no_nodes.as_ref().map_or(0, |why| why.to_string().len())
            + of_nodes(runs)
            + of_nodes([found.rest.by_node.len(), found.rest.next_by_node.len()])
            + of_answers(&found.answers)
            + found.mappings.iter().map(of_mapping).sum::<usize>()
            + found.lines.listed.iter().map(of_line).sum::<usize>()
            + found.objects.iter().map(of_object).sum::<usize>()
    };
    uses.processes.values().map(|found| of_process(found)).sum()
}

fn of_line(line: &ContendedLine) -> usize {
    let sides = line.sides.iter().map(of_side).sum::<usize>();
    size_of::<ContendedLine>() + line.mapping.len() + sides
}

fn of_side(side: &LineSide) -> usize {
    size_of::<LineSide>() + side.function.as_ref().map_or(0, |function| function.bytes())
}

fn of_object(object: &Object) -> usize {
    let functions = object.functions.iter().map(of_function).sum::<usize>();
    let maps = [object.touched_on.len(), object.by_node.len(), object.next_by_node.len()];
    size_of::<Object>() + object.mapping.len() + functions + maps.into_iter().map(of_map).sum::<usize>()
}

fn of_function(function: &Arc<Function>) -> usize {
    size_of::<Arc<Function>>() + function.bytes()
}

fn of_answers(answers: &Answers) -> usize {
    let latencies = [&answers.local, &answers.remote].map(|found| of_map(found.latencies.steps().count()));
    of_map(answers.classes.len()) + latencies.iter().sum::<usize>()
}

fn of_row<R>() -> usize {
    size_of::<R>() + ENTRY
}

fn of_names<K>(names: &BTreeMap<K, String>) -> usize {
    names.values().map(|name| name.len() + ENTRY).sum()
}

fn of_losses(lost: &BTreeMap<String, u64>) -> usize {
    lost.keys().map(|cause| cause.len() + ENTRY).sum()
}

fn of_named(function: &Function) -> usize {
    size_of::<(Place, Function)>() + function.name.as_ref().map_or(0, String::len) + function.module.len()
}

/// Whether a reader takes a sample that needs so much, of which `raw` bytes are written.
pub(super) fn fits(needed: usize, raw: usize) -> bool {
    needed - raw * PER_BYTE <= MEMORY_MAX
}

/// The share of its [`Room`] that a reader takes for a sample of which `raw` bytes are written; never less.
pub(super) fn needed(delta: Option<Delta<'_>>, sample: &Sample, raw: usize) -> usize {
    let base = delta.map(|delta| delta.key);
    let lists = |counts: &Counts| {
        size_of_val(&counts.run_ns[..]) + size_of_val(&counts.pages[..]) + size_of_val(&counts.by_node[..])
    };
    let task = |task: &TaskRaw| of_row::<TaskRaw>() + lists(&task.counts);
    let rows: usize = match delta {
        Some(delta) => delta.changes.rows(sample).map(task).sum(),
        None => sample.tasks.iter().map(|row| task(row)).sum(),
    };
    // All that were in a sample since the keyframe may be in the one before.
    let shared = base.map_or(0, |base| SHARED * (base.tasks.len() + sample.tasks.len()));
    let copied = base.map_or(0, |base| {
        let named = |names: &crate::model::sample::Names| {
            of_names(&names.users) + of_names(&names.cgroups) + names.groups.len() * ENTRY
        };
        let names = if Arc::ptr_eq(&base.names, &sample.names) { 0 } else { named(&base.names) };
        let lines = if Arc::ptr_eq(&base.command_lines, &sample.command_lines) {
            0
        } else {
            base.command_lines.len() * ENTRY
        };
        names + lines + of_losses(&base.lost) + (base.groups.len() + base.placement.len()) * ENTRY
    });
    raw * PER_BYTE
        + rows
        + shared
        + copied
        + sample.exited.iter().map(|row| task(row)).sum::<usize>()
        + sample.cpus.len() * of_row::<CpuRaw>()
        + sample.nodes.len() * of_row::<NodeRaw>()
        + of_devices(&sample.interrupts)
        + base.map_or(0, |base| of_devices(&base.interrupts))
        + sample.command_lines.values().map(|line| command_lines::of_line(line)).sum::<usize>()
        + sample.hot.as_deref().map_or(0, of_news)
        + sample.memory_use.as_deref().map_or(0, of_uses)
}

fn of_news(news: &StackBatch) -> usize {
    news.names.iter().map(|(_, function)| of_named(function)).sum()
}
