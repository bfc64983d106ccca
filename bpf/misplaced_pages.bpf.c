// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The nodes from and to which NUMA balancing sets out to move a page. Runs once
 * for each page or large folio, before the kernel tries; page_migrations.bpf.c counts the
 * pages that were moved.
 */
#include "records.bpf.h"

/* Set by user space before load. */
const volatile __u32 node_shift = 63; /* of the node in page->flags */
const volatile __u32 node_at = 1;     /* where in the arguments the node is */

static inline void note_nodes(void *page, int node)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);

	if (!rec)
		return;
	rec->moves_from = (nt_probed_page_flags(page) >> node_shift) + 1;
	rec->moves_to = node + 1;
}

/* The name of the function depends on the kernel: user space sets it. */
NT_TWINS(on_misplaced, "fentry", "kprobe")
{
	note_nodes((void *)nt_twin_argument(0), nt_misplaced_to(node_at));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
