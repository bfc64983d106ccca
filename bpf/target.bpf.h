/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The scope as user space set it: whether a task is wanted. */
#ifndef TARGET_BPF_H
#define TARGET_BPF_H

#include "cgroup.bpf.h"
#include "numatop.h"

#define CGROUP_DEPTH_MAX 64 /* levels looked at; deeper ones count as out of scope */

/* Bit k: the scope is restricted by ids of kind k; 0: every task is wanted. May change at run time. */
__u32 scope_kinds = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct nt_scope_key);
	__type(value, __u8);
} scope_ids SEC(".maps");

/* Trees of processes are followed. Set by user space before load: without it the programs at births are as short as ever. */
const volatile bool follow_trees = false;

/*
 * Bit by thread id: it is in one of the trees. Each birth writes the bit of the new task, so a reused id is
 * not mistaken for its last owner. No member needs an allocation.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} tree_members SEC(".maps");

/* NULL for ids that no thread has. */
static inline __u64 *nt_tree_word(__u32 tid)
{
	__u32 at = tid / 64;

	return bpf_map_lookup_elem(&tree_members, &at);
}

static inline bool nt_in_tree(__u32 tid)
{
	__u64 *word = nt_tree_word(tid);

	return word && *(volatile __u64 *)word >> (tid % 64) & 1;
}

/* Returns whether it was none before. */
static inline bool nt_join_tree(__u32 tid)
{
	__u64 *word = nt_tree_word(tid), bit = 1ULL << (tid % 64);

	return word && !(__sync_fetch_and_or(word, bit) & bit);
}

static inline void nt_leave_tree(__u32 tid)
{
	__u64 *word = nt_tree_word(tid);

	if (word && nt_in_tree(tid))
		__sync_fetch_and_and(word, ~(1ULL << (tid % 64)));
}

static inline bool nt_has_id(__u32 kind, __u64 id)
{
	struct nt_scope_key key = { .kind = kind, .id = id };

	return bpf_map_lookup_elem(&scope_ids, &key) != NULL;
}

/*
 * Whether a cgroup, or one above it, is in the set of this kind; the address of its state is passed as a number. A global
 * function: the verifier looks at its loop once, and not for each caller.
 */
__noinline bool nt_in_cgroup(__u64 css_addr, __u32 kind)
{
	struct cgroup_subsys_state *css = (void *)css_addr;
	int i;

	for (i = 0; i < CGROUP_DEPTH_MAX; i++) {
		if (!css)
			return false;
		if (nt_has_id(kind, BPF_CORE_READ(css, cgroup, kn, id)))
			return true;
		css = BPF_CORE_READ(css, parent);
	}
	return false;
}

/* By what a task is itself. A global function: the verifier looks at its ways out once, and not for each of a loop. */
__noinline bool nt_wanted_ids(__u32 tgid, __u32 tid, __u32 uid)
{
	__u32 kinds = scope_kinds;

	if (kinds & (1 << NT_SCOPE_PID) && !nt_has_id(NT_SCOPE_PID, tgid))
		return false;
	if (kinds & (1 << NT_SCOPE_TID) && !nt_has_id(NT_SCOPE_TID, tid))
		return false;
	if (kinds & (1 << NT_SCOPE_UID) && !nt_has_id(NT_SCOPE_UID, uid))
		return false;
	if (follow_trees && kinds & (1 << NT_SCOPE_TREE) && !nt_in_tree(tid))
		return false;
	return true;
}

#define NT_SCOPE_IDS (1 << NT_SCOPE_PID | 1 << NT_SCOPE_TID | 1 << NT_SCOPE_UID | 1 << NT_SCOPE_TREE)

static inline bool nt_wanted_by_id(struct task_struct *task)
{
	if (!(scope_kinds & NT_SCOPE_IDS))
		return true;
	return nt_wanted_ids(task->tgid, task->pid, BPF_CORE_READ(task, cred, uid.val));
}

/* By the cgroup that it is in. */
static inline bool nt_wanted_by_cgroup(struct task_struct *task)
{
	__u32 kinds = scope_kinds;
	__u64 css = (__u64)nt_css(task);

	if (kinds & (1 << NT_SCOPE_CGROUP) && !nt_in_cgroup(css, NT_SCOPE_CGROUP))
		return false;
	if (kinds & (1 << NT_SCOPE_OUTSIDE) && nt_in_cgroup(css, NT_SCOPE_OUTSIDE))
		return false;
	return true;
}

static inline bool nt_wanted(struct task_struct *task)
{
	return !scope_kinds || (nt_wanted_by_id(task) && nt_wanted_by_cgroup(task));
}

#endif /* TARGET_BPF_H */
