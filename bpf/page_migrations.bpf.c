// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Pages that were moved to another place or could not be, by task and cause. Runs once per batch of pages, in
 * the task that moves them. That task hit a NUMA hinting fault, called move_pages(2) or mbind(2), or is a
 * kernel thread that compacts or demotes memory.
 */
#include "nodes.bpf.h"
#include "node_matrix.bpf.h"
#include "records.bpf.h"

/* Set by user space before load. */
const volatile __u32 reason_at = 7; /* where in the arguments the reason is */

SEC("tp_btf/mm_migrate_pages")
int on_migrate_pages(__u64 *args)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);
	__u64 succeeded = args[0], failed = args[1];

	if (!rec || !rec->in_scope)
		return 0;
	rec->counters[NT_MIGRATED_PAGES] += succeeded;
	rec->counters[NT_MIGRATE_FAILED_PAGES] += failed;
	switch (nt_migrate_reason(args, reason_at)) {
	case MR_NUMA_MISPLACED:
		rec->counters[NT_BALANCED_PAGES] += succeeded;
		/* Counted here because only the batch knows its number of pages: large folios may have been split. */
		nt_add_moves(nr_nodes, rec->moves_from - 1, rec->moves_to - 1, succeeded);
		/* Not known where no function can be hooked (misplaced_pages.bpf.c): then it is zero at all times. */
		rec->moves_from = 0;
		break;
	case MR_SYSCALL:
	case MR_MEMPOLICY_MBIND:
		rec->counters[NT_ASKED_PAGES] += succeeded;
		break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
