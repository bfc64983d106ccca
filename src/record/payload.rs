//! A sample as bytes and back: sections with their length in front, told apart from a keyframe or from nothing.
//!
//! Rows of tasks are those that changed of late ([`super::changes`]); the others are as in the sample before,
//! or in one a little further back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::changes::Changes;
use super::columns::{self, Layout};
use super::format::{
    Head, KEY_EVERY, MAX_CELLS, MAX_CPUS, MAX_FLOWS, MAX_FRAMES, MAX_NAMES, MAX_NODE_TIMES, MAX_NODES,
    MAX_PAYLOAD, MAX_ROWS, MAX_TEXT,
};
use super::groups;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use super::{placement, stacks};
use crate::metric::container::LIMITS;
use crate::metric::moved::FLOWS;
use crate::sample::{Counts, CpuRaw, Flow, Hints, Names, NodeRaw, OwnRaw, Sample, TaskRaw, VmStat};
use crate::units::Nid;

/// Sections of a sample. A reader skips those it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Section {
    Times = 1,
    Tasks = 2,
    Exited = 3,
    Cpus = 4,
    Nodes = 5,
    Lost = 6,
    ExitLost = 7,
    Own = 8,
    Users = 9,
    Cgroups = 10,
    Notes = 11,
    /// What cgroups are, and what they may use.
    Groups = 12,
    Limits = 13,
    /// The memory of the whole machine.
    Vm = 14,
    /// From node to node.
    Flows = 15,
    /// Where the memory of processes was found.
    Placement = 16,
    /// Stacks that were sampled.
    Stacks = 17,
    /// Pages that went from node to node.
    PageFlows = 18,
}

const SECTIONS: [Section; 18] = [
    Section::Times,
    Section::Tasks,
    Section::Exited,
    Section::Cpus,
    Section::Nodes,
    Section::Lost,
    Section::ExitLost,
    Section::Own,
    Section::Users,
    Section::Cgroups,
    Section::Notes,
    Section::Groups,
    Section::Limits,
    Section::Vm,
    Section::Flows,
    Section::Placement,
    Section::Stacks,
    Section::PageFlows,
];

impl Section {
    /// For a section that older recordings do not have: what heads call it, and the metrics that have no
    /// value without it.
    fn added(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Section::Groups => {
                Some(("groups", &["container", "kind", "engine", "container_id", "pod", "namespace"]))
            }
            Section::Limits => Some(("limits", &LIMITS)),
            Section::Vm => Some(("vm", &["swap_pages_per_s", "zone_reclaim_mode"])),
            // Shares by node are not here: those of containers are in `Limits`.
            Section::Placement => Some(("placement", &["mem_error_points", "mem_age_ms"])),
            Section::Stacks => Some(("stacks", &[])),
            Section::Flows => Some(("flows", &["task_migrations_per_s"])),
            Section::PageFlows => Some(("page_flows", &FLOWS)),
            _ => None,
        }
    }
}

/// The names of the sections that a recording of this version has and an older one may not have.
pub fn added_sections() -> Vec<String> {
    SECTIONS.iter().filter_map(|section| Some(section.added()?.0.to_string())).collect()
}

/// A sample is beyond what the format can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sample has more {0} than a recording can hold")]
pub struct TooLarge(pub &'static str);

/// Writes `sample` as what differs from the keyframe and is in `changes`, or whole.
///
/// # Errors
/// It is beyond the limits that readers keep.
pub fn encode(out: &mut Vec<u8>, base: Option<(&Sample, &Changes)>, sample: &Sample) -> Result<(), TooLarge> {
    check_limits(sample)?;
    let mut bytes = Vec::new();
    for section in SECTIONS {
        bytes.clear();
        encode_section(&mut bytes, section, base, sample);
        out.push(section as u8);
        put(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
    if out.len() > MAX_PAYLOAD { Err(TooLarge("bytes")) } else { Ok(()) }
}

fn check_limits(sample: &Sample) -> Result<(), TooLarge> {
    let rows = || sample.tasks.iter().chain(&sample.exited);
    let widest = |task: &Arc<TaskRaw>| {
        task.counts.run_ns.len().max(task.counts.by_node.len()).max(task.counts.pages.len())
    };
    let width = rows().map(widest).max().unwrap_or(0);
    let most = sample.tasks.len().max(sample.exited.len());
    // A time, pages, and two counts, for each node.
    let numbers = |counts: &Counts| counts.run_ns.len() + counts.pages.len() + 2 * counts.by_node.len();
    let times: usize = rows().map(|task| numbers(&task.counts)).sum();
    let names = sample.names.users.values().chain(sample.names.cgroups.values());
    let mut texts = names.chain(&sample.notes).chain(sample.lost.keys());
    let hot = sample.hot.as_deref();
    let frames: usize = hot.iter().flat_map(|hot| &hot.stacks).map(|stack| stack.frames.len()).sum();
    let lists = [
        hot.map_or(0, |hot| hot.names.len().max(hot.stacks.len())),
        sample.names.groups.len(),
        sample.groups.len(),
        sample.names.users.len(),
        sample.names.cgroups.len(),
        sample.notes.len(),
        sample.lost.len(),
        sample.placement.len(),
    ];
    for (within, what) in [
        (most <= MAX_ROWS, "tasks"),
        (width <= MAX_NODES && sample.nodes.len() <= MAX_NODES, "nodes"),
        (sample.exit_lost_ns.len() <= MAX_NODES, "nodes"),
        (most.saturating_mul(width) <= MAX_CELLS, "tasks times nodes"),
        (times.saturating_mul(size_of::<u64>()) <= MAX_NODE_TIMES, "tasks times nodes"),
        (sample.cpus.len() <= MAX_CPUS, "CPUs"),
        (sample.flows.len().max(sample.page_flows.len()) <= MAX_FLOWS, "pairs of nodes"),
        (lists.iter().all(|len| *len <= MAX_NAMES), "names"),
        (frames <= MAX_FRAMES, "frames of stacks"),
        (texts.all(|text| text.len() <= MAX_TEXT), "letters in a name"),
    ] {
        if !within {
            return Err(TooLarge(what));
        }
    }
    Ok(())
}

fn encode_section(out: &mut Vec<u8>, section: Section, delta: Option<(&Sample, &Changes)>, sample: &Sample) {
    let base = delta.map(|(key, _)| key);
    match section {
        Section::Times => {
            put(out, sample.wall_ns as u64);
            put(out, sample.mono_ns);
            put(out, sample.boot_ns);
        }
        Section::Tasks => encode_tasks(out, delta, sample),
        Section::Exited => {
            let rows: Vec<_> = sample.exited.iter().map(|task| (&**task, None)).collect();
            put(out, rows.len() as u64);
            columns::encode(out, columns::task(), &rows);
        }
        Section::Cpus => {
            let before = base.map_or(&[][..], |base| &base.cpus);
            let row = |(at, cpu)| (cpu, before.get(at));
            let rows: Vec<(&CpuRaw, _)> = sample.cpus.iter().enumerate().map(row).collect();
            put(out, rows.len() as u64);
            columns::encode(out, columns::cpu(), &rows);
        }
        Section::Nodes => {
            let before = base.map_or(&[][..], |base| &base.nodes);
            let row = |(at, node)| (node, before.get(at));
            let rows: Vec<(&NodeRaw, _)> = sample.nodes.iter().enumerate().map(row).collect();
            put(out, rows.len() as u64);
            columns::encode(out, columns::node(), &rows);
        }
        Section::Lost => {
            if base.is_some_and(|base| base.lost == sample.lost) {
                return;
            }
            put(out, sample.lost.len() as u64);
            for (cause, count) in &sample.lost {
                put_text(out, cause);
                put(out, *count);
            }
        }
        Section::ExitLost => {
            put(out, sample.exit_lost_ns.len() as u64);
            sample.exit_lost_ns.iter().for_each(|ns| put(out, *ns));
        }
        Section::Own => {
            put(out, sample.own.cpu_ns);
            put(out, sample.own.rss_bytes);
            put(out, sample.own.sample_ns);
        }
        Section::Users => {
            let before = base.map(|base| &base.names);
            if !before.is_some_and(|before| Arc::ptr_eq(before, &sample.names)) {
                encode_names(out, before.map(|names| &names.users), &sample.names.users);
            }
        }
        Section::Cgroups => {
            let before = base.map(|base| &base.names);
            if !before.is_some_and(|before| Arc::ptr_eq(before, &sample.names)) {
                encode_names(out, before.map(|names| &names.cgroups), &sample.names.cgroups);
            }
        }
        Section::Notes => {
            put(out, sample.notes.len() as u64);
            sample.notes.iter().for_each(|note| put_text(out, note));
        }
        Section::Groups => {
            let before = base.map(|base| &base.names);
            if !before.is_some_and(|before| Arc::ptr_eq(before, &sample.names)) {
                groups::encode(out, before.map(|names| &names.groups), &sample.names.groups);
            }
        }
        Section::Limits => groups::encode(out, base.map(|base| &base.groups), &sample.groups),
        Section::Vm => encode_vm(out, sample.vm.as_ref()),
        Section::Flows => encode_flows(out, &sample.flows),
        Section::PageFlows => encode_flows(out, &sample.page_flows),
        Section::Placement => placement::encode(out, base.map(|base| &base.placement), &sample.placement),
        Section::Stacks => stacks::encode(out, sample.hot.as_deref()),
    }
}

fn encode_vm(out: &mut Vec<u8>, vm: Option<&VmStat>) {
    let Some(vm) = vm else { return };
    for number in [vm.swapped_in, vm.swapped_out, vm.kswapd_pages, vm.direct_pages] {
        put(out, number);
    }
    put(out, vm.zone_reclaim_mode.map_or(0, |mode| u64::from(mode) + 1));
    if let Some(hints) = vm.hints {
        put(out, hints.faults);
        put(out, hints.remote);
    }
}

fn encode_flows(out: &mut Vec<u8>, flows: &[Flow]) {
    put(out, flows.len() as u64);
    for flow in flows {
        put(out, flow.from.0.into());
        put(out, flow.to.0.into());
        put(out, flow.count);
    }
}

fn decode_flows(input: Bytes<'_>) -> Result<Vec<Flow>, Malformed> {
    let node = |number: u64| u32::try_from(number).map(Nid).map_err(|_| Malformed("a node cannot be"));
    decode_list(input, MAX_FLOWS, |input| {
        Ok(Flow { from: node(input.number()?)?, to: node(input.number()?)?, count: input.number()? })
    })
}

fn decode_vm(mut input: Bytes<'_>) -> Result<Option<VmStat>, Malformed> {
    if input.0.is_empty() {
        return Ok(None);
    }
    let mut vm = VmStat {
        swapped_in: input.number()?,
        swapped_out: input.number()?,
        kswapd_pages: input.number()?,
        direct_pages: input.number()?,
        zone_reclaim_mode: match input.number()? {
            0 => None,
            mode => Some(u32::try_from(mode - 1).map_err(|_| Malformed("a mode cannot be"))?),
        },
        hints: None,
    };
    if !input.0.is_empty() {
        vm.hints = Some(Hints { faults: input.number()?, remote: input.number()? });
    }
    input.finish()?;
    Ok(Some(vm))
}

/// The keyframe of a sample, and a sample before it that is near enough.
#[derive(Clone, Copy)]
pub struct Base<'a> {
    pub key: &'a Sample,
    /// Samples from the keyframe to this one.
    pub tick: u32,
    pub tasks: &'a [Arc<TaskRaw>],
}

/// The sample in `bytes`, and how many samples after its keyframe it is.
///
/// # Errors
/// The bytes are not a sample, it is beyond the limits, or `base` is too far back.
pub fn decode(bytes: &[u8], layouts: &Layouts, state: Option<Base<'_>>) -> Result<(Sample, u32), Malformed> {
    let base = state.map(|state| state.key);
    let mut found: [Option<Bytes<'_>>; SECTIONS.len()] = [None; SECTIONS.len()];
    let mut input = Bytes(bytes);
    while !input.0.is_empty() {
        let id = input.take(1)?[0];
        let len = input.count(MAX_PAYLOAD)?;
        let body = Bytes(input.take(len)?);
        if let Some(at) = SECTIONS.iter().position(|section| *section as u8 == id) {
            found[at] = Some(body);
        }
    }
    let get = |section: Section| {
        let at = SECTIONS.iter().position(|other| *other == section);
        at.and_then(|at| found[at]).ok_or(Malformed("a part of the sample is not there"))
    };
    // Recordings from before there were containers have none of these.
    let groups = get(Section::Groups).unwrap_or(groups::NOTHING);
    let limits = get(Section::Limits).unwrap_or(groups::NOTHING);
    let vm = get(Section::Vm).unwrap_or(Bytes(&[]));
    let flows = get(Section::Flows).unwrap_or(Bytes(&[0]));
    let page_flows = get(Section::PageFlows).unwrap_or(Bytes(&[0]));
    let places = get(Section::Placement).unwrap_or(placement::NOTHING);
    let sampled = get(Section::Stacks).unwrap_or(Bytes(&[]));
    let mut room = MAX_NODE_TIMES;

    let mut times = get(Section::Times)?;
    let (wall_ns, mono_ns, boot_ns) = (times.number()? as i64, times.number()?, times.number()?);
    times.finish()?;
    let (tasks, tick) = decode_tasks(get(Section::Tasks)?, layouts, state, &mut room)?;

    let mut input = get(Section::Exited)?;
    let count = input.count(MAX_ROWS)?;
    let exited = columns::decode(&mut input, &layouts.task, count, |_| None, &mut room)?;
    input.finish()?;

    let mut input = get(Section::Cpus)?;
    let count = input.count(MAX_CPUS)?;
    let before = base.map_or(&[][..], |base| &base.cpus);
    let cpus = columns::decode(&mut input, &layouts.cpu, count, |at| before.get(at), &mut room)?;
    input.finish()?;

    let mut input = get(Section::Nodes)?;
    let count = input.count(MAX_NODES)?;
    let before = base.map_or(&[][..], |base| &base.nodes);
    let nodes = columns::decode(&mut input, &layouts.node, count, |at| before.get(at), &mut room)?;
    input.finish()?;

    let mut own = get(Section::Own)?;
    let used = OwnRaw { cpu_ns: own.number()?, rss_bytes: own.number()?, sample_ns: own.number()? };
    own.finish()?;

    let sample = Sample {
        wall_ns,
        mono_ns,
        boot_ns,
        tasks,
        exited: exited.into_iter().map(Arc::new).collect(),
        cpus,
        nodes,
        vm: decode_vm(vm)?,
        flows: decode_flows(flows)?,
        page_flows: decode_flows(page_flows)?,
        lost: decode_lost(get(Section::Lost)?, base)?,
        exit_lost_ns: decode_list(get(Section::ExitLost)?, MAX_NODES, |input| input.number())?,
        own: used,
        names: decode_all_names(get(Section::Users)?, get(Section::Cgroups)?, groups, base)?,
        groups: groups::decode(limits, base.map(|base| &base.groups))?,
        placement: placement::decode(places, base.map(|base| &base.placement))?,
        hot: stacks::decode(sampled)?.map(Arc::new),
        notes: decode_list(get(Section::Notes)?, MAX_NAMES, |input| Ok(input.text(MAX_TEXT)?.to_string()))?,
    };
    Ok((sample, tick))
}

/// How the rows of a file are laid out.
pub struct Layouts {
    task: Layout<TaskRaw>,
    cpu: Layout<CpuRaw>,
    node: Layout<NodeRaw>,
    /// Metrics whose section is not there.
    without: Vec<&'static str>,
}

impl Layouts {
    /// # Errors
    /// A column that rows are made of is not in the head.
    pub fn of(head: &Head) -> Result<Layouts, String> {
        let absent = SECTIONS.iter().filter_map(|section| section.added());
        let absent = absent.filter(|(name, _)| !head.sections.iter().any(|section| section == name));
        Ok(Layouts {
            task: Layout::of(&head.columns.task, columns::task())?,
            cpu: Layout::of(&head.columns.cpu, columns::cpu())?,
            node: Layout::of(&head.columns.node, columns::node())?,
            without: absent.flat_map(|(_, metrics)| metrics).copied().collect(),
        })
    }

    /// Metrics that have no value, because the recording is of a version that did not keep what they are
    /// made of.
    pub fn without(&self) -> impl Iterator<Item = &'static str> {
        let columns = self.task.without().iter().chain(self.cpu.without()).chain(self.node.without());
        columns.chain(&self.without).copied()
    }
}

/// How far from the keyframe, how far back the changes reach, serials that are gone, serials of the rows
/// that follow, rows. A whole sample has all its rows, in its order and without their serials in front.
fn encode_tasks(out: &mut Vec<u8>, delta: Option<(&Sample, &Changes)>, sample: &Sample) {
    let Some((key, changes)) = delta else {
        put(out, 0);
        put(out, sample.tasks.len() as u64);
        let rows: Vec<_> = sample.tasks.iter().map(|task| (&**task, None)).collect();
        columns::encode(out, columns::task(), &rows);
        return;
    };
    put(out, changes.tick().into());
    put(out, changes.reach().into());
    put_ascending(out, &changes.gone().collect::<Vec<_>>());
    let rows: Vec<_> = changes.rows(sample).map(|task| (task, find(&key.tasks, task.serial))).collect();
    put_ascending(out, &rows.iter().map(|(task, _)| task.serial).collect::<Vec<_>>());
    columns::encode(out, columns::task(), &rows);
}

/// The row with this serial among rows in the order of serials.
fn find(tasks: &[Arc<TaskRaw>], serial: u64) -> Option<&TaskRaw> {
    tasks.binary_search_by_key(&serial, |task| task.serial).ok().map(|at| &*tasks[at])
}

fn put_ascending(out: &mut Vec<u8>, serials: &[u64]) {
    put(out, serials.len() as u64);
    let mut before = 0;
    for serial in serials {
        put(out, serial.wrapping_sub(before));
        before = *serial;
    }
}

fn ascending(input: &mut Bytes<'_>) -> Result<Vec<u64>, Malformed> {
    let count = input.count(MAX_ROWS)?;
    // Each takes a byte at least.
    let mut serials: Vec<u64> = Vec::with_capacity(count.min(input.0.len()));
    for _ in 0..count {
        let more = input.number()?;
        let serial = match serials.last() {
            Some(before) if more > 0 => before.checked_add(more),
            Some(_) => None,
            None => Some(more),
        };
        serials.push(serial.ok_or(Malformed("serials are not in order"))?);
    }
    Ok(serials)
}

fn decode_tasks(
    mut input: Bytes<'_>,
    layouts: &Layouts,
    state: Option<Base<'_>>,
    room: &mut usize,
) -> Result<(Vec<Arc<TaskRaw>>, u32), Malformed> {
    let tick = input.count(KEY_EVERY as usize)? as u32;
    if tick == 0 {
        let count = input.count(MAX_ROWS)?;
        let rows = columns::decode(&mut input, &layouts.task, count, |_| None, room)?;
        input.finish()?;
        return Ok((rows.into_iter().map(Arc::new).collect(), 0));
    }
    let state = state.ok_or(Malformed("its keyframe is not there"))?;
    let reach = input.count(tick as usize)? as u32;
    if state.tick >= tick || state.tick < tick - reach {
        return Err(Malformed("the samples before it are not there"));
    }
    let gone = ascending(&mut input)?;
    let serials = ascending(&mut input)?;
    let of = |at: usize| find(&state.key.tasks, serials[at]);
    let rows = columns::decode(&mut input, &layouts.task, serials.len(), of, room)?;
    input.finish()?;
    if rows.iter().zip(&serials).any(|(row, serial)| row.serial != *serial) {
        return Err(Malformed("a row is not the one it says"));
    }
    // Rows of the sample before, but for those that are gone or here; all lists are in the order of serials.
    let mut tasks = Vec::with_capacity(state.tasks.len() + rows.len());
    let mut gone = gone.iter().peekable();
    let mut rows = rows.into_iter().map(Arc::new).peekable();
    for old in state.tasks {
        while let Some(row) = rows.next_if(|row| row.serial < old.serial) {
            tasks.push(row);
        }
        while gone.next_if(|serial| **serial < old.serial).is_some() {}
        let is_gone = gone.peek() == Some(&&old.serial);
        let replaced = rows.peek().is_some_and(|row| row.serial == old.serial);
        if !is_gone && !replaced {
            tasks.push(Arc::clone(old));
        }
    }
    tasks.extend(rows);
    Ok((tasks, tick))
}

fn decode_lost(mut input: Bytes<'_>, base: Option<&Sample>) -> Result<BTreeMap<String, u64>, Malformed> {
    if input.0.is_empty() {
        return base.map(|base| base.lost.clone()).ok_or(Malformed("its losses are those of no keyframe"));
    }
    let mut lost = BTreeMap::new();
    for _ in 0..input.count(MAX_NAMES)? {
        let cause = input.text(MAX_TEXT)?.to_string();
        lost.insert(cause, input.number()?);
    }
    input.finish()?;
    Ok(lost)
}

fn decode_list<T>(
    mut input: Bytes<'_>,
    limit: usize,
    each: impl Fn(&mut Bytes<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = input.count(limit)?;
    // Every entry takes a byte at least, so the list cannot be longer than its bytes.
    let mut list = Vec::with_capacity(count.min(input.0.len()));
    for _ in 0..count {
        list.push(each(&mut input)?);
    }
    input.finish()?;
    Ok(list)
}

/// Ids that are gone, then ids that are new or called something else.
fn encode_names<K: Copy + Ord + Into<u64>>(
    out: &mut Vec<u8>,
    base: Option<&BTreeMap<K, String>>,
    names: &BTreeMap<K, String>,
) {
    let gone: Vec<K> =
        base.iter().flat_map(|base| base.keys()).filter(|id| !names.contains_key(id)).copied().collect();
    let new: Vec<(&K, &String)> =
        names.iter().filter(|(id, name)| base.and_then(|base| base.get(id)) != Some(*name)).collect();
    put(out, gone.len() as u64);
    gone.into_iter().for_each(|id| put(out, id.into()));
    put(out, new.len() as u64);
    let mut before = 0;
    for (id, name) in new {
        put(out, difference((*id).into(), before));
        before = (*id).into();
        put_text(out, name);
    }
}

fn decode_names<K: Ord + TryFrom<u64>>(
    mut input: Bytes<'_>,
    names: &mut BTreeMap<K, String>,
) -> Result<(), Malformed> {
    let id = |number: u64| K::try_from(number).map_err(|_| Malformed("an id is out of range"));
    for _ in 0..input.count(MAX_NAMES)? {
        names.remove(&id(input.number()?)?);
    }
    let mut before = 0;
    for _ in 0..input.count(MAX_NAMES)? {
        before = undo_difference(input.number()?, before);
        names.insert(id(before)?, input.text(MAX_TEXT)?.to_string());
    }
    input.finish()
}

fn decode_all_names(
    users: Bytes<'_>,
    cgroups: Bytes<'_>,
    groups: Bytes<'_>,
    base: Option<&Sample>,
) -> Result<Arc<Names>, Malformed> {
    if users.0.is_empty() && cgroups.0.is_empty() {
        return base
            .map(|base| Arc::clone(&base.names))
            .ok_or(Malformed("its names are those of no keyframe"));
    }
    let mut names = base.map_or_else(Names::default, |base| Names::clone(&base.names));
    decode_names(users, &mut names.users)?;
    decode_names(cgroups, &mut names.cgroups)?;
    names.groups = groups::decode(groups, base.map(|base| &base.names.groups))?;
    Ok(Arc::new(names))
}
