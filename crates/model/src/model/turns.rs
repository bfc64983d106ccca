//! Parts of the machine that are read in turns: free memory of a node by the size of its blocks, interrupts of devices by the nodes
//! whose CPUs handled them, memory tiers with the pages that the kernel moves between them, use of L3 caches, traffic of
//! memory controllers, and a scheduler that a BPF program provides (sched_ext).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::coded::{Copied, Key, coded};
use crate::model::sample::{Missing, Reading};
use crate::model::sums::{KnownSum, sums};
use crate::model::units::NodeId;

/// Free blocks of a node, all zones together, as /proc/buddyinfo counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Blocks by order: at place n those of 2^n pages.
    pub by_order: Vec<u64>,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Size of a transparent huge page, bytes; `None` where the kernel has none.
    pub huge_bytes: Option<u64>,
}

coded!(FreeBlocks { by_order, page_bytes, huge_bytes });

impl FreeBlocks {
    /// Bytes in all free blocks.
    pub fn bytes(&self) -> f64 {
        self.bytes_from(0.0)
    }

    /// Bytes in blocks of a huge page or more; `None` where the kernel has no huge pages.
    pub fn huge_bytes_free(&self) -> Option<f64> {
        self.huge_bytes.map(|least| self.bytes_from(least as f64))
    }

    /// Bytes in blocks of `least` bytes or more.
    fn bytes_from(&self, least: f64) -> f64 {
        let sizes = (0..).map(|order| self.page_bytes as f64 * f64::from(order).exp2());
        let blocks = self.by_order.iter().zip(sizes).filter(|(_, size)| *size >= least);
        blocks.fold(0.0, |sum, (blocks, size)| sum + *blocks as f64 * size)
    }
}

/// Message-signalled interrupts of one PCI function between two readings of their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInterrupts {
    /// CLOCK_MONOTONIC of the later reading.
    pub read_ns: u64,
    /// Time since the earlier one, ns.
    pub over_ns: u64,
    /// Interrupts in that time; nodes without any are left out.
    pub by_node: BTreeMap<NodeId, u64>,
}

coded!(DeviceInterrupts { read_ns, over_ns, by_node });

impl DeviceInterrupts {
    /// All interrupts per second.
    pub fn all_per_second(&self) -> f64 {
        self.per_second(|_| true)
    }

    /// Interrupts per second that CPUs of this node handled.
    pub fn per_second_on(&self, node: NodeId) -> f64 {
        self.per_second(|of| of == node)
    }

    /// Interrupts per second that CPUs of these nodes handled; 0 where no time went by.
    pub fn per_second(&self, of: impl Fn(NodeId) -> bool) -> f64 {
        if self.over_ns == 0 {
            return 0.0;
        }
        // A sum of nothing would be -0.
        let of = self.by_node.iter().filter(|(node, _)| of(**node));
        let count = of.fold(0.0, |sum, (_, count)| sum + *count as f64);
        count * 1e9 / self.over_ns as f64
    }
}

/// By the address of the PCI function, in the form of [`crate::model::topology::Device::pci`]. A function
/// appears once its counts were read twice.
pub type Interrupts = BTreeMap<String, Arc<DeviceInterrupts>>;

/// Switches by name, see [`crate::model::inputs::Inputs::tier_switches`]: reclaim moves pages to a slower tier first (0 or 1).
pub const DEMOTION: &str = "demotion_enabled";

/// The most that is promoted, MB/s (`kernel.numa_balancing_promote_rate_limit_MBps`).
pub const PROMOTE_LIMIT: &str = "promote_rate_limit_mbs";

/// Weights of weighted interleaving follow the bandwidth that the firmware describes (0 or 1).
pub const AUTO_WEIGHTS: &str = "weighted_interleave_auto";

/// A node among tiers, as the kernel and the firmware describe it. `None`, in each field, where they do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTier {
    /// Number of its tier (`memory_tierN`): a smaller one is faster.
    pub tier: Option<u32>,
    /// Latency of a read from the nearest CPUs by the firmware (HMAT), ns.
    pub read_latency_ns: Option<u64>,
    /// The same of a write.
    pub write_latency_ns: Option<u64>,
    /// Bandwidth of reads from the nearest CPUs, 10^6 bytes a second.
    pub read_mbs: Option<u64>,
    /// The same of writes.
    pub write_mbs: Option<u64>,
    /// Pages in turn that weighted interleaving places on it.
    pub weight: Option<u32>,
}

coded!(NodeTier { tier, read_latency_ns, write_latency_ns, read_mbs, write_mbs, weight });

/// Pages of a node since boot, or of a cgroup since it was made; `None` where the kernel does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierPages {
    /// Pages that came here from a slower tier.
    pub promoted: Option<u64>,
    /// Pages that were found to be used, and may come here.
    pub candidates: Option<u64>,
    /// Pages that left for a slower tier.
    pub demoted: Option<u64>,
    /// Of these, pages that left because a program asked for it (`memory.reclaim`).
    pub demoted_asked: Option<u64>,
}

coded!(TierPages { promoted, candidates, demoted, demoted_asked });

sums!(TierPages { promoted, candidates, demoted, demoted_asked });

impl TierPages {
    /// Reads lines of `name number` of `nodeN/vmstat` or `memory.stat` of a cgroup.
    pub fn parse(text: &str) -> TierPages {
        let mut pages = TierPages::default();
        // One number that cannot be understood takes the sum with it.
        let mut demoted: Option<Option<u64>> = Some(None);
        for line in text.lines() {
            let Some((name, number)) = line.split_once(' ') else { continue };
            let number = number.trim().parse::<u64>().ok();
            match name {
                "pgpromote_success" => pages.promoted = number,
                "pgpromote_candidate" => pages.candidates = number,
                // pgdemote_khugepaged is counted apart from Linux 6.12 on, pgdemote_proactive from 6.18 on.
                "pgdemote_kswapd" | "pgdemote_direct" | "pgdemote_khugepaged" | "pgdemote_proactive" => {
                    let sum = demoted.zip(number).and_then(|(sum, more)| sum.unwrap_or(0).checked_add(more));
                    demoted = sum.map(Some);
                    if name == "pgdemote_proactive" {
                        pages.demoted_asked = number;
                    }
                }
                _ => {}
            }
        }
        pages.demoted = demoted.flatten();
        pages
    }

    /// Pages between two readings; absent where one of them is, or went back.
    pub fn since(&self, before: &TierPages) -> TierPages {
        let since = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
        TierPages {
            promoted: since(self.promoted, before.promoted),
            candidates: since(self.candidates, before.candidates),
            demoted: since(self.demoted, before.demoted),
            demoted_asked: since(self.demoted_asked, before.demoted_asked),
        }
    }
}

/// An L3 domain, or the part of one that belongs to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheId {
    /// The lowest CPU of the domain.
    pub cpu: u32,
    /// The node of a part that has its own monitors (sub-NUMA clustering); `None` for the whole domain.
    pub node: Option<NodeId>,
}

coded!(CacheId { cpu, node });

impl Copied for CacheId {}
impl Key for CacheId {}

/// Use of an L3 domain by all control groups of resctrl together, as the monitors of the CPU count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes in the cache now.
    pub occupancy_bytes: Reading<u64>,
    /// Bytes per second between the cache and all memory (MBM total), between the last two readings of each file.
    pub total_bytes_per_s: Reading<u64>,
    /// Bytes per second between the cache and the memory of the same node (MBM local).
    pub local_bytes_per_s: Reading<u64>,
}

coded!(CacheUse { occupancy_bytes, total_bytes_per_s, local_bytes_per_s });

impl Default for CacheUse {
    fn default() -> CacheUse {
        let none = || Err(Missing::FirstInterval);
        CacheUse { occupancy_bytes: none(), total_bytes_per_s: none(), local_bytes_per_s: none() }
    }
}

/// Bytes that memory controllers read, or wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DramCount {
    /// Bytes since counting began, without lost ones.
    pub bytes: u64,
    /// Times that bytes were lost: a reading failed, or counts decreased or were multiplexed.
    pub losses: u64,
    /// Why the bytes since the reading before are unknown.
    pub why: Option<Missing>,
}

coded!(DramCount { bytes, losses, why });

/// Traffic of the memory controllers of a node or a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DramTraffic {
    /// Reads of memory.
    pub read: DramCount,
    /// Writes to memory.
    pub write: DramCount,
}

coded!(DramTraffic { read, write });

impl DramTraffic {
    /// Bytes between two readings; unknown where some were lost in between.
    pub fn since(&self, before: &DramTraffic) -> DramBytes {
        let since = |now: &DramCount, before: &DramCount| {
            let is_known = now.why.is_none() && now.losses == before.losses;
            is_known.then(|| now.bytes.checked_sub(before.bytes)).flatten()
        };
        DramBytes {
            read: since(&self.read, &before.read).into(),
            write: since(&self.write, &before.write).into(),
        }
    }
}

/// Bytes that memory controllers read and wrote in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DramBytes {
    /// Reads of memory.
    pub read: KnownSum,
    /// Writes to memory.
    pub write: KnownSum,
}

sums!(DramBytes { read, write });

impl DramBytes {
    /// Bytes from one reading to the next, where there are both.
    pub fn between(before: Option<&DramTraffic>, now: Option<&DramTraffic>) -> DramBytes {
        let unknown = DramBytes { read: None.into(), write: None.into() };
        now.zip(before).map_or(unknown, |(now, before)| now.since(before))
    }
}

/// A sched_ext scheduler that is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedExt {
    /// It schedules all tasks of normal policies, and not only those of SCHED_EXT; `None` where the kernel does not say.
    pub switch_all: Option<bool>,
    /// Tasks that it refused to schedule, since it was loaded; `None` where the kernel does not say.
    pub rejected: Option<u64>,
}

coded!(SchedExt { switch_all, rejected });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sums::Sum;

    #[test]
    fn bytes_are_in_blocks_of_a_size() {
        let mut free = FreeBlocks {
            by_order: vec![8, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1],
            page_bytes: 4096,
            huge_bytes: None,
        };
        assert_eq!(free.bytes(), 8.0 * 4096.0 + 10.0 * f64::from(1 << 20));
        assert_eq!(free.huge_bytes_free(), None);
        free.huge_bytes = Some(2 << 20);
        assert_eq!(free.huge_bytes_free(), Some(10.0 * f64::from(1 << 20)));
        free.huge_bytes = Some(512 << 20);
        assert_eq!(free.huge_bytes_free(), Some(0.0), "no block is as large as that");
        let hostile =
            FreeBlocks { by_order: vec![u64::MAX; 2048], page_bytes: u64::MAX, huge_bytes: Some(1) };
        assert!(hostile.bytes() > 0.0);
        assert!(FreeBlocks::default().bytes().is_sign_positive(), "0, not -0");
    }

    #[test]
    fn rates_are_by_node() {
        let by_node = [(NodeId(0), 500), (NodeId(1), u64::MAX)].into();
        let read = DeviceInterrupts { read_ns: 9, over_ns: 2_000_000_000, by_node };
        assert_eq!(read.per_second(|node| node == NodeId(0)), 250.0);
        assert!(read.per_second(|_| true) > 9e18, "sums do not overflow");
        assert!(read.per_second(|node| node == NodeId(2)).is_sign_positive(), "0, not -0");
        assert_eq!(DeviceInterrupts::default().per_second(|_| true), 0.0);
    }

    #[test]
    fn pages_are_sums_of_their_kinds() {
        let text = "nr_free_pages 5\npgpromote_success 7\npgpromote_candidate 9\npgdemote_kswapd 1\npgdemote_direct 2\n\
                    pgdemote_khugepaged 3\npgdemote_proactive 4\n";
        let all =
            TierPages { promoted: Some(7), candidates: Some(9), demoted: Some(10), demoted_asked: Some(4) };
        assert_eq!(TierPages::parse(text), all);
        assert_eq!(TierPages::parse(""), TierPages::default(), "a kernel that counts nothing");
        let of_6_12 = TierPages::parse("pgdemote_kswapd 1\npgdemote_direct 2\npgdemote_khugepaged 3\n");
        assert_eq!((of_6_12.demoted, of_6_12.demoted_asked), (Some(6), None));
    }

    #[test]
    fn a_number_that_is_none_is_missing() {
        for odd in ["-1", "x", "", "18446744073709551616"] {
            let text = format!("pgpromote_success {odd}\npgdemote_kswapd 5\npgdemote_direct {odd}\n");
            assert_eq!(TierPages::parse(&text), TierPages::default(), "{odd:?}");
        }
        let sum = TierPages::parse(&format!(
            "pgdemote_kswapd {}\npgdemote_direct 1\npgdemote_khugepaged 1\n",
            u64::MAX
        ));
        assert_eq!(sum.demoted, None, "beyond 64 bits");
        assert_eq!(TierPages::parse("pgpromote_success").promoted, None, "a cut line");
    }

    #[test]
    fn bytes_of_controllers_are_known_without_losses_only() {
        let count = |bytes, losses| DramCount { bytes, losses, why: None };
        let traffic = |read: u64, losses| DramTraffic { read: count(read, losses), write: count(7, 0) };
        let bytes = |before: &DramTraffic, now: &DramTraffic| {
            let DramBytes { read, write } = DramBytes::between(Some(before), Some(now));
            (read.get(), write.get())
        };
        assert_eq!(bytes(&traffic(5, 3), &traffic(9, 3)), (Some(4), Some(0)));
        assert_eq!(bytes(&traffic(5, 3), &traffic(9, 4)), (None, Some(0)), "a loss in between");
        assert_eq!(bytes(&traffic(9, 3), &traffic(5, 3)), (None, Some(0)), "it began again");
        let mut unread = traffic(9, 4);
        unread.write.why = Some(Missing::Lost("gone".into()));
        assert_eq!(bytes(&traffic(5, 3), &unread), (None, None));
        assert_eq!(bytes(&unread, &traffic(10, 4)), (Some(1), Some(0)), "it is the base of the next");
        let mut sum = DramBytes::between(Some(&traffic(5, 3)), Some(&traffic(9, 3)));
        sum.add(&DramBytes::between(None, Some(&traffic(5, 3))));
        assert_eq!(sum.read.get(), None, "a sum without a part is none");
    }

    #[test]
    fn a_count_that_went_back_is_missing() {
        let before = TierPages { promoted: Some(9), demoted: Some(3), ..TierPages::default() };
        let now =
            TierPages { promoted: Some(8), demoted: Some(5), candidates: Some(1), ..TierPages::default() };
        assert_eq!(now.since(&before), TierPages { demoted: Some(2), ..TierPages::default() });
    }
}
