// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Whose accesses did NUMA balancing see, and were the pages on the node of the
 * CPU? Runs once for each hinting fault that found its page. The same program
 * twice: user space loads the first of the two that the kernel takes.
 */
#include "maps.bpf.h"

/* User space sets the size: one entry per possible node. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_hints);
} hints SEC(".maps");

/*
 * A fault counts as local when the page was there before it was moved: as the
 * kernel itself has it in numa_hint_faults_local.
 */
static inline int hint_fault(int flags)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);
	__u32 nid = bpf_get_numa_node_id();
	struct nt_hints *node = bpf_map_lookup_elem(&hints, &nid);
	__u64 remote = !(flags & TNF_FAULT_LOCAL);

	if (node) {
		__sync_fetch_and_add(&node->faults, 1);
		__sync_fetch_and_add(&node->remote, remote);
	}
	if (rec && rec->in_scope) {
		rec->hint_faults++;
		rec->hint_remote += remote;
	}
	return 0;
}

SEC("fentry/task_numa_fault")
int BPF_PROG(on_hint_fault, int last_cpupid, int mem_node, int pages, int flags)
{
	return hint_fault(flags);
}

/* Where functions have no trampolines: arm64 before 6.4. */
SEC("kprobe/task_numa_fault")
int on_hint_fault_kprobe(void *regs)
{
	return hint_fault(nt_fourth_argument(regs));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
