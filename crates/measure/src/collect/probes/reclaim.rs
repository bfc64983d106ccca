//! Pages that kswapd and others freed on each node (`reclaim.bpf.c`), checked against the total in
//! /proc/vmstat.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::Object;

use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::host_state::VmStatReader;
use crate::collect::object;
use crate::collect::skel::reclaim::{ReclaimSkel, ReclaimSkelBuilder};
use crate::host::btf::Feature;
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::model::units::NodeId;
use crate::model::wire::Reclaim;
use crate::sys::Mapping;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::ShrinkInactive, Feature::NodeReclaim, Feature::CurrentTask],
    ..Probe::new("reclaim by node", Facility::Reclaim, start)
};

/// Pages that the machine must have reclaimed before the probe is expected to have seen some. The counters of
/// /proc/vmstat are gathered from all CPUs with a delay.
const ENOUGH_TO_JUDGE: u64 = 4096;

struct ReclaimProbe {
    // The mapping goes before the object it belongs to.
    counts: Mapping,
    programs: Attached<ReclaimSkel<'static>>,
    /// Pages that the machine had reclaimed at the start.
    reclaimed_before: u64,
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let now = VmStatReader::open(shared.root)?.read()?;
    let nodes = shared.layout.nodes;
    let mut open = object::open("reclaim", ReclaimSkelBuilder::default())?;
    open.maps.reclaim.set_max_entries(nodes)?;
    let skel = object::load("reclaim", open)?;
    let counts = Mapping::new(skel.maps.reclaim.as_fd(), size_of::<Reclaim>() * nodes as usize)
        .context("mapping the counters of reclaim")?;
    let programs = Attached::all(skel, "loaded, attached to reclaim")?;
    Ok(Box::new(ReclaimProbe { counts, programs, reclaimed_before: now.reclaimed() }))
}

impl ReclaimProbe {
    /// Counts on a node since the start of the probe.
    fn node(&self, node: NodeId) -> Reclaim {
        self.counts.get(node.index() * size_of::<Reclaim>()).unwrap_or_default()
    }
}

impl Running for ReclaimProbe {
    fn object(&self) -> Option<&Object> {
        self.programs.object()
    }

    fn words(&self) -> String {
        self.programs.words()
    }

    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        let mut seen = 0;
        for node in &mut *readings.nodes {
            let counts = self.node(NodeId(node.id));
            node.kswapd_pages = counts.kswapd_pages;
            node.direct_pages = counts.direct_pages;
            node.node_reclaims = counts.node_reclaims;
            seen += counts.kswapd_pages + counts.direct_pages;
        }
        judge(readings.vm.reclaimed().saturating_sub(self.reclaimed_before), seen)
    }
}

/// `reclaimed` by the word of /proc/vmstat, `seen` by the probe, in pages.
fn judge(reclaimed: u64, seen: u64) -> Result<(), Missing> {
    if reclaimed < ENOUGH_TO_JUDGE || seen >= reclaimed / 2 {
        return Ok(());
    }
    // Commit 8c2214fc9a47 (6.7) has the multi-generational LRU report to the tracepoint.
    Err(Missing::Unsupported(format!(
        "the machine reclaimed {reclaimed} pages (/proc/vmstat), but the kernel reported only {seen} pages by \
         node: before Linux 6.7 the multi-generational LRU reports none"
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
        assert!(
            judge(10_000, 12)
                .unwrap_err()
                .to_string()
                .contains("but the kernel reported only 12 pages by node")
        );
    }
}
