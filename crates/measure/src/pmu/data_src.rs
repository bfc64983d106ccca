//! The source of sampled data, from perf's word for it (`PERF_SAMPLE_DATA_SRC`). Pure.
//!
//! Fields are those of `union perf_mem_data_src` in include/uapi/linux/perf_event.h of Linux 7.2. Older
//! kernels leave the later ones at 0, which means "not available" or nothing.

#![warn(missing_docs)]

use crate::model::access::answers::AccessClass;
use crate::model::access::lines::Transfer;

const OP_LOAD: u64 = 0x02;
const OP_STORE: u64 = 0x04;

const LVL_MISS: u64 = 0x04;
const LVL_LOC_RAM: u64 = 0x80;
const LVL_REM_RAM: u64 = 0x100 | 0x200;
const LVL_REM_CCE2: u64 = 0x800;
const LVL_IO: u64 = 0x1000;
const LVL_UNC: u64 = 0x2000;
/// Caches: L1, the line fill buffer, L2, L3, and caches one hop away. The latter are of the same node unless
/// the remote bit is set.
const LVL_CACHE: u64 = 0x08 | 0x10 | 0x20 | 0x40 | 0x400;

const SNOOP_HITM: u64 = 0x10;
const SNOOPX_FWD: u64 = 0x01;
const SNOOPX_PEER: u64 = 0x02;

const NUM_UNCACHED: u64 = 0x08;
const NUM_CXL: u64 = 0x09;
const NUM_IO: u64 = 0x0a;
const NUM_ANY_CACHE: u64 = 0x0b;
const NUM_LFB: u64 = 0x0c;
const NUM_RAM: u64 = 0x0d;
const NUM_PMEM: u64 = 0x0e;
const NUM_NA: u64 = 0x0f;

/// Another core of the same node.
const HOPS_0: u64 = 1;
const REGION_MMIO: u64 = 7;

/// The fields of the word.
struct Fields {
    op: u64,
    lvl: u64,
    snoop: u64,
    lvl_num: u64,
    remote: bool,
    snoopx: u64,
    hops: u64,
    region: u64,
}

impl Fields {
    fn of(word: u64) -> Fields {
        let field = |first: u32, last: u32| word >> first & ((1 << (last - first + 1)) - 1);
        Fields {
            op: field(0, 4),
            lvl: field(5, 18),
            snoop: field(19, 23),
            lvl_num: field(33, 36),
            remote: field(37, 37) == 1,
            snoopx: field(38, 39),
            hops: field(43, 45),
            region: field(46, 50),
        }
    }
}

/// The place that answered an access, as far as `word` has it. It never has the node itself: that comes from
/// the address.
pub fn class(word: u64) -> AccessClass {
    let Fields { op, lvl, snoop, lvl_num, remote, snoopx, hops, region } = Fields::of(word);
    if op & (OP_LOAD | OP_STORE) == 0 {
        return AccessClass::NoAccess;
    }
    // Diamond Rapids reports memory of devices as RAM, and marks it by its region.
    if matches!(lvl_num, NUM_IO | NUM_UNCACHED) || lvl & (LVL_IO | LVL_UNC) != 0 || region == REGION_MMIO {
        return AccessClass::Device;
    }
    // The remote bit alone is not another node: AMD sets it, with HOPS_0, for another cluster of the same node.
    let elsewhere = remote && hops != HOPS_0;
    let modified = snoop & SNOOP_HITM != 0;
    let from_cache = modified || snoopx & SNOOPX_FWD != 0;
    let memory = matches!(lvl_num, NUM_RAM | NUM_PMEM | NUM_CXL) || lvl & (LVL_LOC_RAM | LVL_REM_RAM) != 0;
    if memory && !from_cache {
        return match (lvl_num == NUM_CXL, elsewhere || lvl & LVL_REM_RAM != 0) {
            (true, remote) => AccessClass::Cxl { remote },
            (false, remote) => AccessClass::Dram { remote },
        };
    }
    if elsewhere && lvl_num == NUM_NA {
        return AccessClass::Remote;
    }
    if elsewhere || lvl & LVL_REM_CCE2 != 0 {
        return AccessClass::RemoteCache { modified };
    }
    if lvl & LVL_MISS != 0 {
        return AccessClass::LevelUnknown;
    }
    let cache_number = matches!(lvl_num, 1..=7 | NUM_ANY_CACHE | NUM_LFB);
    if cache_number || lvl & LVL_CACHE != 0 || memory {
        return AccessClass::LocalCache { modified };
    }
    AccessClass::Unknown
}

/// Whether the access stores and does not load.
pub fn is_store(word: u64) -> bool {
    let op = Fields::of(word).op;
    op & OP_STORE != 0 && op & OP_LOAD == 0
}

/// The cache of another core that answered a load, because the line was modified there (x86: HITM) or taken
/// from it (Arm: peer snoop). `None` for all else, and where the CPU does not report it.
pub fn transfer(word: u64) -> Option<Transfer> {
    let Fields { op, lvl, snoop, remote, snoopx, hops, .. } = Fields::of(word);
    let is_taken = snoop & SNOOP_HITM != 0 || snoopx & SNOOPX_PEER != 0;
    if op & OP_LOAD == 0 || !is_taken {
        return None;
    }
    let elsewhere = (remote && hops != HOPS_0) || lvl & LVL_REM_CCE2 != 0;
    Some(if elsewhere { Transfer::Far } else { Transfer::Near })
}

#[cfg(test)]
mod tests {
    use super::AccessClass::*;
    use super::*;

    const LOCAL: AccessClass = LocalCache { modified: false };
    const REMOTE_CACHE: AccessClass = RemoteCache { modified: false };
    const MODIFIED: AccessClass = RemoteCache { modified: true };
    const NEAR: AccessClass = Dram { remote: false };
    const FAR: AccessClass = Dram { remote: true };

    /// Words that kernels write, computed from their own macros: arch/x86/events/intel/ds.c, arch/x86/events/amd/ibs.c and
    /// tools/perf/util/arm-spe.c.
    const WORDS: &[(&str, &[u64], AccessClass)] = &[
        ("Intel L1, fill buffer, L3", &[0x2_0010_0142, 0x18_0010_0242, 0x6_0010_0842], LOCAL),
        ("Intel L3, modified elsewhere", &[0x6_0080_0842], LocalCache { modified: true }),
        ("Intel up to Broadwell 0x08", &[0x26_0020_8042], REMOTE_CACHE),
        ("Intel up to Broadwell 0x09", &[0x26_0080_8042], MODIFIED),
        ("Intel 0x0a, up to Broadwell 0x0c", &[0x1a_0020_1042, 0x1a_0050_1042], NEAR),
        ("Intel up to Broadwell 0x0b, 0x0d", &[0x26_0020_2042, 0x3a_0050_2042], FAR),
        ("Intel I/O", &[0x1e_0012_0042], Device),
        ("Intel, a miss of L3", &[0x6_0008_0082], LevelUnknown),
        ("Skylake-SP and later, PMEM 0x08", &[0x1c_0020_0042], NEAR),
        ("Skylake-SP and later, PMEM 0x09", &[0x3c_0020_0042], FAR),
        ("Skylake-SP and later, 0x0b", &[0x3a_0010_0042], FAR),
        ("Skylake-SP and later, 0x0c", &[0x76_0000_0042], REMOTE_CACHE),
        ("Skylake-SP and later, 0x0d", &[0x36_0080_0042], MODIFIED),
        ("Sierra and Clearwater Forest, 0x0a", &[0x1a_0010_1042], NEAR),
        ("Sierra and Clearwater Forest, 0x0c", &[0x7a_0000_0042], REMOTE_CACHE),
        ("Sierra and Clearwater Forest, 0x0d", &[0x3a_0080_0042], MODIFIED),
        ("Diamond Rapids, region 0", &[0x2_001a_0010_1042], NEAR),
        ("Diamond Rapids, region 1 of another node", &[0x2_403a_0010_2042], FAR),
        ("Diamond Rapids, MMIO", &[0x1_c01a_0010_0042], Device),
        ("Zen 1 to 3, cache, Linux 6.12 and 6.1", &[0x816_0000_8842, 0x8842], LOCAL),
        ("Zen 1 to 3, remote cache", &[0x1036_0001_0042, 0x1_0042], REMOTE_CACHE),
        ("Zen, DRAM", &[0x1a_0000_1042, 0x1042], NEAR),
        ("Zen, DRAM of another node", &[0x103a_0000_2042, 0x2042], FAR),
        ("Zen 4, L3", &[0x6_0000_0842], LOCAL),
        ("Zen 4, the cluster beside", &[0x836_0000_8042, 0x8042], LOCAL),
        ("Zen 4, CXL", &[0x12_0000_0002], Cxl { remote: false }),
        ("Zen 4, CXL of another node", &[0x1032_0000_0002], Cxl { remote: true }),
        ("Zen, a store that missed", &[0x1e_0000_0024], Unknown),
        ("no access, a software event", &[0x1, 0x1e_0508_0021], NoAccess),
        ("SPE, DRAM", &[0x1a_0010_1042], NEAR),
        ("SPE, another socket", &[0xbe_0000_0022], Remote),
        ("SPE of HIP12, remote memory", &[0x3a_0000_2042], FAR),
        ("SPE of HIP12, remote socket, modified", &[0xb6_0081_0002], MODIFIED),
        ("SPE of HIP12, the cluster beside", &[0x86_0000_8042], LOCAL),
    ];

    #[test]
    fn words_of_kernels_have_their_class() {
        for (what, words, expected) in WORDS {
            for word in *words {
                assert_eq!(class(*word), *expected, "{what}: {word:#x}");
            }
        }
    }

    #[test]
    fn lines_that_another_core_had_are_told_from_all_others() {
        let far = [0x26_0080_8042, 0x36_0080_0042, 0x3a_0080_0042, 0xb6_0081_0002];
        for word in far {
            assert_eq!(transfer(word), Some(Transfer::Far), "{word:#x}");
        }
        // L3 with the line modified in another core; a peer core of Arm (L2, snoopx PEER).
        for word in [0x6_0080_0842, 0x84_0000_0402] {
            assert_eq!(transfer(word), Some(Transfer::Near), "{word:#x}");
        }
        let modified =
            |class| matches!(class, LocalCache { modified: true } | RemoteCache { modified: true });
        for (what, words, class) in WORDS.iter().filter(|(what, ..)| !what.starts_with("SPE")) {
            for word in *words {
                assert_eq!(transfer(*word).is_some(), modified(*class), "{what}: {word:#x}");
            }
        }
        // A store that found its line modified elsewhere is not one of the loads.
        assert_eq!((transfer(0x6_0080_0844), is_store(0x6_0080_0844)), (None, true));
        assert!(!is_store(0x6_0080_0842) && !is_store(0x1e_0508_0021));
    }

    #[test]
    fn any_word_has_a_class() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100_000 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            class(word);
        }
    }
}
