//! Events of Arm cores that the kernel lists.
//!
//! A core opens any event code, and one that it does not implement stays 0. PMCEID registers show which
//! common events it implements, codes 0x00 to 0x3f and 0x4000 to 0x403f. The kernel lists those below
//! `events` in sysfs (`armv8pmu_event_attr_is_visible` in drivers/perf/arm_pmuv3.c). All other codes are
//! unknown.

use std::collections::BTreeSet;

/// The state of an event below `events` in sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The core implements it.
    Yes,
    /// The core does not implement it, or a hypervisor took it away.
    No,
    /// In no list: its code is not a common one, or this kernel does not know its name.
    Unknown,
}

/// Names in the kernel's list since its beginning (Linux 4.7), in order of their codes, which begin at 0x01.
/// CHAIN (0x1e) is in no list.
const FIRST: [&str; 48] = [
    "l1i_cache_refill",
    "l1i_tlb_refill",
    "l1d_cache_refill",
    "l1d_cache",
    "l1d_tlb_refill",
    "ld_retired",
    "st_retired",
    "inst_retired",
    "exc_taken",
    "exc_return",
    "cid_write_retired",
    "pc_write_retired",
    "br_immed_retired",
    "br_return_retired",
    "unaligned_ldst_retired",
    "br_mis_pred",
    "cpu_cycles",
    "br_pred",
    "mem_access",
    "l1i_cache",
    "l1d_cache_wb",
    "l2d_cache",
    "l2d_cache_refill",
    "l2d_cache_wb",
    "bus_access",
    "memory_error",
    "inst_spec",
    "ttbr_write_retired",
    "bus_cycles",
    "",
    "l1d_cache_allocate",
    "l2d_cache_allocate",
    "br_retired",
    "br_mis_pred_retired",
    "stall_frontend",
    "stall_backend",
    "l1d_tlb",
    "l1i_tlb",
    "l2i_cache",
    "l2i_cache_refill",
    "l3d_cache_allocate",
    "l3d_cache_refill",
    "l3d_cache",
    "l3d_cache_wb",
    "l2d_tlb_refill",
    "l2i_tlb_refill",
    "l2d_tlb",
    "l2i_tlb",
];

/// Names added to the list later, each time all of a group. A kernel that lists one of a group knows the
/// others, and all earlier groups.
///
/// 1. Armv8.1 and SPE, in 2018. Kernels of the 4.18 age do not have them.
/// 2. "arm64: perf: Expose some new events via sysfs", Linux 5.9. The `caps` folder came after it.
/// 3. Trace buffers, Linux 5.13.
const LATER: [&[(u64, &str)]; 3] = [
    &[
        (0x31, "remote_access"),
        (0x32, "ll_cache"),
        (0x33, "ll_cache_miss"),
        (0x34, "dtlb_walk"),
        (0x35, "itlb_walk"),
        (0x36, "ll_cache_rd"),
        (0x37, "ll_cache_miss_rd"),
        (0x38, "remote_access_rd"),
        (0x4000, "sample_pop"),
        (0x4001, "sample_feed"),
        (0x4002, "sample_filtrate"),
        (0x4003, "sample_collision"),
    ],
    &[
        (0x39, "l1d_cache_lmiss_rd"),
        (0x3a, "op_retired"),
        (0x3b, "op_spec"),
        (0x3c, "stall"),
        (0x3d, "stall_slot_backend"),
        (0x3e, "stall_slot_frontend"),
        (0x3f, "stall_slot"),
        (0x4004, "cnt_cycles"),
        (0x4005, "stall_backend_mem"),
        (0x4006, "l1i_cache_lmiss"),
        (0x4009, "l2d_cache_lmiss_rd"),
        (0x400a, "l2i_cache_lmiss"),
        (0x400b, "l3d_cache_lmiss_rd"),
        (0x4020, "ldst_align_lat"),
        (0x4021, "ld_align_lat"),
        (0x4022, "st_align_lat"),
        (0x4024, "mem_access_checked"),
        (0x4025, "mem_access_checked_rd"),
        (0x4026, "mem_access_checked_wr"),
    ],
    &[
        (0x400c, "trb_wrap"),
        (0x400e, "trb_trig"),
        (0x4010, "trcextout0"),
        (0x4011, "trcextout1"),
        (0x4012, "trcextout2"),
        (0x4013, "trcextout3"),
        (0x4018, "cti_trigout4"),
        (0x4019, "cti_trigout5"),
        (0x401a, "cti_trigout6"),
        (0x401b, "cti_trigout7"),
    ],
];

/// The kernel's name of an event code, if a current kernel can list it.
pub fn kernel_name(code: u64) -> Option<&'static str> {
    let first = usize::try_from(code).ok().and_then(|code| FIRST.get(code.checked_sub(1)?)).copied();
    let later = || LATER.iter().copied().flatten().find(|(known, _)| *known == code).map(|(_, name)| *name);
    first.filter(|name| !name.is_empty()).or_else(later)
}

/// The groups that every kernel with a `caps` folder knows.
const BEFORE_CAPS: usize = 2;

/// The state of an event code under a kernel that lists `names`. `has_caps`: the PMU has a `caps` folder.
pub fn listed(code: u64, names: &BTreeSet<String>, has_caps: bool) -> Listed {
    let Some(name) = kernel_name(code) else { return Listed::Unknown };
    if names.contains(name) {
        return Listed::Yes;
    }
    let lists = |group: &&[(u64, &str)]| group.iter().any(|(_, name)| names.contains(*name));
    let groups = LATER.iter().rposition(lists).map_or(0, |last| last + 1);
    let known = groups.max(if has_caps { BEFORE_CAPS } else { 0 });
    match LATER.iter().position(|group| group.iter().any(|(later, _)| *later == code)) {
        Some(group) if group >= known => Listed::Unknown,
        _ => Listed::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn common_events_are_implemented_where_they_are_listed() {
        let names = of(&["cpu_cycles", "inst_retired", "ll_cache_rd"]);
        assert_eq!(listed(0x11, &names, false), Listed::Yes);
        assert_eq!(listed(0x24, &names, false), Listed::No);
        assert_eq!(listed(0x31, &names, false), Listed::No, "its group is known: ll_cache_rd is of it");
    }

    #[test]
    fn a_kernel_without_a_group_says_nothing_of_it() {
        let names = of(&["cpu_cycles", "inst_retired"]);
        for code in [0x31, 0x3d, 0x4004, 0x400c] {
            assert_eq!(listed(code, &names, false), Listed::Unknown, "{code:#x}");
        }
        let current = of(&["op_retired"]);
        assert_eq!(listed(0x3d, &current, false), Listed::No);
        assert_eq!(listed(0x31, &current, false), Listed::No, "the group before");
    }

    #[test]
    fn a_kernel_with_caps_hides_a_group_of_which_the_core_has_nothing() {
        let emulated = of(&["cpu_cycles", "inst_retired"]);
        assert_eq!(listed(0x31, &emulated, true), Listed::No);
        assert_eq!(listed(0x4005, &emulated, true), Listed::No);
        assert_eq!(listed(0x400c, &emulated, true), Listed::Unknown);
    }

    #[test]
    fn of_other_codes_no_kernel_says_anything() {
        let names = of(&["cpu_cycles", "op_retired", "remote_access"]);
        for code in [0x00, 0x1e, 0x40, 0x66, 0x4007, 0x4040, 0x8164, 0xd20d, u64::MAX] {
            assert_eq!(kernel_name(code), None, "{code:#x}");
            assert_eq!(listed(code, &names, true), Listed::Unknown, "{code:#x}");
        }
    }
}
