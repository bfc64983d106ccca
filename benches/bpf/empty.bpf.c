// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The least that a program at a context switch or a page allocation can cost: they do nothing. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct page;
struct task_struct;

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_empty, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(mm_page_alloc_empty, struct page *page, unsigned int order, unsigned int gfp)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
