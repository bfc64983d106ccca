/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of tasks, and how the fields of one are handed from CPU to CPU. */
#ifndef RECORDS_BPF_H
#define RECORDS_BPF_H

#include "core_compat.bpf.h"
#include "numatop.h"

/*
 * One record per task. User space creates this map with values as long as struct nt_rec and its arrays
 * (crates/measure/src/collect/maps.rs), and the object reuses it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nt_rec);
} task_recs SEC(".maps");

/*
 * The race: the walk, or a move between cgroups, fills the record of a task that runs on another CPU. A
 * switch there charges the record at the same moment. A switch that reads the new in_scope but the old
 * exec_seen_ns would charge the task its time since birth. arm64 may reorder the two stores, and also the two
 * loads. A branch on in_scope does not order the load after it, and BPF has no load-acquire before 6.15.
 *
 * So both sides use an atomic operation that returns a value, which is a full barrier in every kernel that
 * supports it (5.12; arm64 5.18). The writer exchanges in NT_REC_FRESH. The reader does another exchange each
 * time it finds that bit, and the CPU that runs the task clears it. All other switches pay for one test of a
 * bit. From there the locks of the scheduler pass the record on along with its task.
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
