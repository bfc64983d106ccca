//! Everything about the host that decides what can be measured here, gathered once.

use crate::collect::turns::resctrl;
use crate::host::cgroups::{self, Hierarchy};
use crate::host::fact::Fact;
use crate::host::kernel::KernelFacts;
use crate::host::privileges::Privileges;
use crate::host::roots::Roots;
use crate::host::types::Types;
use crate::model::sample::Reading;
use crate::model::topology::Topology;
use crate::pmu::facts::PmuFacts;
use crate::pmu::sets::Choice;

/// The facts that the rules in [`crate::collect::plan`] are applied to.
#[derive(Clone, Debug)]
pub struct HostCheck {
    pub kernel: KernelFacts,
    pub privileges: Privileges,
    pub pmu: PmuFacts,
    pub cgroups: Hierarchy,
    pub topology: Fact<Topology>,
    /// /proc is that of the kernel, and not an empty directory.
    pub proc_mounted: bool,
    /// A resctrl file system with monitors is mounted.
    pub resctrl: Reading<()>,
}

impl HostCheck {
    /// Reads the files below the roots ("/" for this machine), and tries to count the events of `choice` on
    /// the running kernel. Reads the kernel's types unless given. Nothing here fails: an unreadable fact is
    /// unknown, with the reason.
    pub fn read<'a>(roots: impl Into<Roots<'a>>, choice: &Choice, types: Option<&Types>) -> HostCheck {
        let roots = roots.into();
        let root = roots.own;
        HostCheck {
            kernel: KernelFacts::read(root, types),
            privileges: Privileges::read(root),
            pmu: PmuFacts::read(root, choice),
            cgroups: cgroups::choose(roots),
            topology: crate::host::topology::read(roots.machine).map_err(|error| format!("{error:#}")).into(),
            proc_mounted: root.join("proc/self").symlink_metadata().is_ok(),
            resctrl: resctrl::usable(roots.machine).map(drop),
        }
    }
}
