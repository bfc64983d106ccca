//! The subject of a case in the words of a user who asks whether the tool works on a kernel. These are the
//! rows of the support matrix, in their order.

use crate::record::GuestId;

/// Rows and the cases that they sum up, on ordinary machines.
const FEATURES: &[(&str, &[&str])] = &[
    ("all programs load, and each number that is missing has its reason", &["load", "snapshot"]),
    ("topology: nodes, distances, CPUs, as QEMU was told", &["boot", "nodes", "topology"]),
    ("CPU time by node: pinned and moving threads", &["pinned", "moving"]),
    ("CPU time by socket and L3 domain where one node is shown", &["caches"]),
    ("nothing lost: fork storms, tasks that end, switches", &["storm", "exits", "switches", "stopped"]),
    ("CPUs taken off and on under load; isolated ones are left alone", &["hotplug", "isolated"]),
    ("a busy sibling of a hardware thread", &["siblings"]),
    ("a command in several places: its CPU time, memory and counts", &["places", "places_cores"]),
    ("bytes of disks by process and by cgroup", &["disk_paths", "disk_writeback"]),
    ("memory tiers: pages promoted and demoted", &["tiers"]),
    ("where memory is", &["placement", "placement_kinds", "placement_reserved"]),
    ("how much of its use is remote", &["remote"]),
    ("the same after NUMA balancing has moved it", &["remote_balanced"]),
    ("memory in use: no number from an emulated CPU, and the reason", &["memory_use"]),
    ("memory in use: samples of known loads have the nodes of their pages", &["memory_use_known"]),
    ("new pages and moved pages by node", &["fresh"]),
    (
        "NUMA balancing: hinting faults, pages and tasks that it moves, the time it takes",
        &["hinting", "hinting_unhooked", "balancing_time", "page_moves", "sent"],
    ),
    (
        "findings: printed commands cure what they are about; healthy machines have none",
        &[
            "findings",
            "findings_reclaim",
            "findings_healthy",
            "findings_other_node",
            "findings_segment",
            "findings_segment_quiet",
            "findings_one_node",
            "findings_apart",
            "findings_siblings",
            "findings_few_cpus",
            "findings_shared",
            "findings_lopsided",
            "findings_interleaved",
            "findings_spread",
            "findings_hugetlb",
            "findings_balancing_off",
            "findings_balancing_cost",
            "findings_ping_pong",
            "findings_quota",
            "findings_interrupts",
            "findings_far_device",
            "findings_gpu_away",
            "findings_bound",
            "findings_swaps",
            "findings_short",
            "findings_cache",
            "findings_hidden",
            "findings_tiers",
        ],
    ),
    ("numbers that need no PMU, by `selftest`", &["selftest"]),
    ("`calibrate`: pages where it asks for them", &["calibrate"]),
    ("counters, or why there are none", &["counters", "instructions", "alternators"]),
    ("scope by cgroup v2, and by process", &["cgroup", "scope"]),
    ("missing privileges and BTF: what to do", &["degraded"]),
    ("the screen in a terminal", &["tui"]),
    ("a kernel that is too old: what to do", &["too_old"]),
];

/// Machines that are not ordinary.
const VARIANTS: &[(&str, &str)] = &[
    ("icount0", "IPC of 1 by construction, instructions by task"),
    ("icount1", "IPC of 1/2 by construction, instructions by task"),
    ("icount2", "IPC of 1/4 by construction, instructions by task"),
    ("nopmu", "a machine without a PMU"),
    ("integrity", "lockdown=integrity"),
    ("confidentiality", "lockdown=confidentiality"),
];

/// The row for a case in this guest, and its position. A case that is in no list has a separate row at the
/// end.
pub fn row(case: &str, guest: &GuestId) -> (usize, String) {
    if let Some(at) = VARIANTS.iter().position(|(variant, _)| *variant == guest.variant) {
        return (FEATURES.len() + at, VARIANTS[at].1.to_owned());
    }
    match FEATURES.iter().position(|(_, cases)| cases.contains(&case)) {
        Some(at) => (at, FEATURES[at].0.to_owned()),
        None => (FEATURES.len() + VARIANTS.len(), case.to_owned()),
    }
}

#[cfg(test)]
pub fn rows() -> impl Iterator<Item = &'static str> {
    let features = FEATURES.iter().map(|(name, _)| *name);
    features.chain(VARIANTS.iter().map(|(_, name)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Wanted};

    #[test]
    fn each_case_that_a_guest_runs_has_its_row() {
        for job in &plan::shipped(&Wanted::default()).unwrap() {
            for case in &job.cases {
                let (_, name) = row(case, &GuestId::of(job));
                assert!(rows().any(|row| row == name), "no row of the matrix has the case {case}");
            }
        }
    }
}
