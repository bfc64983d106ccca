//! Which parts a sample has in a recording, and which metrics have no value where one is not there.

use super::columns::{self, Layout};
use super::format::Head;
use crate::metric::container::LIMITS;
use crate::metric::host;
use crate::metric::moved::FLOWS;
use crate::sample::{CpuRaw, NodeRaw, TaskRaw};

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
    /// The keyframe of a delta, by the checksum of its payload.
    KeyId = 19,
}

pub(super) const SECTIONS: [Section; 19] = [
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
            Section::Vm => Some(("vm", &host::MEMORY)),
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

/// How the rows of a file are laid out.
pub struct Layouts {
    pub(super) task: Layout<TaskRaw>,
    pub(super) cpu: Layout<CpuRaw>,
    pub(super) node: Layout<NodeRaw>,
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
