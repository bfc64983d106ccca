/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps that several objects share. sched.bpf.c owns them; user space makes
 * the other objects reuse them. Sizes here are placeholders: user space sets
 * them from the machine before load.
 */
#ifndef MAPS_BPF_H
#define MAPS_BPF_H

#include "core_compat.bpf.h"
#include "numatop.h"
#include "records.bpf.h"
#include "topo.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_dirty_tasks);
} dirty_tasks SEC(".maps");

/* NULL for thread ids above the pid_max of our start. */
static inline __u8 *nt_mark_of(__u32 tid)
{
	__u32 at = tid / NT_MARKS;
	struct nt_dirty_tasks *some = bpf_map_lookup_elem(&dirty_tasks, &at);

	return some ? &some->of[tid % NT_MARKS] : NULL;
}

/* Written only if need be: neighbours on other CPUs have the same cache line. */
static inline void nt_mark_dirty(__u32 tid)
{
	__u8 *mark = nt_mark_of(tid);

	if (mark && !*mark)
		*mark = 1;
}

static inline struct nt_cpu *nt_this_cpu(void)
{
	__u32 id = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &id);
}

static inline void nt_count_loss(struct nt_cpu *cpu, enum nt_loss cause)
{
	cpu->lost[cause]++;
}

#endif /* MAPS_BPF_H */
