// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Whose pages were moved to another node, or could not be? Runs once per batch
 * of pages, in the task on whose behalf they are moved: one that hit a NUMA
 * hinting fault, or that asked for it (move_pages(2), mbind(2)), or a thread of
 * the kernel that compacts or demotes memory.
 */
#include "maps.bpf.h"

SEC("tp_btf/mm_migrate_pages")
int BPF_PROG(on_migrate_pages, unsigned long succeeded, unsigned long failed)
{
	struct nt_rec *rec = bpf_task_storage_get(&task_recs, bpf_get_current_task_btf(), NULL, 0);

	if (!rec || !rec->in_scope)
		return 0;
	rec->migrated_pages += succeeded;
	rec->migrate_failed_pages += failed;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
