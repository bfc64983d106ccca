//! Sections of a sample in a recording, one line for each, and facilities that are missing without them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::columns::{self, Layout, Row};
use super::format::{Head, MAX_CPUS, MAX_NAMES, MAX_NODES, MAX_ROWS, MAX_TEXT};
use super::payload::Delta;
use super::{machine, memory_use, names, placement, rows, stacks};
use crate::model::coded::varint::Malformed;
use crate::model::coded::{Codec, Coded, In, Out, Tail, copied, get_changed, put_changed};
use crate::model::facility::Facility;
use crate::model::inputs::INPUTS;
use crate::model::sample::{CpuRaw, MachineRaw, NodeRaw, Sample, TaskRaw};

/// A sample to write, and its base.
#[derive(Clone, Copy)]
pub(super) struct Written<'v> {
    pub delta: Option<Delta<'v>>,
    pub base: Option<&'v Sample>,
    pub sample: &'v Sample,
}

/// Context of a section that is read.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub layouts: &'a Layouts,
    pub base: Option<&'a Sample>,
}

type Put = for<'v> fn(Written<'v>, &mut Out<'v>);
type Get = fn(&mut In<'_, '_>, Context<'_>, &mut Sample) -> Result<(), Malformed>;

/// A section. A reader skips those it does not know.
pub(super) struct Section {
    /// Never another one's.
    pub tag: u8,
    /// Its name in heads; `None`: every recording has this section.
    pub name: Option<&'static str>,
    /// Missing in recordings without it.
    facility: Option<Facility>,
    pub put: Put,
    /// Reads it into a sample that has all sections with lower tags.
    pub get: Get,
}

/// A section of all recordings.
const fn always(tag: u8, put: Put, get: Get) -> Section {
    Section { tag, name: None, facility: None, put, get }
}

/// A section that came after the first recordings.
const fn added(tag: u8, name: &'static str, facility: Option<Facility>, put: Put, get: Get) -> Section {
    Section { tag, name: Some(name), facility, put, get }
}

/// The rows of live tasks are not read with the others: see [`rows`].
pub(super) const TASKS: u8 = 2;
/// The keyframe of a delta, by the checksum of its payload. The oldest recordings do not have it.
pub(super) const KEY_ID: u8 = 19;

/// A field that is written as all of its type are.
macro_rules! whole {
    ($field:ident) => {
        |written, out| written.sample.$field.put(out)
    };
}

/// Reads a field in this way.
macro_rules! set {
    ($field:ident = |$input:ident, $context:ident| $get:expr) => {
        |$input, $context, sample| {
            let _ = $context;
            sample.$field = $get?;
            Ok(())
        }
    };
}

/// A part of placements that is known beside them.
macro_rules! beside {
    ($part:expr, $set:expr) => {
        (
            |written, out| {
                let base = written.base.map(|base| &base.placement);
                placement::put_part(out, base, &written.sample.placement, $part);
            },
            |input, _, sample| placement::get_part(input, &mut sample.placement, $set),
        )
    };
}

const POLICIES: (Put, Get) = beside!(|entry| entry.policies.as_ref(), |entry, part| {
    entry.policies = Some(part);
    Some(())
});
const HUGE_PAGES: (Put, Get) = beside!(placement::huge_pages, placement::set_huge_pages);
const BY_POLICY: (Put, Get) = beside!(|entry| entry.by_policy.as_ref(), |entry, part| {
    entry.by_policy = Some(part);
    Some(())
});

/// Sections beside those of [`INPUTS`].
const OWN: [Section; 26] = [
    always(
        1,
        |written, out| {
            let Sample { wall_ns, mono_ns, boot_ns, .. } = written.sample;
            wall_ns.put(out);
            mono_ns.put(out);
            boot_ns.put(out);
        },
        |input, _, sample| {
            (sample.wall_ns, (sample.mono_ns, sample.boot_ns)) = Coded::get(input)?;
            Ok(())
        },
    ),
    always(
        TASKS,
        |written, out| rows::encode(&mut out.bytes, written.delta, written.sample),
        |input, _, _| {
            input.rest();
            Ok(())
        },
    ),
    always(
        3,
        |written, out| {
            let rows: Vec<_> = written.sample.exited.iter().map(|task| (&**task, None)).collect();
            put_rows(out, columns::task(), &rows);
        },
        set!(
            exited = |input, context| {
                let rows = get_rows(input, &context.layouts.task, MAX_ROWS, &[]);
                rows.map(|rows| rows.into_iter().map(Arc::new).collect())
            }
        ),
    ),
    always(
        4,
        |written, out| {
            put_rows(out, columns::cpu(), &after(&written.sample.cpus, written.base, |base| &base.cpus));
        },
        set!(
            cpus = |input, context| {
                get_rows(
                    input,
                    &context.layouts.cpu,
                    MAX_CPUS,
                    context.base.map_or(&[][..], |base| &base.cpus),
                )
            }
        ),
    ),
    always(
        5,
        |written, out| {
            put_rows(out, columns::node(), &after(&written.sample.nodes, written.base, |base| &base.nodes));
        },
        set!(
            nodes = |input, context| {
                get_rows(
                    input,
                    &context.layouts.node,
                    MAX_NODES,
                    context.base.map_or(&[][..], |base| &base.nodes),
                )
            }
        ),
    ),
    always(6, put_lost, set!(lost = |input, context| lost(input, context.base))),
    always(7, whole!(exit_lost_ns), set!(exit_lost_ns = |input, context| Coded::get(input))),
    always(8, whole!(own), set!(own = |input, context| Coded::get(input))),
    always(
        9,
        |written, out| names::put(out, written.base, written.sample, |names| &names.users),
        |input, context, sample| {
            names::begin(input, context.base, sample)?;
            names::get(input, sample, |names| &mut names.users)
        },
    ),
    always(
        10,
        |written, out| names::put(out, written.base, written.sample, |names| &names.cgroups),
        |input, _, sample| names::get(input, sample, |names| &mut names.cgroups),
    ),
    // Notes are not clean.
    always(
        11,
        |written, out| {
            out.count(written.sample.notes.len(), MAX_NAMES, "names");
            written.sample.notes.iter().for_each(|note| out.text(note));
        },
        set!(notes = |input, context| input.list(MAX_NAMES, |input| Ok(input.text(MAX_TEXT)?.to_string()))),
    ),
    // Names of cgroups.
    added(
        12,
        "groups",
        Some(Facility::CgroupNames),
        |written, out| names::put_groups(out, written.base, written.sample),
        |input, _, sample| names::get_groups(input, sample),
    ),
    // Limits of cgroups.
    added(
        13,
        "limits",
        Some(Facility::CgroupLimits),
        |written, out| names::put_entries(out, written.base.map(|base| &base.groups), &written.sample.groups),
        set!(groups = |input, context| names::get_entries(input, context.base.map(|base| &base.groups))),
    ),
    // The memory of the whole machine.
    added(
        14,
        "vm",
        Some(Facility::HostMemory),
        |written, out| Tail::put(&written.sample.vm, out),
        set!(vm = |input, context| Tail::get(input)),
    ),
    // Tasks that went from node to node.
    added(
        15,
        "flows",
        Some(Facility::TaskFlows),
        whole!(flows),
        set!(flows = |input, context| Coded::get(input)),
    ),
    // Where the memory of processes was found. Shares by node have ids that containers share, and those are in `limits`.
    added(
        16,
        "placement",
        Some(Facility::PlacementError),
        |written, out| {
            placement::put(out, written.base.map(|base| &base.placement), &written.sample.placement);
        },
        set!(placement = |input, context| placement::get(input, context.base.map(|base| &base.placement))),
    ),
    // Stacks that were sampled.
    added(
        17,
        "stacks",
        None,
        |written, out| stacks::encode(out, written.sample.hot.as_deref()),
        set!(hot = |input, context| stacks::decode(input).map(|news| news.map(Arc::new))),
    ),
    // Pages that went from node to node.
    added(
        18,
        "page_flows",
        Some(Facility::PageFlows),
        whole!(page_flows),
        set!(page_flows = |input, context| Coded::get(input)),
    ),
    always(
        KEY_ID,
        |written, out| {
            let id = written.delta.map(|delta| delta.key_id.to_le_bytes());
            out.bytes.extend(id.into_iter().flatten());
        },
        |input, _, _| {
            input.rest();
            Ok(())
        },
    ),
    // Switches, swap and pressure of the whole machine.
    added(
        20,
        "machine",
        Some(Facility::HostState),
        |written, out| {
            let base = written.base.and_then(|base| base.machine.as_ref());
            machine::encode(&mut out.bytes, base, written.sample.machine.as_ref());
        },
        set!(
            machine = |input, context| {
                machine::decode(input.rest(), context.base.and_then(|base| base.machine.as_ref()))
            }
        ),
    ),
    // Memory that processes use, from samples.
    added(
        21,
        "memory_use",
        Some(Facility::MemoryUse),
        |written, out| memory_use::encode(out, written.sample.memory_use.as_deref()),
        set!(memory_use = |input, context| memory_use::decode(input).map(|uses| uses.map(Arc::new))),
    ),
    // Memory policies of mappings.
    added(22, "policies", Some(Facility::MappingPolicies), POLICIES.0, POLICIES.1),
    // Pages of hugetlbfs, and their pools.
    added(23, "huge_pages", Some(Facility::HugePools), HUGE_PAGES.0, HUGE_PAGES.1),
    // Pages by the policy that holds for them.
    added(25, "by_policy", None, BY_POLICY.0, BY_POLICY.1),
    // Load averages of the machine.
    added(
        26,
        "load",
        None,
        |written, out| {
            let machine = written.sample.machine.as_ref();
            machine
                .and_then(|machine| machine.load_hundredths.as_ref())
                .into_iter()
                .for_each(|load| load.put(out));
        },
        |input, _, sample| {
            let load_hundredths = Tail::get(input)?;
            sample.machine = sample.machine.map(|machine| MachineRaw { load_hundredths, ..machine });
            Ok(())
        },
    ),
    // Only where they are asked for.
    added(
        27,
        "command_lines",
        None,
        |written, out| {
            put_changed(out, written.base.map(|base| &base.command_lines), &written.sample.command_lines);
        },
        |input, context, sample| {
            sample.command_lines = get_changed(input, context.base.map(|base| &base.command_lines))?;
            Ok(())
        },
    ),
];

/// A line of the list of sections.
#[derive(Clone, Copy)]
pub(super) enum Line {
    Own(&'static Section),
    Input(&'static crate::model::inputs::Input),
}

/// All sections, by tag.
pub(super) fn all() -> &'static [Line] {
    static ALL: LazyLock<Vec<Line>> = LazyLock::new(|| {
        static OWN_LIST: [Section; OWN.len()] = OWN;
        let mut all: Vec<Line> =
            OWN_LIST.iter().map(Line::Own).chain(INPUTS.iter().map(Line::Input)).collect();
        all.sort_by_key(|line| line.tag());
        all
    });
    &ALL
}

impl Line {
    pub(super) fn tag(self) -> u8 {
        match self {
            Line::Own(section) => section.tag,
            Line::Input(input) => input.tag,
        }
    }

    /// For a section that older recordings lack: its name in heads, and the facility that is missing without
    /// it.
    pub(super) fn added(self) -> Option<(&'static str, Option<Facility>)> {
        match self {
            Line::Own(section) => section.name.map(|name| (name, section.facility)),
            Line::Input(input) => Some((input.name, input.facility)),
        }
    }

    /// Whether every recording has this section.
    pub(super) fn is_required(self) -> bool {
        self.added().is_none() && self.tag() != KEY_ID
    }

    pub(super) fn put<'v>(self, written: Written<'v>, out: &mut Out<'v>) {
        match self {
            Line::Own(section) => (section.put)(written, out),
            Line::Input(input) => {
                (input.put)(&written.sample.inputs, written.base.map(|base| &base.inputs), out);
            }
        }
    }

    pub(super) fn get(
        self,
        input: &mut In<'_, '_>,
        context: Context<'_>,
        sample: &mut Sample,
    ) -> Result<(), Malformed> {
        match self {
            Line::Own(section) => (section.get)(input, context, sample),
            Line::Input(of) => (of.get)(input, context.base.map(|base| &base.inputs), &mut sample.inputs),
        }
    }
}

/// Rows, each with the one at its place in the keyframe.
fn after<'v, R>(
    rows: &'v [R],
    base: Option<&'v Sample>,
    of: impl Fn(&'v Sample) -> &'v Vec<R>,
) -> Vec<(&'v R, Option<&'v R>)> {
    let before = base.map_or(&[][..], |base| of(base));
    rows.iter().enumerate().map(|(at, row)| (row, before.get(at))).collect()
}

fn put_rows<R: Row>(out: &mut Out<'_>, columns: &[columns::Column<R>], rows: &[(&R, Option<&R>)]) {
    out.number(rows.len() as u64);
    columns::encode(&mut out.bytes, columns, rows);
}

fn get_rows<R: Row>(
    input: &mut In<'_, '_>,
    layout: &Layout<R>,
    most: usize,
    before: &[R],
) -> Result<Vec<R>, Malformed> {
    let count = input.count(most)?;
    columns::decode(&mut input.bytes, layout, count, |at| before.get(at), input.room)
}

/// Writes losses; nothing where they are those of the keyframe.
fn put_lost<'v>(written: Written<'v>, out: &mut Out<'v>) {
    match written.base {
        Some(base) if base.lost == written.sample.lost => out.take(1, copied(&base.lost)),
        _ => written.sample.lost.put(out),
    }
}

fn lost(input: &mut In<'_, '_>, base: Option<&Sample>) -> Result<BTreeMap<String, u64>, Malformed> {
    if !input.is_empty() {
        // Causes of losses are not clean.
        return input.map(MAX_NAMES, |input| Ok((input.text(MAX_TEXT)?.to_string(), input.number()?)));
    }
    let base = base.ok_or(Malformed("no keyframe holds the sample's losses"))?;
    input.room.take(1, copied(&base.lost))?;
    Ok(base.lost.clone())
}

/// The names of the sections that a recording of this version has and an older one may not have.
pub(super) fn added_sections() -> Vec<String> {
    all().iter().filter_map(|line| Some(line.added()?.0.to_string())).collect()
}

/// The layout of the rows of a file.
pub struct Layouts {
    pub(super) task: Layout<TaskRaw>,
    pub(super) cpu: Layout<CpuRaw>,
    pub(super) node: Layout<NodeRaw>,
    /// Facilities of sections that are not there.
    without: Vec<Facility>,
}

impl Layouts {
    /// # Errors
    /// A column that rows are made of is not in the head.
    pub fn of(head: &Head) -> Result<Layouts, String> {
        let absent = all().iter().filter_map(|line| line.added());
        let absent = absent.filter(|(name, _)| !head.sections.iter().any(|section| section == name));
        Ok(Layouts {
            task: Layout::of(&head.columns.task, columns::task())?,
            cpu: Layout::of(&head.columns.cpu, columns::cpu())?,
            node: Layout::of(&head.columns.node, columns::node())?,
            without: absent.filter_map(|(_, facility)| facility).collect(),
        })
    }

    /// Of rows that this version writes.
    pub fn own() -> Layouts {
        Layouts {
            task: Layout::own(columns::task()),
            cpu: Layout::own(columns::cpu()),
            node: Layout::own(columns::node()),
            without: Vec::new(),
        }
    }

    /// Facilities that the version that made the recording did not keep.
    pub fn without(&self) -> impl Iterator<Item = Facility> {
        let columns = self.task.without().iter().chain(self.cpu.without()).chain(self.node.without());
        columns.chain(&self.without).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_names_are_of_one_section() {
        let lines = all();
        assert!(lines.windows(2).all(|pair| pair[0].tag() < pair[1].tag()));
        let names = added_sections();
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }
}
