// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Tasks that NUMA balancing sends to another node. Runs when the kernel
 * tries to bring a task to the node it prefers: at most once a second for each.
 */
#include "records.bpf.h"

/* The other half of a swap runs on another CPU meanwhile: its record has two writers. */
static inline void count_numa_move(struct task_struct *task, bool moved, bool swapped, bool stuck)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);

	if (!rec || !rec->in_scope)
		return;
	if (moved)
		__sync_fetch_and_add(&rec->counters[NT_NUMA_MOVES], 1);
	if (swapped)
		__sync_fetch_and_add(&rec->counters[NT_NUMA_SWAPS], 1);
	if (stuck)
		__sync_fetch_and_add(&rec->counters[NT_NUMA_STUCK], 1);
}

/* Before it is moved: a move that fails is followed by sched_stick_numa. */
SEC("tp_btf/sched_move_numa")
int BPF_PROG(on_move_numa, struct task_struct *task)
{
	count_numa_move(task, true, false, false);
	return 0;
}

SEC("tp_btf/sched_swap_numa")
int BPF_PROG(on_swap_numa, struct task_struct *task, int cpu, struct task_struct *other)
{
	count_numa_move(task, false, true, false);
	if (other)
		count_numa_move(other, false, true, false);
	return 0;
}

SEC("tp_btf/sched_stick_numa")
int BPF_PROG(on_stick_numa, struct task_struct *task)
{
	count_numa_move(task, false, false, true);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
