//! Sections of a sample in a recording, and facilities that are missing without them.

use super::columns::{self, Layout};
use super::format::Head;
use crate::model::facility::Facility;
use crate::model::sample::{CpuRaw, NodeRaw, TaskRaw};

/// Sections of a sample. A reader skips those it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Section {
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
    /// Names and limits of cgroups.
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
    /// The keyframe of a delta, by the checksum of its payload.
    KeyId = 19,
    /// Switches, swap and pressure of the whole machine.
    Machine = 20,
    /// Memory that processes use, from samples.
    MemoryUse = 21,
    /// Memory policies of mappings.
    Policies = 22,
    /// Pages of hugetlbfs, and their pools.
    HugePages = 23,
    /// Interrupts of devices by node.
    Interrupts = 24,
    /// Pages by the policy that holds for them.
    ByPolicy = 25,
    /// Load averages of the machine.
    Load = 26,
    /// Command lines of processes.
    CommandLines = 27,
}

pub(super) const SECTIONS: [Section; 27] = [
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
    Section::KeyId,
    Section::Machine,
    Section::MemoryUse,
    Section::Policies,
    Section::HugePages,
    Section::Interrupts,
    Section::ByPolicy,
    Section::Load,
    Section::CommandLines,
];

impl Section {
    /// For a section that older recordings do not have: what heads call it, and what is not kept without it.
    fn added(self) -> Option<(&'static str, Option<Facility>)> {
        match self {
            Section::Groups => Some(("groups", Some(Facility::CgroupNames))),
            Section::Limits => Some(("limits", Some(Facility::CgroupLimits))),
            Section::Vm => Some(("vm", Some(Facility::HostMemory))),
            Section::Machine => Some(("machine", Some(Facility::HostState))),
            // Not `Placement`: shares by node have ids that containers share, and those are in `Limits`.
            Section::Placement => Some(("placement", Some(Facility::PlacementError))),
            Section::Stacks => Some(("stacks", None)),
            Section::Flows => Some(("flows", Some(Facility::TaskFlows))),
            Section::MemoryUse => Some(("memory_use", Some(Facility::MemoryUse))),
            Section::Policies => Some(("policies", Some(Facility::MappingPolicies))),
            Section::HugePages => Some(("huge_pages", Some(Facility::HugePools))),
            Section::Interrupts => Some(("interrupts", Some(Facility::DeviceIrqs))),
            Section::ByPolicy => Some(("by_policy", None)),
            Section::Load => Some(("load", None)),
            Section::CommandLines => Some(("command_lines", None)),
            Section::PageFlows => Some(("page_flows", Some(Facility::PageFlows))),
            _ => None,
        }
    }
}

/// The names of the sections that a recording of this version has and an older one may not have.
pub(super) fn added_sections() -> Vec<String> {
    SECTIONS.iter().filter_map(|section| Some(section.added()?.0.to_string())).collect()
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
        let absent = SECTIONS.iter().filter_map(|section| section.added());
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
