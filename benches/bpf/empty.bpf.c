// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The least that a program at a context switch can cost: it does nothing. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct task_struct;

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_empty, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
