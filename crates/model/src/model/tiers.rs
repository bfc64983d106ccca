//! Memory tiers: nodes whose memory is faster than that of others, and pages that the kernel moves between them.

use serde::{Deserialize, Serialize};

use crate::model::coded::coded;
use crate::model::sums::sums;

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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_count_that_went_back_is_missing() {
        let before = TierPages { promoted: Some(9), demoted: Some(3), ..TierPages::default() };
        let now =
            TierPages { promoted: Some(8), demoted: Some(5), candidates: Some(1), ..TierPages::default() };
        assert_eq!(now.since(&before), TierPages { demoted: Some(2), ..TierPages::default() });
    }
}
