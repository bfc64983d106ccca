/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of tasks, and how the fields of one are handed from CPU to CPU. */
#ifndef RECORDS_BPF_H
#define RECORDS_BPF_H

#include "core_compat.bpf.h"
#include "numatop.h"

/*
 * One record per task. User space makes this map itself, with values as long as
 * struct nt_rec and what follows it (src/collect/records.rs), and has it reused.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nt_rec);
} task_recs SEC(".maps");

/*
 * The race: the walk, or a move between cgroups, fills the record of a task that
 * runs on another CPU, and there a switch charges it at the same moment. If
 * in_scope were seen before exec_seen_ns, the task would be charged its time
 * since birth. arm64 may reorder the two stores, and also the two loads: a
 * branch on in_scope does not hold back the load behind it, and BPF has no
 * load-acquire before 6.15.
 *
 * So both sides use an atomic operation that returns a value, a full barrier in
 * every kernel that has it (5.12; arm64 5.18): the writer an exchange with
 * NT_REC_FRESH, the reader one more for each time it finds that bit. The CPU that
 * runs the task takes it away: all other switches pay one test of a bit. From
 * there the locks of the scheduler hand the record on along with its task.
 */
static inline void nt_publish_scope(struct nt_rec *rec, __u32 scope)
{
	__sync_lock_test_and_set(&rec->in_scope, scope | NT_REC_FRESH);
}

/* For all but the CPU that runs the task: fields that were filled before are seen after. */
static inline __u32 nt_scope_of(struct nt_rec *rec)
{
	__u32 scope = *(volatile __u32 *)&rec->in_scope;

	return scope & NT_REC_FRESH ? __sync_fetch_and_or(&rec->in_scope, 0) : scope;
}

/* The same on the CPU that runs the task: only the first look at what was published is atomic. */
static inline __u32 nt_take_scope(struct nt_rec *rec)
{
	__u32 scope = *(volatile __u32 *)&rec->in_scope;

	return scope & NT_REC_FRESH ? __sync_fetch_and_and(&rec->in_scope, ~NT_REC_FRESH) : scope;
}

#endif /* RECORDS_BPF_H */
