/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is this task wanted? The scope as user space set it. */
#ifndef TARGET_BPF_H
#define TARGET_BPF_H

#include "cgroup.bpf.h"
#include "numatop.h"

#define CGROUP_DEPTH_MAX 64	/* levels looked at; deeper ones count as out of scope */

const volatile bool scoped = false;		/* not every task is wanted */

/* Bit k: the scope has ids of kind k. May change at run time. */
__u32 scope_kinds = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct nt_scope_key);
	__type(value, __u8);
} scope_ids SEC(".maps");

static inline bool nt_has_id(__u32 kind, __u64 id)
{
	struct nt_scope_key key = { .kind = kind, .id = id };

	return bpf_map_lookup_elem(&scope_ids, &key) != NULL;
}

static inline bool nt_in_cgroup(struct task_struct *task)
{
	struct cgroup_subsys_state *css = nt_css(task);
	int i;

	for (i = 0; i < CGROUP_DEPTH_MAX; i++) {
		if (!css)
			return false;
		if (nt_has_id(NT_SCOPE_CGROUP, css->cgroup->kn->id))
			return true;
		css = css->parent;
	}
	return false;
}

static inline bool nt_wanted(struct task_struct *task)
{
	__u32 kinds = scope_kinds;

	if (!scoped)
		return true;
	if (kinds & (1 << NT_SCOPE_PID) && !nt_has_id(NT_SCOPE_PID, task->tgid))
		return false;
	if (kinds & (1 << NT_SCOPE_TID) && !nt_has_id(NT_SCOPE_TID, task->pid))
		return false;
	if (kinds & (1 << NT_SCOPE_UID) && !nt_has_id(NT_SCOPE_UID, task->cred->uid.val))
		return false;
	if (kinds & (1 << NT_SCOPE_CGROUP) && !nt_in_cgroup(task))
		return false;
	return true;
}

#endif /* TARGET_BPF_H */
