// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How much of a task's time on its CPU does NUMA balancing take? Runs at the
 * begin and the end of each scan of its memory, and of each hinting fault from
 * where the kernel asks whether the page is on a good node until it has
 * accounted for the fault: the move of the page is in between. What the
 * exception itself and the walk to the page take is not in it.
 *
 * The same programs twice: user space loads those of the first rung that the
 * kernel takes.
 */
#include "maps.bpf.h"

static inline void begin(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);

	if (!rec || !rec->in_scope)
		return;
	rec->balancing_from_ns = bpf_ktime_get_ns();
	rec->balancing_from_exec = task->se.sum_exec_runtime;
	rec->balancing_from_switches = task->nvcsw + task->nivcsw;
}

static inline void end(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, task, NULL, 0);
	__u64 spent, ran;

	if (!rec || !rec->in_scope || !rec->balancing_from_ns)
		return;
	spent = bpf_ktime_get_ns() - rec->balancing_from_ns;
	/*
	 * It left its CPU meanwhile: to wait, or because it was sent to another one. The
	 * scheduler's clock of the task stands still then, but runs in steps of a tick.
	 */
	if (rec->balancing_from_switches != (__u32)(task->nvcsw + task->nivcsw)) {
		ran = task->se.sum_exec_runtime - rec->balancing_from_exec;
		if (ran < spent)
			spent = ran;
	}
	rec->counters[NT_BALANCING_NS] += spent;
	rec->balancing_from_ns = 0;
}

SEC("fentry/task_numa_work")
int BPF_PROG(on_scan_begin)
{
	begin();
	return 0;
}

SEC("fexit/task_numa_work")
int BPF_PROG(on_scan_end)
{
	end();
	return 0;
}

SEC("fentry/mpol_misplaced")
int BPF_PROG(on_hint_begin)
{
	begin();
	return 0;
}

SEC("fexit/task_numa_fault")
int BPF_PROG(on_hint_end)
{
	end();
	return 0;
}

/* Where functions have no trampolines: arm64 before 6.4. */
SEC("kprobe/task_numa_work")
int on_scan_begin_kprobe(void *regs)
{
	begin();
	return 0;
}

SEC("kretprobe/task_numa_work")
int on_scan_end_kprobe(void *regs)
{
	end();
	return 0;
}

SEC("kprobe/mpol_misplaced")
int on_hint_begin_kprobe(void *regs)
{
	begin();
	return 0;
}

SEC("kretprobe/task_numa_fault")
int on_hint_end_kprobe(void *regs)
{
	end();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
