// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NUMA hinting faults by task and by CPU, and how many found the page on another
 * node than the CPU. Runs once for each hinting fault that found its page.
 */
#include "records.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_cpu_hints);
} cpu_hints SEC(".maps");

/*
 * A fault counts as local when the page was already on this node, as in the kernel's numa_hint_faults_local.
 */
static inline void count_hint_fault(int flags)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);
	bool remote = !(flags & TNF_FAULT_LOCAL);
	struct nt_cpu_hints *here;
	__u32 only = 0;

	/* Atomic, because another task that faults may take the CPU in between. */
	here = bpf_map_lookup_elem(&cpu_hints, &only);
	if (here) {
		__sync_fetch_and_add(&here->faults, 1);
		if (remote)
			__sync_fetch_and_add(&here->remote, 1);
	}
	if (!rec || !rec->in_scope)
		return;
	rec->counters[NT_HINT_FAULTS]++;
	if (remote)
		rec->counters[NT_HINT_REMOTE]++;
}

/* task_numa_fault(last_cpupid, mem_node, pages, flags) */
NT_TWINS(on_hint_fault, "fentry/task_numa_fault", "kprobe/task_numa_fault")
{
	count_hint_fault(nt_twin_argument(3));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
