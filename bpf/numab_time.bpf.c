// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The part of a task's CPU time that NUMA balancing takes. The programs run at the beginning and end of each
 * scan of its memory, and of each hinting fault. A fault is measured from the check whether the page is on a
 * good node until the kernel has accounted for it, so moving the page is included. The exception itself and
 * the page table walk are not.
 */
#include "records.bpf.h"

static inline void begin_stretch(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);

	if (!rec || !rec->in_scope)
		return;
	rec->balancing_from_ns = bpf_ktime_get_ns();
	rec->balancing_from_exec = task->se.sum_exec_runtime;
	rec->balancing_from_switches = task->nvcsw + task->nivcsw;
}

static inline void end_stretch(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	__u64 spent, ran;

	if (!rec || !rec->in_scope || !rec->balancing_from_ns)
		return;
	spent = bpf_ktime_get_ns() - rec->balancing_from_ns;
	/*
	 * It left its CPU meanwhile, to wait or because it was migrated. The scheduler's clock of the task stops
	 * then, but advances only once per tick.
	 */
	if (rec->balancing_from_switches != (__u32)(task->nvcsw + task->nivcsw)) {
		ran = task->se.sum_exec_runtime - rec->balancing_from_exec;
		if (ran < spent)
			spent = ran;
	}
	rec->counters[NT_BALANCING_NS] += spent;
	rec->balancing_from_ns = 0;
}

NT_TWINS(on_scan_begin, "fentry/task_numa_work", "kprobe/task_numa_work")
{
	begin_stretch();
}

NT_TWINS(on_scan_end, "fexit/task_numa_work", "kretprobe/task_numa_work")
{
	end_stretch();
}

NT_TWINS(on_hint_begin, "fentry/mpol_misplaced", "kprobe/mpol_misplaced")
{
	begin_stretch();
}

NT_TWINS(on_hint_end, "fexit/task_numa_fault", "kretprobe/task_numa_fault")
{
	end_stretch();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
