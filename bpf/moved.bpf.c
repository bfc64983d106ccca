// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * From which node to which does NUMA balancing set out to move a page? Runs once
 * for each page or large folio, before the kernel tries; balance.bpf.c counts what
 * came of it. The same program twice: user space loads the first of the two that
 * the kernel takes.
 */
#include "maps.bpf.h"

/* Set by user space before load. */
const volatile __u32 node_shift = 63; /* of the node in page->flags */
const volatile __u32 node_at = 1;     /* where in the arguments the node is */

static inline int set_out(void *page, int node)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);

	if (!rec)
		return 0;
	rec->moves_from = (nt_probed_page_flags(page) >> node_shift) + 1;
	rec->moves_to = node + 1;
	return 0;
}

SEC("fentry")
int on_misplaced(__u64 *args)
{
	return set_out((void *)args[0], nt_misplaced_to(args, node_at));
}

/* Where functions have no trampolines: arm64 before 6.4. */
SEC("kprobe")
int on_misplaced_kprobe(void *regs)
{
	void *page = (void *)nt_argument(regs, 0);

	if (node_at == 1)
		return set_out(page, nt_argument(regs, 1));
	return set_out(page, nt_argument(regs, 2));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
