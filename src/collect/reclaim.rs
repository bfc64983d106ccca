//! The reclaim probe: pages that kswapd and others freed on each node (`reclaim.bpf.c`), checked against
//! what /proc/vmstat says of the whole machine.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::skel::reclaim::{ReclaimSkel, ReclaimSkelBuilder};
use super::vmstat::VmStat;
use crate::model::sample::{Missing, NodeRaw};
use crate::model::units::Nid;
use crate::model::wire::Reclaim;
use crate::sys::Mapping;

/// Pages that the machine must have reclaimed before the probe is expected to have seen some: the counters
/// of /proc/vmstat are gathered from all CPUs with a delay.
const ENOUGH_TO_JUDGE: u64 = 4096;

/// The loaded and attached probe. Dropping it detaches everything.
pub struct ReclaimProbe {
    // Order matters: links and mappings go before the object they belong to.
    _links: [Link; 2],
    counts: Mapping,
    skel: ReclaimSkel<'static>,
    /// Pages the machine had reclaimed when we began.
    reclaimed_before: u64,
}

impl ReclaimProbe {
    /// Loads and attaches the probe; `nodes` is the number of possible nodes.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain.
    pub fn start(nodes: u32, now: &VmStat) -> Result<ReclaimProbe> {
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ReclaimSkelBuilder::default().open(object).context("opening reclaim.bpf.o")?;
        open.maps.reclaim.set_max_entries(nodes)?;
        let skel = open.load().context("loading reclaim.bpf.o")?;
        let counts = Mapping::new(skel.maps.reclaim.as_fd(), size_of::<Reclaim>() * nodes as usize)
            .context("mapping the counters of reclaim")?;
        let links = [
            skel.progs.on_shrink.attach().context("attaching to mm_vmscan_lru_shrink_inactive")?,
            skel.progs.on_node_reclaim.attach().context("attaching to mm_vmscan_node_reclaim_begin")?,
        ];
        Ok(ReclaimProbe { _links: links, counts, skel, reclaimed_before: now.reclaimed() })
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> [(&'static str, BorrowedFd<'_>); 2] {
        let programs = &self.skel.progs;
        [("on_shrink", programs.on_shrink.as_fd()), ("on_node_reclaim", programs.on_node_reclaim.as_fd())]
    }

    /// What was counted on a node since the start of the probe.
    fn node(&self, node: Nid) -> Reclaim {
        self.counts.get(node.index() * size_of::<Reclaim>()).unwrap_or_default()
    }

    /// Fills in the counters of all nodes.
    ///
    /// # Errors
    /// The machine reclaims pages of which the kernel tells the probe nothing.
    pub fn read(&self, nodes: &mut [NodeRaw], now: &VmStat) -> Result<(), Missing> {
        let mut seen = 0;
        for node in nodes {
            let counts = self.node(Nid(node.id));
            node.kswapd_pages = counts.kswapd_pages;
            node.direct_pages = counts.direct_pages;
            node.node_reclaims = counts.node_reclaims;
            seen += counts.kswapd_pages + counts.direct_pages;
        }
        judge(now.reclaimed().saturating_sub(self.reclaimed_before), seen)
    }
}

/// `reclaimed` by the word of /proc/vmstat, `seen` by the probe, in pages.
fn judge(reclaimed: u64, seen: u64) -> Result<(), Missing> {
    if reclaimed < ENOUGH_TO_JUDGE || seen >= reclaimed / 2 {
        return Ok(());
    }
    // Commit 8c2214fc9a47 (6.7) has the multi-generational LRU report to the tracepoint.
    Err(Missing::Unsupported(format!(
        "the machine reclaimed {reclaimed} pages (/proc/vmstat), of which the kernel showed {seen}: before \
         Linux 6.7 the multi-generational LRU does not report by node"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_report_is_missing_and_not_zero() {
        assert_eq!(judge(0, 0), Ok(()));
        assert_eq!(judge(1000, 0), Ok(()), "too few to tell");
        assert_eq!(judge(10_000, 9_000), Ok(()));
        assert!(judge(10_000, 12).unwrap_err().to_string().contains("of which the kernel showed 12"));
    }
}
