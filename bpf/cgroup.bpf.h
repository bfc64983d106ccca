/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cgroup of a task: in cgroup v2, or in the hierarchy of one v1 controller. */
#ifndef CGROUP_BPF_H
#define CGROUP_BPF_H

#include "core_compat.bpf.h"

const volatile __s32 cgroup_subsys = -1; /* index of the v1 controller that names cgroups; -1: cgroup v2 */

static inline struct cgroup_subsys_state *nt_css(struct task_struct *task)
{
	struct css_set *set = task->cgroups;

	if (!set)
		return NULL;
	if (cgroup_subsys < 0)
		return &set->dfl_cgrp->self;
	return set->subsys[cgroup_subsys];
}

static inline __u64 nt_cgroup_id(struct task_struct *task)
{
	struct cgroup_subsys_state *css = nt_css(task);

	return css ? css->cgroup->kn->id : 0;
}

#endif /* CGROUP_BPF_H */
