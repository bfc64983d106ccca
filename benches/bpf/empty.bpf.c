// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The least that a program at a context switch or a page allocation can cost: they do nothing. And the least that it takes to find
 * the record of a task, and to read two counters.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NULL ((void *)0)

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

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} records SEC(".maps");

/* By CPU; user space makes both as large as that takes. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} first_counter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} second_counter SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_record, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 *record = bpf_task_storage_get(&records, prev, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (record)
		*record += 1;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_counters, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 *record = bpf_task_storage_get(&records, prev, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (record)
		*record += bpf_perf_event_read(&first_counter, BPF_F_CURRENT_CPU) +
			   bpf_perf_event_read(&second_counter, BPF_F_CURRENT_CPU);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
