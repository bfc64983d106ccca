/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cgroup of a task: in cgroup v2, or in the hierarchy of one v1 controller. */
#ifndef CGROUP_BPF_H
#define CGROUP_BPF_H

#include "core_compat.bpf.h"

const volatile __s32 cgroup_subsys = -1; /* index of the v1 controller that names cgroups; -1: cgroup v2 */

/*
 * Read by probe, here and in all uses. For each pointer that the verifier follows itself, kernels since 6.3
 * search all type names in each verifier state (btf_nested_type_is_trusted() of kernel/bpf/btf.c). To the
 * verifier the result of a probe is a number.
 */
static inline struct cgroup_subsys_state *nt_css(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;
	struct cgroup *cgroup;

	if (!set)
		return NULL;
	if (cgroup_subsys < 0) {
		cgroup = BPF_CORE_READ(set, dfl_cgrp);
		return &cgroup->self;
	}
	bpf_core_read(&css, sizeof(css), &set->subsys[cgroup_subsys]);
	return css;
}

static inline __u64 nt_cgroup_id(struct task_struct *task)
{
	struct cgroup_subsys_state *css = nt_css(task);

	return css ? BPF_CORE_READ(css, cgroup, kn, id) : 0;
}

#endif /* CGROUP_BPF_H */
