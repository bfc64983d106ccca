// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Pages that reclaim freed on each node, by kswapd and by other tasks. Runs once per
 * batch of pages (32 or more), never on a path that an idle machine takes.
 *
 * kswapd works ahead of need; any other task reclaims because its own allocation has to wait. This is the
 * split of pgsteal_kswapd and pgsteal_direct in /proc/vmstat, which have no node.
 */
#include "core_compat.bpf.h"
#include "numatop.h"

/* User space sets the size: one entry per possible node. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nt_reclaim);
} reclaim SEC(".maps");

static struct nt_reclaim *on_node(int nid)
{
	__u32 at = nid;

	return bpf_map_lookup_elem(&reclaim, &at);
}

/* Both the classic LRU and, since 6.7, the multi-generational one report here. */
SEC("tp_btf/mm_vmscan_lru_shrink_inactive")
int BPF_PROG(on_shrink, int nid, unsigned long scanned, unsigned long reclaimed)
{
	struct nt_reclaim *node = on_node(nid);

	if (!node)
		return 0;
	if (bpf_get_current_task_btf()->flags & PF_KSWAPD)
		__sync_fetch_and_add(&node->kswapd_pages, reclaimed);
	else
		__sync_fetch_and_add(&node->direct_pages, reclaimed);
	return 0;
}

/* An allocation found its own node low and cleans up there before it goes to another (zone_reclaim_mode). */
SEC("tp_btf/mm_vmscan_node_reclaim_begin")
int BPF_PROG(on_node_reclaim, int nid)
{
	struct nt_reclaim *node = on_node(nid);

	if (node)
		__sync_fetch_and_add(&node->node_reclaims, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
