//! A sample as bytes and back: sections with their length in front, told apart from a keyframe or from nothing.
//! Rows of tasks, names, limits and places are in files of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::changes::Recent;
use super::format::{
    MAX_CPUS, MAX_FLOWS, MAX_NAMES, MAX_NODES, MAX_PAYLOAD, MAX_ROWS, MAX_TEXT, least_stored_for,
};
pub use super::latest::Latest;
pub use super::limits::TooLarge;
pub use super::room::Room;
pub use super::rows::{Base, KnownRows, Listed};
pub use super::sections::Layouts;
use super::sections::{SECTIONS, Section};
use super::varint::{Bytes, Malformed, put, put_text};
use super::{
    by_policy, columns, command_lines, groups, huge_pages, interrupts, limits, machine, memory_use, names,
    placement, policies, room, rows, stacks,
};
use crate::model::sample::{CpuRaw, Flow, Hints, MachineRaw, NodeRaw, Sample, SelfUsage, TaskRows, VmStat};
use crate::model::units::NodeId;

/// The base of a delta.
#[derive(Clone, Copy)]
pub struct Delta<'a> {
    pub key: &'a Sample,
    /// The checksum of the payload of the keyframe: [`id_of`].
    pub key_id: u32,
    pub changes: Recent<'a>,
}

/// The checksum by which deltas name the keyframe that has this payload. It is that of no other keyframe, also where frames
/// have come to another place than they were written to.
pub fn id_of(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

/// Writes `sample` as what differs from the keyframe and is in `changes`, or whole. Returns how many bytes of it must be
/// in the file, so that readers take what it holds.
///
/// # Errors
/// It is beyond the limits that readers keep.
pub fn encode(out: &mut Vec<u8>, delta: Option<Delta<'_>>, sample: &Sample) -> Result<usize, TooLarge> {
    limits::check(sample)?;
    encode_unchecked(out, delta, sample);
    if out.len() > MAX_PAYLOAD {
        return Err(TooLarge("bytes"));
    }
    let needed = room::needed(delta, sample, out.len());
    if !room::fits(needed, out.len()) {
        return Err(TooLarge("memory"));
    }
    Ok(least_stored_for(needed))
}

/// The same for memory. Limits are not looked at, which takes a look at all rows: a sample beyond them is not decoded.
pub fn encode_unchecked(out: &mut Vec<u8>, delta: Option<Delta<'_>>, sample: &Sample) {
    let mut bytes = Vec::new();
    for section in SECTIONS {
        bytes.clear();
        encode_section(&mut bytes, section, delta, sample);
        out.push(section as u8);
        put(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
}

fn encode_section(out: &mut Vec<u8>, section: Section, delta: Option<Delta<'_>>, sample: &Sample) {
    let base = delta.map(|delta| delta.key);
    match section {
        Section::Times => {
            put(out, sample.wall_ns as u64);
            put(out, sample.mono_ns);
            put(out, sample.boot_ns);
        }
        Section::Tasks => rows::encode(out, delta, sample),
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
                names::encode(out, before.map(|names| &names.users), &sample.names.users);
            }
        }
        Section::Cgroups => {
            let before = base.map(|base| &base.names);
            if !before.is_some_and(|before| Arc::ptr_eq(before, &sample.names)) {
                names::encode(out, before.map(|names| &names.cgroups), &sample.names.cgroups);
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
        Section::Machine => {
            machine::encode(out, base.and_then(|base| base.machine.as_ref()), sample.machine.as_ref());
        }
        Section::Load => machine::encode_load(out, sample.machine.as_ref()),
        Section::Flows => encode_flows(out, &sample.flows),
        Section::PageFlows => encode_flows(out, &sample.page_flows),
        Section::Placement => placement::encode(out, base.map(|base| &base.placement), &sample.placement),
        Section::Policies => policies::encode(out, base.map(|base| &base.placement), &sample.placement),
        Section::ByPolicy => by_policy::encode(out, base.map(|base| &base.placement), &sample.placement),
        Section::HugePages => huge_pages::encode(out, base.map(|base| &base.placement), &sample.placement),
        Section::Interrupts => {
            interrupts::encode(out, base.map(|base| &base.interrupts), &sample.interrupts);
        }
        Section::CommandLines => {
            command_lines::encode(out, base.map(|base| &base.command_lines), &sample.command_lines);
        }
        Section::Stacks => stacks::encode(out, sample.hot.as_deref()),
        Section::MemoryUse => memory_use::encode(out, sample.memory_use.as_deref()),
        Section::KeyId => {
            delta.into_iter().for_each(|delta| out.extend_from_slice(&delta.key_id.to_le_bytes()));
        }
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
    let node = |number: u64| u32::try_from(number).map(NodeId).map_err(|_| Malformed("a node cannot be"));
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

/// The sample in `bytes`, and how many samples after its keyframe it is. It takes no more memory than there is `room`.
///
/// # Errors
/// The bytes are not a sample, it is beyond the limits, or `base` is too far back.
pub fn decode(
    bytes: &[u8],
    layouts: &Layouts,
    state: Option<Base<'_>>,
    room: Room,
) -> Result<(Sample, u32), Malformed> {
    decode_with(bytes, layouts, state, room, &mut KnownRows::default())
}

/// The same, for one sample after the other.
///
/// # Errors
/// As [`decode`].
pub fn decode_with(
    bytes: &[u8],
    layouts: &Layouts,
    state: Option<Base<'_>>,
    mut room: Room,
    known: &mut KnownRows,
) -> Result<(Sample, u32), Malformed> {
    let found = Sections::of(bytes)?;
    state.map_or(Ok(()), |state| found.check_key(state.key_id))?;
    let (tasks, tick) = rows::decode(found.get(Section::Tasks)?, &layouts.task, state, &mut room, known)?;
    let rest = decode_rest(&found, layouts, state.map(|state| state.key), &mut room)?;
    Ok((Sample { tasks: tasks.into(), ..rest }, tick))
}

/// The sample in `bytes` without rows of live tasks.
///
/// # Errors
/// As [`decode`].
pub fn decode_without_tasks(
    bytes: &[u8],
    layouts: &Layouts,
    key: Option<&Sample>,
    mut room: Room,
) -> Result<Sample, Malformed> {
    decode_rest(&Sections::of(bytes)?, layouts, key, &mut room)
}

/// All of a sample but the rows of live tasks.
fn decode_rest(
    found: &Sections<'_>,
    layouts: &Layouts,
    base: Option<&Sample>,
    room: &mut Room,
) -> Result<Sample, Malformed> {
    let get = |section| found.get(section);
    // Recordings from before there were containers have none of these.
    let groups = get(Section::Groups).unwrap_or(groups::NOTHING);
    let limits = get(Section::Limits).unwrap_or(groups::NOTHING);
    let vm = get(Section::Vm).unwrap_or(Bytes(&[]));
    let state_of_machine = get(Section::Machine).unwrap_or(Bytes(&[]));
    let load = machine::decode_load(get(Section::Load).unwrap_or(Bytes(&[])))?;
    let flows = get(Section::Flows).unwrap_or(Bytes(&[0]));
    let page_flows = get(Section::PageFlows).unwrap_or(Bytes(&[0]));
    let places = get(Section::Placement).unwrap_or(placement::NOTHING);
    let owned = get(Section::Policies).unwrap_or(policies::NOTHING);
    let by_policy = get(Section::ByPolicy).unwrap_or(by_policy::NOTHING);
    let huge = get(Section::HugePages).unwrap_or(huge_pages::NOTHING);
    let handled = get(Section::Interrupts).unwrap_or(Bytes(&[]));
    let sampled = get(Section::Stacks).unwrap_or(Bytes(&[]));
    let used = get(Section::MemoryUse).unwrap_or(Bytes(&[]));
    let lines = get(Section::CommandLines).unwrap_or(Bytes(&[]));

    let mut times = get(Section::Times)?;
    let (wall_ns, mono_ns, boot_ns) = (times.number()? as i64, times.number()?, times.number()?);
    times.finish()?;

    let mut input = get(Section::Exited)?;
    let count = input.count(MAX_ROWS)?;
    let exited = columns::decode(&mut input, &layouts.task, count, |_| None, room)?;
    input.finish()?;

    let mut input = get(Section::Cpus)?;
    let count = input.count(MAX_CPUS)?;
    let before = base.map_or(&[][..], |base| &base.cpus);
    let cpus = columns::decode(&mut input, &layouts.cpu, count, |at| before.get(at), room)?;
    input.finish()?;

    let mut input = get(Section::Nodes)?;
    let count = input.count(MAX_NODES)?;
    let before = base.map_or(&[][..], |base| &base.nodes);
    let nodes = columns::decode(&mut input, &layouts.node, count, |at| before.get(at), room)?;
    input.finish()?;

    let mut own = get(Section::Own)?;
    let own_usage = SelfUsage { cpu_ns: own.number()?, rss_bytes: own.number()?, sample_ns: own.number()? };
    own.finish()?;

    let mut placement = placement::decode(places, base.map(|base| &base.placement), room)?;
    policies::decode(owned, &mut placement)?;
    by_policy::decode(by_policy, &mut placement)?;
    huge_pages::decode(huge, &mut placement)?;

    Ok(Sample {
        wall_ns,
        mono_ns,
        boot_ns,
        tasks: TaskRows::default(),
        exited: exited.into_iter().map(Arc::new).collect(),
        cpus,
        nodes,
        vm: decode_vm(vm)?,
        machine: machine::decode(state_of_machine, base.and_then(|base| base.machine.as_ref()))?
            .map(|machine| MachineRaw { load_hundredths: load, ..machine }),
        flows: decode_flows(flows)?,
        page_flows: decode_flows(page_flows)?,
        interrupts: interrupts::decode(handled, base.map(|base| &base.interrupts), room)?,
        lost: decode_lost(get(Section::Lost)?, base, room)?,
        exit_lost_ns: decode_list(get(Section::ExitLost)?, MAX_NODES, |input| input.number())?,
        own: own_usage,
        names: names::decode_all(get(Section::Users)?, get(Section::Cgroups)?, groups, base, room)?,
        groups: groups::decode(limits, base.map(|base| &base.groups), room)?,
        placement,
        about: Arc::default(),
        command_lines: command_lines::decode(lines, base.map(|base| &base.command_lines), room)?,
        memory_use: memory_use::decode(used, room)?.map(Arc::new),
        hot: stacks::decode(sampled, room)?.map(Arc::new),
        notes: decode_list(get(Section::Notes)?, MAX_NAMES, |input| Ok(input.text(MAX_TEXT)?.to_string()))?,
    })
}

/// Adds the rows of a delta to those of the deltas behind it, which all have the same keyframe. Gives how far back it reaches in
/// turn.
///
/// # Errors
/// The bytes are not a delta of this keyframe, or it is not the sample `tick` samples after it.
pub fn decode_latest(
    latest: &mut Latest,
    bytes: &[u8],
    layouts: &Layouts,
    base: Base<'_>,
    tick: u32,
    mut room: Room,
) -> Result<Listed, Malformed> {
    let (listed, rows) = listed(bytes, base.key_id)?;
    if listed.tick != tick {
        return Err(Malformed("the samples before it are not there"));
    }
    latest.add(&listed, rows, &layouts.task, &base.key.tasks, &mut room)?;
    Ok(listed)
}

/// The tasks that a delta has something about, and the bytes of their rows.
///
/// # Errors
/// The bytes are not a delta of this keyframe.
pub fn listed(bytes: &[u8], key_id: u32) -> Result<(Listed, Bytes<'_>), Malformed> {
    let found = Sections::of(bytes)?;
    found.check_key(key_id)?;
    let mut rows = found.get(Section::Tasks)?;
    Ok((Listed::read(&mut rows)?, rows))
}

/// The parts of a sample.
struct Sections<'a>([Option<Bytes<'a>>; SECTIONS.len()]);

impl<'a> Sections<'a> {
    fn of(bytes: &'a [u8]) -> Result<Sections<'a>, Malformed> {
        let mut found = [None; SECTIONS.len()];
        let mut input = Bytes(bytes);
        while !input.0.is_empty() {
            let id = input.take(1)?[0];
            let len = input.count(MAX_PAYLOAD)?;
            let body = Bytes(input.take(len)?);
            if let Some(at) = SECTIONS.iter().position(|section| *section as u8 == id) {
                found[at] = Some(body);
            }
        }
        Ok(Sections(found))
    }

    fn get(&self, section: Section) -> Result<Bytes<'a>, Malformed> {
        let at = SECTIONS.iter().position(|other| *other == section);
        at.and_then(|at| self.0[at]).ok_or(Malformed("a part of the sample is not there"))
    }

    /// Older recordings do not name the keyframe.
    fn check_key(&self, id: u32) -> Result<(), Malformed> {
        match self.get(Section::KeyId).map_or(&[][..], |bytes| bytes.0) {
            bytes if bytes.is_empty() || bytes == id.to_le_bytes() => Ok(()),
            _ => Err(Malformed("another keyframe is where its own should be")),
        }
    }
}

fn decode_lost(
    mut input: Bytes<'_>,
    base: Option<&Sample>,
    room: &mut Room,
) -> Result<BTreeMap<String, u64>, Malformed> {
    if input.0.is_empty() {
        let base = base.ok_or(Malformed("its losses refer to no keyframe"))?;
        room.take_losses(&base.lost)?;
        return Ok(base.lost.clone());
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
